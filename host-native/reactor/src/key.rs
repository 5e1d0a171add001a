//! Keys that identify descriptors in the events of a poller.

/// Identifies a descriptor in the events of a [`Poller`](crate::Poller). The poller never looks into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// The keys of one component of an event loop.
///
/// A component that gets its range as an argument can share a poller with others and knows none of their keys. A key
/// consists of the range's number (16 bits), a kind (16 bits) and an index (32 bits).
///
/// ```
/// use hydrant_reactor::KeyRange;
///
/// let (ours, theirs) = (KeyRange(0), KeyRange(1));
/// let key = ours.key(3, 17);
/// assert_eq!(ours.decode(key), Some((3, 17)));
/// assert_eq!(theirs.decode(key), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange(pub u16);

impl KeyRange {
    /// Returns the key of the descriptor `index` of a kind. The component defines the kinds.
    pub const fn key(self, kind: u16, index: u32) -> Key {
        Key((self.0 as u64) << 48 | (kind as u64) << 32 | index as u64)
    }

    /// Returns the kind and the index of a key. None if the key belongs to another range.
    pub const fn decode(self, key: Key) -> Option<(u16, u32)> {
        if key.0 >> 48 == self.0 as u64 { Some(((key.0 >> 32) as u16, key.0 as u32)) } else { None }
    }

    /// Returns whether the key belongs to this range.
    pub const fn contains(self, key: Key) -> bool {
        key.0 >> 48 == self.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_one_range() {
        for (range, kind, index) in [(0, 0, 0), (1, 0, u32::MAX), (u16::MAX, u16::MAX, u32::MAX), (2, 7, 3)] {
            let key = KeyRange(range).key(kind, index);
            assert_eq!(KeyRange(range).decode(key), Some((kind, index)));
            assert!(KeyRange(range).contains(key));
            assert_eq!(KeyRange(range.wrapping_add(1)).decode(key), None);
        }
    }
}
