//! Backend of a run: its core, with the recording and the topology file in front of it.

use std::rc::Rc;

use hydrant_core::server::{Consumed, FenceReport, RankStatus};
use hydrant_core::{Backend, Input, JobId, Limits, Output, Rank, Time};
use hydrant_driver::BackendError;
use hydrant_record::RecordingFile;

use crate::backend::{BackendBuilder, Core};
use crate::error::RunError;
use crate::topology_file::SharedTopologyFile;

/// Backend of a run.
pub(crate) struct RunBackend<'s> {
    core: Core<'s>,
    /// Recording of all inputs and outputs, also of a core that takes the place of another.
    recording: Option<Rc<RecordingFile>>,
    /// Requests for the path of this file are deferred until it is written.
    topology: Option<SharedTopologyFile>,
}

impl<'s> RunBackend<'s> {
    /// Wraps a core, which has had no input.
    pub(crate) fn new(
        core: Core<'s>,
        recording: Option<&Rc<RecordingFile>>,
        topology: Option<&SharedTopologyFile>,
    ) -> RunBackend<'s> {
        RunBackend { core, recording: recording.cloned(), topology: topology.cloned() }
    }

    /// A stub in place of a failed core. It is not recorded.
    pub(crate) fn failed(limits: Limits) -> RunBackend<'s> {
        RunBackend { core: Core::Failed(limits), recording: None, topology: None }
    }

    /// Has a spare catch up. Until the next input it answers what the core cannot be asked.
    pub(crate) fn catch_up(&mut self) {
        if let Core::Spared(spared) = &mut self.core {
            spared.catch_up();
        }
    }

    /// Puts another core in the place of the present one, which goes on if that fails.
    pub(crate) fn replace_core(&mut self, builder: &BackendBuilder) -> Result<(), RunError> {
        self.core.replace(builder)
    }
}

impl Backend for RunBackend<'_> {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        if let Some(file) = &self.topology
            && let Input::Bytes { conn, bytes, .. } = input
            && file.borrow_mut().defer(conn, bytes)
        {
            return Ok(Consumed { bytes: 0, again: true });
        }
        match &self.recording {
            Some(file) => file.handle(&mut self.core, BackendError::fault, now, input),
            None => self.core.handle(now, input),
        }
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        match &self.recording {
            Some(file) => file.poll(&mut self.core, BackendError::fault, buf),
            None => self.core.poll(buf),
        }
    }

    fn poll_at(&self) -> Option<Time> {
        self.core.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.core.limits()
    }

    fn bytes_max(&self) -> usize {
        self.core.bytes_max()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.core.kvs_space(job)
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.core.rank_status(job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        self.core.fence_report(job)
    }
}
