//! The log: defmt's frames on the serial line, whether anybody listens or not.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use critical_section::{Mutex, RestoreState};

use crate::{board, time};

#[defmt::global_logger]
struct Serial;

/// Whether a frame is being written.
static WRITING: AtomicBool = AtomicBool::new(false);
/// Whether the last words have begun.
static LAST: AtomicBool = AtomicBool::new(false);
static RESTORE: Mutex<Cell<RestoreState>> = Mutex::new(Cell::new(RestoreState::invalid()));
static ENCODER: Mutex<Cell<defmt::Encoder>> = Mutex::new(Cell::new(defmt::Encoder::new()));

defmt::timestamp!("{=u64:ms}", time::millis());

/// Makes the log fit for the last that is said, which may come in the middle of a frame. That one is broken off: a new
/// encoder begins by ending it, and whoever reads finds it spoilt and goes on behind it. False to whoever fails while
/// saying it: there is no more to say.
pub(crate) fn last_words() -> bool {
    WRITING.store(false, Ordering::Relaxed);
    critical_section::with(|cs| ENCODER.borrow(cs).set(defmt::Encoder::new()));
    !LAST.swap(true, Ordering::Relaxed)
}

/// The encoder is taken out while it is at work, so that nothing is left borrowed when it is broken off.
fn encode(step: impl FnOnce(&mut defmt::Encoder)) {
    critical_section::with(|cs| {
        let mut encoder = ENCODER.borrow(cs).replace(defmt::Encoder::new());
        step(&mut encoder);
        ENCODER.borrow(cs).set(encoder);
    });
}

// SAFETY: a frame is written from acquire to release with interrupts off, on a single core, so by one caller at a time.
// Faults come all the same; what they log begins with last_words(), and they do not return.
unsafe impl defmt::Logger for Serial {
    fn acquire() {
        // SAFETY: release() gives it back, which defmt calls once for each acquire().
        let restore = unsafe { critical_section::acquire() };
        assert!(!WRITING.swap(true, Ordering::Relaxed), "logged in the middle of a frame");
        critical_section::with(|cs| RESTORE.borrow(cs).set(restore));
        encode(|encoder| encoder.start_frame(board::serial_write));
    }

    unsafe fn flush() {}

    unsafe fn release() {
        encode(|encoder| encoder.end_frame(board::serial_write));
        let restore = critical_section::with(|cs| RESTORE.borrow(cs).get());
        WRITING.store(false, Ordering::Relaxed);
        // SAFETY: acquire() took it, on this same core.
        unsafe { critical_section::release(restore) }
    }

    unsafe fn write(bytes: &[u8]) {
        encode(|encoder| encoder.write(bytes, board::serial_write));
    }
}
