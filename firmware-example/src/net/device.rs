//! The Ethernet controller as smoltcp sees it.

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use crate::board::{FRAME, Nic};

/// Network controller, with a buffer for one frame in each direction. Further frames wait in the controller.
pub(crate) struct Device {
    pub(crate) nic: Nic,
    pub(crate) rx: &'static mut [u8; FRAME],
    pub(crate) tx: &'static mut [u8; FRAME],
}

pub(crate) struct RxToken<'a>(&'a [u8]);

pub(crate) struct TxToken<'a> {
    nic: &'a mut Nic,
    buf: &'a mut [u8],
}

impl phy::Device for Device {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let len = loop {
            match self.nic.receive(self.rx)? {
                0 => defmt::debug!("a frame over {=usize} bytes is dropped", FRAME),
                len => break len,
            }
        };
        Some((RxToken(&self.rx[..len]), TxToken { nic: &mut self.nic, buf: self.tx }))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        Some(TxToken { nic: &mut self.nic, buf: self.tx })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let frame = &mut self.buf[..len];
        let result = write(frame);
        self.nic.send(frame);
        result
    }
}
