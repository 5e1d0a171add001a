//! Watchdog timer, which restarts a board whose main loop stands still. Both boards have Arm's (CMSDK), under the register
//! names of its manual.
//!
//! The first time-out is an interrupt, which is logged. The second one, after the same time, resets the board.

use super::{CLOCK_HZ, WATCHDOG, WATCHDOG_IRQ};

/// Time of a time-out, in seconds. The main loop turns at least once a second, and while a recording waits for its host.
pub(crate) const SECONDS: u32 = 6;

const WDOGLOAD: u32 = 0x00;
const WDOGCONTROL: u32 = 0x08;
const WDOGINTCLR: u32 = 0x0C;
const WDOGLOCK: u32 = 0xC00;

/// Bits of [`WDOGCONTROL`].
const INTEN: u32 = 1;
const RESEN: u32 = 1 << 1;
/// Value of [`WDOGLOCK`] that makes the other registers writable. Any other value locks them.
const UNLOCK: u32 = 0x1ACC_E551;

/// Starts the timer. Called once, before the main loop.
pub(crate) fn start() {
    WATCHDOG.write(WDOGLOCK, UNLOCK);
    WATCHDOG.write(WDOGLOAD, SECONDS * CLOCK_HZ);
    WATCHDOG.write(WDOGCONTROL, INTEN | RESEN);
    // The NMI has a negative number and is always on.
    if let Ok(irq) = u16::try_from(WATCHDOG_IRQ) {
        super::unmask(irq);
    }
}

/// Restarts both time-outs.
pub(crate) fn feed() {
    WATCHDOG.write(WDOGINTCLR, 1);
}
