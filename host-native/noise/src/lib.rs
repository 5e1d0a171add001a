//! Noise `NNpsk0` between two ends that share a secret: a handshake of two messages, then encrypted frames.
//!
//! The secret is mixed in first, so a message without it fails at its tag, before any computation on curves. So does a message
//! for another prologue, which names the protocol, its version, and what both ends know of the connection. A replayed first
//! message gets an answer, but its sender cannot make the next frame: only that proves that the initiator has the secret.
//!
//! ```
//! use hydrant_noise::{Initiator, respond};
//!
//! # fn main() -> Result<(), hydrant_noise::Forged> {
//! let (secret, prologue) = ([7; 32], b"example 1");
//! let (initiator, first) = Initiator::new(&secret, prologue);
//! let (mut responder, answer) = respond(&secret, prologue, &first)?;
//! let mut initiator = initiator.finish(&answer)?;
//!
//! let (mut frame, mut plain) = (Vec::new(), Vec::new());
//! initiator.seal(b"here", &mut frame)?;
//! responder.open(&frame, &mut plain)?;
//! assert_eq!(plain, b"here");
//! assert!(respond(&[8; 32], prologue, &first).is_err());
//! # Ok(())
//! # }
//! ```

use std::fmt;

use snow::{Builder, HandshakeState, TransportState};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Length of either message of the handshake in bytes: an ephemeral key and a tag.
pub const MESSAGE_LEN: usize = 32 + TAG_LEN;
/// Length of the tag of a frame in bytes.
pub const TAG_LEN: usize = 16;

/// The other end does not have the secret, or bytes were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the other end does not have the secret, or bytes were changed on the way")]
pub struct Forged;

impl From<snow::Error> for Forged {
    fn from(_: snow::Error) -> Forged {
        Forged
    }
}

/// Begins the handshake of one end.
fn handshake(secret: &[u8; 32], prologue: &[u8], is_initiator: bool) -> HandshakeState {
    let params = PATTERN.parse().expect("snow supports the pattern");
    let builder = Builder::new(params).psk(0, secret).and_then(|builder| builder.prologue(prologue));
    let build = |builder: Builder<'_>| match is_initiator {
        true => builder.build_initiator(),
        false => builder.build_responder(),
    };
    builder.and_then(build).expect("psk0 needs one key, which is set")
}

/// Initiator that waits for the answer.
pub struct Initiator(Box<HandshakeState>);

impl Initiator {
    /// Begins a handshake. Also returns the first message.
    pub fn new(secret: &[u8; 32], prologue: &[u8]) -> (Initiator, [u8; MESSAGE_LEN]) {
        let mut noise = handshake(secret, prologue, true);
        let mut message = [0; MESSAGE_LEN];
        noise.write_message(&[], &mut message).expect("the buffer holds key and tag");
        (Initiator(Box::new(noise)), message)
    }

    /// Completes the handshake.
    ///
    /// # Errors
    /// The answer was made without the secret.
    pub fn finish(mut self, answer: &[u8; MESSAGE_LEN]) -> Result<Transport, Forged> {
        self.0.read_message(answer, &mut [])?;
        Ok(Transport(Box::new(self.0.into_transport_mode()?)))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator")
    }
}

/// Answers the first message of an initiator.
///
/// # Errors
/// The message was made without the secret, or for another prologue.
pub fn respond(
    secret: &[u8; 32],
    prologue: &[u8],
    message: &[u8; MESSAGE_LEN],
) -> Result<(Transport, [u8; MESSAGE_LEN]), Forged> {
    let mut noise = handshake(secret, prologue, false);
    noise.read_message(message, &mut [])?;
    let mut answer = [0; MESSAGE_LEN];
    noise.write_message(&[], &mut answer)?;
    Ok((Transport(Box::new(noise.into_transport_mode()?)), answer))
}

/// Encryption after the handshake. Frames have up to 65,535 bytes, and are opened in the order in which they were sealed.
pub struct Transport(Box<TransportState>);

impl Transport {
    /// Appends the frame of a text, which has [`TAG_LEN`] bytes more, to `out`.
    ///
    /// # Errors
    /// The text is too long for a frame, or 2^64 frames were sealed. Nothing is appended.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), Forged> {
        append(out, plain.len() + TAG_LEN, |room| self.0.write_message(plain, room))
    }

    /// Appends the text of a frame, which has [`TAG_LEN`] bytes less, to `out`.
    ///
    /// # Errors
    /// The frame is too short, was changed, or is another than the next one. Nothing is appended.
    pub fn open(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<(), Forged> {
        let len = frame.len().checked_sub(TAG_LEN).ok_or(Forged)?;
        append(out, len, |room| self.0.read_message(frame, room))
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

/// Appends `len` bytes that `write` writes.
fn append(
    out: &mut Vec<u8>,
    len: usize,
    write: impl FnOnce(&mut [u8]) -> Result<usize, snow::Error>,
) -> Result<(), Forged> {
    let start = out.len();
    out.resize(start + len, 0);
    let written = write(&mut out[start..]);
    if written.as_ref().is_ok_and(|&written| written == len) {
        return Ok(());
    }
    out.truncate(start);
    Err(Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_the_secret_is_refused() {
        let (initiator, _) = Initiator::new(&[1; 32], b"p");
        let (_, first) = Initiator::new(&[2; 32], b"p");
        let (_, answer) = respond(&[2; 32], b"p", &first).unwrap();
        assert!(initiator.finish(&answer).is_err());
    }

    #[test]
    fn a_message_for_another_prologue_is_refused() {
        let (_, first) = Initiator::new(&[1; 32], b"p");
        assert!(respond(&[1; 32], b"q", &first).is_err());
        for at in 0..MESSAGE_LEN {
            let mut changed = first;
            changed[at] ^= 1;
            assert!(respond(&[1; 32], b"p", &changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn nothing_is_appended_by_an_error() {
        let (initiator, first) = Initiator::new(&[1; 32], b"p");
        let (mut responder, answer) = respond(&[1; 32], b"p", &first).unwrap();
        let mut initiator = initiator.finish(&answer).unwrap();
        let mut frame = b"before".to_vec();
        assert_eq!(initiator.seal(&[0; 65_520], &mut frame), Err(Forged));
        assert_eq!(frame, b"before");
        initiator.seal(b"text", &mut frame).unwrap();
        let mut plain = b"before".to_vec();
        for bad in [&frame[..], &frame[6..10], b"", &frame[7..]] {
            assert_eq!(responder.open(bad, &mut plain), Err(Forged));
        }
        assert_eq!(plain, b"before");
    }
}
