//! Jobs as a daemon knows them: their ranks on its node.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::protocol::RankBlock;

/// Stage of a job on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The host registers the job.
    Opening,
    /// Ranks are started or run.
    Running,
    /// All ranks have ended, and the rest of their output is sent.
    Draining,
    /// The head has the report that the node is done with the job, or the node has no ranks of it.
    Done,
}

/// A job on one node.
#[derive(Debug)]
pub(super) struct LocalJob {
    pub(super) ordinal: u32,
    pub(super) phase: Phase,
    /// Time between `SIGTERM` and `SIGKILL`, if it is not that of the run.
    pub(super) kill_grace: Option<Duration>,
    /// It is a job of a fleet: lines about it are for who has submitted it.
    pub(super) is_submitted: bool,
    here: NodeRanks,
    /// Ranks are not started before all nodes have opened the job.
    pub(super) awaits_nodes: bool,
    /// Next rank to start. `None` when all have been started or starting has stopped.
    next: Option<u32>,
    /// No more ranks are started.
    stopped: bool,
    started: BTreeMap<u32, RankState>,
    running: u32,
    joined: u32,
    /// Number of ranks that have joined and have not been reported.
    unreported: u32,
}

#[derive(Clone, Copy, Debug)]
struct RankState {
    pid: u32,
    running: bool,
    joined: bool,
    requested: Option<u8>,
}

impl LocalJob {
    /// A job whose registration is under way.
    pub(super) fn new(ordinal: u32, here: NodeRanks, awaits_nodes: bool) -> LocalJob {
        LocalJob {
            ordinal,
            phase: Phase::Opening,
            kill_grace: None,
            is_submitted: false,
            next: here.from(0),
            here,
            awaits_nodes,
            stopped: false,
            started: BTreeMap::new(),
            running: 0,
            joined: 0,
            unreported: 0,
        }
    }

    /// Whether it is the job of the command line.
    pub(super) fn is_of_command_line(&self) -> bool {
        self.ordinal == 0 && !self.is_submitted
    }

    pub(super) fn has_ranks(&self) -> bool {
        self.here.count() > 0
    }

    /// The next rank to start.
    pub(super) fn next_rank(&self) -> Option<u32> {
        self.next.filter(|_| self.phase == Phase::Running && !self.awaits_nodes)
    }

    /// Starts no more ranks. Returns whether there were ranks to start.
    pub(super) fn stop_starting(&mut self) -> bool {
        // A job all of whose ranks run has nothing to stop.
        let stops = self.next.take().is_some();
        self.stopped |= stops;
        stops
    }

    /// Whether starting ended before all ranks were started.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn rank_started(&mut self, rank: u32, pid: u32) {
        self.next = self.next.and_then(|_| self.here.from(rank + 1));
        self.started.insert(rank, RankState { pid, running: true, joined: false, requested: None });
        self.running += 1;
    }

    /// Records that a rank has joined the PMI server.
    pub(super) fn rank_joined(&mut self, rank: u32) {
        if let Some(state) = self.started.get_mut(&rank).filter(|state| !state.joined) {
            state.joined = true;
            self.joined += 1;
            self.unreported += 1;
        }
    }

    /// Whether all ranks here have joined the PMI server.
    pub(super) fn has_all_joined(&self) -> bool {
        self.joined == self.here.count()
    }

    /// Returns the number of ranks that have joined since the last call.
    pub(super) fn take_joined(&mut self) -> u32 {
        std::mem::take(&mut self.unreported)
    }

    /// Returns false if the rank did not run.
    pub(super) fn rank_exited(&mut self, rank: u32) -> bool {
        match self.started.get_mut(&rank).filter(|rank| rank.running) {
            Some(state) => {
                state.running = false;
                self.running -= 1;
                true
            }
            None => false,
        }
    }

    /// Records the exit code that a rank asked to be ended with. The first one counts.
    pub(super) fn request_exit(&mut self, rank: u32, code: u8) {
        if let Some(rank) = self.started.get_mut(&rank) {
            rank.requested.get_or_insert(code);
        }
    }

    pub(super) fn requested_exit(&self, rank: u32) -> Option<u8> {
        self.started.get(&rank)?.requested
    }

    /// Process id of a rank that has been started.
    pub(super) fn pid(&self, rank: u32) -> Option<u32> {
        Some(self.started.get(&rank)?.pid)
    }

    pub(super) fn is_any_running(&self) -> bool {
        self.running > 0
    }

    /// Whether all ranks here have ended and their output has not been asked for.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Running && self.next.is_none() && self.running == 0
    }
}

/// Ranks of a job on one node, as ranges in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRanks(Vec<Range<u32>>);

impl NodeRanks {
    /// Those of a node.
    pub fn of_node(blocks: &[RankBlock], node: u32) -> NodeRanks {
        let here = blocks.iter().filter(|block| block.node == node);
        NodeRanks(here.map(|block| block.first..block.first + block.count).collect())
    }

    /// Number of ranks.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The first rank of the node that is not below `rank`.
    pub fn from(&self, rank: u32) -> Option<u32> {
        self.0.iter().find(|range| range.end > rank).map(|range| range.start.max(rank))
    }

    /// Whether a rank is on the node.
    pub fn contains(&self, rank: u32) -> bool {
        self.from(rank) == Some(rank)
    }

    /// Number of the node's ranks below `rank`.
    pub fn before(&self, rank: u32) -> u32 {
        self.0.iter().map(|range| rank.clamp(range.start, range.end) - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks() -> NodeRanks {
        let block = |node, first, count| RankBlock { node, first, count };
        NodeRanks::of_node(&[block(1, 0, 2), block(2, 2, 3), block(1, 5, 2)], 1)
    }

    #[test]
    fn ranks_of_a_node_are_counted_and_found_over_gaps() {
        let ranks = ranks();
        assert_eq!((ranks.count(), NodeRanks::default().count()), (4, 0));
        assert_eq!(
            [0, 1, 2, 5, 6, 7].map(|rank| ranks.from(rank)),
            [Some(0), Some(1), Some(5), Some(5), Some(6), None]
        );
        assert_eq!([0, 1, 2, 5, 6, 7].map(|rank| ranks.before(rank)), [0, 1, 2, 2, 3, 4]);
    }

    #[test]
    fn ranks_are_started_in_order() {
        let mut job = LocalJob::new(0, ranks(), true);
        assert_eq!(job.next_rank(), None, "the job is not open yet");
        job.phase = Phase::Running;
        assert_eq!(job.next_rank(), None, "other nodes have not opened it");
        job.awaits_nodes = false;
        let mut started = Vec::new();
        while let Some(rank) = job.next_rank() {
            started.push(rank);
            job.rank_started(rank, 100 + rank);
        }
        assert_eq!((started, job.is_stopped(), job.is_over()), (vec![0, 1, 5, 6], false, false));
    }

    #[test]
    fn a_job_that_is_stopped_early_is_over_with_its_started_ranks() {
        let mut job = LocalJob::new(0, ranks(), false);
        job.phase = Phase::Running;
        job.rank_started(0, 100);
        job.stop_starting();
        assert_eq!((job.next_rank(), job.is_stopped(), job.is_over()), (None, true, false));
        assert!(job.rank_exited(0) && !job.rank_exited(0) && !job.rank_exited(5));
        assert!(job.is_over());
    }
}
