//! Recording of the server's inputs and outputs, among the reports to the host of the node while they occur.
//!
//! Records are not buffered. They are encoded into reports, and the board waits until the host has read. A recording therefore
//! needs no memory and has no gaps.

use hydrant_core::server::Record;
use hydrant_core::server::remote::NodeReport;
use postcard::ser_flavors::Flavor;
use postcard::serialize_with_flavor;

use crate::board::Board;
use crate::connection::Connection;

/// Bytes of a recording in one report of a node.
const PIECE: usize = 128;

/// State of a recording.
#[derive(Clone, Copy, Default)]
pub(super) struct Recording {
    /// The last record is [`Record::Silence`]. Further calls without an output are not recorded: an idle board sends
    /// nothing.
    pub(super) silent: bool,
}

/// Encoder into reports. The beginning of the next one is borrowed, because encoders are moved.
struct Sink<'n, B: Board> {
    net: &'n mut B::Net,
    connection: &'n mut Connection<B>,
    piece: &'n mut [u8; PIECE],
    len: usize,
}

impl<B: Board> Sink<'_, B> {
    /// Reports the piece.
    fn flush(&mut self) {
        if self.len > 0 {
            self.connection
                .send(self.net, &NodeReport::Recorded(&self.piece[..core::mem::take(&mut self.len)]));
        }
    }
}

impl<B: Board> Flavor for Sink<'_, B> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, mut bytes: &[u8]) -> postcard::Result<()> {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(PIECE - self.len));
            self.piece[self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
            bytes = rest;
            if self.len == PIECE {
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

/// Reports a record to the host of the node. Waits until it reads.
pub(super) fn report_record<B: Board>(net: &mut B::Net, connection: &mut Connection<B>, record: &Record<'_>) {
    // The sink has no errors.
    let _ = serialize_with_flavor(record, Sink { net, connection, piece: &mut [0; PIECE], len: 0 });
}
