//! The jobs that are being run: the command line's, and those that were spawned.
//!
//! Each has a stretch of process numbers of its own, `first + rank`, by which everything else here is indexed. Numbers
//! of jobs that are over are given out again.

use std::ops::{Index, IndexMut, Range};

use hydrant_core::{JobId, UpcallId};
use hydrant_reactor::Listener;

use super::query::Query;
use super::report::Outcome;
use crate::control::Place;
use crate::launch::Launcher;
use crate::plan::Program;
use hydrant_driver::TcpPort;

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
    /// Those of its ranks that this process starts.
    pub(super) here: Ranks,
    /// Missing where there are none.
    pub(super) launcher: Option<Launcher>,
    /// The next rank to start; the job's size when all have been, or no more shall be.
    pub(super) next: u32,
    pub(super) running: u32,
    /// At the head of several nodes, what is known of them.
    pub(super) away: Option<Away>,
    pub(super) port: Option<Listener<TcpPort>>,
    /// Where its ranks ask about process sets.
    pub(super) query: Option<Query>,
    pub(super) outcome: Outcome,
    /// When those who were asked to end are made to.
    pub(super) kill_at: Option<u64>,
    /// The spawn that waits until all have been started: the node that asks, and its number there.
    pub(super) spawn: Option<(u32, UpcallId)>,
    /// It could not be started as a whole, and these are its programs' codes: what was started is to go without a
    /// word.
    pub(super) undone: Option<Vec<u8>>,
    /// All ranks are gone, and what they wrote last is being passed on.
    pub(super) draining: bool,
    /// That has been done, and what becomes of the job is for the head to say.
    pub(super) done: bool,
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

    /// Whether nodes have still to say whom they have started.
    pub(super) fn is_beginning(&self) -> bool {
        self.away.as_ref().is_some_and(|away| !away.starting.is_empty())
    }

    /// The rank after `next` that is to be started here.
    pub(super) fn advance(&mut self) {
        self.next = self.here.from(self.next + 1).unwrap_or(self.ranks);
    }

    /// The number and the command of the program that a rank runs.
    pub(super) fn program(&self, rank: u32) -> (u32, &Program) {
        let mut end = 0;
        let numbered = (0..).zip(&self.programs);
        let mut behind = numbered.skip_while(|(_, program)| {
            end += program.ranks;
            end <= rank
        });
        behind.next().expect("every rank runs a program")
    }

    /// Whether all its ranks are gone, and nothing more is to be heard of it.
    pub(super) fn is_over(&self) -> bool {
        let heard_of = self.away.as_ref().is_none_or(|away| away.busy.is_empty());
        !self.is_starting() && self.running == 0 && heard_of && !self.done
    }

    /// A rank in words.
    pub(super) fn rank_name(&self, rank: u32) -> String {
        match self.ordinal {
            0 => format!("rank {rank}"),
            ordinal => format!("rank {rank} of spawned job {ordinal}"),
        }
    }
}

/// Ranks of a job, as ranges in ascending order.
#[derive(Debug, Default)]
pub(super) struct Ranks(Vec<Range<u32>>);

impl Ranks {
    /// Those of a node.
    pub(super) fn of_node(places: &[Place], node: u32) -> Ranks {
        let here = places.iter().filter(|place| place.node == node);
        Ranks(here.map(|place| place.first..place.first + place.count).collect())
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The first that is `rank` or comes behind it.
    pub(super) fn from(&self, rank: u32) -> Option<u32> {
        self.0.iter().find(|range| range.end > rank).map(|range| range.start.max(rank))
    }

    /// How many come before `rank`.
    pub(super) fn before(&self, rank: u32) -> u32 {
        self.0.iter().map(|range| rank.clamp(range.start, range.end) - range.start).sum()
    }
}

/// The nodes of a job, as the head knows them.
#[derive(Debug)]
pub(super) struct Away {
    /// Which ranks are where.
    pub(super) places: Vec<Place>,
    /// Nodes that have not started all of their ranks yet.
    pub(super) starting: Vec<u32>,
    /// Nodes that have not said yet that they are done with the job.
    pub(super) busy: Vec<u32>,
}

impl Away {
    /// The node of a rank.
    pub(super) fn node(&self, rank: u32) -> u32 {
        // In ascending order of their ranks.
        let at = self.places.partition_point(|place| place.first + place.count <= rank);
        self.places.get(at).map_or(0, |place| place.node)
    }
}

/// Where so many numbers are free beside those that are taken: at the front, or behind some of them.
pub(crate) fn free_stretch(taken: impl Iterator<Item = Range<u32>> + Clone, len: u32) -> u32 {
    let starts = std::iter::once(0).chain(taken.clone().map(|taken| taken.end));
    let free = |start: &u32| {
        let end = start.saturating_add(len);
        taken.clone().all(|taken| *start >= taken.end || end <= taken.start)
    };
    starts.filter(free).min().expect("behind the last of them every number is free")
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
        free_stretch(self.iter().map(Job::processes), ranks)
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> + Clone {
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

    /// How many ranks there are here in all.
    pub(super) fn ranks(&self) -> u64 {
        self.iter().map(|job| u64::from(job.here.count())).sum()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_node_are_counted_and_found_over_gaps() {
        let place = |node, first, count| Place { node, first, count };
        let ranks = Ranks::of_node(&[place(1, 0, 2), place(2, 2, 3), place(1, 5, 2)], 1);
        assert_eq!((ranks.count(), Ranks::default().count()), (4, 0));
        assert_eq!(
            [0, 1, 2, 5, 6, 7].map(|rank| ranks.from(rank)),
            [Some(0), Some(1), Some(5), Some(5), Some(6), None]
        );
        assert_eq!([0, 1, 2, 5, 6, 7].map(|rank| ranks.before(rank)), [0, 1, 2, 2, 3, 4]);
    }
}
