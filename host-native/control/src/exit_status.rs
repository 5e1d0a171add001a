//! Exit code of a run.

use std::collections::BTreeMap;

use hydrant_core::trace::{Exit, SignalName};
use serde::{Deserialize, Serialize};

use crate::protocol::SubmissionId;

/// Which failures of ranks give the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitCodeOf {
    /// The first.
    #[default]
    First,
    /// Exits with a code other than 0. Deaths by a signal count if no rank of the first job exits with 0.
    Survivors,
}

/// Exit status of a run: the first failure of all its jobs, signals of the user, and lost output.
///
/// ```
/// use hydrant_control::ExitStatus;
///
/// let mut status = ExitStatus::default();
/// assert_eq!(status.code(), 0);
/// status.record_failure(3);
/// status.record_failure(1);
/// assert_eq!(status.code(), 3, "the first failure counts");
/// ```
#[derive(Clone, Debug, Default)]
pub struct ExitStatus {
    of: ExitCodeOf,
    /// Exit code of the first failure.
    first: Option<u8>,
    /// The same of the first death by a signal that the job has survived, with [`ExitCodeOf::Survivors`].
    death: Option<u8>,
    /// A rank of the first job has exited with 0.
    succeeded: bool,
    /// First signal that ends the run, or the one that was repeated.
    signal: Option<i32>,
    /// Number of `SIGINT` and of `SIGTERM`.
    counts: [u32; 2],
    /// The line that names the signal has been printed.
    signal_reported: bool,
    gave_up: bool,
    output_lost: bool,
}

/// Exit status of a run, and of each submission of a fleet.
#[derive(Clone, Debug, Default)]
pub struct Statuses {
    run: ExitStatus,
    submissions: BTreeMap<SubmissionId, ExitStatus>,
}

impl Statuses {
    /// Those of a run without submissions.
    pub(crate) fn new(run: ExitStatus) -> Statuses {
        Statuses { run, submissions: BTreeMap::new() }
    }

    /// The status of the run itself.
    pub(crate) fn run(&mut self) -> &mut ExitStatus {
        &mut self.run
    }

    /// Adds a submission.
    pub(crate) fn add(&mut self, id: SubmissionId, status: ExitStatus) {
        self.submissions.insert(id, status);
    }

    /// Removes a submission, whose jobs are over.
    pub(crate) fn remove(&mut self, id: SubmissionId) -> Option<ExitStatus> {
        self.submissions.remove(&id)
    }

    /// The status that jobs of a submission count for. Without one it is that of the run.
    pub(crate) fn of(&self, submission: Option<SubmissionId>) -> &ExitStatus {
        submission.and_then(|id| self.submissions.get(&id)).unwrap_or(&self.run)
    }

    /// Whether the user has ended the run or the submission, so that no job starts there.
    pub(crate) fn ends(&self, submission: Option<SubmissionId>) -> bool {
        self.run.is_interrupted() || self.of(submission).is_interrupted()
    }

    /// As [`of`](Statuses::of).
    pub(crate) fn of_mut(&mut self, submission: Option<SubmissionId>) -> &mut ExitStatus {
        match submission.and_then(|id| self.submissions.get_mut(&id)) {
            Some(status) => status,
            None => &mut self.run,
        }
    }
}

/// A run whose status this is.
impl From<ExitStatus> for Statuses {
    fn from(run: ExitStatus) -> Statuses {
        Statuses::new(run)
    }
}

impl ExitStatus {
    /// Records a signal of the user. Returns true for the second `SIGINT` or `SIGTERM` and those after it, which end ranks at
    /// once.
    /// `SIGUSR1` and `SIGUSR2` are for the ranks and leave the status as it is.
    #[must_use]
    pub fn record_signal(&mut self, signal: i32) -> bool {
        if matches!(signal, libc::SIGUSR1 | libc::SIGUSR2) {
            return false;
        }
        let kind = [libc::SIGINT, libc::SIGTERM].iter().position(|&kind| kind == signal);
        kind.into_iter().for_each(|kind| self.counts[kind] += 1);
        let repeated = kind.is_some_and(|kind| self.counts[kind] > 1);
        if repeated {
            self.signal = Some(signal);
        } else {
            self.signal.get_or_insert(signal);
        }
        repeated
    }

    /// Starts without failures.
    pub fn new(of: ExitCodeOf) -> ExitStatus {
        ExitStatus { of, ..ExitStatus::default() }
    }

    /// Records the end of a rank. `first` is its exit code if it is the first of its job to fail, and `exit` is missing
    /// if it does not count. See [`Job::rank_exited`](crate::Job::rank_exited).
    pub fn record_exit(&mut self, is_first_job: bool, first: Option<u8>, exit: Option<Exit>) {
        match (self.of, exit) {
            (ExitCodeOf::First, _) => first.into_iter().for_each(|code| self.record_failure(code)),
            (ExitCodeOf::Survivors, None) => {}
            (ExitCodeOf::Survivors, Some(Exit::Code(0))) => self.succeeded |= is_first_job,
            (ExitCodeOf::Survivors, Some(Exit::Code(code))) => self.record_failure(code),
            (ExitCodeOf::Survivors, Some(exit)) => {
                self.death.get_or_insert(exit.exit_code());
            }
        }
    }

    /// Records a failed rank or an aborted job. The first failure counts.
    pub fn record_failure(&mut self, code: u8) {
        self.first.get_or_insert(code);
    }

    /// Records a job that a rank has aborted; with code 0 that is no failure. `exited` is the exit code of that rank, if its
    /// exit was recorded as the first failure. The code of the abort replaces it: the report names the abort, whose request
    /// may arrive after the exit.
    pub fn record_abort(&mut self, exited: Option<u8>, code: u8) {
        if exited.is_some() && self.first == exited {
            self.first = None;
        }
        if code != 0 {
            self.record_failure(code);
        }
    }

    /// Records that output could not be written. The exit code is then not 0.
    pub fn record_lost_output(&mut self) {
        self.output_lost = true;
    }

    /// Ends the run without waiting for its jobs, because of the recorded signal.
    pub fn give_up(&mut self) {
        self.gave_up = true;
    }

    /// Whether [`give_up`](ExitStatus::give_up) has been called.
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The signal by which the user has ended the run.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.signal
    }

    /// Whether the user has repeated a signal, which ends ranks at once.
    fn is_repeated(&self) -> bool {
        self.counts.iter().any(|&count| count > 1)
    }

    /// Whether the user has ended the run by a signal.
    pub fn is_interrupted(&self) -> bool {
        self.signal.is_some()
    }

    /// The signal by which the user has ended a job, given the signal that its first failed rank died by.
    pub(crate) fn ended_by_user(&self, died_by: Option<i32>) -> Option<i32> {
        self.signal.filter(|&signal| self.is_repeated() || died_by == Some(signal))
    }

    /// The line that names the signal by which the user ended the run. Returns `None` after the first call.
    #[must_use]
    pub fn interruption_line(&mut self, signal: i32) -> Option<String> {
        let reported = std::mem::replace(&mut self.signal_reported, true);
        (!reported).then(|| format!("the job was ended by {}", SignalName(signal)))
    }

    /// The launcher's exit code.
    pub fn code(&self) -> u8 {
        let by_signal = self.signal.map(|signal| Exit::Signal(signal as u8).exit_code());
        let first = self.first.or(self.death.filter(|_| !self.succeeded));
        match (first, by_signal) {
            (_, Some(by_signal)) if self.is_repeated() || self.gave_up => by_signal,
            (Some(first), _) => first,
            (None, _) => u8::from(self.output_lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libc::{SIGINT, SIGTERM, SIGUSR1};

    #[test]
    fn a_second_interrupt_replaces_the_failure() {
        let mut status = ExitStatus::default();
        assert!(!status.record_signal(SIGUSR1) && !status.is_interrupted());
        assert!(!status.record_signal(SIGINT));
        assert!(!status.record_signal(SIGTERM) && status.record_signal(SIGINT));
        status.record_failure(137);
        assert_eq!(status.code(), 130);
    }

    #[test]
    fn one_signal_leaves_the_failure() {
        let mut status = ExitStatus::default();
        assert!(!status.record_signal(SIGTERM));
        assert_eq!(status.code(), 0, "ranks that handle the signal and return 0 have succeeded");
        status.record_failure(3);
        assert_eq!(status.code(), 3);
        status.give_up();
        assert_eq!(status.code(), 143);
    }

    #[test]
    fn deaths_that_a_job_survives_may_not_count() {
        let ends = |of, ends: &[Exit]| {
            let mut status = ExitStatus::new(of);
            for (at, &exit) in ends.iter().enumerate() {
                status.record_exit(true, (at == 0).then(|| exit.exit_code()), Some(exit));
            }
            status.code()
        };
        let (killed, done) = (Exit::Signal(9), Exit::Code(0));
        assert_eq!(ends(ExitCodeOf::First, &[killed, done, Exit::Code(7)]), 137);
        assert_eq!(ends(ExitCodeOf::Survivors, &[killed, done]), 0);
        assert_eq!(ends(ExitCodeOf::Survivors, &[killed, killed]), 137, "nobody survived");
        assert_eq!(ends(ExitCodeOf::Survivors, &[killed, done, Exit::Code(7)]), 7);
        let mut status = ExitStatus::new(ExitCodeOf::Survivors);
        status.record_exit(true, Some(137), Some(killed));
        status.record_exit(false, None, Some(done));
        assert_eq!(status.code(), 137, "a spawned job has succeeded");
    }

    #[test]
    fn an_abort_with_code_0_is_no_failure() {
        let mut status = ExitStatus::default();
        status.record_failure(134);
        status.record_abort(Some(134), 0);
        assert_eq!(status.code(), 0, "the rank has called abort() after its request");
        status.record_failure(2);
        status.record_abort(Some(134), 0);
        assert_eq!(status.code(), 2, "another job had failed before");
    }

    #[test]
    fn lost_output_is_a_failure_of_its_own() {
        let mut status = ExitStatus::default();
        status.record_lost_output();
        assert_eq!(status.code(), 1);
        status.record_failure(7);
        assert_eq!(status.code(), 7);
    }

    #[test]
    fn the_signal_is_named_once() {
        let mut status = ExitStatus::default();
        assert_eq!(status.interruption_line(SIGINT).as_deref(), Some("the job was ended by SIGINT"));
        assert_eq!(status.interruption_line(SIGINT), None);
    }
}
