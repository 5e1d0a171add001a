//! Framing: the handshake of a client, and the header of every later message.

use serde::{Deserialize, Serialize};

use super::command::COMMIT;
use super::{Integers, Reader};
use crate::Malformed;
use crate::limits::{COMMIT_BYTES_MAX, message_max};

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 16;
/// Maximum length of a message in bytes, with its header: that of a server with the largest commits.
pub const MESSAGE_MAX: u32 = message_max(COMMIT_BYTES_MAX);
/// Maximum length of the body of a handshake in bytes. libpmix 6 adds up to 512 bytes of command line.
pub const HELLO_MAX: u32 = 2048;
/// Tag of [`Command::Heartbeat`](super::Command::Heartbeat).
pub const HEARTBEAT_TAG: u32 = 1;

/// First bytes of a handshake.
const HELLO: [u8; 8] = [FIRST_BYTE; 8];
/// First byte of a handshake. No message of PMI-1 or PMI-2 begins with it.
pub const FIRST_BYTE: u8 = 0xff;
/// Length in bytes of a namespace in a reply to a handshake, with a NUL at least.
const NAMESPACE_LEN: usize = 256;
/// Type of a buffer whose elements have no types in front.
const NOT_DESCRIBED: u8 = 1;

/// Complete handshake or message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// First message of a connection.
    Hello {
        /// Its length in bytes, with the header.
        len: u32,
        /// Its body, for [`Hello::decode`].
        body: &'a [u8],
    },
    /// Request.
    Message {
        /// Its length in bytes, with the header.
        len: u32,
        /// Number that the reply repeats.
        tag: u32,
        /// Its body, for [`decode`](super::decode).
        body: &'a [u8],
    },
}

/// Returns the handshake or message at the front of `bytes`, or `None` if it is incomplete.
///
/// # Errors
/// [`Malformed::TooLong`] for a length above [`MESSAGE_MAX`], or above [`HELLO_MAX`] in a handshake.
pub fn next_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, Malformed> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    let is_hello = header.starts_with(&HELLO);
    // The client's byte order. Only its length is not big-endian.
    let body = if is_hello { u32::from_le_bytes(word(8)) } else { u32::from_be_bytes(word(8)) };
    let limit = if is_hello { HELLO_MAX } else { MESSAGE_MAX - HEADER_LEN as u32 };
    if body > limit {
        return Err(Malformed::TooLong);
    }
    let len = HEADER_LEN as u32 + body;
    let Some(body) = rest.get(..body as usize) else { return Ok(None) };
    Ok(Some(if is_hello {
        Frame::Hello { len, body }
    } else {
        Frame::Message { len, tag: u32::from_be_bytes(word(4)), body }
    }))
}

/// Returns whether the message at the front of `bytes`, which may be incomplete, is a commit.
pub fn is_commit(integers: Integers, bytes: &[u8]) -> bool {
    let mut body = Reader::new(integers, bytes.get(HEADER_LEN..).unwrap_or_default());
    body.single().is_some() && body.byte() == Some(COMMIT)
}

/// Kind of a client. Launchers and schedulers count as tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Process that a server has started (kind 0).
    Client,
    /// Such a process that uses the functions of tools (kinds 5 and 8).
    ClientTool,
    /// Tool that gets its name from the server (kinds 3 and 6).
    Tool,
    /// Tool that names itself (kinds 4, 7 and 10).
    NamedTool,
}

impl Kind {
    const fn of(number: u8) -> Option<Kind> {
        match number {
            0 => Some(Kind::Client),
            5 | 8 => Some(Kind::ClientTool),
            3 | 6 => Some(Kind::Tool),
            4 | 7 | 10 => Some(Kind::NamedTool),
            _ => None,
        }
    }

    /// Returns whether the client is no process of a job.
    pub const fn is_tool(self) -> bool {
        matches!(self, Kind::Tool | Kind::NamedTool)
    }
}

/// Handshake of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Kind of the client.
    pub kind: Kind,
    /// Namespace that the client claims to be of. Empty for [`Kind::Tool`].
    pub namespace: &'a [u8],
    /// Rank that it claims to be. 0 for [`Kind::Tool`].
    pub rank: u32,
    /// Major version of its library.
    pub major: u8,
    /// Encoding of its integers.
    pub integers: Integers,
}

impl<'a> Hello<'a> {
    /// Decodes the body of a handshake. Returns `None` for truncated bytes, singletons, unknown data formats, and buffers that
    /// describe themselves.
    pub fn decode(body: &'a [u8]) -> Option<Hello<'a>> {
        let mut rest = body;
        let _security = text(&mut rest)?;
        let credential = number(&mut rest)?;
        rest = rest.get(usize::try_from(credential).ok()?..)?;
        let kind = Kind::of(byte(&mut rest)?)?;
        if kind != Kind::Client {
            let _user = number(&mut rest)?;
            let _group = number(&mut rest)?;
        }
        let (namespace, rank) = match kind {
            Kind::Tool => (&[][..], 0),
            _ => (text(&mut rest)?, number(&mut rest)?),
        };
        let major = major(text(&mut rest)?)?;
        let integers = match text(&mut rest)? {
            // v51 and v61 have more types. Tools take the latest that they know.
            b"v61" | b"v51" | b"v41" | b"v4" => Integers::Flexible,
            b"v3" | b"v21" => Integers::Fixed,
            _ => return None,
        };
        (byte(&mut rest)? == NOT_DESCRIBED).then_some(())?;
        let _job_data = text(&mut rest)?;
        Some(Hello { kind, namespace, rank, major, integers })
    }
}

impl Hello<'_> {
    /// Writes the handshake of a process of that user and group, as a whole message, to the front of `buf`. Returns its length, or
    /// `None` if `buf` is too short.
    pub fn write(&self, (user, group): (u32, u32), buf: &mut [u8]) -> Option<usize> {
        let (user, group) = (user.to_be_bytes(), group.to_be_bytes());
        let kind = match self.kind {
            Kind::Client => 0,
            Kind::ClientTool => 5,
            Kind::Tool => 3,
            Kind::NamedTool => 4,
        };
        let users = if self.kind == Kind::Client { [&[][..]; 2] } else { [&user[..], &group] };
        let rank = self.rank.to_be_bytes();
        let name = if self.kind == Kind::Tool { [&[][..]; 3] } else { [self.namespace, b"\0", &rank] };
        let tens = [b'0' + self.major / 10 % 10];
        let version = [if self.major < 10 { &[][..] } else { &tens }, &[b'0' + self.major % 10], b".0.0\0"];
        let format = match self.integers {
            Integers::Flexible => &b"v41\0"[..],
            Integers::Fixed => b"v3\0",
        };
        let credential = [b"native\0\0\0\0\x08", &user[..], &group, &[kind]];
        let parts = credential.into_iter().chain(users).chain(name).chain(version);
        let mut len = HEADER_LEN;
        for part in parts.chain([format, &[NOT_DESCRIBED], b"hash\0"]) {
            buf.get_mut(len..)?.get_mut(..part.len())?.copy_from_slice(part);
            len += part.len();
        }
        buf[..HELLO.len()].copy_from_slice(&HELLO);
        buf[HELLO.len()..HEADER_LEN].fill(0);
        // Of the header, its length alone is in the byte order of the client.
        buf[HELLO.len()..][..4].copy_from_slice(&((len - HEADER_LEN) as u32).to_le_bytes());
        Some(len)
    }
}

/// Takes bytes up to a NUL.
fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = rest.iter().position(|&byte| byte == 0)?;
    let (text, after) = rest.split_at_checked(len)?;
    *rest = after.get(1..)?;
    Some(text)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let (bytes, after) = rest.split_first_chunk::<4>()?;
    *rest = after;
    Some(u32::from_be_bytes(*bytes))
}

fn byte(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

/// Returns the number before the first dot of a version such as `5.0.11rc1`.
fn major(version: &[u8]) -> Option<u8> {
    let digits = version.split(|&byte| byte == b'.').next()?;
    core::str::from_utf8(digits).ok()?.parse().ok()
}

/// Writes the header of a message from the server whose body has `len` bytes.
pub fn write_header(tag: u32, len: u32) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[4..8].copy_from_slice(&tag.to_be_bytes());
    header[8..12].copy_from_slice(&len.to_be_bytes());
    header
}

/// Writes the reply to a handshake to the front of `buf`: the status, and the index of the client after success.
/// Returns its length, or `None` if `buf` is too short.
pub fn write_hello_reply(status: i32, index: u32, buf: &mut [u8]) -> Option<usize> {
    buf.get_mut(..4)?.copy_from_slice(&status.to_be_bytes());
    if status != super::status::SUCCESS {
        return Some(4);
    }
    buf.get_mut(4..8)?.copy_from_slice(&index.to_be_bytes());
    Some(8)
}

/// Writes the reply to the handshake of a tool, or of another process that uses its functions, to the front of `buf`: success,
/// the namespace of the tool, whose rank is 0, if it does not have one, then that of the server, whose rank is 0, and success
/// again. Returns its length, or `None` if `buf` is too short.
pub fn write_tool_reply(namespace: Option<&[u8]>, server: &[u8], buf: &mut [u8]) -> Option<usize> {
    let mut at = 4;
    buf.get_mut(..at)?.fill(0);
    for name in namespace.into_iter().chain([server]) {
        let part = buf.get_mut(at..at + NAMESPACE_LEN + 4)?;
        part.fill(0);
        part[..NAMESPACE_LEN - 1].get_mut(..name.len())?.copy_from_slice(name);
        at += part.len();
    }
    buf.get_mut(at..at + 4)?.fill(0);
    Some(at + 4)
}
