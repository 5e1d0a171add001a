//! State of the job that is served.

use hydrant_core::manage::{Error, OpenJob};
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::{Fault, JobId, Limit};

use super::Serve;
use crate::net::Net;

/// State of a job in addition to the server's.
pub(crate) struct Served {
    pub(crate) id: JobId,
    /// Clients are accepted.
    served: bool,
    /// The host reports exits.
    pub(crate) exits_reported: bool,
    /// The job is aborted.
    pub(crate) ended: bool,
    /// The job belongs to the [configuration](crate::config).
    pub(crate) alone: bool,
}

impl Served {
    pub(crate) fn serving(&self) -> bool {
        self.served
    }
}

impl Serve<'_> {
    /// Opens a job.
    pub(crate) fn open_job(&mut self, net: &mut Net, open: &OpenJob<'_>) -> Result<JobId, Error> {
        let id = JobId(0);
        if self.has_node() {
            return Err(Error::Busy);
        }
        if self.job.is_some() {
            return Err(Error::Fault(Fault::Full(Limit::Jobs, crate::memory::LIMITS.jobs)));
        }
        self.register(net, JobSpec::managed(id, open), open.exits_reported).map_err(Error::Fault)?;
        Ok(id)
    }

    /// Registers a job.
    pub(crate) fn register(
        &mut self,
        net: &mut Net,
        spec: JobSpec<'_>,
        exits_reported: bool,
    ) -> Result<(), Fault> {
        self.try_handle(net, Input::RegisterJob(spec))?;
        self.abort_closing(net);
        self.counters.jobs = self.counters.jobs.saturating_add(1);
        self.job = Some(Served { id: spec.job, served: false, exits_reported, ended: false, alone: false });
        Ok(())
    }

    /// Accepts clients of a job from now on.
    pub(crate) fn accept_clients(&mut self, id: JobId) -> Result<(), Error> {
        let job = self.job.as_mut().filter(|job| job.id == id).ok_or(Error::Fault(Fault::NoSuchJob))?;
        job.served = true;
        Ok(())
    }

    /// Ends a job and its connections.
    pub(crate) fn forget_job(&mut self, net: &mut Net, id: JobId) -> Result<(), Error> {
        self.try_handle(net, Input::DeregisterJob { job: id }).map_err(Error::Fault)?;
        self.job = None;
        Ok(())
    }

    /// Returns whether all ranks of a job of the [configuration](crate::config) have connected. Further clients belong to the
    /// next job and wait for it.
    pub(super) fn is_complete(&self) -> bool {
        let job = self.job.as_ref().filter(|job| job.alone);
        let report = job.and_then(|job| self.server.job_report(job.id));
        report.is_some_and(|job| job.connected + job.exited >= job.size)
    }
}
