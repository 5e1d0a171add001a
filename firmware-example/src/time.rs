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
    #[cfg(feature = "embassy")]
    tasks::tick(millis());
}

/// The clock of Embassy's tasks.
#[cfg(feature = "embassy")]
mod tasks {
    use core::cell::RefCell;
    use core::task::Waker;

    use critical_section::Mutex;
    use embassy_time_driver::time_driver_impl;
    use embassy_time_queue_utils::Queue;

    use super::millis;

    /// Time of Embassy: milliseconds.
    struct Clock {
        queue: Mutex<RefCell<Queue>>,
    }

    time_driver_impl!(static CLOCK: Clock = Clock { queue: Mutex::new(RefCell::new(Queue::new())) });

    impl embassy_time_driver::Driver for Clock {
        fn now(&self) -> u64 {
            millis()
        }

        fn schedule_wake(&self, at: u64, waker: &Waker) {
            critical_section::with(|cs| self.queue.borrow_ref_mut(cs).schedule_wake(at, waker));
        }
    }

    /// Wakes tasks whose time has come. Called once a millisecond.
    pub(super) fn tick(now: u64) {
        critical_section::with(|cs| CLOCK.queue.borrow_ref_mut(cs).next_expiration(now));
    }
}
