//! Entries of the index of a key-value log: the place of a record, and a tag of its key's hash.

/// Division of the 32 bits of an index entry.
///
/// The low bits hold the number of the four bytes where the record starts, plus one. There are as many as the length of the
/// log requires. The bits above them are those of the hash. A search with another hash then mostly passes the entry
/// without reading the record, which is seldom in a cache. A log of 16 MiB leaves 9 bits for the tag, one of 4 GiB 2 bits.
///
/// The entry of a record is never 0, which marks a free slot.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    /// Bits of the place.
    mask: u32,
}

impl Entries {
    /// Returns the division for a log of `len` bytes. Up to three bytes at the end have no effect. A log has at most 4 GiB.
    pub const fn of(len: usize) -> Entries {
        let words = if len / 4 > (u32::MAX / 4) as usize { u32::MAX / 4 } else { (len / 4) as u32 };
        Entries { mask: if words == 0 { 0 } else { u32::MAX >> words.leading_zeros() } }
    }

    /// Returns the entry of a record at an offset within the log, which is a multiple of four.
    pub const fn entry(self, hash: u32, offset: u32) -> u32 {
        (hash & !self.mask) | (offset / 4 + 1)
    }

    /// Returns the offset of the record that an entry of any value refers to, if the key with this hash may be the record's.
    pub const fn record(self, entry: u32, hash: u32) -> Option<u32> {
        let word = entry & self.mask;
        if word == 0 || (entry ^ hash) & !self.mask != 0 { None } else { Some((word - 1) * 4) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the number of bits of a tag.
    fn tag_bits(len: usize) -> u32 {
        (!Entries::of(len).mask).count_ones()
    }

    #[test]
    fn long_logs_have_short_tags() {
        let lens = [0, 3, 4, 16, 1 << 24, (1 << 24) - 4, u32::MAX as usize - 3, u32::MAX as usize];
        assert_eq!(lens.map(tag_bits), [32, 32, 31, 29, 9, 10, 2, 2]);
        assert_eq!(tag_bits(usize::MAX), 2);
    }

    #[test]
    fn the_last_record_has_an_entry() {
        for len in [16, 20, 24, 255, 256, 1 << 24, u32::MAX - 3, u32::MAX] {
            let entries = Entries::of(len as usize);
            let last = (len - 16) / 4 * 4;
            for hash in [0, 1, u32::MAX, 0x8000_0000] {
                assert_eq!(entries.record(entries.entry(hash, last), hash), Some(last), "{len} bytes");
            }
        }
    }

    #[test]
    fn any_entry_of_an_empty_log_is_passed() {
        let entries = Entries::of(0);
        assert!([0, 1, 7, u32::MAX].iter().all(|&entry| entries.record(entry, entry).is_none()));
    }

    proptest! {
        #[test]
        fn an_entry_refers_to_its_record(
            len in prop_oneof![16u32..4096, 16u32..],
            at: u32,
            hash: u32,
            other: u32,
            strange: u32,
        ) {
            let entries = Entries::of(len as usize);
            let offset = at % (len - 15) / 4 * 4;
            let entry = entries.entry(hash, offset);
            prop_assert_ne!(entry, 0);
            prop_assert_eq!(entries.record(entry, hash), Some(offset));
            let same_tag = (hash ^ other) >> (32 - tag_bits(len as usize)) == 0;
            prop_assert_eq!(entries.record(entry, other), same_tag.then_some(offset));
            prop_assert!(entries.record(strange, hash).is_none_or(|offset| offset.is_multiple_of(4)));
        }
    }
}
