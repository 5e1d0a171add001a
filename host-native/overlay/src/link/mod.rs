//! Link between neighbours: a stream of messages over a connected socket, encrypted unless both ends are on one machine and
//! one of them has inherited its end.
//!
//! On the wire a link is a sequence of frames: two bytes of length, then that many bytes. They are a fragment of one
//! message, followed by a byte with the channel and a flag for further fragments, as ciphertext on an encrypted link.
//! Fragments of different messages are never interleaved, so messages arrive in the order of `send` over all channels.

mod handshake;
mod socket;

use std::fmt;
use std::os::fd::OwnedFd;

use hydrant_noise::{TAG_LEN, Transport};
use hydrant_reactor::{NO_SIGPIPE, Sent};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::{Deserialize, Serialize};

pub(crate) use handshake::{
    INITIATION_LEN, Initiator, LinkIdentity, OverlayId, RESPONSE_LEN, Secret, claimed_node, respond,
};
pub(crate) use socket::{configure_socket, start_connect};

use crate::error::{LinkError, MESSAGE_MAX};

/// Maximum size of a frame without its length, in bytes: the limit of Noise.
const FRAME_MAX: usize = 65_535;
/// Maximum size of a fragment in bytes.
const FRAGMENT_MAX: usize = FRAME_MAX - TAG_LEN - 1;
/// Size of a frame with an empty message, a heartbeat, in bytes.
pub(crate) const HEARTBEAT_LEN: usize = 2 + 1 + TAG_LEN;
/// Flag in the last byte of a frame: the next frame continues the message.
const MORE: u8 = 0x80;
/// Number of queued bytes that are written without waiting for `flush`.
const FLUSH_THRESHOLD: usize = 128 * 1024;
/// Minimum size of the receive buffer in bytes: an incomplete frame and several frames more.
pub const RECEIVE_BUFFER_MIN: usize = 4 * (2 + FRAME_MAX);

/// Channel of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Channel {
    /// Messages of the links themselves. An empty message is a heartbeat.
    Link = 0,
    /// Messages between the protocol servers of neighbours.
    Peer = 1,
    /// Commands and reports.
    Control = 2,
    /// Input and output of ranks.
    Stream = 3,
    /// Messages between protocol servers whose nodes are no neighbours here.
    Routed = 4,
}

impl Channel {
    fn from_byte(byte: u8) -> Option<Channel> {
        [Channel::Link, Channel::Peer, Channel::Control, Channel::Stream, Channel::Routed]
            .into_iter()
            .find(|&c| c as u8 == byte)
    }
}

/// An established link.
pub struct Link {
    fd: OwnedFd,
    /// None between processes of one machine, one of which has inherited its end of a socket pair from the other.
    noise: Option<Transport>,
    /// Incomplete frame.
    inbox: Vec<u8>,
    /// Incomplete message.
    message: Vec<u8>,
    /// Frames to be written, from `sent` on.
    outbox: Vec<u8>,
    sent: usize,
    /// Times of the last authentic frame received and of the last message sent, in milliseconds.
    last_received: u64,
    last_sent: u64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("fd", &self.fd).field("queued", &self.queued()).finish_non_exhaustive()
    }
}

impl Link {
    /// A link over a socket after the handshake.
    pub(crate) fn new(fd: OwnedFd, noise: Transport, now: u64) -> Link {
        Link::over(fd, Some(noise), now)
    }

    /// A link over a socket pair, whose other end a child process has inherited, or a parent process has.
    pub(crate) fn inherited(fd: OwnedFd, now: u64) -> Link {
        Link::over(fd, None, now)
    }

    fn over(fd: OwnedFd, noise: Option<Transport>, now: u64) -> Link {
        Link {
            fd,
            noise,
            inbox: Vec::new(),
            message: Vec::new(),
            outbox: Vec::new(),
            sent: 0,
            last_received: now,
            last_sent: now,
        }
    }

    /// The socket.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Time of the last authentic frame, in milliseconds of the caller's clock.
    pub(crate) fn last_received(&self) -> u64 {
        self.last_received
    }

    /// Time of the last sent message, in milliseconds.
    pub(crate) fn last_sent(&self) -> u64 {
        self.last_sent
    }

    /// Number of bytes to be written.
    pub fn queued(&self) -> usize {
        self.outbox.len() - self.sent
    }

    /// Whether bytes are to be written.
    pub fn is_blocked(&self) -> bool {
        self.queued() > 0
    }

    /// Queues a message. It is written by the next [`Link::flush`], or now if many bytes are queued. A failed connection
    /// is reported by [`Link::receive`].
    ///
    /// # Errors
    /// [`LinkError::TooLong`]. Nothing of the message is queued.
    pub fn send(&mut self, now: u64, channel: Channel, message: &[u8]) -> Result<Sent, LinkError> {
        if message.len() > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        let mut rest = message;
        let mut plain = Vec::with_capacity(message.len().min(FRAGMENT_MAX) + 1);
        loop {
            let (fragment, behind) = rest.split_at(rest.len().min(FRAGMENT_MAX));
            let more = if behind.is_empty() { 0 } else { MORE };
            plain.clear();
            plain.extend_from_slice(fragment);
            plain.push(channel as u8 | more);
            self.seal(&plain)?;
            rest = behind;
            if more == 0 {
                break;
            }
        }
        self.last_sent = now;
        if self.queued() >= FLUSH_THRESHOLD {
            return self.flush();
        }
        Ok(if self.is_blocked() { Sent::Blocked } else { Sent::All })
    }

    fn seal(&mut self, plain: &[u8]) -> Result<(), LinkError> {
        let Some(noise) = &mut self.noise else {
            self.outbox.extend_from_slice(&(plain.len() as u16).to_be_bytes());
            self.outbox.extend_from_slice(plain);
            return Ok(());
        };
        let start = self.outbox.len();
        self.outbox.extend_from_slice(&((plain.len() + TAG_LEN) as u16).to_be_bytes());
        noise.seal(plain, &mut self.outbox).map_err(|_| {
            // The message counter overflows after 2^64 messages.
            self.outbox.truncate(start);
            LinkError::Malformed
        })
    }

    /// Writes as many bytes as the socket accepts.
    ///
    /// # Errors
    /// A system call failed. A closed connection is no error here: [`Link::receive`] returns the messages that were sent
    /// before the close.
    pub fn flush(&mut self) -> Result<Sent, LinkError> {
        while self.is_blocked() {
            match send(&self.fd, &self.outbox[self.sent..], SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => self.sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    // The cost of moving the rest is at most that of writing the sent part.
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
        self.outbox.shrink_to(FLUSH_THRESHOLD);
        self.sent = 0;
        Ok(Sent::All)
    }

    /// Reads once and passes each complete message to `on_message`. Returns whether bytes were received.
    ///
    /// `buffer` has at least [`RECEIVE_BUFFER_MIN`] bytes.
    ///
    /// # Errors
    /// The connection was closed or failed, or a frame is invalid.
    pub fn receive(
        &mut self,
        now: u64,
        buffer: &mut [u8],
        mut on_message: impl FnMut(Channel, Vec<u8>),
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
        let mut rest = &buffer[..len];
        while let Some((frame, behind)) = split_frame(rest) {
            rest = behind;
            let completed = self.open(frame)?;
            // Anybody who can inject bytes could keep a dead link alive: only an authentic frame is a sign of life.
            self.last_received = now;
            if let Some(channel) = completed {
                on_message(channel, std::mem::take(&mut self.message));
            }
        }
        self.inbox.clear();
        if rest.is_empty() {
            // Links are between frames most of the time. They then keep no memory.
            self.inbox = Vec::new();
        }
        self.inbox.extend_from_slice(rest);
        Ok(true)
    }

    /// Appends a frame to the incomplete message. Returns the channel if the message is complete.
    fn open(&mut self, frame: &[u8]) -> Result<Option<Channel>, LinkError> {
        let start = self.message.len();
        // The last byte is the channel.
        let (tag, short) = match self.noise {
            Some(_) => (TAG_LEN, LinkError::Forged),
            None => (0, LinkError::Malformed),
        };
        let len = frame.len().checked_sub(tag + 1).ok_or(short)?;
        if start + len > MESSAGE_MAX {
            return Err(LinkError::TooLong);
        }
        match &mut self.noise {
            Some(noise) => noise.open(frame, &mut self.message).map_err(|_| LinkError::Forged)?,
            None => self.message.extend_from_slice(frame),
        }
        let last = self.message.pop().ok_or(LinkError::Malformed)?;
        let channel = Channel::from_byte(last & !MORE).ok_or(LinkError::Malformed)?;
        Ok((last & MORE == 0).then_some(channel))
    }
}

/// Splits off the first frame, if it is complete.
fn split_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// Whether `frame` is a valid heartbeat. A child sends one to prove that it has the secret.
pub(crate) fn is_heartbeat(noise: &mut Transport, frame: &[u8; HEARTBEAT_LEN]) -> bool {
    let mut plain = Vec::new();
    split_frame(frame).is_some_and(|(sealed, _)| noise.open(sealed, &mut plain).is_ok() && plain == [0])
}

#[cfg(test)]
pub(crate) mod tests;
