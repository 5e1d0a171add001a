//! Handshake of a link: Noise with a pre-shared secret of parent and child ([`hydrant_noise`]).
//!
//! The child sends its node number in clear and the first message. The prologue is the overlay, the version and both node
//! numbers, so a message for another link fails as one without the secret does. A connection is not admitted before its first
//! frame, which alone proves that the child has the secret.

use std::fmt;

use hydrant_noise::{KeyExchange, MESSAGE_LEN, Transport};
use hydrant_reactor::{Error, fill_random};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::error::LinkError;
use crate::version::VERSION;

/// First bytes of an initiation. The last byte is the version of the handshake.
const MAGIC: [u8; 8] = *b"hydrant\x01";
/// Size of the parent's response in bytes.
pub(crate) const RESPONSE_LEN: usize = MESSAGE_LEN;
/// Size of the child's initiation in bytes: magic, node number, and the first message.
pub(crate) const INITIATION_LEN: usize = MAGIC.len() + 4 + MESSAGE_LEN;

/// Secret of both ends of one link. Wiped when dropped.
#[derive(Clone, Serialize, Deserialize, Zeroize, ZeroizeOnDrop)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// A new random secret.
    pub(crate) fn random() -> Result<Secret, Error> {
        let mut secret = Secret([0; 32]);
        fill_random(&mut secret.0).map_err(Error::during("getrandom"))?;
        Ok(secret)
    }

    /// The secret with these bytes.
    pub(crate) fn of(bytes: [u8; 32]) -> Secret {
        Secret(bytes)
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Identifies one overlay, that of one run. It is not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OverlayId([u8; 16]);

impl OverlayId {
    /// A new random identifier.
    pub(crate) fn random() -> Result<OverlayId, Error> {
        let mut id = [0; 16];
        fill_random(&mut id).map_err(Error::during("getrandom"))?;
        Ok(OverlayId(id))
    }

    /// The identifier with these bytes.
    pub(crate) const fn of(bytes: [u8; 16]) -> OverlayId {
        OverlayId(bytes)
    }

    /// Its bytes.
    pub(crate) fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Identifies one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkIdentity {
    pub(crate) overlay: OverlayId,
    pub(crate) parent: u32,
    pub(crate) child: u32,
    pub(crate) exchange: KeyExchange,
}

impl LinkIdentity {
    fn prologue(&self) -> Vec<u8> {
        let version = VERSION.as_bytes();
        [&MAGIC[..], &self.overlay.0, &self.parent.to_be_bytes(), &self.child.to_be_bytes(), version].concat()
    }
}

/// The child's side of the handshake.
#[derive(Debug)]
pub(crate) struct Initiator(hydrant_noise::Initiator);

impl Initiator {
    /// Starts a handshake. Also returns the bytes to send.
    pub(crate) fn new(identity: &LinkIdentity, secret: &Secret) -> (Initiator, [u8; INITIATION_LEN]) {
        let (noise, message) =
            hydrant_noise::Initiator::new(identity.exchange, &secret.0, &identity.prologue());
        let mut bytes = [0; INITIATION_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&identity.child.to_be_bytes());
        bytes[12..].copy_from_slice(&message);
        (Initiator(noise), bytes)
    }

    /// Completes the handshake with the parent's response.
    ///
    /// # Errors
    /// [`LinkError::Forged`] if the response was made without the secret.
    pub(crate) fn finish(self, response: &[u8; RESPONSE_LEN]) -> Result<Transport, LinkError> {
        self.0.finish(response).map_err(|_| LinkError::Forged)
    }
}

/// The node that an initiation claims to come from.
pub(crate) fn claimed_node(initiation: &[u8; INITIATION_LEN]) -> Option<u32> {
    let (magic, rest) = initiation.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk()?;
    (*magic == MAGIC).then(|| u32::from_be_bytes(*number))
}

/// The parent's side of the handshake: checks an initiation and makes the response. Only the child's first frame proves
/// that the child has the secret.
///
/// # Errors
/// [`LinkError::Forged`] if the initiation was made without the secret or for another link.
pub(crate) fn respond(
    identity: &LinkIdentity,
    secret: &Secret,
    initiation: &[u8; INITIATION_LEN],
) -> Result<(Transport, [u8; RESPONSE_LEN]), LinkError> {
    let (_, message) = initiation.split_last_chunk().expect("the initiation ends with the message");
    hydrant_noise::respond(identity.exchange, &secret.0, &identity.prologue(), message)
        .map_err(|_| LinkError::Forged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> LinkIdentity {
        LinkIdentity { overlay: OverlayId([7; 16]), parent: 3, child: 9, exchange: KeyExchange::Psk }
    }

    #[test]
    fn both_ends_of_a_link_agree() {
        let secret = Secret::random().unwrap();
        let (initiator, bytes) = Initiator::new(&identity(), &secret);
        assert_eq!(claimed_node(&bytes), Some(9));
        let (mut parent, bytes) = respond(&identity(), &secret, &bytes).unwrap();
        let mut child = initiator.finish(&bytes).unwrap();
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        child.seal(b"here", &mut sealed).unwrap();
        parent.open(&sealed, &mut plain).unwrap();
        assert_eq!(plain, b"here");
    }

    #[test]
    fn another_secret_or_identity_fails_at_the_first_message() {
        let secret = Secret::random().unwrap();
        let (_, bytes) = Initiator::new(&identity(), &secret);
        assert!(respond(&identity(), &Secret::random().unwrap(), &bytes).is_err(), "another secret");
        for other in [
            LinkIdentity { overlay: OverlayId([8; 16]), ..identity() },
            LinkIdentity { parent: 4, ..identity() },
            LinkIdentity { child: 8, ..identity() },
            LinkIdentity { exchange: KeyExchange::PskDhe, ..identity() },
        ] {
            assert!(respond(&other, &secret, &bytes).is_err(), "{other:?}");
        }
        for at in 12..INITIATION_LEN {
            let mut bytes = bytes;
            bytes[at] ^= 1;
            assert!(respond(&identity(), &secret, &bytes).is_err(), "byte {at}");
        }
        let mut bytes = bytes;
        bytes[0] ^= 1;
        assert_eq!(claimed_node(&bytes), None);
    }

    #[test]
    fn a_response_without_the_secret_is_rejected() {
        let secret = Secret::random().unwrap();
        let (initiator, _) = Initiator::new(&identity(), &secret);
        let other = Secret::random().unwrap();
        let (_, bytes) = Initiator::new(&identity(), &other);
        let (_, bytes) = respond(&identity(), &other, &bytes).unwrap();
        assert!(initiator.finish(&bytes).is_err());
    }
}
