//! Read-only view of a log that another process writes to in shared memory.

use super::atomic::{AtomicU32, Ordering, fence};
use super::entry::Entries;
use super::log::{HEADER, Header, Key};

/// Read-only view of a log in shared memory.
///
/// For any content of the memory, a look-up terminates, does not panic and reads nothing outside the memory. Memory is
/// read as atomic numbers only, so a writer that breaks the rules does not cause a data race.
#[derive(Clone, Copy, Debug)]
pub struct LogView<'m> {
    words: &'m [AtomicU32],
    index: &'m [AtomicU32],
    entries: Entries,
    seed: u32,
}

impl<'m> LogView<'m> {
    /// Creates a view. `words` is the log's whole memory, used or not, in native byte order and without up to three bytes at
    /// its end. `index` and `seed` are those of the log. Returns `None` if `index` has an invalid length
    /// (`index_len`).
    pub fn new(words: &'m [AtomicU32], index: &'m [AtomicU32], seed: u32) -> Option<LogView<'m>> {
        let entries = Entries::of(words.len().saturating_mul(4));
        index.len().is_power_of_two().then_some(LogView { words, index, entries, seed })
    }

    /// Copies the newest value of a key to the front of `buf`, as far as it fits. Returns the length of the value in
    /// bytes, or `None` if the key has no value in this log.
    pub fn get(&self, space: u32, key: &[u8], buf: &mut [u8]) -> Option<u32> {
        let key = Key::new(self.seed, space, key);
        let mask = self.index.len() - 1;
        let mut at = key.start(mask);
        for _ in 0..self.index.len() {
            let entry = self.index[at].load(Ordering::Relaxed);
            if entry == 0 {
                return None;
            }
            // An acquire load is not used, because Rust does not guarantee that it works on read-only memory.
            fence(Ordering::Acquire);
            if let Some(offset) = self.entries.record(entry, key.hash())
                && let Some(header) = self.header(offset).filter(|header| self.is_of(header, offset, &key))
            {
                let len = header.value_len()?;
                let value = offset.checked_add(HEADER + key.bytes().len() as u32)?;
                return self.copy(value, len, buf).then_some(len);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Returns the header of the record at an offset in bytes.
    fn header(&self, offset: u32) -> Option<Header> {
        let mut bytes = [0; HEADER as usize];
        self.copy(offset, HEADER, &mut bytes).then(|| Header::read(&bytes))
    }

    fn is_of(&self, header: &Header, offset: u32, key: &Key<'_>) -> bool {
        let Some(mut at) = offset.checked_add(HEADER).filter(|_| header.is_of(key)) else { return false };
        key.bytes().chunks(4).all(|chunk| {
            let mut bytes = [0; 4];
            let there = self.copy(at, chunk.len() as u32, &mut bytes);
            at = at.saturating_add(4);
            there && bytes[..chunk.len()] == *chunk
        })
    }

    /// Copies `len` bytes from an offset to the front of `buf`, as far as they fit. Returns whether the log has that
    /// many.
    fn copy(&self, offset: u32, len: u32, buf: &mut [u8]) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        let (first, skip) = (offset as usize / 4, offset as usize % 4);
        let Some(words) = self.words.get(first..end.div_ceil(4) as usize) else { return false };
        let len = buf.len().min(len as usize);
        let mut rest = &mut buf[..len];
        for (nth, word) in words.iter().enumerate() {
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            let bytes = if nth == 0 { &bytes[skip..] } else { &bytes[..] };
            let (front, behind) = rest.split_at_mut(bytes.len().min(rest.len()));
            front.copy_from_slice(&bytes[..front.len()]);
            rest = behind;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::{Log, index_len};
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const KEYS: u32 = 32;

    fn words(bytes: &[u8]) -> Vec<AtomicU32> {
        let (words, _) = bytes.as_chunks();
        words.iter().map(|&word| AtomicU32::new(u32::from_ne_bytes(word))).collect()
    }

    fn numbers(count: usize) -> Vec<AtomicU32> {
        (0..count).map(|_| AtomicU32::new(0)).collect()
    }

    fn get(view: &LogView<'_>, space: u32, key: &str) -> Option<Vec<u8>> {
        let mut buf = [0; 64];
        view.get(space, key.as_bytes(), &mut buf).map(|len| buf[..len as usize].to_vec())
    }

    /// Puts all pairs. Returns the memory of the log.
    fn written(
        puts: &[(u32, std::string::String, Option<std::string::String>)],
        index: &[AtomicU32],
    ) -> Vec<u8> {
        let mut bytes = std::vec![0; 16 * 1024];
        let mut log = Log::new(&mut bytes, index, KEYS, 42).unwrap();
        for (space, key, value) in puts {
            let key = log.key(*space, key.as_bytes());
            let slot = log.find(&key);
            let value = value.as_ref().map(|value| core::iter::once(value.as_bytes()));
            log.append(&key, slot, 7, value).unwrap();
        }
        bytes
    }

    #[test]
    fn short_buffers_get_the_front_and_the_whole_length() {
        let index = numbers(index_len(KEYS) as usize);
        let log = words(&written(&[(3, "key".into(), Some("a longer value".into()))], &index));
        let view = LogView::new(&log, &index, 42).unwrap();
        for room in 0..20 {
            let mut buf = std::vec![b'.'; room];
            assert_eq!(view.get(3, b"key", &mut buf), Some(14));
            let kept = room.min(14);
            assert_eq!(buf[..kept], b"a longer value"[..kept]);
            assert!(buf[kept..].iter().all(|&byte| byte == b'.'));
        }
        assert_eq!((view.get(2, b"key", &mut []), view.get(3, b"ke", &mut [])), (None, None));
        assert!(LogView::new(&log, &index[..3], 42).is_none() && LogView::new(&log, &[], 42).is_none());
    }

    proptest! {
        #[test]
        fn sees_what_the_log_holds(
            puts in proptest::collection::vec((0u32..3, "[ab]{1,5}", proptest::option::of("[x-z]{0,9}")), 1..KEYS as usize),
        ) {
            let index = numbers(index_len(KEYS) as usize);
            let mut bytes = written(&puts, &index);
            let log = words(&bytes);
            let view = LogView::new(&log, &index, 42).unwrap();
            for (space, key, _) in &puts {
                let newest = puts.iter().rev().find(|put| put.0 == *space && put.1 == *key);
                let wanted = newest.and_then(|(_, _, value)| value.as_ref()).map(|value| value.clone().into_bytes());
                prop_assert_eq!(get(&view, *space, key), wanted);
                prop_assert_eq!(get(&view, *space + 3, key), None);
            }
            // A view of less memory finds nothing beyond its end, even if the index refers to it.
            bytes.truncate(4);
            prop_assert!(LogView::new(&words(&bytes), &index, 42).unwrap().get(0, b"a", &mut []).is_none());
        }

        #[test]
        fn any_memory_is_read_without_harm(
            log in proptest::collection::vec(any::<u32>(), 0..64),
            index in proptest::collection::vec(prop_oneof![0u32..300, any::<u32>()], 16),
            seed: u32,
            key in "[ab]{0,5}",
        ) {
            let (log, index): (Vec<_>, Vec<_>) =
                (log.into_iter().map(AtomicU32::new).collect(), index.into_iter().map(AtomicU32::new).collect());
            let view = LogView::new(&log, &index, seed).unwrap();
            let mut buf = [0; 16];
            prop_assert!(view.get(0, key.as_bytes(), &mut buf).is_none_or(|len| len <= 65_534));
        }

        #[test]
        fn a_spoilt_log_is_read_without_harm(
            puts in proptest::collection::vec((0u32..2, "[ab]{1,3}", proptest::option::of("[x-z]{0,9}")), 1..KEYS as usize),
            spoilt in proptest::collection::vec((0usize..256, any::<u32>()), 0..8),
            crossed in proptest::collection::vec((0usize..64, 0u32..1024), 0..8),
        ) {
            let index = numbers(index_len(KEYS) as usize);
            let log = words(&written(&puts, &index));
            for (at, word) in spoilt {
                log[at].store(word, Ordering::Relaxed);
            }
            // The entry of one key gets the place of another record.
            let places = LogView::new(&log, &index, 42).unwrap().entries;
            for (at, place) in crossed {
                let slot = &index[at % index.len()];
                let tag = slot.load(Ordering::Relaxed);
                slot.store(places.entry(tag, place * 4), Ordering::Relaxed);
            }
            let view = LogView::new(&log, &index, 42).unwrap();
            for (space, key, _) in &puts {
                let mut buf = [0; 64];
                prop_assert!(view.get(*space, key.as_bytes(), &mut buf).is_none_or(|len| len <= 512));
            }
        }
    }
}
