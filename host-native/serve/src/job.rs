//! State of a served job and of its ranks.

use std::net::SocketAddr;

use hydrant_core::Rank;
use hydrant_core::trace::{Cause, Exit};

use hydrant_control::{RankFailure, abort_text, count_others};
use hydrant_placement::format_ranges;

/// A job whose ranks are started by another program.
#[derive(Debug)]
pub(crate) struct Job {
    /// Number of jobs before this one.
    pub(crate) ordinal: u32,
    ranks: Vec<State>,
    joined: u32,
    left: u32,
    /// Time at which missing ranks end the job.
    pub(crate) deadline: Option<u64>,
    end: Option<Ended>,
}

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awaited,
    /// Joined, from this address.
    Joined(Option<SocketAddr>),
    /// Its connection is closed.
    Left(Option<SocketAddr>),
}

/// Reason for the end of a job before its ranks have ended.
#[derive(Debug)]
enum Ended {
    /// The core called for it.
    Called(RankFailure),
    /// A rank aborted itself alone.
    Alone { rank: Rank, code: u8, message: String },
    /// Ranks that have not joined.
    Absent { missing: Vec<u32>, seconds: f64 },
}

impl Job {
    pub(crate) fn new(ordinal: u32, size: u32, deadline: Option<u64>) -> Job {
        let ranks = vec![State::Awaited; size as usize];
        Job { ordinal, ranks, joined: 0, left: 0, deadline, end: None }
    }

    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns the number of ranks that have joined, including those that have left.
    pub(crate) fn joined(&self) -> u32 {
        self.joined
    }

    /// Returns whether all ranks have joined.
    pub(crate) fn is_complete(&self) -> bool {
        self.joined == self.size()
    }

    /// Returns whether the job has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() || self.left == self.size()
    }

    /// Records that a rank has joined, or that it has connected again.
    pub(crate) fn join(&mut self, rank: Rank, from: Option<SocketAddr>) {
        let before = std::mem::replace(&mut self.ranks[rank.index()], State::Joined(from));
        if let State::Joined(_) = before {
            return;
        }
        self.joined += 1;
        if self.is_complete() {
            self.deadline = None;
        }
    }

    /// Handles the end of a rank's connection. Returns whether the rank had joined and not left.
    pub(crate) fn leave(&mut self, rank: Rank) -> bool {
        let State::Joined(from) = self.ranks[rank.index()] else { return false };
        self.ranks[rank.index()] = State::Left(from);
        self.left += 1;
        true
    }

    /// Ends the job at the request of the server.
    pub(crate) fn end(&mut self, cause: Cause, message: String) {
        self.end.get_or_insert(Ended::Called(RankFailure { cause, message }));
    }

    /// Ends the job when a rank aborts itself. No launcher ends the rank, and other ranks may wait for it.
    pub(crate) fn abort_alone(&mut self, rank: Rank, code: Option<i32>, message: String) {
        let code = Exit::of_killed(code).exit_code();
        self.end.get_or_insert(Ended::Alone { rank, code, message });
    }

    /// Ends the job because of ranks that have not joined.
    pub(crate) fn give_up(&mut self, seconds: f64) {
        let awaited = |&rank: &u32| self.ranks[rank as usize] == State::Awaited;
        let missing = (0..self.size()).filter(awaited).collect();
        self.end.get_or_insert(Ended::Absent { missing, seconds });
    }

    /// Its exit code.
    pub(crate) fn code(&self) -> u8 {
        match &self.end {
            None => 0,
            Some(Ended::Called(end)) => end.cause.exit_code(),
            Some(Ended::Alone { code, .. }) => *code,
            Some(Ended::Absent { .. }) => 1,
        }
    }

    /// Returns a description of a failure, if the job failed.
    pub(crate) fn report(&self) -> Option<String> {
        let (what, rank) = match self.end.as_ref()? {
            Ended::Called(end) => (end.describe(), end.cause.rank()),
            Ended::Alone { rank, code, message } => {
                (format!("aborted itself with code {code}{}", abort_text(message)), *rank)
            }
            Ended::Absent { missing, seconds } => {
                let (came, size) = (self.joined, self.size());
                return Some(format!(
                    "the job is given up: {came} of {size} ranks have come within {seconds} s\n  missing: {}{}",
                    format_ranges(missing),
                    self.others(None)
                ));
            }
        };
        let from = match self.ranks[rank.index()] {
            State::Joined(Some(from)) | State::Left(Some(from)) => {
                format!("\n  rank {rank} came from {from}")
            }
            _ => String::new(),
        };
        Some(format!("rank {rank} {what}{from}{}", self.others(Some(rank))))
    }

    /// Describes the state of the other ranks, as another line.
    fn others(&self, but: Option<Rank>) -> String {
        let others = self.ranks.iter().enumerate().filter(|(rank, _)| Some(*rank) != but.map(Rank::index));
        let (mut here, mut left, mut awaited) = (0, 0, 0);
        for (_, state) in others {
            *match state {
                State::Joined(_) => &mut here,
                State::Left(_) => &mut left,
                State::Awaited => &mut awaited,
            } += 1;
        }
        let mut parts = Vec::new();
        if here > 0 {
            parts.push(count_others(here, "rank is cut off", "ranks are cut off"));
        }
        if left > 0 {
            parts.push(count_others(left, "rank had left before", "ranks had left before"));
        }
        if awaited > 0 && but.is_some() {
            parts.push(count_others(awaited, "rank had not come", "ranks had not come"));
        }
        if parts.is_empty() { String::new() } else { format!("\n  {}", parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(size: u32) -> Job {
        Job::new(0, size, Some(7))
    }

    #[test]
    fn a_job_is_over_when_all_who_joined_have_left() {
        let mut job = job(2);
        job.join(Rank(1), None);
        assert!(!job.is_complete() && job.leave(Rank(1)) && !job.leave(Rank(1)) && !job.leave(Rank(0)));
        assert!(!job.is_over() && job.deadline == Some(7));
        job.join(Rank(0), None);
        assert!(job.is_complete() && job.deadline.is_none() && !job.is_over());
        job.leave(Rank(0));
        assert!(job.is_over() && job.code() == 0 && job.report().is_none());
    }

    #[test]
    fn the_lost_rank_is_named_with_where_it_came_from() {
        let mut job = job(4);
        job.join(Rank(0), None);
        job.join(Rank(2), Some(([10, 0, 0, 7], 4000).into()));
        job.leave(Rank(2));
        job.end(Cause::NoFinalize { rank: Rank(2), exit: Exit::Lost }, String::new());
        assert_eq!(
            job.report().unwrap(),
            "rank 2 was lost without finalizing\n  rank 2 came from 10.0.0.7:4000\n  \
             1 other rank is cut off, 2 other ranks had not come"
        );
        assert!(job.is_over() && job.code() == 1);
    }

    #[test]
    fn who_has_not_come_is_named() {
        let mut job = job(6);
        job.join(Rank(1), None);
        job.give_up(0.5);
        let text = "the job is given up: 1 of 6 ranks have come within 0.5 s\n  missing: 0,2-5\n  1 other rank is cut off";
        assert_eq!(job.report().unwrap(), text);
    }
}
