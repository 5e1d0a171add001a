//! Noise `NNpsk0` between two ends that share a secret: a handshake of two messages, then encrypted frames.
//!
//! The secret is mixed in first, so a message without it fails at its tag, before any computation on curves. So does a message
//! for another prologue, which names the protocol, its version, and what both ends know of the connection. A replayed first
//! message gets an answer, but its sender cannot make the next frame: only that proves that the initiator has the secret.
//!
//! ```
//! use hydrant_noise::{Initiator, KeyExchange, respond};
//!
//! # fn main() -> Result<(), hydrant_noise::Forged> {
//! let (exchange, secret, prologue) = (KeyExchange::PskDhe, [7; 32], b"example 1");
//! let (initiator, first) = Initiator::new(exchange, &secret, prologue);
//! let (mut responder, answer) = respond(exchange, &secret, prologue, &first)?;
//! let mut initiator = initiator.finish(&answer)?;
//!
//! let (mut frame, mut plain) = (Vec::new(), Vec::new());
//! initiator.seal(b"here", &mut frame)?;
//! responder.open(&frame, &mut plain)?;
//! assert_eq!(plain, b"here");
//! assert!(respond(exchange, &[8; 32], prologue, &first).is_err());
//! # Ok(())
//! # }
//! ```

use std::fmt;

use snow::params::{BaseChoice, CipherChoice, DHChoice, HandshakeChoice, HashChoice, NoiseParams};
use snow::{Builder, HandshakeState, TransportState};

mod resolver;

/// Length of an ephemeral key, or of the number in its place, in bytes.
const KEY_LEN: usize = 32;
/// Length of either message of the handshake in bytes: an ephemeral key and a tag.
pub const MESSAGE_LEN: usize = KEY_LEN + TAG_LEN;
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

/// What makes the keys of a connection, beside the secret. Both ends have to agree on it.
///
/// The names are those of TLS 1.3 (RFC 8446 section 4.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyExchange {
    /// An X25519 key of each end, made for the connection. Who learns the secret later cannot read the connection.
    PskDhe,
    /// A random number of each end, which is sent in the place of its key, and costs no computation on curves. Who learns the
    /// secret reads the connection: for a secret of one connection that nobody but its ends has seen.
    Psk,
}

impl KeyExchange {
    fn params(self) -> NoiseParams {
        let name = match self {
            KeyExchange::PskDhe => "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s",
            KeyExchange::Psk => "Noise_NNpsk0_none_ChaChaPoly_BLAKE2s",
        };
        let handshake: HandshakeChoice = "NNpsk0".parse().expect("snow supports the pattern");
        let (cipher, hash) = (CipherChoice::ChaChaPoly, HashChoice::Blake2s);
        // snow requires the choice of a curve. The resolver decides.
        NoiseParams::new(name.to_owned(), BaseChoice::Noise, handshake, DHChoice::Curve25519, cipher, hash)
    }
}

/// Begins the handshake of one end.
fn handshake(
    exchange: KeyExchange,
    secret: &[u8; 32],
    prologue: &[u8],
    is_initiator: bool,
) -> HandshakeState {
    let builder = Builder::with_resolver(exchange.params(), Box::new(resolver::Resolver(exchange)));
    let builder = builder.psk(0, secret).and_then(|builder| builder.prologue(prologue));
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
    pub fn new(exchange: KeyExchange, secret: &[u8; 32], prologue: &[u8]) -> (Initiator, [u8; MESSAGE_LEN]) {
        let mut noise = handshake(exchange, secret, prologue, true);
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
/// The message was made without the secret, for another prologue, or by another [`KeyExchange`].
pub fn respond(
    exchange: KeyExchange,
    secret: &[u8; 32],
    prologue: &[u8],
    message: &[u8; MESSAGE_LEN],
) -> Result<(Transport, [u8; MESSAGE_LEN]), Forged> {
    let mut noise = handshake(exchange, secret, prologue, false);
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
    use KeyExchange::{Psk, PskDhe};

    /// Both ends of a connection.
    fn connect(exchange: KeyExchange) -> (Transport, Transport) {
        let (initiator, first) = Initiator::new(exchange, &[1; 32], b"p");
        let (responder, answer) = respond(exchange, &[1; 32], b"p", &first).unwrap();
        (initiator.finish(&answer).unwrap(), responder)
    }

    #[test]
    fn an_answer_without_the_secret_is_refused() {
        for exchange in [PskDhe, Psk] {
            let (initiator, _) = Initiator::new(exchange, &[1; 32], b"p");
            let (_, first) = Initiator::new(exchange, &[2; 32], b"p");
            let (_, answer) = respond(exchange, &[2; 32], b"p", &first).unwrap();
            assert!(initiator.finish(&answer).is_err(), "{exchange:?}");
        }
    }

    #[test]
    fn a_message_for_another_prologue_is_refused() {
        for exchange in [PskDhe, Psk] {
            let (_, first) = Initiator::new(exchange, &[1; 32], b"p");
            assert!(respond(exchange, &[1; 32], b"q", &first).is_err(), "{exchange:?}");
            for at in 0..MESSAGE_LEN {
                let mut changed = first;
                changed[at] ^= 1;
                assert!(respond(exchange, &[1; 32], b"p", &changed).is_err(), "{exchange:?}, byte {at}");
            }
        }
    }

    #[test]
    fn ends_that_differ_in_the_key_exchange_refuse_each_other() {
        for (one, other) in [(PskDhe, Psk), (Psk, PskDhe)] {
            let (_, first) = Initiator::new(one, &[1; 32], b"p");
            assert!(respond(other, &[1; 32], b"p", &first).is_err(), "{one:?}");
        }
    }

    #[test]
    fn connections_of_one_secret_have_keys_of_their_own() {
        for exchange in [PskDhe, Psk] {
            let (mut ours, _) = connect(exchange);
            let (_, mut of_another) = connect(exchange);
            let mut frame = Vec::new();
            ours.seal(b"text", &mut frame).unwrap();
            assert_eq!(of_another.open(&frame, &mut Vec::new()), Err(Forged), "{exchange:?}");
            // The same first message gets another answer.
            let (_, first) = Initiator::new(exchange, &[1; 32], b"p");
            let answer = || respond(exchange, &[1; 32], b"p", &first).unwrap().1;
            assert_ne!(answer(), answer(), "{exchange:?}");
        }
    }

    #[test]
    fn nothing_is_appended_by_an_error() {
        for exchange in [PskDhe, Psk] {
            let (mut initiator, mut responder) = connect(exchange);
            let mut frame = b"before".to_vec();
            assert_eq!(initiator.seal(&[0; 65_520], &mut frame), Err(Forged));
            assert_eq!(frame, b"before");
            initiator.seal(b"text", &mut frame).unwrap();
            let mut plain = b"before".to_vec();
            for bad in [&frame[..], &frame[6..10], b"", &frame[7..]] {
                assert_eq!(responder.open(bad, &mut plain), Err(Forged));
            }
            assert_eq!(plain, b"before");
            responder.open(&frame[6..], &mut plain).unwrap();
            assert_eq!(plain, b"beforetext");
        }
    }
}
