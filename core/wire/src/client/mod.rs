//! PMI-1 and PMI-2 client without I/O.
//!
//! A [`Client`] writes requests into the caller's buffer and reads replies from the caller's bytes. The caller sends
//! and receives them. A client has one outstanding request at a time. A [`Session`] has several. A PMI-2 client can
//! become a session after its handshake.
//!
//! Order of calls: [`Client::handshake`] returns the next step of the handshake. The caller sends it and calls
//! [`Client::receive`] until that returns the reply, and repeats both until `handshake` returns `None`. Then come any
//! number of [`Client::request`], each followed by `receive` until that returns the reply. The last request is
//! [`Command::Finalize`] or [`Command::Abort`].
//!
//! A client that shares memory with its server can look up values without requests. An [`Offer`] describes the memory,
//! and a [`LogView`] looks up keys in it.

mod offer;
mod session;

use core::fmt;

pub use crate::log::LogView;
pub use offer::Offer;
pub use session::{Completed, SESSION_MAX, Session, Ticket};

use crate::Malformed;
use crate::frame::{Framing, next_reply};
use crate::{Command, EncodeError, Op, Protocol, Reply, Text, v1, v2};

/// Connection of the process to its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// `PMI_FD`: an inherited connection. The server knows the rank of the process.
    Fd {
        /// Rank, `PMI_RANK`.
        rank: u32,
        /// Job size, `PMI_SIZE`.
        size: u32,
    },
    /// `PMI_PORT`: a connection that the process has opened.
    Port {
        /// Rank, `PMI_ID`.
        id: u32,
    },
}

/// Identity of the process in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its rank.
    pub rank: u32,
    /// The job's size.
    pub size: u32,
    /// Number of its program on the command line, if the server sent it.
    pub appnum: Option<u32>,
}

/// A reply and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Reply to the outstanding request.
    pub reply: Reply<'a>,
    /// Number of bytes that the caller removes from the front of its buffer.
    pub consumed: u32,
}

/// Error of a call. [`Error::Encode`], [`Error::Busy`] and [`Error::OutOfOrder`] change nothing. All others end the
/// use of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A request that cannot be encoded into the buffer.
    Encode(EncodeError),
    /// A request while another one is outstanding.
    Busy,
    /// A request before the end of the handshake, or a handshake command as a request.
    OutOfOrder,
    /// Bytes of the server that are not a reply.
    Malformed(Malformed),
    /// A reply to a command that is not outstanding.
    Unasked(Op),
    /// A version of PMI in the reply that was not requested.
    Version(u32),
    /// A refused handshake. The reply contains the reason.
    Refused,
    /// A call after the last request or after an error.
    Over,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Encode(error) => error.fmt(f),
            Error::Busy => f.write_str("a request is outstanding already"),
            Error::OutOfOrder => {
                f.write_str("a request before the end of the handshake, or a handshake command as a request")
            }
            Error::Malformed(malformed) => write!(f, "the server sent {malformed}"),
            Error::Unasked(op) => write!(f, "the server sent a reply to {op:?}, which was not requested"),
            Error::Version(version) => {
                write!(f, "the server replied with PMI-{version}, which was not requested")
            }
            Error::Refused => f.write_str("the server refused the handshake"),
            Error::Over => f.write_str("no request is possible after the last one or after an error"),
        }
    }
}

impl core::error::Error for Error {}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Error {
        Error::Encode(error)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InitAck { id: u32 },
    Init,
    FullInit { rank: u32 },
    Ready,
    Refused,
    Over,
}

/// State of one connection to a server.
#[derive(Clone, Debug)]
pub struct Client {
    protocol: Protocol,
    start: Start,
    state: State,
    under_way: Option<Op>,
    identity: Option<Identity>,
    subversion: u32,
}

impl Client {
    /// Creates a client before its handshake.
    pub const fn new(protocol: Protocol, start: Start) -> Client {
        let state = match (protocol, start) {
            (Protocol::V1, Start::Port { id }) => State::InitAck { id },
            // PMI-2 over `PMI_PORT` sends the rank in `fullinit`.
            _ => State::Init,
        };
        Client { protocol, start, state, under_way: None, identity: None, subversion: 0 }
    }

    /// Returns the identity of the process, or `None` before the end of the handshake.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.filter(|_| matches!(self.state, State::Ready | State::Over))
    }

    /// Returns the subversion in the server's reply. From PMI-1.2 on, a fence may name a group.
    pub fn subversion(&self) -> u32 {
        self.subversion
    }

    /// Returns whether a request is outstanding.
    pub fn is_waiting(&self) -> bool {
        self.under_way.is_some()
    }

    /// Writes the next step of the handshake. Returns `None` at its end. A buffer of 64 bytes is sufficient.
    ///
    /// # Errors
    /// [`Error::Busy`] before the reply to the previous step, [`Error::Refused`] if that reply was a refusal,
    /// [`Error::Over`], [`Error::Encode`].
    pub fn handshake<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<&'b [u8]>, Error> {
        self.handshake_to(None, buf)
    }

    /// Writes the next step of the handshake as [`Client::handshake`] does, with the job id (`PMI_JOBID`) in PMI-2's
    /// field for it. Slurm's server requires it. `buf` needs additional room for the job id, escapes included.
    ///
    /// # Errors
    /// As [`Client::handshake`].
    pub fn handshake_to<'b>(
        &mut self,
        jobid: Option<Text<'_>>,
        buf: &'b mut [u8],
    ) -> Result<Option<&'b [u8]>, Error> {
        if self.is_waiting() {
            return Err(Error::Busy);
        }
        let command = match self.state {
            State::InitAck { id } => Command::InitAck { pmiid: id },
            State::Init => match self.protocol {
                Protocol::V1 => Command::Init { version: 1, subversion: 1 },
                Protocol::V2 => Command::Init { version: 2, subversion: 0 },
            },
            State::FullInit { rank } => Command::FullInit { rank: Some(rank), jobid, threaded: false },
            State::Ready => return Ok(None),
            State::Refused => return Err(Error::Refused),
            State::Over => return Err(Error::Over),
        };
        self.send(&command, buf).map(Some)
    }

    /// Writes a request. [`Command::Abort`] has no reply, so no request is outstanding after it.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::OutOfOrder`], [`Error::Over`], and [`Error::Encode`] if the buffer is too short or
    /// the protocol does not have the command.
    pub fn request<'b>(&mut self, command: &Command<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], Error> {
        if self.is_waiting() {
            return Err(Error::Busy);
        }
        let is_handshake = matches!(command.op(), Op::Init | Op::InitAck | Op::FullInit);
        match self.state {
            State::Ready if !is_handshake => self.send(command, buf),
            State::Refused => Err(Error::Refused),
            State::Over => Err(Error::Over),
            _ => Err(Error::OutOfOrder),
        }
    }

    fn send<'b>(&mut self, command: &Command<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let bytes = match self.protocol {
            Protocol::V1 => v1::encode(command, buf)?,
            Protocol::V2 if command.holds_nul() => return Err(EncodeError::Unprintable.into()),
            Protocol::V2 => v2::encode(command, None, buf)?,
        };
        match command.op() {
            Op::Abort => self.state = State::Over,
            op => self.under_way = Some(op),
        }
        Ok(bytes)
    }

    /// Reads a reply. `bytes` are all bytes that the caller has received and not removed. Returns `None` if the reply
    /// is incomplete.
    ///
    /// A refusal is a reply. After a refused handshake step the next [`Client::handshake`] fails.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::Unasked`], [`Error::Version`], [`Error::Over`] after the end,
    /// [`Error::OutOfOrder`] if no request is outstanding.
    pub fn receive<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<Received<'a>>, Error> {
        let Some(asked) = self.under_way else {
            return Err(if self.state == State::Over { Error::Over } else { Error::OutOfOrder });
        };
        let received = self.read(asked, bytes);
        if received.is_err() {
            self.state = State::Over;
            self.under_way = None;
        }
        received
    }

    fn read<'a>(&mut self, asked: Op, bytes: &'a [u8]) -> Result<Option<Received<'a>>, Error> {
        let framing = match (self.protocol, asked) {
            (Protocol::V1, _) | (_, Op::Init) => Framing::Line,
            (Protocol::V2, _) => Framing::Counted,
        };
        let Some(frame) = next_reply(bytes, framing).map_err(Error::Malformed)? else { return Ok(None) };
        let reply = match self.protocol {
            Protocol::V1 => v1::decode_reply(&frame),
            Protocol::V2 => v2::decode_reply(&frame).map(|answer| answer.reply),
        }
        .map_err(Error::Malformed)?;
        match reply {
            // A server that does not know the command sends a generic reply name.
            Reply::Refused(op, failure) if op == Op::Unknown || op == asked => {
                self.refused(asked);
                self.under_way = None;
                Ok(Some(Received { reply: Reply::Refused(asked, failure), consumed: frame.len }))
            }
            reply if reply.op() == asked => {
                self.accept(&reply)?;
                self.under_way = None;
                Ok(Some(Received { reply, consumed: frame.len }))
            }
            reply => Err(Error::Unasked(reply.op())),
        }
    }

    fn refused(&mut self, asked: Op) {
        if self.state != State::Ready {
            self.state = State::Refused;
        } else if asked == Op::Finalize {
            self.state = State::Over;
        }
    }

    /// Applies a reply to the state of the client.
    fn accept(&mut self, reply: &Reply<'_>) -> Result<(), Error> {
        match *reply {
            Reply::InitAck { rank, size, appnum } => {
                self.identity = Some(Identity { rank, size, appnum: Some(appnum) });
                self.state = State::Init;
            }
            Reply::Init { version, subversion } => {
                self.subversion = subversion;
                self.state = match (self.protocol, version, self.start) {
                    (Protocol::V1, 1, Start::Port { .. }) => State::Ready,
                    (Protocol::V1, 1, Start::Fd { rank, size }) => {
                        self.identity = Some(Identity { rank, size, appnum: None });
                        State::Ready
                    }
                    (Protocol::V2, 2, Start::Fd { rank, .. } | Start::Port { id: rank }) => {
                        State::FullInit { rank }
                    }
                    _ => return Err(Error::Version(version)),
                };
            }
            Reply::FullInit { rank, size, appnum, .. } => {
                self.identity = Some(Identity { rank, size, appnum: Some(appnum) });
                self.state = State::Ready;
            }
            Reply::Done(Op::Finalize) => self.state = State::Over,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
