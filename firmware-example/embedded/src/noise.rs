//! Noise on a management connection: both sides of `NNpsk0`, and the frames that follow. `hydrant serve --manage` and
//! `hydrant offload` speak the same with `--secret-file`.
//!
//! The host sends [`MAGIC`] and the first message of the handshake: an ephemeral key, and a tag that only the secret
//! makes. The server answers with the second message. Frames follow in both directions: two bytes of length, and that
//! many bytes of ciphertext. Nothing is allocated, and a host without the secret costs no multiplication on the curve.

use blake2::digest::{Digest, FixedOutput};
use blake2::{Blake2s256, digest::generic_array::GenericArray};
use chacha20poly1305::{AeadInPlace, ChaCha20Poly1305, KeyInit};
use curve25519_dalek::constants::X25519_BASEPOINT;
use curve25519_dalek::montgomery::MontgomeryPoint;

const PATTERN: &[u8] = b"Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// First bytes of a connection with a secret. The last byte is the version. No record begins with these bytes: its length
/// would be above the limit.
pub const MAGIC: [u8; 8] = *b"hydrant\x81";
/// Length of either message of the handshake: an ephemeral key and a tag.
pub const MESSAGE: usize = 32 + TAG;
/// Length of a frame's length, and of its tag.
pub const LENGTH: usize = 2;
/// Length of a tag.
pub const TAG: usize = 16;
/// Bytes that a frame has in addition to its plaintext.
pub const OVERHEAD: usize = LENGTH + TAG;

type Hash = [u8; 32];

/// The other side does not have the secret, or a frame was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// Hash of these parts, one behind the other.
pub fn hash(parts: &[&[u8]]) -> Hash {
    let mut hash = Blake2s256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize_fixed().into()
}

/// Derives the secret from its text, as hosts do.
pub fn secret(text: &[u8]) -> Hash {
    hash(&[&MAGIC, text.trim_ascii()])
}

/// HMAC with BLAKE2s, whose blocks have 64 bytes.
fn hmac(key: &Hash, parts: &[&[u8]; 2]) -> Hash {
    let (mut inner, mut outer) = ([0x36; 64], [0x5C; 64]);
    for (at, byte) in key.iter().enumerate() {
        inner[at] ^= byte;
        outer[at] ^= byte;
    }
    hash(&[&outer, &hash(&[&inner, parts[0], parts[1]])])
}

/// Noise's HKDF.
fn hkdf(chaining: &Hash, input: &[u8]) -> [Hash; 3] {
    let key = hmac(chaining, &[input, &[]]);
    let one = hmac(&key, &[&[1], &[]]);
    let two = hmac(&key, &[&one, &[2]]);
    [one, two, hmac(&key, &[&two, &[3]])]
}

/// Key of one direction, and the number of its next message.
#[derive(Clone)]
struct Cipher {
    key: Hash,
    number: u64,
}

impl Cipher {
    const fn new(key: Hash) -> Cipher {
        Cipher { key, number: 0 }
    }

    fn next(&mut self) -> (ChaCha20Poly1305, [u8; 12]) {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.number.to_le_bytes());
        // A connection does not live that long.
        self.number = self.number.wrapping_add(1);
        (ChaCha20Poly1305::new(GenericArray::from_slice(&self.key)), nonce)
    }

    fn encrypt(&mut self, with: &[u8], plain: &mut [u8]) -> Result<[u8; TAG], Forged> {
        let (cipher, nonce) = self.next();
        let tag = cipher.encrypt_in_place_detached(&nonce.into(), with, plain).map_err(|_| Forged)?;
        Ok(tag.into())
    }

    fn decrypt(&mut self, with: &[u8], sealed: &mut [u8], tag: &[u8]) -> Result<(), Forged> {
        let (cipher, nonce) = self.next();
        let tag: [u8; TAG] = tag.try_into().map_err(|_| Forged)?;
        cipher.decrypt_in_place_detached(&nonce.into(), with, sealed, &tag.into()).map_err(|_| Forged)
    }
}

/// State of a handshake.
struct Symmetric {
    chaining: Hash,
    hash: Hash,
    cipher: Cipher,
}

impl Symmetric {
    fn new() -> Symmetric {
        let chaining = hash(&[PATTERN]);
        Symmetric { chaining, hash: hash(&[&chaining, &MAGIC]), cipher: Cipher::new([0; 32]) }
    }

    fn mix_hash(&mut self, data: &[u8]) {
        self.hash = hash(&[&self.hash, data]);
    }

    fn mix_key(&mut self, input: &[u8]) {
        let [chaining, key, _] = hkdf(&self.chaining, input);
        (self.chaining, self.cipher) = (chaining, Cipher::new(key));
    }

    fn mix_secret(&mut self, secret: &Hash) {
        let [chaining, data, key] = hkdf(&self.chaining, secret);
        self.chaining = chaining;
        self.mix_hash(&data);
        self.cipher = Cipher::new(key);
    }

    /// An ephemeral public key, which is mixed twice in a handshake with a secret.
    fn mix_public(&mut self, public: &Hash) {
        self.mix_hash(public);
        self.mix_key(public);
    }
}

/// Encryption of a connection after its handshake.
pub struct Transport {
    receive: Cipher,
    send: Cipher,
}

/// Checks the first message of a host, without [`MAGIC`], and completes the handshake. `ephemeral` has not been used
/// before. Returns the second message.
pub fn answer(
    secret: &Hash,
    first: &[u8; MESSAGE],
    ephemeral: impl FnOnce() -> Hash,
) -> Result<(Transport, [u8; MESSAGE]), Forged> {
    let mut state = Symmetric::new();
    state.mix_secret(secret);
    let (theirs, tag) = first.split_first_chunk::<32>().ok_or(Forged)?;
    state.mix_public(theirs);
    state.cipher.decrypt(&state.hash, &mut [], tag)?;
    state.mix_hash(tag);
    let ephemeral = ephemeral();
    let ours = X25519_BASEPOINT.mul_clamped(ephemeral).0;
    state.mix_public(&ours);
    state.mix_key(&MontgomeryPoint(*theirs).mul_clamped(ephemeral).0);
    let tag = state.cipher.encrypt(&state.hash, &mut [])?;
    let mut second = [0; MESSAGE];
    second[..32].copy_from_slice(&ours);
    second[32..].copy_from_slice(&tag);
    let [receive, send, _] = hkdf(&state.chaining, &[]);
    Ok((Transport { receive: Cipher::new(receive), send: Cipher::new(send) }, second))
}

/// State of a handshake that this side has begun.
pub struct Initiator {
    state: Symmetric,
    ephemeral: Hash,
}

/// Begins a handshake, as hosts do. `ephemeral` has not been used before. Returns the first message, without [`MAGIC`].
pub fn begin(secret: &Hash, ephemeral: Hash) -> Result<(Initiator, [u8; MESSAGE]), Forged> {
    let mut state = Symmetric::new();
    state.mix_secret(secret);
    let ours = X25519_BASEPOINT.mul_clamped(ephemeral).0;
    state.mix_public(&ours);
    let tag = state.cipher.encrypt(&state.hash, &mut [])?;
    state.mix_hash(&tag);
    let mut first = [0; MESSAGE];
    first[..32].copy_from_slice(&ours);
    first[32..].copy_from_slice(&tag);
    Ok((Initiator { state, ephemeral }, first))
}

impl Initiator {
    /// Checks the second message, and completes the handshake.
    pub fn complete(&mut self, second: &[u8; MESSAGE]) -> Result<Transport, Forged> {
        let (theirs, tag) = second.split_first_chunk::<32>().ok_or(Forged)?;
        self.state.mix_public(theirs);
        self.state.mix_key(&MontgomeryPoint(*theirs).mul_clamped(self.ephemeral).0);
        self.state.cipher.decrypt(&self.state.hash, &mut [], tag)?;
        let [send, receive, _] = hkdf(&self.state.chaining, &[]);
        Ok(Transport { receive: Cipher::new(receive), send: Cipher::new(send) })
    }
}

impl Transport {
    /// Decrypts the first frame in `bytes`, in place. Returns its plaintext and its whole length, or None if it is incomplete.
    pub fn open<'b>(&mut self, bytes: &'b mut [u8]) -> Result<Option<(&'b [u8], usize)>, Forged> {
        let Some((length, rest)) = bytes.split_first_chunk_mut::<LENGTH>() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*length));
        let Some(frame) = rest.get_mut(..len) else { return Ok(None) };
        let (sealed, tag) = frame.split_at_mut_checked(len.wrapping_sub(TAG)).ok_or(Forged)?;
        self.receive.decrypt(&[], sealed, tag)?;
        Ok(Some((sealed, LENGTH + len)))
    }

    /// Encrypts the record in `buf[LENGTH..LENGTH + len]`, in place. Returns the frame, for which `buf` has [`OVERHEAD`]
    /// more bytes.
    pub fn seal<'b>(&mut self, buf: &'b mut [u8], len: usize) -> Result<&'b [u8], Forged> {
        let (length, rest) = buf.split_at_mut_checked(LENGTH).ok_or(Forged)?;
        let (plain, behind) = rest.split_at_mut_checked(len).ok_or(Forged)?;
        let tag = self.send.encrypt(&[], plain)?;
        behind.get_mut(..TAG).ok_or(Forged)?.copy_from_slice(&tag);
        length.copy_from_slice(&((len + TAG) as u16).to_le_bytes());
        Ok(&buf[..len + OVERHEAD])
    }
}
