//! Requests about process sets.

use core::ops::Range;

use super::Server;
use super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{JobId, Rank};
#[cfg(feature = "pmix")]
use crate::state::PmixResponse;
use crate::state::{Job, ReplyState, Response};
use crate::tables::psets::{Asker, Which};
use crate::wire::{Command, Protocol, RankRanges, Text, decode_upcall};

impl Server<'_> {
    pub(super) fn host_pset(&mut self, job: JobId, name: &str, first: Rank, count: u32) -> Result<(), Fault> {
        let Job { size, first: start, .. } = *self.job(job)?;
        #[cfg(feature = "pmix")]
        let begun = self.jobs[job.index()].begun;
        let end = first.0.checked_add(count).filter(|&end| end <= size).ok_or(Fault::BadPset)?;
        let members = (first.0..end).map(|rank| Some(start + rank));
        let defined = self.psets.define(name, members, slots_of(&self.jobs));
        let replaced = defined.map_err(|why| self.fault(why, Fault::BadPset))?;
        self.pset_replaced(replaced);
        #[cfg(feature = "pmix")]
        if begun {
            self.events_are_due();
        }
        Ok(())
    }

    /// Defines a set of ranks of a job, and of all ranks of another job if there is one.
    pub(super) fn define(
        &mut self,
        job: JobId,
        name: &str,
        members: &[u8],
        other: Option<JobId>,
    ) -> Result<(), Fault> {
        let others = other.map(|other| self.job(other).map(slots)).transpose()?.unwrap_or_default();
        let of_job = slots(self.job(job)?);
        let members = RankRanges::new(members).ok_or(Fault::BadPset)?;
        let members = slots_of_ranks(of_job, &members).chain(others.map(Some));
        let defined = self.psets.define(name, members, slots_of(&self.jobs));
        let replaced = defined.map_err(Fault::Refused)?;
        self.pset_replaced(replaced);
        #[cfg(feature = "pmix")]
        if other.is_some() {
            self.events_are_due();
        }
        Ok(())
    }

    pub(super) fn pset_count(&self, requester: Requester) -> Response {
        Response::PsetCount(self.psets.count(requester.index as u32))
    }

    pub(super) fn pset_name(&self, requester: Requester, index: u32) -> Result<Response, Refusal> {
        self.psets.nth(requester.index as u32, index).map(Response::PsetName).ok_or(Refusal::NoPset)
    }

    pub(super) fn pset_next(&self, requester: Requester, after: u32) -> Result<Response, Refusal> {
        self.psets.next(requester.index as u32, after).map(Response::PsetNext).ok_or(Refusal::NoPset)
    }

    pub(super) fn pset_info(&self, requester: Requester, name: Text<'_>) -> Result<Response, Refusal> {
        let (which, size) = self.living_pset(requester, name)?;
        Ok(Response::PsetInfo(which, size))
    }

    pub(super) fn pset_members(
        &self,
        requester: Requester,
        name: Text<'_>,
        from: u32,
    ) -> Result<Response, Refusal> {
        self.living_pset(requester, name).map(|(which, _)| Response::PsetMembers(which, from))
    }

    /// Applies a request that a rank of another node has made.
    pub(super) fn pset_request(&mut self, job: JobId, rank: Rank, request: &[u8]) -> Result<(), Fault> {
        if rank.0 >= self.job(job)?.size {
            return Err(Fault::NoSuchRank);
        }
        let command = decode_upcall(Protocol::V2, request).ok_or(Fault::BadPset)?;
        self.change_psets(job, rank, &command).map(drop).map_err(Fault::Refused)
    }

    /// Defines, retires or removes process sets at the request of a rank.
    ///
    /// A dead member is no reason for a refusal: the servers of several nodes learn of it at different times.
    pub(super) fn change_psets(
        &mut self,
        job: JobId,
        rank: Rank,
        command: &Command<'_>,
    ) -> Result<Response, Refusal> {
        let of_job = &self.jobs[job.index()];
        let slot = of_job.slot(rank).ok_or(Refusal::Rank)? as u32;
        match *command {
            Command::PsetDefine { name, members } => {
                let name = name.as_str().ok_or(Refusal::PsetName)?;
                let members = slots_of_ranks(slots(of_job), &members);
                let replaced = self.psets.define(name, members, slots_of(&self.jobs))?;
                self.pset_replaced(replaced);
            }
            Command::PsetCombine { name, operation, operands: [one, other] } => {
                let name = name.as_str().ok_or(Refusal::PsetName)?;
                let find = |name: Text<'_>| self.psets.find(slot, name.as_str()?);
                let operands = find(one).zip(find(other)).ok_or(Refusal::NoPset)?;
                let asker = Asker { slot, job: slots(of_job) };
                let operation = |one, other| operation.apply(one, other);
                let jobs = slots_of(&self.jobs);
                let replaced = self.psets.combine(&asker, name, operation, operands.into(), jobs)?;
                self.pset_replaced(replaced);
            }
            Command::PsetRetire { name } => {
                self.psets.retire(slot, name.as_str().ok_or(Refusal::NoPset)?)?;
            }
            Command::PsetPrune => {
                while let Some(which) = self.psets.prune(slot) {
                    self.pset_replaced(Some(which));
                }
            }
            _ => return Err(Refusal::Unsupported),
        }
        #[cfg(feature = "pmix")]
        self.events_are_due();
        Ok(Response::Done(command.op()))
    }

    /// Ends the sets with ranks of a job that is over.
    pub(super) fn end_psets(&mut self, job: JobId) {
        let slots = slots(&self.jobs[job.index()]);
        while let Some((which, removed)) = self.psets.end(&slots, slots_of(&self.jobs)) {
            self.refuse_replies_about(which);
            #[cfg(feature = "pmix")]
            match removed {
                true => self.drop_set_events(which),
                false => self.events_are_due(),
            }
            #[cfg(not(feature = "pmix"))]
            let _ = removed;
        }
    }

    /// Handles pending replies and events about a set that has been removed.
    fn pset_replaced(&mut self, removed: Option<Which>) {
        if let Some(removed) = removed {
            self.refuse_replies_about(removed);
            #[cfg(feature = "pmix")]
            self.drop_set_events(removed);
        }
    }

    #[cfg(feature = "pmix")]
    fn drop_set_events(&mut self, removed: Which) {
        self.drop_events(|answer| matches!(answer, Response::Pmix(PmixResponse::SetChanged { which, .. }) if which == removed));
    }

    /// Turns the pending replies about a set that is unusable into refusals.
    fn refuse_replies_about(&mut self, removed: Which) {
        let opened = self.conns.iter_mut().take(self.conns_end as usize);
        for reply in opened.flat_map(|conn| &mut conn.replies) {
            if let ReplyState::Ready(answer) = reply.state
                && let Response::PsetName(which)
                | Response::PsetNext(which)
                | Response::PsetInfo(which, _)
                | Response::PsetMembers(which, _) = answer
                && which == removed
            {
                reply.state = ReplyState::Ready(Response::Refused(answer.op(), Refusal::NoPset));
            }
        }
    }

    /// Returns a process set that contains the requesting rank and has no member that has failed, and its size.
    fn living_pset(&self, requester: Requester, name: Text<'_>) -> Result<(Which, u32), Refusal> {
        let name = name.as_str().ok_or(Refusal::NoPset)?;
        let which = self.psets.find(requester.index as u32, name).ok_or(Refusal::NoPset)?;
        let mut size = 0;
        for (job, rank) in self.members(self.asker(requester), which) {
            let slot = self.jobs[job.index()].slot(rank);
            if slot.is_some_and(|slot| self.ranks[slot].has_failed()) {
                return Err(Refusal::PsetDead);
            }
            size += 1;
        }
        Ok((which, size))
    }

    pub(super) fn asker(&self, requester: Requester) -> Asker {
        Asker { slot: requester.index as u32, job: slots(&self.jobs[requester.job.index()]) }
    }

    /// Returns the jobs with ranks in a set, in the order of their numbers.
    fn jobs_of_set(&self, asker: Asker, which: Which) -> impl Iterator<Item = (JobId, &Job)> + '_ {
        let intersects = move |job: &Job| job.size > 0 && self.psets.intersects(which, &asker, &slots(job));
        (0..).map(JobId).zip(&*self.jobs).filter(move |(_, job)| intersects(job))
    }

    /// Returns the members of a set: those of one job after those of another.
    pub(super) fn members(&self, asker: Asker, which: Which) -> impl Iterator<Item = (JobId, Rank)> + '_ {
        self.jobs_of_set(asker.clone(), which).flat_map(move |(id, job)| {
            let members = self.psets.members(which, asker.clone(), slots(job));
            members.map(move |slot| (id, Rank(slot - job.first)))
        })
    }

    /// Returns the job of the set's position `from`, its position, the members of the job from there on, and whether
    /// another job follows.
    pub(super) fn members_from(
        &self,
        asker: Asker,
        which: Which,
        from: u32,
    ) -> Option<(&Job, u32, impl Iterator<Item = u32> + '_, bool)> {
        let mut start = 0;
        let mut jobs = self.jobs_of_set(asker.clone(), which).peekable();
        while let Some((_, job)) = jobs.next() {
            if from < start + job.size {
                let Range { start: first, end } = slots(job);
                let members = self.psets.members(which, asker, first + (from - start)..end);
                let ranks = members.map(move |slot| slot - first);
                return Some((job, start, ranks, jobs.peek().is_some()));
            }
            start += job.size;
        }
        None
    }
}

/// Returns the rank slots of a job.
pub(super) fn slots(job: &Job) -> Range<u32> {
    job.first..job.first + job.size
}

fn slots_of(jobs: &[Job]) -> impl Iterator<Item = Range<u32>> + '_ {
    jobs.iter().map(slots)
}

/// Returns the slots of ranks of a job. A rank that the job does not have is `None`.
fn slots_of_ranks<'a>(
    job: Range<u32>,
    ranks: &RankRanges<'a>,
) -> impl Iterator<Item = Option<u32>> + use<'a> {
    ranks.iter().map(move |rank| job.start.checked_add(rank).filter(|slot| job.contains(slot)))
}
