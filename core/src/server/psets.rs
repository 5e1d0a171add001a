//! Requests about process sets.

use super::Server;
use super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{JobId, Rank};
use crate::state::Response;
use crate::tables::psets::Which;
use crate::wire::{Op, RankRanges, Text};

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

    pub(super) fn pset_define(
        &mut self,
        requester: Requester,
        name: Text<'_>,
        members: RankRanges<'_>,
    ) -> Result<Response, Refusal> {
        let size = self.jobs[requester.job.index()].size;
        let name = name.as_str().ok_or(Refusal::PsetName)?;
        self.psets.define(requester.job, size, name, members.iter())?;
        Ok(Response::Done(Op::PsetDefine))
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
