//! The recording: what the core is told and says, sent to the host that asked for it while it happens.
//!
//! Nothing is kept here. A record goes straight into its connection, and the board waits until there is room, so that
//! a recording needs no memory and is never short of a step. A host that does not read for
//! [`STALL_MS`](hydrant_core::manage::STALL_MS) is recorded for no longer.

use hydrant_core::manage::STALL_MS;
use hydrant_core::server::Record;
use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::net::Net;
use crate::time;

/// A recording that is being made.
#[derive(Clone, Copy)]
pub(super) struct Tape {
    pub(super) handle: SocketHandle,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
}

/// A connection that is written to until everything is sent, or the host has not read for too long.
struct Sink<'n> {
    net: &'n mut Net,
    handle: SocketHandle,
}

impl Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, mut bytes: &[u8]) -> postcard::Result<()> {
        let mut since = time::millis();
        while !bytes.is_empty() {
            let socket = self.net.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
            let sent = socket.send_slice(bytes).map_err(|_| postcard::Error::SerializeBufferFull)?;
            bytes = &bytes[sent..];
            if sent > 0 {
                since = time::millis();
            } else if time::millis() >= since + STALL_MS {
                return Err(postcard::Error::SerializeBufferFull);
            } else {
                self.net.poll();
            }
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Sends a record behind its length. False when nobody takes it.
pub(super) fn record(net: &mut Net, handle: SocketHandle, record: &Record<'_>) -> bool {
    let mut sink = Sink { net, handle };
    // The longest record is a message or a reply, some thousand bytes.
    let length = serialize_with_flavor(record, Size::default()).map(|size| size as u16);
    let sent = length
        .and_then(|length| sink.try_extend(&length.to_le_bytes()))
        .and_then(|()| serialize_with_flavor(record, sink));
    sent.is_ok()
}
