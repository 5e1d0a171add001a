//! Report of a job at its end.

use std::fmt::Write;

use hydrant_core::trace::{Exit, SignalName};
use serde::{Deserialize, Serialize};

use super::Job;
use crate::exit_status::ExitStatus;
use crate::job_result::{AbortReason, RanksInState};
use crate::psets::{RankRanges, format_ranges, ranges_of};

/// Most states that are listed at a time limit.
const STATES_MAX: usize = 8;
/// Most ranges of ranks that are listed with a state.
const RANGES_MAX: usize = 16;

/// What is printed about a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReport {
    /// The user ended it by this signal, see [`ExitStatus::interruption_line`].
    Interrupted(i32),
    /// These lines.
    Lines(String),
}

/// A job that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// 0 for the job of the command line; spawned jobs count from 1.
    pub ordinal: u32,
    /// Job id that ranks saw.
    pub name: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Report of a job that did not succeed.
    pub message: Option<String>,
    /// Ends of processes, and the ranks of each. None for ranks that were not started.
    pub exits: Vec<(Option<Exit>, RankRanges)>,
}

impl<R> Job<R> {
    /// What is printed about the job after its end; nothing if it succeeded. `reader_closed` is true if the reader of the
    /// job's output has closed it. `host` names the host of a rank.
    pub fn describe_end<'h>(
        &self,
        status: &ExitStatus,
        reader_closed: bool,
        host: impl Fn(u32) -> &'h str,
    ) -> Option<EndReport> {
        if self.canceled.is_some() {
            return None;
        }
        let died_by = match self.result.first {
            Some((_, Exit::Signal(signal))) => Some(i32::from(signal)),
            _ => None,
        };
        if let Some(signal) = status.ended_by_user(died_by) {
            return Some(EndReport::Interrupted(signal));
        }
        if died_by == Some(libc::SIGPIPE) && reader_closed {
            // As in a pipeline of a shell, whose reader has read enough.
            return None;
        }
        let lines = match (&self.result.abort, self.result.first) {
            (Some(abort), _) => {
                let others = abort.describe_others(self.size(), self.count_not_started());
                match &abort.reason {
                    AbortReason::Rank(failure) => {
                        let rank = failure.cause.rank().0;
                        let (name, what) = (self.rank_name(rank), failure.describe());
                        let explanation = failure.explanation().map(|text| format!("\n  {text}"));
                        let explanation = explanation.unwrap_or_default();
                        let rank = self.describe_rank(rank, host(rank));
                        format!("{name} {what}\n  {rank}{explanation}\n  {others}")
                    }
                    AbortReason::Connected { what } => {
                        let job = match self.ordinal {
                            0 => "the first job".to_owned(),
                            ordinal => format!("spawned job {ordinal}"),
                        };
                        format!("{job} was ended because {what}\n  {others}")
                    }
                    AbortReason::Host { what, ranks, below } => {
                        format!("{what}\n  {}{others}", describe_lost_ranks(*ranks, *below))
                    }
                    AbortReason::TimeLimit { limit, states } => {
                        let limit = limit.as_secs_f64();
                        let head =
                            format!("the time limit of {limit} s is reached; these ranks were running:\n");
                        head + &self.describe_running(&abort.progress.running, states, host) + "  " + &others
                    }
                }
            }
            (None, Some((rank, exit))) => self.describe_failure(rank, exit, host(rank)),
            (None, None) => return None,
        };
        Some(EndReport::Lines(lines))
    }

    /// The job and its end, for programs that read it. `report` is that of [`describe_end`](Job::describe_end).
    pub fn summary(&self, report: Option<&EndReport>) -> JobSummary {
        let message = report.map(|report| match report {
            EndReport::Interrupted(signal) => format!("the job was ended by {}", SignalName(*signal)),
            EndReport::Lines(lines) => lines.clone(),
        });
        let exits = self.exits().into_iter().map(|(exit, ranks)| (exit, ranges_of(ranks.into_iter())));
        let exits = exits.collect();
        JobSummary { ordinal: self.ordinal, name: self.name.clone(), ranks: self.size(), message, exits }
    }

    /// Ranks by the ends of their processes.
    fn exits(&self) -> Vec<(Option<Exit>, Vec<u32>)> {
        let mut kinds: Vec<(Option<Exit>, Vec<u32>)> = Vec::new();
        for (rank, state) in (0..).zip(&self.ranks) {
            match kinds.iter_mut().find(|(exit, _)| *exit == state.exit) {
                Some((_, ranks)) => ranks.push(rank),
                None => kinds.push((state.exit, vec![rank])),
            }
        }
        kinds
    }

    /// Exit codes of all ranks, as `exit codes: 0 of ranks 0-2,4; SIGKILL of rank 3`.
    pub fn exit_report(&self) -> String {
        let kinds = self.exits();
        let kind = |(exit, ranks): &(Option<Exit>, Vec<u32>)| {
            let what = match exit {
                Some(Exit::Code(code)) => code.to_string(),
                Some(Exit::Signal(signal)) => SignalName(i32::from(*signal)).to_string(),
                Some(Exit::Lost) | None => "unknown".to_owned(),
            };
            let list = format_ranges(&ranges_of(ranks.iter().copied()));
            format!("{what} of {} {list}", if ranks.len() == 1 { "rank" } else { "ranks" })
        };
        let of_job = match self.ordinal {
            0 => String::new(),
            ordinal => format!(" of spawned job {ordinal}"),
        };
        format!("exit codes{of_job}: {}", kinds.iter().map(kind).collect::<Vec<_>>().join("; "))
    }

    fn describe_rank(&self, rank: u32, host: &str) -> String {
        let pid = self.pid(rank).unwrap_or(0);
        let (name, program) = (self.rank_name(rank), self.program(rank).1.command.display());
        format!("{name} on {host}, pid {pid}, program {program}")
    }

    /// Ranks that ran at a time limit, each with its state, and the states of all if there are more.
    fn describe_running<'h>(
        &self,
        (first, more): &(Vec<u32>, u32),
        states: &[RanksInState],
        host: impl Fn(u32) -> &'h str,
    ) -> String {
        let mut text = String::new();
        for &rank in first {
            let contains = |of: &&RanksInState| {
                of.ranks.iter().any(|&(first, count)| rank.checked_sub(first).is_some_and(|at| at < count))
            };
            let state = states.iter().find(contains);
            let state = state.map(|of| format!(", {}", of.state)).unwrap_or_default();
            let _ = writeln!(text, "  {}{state}", self.describe_rank(rank, host(rank)));
        }
        if *more > 0 {
            let _ = writeln!(text, "  and {more} more");
            text.extend(states.iter().take(STATES_MAX).map(describe_state));
        }
        text
    }

    /// Line about the first failure of a job that goes on without the rank, after the end of its process. `None` if no other
    /// rank is left, if the rank asked to be ended, and if the user ends the run.
    pub fn describe_loss(&self, rank: u32, status: &ExitStatus, host: &str) -> Option<String> {
        let exit = self.exit(rank)?;
        let others = self.running > 0 || self.started < self.size();
        let is_known = self.requested_exit(rank).is_some() || status.is_interrupted();
        (others && !is_known && !self.is_ending())
            .then(|| format!("{}; the other ranks go on", self.describe_failure(rank, exit, host)))
    }

    /// Failure of a rank for which the job was not aborted.
    fn describe_failure(&self, rank: u32, exit: Exit, host: &str) -> String {
        let what = match (self.requested_exit(rank), exit) {
            (Some(code), _) => format!("aborted itself with code {code}"),
            (None, exit) => exit.to_string(),
        };
        let mut text = format!("{} {what}", self.describe_rank(rank, host));
        let others = self.count_exited(|exit| exit != Exit::Code(0)).saturating_sub(1);
        if others > 0 {
            let ranks = if others == 1 { "rank" } else { "ranks" };
            let _ = write!(text, ", and {others} more {ranks} failed");
        }
        text
    }
}

/// Ranks in one state, as `  3 ranks started: 0-1,7`.
fn describe_state(of: &RanksInState) -> String {
    let count: u32 = of.ranks.iter().map(|&(_, count)| count).sum();
    let noun = if count == 1 { "rank" } else { "ranks" };
    let listed = &of.ranks[..of.ranks.len().min(RANGES_MAX)];
    let more = if listed.len() < of.ranks.len() { " and others" } else { "" };
    format!("  {count} {noun} {}: {}{more}\n", of.state, format_ranges(listed))
}

/// What is printed about lost hosts, of which `below` are below the first, when jobs go on without the `ranks` there.
pub(crate) fn lost_line(what: &str, ranks: u32, below: u32, others_go_on: bool) -> String {
    let others = if others_go_on { "the other ranks go on" } else { "no other ranks were running" };
    match ranks {
        0 => format!("{what}\n  no rank was running there"),
        ranks => format!("{what}\n  {}{others}", describe_lost_ranks(ranks, below)),
    }
}

fn describe_lost_ranks(ranks: u32, below: u32) -> String {
    let also = match below {
        0 => String::new(),
        1 => " and on the host below it".to_owned(),
        _ => format!(" and on the {below} hosts below it"),
    };
    match ranks {
        0 => String::new(),
        1 => format!("1 rank was running there{also}, "),
        ranks => format!("{ranks} ranks were running there{also}, "),
    }
}
