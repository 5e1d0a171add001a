//! Queries of ranks that the board of a node has not answered.

use std::collections::VecDeque;

use hydrant_core::server::{JobPhase, JobReport, RankReport, RankStatus};
use hydrant_core::{JobId, Rank, Time};
use hydrant_status::record::{State, Wait};

/// State of a rank: its number, its state, and what it waits for.
pub type RankState = (u32, State, Option<Wait>);

/// Queries in the order of the answers.
#[derive(Debug, Default)]
pub(crate) struct Queries(VecDeque<Query>);

/// A rank of which the board speaks unasked.
#[derive(Debug)]
pub(crate) struct Unasked;

/// Purpose of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The states of ranks are for the query of this number.
    States(u64),
    /// The ranks of a job are counted for a line to print.
    Print,
    /// The ranks of a job are counted for the report about a silent board.
    Watch,
}

/// Answered query.
#[derive(Debug)]
pub(crate) enum Answer {
    /// States of ranks, for the query of this number.
    States(u64, Vec<RankState>),
    /// Numbers of ranks of a job. They are printed if the flag is set.
    Counted(JobId, JobReport, bool),
}

#[derive(Debug)]
struct Query {
    purpose: Purpose,
    job: JobId,
    /// Ranks that the board has been asked for and has not answered.
    asked: VecDeque<u32>,
    ranks: Vec<RankState>,
    counted: JobReport,
}

impl Queries {
    /// Begins a query of ranks that the board is asked for, of which there is at least one.
    pub(crate) fn begin(&mut self, purpose: Purpose, job: JobId, asked: Vec<u32>) {
        let counted = JobReport {
            phase: JobPhase::Served,
            size: asked.len() as u32,
            connected: 0,
            initialized: 0,
            in_fence: 0,
            finalized: 0,
            exited: 0,
        };
        self.0.push_back(Query { purpose, job, asked: asked.into(), ranks: Vec::new(), counted });
    }

    /// Takes the board's answer for one rank at its time `now`. Returns the answer to the query with its last rank.
    /// Returns [`Unasked`] if it is not the next rank that the board was asked for.
    pub(crate) fn take(
        &mut self,
        (job, rank): (JobId, Rank),
        now: Time,
        status: Option<RankStatus<'_>>,
    ) -> Result<Option<Answer>, Unasked> {
        let query = self.0.front_mut().filter(|query| query.job == job).ok_or(Unasked)?;
        if query.asked.pop_front() != Some(rank.0) {
            return Err(Unasked);
        }
        if let Some(status) = status {
            count(&mut query.counted, &status.report);
            if let Purpose::States(_) = query.purpose {
                let state = State::from(&status.report);
                query.ranks.push((rank.0, state, status.wait.map(|wait| Wait::new(&wait, now.0))));
            }
        }
        if !query.asked.is_empty() {
            return Ok(None);
        }
        Ok(self.0.pop_front().map(|query| match query.purpose {
            Purpose::States(number) => Answer::States(number, query.ranks),
            Purpose::Print => Answer::Counted(query.job, query.counted, true),
            Purpose::Watch => Answer::Counted(query.job, query.counted, false),
        }))
    }
}

/// Counts a rank.
fn count(all: &mut JobReport, rank: &RankReport) {
    all.connected += u32::from(rank.conn.is_some());
    all.initialized += u32::from(rank.initialized);
    all.in_fence += u32::from(rank.in_fence);
    all.finalized += u32::from(rank.finalized);
    all.exited += u32::from(rank.exit.is_some());
}
