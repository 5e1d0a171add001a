//! Backend in this process.

use hydrant_core::server::{Consumed, FenceReport, RankStatus};
use hydrant_core::{Backend, Fault, Input, JobId, Limits, Output, Rank, Server, Time};

use crate::BackendError;

/// A server in this process with the error type of backends that are chosen at run time. A [`Driver`](crate::Driver) of a
/// [`Server`] alone needs no such wrapper.
#[derive(Debug)]
pub struct NativeBackend<'s>(pub Server<'s>);

impl Backend for NativeBackend<'_> {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(self.0.handle(now, input)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(self.0.poll(buf).map_err(Fault::from)?)
    }

    fn poll_at(&self) -> Option<Time> {
        self.0.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.0.kvs_space(job)
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.0.rank_status(job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        self.0.fence_report(job)
    }
}
