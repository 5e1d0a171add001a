//! Process sets and their members.
//!
//! The members of a set are rank slots, so a set may hold ranks of several jobs. A set does not change. It is defined, may
//! be retired, and is removed by a prune. It ends with the first of its jobs that is over. A rank numbers the sets that it
//! is in and that are not retired, in the order of definition. A retired set is found by its name until it is removed.
//! `mpi://WORLD` and `mpi://SELF` are in the list of every rank and are not stored. A name is a URI: a name without a scheme
//! is that of [`PSET_SCHEME`](crate::limits::PSET_SCHEME). A job's ranks see one set of a name.
//!
//! The members of all sets share one slab of words, in the order of the slots. Each set takes as few words as its
//! [form](Members) allows, so the sets of many hosts take little more than a run for each. Without runs all sets take the
//! same.

mod index;
mod name;
mod slot;

use core::iter::from_fn;
use core::ops::Range;

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::limits::{Limit, PSET_NAME_MAX};
use crate::store::bits;
use crate::store::members::{self, Members, RUNS};
use name::{SELF, WORLD, definable, is_reserved, uri};
use slot::ENDED;

pub(crate) use slot::Pset;

/// Number of sets that may have any members. More sets have room for one run each, and for a run of each rank: the sets of
/// hosts have no common members.
const SETS_OF_ANY: u64 = 256;

/// Process set of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Which {
    /// All ranks of its job.
    World,
    /// The rank alone.
    Itself,
    /// Stored set in this slot.
    Stored(u32),
}

/// Rank that requests a set: its slot, and those of its job.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) slot: u32,
    pub(crate) job: Range<u32>,
}

/// Process sets of a server.
#[derive(Debug)]
pub(crate) struct Psets<'s> {
    slots: &'s mut [Pset],
    /// Bits of a candidate, and the members of all slots.
    sets: &'s mut [u32],
    /// Number of words of a bit for each rank slot.
    words: usize,
    /// End of the slots with words before their end, if sets may have runs.
    top: u32,
    /// Serial number of the last definition, retirement or end.
    serial: u32,
    /// End of slots at the front that are in use.
    #[cfg(feature = "cluster")]
    in_use: u32,
    /// Number of slots that have heads of lists.
    #[cfg(feature = "cluster")]
    buckets: u32,
}

impl<'s> Psets<'s> {
    /// Returns the number of words that `psets` sets of at most `ranks` ranks need.
    pub(crate) const fn words(psets: u32, ranks: u32) -> u64 {
        let (sets, of_set) = (psets as u64, bits::words(ranks) as u64);
        let all = sets * of_set;
        let most = SETS_OF_ANY * of_set + 2 * (ranks as u64 + sets);
        let members = if !RUNS || all < most { all } else { most };
        // Ends of members are numbers below `ENDED`.
        let members = if !RUNS || members < ENDED as u64 { members } else { ENDED as u64 - 1 };
        of_set + members
    }

    /// Creates a table in unused slots. Returns `None` if `sets` is shorter than [`Psets::words`].
    pub(crate) fn new(slots: &'s mut [Pset], sets: &'s mut [u32], ranks: u32) -> Option<Psets<'s>> {
        let sets = sets.get_mut(..Psets::words(slots.len() as u32, ranks) as usize)?;
        Some(Psets {
            slots,
            sets,
            words: bits::words(ranks),
            top: 0,
            serial: 0,
            #[cfg(feature = "cluster")]
            in_use: 0,
            #[cfg(feature = "cluster")]
            buckets: 0,
        })
    }

    /// Defines a set of rank slots. `None` among `members` stands for a rank that does not exist. `jobs` are the slots of
    /// each job. A repeated definition with the same members succeeds. Returns the slot if the set takes the place of one
    /// that has ended.
    ///
    /// # Errors
    /// [`Refusal::PsetName`], [`Refusal::BadGroup`] for ranks that do not exist, [`Refusal::PsetEmpty`],
    /// [`Refusal::PsetTaken`], [`Refusal::PsetRetired`], [`Refusal::Full`]. Nothing is changed then.
    pub(crate) fn define(
        &mut self,
        name: &str,
        members: impl Iterator<Item = Option<u32>>,
        jobs: impl Iterator<Item = Range<u32>>,
    ) -> Result<Option<Which>, Refusal> {
        let uri = definable(name)?;
        let candidate = self.candidate();
        candidate.fill(0);
        for member in members {
            bits::insert(candidate, member.ok_or(Refusal::BadGroup)?);
        }
        self.define_candidate(uri, jobs)
    }

    /// Defines a set from two sets of a rank. `operation` computes a word of its bits from those of the two.
    ///
    /// # Errors
    /// As for [`Psets::define`].
    pub(crate) fn combine(
        &mut self,
        asker: &Asker,
        name: &str,
        operation: impl Fn(u32, u32) -> u32,
        [one, other]: [Which; 2],
        jobs: impl Iterator<Item = Range<u32>>,
    ) -> Result<Option<Which>, Refusal> {
        let uri = definable(name)?;
        for at in 0..self.words {
            self.sets[at] = operation(self.word(one, asker, at), self.word(other, asker, at));
        }
        self.define_candidate(uri, jobs)
    }

    fn define_candidate(
        &mut self,
        name: String<PSET_NAME_MAX, u8>,
        jobs: impl Iterator<Item = Range<u32>>,
    ) -> Result<Option<Which>, Refusal> {
        let candidate = &self.sets[..self.words];
        if bits::first(candidate, 0..u32::MAX).is_none() {
            return Err(Refusal::PsetEmpty);
        }
        let same = self.known(&name);
        if same.clone().next().is_some() {
            let of_candidate = |job: &Range<u32>| bits::first(candidate, job.clone()).is_some();
            let known =
                jobs.filter(of_candidate).find_map(|job| same.clone().find(|&at| self.has_any(at, &job)));
            if let Some(at) = known {
                return match self.set(at).are(candidate) {
                    _ if self.slots[at].retired > 0 => Err(Refusal::PsetRetired),
                    true => Ok(None),
                    false => Err(Refusal::PsetTaken),
                };
            }
        }
        drop(same);
        let full = Refusal::Full(Limit::Psets, self.slots.len() as u32);
        let free = self.first_free();
        let at = free.or_else(|| self.oldest_ended()).ok_or(full)?;
        let serial = self.next_serial()?;
        if !self.store(at) {
            return Err(full);
        }
        self.serial = serial;
        if free.is_none() {
            self.unlink(at);
        }
        self.slots[at] = self.slots[at].with_set(name, serial);
        self.link(at, free.is_some());
        Ok(free.is_none().then_some(Which::Stored(at as u32)))
    }

    /// Stores the candidate's members in a slot. Returns false if there is no room for them. Nothing is changed then.
    fn store(&mut self, at: usize) -> bool {
        let len = members::len(self.candidate());
        if RUNS && !self.resize(at, len) {
            return false;
        }
        let span = self.span(at);
        let (candidate, words) = self.sets.split_at_mut(self.words);
        members::write(candidate, &mut words[span]);
        true
    }

    /// Changes the number of words of a slot. Returns false if there is no room for them.
    fn resize(&mut self, at: usize, len: usize) -> bool {
        let room = self.sets.len() - self.words;
        if self.used() - self.span(at).len() + len > room {
            let others = (0..self.top as usize).filter(|&other| other != at && self.slots[other].serial > 0);
            let of_others: usize = others.map(|other| self.span(other).len()).sum();
            if of_others + len > room {
                return false;
            }
            self.compact();
        }
        let (Range { start, end }, used) = (self.span(at), self.used());
        self.sets[self.words..].copy_within(end..used, start + len);
        if at == self.top as usize {
            self.slots[at].end = end as u32;
            self.top += 1;
        }
        // The sum is below `ENDED` again, so that bit stays.
        let moved = (start + len).wrapping_sub(end) as u32;
        let behind = &mut self.slots[at..self.top as usize];
        behind.iter_mut().for_each(|slot| slot.end = slot.end.wrapping_add(moved));
        true
    }

    /// Drops the words of free slots.
    fn compact(&mut self) {
        let members = &mut self.sets[self.words..];
        let (mut start, mut end) = (0, 0);
        for slot in &mut self.slots[..self.top as usize] {
            let old = start..slot.end();
            start = old.end;
            if slot.serial > 0 {
                members.copy_within(old.clone(), end);
                end += old.len();
            }
            slot.end = slot.end & ENDED | end as u32;
        }
        if end == 0 {
            self.top = 0;
        }
    }

    fn oldest_ended(&self) -> Option<usize> {
        let ended = (0..self.slots.len()).filter(|&at| self.slots[at].has_ended());
        ended.min_by_key(|&at| self.slots[at].retired)
    }

    /// Retires a set that a rank is in. A set that is retired already stays as it is.
    ///
    /// # Errors
    /// [`Refusal::PsetName`] for a name that the MPI standard reserves, [`Refusal::NoPset`], [`Refusal::Full`].
    pub(crate) fn retire(&mut self, rank: u32, name: &str) -> Result<(), Refusal> {
        if is_reserved(name) {
            return Err(Refusal::PsetName);
        }
        let Some(Which::Stored(at)) = self.find(rank, name) else { return Err(Refusal::NoPset) };
        if self.slots[at as usize].retired == 0 {
            self.serial = self.next_serial()?;
            self.slots[at as usize].retired = self.serial;
        }
        Ok(())
    }

    /// Removes one of the retired sets that a rank is in. Returns which, or `None` if there is none.
    pub(crate) fn prune(&mut self, rank: u32) -> Option<Which> {
        let retired =
            |at: &usize| self.slots[*at].is_known() && self.slots[*at].retired > 0 && self.has(*at, rank);
        let at = (0..self.slots_end()).find(retired)?;
        self.remove(at);
        Some(Which::Stored(at as u32))
    }

    /// Ends one of the sets with ranks of a job that is over. `jobs` are the slots of each job. Returns which, and whether it
    /// is removed. Returns `None` if there is none.
    pub(crate) fn end(
        &mut self,
        job: &Range<u32>,
        jobs: impl Iterator<Item = Range<u32>>,
    ) -> Option<(Which, bool)> {
        let of_job = |at: &usize| self.slots[*at].serial > 0 && self.has_any(*at, job);
        let at = (0..self.slots_end()).find(of_job)?;
        // Only the jobs of a set that has ended matter: a member of each is enough.
        let mut remains = false;
        for other in jobs.filter(|other| other != job) {
            let Some(member) = self.set(at).first(other) else { continue };
            let candidate = self.candidate();
            if !remains {
                candidate.fill(0);
            }
            bits::insert(candidate, member);
            remains = true;
        }
        let serial = match self.slots[at].retired {
            _ if !remains => None,
            0 => self.next_serial().ok(),
            retired => Some(retired),
        };
        let serial = serial.filter(|_| self.store(at));
        match serial {
            Some(serial) => {
                self.serial = self.serial.max(serial);
                self.slots[at].retired = serial;
                self.slots[at].end |= ENDED;
            }
            None => self.remove(at),
        }
        Some((Which::Stored(at as u32), serial.is_none()))
    }

    fn remove(&mut self, at: usize) {
        self.unlink(at);
        self.slots[at] = self.slots[at].with_set(String::new(), 0);
    }

    /// Returns the serial number of the next change.
    fn next_serial(&self) -> Result<u32, Refusal> {
        self.serial.checked_add(1).ok_or(Refusal::Full(Limit::Psets, u32::MAX))
    }

    /// Returns the number of sets that a rank is in and that are not retired.
    pub(crate) fn count(&self, rank: u32) -> u32 {
        2 + self.of(rank).count() as u32
    }

    /// Returns the set with that index among those that a rank is in and that are not retired.
    pub(crate) fn nth(&self, rank: u32, index: u32) -> Option<Which> {
        match index {
            0 => Some(Which::World),
            1 => Some(Which::Itself),
            _ => {
                let mut last = 0;
                let mut found = None;
                for _ in 2..=index {
                    let next = self.next(rank, last)?;
                    last = self.serial(next);
                    found = Some(next);
                }
                found
            }
        }
    }

    /// Returns the first set with a serial number above `after` among those that a rank is in and that are not retired.
    pub(crate) fn next(&self, rank: u32, after: u32) -> Option<Which> {
        let later = self.of(rank).filter(|&at| self.slots[at].serial > after);
        later.min_by_key(|&at| self.slots[at].serial).map(|at| Which::Stored(at as u32))
    }

    /// Returns the serial number of a set. It is 0 for those that are not stored.
    pub(crate) fn serial(&self, which: Which) -> u32 {
        match which {
            Which::World | Which::Itself => 0,
            Which::Stored(at) => self.slots.get(at as usize).map_or(0, |slot| slot.serial),
        }
    }

    /// Returns the set of that name among those that a rank is in. Case is ignored for `mpi://` names.
    pub(crate) fn find(&self, rank: u32, name: &str) -> Option<Which> {
        if name.eq_ignore_ascii_case(WORLD) {
            Some(Which::World)
        } else if name.eq_ignore_ascii_case(SELF) {
            Some(Which::Itself)
        } else {
            self.named(name, rank..rank + 1)
        }
    }

    /// Returns the set of that name among those with ranks of a job.
    #[cfg(feature = "pmix")]
    pub(crate) fn named_of(&self, job: Range<u32>, name: &str) -> Option<Which> {
        if name.eq_ignore_ascii_case(WORLD) {
            return Some(Which::World);
        }
        self.named(name, job)
    }

    /// Returns the names of the sets with members in a range that are stored and not retired.
    #[cfg(feature = "pmix")]
    pub(crate) fn with_any(&self, ranks: Range<u32>) -> impl Iterator<Item = &str> + Clone {
        let sets = (0..self.slots_end()).filter(move |&at| {
            self.slots[at].serial > 0 && self.slots[at].retired == 0 && self.has_any(at, &ranks)
        });
        sets.map(|at| self.slots[at].name.as_str())
    }

    /// Returns the first change of the sets with members in a range after the one with serial number `after`: its serial number,
    /// the set, and whether it was retired or has ended. Such a change is left out if the definition is wanted and comes
    /// after `after` too. `is_meant` returns whether a set of that name matters.
    #[cfg(feature = "pmix")]
    pub(crate) fn next_change(
        &self,
        ranks: Range<u32>,
        after: u32,
        is_meant: impl Fn(&str) -> bool,
        wanted: impl Fn(bool) -> bool,
    ) -> Option<(u32, Which, bool)> {
        let sets = (0u32..).zip(&self.slots[..self.slots_end()]);
        let sets = sets.filter(|&(at, slot)| {
            slot.serial > 0 && self.has_any(at as usize, &ranks) && is_meant(&slot.name)
        });
        let changes = sets.map(|(at, slot)| match slot.retired {
            0 => (slot.serial, Which::Stored(at), false, false),
            retired => (retired, Which::Stored(at), true, slot.serial > after),
        });
        let due = changes.filter(|&(serial, _, retired, unknown)| {
            serial > after && wanted(retired) && !(unknown && wanted(false))
        });
        due.min_by_key(|&(serial, ..)| serial).map(|(serial, which, retired, _)| (serial, which, retired))
    }

    /// Returns the serial number of the last change.
    #[cfg(feature = "pmix")]
    pub(crate) fn changes(&self) -> u32 {
        self.serial
    }

    /// Returns the name of a set.
    pub(crate) fn name(&self, which: Which) -> &str {
        match which {
            Which::World => WORLD,
            Which::Itself => SELF,
            Which::Stored(at) => self.slots.get(at as usize).map_or("", |slot| &slot.name),
        }
    }

    /// Returns the first slot of a range that is in a set of `asker`.
    fn first(&self, which: Which, asker: &Asker, range: Range<u32>) -> Option<u32> {
        let own = match which {
            Which::World => asker.job.clone(),
            Which::Itself => asker.slot..asker.slot + 1,
            Which::Stored(at) => return self.set(at as usize).first(range),
        };
        Some(own.start.max(range.start)).filter(|&slot| slot < own.end.min(range.end))
    }

    /// Returns the slots of a range that are in a set of `asker`.
    pub(crate) fn members(
        &self,
        which: Which,
        asker: Asker,
        range: Range<u32>,
    ) -> impl Iterator<Item = u32> + '_ {
        let Range { mut start, end } = range;
        from_fn(move || {
            let member = self.first(which, &asker, start..end)?;
            start = member + 1;
            Some(member)
        })
    }

    /// Returns whether a set of `asker` has ranks of a job.
    pub(crate) fn intersects(&self, which: Which, asker: &Asker, job: &Range<u32>) -> bool {
        match which {
            Which::World => asker.job == *job,
            _ => self.first(which, asker, job.clone()).is_some(),
        }
    }

    /// Removes all sets, as if there had been none.
    pub(crate) fn clear(&mut self) {
        self.slots.fill(Pset::EMPTY);
        self.sets.fill(0);
        (self.top, self.serial) = (0, 0);
        self.relink();
    }

    /// Returns the slots, the members of their sets, and the last serial number, for a snapshot.
    pub(crate) fn state(&self) -> (&[Pset], &[u32], u32) {
        // The candidate is scratch space.
        (self.slots, &self.sets[self.words..][..self.used()], self.serial)
    }

    /// Returns the same, for restoring a snapshot. The members have all their room.
    pub(crate) fn state_mut(&mut self) -> (&mut [Pset], &mut [u32], &mut u32) {
        (self.slots, &mut self.sets[self.words..], &mut self.serial)
    }

    /// Ends the restoring of a snapshot with so many words of members. Returns whether it is theirs.
    pub(crate) fn load(&mut self, used: usize) -> bool {
        self.top = self.slots.iter().rposition(|slot| slot.end() > 0).map_or(0, |last| last as u32 + 1);
        self.relink();
        self.used() == used
    }

    /// Returns the number of words that members take, with those of free slots.
    fn used(&self) -> usize {
        if RUNS { self.end_before(self.top as usize) } else { self.slots.len() * self.words }
    }

    /// Returns the end of the members of the sets in the slots before one.
    fn end_before(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.slots[before].end())
    }

    /// Returns whether every set is consistent. `are_ranks` returns whether slots are those of ranks.
    pub(crate) fn is_sound(&self, are_ranks: impl Fn(Range<u32>) -> bool) -> bool {
        self.slots.iter().enumerate().all(|(at, slot)| {
            let Some(words) = self.sets[self.words..].get(self.span(at)) else { return false };
            if slot.serial == 0 {
                return slot.is_empty();
            }
            let changes = (1..=self.serial).contains(&slot.serial)
                && (slot.retired == 0 || (slot.serial + 1..=self.serial).contains(&slot.retired))
                && (slot.retired > 0 || !slot.has_ended());
            let named = definable(&slot.name).is_ok_and(|uri| uri == slot.name);
            changes && named && members::are_sound(words, self.words, &are_ranks)
        })
    }

    /// Returns whether the slot exists and is in use.
    pub(crate) fn is_stored(&self, which: Which) -> bool {
        match which {
            Which::World | Which::Itself => true,
            Which::Stored(at) => self.slots.get(at as usize).is_some_and(|slot| slot.serial > 0),
        }
    }

    fn of(&self, rank: u32) -> impl Iterator<Item = usize> + '_ {
        let in_use = |at: &usize| self.slots[*at].serial > 0 && self.slots[*at].retired == 0;
        (0..self.slots_end()).filter(in_use).filter(move |&at| self.has(at, rank))
    }

    fn has(&self, at: usize, rank: u32) -> bool {
        self.has_any(at, &(rank..rank + 1))
    }

    /// Returns whether the set in a slot has members in a range.
    fn has_any(&self, at: usize, range: &Range<u32>) -> bool {
        self.set(at).first(range.clone()).is_some()
    }

    /// Returns the set of that name among those with members in a range.
    fn named(&self, name: &str, range: Range<u32>) -> Option<Which> {
        let name = uri(name)?;
        let at = self.known(&name).find(|&at| self.has_any(at, &range))?;
        Some(Which::Stored(at as u32))
    }

    /// Returns one word of the members of a set of `asker`.
    fn word(&self, which: Which, asker: &Asker, at: usize) -> u32 {
        match which {
            Which::World => bits::word(&asker.job, at),
            Which::Itself => bits::word(&(asker.slot..asker.slot + 1), at),
            Which::Stored(set) => self.set(set as usize).word(at),
        }
    }

    /// Returns the end of the slots with sets. Walks end here: a large table is mostly unused.
    fn slots_end(&self) -> usize {
        if RUNS { self.top as usize } else { self.slots.len() }
    }

    fn candidate(&mut self) -> &mut [u32] {
        &mut self.sets[..self.words]
    }

    fn set(&self, at: usize) -> Members<'_> {
        Members::new(&self.sets[self.words..][self.span(at)], self.words)
    }

    /// Returns the place of a slot's words.
    fn span(&self, at: usize) -> Range<usize> {
        if !RUNS {
            return at * self.words..(at + 1) * self.words;
        }
        let start = self.end_before(at);
        if at < self.top as usize { start..self.slots[at].end() } else { start..start }
    }
}

#[cfg(test)]
mod tests;
