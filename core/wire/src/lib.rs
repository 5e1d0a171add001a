//! Messages of PMI-1, PMI-2 and PMIx: stateless conversion between bytes and typed commands and replies, in `no_std` Rust
//! without an allocator, and a [client](client::Client) without I/O.
//!
//! [`next_frame`] finds the end of a message in untrusted bytes. [`decode`] converts the message to a validated
//! [`Command`], which borrows from the bytes. [`encode_reply`] writes a [`Reply`]. PMI-1 and PMI-2 share the same types.
//! Messages of PMIx have a module of their own, `pmix`.
//!
//! Input bytes never cause a panic.
//!
//! PMI-1 messages are lines:
//!
//! ```
//! use hydrant_wire::{Command, Framing, Op, Protocol, Reply, Text, decode, encode_reply, next_frame};
//!
//! let frame = next_frame(b"cmd=get kvsname=job key=a\ncmd=fin", Framing::Line)?.expect("the first line is complete");
//! assert_eq!(frame.len, 26);
//! let message = decode(&frame).expect("it is a request");
//! let kvs = Some(Text::plain(b"job"));
//! assert_eq!(message.command, Ok(Command::Get { kvs, key: Text::plain(b"a"), source: None }));
//!
//! let reply = Reply::Found(Op::Get, Text::plain(b"1"));
//! let mut buffer = [0; 64];
//! let bytes = encode_reply(Protocol::V1, &reply, None, &mut buffer).expect("the buffer is long enough");
//! assert_eq!(bytes, b"cmd=get_result rc=0 value=1\n");
//! # Ok::<(), hydrant_wire::Malformed>(())
//! ```
//!
//! PMI-2 messages have a length prefix. A reply repeats the `thrid` of its request, which identifies a thread:
//!
//! ```
//! use hydrant_wire::{Command, Framing, Op, Protocol, Reply, Text, decode, encode_reply, next_frame};
//!
//! let frame = next_frame(b"    26cmd=kvs-get;thrid=7;key=a;", Framing::Counted)?.expect("it is complete");
//! let message = decode(&frame).expect("it is a request");
//! assert_eq!(message.command, Ok(Command::Get { kvs: None, key: Text::plain(b"a"), source: None }));
//!
//! let reply = Reply::Found(Op::Get, Text::plain(b"1"));
//! let mut buffer = [0; 64];
//! let bytes = encode_reply(Protocol::V2, &reply, message.thrid, &mut buffer).expect("the buffer is long enough");
//! assert_eq!(bytes, b"    53cmd=kvs-get-response;thrid=7;rc=0;found=TRUE;value=1;");
//! # Ok::<(), hydrant_wire::Malformed>(())
//! ```
//!
//! # Errors
//!
//! [`Malformed`] is the reason that bytes cannot be decoded; the connection is then closed. [`Refusal`] is an error reply to a
//! request. [`EncodeError`] is the reason that a message cannot be written.
//!
//! # Features
//!
//! Both are off by default. `pmix` adds the messages of PMIx. `defmt` implements `defmt::Format` for errors.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
extern crate std;

pub mod client;
pub mod command;
mod error;
mod fields;
pub mod frame;
pub mod info;
pub mod limits;
pub mod log;
#[cfg(feature = "pmix")]
pub mod pmix;
mod ranges;
pub mod reply;
mod scan;
pub mod spawn;
pub mod token;
pub mod v1;
pub mod v2;
mod write;

pub use command::{Command, Group, Members, Message, Op, Persistence, RankList, RankRanges, SetOperation};
pub use error::{Malformed, Refusal};
pub use frame::{Frame, Framing, next_frame};
pub use ranges::{ranges, write_ranges};
pub use reply::{Codes, Failure, Reply};
pub use scan::number;
pub use spawn::{Program, Spawn, SpawnProgram};
pub use token::Text;
pub use write::{EncodeError, decimal};

use serde::{Deserialize, Serialize};

/// Protocol that a connection uses after its handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// PMI-1 (1.1 and 1.2): lines of `key=value`.
    #[default]
    V1,
    /// PMI-2: counted messages of `key=value;`.
    V2,
}

/// Encoding of integers in PMIx messages.
///
/// The variants begin with 1, so that an empty connection is all zeros and static storage takes no flash memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Integers {
    /// Seven bits a byte, the least significant first (formats v41 and v4).
    #[default]
    Flexible = 1,
    /// Big-endian, of fixed length (formats v3 and v21).
    Fixed,
}

#[cfg(feature = "pmix")]
impl Integers {
    /// Returns the encoding with this number.
    pub fn of_byte(number: u8) -> Option<Integers> {
        [Integers::Flexible, Integers::Fixed].into_iter().find(|it| *it as u8 == number)
    }
}

impl Protocol {
    /// Returns its number in `pmi_version`.
    pub const fn version(self) -> u32 {
        match self {
            Protocol::V1 => 1,
            Protocol::V2 => 2,
        }
    }
}

/// Decodes a request in the protocol of its frame.
///
/// # Errors
/// [`Malformed`] for a frame that is no request. The connection must then be closed.
pub fn decode<'a>(frame: &Frame<'a>) -> Result<Message<'a>, Malformed> {
    match frame.kind {
        frame::Kind::Counted => v2::decode(frame),
        frame::Kind::Line | frame::Kind::Block => v1::decode(frame),
    }
}

/// Decodes a stored spawn request, that of an `Output::Spawn` of hydrant-core.
pub fn decode_spawn(protocol: Protocol, body: &[u8]) -> Option<Spawn<'_>> {
    match decode_again(protocol, frame::Kind::Block, body)? {
        Command::Spawn(spawn) => Some(spawn),
        _ => None,
    }
}

/// Decodes a stored request that a host answers, that of an `Output::Upcall` of hydrant-core: about a name, a process set,
/// a connection between jobs, or a value of another job.
pub fn decode_upcall(protocol: Protocol, body: &[u8]) -> Option<Command<'_>> {
    let command = decode_again(protocol, frame::Kind::Line, body)?;
    let names = matches!(command.op(), Op::Publish | Op::Unpublish | Op::Lookup);
    let jobs = matches!(command.op(), Op::Connect | Op::Disconnect | Op::Get);
    (names || jobs || command.op().changes_psets()).then_some(command)
}

/// Decodes a stored request. `kind` is that of a PMI-1 frame.
#[cold]
fn decode_again(protocol: Protocol, kind: frame::Kind, body: &[u8]) -> Option<Command<'_>> {
    let kind = match protocol {
        Protocol::V1 => kind,
        Protocol::V2 => frame::Kind::Counted,
    };
    let len = u32::try_from(body.len()).ok()?;
    decode(&Frame { body, len, kind }).ok()?.command.ok()
}

/// Writes a reply to the front of `buf`. Returns the bytes written. In PMI-2 the reply repeats the command's `thrid`.
/// Replies to [`Op::Init`] and [`Op::InitAck`] are lines in both protocols.
///
/// A text that the protocol cannot carry becomes an error reply with [`Refusal::Unprintable`].
///
/// # Errors
/// [`EncodeError::DoesNotFit`] if `buf` is too short. Its content is then unspecified.
pub fn encode_reply<'b>(
    protocol: Protocol,
    reply: &Reply<'_>,
    thrid: Option<Text<'_>>,
    buf: &'b mut [u8],
) -> Result<&'b [u8], EncodeError> {
    match protocol {
        Protocol::V1 => v1::encode_reply(reply, buf),
        Protocol::V2 => v2::encode_reply(reply, thrid, buf),
    }
}

#[cfg(test)]
mod tests;
