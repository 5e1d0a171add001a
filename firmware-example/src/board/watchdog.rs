//! Watchdog of either board: Arm's CMSDK watchdog. Its first timeout is an interrupt, and its second one resets the board.

use super::{CLOCK_HZ, WATCHDOG};

const WDOGLOAD: u32 = 0x00;
const WDOGVALUE: u32 = 0x04;
const WDOGCONTROL: u32 = 0x08;
const WDOGINTCLR: u32 = 0x0C;
const WDOGLOCK: u32 = 0xC00;

const CONTROL_INTERRUPT: u32 = 1;
const CONTROL_RESET: u32 = 2;
/// Written to [`WDOGLOCK`], it permits writes to the other registers. Any other value forbids them.
const UNLOCK: u32 = 0x1ACC_E551;

/// Milliseconds without a turn of the main loop until the interrupt, and from there to the reset. A turn waits at most
/// [`STALL_MS`](hydrant_core::manage::STALL_MS) for a host that does not read its recording.
pub(crate) const WATCHDOG_MS: u32 = 7000;

/// Ticks of the watchdog's clock until its interrupt.
const TICKS: u32 = CLOCK_HZ / 1000 * WATCHDOG_MS;

/// Starts the watchdog. It cannot be stopped.
pub(crate) fn watchdog_start() {
    WATCHDOG.write(WDOGLOCK, UNLOCK);
    WATCHDOG.write(WDOGLOAD, TICKS);
    WATCHDOG.write(WDOGCONTROL, CONTROL_INTERRUPT | CONTROL_RESET);
    WATCHDOG.write(WDOGLOCK, 0);
}

/// Has the watchdog begin anew.
pub(crate) fn watchdog_feed() {
    WATCHDOG.write(WDOGLOCK, UNLOCK);
    WATCHDOG.write(WDOGINTCLR, 1);
    WATCHDOG.write(WDOGLOCK, 0);
}

/// Returns whether half of the watchdog's time is over. It is asked itself, because interrupts of the clock may be lost
/// while an emulated board has no processor.
pub(crate) fn watchdog_is_hungry() -> bool {
    WATCHDOG.read(WDOGVALUE) < TICKS / 2
}
