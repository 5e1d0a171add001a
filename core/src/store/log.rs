//! Writer of the key-value log: an append-only list of records, and an index of their places. [`wire::log`](crate::wire::log)
//! has the format.

#[cfg(feature = "cluster")]
use core::ops::Range;

#[cfg(feature = "cluster")]
use super::atomic::fence;
use super::atomic::{AtomicU32, Ordering};
use crate::wire::log::{Entries, HEADER, Header};
pub(crate) use crate::wire::log::{Key, hash, record_len};

/// Log in lent memory.
#[derive(Debug)]
pub(crate) struct Log<'s> {
    bytes: &'s mut [u8],
    index: &'s [AtomicU32],
    /// Sequence lock for readers of shared memory: odd while records move.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "records do not move"))]
    sequence: &'s AtomicU32,
    entries: Entries,
    len: u32,
    keys: u32,
    keys_max: u32,
    seed: u32,
    /// Bytes of records whose key has a newer one, without those that are [buried](Log::bury).
    #[cfg(feature = "cluster")]
    superseded: u32,
}

/// Result of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The newest record of the key starts at this offset.
    Taken {
        /// Index slot.
        at: u32,
        /// Offset of the record.
        record: u32,
    },
    /// The key has no record. A new one is indexed here.
    Free {
        /// Index slot.
        at: u32,
    },
    /// The key has no record, and the index is full.
    None,
}

/// Record, borrowed from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Number of its space.
    pub(crate) space: u32,
    /// Number of its owner.
    pub(crate) owner: u32,
    /// The key.
    pub(crate) key: &'a [u8],
    /// The value. Empty for a wanted key.
    pub(crate) value: &'a [u8],
    /// Whether the key is wanted by look-ups and has no value yet.
    pub(crate) wanted: bool,
}

/// What an offset of the log stands for.
#[cfg(feature = "cluster")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offset {
    /// A neighbour has got the log up to here, or a job has its records from here on.
    Sent,
    /// A neighbour gets the log up to here before a message, or 0 if nothing of it.
    Cut,
    /// The start of a record.
    Record,
}

/// Most superseded records that a compaction keeps one by one.
#[cfg(feature = "cluster")]
const PINS: usize = 16;
#[cfg(feature = "cluster")]
const NO_PIN: u32 = u32::MAX;

/// Which superseded records a compaction drops: those whose newer record is on the same side of all cuts.
#[cfg(feature = "cluster")]
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Length of the log.
    end: u32,
    /// First cut, or the end.
    first: u32,
    /// Last cut, or the end.
    last: u32,
    /// These records stay. `NO_PIN` is none.
    pins: [u32; PINS],
    /// Bytes of them.
    pinned: u32,
}

#[cfg(feature = "cluster")]
impl Scope {
    /// All superseded records of a log of that length.
    pub(crate) const fn all(end: u32) -> Scope {
        Scope { end, first: end, last: end, pins: [NO_PIN; PINS], pinned: 0 }
    }

    /// Adds a cut. One at the end of the log has nothing behind it.
    pub(crate) fn cut(&mut self, offset: u32) {
        if offset < self.end {
            self.last = if self.first == self.end { offset } else { self.last.max(offset) };
            self.first = self.first.min(offset);
        }
    }

    /// Keeps the record from an offset to the next one, of which a compaction keeps so many one by one.
    pub(crate) fn pin(&mut self, record: u32, next: u32) {
        match self.pins.iter_mut().find(|pin| [NO_PIN, record].contains(pin)) {
            Some(pin) if *pin == record => {}
            Some(pin) => {
                *pin = record;
                self.pinned += next - record;
            }
            None => {
                self.cut(record);
                self.cut(next);
            }
        }
    }

    /// Returns the bytes of superseded records that stay, unless there are cuts.
    pub(crate) fn pinned(&self) -> Option<u32> {
        (self.first == self.end).then_some(self.pinned)
    }

    /// Returns whether a record is dropped, given the newest one of its key that is known.
    fn drops(&self, record: u32, newest: u32) -> bool {
        let is_cut = newest >= self.first && record < self.last;
        record < newest && !is_cut && !self.pins.contains(&record)
    }
}

/// Compaction that has begun: the hash of each record says where the record is to lie.
#[cfg(feature = "cluster")]
#[derive(Debug)]
pub(crate) struct Compaction {
    /// Length of the log afterwards.
    len: u32,
}

/// Space of records that are dropped, which is that of no job.
#[cfg(feature = "cluster")]
const DROPPED: u32 = u32::MAX;

/// Returns the number of words of the index for `keys` keys: slots, a power of two, of which at most three quarters are used,
/// and the sequence lock.
pub(crate) const fn index_len(keys: u32) -> u64 {
    (keys as u64 + keys as u64 / 3 + 1).next_power_of_two() + 1
}

/// Clears an index for [`Log::new`].
pub(crate) fn wipe(index: &[AtomicU32]) {
    // Slots that are zero are not written, so that untouched memory is not committed.
    for slot in index.iter().filter(|slot| slot.load(Ordering::Relaxed) != 0) {
        slot.store(0, Ordering::Relaxed);
    }
}

impl<'s> Log<'s> {
    /// Creates an empty log of at most `keys_max` keys. Returns `None` if `index` is shorter than [`index_len`]. The
    /// index must hold zeros ([`wipe`]). It is not read, because reading shared memory commits pages.
    pub(crate) fn new(
        bytes: &'s mut [u8],
        index: &'s [AtomicU32],
        keys_max: u32,
        seed: u32,
    ) -> Option<Log<'s>> {
        let (sequence, index) = index.get(..index_len(keys_max) as usize)?.split_last()?;
        let entries = Entries::of(bytes.len());
        Some(Log {
            bytes,
            index,
            sequence,
            entries,
            len: 0,
            keys: 0,
            keys_max,
            seed,
            #[cfg(feature = "cluster")]
            superseded: 0,
        })
    }

    /// Drops all records.
    pub(crate) fn clear(&mut self) {
        self.clear_index();
        self.len = 0;
    }

    /// Clears the index. Only slots of records and their neighbours are accessed.
    fn clear_index(&mut self) {
        let mask = self.index.len() - 1;
        let mut start = 0;
        while let Some((header, _)) = split(self.as_bytes(), start) {
            // No slot is free between the start of a hash's search and the record's slot. The first pass through that
            // stretch clears it at least up to the record.
            let mut at = header.hash() as usize & mask;
            // Not a swap, which a Cortex-M0 does not have.
            while self.index[at].load(Ordering::Relaxed) != 0 {
                self.index[at].store(0, Ordering::Relaxed);
                at = (at + 1) & mask;
            }
            start += header.record_len();
        }
        self.keys = 0;
        #[cfg(feature = "cluster")]
        {
            self.superseded = 0;
        }
    }

    /// Returns the bytes of records whose key has a newer one, without those that are [buried](Log::bury).
    #[cfg(feature = "cluster")]
    pub(crate) fn superseded(&self) -> u32 {
        self.superseded
    }

    /// Returns whether the record at an offset is not the newest of its key.
    #[cfg(feature = "cluster")]
    pub(crate) fn is_superseded(&self, offset: u32) -> bool {
        self.newest(offset).is_some_and(|newest| newest != offset)
    }

    /// Returns the offset of the newest record of the key of the record at an offset.
    #[cfg(feature = "cluster")]
    fn newest(&self, offset: u32) -> Option<u32> {
        let Record { space, key, .. } = self.record(offset)?;
        match self.find(&self.key(space, key)) {
            Slot::Taken { record, .. } => Some(record),
            Slot::Free { .. } | Slot::None => None,
        }
    }

    /// Returns the bytes and keys of spaces that are over, behind the start of a record. The next compaction does not keep them.
    #[cfg(feature = "cluster")]
    pub(crate) fn bury(&mut self, since: u32, is_over: &dyn Fn(u32) -> bool) -> (u32, u32) {
        let (mut start, mut bytes, mut keys) = (since, 0, 0);
        while let Some((header, _)) = split(self.as_bytes(), start) {
            let len = header.record_len();
            if is_over(header.space()) {
                bytes += len;
                if self.is_superseded(start) {
                    self.superseded = self.superseded.saturating_sub(len);
                } else {
                    keys += 1;
                }
            }
            start += len;
        }
        (bytes, keys)
    }

    /// Returns the bytes and keys that a compaction frees at least: those of spaces that are not kept, and of superseded records of
    /// some owners.
    #[cfg(feature = "cluster")]
    pub(crate) fn droppable(
        &self,
        scope: &Scope,
        keeps: impl Fn(u32) -> bool,
        is_counted: impl Fn(u32) -> bool,
    ) -> (u32, u32) {
        let (mut start, mut bytes, mut keys) = (0, 0, 0);
        while let Some((header, _)) = split(self.as_bytes(), start) {
            let (len, newest) = (header.record_len(), self.newest(start));
            if !keeps(header.space()) {
                bytes += len;
                keys += u32::from(newest == Some(start));
            } else if is_counted(header.owner()) && newest.is_some_and(|newest| scope.drops(start, newest)) {
                bytes += len;
            }
            start += len;
        }
        (bytes, keys)
    }

    /// Begins to drop the records of spaces that are not kept, and superseded ones. `dropped` gets the space, the owner and the
    /// length of each of the latter. Until [`Log::end_compaction`] nothing is found in the log.
    #[cfg(feature = "cluster")]
    pub(crate) fn begin_compaction(
        &mut self,
        scope: &Scope,
        keeps: impl Fn(u32) -> bool,
        mut dropped: impl FnMut(u32, u32, u32),
    ) -> Compaction {
        self.count_step();
        fence(Ordering::Release);
        self.clear_index();
        for side in [0..scope.first, scope.last..scope.end] {
            if side.is_empty() {
                continue;
            }
            self.each(side.clone(), |log, start, header| {
                if keeps(header.space()) {
                    log.enter(start);
                }
            });
            self.each(side, |log, start, header| {
                if log.newest(start).is_some_and(|newest| scope.drops(start, newest)) {
                    dropped(header.space(), header.owner(), header.record_len());
                    log.write_header(start, &header.in_space(DROPPED));
                }
            });
            self.clear_index();
        }
        let mut len = 0;
        self.each(0..scope.end, |log, start, header| {
            log.write_header(start, &header.with_hash(len));
            if header.space() != DROPPED && keeps(header.space()) {
                len += header.record_len();
            }
        });
        Compaction { len }
    }

    /// Returns where an offset leads afterwards.
    #[cfg(feature = "cluster")]
    pub(crate) fn moved(&self, compaction: &Compaction, offset: u32) -> u32 {
        let place = split(self.as_bytes(), offset).map(|(header, _)| header.hash());
        place.unwrap_or(compaction.len).min(compaction.len)
    }

    /// Moves the records that are kept.
    #[cfg(feature = "cluster")]
    pub(crate) fn end_compaction(&mut self, compaction: Compaction) {
        let end = core::mem::take(&mut self.len);
        let mut from = 0;
        while let Some((header, _)) = split(&self.bytes[..end as usize], from) {
            let (start, next) = (header.hash(), from + header.record_len());
            let behind =
                split(&self.bytes[..end as usize], next).map_or(compaction.len, |(next, _)| next.hash());
            if behind > start {
                self.bytes.copy_within(from as usize..next as usize, start as usize);
                self.len = behind;
                if let Some(Record { space, key, .. }) = self.record(start) {
                    let hash = self.key(space, key).hash();
                    self.write_header(start, &header.with_hash(hash));
                }
                self.enter(start);
            }
            from = next;
        }
        self.count_step();
    }

    /// Calls a function with the offset and the header of each record of a stretch.
    #[cfg(feature = "cluster")]
    fn each(&mut self, stretch: Range<u32>, mut then: impl FnMut(&mut Self, u32, Header)) {
        let mut start = stretch.start;
        while start < stretch.end
            && let Some((header, _)) = split(self.as_bytes(), start)
        {
            then(self, start, header);
            start += header.record_len();
        }
    }

    #[cfg(feature = "cluster")]
    fn write_header(&mut self, record: u32, header: &Header) {
        if let Some(room) = self.bytes.get_mut(record as usize..).and_then(<[u8]>::first_chunk_mut) {
            *room = header.to_bytes();
        }
    }

    /// Begins or ends a time in which records move.
    #[cfg(feature = "cluster")]
    fn count_step(&self) {
        let step = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(step.wrapping_add(1), Ordering::Release);
    }

    /// Refers the index to the record at an offset, the newest of its key. Returns false if there are too many keys.
    fn enter(&mut self, start: u32) -> bool {
        let Some(Record { space, key, .. }) = self.record(start) else { return false };
        let key = self.key(space, key);
        let (slot, hash) = (self.find(&key), key.hash());
        match slot {
            Slot::Taken { at, record } => {
                self.supersede(record);
                self.publish(at, hash, start);
            }
            Slot::Free { at } if self.keys < self.keys_max => {
                self.publish(at, hash, start);
                self.keys += 1;
            }
            Slot::Free { .. } | Slot::None => return false,
        }
        true
    }

    /// Loads the records of a log with the same seed, oldest first. Returns false if they are invalid or too many. The
    /// log then contains some of them.
    pub(crate) fn load(&mut self, records: &[u8]) -> bool {
        self.clear();
        let Some(room) = self.bytes.get_mut(..records.len()) else { return false };
        room.copy_from_slice(records);
        while (self.len as usize) < records.len() {
            let start = self.len;
            let Some(len) = self.sound(&records[start as usize..]) else { return false };
            self.len += len;
            if !self.enter(start) {
                return false;
            }
        }
        true
    }

    /// Returns whether a valid record starts at an untrusted offset.
    pub(crate) fn holds(&self, offset: u32) -> bool {
        offset.is_multiple_of(4)
            && self.as_bytes().get(offset as usize..).is_some_and(|rest| self.sound(rest).is_some())
    }

    /// Returns the length of the record at the start of `bytes`, if it is valid.
    fn sound(&self, bytes: &[u8]) -> Option<u32> {
        let (header, rest) = split(bytes, 0)?;
        let value_len = header.value_len().unwrap_or(0);
        let len = header.record_len();
        let rest = rest.get(..(len - HEADER) as usize)?;
        let (key, rest) = rest.split_at(header.key_len() as usize);
        let padding = &rest[value_len as usize..];
        let key = self.key(header.space(), key);
        let sound = header.is_of(&key) && header.key_len() > 0 && padding.iter().all(|&byte| byte == 0);
        sound.then_some(len)
    }

    /// Returns the hash seed.
    pub(crate) const fn seed(&self) -> u32 {
        self.seed
    }

    /// Returns the number of bytes in use.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// Returns the number of unused bytes.
    pub(crate) fn bytes_left(&self) -> u32 {
        u32::try_from(self.bytes.len()).unwrap_or(u32::MAX) - self.len
    }

    /// Returns the number of unused keys.
    pub(crate) const fn keys_left(&self) -> u32 {
        self.keys_max - self.keys
    }

    /// Returns the bytes of all records.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }

    /// Hashes a key for look-ups in `space`.
    pub(crate) fn key<'k>(&self, space: u32, bytes: &'k [u8]) -> Key<'k> {
        Key::new(self.seed, space, bytes)
    }

    /// Looks up a key.
    pub(crate) fn find(&self, key: &Key<'_>) -> Slot {
        let mut at = key.start(self.index.len() - 1);
        // The index is never full. The bound ends the loop even if it were.
        for _ in 0..self.index.len() {
            if let Some(slot) = self.probe(at, key) {
                return slot;
            }
            at = (at + 1) & (self.index.len() - 1);
        }
        Slot::None
    }

    /// Returns the result of a look-up that ends at this slot of the index.
    fn probe(&self, at: usize, key: &Key<'_>) -> Option<Slot> {
        match self.index[at].load(Ordering::Relaxed) {
            0 => Some(Slot::Free { at: at as u32 }),
            entry => match self.entries.record(entry, key.hash()) {
                Some(record) if self.is_at(record, key) => Some(Slot::Taken { at: at as u32, record }),
                _ => None,
            },
        }
    }

    fn is_at(&self, offset: u32, key: &Key<'_>) -> bool {
        let Some((header, rest)) = split(self.bytes, offset) else { return false };
        match rest.get(..header.key_len() as usize) {
            Some(stored) => header.is_of(key) && stored == key.bytes(),
            None => false,
        }
    }

    /// Appends a record and updates the index. `slot` is the result of [`Log::find`] for this key, with no append
    /// since. Without a value the key is [wanted](Record::wanted).
    ///
    /// Returns the record's offset. Returns `None`, without a change, if keys or bytes are exhausted, or if a length
    /// exceeds 65,534.
    pub(crate) fn append<'v>(
        &mut self,
        key: &Key<'_>,
        slot: Slot,
        owner: u32,
        value: Option<impl Iterator<Item = &'v [u8]> + Clone>,
    ) -> Option<u32> {
        let (at, start) = self.write(key, slot, owner, value)?;
        self.publish(at, key.hash(), start);
        Some(start)
    }

    /// Writes a record, which readers do not find before it is [published](Log::publish). Returns its index slot and its
    /// offset. Returns `None` as [`Log::append`] does.
    pub(crate) fn write<'v>(
        &mut self,
        key: &Key<'_>,
        slot: Slot,
        owner: u32,
        value: Option<impl Iterator<Item = &'v [u8]> + Clone>,
    ) -> Option<(u32, u32)> {
        let len = value.as_ref().map(|pieces| pieces.clone().map(<[u8]>::len).sum());
        self.write_with(key, slot, owner, len, |_, room| {
            value.into_iter().flatten().fold(room, fill_front);
        })
    }

    /// Appends a record whose value is made of an older one, and updates the index, as [`Log::append`] does. `fill` gets the
    /// value of the record at `known` and the room for the new value, which has `len` bytes.
    #[cfg(feature = "pmix")]
    pub(crate) fn append_from(
        &mut self,
        key: &Key<'_>,
        slot: Slot,
        owner: u32,
        len: usize,
        known: u32,
        fill: impl FnOnce(&[u8], &mut [u8]),
    ) -> Option<u32> {
        let (at, start) = self.write_with(key, slot, owner, Some(len), |records, room| {
            fill(record(records, known).map(|record| record.value).unwrap_or_default(), room);
        })?;
        self.publish(at, key.hash(), start);
        Some(start)
    }

    /// Writes a record. `fill` gets the records before it and the room for its value.
    fn write_with(
        &mut self,
        key: &Key<'_>,
        slot: Slot,
        owner: u32,
        len: Option<usize>,
        fill: impl FnOnce(&[u8], &mut [u8]),
    ) -> Option<(u32, u32)> {
        let (at, new) = match slot {
            Slot::Taken { at, .. } => (at, 0),
            Slot::Free { at } if self.keys < self.keys_max => (at, 1),
            Slot::Free { .. } | Slot::None => return None,
        };
        let header = Header::of(key, len, owner)?;
        let start = self.len;
        let end = start.checked_add(header.record_len())?;
        let (records, free) = self.bytes.split_at_mut(start as usize);
        let record = free.get_mut(..(end - start) as usize)?;
        // What is written next leaves the padding.
        if let Some(last) = record.last_chunk_mut::<4>() {
            *last = [0; 4];
        }
        record[..HEADER as usize].copy_from_slice(&header.to_bytes());
        let room = fill_front(&mut record[HEADER as usize..], key.bytes());
        fill(records, &mut room[..len.unwrap_or(0)]);
        self.len = end;
        self.keys += new;
        if let Slot::Taken { record, .. } = slot {
            self.supersede(record);
        }
        Some((at, start))
    }

    /// Counts a record that is not the newest of its key any more.
    fn supersede(&mut self, record: u32) {
        #[cfg(feature = "cluster")]
        {
            self.superseded += split(self.bytes, record).map_or(0, |(header, _)| header.record_len());
        }
        #[cfg(not(feature = "cluster"))]
        let _ = record;
    }

    /// Refers an index slot to a record with this hash that has been written.
    pub(crate) fn publish(&self, at: u32, hash: u32, record: u32) {
        self.index[at as usize].store(self.entries.entry(hash, record), Ordering::Release);
    }

    /// Returns the record at an offset that [`Log::find`] or [`Log::append`] returned.
    pub(crate) fn record(&self, offset: u32) -> Option<Record<'_>> {
        record(self.as_bytes(), offset)
    }
}

/// Returns the header of the record at an offset, and the bytes after it.
fn split(bytes: &[u8], offset: u32) -> Option<(Header, &[u8])> {
    let (header, rest) = bytes.get(offset as usize..)?.split_first_chunk()?;
    Some((Header::read(header), rest))
}

/// Returns the record at an offset.
fn record(bytes: &[u8], offset: u32) -> Option<Record<'_>> {
    let (header, rest) = split(bytes, offset)?;
    let (key, rest) = rest.split_at_checked(header.key_len() as usize)?;
    let value = rest.get(..header.value_len().unwrap_or(0) as usize)?;
    let wanted = header.value_len().is_none();
    Some(Record { space: header.space(), owner: header.owner(), key, value, wanted })
}

/// Copies `piece` to the front of `buf`, and returns the rest.
pub(crate) fn fill_front<'b>(buf: &'b mut [u8], piece: &[u8]) -> &'b mut [u8] {
    let (front, rest) = buf.split_at_mut(piece.len());
    front.copy_from_slice(piece);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    #[cfg(feature = "cluster")]
    use std::string::String;
    use std::vec::Vec;

    fn put(log: &mut Log<'_>, space: u32, key: &str, value: &str) -> Option<u32> {
        let key = log.key(space, key.as_bytes());
        let slot = log.find(&key);
        log.append(&key, slot, 7, Some(core::iter::once(value.as_bytes())))
    }

    fn get<'a>(log: &'a Log<'_>, space: u32, key: &str) -> Option<&'a [u8]> {
        match log.find(&log.key(space, key.as_bytes())) {
            Slot::Taken { record, .. } => log.record(record).map(|record| record.value),
            Slot::Free { .. } | Slot::None => None,
        }
    }

    #[test]
    fn a_record_says_what_was_put() {
        let (mut bytes, index) = ([0; 256], [const { AtomicU32::new(0) }; 17]);
        let mut log = Log::new(&mut bytes, &index, 8, 1).unwrap();
        let key = log.key(3, b"key");
        let slot = log.find(&key);
        let at = log.append(&key, slot, 9, Some([&b"in"[..], b" pieces"].into_iter())).unwrap();
        let (key, value) = (&b"key"[..], &b"in pieces"[..]);
        assert_eq!(log.record(at), Some(Record { space: 3, owner: 9, key, value, wanted: false }));
        assert_eq!((log.record(log.len()), log.record(u32::MAX)), (None, None));
        assert_eq!(get(&log, 2, "key"), None, "another space is another key");
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

    #[test]
    fn records_of_other_tags_are_not_read() {
        let (mut bytes, index) = ([0; 256], [const { AtomicU32::new(0) }; 17]);
        let mut log = Log::new(&mut bytes, &index, 8, 1).unwrap();
        let at = put(&mut log, 3, "key", "value").unwrap();
        let key = log.key(3, b"key");
        let slot = log.find(&key);
        let Slot::Taken { at: slot_at, record } = slot else { panic!("{slot:?}") };
        assert_eq!(record, at);
        let next = Slot::Free { at: (slot_at + 1) % 16 };
        // The record is that of the key, but the tag is that of another hash.
        log.publish(slot_at, !key.hash(), record);
        assert_eq!(log.find(&key), next);
        // The tag is that of the key, but there is no such record.
        for record in [248, 256, 260, u32::MAX - 3] {
            log.publish(slot_at, key.hash(), record);
            assert_eq!(log.find(&key), next, "{record}");
        }
    }

    /// Returns the offset, the space, the key and the bytes of each record.
    #[cfg(feature = "cluster")]
    fn records(log: &Log<'_>) -> Vec<(u32, u32, Vec<u8>, Vec<u8>)> {
        let (mut all, mut at) = (Vec::new(), 0);
        while let Some((header, _)) = split(log.as_bytes(), at) {
            let end = at + header.record_len();
            let key = log.record(at).unwrap().key.to_vec();
            all.push((at, header.space(), key, log.as_bytes()[at as usize..end as usize].to_vec()));
            at = end;
        }
        all
    }

    /// Returns the bytes of records that are not the newest of their key.
    #[cfg(feature = "cluster")]
    fn superseded_bytes(log: &Log<'_>) -> u32 {
        let old = records(log).into_iter().filter(|it| log.is_superseded(it.0));
        old.map(|it| it.3.len() as u32).sum()
    }

    /// Compaction drops a space and what is superseded on one side of the cuts, but for records that are kept, and moves each other
    /// record by what goes before it. Only so many records are kept one by one, each of which may be named several times.
    #[cfg(feature = "cluster")]
    fn compacts(
        log: &mut Log<'_>,
        model: &HashMap<(u32, String), String>,
        (cuts, pins): (&[u8], &[u8]),
    ) -> Result<(), TestCaseError> {
        let keeps = |space: u32| space != 1;
        let before = records(log);
        let len = log.len();
        let places: Vec<u32> = before.iter().map(|record| record.0).chain([len]).collect();
        let cuts: Vec<u32> = cuts.iter().map(|&cut| places[usize::from(cut) % places.len()]).collect();
        let mut scope = Scope::all(len);
        cuts.iter().for_each(|&cut| scope.cut(cut));
        let mut pinned = Vec::new();
        for pin in pins.iter().map(|&pin| usize::from(pin) % before.len()) {
            scope.pin(places[pin], places[pin + 1]);
            if !pinned.contains(&pin) {
                pinned.push(pin);
            }
        }
        let cut_off = pinned.split_off(pinned.len().min(PINS));
        let pinned: Vec<u32> = pinned.into_iter().map(|pin| places[pin]).collect();
        let sides = cut_off.into_iter().flat_map(|pin| [places[pin], places[pin + 1]]);
        let cuts: Vec<u32> = cuts.into_iter().chain(sides).filter(|&cut| cut < len).collect();
        let (first, last) = (cuts.iter().min().unwrap_or(&len), cuts.iter().max().unwrap_or(&len));
        let is_old = |(at, space, key, _): &(u32, u32, Vec<u8>, Vec<u8>)| {
            let side = if at < first {
                0..*first
            } else if at >= last {
                *last..len
            } else {
                0..0
            };
            let newest = before.iter().rfind(|it| side.contains(&it.0) && it.1 == *space && it.2 == *key);
            newest.is_some_and(|newest| newest.0 != *at) && !pinned.contains(at)
        };
        prop_assert_eq!(log.superseded(), superseded_bytes(log));
        let (bytes, keys) = log.droppable(&scope, keeps, |_| true);
        let left = log.keys_left();
        let mut dropped = Vec::new();
        let compaction = log.begin_compaction(&scope, keeps, |space, owner, len| {
            dropped.push((space, owner, len));
        });
        let moved: HashMap<u32, u32> = places.iter().map(|&at| (at, log.moved(&compaction, at))).collect();
        let moved = |at: u32| moved[&at];
        log.end_compaction(compaction);
        let living = || before.iter().filter(|it| keeps(it.1));
        let old: Vec<_> = living().filter(|it| is_old(it)).map(|it| (it.1, 7, it.3.len() as u32)).collect();
        prop_assert_eq!(dropped, old);
        let kept = living().filter(|it| !is_old(it)).cloned();
        let expected: Vec<_> = kept.map(|(at, space, key, bytes)| (moved(at), space, key, bytes)).collect();
        prop_assert_eq!(records(log), expected);
        prop_assert_eq!((moved(len), log.keys_left()), (log.len(), left + keys));
        prop_assert!(log.len() == len - bytes || !cuts.is_empty() && log.len() < len - bytes);
        prop_assert_eq!(log.superseded(), superseded_bytes(log));
        for ((space, key), value) in model {
            prop_assert_eq!(get(log, *space, key), keeps(*space).then_some(value.as_bytes()));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(
            steps in proptest::collection::vec((0u32..3, "[ab]{1,3}", "[x-z]{0,9}"), 1..120),
            short_tags: bool,
            cuts in proptest::collection::vec(any::<u8>(), 0..3),
            pins in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut bytes = std::vec![0xaa; 8192];
            let index: Vec<AtomicU32> = (0..index_len(64)).map(|_| AtomicU32::new(9)).collect();
            wipe(&index);
            let mut log = Log::new(&mut bytes, &index, 64, 42).unwrap();
            if short_tags {
                // Many keys have the same tag, as in a log of 4 GiB.
                log.entries = Entries::of(u32::MAX as usize);
            }
            let mut model = HashMap::new();
            for (space, key, value) in steps {
                prop_assert!(put(&mut log, space, &key, &value).is_some());
                model.insert((space, key), value);
                for ((space, key), value) in &model {
                    prop_assert_eq!(get(&log, *space, key), Some(value.as_bytes()));
                }
            }
            prop_assert_eq!(log.keys_left(), 64 - model.len() as u32);
            #[cfg(feature = "cluster")]
            compacts(&mut log, &model, (&cuts, &pins))?;
            #[cfg(not(feature = "cluster"))]
            let _ = (cuts, pins);
            log.clear();
            prop_assert_eq!((log.len(), log.keys_left()), (0, 64));
            let slots = &index[..index.len() - 1];
            prop_assert!(slots.iter().all(|slot| slot.load(Ordering::Relaxed) == 0), "a slot is still taken");
        }
    }
}
