//! How a child and its parent make sure of each other: Noise with a secret that only the two of them have.
//!
//! The child speaks first: who it claims to be, in clear, and the first message of `NNpsk0`. The pre-shared key is
//! mixed in before anything else, so a stranger's message fails at its tag, before any arithmetic on curves. Job,
//! version and both node numbers are the prologue: whoever means another link than this one fails in the same place.
//! A recorded opening that is played again is answered, but whoever plays it cannot say the next thing, and until
//! then nobody is let in.

use std::fmt;

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState, TransportState};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::LinkError;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// What an opening begins with; its last byte is the version of what follows.
const MAGIC: [u8; 8] = *b"hydrant\x01";
/// Bytes of the parent's answer: an ephemeral key and a tag.
pub(crate) const ANSWER: usize = 32 + 16;
/// Bytes of the child's opening: magic, the number it claims, an ephemeral key and a tag.
pub(crate) const OPENING: usize = MAGIC.len() + 4 + 32 + 16;

/// What the two ends of one link share, and nobody else has. Wiped when dropped.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// One that nobody has.
    pub(crate) fn random() -> Result<Secret, hydrant_reactor::Error> {
        let mut secret = Secret([0; 32]);
        random(&mut secret.0)?;
        Ok(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Which job a link is of; no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobKey([u8; 16]);

impl JobKey {
    /// One that no other job has.
    pub(crate) fn random() -> Result<JobKey, hydrant_reactor::Error> {
        let mut key = [0; 16];
        random(&mut key)?;
        Ok(JobKey(key))
    }
}

fn random(bytes: &mut [u8]) -> Result<(), hydrant_reactor::Error> {
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(hydrant_reactor::Error::during("getrandom"))?;
    }
    Ok(())
}

/// The link that is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) job: JobKey,
    pub(crate) parent: u32,
    pub(crate) child: u32,
}

impl Ends {
    fn prologue(&self) -> Vec<u8> {
        let version = env!("CARGO_PKG_VERSION").as_bytes();
        [&MAGIC[..], &self.job.0, &self.parent.to_be_bytes(), &self.child.to_be_bytes(), version].concat()
    }

    fn build(&self, secret: &Secret, initiator: bool) -> HandshakeState {
        let prologue = self.prologue();
        let params = PATTERN.parse().expect("the pattern is one that snow knows");
        let builder = Builder::new(params).psk(0, &secret.0).and_then(|builder| builder.prologue(&prologue));
        let build = |builder: Builder<'_>| match initiator {
            true => builder.build_initiator(),
            false => builder.build_responder(),
        };
        builder.and_then(build).expect("the pattern needs no more than a key for psk0")
    }
}

/// The child's side between its opening and the answer.
#[derive(Debug)]
pub(crate) struct Opening(HandshakeState);

impl Opening {
    /// Begins, with the bytes to send.
    pub(crate) fn new(ends: &Ends, secret: &Secret) -> (Opening, [u8; OPENING]) {
        let mut noise = ends.build(secret, true);
        let mut bytes = [0; OPENING];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&ends.child.to_be_bytes());
        let len = noise.write_message(&[], &mut bytes[12..]).expect("the buffer has room for key and tag");
        debug_assert_eq!(12 + len, OPENING);
        (Opening(noise), bytes)
    }

    /// Takes the answer.
    pub(crate) fn finish(mut self, answer: &[u8; ANSWER]) -> Result<TransportState, LinkError> {
        self.0.read_message(answer, &mut []).map_err(|_| LinkError::Forged)?;
        self.0.into_transport_mode().map_err(|_| LinkError::Forged)
    }
}

/// The node that an opening claims to come from.
pub(crate) fn claimed(opening: &[u8; OPENING]) -> Option<u32> {
    let (magic, rest) = opening.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk()?;
    (*magic == MAGIC).then(|| u32::from_be_bytes(*number))
}

/// The parent's side: checks an opening and makes the answer. That the child has the secret is sure only when its
/// first frame has come.
pub(crate) fn answer(
    ends: &Ends,
    secret: &Secret,
    opening: &[u8; OPENING],
) -> Result<(TransportState, [u8; ANSWER]), LinkError> {
    let mut noise = ends.build(secret, false);
    noise.read_message(&opening[12..], &mut []).map_err(|_| LinkError::Forged)?;
    let mut bytes = [0; ANSWER];
    noise.write_message(&[], &mut bytes).map_err(|_| LinkError::Forged)?;
    Ok((noise.into_transport_mode().map_err(|_| LinkError::Forged)?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> Ends {
        Ends { job: JobKey([7; 16]), parent: 3, child: 9 }
    }

    #[test]
    fn the_two_ends_of_one_link_agree() {
        let secret = Secret::random().unwrap();
        let (opening, bytes) = Opening::new(&ends(), &secret);
        assert_eq!(claimed(&bytes), Some(9));
        let (mut parent, bytes) = answer(&ends(), &secret, &bytes).unwrap();
        let mut child = opening.finish(&bytes).unwrap();
        let (mut sealed, mut plain) = ([0; 64], [0; 64]);
        let len = child.write_message(b"here", &mut sealed).unwrap();
        assert_eq!(parent.read_message(&sealed[..len], &mut plain).unwrap(), 4);
        assert_eq!(&plain[..4], b"here");
    }

    #[test]
    fn any_other_link_fails_at_the_first_message() {
        let secret = Secret::random().unwrap();
        let (_, bytes) = Opening::new(&ends(), &secret);
        assert!(answer(&ends(), &Secret::random().unwrap(), &bytes).is_err(), "another secret");
        for other in [
            Ends { job: JobKey([8; 16]), ..ends() },
            Ends { parent: 4, ..ends() },
            Ends { child: 8, ..ends() },
        ] {
            assert!(answer(&other, &secret, &bytes).is_err(), "{other:?}");
        }
        for at in 12..OPENING {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert!(answer(&ends(), &secret, &bytes).is_err(), "byte {at}");
        }
        let mut strange = bytes;
        strange[0] ^= 1;
        assert_eq!(claimed(&strange), None);
    }

    #[test]
    fn who_answers_without_the_secret_is_found_out() {
        let secret = Secret::random().unwrap();
        let (opening, _) = Opening::new(&ends(), &secret);
        let other = Secret::random().unwrap();
        let (_, bytes) = Opening::new(&ends(), &other);
        let (_, bytes) = answer(&ends(), &other, &bytes).unwrap();
        assert!(opening.finish(&bytes).is_err());
    }
}
