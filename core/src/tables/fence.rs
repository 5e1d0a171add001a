//! Fences of whole jobs, and collectives of groups of ranks.
//!
//! A job's own fence is a [`Fence`] in the job's slot. Those of groups are [`Groups`], which also store the members, as
//! numbers of rank slots. A group may have members of several jobs.
//! Both count arrivals. The server checks which ranks may arrive, and sends the releases.

use core::ops::Range;

use serde::{Deserialize, Serialize};

use super::link_set::LinkSet;
use crate::fault::Refusal;
use crate::ids::JobId;
use crate::limits::Limit;
use crate::store::{Slots, bits};
use crate::tables::tracker::{Due, FanIn, Tracker};
use crate::time::Time;

/// Fence in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fence {
    /// Number of ranks that have arrived. Zero means that no rank waits.
    pub(crate) arrived: u32,
    /// Time of the first arrival.
    pub(crate) since: Time,
    /// State of the stall warning.
    pub(crate) stall: Stall,
    /// The earliest time-out of the ranks that have arrived.
    pub(crate) until: Option<Time>,
}

/// State of the stall warning of a fence that waits for longer than the job's limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stall {
    /// The limit has not passed.
    #[default]
    No,
    /// The limit has passed, and the report is pending.
    Pending,
    /// The host has got the report.
    Reported,
}

impl Fence {
    /// No rank has arrived.
    pub(crate) const NONE: Fence = Fence { arrived: 0, since: Time(0), stall: Stall::No, until: None };

    /// Counts an arrival. Returns whether it was the first.
    pub(crate) fn arrive(&mut self, now: Time) -> bool {
        let first = self.arrived == 0;
        if first {
            *self = Fence { since: now, ..Fence::NONE };
        }
        self.arrived += 1;
        first
    }

    /// Limits the wait of a rank that has arrived.
    #[cfg(feature = "pmix")]
    pub(crate) fn limit(&mut self, until: Time) {
        self.until = Some(self.until.map_or(until, |other| other.min(until)));
    }

    /// Returns whether a time-out has passed, and forgets it then.
    pub(crate) fn has_expired(&mut self, now: Time) -> bool {
        let expired = self.arrived > 0 && self.until.is_some_and(|until| until <= now);
        if expired {
            self.until = None;
        }
        expired
    }

    /// Marks the fence as stalled if it waits for `limit` milliseconds or more. Returns when it will be, or when its time-out
    /// passes.
    pub(crate) fn check(&mut self, now: Time, limit: u64) -> Option<Time> {
        if self.arrived == 0 {
            return None;
        }
        if limit > 0 && self.stall == Stall::No {
            let due = self.since.after(limit);
            if due > now {
                return Some(self.until.map_or(due, |until| until.min(due)));
            }
            self.stall = Stall::Pending;
        }
        self.until
    }
}

/// Collective of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupKind {
    /// Group barrier of PMI-1.
    #[default]
    Barrier,
    /// Fence of PMIx.
    Fence,
    /// Connection of the members' jobs by PMIx.
    Connect,
    /// Disconnection of the members' jobs by PMIx.
    Disconnect,
    /// Construction of a PMIx group.
    Construct,
    /// Destruction of a PMIx group.
    Destruct,
}

/// Slot of a collective of a group of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Job of a member. `None` marks a free slot.
    pub(crate) job: Option<JobId>,
    /// Its kind.
    pub(crate) kind: GroupKind,
    /// Tag of a PMI client, or hash of a PMIx group's name. It distinguishes collectives of the same members.
    pub(crate) tag: u32,
    /// Number of local arrivals needed.
    pub(crate) needed: u32,
    /// Local arrivals so far.
    pub(crate) fence: Fence,
    /// Links to children that have members.
    pub(crate) children: LinkSet,
    /// Whether it has members outside this subtree, dead or alive, so that the parent takes part.
    pub(crate) has_others: bool,
    /// Whether a rank of this node has named the members one by one in a fence without data.
    pub(crate) parts: bool,
    /// Progress on other nodes.
    pub(crate) tracker: Tracker,
    /// Whether the collective is complete, or has ended by a time-out. The slot stays in use until all children know.
    pub(crate) released: bool,
    /// Outcome of a complete PMIx collective: the context id of a new group, or 1. 0 if it has failed.
    pub(crate) outcome: u32,
}

impl Group {
    /// Unused slot.
    pub(crate) const EMPTY: Group = Group {
        job: None,
        kind: GroupKind::Barrier,
        tag: 0,
        needed: 0,
        fence: Fence::NONE,
        children: LinkSet::EMPTY,
        has_others: false,
        parts: false,
        tracker: Tracker::NONE,
        released: false,
        outcome: 0,
    };

    /// Returns whether ranks still wait.
    pub(crate) fn is_open(&self) -> bool {
        self.job.is_some() && !self.released
    }

    /// Returns whether the parent's release is due.
    pub(crate) fn awaits_release(&self) -> bool {
        self.is_open() && self.tracker.fan_in == FanIn::Sent
    }

    fn is_complete(&self) -> bool {
        self.is_open() && self.tracker.is_complete(self.fence.arrived, self.needed, &self.children)
    }
}

/// Route of a rank's arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The rank is on this node.
    Local,
    /// The rank is below this node. Its arrival comes over the link with this index.
    Child(usize),
    /// The rank is outside this subtree, dead or alive.
    Parent,
    /// The rank is in this subtree and has exited in a job that continues. No collective waits for it.
    Excluded,
}

/// Function that returns the route of the rank in a slot.
pub(crate) type Way<'w> = &'w dyn Fn(u32) -> Route;

/// Groups of a server. Each has two sets of rank slots: members, and arrived ranks.
#[derive(Debug)]
pub(crate) struct Groups<'s> {
    slots: Slots<'s, Group>,
    sets: &'s mut [u32],
    /// Number of words of one set.
    words: usize,
}

impl<'s> Groups<'s> {
    /// Returns the number of words that `groups` groups of at most `ranks` ranks need: two sets each, and one for a
    /// candidate.
    pub(crate) const fn words(groups: u32, ranks: u32) -> u64 {
        (2 * groups as u64 + 1) * bits::words(ranks) as u64
    }

    /// Creates a table in unused slots. Returns `None` if `sets` is shorter than [`Groups::words`].
    pub(crate) fn new(slots: &'s mut [Group], sets: &'s mut [u32], ranks: u32) -> Option<Groups<'s>> {
        let need = Groups::words(slots.len() as u32, ranks);
        let sets = sets.get_mut(..need as usize)?;
        Some(Groups { slots: Slots::new(slots), sets, words: bits::words(ranks) })
    }

    /// Stores members as the candidate set, which the next call is about. A list may name a rank twice. It is refused once it has
    /// named more ranks than there are, because a short message can name all ranks of a job many times.
    ///
    /// # Errors
    /// [`Refusal::BadGroup`] when a member is `None`.
    pub(crate) fn consider(&mut self, members: impl Iterator<Item = Option<usize>>) -> Result<(), Refusal> {
        self.candidate().fill(0);
        let mut room = self.words * u32::BITS as usize;
        for member in members {
            let member = member.filter(|_| room > 0).ok_or(Refusal::BadGroup)?;
            room -= 1;
            bits::insert(self.candidate(), member as u32);
        }
        Ok(())
    }

    /// Returns the members considered.
    #[cfg(feature = "pmix")]
    pub(crate) fn considered(&self) -> impl Iterator<Item = u32> + '_ {
        bits::iter(&self.sets[..self.words])
    }

    /// Counts the arrival of a rank of `job` in the collective of the members [considered](Groups::consider), of this kind and
    /// with this tag. The collective begins with its first arrival. Returns the group.
    ///
    /// `way` returns the route of a rank.
    ///
    /// # Errors
    /// [`Refusal::BadGroup`] when the rank is not a member, [`Refusal::InFence`] when it has arrived already, [`Refusal::Full`]
    /// when there are too many groups. Nothing is changed then.
    pub(crate) fn arrive(
        &mut self,
        (job, slot): (JobId, u32),
        what: (GroupKind, u32),
        way: Way<'_>,
        now: Time,
    ) -> Result<u32, Refusal> {
        if !bits::contains(self.candidate(), slot) {
            return Err(Refusal::BadGroup);
        }
        let at = match self.find(what, &Group::is_open) {
            Some(at) if bits::contains(self.set(at as usize, 1), slot) => return Err(Refusal::InFence),
            Some(at) => at,
            None => self.start(job, what, way)?,
        };
        bits::insert(self.set_mut(at as usize, 1), slot);
        self.slots[at as usize].fence.arrive(now);
        Ok(at)
    }

    /// Counts the arrival of all members considered that are below `link`. Returns the group.
    ///
    /// # Errors
    /// As of [`Groups::arrive`]. Nothing is changed then.
    pub(crate) fn arrive_below(
        &mut self,
        (job, link): (JobId, usize),
        what: (GroupKind, u32),
        way: Way<'_>,
    ) -> Result<u32, Refusal> {
        let at = self.place(job, what, way)?;
        let tracker = &mut self.slots[at as usize].tracker;
        if tracker.arrived.contains(link) {
            return Err(Refusal::InFence);
        }
        tracker.arrived.insert(link);
        Ok(at)
    }

    /// Returns the open group of the members considered, which is begun if there is none.
    ///
    /// # Errors
    /// As of [`Groups::arrive`]. Nothing is changed then.
    pub(crate) fn place(&mut self, job: JobId, what: (GroupKind, u32), way: Way<'_>) -> Result<u32, Refusal> {
        self.find(what, &Group::is_open).map_or_else(|| self.start(job, what, way), Ok)
    }

    /// Notes that the jobs of a group need not fail together after it if a rank of this node `parts` from the others.
    #[cfg(feature = "pmix")]
    pub(crate) fn part(&mut self, at: u32, parts: bool) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.parts |= parts;
        }
    }

    /// Lets records travel with a group if a part of it `collects`.
    pub(crate) fn collect(&mut self, at: u32, collects: bool) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.tracker.collects |= collects;
        }
    }

    /// Limits the wait of a rank that has arrived in a group.
    #[cfg(feature = "pmix")]
    pub(crate) fn limit(&mut self, at: u32, until: Time) {
        if let Some(slot) = self.slots.get_mut(at as usize) {
            slot.fence.limit(until);
        }
    }

    /// Returns the group of the members considered for which `is` holds.
    pub(crate) fn find(&self, what: (GroupKind, u32), is: &dyn Fn(&Group) -> bool) -> Option<u32> {
        let candidate = &self.sets[..self.words];
        let found = (0..self.slots.len()).find(|&at| {
            let slot = &self.slots[at];
            is(slot) && (slot.kind, slot.tag) == what && self.set(at, 0) == candidate
        });
        found.map(|at| at as u32)
    }

    fn start(&mut self, job: JobId, (kind, tag): (GroupKind, u32), way: Way<'_>) -> Result<u32, Refusal> {
        let full = Refusal::Full(Limit::Groups, self.slots.all().len() as u32);
        let at = self.slots.first_free(|slot| slot.job.is_none()).ok_or(full)?;
        let (candidate, sets) = self.sets.split_at_mut(self.words);
        let (members, arrived) = sets[2 * at * self.words..][..2 * self.words].split_at_mut(self.words);
        members.copy_from_slice(candidate);
        arrived.fill(0);
        self.slots.set(at, Group { job: Some(job), kind, tag, ..Group::EMPTY });
        self.count(at, way);
        Ok(at as u32)
    }

    /// Determines the arrivals that a group needs: local members, except excluded ones that have not arrived, children
    /// with members, and the parent if there are others.
    fn count(&mut self, at: usize, way: Way<'_>) {
        let needs = self.needs(at, way);
        let slot = &mut self.slots[at];
        (slot.needed, slot.children, slot.has_others) = needs;
    }

    fn needs(&self, at: usize, way: Way<'_>) -> (u32, LinkSet, bool) {
        let (mut needed, mut below, mut above) = (0, LinkSet::EMPTY, false);
        for member in bits::iter(self.set(at, 0)) {
            match way(member) {
                Route::Local => needed += 1,
                Route::Excluded => needed += u32::from(bits::contains(self.set(at, 1), member)),
                Route::Child(link) => below.insert(link),
                Route::Parent => above = true,
            }
        }
        (needed, below, above)
    }

    /// Returns the group with an index from [`Groups::arrive`].
    pub(crate) fn get(&self, at: u32) -> Option<&Group> {
        self.slots.get(at as usize).filter(|slot| slot.job.is_some())
    }

    /// Returns the members that have not arrived, in ascending order.
    pub(crate) fn missing(&self, at: u32) -> impl Iterator<Item = u32> + '_ {
        let arrived = self.set(at as usize, 1);
        bits::iter(self.set(at as usize, 0)).filter(|&member| !bits::contains(arrived, member))
    }

    /// Excludes a rank that has exited. Groups do not wait for it.
    pub(crate) fn exclude(&mut self, slot: u32, way: Way<'_>) {
        for at in 0..self.slots.len() {
            if self.slots[at].is_open() && bits::contains(self.set(at, 0), slot) {
                self.count(at, way);
            }
        }
    }

    /// Forgets a child that is lost, and counts the arrivals that open groups need. The ranks below it are excluded. Groups
    /// without a member that is left in this subtree end here.
    #[cfg(feature = "cluster")]
    pub(crate) fn lose_link(&mut self, link: Option<usize>, way: Way<'_>) {
        for at in 0..self.slots.len() {
            link.into_iter().for_each(|link| self.slots[at].tracker.forget(link));
            if self.slots[at].is_open() {
                self.count(at, way);
                if self.slots[at].needed == 0 && self.slots[at].children.is_empty() {
                    self.slots[at] = Group::EMPTY;
                }
            }
            self.free_if_sent(at as u32);
        }
    }

    /// Returns whether a group is complete in this subtree.
    pub(crate) fn is_complete(&self, at: u32) -> bool {
        self.get(at).is_some_and(Group::is_complete)
    }

    /// Returns a group that is complete in this subtree, with the job of a member.
    pub(crate) fn complete(&self) -> Option<(JobId, u32)> {
        (0u32..).zip(&*self.slots).find_map(|(at, slot)| Some((slot.job.filter(|_| slot.is_complete())?, at)))
    }

    /// Returns the group whose message for `link` comes next, and the message.
    pub(crate) fn next_pending(&self, link: usize, parent: bool) -> Option<(u32, Due)> {
        let due = |(at, slot): (u32, &Group)| Some((slot.tracker.pending(link, parent)?, at));
        let first = (0u32..).zip(&*self.slots).filter(|(_, slot)| slot.job.is_some()).filter_map(due).min();
        first.map(|(due, at)| (at, due))
    }

    /// Returns the progress of a group on other nodes.
    pub(crate) fn tracker_mut(&mut self, at: u32) -> Option<&mut Tracker> {
        self.slots.get_mut(at as usize).map(|slot| &mut slot.tracker)
    }

    /// Notes the members that are lost to the construction or destruction of a PMIx group, which is complete.
    #[cfg(feature = "pmix")]
    pub(crate) fn lose(&mut self, at: u32, lost: impl Iterator<Item = Option<usize>>) {
        if self.get(at).is_none_or(|group| !matches!(group.kind, GroupKind::Construct | GroupKind::Destruct))
        {
            return;
        }
        self.set_mut(at as usize, 1).fill(0);
        for slot in lost.flatten() {
            if self.has_member(at, slot as u32) {
                bits::insert(self.set_mut(at as usize, 1), slot as u32);
            }
        }
    }

    /// Returns whether a member is lost to a group whose outcome is known.
    pub(crate) fn is_lost(&self, at: u32, slot: u32) -> bool {
        let may_lose = |group: &Group| matches!(group.kind, GroupKind::Construct | GroupKind::Destruct);
        self.get(at).is_some_and(may_lose) && bits::contains(self.set(at as usize, 1), slot)
    }

    /// Releases a group. Children receive `log` bytes of the log before the release.
    pub(crate) fn release(&mut self, at: u32, outcome: u32, log: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else { return };
        slot.outcome = outcome;
        slot.tracker.fan_out = slot.tracker.arrived;
        slot.tracker.fan_out_log = slot.tracker.preceding(log);
        slot.fence = Fence::default();
        slot.released = true;
        self.free_if_sent(at);
    }

    /// Ends a group by a time-out. Its slot stays in use until the children, of the `living` ones, have acknowledged
    /// the end.
    pub(crate) fn end(&mut self, at: u32, living: &LinkSet, told: bool) {
        let members = &self.sets[(1 + 2 * at as usize) * self.words..][..self.words];
        let Some(&Group { kind, tag, mut children, ref tracker, .. }) = self.slots.get(at as usize) else {
            return;
        };
        children.add(&tracker.arrived);
        children = children.common(living);
        for (other, slot) in self.slots.iter().enumerate() {
            let owing = &slot.tracker.owing;
            let is_same = (slot.kind, slot.tag) == (kind, tag) && self.set(other, 0) == members;
            if !owing.is_empty() && is_same {
                children = children.without(owing);
            }
        }
        let slot = &mut self.slots[at as usize];
        slot.tracker.end(&children, told);
        slot.fence = Fence::default();
        slot.released = true;
        self.free_if_sent(at);
    }

    /// Returns the groups that are open and whose time-out has passed.
    pub(crate) fn next_expired(&mut self, now: Time) -> Option<u32> {
        let expired = |slot: &mut Group| slot.is_open() && slot.fence.has_expired(now);
        self.slots.iter_mut().position(expired).map(|at| at as u32)
    }

    /// Frees the slot of a released group once all children have been told.
    pub(crate) fn free_if_sent(&mut self, at: u32) {
        let done = |slot: &&mut Group| slot.released && !slot.tracker.is_in_use();
        if let Some(slot) = self.slots.get_mut(at as usize).filter(done) {
            *slot = Group::EMPTY;
        }
    }

    /// Returns whether a rank is a member of a group.
    pub(crate) fn has_member(&self, at: u32, slot: u32) -> bool {
        bits::contains(self.set(at as usize, 0), slot)
    }

    /// Returns whether a group has a member in `slots`.
    pub(crate) fn has_member_in(&self, at: u32, slots: &Range<usize>) -> bool {
        slots.clone().any(|slot| self.has_member(at, slot as u32))
    }

    /// Returns a rank for which `absent` holds and for which a group waits.
    pub(crate) fn waiting_for(&self, absent: impl Fn(u32) -> bool) -> Option<u32> {
        (0..self.slots.len() as u32)
            .filter(|&at| self.slots[at as usize].is_open())
            .find_map(|at| self.missing(at).find(|&slot| absent(slot)))
    }

    /// Marks stalled groups. Returns when the next one will be stalled, or times out. `limit` gives the limit of a job in
    /// milliseconds.
    pub(crate) fn check(&mut self, now: Time, limit: impl Fn(JobId) -> u64) -> Option<Time> {
        let waiting = self.slots.iter_mut().filter_map(|slot| slot.job.map(|job| (job, slot)));
        waiting.filter_map(|(job, slot)| slot.fence.check(now, limit(job))).min()
    }

    /// Returns a stalled group that has not been reported, and marks it as reported.
    pub(crate) fn next_stalled(&mut self) -> Option<u32> {
        let at = self.slots.iter().position(|slot| slot.fence.stall == Stall::Pending)?;
        self.slots[at].fence.stall = Stall::Reported;
        Some(at as u32)
    }

    /// Drops all groups with members in `slots`.
    pub(crate) fn forget(&mut self, slots: &Range<usize>) {
        for at in 0..self.slots.len() {
            if self.slots[at].job.is_some() && self.has_member_in(at as u32, slots) {
                self.slots[at] = Group::EMPTY;
            }
        }
    }

    /// Returns the slots and their sets for a snapshot.
    pub(crate) fn state(&self) -> (&[Group], &[u32]) {
        // The candidate is scratch space.
        (self.slots.all(), &self.sets[self.words..])
    }

    /// Returns the slots and their sets for restoring a snapshot.
    pub(crate) fn state_mut(&mut self) -> (&mut [Group], &mut [u32]) {
        (self.slots.use_all(), &mut self.sets[self.words..])
    }

    /// Returns the groups' progress on other nodes.
    #[cfg(feature = "cluster")]
    pub(crate) fn trackers_mut(&mut self) -> impl Iterator<Item = &mut Tracker> {
        self.slots.iter_mut().map(|slot| &mut slot.tracker)
    }

    /// Returns whether a group read from a snapshot is consistent, beside its progress on other nodes. `is_rank` returns false
    /// for slots without a rank.
    pub(crate) fn is_sound(&self, at: u32, is_rank: impl Fn(u32) -> bool, way: Way<'_>) -> bool {
        let (members, arrived) = (self.set(at as usize, 0), self.set(at as usize, 1));
        self.get(at).is_some_and(|slot| {
            let counts = if slot.released {
                slot.fence == Fence::NONE && slot.tracker.is_in_use()
            } else {
                !slot.tracker.is_in_use()
                    && slot.fence.arrived == bits::count(arrived)
                    && (slot.needed, slot.children, slot.has_others) == self.needs(at as usize, way)
            };
            counts
                && bits::iter(members).all(is_rank)
                && bits::iter(arrived).all(|rank| bits::contains(members, rank))
        })
    }

    /// Returns whether a rank has arrived in a group.
    pub(crate) fn has_arrived(&self, at: u32, rank: u32) -> bool {
        self.get(at).is_some() && bits::contains(self.set(at as usize, 1), rank)
    }

    fn candidate(&mut self) -> &mut [u32] {
        &mut self.sets[..self.words]
    }

    /// Returns a set of a slot: its members if `which` is 0, those that have arrived if it is 1. Once the outcome of the
    /// construction or destruction of a PMIx group is known, the latter has the members that are [lost](Groups::lose).
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
    use crate::tables::tracker::Step;
    use std::vec::Vec;

    const JOB: JobId = JobId(0);

    fn arrive(groups: &mut Groups<'_>, members: &[u32], tag: u32, rank: u32) -> Result<u32, Refusal> {
        let members = members.iter().map(|&member| (member < 8).then_some(member as usize));
        groups.consider(members)?;
        groups.arrive((JOB, rank), (GroupKind::Barrier, tag), &|_| Route::Local, Time(0))
    }

    #[test]
    fn groups_are_told_apart_by_members_and_tag() {
        let (mut slots, mut sets) = ([Group::EMPTY; 3], [0; 7]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        let first = arrive(&mut groups, &[0, 1], 0, 0).unwrap();
        let tagged = arrive(&mut groups, &[0, 1], 1, 0).unwrap();
        let wider = arrive(&mut groups, &[0, 1, 2], 0, 0).unwrap();
        assert!(first != tagged && first != wider && !groups.is_complete(first));
        assert_eq!(arrive(&mut groups, &[5, 6], 0, 5), Err(Refusal::Full(Limit::Groups, 3)));
        assert_eq!(arrive(&mut groups, &[1, 0], 0, 0), Err(Refusal::InFence));
        assert_eq!(arrive(&mut groups, &[1, 0], 0, 1), Ok(first));
        assert!(groups.is_complete(first) && !groups.is_complete(wider));
        groups.release(first, 1, 0);
        assert_eq!(arrive(&mut groups, &[3], 9, 3), Ok(first), "its place is free again");
        assert!(groups.is_complete(first));
    }

    #[test]
    fn malformed_groups_are_refused() {
        let (mut slots, mut sets) = ([Group::EMPTY; 1], [0; 3]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        assert_eq!(arrive(&mut groups, &[0, 8], 0, 0), Err(Refusal::BadGroup));
        assert_eq!(arrive(&mut groups, &[1], 0, 0), Err(Refusal::BadGroup));
        assert_eq!(groups.get(0), None);
        let endless = (0..).map(|number: usize| Some(number % 2));
        assert_eq!(groups.consider(endless), Err(Refusal::BadGroup));
        assert_eq!(arrive(&mut groups, &[0, 1, 0, 1], 0, 0), Ok(0), "a rank may be named twice");
    }

    #[test]
    fn the_dead_are_not_waited_for() {
        let (mut slots, mut sets) = ([Group::EMPTY; 2], [0; 5]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        arrive(&mut groups, &[0, 1, 2], 0, 0).unwrap();
        let gone = |gone: u32| {
            move |rank: u32| if rank == 1 || rank == gone { Route::Excluded } else { Route::Local }
        };
        groups.exclude(1, &gone(1));
        assert_eq!(groups.complete(), None);
        assert_eq!(groups.missing(0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(groups.waiting_for(|rank| rank == 2), Some(2));
        groups.exclude(2, &gone(2));
        assert_eq!(groups.complete(), Some((JOB, 0)));
        let way = |rank| if rank > 3 { Route::Excluded } else { Route::Local };
        let what = (GroupKind::Barrier, 0);
        groups.consider((3..6).map(Some)).unwrap();
        let later = groups.arrive((JOB, 3), what, &way, Time(0)).unwrap();
        assert!(groups.is_complete(later));
    }

    #[test]
    fn members_elsewhere_are_waited_for_by_their_links() {
        let (mut slots, mut sets) = ([Group::EMPTY; 1], [0; 3]);
        let mut groups = Groups::new(&mut slots, &mut sets, 8).unwrap();
        let way = |rank: u32| match rank {
            0 => Route::Local,
            1 | 2 => Route::Child(1),
            3 => Route::Child(2),
            _ => Route::Parent,
        };
        let what = (GroupKind::Barrier, 4);
        groups.consider((0..5).map(Some)).unwrap();
        let at = groups.arrive_below((JOB, 1), what, &way).unwrap();
        groups.collect(at, true);
        assert_eq!(groups.arrive_below((JOB, 1), what, &way), Err(Refusal::InFence));
        assert_eq!(groups.arrive((JOB, 0), what, &way, Time(0)), Ok(at));
        assert_eq!(groups.complete(), None);
        let dead = |rank: u32| if rank == 3 { Route::Excluded } else { way(rank) };
        groups.exclude(3, &dead);
        assert_eq!((groups.complete(), groups.get(at).unwrap().has_others), (Some((JOB, at)), true));
        let awaiting = |groups: &Groups<'_>| groups.find(what, &Group::awaits_release);
        assert_eq!(awaiting(&groups), None, "the parent does not know yet");
        groups.tracker_mut(at).unwrap().fan_in = FanIn::Pending(40);
        assert_eq!(
            (groups.next_pending(0, true), groups.next_pending(1, false)),
            (Some((at, (Step::Regular, 40))), None)
        );
        groups.tracker_mut(at).unwrap().mark_sent(Step::Regular, 0, true);
        assert_eq!(awaiting(&groups), Some(at));
        groups.release(at, 1, 50);
        assert_eq!(
            (groups.next_pending(0, true), groups.next_pending(1, false)),
            (None, Some((at, (Step::Regular, 50))))
        );
        groups.tracker_mut(at).unwrap().mark_sent(Step::Regular, 1, false);
        groups.free_if_sent(at);
        assert_eq!(groups.get(at), None);
    }

    #[test]
    fn lateness_is_said_once() {
        let mut fence = Fence::default();
        assert_eq!(fence.check(Time(99), 10), None);
        assert!(fence.arrive(Time(5)) && !fence.arrive(Time(7)));
        assert_eq!(fence.check(Time(14), 10), Some(Time(15)));
        assert_eq!((fence.check(Time(15), 10), fence.stall), (None, Stall::Pending));
        fence.stall = Stall::Reported;
        assert_eq!((fence.check(Time(99), 10), fence.stall), (None, Stall::Reported));
    }
}
