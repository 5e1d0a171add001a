//! The clock: SysTick, a thousand times a second.

use core::cell::Cell;

use cortex_m::peripheral::SYST;
use cortex_m::peripheral::syst::SystClkSource;
use critical_section::Mutex;

use crate::board;

static MILLIS: Mutex<Cell<u64>> = Mutex::new(Cell::new(0));

/// Starts it.
pub(crate) fn start(syst: &mut SYST) {
    syst.set_clock_source(SystClkSource::Core);
    syst.set_reload(board::CLOCK_HZ / 1000 - 1);
    syst.clear_current();
    syst.enable_counter();
    syst.enable_interrupt();
}

/// Milliseconds since the start.
pub(crate) fn millis() -> u64 {
    critical_section::with(|cs| MILLIS.borrow(cs).get())
}

/// Ticks until the next millisecond.
pub(crate) fn ticks() -> u32 {
    SYST::get_current()
}

#[cortex_m_rt::exception]
fn SysTick() {
    critical_section::with(|cs| {
        let millis = MILLIS.borrow(cs);
        millis.set(millis.get() + 1);
    });
}
