//! Management server without I/O: connections of hosts, their requests, and the jobs that they open.
//!
//! The embedding program owns sockets and clients. It reports connections, received bytes and the time to a
//! [`ManagementServer`], which decodes requests, checks them, carries them out on a [`Service`] and encodes the
//! replies. Nothing is allocated. Hosts and jobs are kept in slots that the caller lends.
//!
//! ```text
//! connected ──► receive ──► receive ──► ... ──► disconnected
//!                  │ reply                         │ jobs of this host are dropped or kept
//!                  ▼                               ▼
//!               Service                         Service
//! ```
//!
//! Events are encoded by the embedding program, because it decides how they are queued.
//! [`event_recipient`](ManagementServer::event_recipient) returns the host that an event is for.

use core::net::IpAddr;

pub use super::service::{Config, Failure, Service, exit_of_connection};
use super::slots::{Host, Job};
pub use super::slots::{HostSlot, JobSlot};
use super::{
    BoardReport, Error, JobPhase, JobReport, OpenJob, OpenLink, OpenNode, Report, Request, STALL_MS, VERSION,
    Welcome, decode, encode, next,
};
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::Limit;

/// Result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'b> {
    /// Number of consumed bytes.
    pub consumed: usize,
    /// The encoded reply.
    pub reply: &'b [u8],
    /// The error in the reply.
    pub refused: Option<Error>,
    /// Action after sending the reply.
    pub next: Next,
}

/// Action of the embedding program on a connection after sending a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Passes further bytes to [`ManagementServer::receive`].
    Receive,
    /// Sends a recording, and discards further bytes.
    Record,
    /// Serves a node on the connection, whose number has been freed, or uses it as a link of one.
    Node,
    /// Closes the connection and reports that to [`ManagementServer::disconnected`].
    Close,
}

/// Reason that a host's time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// It did not send [`Request::Hello`].
    Handshake,
    /// It did not read for [`STALL_MS`].
    Stalled,
}

/// A management server. See the [module documentation](self).
#[derive(Debug)]
pub struct ManagementServer<'m> {
    config: Config<'m>,
    hosts: &'m mut [HostSlot],
    jobs: &'m mut [JobSlot],
    /// The host that may change jobs, if [`Config::exclusive`] is set.
    manager: Option<usize>,
    recorder: Option<usize>,
}

impl<'m> ManagementServer<'m> {
    /// Creates a server for as many hosts and jobs as there are slots.
    pub fn new(
        config: Config<'m>,
        hosts: &'m mut [HostSlot],
        jobs: &'m mut [JobSlot],
    ) -> ManagementServer<'m> {
        hosts.fill(HostSlot::EMPTY);
        jobs.fill(JobSlot::EMPTY);
        ManagementServer { config, hosts, jobs, manager: None, recorder: None }
    }

    /// Returns an unused host number.
    pub fn free_host(&self) -> Option<usize> {
        self.hosts.iter().position(|slot| slot.0.is_none())
    }

    /// Returns the host that has been connected longest without [`Request::Hello`]. Its connection may be closed for
    /// another one.
    pub fn oldest_silent(&self) -> Option<usize> {
        let hosts = self.hosts.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.0?)));
        let silent = hosts.filter(|(_, host)| !host.greeted);
        silent.min_by_key(|(_, host)| host.connected_at).map(|(number, _)| number)
    }

    /// Registers a connection of the host at the address `from`. `host` is an unused number below the number of slots.
    pub fn connected(&mut self, host: usize, from: IpAddr, now: u64) {
        if let Some(slot) = self.hosts.get_mut(host) {
            slot.0 = Some(Host { from, connected_at: now, greeted: false, blocked_since: None });
        }
    }

    /// Unregisters a connection of a host. Its jobs are dropped, except for [kept](OpenJob::keep) ones.
    ///
    /// # Errors
    /// Fatal errors of the service.
    pub fn disconnected<S: Service>(
        &mut self,
        service: &mut S,
        host: usize,
        now: u64,
    ) -> Result<(), S::Error> {
        let Some(slot) = self.hosts.get_mut(host) else { return Ok(()) };
        slot.0 = None;
        self.manager = self.manager.filter(|&manager| manager != host);
        self.recorder = self.recorder.filter(|&recorder| recorder != host);
        for index in 0..self.jobs.len() {
            let id = JobId(index as u32);
            let drop_orphans = self.config.drop_orphans;
            let Some(job) = self.jobs[index].0.as_mut().filter(|job| job.host == Some(host)) else {
                continue;
            };
            job.host = None;
            job.abandoned = Some(now);
            if !job.keep || (job.over && drop_orphans) {
                fatal(self.forget(service, id))?;
                continue;
            }
            job.exits_reported = false;
            let size = job.size;
            service.derive_exits(id);
            // Derives the exits of connections that closed earlier, which the host has not reported.
            for rank in (0..size).map(Rank) {
                let Some(report) = service.rank_report(id, rank) else { continue };
                let was_connected = report.initialized || report.finalized;
                if was_connected && report.conn.is_none() && report.exit.is_none() {
                    fatal(service.exited(id, rank, exit_of_connection(report.finalized)))?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether a host has completed the handshake.
    pub fn is_greeted(&self, host: usize) -> bool {
        self.hosts.get(host).and_then(|slot| slot.0).is_some_and(|host| host.greeted)
    }

    /// Returns whether a recording is sent to a host.
    pub fn is_recording(&self, host: usize) -> bool {
        self.recorder == Some(host)
    }

    /// Records whether the send buffer of a host is full.
    pub fn set_blocked(&mut self, host: usize, blocked: bool, now: u64) {
        if let Some(host) = self.hosts.get_mut(host).and_then(|slot| slot.0.as_mut()) {
            host.blocked_since = if blocked { host.blocked_since.or(Some(now)) } else { None };
        }
    }

    /// Returns when to call [`expired`](ManagementServer::expired) and
    /// [`drop_abandoned`](ManagementServer::drop_abandoned) next.
    pub fn poll_at(&self) -> Option<u64> {
        let hosts = self.hosts.iter().filter_map(|slot| Some(self.deadline(slot.0.as_ref()?)?.0));
        hosts.chain(self.jobs.iter().filter_map(|slot| self.keep_until(slot.0.as_ref()?))).min()
    }

    /// Drops a kept job whose time without a host is over. Returns it.
    ///
    /// # Errors
    /// Fatal errors of the service.
    pub fn drop_abandoned<S: Service>(
        &mut self,
        service: &mut S,
        now: u64,
    ) -> Result<Option<JobId>, S::Error> {
        for index in 0..self.jobs.len() {
            let id = JobId(index as u32);
            let due = |job: &Job| self.keep_until(job).is_some_and(|at| at <= now);
            if !self.jobs[index].0.as_ref().is_some_and(due) {
                continue;
            }
            if service.job_report(id).is_some_and(|report| report.connected > 0) {
                if let Some(job) = &mut self.jobs[index].0 {
                    job.abandoned = Some(now);
                }
                continue;
            }
            fatal(self.forget(service, id))?;
            return Ok(Some(id));
        }
        Ok(None)
    }

    /// Returns the time at which a job without a host is dropped.
    fn keep_until(&self, job: &Job) -> Option<u64> {
        Some(job.abandoned?.saturating_add(self.config.keep_timeout?))
    }

    /// Returns a host whose time is over. Its connection is to be closed and reported to
    /// [`disconnected`](ManagementServer::disconnected).
    pub fn expired(&self, now: u64) -> Option<(usize, Expired)> {
        self.hosts.iter().enumerate().find_map(|(number, slot)| {
            let (at, why) = self.deadline(slot.0.as_ref()?)?;
            (at <= now).then_some((number, why))
        })
    }

    fn deadline(&self, host: &Host) -> Option<(u64, Expired)> {
        match host.blocked_since {
            Some(since) => Some((since.saturating_add(STALL_MS), Expired::Stalled)),
            None if host.greeted => None,
            None => {
                let at = host.connected_at.saturating_add(self.config.handshake_timeout);
                Some((at, Expired::Handshake))
            }
        }
    }

    /// Carries out the first request in `bytes`. Returns `None` if it is incomplete, or if a recording is sent to this
    /// host.
    ///
    /// The reply is encoded into `buf`, which has room for [`PREFIX`](super::PREFIX) +
    /// [`RECORD_MAX`](super::RECORD_MAX) bytes. Pending events are to be sent before the reply.
    ///
    /// # Errors
    /// Fatal errors of the service.
    pub fn receive<'b, S: Service>(
        &mut self,
        service: &mut S,
        host: usize,
        bytes: &[u8],
        buf: &'b mut [u8],
    ) -> Result<Option<Received<'b>>, S::Error> {
        if self.is_recording(host) {
            return Ok(None);
        }
        let (result, consumed) = match next(bytes) {
            Ok(None) => return Ok(None),
            Ok(Some((record, consumed))) => match decode::<Request<'_>>(record) {
                Ok(request) => (self.carry_out(service, host, &request), consumed),
                Err(_) => (Err(Error::Malformed.into()), consumed),
            },
            Err(_) => (Err(Error::Malformed.into()), bytes.len()),
        };
        let (report, refused) = match result {
            Ok(report) => (report, None),
            Err(Failure::Refused(error)) => (Report::Refused(error), Some(error)),
            Err(Failure::Fatal(error)) => return Err(error),
        };
        let next = match refused {
            Some(Error::Malformed) => Next::Close,
            _ if self.is_recording(host) => Next::Record,
            _ if self.hosts.get(host).is_some_and(|slot| slot.0.is_none()) => Next::Node,
            _ => Next::Receive,
        };
        // Every reply fits, because the name of the server is short.
        let reply = encode(&report, buf).unwrap_or_default();
        Ok(Some(Received { consumed, reply, refused, next }))
    }

    fn carry_out<S: Service>(
        &mut self,
        service: &mut S,
        host: usize,
        request: &Request<'_>,
    ) -> Result<Report<'m>, Failure<S::Error>> {
        let is_hello = matches!(request, Request::Hello { .. });
        let connection = self.hosts.get_mut(host).and_then(|slot| slot.0.as_mut()).ok_or(Error::Handshake)?;
        if connection.greeted == is_hello {
            return Err(Error::Handshake.into());
        }
        match *request {
            Request::Hello { version } if version != VERSION => {
                Err(Error::Version { spoken: VERSION }.into())
            }
            Request::Hello { .. } => {
                connection.greeted = true;
                Ok(Report::Welcome(self.welcome(service)))
            }
            Request::Record => self.record(service, host),
            Request::Node(ref node) => self.node(service, host, node),
            Request::Link(ref link) => self.link(service, host, link),
            Request::Job { job } => {
                self.visible(host, job)?;
                Ok(Report::Job(self.job_report(service, job).ok_or(Fault::NoSuchJob)?))
            }
            Request::Rank { job, rank } => {
                self.visible(host, job)?;
                Ok(Report::Rank(service.rank_report(job, rank).ok_or(Fault::NoSuchRank)?))
            }
            Request::Board => Ok(Report::Board(service.board_report())),
            Request::Usage { limit } => {
                Ok(Report::Usage { limit, used: service.used(limit), size: self.config.limits.of(limit) })
            }
            _ => {
                self.claim(host)?;
                self.change(service, host, request)
            }
        }
    }

    fn node<S: Service>(
        &mut self,
        service: &mut S,
        host: usize,
        node: &OpenNode,
    ) -> Result<Report<'m>, Failure<S::Error>> {
        self.check_idle(host)?;
        let most = self.config.nodes.ok_or(Error::NoNodes)?;
        let full = |limit| Err(Fault::Full(limit, most.of(limit)));
        node.limits.exceeding(most).next().map_or(Ok(()), full)?;
        service.begin_node(host, node)?;
        self.hosts.get_mut(host).into_iter().for_each(|slot| slot.0 = None);
        Ok(Report::Done)
    }

    fn link<S: Service>(
        &mut self,
        service: &mut S,
        host: usize,
        link: &OpenLink,
    ) -> Result<Report<'m>, Failure<S::Error>> {
        self.check_idle(host)?;
        service.begin_link(host, link)?;
        self.hosts.get_mut(host).into_iter().for_each(|slot| slot.0 = None);
        Ok(Report::Done)
    }

    fn check_idle(&self, host: usize) -> Result<(), Error> {
        let manages = self.jobs.iter().flat_map(|slot| slot.0).any(|job| job.host == Some(host));
        if manages || self.manager == Some(host) { Err(Error::Order) } else { Ok(()) }
    }

    fn record<S: Service>(&mut self, service: &mut S, host: usize) -> Result<Report<'m>, Failure<S::Error>> {
        self.check_idle(host)?;
        if self.recorder.is_some() {
            return Err(Error::Busy.into());
        }
        service.begin_recording(host)?;
        self.recorder = Some(host);
        Ok(Report::Done)
    }

    /// Makes a host the manager, if only one is allowed.
    fn claim(&mut self, host: usize) -> Result<(), Error> {
        if self.config.exclusive {
            if self.manager.is_some_and(|manager| manager != host) {
                return Err(Error::Busy);
            }
            self.manager = Some(host);
        }
        Ok(())
    }

    /// Carries out a request that changes a job.
    fn change<S: Service>(
        &mut self,
        service: &mut S,
        host: usize,
        request: &Request<'_>,
    ) -> Result<Report<'m>, Failure<S::Error>> {
        match *request {
            Request::Open(ref open) => {
                let (job, port) = self.register(service, open, Some(host))?;
                return Ok(Report::Opened { job, port });
            }
            Request::Program { job, first, count, appnum } => {
                self.unserved(host, job)?;
                service.set_program(job, first, count, appnum)?;
            }
            Request::Attr { job, key, value } => {
                self.unserved(host, job)?;
                service.set_attr(job, key, value)?;
            }
            Request::Pset { job, name, first, count } => {
                self.unserved(host, job)?;
                service.define_pset(job, name, first, count)?;
            }
            Request::Serve { job } => {
                self.unserved(host, job)?;
                self.serve(service, job)?;
            }
            Request::Exited { job, rank, exit } => {
                self.owned(host, job)?;
                service.exited(job, rank, exit)?;
            }
            Request::Forget { job } => {
                self.owned(host, job)?;
                self.forget(service, job)?;
            }
            // These requests change nothing.
            Request::Hello { .. }
            | Request::Job { .. }
            | Request::Rank { .. }
            | Request::Board
            | Request::Usage { .. }
            | Request::Record
            | Request::Node(_)
            | Request::Link(_) => return Err(Error::Order.into()),
        }
        Ok(Report::Done)
    }

    fn welcome<S: Service>(&self, service: &S) -> Welcome<'m> {
        let BoardReport { sockets, free_sockets, .. } = service.board_report();
        let Config { name, limits, pmi_port, message_max, records, nodes, links, .. } = self.config;
        Welcome {
            version: VERSION,
            board: name,
            limits,
            pmi_port,
            sockets,
            free_sockets,
            message_max,
            records,
            nodes,
            links,
        }
    }

    /// Opens a job of the embedding program itself, which belongs to no host.
    ///
    /// # Errors
    /// [`Failure`] of the service.
    pub fn open<S: Service>(
        &mut self,
        service: &mut S,
        open: &OpenJob<'_>,
    ) -> Result<JobId, Failure<S::Error>> {
        self.register(service, open, None).map(|(job, _)| job)
    }

    fn register<S: Service>(
        &mut self,
        service: &mut S,
        open: &OpenJob<'_>,
        host: Option<usize>,
    ) -> Result<(JobId, u16), Failure<S::Error>> {
        let (id, port) = service.open(open)?;
        let full = Fault::Full(Limit::Jobs, self.jobs.len() as u32);
        let OpenJob { size, exits_reported, keep, .. } = *open;
        let owner = host.and_then(|host| self.hosts.get(host)?.0).map(|host| host.from);
        match self.jobs.get_mut(id.index()) {
            Some(slot) => {
                let (served, over, abandoned) = (false, false, None);
                slot.0 = Some(Job { host, owner, abandoned, size, served, exits_reported, keep, over });
                Ok((id, port))
            }
            None => {
                service.forget(id)?;
                Err(full.into())
            }
        }
    }

    /// Lets clients connect to a job.
    ///
    /// # Errors
    /// [`Failure`] of the service, [`Error::Order`] if they may connect already.
    pub fn serve<S: Service>(&mut self, service: &mut S, id: JobId) -> Result<(), Failure<S::Error>> {
        let job = self.jobs.get_mut(id.index()).and_then(|slot| slot.0.as_mut()).ok_or(Fault::NoSuchJob)?;
        if job.served {
            return Err(Error::Order.into());
        }
        service.accept_clients(id)?;
        job.served = true;
        Ok(())
    }

    /// Ends a job, in any state.
    ///
    /// # Errors
    /// [`Failure`] of the service.
    pub fn forget<S: Service>(&mut self, service: &mut S, id: JobId) -> Result<(), Failure<S::Error>> {
        service.forget(id)?;
        if let Some(slot) = self.jobs.get_mut(id.index()) {
            slot.0 = None;
        }
        Ok(())
    }

    /// Handles a closed connection of a rank. Reports its exit, unless the job's host does that.
    ///
    /// # Errors
    /// Fatal errors of the service.
    pub fn rank_left<S: Service>(
        &mut self,
        service: &mut S,
        id: JobId,
        rank: Rank,
        finalized: bool,
    ) -> Result<(), S::Error> {
        match self.job(id) {
            Some(job) if !job.exits_reported => {
                fatal(service.exited(id, rank, exit_of_connection(finalized)))
            }
            _ => Ok(()),
        }
    }

    /// Returns the next job that is over since the last call, and the host to send [`Report::Over`] to.
    ///
    /// # Errors
    /// Fatal errors of the service.
    pub fn poll_over<S: Service>(
        &mut self,
        service: &mut S,
    ) -> Result<Option<(JobId, Option<usize>)>, S::Error> {
        for index in 0..self.jobs.len() {
            let id = JobId(index as u32);
            let Some(job) = self.jobs[index].0.as_mut().filter(|job| !job.over) else { continue };
            if service.job_report(id).is_none_or(|report| report.phase != JobPhase::Over) {
                continue;
            }
            job.over = true;
            if job.host.is_none() && self.config.drop_orphans {
                fatal(self.forget(service, id))?;
                continue;
            }
            return Ok(Some((id, self.event_recipient(id))));
        }
        Ok(None)
    }

    /// Returns the host that events of a job are for. There may be none.
    pub fn event_recipient(&self, id: JobId) -> Option<usize> {
        if self.config.exclusive { self.manager } else { self.job(id)?.host }
    }

    /// Returns the host that may change jobs, if [`Config::exclusive`] is set.
    pub fn manager(&self) -> Option<usize> {
        self.manager
    }

    /// Returns whether [`poll_over`](ManagementServer::poll_over) has returned a job.
    pub fn is_over(&self, id: JobId) -> bool {
        self.job(id).is_some_and(|job| job.over)
    }

    /// Returns the number of jobs that are not over.
    pub fn running_jobs(&self) -> usize {
        self.jobs.iter().flat_map(|slot| slot.0).filter(|job| !job.over).count()
    }

    fn job_report<S: Service>(&self, service: &S, id: JobId) -> Option<JobReport> {
        let (job, report) = (self.job(id)?, service.job_report(id)?);
        let phase = match report.phase {
            JobPhase::Opened if job.served => JobPhase::Served,
            phase => phase,
        };
        Some(JobReport { phase, ..report })
    }

    fn job(&self, id: JobId) -> Option<Job> {
        self.jobs.get(id.index())?.0
    }

    /// Returns a job that a host may query: one that was opened from its address, or by the embedding program.
    fn visible(&self, host: usize, id: JobId) -> Result<Job, Error> {
        let from = self.hosts.get(host).and_then(|slot| slot.0).map(|host| host.from);
        let job = self.job(id).filter(|job| job.owner.is_none() || job.owner == from);
        job.ok_or(Error::Fault(Fault::NoSuchJob))
    }

    /// Returns a job that a host may change: its own, or a visible one whose host is gone.
    fn owned(&self, host: usize, id: JobId) -> Result<Job, Error> {
        let job = self.visible(host, id)?;
        if job.host.is_none_or(|owner| owner == host) { Ok(job) } else { Err(Error::Fault(Fault::NoSuchJob)) }
    }

    fn unserved(&self, host: usize, id: JobId) -> Result<(), Error> {
        if self.owned(host, id)?.served { Err(Error::Order) } else { Ok(()) }
    }
}

/// Returns fatal errors and ignores refusals, for calls without a request of a host.
fn fatal<E>(result: Result<(), Failure<E>>) -> Result<(), E> {
    match result {
        Err(Failure::Fatal(error)) => Err(error),
        Err(Failure::Refused(_)) | Ok(()) => Ok(()),
    }
}
