//! Key-value spaces over one log, with a quota reserved for every rank.
//!
//! A job has a space for what its ranks put, one for the attributes of this node, one for the attributes of the job,
//! and one for its ring. Half of the log is divided among all ranks that there can be, and a rank's part is set
//! aside for it when its job comes; the other half is for whoever asks first. So no rank can use up what another is
//! owed.

use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::limits::{KEY_MAX, Limit, Limits, VALUE_MAX};
use crate::store::log::{Log, Record, Slot, record_len};

/// Which of a job's spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `kvs-put`, `kvs-get`
    Kvs,
    /// `info-putnodeattr`, `info-getnodeattr`
    Node,
    /// `info-getjobattr`
    Job,
    /// What the ranks of a ring hand to their neighbours.
    Ring,
}

/// A job's spaces: a number that no other job has had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spaces(u32);

impl Spaces {
    /// No spaces.
    pub(crate) const NONE: Spaces = Spaces(0);

    /// A number for tests.
    #[cfg(test)]
    pub(crate) const fn test(number: u32) -> Spaces {
        Spaces(number)
    }

    /// The number that the log knows one of them by.
    #[inline]
    pub(crate) fn of(self, kind: Kind) -> u32 {
        self.0.wrapping_mul(4).wrapping_add(kind as u32)
    }

    /// Whether that is the number of the job's space of this kind.
    pub(crate) fn is(self, kind: Kind, space: u32) -> bool {
        self.of(kind) == space
    }
}

/// Bytes and keys: used by a rank, or set aside for one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Bytes of log.
    pub(crate) bytes: u32,
    /// Distinct keys.
    pub(crate) keys: u32,
}

impl Usage {
    /// Nothing.
    pub(crate) const NONE: Usage = Usage { bytes: 0, keys: 0 };

    /// What of `self` is not used yet.
    #[inline]
    pub(crate) fn less(self, used: Usage) -> Usage {
        Usage { bytes: self.bytes.saturating_sub(used.bytes), keys: self.keys.saturating_sub(used.keys) }
    }
}

/// Who puts, and what it may take.
#[derive(Debug)]
pub(crate) struct Owner<'a> {
    /// A number to keep with the record.
    pub(crate) id: u32,
    /// What it has used so far.
    pub(crate) used: &'a mut Usage,
    /// What is set aside for it.
    pub(crate) quota: Usage,
}

/// All key-value spaces.
#[derive(Debug)]
pub(crate) struct Kvs<'s> {
    log: Log<'s>,
    reserved: Usage,
    limits: Usage,
    /// A rank's part of the half that is divided.
    part: Usage,
    /// Of the other half, what this node's ranks may still take.
    spare: Usage,
    /// The nodes that the other half is for.
    nodes: u32,
    next: u32,
}

/// What stood under a key before a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Nothing, or a value.
    Known,
    /// Nothing but waiting gets, which name the record at this offset.
    Wanted(u32),
}

/// Bytes in pieces, as the wire hands them over.
pub(crate) trait Pieces<'a>: Iterator<Item = &'a [u8]> + Clone {}
impl<'a, I: Iterator<Item = &'a [u8]> + Clone> Pieces<'a> for I {}

impl<'s> Kvs<'s> {
    /// Empty spaces over `log`, whose size is `limits`.
    pub(crate) fn new(log: Log<'s>, limits: &Limits) -> Kvs<'s> {
        let ranks = limits.ranks.max(1);
        let part = Usage { bytes: limits.kvs_bytes / 2 / ranks, keys: limits.keys / 2 / ranks };
        let limits = Usage { bytes: limits.kvs_bytes, keys: limits.keys };
        Kvs { log, reserved: Usage::default(), limits, part, spare: limits, nodes: 1, next: 0 }
    }

    /// The log, for saving.
    pub(crate) fn log(&self) -> &Log<'s> {
        &self.log
    }

    /// What is set aside, spared and counted beside it.
    pub(crate) fn state(&self) -> (Usage, Usage, u32) {
        (self.reserved, self.spare, self.next)
    }

    /// Fills in what was saved; false when it is no log, or too little is left of it for what is set aside.
    pub(crate) fn load(&mut self, log: &[u8], (reserved, spare, next): (Usage, Usage, u32)) -> bool {
        let loaded = self.log.load(log);
        let left = Usage { bytes: self.log.bytes_left(), keys: self.log.keys_left() };
        (self.reserved, self.spare, self.next) = (reserved, spare, next);
        loaded && reserved.less(left) == Usage::default()
    }

    /// The common half is for so many nodes: whatever one of them takes, all of them have room for. The head's part,
    /// who has no ranks, is for what hosts put.
    pub(crate) fn divide(&mut self, nodes: u32) {
        self.nodes = nodes.max(1);
        self.refill();
    }

    fn refill(&mut self) {
        let of = |limit: u32| if self.nodes > 1 { limit / 2 / self.nodes } else { limit };
        self.spare = Usage { bytes: of(self.limits.bytes), keys: of(self.limits.keys) };
    }

    /// What nothing is stored in yet, whether it is set aside or not.
    #[inline]
    pub(crate) fn left(&self) -> Usage {
        Usage { bytes: self.log.bytes_left(), keys: self.log.keys_left() }
    }

    #[inline]
    fn common(&self) -> Usage {
        self.left().less(self.reserved)
    }

    /// Spaces for a job of `ranks` ranks, and the share that is set aside for each of them: less than its part
    /// only where jobs that are over have left too little.
    pub(crate) fn open(&mut self, ranks: u32) -> (Spaces, Usage) {
        self.next = self.next.wrapping_add(1);
        let quota = self.quota(ranks);
        self.reserved.bytes += quota.bytes * ranks;
        self.reserved.keys += quota.keys * ranks;
        (Spaces(self.next), quota)
    }

    fn quota(&self, ranks: u32) -> Usage {
        let (common, ranks) = (self.common(), ranks.max(1));
        Usage {
            bytes: self.part.bytes.min(common.bytes / ranks),
            keys: self.part.keys.min(common.keys / ranks),
        }
    }

    /// Whether the host can put pairs of keys and values with these lengths for a job of `ranks` ranks that is
    /// still to come.
    ///
    /// # Errors
    /// Why not: a length or a limit.
    pub(crate) fn check(
        &self,
        ranks: u32,
        pairs: impl Iterator<Item = (usize, usize)>,
    ) -> Result<(), Refusal> {
        let quota = self.quota(ranks);
        let common = self.common().less(Usage { bytes: quota.bytes * ranks, keys: quota.keys * ranks });
        let mut cost = Usage::default();
        for (key, value) in pairs {
            let (key, value) = (check_key(key)?, check_value(value)?);
            cost.bytes = cost.bytes.saturating_add(record_len(key, value));
            cost.keys = cost.keys.saturating_add(1);
        }
        if cost.bytes > common.bytes {
            return Err(Refusal::Full(Limit::KvsBytes, self.limits.bytes));
        }
        if cost.keys > common.keys {
            return Err(Refusal::Full(Limit::Keys, self.limits.keys));
        }
        Ok(())
    }

    /// Frees what is still set aside for an owner that will put no more.
    pub(crate) fn release(&mut self, owner: Owner<'_>) {
        let rest = owner.quota.less(*owner.used);
        self.reserved = self.reserved.less(rest);
        *owner.used = Usage {
            bytes: owner.used.bytes.max(owner.quota.bytes),
            keys: owner.used.keys.max(owner.quota.keys),
        };
    }

    /// Drops everything; only when no job is left.
    pub(crate) fn clear(&mut self) {
        self.log.clear();
        self.reserved = Usage::default();
        self.refill();
    }

    /// Whether there is room for a cost of one who has used that much of its share, and may take so much of what is
    /// common.
    #[inline]
    fn admit(&self, cost: Usage, used: Usage, quota: Usage, spare: Usage) -> Result<(), Refusal> {
        let mine = quota.less(used);
        // Of the cost, what exceeds the rest of the share comes out of the common half.
        let (over, common) = (cost.less(mine), self.common());
        let common = Usage { bytes: common.bytes.min(spare.bytes), keys: common.keys.min(spare.keys) };
        let left = Usage { bytes: self.log.bytes_left(), keys: self.log.keys_left() };
        for (limit, cost, left, over, common, quota, size) in [
            (
                Limit::KvsBytes,
                cost.bytes,
                left.bytes,
                over.bytes,
                common.bytes,
                quota.bytes,
                self.limits.bytes,
            ),
            (Limit::Keys, cost.keys, left.keys, over.keys, common.keys, quota.keys, self.limits.keys),
        ] {
            if cost > left {
                return Err(Refusal::Full(limit, size));
            }
            if over > common {
                return Err(Refusal::Quota(limit, quota));
            }
        }
        Ok(())
    }

    /// Whether one who has used that much of its share can put all of these: different keys, and lengths of values.
    ///
    /// # Errors
    /// Why not: a length or a limit.
    pub(crate) fn room<'k>(
        &self,
        (spaces, kind): (Spaces, Kind),
        used: Usage,
        quota: Usage,
        pairs: impl Iterator<Item = (&'k [u8], usize)>,
    ) -> Result<(), Refusal> {
        self.admit(self.cost_of(spaces.of(kind), pairs)?, used, quota, self.spare)
    }

    /// What all of these take together; keys that come twice count twice.
    fn cost_of<'k>(
        &self,
        space: u32,
        pairs: impl Iterator<Item = (&'k [u8], usize)>,
    ) -> Result<Usage, Refusal> {
        let mut all = Usage::default();
        for (key, value_len) in pairs {
            let (key_len, value_len) = (check_key(key.len())?, check_value(value_len)?);
            let cost = cost(key_len, value_len, self.log.find(&self.log.key(space, key)));
            all.bytes = all.bytes.saturating_add(cost.bytes);
            all.keys = all.keys.saturating_add(cost.keys);
        }
        Ok(all)
    }

    /// Stores a value under a key, replacing an older one, or a wish for the key where there is no value. Without
    /// an owner it is the host that stores, at the cost of what is common.
    #[inline]
    pub(crate) fn put<'v>(
        &mut self,
        (spaces, kind): (Spaces, Kind),
        owner: Option<Owner<'_>>,
        key: &[u8],
        value: Option<impl Pieces<'v>>,
    ) -> Result<(u32, Before), Refusal> {
        let key_len = check_key(key.len())?;
        let key = self.log.key(spaces.of(kind), key);
        let value_len = match &value {
            Some(value) => check_value(value.clone().map(<[u8]>::len).sum())?,
            None => 0,
        };
        let slot = self.log.find(&key);
        let cost = cost(key_len, value_len, slot);
        let (id, used, quota, spare) = match owner {
            Some(owner) => (owner.id, Some(owner.used), owner.quota, self.spare),
            None => (u32::MAX, None, Usage::default(), self.limits),
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
        let record = self
            .log
            .append(&key, slot, id, value)
            .ok_or(Refusal::Full(Limit::KvsBytes, self.limits.bytes))?;
        self.reserved = self.reserved.less(mine.less(quota.less(after)));
        if let Some(used) = used {
            *used = after;
            self.spare = self.spare.less(cost.less(mine));
        }
        Ok((record, wanted))
    }

    /// Whether there is room for pairs that have been put on other nodes, where they had to be admitted.
    ///
    /// # Errors
    /// Why not: a length or a limit.
    pub(crate) fn room_for_copies<'k>(
        &self,
        (spaces, kind): (Spaces, Kind),
        pairs: impl Iterator<Item = (&'k [u8], usize)> + Clone,
    ) -> Result<(), Refusal> {
        let space = spaces.of(kind);
        let mut all = self.cost_of(space, pairs.clone())?;
        // A rank may have put a key more than once. Only where keys run short is it worth while to look for that.
        if all.keys > self.log.keys_left() {
            let fresh = |key| !matches!(self.log.find(&self.log.key(space, key)), Slot::Taken { .. });
            let first = |&(at, key): &(usize, &[u8])| pairs.clone().take(at).all(|(other, _)| other != key);
            let keys = pairs.clone().map(|(key, _)| key).enumerate();
            all.keys = keys.filter(|&(_, key)| fresh(key)).filter(first).count() as u32;
        }
        if all.bytes > self.log.bytes_left() {
            return Err(Refusal::Full(Limit::KvsBytes, self.limits.bytes));
        }
        if all.keys > self.log.keys_left() {
            return Err(Refusal::Full(Limit::Keys, self.limits.keys));
        }
        Ok(())
    }

    /// Stores a copy of what was put on another node, for which there is [room](Kvs::room_for_copies); its offset.
    pub(crate) fn copy(
        &mut self,
        (spaces, kind): (Spaces, Kind),
        owner: Owner<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Option<u32> {
        let key_len = check_key(key.len()).ok()?;
        let value_len = check_value(value.len()).ok()?;
        let key = self.log.key(spaces.of(kind), key);
        let slot = self.log.find(&key);
        let cost = cost(key_len, value_len, slot);
        let record = self.log.append(&key, slot, owner.id, Some(core::iter::once(value)))?;
        let mine = owner.quota.less(*owner.used);
        owner.used.bytes = owner.used.bytes.saturating_add(cost.bytes);
        owner.used.keys = owner.used.keys.saturating_add(cost.keys);
        self.reserved = self.reserved.less(mine.less(owner.quota.less(*owner.used)));
        Some(record)
    }

    /// Bytes of log in use.
    pub(crate) fn written(&self) -> u32 {
        self.log.len()
    }

    /// The record at an offset, and the offset of the next.
    pub(crate) fn step(&self, offset: u32) -> Option<(Record<'_>, u32)> {
        let record = self.log.record(offset)?;
        let len = record_len(record.key.len() as u32, record.value.len() as u32);
        Some((record, offset + len))
    }

    /// The newest record of a key, with a value or wanted.
    #[inline]
    pub(crate) fn find(&self, (spaces, kind): (Spaces, Kind), key: &[u8]) -> Result<Option<u32>, Refusal> {
        check_key(key.len())?;
        Ok(match self.log.find(&self.log.key(spaces.of(kind), key)) {
            Slot::Taken { record, .. } => Some(record),
            Slot::Free { .. } | Slot::None => None,
        })
    }

    /// The record at an offset that a put or a look-up gave.
    #[inline]
    pub(crate) fn record(&self, offset: u32) -> Option<Record<'_>> {
        self.log.record(offset)
    }
}

/// What a record takes whose key was found at `slot`.
#[inline]
fn cost(key_len: u32, value_len: u32, slot: Slot) -> Usage {
    let keys = u32::from(!matches!(slot, Slot::Taken { .. }));
    Usage { bytes: record_len(key_len, value_len), keys }
}

/// A key's length, where it may be one.
#[inline]
fn check_key(len: usize) -> Result<u32, Refusal> {
    match u32::try_from(len) {
        Ok(0) => Err(Refusal::EmptyKey),
        Ok(len @ 1..=KEY_MAX) => Ok(len),
        _ => Err(Refusal::KeyLength),
    }
}

#[inline]
fn check_value(len: usize) -> Result<u32, Refusal> {
    u32::try_from(len).ok().filter(|&len| len <= VALUE_MAX).ok_or(Refusal::ValueLength)
}
