//! The daemon of a node, as a state machine without I/O.

mod event;
mod job;
mod order;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use hydrant_core::trace::{Exit, SignalName};
use hydrant_core::{JobId, OwnedOutput, Rank};

pub use event::{DaemonAction, DaemonEvent};
pub use job::NodeRanks;

use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::jobs::{rank_name, self_abort_line};
use crate::kill_escalation::{KillEscalation, KillTarget};
use crate::protocol::{BackendFailure, Report, StartError};
use job::{LocalJob, Phase};

/// What a daemon knows from the start.
#[derive(Clone, Debug)]
pub struct DaemonConfig {
    /// Its node.
    pub node: u32,
    /// Its process id, for [`Report::Identity`].
    pub process: u32,
    /// Whether the head waits for [`Report::Ready`], see [`Setup::needs_ready`](crate::protocol::Setup::needs_ready).
    pub needs_ready: bool,
    /// Whether each step is printed.
    pub verbose: bool,
    /// Whether ranks that have joined are reported, see [`Setup::progress`](crate::protocol::Setup::progress).
    pub progress: bool,
    /// Time between `SIGTERM` and `SIGKILL`, if the user chose it.
    pub kill_grace: Option<Duration>,
}

/// Milliseconds from a rank that joins to the report about it.
const JOINED_DELAY: u64 = 250;

/// The daemon of a node (`prted` in PRRTE, proxy in hydra): it starts the node's ranks, passes signals on, and reports to
/// the head.
///
/// The host of the daemon calls these methods in a loop:
///
/// - [`handle`](Daemon::handle) applies one event. It does not block.
/// - [`poll`](Daemon::poll) returns the next action. Call it after each `handle` until it returns `None`, and carry the
///   actions out in this order. Some are answered by an event, as documented at [`DaemonAction`].
/// - [`next_rank`](Daemon::next_rank) returns the next rank of a job to start. The host decides how many ranks it starts
///   before it handles other events. Ranks that were started between two polls are one report.
/// - [`poll_at`](Daemon::poll_at) and [`handle_timeout`](Daemon::handle_timeout) escalate from `SIGTERM` to `SIGKILL`,
///   and report ranks that have joined.
///
/// A daemon decides nothing about a whole job: a rank that fails is reported, and the head orders the end of the others.
/// Only a lost head, a failed PMI server and a failed start end ranks without an order.
///
/// ```
/// use hydrant_control::{Daemon, DaemonAction, DaemonConfig, DaemonEvent};
/// use hydrant_control::protocol::{Order, Report};
///
/// let config = DaemonConfig {
///     node: 1,
///     process: 4711,
///     needs_ready: false,
///     verbose: false,
///     progress: false,
///     kill_grace: None,
/// };
/// let mut daemon = Daemon::new(config);
/// daemon.handle(0, DaemonEvent::Order(Order::Identify))?;
/// assert_eq!(daemon.poll(), Some(DaemonAction::Send(Report::Identity { pid: 4711 })));
/// daemon.handle(5, DaemonEvent::LifelineLost)?;
/// assert_eq!(daemon.poll(), Some(DaemonAction::EndNode));
/// # Ok::<(), hydrant_control::Error>(())
/// ```
#[derive(Debug)]
pub struct Daemon {
    config: DaemonConfig,
    /// Jobs that are registered here, also those without ranks on this node.
    jobs: BTreeMap<JobId, LocalJob>,
    kills: KillEscalation,
    /// Signals that the daemon itself got.
    signals: ExitStatus,
    backend_failed: bool,
    /// Boards are linked, so that ranks start after [`Order::StartRanks`](crate::protocol::Order::StartRanks).
    are_linked: bool,
    /// The node has been ended. No event has an effect.
    ended: bool,
    /// Started ranks of one job that have not been reported.
    unreported: Option<(JobId, Vec<(Rank, u32)>)>,
    /// Time of the next report about ranks that have joined.
    joined_at: Option<u64>,
    actions: VecDeque<DaemonAction>,
}

impl Daemon {
    /// A daemon that has joined and received the settings of the run.
    pub fn new(config: DaemonConfig) -> Daemon {
        Daemon {
            kills: KillEscalation::new(config.kill_grace),
            config,
            jobs: BTreeMap::new(),
            signals: ExitStatus::default(),
            backend_failed: false,
            are_linked: false,
            ended: false,
            unreported: None,
            joined_at: None,
            actions: VecDeque::new(),
        }
    }

    /// Applies an event that happened at `now`, in milliseconds of any clock that does not go back.
    ///
    /// # Errors
    /// The head sent an invalid order. The node cannot go on.
    pub fn handle(&mut self, now: u64, event: DaemonEvent) -> Result<(), Error> {
        if self.ended {
            return Ok(());
        }
        match event {
            DaemonEvent::Order(order) => self.handle_order(now, order)?,
            DaemonEvent::SetupApplied => {
                if self.config.needs_ready {
                    self.report(Report::Ready);
                }
            }
            DaemonEvent::JobOpened { job } => self.job_opened(job),
            DaemonEvent::OpenFailed { job, errors } => {
                errors.into_iter().for_each(|error| self.report(Report::StartFailed { job, error }));
                self.drop_unopened(job);
            }
            DaemonEvent::RankStarted { job, rank, pid } => self.rank_started(job, rank, pid),
            DaemonEvent::StartFailed { job, error } => self.start_failed(job, error),
            DaemonEvent::RankExited { job, rank, exit } => self.rank_exited(job, rank, exit),
            DaemonEvent::OutputDrained { job } => self.output_drained(job),
            DaemonEvent::BackendFailed(failure) => self.fail_backend(failure),
            DaemonEvent::Output(output) => self.handle_output(now, output),
            DaemonEvent::StdinConsumed(bytes) => self.report(Report::StdinConsumed(bytes)),
            DaemonEvent::StdinClosed => self.report(Report::StdinClosed),
            DaemonEvent::Signal(signal) => self.pass_signal_on(signal),
            DaemonEvent::Suspended => self.act(DaemonAction::SignalAll(libc::SIGTSTP)),
            DaemonEvent::Resumed => self.act(DaemonAction::SignalAll(libc::SIGCONT)),
            DaemonEvent::LifelineLost | DaemonEvent::Shutdown => self.end(),
        }
        self.settle();
        Ok(())
    }

    /// Handles an output of the node's PMI server.
    fn handle_output(&mut self, now: u64, output: OwnedOutput) {
        match output {
            OwnedOutput::Joined { job, rank, .. } => self.rank_joined(now, job, rank),
            OwnedOutput::KillRank { job, rank, code, message } => {
                self.kill_rank(now, job, rank, code, &message);
            }
            OwnedOutput::AbortJob { job, .. }
            | OwnedOutput::StalledFence { job, .. }
            | OwnedOutput::Spawn { job, .. }
            | OwnedOutput::Upcall { job, .. }
            | OwnedOutput::Connected { job, .. } => self.report_about(job, Report::Output(output)),
            // The host's own.
            OwnedOutput::Bytes { .. }
            | OwnedOutput::Close { .. }
            | OwnedOutput::Peer { .. }
            | OwnedOutput::RemoveFiles { .. }
            | OwnedOutput::Log { .. } => {}
        }
    }

    /// The next action.
    #[must_use]
    pub fn poll(&mut self) -> Option<DaemonAction> {
        if self.actions.is_empty() {
            self.report_started();
        }
        self.actions.pop_front()
    }

    /// Jobs whose next rank can be started.
    pub fn starting(&self) -> Vec<JobId> {
        let starting = self.jobs.iter().filter(|(_, job)| !self.ended && job.next_rank().is_some());
        starting.map(|(&id, _)| id).collect()
    }

    /// The next rank of a job to start. The answer is [`DaemonEvent::RankStarted`] or [`DaemonEvent::StartFailed`].
    pub fn next_rank(&self, job: JobId) -> Option<Rank> {
        self.jobs.get(&job).filter(|_| !self.ended)?.next_rank().map(Rank)
    }

    /// Whether the node's PMI server has failed.
    pub fn has_failed_backend(&self) -> bool {
        self.backend_failed
    }

    /// The time of the next [`handle_timeout`](Daemon::handle_timeout).
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        self.kills.poll_at().into_iter().chain(self.joined_at).min().filter(|_| !self.ended)
    }

    /// Kills ranks that got `SIGTERM` and run on after the [kill timeout](crate::KILL_TIMEOUT), and reports ranks that have joined.
    pub fn handle_timeout(&mut self, now: u64) {
        if self.joined_at.is_some_and(|at| at <= now) && !self.ended {
            self.report_joined();
        }
        while let Some(target) = self.kills.poll(now).filter(|_| !self.ended) {
            let signal = libc::SIGKILL;
            match target {
                KillTarget::Job(job) => {
                    if self.jobs.contains_key(&job) {
                        self.act(DaemonAction::SignalJob { job, signal });
                    }
                }
                KillTarget::Rank { job, rank, pid } => {
                    if self.jobs.get(&job).is_some_and(|job| job.pid(rank) == Some(pid)) {
                        self.act(DaemonAction::SignalRank { job, rank: Rank(rank), signal });
                    }
                }
            }
        }
    }

    fn act(&mut self, action: DaemonAction) {
        self.actions.push_back(action);
    }

    fn report(&mut self, report: Report) {
        self.report_started();
        self.act(DaemonAction::Send(report));
    }

    /// Sends a report about a job, unless this node is done with it: by the time that the report arrives, the number may
    /// be another job's.
    fn report_about(&mut self, job: JobId, report: Report) {
        if self.jobs.get(&job).is_some_and(|job| job.phase != Phase::Done) {
            self.report(report);
        }
    }

    /// Reports ranks that have been started since the last report.
    fn report_started(&mut self) {
        if let Some((job, ranks)) = self.unreported.take() {
            self.act(DaemonAction::Send(Report::RanksStarted { job, ranks }));
        }
    }

    fn job_opened(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.phase == Phase::Opening) {
            // The head does not wait for nodes without ranks of the job.
            job.phase = if job.has_ranks() { Phase::Running } else { Phase::Done };
            let ordinal = job.ordinal;
            if self.are_linked {
                self.report(Report::JobOpened { job: id, ordinal });
            }
        }
    }

    /// Drops a job that could not be opened.
    fn drop_unopened(&mut self, id: JobId) {
        if self.jobs.remove(&id).is_some_and(|job| job.has_ranks()) {
            self.report(Report::JobDone(id));
        }
    }

    fn rank_started(&mut self, id: JobId, rank: Rank, pid: u32) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.rank_started(rank.0, pid);
        let all = job.next_rank().is_none() && !job.is_stopped();
        match &mut self.unreported {
            Some((of, ranks)) if *of == id => ranks.push((rank, pid)),
            _ => {
                self.report_started();
                self.unreported = Some((id, vec![(rank, pid)]));
            }
        }
        if all {
            self.report(Report::JobStarted(id));
        }
    }

    /// Counts a rank of the job of the command line that has joined. The last one is reported at once.
    fn rank_joined(&mut self, now: u64, id: JobId, rank: Rank) {
        let job = self.jobs.get_mut(&id).filter(|job| job.is_of_command_line());
        if let Some(job) = job.filter(|_| self.config.progress) {
            job.rank_joined(rank.0);
            match job.has_all_joined() {
                true => self.report_joined(),
                false => self.joined_at = self.joined_at.or(Some(now + JOINED_DELAY)),
            }
        }
    }

    fn report_joined(&mut self) {
        self.joined_at = None;
        let mut jobs = self.jobs.iter_mut();
        let Some((&job, first)) = jobs.find(|(_, job)| job.is_of_command_line()) else { return };
        let ranks = first.take_joined();
        if ranks > 0 {
            self.report_about(job, Report::RanksJoined { job, ranks });
        }
    }

    /// A rank cannot be started: the job is canceled, here at once and by the head elsewhere.
    fn start_failed(&mut self, id: JobId, error: StartError) {
        self.report(Report::StartFailed { job: id, error });
        self.cancel(id);
    }

    /// Kills the ranks of a job that cannot be started as a whole.
    fn cancel(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.stop_starting();
        self.act(DaemonAction::SignalJob { job: id, signal: libc::SIGKILL });
    }

    /// Ends the ranks of a job: `SIGTERM`, and `SIGKILL` after the kill timeout.
    fn terminate(&mut self, now: u64, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.stop_starting();
        if job.is_any_running() {
            self.kills.terminated_within(now, KillTarget::Job(id), job.kill_grace);
        }
        // A stopped process handles no signal before it is continued.
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            self.act(DaemonAction::SignalJob { job: id, signal });
        }
    }

    /// Ends a rank that asked to be ended alone.
    fn kill_rank(&mut self, now: u64, id: JobId, rank: Rank, code: Option<i32>, message: &str) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let code = Exit::of_killed(code).exit_code();
        job.request_exit(rank.0, code);
        let (name, pid, grace) = (rank_name(job.ordinal, rank.0), job.pid(rank.0), job.kill_grace);
        let is_submitted = job.is_submitted;
        let line = self_abort_line(&name, code, message);
        match is_submitted {
            true => self.report(Report::Tell { job: id, line }),
            false => self.act(DaemonAction::Print(line)),
        }
        if let Some(pid) = pid {
            let target = KillTarget::Rank { job: id, rank: rank.0, pid };
            self.kills.terminated_within(now, target, grace);
        }
        for signal in [libc::SIGTERM, libc::SIGCONT] {
            self.act(DaemonAction::SignalRank { job: id, rank, signal });
        }
    }

    fn rank_exited(&mut self, id: JobId, rank: Rank, exit: Exit) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.rank_exited(rank.0) {
            let requested = job.requested_exit(rank.0);
            self.report(Report::Exited { job: id, rank, exit, requested });
        }
    }

    fn output_drained(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.phase == Phase::Draining) {
            // The head decides about the end of the job.
            job.phase = Phase::Done;
            self.report(Report::JobDone(id));
        }
    }

    /// The run cannot go on without the PMI server of this node. The ranks here are killed at once, the links stay.
    fn fail_backend(&mut self, failure: BackendFailure) {
        self.backend_failed = true;
        let _ = self.stop_starting();
        self.act(DaemonAction::SignalAll(libc::SIGKILL));
        self.report(Report::BackendFailed(failure));
        let unopened = self.jobs.iter().filter(|(_, job)| job.phase == Phase::Opening);
        for id in unopened.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.drop_unopened(id);
        }
    }

    /// Passes a signal of the daemon's own on to the ranks.
    fn pass_signal_on(&mut self, signal: i32) {
        let repeated = self.signals.record_signal(signal);
        if self.config.verbose {
            self.act(DaemonAction::Print(format!("passing {} on", SignalName(signal))));
        }
        if !matches!(signal, libc::SIGUSR1 | libc::SIGUSR2) {
            self.interrupt_starting();
        }
        self.act(DaemonAction::SignalAll(if repeated { libc::SIGKILL } else { signal }));
    }

    /// Starts no more ranks of any job. Returns the jobs that are not started as a whole.
    fn stop_starting(&mut self) -> Vec<JobId> {
        self.jobs.iter_mut().filter_map(|(&id, job)| job.stop_starting().then_some(id)).collect()
    }

    /// A signal stops the start of ranks. Those that run may ignore it, and would wait for the others.
    pub(super) fn interrupt_starting(&mut self) {
        for job in self.stop_starting() {
            self.report(Report::StartFailed { job, error: StartError::unfinished() });
        }
    }

    /// Ends the node. No report follows.
    fn end(&mut self) {
        self.report_started();
        self.act(DaemonAction::EndNode);
        self.ended = true;
    }

    /// Drains jobs all of whose ranks here have ended.
    fn settle(&mut self) {
        for (&id, job) in self.jobs.iter_mut().filter(|(_, job)| !self.ended && job.is_over()) {
            job.phase = Phase::Draining;
            self.actions.push_back(DaemonAction::DrainOutput { job: id });
        }
    }
}
