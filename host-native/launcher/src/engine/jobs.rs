//! The jobs that are being run: the command line's, and those that were spawned.
//!
//! Each has a stretch of process numbers of its own, `first + rank`, by which everything else here is indexed. Numbers
//! of jobs that are over are given out again.

use std::ops::{Index, IndexMut, Range};

use hydrant_core::{ErrandId, JobId};

use super::port::Port;
use super::query::Query;
use super::report::Outcome;
use crate::launch::Launcher;
use crate::plan::Program;

/// A job that is being run.
pub(super) struct Job {
    /// Its number for the core.
    pub(super) id: JobId,
    /// 0 is the command line's, the others are counted from 1 in the order in which they came.
    pub(super) ordinal: u32,
    /// What clients know it as.
    pub(super) name: String,
    pub(super) first: u32,
    pub(super) ranks: u32,
    pub(super) programs: Vec<Program>,
    pub(super) launcher: Launcher,
    /// The next rank to start; the job's size when all have been, or no more shall be.
    pub(super) next: u32,
    pub(super) running: u32,
    pub(super) port: Option<Port>,
    /// The port is not listened on until then, because the system had no room for connections.
    pub(super) port_pause: Option<u64>,
    /// Where its ranks ask about process sets.
    pub(super) query: Option<Query>,
    pub(super) outcome: Outcome,
    /// When those who were asked to end are made to.
    pub(super) kill_at: Option<u64>,
    /// The spawn that waits until all have been started.
    pub(super) spawn: Option<ErrandId>,
    /// It could not be started as a whole, and these are its programs' codes: what was started is to go without a
    /// word.
    pub(super) undone: Option<Vec<u8>>,
    /// All ranks are gone, and what they wrote last is being passed on.
    pub(super) draining: bool,
}

impl Job {
    /// The numbers of its processes.
    pub(super) fn processes(&self) -> Range<u32> {
        self.first..self.first + self.ranks
    }

    /// Whether ranks are still to be started.
    pub(super) fn is_starting(&self) -> bool {
        self.next < self.ranks
    }

    /// A rank in words.
    pub(super) fn rank_name(&self, rank: u32) -> String {
        match self.ordinal {
            0 => format!("rank {rank}"),
            ordinal => format!("rank {rank} of spawned job {ordinal}"),
        }
    }
}

/// All jobs, by their number for the core.
#[derive(Default)]
pub(super) struct Jobs {
    all: Vec<Option<Job>>,
    /// How many there have been.
    pub(super) count: u32,
}

impl Jobs {
    /// The lowest free number.
    pub(super) fn free_id(&self) -> JobId {
        let free = self.all.iter().position(Option::is_none);
        JobId(free.unwrap_or(self.all.len()) as u32)
    }

    /// Where so many process numbers are free: at the front, or behind some job.
    pub(super) fn free_stretch(&self, ranks: u32) -> u32 {
        let starts = std::iter::once(0).chain(self.iter().map(|job| job.processes().end));
        let free = |start: &u32| {
            let end = start.saturating_add(ranks);
            self.iter().all(|job| *start >= job.processes().end || end <= job.first)
        };
        starts.filter(free).min().expect("behind the last job every number is free")
    }

    pub(super) fn insert(&mut self, job: Job) {
        let at = job.id.index();
        if self.all.len() <= at {
            self.all.resize_with(at + 1, || None);
        }
        self.all[at] = Some(job);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        self.all.get_mut(id.index())?.take()
    }

    pub(super) fn get(&self, id: JobId) -> Option<&Job> {
        self.all.get(id.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Job> {
        self.all.get_mut(id.index())?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.all.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        self.all.iter_mut().flatten()
    }

    /// The numbers of those that fit `which`.
    pub(super) fn ids(&self, which: impl Fn(&Job) -> bool) -> Vec<JobId> {
        self.iter().filter(|job| which(job)).map(|job| job.id).collect()
    }

    /// Whose process that is, and which rank.
    pub(super) fn of(&self, process: u32) -> Option<(&Job, u32)> {
        let job = self.iter().find(|job| job.processes().contains(&process))?;
        Some((job, process - job.first))
    }

    /// How many ranks there are in all.
    pub(super) fn ranks(&self) -> u64 {
        self.iter().map(|job| u64::from(job.ranks)).sum()
    }
}

/// For numbers that the core names: it knows of no other jobs than these.
impl Index<JobId> for Jobs {
    type Output = Job;

    fn index(&self, id: JobId) -> &Job {
        self.get(id).expect("the core names jobs that it was told of")
    }
}

impl IndexMut<JobId> for Jobs {
    fn index_mut(&mut self, id: JobId) -> &mut Job {
        self.get_mut(id).expect("the core names jobs that it was told of")
    }
}
