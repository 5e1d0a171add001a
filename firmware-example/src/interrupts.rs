//! Interrupts of the devices: the network's wakes the main loop, and the watchdog's is its last.

use cortex_m::interrupt::InterruptNumber;
use cortex_m::peripheral::NVIC;

#[cfg(feature = "embassy")]
use crate::driver::wake;
#[cfg(not(feature = "embassy"))]
use crate::net::wake;
use crate::{board, fault, secret};

/// Number of an interrupt that can be masked.
#[derive(Clone, Copy)]
struct Irq(u16);

// SAFETY: numbers of this board's, below the vectors that cortex-m-rt provides.
unsafe impl InterruptNumber for Irq {
    fn number(self) -> u16 {
        self.0
    }
}

/// Lets the interrupts of the network and of the watchdog through.
pub(crate) fn unmask() {
    for irq in [Ok(board::NIC_IRQ), u16::try_from(board::WATCHDOG_IRQ)].into_iter().flatten() {
        // SAFETY: no code relies on these interrupts being off for its own safety.
        unsafe { NVIC::unmask(Irq(irq)) };
    }
}

#[cortex_m_rt::exception]
unsafe fn DefaultHandler(irq: i16) {
    if irq == board::NIC_IRQ as i16 {
        board::nic_interrupt();
        secret::stir();
        wake();
    } else if irq == board::WATCHDOG_IRQ {
        fault::hang()
    } else {
        defmt::panic!("unexpected interrupt {=i16}", irq);
    }
}
