//! The job that is served.

use hydrant_core::manage::{Error, JobPhase, JobReport, OpenJob};
use hydrant_core::server::{Input, JobSpec};
use hydrant_core::{Fault, JobId, Limit};

use super::Serve;
use crate::events::{self, Event};
use crate::net::Net;

/// A job beside what the core keeps of it.
pub(crate) struct Served {
    pub(crate) id: JobId,
    /// Whether clients may come.
    served: bool,
    /// Whether the host tells of exits.
    pub(crate) exits_told: bool,
    /// Whether it outlives the host's connection.
    pub(crate) keep: bool,
    /// Whether it has to end.
    pub(super) ended: bool,
    /// Whether it is known to be over.
    over: bool,
    /// Whether it comes from the configuration.
    pub(crate) alone: bool,
}

impl Served {
    pub(crate) fn serving(&self) -> bool {
        self.served
    }
}

impl Serve {
    /// Opens a job.
    pub(crate) fn open_job(&mut self, net: &mut Net, open: &OpenJob<'_>) -> Result<JobId, Error> {
        let id = JobId(0);
        if self.job.is_some() {
            return Err(Error::Core(Fault::Full(Limit::Jobs, crate::memory::LIMITS.jobs)));
        }
        self.try_tell(net, Input::RegisterJob(JobSpec::managed(id, open))).map_err(Error::Core)?;
        self.counters.jobs = self.counters.jobs.saturating_add(1);
        let OpenJob { exits_told, keep, .. } = *open;
        self.job =
            Some(Served { id, served: false, exits_told, keep, ended: false, over: false, alone: false });
        Ok(id)
    }

    /// Lets clients come to it.
    pub(crate) fn serve_job(&mut self, id: JobId) -> Result<(), Error> {
        let job = self.job.as_mut().filter(|job| job.id == id).ok_or(Error::Core(Fault::NoSuchJob))?;
        if core::mem::replace(&mut job.served, true) {
            return Err(Error::Order);
        }
        Ok(())
    }

    /// Lets go of a job and its connections.
    pub(crate) fn forget_job(&mut self, net: &mut Net, id: JobId) -> Result<(), Error> {
        self.try_tell(net, Input::DeregisterJob { job: id }).map_err(Error::Core)?;
        self.job = None;
        Ok(())
    }

    /// How a job is doing.
    pub(crate) fn job_report(&self, id: JobId) -> Option<JobReport> {
        let report = self.server.job_report(id)?;
        let served = self.job.as_ref().is_some_and(|job| job.id == id && job.served);
        let phase = match report.phase {
            JobPhase::Opened if served => JobPhase::Served,
            phase => phase,
        };
        Some(JobReport { phase, ..report })
    }

    /// Whether all ranks of a job from the [configuration](crate::config) have come: whoever comes now is the next
    /// job's, and waits for it.
    pub(super) fn is_complete(&self) -> bool {
        let job = self.job.as_ref().filter(|job| job.alone);
        let report = job.and_then(|job| self.server.job_report(job.id));
        report.is_some_and(|job| job.connected + job.exited >= job.size)
    }

    /// Says once that the job is over, when it is. A job from the [configuration](crate::config) is over, too, when it
    /// has to end: nobody but its clients can end its processes, and they learn of it when their connections close.
    /// Gives the number of such a job.
    pub(crate) fn over(&mut self) -> Option<JobId> {
        let job = self.job.as_mut()?;
        let over = self.server.job_report(job.id)?.phase == JobPhase::Over;
        if over && !job.over && events::have_room() {
            job.over = true;
            events::tell(Event::Over { job: job.id });
        }
        (job.alone && (job.over || job.ended)).then_some(job.id)
    }
}
