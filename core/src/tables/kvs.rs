//! Key-value spaces over one log, with a quota reserved for every rank.
//!
//! A job has a space for pairs of its ranks, one for the attributes of this node, one for the attributes of the job, one
//! for its ring, one for the data of PMIx ranks, and one for keys that gets wait for. Half of the log is divided equally
//! among the maximum number of ranks. A rank's quota is reserved when its job is registered. The other half is common,
//! and is given out in the order of requests. A rank therefore cannot exhaust the quota of another one.

use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_HEADER, KEY_MAX, Limit, Limits, VALUE_MAX};
#[cfg(feature = "cluster")]
use crate::store::log::{Compaction, Scope};
use crate::store::log::{Key, Log, Record, Slot, record_len};

/// Kind of a job's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Pairs of the ranks: `kvs-put`, `kvs-get`.
    Kvs,
    /// Node attributes: `info-putnodeattr`, `info-getnodeattr`.
    Node,
    /// Job attributes: `info-getjobattr`.
    Job,
    /// Texts that the ranks of a ring pass to their neighbours.
    Ring,
    /// Data that PMIx ranks have put.
    Commit,
    /// Keys without a value that gets wait for.
    Wanted,
}

/// Spaces of a job: a number that no earlier job has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spaces(u32);

impl Spaces {
    /// Spaces of no job.
    pub(crate) const NONE: Spaces = Spaces(0);

    /// Returns spaces with a given number, for tests.
    #[cfg(test)]
    pub(crate) const fn test(number: u32) -> Spaces {
        Spaces(number)
    }

    /// Returns the number of one space in the log.
    pub(crate) fn of(self, kind: Kind) -> u32 {
        self.0.wrapping_mul(8).wrapping_add(kind as u32)
    }

    /// Returns whether that is the number of a space of the job, of any kind.
    #[cfg(feature = "cluster")]
    pub(crate) fn have(self, space: u32) -> bool {
        self.of(Kind::Kvs) == space & !7
    }

    /// Returns whether that is the number of the job's space of this kind.
    pub(crate) fn is(self, kind: Kind, space: u32) -> bool {
        self.of(kind) == space
    }
}

/// Bytes and keys that a rank has used, or that are reserved for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Bytes of log.
    pub(crate) bytes: u32,
    /// Distinct keys.
    pub(crate) keys: u32,
}

impl Usage {
    /// Usage of zero.
    pub(crate) const NONE: Usage = Usage { bytes: 0, keys: 0 };

    fn plus(self, other: Usage) -> Usage {
        let (bytes, keys) = (self.bytes.saturating_add(other.bytes), self.keys.saturating_add(other.keys));
        Usage { bytes, keys }
    }

    fn times(self, count: u32) -> Usage {
        Usage { bytes: self.bytes.saturating_mul(count), keys: self.keys.saturating_mul(count) }
    }

    /// Returns the part of `self` that exceeds the other usage.
    pub(crate) fn less(self, used: Usage) -> Usage {
        Usage { bytes: self.bytes.saturating_sub(used.bytes), keys: self.keys.saturating_sub(used.keys) }
    }
}

/// Owner of a record, with its quota.
#[derive(Debug)]
pub(crate) struct Owner<'a> {
    /// Number that is stored with the record.
    pub(crate) id: u32,
    /// Usage so far.
    pub(crate) used: &'a mut Usage,
    /// Reserved quota.
    pub(crate) quota: Usage,
}

/// Superseded record of a living job that has left the log.
#[cfg(feature = "cluster")]
pub(crate) struct Dropped<'a> {
    /// Number of its space.
    pub(crate) space: u32,
    /// Number of its owner.
    pub(crate) owner: u32,
    len: u32,
    reserved: &'a mut Usage,
    spare: &'a mut Usage,
    share: Usage,
}

#[cfg(feature = "cluster")]
impl Dropped<'_> {
    /// Gives the room back to the owner. A rank of this node (`is_here`) had taken what exceeds its quota from the node's part of
    /// the common half. The rest of the quota of one that `has_ended` was [released](Kvs::release).
    pub(crate) fn give_back(self, owner: Owner<'_>, is_here: bool, has_ended: bool) {
        let (quota, before) = (owner.quota.bytes, owner.used.bytes);
        let least = if has_ended { quota.min(before) } else { 0 };
        let after = before.saturating_sub(self.len).max(least);
        owner.used.bytes = after;
        self.reserved.bytes += quota.saturating_sub(after) - quota.saturating_sub(before);
        if is_here {
            let common = before.saturating_sub(quota) - after.saturating_sub(quota);
            self.spare.bytes = self.share.bytes.min(self.spare.bytes.saturating_add(common));
        }
    }
}

/// Key-value spaces of all jobs.
#[derive(Debug)]
pub(crate) struct Kvs<'s> {
    log: Log<'s>,
    reserved: Usage,
    limits: Usage,
    /// Maximum quota of a rank, in the divided half.
    part: Usage,
    /// Part of the common half that is left for this node's ranks.
    spare: Usage,
    /// Number of nodes that share the common half.
    nodes: u32,
    next: u32,
    /// Usage of jobs that are over, whose records the next compaction drops.
    dead: Usage,
    /// Bytes of superseded records that the last compaction had to keep.
    held: u32,
}

/// Owner of the host's records.
const HOST: u32 = u32::MAX;

/// What a refused request has the log compacted for: such a part of the log. The cost of compactions is then in proportion to what
/// has been put. A rank that puts the same keys again and again needs that much room beside what is to stay.
#[cfg(feature = "cluster")]
const WORTH: u32 = 16;

/// State of a key before a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// The key had a value or no record.
    Known,
    /// The key was wanted by pending gets, which refer to the record at this offset.
    Wanted(u32),
}

/// Bytes in several parts, as the wire format decodes them.
pub(crate) trait Pieces<'a>: Iterator<Item = &'a [u8]> + Clone {}
impl<'a, I: Iterator<Item = &'a [u8]> + Clone> Pieces<'a> for I {}

impl<'s> Kvs<'s> {
    /// Creates empty spaces in `log`, which was created for `limits`.
    pub(crate) fn new(log: Log<'s>, limits: &Limits) -> Kvs<'s> {
        let ranks = limits.ranks.max(1);
        let part = Usage { bytes: limits.kvs_bytes / 2 / ranks, keys: limits.keys / 2 / ranks };
        let limits = Usage { bytes: limits.kvs_bytes, keys: limits.keys };
        let (reserved, dead) = (Usage::NONE, Usage::NONE);
        Kvs { log, reserved, limits, part, spare: limits, nodes: 1, next: 0, dead, held: 0 }
    }

    /// Returns the log, for a snapshot.
    pub(crate) fn log(&self) -> &Log<'s> {
        &self.log
    }

    /// Returns the reserved usage, the rest of the common half, what the last compaction had to keep, and the last number of
    /// spaces, for a snapshot.
    pub(crate) fn state(&self) -> (Usage, Usage, u32, u32) {
        (self.reserved, self.spare, self.held, self.next)
    }

    /// Restores a snapshot, up to what is [buried](Kvs::bury). Returns false if the log is invalid.
    pub(crate) fn load(
        &mut self,
        log: &[u8],
        (reserved, spare, held, next): (Usage, Usage, u32, u32),
    ) -> bool {
        (self.reserved, self.spare, self.held, self.next) = (reserved, spare, held, next);
        self.log.load(log)
    }

    /// Restores the number of nodes. Returns false if the log has less space than is reserved. Copies of records of other nodes
    /// may have taken reserved space, if those nodes have put more than their share.
    pub(crate) fn load_nodes(&mut self, nodes: u32) -> bool {
        self.nodes = nodes;
        nodes > 1 || self.reserved.less(self.left()) == Usage::NONE
    }

    /// Divides the common half among `nodes` nodes, because all nodes store the records of each. The share of the
    /// head, which has no ranks, is for pairs of hosts.
    pub(crate) fn divide(&mut self, nodes: u32) {
        self.nodes = nodes.max(1);
        self.refill();
    }

    /// Drops all records and numbers spaces from the start. The caller makes sure that no job is left.
    pub(crate) fn restart(&mut self) {
        self.clear();
        self.next = 0;
    }

    fn refill(&mut self) {
        self.spare = self.share();
    }

    /// Returns the part of the common half for this node's ranks.
    fn share(&self) -> Usage {
        let of = |limit: u32| if self.nodes > 1 { limit / 2 / self.nodes } else { limit };
        Usage { bytes: of(self.limits.bytes), keys: of(self.limits.keys) }
    }

    /// Gives back what a rank of this node has taken from the common half. Its job ends.
    pub(crate) fn give_back(&mut self, used: Usage, quota: Usage) {
        let (share, taken) = (self.share(), used.less(quota));
        self.spare = Usage {
            bytes: share.bytes.min(self.spare.bytes.saturating_add(taken.bytes)),
            keys: share.keys.min(self.spare.keys.saturating_add(taken.keys)),
        };
    }

    /// Counts the records of jobs that are over, which are behind `since`.
    #[cfg(feature = "cluster")]
    pub(crate) fn bury(&mut self, since: u32, is_over: &dyn Fn(u32) -> bool) {
        let (bytes, keys) = self.log.bury(since, is_over);
        self.dead.bytes += bytes;
        self.dead.keys += keys;
    }

    /// Returns the usage of jobs that are over.
    #[cfg(feature = "cluster")]
    pub(crate) fn dead(&self) -> Usage {
        self.dead
    }

    /// Returns whether to compact the log at the end of a job: jobs that are over have more of it than is left.
    #[cfg(feature = "cluster")]
    pub(crate) fn is_compaction_due(&self) -> bool {
        self.dead.less(self.left()) != Usage::NONE
    }

    /// Returns whether a compaction makes room for what is lacking: of all room, or of what `is_unreserved`. What ranks get back
    /// may be reserved for them.
    #[cfg(feature = "cluster")]
    pub(crate) fn frees(
        &self,
        lack: Usage,
        is_unreserved: bool,
        scope: &Scope,
        living: impl Fn(u32) -> bool,
    ) -> bool {
        let most = Usage { bytes: self.dead.bytes + self.log.superseded(), ..self.dead };
        lack.less(most) == Usage::NONE && {
            let (bytes, keys) = self.log.droppable(scope, living, |owner| !is_unreserved || owner == HOST);
            lack.less(Usage { bytes, keys }) == Usage::NONE
        }
    }

    /// Returns whether much of what a request lacks is of jobs that are over or superseded, without superseded records of so many
    /// bytes that a compaction keeps, by default as many as the last one did.
    #[cfg(feature = "cluster")]
    pub(crate) fn is_much_droppable(&self, lacks: Limit, kept: Option<u32>) -> bool {
        let superseded = self.log.superseded().saturating_sub(kept.unwrap_or(self.held));
        let (droppable, used) = match lacks {
            Limit::KvsBytes => (self.dead.bytes + superseded, self.log.len()),
            Limit::Keys => (self.dead.keys, self.limits.keys - self.log.keys_left()),
            _ => (0, 0),
        };
        droppable > 0 && droppable >= used / WORTH
    }

    /// Returns whether the record at an offset is not the newest of its key.
    #[cfg(feature = "cluster")]
    pub(crate) fn is_superseded(&self, offset: u32) -> bool {
        self.log.is_superseded(offset)
    }

    /// Begins to drop the records of spaces that are of no job, and superseded ones, as [`Log::begin_compaction`] does. `dropped`
    /// gets the latter.
    #[cfg(feature = "cluster")]
    pub(crate) fn begin_compaction(
        &mut self,
        scope: &Scope,
        living: impl Fn(u32) -> bool,
        mut dropped: impl FnMut(Dropped<'_>),
    ) -> Compaction {
        let share = self.share();
        let Kvs { log, reserved, spare, .. } = self;
        log.begin_compaction(scope, living, |space, owner, len| {
            dropped(Dropped { space, owner, len, reserved, spare, share });
        })
    }

    /// Returns where an offset leads afterwards.
    #[cfg(feature = "cluster")]
    pub(crate) fn moved(&self, compaction: &Compaction, offset: u32) -> u32 {
        self.log.moved(compaction, offset)
    }

    /// Moves the records that are kept.
    #[cfg(feature = "cluster")]
    pub(crate) fn end_compaction(&mut self, compaction: Compaction) {
        self.log.end_compaction(compaction);
        (self.dead, self.held) = (Usage::NONE, self.log.superseded());
    }

    /// Returns the usage without records, reserved or not.
    pub(crate) fn left(&self) -> Usage {
        Usage { bytes: self.log.bytes_left(), keys: self.log.keys_left() }
    }

    fn common(&self) -> Usage {
        self.left().less(self.reserved)
    }

    /// Returns new spaces for a job of `ranks` ranks, and the quota that is reserved for each rank. The quota is below its maximum
    /// if other jobs have left [too little](Kvs::lack_of_job).
    pub(crate) fn open(&mut self, ranks: u32) -> (Spaces, Usage) {
        self.next = self.next.wrapping_add(1);
        let common = self.common();
        let quota = Usage {
            bytes: self.part.bytes.min(common.bytes / ranks.max(1)),
            keys: self.part.keys.min(common.keys / ranks.max(1)),
        };
        self.reserved = self.reserved.plus(quota.times(ranks));
        (Spaces(self.next), quota)
    }

    /// Returns the cost of pairs of the host, with these lengths of keys and values, for a future job of `ranks` ranks.
    ///
    /// # Errors
    /// The length that is exceeded, or the limit if there is no room for the job and them, even without jobs that are over.
    pub(crate) fn check(
        &self,
        ranks: u32,
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> Result<Usage, Refusal> {
        let mut cost = Usage::NONE;
        for (key, value) in pairs {
            let (key, value) = (check_key(key)?, check_value(Kind::Kvs, value)?);
            cost = cost.plus(Usage { bytes: record_len(key, value), keys: 1 });
        }
        let lack = self.lack_of_job(ranks, cost).less(self.dead);
        let is_lacking = |cost: u32, lack: u32| cost > 0 && lack > 0;
        if is_lacking(cost.bytes, lack.bytes) {
            return Err(Refusal::Full(Limit::KvsBytes, self.limits.bytes));
        }
        if is_lacking(cost.keys, lack.keys) {
            return Err(Refusal::Full(Limit::Keys, self.limits.keys));
        }
        Ok(cost)
    }

    /// Returns the room that is lacking for a job of `ranks` ranks with their whole quota, and pairs of the host of this cost.
    pub(crate) fn lack_of_job(&self, ranks: u32, pairs: Usage) -> Usage {
        self.lack(self.part.times(ranks).plus(pairs))
    }

    /// Returns the room that is lacking for a pair of the host.
    ///
    /// # Errors
    /// The length that is exceeded.
    #[cfg(feature = "cluster")]
    pub(crate) fn lack_of_pair(
        &self,
        space: (Spaces, Kind),
        key: &[u8],
        value_len: usize,
    ) -> Result<Usage, Refusal> {
        self.cost_of_pair(space, key, value_len).map(|cost| self.lack(cost))
    }

    /// Returns what is lacking of the room that is not reserved.
    fn lack(&self, cost: Usage) -> Usage {
        cost.plus(self.reserved).less(self.left())
    }

    /// Frees the rest of the quota of an owner that has put its last value.
    pub(crate) fn release(&mut self, owner: Owner<'_>) {
        let rest = owner.quota.less(*owner.used);
        self.reserved = self.reserved.less(rest);
        *owner.used = Usage {
            bytes: owner.used.bytes.max(owner.quota.bytes),
            keys: owner.used.keys.max(owner.quota.keys),
        };
    }

    /// Drops all records. The caller makes sure that no job is left.
    pub(crate) fn clear(&mut self) {
        self.log.clear();
        (self.reserved, self.dead, self.held) = (Usage::NONE, Usage::NONE, 0);
        self.refill();
    }

    /// Checks that there is room for `cost`, for an owner with this usage and quota. `spare` is the part of the common
    /// half that it may use.
    fn admit(&self, cost: Usage, used: Usage, quota: Usage, spare: Usage) -> Result<(), Refusal> {
        let mine = quota.less(used);
        // The cost beyond the rest of the quota comes out of the common half.
        let (over, common) = (cost.less(mine), self.common());
        let common = Usage { bytes: common.bytes.min(spare.bytes), keys: common.keys.min(spare.keys) };
        let left = self.left();
        if cost.bytes > left.bytes {
            Err(Refusal::Full(Limit::KvsBytes, self.limits.bytes))
        } else if over.bytes > common.bytes {
            Err(Refusal::Quota(Limit::KvsBytes, quota.bytes))
        } else if cost.keys > left.keys {
            Err(Refusal::Full(Limit::Keys, self.limits.keys))
        } else if over.keys > common.keys {
            Err(Refusal::Quota(Limit::Keys, quota.keys))
        } else {
            Ok(())
        }
    }

    /// Checks that an owner with this usage can put all of these pairs of a key and the length of its value. The keys
    /// differ.
    ///
    /// # Errors
    /// The length or the limit that is exceeded.
    pub(crate) fn room<'k>(
        &self,
        (spaces, kind): (Spaces, Kind),
        used: Usage,
        quota: Usage,
        pairs: impl Iterator<Item = (&'k [u8], usize)>,
    ) -> Result<(), Refusal> {
        self.admit(self.cost_of((spaces, kind), pairs)?, used, quota, self.spare)
    }

    #[cfg(feature = "cluster")]
    #[inline(never)]
    fn cost_of_pair(&self, space: (Spaces, Kind), key: &[u8], value_len: usize) -> Result<Usage, Refusal> {
        self.cost_of(space, core::iter::once((key, value_len)))
    }

    /// Returns the cost of all of these pairs. Repeated keys count several times.
    fn cost_of<'k>(
        &self,
        (spaces, kind): (Spaces, Kind),
        pairs: impl Iterator<Item = (&'k [u8], usize)>,
    ) -> Result<Usage, Refusal> {
        let space = spaces.of(kind);
        let mut all = Usage::default();
        for (key, value_len) in pairs {
            let (key_len, value_len) = (check_key(key.len())?, check_value(kind, value_len)?);
            all = all.plus(cost(key_len, value_len, self.log.find(&self.log.key(space, key))));
        }
        Ok(all)
    }

    /// Stores a value under a key, and replaces an older one. Without a value, stores the key as wanted. Without an
    /// owner, the host stores it in the common half.
    pub(crate) fn put<'v>(
        &mut self,
        space: (Spaces, Kind),
        owner: Option<Owner<'_>>,
        key: &[u8],
        value: Option<impl Pieces<'v>>,
    ) -> Result<(u32, Before), Refusal> {
        let len = value.as_ref().map_or(0, |value| value.clone().map(<[u8]>::len).sum());
        self.store(space, owner, key, len, |log, key, slot, id| log.append(key, slot, id, value))
    }

    /// Stores a value of `len` bytes that is made of the record at `known`. `fill` gets the value of that record and the
    /// room for the new value.
    #[cfg(feature = "pmix")]
    pub(crate) fn put_from(
        &mut self,
        space: (Spaces, Kind),
        owner: Owner<'_>,
        key: &[u8],
        len: usize,
        known: u32,
        fill: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<u32, Refusal> {
        let store =
            |log: &mut Log<'s>, key: &Key<'_>, slot, id| log.append_from(key, slot, id, len, known, fill);
        self.store(space, Some(owner), key, len, store).map(|(record, _)| record)
    }

    /// Counts a record with a value of `len` bytes, which `append` appends.
    fn store(
        &mut self,
        (spaces, kind): (Spaces, Kind),
        owner: Option<Owner<'_>>,
        key: &[u8],
        len: usize,
        append: impl FnOnce(&mut Log<'s>, &Key<'_>, Slot, u32) -> Option<u32>,
    ) -> Result<(u32, Before), Refusal> {
        let key_len = check_key(key.len())?;
        let key = self.log.key(spaces.of(kind), key);
        let value_len = check_value(kind, len)?;
        let slot = self.log.find(&key);
        let cost = cost(key_len, value_len, slot);
        let (id, used, quota, spare) = match owner {
            Some(owner) => (owner.id, Some(owner.used), owner.quota, self.spare),
            None => (HOST, None, Usage::default(), self.limits),
        };
        let before = used.as_deref().copied().unwrap_or_default();
        let after = Usage { bytes: before.bytes.saturating_add(cost.bytes), keys: before.keys + cost.keys };
        self.admit(cost, before, quota, spare)?;
        let mine = quota.less(before);
        let wanted = match slot {
            Slot::Taken { record, .. } if self.log.record(record).is_some_and(|record| record.wanted) => {
                Before::Wanted(record)
            }
            _ => Before::Known,
        };
        let record =
            append(&mut self.log, &key, slot, id).ok_or(Refusal::Full(Limit::KvsBytes, self.limits.bytes))?;
        self.reserved = self.reserved.less(mine.less(quota.less(after)));
        if let Some(used) = used {
            *used = after;
            self.spare = self.spare.less(cost.less(mine));
        }
        Ok((record, wanted))
    }

    /// Returns the room that is lacking for pairs of other nodes, which those nodes have admitted.
    ///
    /// # Errors
    /// The length that is exceeded.
    pub(crate) fn lack_for_copies<'k>(
        &self,
        (spaces, kind): (Spaces, Kind),
        pairs: impl Iterator<Item = (&'k [u8], usize)> + Clone,
    ) -> Result<Usage, Refusal> {
        let space = spaces.of(kind);
        let mut all = self.cost_of((spaces, kind), pairs.clone())?;
        // A rank may have put a key several times. The search for repeated keys is slow, so it is done only if keys
        // run short.
        if all.keys > self.log.keys_left() {
            let fresh = |key| !matches!(self.log.find(&self.log.key(space, key)), Slot::Taken { .. });
            let first = |&(at, key): &(usize, &[u8])| pairs.clone().take(at).all(|(other, _)| other != key);
            let keys = pairs.clone().map(|(key, _)| key).enumerate();
            all.keys = keys.filter(|&(_, key)| fresh(key)).filter(first).count() as u32;
        }
        Ok(all.less(self.left()))
    }

    /// Returns the room that is lacking for one such pair.
    #[cfg(all(feature = "cluster", feature = "pmix"))]
    pub(crate) fn lack_for_copy(
        &self,
        space: (Spaces, Kind),
        key: &[u8],
        value_len: usize,
    ) -> Result<Usage, Refusal> {
        self.cost_of_pair(space, key, value_len).map(|cost| cost.less(self.left()))
    }

    /// Stores a copy of a pair of another node, for which there is [room](Kvs::lack_for_copies). Returns its offset.
    pub(crate) fn copy(
        &mut self,
        (spaces, kind): (Spaces, Kind),
        owner: Owner<'_>,
        key: &[u8],
        value: [&[u8]; 2],
    ) -> Option<u32> {
        let key_len = check_key(key.len()).ok()?;
        let value_len = check_value(kind, value[0].len() + value[1].len()).ok()?;
        let key = self.log.key(spaces.of(kind), key);
        let slot = self.log.find(&key);
        let cost = cost(key_len, value_len, slot);
        let record = self.log.append(&key, slot, owner.id, Some(value.into_iter()))?;
        let mine = owner.quota.less(*owner.used);
        owner.used.bytes = owner.used.bytes.saturating_add(cost.bytes);
        owner.used.keys = owner.used.keys.saturating_add(cost.keys);
        self.reserved = self.reserved.less(mine.less(owner.quota.less(*owner.used)));
        Some(record)
    }

    /// Returns the number of log bytes in use.
    pub(crate) fn written(&self) -> u32 {
        self.log.len()
    }

    /// Returns the record at an offset, and the offset of the next.
    pub(crate) fn step(&self, offset: u32) -> Option<(Record<'_>, u32)> {
        let record = self.log.record(offset)?;
        let len = record_len(record.key.len() as u32, record.value.len() as u32);
        Some((record, offset + len))
    }

    /// Returns the newest record of a key, which has a value or is wanted.
    pub(crate) fn find(&self, (spaces, kind): (Spaces, Kind), key: &[u8]) -> Result<Option<u32>, Refusal> {
        check_key(key.len())?;
        Ok(match self.log.find(&self.log.key(spaces.of(kind), key)) {
            Slot::Taken { record, .. } => Some(record),
            Slot::Free { .. } | Slot::None => None,
        })
    }

    /// Returns the value of the record at an offset that a put or a look-up returned.
    pub(crate) fn value(&self, offset: u32) -> Option<&[u8]> {
        self.log.record(offset).map(|record| record.value)
    }

    /// Returns the record at an offset that a put or a look-up returned.
    pub(crate) fn record(&self, offset: u32) -> Option<Record<'_>> {
        self.log.record(offset)
    }
}

/// Returns the cost of a record whose key was found at `slot`.
fn cost(key_len: u32, value_len: u32, slot: Slot) -> Usage {
    let keys = u32::from(!matches!(slot, Slot::Taken { .. }));
    Usage { bytes: record_len(key_len, value_len), keys }
}

/// Returns the length of a key if it is valid.
fn check_key(len: usize) -> Result<u32, Refusal> {
    match u32::try_from(len) {
        Ok(0) => Err(Refusal::EmptyKey),
        Ok(len @ 1..=KEY_MAX) => Ok(len),
        _ => Err(Refusal::KeyLength),
    }
}

/// Returns the length of a value if it is valid in a space of this kind.
fn check_value(kind: Kind, len: usize) -> Result<u32, Refusal> {
    let max = if kind == Kind::Commit { COMMIT_BYTES_MAX + COMMIT_HEADER } else { VALUE_MAX };
    u32::try_from(len).ok().filter(|&len| len <= max).ok_or(Refusal::ValueLength)
}
