//! Orders of the head, as a daemon carries them out.

use hydrant_core::JobId;

use super::job::{LocalJob, NodeRanks};
use super::{Daemon, DaemonAction};
use crate::error::Error;
use crate::protocol::{JobRecord, Order, Report};

impl Daemon {
    /// Carries an order out.
    ///
    /// # Errors
    /// The order starts a job under a number that is in use.
    pub(super) fn handle_order(&mut self, now: u64, order: Order) -> Result<(), Error> {
        match order {
            Order::Identify => self.report(Report::Identity { pid: self.config.process }),
            // The settings are part of the way to join.
            Order::Setup(_) => {}
            Order::LinkBoards(addrs) => self.tell_backend(DaemonAction::LinkBoard { addrs }),
            Order::FormTree { are_linked } => {
                self.are_linked = are_linked;
                self.tell_backend(DaemonAction::FormTree { are_linked });
            }
            Order::StartJob(record) => self.start_job(record)?,
            Order::StartRanks(job) => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.awaits_nodes = false;
                }
            }
            Order::Signal(signal) => {
                if !matches!(signal, libc::SIGUSR1 | libc::SIGUSR2 | libc::SIGTSTP | libc::SIGCONT) {
                    self.interrupt_starting();
                }
                self.act(DaemonAction::SignalAll(signal));
            }
            Order::SignalRanks { job, rank, signal } if self.jobs.contains_key(&job) => {
                self.act(match rank {
                    Some(rank) => DaemonAction::SignalRank { job, rank, signal },
                    None => DaemonAction::SignalJob { job, signal },
                });
            }
            Order::SignalRanks { .. } => {}
            Order::ReleaseRanks { job, integers } => self.act(DaemonAction::ReleaseRanks { job, integers }),
            Order::ResizeWindows { job, size } => {
                if job.is_none_or(|job| self.jobs.contains_key(&job)) {
                    self.act(DaemonAction::ResizeWindows { job, size });
                }
            }
            Order::AbortJob(job) => self.terminate(now, job),
            Order::CancelJob(job) => self.cancel(job),
            Order::DeregisterJob(job) => self.deregister(job),
            Order::Input(input) => self.tell_backend(DaemonAction::Input(input)),
            Order::QueryRanks { query, job, first, count } => {
                self.act(DaemonAction::QueryRanks { query, job, first, count });
            }
            Order::QueryUsage { query, parts } => self.act(DaemonAction::QueryUsage { query, parts }),
            Order::PushInput { push, job, rank, bytes } => {
                self.act(DaemonAction::PushInput { push, job, rank, bytes });
            }
            Order::RelayTool { number, relayed } => self.act(DaemonAction::RelayTool { number, relayed }),
            Order::ReplaceServer { plugin } => self.act(DaemonAction::ReplaceServer { plugin }),
            Order::Stdin(bytes) => self.act(DaemonAction::FeedStdin(bytes)),
            Order::CloseOutput { job, streams } => {
                if self.jobs.contains_key(&job) {
                    self.act(DaemonAction::CloseOutput { job, streams });
                }
            }
            Order::End => self.end(),
        }
        Ok(())
    }

    fn start_job(&mut self, record: Box<JobRecord>) -> Result<(), Error> {
        let (id, ranks) = (record.id, NodeRanks::of_node(&record.blocks, self.config.node));
        if self.jobs.contains_key(&id) {
            return Err(Error::InvalidOrder);
        }
        if self.backend_failed {
            // The head gave the order before it got the report.
            if ranks.count() > 0 {
                self.report(Report::JobDone(id));
            }
            return Ok(());
        }
        let kill_grace = record.submitted.as_ref().and_then(|submitted| submitted.settings.kill_grace);
        let mut job = LocalJob::new(record.ordinal, ranks, self.are_linked);
        (job.kill_grace, job.is_submitted) = (kill_grace, record.submitted.is_some());
        self.jobs.insert(id, job);
        self.act(DaemonAction::OpenJob { record });
        Ok(())
    }

    /// Drops a job that all nodes are done with. A job that could not be opened is gone by now.
    fn deregister(&mut self, id: JobId) {
        self.kills.forget_job(id);
        if self.jobs.remove(&id).is_some() {
            self.act(DaemonAction::DeregisterJob { job: id });
        }
    }

    /// Passes a decision of the head to the PMI server, unless it has failed.
    fn tell_backend(&mut self, action: DaemonAction) {
        if !self.backend_failed {
            self.act(action);
        }
    }
}
