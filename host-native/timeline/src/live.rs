//! Summaries of jobs while their server runs, without a recording.

use std::collections::BTreeMap;

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{ConnId, Input, JobId, Output, Time};

use crate::Budget;
use crate::assemble::assemble;
use crate::collect::{Collection, NodeReader};
use crate::summary::Summary;

/// Reads the inputs and outputs of one server, and sums up each of its jobs.
///
/// It keeps the times of requests, not their bytes.
#[derive(Debug)]
pub struct Live {
    host: String,
    jobs: BTreeMap<JobId, NodeReader>,
    conns: BTreeMap<ConnId, JobId>,
    /// Number of the node, and of the nodes of the run.
    node: Option<(u32, u32)>,
    /// Job of the last input, to which its result belongs.
    last: Option<JobId>,
}

/// Memory that the jobs of a server may use, each: some 100 MiB at most.
const BUDGET: Budget = Budget { ranks: 200_000, spans: 400_000, collectives: 20_000, text: 0 };

impl Live {
    /// A reader for the server on this host.
    pub fn new(host: String) -> Live {
        Live { host, jobs: BTreeMap::new(), conns: BTreeMap::new(), node: None, last: None }
    }

    /// Takes an input.
    pub fn input(&mut self, now: Time, input: Input<'_>) {
        self.last = match input {
            Input::Node { node, nodes, .. } => {
                self.node = Some((node, nodes));
                None
            }
            Input::RegisterJob(spec) => {
                let mut reader = NodeReader::new(Collection::new(BUDGET), &self.host, "");
                if let Some((node, nodes)) = self.node {
                    reader.record(&Record::Input { now, input: Input::Node { node, nodes, radix: 0 } });
                }
                self.jobs.insert(spec.job, reader);
                Some(spec.job)
            }
            Input::Opened { conn, job, .. } => {
                self.conns.insert(conn, job);
                Some(job)
            }
            Input::Bytes { conn, .. } => self.conns.get(&conn).copied(),
            Input::Closed { conn } => self.conns.remove(&conn),
            Input::Exited { job, .. } => Some(job),
            // A node without ranks of the job does not sum it up.
            Input::DeregisterJob { job } => {
                self.forget(job);
                None
            }
            _ => None,
        };
        self.record(&Record::Input { now, input });
    }

    /// Takes the result of the last input.
    pub fn took(&mut self, consumed: Consumed) {
        self.record(&Record::Took { consumed, wake: None });
        self.last = None;
    }

    /// Takes an output.
    pub fn output(&mut self, output: &Output<'_>) {
        let conn = match *output {
            Output::Bytes { conn, .. } | Output::Joined { conn, .. } => conn,
            _ => return,
        };
        if let Some(reader) = self.conns.get(&conn).and_then(|job| self.jobs.get_mut(job)) {
            reader.record(&Record::Output(*output));
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        if let Some(reader) = self.last.and_then(|job| self.jobs.get_mut(&job)) {
            reader.record(record);
        }
    }

    /// Returns the ranks that have entered their first fence since the last call, with the times at which the server had their
    /// connections.
    pub fn take_arrivals(&mut self) -> Vec<(JobId, u32, u64)> {
        let jobs = self.jobs.iter_mut();
        jobs.flat_map(|(&job, reader)| reader.take_arrivals().map(move |(rank, time)| (job, rank, time)))
            .collect()
    }

    /// Sums up a job, and forgets it.
    pub fn take_job(&mut self, job: JobId) -> Option<Summary> {
        let timeline = assemble(self.forget(job)?.finish(None));
        (!timeline.jobs.is_empty()).then(|| Summary::of(&timeline, 0))
    }

    fn forget(&mut self, job: JobId) -> Option<NodeReader> {
        self.conns.retain(|_, of| *of != job);
        self.jobs.remove(&job)
    }
}
