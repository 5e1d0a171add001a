//! Jobs and their processes: registration, exits, deregistration.

use heapless::String;

use super::Server;
use super::io::{FenceMode, JobSpec};
use crate::fault::Fault;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{AUTO_NODES_MAX, LAZY_FENCES, Limit, NODE_ATTR_PREFIX, TEXT_ATTR_PREFIX};
use crate::state::{Abort, Job, RankPhase, RankSlot};
use crate::store::log;
use crate::tables::kvs::{Kind, Owner, Spaces, Usage};
use crate::time::Time;
use crate::trace::{Cause, Closing, Exit, event};
use crate::wire::Text;

impl Server<'_> {
    // As a part of the caller, the state of a new job would take stack from every input.
    #[inline(never)]
    pub(super) fn register_job(&mut self, spec: &JobSpec<'_>) -> Result<(), Fault> {
        let full = |limit| Fault::Full(limit, self.limits.of(limit));
        let slot = self.jobs.all().get(spec.job.index()).ok_or(full(Limit::Jobs))?;
        if !slot.name.is_empty() {
            return Err(Fault::JobInUse);
        }
        if spec.size == 0 {
            return Err(Fault::EmptyJob);
        }
        let taken = self.jobs.iter().any(|job| job.name == spec.name);
        if taken || spec.name.is_empty() || !printable(spec.name) {
            return Err(Fault::BadJobId);
        }
        let name = String::try_from(spec.name).map_err(|_| Fault::BadJobId)?;
        let first = self.free_ranks(spec.size).ok_or(full(Limit::Ranks))?;
        let (spawner, preput) = match spec.spawn {
            Some(spawn) => self.check_spawned(spawn, spec.size)?,
            None => (String::try_from(spec.spawner).map_err(|_| Fault::BadJobId)?, Usage::NONE),
        };
        // Most late nodes never join.
        let is_large = self.links.tree().first_late() > AUTO_NODES_MAX + 1;
        let adaptive = spec.fence == FenceMode::Auto && is_large;
        let lazy = (spec.fence == FenceMode::Lazy || adaptive) && self.links.are_any();
        if lazy && !LAZY_FENCES {
            return Err(Fault::NoLazyFences);
        }
        self.make_room_for_job(self.kvs.lack_of_job(spec.size, preput));
        let (spaces, quota) = self.kvs.open(spec.size);
        let job = Job {
            hash: log::hash(0, spec.name.as_bytes()),
            name,
            first,
            size: spec.size,
            // Ranks are on node 0 until they are mapped.
            local: if self.links.node() == 0 { spec.size } else { 0 },
            below: self.links.below(0).into_iter().collect(),
            universe_size: spec.universe_size.unwrap_or(0),
            cleanup: spec.cleanup,
            pmi1_subversion: spec.pmi1_subversion,
            spawner,
            lookup_wait: spec.lookup_wait,
            remote_names: spec.remote_names,
            fence_warning: spec.fence_warning,
            lazy,
            adaptive,
            spaces,
            since: self.kvs.written(),
            quota,
            ..Job::EMPTY
        };
        self.ranks[job.slots()].fill(RankSlot::EMPTY);
        self.ranks_end = self.ranks_end.max(job.first + job.size);
        self.jobs.set(spec.job.index(), job);
        if let Some(spawn) = spec.spawn {
            self.begin_spawned(spawn, spec.job);
        }
        event!(info, "job {} opened: {} with {} ranks", spec.job, spec.name, spec.size);
        Ok(())
    }

    /// Returns the job that has a rank slot.
    pub(super) fn job_of_slot(&self, slot: usize) -> Option<JobId> {
        (0..).map(JobId).zip(&*self.jobs).find(|(_, job)| job.slots().contains(&slot)).map(|(id, _)| id)
    }

    /// Returns the first of `size` consecutive free rank slots.
    fn free_ranks(&self, size: u32) -> Option<u32> {
        let living = self.jobs.iter().filter(|job| !job.name.is_empty());
        first_fit(living.map(|job| (job.first, job.size)), size, self.limits.ranks)
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
        if job.begun && !key.starts_with(TEXT_ATTR_PREFIX.as_bytes()) {
            return Err(Fault::BadAttribute);
        }
        let (kind, key) = match key.strip_prefix(NODE_ATTR_PREFIX) {
            Some(name) => (Kind::Node, name),
            None => (Kind::Job, key),
        };
        let space = (job.spaces, kind);
        self.host_put(space, key, value)
    }

    /// Stores a pair of the host.
    #[cold]
    #[inline(never)]
    pub(super) fn host_put(&mut self, space: (Spaces, Kind), key: &[u8], value: &[u8]) -> Result<(), Fault> {
        #[cfg(feature = "cluster")]
        if let Ok(lack) = self.kvs.lack_of_pair(space, key, value.len()) {
            self.makes_room(lack, true);
        }
        let stored = self.kvs.put(space, None, key, Some(Text::plain(value).parts()));
        stored.map(drop).map_err(|why| self.fault(why, Fault::BadAttribute))
    }

    pub(super) fn exit(&mut self, now: Time, job: JobId, rank: Rank, exit: Exit) -> Result<(), Fault> {
        let index = self.job(job)?.slot(rank).ok_or(Fault::NoSuchRank)?;
        if self.ranks[index].node != self.links.node() {
            return Err(Fault::NoSuchRank);
        }
        if self.ranks[index].exit.is_some() {
            return Err(Fault::RankTaken);
        }
        let Job { quota, cleanup, .. } = self.jobs[job.index()];
        let slot = &mut self.ranks[index];
        slot.exit = Some(exit);
        event!(debug, "job {}: rank {} {}", job, rank, exit);
        let phase = slot.phase;
        self.kvs.release(Owner { id: index as u32, used: &mut slot.used, quota });
        self.jobs[job.index()].exited += 1;
        // The spawner of a job waits for its ranks.
        let is_awaited = !self.jobs[job.index()].spawner.is_empty() && exit != Exit::Code(0);
        let died = is_awaited || matches!(exit, Exit::Signal(_) | Exit::Lost);
        let aborted = !matches!(slot.abort, Abort::No);
        #[cfg(feature = "pmix")]
        {
            self.end_gets_of(job, Some(rank));
            // The table is large, and a rank that has not joined has published nothing.
            if phase != RankPhase::New {
                self.names.process_ended(self.jobs[job.index()].spaces, rank);
            }
        }
        let cause = match phase {
            _ if aborted => Some(Cause::Abort { rank, code: None }),
            RankPhase::Initialized => Some(Cause::NoFinalize { rank, exit }),
            RankPhase::New if died || !cleanup && exit != Exit::Code(0) => Some(Cause::Died { rank, exit }),
            RankPhase::New | RankPhase::Finalized => None,
        };
        match cause {
            Some(cause) if cleanup && !aborted => self.end_job(job, cause),
            Some(_) => {
                self.ranks[index].dead = true;
                self.exclude(job, rank);
            }
            None if cleanup => self.check_for_lost(now, job),
            None => self.exclude(job, rank),
        }
        self.report_exit(now, index);
        Ok(())
    }

    /// Marks the job as aborted, unless it is already. The abort is then pending for the host.
    pub(super) fn end_job(&mut self, job: JobId, cause: Cause) {
        let state = &mut self.jobs[job.index()];
        if state.ending.is_none() {
            state.ending = Some(cause);
            state.ending_pending = true;
            event!(warn, "job {} has to end: {}", job, cause);
            self.events_pending = true;
        }
    }

    pub(super) fn deregister_job(&mut self, job: JobId) -> Result<(), Fault> {
        let Job { quota, .. } = *self.job(job)?;
        #[cfg(feature = "pmix")]
        let end = self.job_end(job);
        for index in self.jobs[job.index()].slots() {
            let slot = &mut self.ranks[index];
            if slot.exit.is_none() {
                self.kvs.release(Owner { id: index as u32, used: &mut slot.used, quota });
            }
            if slot.node == self.links.node() {
                self.kvs.give_back(slot.used, quota);
            }
            *slot = RankSlot::EMPTY;
        }
        for at in 0..self.conns_end {
            if self.conns[at as usize].job == Some(job) {
                self.drop_replies(ConnId(at));
                let conn = &mut self.conns[at as usize];
                conn.joined_pending = false;
                conn.events.waits = false;
                conn.closing_pending |= conn.closing.is_none();
                conn.closing.get_or_insert(Closing::JobOver);
                self.check_ready(ConnId(at));
            }
        }
        #[cfg(feature = "pmix")]
        {
            self.end_gets_of(job, None);
            self.drop_events_of(job);
        }
        if LAZY_FENCES && self.jobs[job.index()].lazy {
            self.end_fetches(job);
        }
        self.modex.forget(self.jobs[job.index()].slots());
        #[cfg(feature = "pmix")]
        self.end_groups_with(job);
        self.groups.forget(&self.jobs[job.index()].slots());
        self.end_psets(job);
        self.connections.forget(job);
        self.names.forget(self.jobs[job.index()].spaces);
        let Job { spaces: over, since, .. } = self.jobs[job.index()];
        self.jobs[job.index()] = Job::EMPTY;
        #[cfg(feature = "pmix")]
        if let Some(end) = &end {
            self.note_job_end(end);
        }
        #[cfg(feature = "pmix")]
        self.end_bootstraps();
        self.reclaim(job, over, since);
        event!(info, "job {} is over", job);
        Ok(())
    }
}

/// Returns whether messages of both protocols can carry a name.
pub(super) fn printable(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b'\\'))
}

/// Returns the first of `size` consecutive numbers below `room` that are in no range of `taken`. A range is its first
/// number and its length.
fn first_fit(taken: impl Iterator<Item = (u32, u32)> + Clone, size: u32, room: u32) -> Option<u32> {
    let mut start: u32 = 0;
    loop {
        let before = start;
        for (first, len) in taken.clone() {
            let end = start.checked_add(size).filter(|&end| end <= room)?;
            // The range overlaps, so the earliest possible start is its end. Jobs are mostly in the order of their
            // slots: one pass finds the start, and a second pass confirms it.
            if start < first + len && first < end {
                start = first + len;
            }
        }
        if start == before {
            return start.checked_add(size).filter(|&end| end <= room).map(|_| start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::first_fit;
    use proptest::prelude::*;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn the_first_place_that_is_free(
            gaps in proptest::collection::vec((0u32..4, 1u32..4), 0..8),
            order: u64,
            size in 1u32..5,
            room in 0u32..40,
        ) {
            let mut next = 0;
            let mut taken = Vec::new();
            for (gap, len) in gaps {
                taken.push((next + gap, len));
                next += gap + len;
            }
            taken.sort_by_key(|&(first, _)| (u64::from(first) + 1).wrapping_mul(order | 1));
            let free = |start: u32| taken.iter().all(|&(first, len)| start >= first + len || start + size <= first);
            let expected = (0..room).find(|&start| start + size <= room && free(start));
            prop_assert_eq!(first_fit(taken.iter().copied(), size, room), expected);
        }
    }

    #[test]
    fn numbers_end_somewhere() {
        let taken = [(0, u32::MAX - 1)];
        assert_eq!(first_fit(taken.into_iter(), 1, u32::MAX), Some(u32::MAX - 1));
        assert_eq!(first_fit(taken.into_iter(), 2, u32::MAX), None);
        assert_eq!(first_fit([].into_iter(), u32::MAX, u32::MAX), Some(0));
        assert_eq!(first_fit([].into_iter(), 1, 0), None);
    }
}
