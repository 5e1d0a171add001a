//! Header of a record, and the hash of its key.

use crate::limits::RECORD_HEADER;

/// Length of a record's header in bytes.
pub const HEADER: u32 = RECORD_HEADER;
/// Length of the value of a wanted key.
const WANTED: u16 = u16::MAX;

/// Key in its space, hashed once for any number of look-ups.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    space: u32,
    hash: u32,
    bytes: &'k [u8],
}

impl<'k> Key<'k> {
    /// Hashes a key of a log with that seed.
    pub fn new(seed: u32, space: u32, bytes: &'k [u8]) -> Key<'k> {
        Key { space, hash: hash(seed ^ space.wrapping_mul(0x9e37_79b1), bytes), bytes }
    }

    /// Returns the hash.
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// Returns the index slot where the search starts. `mask` is the number of slots, a power of two, minus one.
    pub fn start(&self, mask: usize) -> usize {
        self.hash as usize & mask
    }

    /// Returns the bytes of the key.
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
}

/// Header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    hash: u32,
    space: u32,
    key_len: u16,
    value_len: u16,
    owner: u32,
}

impl Header {
    /// Returns the header of a record of this key, whose value has `value_len` bytes. Without a length the key is wanted, and
    /// has no value yet. Returns `None` if the key has more than 65,535 bytes or the value more than 65,534.
    pub fn of(key: &Key<'_>, value_len: Option<usize>, owner: u32) -> Option<Header> {
        let key_len = u16::try_from(key.bytes.len()).ok()?;
        let value_len = match value_len {
            Some(len) => u16::try_from(len).ok().filter(|&len| len != WANTED)?,
            None => WANTED,
        };
        Some(Header { hash: key.hash, space: key.space, key_len, value_len, owner })
    }

    /// Decodes the output of [`to_bytes`](Header::to_bytes).
    pub fn read(bytes: &[u8; HEADER as usize]) -> Header {
        let word = |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let half = |at| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Header { hash: word(0), space: word(4), key_len: half(8), value_len: half(10), owner: word(12) }
    }

    /// Returns the header with another hash.
    pub fn with_hash(self, hash: u32) -> Header {
        Header { hash, ..self }
    }

    /// Returns the header with another space.
    pub fn in_space(self, space: u32) -> Header {
        Header { space, ..self }
    }

    /// Encodes the header.
    pub fn to_bytes(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[..4].copy_from_slice(&self.hash.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.space.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.key_len.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.value_len.to_le_bytes());
        bytes[12..].copy_from_slice(&self.owner.to_le_bytes());
        bytes
    }

    /// Returns whether the header matches `key`. The caller compares the bytes of the key.
    pub fn is_of(&self, key: &Key<'_>) -> bool {
        self.hash == key.hash && self.space == key.space && usize::from(self.key_len) == key.bytes.len()
    }

    /// Returns the hash of space and key.
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// Returns the number of the space.
    pub fn space(&self) -> u32 {
        self.space
    }

    /// Returns the number of the owner.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns the length of the key in bytes.
    pub fn key_len(&self) -> u32 {
        u32::from(self.key_len)
    }

    /// Returns the length of the value in bytes, or `None` if the key is wanted.
    pub fn value_len(&self) -> Option<u32> {
        (self.value_len != WANTED).then_some(u32::from(self.value_len))
    }

    /// Returns the length of the record in bytes.
    pub fn record_len(&self) -> u32 {
        record_len(self.key_len(), self.value_len().unwrap_or(0))
    }
}

/// Returns the length of a record in bytes.
pub const fn record_len(key: u32, value: u32) -> u32 {
    (HEADER + key + value).next_multiple_of(4)
}

/// MurmurHash3's 32-bit function, which is fast on 32-bit processors too.
pub fn hash(seed: u32, bytes: &[u8]) -> u32 {
    let scramble = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (words, rest) = bytes.as_chunks::<4>();
    let mut hash = seed;
    for &word in words {
        hash ^= scramble(u32::from_le_bytes(word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = rest.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    hash ^= scramble(tail) ^ bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_murmurs() {
        // Published check values of MurmurHash3_x86_32.
        assert_eq!(hash(0, b""), 0);
        assert_eq!(hash(1, b""), 0x514e_28b7);
        assert_eq!(hash(0, b"\0\0\0\0"), 0x2362_f9de);
        assert_eq!(hash(0x9747_b28c, b"aaa"), 0x283e_0130);
        assert_eq!(hash(0x9747_b28c, b"Hello, world!"), 0x2488_4cba);
    }
}
