//! Header and digest of a snapshot, which a fuzzer does not guess.

use hydrant_core::snapshot::{DIGEST, HEADER};

/// Adds the header and the digest to the body of a snapshot.
pub fn seal(body: Vec<u8>) -> Vec<u8> {
    let mut saved = [&HEADER[..], &body].concat();
    saved.extend(digest(&saved));
    saved
}

/// Returns the body of a snapshot of a server.
///
/// # Panics
/// If its header or digest is not as this module makes it.
pub fn unseal(mut saved: Vec<u8>) -> Vec<u8> {
    let end = saved.split_off(saved.len() - DIGEST);
    assert_eq!(end, digest(&saved), "the digest has changed, and this module has to change with it");
    assert!(saved.starts_with(&HEADER), "a snapshot begins with its header");
    saved.split_off(HEADER.len())
}

/// MurmurHash3 of 32 bits.
fn digest(bytes: &[u8]) -> [u8; DIGEST] {
    let scramble = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, rest) = bytes.as_chunks::<4>();
    let hash = words.iter().fold(0u32, |hash, &word| {
        let hash = hash ^ scramble(u32::from_le_bytes(word));
        hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
    });
    let tail = rest.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    let mut hash = hash ^ scramble(tail) ^ bytes.len() as u32;
    for factor in [(16, 0x85eb_ca6b_u32), (13, 0xc2b2_ae35)] {
        hash = (hash ^ (hash >> factor.0)).wrapping_mul(factor.1);
    }
    (hash ^ (hash >> 16)).to_le_bytes()
}
