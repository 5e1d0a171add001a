//! Jobs and their processes: how they come, fail and go.

use heapless::String;

use super::Server;
use super::io::JobSpec;
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::Limit;
use crate::slabs::{Answer, Job, RankPhase, RankSlot, What};
use crate::tables::kvs::{Kind, Owner};
use crate::trace::{Cause, Closing, Exit};

impl Server<'_> {
    pub(super) fn open_job(&mut self, spec: &JobSpec<'_>) -> Result<(), Fault> {
        let full = |limit| Fault::Full(limit, self.limits.of(limit));
        let slot = self.jobs.get(spec.job.index()).ok_or(full(Limit::Jobs))?;
        if !slot.name.is_empty() {
            return Err(Fault::JobInUse);
        }
        if spec.size == 0 {
            return Err(Fault::EmptyJob);
        }
        let printable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b'\\');
        let taken = self.jobs.iter().any(|job| job.name == spec.name);
        if taken || spec.name.is_empty() || !spec.name.bytes().all(printable) {
            return Err(Fault::BadJobId);
        }
        let name = String::try_from(spec.name).map_err(|_| Fault::BadJobId)?;
        let first = self.free_ranks(spec.size).ok_or(full(Limit::Ranks))?;
        let (spaces, share) = self.kvs.open(spec.size);
        let job = Job {
            name,
            first,
            size: spec.size,
            universe: spec.universe.unwrap_or(spec.size),
            cleanup: spec.cleanup,
            pmi1_subversion: spec.pmi1_subversion,
            fence_warning: spec.fence_warning,
            spaces,
            share,
            ..Job::default()
        };
        self.ranks[job.slots()].fill(RankSlot::default());
        self.jobs[spec.job.index()] = job;
        Ok(())
    }

    /// Where `size` consecutive rank slots are free: at the front, or behind some job.
    fn free_ranks(&self, size: u32) -> Option<u32> {
        let taken = || self.jobs.iter().filter(|job| !job.name.is_empty()).map(|job| (job.first, job.size));
        let starts = core::iter::once(0).chain(taken().map(|(first, size)| first + size));
        starts
            .filter(|&start| size <= self.limits.ranks.saturating_sub(start))
            .filter(|&start| taken().all(|(first, len)| start >= first + len || start + size <= first))
            .min()
    }

    pub(super) fn set_program(
        &mut self,
        job: JobId,
        first: Rank,
        count: u32,
        appnum: u32,
    ) -> Result<(), Fault> {
        let job = self.job(job)?;
        if job.begun {
            return Err(Fault::BadAttribute);
        }
        if count > job.size || first.0 > job.size - count {
            return Err(Fault::NoSuchRank);
        }
        let start = job.slots().start + first.index();
        self.ranks[start..start + count as usize].iter_mut().for_each(|rank| rank.appnum = appnum);
        Ok(())
    }

    pub(super) fn set_attr(&mut self, job: JobId, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let job = self.job(job)?;
        if job.begun {
            return Err(Fault::BadAttribute);
        }
        let space = (job.spaces, Kind::Job);
        self.kvs.put(space, None, core::iter::once(key), Some(core::iter::once(value))).map(|_| ()).map_err(
            |why| match why {
                crate::Refusal::Full(limit, size) => Fault::Full(limit, size),
                crate::Refusal::Share(limit, _) => Fault::Full(limit, self.limits.of(limit)),
                _ => Fault::BadAttribute,
            },
        )
    }

    pub(super) fn exit(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Fault> {
        let index = self.job(job)?.slot(rank).ok_or(Fault::NoSuchRank)?;
        if self.ranks[index].exit.is_some() {
            return Err(Fault::RankTaken);
        }
        let Job { share, cleanup, .. } = self.jobs[job.index()];
        let slot = &mut self.ranks[index];
        slot.exit = Some(exit);
        let phase = slot.phase;
        self.kvs.release(Owner { id: index as u32, used: &mut slot.used, share });
        self.jobs[job.index()].gone += 1;
        let signalled = matches!(exit, Exit::Signal(_) | Exit::Lost);
        let cause = match phase {
            RankPhase::Initialized => Some(Cause::NoFinalize { rank, exit }),
            RankPhase::New if signalled => Some(Cause::Died { rank, exit }),
            RankPhase::New | RankPhase::Finalized => None,
        };
        match cause {
            Some(cause) if cleanup => self.end_job(job, cause),
            Some(_) => {
                self.ranks[index].dead = true;
                self.bury(job, rank);
            }
            None if cleanup => self.check_absent(job),
            None => self.bury(job, rank),
        }
        Ok(())
    }

    /// The job goes on without the rank: no fence waits for it.
    fn bury(&mut self, job: JobId, rank: Rank) {
        let Some(slot) = self.jobs[job.index()].slot(rank) else { return };
        let state = &mut self.jobs[job.index()];
        state.unawaited += 1;
        if core::mem::take(&mut self.ranks[slot].in_fence) {
            state.fence.arrived -= 1;
        }
        self.check_fence(job);
        self.groups.bury(job, rank.0);
        while let Some(group) = self.groups.complete(job) {
            self.complete_group(job, group);
        }
    }

    /// Ends the job when somebody waits in a fence for a rank whose process is gone.
    pub(super) fn check_absent(&mut self, job: JobId) {
        let state = &self.jobs[job.index()];
        if state.gone == 0 || !state.cleanup || state.ending.is_some() {
            return;
        }
        let ranks = &self.ranks[state.slots()];
        let gone = |rank: u32| ranks[rank as usize].exit.is_some();
        let missed = |&rank: &u32| gone(rank) && !ranks[rank as usize].in_fence;
        let absent = (0..state.size).find(|rank| state.fence.arrived > 0 && missed(rank));
        if let Some(rank) = absent.or_else(|| self.groups.waits_for(job, gone))
            && let Some(exit) = ranks[rank as usize].exit
        {
            self.end_job(job, Cause::Absent { rank: Rank(rank), exit });
        }
    }

    /// Has the host end the job, unless it is ending already.
    pub(super) fn end_job(&mut self, job: JobId, cause: Cause) {
        let state = &mut self.jobs[job.index()];
        if state.ending.is_none() {
            state.ending = Some(cause);
            state.ending_unsaid = true;
            self.news = true;
        }
    }

    /// Lets the job's fence go when everybody it waits for has arrived.
    pub(super) fn check_fence(&mut self, job: JobId) {
        let state = &mut self.jobs[job.index()];
        if state.fence.arrived == 0 || state.fence.arrived < state.size - state.unawaited {
            return;
        }
        state.fence.arrived = 0;
        for index in state.slots() {
            self.ranks[index].in_fence = false;
            self.answer_rank(index, |what| (what == What::Fence).then_some(Answer::Fence(None)));
        }
    }

    /// Lets a group go that everybody it waits for has joined.
    pub(super) fn complete_group(&mut self, job: JobId, at: u32) {
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
        self.groups.end(at);
    }

    /// Turns what a rank waits for into an answer, where `answer` has one.
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

    pub(super) fn forget(&mut self, job: JobId) -> Result<(), Fault> {
        let Job { share, .. } = *self.job(job)?;
        for index in self.jobs[job.index()].slots() {
            let slot = &mut self.ranks[index];
            if slot.exit.is_none() {
                self.kvs.release(Owner { id: index as u32, used: &mut slot.used, share });
            }
            *slot = RankSlot::default();
        }
        for at in 0..self.limits.conns {
            let conn = &mut self.conns[at as usize];
            if conn.job == Some(job) {
                conn.owed.clear();
                conn.joined_unsaid = false;
                conn.closing_unsaid |= conn.closing.is_none();
                conn.closing.get_or_insert(Closing::JobOver);
                self.check_ready(crate::ConnId(at));
            }
        }
        self.groups.forget(job);
        self.jobs[job.index()] = Job::default();
        if self.jobs.iter().all(|job| job.name.is_empty()) {
            self.kvs.clear();
        }
        Ok(())
    }
}
