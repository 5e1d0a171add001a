//! Process sets and their members.
//!
//! A set does not change. It is defined, may be retired, and is removed by a prune or with its job. A rank numbers the
//! sets that it is in and that are not retired, in the order of definition. A retired set is found by its name until it is
//! removed. `mpi://WORLD` and `mpi://SELF` are in the list of every rank and are not stored. A name is a URI: a name
//! without a scheme is that of [`PSET_SCHEME`].

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::JobId;
use crate::limits::{Limit, PSET_NAME_MAX, PSET_SCHEME};
use crate::store::bits;

/// Name of the set of all ranks of a job.
pub(crate) const WORLD: &str = "mpi://WORLD";
/// Name of the set of the requesting rank alone.
pub(crate) const SELF: &str = "mpi://SELF";
const RESERVED: &str = "mpi://";

/// Slot of a set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pset {
    name: String<PSET_NAME_MAX, u8>,
    /// Job of the ranks. `None` marks a free slot.
    job: Option<JobId>,
    /// Serial number of the definition.
    serial: u32,
    /// Serial number of the retirement. 0 if the set is not retired.
    retired: u32,
}

impl Pset {
    /// Unused slot.
    pub(crate) const EMPTY: Pset = Pset { name: String::new(), job: None, serial: 0, retired: 0 };

    /// Returns whether the slot is free.
    pub(crate) fn is_free(&self) -> bool {
        self.job.is_none()
    }
}

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

/// Process sets of a server.
#[derive(Debug)]
pub(crate) struct Psets<'s> {
    slots: &'s mut [Pset],
    /// A set of ranks for each slot, and one for a candidate.
    sets: &'s mut [u32],
    words: usize,
    /// Serial number of the last definition or retirement.
    serial: u32,
}

impl<'s> Psets<'s> {
    /// Returns the number of words that `psets` sets of at most `ranks` ranks need.
    pub(crate) const fn words(psets: u32, ranks: u32) -> usize {
        (psets as usize + 1) * bits::words(ranks)
    }

    /// Creates a table without sets. Returns `None` if `sets` is shorter than [`Psets::words`].
    pub(crate) fn new(slots: &'s mut [Pset], sets: &'s mut [u32], ranks: u32) -> Option<Psets<'s>> {
        let sets = sets.get_mut(..Psets::words(slots.len() as u32, ranks))?;
        slots.fill(Pset::default());
        Some(Psets { slots, sets, words: bits::words(ranks), serial: 0 })
    }

    /// Defines a set of a job's ranks. A repeated definition with the same members succeeds.
    ///
    /// # Errors
    /// [`Refusal::PsetName`], [`Refusal::BadGroup`] for no ranks or ranks that the job does not have,
    /// [`Refusal::PsetTaken`], [`Refusal::PsetRetired`], [`Refusal::Full`]. Nothing is changed then.
    pub(crate) fn define(
        &mut self,
        job: JobId,
        size: u32,
        name: &str,
        members: impl Iterator<Item = u32>,
    ) -> Result<(), Refusal> {
        let uri = uri(name).filter(|_| is_name(name)).ok_or(Refusal::PsetName)?;
        let candidate = &mut self.sets[..self.words];
        candidate.fill(0);
        for member in members {
            if member >= size {
                return Err(Refusal::BadGroup);
            }
            bits::insert(candidate, member);
        }
        if bits::count(candidate) == 0 {
            return Err(Refusal::BadGroup);
        }
        if let Some(at) = self.named(job, name) {
            return match self.set(at) == &self.sets[..self.words] {
                _ if self.slots[at].retired > 0 => Err(Refusal::PsetRetired),
                true => Ok(()),
                false => Err(Refusal::PsetTaken),
            };
        }
        let full = Refusal::Full(Limit::Psets, self.slots.len() as u32);
        let at = self.slots.iter().position(Pset::is_free).ok_or(full)?;
        let serial = self.next_serial()?;
        let (candidate, sets) = self.sets.split_at_mut(self.words);
        sets[at * self.words..][..self.words].copy_from_slice(candidate);
        self.slots[at] = Pset { name: uri, job: Some(job), serial, retired: 0 };
        Ok(())
    }

    /// Retires a set that a rank is in. A set that is retired already stays as it is.
    ///
    /// # Errors
    /// [`Refusal::PsetName`] for a name that the MPI standard reserves, [`Refusal::NoPset`], [`Refusal::Full`].
    pub(crate) fn retire(&mut self, job: JobId, rank: u32, name: &str) -> Result<(), Refusal> {
        if is_reserved(name) {
            return Err(Refusal::PsetName);
        }
        let Some(Which::Stored(at)) = self.find(job, rank, name) else { return Err(Refusal::NoPset) };
        if self.slots[at as usize].retired == 0 {
            self.slots[at as usize].retired = self.next_serial()?;
        }
        Ok(())
    }

    /// Removes one of the retired sets that a rank is in. Returns which, or `None` if there is none.
    pub(crate) fn prune(&mut self, job: JobId, rank: u32) -> Option<Which> {
        let at = (0..self.slots.len()).find(|&at| self.slots[at].retired > 0 && self.has(at, job, rank))?;
        self.slots[at] = Pset::default();
        Some(Which::Stored(at as u32))
    }

    fn next_serial(&mut self) -> Result<u32, Refusal> {
        self.serial = self.serial.checked_add(1).ok_or(Refusal::Full(Limit::Psets, u32::MAX))?;
        Ok(self.serial)
    }

    /// Returns the number of sets that a rank is in and that are not retired.
    pub(crate) fn count(&self, job: JobId, rank: u32) -> u32 {
        2 + self.of(job, rank).count() as u32
    }

    /// Returns the set with that index among those that a rank is in and that are not retired.
    pub(crate) fn nth(&self, job: JobId, rank: u32, index: u32) -> Option<Which> {
        match index {
            0 => Some(Which::World),
            1 => Some(Which::Itself),
            _ => {
                let mut last = 0;
                let mut found = None;
                for _ in 2..=index {
                    let next = self.next(job, rank, last)?;
                    last = self.serial(next);
                    found = Some(next);
                }
                found
            }
        }
    }

    /// Returns the first set with a serial number above `after` among those that a rank is in and that are not retired.
    pub(crate) fn next(&self, job: JobId, rank: u32, after: u32) -> Option<Which> {
        let later = self.of(job, rank).filter(|&at| self.slots[at].serial > after);
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
    pub(crate) fn find(&self, job: JobId, rank: u32, name: &str) -> Option<Which> {
        if name.eq_ignore_ascii_case(WORLD) {
            Some(Which::World)
        } else if name.eq_ignore_ascii_case(SELF) {
            Some(Which::Itself)
        } else {
            let at = self.named(job, name).filter(|&at| bits::contains(self.set(at), rank))?;
            Some(Which::Stored(at as u32))
        }
    }

    /// Returns the set of that name among those of a job.
    #[cfg(feature = "pmix")]
    pub(crate) fn named_of(&self, job: JobId, name: &str) -> Option<Which> {
        if name.eq_ignore_ascii_case(WORLD) {
            return Some(Which::World);
        }
        self.named(job, name).map(|at| Which::Stored(at as u32))
    }

    /// Returns the names of a job's sets that are stored and not retired.
    #[cfg(feature = "pmix")]
    pub(crate) fn of_job(&self, job: JobId) -> impl Iterator<Item = &str> + Clone {
        let sets = self.slots.iter().filter(move |slot| slot.job == Some(job) && slot.retired == 0);
        sets.map(|slot| slot.name.as_str())
    }

    /// Returns the first change of a job's sets after the one with serial number `after`: its serial number, the set, and
    /// whether it was retired. A retirement is left out if the definition is wanted and comes after `after` too.
    #[cfg(feature = "pmix")]
    pub(crate) fn next_change(
        &self,
        job: JobId,
        after: u32,
        wanted: impl Fn(bool) -> bool,
    ) -> Option<(u32, Which, bool)> {
        let sets = (0u32..).zip(&*self.slots).filter(|(_, slot)| slot.job == Some(job));
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

    /// Returns whether a rank of the set's job is in it. `asker` is the member of [`SELF`].
    pub(crate) fn contains(&self, which: Which, asker: u32, rank: u32) -> bool {
        match which {
            Which::World => true,
            Which::Itself => rank == asker,
            Which::Stored(at) => bits::contains(self.set(at as usize), rank),
        }
    }

    /// Drops the sets of a deregistered job.
    pub(crate) fn forget(&mut self, job: JobId) {
        self.slots.iter_mut().filter(|slot| slot.job == Some(job)).for_each(|slot| *slot = Pset::default());
    }

    /// Returns the slots, their sets, and the last serial number, for a snapshot.
    pub(crate) fn state(&self) -> (&[Pset], &[u32], u32) {
        // The candidate is scratch space.
        (self.slots, &self.sets[self.words..], self.serial)
    }

    /// Returns the same, for restoring a snapshot.
    pub(crate) fn state_mut(&mut self) -> (&mut [Pset], &mut [u32], &mut u32) {
        (self.slots, &mut self.sets[self.words..], &mut self.serial)
    }

    /// Returns whether every set is consistent. `size` returns the size of a registered job.
    pub(crate) fn is_sound(&self, size: impl Fn(JobId) -> Option<u32>) -> bool {
        self.slots.iter().enumerate().all(|(at, slot)| match slot.job {
            None => *slot == Pset::default(),
            Some(job) => size(job).is_some_and(|size| {
                let members = self.set(at);
                let changes = (1..=self.serial).contains(&slot.serial)
                    && (slot.retired == 0 || (slot.serial + 1..=self.serial).contains(&slot.retired));
                let named = uri(&slot.name).is_some_and(|uri| uri == slot.name) && is_name(&slot.name);
                changes && named && bits::count(members) > 0 && bits::iter(members).all(|it| it < size)
            }),
        })
    }

    /// Returns whether the slot exists and is in use.
    pub(crate) fn is_known(&self, which: Which) -> bool {
        match which {
            Which::World | Which::Itself => true,
            Which::Stored(at) => self.slots.get(at as usize).is_some_and(|slot| !slot.is_free()),
        }
    }

    fn of(&self, job: JobId, rank: u32) -> impl Iterator<Item = usize> + '_ {
        (0..self.slots.len()).filter(move |&at| self.slots[at].retired == 0 && self.has(at, job, rank))
    }

    fn has(&self, at: usize, job: JobId, rank: u32) -> bool {
        self.slots[at].job == Some(job) && bits::contains(self.set(at), rank)
    }

    fn named(&self, job: JobId, name: &str) -> Option<usize> {
        let name = uri(name)?;
        self.slots.iter().position(|slot| slot.job == Some(job) && slot.name == name)
    }

    fn set(&self, at: usize) -> &[u32] {
        &self.sets[(1 + at) * self.words..][..self.words]
    }
}

/// Returns the URI of a name. Returns `None` if it is too long.
fn uri(name: &str) -> Option<String<PSET_NAME_MAX, u8>> {
    let has_scheme = name.as_bytes().windows(3).any(|part| part == b"://");
    let mut uri = String::new();
    uri.push_str(if has_scheme { "" } else { PSET_SCHEME }).ok()?;
    uri.push_str(name).ok()?;
    Some(uri)
}

fn is_name(name: &str) -> bool {
    let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
    !name.is_empty() && !is_reserved(name) && printable
}

fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;
    use std::vec::Vec;

    const JOB: JobId = JobId(0);

    fn names(psets: &Psets<'_>, rank: u32) -> Vec<String> {
        let nth = |index| psets.name(psets.nth(JOB, rank, index).unwrap()).into();
        (0..psets.count(JOB, rank)).map(nth).collect()
    }

    #[test]
    fn a_rank_sees_its_own_sets_and_indices_stay() {
        let (mut slots, mut sets) = ([const { None }; 4].map(|_: Option<()>| Pset::default()), [0; 5]);
        let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
        psets.define(JobId(1), 8, "other", 0..8).unwrap();
        psets.define(JOB, 8, "low", 0..4).unwrap();
        psets.define(JOB, 8, "odd", [1, 3, 5].into_iter()).unwrap();
        assert_eq!(names(&psets, 1), [WORLD, SELF, "app://low", "app://odd"]);
        assert_eq!(names(&psets, 5), [WORLD, SELF, "app://odd"]);
        assert_eq!(psets.nth(JOB, 5, 3), None);
        psets.forget(JobId(1));
        psets.define(JOB, 8, "late", 1..6).unwrap();
        let sets = [WORLD, SELF, "app://low", "app://odd", "app://late"];
        assert_eq!(names(&psets, 1), sets, "a freed slot does not reorder");
        assert_eq!(psets.find(JOB, 0, "odd"), None, "a set that one is not in is not there");
        assert_eq!(psets.find(JOB, 0, "MPI://self"), Some(Which::Itself));
    }

    #[test]
    fn a_name_without_a_scheme_is_that_of_an_application() {
        let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::default()), [0; 3]);
        let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
        psets.define(JOB, 8, "ocean", 0..2).unwrap();
        assert_eq!(names(&psets, 1), [WORLD, SELF, "app://ocean"]);
        assert_eq!(psets.find(JOB, 1, "ocean"), Some(Which::Stored(0)));
        assert_eq!(psets.find(JOB, 1, "app://ocean"), Some(Which::Stored(0)));
        assert_eq!(psets.find(JOB, 1, "hydrant://ocean"), None);
        assert_eq!(psets.define(JOB, 8, "app://ocean", 0..2), Ok(()), "both are the same set");
        assert_eq!(psets.define(JOB, 8, "app://ocean", 0..3), Err(Refusal::PsetTaken));
        psets.define(JOB, 8, "site://ocean", 0..3).unwrap();
        assert_eq!(names(&psets, 2), [WORLD, SELF, "site://ocean"]);
        let longest = "x".repeat(PSET_NAME_MAX - PSET_SCHEME.len());
        let full = Refusal::Full(Limit::Psets, 2);
        assert_eq!(psets.define(JOB, 8, &longest, 0..2), Err(full));
        assert_eq!(psets.define(JOB, 8, &(longest + "x"), 0..2), Err(Refusal::PsetName));
    }

    #[test]
    fn a_retired_set_is_found_until_it_is_pruned() {
        let (mut slots, mut sets) = ([const { None }; 3].map(|_: Option<()>| Pset::default()), [0; 4]);
        let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
        psets.define(JOB, 8, "a", 0..2).unwrap();
        psets.define(JOB, 8, "b", 0..4).unwrap();
        assert_eq!(psets.retire(JOB, 2, "a"), Err(Refusal::NoPset), "rank 2 is not in it");
        assert_eq!(psets.retire(JOB, 1, "MPI://self"), Err(Refusal::PsetName));
        assert_eq!(psets.retire(JOB, 1, "mpi://WORLD"), Err(Refusal::PsetName));
        assert_eq!((psets.retire(JOB, 1, "a"), psets.retire(JOB, 0, "app://a")), (Ok(()), Ok(())));
        assert_eq!(names(&psets, 0), [WORLD, SELF, "app://b"]);
        assert_eq!(psets.find(JOB, 0, "a"), Some(Which::Stored(0)));
        assert_eq!(psets.define(JOB, 8, "a", 0..2), Err(Refusal::PsetRetired));
        assert_eq!(psets.prune(JOB, 3), None, "rank 3 is in no retired set");
        assert_eq!((psets.prune(JOB, 1), psets.prune(JOB, 1)), (Some(Which::Stored(0)), None));
        assert_eq!(psets.find(JOB, 0, "a"), None);
        psets.define(JOB, 8, "a", 1..3).unwrap();
        assert_eq!(names(&psets, 1), [WORLD, SELF, "app://b", "app://a"], "the new set comes last");
        let next = |after| psets.next(JOB, 1, after).map(|next| (psets.name(next), psets.serial(next)));
        assert_eq!([next(0), next(2), next(4)], [Some(("app://b", 2)), Some(("app://a", 4)), None]);
    }

    #[test]
    fn sets_can_be_made_and_removed_without_end() {
        let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::default()), [0; 3]);
        let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
        psets.define(JOB, 8, "kept", 0..8).unwrap();
        for round in 0..100_000u32 {
            psets.define(JOB, 8, "again", round % 4..5).unwrap();
            psets.retire(JOB, 4, "again").unwrap();
            assert_eq!(psets.define(JOB, 8, "more", 0..2), Err(Refusal::Full(Limit::Psets, 2)));
            assert_eq!(psets.prune(JOB, round % 4), Some(Which::Stored(1)));
        }
        assert_eq!(names(&psets, 0), [WORLD, SELF, "app://kept"]);
        // Serial numbers are used up after four billion changes. No set gets a number twice.
        psets.serial = u32::MAX - 1;
        psets.define(JOB, 8, "last", 0..2).unwrap();
        assert_eq!(psets.retire(JOB, 0, "last"), Err(Refusal::Full(Limit::Psets, u32::MAX)));
    }

    #[test]
    fn a_name_means_one_set() {
        let (mut slots, mut sets) = ([const { None }; 2].map(|_: Option<()>| Pset::default()), [0; 3]);
        let mut psets = Psets::new(&mut slots, &mut sets, 8).unwrap();
        assert_eq!(psets.define(JOB, 8, "a", 0..2), Ok(()));
        assert_eq!(psets.define(JOB, 8, "a", [1, 0, 1].into_iter()), Ok(()));
        assert_eq!(psets.define(JOB, 8, "a", 0..3), Err(Refusal::PsetTaken));
        assert_eq!(psets.define(JOB, 8, "Mpi://mine", 0..3), Err(Refusal::PsetName));
        assert_eq!(psets.define(JOB, 8, "", 0..3), Err(Refusal::PsetName));
        assert_eq!(psets.define(JOB, 8, "b", 0..9), Err(Refusal::BadGroup));
        assert_eq!(psets.define(JOB, 8, "b", 0..0), Err(Refusal::BadGroup));
        assert_eq!(psets.define(JOB, 8, "b", 0..8), Ok(()));
        assert_eq!(psets.define(JOB, 8, "c", 0..8), Err(Refusal::Full(Limit::Psets, 2)));
    }
}
