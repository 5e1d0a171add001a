//! One link between neighbours: an encrypted stream of messages over a connected socket.
//!
//! On the wire a link is a row of frames: two bytes of length, then that many of ciphertext. Inside is a piece of one
//! message and behind it a byte that says the channel and whether the message goes on. Pieces of one message are
//! never interleaved with others, so messages arrive in the order of `send`, whatever their channels.

mod handshake;
mod socket;

use std::fmt;
use std::os::fd::OwnedFd;

use hydrant_reactor::Sent;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};
use snow::TransportState;

pub(crate) use handshake::{ANSWER, Ends, JobKey, OPENING, Opening, Secret, answer, claimed};
pub(crate) use socket::{prepare, start_connect};

/// Most bytes of a message, all its pieces together. Nobody can make a node keep more of an unfinished one.
pub(crate) const MESSAGE_MAX: usize = 64 << 20;
/// Most bytes of a frame behind its length: what Noise allows.
const FRAME_MAX: usize = 65_535;
/// Bytes of authentication in a frame.
const TAG: usize = 16;
/// Most bytes of a message in one frame.
const PIECE_MAX: usize = FRAME_MAX - TAG - 1;
/// Bytes of a frame that says nothing: a heartbeat.
pub(crate) const EMPTY_FRAME: usize = 2 + 1 + TAG;
/// Set in a frame's last byte when its message goes on in the next one.
const MORE: u8 = 0x80;
/// Waiting bytes from which on they are written without waiting for `flush`.
const WRITE_AT: usize = 128 * 1024;
/// The least that the buffer for receiving has to hold: an unfinished frame, and a good piece more.
pub(crate) const BUFFER: usize = 4 * (2 + FRAME_MAX);

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Channel {
    /// The links' own business; empty messages are heartbeats.
    Link = 0,
    /// From core to core, between neighbours.
    Peer = 1,
    /// Records of the hosts.
    Control = 2,
    /// Input and output of ranks.
    Stream = 3,
}

impl Channel {
    fn from_byte(byte: u8) -> Option<Channel> {
        [Channel::Link, Channel::Peer, Channel::Control, Channel::Stream]
            .into_iter()
            .find(|&c| c as u8 == byte)
    }
}

/// Why a link is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The other end is closed; its process is gone, as a rule.
    #[error("its connection was closed")]
    Closed,
    /// The system says so.
    #[error("its connection failed: {0}")]
    Io(#[from] Errno),
    /// Nothing has come for the time-out.
    #[error("nothing was heard of it for {} s", *.0 as f64 / 1000.0)]
    Silent(u64),
    /// What came was not made by the other end for this place in the row.
    #[error("its messages cannot be authenticated")]
    Forged,
    /// A message is longer than any may be.
    #[error("it sent a message of more than {MESSAGE_MAX} bytes")]
    TooLong,
    /// What came is authentic and makes no sense, or what is sent would not.
    #[error("it sent a message that cannot be understood")]
    Malformed,
}

/// An established link.
pub(crate) struct Link {
    fd: OwnedFd,
    noise: Box<TransportState>,
    /// A frame that has not come whole.
    inbox: Vec<u8>,
    /// A message that has not come whole.
    message: Vec<u8>,
    /// Frames that the socket has not taken, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// When something came last, and when something was sent last.
    heard: u64,
    said: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("fd", &self.fd).field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl Link {
    /// A link over a socket on which the handshake is done.
    pub(crate) fn new(fd: OwnedFd, noise: TransportState, now: u64) -> Link {
        Link {
            fd,
            noise: Box::new(noise),
            inbox: Vec::new(),
            message: Vec::new(),
            outbox: Vec::new(),
            sent: 0,
            heard: now,
            said: now,
        }
    }

    /// The socket.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// When something came last, in milliseconds of the caller's clock.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// When something was sent last.
    pub(crate) fn said(&self) -> u64 {
        self.said
    }

    /// Bytes that wait for the socket.
    pub(crate) fn queued(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Whether something waits for the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        self.queued() > 0
    }

    /// Appends a message to what is to be sent. It leaves with the next [`Link::flush`], or at once where much waits
    /// already; a link that fails meanwhile says so when it is received from.
    ///
    /// # Errors
    /// [`LinkError::TooLong`]: nothing of it is sent.
    pub(crate) fn send(&mut self, now: u64, channel: Channel, message: &[u8]) -> Result<Sent, LinkError> {
        if message.len() > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        let mut rest = message;
        let mut plain = Vec::with_capacity(message.len().min(PIECE_MAX) + 1);
        loop {
            let (piece, behind) = rest.split_at(rest.len().min(PIECE_MAX));
            let more = if behind.is_empty() { 0 } else { MORE };
            plain.clear();
            plain.extend_from_slice(piece);
            plain.push(channel as u8 | more);
            self.seal(&plain)?;
            rest = behind;
            if more == 0 {
                break;
            }
        }
        self.said = now;
        if self.queued() >= WRITE_AT {
            return self.flush();
        }
        Ok(if self.is_blocked() { Sent::Blocked } else { Sent::All })
    }

    fn seal(&mut self, plain: &[u8]) -> Result<(), LinkError> {
        let len = plain.len() + TAG;
        let start = self.outbox.len();
        self.outbox.extend_from_slice(&(len as u16).to_be_bytes());
        self.outbox.resize(start + 2 + len, 0);
        match self.noise.write_message(plain, &mut self.outbox[start + 2..]) {
            Ok(written) if written == len => Ok(()),
            // The counter of messages is used up, after 2^64 of them.
            _ => {
                self.outbox.truncate(start);
                Err(LinkError::Malformed)
            }
        }
    }

    /// Writes as much as the socket takes.
    ///
    /// # Errors
    /// Never because the other end is gone: what it said before is heard first.
    pub(crate) fn flush(&mut self) -> Result<Sent, LinkError> {
        while self.is_blocked() {
            match send(&self.fd, &self.outbox[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // Moving what waits costs no more than writing what is gone did.
                    if self.sent >= self.outbox.len() / 2 {
                        self.outbox.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(Sent::Blocked);
                }
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        self.outbox.clear();
        self.outbox.shrink_to(WRITE_AT);
        self.sent = 0;
        Ok(Sent::All)
    }

    /// Reads once, by way of `buffer` of at least [`BUFFER`] bytes, and gives each message that is whole to `each`;
    /// whether anything was there.
    pub(crate) fn receive(
        &mut self,
        now: u64,
        buffer: &mut [u8],
        mut each: impl FnMut(Channel, Vec<u8>),
    ) -> Result<bool, LinkError> {
        let held = self.inbox.len();
        buffer[..held].copy_from_slice(&self.inbox);
        let len = loop {
            match recv(&self.fd, &mut buffer[held..], RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return Err(LinkError::Closed),
                Ok((len, _)) => break held + len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno.into()),
            }
        };
        self.heard = now;
        let mut rest = &buffer[..len];
        while let Some((frame, behind)) = split_frame(rest) {
            rest = behind;
            if let Some(channel) = self.open(frame)? {
                each(channel, std::mem::take(&mut self.message));
            }
        }
        self.inbox.clear();
        if rest.is_empty() {
            // Between frames, which is where links are most of the time, no memory is kept.
            self.inbox = Vec::new();
        }
        self.inbox.extend_from_slice(rest);
        Ok(true)
    }

    /// Appends a frame to the message that comes in; its channel when it is whole.
    fn open(&mut self, frame: &[u8]) -> Result<Option<Channel>, LinkError> {
        let start = self.message.len();
        // One byte is not the message's.
        let len = frame.len().checked_sub(TAG + 1).ok_or(LinkError::Forged)?;
        if start + len > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        self.message.resize(start + len + 1, 0);
        self.noise.read_message(frame, &mut self.message[start..]).map_err(|_| LinkError::Forged)?;
        let last = self.message.pop().ok_or(LinkError::Malformed)?;
        let channel = Channel::from_byte(last & !MORE).ok_or(LinkError::Malformed)?;
        Ok((last & MORE == 0).then_some(channel))
    }
}

/// The first frame of `bytes` if all of it is there, and what follows.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// Whether `frame`, all [`EMPTY_FRAME`] bytes of it, is the heartbeat by which a child shows that it has the secret.
pub(crate) fn is_heartbeat(noise: &mut TransportState, frame: &[u8; EMPTY_FRAME]) -> bool {
    let mut plain = [0; 1];
    split_frame(frame)
        .is_some_and(|(sealed, _)| matches!(noise.read_message(sealed, &mut plain), Ok(1)) && plain == [0])
}

#[cfg(test)]
pub(crate) mod tests;
