//! End of a run at its time limit: states of the ranks are collected, then all jobs are aborted.

use std::collections::BTreeMap;

use hydrant_control::{AbortReason, RanksInState, ranges_of};
use hydrant_core::JobId;
use hydrant_status::record::{RANKS_MAX, Rank};

use super::Engine;
use crate::error::RunError;
use crate::states::group_by_state;

/// Most ranks whose states are collected.
const COLLECTED_MAX: u32 = 4096;

/// A time limit that is reached.
pub(super) enum TimeLimit {
    /// States of ranks are collected.
    Collecting {
        /// Queries without an answer.
        queries: usize,
        /// Ranks of each job.
        ranks: BTreeMap<JobId, Vec<Rank>>,
    },
    /// The jobs are being ended.
    Ending,
}

impl Engine<'_, '_> {
    /// Returns the time at which the run reaches its time limit, unless its jobs are being ended already.
    pub(super) fn time_limit_at(&self) -> Option<u64> {
        let at = self.plan.options.timeout?.as_millis() as u64;
        if matches!(self.time_limit, Some(TimeLimit::Collecting { queries: 1.., .. })) {
            return None;
        }
        let here = || self.jobs.iter().any(|job| !job.is_aborted());
        self.head_has_jobs().unwrap_or_else(here).then_some(at)
    }

    /// Ends all jobs if the run has reached its time limit and the states of ranks are known.
    pub(super) fn keep_time_limit(&mut self, now: u64) -> Result<(), RunError> {
        if self.time_limit_at().is_none_or(|at| at > now) {
            return Ok(());
        }
        if self.time_limit.is_none() {
            self.collect_states();
        }
        match self.time_limit {
            Some(TimeLimit::Collecting { queries: 1.., .. }) => Ok(()),
            _ => self.end_at_limit(),
        }
    }

    /// Asks for the states of the ranks of all jobs.
    fn collect_states(&mut self) {
        let jobs: Vec<(JobId, u32)> = match self.control_of_head() {
            Some(head) => head.jobs().iter().map(|job| (job.id, job.size())).collect(),
            None => self.jobs.iter().map(|job| (job.id, job.size())).collect(),
        };
        let firsts =
            |(id, size): (JobId, u32)| (0..size).step_by(RANKS_MAX as usize).map(move |first| (id, first));
        let queries: Vec<(JobId, u32)> =
            jobs.into_iter().flat_map(firsts).take((COLLECTED_MAX / RANKS_MAX) as usize).collect();
        self.time_limit = Some(TimeLimit::Collecting { queries: queries.len(), ranks: BTreeMap::new() });
        queries.into_iter().for_each(|(id, first)| self.query_ranks_at_limit(id, first));
    }

    /// Keeps the answer to a query.
    pub(super) fn ranks_arrived_at_limit(&mut self, job: JobId, arrived: Vec<Rank>) {
        if let Some(TimeLimit::Collecting { queries, ranks }) = &mut self.time_limit {
            *queries = queries.saturating_sub(1);
            ranks.entry(job).or_default().extend(arrived);
        }
    }

    fn end_at_limit(&mut self) -> Result<(), RunError> {
        let Some(limit) = self.plan.options.timeout else { return Ok(()) };
        let mut states = match self.time_limit.replace(TimeLimit::Ending) {
            Some(TimeLimit::Collecting { ranks, .. }) => {
                ranks.into_iter().map(|(job, ranks)| (job, states_of(ranks))).collect()
            }
            _ => BTreeMap::new(),
        };
        if self.is_head() {
            return self.handle_at_head(hydrant_control::Event::TimeLimit { limit, states });
        }
        for id in self.jobs.ids(|job| !job.is_aborted()) {
            let reason = AbortReason::TimeLimit { limit, states: states.remove(&id).unwrap_or_default() };
            if self.jobs[id].abort(reason, &mut self.status) {
                self.terminate_job(id);
            }
        }
        Ok(())
    }
}

/// Running ranks by their states.
fn states_of(mut ranks: Vec<Rank>) -> Vec<RanksInState> {
    ranks.retain(|rank| rank.state.is_running());
    ranks.sort_unstable_by_key(|rank| rank.rank);
    let group =
        |(state, ranks): (String, Vec<u32>)| RanksInState { state, ranks: ranges_of(ranks.into_iter()) };
    group_by_state(&ranks).into_iter().map(group).collect()
}
