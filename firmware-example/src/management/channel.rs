//! Encryption of a management connection, if the board has a secret.

use smoltcp::socket::tcp;

use crate::noise::{self, Forged, LENGTH, MAGIC, MESSAGE, Transport};
use crate::secret;

/// Bytes in front of a record to send, in its buffer: room for the length of a frame.
pub(super) const FRONT: usize = if secret::IS_SET { LENGTH } else { 0 };

/// Encryption of a connection.
pub(super) enum Channel {
    /// The board has no secret.
    Plain,
    /// The host has not begun the handshake.
    Waiting,
    /// The handshake is complete.
    Open(Transport),
}

/// Received records. `frame`: the length of the frame that they were in.
pub(super) struct Incoming<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) frame: Option<usize>,
}

impl Channel {
    /// The channel of a new connection.
    pub(super) const fn new() -> Channel {
        if secret::IS_SET { Channel::Waiting } else { Channel::Plain }
    }

    /// Returns whether the host is to begin the handshake.
    pub(super) const fn is_waiting(&self) -> bool {
        secret::IS_SET && matches!(self, Channel::Waiting)
    }

    /// Answers the handshake of a host, once it is complete. Returns whether it is. It takes a quarter of a second on a Cortex-M3 at
    /// 12.5 MHz and is no part of a larger function, because its stack is the deepest.
    #[inline(never)]
    pub(super) fn greet(&mut self, socket: &mut tcp::Socket<'_>) -> Result<bool, Forged> {
        let mut bytes = [0; MAGIC.len() + MESSAGE];
        let len = socket.peek_slice(&mut bytes).unwrap_or(0);
        let magic = len.min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(Forged);
        }
        let Some(first) = bytes[..len].get(MAGIC.len()..).and_then(<[u8]>::first_chunk) else {
            return Ok(false);
        };
        let key = secret::key().ok_or(Forged)?;
        let (transport, answer) = noise::answer(&key, first, || secret::ephemeral(&key))?;
        *self = Channel::Open(transport);
        super::consume(socket, bytes.len());
        // A closed socket needs no answer.
        let _ = socket.send_slice(&answer);
        Ok(true)
    }

    /// Looks at the received bytes of a connection, and decrypts the first frame in place. Returns None if it is incomplete. What
    /// is complete is then to be consumed.
    pub(super) fn receive<'b>(&mut self, bytes: &'b mut [u8]) -> Result<Option<Incoming<'b>>, Forged> {
        match self {
            Channel::Open(transport) if secret::IS_SET => {
                let opened = transport.open(bytes)?;
                Ok(opened.map(|(bytes, len)| Incoming { bytes, frame: Some(len) }))
            }
            _ => Ok(Some(Incoming { bytes, frame: None })),
        }
    }

    /// Sends the record in `buf[FRONT..FRONT + len]`. A closed socket needs none.
    pub(super) fn send(&mut self, socket: &mut tcp::Socket<'_>, buf: &mut [u8], len: usize) {
        let _ = match self {
            Channel::Open(transport) if secret::IS_SET => match transport.seal(buf, len) {
                Ok(frame) => socket.send_slice(frame),
                Err(Forged) => Ok(0),
            },
            _ => socket.send_slice(&buf[FRONT..FRONT + len]),
        };
    }
}
