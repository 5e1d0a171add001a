//! Reports of daemons: validation, then effect.

use hydrant_core::trace::{Cause, Exit};
use hydrant_core::{JobId, OwnedInput, OwnedOutput, Rank};

use super::{Action, Head, NodeProgress, StalledFence, Upcall};
use crate::error::Error;
use crate::jobs::Job;
use crate::protocol::{BackendFailure, Order, OutputChunk, Report, decode};
use crate::stalled::stalled_line;

/// Most lines that are printed about one stalled fence, each about one node.
const STALLED_LINES_MAX: u32 = 16;

/// Whether a valid report concerns something that still exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Validity {
    Current,
    Stale,
}

/// Whether a node may report that a rank has ended its job. Only for a rank that others wait for in vain may it be one of
/// another node.
fn may_report(node: u32, job: &Job<NodeProgress>, cause: Cause) -> bool {
    let rank = cause.rank().0;
    rank < job.size() && (matches!(cause, Cause::Absent { .. }) || job.run.node(rank) == node)
}

impl Head {
    /// Checks output of a rank of `node`. Returns `None` if the rank's job is over.
    ///
    /// # Errors
    /// The bytes are no [`OutputChunk`], or the rank runs on another node.
    pub fn decode_output<'a>(&self, node: u32, bytes: &'a [u8]) -> Result<Option<OutputChunk<'a>>, Error> {
        let chunk: OutputChunk<'a> = decode(bytes).ok_or_else(|| self.invalid(node))?;
        let validity = self.check_rank(node, chunk.job, chunk.rank)?;
        Ok((validity == Validity::Current).then_some(chunk))
    }

    pub(super) fn message(&mut self, now: u64, node: u32, bytes: &[u8]) -> Result<(), Error> {
        let report = decode(bytes).ok_or_else(|| self.invalid(node))?;
        match self.check(node, &report)? {
            Validity::Current => self.apply(now, node, report),
            Validity::Stale => Ok(()),
        }
    }

    fn invalid(&self, node: u32) -> Error {
        Error::InvalidReport { host: self.host(node).to_owned(), node }
    }

    /// Checks that a report concerns ranks of the reporting node, in a state that allows it.
    fn check(&self, node: u32, report: &Report) -> Result<Validity, Error> {
        let nodes = self.config.hosts.len() as u32;
        if !(1..=nodes).contains(&node) {
            return Err(self.invalid(node));
        }
        if self.lost.contains(&node) {
            let is_about_settings = matches!(
                report,
                Report::Ready | Report::BackendFailed(BackendFailure::Own(_)) | Report::Print(_)
            );
            let counts = self.is_newcomer(node) && is_about_settings;
            return Ok(if counts { Validity::Current } else { Validity::Stale });
        }
        match *report {
            Report::Identity { .. }
            | Report::Ready
            | Report::Board(_)
            | Report::BoardLinked(_)
            | Report::NeedsFiles
            | Report::Print(_)
            | Report::RankStates { .. }
            | Report::Usage { .. }
            | Report::InputPushed { .. }
            | Report::RelayTool { .. }
            | Report::ServerReplaced(_) => Ok(Validity::Current),
            Report::BackendFailed(BackendFailure::Own(_)) => Ok(Validity::Current),
            Report::BackendFailed(BackendFailure::Neighbour { node: neighbour, .. }) => {
                self.require(node, neighbour <= nodes && neighbour != node)
            }
            Report::JobOpened { job, ordinal } => {
                match self.jobs.get(job).filter(|job| job.ordinal == ordinal) {
                    Some(job) => self.require(node, job.run.unopened.contains(&node)),
                    None => Ok(Validity::Stale),
                }
            }
            Report::StartFailed { job, .. } | Report::Tell { job, .. } => Ok(self.check_job(job)),
            Report::RanksStarted { job, ref ranks } => self.check_started(node, job, ranks),
            Report::RanksJoined { job, ranks } => {
                let size = self.jobs.get(job).map_or(u32::MAX, |job| job.size());
                self.require(node, (1..=size).contains(&ranks))?;
                self.check_participant(node, job)
            }
            Report::Profile { job, .. } => self.check_participant(node, job),
            Report::Output(ref output) => self.check_output(node, output),
            Report::JobStarted(id) => {
                let has_all =
                    |job: &Job<NodeProgress>| job.run.ranks_on(node).all(|rank| job.pid(rank).is_some());
                self.require(node, self.jobs.get(id).is_none_or(has_all))?;
                self.check_participant(node, id)
            }
            Report::JobDone(id) => {
                if let Some(job) = self.jobs.get(id) {
                    self.require(node, !job.run.ranks_on(node).any(|rank| job.is_running(rank)))?;
                }
                self.check_participant(node, id)
            }
            Report::Exited { job: id, rank, .. } => {
                let validity = self.check_rank(node, id, rank)?;
                if let Some(job) = self.jobs.get(id) {
                    self.require(node, job.pid(rank.0).is_some())?;
                }
                Ok(validity)
            }
            Report::StdinConsumed(bytes) => match self.is_stdin_node(node) {
                Some(reads) => self.require(node, reads && self.can_consume(node, bytes)),
                None => Ok(Validity::Stale),
            },
            Report::StdinClosed => match self.is_stdin_node(node) {
                Some(reads) => self.require(node, reads),
                None => Ok(Validity::Stale),
            },
        }
    }

    /// Checks an output of a node's PMI server: only some outputs are reported, and they concern ranks of the node.
    fn check_output(&self, node: u32, output: &OwnedOutput) -> Result<Validity, Error> {
        match *output {
            OwnedOutput::AbortJob { job, cause, .. } => {
                self.require(node, self.jobs.get(job).is_none_or(|job| may_report(node, job, cause)))?;
                self.check_participant(node, job)
            }
            OwnedOutput::StalledFence { job, .. } => self.check_participant(node, job),
            // Nodes between those of the jobs pass their requests on.
            OwnedOutput::Connected { job, other, .. } => Ok(self.check_job(job).max(self.check_job(other))),
            OwnedOutput::Spawn { job, rank, .. } | OwnedOutput::Upcall { job, rank, .. } => {
                self.check_rank(node, job, rank)
            }
            OwnedOutput::Bytes { .. }
            | OwnedOutput::Close { .. }
            | OwnedOutput::Joined { .. }
            | OwnedOutput::KillRank { .. }
            | OwnedOutput::Peer { .. }
            | OwnedOutput::RemoveFiles { .. }
            | OwnedOutput::Log { .. } => Err(self.invalid(node)),
        }
    }

    fn require(&self, node: u32, holds: bool) -> Result<Validity, Error> {
        if holds { Ok(Validity::Current) } else { Err(self.invalid(node)) }
    }

    fn check_job(&self, job: JobId) -> Validity {
        if self.jobs.get(job).is_some() { Validity::Current } else { Validity::Stale }
    }

    fn check_participant(&self, node: u32, job: JobId) -> Result<Validity, Error> {
        match self.jobs.get(job) {
            Some(job) => self.require(node, job.run.has_ranks_on(node)),
            None => Ok(Validity::Stale),
        }
    }

    fn check_rank(&self, node: u32, job: JobId, rank: Rank) -> Result<Validity, Error> {
        match self.jobs.get(job) {
            Some(job) => self.require(node, rank.0 < job.size() && job.run.node(rank.0) == node),
            None => Ok(Validity::Stale),
        }
    }

    fn check_started(&self, node: u32, id: JobId, ranks: &[(Rank, u32)]) -> Result<Validity, Error> {
        let Some(job) = self.jobs.get(id) else { return Ok(Validity::Stale) };
        let mut previous = None;
        for &(rank, pid) in ranks {
            self.check_rank(node, id, rank)?;
            let is_next = previous.is_none_or(|previous| previous < rank);
            let is_new = job.pid(rank.0).is_none() && job.run.busy.contains(&node);
            self.require(node, is_next && is_new && (1..=i32::MAX as u32).contains(&pid))?;
            previous = Some(rank);
        }
        Ok(Validity::Current)
    }

    fn apply(&mut self, now: u64, node: u32, report: Report) -> Result<(), Error> {
        match report {
            Report::Identity { .. } => {}
            Report::Ready => self.node_ready(node)?,
            Report::Board(report) => self.board_counted(node, report),
            Report::BoardLinked(result) => self.board_linked(node, result),
            Report::NeedsFiles => self.actions.push_back(Action::SendFiles),
            Report::BackendFailed(failure) => self.backend_failed(node, failure),
            Report::JobOpened { job, .. } => self.node_opened(node, job),
            Report::RanksStarted { job, ranks } => {
                for (rank, pid) in ranks {
                    self.jobs[job].rank_started(rank.0, pid);
                    self.actions.push_back(Action::RankStarted { job, rank, pid });
                }
            }
            Report::RanksJoined { job, ranks } => self.actions.push_back(Action::RanksJoined { job, ranks }),
            Report::JobStarted(job) => self.node_started(node, job),
            Report::StartFailed { job, error } => self.start_failed(node, job, &error),
            Report::Exited { job: id, rank, exit, requested } => {
                if !self.jobs[id].is_running(rank.0) {
                    return Ok(());
                }
                if self.is_asked_to_end(id, node) {
                    self.rank_left(id, rank, exit);
                } else if self.rank_ended(id, rank, exit, requested) {
                    self.rank_is_missed(id, rank.0);
                }
            }
            Report::JobDone(job) => self.node_done(node, job),
            Report::Profile { job, body } => self.actions.push_back(Action::Profile { node, job, body }),
            Report::Output(output) => self.handle_output(now, node, output),
            Report::ServerReplaced(result) => self.actions.push_back(Action::ServerReplaced { node, result }),
            Report::RankStates { query, body } => {
                self.actions.push_back(Action::RankStates { node, query, body });
            }
            Report::Usage { query, body } => self.actions.push_back(Action::Usage { node, query, body }),
            Report::InputPushed { push, is_taken } => {
                self.actions.push_back(Action::InputPushed { node, push, is_taken });
            }
            Report::RelayTool { number, relayed } => {
                self.actions.push_back(Action::RelayTool { node, number, relayed });
            }
            Report::StdinConsumed(bytes) => self.stdin_consumed(node, bytes),
            Report::StdinClosed => self.stdin_closed(node),
            Report::Print(line) => self.print(line),
            Report::Tell { job, line } => self.tell(self.jobs[job].submission, line),
        }
        Ok(())
    }

    /// Handles a checked output of a node's PMI server.
    fn handle_output(&mut self, now: u64, node: u32, output: OwnedOutput) {
        match output {
            OwnedOutput::AbortJob { job, cause, message } => self.rank_failed(job, cause, message),
            OwnedOutput::StalledFence { job, arrived, size, missing } => {
                let arrived = self.config.is_alone.then_some((arrived, size));
                self.fence_stalled(now, (node, job), arrived, &missing);
            }
            OwnedOutput::Spawn { spawn: id, job, rank, protocol, request } => {
                self.spawn(Upcall { node, id, job, rank, protocol, request });
            }
            OwnedOutput::Upcall { upcall: id, job, rank, protocol, request } => {
                self.upcall(Upcall { node, id, job, rank, protocol, request });
            }
            OwnedOutput::Connected { job, other, connected } => {
                self.jobs.relate(job, other, connected);
            }
            _ => {}
        }
    }

    /// A running rank has ended. Returns whether it is the first of its job to fail.
    pub(super) fn rank_ended(&mut self, id: JobId, rank: Rank, exit: Exit, requested: Option<u8>) -> bool {
        let job = &mut self.jobs[id];
        let first = job.rank_exited(rank.0, exit, requested);
        let status = self.statuses.of_mut(job.submission);
        status.record_exit(job.ordinal == 0, first, job.counted_exit(rank.0));
        self.actions.push_back(Action::CancelLookups { job: id, rank });
        first.is_some()
    }

    /// A rank has failed. Without cleanup its job goes on.
    fn rank_is_missed(&mut self, id: JobId, rank: u32) {
        let job = &self.jobs[id];
        let (submission, cleanup) = (job.submission, job.run.cleanup);
        let line = job.describe_loss(rank, self.statuses.of(submission), self.host_of_rank(job, rank));
        line.filter(|_| !cleanup).into_iter().for_each(|line| self.tell(submission, line));
    }

    /// A fence is stalled. Each node reports which of its own ranks are missing. `arrived` is known if there is only one node.
    fn fence_stalled(
        &mut self,
        now: u64,
        (node, id): (u32, JobId),
        arrived: Option<(u32, u32)>,
        missing: &str,
    ) {
        let warning = self.config.fence_warning;
        let known = self.stalled.filter(|known| known.job == id && now < known.since + warning);
        let mut stalled = known.unwrap_or(StalledFence { job: id, since: now, lines: 0 });
        let is_shown = !missing.is_empty() && stalled.lines < STALLED_LINES_MAX;
        stalled.lines += u32::from(is_shown);
        self.stalled = Some(stalled);
        if known.is_none() && arrived.is_none() {
            // A node none of whose ranks has arrived does not know that there is a fence.
            self.send_all(Order::Input(OwnedInput::StalledFence { job: id }));
        }
        if is_shown {
            let missing = self.jobs[id].name_missing(missing, self.host(node));
            let job = &self.jobs[id];
            self.tell(job.submission, stalled_line(job.ordinal, warning, arrived, &missing));
        }
    }
}
