//! What became of a job, as an exit code and in words.

use std::fmt::Write;

use hydrant_core::trace::{Cause, Exit};
use rustix::process::Signal;

use super::Engine;
use super::procs::code;
use super::signals::name;

/// What has gone wrong so far.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The first rank that failed by itself, and how.
    first: Option<(u32, Exit)>,
    end: Option<End>,
    /// The first signal that was passed on and may end a job.
    signal: Option<Signal>,
    interrupts: u32,
    reported: bool,
    gave_up: bool,
    /// Output was lost.
    lost: bool,
}

/// The end that the core called for.
#[derive(Debug)]
struct End {
    cause: Cause,
    message: String,
    /// Ranks that ran and were ended.
    ended: u32,
    /// Ranks that had ended by themselves.
    finished: u32,
}

impl Outcome {
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

    /// A rank ended.
    pub(super) fn ended(&mut self, rank: u32, exit: Exit) {
        if self.end.is_none() && exit != Exit::Code(0) {
            self.first.get_or_insert((rank, exit));
        }
    }

    /// The core wants the job ended, `running` ranks with it.
    pub(super) fn end(&mut self, cause: Cause, message: String, running: u32, finished: u32) {
        self.end = Some(End { cause, message, ended: running, finished });
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

    /// The job's exit code.
    pub(super) fn code(&self) -> u8 {
        let by_signal = self.signal.map(|signal| code(Exit::Signal(signal.as_raw() as u8)));
        match (self.first, &self.end, by_signal) {
            // Whoever had to interrupt it twice wants to know no more than that.
            (_, _, Some(by_signal)) if self.interrupts > 1 || self.gave_up => by_signal,
            (Some((_, exit)), _, _) => code(exit),
            (None, Some(end), _) => end.code(),
            (None, None, _) => u8::from(self.lost),
        }
    }
}

impl End {
    fn code(&self) -> u8 {
        let code = match self.cause {
            Cause::Abort { code, .. } => code.unwrap_or(1) as u8,
            Cause::NoFinalize { exit, .. } | Cause::Died { exit, .. } | Cause::Absent { exit, .. } => {
                code(exit)
            }
        };
        // A job that had to be ended did not succeed.
        code.max(1)
    }

    fn what(&self) -> String {
        match self.cause {
            Cause::Abort { code, .. } => {
                let code = code.map(|code| format!(" with code {code}")).unwrap_or_default();
                let message =
                    if self.message.is_empty() { String::new() } else { format!(": {}", self.message) };
                format!("aborted the job{code}{message}")
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

    /// What was done to the others.
    fn others(&self, size: u32) -> String {
        let failing_runs = matches!(self.cause, Cause::Abort { .. });
        let ended = self.ended.saturating_sub(u32::from(failing_runs));
        let finished = self.finished.saturating_sub(u32::from(!failing_runs));
        let never = size.saturating_sub(self.ended + self.finished);
        let mut parts = Vec::new();
        let count = |n: u32, does: &str, do_: &str| format!("{n} other {}", if n == 1 { does } else { do_ });
        if ended > 0 {
            parts.push(count(ended, "rank was ended", "ranks were ended"));
        }
        if finished > 0 {
            parts.push(count(finished, "rank had ended before", "ranks had ended before"));
        }
        if never > 0 {
            parts.push(count(never, "rank was not started", "ranks were not started"));
        }
        if parts.is_empty() { "it was the only rank".to_owned() } else { parts.join(", ") }
    }
}

impl Engine<'_, '_> {
    /// Says on standard error how the job ended, unless it ended well or as the user wanted it to.
    pub(super) fn report(&mut self) {
        self.outcome.reported = true;
        if let Some((sink, errno)) = self.sinks.failure() {
            self.outcome.lost = true;
            let line = format!("output was lost, cannot write {}: {errno}", self.sinks.name(sink));
            self.sinks.say(&line);
        }
        let by_signal = |exit: Exit| match exit {
            Exit::Signal(signal) => Some(i32::from(signal)),
            _ => None,
        };
        let died_by = self.outcome.first.and_then(|(_, exit)| by_signal(exit));
        if let Some(signal) = self.outcome.signal
            && (self.outcome.interrupts > 1 || died_by == Some(signal.as_raw()))
        {
            let line = format!("the job was ended by {}", name(signal.as_raw() as u8));
            return self.sinks.say(&line);
        }
        // A reader that had enough is no failure worth words, as in any pipeline of a shell.
        if died_by == Some(Signal::PIPE.as_raw()) && self.sinks.is_cut_off() {
            return;
        }
        let text = match (&self.outcome.end, self.outcome.first) {
            (Some(end), _) => {
                let rank = end.cause.rank().0;
                let (what, others) = (end.what(), end.others(self.ranks));
                format!("rank {rank} {what}\n  {}\n  {others}", self.describe(rank))
            }
            (None, Some((rank, exit))) => self.failures(rank, exit),
            (None, None) => return,
        };
        self.sinks.say(&text);
    }

    /// The rank's process in words.
    fn describe(&self, rank: u32) -> String {
        let pid = self.procs.pid(rank).map_or(0, |pid| pid.as_raw_nonzero().get());
        let program = self.launcher.program(rank).1.display();
        format!("rank {rank} on {}, pid {pid}, program {program}", self.host)
    }

    /// Ranks failed that the others did not need.
    fn failures(&self, rank: u32, exit: Exit) -> String {
        let what = match exit {
            Exit::Signal(signal) => format!("died by {}", name(signal)),
            exit => exit.to_string(),
        };
        let mut text = format!("{} {what}", self.describe(rank));
        let others = self.procs.ended(|exit| exit != Exit::Code(0)) - 1;
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
        End { cause, message: String::new(), ended: 3, finished: 1 }
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
        assert_eq!(outcome.code(), 0);
        outcome.ended(0, Exit::Code(0));
        outcome.ended(1, Exit::Code(3));
        outcome.ended(2, Exit::Code(4));
        assert_eq!(outcome.code(), 3);
        outcome.end(Cause::Absent { rank: Rank(0), exit: Exit::Code(0) }, String::new(), 1, 3);
        outcome.ended(3, Exit::Signal(15));
        assert_eq!(outcome.code(), 3);
    }

    #[test]
    fn a_second_interrupt_is_the_users_will() {
        let mut outcome = Outcome::default();
        assert!(!outcome.interrupted(Signal::USR1) && !outcome.interrupted(Signal::INT));
        assert!(!outcome.interrupted(Signal::TERM) && outcome.interrupted(Signal::INT));
        outcome.ended(0, Exit::Signal(9));
        assert_eq!(outcome.code(), 130);
    }

    #[test]
    fn others_are_counted_without_the_one_that_failed() {
        let died = end(Cause::Died { rank: Rank(1), exit: Exit::Signal(9) });
        assert_eq!(died.others(4), "3 other ranks were ended");
        let abort = end(Cause::Abort { rank: Rank(1), code: Some(1) });
        assert_eq!(
            abort.others(5),
            "2 other ranks were ended, 1 other rank had ended before, 1 other rank was not started"
        );
        let alone = End { ended: 0, ..died };
        assert_eq!(alone.others(1), "it was the only rank");
    }
}
