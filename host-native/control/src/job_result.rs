//! Result of a job: its first failure, or the reason why it was aborted.

use std::time::Duration;

use hydrant_core::trace::{Cause, Exit};

use crate::psets::RankRanges;

/// Failure of a rank for which its job is aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFailure {
    /// The rank and what it did.
    pub cause: Cause,
    /// Message of a rank that called abort; empty without one.
    pub message: String,
}

/// Reason why a job is aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbortReason {
    /// A rank failed.
    Rank(RankFailure),
    /// A rank of another job of the run has failed. The jobs are connected, and the ranks of this one may wait for that one's.
    Connected {
        /// The rank and what it did.
        what: String,
    },
    /// A host is lost, or its PMI server has failed.
    Host {
        /// The host and what happened.
        what: String,
        /// Ranks that ran on the host and on the hosts below it.
        ranks: u32,
        /// Hosts below it in the tree of daemons.
        below: u32,
    },
    /// The run has reached the time limit of the user.
    TimeLimit {
        /// The limit.
        limit: Duration,
        /// States of running ranks of the job, as far as they are known.
        states: Vec<RanksInState>,
    },
}

/// Ranks in the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RanksInState {
    /// State in words, as `in fence 2 for 3.1 s`.
    pub state: String,
    /// The ranks, in ascending order.
    pub ranks: RankRanges,
}

/// Exit code of a run that has reached its time limit, as that of `timeout` in coreutils.
pub(crate) const EXIT_TIME_LIMIT: u8 = 124;

/// Result of a job so far. The first reason to end counts.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    /// The first rank that failed by itself.
    pub(crate) first: Option<(u32, Exit)>,
    pub(crate) abort: Option<Abort>,
}

/// Abort of a job.
#[derive(Clone, Debug)]
pub(crate) struct Abort {
    pub(crate) reason: AbortReason,
    pub(crate) progress: Progress,
}

/// State of a job when it was aborted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    /// Ranks that had ended.
    pub(crate) finished: u32,
    /// Whether the rank that failed was among them.
    pub(crate) culprit_ended: bool,
    /// First ranks that ran, and the number of the others.
    pub(crate) running: (Vec<u32>, u32),
}

impl JobResult {
    /// Records that a rank has ended. Returns true if it is the first failure.
    pub(crate) fn rank_exited(&mut self, rank: u32, exit: Exit) -> bool {
        let first = self.abort.is_none() && self.first.is_none() && exit != Exit::Code(0);
        if first {
            self.first = Some((rank, exit));
        }
        first
    }

    /// Records the abort of the job. Returns its exit code.
    pub(crate) fn abort(&mut self, reason: AbortReason, progress: Progress) -> u8 {
        self.abort.insert(Abort { reason, progress }).reason.exit_code()
    }

    /// Whether the job is being aborted.
    pub fn is_aborted(&self) -> bool {
        self.abort.is_some()
    }
}

impl AbortReason {
    /// Exit code of the launcher for this reason.
    pub fn exit_code(&self) -> u8 {
        match self {
            AbortReason::Rank(failure) => failure.cause.exit_code(),
            // The failure of the other job counts.
            AbortReason::Connected { .. } => 0,
            AbortReason::Host { .. } => 1,
            AbortReason::TimeLimit { .. } => EXIT_TIME_LIMIT,
        }
    }
}

impl RankFailure {
    /// What else the failure may mean, if the server cannot tell.
    pub(crate) fn explanation(&self) -> Option<&'static str> {
        let is_clean = matches!(self.cause, Cause::NoFinalize { exit: Exit::Code(0), .. });
        is_clean.then_some(
            "it left between MPI_Init and MPI_Finalize, or by _exit() behind the MPI_Finalize of MPICH 5, which tells PMI in exit()",
        )
    }

    /// What the rank did, as `died by SIGSEGV`.
    pub fn describe(&self) -> String {
        let message = &self.message;
        match self.cause {
            Cause::Abort { code, .. } => {
                let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
                format!("aborted the job{code}{}", abort_text(message))
            }
            Cause::NoFinalize { exit: exit @ Exit::Signal(_), .. } | Cause::Died { exit, .. } => {
                exit.to_string()
            }
            Cause::NoFinalize { exit, .. } => format!("{exit} without finalizing"),
            Cause::Absent { exit: Exit::Lost, .. } => {
                "closed its PMI connection without finalizing while others wait for it".to_owned()
            }
            Cause::Absent { exit, .. } => format!("{exit} while others wait for it"),
        }
    }
}

/// What a rank that aborts has said, behind what it did. Further lines are indented below the first one, so that none passes for
/// a line of hydrant.
pub fn abort_text(message: &str) -> String {
    match message.trim_end() {
        "" => String::new(),
        message => format!(": {}", message.replace('\n', "\n    ")),
    }
}

fn count_ranks(n: u32, one: &str, several: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { several })
}

/// `n` other ranks in words, as `1 other rank was ended`.
pub fn count_others(n: u32, one: &str, several: &str) -> String {
    format!("{n} other {}", if n == 1 { one } else { several })
}

impl Abort {
    /// What became of the other ranks of a job of `size` ranks, of which `never` were not started.
    pub(crate) fn describe_others(&self, size: u32, never: u32) -> String {
        // Failed ranks, among those that ran and among those that had ended.
        let (ran, had_ended) = match self.reason {
            AbortReason::Rank(RankFailure {
                cause: Cause::Abort { .. } | Cause::Absent { exit: Exit::Lost, .. },
                ..
            }) if !self.progress.culprit_ended => (1, 0),
            AbortReason::Rank(_) => (0, 1),
            AbortReason::Host { ranks, .. } => (0, ranks),
            AbortReason::Connected { .. } | AbortReason::TimeLimit { .. } => (0, 0),
        };
        // No rank of the job is at fault.
        let count = match self.reason {
            AbortReason::Connected { .. } | AbortReason::TimeLimit { .. } => count_ranks,
            _ => count_others,
        };
        // A daemon may have started ranks after the abort, so that the sum exceeds the size.
        let ended = (size - never).saturating_sub(self.progress.finished + ran);
        let finished = self.progress.finished.saturating_sub(had_ended);
        let mut parts = Vec::new();
        if ended > 0 {
            parts.push(count(ended, "rank was ended", "ranks were ended"));
        }
        if finished > 0 {
            parts.push(count(finished, "rank had ended before", "ranks had ended before"));
        }
        if never > 0 {
            parts.push(count(never, "rank was not started", "ranks were not started"));
        }
        match (&self.reason, parts.is_empty()) {
            (AbortReason::Rank(_), true) => "it was the only rank".to_owned(),
            (_, true) => "no other ranks were running".to_owned(),
            (_, false) => parts.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::Rank;

    fn reason(cause: Cause) -> AbortReason {
        AbortReason::Rank(RankFailure { cause, message: String::new() })
    }

    fn abort(cause: Cause) -> Abort {
        Abort { reason: reason(cause), progress: Progress { finished: 1, ..Progress::default() } }
    }

    #[test]
    fn lines_of_an_abort_message_stay_apart() {
        let describe = |message: &str| {
            let cause = Cause::Abort { rank: Rank(1), code: Some(3) };
            RankFailure { cause, message: message.to_owned() }.describe()
        };
        assert_eq!(describe("no\nrank 2 died\n\n"), "aborted the job with code 3: no\n    rank 2 died");
        assert_eq!(describe("\n"), "aborted the job with code 3");
    }

    #[test]
    fn the_first_failure_counts() {
        let mut result = JobResult::default();
        assert!(!result.rank_exited(0, Exit::Code(0)));
        assert!(result.rank_exited(1, Exit::Code(3)));
        assert!(!result.rank_exited(2, Exit::Code(4)));
        let absent = Cause::Absent { rank: Rank(0), exit: Exit::Code(0) };
        assert_eq!(
            result
                .abort(reason(absent), Progress { finished: 3, culprit_ended: true, ..Progress::default() }),
            1
        );
        let mut aborted = JobResult::default();
        aborted.abort(reason(absent), Progress::default());
        assert!(!aborted.rank_exited(3, Exit::Signal(15)));
    }

    #[test]
    fn a_rank_that_is_cut_off_runs_until_it_is_ended() {
        let cut_off = abort(Cause::Absent { rank: Rank(1), exit: Exit::Lost });
        assert_eq!(cut_off.reason.exit_code(), 1);
        assert_eq!(cut_off.describe_others(4, 0), "2 other ranks were ended, 1 other rank had ended before");
    }

    #[test]
    fn other_ranks_are_counted_without_the_failed_one() {
        let died = abort(Cause::Died { rank: Rank(1), exit: Exit::Signal(9) });
        assert_eq!(died.describe_others(4, 0), "3 other ranks were ended");
        let called = abort(Cause::Abort { rank: Rank(1), code: Some(1) });
        assert_eq!(
            called.describe_others(5, 1),
            "2 other ranks were ended, 1 other rank had ended before, 1 other rank was not started"
        );
        assert_eq!(died.describe_others(1, 0), "it was the only rank");
    }
}
