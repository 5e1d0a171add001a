//! Hello of a host that joins, and what a head says to it.

use std::os::fd::OwnedFd;

use hydrant_reactor::NO_SIGPIPE;
use rustix::net::{SendFlags, send};

use crate::link::{INITIATION_LEN, RESPONSE_LEN};
use crate::version::VERSION;

/// First bytes of a hello. The last byte differs from that of a link's handshake and of a question.
pub(crate) const MAGIC: [u8; 8] = *b"hydrant\x03";
/// Bytes of a version, filled up with zeros.
pub(crate) const VERSION_LEN: usize = 40;
pub(crate) const HELLO_LEN: usize = MAGIC.len() + VERSION_LEN + INITIATION_LEN;
pub(crate) const VERDICT_LEN: usize = 1 + VERSION_LEN + RESPONSE_LEN;

const _: () = assert!(VERSION.len() <= VERSION_LEN);

/// What the head says to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Verdict {
    /// The response of the handshake follows.
    Welcome = 0,
    /// The versions differ.
    Version = 1,
    /// The host has another secret.
    Secret = 2,
    /// Each host has a secret of its own, and this one has not said which index it has.
    NoIndex = 3,
    /// There is no secret for this index.
    NoSecret = 4,
    /// The run has all its hosts.
    Full = 5,
}

impl Verdict {
    pub(crate) fn from_byte(byte: u8) -> Option<Verdict> {
        use Verdict::{Full, NoIndex, NoSecret, Secret, Version, Welcome};
        [Welcome, Version, Secret, NoIndex, NoSecret, Full].into_iter().find(|&verdict| verdict as u8 == byte)
    }
}

pub(crate) fn version_field() -> [u8; VERSION_LEN] {
    let mut field = [0; VERSION_LEN];
    field[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
    field
}

/// Text of a version of the other end.
pub(crate) fn version_text(field: &[u8]) -> String {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).escape_debug().to_string()
}

/// Sends a host what the head says to its hello. Returns whether all of it was sent: the send buffer of a new socket has space.
pub(crate) fn tell(host: &OwnedFd, verdict: &[u8; VERDICT_LEN]) -> bool {
    send(host, verdict, SendFlags::DONTWAIT | NO_SIGPIPE) == Ok(VERDICT_LEN)
}

/// What a head that has all its hosts says to a hello.
pub(crate) fn turn_away(hello: &[u8; HELLO_LEN]) -> [u8; VERDICT_LEN] {
    let is_same = hello[MAGIC.len()..].starts_with(&version_field());
    let mut verdict = [0; VERDICT_LEN];
    verdict[0] = if is_same { Verdict::Full } else { Verdict::Version } as u8;
    verdict[1..=VERSION_LEN].copy_from_slice(&version_field());
    verdict
}
