//! Encryption of a management connection, if the board has a secret.

use core::marker::PhantomData;

use crate::board::{Board, Sizes};
use crate::net::Socket;
use crate::noise::{self, Forged, Initiator, LENGTH, MAGIC, MESSAGE, Transport};

/// Encryption of a connection.
pub(crate) enum Channel<B> {
    /// The board has no secret.
    Plain(PhantomData<B>),
    /// The host has not begun the handshake.
    Waiting,
    /// The handshake is complete.
    Open(Transport),
}

/// Received records. `frame`: the length of the frame that they were in.
pub(crate) struct Incoming<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) frame: Option<usize>,
}

impl<B: Board> Channel<B> {
    /// The channel of a new connection.
    pub(crate) const fn new() -> Channel<B> {
        if B::HAS_SECRET { Channel::Waiting } else { Channel::Plain(PhantomData) }
    }

    /// Returns whether the host is to begin the handshake.
    pub(crate) const fn is_waiting(&self) -> bool {
        B::HAS_SECRET && matches!(self, Channel::Waiting)
    }

    /// Answers the handshake of a host, once it is complete. Returns whether it is. It takes a quarter of a second on a
    /// Cortex-M3 at 12.5 MHz and is no part of a larger function, because its stack is the deepest.
    #[inline(never)]
    pub(crate) fn greet(&mut self, socket: &mut impl Socket) -> Result<bool, Forged> {
        let mut bytes = [0; MAGIC.len() + MESSAGE];
        let len = socket.peek_slice(&mut bytes).unwrap_or(0);
        let magic = len.min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(Forged);
        }
        let Some(first) = bytes[..len].get(MAGIC.len()..).and_then(<[u8]>::first_chunk) else {
            return Ok(false);
        };
        let key = B::SECRET.map(noise::secret).ok_or(Forged)?;
        let (transport, answer) = noise::answer(&key, first, || B::ephemeral(&key))?;
        *self = Channel::Open(transport);
        consume(socket, bytes.len());
        // A closed socket needs no answer.
        let _ = socket.send_slice(&answer);
        Ok(true)
    }

    /// Begins the handshake with another board. Returns None if there is none, without a secret.
    // Not a part of a larger function, as above.
    #[inline(never)]
    pub(crate) fn begin(socket: &mut impl Socket) -> Result<Option<Initiator>, Forged> {
        let Some(key) = B::SECRET.map(noise::secret) else { return Ok(None) };
        let (initiator, first) = noise::begin(&key, B::ephemeral(&key))?;
        let mut bytes = [0; MAGIC.len() + MESSAGE];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[MAGIC.len()..].copy_from_slice(&first);
        // A closed socket needs none.
        let _ = socket.send_slice(&bytes);
        Ok(Some(initiator))
    }

    /// Completes a handshake with the answer of the other board. Returns false if it is incomplete.
    #[inline(never)]
    pub(crate) fn complete(
        &mut self,
        socket: &mut impl Socket,
        initiator: &mut Initiator,
    ) -> Result<bool, Forged> {
        if !B::HAS_SECRET {
            return Err(Forged);
        }
        let mut second = [0; MESSAGE];
        if socket.peek_slice(&mut second).unwrap_or(0) < MESSAGE {
            return Ok(false);
        }
        *self = Channel::Open(initiator.complete(&second)?);
        consume(socket, MESSAGE);
        Ok(true)
    }

    /// Looks at the received bytes of a connection, and decrypts the first frame in place. Returns None if it is
    /// incomplete. What is complete is then to be consumed.
    pub(crate) fn receive<'b>(&mut self, bytes: &'b mut [u8]) -> Result<Option<Incoming<'b>>, Forged> {
        match self {
            Channel::Open(transport) if B::HAS_SECRET => {
                let opened = transport.open(bytes)?;
                Ok(opened.map(|(bytes, len)| Incoming { bytes, frame: Some(len) }))
            }
            _ => Ok(Some(Incoming { bytes, frame: None })),
        }
    }

    /// Sends the record in `buf[B::FRONT..B::FRONT + len]`. A closed socket needs none.
    pub(crate) fn send(&mut self, socket: &mut impl Socket, buf: &mut [u8], len: usize) {
        if let Ok(bytes) = self.seal(buf, len) {
            let _ = socket.send_slice(bytes);
        }
    }

    /// Encrypts the bytes in `buf[B::FRONT..B::FRONT + len]`. Returns what to send.
    pub(crate) fn seal<'b>(&mut self, buf: &'b mut [u8], len: usize) -> Result<&'b [u8], Forged> {
        match self {
            Channel::Open(transport) if B::HAS_SECRET => transport.seal(buf, len),
            _ => Ok(&buf[B::FRONT..B::FRONT + len]),
        }
    }

    /// Receives bytes into `buf` from `at` on, those of a whole frame if there are frames. Returns how many they are.
    pub(crate) fn receive_part(
        &mut self,
        socket: &mut impl Socket,
        buf: &mut [u8],
        at: usize,
    ) -> Result<usize, Forged> {
        match self {
            Channel::Open(transport) if B::HAS_SECRET => {
                let mut length = [0; LENGTH];
                let peeked = socket.peek_slice(&mut length).unwrap_or(0);
                let whole = LENGTH + usize::from(u16::from_le_bytes(length));
                if peeked < LENGTH || (socket.recv_queue() < whole && whole <= socket.recv_capacity()) {
                    return Ok(0);
                }
                // The buffer has room for a frame behind an incomplete record, unless records wait.
                let Some(frame) = buf.get_mut(at..at + whole) else {
                    return if whole > B::LINK_RX { Err(Forged) } else { Ok(0) };
                };
                socket.recv_slice(frame);
                let len = transport.open(frame)?.map_or(0, |(plain, _)| plain.len());
                buf.copy_within(at + LENGTH..at + LENGTH + len, at);
                Ok(len)
            }
            // A closed socket has no more bytes.
            _ => Ok(socket.recv_slice(&mut buf[at..])),
        }
    }
}

/// Drops the first bytes of a socket.
pub(crate) fn consume(socket: &mut impl Socket, mut left: usize) {
    while left > 0 {
        let dropped = socket.recv(|bytes| (left.min(bytes.len()), left.min(bytes.len())));
        let Some(dropped @ 1..) = dropped else { break };
        left -= dropped;
    }
}
