//! PMI-1 and PMI-2 client without I/O.
//!
//! A [`Client`] writes requests into the caller's buffer and reads replies from the caller's bytes; sending and
//! receiving them is the caller's business. One request is under way at a time; a [`Session`], which a PMI-2 client
//! may become after its introduction, has several.
//!
//! Order of calling: first [`Client::introduce`], sending what it gives and feeding [`Client::receive`] until that
//! has a reply, again and again until `introduce` gives nothing more. Then any number of [`Client::request`], each
//! followed by `receive` until that has the reply. Last a request of [`Command::Finalize`] or [`Command::Abort`].
//!
//! A client that shares memory with its server finds values there by itself: an [`Offer`] tells it where, and a
//! [`LogView`] looks them up.

mod offer;
mod session;

use core::fmt;

pub use crate::store::view::LogView;
pub use offer::Offer;
pub use session::{SESSION_MAX, Session, Settled, Ticket};

use crate::fault::Malformed;
use crate::wire::frame::{Framing, next_reply};
use crate::wire::{Command, Op, Protocol, Reply, Text, Unsent, v1, v2};

/// How the process found its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// `PMI_FD`: an inherited connection, whose other end knows who this is.
    Fd {
        /// `PMI_RANK`
        rank: u32,
        /// `PMI_SIZE`
        size: u32,
    },
    /// `PMI_PORT`: a connection that the process made itself.
    Port {
        /// `PMI_ID`
        id: u32,
    },
}

/// Who the process is in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its rank.
    pub rank: u32,
    /// The job's size.
    pub size: u32,
    /// Which program of the command line it is, where the server said so.
    pub appnum: Option<u32>,
}

/// A reply and how many bytes it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// To the request that is now no longer under way.
    pub reply: Reply<'a>,
    /// Bytes that the caller drops from the front of those it holds.
    pub consumed: u32,
}

/// Why a call failed. All but [`Error::Unsent`], [`Error::Busy`] and [`Error::OutOfOrder`], which change nothing,
/// end the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The request could not be written into the buffer.
    Unsent(Unsent),
    /// A request is under way, and its reply comes first.
    Busy,
    /// A request before the introduction is over, or a command that belongs to it.
    OutOfOrder,
    /// The server's bytes are not a reply.
    Malformed(Malformed),
    /// The server answered something that was not asked.
    Unasked(Op),
    /// The server speaks this version of PMI, which is not the one asked for.
    Version(u32),
    /// The introduction was refused; the reply said why.
    Refused,
    /// The conversation is over.
    Over,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsent(unsent) => unsent.fmt(f),
            Error::Busy => f.write_str("a request is under way already"),
            Error::OutOfOrder => {
                f.write_str("requests come after the introduction, and none of them is part of it")
            }
            Error::Malformed(malformed) => write!(f, "the server sent {malformed}"),
            Error::Unasked(op) => write!(f, "the server sent a reply to {op:?}, which was not asked"),
            Error::Version(version) => write!(f, "the server speaks PMI-{version}, which was not asked for"),
            Error::Refused => f.write_str("the server refused the introduction"),
            Error::Over => f.write_str("the conversation with the server is over"),
        }
    }
}

impl core::error::Error for Error {}

impl From<Unsent> for Error {
    fn from(unsent: Unsent) -> Error {
        Error::Unsent(unsent)
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

/// The state of one conversation with a server.
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
    /// A client that has not said anything yet.
    pub const fn new(protocol: Protocol, start: Start) -> Client {
        let state = match (protocol, start) {
            (Protocol::V1, Start::Port { id }) => State::InitAck { id },
            // Over PMI_PORT, PMI-2 says who it is in `fullinit`.
            _ => State::Init,
        };
        Client { protocol, start, state, under_way: None, identity: None, subversion: 0 }
    }

    /// Who the process is; `None` until the introduction is over.
    pub fn identity(&self) -> Option<Identity> {
        self.identity.filter(|_| matches!(self.state, State::Ready | State::Over))
    }

    /// The subversion that the server answered. From PMI-1.2 on a fence may name a group.
    pub fn subversion(&self) -> u32 {
        self.subversion
    }

    /// Whether a reply is still to come.
    pub fn is_waiting(&self) -> bool {
        self.under_way.is_some()
    }

    /// Writes the next step of the introduction, or gives `None` when it is over. 64 bytes of buffer are enough.
    ///
    /// # Errors
    /// [`Error::Busy`] until the previous step is answered, [`Error::Refused`] when that was a refusal,
    /// [`Error::Over`], [`Error::Unsent`].
    pub fn introduce<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<&'b [u8]>, Error> {
        self.introduce_to(None, buf)
    }

    /// As [`Client::introduce`], naming the job (`PMI_JOBID`) where PMI-2 has a field for it: Slurm's server wants
    /// it. `buf` needs as many bytes more as the job id has, escapes included.
    ///
    /// # Errors
    /// As [`Client::introduce`].
    pub fn introduce_to<'b>(
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

    /// Writes a request. Nothing is under way after [`Command::Abort`], which has no reply.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::OutOfOrder`], [`Error::Over`], and [`Error::Unsent`] when the command does not
    /// fit the buffer or the protocol.
    pub fn request<'b>(&mut self, command: &Command<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], Error> {
        if self.is_waiting() {
            return Err(Error::Busy);
        }
        let introduces = matches!(command.op(), Op::Init | Op::InitAck | Op::FullInit);
        match self.state {
            State::Ready if !introduces => self.send(command, buf),
            State::Refused => Err(Error::Refused),
            State::Over => Err(Error::Over),
            _ => Err(Error::OutOfOrder),
        }
    }

    fn send<'b>(&mut self, command: &Command<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let bytes = match self.protocol {
            Protocol::V1 => v1::encode(command, buf)?,
            Protocol::V2 => v2::encode(command, None, buf)?,
        };
        match command.op() {
            Op::Abort => self.state = State::Over,
            op => self.under_way = Some(op),
        }
        Ok(bytes)
    }

    /// Reads a reply from all bytes that the caller has received and not dropped yet; `None` when it is not whole.
    ///
    /// A refusal is a reply too; one of the introduction makes the next [`Client::introduce`] fail.
    ///
    /// # Errors
    /// [`Error::Malformed`], [`Error::Unasked`], [`Error::Version`]; [`Error::Over`] where nothing is asked any
    /// more, [`Error::OutOfOrder`] where nothing is under way.
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
            // A server that does not know the command cannot name its reply after it.
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

    /// Takes from a reply what concerns the conversation itself.
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
