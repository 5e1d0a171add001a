//! State of the jobs that are served.

use core::marker::PhantomData;

use hydrant_core::server::{Input, JobPhase, JobSpec};
use hydrant_core::{Fault, JobId, Limit};

use super::Serve;
use crate::board::{Board, JOBS_MAX, Sizes};
use crate::net::Net;

/// Number of the configured job.
pub(crate) const OWN: JobId = JobId(0);

/// State of a job in addition to the server's.
pub(crate) struct Served {
    /// Clients are accepted.
    served: bool,
    /// The job is aborted.
    pub(super) ended: bool,
}

/// The jobs that are served, by their numbers.
pub(crate) struct Jobs<B>([Option<Served>; JOBS_MAX], PhantomData<B>);

impl<B: Board> Jobs<B> {
    pub(super) const fn new() -> Jobs<B> {
        Jobs([const { None }; JOBS_MAX], PhantomData)
    }

    /// Returns a job.
    fn get(&self, id: JobId) -> Option<&Served> {
        self.0[..B::JOBS].get(id.index())?.as_ref()
    }

    /// Returns a job.
    pub(super) fn get_mut(&mut self, id: JobId) -> Option<&mut Served> {
        self.0[..B::JOBS].get_mut(id.index())?.as_mut()
    }

    /// Returns whether there are no jobs.
    pub(super) fn is_empty(&self) -> bool {
        self.0[..B::JOBS].iter().all(Option::is_none)
    }

    /// Returns whether clients of a job are accepted.
    pub(super) fn is_serving(&self, id: JobId) -> bool {
        self.get(id).is_some_and(|job| job.served)
    }

    /// Returns the jobs whose clients are accepted.
    pub(super) fn serving(&self) -> impl Iterator<Item = JobId> {
        (0..B::JOBS as u32).map(JobId).filter(|&id| self.is_serving(id))
    }
}

impl<B: Board> Serve<'_, B> {
    /// Keeps a job of the configuration open, the next one after the end of each.
    ///
    /// # Errors
    /// The job is larger than the board's tables.
    pub(crate) fn keep_job(&mut self, net: &mut B::Net, name: &str, size: u32) -> Result<(), Fault> {
        if let Some(job) = self.jobs.get(OWN) {
            // Nothing can kill the processes of an aborted job. Its clients end when their connections are closed.
            let phase = self.server.job_report(OWN).map(|report| report.phase);
            if !job.ended && phase != Some(JobPhase::Over) {
                return Ok(());
            }
            self.forget_job(net, OWN)?;
        }
        self.register(net, JobSpec::new(OWN, name, size))?;
        self.accept_clients(net, OWN)
    }

    /// Registers a job.
    pub(crate) fn register(&mut self, net: &mut B::Net, spec: JobSpec<'_>) -> Result<(), Fault> {
        self.try_handle(net, Input::RegisterJob(spec))?;
        if self.jobs.is_empty() {
            self.abort_closing(net);
        }
        self.counters.jobs = self.counters.jobs.saturating_add(1);
        // The server has accepted its number.
        if let Some(slot) = self.jobs.0[..B::JOBS].get_mut(spec.job.index()) {
            *slot = Some(Served { served: false, ended: false });
        }
        Ok(())
    }

    /// Accepts clients of a job from now on, if there is a socket for each rank of all jobs.
    pub(crate) fn accept_clients(&mut self, net: &mut B::Net, id: JobId) -> Result<(), Fault> {
        let job = self.jobs.get_mut(id).ok_or(Fault::NoSuchJob)?;
        // The highest port may leave no room for the ports of all jobs.
        self.port.checked_add(id.0 as u16).ok_or(Fault::Full(Limit::Jobs, id.0))?;
        job.served = true;
        let ranks = |id| Some(self.server.job_report(id)?.connected + self.server.awaited(id)?);
        let most = self.clients.len() as u32;
        if self.jobs.serving().filter_map(ranks).sum::<u32>() > most {
            self.jobs.get_mut(id).into_iter().for_each(|job| job.served = false);
            return Err(Fault::Full(Limit::Conns, most));
        }
        // Clients may connect as soon as the job is logged or the host knows. Connections that are aborted for them end
        // before the poll, which refuses clients without a listening socket.
        self.listen(net);
        self.keep_listening(net);
        net.poll();
        self.listen(net);
        Ok(())
    }

    /// Ends a job and its connections.
    pub(crate) fn forget_job(&mut self, net: &mut B::Net, id: JobId) -> Result<(), Fault> {
        self.try_handle(net, Input::DeregisterJob { job: id })?;
        if let Some(slot) = self.jobs.0[..B::JOBS].get_mut(id.index()) {
            *slot = None;
        }
        Ok(())
    }

    /// Returns whether all ranks of a job of the configuration have connected. Further clients belong to the
    /// next job and wait for it.
    pub(super) fn is_complete(&self) -> bool {
        let report = self.server.job_report(OWN).filter(|_| !self.has_node());
        report.is_some_and(|job| job.connected + job.exited >= job.size)
    }
}
