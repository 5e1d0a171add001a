//! Lone nodes: the whole run is on this host, and its board shows the user how it sees the jobs.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use hydrant_core::manage::OpenNode;
use hydrant_core::server::JobReport;
use hydrant_core::server::remote::NodeRequest;
use hydrant_core::{Fault, JobId, Limits};
use rustix::event::{PollFd, PollFlags, poll};

use super::NodeBoard;
use crate::client::Board;
use crate::error::{BoardError, PATIENCE};
use crate::lines::{job_line, limit_line};
use crate::queries::Purpose;
use crate::time::timespec;

/// Description of the first job in error messages.
pub(super) const JOB: &str = "the job";

impl NodeBoard {
    /// Has a board serve all jobs of a run on this host, with limits that are as close to these as those of the board allow. With
    /// a seed for [`NodeBoard::record`] it sends a recording. Returns it with a description.
    ///
    /// # Errors
    /// The board is lost or refuses.
    pub fn lone(
        board: Board,
        wanted: &Limits,
        heartbeat: Duration,
        record: Option<u32>,
    ) -> Result<(NodeBoard, String), BoardError> {
        let (mut limits, most) = (*wanted, *board.node_limits());
        for limit in wanted.exceeding(most) {
            limits.set(limit, most.of(limit));
        }
        let open = OpenNode { node: 0, nodes: 1, radix: 2, limits, seed: None, link: None, record };
        let (described, name) = (board.describe(), board.name().to_owned());
        let opened = board.into_node(JOB, &open)?;
        Ok((NodeBoard::new(name, opened, open, heartbeat), described))
    }

    pub(super) fn is_lone(&self) -> bool {
        self.open.nodes == 1
    }

    /// Sets the time after which a fence that waits is reported.
    pub(super) fn watch_fences(&mut self, warning: u64) {
        self.heartbeat.fence_warning = Duration::from_millis(warning);
    }

    /// Counts the ranks of a job in each state. In runs on several hosts a board knows a part of the ranks only.
    pub(super) fn count_ranks(&mut self, job: JobId, purpose: Purpose) -> Result<(), BoardError> {
        match self.sizes.get(&job) {
            Some(&size) if self.is_lone() => self.query(purpose, job, (0..size).collect()),
            _ => Ok(()),
        }
    }

    /// Counts again while ranks wait in a fence.
    pub(super) fn count_waiting(&mut self) -> Result<(), BoardError> {
        match self.fence_of {
            Some(job) => self.count_ranks(job, Purpose::Watch),
            None => Ok(()),
        }
    }

    /// Takes the numbers of ranks of a job.
    pub(super) fn counted(&mut self, job: JobId, counted: &JobReport, print: bool) {
        if counted.in_fence > 0 {
            self.fence_of = Some(job);
            self.heartbeat.answered(counted);
        } else {
            self.forget_fence(job);
        }
        if print {
            self.lines.push_back(job_line(counted));
        }
    }

    /// No rank of the job waits in a fence.
    pub(super) fn forget_fence(&mut self, job: JobId) {
        if self.fence_of == Some(job) {
            self.fence_of = None;
            self.heartbeat.left_fence();
        }
    }

    /// Shows that the board has refused a client because of a limit.
    pub(super) fn client_refused(&mut self, why: Fault) {
        if let Fault::Full(limit, size) = why
            && self.is_lone()
        {
            self.lines.push_back(limit_line(limit, size));
        }
    }

    /// Returns the next line to print.
    pub fn line(&mut self) -> Option<String> {
        self.lines.pop_front()
    }

    /// Counts the ranks of the jobs that the board has. The lines are to be printed.
    ///
    /// # Errors
    /// The board is lost.
    pub fn count_all(&mut self) -> Result<(), BoardError> {
        let jobs: Vec<JobId> = self.sizes.keys().copied().collect();
        jobs.into_iter().try_for_each(|job| self.count_ranks(job, Purpose::Print))?;
        self.ask("a report", &NodeRequest::Sync { number: u32::MAX }).map(drop)
    }

    /// Ends the node, and waits until the board has ended it, so that the next run finds the board free.
    pub fn end(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        if self.link.flush().is_err() || self.link.stream().shutdown(Shutdown::Write).is_err() {
            return;
        }
        while self.link.fill().is_ok() && self.take_rest() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            // The deadline limits the wait for every result of `poll`.
            let _ = poll(&mut [PollFd::new(self.link.stream(), PollFlags::IN)], Some(&timespec(left)));
        }
    }

    /// Takes the last reports, which may have the end of a recording. Returns whether there may be more.
    fn take_rest(&mut self) -> bool {
        loop {
            match self.next_report() {
                Ok(Some(_)) => self.events.clear(),
                Ok(None) => return true,
                // The board has closed the connection.
                Err(_) => return false,
            }
        }
    }
}
