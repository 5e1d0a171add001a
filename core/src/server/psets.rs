//! Process sets, as a rank may ask for them.

use super::Server;
use super::dispatch::Asker;
use crate::fault::{Fault, Refusal};
use crate::ids::{JobId, Rank};
use crate::state::Answer;
use crate::tables::psets::Which;
use crate::wire::{Op, RankRanges, Text};

impl Server<'_> {
    pub(super) fn host_pset(&mut self, job: JobId, name: &str, first: Rank, count: u32) -> Result<(), Fault> {
        let size = self.job(job)?.size;
        let end = first.0.checked_add(count).filter(|&end| end <= size).ok_or(Fault::BadPset)?;
        let defined = self.psets.define(job, size, name, first.0..end);
        defined.map_err(|why| self.fault(why, Fault::BadPset))
    }

    pub(super) fn pset_count(&self, asker: Asker) -> Answer {
        Answer::PsetCount(self.psets.count(asker.job, asker.rank.0))
    }

    pub(super) fn pset_name(&self, asker: Asker, index: u32) -> Result<Answer, Refusal> {
        self.psets.nth(asker.job, asker.rank.0, index).map(Answer::PsetName).ok_or(Refusal::NoPset)
    }

    pub(super) fn pset_info(&self, asker: Asker, name: Text<'_>) -> Result<Answer, Refusal> {
        let which = self.living_pset(asker, name)?;
        Ok(Answer::PsetInfo(self.members(asker, which).count() as u32))
    }

    pub(super) fn pset_members(&self, asker: Asker, name: Text<'_>, from: u32) -> Result<Answer, Refusal> {
        self.living_pset(asker, name).map(|which| Answer::PsetMembers(which, from))
    }

    pub(super) fn pset_define(
        &mut self,
        asker: Asker,
        name: Text<'_>,
        members: RankRanges<'_>,
    ) -> Result<Answer, Refusal> {
        let size = self.jobs[asker.job.index()].size;
        let name = name.as_str().ok_or(Refusal::PsetName)?;
        self.psets.define(asker.job, size, name, members.iter())?;
        Ok(Answer::Done(Op::PsetDefine))
    }

    /// A set that the asker is in and of which nobody has died.
    fn living_pset(&self, asker: Asker, name: Text<'_>) -> Result<Which, Refusal> {
        let name = name.as_str().ok_or(Refusal::NoPset)?;
        let which = self.psets.find(asker.job, asker.rank.0, name).ok_or(Refusal::NoPset)?;
        let job = &self.jobs[asker.job.index()];
        let dead = |rank: u32| job.slot(Rank(rank)).is_some_and(|slot| self.ranks[slot].dead);
        if self.members(asker, which).any(dead) { Err(Refusal::PsetDead) } else { Ok(which) }
    }

    pub(super) fn members(&self, asker: Asker, which: Which) -> impl Iterator<Item = u32> + '_ {
        let size = self.jobs[asker.job.index()].size;
        (0..size).filter(move |&rank| self.psets.contains(which, asker.rank.0, rank))
    }
}
