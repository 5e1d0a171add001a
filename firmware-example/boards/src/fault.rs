//! Handler of panics: the message is logged, and the board stops until its watchdog resets it.

use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

/// Set by the first panic. One in the middle of a frame of the log would be followed by another one.
static PANICKED: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    critical_section::with(|_| {
        if !PANICKED.load(Ordering::Relaxed) {
            PANICKED.store(true, Ordering::Relaxed);
            defmt::error!("{}", defmt::Display2Format(info));
        }
        loop {
            core::hint::spin_loop();
        }
    })
}
