//! Log: defmt frames on the serial line. Output does not depend on a reader.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use critical_section::{Mutex, RestoreState};

use crate::{board, time};

#[defmt::global_logger]
struct Serial;

/// Set while a frame is being written.
static WRITING: AtomicBool = AtomicBool::new(false);
/// Set after the first call of [`last_words`].
static LAST: AtomicBool = AtomicBool::new(false);
static RESTORE: Mutex<Cell<RestoreState>> = Mutex::new(Cell::new(RestoreState::invalid()));
static ENCODER: Mutex<Cell<defmt::Encoder>> = Mutex::new(Cell::new(defmt::Encoder::new()));

defmt::timestamp!("{=u64:ms}", time::millis());

/// Prepares the log for the last message before the board stops, possibly in the middle of a frame. The unfinished
/// frame is abandoned: a new encoder first ends it, and the reader discards it and continues. Returns false if called
/// before, which means that writing the last message has failed.
pub(crate) fn last_words() -> bool {
    WRITING.store(false, Ordering::Relaxed);
    critical_section::with(|cs| ENCODER.borrow(cs).set(defmt::Encoder::new()));
    !LAST.swap(true, Ordering::Relaxed)
}

/// Encodes with the encoder taken out of its cell, so that an abandoned frame leaves no borrow behind.
fn encode(step: impl FnOnce(&mut defmt::Encoder)) {
    critical_section::with(|cs| {
        let mut encoder = ENCODER.borrow(cs).replace(defmt::Encoder::new());
        step(&mut encoder);
        ENCODER.borrow(cs).set(encoder);
    });
}

// SAFETY: a frame is written from acquire to release with interrupts off, on a single core, so by one caller at a time.
// Faults can still interrupt it. A fault handler calls last_words() before it logs, and does not return.
unsafe impl defmt::Logger for Serial {
    fn acquire() {
        // SAFETY: release() restores the state. defmt calls it once for each acquire().
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
