//! Handlers of internal failures. A failure is logged, and the board stops until its watchdog resets it. Under a debugger
//! or in QEMU the session ends with a failure, unless it is the main loop that hangs.

use core::panic::PanicInfo;

use cortex_m::peripheral::SCB;
use cortex_m_rt::ExceptionFrame;
use cortex_m_semihosting::debug;

use crate::{board, log};

fn stop() -> ! {
    loop {
        // On a chip without a debugger the call would be a fault of its own.
        if cfg!(feature = "semihosting") {
            debug::exit(debug::EXIT_FAILURE);
        }
    }
}

/// Logs that the main loop hangs, and waits for the watchdog's reset. Its interrupt cannot return, because it is pending until
/// the watchdog begins anew.
pub(crate) fn hang() -> ! {
    if log::last_words() {
        defmt::error!("the main loop has not turned for {=u32} ms: reset", board::WATCHDOG_MS);
    }
    loop {
        cortex_m::asm::nop();
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    cortex_m::interrupt::disable();
    if log::last_words() {
        let message = defmt::Display2Format(&info.message());
        match info.location() {
            Some(at) => defmt::error!("panic at {=str}:{=u32}: {}", at.file(), at.line(), message),
            None => defmt::error!("panic: {}", message),
        }
    }
    stop()
}

#[cortex_m_rt::exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    if log::last_words() {
        // SAFETY: reading these registers, which always exist, has no side effects.
        let (cfsr, bfar) = unsafe { ((*SCB::PTR).cfsr.read(), (*SCB::PTR).bfar.read()) };
        defmt::error!(
            "hard fault at {=u32:#010x}, called from {=u32:#010x}: CFSR {=u32:#010x}, BFAR {=u32:#010x}",
            frame.pc(),
            frame.lr(),
            cfsr,
            bfar,
        );
        defmt::error!(
            "r0 {=u32:#010x}, r1 {=u32:#010x}, r2 {=u32:#010x}, r3 {=u32:#010x}, r12 {=u32:#010x}, xpsr {=u32:#010x}",
            frame.r0(),
            frame.r1(),
            frame.r2(),
            frame.r3(),
            frame.r12(),
            frame.xpsr(),
        );
    }
    stop()
}
