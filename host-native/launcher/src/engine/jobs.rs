//! Jobs whose ranks this process starts.
//!
//! Each job has a range of slots, one for each rank. The slots index the tables of processes, streams and connections.

use std::ops::Range;

use hydrant_control::protocol::RankBlock;
use hydrant_driver::TcpPort;
use hydrant_reactor::Listener;

use super::query::Query;
use crate::launch::Launcher;

/// A job with ranks on this machine.
pub(super) type Job = hydrant_control::Job<LocalRanks>;
/// All of them.
pub(super) type Jobs = hydrant_control::Jobs<LocalRanks>;

/// Ranks of a job on this machine.
#[derive(Default)]
pub(super) struct LocalRanks {
    /// Ranks that this process starts.
    pub(super) ranks: Ranks,
    /// Missing without such ranks.
    pub(super) launcher: Option<Launcher>,
    /// Next rank to start. None when all have been started or starting has stopped.
    pub(super) next: Option<u32>,
    /// Port for PMI clients, in the place of inherited sockets.
    pub(super) port: Option<Listener<TcpPort>>,
    /// Port for PMIx clients.
    pub(super) pmix: Option<Listener<TcpPort>>,
    /// Socket for queries about process sets.
    pub(super) query: Option<Query>,
    /// All ranks have ended, and the rest of their output is being written.
    pub(super) draining: bool,
    /// The head has received the report that all ranks are done, and decides about the job.
    pub(super) done: bool,
}

impl LocalRanks {
    /// Returns whether ranks remain to be started.
    pub(super) fn is_starting(&self) -> bool {
        self.next.is_some()
    }

    /// Advances to the next rank to start.
    pub(super) fn advance(&mut self) {
        self.next = self.next.and_then(|rank| self.ranks.from(rank + 1));
    }

    /// The ports that the job listens at.
    pub(super) fn ports(&self) -> impl Iterator<Item = &Listener<TcpPort>> {
        self.port.iter().chain(&self.pmix)
    }

    /// The ports that the job listens at.
    pub(super) fn ports_mut(&mut self) -> impl Iterator<Item = &mut Listener<TcpPort>> {
        self.port.iter_mut().chain(&mut self.pmix)
    }

    /// Starts no more ranks.
    pub(super) fn stop_starting(&mut self) {
        self.next = None;
    }
}

/// Returns whether all ranks of a job have ended and its end has not been reported.
pub(super) fn is_over(job: &Job) -> bool {
    !job.run.is_starting() && job.running() == 0 && !job.run.done
}

/// Number of ranks of all jobs on this machine.
pub(super) fn count_ranks(jobs: &Jobs) -> u64 {
    jobs.iter().map(|job| u64::from(job.run.ranks.count())).sum()
}

/// Ranks of a job, as ranges in ascending order.
#[derive(Debug, Default)]
pub(super) struct Ranks(Vec<Range<u32>>);

impl Ranks {
    /// Those of a node.
    pub(super) fn of_node(blocks: &[RankBlock], node: u32) -> Ranks {
        let here = blocks.iter().filter(|block| block.node == node);
        Ranks(here.map(|block| block.first..block.first + block.count).collect())
    }

    /// Number of ranks.
    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the first local rank that is not below `rank`.
    pub(super) fn from(&self, rank: u32) -> Option<u32> {
        self.0.iter().find(|range| range.end > rank).map(|range| range.start.max(rank))
    }

    /// Number of ranks below `rank`.
    pub(super) fn before(&self, rank: u32) -> u32 {
        self.0.iter().map(|range| rank.clamp(range.start, range.end) - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_node_are_counted_and_found_over_gaps() {
        let block = |node, first, count| RankBlock { node, first, count };
        let ranks = Ranks::of_node(&[block(1, 0, 2), block(2, 2, 3), block(1, 5, 2)], 1);
        assert_eq!((ranks.count(), Ranks::default().count()), (4, 0));
        assert_eq!(
            [0, 1, 2, 5, 6, 7].map(|rank| ranks.from(rank)),
            [Some(0), Some(1), Some(5), Some(5), Some(6), None]
        );
        assert_eq!([0, 1, 2, 5, 6, 7].map(|rank| ranks.before(rank)), [0, 1, 2, 2, 3, 4]);
    }

    #[test]
    fn ranks_are_started_in_order() {
        let block = |node, first, count| RankBlock { node, first, count };
        let ranks = Ranks::of_node(&[block(1, 1, 2), block(1, 5, 1)], 1);
        let mut local = LocalRanks { next: ranks.from(0), ranks, ..LocalRanks::default() };
        let mut started = Vec::new();
        while let Some(rank) = local.next {
            started.push(rank);
            local.advance();
        }
        assert_eq!((started, local.is_starting()), (vec![1, 2, 5], false));
    }
}
