//! Messages: bytes to typed commands and replies, and back. Knows no state.
//!
//! Both protocols decode into one [`Command`] and one [`Reply`] vocabulary, borrowed from the bytes:
//! [`next_frame`] finds where a message ends, [`decode`] says what it asks, and [`encode_reply`] writes the answer.

pub mod command;
mod fields;
pub mod frame;
pub mod reply;
mod scan;
pub mod spawn;
pub mod token;
pub mod v1;
pub mod v2;
mod write;

pub use command::{Command, Group, Members, Message, Op, RankList, RankRanges, Undecoded};
pub use frame::{Frame, Framing, next_frame};
pub use reply::{Codes, Failure, Reply};
pub use spawn::{Program, Spawn, SpawnProgram};
pub use token::Text;
pub use write::Unsent;
pub(crate) use write::decimal;

use serde::{Deserialize, Serialize};

/// The language that a connection speaks after its introduction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// PMI-1 (1.1 and 1.2): lines of `key=value`.
    #[default]
    V1,
    /// PMI-2: counted messages of `key=value;`.
    V2,
}

impl Protocol {
    /// Its number, as `pmi_version` says it.
    pub const fn version(self) -> u32 {
        match self {
            Protocol::V1 => 1,
            Protocol::V2 => 2,
        }
    }
}

/// Reads a request, in whichever protocol its frame is.
///
/// # Errors
/// See [`Undecoded`].
#[inline]
pub fn decode<'a>(frame: &Frame<'a>) -> Result<Message<'a>, Undecoded<'a>> {
    match frame.kind {
        frame::Kind::Counted => v2::decode(frame),
        frame::Kind::Line | frame::Kind::Block => v1::decode(frame),
    }
}

/// Reads a spawn request again that has been decoded before: a frame's body in that protocol.
pub fn decode_spawn(protocol: Protocol, body: &[u8]) -> Option<Spawn<'_>> {
    match decode_again(protocol, frame::Kind::Block, body)? {
        Command::Spawn(spawn) => Some(spawn),
        _ => None,
    }
}

/// The same for a request that is the host's business: about a name, a process set or a connection between jobs.
pub fn decode_upcall(protocol: Protocol, body: &[u8]) -> Option<Command<'_>> {
    let command = decode_again(protocol, frame::Kind::Line, body)?;
    let names = matches!(command.op(), Op::Publish | Op::Unpublish | Op::Lookup);
    (names || matches!(command.op(), Op::PsetDefine | Op::Connect | Op::Disconnect)).then_some(command)
}

/// `kind` is that of a PMI-1 frame.
#[cold]
fn decode_again(protocol: Protocol, kind: frame::Kind, body: &[u8]) -> Option<Command<'_>> {
    let kind = match protocol {
        Protocol::V1 => kind,
        Protocol::V2 => frame::Kind::Counted,
    };
    let len = u32::try_from(body.len()).ok()?;
    decode(&Frame { body, len, kind }).ok().map(|message| message.command)
}

/// Writes a reply to the front of `buf` and returns what it wrote. PMI-2 repeats the command's `thrid`; the
/// replies to [`Op::Init`] and [`Op::InitAck`] are lines in both protocols.
///
/// A text that the protocol cannot carry is answered with [`crate::Refusal::Unprintable`] instead.
///
/// # Errors
/// [`Unsent::DoesNotFit`], and `buf` holds nothing of use.
#[inline]
pub fn encode_reply<'b>(
    protocol: Protocol,
    reply: &Reply<'_>,
    thrid: Option<Text<'_>>,
    buf: &'b mut [u8],
) -> Result<&'b [u8], Unsent> {
    match protocol {
        Protocol::V1 => v1::encode_reply(reply, buf),
        Protocol::V2 => v2::encode_reply(reply, thrid, buf),
    }
}

#[cfg(test)]
mod tests;
