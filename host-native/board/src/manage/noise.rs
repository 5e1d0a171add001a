//! Noise on a management connection: handshake and frames with a secret that hosts and the server share.
//!
//! The host sends [`MAGIC`] and the first message of `NNpsk0`, the server answers with the second. A message without the secret
//! fails at its tag. Frames follow in both directions: two bytes of length, then that many bytes of ciphertext. Their plaintext
//! is the stream of records. A replayed first message gets an answer, but no frame follows that the server accepts.

use std::fmt;

use hydrant_core::manage::{PREFIX, RECORD_MAX};
use snow::{Builder, HandshakeState, TransportState};

use super::secret::{MAGIC, Secret};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// Length of either message of the handshake: an ephemeral key and a tag.
const MESSAGE: usize = 32 + 16;
/// Length of the tag of a frame.
const TAG: usize = 16;
/// Longest plaintext of a frame: a record of the management protocol, for which each server has a buffer. Longer streams are cut.
const PLAIN_MAX: usize = PREFIX + RECORD_MAX;

/// The other side does not have the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forged;

/// Begins the handshake of one end.
fn handshake(secret: &Secret, is_host: bool) -> HandshakeState {
    let params = PATTERN.parse().expect("snow supports the pattern");
    let builder = Builder::new(params).psk(0, secret.bytes()).and_then(|builder| builder.prologue(&MAGIC));
    let build = |builder: Builder<'_>| match is_host {
        true => builder.build_initiator(),
        false => builder.build_responder(),
    };
    builder.and_then(build).expect("psk0 needs one key, which is set")
}

/// Encryption of a connection.
pub(crate) enum Channel {
    /// The host waits for the server's message. Bytes to send wait too.
    Host(Box<HandshakeState>, Vec<u8>),
    /// The server waits for the host's message.
    Server(Box<HandshakeState>),
    /// The handshake is complete.
    Open(Box<TransportState>),
    /// A message of the handshake was refused.
    Failed,
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Channel::Host(..) => "Host",
            Channel::Server(_) => "Server",
            Channel::Open(_) => "Open",
            Channel::Failed => "Failed",
        })
    }
}

impl Channel {
    /// Starts the handshake of a host. The bytes to send are appended to `outbox`.
    pub(crate) fn host(secret: &Secret, outbox: &mut impl Extend<u8>) -> Channel {
        let mut noise = handshake(secret, true);
        let mut message = [0; MESSAGE];
        noise.write_message(&[], &mut message).expect("the buffer holds key and tag");
        outbox.extend(MAGIC);
        outbox.extend(message);
        Channel::Host(Box::new(noise), Vec::new())
    }

    /// Waits for the handshake of a host.
    pub(crate) fn server(secret: &Secret) -> Channel {
        Channel::Server(Box::new(handshake(secret, false)))
    }

    /// Encrypts bytes to send. A host's are kept until the handshake is complete.
    pub(crate) fn seal(&mut self, plain: &[u8], outbox: &mut impl Extend<u8>) -> Result<(), Forged> {
        match self {
            Channel::Host(_, waiting) => waiting.extend_from_slice(plain),
            // A server sends nothing before it knows the host.
            Channel::Server(_) | Channel::Failed => return Err(Forged),
            Channel::Open(noise) => {
                for part in plain.chunks(PLAIN_MAX) {
                    let mut frame = [0; PLAIN_MAX + TAG];
                    let len = noise.write_message(part, &mut frame).map_err(|_| Forged)?;
                    outbox.extend((len as u16).to_le_bytes());
                    outbox.extend(frame[..len].iter().copied());
                }
            }
        }
        Ok(())
    }

    /// Takes whole messages from the front of `raw`. Appends their plaintext to `inbox`, and bytes to send to `outbox`.
    pub(crate) fn open(
        &mut self,
        raw: &mut Vec<u8>,
        inbox: &mut impl Extend<u8>,
        outbox: &mut impl Extend<u8>,
    ) -> Result<(), Forged> {
        let mut taken = 0;
        let result = loop {
            match self.step(&raw[taken..], inbox, outbox) {
                Ok(0) => break Ok(()),
                Ok(len) => taken += len,
                Err(Forged) => break Err(Forged),
            }
        };
        raw.drain(..taken);
        result
    }

    /// Takes one message. Returns its length, 0 if it is incomplete.
    fn step(
        &mut self,
        raw: &[u8],
        inbox: &mut impl Extend<u8>,
        outbox: &mut impl Extend<u8>,
    ) -> Result<usize, Forged> {
        match self {
            Channel::Server(noise) => {
                let magic = raw.len().min(MAGIC.len());
                if raw[..magic] != MAGIC[..magic] {
                    return Err(Forged);
                }
                let Some(message) = raw.get(MAGIC.len()..MAGIC.len() + MESSAGE) else { return Ok(0) };
                noise.read_message(message, &mut []).map_err(|_| Forged)?;
                let mut answer = [0; MESSAGE];
                noise.write_message(&[], &mut answer).map_err(|_| Forged)?;
                outbox.extend(answer);
                self.finish(outbox)?;
                Ok(MAGIC.len() + MESSAGE)
            }
            Channel::Host(noise, _) => {
                let Some(message) = raw.get(..MESSAGE) else { return Ok(0) };
                noise.read_message(message, &mut []).map_err(|_| Forged)?;
                self.finish(outbox)?;
                Ok(MESSAGE)
            }
            Channel::Open(noise) => {
                let Some((&len, rest)) = raw.split_first_chunk::<2>() else { return Ok(0) };
                let len = usize::from(u16::from_le_bytes(len));
                if len > PLAIN_MAX + TAG {
                    return Err(Forged);
                }
                let Some(frame) = rest.get(..len) else { return Ok(0) };
                let mut plain = [0; PLAIN_MAX];
                let plain_len = noise.read_message(frame, &mut plain).map_err(|_| Forged)?;
                inbox.extend(plain[..plain_len].iter().copied());
                Ok(2 + len)
            }
            Channel::Failed => Err(Forged),
        }
    }

    /// Completes the handshake, and encrypts the bytes that wait for it.
    fn finish(&mut self, outbox: &mut impl Extend<u8>) -> Result<(), Forged> {
        let (noise, waiting) = match std::mem::replace(self, Channel::Failed) {
            Channel::Host(noise, waiting) => (noise, waiting),
            Channel::Server(noise) => (noise, Vec::new()),
            Channel::Open(_) | Channel::Failed => return Err(Forged),
        };
        *self = Channel::Open(Box::new(noise.into_transport_mode().map_err(|_| Forged)?));
        self.seal(&waiting, outbox)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::from_text(text.as_bytes()).unwrap()
    }

    /// Passes bytes both ways until none is left. Returns what the server received.
    fn exchange(host: &mut Channel, server: &mut Channel, mut to_server: Vec<u8>) -> Result<Vec<u8>, Forged> {
        let (mut got, mut ignored) = (Vec::new(), Vec::new());
        while !to_server.is_empty() {
            let mut to_host = Vec::new();
            server.open(&mut to_server, &mut got, &mut to_host)?;
            to_server.clear();
            host.open(&mut to_host, &mut ignored, &mut to_server)?;
        }
        Ok(got)
    }

    #[test]
    fn records_pass_between_ends_with_the_same_secret() {
        let mut bytes = Vec::new();
        let mut host = Channel::host(&secret("0123456789abcdef"), &mut bytes);
        let mut server = Channel::server(&secret(" 0123456789abcdef\n"));
        host.seal(b"early", &mut bytes).unwrap();
        assert_eq!(exchange(&mut host, &mut server, bytes), Ok(b"early".to_vec()));
        let long = [7; 3 * PLAIN_MAX + 5];
        let (mut frames, mut got, mut none) = (Vec::new(), Vec::new(), Vec::new());
        server.seal(&long, &mut frames).unwrap();
        let mut raw = Vec::new();
        for byte in frames {
            raw.push(byte);
            host.open(&mut raw, &mut got, &mut none).unwrap();
        }
        assert!(got == long && raw.is_empty() && none.is_empty());
    }

    #[test]
    fn another_secret_and_plain_records_are_refused() {
        let mut bytes = Vec::new();
        let mut host = Channel::host(&secret("0123456789abcdef"), &mut bytes);
        let mut server = Channel::server(&secret("0123456789abcdeF"));
        assert_eq!(exchange(&mut host, &mut server, bytes), Err(Forged));
        assert_eq!(server.seal(b"x", &mut Vec::new()), Err(Forged));
        let mut plain = b"\x02\x00\x00\x01".to_vec();
        assert_eq!(server.open(&mut plain, &mut Vec::new(), &mut Vec::new()), Err(Forged));
        assert_eq!(host.open(&mut vec![0; MESSAGE], &mut Vec::new(), &mut Vec::new()), Err(Forged));
    }

    #[test]
    fn a_changed_frame_is_refused() {
        let mut bytes = Vec::new();
        let mut host = Channel::host(&secret("0123456789abcdef"), &mut bytes);
        let mut server = Channel::server(&secret("0123456789abcdef"));
        exchange(&mut host, &mut server, bytes).unwrap();
        let mut frame = Vec::new();
        host.seal(b"record", &mut frame).unwrap();
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(server.open(&mut frame, &mut Vec::new(), &mut Vec::new()), Err(Forged));
    }
}
