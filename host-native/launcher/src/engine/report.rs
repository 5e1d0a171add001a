//! What became of the jobs, as an exit code and in words.

use std::fmt::Write;

use hydrant_core::JobId;
use hydrant_core::trace::{Cause, Exit};
use rustix::process::Signal;

use super::Engine;
use super::jobs::Job;
use super::procs::code;
use hydrant_reactor::signals::name;

/// What has gone wrong in a job so far.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The first rank that failed by itself, and how.
    first: Option<(u32, Exit)>,
    end: Option<End>,
}

/// What is to be said of all jobs together.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// The exit code of what failed first.
    first: Option<u8>,
    /// The first signal that was passed on and may end a job.
    signal: Option<Signal>,
    interrupts: u32,
    /// It has been said that the user ended it.
    signal_said: bool,
    reported: bool,
    gave_up: bool,
    /// Output was lost.
    lost: bool,
}

/// What a rank did that its job has to end for.
#[derive(Debug)]
pub(crate) struct Blame {
    pub(crate) cause: Cause,
    /// What the aborting rank said.
    pub(crate) message: String,
}

/// Why a job has to end.
#[derive(Debug)]
pub(super) enum Why {
    /// What one of its ranks did.
    Rank(Blame),
    /// A host is lost.
    Host {
        /// It and what happened, in words.
        what: String,
        /// How many ranks ran there and on the hosts below it.
        ranks: u32,
        /// How many hosts are below it.
        below: u32,
    },
}

/// The end that was called for.
#[derive(Debug)]
struct End {
    why: Why,
    /// Ranks that had ended by themselves.
    finished: u32,
}

impl Outcome {
    /// A rank ended; whether its failure is the first.
    pub(super) fn ended(&mut self, rank: u32, exit: Exit) -> bool {
        let first = self.end.is_none() && self.first.is_none() && exit != Exit::Code(0);
        if first {
            self.first = Some((rank, exit));
        }
        first
    }

    /// The job has to end, and so many ranks have ended by themselves; the exit code for that.
    pub(super) fn end(&mut self, why: Why, finished: u32) -> u8 {
        self.end.insert(End { why, finished }).code()
    }

    /// Whether the job is being ended.
    pub(super) fn is_ending(&self) -> bool {
        self.end.is_some()
    }
}

impl Verdict {
    /// A signal came; whether it is one interrupt too many.
    pub(super) fn interrupted(&mut self, signal: Signal) -> bool {
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            return false;
        }
        self.interrupts += u32::from(signal == Signal::INT);
        let too_many = signal == Signal::INT && self.interrupts > 1;
        if too_many {
            self.signal = Some(signal);
        } else {
            self.signal.get_or_insert(signal);
        }
        too_many
    }

    /// Whether the user wants everything to end.
    pub(super) fn is_interrupted(&self) -> bool {
        self.signal.is_some()
    }

    /// A rank failed, or a job had to be ended. The first one counts.
    pub(super) fn failed(&mut self, code: u8) {
        self.first.get_or_insert(code);
    }

    pub(super) fn give_up(&mut self) {
        self.gave_up = true;
    }

    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    pub(super) fn is_reported(&self) -> bool {
        self.reported
    }

    /// The launcher's exit code.
    pub(super) fn code(&self) -> u8 {
        let by_signal = self.signal.map(|signal| code(Exit::Signal(signal.as_raw() as u8)));
        match (self.first, by_signal) {
            // Whoever had to interrupt it twice wants to know no more than that.
            (_, Some(by_signal)) if self.interrupts > 1 || self.gave_up => by_signal,
            (Some(first), _) => first,
            (None, _) => u8::from(self.lost),
        }
    }
}

/// So many others, in words for one and for several of them.
pub(crate) fn count(n: u32, one: &str, several: &str) -> String {
    format!("{n} other {}", if n == 1 { one } else { several })
}

impl End {
    /// The exit code that it stands for.
    fn code(&self) -> u8 {
        match &self.why {
            Why::Rank(blame) => blame.code(),
            Why::Host { .. } => 1,
        }
    }
}

impl Blame {
    /// The exit code that it stands for.
    pub(crate) fn code(&self) -> u8 {
        let code = match self.cause {
            Cause::Abort { code, .. } => code.unwrap_or(1) as u8,
            Cause::NoFinalize { exit, .. } | Cause::Died { exit, .. } | Cause::Absent { exit, .. } => {
                code(exit)
            }
        };
        // A job that had to be ended did not succeed.
        code.max(1)
    }

    /// What the rank did that it ended for.
    pub(crate) fn what(&self) -> String {
        let message = &self.message;
        match self.cause {
            Cause::Abort { code, .. } => {
                let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
                let colon = if message.is_empty() { "" } else { ": " };
                format!("aborted the job{code}{colon}{message}")
            }
            Cause::NoFinalize { exit: Exit::Signal(signal), .. }
            | Cause::Died { exit: Exit::Signal(signal), .. } => {
                format!("died by {}", name(signal))
            }
            Cause::NoFinalize { exit, .. } => format!("{exit} without finalizing"),
            Cause::Died { exit, .. } => exit.to_string(),
            Cause::Absent { exit, .. } => format!("{exit} while others wait for it in a fence"),
        }
    }
}

impl End {
    /// What was done to the others.
    fn others(&self, size: u32, never: u32) -> String {
        // Those that failed, among the running and among the others.
        let failed = match self.why {
            Why::Rank(Blame { cause: Cause::Abort { .. }, .. }) => (1, 0),
            Why::Rank(_) => (0, 1),
            Why::Host { ranks, .. } => (0, ranks),
        };
        // Some may have been started on another node, unknown here, when the end was called for.
        let ended = (size - never).saturating_sub(self.finished + failed.0);
        let finished = self.finished.saturating_sub(failed.1);
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
        match (&self.why, parts.is_empty()) {
            (Why::Rank(_), true) => "it was the only rank".to_owned(),
            (Why::Host { .. }, true) => "no other ranks were running".to_owned(),
            (_, false) => parts.join(", "),
        }
    }
}

impl Engine<'_, '_> {
    /// Says on standard error what was lost of the jobs' output.
    pub(super) fn report_losses(&mut self) {
        self.verdict.reported = true;
        if let Some((sink, errno)) = self.sinks.failure() {
            self.verdict.lost = true;
            let line = format!("output was lost, cannot write {}: {errno}", self.sinks.name(sink));
            self.sinks.say(&line);
        }
    }

    /// Says on standard error how a job ended, unless it ended well or as the user wanted it to.
    pub(super) fn report(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(id).filter(|job| job.undone.is_none()) else { return };
        let by_signal = |exit: Exit| match exit {
            Exit::Signal(signal) => Some(i32::from(signal)),
            _ => None,
        };
        let died_by = job.outcome.first.and_then(|(_, exit)| by_signal(exit));
        if let Some(signal) = self.verdict.signal
            && (self.verdict.interrupts > 1 || died_by == Some(signal.as_raw()))
        {
            return self.say_ended_by(signal);
        }
        // A reader that had enough is no failure worth words, as in any pipeline of a shell.
        if died_by == Some(Signal::PIPE.as_raw()) && self.sinks.is_cut_off() {
            return;
        }
        let text = match (&job.outcome.end, job.outcome.first) {
            (Some(end), _) => {
                let never = self.procs.never(job.processes());
                let others = end.others(job.ranks, never);
                match &end.why {
                    Why::Rank(blame) => {
                        let rank = blame.cause.rank().0;
                        let (who, what) = (job.rank_name(rank), blame.what());
                        format!("{who} {what}\n  {}\n  {others}", self.describe(job, rank))
                    }
                    Why::Host { what, ranks, below } => {
                        let also = match below {
                            0 => String::new(),
                            1 => " and on the host below it".to_owned(),
                            _ => format!(" and on the {below} hosts below it"),
                        };
                        let there = match ranks {
                            0 => String::new(),
                            1 => format!("1 rank was running there{also}, "),
                            ranks => format!("{ranks} ranks were running there{also}, "),
                        };
                        format!("{what}\n  {there}{others}")
                    }
                }
            }
            (None, Some((rank, exit))) => self.failures(job, rank, exit),
            (None, None) => return,
        };
        self.sinks.say(&text);
    }

    /// Says once that the user has ended it all.
    pub(super) fn say_ended_by(&mut self, signal: Signal) {
        if !std::mem::replace(&mut self.verdict.signal_said, true) {
            self.sinks.say(&format!("the job was ended by {}", name(signal.as_raw() as u8)));
        }
    }

    /// The rank's process in words.
    fn describe(&self, job: &Job, rank: u32) -> String {
        let pid = self.procs.pid(job.first + rank).map_or(0, |pid| pid.as_raw_nonzero().get());
        let (who, program) = (job.rank_name(rank), job.program(rank).1.command.display());
        format!("{who} on {}, pid {pid}, program {program}", self.host_of_rank(job, rank))
    }

    /// Ranks failed that the others did not need.
    fn failures(&self, job: &Job, rank: u32, exit: Exit) -> String {
        let what = match (self.procs.asked(job.first + rank), exit) {
            (Some(code), _) => format!("aborted itself with code {code}"),
            (None, Exit::Signal(signal)) => format!("died by {}", name(signal)),
            (None, exit) => exit.to_string(),
        };
        let mut text = format!("{} {what}", self.describe(job, rank));
        let others = self.procs.ended(job.processes(), |exit| exit != Exit::Code(0)).saturating_sub(1);
        if others > 0 {
            let ranks = if others == 1 { "rank" } else { "ranks" };
            // Writing to a string cannot fail.
            let _ = write!(text, ", and {others} more {ranks} failed");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::Rank;

    fn end(cause: Cause) -> End {
        End { why: Why::Rank(Blame { cause, message: String::new() }), finished: 1 }
    }

    #[test]
    fn an_ended_job_has_failed() {
        let rank = Rank(2);
        let code = |code| end(Cause::Abort { rank, code }).code();
        assert_eq!(
            (code(Some(5)), code(Some(-1)), code(Some(256)), code(Some(0)), code(None)),
            (5, 255, 1, 1, 1)
        );
        assert_eq!(end(Cause::NoFinalize { rank, exit: Exit::Code(0) }).code(), 1);
        assert_eq!(end(Cause::Died { rank, exit: Exit::Signal(9) }).code(), 137);
    }

    #[test]
    fn the_first_failure_counts() {
        let mut outcome = Outcome::default();
        assert!(!outcome.ended(0, Exit::Code(0)));
        assert!(outcome.ended(1, Exit::Code(3)));
        assert!(!outcome.ended(2, Exit::Code(4)));
        let absent = Cause::Absent { rank: Rank(0), exit: Exit::Code(0) };
        let absent = || Why::Rank(Blame { cause: absent, message: String::new() });
        assert_eq!(outcome.end(absent(), 3), 1);
        let mut ended = Outcome::default();
        ended.end(absent(), 0);
        assert!(!ended.ended(3, Exit::Signal(15)));
        let mut verdict = Verdict::default();
        assert_eq!(verdict.code(), 0);
        verdict.failed(3);
        verdict.failed(1);
        assert_eq!(verdict.code(), 3);
    }

    #[test]
    fn a_second_interrupt_is_the_users_will() {
        let mut verdict = Verdict::default();
        assert!(!verdict.interrupted(Signal::USR1) && !verdict.is_interrupted());
        assert!(!verdict.interrupted(Signal::INT));
        assert!(!verdict.interrupted(Signal::TERM) && verdict.interrupted(Signal::INT));
        verdict.failed(137);
        assert_eq!(verdict.code(), 130);
    }

    #[test]
    fn others_are_counted_without_the_one_that_failed() {
        let died = end(Cause::Died { rank: Rank(1), exit: Exit::Signal(9) });
        assert_eq!(died.others(4, 0), "3 other ranks were ended");
        let abort = end(Cause::Abort { rank: Rank(1), code: Some(1) });
        assert_eq!(
            abort.others(5, 1),
            "2 other ranks were ended, 1 other rank had ended before, 1 other rank was not started"
        );
        assert_eq!(died.others(1, 0), "it was the only rank");
    }
}
