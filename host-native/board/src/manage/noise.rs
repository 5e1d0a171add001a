//! Noise on a management connection ([`hydrant_noise`]): handshake and frames with a secret that hosts and the server share.
//!
//! The host sends [`MAGIC`] and the first message, the server answers with the second. Frames follow in both directions: two
//! bytes of length, then that many bytes of ciphertext. Their plaintext is the stream of records.

use std::fmt;

use hydrant_core::manage::{PREFIX, RECORD_MAX};
use hydrant_noise::{Forged, Initiator, KeyExchange, MESSAGE_LEN, TAG_LEN, Transport, respond};

use super::secret::{MAGIC, Secret};

/// Longest plaintext of a frame: a record of the management protocol, for which each server has a buffer. Longer streams are cut.
const PLAIN_MAX: usize = PREFIX + RECORD_MAX;

/// Encryption of a connection.
pub(crate) enum Channel {
    /// The host waits for the server's message. Bytes to send wait too.
    Host(Initiator, Vec<u8>),
    /// The server waits for the host's message.
    Server(Secret),
    /// The handshake is complete.
    Open(Transport),
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
        let (noise, message) = Initiator::new(KeyExchange::PskDhe, secret.bytes(), &MAGIC);
        outbox.extend(MAGIC);
        outbox.extend(message);
        Channel::Host(noise, Vec::new())
    }

    /// Waits for the handshake of a host.
    pub(crate) fn server(secret: &Secret) -> Channel {
        Channel::Server(secret.clone())
    }

    /// Encrypts bytes to send. A host's are kept until the handshake is complete.
    pub(crate) fn seal(&mut self, plain: &[u8], outbox: &mut impl Extend<u8>) -> Result<(), Forged> {
        match self {
            Channel::Host(_, waiting) => waiting.extend_from_slice(plain),
            // A server sends nothing before it knows the host.
            Channel::Server(_) | Channel::Failed => return Err(Forged),
            Channel::Open(noise) => {
                for part in plain.chunks(PLAIN_MAX) {
                    let mut frame = Vec::new();
                    noise.seal(part, &mut frame)?;
                    outbox.extend((frame.len() as u16).to_le_bytes());
                    outbox.extend(frame);
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
            Channel::Server(secret) => {
                let magic = raw.len().min(MAGIC.len());
                if raw[..magic] != MAGIC[..magic] {
                    return Err(Forged);
                }
                let Some(message) = raw.get(MAGIC.len()..).and_then(<[u8]>::first_chunk) else {
                    return Ok(0);
                };
                let (noise, answer) = respond(KeyExchange::PskDhe, secret.bytes(), &MAGIC, message)?;
                outbox.extend(answer);
                *self = Channel::Open(noise);
                Ok(MAGIC.len() + MESSAGE_LEN)
            }
            Channel::Host(..) => {
                let Some(answer) = raw.first_chunk() else { return Ok(0) };
                let Channel::Host(noise, waiting) = std::mem::replace(self, Channel::Failed) else {
                    return Err(Forged);
                };
                *self = Channel::Open(noise.finish(answer)?);
                self.seal(&waiting, outbox)?;
                Ok(MESSAGE_LEN)
            }
            Channel::Open(noise) => {
                let Some((&len, rest)) = raw.split_first_chunk::<2>() else { return Ok(0) };
                let len = usize::from(u16::from_le_bytes(len));
                if len > PLAIN_MAX + TAG_LEN {
                    return Err(Forged);
                }
                let Some(frame) = rest.get(..len) else { return Ok(0) };
                let mut plain = Vec::new();
                noise.open(frame, &mut plain)?;
                inbox.extend(plain);
                Ok(2 + len)
            }
            Channel::Failed => Err(Forged),
        }
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
        assert_eq!(host.open(&mut vec![0; MESSAGE_LEN], &mut Vec::new(), &mut Vec::new()), Err(Forged));
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
