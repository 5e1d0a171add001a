//! Requests about process sets.

use super::Server;
use super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{JobId, Rank};
use crate::state::{ReplyState, Response};
use crate::tables::psets::Which;
use crate::wire::{Command, Protocol, Text, decode_upcall};

impl Server<'_> {
    pub(super) fn host_pset(&mut self, job: JobId, name: &str, first: Rank, count: u32) -> Result<(), Fault> {
        let size = self.job(job)?.size;
        let end = first.0.checked_add(count).filter(|&end| end <= size).ok_or(Fault::BadPset)?;
        let defined = self.psets.define(job, size, name, first.0..end);
        defined.map_err(|why| self.fault(why, Fault::BadPset))
    }

    pub(super) fn pset_count(&self, requester: Requester) -> Response {
        Response::PsetCount(self.psets.count(requester.job, requester.rank.0))
    }

    pub(super) fn pset_name(&self, requester: Requester, index: u32) -> Result<Response, Refusal> {
        self.psets.nth(requester.job, requester.rank.0, index).map(Response::PsetName).ok_or(Refusal::NoPset)
    }

    pub(super) fn pset_next(&self, requester: Requester, after: u32) -> Result<Response, Refusal> {
        let next = self.psets.next(requester.job, requester.rank.0, after);
        next.map(Response::PsetNext).ok_or(Refusal::NoPset)
    }

    pub(super) fn pset_info(&self, requester: Requester, name: Text<'_>) -> Result<Response, Refusal> {
        let which = self.living_pset(requester, name)?;
        Ok(Response::PsetInfo(self.members(requester, which).count() as u32))
    }

    pub(super) fn pset_members(
        &self,
        requester: Requester,
        name: Text<'_>,
        from: u32,
    ) -> Result<Response, Refusal> {
        self.living_pset(requester, name).map(|which| Response::PsetMembers(which, from))
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
    pub(super) fn change_psets(
        &mut self,
        job: JobId,
        rank: Rank,
        command: &Command<'_>,
    ) -> Result<Response, Refusal> {
        match *command {
            Command::PsetDefine { name, members } => {
                let name = name.as_str().ok_or(Refusal::PsetName)?;
                let size = self.jobs[job.index()].size;
                self.psets.define(job, size, name, members.iter())?;
            }
            Command::PsetRetire { name } => {
                self.psets.retire(job, rank.0, name.as_str().ok_or(Refusal::NoPset)?)?;
            }
            Command::PsetPrune => {
                while let Some(which) = self.psets.prune(job, rank.0) {
                    self.refuse_replies_about(which);
                }
            }
            _ => return Err(Refusal::Unsupported),
        }
        #[cfg(feature = "pmix")]
        self.events_are_due();
        Ok(Response::Done(command.op()))
    }

    /// Turns the pending replies about a set that has been removed into refusals.
    fn refuse_replies_about(&mut self, removed: Which) {
        #[cfg(feature = "pmix")]
        self.drop_events(|answer| matches!(answer, Response::SetChanged { which, .. } if which == removed));
        for reply in self.conns.iter_mut().flat_map(|conn| &mut conn.replies) {
            if let ReplyState::Ready(answer) = reply.state
                && let Response::PsetName(which) | Response::PsetNext(which) | Response::PsetMembers(which, _) =
                    answer
                && which == removed
            {
                reply.state = ReplyState::Ready(Response::Refused(answer.op(), Refusal::NoPset));
            }
        }
    }

    /// Returns a process set that contains the requesting rank and has no dead member.
    fn living_pset(&self, requester: Requester, name: Text<'_>) -> Result<Which, Refusal> {
        let name = name.as_str().ok_or(Refusal::NoPset)?;
        let which = self.psets.find(requester.job, requester.rank.0, name).ok_or(Refusal::NoPset)?;
        let job = &self.jobs[requester.job.index()];
        let dead = |rank: u32| job.slot(Rank(rank)).is_some_and(|slot| self.ranks[slot].dead);
        if self.members(requester, which).any(dead) { Err(Refusal::PsetDead) } else { Ok(which) }
    }

    pub(super) fn members(&self, requester: Requester, which: Which) -> impl Iterator<Item = u32> + '_ {
        let size = self.jobs[requester.job.index()].size;
        (0..size).filter(move |&rank| self.psets.contains(which, requester.rank.0, rank))
    }
}
