//! Connection of the host of a node or of the board of another node: received bytes, and records to send.

use hydrant_core::manage::{self, PREFIX, Request, STALL_MS};
use postcard::ser_flavors::{Flavor, Size};
use postcard::serialize_with_flavor;
use serde::Serialize;

use crate::board::{Board, CHUNK, Handle, Sizes};
use crate::channel::Channel;
use crate::net::{Net, Socket};
use crate::noise::{Forged, Initiator, OVERHEAD};

/// Longest request of another board, with its prefix: a link.
const REQUEST_MAX: usize = PREFIX + 40;

/// Connection of the host of a node, or of the board of another node.
pub struct Connection<B: Board> {
    handle: Handle<B>,
    channel: Channel<B>,
    /// The other side does not read.
    stalled: bool,
    /// Whether to wait for it without end, while the connection is there.
    is_patient: bool,
}

impl<B: Board> Connection<B> {
    pub(crate) const fn new(handle: Handle<B>, channel: Channel<B>) -> Connection<B> {
        Connection { handle, channel, stalled: false, is_patient: false }
    }

    /// Makes it wait for the other side without end, while the connection is there.
    pub(crate) const fn wait(&mut self) {
        self.is_patient = true;
    }

    /// The socket.
    pub(crate) const fn handle(&self) -> Handle<B> {
        self.handle
    }

    /// Returns whether the other side does not read.
    pub(crate) const fn is_stalled(&self) -> bool {
        self.stalled
    }

    /// Receives bytes into `buf` from `at` on. Returns how many they are.
    pub(crate) fn receive(&mut self, net: &mut B::Net, buf: &mut [u8], at: usize) -> Result<usize, Forged> {
        let socket = net.socket_mut(self.handle);
        self.channel.receive_part(socket, buf, at)
    }

    /// Begins the handshake with another board. Returns None if there is none.
    pub(crate) fn begin(&self, socket: &mut impl Socket) -> Result<Option<Initiator>, Forged> {
        Channel::<B>::begin(socket)
    }

    /// Completes a handshake with another board. Returns whether it is complete.
    pub(crate) fn complete(
        &mut self,
        socket: &mut impl Socket,
        initiator: &mut Initiator,
    ) -> Result<bool, Forged> {
        self.channel.complete(socket, initiator)
    }

    /// Sends a request to another board, which has room for it before the first answer.
    pub(crate) fn request(&mut self, socket: &mut impl Socket, request: &Request) {
        let mut record = [0; REQUEST_MAX + OVERHEAD];
        match manage::encode(request, &mut record[B::FRONT..B::FRONT + REQUEST_MAX]).map(<[u8]>::len) {
            Ok(len) => self.channel.send(socket, &mut record, len),
            Err(_) => error!("a request is too long"),
        }
    }

    /// Sends a record, in parts. Waits until the other side has read.
    #[inline(never)]
    pub(crate) fn send(&mut self, net: &mut B::Net, report: &impl Serialize) {
        if self.stalled {
            return;
        }
        // A record is shorter than 4 GiB.
        let length = serialize_with_flavor(report, Size::default()).map(|size| size as u32);
        let mut chunk = [0; CHUNK + OVERHEAD];
        let mut sink = Sink { net, connection: self, chunk: &mut chunk, len: 0 };
        let sent = length
            .and_then(|length| sink.try_extend(&length.to_le_bytes()))
            .and_then(|()| serialize_with_flavor(report, sink));
        self.stalled = sent.is_err();
    }

    /// The same with a record that is encoded, with its prefix.
    pub(crate) fn send_encoded(&mut self, net: &mut B::Net, record: &[u8]) {
        let mut chunk = [0; CHUNK + OVERHEAD];
        let mut sink = Sink { net, connection: self, chunk: &mut chunk, len: 0 };
        let sent = sink.try_extend(record).and_then(|()| sink.finalize());
        self.stalled = sent.is_err();
    }
}

/// Encoder into a connection. The chunk is borrowed, because encoders are moved.
struct Sink<'n, B: Board> {
    net: &'n mut B::Net,
    connection: &'n mut Connection<B>,
    chunk: &'n mut [u8; CHUNK + OVERHEAD],
    len: usize,
}

impl<B: Board> Sink<'_, B> {
    fn flush(&mut self) -> postcard::Result<()> {
        let bytes = self.connection.channel.seal(self.chunk, self.len);
        let bytes = bytes.map_err(|Forged| postcard::Error::SerializeBufferFull)?;
        self.len = 0;
        let patience = (!self.connection.is_patient).then_some(STALL_MS);
        if self.net.send_all(self.connection.handle, bytes, patience) {
            Ok(())
        } else {
            Err(postcard::Error::SerializeBufferFull)
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
            if self.len == CHUNK {
                self.flush()?;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(CHUNK - self.len));
            self.chunk[B::FRONT + self.len..][..part.len()].copy_from_slice(part);
            self.len += part.len();
            bytes = rest;
        }
        Ok(())
    }

    fn finalize(mut self) -> postcard::Result<()> {
        self.flush()
    }
}
