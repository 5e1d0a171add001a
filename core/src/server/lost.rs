//! Ranks that others wait for in vain: their process has exited, they are cut off from PMI, or they are late.
//!
//! | the rank | the job ends ([`Cause::Absent`]) |
//! |---|---|
//! | has exited without init | when another rank has initialized and not finalized |
//! | has exited after finalize | when another rank waits for it in a collective |
//! | is cut off: its connection was closed between init and finalize, and its process lives | when another rank waits for it in a collective, [`CUT_OFF_DELAY`] after the close |
//!
//! A job without [`cleanup`](super::JobSpec::cleanup) continues. The rank is then excluded from its collectives.
//!
//! Libraries may let initialized ranks wait for each other without PMI, in shared memory. For a rank without init
//! [`Job::init`] therefore counts as a collective of all ranks.

use super::Server;
use super::collective::route;
use crate::fault::Refusal;
use crate::ids::{JobId, Rank};
use crate::limits::CUT_OFF_DELAY;
use crate::state::{RankPhase, RankSlot, ReplyState, Response};
use crate::tables::fence::Stall;
use crate::time::Time;
use crate::trace::{Cause, Exit};
use crate::wire::Op;

impl Server<'_> {
    /// Excludes a rank that has ended in a job that continues: collectives neither wait for it nor count it.
    pub(super) fn exclude(&mut self, job: JobId, rank: Rank) {
        let Some(slot) = self.jobs[job.index()].slot(rank) else { return };
        if core::mem::replace(&mut self.ranks[slot].excluded, true) {
            return;
        }
        if self.ranks[slot].node == self.links.node() {
            self.exclude_local(job, slot);
        } else {
            self.ranks[slot].ring = None;
            self.update_children(job);
        }
        self.check_fence(job);
        self.check_ring(job);
        let Server { ranks, links, groups, .. } = self;
        groups.exclude(slot as u32, &|slot| route(ranks, links, slot));
        while let Some((job, group)) = self.groups.complete() {
            self.check_group(job, group);
        }
    }

    /// Withdraws the arrivals of an excluded rank of this node.
    fn exclude_local(&mut self, job: JobId, slot: usize) {
        let state = &mut self.jobs[job.index()];
        state.excluded_count += 1;
        if core::mem::take(&mut self.ranks[slot].in_fence) {
            state.fence.arrived -= 1;
            let refused = Response::Refused(Op::Fence, Refusal::Rank);
            self.respond_to_rank(slot, |what| (what == ReplyState::Fence).then_some(refused));
        }
        if self.ranks[slot].ring.take().is_some() {
            self.jobs[job.index()].ring -= 1;
            let refused = Response::Refused(Op::Ring, Refusal::Rank);
            self.respond_to_rank(slot, |what| (what == ReplyState::Ring).then_some(refused));
        }
    }

    /// Marks a rank as initialized. Other ranks may then wait for it, and it for them.
    pub(super) fn initialize(&mut self, now: Time, job: JobId, index: usize) {
        let before = core::mem::replace(&mut self.ranks[index].phase, RankPhase::Initialized);
        if before == RankPhase::New {
            let state = &mut self.jobs[job.index()];
            let (first, warning) = (state.init.arrive(now), state.fence_warning);
            if first && warning > 0 {
                self.schedule(now, warning);
            }
        }
        self.check_for_lost(now, job);
    }

    /// Ends the job if a rank waits for one that has exited or is cut off.
    pub(super) fn check_for_lost(&mut self, now: Time, job: JobId) {
        let state = &self.jobs[job.index()];
        let cut_off = state.cut_off.is_some_and(|due| due <= now);
        if (state.exited > 0 || cut_off) && state.cleanup && state.ending.is_none() {
            self.end_if_lost(job, cut_off);
        }
    }

    /// Does the same once ranks have exited or are cut off.
    fn end_if_lost(&mut self, job: JobId, cut_off: bool) {
        let state = &self.jobs[job.index()];
        let ranks = &self.ranks[state.slots()];
        let lost = |rank: &RankSlot| {
            let lost = rank.exit.or((cut_off && rank.is_cut_off()).then_some(Exit::Lost));
            lost.filter(|_| !rank.excluded)
        };
        let waits_for_init = self.waits_for_init(job);
        let missed = |rank: &RankSlot| {
            state.fence.arrived > 0 && !rank.in_fence
                || state.ring > 0 && rank.ring.is_none()
                || waits_for_init && rank.phase == RankPhase::New
        };
        let absent = (0..).zip(ranks).find(|(_, rank)| missed(rank) && lost(rank).is_some());
        let absent = absent.map(|(rank, _)| rank);
        let rank_of = |slot: u32| slot.checked_sub(state.first);
        let is_lost = |slot: u32| {
            let rank = rank_of(slot).and_then(|rank| ranks.get(rank as usize));
            rank.is_some_and(|rank| lost(rank).is_some())
        };
        if let Some(rank) = absent.or_else(|| rank_of(self.groups.waiting_for(is_lost)?))
            && let Some(exit) = ranks.get(rank as usize).and_then(lost)
        {
            self.end_job(job, Cause::Absent { rank: Rank(rank), exit });
        }
    }

    /// Schedules the time from which a rank whose connection was closed counts as lost. Until then its exit may follow.
    pub(super) fn schedule_cut_off(&mut self, now: Time, job: Option<JobId>) {
        let Some(job) = job.and_then(|job| self.jobs.get_mut(job.index())) else { return };
        job.cut_off = Some(now.after(CUT_OFF_DELAY));
        self.schedule(now, CUT_OFF_DELAY);
    }

    /// Handles ranks that count as lost by now because they are cut off. Returns when the next ones will.
    pub(super) fn check_cut_off(&mut self, now: Time) -> Option<Time> {
        let mut next: Option<Time> = None;
        for job in self.jobs.numbers().map(JobId) {
            let Some(due) = self.jobs[job.index()].cut_off else { continue };
            if due > now {
                next = Some(next.map_or(due, |next| next.min(due)));
                continue;
            }
            let cleanup = self.jobs[job.index()].cleanup;
            for (rank, index) in (0..).map(Rank).zip(self.jobs[job.index()].slots()) {
                if !self.ranks[index].is_cut_off() || self.ranks[index].excluded {
                    continue;
                }
                if !cleanup {
                    self.ranks[index].dead = true;
                    self.exclude(job, rank);
                }
                if self.ranks[index].end == 0 {
                    self.report_exit(now, index);
                }
            }
            self.check_for_lost(now, job);
        }
        next
    }

    /// Marks jobs as stalled whose ranks wait for others to initialize. Returns when the next one will be stalled.
    pub(super) fn check_inits(&mut self, now: Time) -> Option<Time> {
        let mut next: Option<Time> = None;
        for job in self.jobs.numbers().map(JobId) {
            let state = &mut self.jobs[job.index()];
            if state.init.arrived == state.local {
                continue;
            }
            if let Some(due) = state.init.check(now, state.fence_warning) {
                next = Some(next.map_or(due, |next| next.min(due)));
            }
            // A fence that waits for the same ranks is reported by itself.
            let reported = state.fence.arrived > 0;
            if state.init.stall == Stall::Pending
                && (reported || !self.waits_for_init(job) || self.late_ranks(job).next().is_none())
            {
                self.jobs[job.index()].init.stall = Stall::Reported;
            }
        }
        next
    }

    /// Returns whether a rank of this node is between init and finalize, so that it may wait for ranks without init.
    fn waits_for_init(&self, job: JobId) -> bool {
        let initialized = |rank: &RankSlot| rank.phase == RankPhase::Initialized && rank.exit.is_none();
        self.ranks[self.jobs[job.index()].slots()].iter().any(initialized)
    }

    /// Returns the ranks of this node that run and have not initialized.
    pub(super) fn late_ranks(&self, job: JobId) -> impl Iterator<Item = u32> + '_ {
        let here = self.links.node();
        let is_late = move |rank: &RankSlot| {
            rank.phase == RankPhase::New && rank.exit.is_none() && !rank.excluded && rank.node == here
        };
        let ranks = &self.ranks[self.jobs[job.index()].slots()];
        (0u32..).zip(ranks).filter(move |(_, rank)| is_late(rank)).map(|(rank, _)| rank)
    }
}
