//! Queries of ranks that the board of a node has not answered.

use std::collections::VecDeque;

use hydrant_core::server::RankStatus;
use hydrant_core::{JobId, Rank, Time};
use hydrant_status::record::{State, Wait};

/// State of a rank: its number, its state, and what it waits for.
pub type RankState = (u32, State, Option<Wait>);

/// Queries in the order of the answers.
#[derive(Debug, Default)]
pub(super) struct Queries(VecDeque<Query>);

/// A rank of which the board speaks unasked.
#[derive(Debug)]
pub(super) struct Unasked;

#[derive(Debug)]
struct Query {
    number: u64,
    job: JobId,
    /// Ranks that the board has been asked for and has not answered.
    asked: VecDeque<u32>,
    ranks: Vec<RankState>,
}

impl Queries {
    /// Begins a query of ranks that the board is asked for, of which there is at least one.
    pub(super) fn begin(&mut self, number: u64, job: JobId, asked: Vec<u32>) {
        self.0.push_back(Query { number, job, asked: asked.into(), ranks: Vec::new() });
    }

    /// Takes the board's answer for one rank at its time `now`. Returns the query's number and ranks with its last rank.
    /// Returns [`Unasked`] if it is not the next rank that the board was asked for.
    pub(super) fn take(
        &mut self,
        (job, rank): (JobId, Rank),
        now: Time,
        status: Option<RankStatus<'_>>,
    ) -> Result<Option<(u64, Vec<RankState>)>, Unasked> {
        let query = self.0.front_mut().filter(|query| query.job == job).ok_or(Unasked)?;
        if query.asked.pop_front() != Some(rank.0) {
            return Err(Unasked);
        }
        let state = |status: RankStatus<'_>| {
            (rank.0, State::from(&status.report), status.wait.map(|wait| Wait::new(&wait, now.0)))
        };
        query.ranks.extend(status.map(state));
        if !query.asked.is_empty() {
            return Ok(None);
        }
        Ok(self.0.pop_front().map(|query| (query.number, query.ranks)))
    }
}
