//! The Ethernet controller as embassy-net sees it.

use core::task::Context;

use embassy_net_driver::{Capabilities, Driver, HardwareAddress, LinkState, RxToken, TxToken};
use embassy_sync::waitqueue::AtomicWaker;

use crate::board::{FRAME, Nic};

/// The stack's runner, which waits for frames.
static FRAMES_WAIT: AtomicWaker = AtomicWaker::new();

/// Wakes the stack's runner. Called by the interrupt.
pub(crate) fn wake() {
    FRAMES_WAIT.wake();
}

/// The Ethernet controller, with a buffer for one frame in each direction.
pub(crate) struct Device {
    pub(crate) nic: Nic,
    pub(crate) rx: &'static mut [u8; FRAME],
    pub(crate) tx: &'static mut [u8; FRAME],
}

pub(crate) struct Received<'a>(&'a mut [u8]);

pub(crate) struct Sent<'a> {
    nic: &'a mut Nic,
    buf: &'a mut [u8],
}

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let frame = &mut self.buf[..len];
        let result = write(frame);
        self.nic.send(frame);
        result
    }
}

impl Driver for Device {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, cx: &mut Context<'_>) -> Option<(Received<'_>, Sent<'_>)> {
        let len = loop {
            match self.nic.receive(self.rx) {
                Some(0) => defmt::debug!("a frame over {=usize} bytes is dropped", FRAME),
                Some(len) => break len,
                None => {
                    // A frame that comes from here on is an interrupt.
                    FRAMES_WAIT.register(cx.waker());
                    self.nic.listen();
                    return None;
                }
            }
        };
        Some((Received(&mut self.rx[..len]), Sent { nic: &mut self.nic, buf: self.tx }))
    }

    fn transmit(&mut self, _: &mut Context<'_>) -> Option<Sent<'_>> {
        Some(Sent { nic: &mut self.nic, buf: self.tx })
    }

    fn link_state(&mut self, _: &mut Context<'_>) -> LinkState {
        LinkState::Up
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }

    fn hardware_address(&self) -> HardwareAddress {
        HardwareAddress::Ethernet(self.nic.mac())
    }
}
