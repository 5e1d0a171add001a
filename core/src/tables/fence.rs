//! Who has arrived in a fence, and who is missing.
//!
//! A job's own fence is a [`Fence`] beside its ranks; barriers of named groups are [`Groups`], which also keep who
//! takes part. Both only count: who may arrive, and who is told, is the server's business.

use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::JobId;
use crate::limits::Limit;
use crate::store::bits;
use crate::tables::meet::{Meet, Up};
use crate::time::Time;

/// One fence in the making.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// How many have arrived; none means that nobody waits.
    pub arrived: u32,
    /// When the first one arrived.
    pub since: Time,
    /// Whether it is known to be late.
    pub late: Late,
}

/// How far a fence's lateness is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Late {
    /// It is in time.
    #[default]
    No,
    /// It is late and nobody has been told.
    Unsaid,
    /// It is late and the host knows.
    Said,
}

impl Fence {
    /// No rank has arrived.
    pub const NONE: Fence = Fence { arrived: 0, since: Time(0), late: Late::No };

    /// Counts one in; whether it was the first.
    pub fn arrive(&mut self, now: Time) -> bool {
        let first = self.arrived == 0;
        if first {
            *self = Fence { arrived: 0, since: now, late: Late::No };
        }
        self.arrived += 1;
        first
    }

    /// Notes lateness when the fence waits for `limit` milliseconds or more; when that will be, if not yet.
    pub fn check(&mut self, now: Time, limit: u64) -> Option<Time> {
        if self.arrived == 0 || limit == 0 || self.late != Late::No {
            return None;
        }
        let due = self.since.after(limit);
        if due <= now {
            self.late = Late::Unsaid;
            return None;
        }
        Some(due)
    }
}

/// A barrier of a named group of one job's ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Whose ranks; a slot without is free.
    pub job: Option<JobId>,
    /// Tells barriers of the same members apart.
    pub tag: u32,
    /// How many arrivals of this node's ranks make it complete here.
    pub need: u32,
    /// Who has arrived.
    pub fence: Fence,
    /// What it waits for on other nodes: children that have members, by their links' bits.
    pub below: u64,
    /// Whether it has members on nodes that are not below this one, dead or alive: then it meets above.
    pub above: bool,
    /// How far it has come there.
    pub meet: Meet,
    /// It is complete, and only children still have to be told.
    pub over: bool,
}

impl Group {
    /// An empty slot.
    pub const EMPTY: Group = Group {
        job: None,
        tag: 0,
        need: 0,
        fence: Fence::NONE,
        below: 0,
        above: false,
        meet: Meet::NONE,
        over: false,
    };

    /// Whether it is still waited for, by a rank of that job where one is named.
    fn is_open(&self) -> bool {
        self.job.is_some() && !self.over
    }

    fn is_complete(&self) -> bool {
        self.is_open() && self.meet.is_complete(self.fence.arrived, self.need, self.below)
    }
}

/// Where a rank is that a group may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// On this node.
    Here,
    /// Below this node, over the link with that bit.
    Below(u64),
    /// Elsewhere, dead or alive.
    Above,
    /// Here or below, but it will not arrive any more. The job goes on without it.
    Gone,
}

/// All group barriers of a server. Each has two sets of ranks: members, and those arrived.
#[derive(Debug)]
pub struct Groups<'s> {
    slots: &'s mut [Group],
    sets: &'s mut [u32],
    /// Words of one set.
    words: usize,
}

impl<'s> Groups<'s> {
    /// Words of sets that `groups` groups among `ranks` ranks need: two sets each, and one for a candidate.
    pub const fn words(groups: u32, ranks: u32) -> usize {
        (2 * groups as usize + 1) * bits::words(ranks)
    }

    /// No groups yet, over lent memory; nothing when `sets` is shorter than [`Groups::words`].
    pub fn new(slots: &'s mut [Group], sets: &'s mut [u32], ranks: u32) -> Option<Groups<'s>> {
        let need = Groups::words(slots.len() as u32, ranks);
        let sets = sets.get_mut(..need)?;
        slots.fill(Group::default());
        Some(Groups { slots, sets, words: bits::words(ranks) })
    }

    /// Counts `rank` into the barrier of these members with this tag, which begins with its first arrival; which
    /// group that is.
    ///
    /// `way` says where a rank is.
    ///
    /// # Errors
    /// [`Refusal::BadGroup`] when a member is not a rank of the job or `rank` is not a member,
    /// [`Refusal::InFence`] when it has arrived already, [`Refusal::Full`] when there are too many groups.
    /// Nothing is changed then.
    #[allow(clippy::too_many_arguments, reason = "one call, all of it the question")]
    pub fn arrive(
        &mut self,
        job: JobId,
        size: u32,
        members: impl Iterator<Item = u32>,
        tag: u32,
        rank: u32,
        way: impl Fn(u32) -> Way,
        now: Time,
    ) -> Result<u32, Refusal> {
        self.consider(size, members)?;
        if !bits::contains(self.candidate(), rank) {
            return Err(Refusal::BadGroup);
        }
        let at = match self.find(job, tag) {
            Some(at) if bits::contains(self.set(at, 1), rank) => return Err(Refusal::InFence),
            Some(at) => at,
            None => self.start(job, tag, way)?,
        };
        bits::insert(self.set_mut(at, 1), rank);
        self.slots[at].fence.arrive(now);
        Ok(at as u32)
    }

    /// Notes that all members below a link have arrived; which group that is.
    ///
    /// # Errors
    /// As of [`Groups::arrive`]. Nothing is changed then.
    pub fn arrive_below(
        &mut self,
        job: JobId,
        size: u32,
        members: impl Iterator<Item = u32>,
        tag: u32,
        link: u64,
        way: impl Fn(u32) -> Way,
    ) -> Result<u32, Refusal> {
        self.consider(size, members)?;
        let at = match self.find(job, tag) {
            Some(at) if self.slots[at].meet.below & link != 0 => return Err(Refusal::InFence),
            Some(at) => at,
            None => self.start(job, tag, way)?,
        };
        self.slots[at].meet.below |= link;
        Ok(at as u32)
    }

    /// The group of these members that waits for its release.
    ///
    /// # Errors
    /// [`Refusal::BadGroup`] when there is none.
    pub fn awaited(
        &mut self,
        job: JobId,
        size: u32,
        members: impl Iterator<Item = u32>,
        tag: u32,
    ) -> Result<u32, Refusal> {
        self.consider(size, members)?;
        let at = self.find(job, tag).filter(|&at| self.slots[at].meet.up == Up::Said);
        at.map(|at| at as u32).ok_or(Refusal::BadGroup)
    }

    /// Makes these ranks the candidate.
    fn consider(&mut self, size: u32, members: impl Iterator<Item = u32>) -> Result<(), Refusal> {
        self.candidate().fill(0);
        for member in members {
            if member >= size {
                return Err(Refusal::BadGroup);
            }
            bits::insert(self.candidate(), member);
        }
        Ok(())
    }

    fn find(&self, job: JobId, tag: u32) -> Option<usize> {
        let candidate = &self.sets[..self.words];
        (0..self.slots.len()).find(|&at| {
            let slot = &self.slots[at];
            slot.is_open() && slot.job == Some(job) && slot.tag == tag && self.set(at, 0) == candidate
        })
    }

    fn start(&mut self, job: JobId, tag: u32, way: impl Fn(u32) -> Way) -> Result<usize, Refusal> {
        let full = Refusal::Full(Limit::Groups, self.slots.len() as u32);
        let at = self.slots.iter().position(|slot| slot.job.is_none()).ok_or(full)?;
        let (candidate, sets) = self.sets.split_at_mut(self.words);
        let (members, arrived) = sets[2 * at * self.words..][..2 * self.words].split_at_mut(self.words);
        members.copy_from_slice(candidate);
        arrived.fill(0);
        self.slots[at] = Group { job: Some(job), tag, ..Group::default() };
        self.count(at, way);
        Ok(at)
    }

    /// Counts what a group waits for: members that have arrived here, and those that still may, anywhere.
    fn count(&mut self, at: usize, way: impl Fn(u32) -> Way) {
        let (mut need, mut below, mut above) = (0, 0, false);
        for member in bits::iter(self.set(at, 0)) {
            match way(member) {
                Way::Here => need += 1,
                Way::Gone => need += u32::from(bits::contains(self.set(at, 1), member)),
                Way::Below(link) => below |= link,
                Way::Above => above = true,
            }
        }
        let slot = &mut self.slots[at];
        (slot.need, slot.below, slot.above) = (need, below, above);
    }

    /// The group at a number that [`Groups::arrive`] gave.
    pub fn get(&self, at: u32) -> Option<&Group> {
        self.slots.get(at as usize).filter(|slot| slot.job.is_some())
    }

    /// Its members that have not arrived, smallest first.
    pub fn missing(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let arrived = self.set(at as usize, 1);
        bits::iter(self.set(at as usize, 0)).filter(|&member| !bits::contains(arrived, member))
    }

    /// A rank of the job will arrive no more: groups do not wait for it any longer.
    pub fn bury(&mut self, job: JobId, rank: u32, way: impl Fn(u32) -> Way) {
        for at in 0..self.slots.len() {
            if self.slots[at].is_open()
                && self.slots[at].job == Some(job)
                && bits::contains(self.set(at, 0), rank)
            {
                self.count(at, &way);
            }
        }
    }

    /// Whether everybody a group waits for at and below this node is there.
    pub fn is_complete(&self, at: u32) -> bool {
        self.get(at).is_some_and(Group::is_complete)
    }

    /// A group of the job whose barrier is complete at and below this node.
    pub fn complete(&self, job: JobId) -> Option<u32> {
        let complete = |slot: &Group| slot.job == Some(job) && slot.is_complete();
        (0u32..).zip(&*self.slots).find_map(|(at, slot)| complete(slot).then_some(at))
    }

    /// The group whose news is due next on a link, and how much of the log goes before it.
    pub fn due(&self, link: u64, parent: bool) -> Option<(u32, u32)> {
        let due = |(at, slot): (u32, &Group)| Some((slot.meet.due(link, parent)?, at));
        let first = (0u32..).zip(&*self.slots).filter(|(_, slot)| slot.job.is_some()).filter_map(due).min();
        first.map(|(log, at)| (at, log))
    }

    /// A group's members, as a set.
    pub fn members(&self, at: u32) -> &[u32] {
        self.set(at as usize, 0)
    }

    /// What other nodes have to do with a group.
    pub fn meet_mut(&mut self, at: u32) -> Option<&mut Meet> {
        self.slots.get_mut(at as usize).map(|slot| &mut slot.meet)
    }

    /// Lets a group's members go: `log` is how much of it the children get before they are told.
    pub fn release(&mut self, at: u32, log: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        slot.meet.down = slot.meet.below;
        slot.meet.down_at = log;
        slot.fence = Fence::default();
        slot.over = true;
        self.tidy(at);
    }

    /// Frees the slot of a group that is over, once every child has been told.
    pub fn tidy(&mut self, at: u32) {
        let done = |slot: &&mut Group| slot.over && slot.meet.down == 0;
        if let Some(slot) = self.slots.get_mut(at as usize).filter(done) {
            *slot = Group::default();
        }
    }

    /// Whether a rank is among the members of a group.
    pub fn has_member(&self, at: u32, rank: u32) -> bool {
        bits::contains(self.set(at as usize, 0), rank)
    }

    /// A group of the job that waits for a rank for which `absent` holds, and that rank.
    pub fn waits_for(&self, job: JobId, absent: impl Fn(u32) -> bool) -> Option<u32> {
        (0..self.slots.len() as u32)
            .filter(|&at| self.slots[at as usize].is_open() && self.slots[at as usize].job == Some(job))
            .find_map(|at| self.missing(at).find(|&rank| absent(rank)))
    }

    /// Notes every group's lateness; when the next one will be late. `limit` gives a job's patience in
    /// milliseconds.
    pub fn check(&mut self, now: Time, limit: impl Fn(JobId) -> u64) -> Option<Time> {
        let waiting = self.slots.iter_mut().filter_map(|slot| slot.job.map(|job| (job, slot)));
        waiting.filter_map(|(job, slot)| slot.fence.check(now, limit(job))).min()
    }

    /// A group that is late without the host's knowing; from now on it knows.
    pub fn say_late(&mut self) -> Option<u32> {
        let at = self.slots.iter().position(|slot| slot.fence.late == Late::Unsaid)?;
        self.slots[at].fence.late = Late::Said;
        Some(at as u32)
    }

    /// Ends all barriers of a job.
    pub fn forget(&mut self, job: JobId) {
        self.slots.iter_mut().filter(|slot| slot.job == Some(job)).for_each(|slot| *slot = Group::default());
    }

    /// The slots and their sets, for saving.
    pub fn state(&self) -> (&[Group], &[u32]) {
        // The candidate is scratch space.
        (self.slots, &self.sets[self.words..])
    }

    /// The same, for filling in what was saved.
    pub fn state_mut(&mut self) -> (&mut [Group], &mut [u32]) {
        (self.slots, &mut self.sets[self.words..])
    }

    /// Whether a group could have come to be so: its job has `size` ranks, and nobody waits for `buried` ones.
    pub fn is_sound(&self, at: u32, size: u32, buried: impl Fn(u32) -> bool) -> bool {
        let (members, arrived) = (self.set(at as usize, 0), self.set(at as usize, 1));
        let joined = |rank: u32| bits::contains(arrived, rank);
        self.get(at).is_some_and(|slot| {
            slot.meet.is_of_one_node()
                && (slot.below, slot.above, slot.over) == (0, false, false)
                && bits::iter(members).all(|member| member < size)
                && bits::iter(arrived).all(|rank| bits::contains(members, rank))
                && slot.fence.arrived == bits::count(arrived)
                && slot.need as usize == bits::iter(members).filter(|&it| joined(it) || !buried(it)).count()
        })
    }

    /// Whether a rank waits in a group.
    pub fn has_arrived(&self, at: u32, rank: u32) -> bool {
        self.get(at).is_some() && bits::contains(self.set(at as usize, 1), rank)
    }

    fn candidate(&mut self) -> &mut [u32] {
        &mut self.sets[..self.words]
    }

    /// Set 0 of a slot holds its members, set 1 those that have arrived.
    fn set(&self, at: usize, which: usize) -> &[u32] {
        &self.sets[(1 + 2 * at + which) * self.words..][..self.words]
    }

    fn set_mut(&mut self, at: usize, which: usize) -> &mut [u32] {
        &mut self.sets[(1 + 2 * at + which) * self.words..][..self.words]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const JOB: JobId = JobId(0);

    fn arrive(groups: &mut Groups<'_>, members: &[u32], tag: u32, rank: u32) -> Result<u32, Refusal> {
        groups.arrive(JOB, 8, members.iter().copied(), tag, rank, |_| Way::Here, Time(0))
    }

    #[test]
    fn groups_are_told_apart_by_members_and_tag() {
        let (mut slots, mut sets) = ([Group::default(); 3], [0; 7]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        let first = arrive(&mut groups, &[0, 1], 0, 0).unwrap();
        let tagged = arrive(&mut groups, &[0, 1], 1, 0).unwrap();
        let wider = arrive(&mut groups, &[0, 1, 2], 0, 0).unwrap();
        assert!(first != tagged && first != wider && !groups.is_complete(first));
        assert_eq!(arrive(&mut groups, &[5, 6], 0, 5), Err(Refusal::Full(Limit::Groups, 3)));
        assert_eq!(arrive(&mut groups, &[1, 0], 0, 0), Err(Refusal::InFence));
        assert_eq!(arrive(&mut groups, &[1, 0], 0, 1), Ok(first));
        assert!(groups.is_complete(first) && !groups.is_complete(wider));
        groups.release(first, 0);
        assert_eq!(arrive(&mut groups, &[3], 9, 3), Ok(first), "its place is free again");
        assert!(groups.is_complete(first));
    }

    #[test]
    fn malformed_groups_are_refused() {
        let (mut slots, mut sets) = ([Group::default(); 1], [0; 3]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        assert_eq!(arrive(&mut groups, &[0, 8], 0, 0), Err(Refusal::BadGroup));
        assert_eq!(arrive(&mut groups, &[1], 0, 0), Err(Refusal::BadGroup));
        assert_eq!(groups.get(0), None);
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let (mut slots, mut sets) = ([Group::default(); 2], [0; 5]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        arrive(&mut groups, &[0, 1, 2], 0, 0).unwrap();
        let gone = |gone: u32| move |rank: u32| if rank == 1 || rank == gone { Way::Gone } else { Way::Here };
        groups.bury(JOB, 1, gone(1));
        assert_eq!(groups.complete(JOB), None);
        assert_eq!(groups.missing(0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(groups.waits_for(JOB, |rank| rank == 2), Some(2));
        groups.bury(JOB, 2, gone(2));
        assert_eq!(groups.complete(JOB), Some(0));
        let later = groups
            .arrive(JOB, 8, 3..6, 0, 3, |rank| if rank > 3 { Way::Gone } else { Way::Here }, Time(0))
            .unwrap();
        assert!(groups.is_complete(later));
    }

    #[test]
    fn members_elsewhere_are_waited_for_by_their_links() {
        let (mut slots, mut sets) = ([Group::default(); 1], [0; 3]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        let way = |rank: u32| match rank {
            0 => Way::Here,
            1 | 2 => Way::Below(0b10),
            3 => Way::Below(0b100),
            _ => Way::Above,
        };
        let at = groups.arrive_below(JOB, 8, 0..5, 4, 0b10, way).unwrap();
        assert_eq!(groups.arrive_below(JOB, 8, 0..5, 4, 0b10, way), Err(Refusal::InFence));
        assert_eq!(groups.arrive(JOB, 8, 0..5, 4, 0, way, Time(0)), Ok(at));
        assert_eq!(groups.complete(JOB), None);
        let dead = |rank: u32| if rank == 3 { Way::Gone } else { way(rank) };
        groups.bury(JOB, 3, dead);
        assert_eq!((groups.complete(JOB), groups.get(at).unwrap().above), (Some(at), true));
        assert_eq!(groups.awaited(JOB, 8, 0..5, 4), Err(Refusal::BadGroup), "the parent does not know yet");
        groups.meet_mut(at).unwrap().up = Up::Unsaid(40);
        assert_eq!((groups.due(1, true), groups.due(0b10, false)), (Some((at, 40)), None));
        groups.meet_mut(at).unwrap().said(1, true);
        assert_eq!(groups.awaited(JOB, 8, 0..5, 4), Ok(at));
        groups.release(at, 50);
        assert_eq!((groups.due(1, true), groups.due(0b10, false)), (None, Some((at, 50))));
        groups.meet_mut(at).unwrap().said(0b10, false);
        groups.tidy(at);
        assert_eq!(groups.get(at), None);
    }

    #[test]
    fn lateness_is_said_once() {
        let mut fence = Fence::default();
        assert_eq!(fence.check(Time(99), 10), None);
        assert!(fence.arrive(Time(5)) && !fence.arrive(Time(7)));
        assert_eq!(fence.check(Time(14), 10), Some(Time(15)));
        assert_eq!((fence.check(Time(15), 10), fence.late), (None, Late::Unsaid));
        fence.late = Late::Said;
        assert_eq!((fence.check(Time(99), 10), fence.late), (None, Late::Said));
    }
}
