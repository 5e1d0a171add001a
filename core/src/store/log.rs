//! The key-value store: an append-only log of records, and an index of where they start.
//!
//! A record is [`HEADER`] bytes, its key, its value, and padding to four bytes; numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | hash of space and key |
//! | 4..8 | space: which key-value space it belongs to |
//! | 8..10 | length of the key |
//! | 10..12 | length of the value; `0xffff` for a [wanted](Record::wanted) key that has none |
//! | 12..16 | owner: who put it, a number that the log only keeps |
//!
//! There are no pointers and records never move, so the bytes may be shared, sent or saved as they are. The index
//! holds the offset of a record plus one, in open addressing, and is written last: whoever reads it in shared
//! memory finds whole records only. Putting a key again appends a record and points the index at it.

use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a record before its key.
pub const HEADER: u32 = 16;
const WANTED: u16 = u16::MAX;

/// A log in lent memory.
#[derive(Debug)]
pub struct Log<'s> {
    bytes: &'s mut [u8],
    index: &'s [AtomicU32],
    len: u32,
    keys: u32,
    keys_max: u32,
    seed: u32,
}

/// A key in its space, hashed once for any number of look-ups. Its bytes may come in pieces.
#[derive(Clone, Debug)]
pub struct Key<I> {
    space: u32,
    hash: u32,
    len: u32,
    pieces: I,
}

impl<'k, I: Iterator<Item = &'k [u8]> + Clone> Key<I> {
    /// Length in bytes.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The newest record of the key starts at this offset.
    Taken {
        /// Where in the index.
        at: u32,
        /// The record's offset.
        record: u32,
    },
    /// The key has no record; it would be indexed here.
    Free {
        /// Where in the index.
        at: u32,
    },
    /// The key has no record, and the index has no place for one.
    None,
}

/// A record, borrowed from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The space that it belongs to.
    pub space: u32,
    /// Who put it.
    pub owner: u32,
    /// The key.
    pub key: &'a [u8],
    /// The value; empty for a wanted key.
    pub value: &'a [u8],
    /// Whether the key is only waited for and has no value yet.
    pub wanted: bool,
}

/// Bytes of log that a record takes.
pub const fn record_len(key: u32, value: u32) -> u32 {
    (HEADER + key + value).next_multiple_of(4)
}

/// Slots of index that `keys` keys need: a power of two that stays at most three quarters full.
pub const fn index_len(keys: u32) -> usize {
    (keys as usize + keys as usize / 3 + 1).next_power_of_two()
}

impl<'s> Log<'s> {
    /// An empty log of at most `keys_max` keys; nothing when `index` is shorter than [`index_len`].
    pub fn new(bytes: &'s mut [u8], index: &'s [AtomicU32], keys_max: u32, seed: u32) -> Option<Log<'s>> {
        let index = index.get(..index_len(keys_max))?;
        let mut log = Log { bytes, index, len: 0, keys: 0, keys_max, seed };
        log.clear();
        Some(log)
    }

    /// Drops every record.
    pub fn clear(&mut self) {
        // A slot that is zero already is not written, so that memory nobody used stays untouched.
        for slot in self.index.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0) {
            slot.store(0, Ordering::Relaxed);
        }
        self.len = 0;
        self.keys = 0;
    }

    /// Bytes in use.
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are no records.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes left.
    pub fn bytes_left(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX) - self.len
    }

    /// Keys left.
    pub const fn keys_left(&self) -> u32 {
        self.keys_max - self.keys
    }

    /// The log itself, from its first record to its last.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Hashes a key for look-ups in `space`.
    pub fn key<'k, I: Iterator<Item = &'k [u8]> + Clone>(&self, space: u32, pieces: I) -> Key<I> {
        // FNV-1a, then a finalizer that spreads the high bits into the ones that the index uses.
        let mut hash = 0x811c_9dc5 ^ self.seed ^ space.wrapping_mul(0x9e37_79b1);
        let mut len = 0u32;
        for piece in pieces.clone() {
            len = len.saturating_add(u32::try_from(piece.len()).unwrap_or(u32::MAX));
            for &byte in piece {
                hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            }
        }
        hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
        hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
        Key { space, hash: hash ^ (hash >> 16), len, pieces }
    }

    /// Looks a key up.
    pub fn find<'k, I: Iterator<Item = &'k [u8]> + Clone>(&self, key: &Key<I>) -> Slot {
        let mask = self.index.len() - 1;
        let mut at = key.hash as usize & mask;
        // The index is never full, but a look-up ends even if it were.
        for _ in 0..self.index.len() {
            match self.index[at].load(Ordering::Relaxed) {
                0 => return Slot::Free { at: at as u32 },
                offset if self.is_at(offset - 1, key) => {
                    return Slot::Taken { at: at as u32, record: offset - 1 };
                }
                _ => at = (at + 1) & mask,
            }
        }
        Slot::None
    }

    fn is_at<'k, I: Iterator<Item = &'k [u8]> + Clone>(&self, offset: u32, key: &Key<I>) -> bool {
        let at = offset as usize;
        if self.word(at) != key.hash || self.word(at + 4) != key.space {
            return false;
        }
        let Some(mut rest) = self.bytes.get(at + 16..at + 16 + usize::from(self.half(at + 8))) else {
            return false;
        };
        for piece in key.pieces.clone() {
            match rest.strip_prefix(piece) {
                Some(tail) => rest = tail,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// Appends a record and points the index at it. `slot` is what [`Log::find`] said of this key, with nothing
    /// appended since. Without a value the key is [wanted](Record::wanted).
    ///
    /// Returns the record's offset; nothing, and nothing is changed, when keys or bytes run out or a length is
    /// over 65,534.
    pub fn append<'k, 'v, I, V>(
        &mut self,
        key: &Key<I>,
        slot: Slot,
        owner: u32,
        value: Option<V>,
    ) -> Option<u32>
    where
        I: Iterator<Item = &'k [u8]> + Clone,
        V: Iterator<Item = &'v [u8]> + Clone,
    {
        let (at, new) = match slot {
            Slot::Taken { at, .. } => (at, 0),
            Slot::Free { at } if self.keys < self.keys_max => (at, 1),
            Slot::Free { .. } | Slot::None => return None,
        };
        let value_len = match &value {
            Some(pieces) => u32::try_from(pieces.clone().map(<[u8]>::len).sum::<usize>()).ok()?,
            None => 0,
        };
        let (key_half, value_half) = (u16::try_from(key.len).ok()?, u16::try_from(value_len).ok()?);
        if value_half == WANTED {
            return None;
        }
        let start = self.len;
        let end = start.checked_add(record_len(key.len, value_len))?;
        let record = self.bytes.get_mut(start as usize..end as usize)?;
        record[..4].copy_from_slice(&key.hash.to_le_bytes());
        record[4..8].copy_from_slice(&key.space.to_le_bytes());
        record[8..10].copy_from_slice(&key_half.to_le_bytes());
        let value_half = if value.is_some() { value_half } else { WANTED };
        record[10..12].copy_from_slice(&value_half.to_le_bytes());
        record[12..16].copy_from_slice(&owner.to_le_bytes());
        let mut rest = &mut record[16..];
        for piece in key.pieces.clone() {
            rest = fill_front(rest, piece);
        }
        for piece in value.into_iter().flatten() {
            rest = fill_front(rest, piece);
        }
        rest.fill(0);
        self.len = end;
        self.keys += new;
        self.index[at as usize].store(start + 1, Ordering::Release);
        Some(start)
    }

    /// The record at an offset that [`Log::find`] or [`Log::append`] gave.
    pub fn record(&self, offset: u32) -> Option<Record<'_>> {
        let at = offset as usize;
        if offset >= self.len {
            return None;
        }
        let key_end = at + 16 + usize::from(self.half(at + 8));
        let value_len = self.half(at + 10);
        let wanted = value_len == WANTED;
        let value_end = key_end + if wanted { 0 } else { usize::from(value_len) };
        Some(Record {
            space: self.word(at + 4),
            owner: self.word(at + 12),
            key: self.bytes.get(at + 16..key_end)?,
            value: self.bytes.get(key_end..value_end)?,
            wanted,
        })
    }

    fn word(&self, at: usize) -> u32 {
        match self.bytes.get(at..at + 4) {
            Some(&[a, b, c, d]) => u32::from_le_bytes([a, b, c, d]),
            _ => 0,
        }
    }

    fn half(&self, at: usize) -> u16 {
        match self.bytes.get(at..at + 2) {
            Some(&[a, b]) => u16::from_le_bytes([a, b]),
            _ => 0,
        }
    }
}

fn fill_front<'b>(buf: &'b mut [u8], piece: &[u8]) -> &'b mut [u8] {
    let (front, rest) = buf.split_at_mut(piece.len());
    front.copy_from_slice(piece);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::vec::Vec;

    fn put(log: &mut Log<'_>, space: u32, key: &str, value: &str) -> Option<u32> {
        let key = log.key(space, core::iter::once(key.as_bytes()));
        let slot = log.find(&key);
        log.append(&key, slot, 7, Some(core::iter::once(value.as_bytes())))
    }

    fn get<'a>(log: &'a Log<'_>, space: u32, key: &str) -> Option<&'a [u8]> {
        match log.find(&log.key(space, core::iter::once(key.as_bytes()))) {
            Slot::Taken { record, .. } => log.record(record).map(|record| record.value),
            Slot::Free { .. } | Slot::None => None,
        }
    }

    #[test]
    fn pieces_make_the_same_key_as_the_whole() {
        let (mut bytes, index) = ([0; 256], [const { AtomicU32::new(0) }; 16]);
        let mut log = Log::new(&mut bytes, &index, 8, 1).unwrap();
        put(&mut log, 1, "a;b", "v");
        let key = log.key(1, [&b"a;"[..], b"b"].into_iter());
        assert!(matches!(log.find(&key), Slot::Taken { record: 0, .. }));
        assert_eq!(get(&log, 2, "a;b"), None, "another space is another key");
    }

    #[test]
    fn running_out_changes_nothing() {
        for (bytes_len, keys) in [(0, 4), (19, 4), (40, 4), (256, 0), (256, 1), (256, 2)] {
            let mut bytes = std::vec![0; bytes_len];
            let index: Vec<AtomicU32> = (0..index_len(keys)).map(|_| AtomicU32::new(0)).collect();
            let mut log = Log::new(&mut bytes, &index, keys, 0).unwrap();
            let mut stored = Vec::new();
            for key in ["a", "b", "c"] {
                let before = (log.as_bytes().to_vec(), log.keys_left());
                match put(&mut log, 1, key, "vvv") {
                    Some(_) => stored.push(key),
                    None => assert_eq!((log.as_bytes().to_vec(), log.keys_left()), before),
                }
            }
            assert_eq!(stored.len(), (bytes_len / 20).min(keys as usize).min(3));
            assert!(stored.iter().all(|key| get(&log, 1, key) == Some(b"vvv")));
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(steps in proptest::collection::vec((0u32..3, "[ab]{1,3}", "[x-z]{0,9}"), 1..120)) {
            let mut bytes = std::vec![0xaa; 8192];
            let index: Vec<AtomicU32> = (0..index_len(64)).map(|_| AtomicU32::new(9)).collect();
            let mut log = Log::new(&mut bytes, &index, 64, 42).unwrap();
            let mut model = HashMap::new();
            for (space, key, value) in steps {
                prop_assert!(put(&mut log, space, &key, &value).is_some());
                model.insert((space, key), value);
                for ((space, key), value) in &model {
                    prop_assert_eq!(get(&log, *space, key), Some(value.as_bytes()));
                }
            }
            prop_assert_eq!(log.keys_left(), 64 - model.len() as u32);
        }
    }
}
