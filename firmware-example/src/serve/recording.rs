//! Recording of the server's inputs and outputs, sent to a host while they occur.
//!
//! Records are not buffered. They are encoded into the connection's send buffer, and the board waits while that is full. A
//! recording therefore needs no memory and has no gaps. It ends when the host does not read for
//! [`STALL_MS`](hydrant_core::manage::STALL_MS).

use hydrant_core::server::Record;
use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use smoltcp::iface::SocketHandle;

use crate::net::Net;

/// State of a recording.
#[derive(Clone, Copy)]
pub(super) struct Recording {
    pub(super) handle: SocketHandle,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
    /// The last record is [`Record::Silence`]. Further calls without an output are not recorded: an idle board sends
    /// nothing.
    pub(super) silent: bool,
}

impl Recording {
    pub(super) const fn new(handle: SocketHandle) -> Recording {
        Recording { handle, inputs: 0, outputs: 0, silent: false }
    }
}

/// Encoder into a connection, which waits for room until the host has not read for [`STALL_MS`].
struct Sink<'n> {
    net: &'n mut Net,
    handle: SocketHandle,
}

impl Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        let sent = self.net.send_all(self.handle, bytes);
        if sent { Ok(()) } else { Err(postcard::Error::SerializeBufferFull) }
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Sends a record after its length. Returns false if the host does not read.
pub(super) fn send_record(net: &mut Net, handle: SocketHandle, record: &Record<'_>) -> bool {
    let mut sink = Sink { net, handle };
    // The longest record has some thousand bytes, for a message or a reply.
    let length = serialize_with_flavor(record, Size::default()).map(|size| size as u16);
    let sent = length
        .and_then(|length| sink.try_extend(&length.to_le_bytes()))
        .and_then(|()| serialize_with_flavor(record, sink));
    sent.is_ok()
}
