//! Fences, group barriers and rings: who waits for whom.

use super::Server;
use super::dispatch::Asker;
use crate::fault::Refusal;
use crate::ids::{JobId, Rank};
use crate::peer::links::Links;
use crate::peer::message::Meeting;
use crate::state::{Answer, Job, RankSlot, RingPart, What};
use crate::tables::fence::{Fence, Way};
use crate::tables::kvs::Kind;
use crate::time::Time;
use crate::trace::{Cause, event};
use crate::wire::{Group, Members, Op, Text};

impl Server<'_> {
    #[inline]
    pub(super) fn fence(&mut self, now: Time, asker: Asker) -> Result<What, Refusal> {
        self.alive(asker)?;
        let RankSlot { in_fence, .. } = &mut self.ranks[asker.index];
        if core::mem::replace(in_fence, true) {
            return Err(Refusal::InFence);
        }
        self.jobs[asker.job.index()].fence.arrive(now);
        Ok(What::Fence)
    }

    pub(super) fn group_fence(
        &mut self,
        now: Time,
        asker: Asker,
        group: &Group<'_>,
    ) -> Result<What, Refusal> {
        self.alive(asker)?;
        let Server { jobs, ranks, links, groups, .. } = self;
        let state = &jobs[asker.job.index()];
        let way = |rank: u32| way(state, ranks, links, rank);
        let here = |&rank: &u32| ranks[state.slots()][rank as usize].node == links.node();
        let (job, size, tag, rank) = (asker.job, state.size, group.tag, asker.rank.0);
        let group = match group.members {
            Members::World => groups.arrive(job, size, 0..size, tag, rank, way, now)?,
            Members::Node => groups.arrive(job, size, (0..size).filter(here), tag, rank, way, now)?,
            Members::Ranks(list) => groups.arrive(job, size, list.iter(), tag, rank, way, now)?,
        };
        Ok(What::GroupFence { group, tag })
    }

    /// A rank's part of a ring (pmi2.h, `PMIX_Ring`): a count, and texts for its neighbours.
    pub(super) fn ring(
        &mut self,
        asker: Asker,
        count: u32,
        left: Text<'_>,
        right: Text<'_>,
    ) -> Result<What, Refusal> {
        self.alive(asker)?;
        if self.ranks[asker.index].ring.is_some() {
            return Err(Refusal::InFence);
        }
        let rank = asker.rank.0.to_le_bytes();
        let key = |side: u8| [rank[0], rank[1], rank[2], rank[3], side];
        let (left_key, right_key) = (key(b'l'), key(b'r'));
        // Both texts are kept, or none.
        let same = left == right;
        let count_key = key(super::peers::RING_COUNT);
        let [a, b, c, d] = count.to_le_bytes();
        let counted = [a, b, c, d, u8::from(same)];
        // What it counts for is kept in its slot, and for other nodes with the texts.
        let pairs = [
            Some((&left_key[..], left.len())),
            (!same).then_some((&right_key[..], right.len())),
            self.links.are_any().then_some((&count_key[..], counted.len())),
        ];
        let pairs = pairs.into_iter().flatten();
        let job = &self.jobs[asker.job.index()];
        self.kvs.room((job.spaces, Kind::Ring), self.ranks[asker.index].used, job.share, pairs)?;
        let mut keep = |key: &[u8], text| {
            self.store(asker, Kind::Ring, Text::plain(key), Some(text)).map(|(record, _)| record)
        };
        let to_left = keep(&left_key, left)?;
        let to_right = if same { to_left } else { keep(&right_key, right)? };
        if self.links.are_any() {
            self.store(asker, Kind::Ring, Text::plain(&count_key), Some(Text::plain(&counted)))?;
        }
        self.ranks[asker.index].ring = Some(RingPart { count, left: to_left, right: to_right });
        self.jobs[asker.job.index()].ring += 1;
        Ok(What::Ring)
    }

    /// Closes the ring when everybody it waits for is there.
    pub(super) fn check_ring(&mut self, job: JobId) {
        let state = &self.jobs[job.index()];
        let here = state.local - state.unawaited;
        if state.ring_meet.is_complete(state.ring, here, state.below) && self.climb(job, Meeting::Ring, None)
        {
            self.release_ring(job);
        }
    }

    /// The ring is closed: each rank gets the counts below it and what its neighbours hold for it.
    pub(super) fn release_ring(&mut self, job: JobId) {
        self.descend(job, Meeting::Ring);
        let state = &self.jobs[job.index()];
        let slots = state.slots();
        let parts = |ranks: &[RankSlot]| ranks.iter().filter_map(|rank| rank.ring).next();
        let ranks = &self.ranks[slots.clone()];
        let last = ranks.iter().rev().find_map(|rank| rank.ring);
        let (Some(first), Some(mut before)) = (parts(ranks), last) else { return };
        let mut below = 0u32;
        for index in slots {
            let Some(part) = self.ranks[index].ring.take() else { continue };
            let slots = self.jobs[job.index()].slots();
            let after = parts(&self.ranks[index + 1..slots.end]).unwrap_or(first);
            let place = RingPart { count: below, left: before.right, right: after.left };
            self.answer_rank(index, |what| (what == What::Ring).then_some(Answer::Ring(place)));
            below = below.wrapping_add(part.count);
            before = part;
        }
        self.jobs[job.index()].ring = 0;
    }

    /// Turns away who is [buried](RankSlot::buried): its bytes may come later than its end.
    #[inline]
    fn alive(&self, asker: Asker) -> Result<(), Refusal> {
        if self.ranks[asker.index].buried { Err(Refusal::Rank) } else { Ok(()) }
    }

    /// The job goes on without the rank: no fence or ring waits for it, or counts it.
    pub(super) fn bury(&mut self, job: JobId, rank: Rank) {
        let Some(slot) = self.jobs[job.index()].slot(rank) else { return };
        self.ranks[slot].buried = true;
        if self.ranks[slot].node == self.links.node() {
            self.bury_here(job, slot);
        } else {
            self.ranks[slot].ring = None;
            self.count_below(job);
        }
        self.check_fence(job);
        self.check_ring(job);
        let Server { jobs, ranks, links, groups, .. } = self;
        groups.bury(job, rank.0, |rank| way(&jobs[job.index()], ranks, links, rank));
        while let Some(group) = self.groups.complete(job) {
            self.complete_group(job, group);
        }
    }

    fn bury_here(&mut self, job: JobId, slot: usize) {
        let state = &mut self.jobs[job.index()];
        state.unawaited += 1;
        if core::mem::take(&mut self.ranks[slot].in_fence) {
            state.fence.arrived -= 1;
            let refused = Answer::Refused(Op::Fence, Refusal::Rank);
            self.answer_rank(slot, |what| (what == What::Fence).then_some(refused));
        }
        if self.ranks[slot].ring.take().is_some() {
            self.jobs[job.index()].ring -= 1;
            let refused = Answer::Refused(Op::Ring, Refusal::Rank);
            self.answer_rank(slot, |what| (what == What::Ring).then_some(refused));
        }
    }

    /// Ends the job when somebody waits in a fence or ring for a rank whose process is gone.
    pub(super) fn check_absent(&mut self, job: JobId) {
        let state = &self.jobs[job.index()];
        if state.gone == 0 || !state.cleanup || state.ending.is_some() {
            return;
        }
        let ranks = &self.ranks[state.slots()];
        let gone = |rank: u32| {
            let rank = &ranks[rank as usize];
            rank.exit.is_some() && !rank.buried
        };
        let missed = |&rank: &u32| {
            let RankSlot { in_fence, ring, .. } = ranks[rank as usize];
            gone(rank) && (state.fence.arrived > 0 && !in_fence || state.ring > 0 && ring.is_none())
        };
        let absent = (0..state.size).find(missed);
        if let Some(rank) = absent.or_else(|| self.groups.waits_for(job, gone))
            && let Some(exit) = ranks[rank as usize].exit
        {
            self.end_job(job, Cause::Absent { rank: Rank(rank), exit });
        }
    }

    /// Lets the job's fence go when everybody it waits for has arrived.
    #[inline]
    pub(super) fn check_fence(&mut self, job: JobId) {
        let state = &self.jobs[job.index()];
        let here = state.local - state.unawaited;
        if state.fence_meet.is_complete(state.fence.arrived, here, state.below)
            && self.climb(job, Meeting::Fence, None)
        {
            self.release_fence(job);
        }
    }

    /// Everybody has arrived in the job's fence.
    #[inline]
    pub(super) fn release_fence(&mut self, job: JobId) {
        self.descend(job, Meeting::Fence);
        let state = &mut self.jobs[job.index()];
        event!(debug, "job {}: fence of {} complete", job, state.fence.arrived);
        state.fence = Fence::default();
        for index in state.slots() {
            self.ranks[index].in_fence = false;
            self.answer_rank(index, |what| (what == What::Fence).then_some(Answer::Fence(None)));
        }
    }

    /// Lets a group go that everybody it waits for has joined.
    pub(super) fn complete_group(&mut self, job: JobId, at: u32) {
        let Some(tag) = self.groups.get(at).map(|group| group.tag) else { return };
        if self.climb(job, Meeting::Group(tag), Some(at)) {
            self.release_group(job, at);
        }
    }

    /// Everybody has arrived in a group's barrier.
    pub(super) fn release_group(&mut self, job: JobId, at: u32) {
        for rank in 0..self.jobs[job.index()].size {
            if !self.groups.has_member(at, rank) {
                continue;
            }
            if let Some(index) = self.jobs[job.index()].slot(Rank(rank)) {
                self.answer_rank(index, |what| match what {
                    What::GroupFence { group, tag } if group == at => Some(Answer::Fence(Some(tag))),
                    _ => None,
                });
            }
        }
        self.groups.release(at, self.kvs.written());
        self.links.wake(self.links.children());
    }

    /// Turns what a rank waits for into an answer, where `answer` has one.
    #[inline]
    pub(super) fn answer_rank(&mut self, index: usize, answer: impl Fn(What) -> Option<Answer>) {
        let Some(conn) = self.ranks[index].conn else { return };
        let Some(slot) = self.conns.get_mut(conn.index()) else { return };
        for owed in &mut slot.owed {
            if let Some(answer) = answer(owed.what) {
                owed.what = What::Answer(answer);
            }
        }
        self.check_ready(conn);
    }
}

/// Where a rank is, for those who wait for it.
pub(super) fn way(job: &Job, ranks: &[RankSlot], links: &Links<'_>, rank: u32) -> Way {
    let Some(slot) = job.slot(Rank(rank)).and_then(|slot| ranks.get(slot)) else { return Way::Gone };
    match links.below(slot.node) {
        // Nodes hear of a death at different times, and have to agree on where a group meets.
        0 if slot.node != links.node() => Way::Above,
        _ if slot.buried => Way::Gone,
        0 => Way::Here,
        link => Way::Below(link),
    }
}
