//! The log: defmt's frames on the serial line, whether anybody listens or not.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use critical_section::{Mutex, RestoreState};

use crate::{board, time};

#[defmt::global_logger]
struct Serial;

/// Whether a frame is being written: a handler that logs in the middle of one would spoil it.
static WRITING: AtomicBool = AtomicBool::new(false);
static RESTORE: Mutex<Cell<RestoreState>> = Mutex::new(Cell::new(RestoreState::invalid()));
static ENCODER: Mutex<Encoder> = Mutex::new(Encoder(core::cell::RefCell::new(defmt::Encoder::new())));

struct Encoder(core::cell::RefCell<defmt::Encoder>);

defmt::timestamp!("{=u64:ms}", time::millis());

/// Whether a frame is being written, so that nothing else can be logged.
pub(crate) fn is_writing() -> bool {
    WRITING.load(Ordering::Relaxed)
}

// SAFETY: a frame is written from acquire to release with interrupts off, on a single core, so by one caller at a time.
unsafe impl defmt::Logger for Serial {
    fn acquire() {
        // SAFETY: release() gives it back, which defmt calls once for each acquire().
        let restore = unsafe { critical_section::acquire() };
        assert!(!WRITING.swap(true, Ordering::Relaxed), "logged in the middle of a frame");
        critical_section::with(|cs| {
            RESTORE.borrow(cs).set(restore);
            ENCODER.borrow(cs).0.borrow_mut().start_frame(board::serial_write);
        });
    }

    unsafe fn flush() {}

    unsafe fn release() {
        let restore = critical_section::with(|cs| {
            ENCODER.borrow(cs).0.borrow_mut().end_frame(board::serial_write);
            RESTORE.borrow(cs).get()
        });
        WRITING.store(false, Ordering::Relaxed);
        // SAFETY: acquire() took it, on this same core.
        unsafe { critical_section::release(restore) }
    }

    unsafe fn write(bytes: &[u8]) {
        critical_section::with(|cs| ENCODER.borrow(cs).0.borrow_mut().write(bytes, board::serial_write));
    }
}
