//! What cannot be: it is logged, and the board stops. Under a debugger or in QEMU that ends the session with failure.

use core::panic::PanicInfo;

use cortex_m_rt::ExceptionFrame;
use cortex_m_semihosting::debug;

use crate::log;

fn stop() -> ! {
    loop {
        debug::exit(debug::EXIT_FAILURE);
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    cortex_m::interrupt::disable();
    match info.location() {
        _ if log::is_writing() => {}
        Some(at) => defmt::error!("panic at {=str}:{=u32}", at.file(), at.line()),
        None => defmt::error!("panic"),
    }
    stop()
}

#[cortex_m_rt::exception]
unsafe fn HardFault(frame: &ExceptionFrame) -> ! {
    if !log::is_writing() {
        defmt::error!("hard fault at {=u32:#010x}, called from {=u32:#010x}", frame.pc(), frame.lr());
    }
    stop()
}
