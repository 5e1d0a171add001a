//! End of a run at its time limit: states of the ranks are collected, stack traces are taken, then all jobs are aborted.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use hydrant_control::{Event, RanksInState, ranges_of};
use hydrant_core::JobId;
use hydrant_placement::Bootstrap;
use hydrant_status::record::{RANKS_MAX, Rank};
use hydrant_status::words::group_by_state;
use rustix::process::Pid;

use super::status::Recipient;
use super::{Engine, Head};
use crate::error::RunError;
use crate::plan::Plan;
use crate::stack_traces::{Debugger, StackTraces, Target};

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
    /// Debuggers take stack traces.
    Tracing {
        /// The traces.
        traces: StackTraces,
        /// Ranks of each job.
        ranks: BTreeMap<JobId, Vec<Rank>>,
    },
    /// The jobs are being ended.
    Ending,
}

impl Head {
    /// Returns the time at which the run reaches its time limit, unless its jobs are being ended already.
    pub(super) fn time_limit_at(&self, plan: &Plan) -> Option<u64> {
        let limit = plan.options.timeout?.as_millis() as u64;
        let at = match &self.time_limit {
            Some(TimeLimit::Collecting { queries: 1.., .. }) => return None,
            Some(TimeLimit::Tracing { traces, .. }) if !traces.is_over() => traces.poll_at(),
            _ => limit,
        };
        self.control.jobs().iter().any(|job| !job.is_aborted()).then_some(at)
    }

    /// Ends all jobs if the run has reached its time limit and the states of ranks are known.
    pub(super) fn keep_time_limit(&mut self, engine: &mut Engine<'_>, now: u64) -> Result<(), RunError> {
        if self.time_limit_at(engine.plan).is_none_or(|at| at > now) {
            return Ok(());
        }
        if self.time_limit.is_none() {
            self.collect_states(engine);
        }
        if let Some(TimeLimit::Collecting { queries: 1.., .. }) = self.time_limit {
            return Ok(());
        }
        if engine.plan.options.stack_traces {
            self.begin_traces(engine, now);
        }
        if let Some(TimeLimit::Tracing { traces, .. }) = &mut self.time_limit {
            let late = traces.handle_timeout(now);
            late.iter().for_each(|line| engine.sinks.print(line));
            if !traces.is_over() {
                return Ok(());
            }
        }
        self.end_at_limit(engine)
    }

    /// Starts debuggers for the ranks of this machine, once the states are known.
    fn begin_traces(&mut self, engine: &mut Engine<'_>, now: u64) {
        let Some(TimeLimit::Collecting { ranks, .. }) = &mut self.time_limit else { return };
        let ranks = std::mem::take(ranks);
        let is_local = self.bootstrap == Bootstrap::Local;
        let running = ranks.values().flatten().filter(|rank| rank.state.is_running());
        let here: Vec<&Rank> = running
            .clone()
            .filter(|rank| is_local || rank.host.as_deref() == Some(engine.host.as_str()))
            .collect();
        let elsewhere = running.count() - here.len();
        if elsewhere > 0 {
            engine.sinks.print(&format!(
                "stack traces are made on this host only; {elsewhere} ranks run on other hosts"
            ));
        }
        let target = |rank: &&Rank| {
            let (pid, host) = (rank.pid?, rank.host.as_deref()?);
            Some(Target { name: format!("rank {} on {host}, pid {pid}", rank.rank), pid })
        };
        let targets: Vec<Target> = here.iter().filter_map(target).collect();
        match Debugger::find() {
            Some(debugger) => {
                let traces = StackTraces::new(debugger, targets, now);
                self.time_limit = Some(TimeLimit::Tracing { traces, ranks });
                self.start_debuggers(engine);
            }
            None => {
                engine.sinks.print(
                    "no stack traces: no debugger is installed\nhint: install gdb, or eu-stack of elfutils",
                );
                self.time_limit = Some(TimeLimit::Collecting { queries: 0, ranks });
            }
        }
    }

    fn start_debuggers(&mut self, engine: &mut Engine<'_>) {
        if let Some(TimeLimit::Tracing { traces, .. }) = &mut self.time_limit {
            let failed = traces.start_some(engine.null.as_fd(), &engine.files);
            failed.iter().for_each(|line| engine.sinks.print(line));
        }
    }

    /// Prints the stack trace of a debugger that has ended. Does nothing for other processes.
    pub(super) fn debugger_ended(&mut self, engine: &mut Engine<'_>, pid: Pid) {
        if let Some(TimeLimit::Tracing { traces, .. }) = &mut self.time_limit
            && let Some(trace) = traces.ended(pid)
        {
            engine.sinks.print(&trace);
            self.start_debuggers(engine);
        }
    }

    /// Asks for the states of the ranks of all jobs.
    fn collect_states(&mut self, engine: &mut Engine<'_>) {
        let jobs = self.control.jobs().iter();
        let jobs: Vec<(JobId, u32)> = jobs.map(|job| (job.id, job.size())).collect();
        let firsts =
            |(id, size): (JobId, u32)| (0..size).step_by(RANKS_MAX as usize).map(move |first| (id, first));
        let queries: Vec<(JobId, u32)> =
            jobs.into_iter().flat_map(firsts).take((COLLECTED_MAX / RANKS_MAX) as usize).collect();
        self.time_limit = Some(TimeLimit::Collecting { queries: queries.len(), ranks: BTreeMap::new() });
        queries.into_iter().for_each(|(id, first)| self.query_ranks(engine, Recipient::TimeLimit, id, first));
    }

    /// Keeps the answer to a query.
    pub(super) fn ranks_arrived_at_limit(&mut self, job: JobId, arrived: Vec<Rank>) {
        if let Some(TimeLimit::Collecting { queries, ranks }) = &mut self.time_limit {
            *queries = queries.saturating_sub(1);
            ranks.entry(job).or_default().extend(arrived);
        }
    }

    fn end_at_limit(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let Some(limit) = engine.plan.options.timeout else { return Ok(()) };
        let states = match self.time_limit.replace(TimeLimit::Ending) {
            Some(TimeLimit::Collecting { ranks, .. } | TimeLimit::Tracing { ranks, .. }) => {
                ranks.into_iter().map(|(job, ranks)| (job, states_of(ranks))).collect()
            }
            _ => BTreeMap::new(),
        };
        self.handle(engine, Event::TimeLimit { limit, states })
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
