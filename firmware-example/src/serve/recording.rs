//! Recording of the server's inputs and outputs, sent to a host while they occur.
//!
//! Records are not buffered. They are encoded into the connection's send buffer, and the board waits while that is full. A
//! recording therefore needs no memory and has no gaps. That of the board's own jobs has a connection to itself, and ends when
//! the host does not read for [`STALL_MS`]. That of a node is among the reports to its host.

use hydrant_core::manage::STALL_MS;
use hydrant_core::server::Record;
use hydrant_core::server::remote::NodeReport;
use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use smoltcp::iface::SocketHandle;

use crate::link::Link;
use crate::memory::NODES;
use crate::net::Net;

/// Bytes of a recording in one report of a node.
const PIECE: usize = 128;

/// State of a recording.
#[derive(Clone, Copy)]
pub(super) struct Recording {
    /// Its connection, unless it is that of a node.
    pub(super) handle: Option<SocketHandle>,
    pub(super) inputs: u64,
    pub(super) outputs: u64,
    /// The last record is [`Record::Silence`]. Further calls without an output are not recorded: an idle board sends
    /// nothing.
    pub(super) silent: bool,
}

impl Recording {
    pub(super) const fn new(handle: Option<SocketHandle>) -> Recording {
        Recording { handle, inputs: 0, outputs: 0, silent: false }
    }
}

/// Encoder into a connection.
struct Sink<'n> {
    net: &'n mut Net,
    reader: Reader<'n>,
}

/// Receiver of a recording.
enum Reader<'n> {
    /// A host, by a connection of its own.
    Host(SocketHandle),
    /// The host of a node, with the beginning of the next report. The array is borrowed, because encoders are moved.
    Node { link: &'n mut Link, piece: &'n mut [u8; PIECE], len: usize },
}

impl Sink<'_> {
    /// Reports the piece to the host of the node.
    fn flush(&mut self) {
        if let Reader::Node { link, piece, len } = &mut self.reader
            && NODES
            && *len > 0
        {
            link.send(self.net, &NodeReport::Recorded(&piece[..core::mem::take(len)]));
        }
    }
}

impl Flavor for Sink<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, mut bytes: &[u8]) -> postcard::Result<()> {
        if let Reader::Host(handle) = self.reader {
            let sent = self.net.send_all(handle, bytes, Some(STALL_MS));
            return if sent { Ok(()) } else { Err(postcard::Error::SerializeBufferFull) };
        }
        while let Reader::Node { piece, len, .. } = &mut self.reader
            && !bytes.is_empty()
        {
            let (part, rest) = bytes.split_at(bytes.len().min(PIECE - *len));
            piece[*len..][..part.len()].copy_from_slice(part);
            *len += part.len();
            bytes = rest;
            if *len == PIECE {
                self.flush();
            }
        }
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<()> {
        self.flush();
        Ok(())
    }
}

/// Sends a record after its length. Returns false if the host does not read.
pub(super) fn send_record(net: &mut Net, handle: SocketHandle, record: &Record<'_>) -> bool {
    let mut sink = Sink { net, reader: Reader::Host(handle) };
    // The longest record has some thousand bytes, for a message or a reply.
    let length = serialize_with_flavor(record, Size::default()).map(|size| size as u16);
    let sent = length
        .and_then(|length| sink.try_extend(&length.to_le_bytes()))
        .and_then(|()| serialize_with_flavor(record, sink));
    sent.is_ok()
}

/// Reports a record to the host of a node. Waits until it reads.
pub(super) fn report_record(net: &mut Net, link: &mut Link, record: &Record<'_>) {
    if NODES {
        let reader = Reader::Node { link, piece: &mut [0; PIECE], len: 0 };
        // The sink has no errors.
        let _ = serialize_with_flavor(record, Sink { net, reader });
    }
}
