//! State of the head and its host.

use std::collections::{BTreeMap, VecDeque};

use hydrant_control::Head;
use hydrant_core::{JobId, Server};
use hydrant_names::{Answer, LocalNames};

use super::input::Source;
use super::names::Known;
use super::plan::MS;

/// The head and its host.
pub(super) struct HeadHost<'m> {
    pub(super) control: Head,
    pub(super) names: LocalNames<Server<'m>>,
    /// Lines for the user.
    pub(super) printed: Vec<String>,
    pub(super) interrupts: u32,
    /// Set when the run has ended. True if pending output is written first.
    pub(super) finish: Option<bool>,
    /// The daemons have been ended.
    pub(super) shut_down: bool,
    /// The run cannot go on because of an error.
    pub(super) broken: bool,
    /// The PMI server of the head has failed.
    pub(super) backend_failed: bool,
    pub(super) draining: Vec<JobId>,
    /// Standard input.
    pub(super) source: Source,
    /// Requests about names, and the names that there are.
    pub(super) known: Known,
    /// Answers that the head has not got.
    pub(super) answers: VecDeque<Answer>,
    /// Output that the reader has not read, in bytes.
    pub(super) sink: u64,
    pub(super) is_reading: bool,
    /// Output that has not been acknowledged: node and bytes.
    pub(super) unacknowledged: Vec<(u32, u32)>,
    /// Bytes of each stream that have arrived.
    pub(super) arrived: BTreeMap<(u32, bool), u32>,
    /// Bytes of all streams.
    pub(super) written: u64,
    /// Processes of the jobs that run.
    pub(super) pids: BTreeMap<(JobId, u32), u32>,
}

impl<'m> HeadHost<'m> {
    pub(super) fn new(control: Head, names: LocalNames<Server<'m>>) -> HeadHost<'m> {
        HeadHost {
            control,
            names,
            printed: Vec::new(),
            interrupts: 0,
            finish: None,
            shut_down: false,
            broken: false,
            backend_failed: false,
            draining: Vec::new(),
            source: Source::default(),
            known: Known::default(),
            answers: VecDeque::new(),
            sink: 0,
            is_reading: false,
            unacknowledged: Vec::new(),
            arrived: BTreeMap::new(),
            written: 0,
            pids: BTreeMap::new(),
        }
    }

    /// Returns whether the daemons have been ended.
    pub(super) fn is_over(&self) -> bool {
        self.shut_down
    }

    /// Returns whether the run has ended by an error.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Returns whether the run ended without waiting for its jobs.
    pub(super) fn gave_up(&self) -> bool {
        self.finish == Some(false)
    }

    /// Returns the launcher's exit code.
    pub(super) fn exit_code(&self) -> u8 {
        if self.broken { 1 } else { self.control.exit_code() }
    }

    /// Returns the printed lines, without those about stalled fences.
    pub(super) fn reports(&self) -> Vec<&str> {
        let is_report = |line: &&str| !line.contains("have been waiting for");
        self.printed.iter().map(String::as_str).filter(is_report).collect()
    }

    /// Returns the time of the next timeout of the name service.
    pub(super) fn names_at(&self) -> Option<u64> {
        self.names.poll_at().map(|at| at * MS)
    }
}
