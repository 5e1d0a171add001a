//! The primitives of a handshake.
//!
//! ChaCha20-Poly1305 is ring's where ring has machine code for the processor: a sixth of the time of portable code for a short
//! frame, half of it for a long one.
//!
//! Without curves, each end sends a random number. With a pre-shared key, Noise hashes what the ends send as ephemeral keys into
//! the keys of the connection, so that these are its own (Noise specification, revision 34, section 9.2). So the secret and two
//! random numbers suffice, and the result of the exchange is a constant.

use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
use snow::resolvers::DefaultResolver as CipherResolver;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
use snow::resolvers::RingResolver as CipherResolver;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};

use crate::{KEY_LEN, KeyExchange};

/// The primitives of this key exchange.
pub(crate) struct Resolver(pub(crate) KeyExchange);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        DefaultResolver.resolve_rng()
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match self.0 {
            KeyExchange::PskDhe => DefaultResolver.resolve_dh(choice),
            KeyExchange::Psk => Some(Box::new(Nonce([0; KEY_LEN]))),
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        CipherResolver.resolve_cipher(choice)
    }
}

/// The random number of one end. There is no private key.
struct Nonce([u8; KEY_LEN]);

impl Dh for Nonce {
    fn name(&self) -> &'static str {
        "none"
    }

    fn pub_len(&self) -> usize {
        KEY_LEN
    }

    fn priv_len(&self) -> usize {
        KEY_LEN
    }

    fn set(&mut self, number: &[u8]) {
        self.0.copy_from_slice(number);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        rng.try_fill_bytes(&mut self.0)
    }

    fn pubkey(&self) -> &[u8] {
        &self.0
    }

    fn privkey(&self) -> &[u8] {
        &self.0
    }

    fn dh(&self, _: &[u8], out: &mut [u8]) -> Result<(), Error> {
        out[..KEY_LEN].fill(0);
        Ok(())
    }
}
