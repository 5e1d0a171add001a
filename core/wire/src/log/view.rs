//! Read-only view of a log that another process writes to in shared memory.

use super::atomic::{AtomicU32, Ordering, fence};
use super::entry::Entries;
use super::record::{HEADER, Header, Key};

/// Read-only view of a log in shared memory.
///
/// For any content of the memory, a look-up terminates, does not panic and reads nothing outside the memory. Memory is
/// read as atomic numbers only, so a writer that breaks the rules does not cause a data race.
#[derive(Clone, Copy, Debug)]
pub struct LogView<'m> {
    words: &'m [AtomicU32],
    index: &'m [AtomicU32],
    sequence: &'m AtomicU32,
    entries: Entries,
    seed: u32,
}

impl<'m> LogView<'m> {
    /// Creates a view. `words` is the log's whole memory, used or not, in native byte order and without up to three bytes at
    /// its end. `index` and `seed` are those of the log. Returns `None` if the number of entries in `index` is not a power of
    /// two.
    pub fn new(words: &'m [AtomicU32], index: &'m [AtomicU32], seed: u32) -> Option<LogView<'m>> {
        let entries = Entries::of(words.len().saturating_mul(4));
        let (sequence, index) = index.split_last()?;
        index.len().is_power_of_two().then_some(LogView { words, index, sequence, entries, seed })
    }

    /// Copies the newest value of a key to the front of `buf`, as far as it fits. Returns the length of the value in
    /// bytes, or `None` if the key has no value in this log, or if records move at the same time.
    pub fn get(&self, space: u32, key: &[u8], buf: &mut [u8]) -> Option<u32> {
        let sequence = self.sequence.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let len = self.find(space, key, buf)?;
        fence(Ordering::Acquire);
        let is_still = sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence;
        is_still.then_some(len)
    }

    fn find(&self, space: u32, key: &[u8], buf: &mut [u8]) -> Option<u32> {
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
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn any_memory_is_read_without_harm(
            log in proptest::collection::vec(any::<u32>(), 0..64),
            index in proptest::collection::vec(prop_oneof![0u32..300, any::<u32>()], 17),
            seed: u32,
            key in "[ab]{0,5}",
        ) {
            let (log, index): (Vec<_>, Vec<_>) =
                (log.into_iter().map(AtomicU32::new).collect(), index.into_iter().map(AtomicU32::new).collect());
            let view = LogView::new(&log, &index, seed).unwrap();
            let mut buf = [0; 16];
            prop_assert!(view.get(0, key.as_bytes(), &mut buf).is_none_or(|len| len <= 65_534));
        }
    }
}
