//! Names that jobs publish for others, and connections between jobs: between the PMI server or the head and the name
//! service.

use std::path::Path;

use hydrant_control::{Event, RequestId, job_name};
use hydrant_core::wire::Protocol;
use hydrant_core::{Backend, Input, JobId, Rank, Refusal, Time, UpcallId};
use hydrant_names::{Answer, LIMITS_OF_RUN, LocalNames, NameClient, NameServiceError, Request};
use hydrant_reactor::{Key, Poller};

use super::token::NAME_CLIENT;
use super::{Engine, Head};
use crate::backend::BackendBuilder;
use crate::error::RunError;
use crate::plan::Plan;

/// Name service of the run's jobs.
pub(super) enum Names {
    /// Of another process, which several runs share.
    Shared(NameClient),
    /// Of this process, for the nodes of this run, or for its board.
    Local(LocalNames<dyn Backend>),
}

impl Names {
    /// The name service of another process, for a run from `host` with this nonce, or for a fleet: its first job has a nonce of
    /// its own.
    pub(super) fn shared(
        plan: &Plan,
        path: &Path,
        (host, nonce): (&str, u64),
        now: u64,
        poller: &Poller,
    ) -> Result<Names, RunError> {
        let jobid = plan.options.fleet.is_none().then(|| job_name(std::process::id(), 0, nonce, host));
        let first = jobid.as_deref().map(|jobid| (JobId::default(), jobid));
        let joined = NameClient::join(path, first, NAME_CLIENT, now, poller);
        Ok(Names::Shared(joined.map_err(Box::new)?))
    }

    /// A name service of this process.
    pub(super) fn local(builder: &BackendBuilder) -> Result<Names, RunError> {
        let backend = builder.build_late(LIMITS_OF_RUN, 0)?;
        Ok(Names::Local(LocalNames::new(backend)))
    }

    fn ask(&mut self, request: Request, now: u64, poller: &Poller) -> Result<(), NameServiceError> {
        match self {
            Names::Shared(client) => {
                client.ask(request, now, poller);
                Ok(())
            }
            Names::Local(names) => names.ask(request, now),
        }
    }

    /// Returns the time of the next [`handle_timeout`](Names::handle_timeout).
    pub(super) fn poll_at(&self) -> Option<u64> {
        match self {
            Names::Shared(client) => client.deadline(),
            Names::Local(names) => names.poll_at(),
        }
    }

    /// Handles requests whose time has passed.
    pub(super) fn handle_timeout(&mut self, now: u64) -> Result<(), NameServiceError> {
        match self {
            Names::Shared(client) => {
                if client.deadline().is_some_and(|at| at <= now) {
                    client.expire(now);
                }
                Ok(())
            }
            Names::Local(names) => names.handle_timeout(now).map(drop),
        }
    }

    /// Drops the look-ups of a rank whose process has ended, and the names that end with it.
    pub(super) fn process_ended(&mut self, job: JobId, rank: Rank, now: u64) -> Result<(), NameServiceError> {
        match self {
            Names::Shared(client) => {
                client.process_ended(job, rank);
                Ok(())
            }
            Names::Local(names) => names.process_ended(job, rank, now),
        }
    }

    /// Removes the names of a job that has ended.
    pub(super) fn forget(&mut self, job: JobId, now: u64) -> Result<(), NameServiceError> {
        match self {
            Names::Shared(client) => {
                client.forget(job);
                Ok(())
            }
            Names::Local(names) => names.forget(job, now),
        }
    }

    fn answer(&mut self) -> Option<Answer> {
        match self {
            Names::Shared(client) => client.answer(),
            Names::Local(names) => names.answer(),
        }
    }
}

impl Head {
    /// Tells a name service that other runs share that two jobs of this run have connected or disconnected: connecting joins
    /// all jobs of both sides. The request has no answer.
    pub(super) fn relate_at_name_service(
        &mut self,
        engine: &Engine<'_>,
        asker: (JobId, Rank),
        other: JobId,
        connected: bool,
    ) -> Result<(), RunError> {
        let other = self.control.jobs().get(other).filter(|_| matches!(self.names, Some(Names::Shared(_))));
        let Some(other) = other else { return Ok(()) };
        let command = if connected { "job-connect" } else { "job-disconnect" };
        let body = format!("cmd={command};jobid={};", other.name).into_bytes();
        self.ask_name_service(engine, None, asker, (Protocol::V2, body))
    }

    /// Introduces a job to a name service that other runs share.
    pub(super) fn introduce(&mut self, engine: &Engine<'_>, id: JobId) {
        if let (Some(Names::Shared(client)), Some(job)) = (&mut self.names, self.control.jobs().get(id)) {
            client.begin(id, &job.name, engine.now(), &engine.poller);
        }
    }

    /// Sends a rank's request about a name or a job of another run to the name service. Without an upcall the request has no
    /// answer.
    pub(super) fn ask_name_service(
        &mut self,
        engine: &Engine<'_>,
        upcall: Option<UpcallId>,
        (job, rank): (JobId, Rank),
        (protocol, body): (Protocol, Vec<u8>),
    ) -> Result<(), RunError> {
        let wait = engine.plan.settings.lookup_wait.as_millis().try_into().unwrap_or(u32::MAX);
        let request = Request { upcall, job, rank, protocol, body, wait };
        // The name service is gone if its backend has failed. All jobs are ended then.
        let Some(names) = &mut self.names else { return Ok(()) };
        Ok(names.ask(request, engine.now(), &engine.poller)?)
    }

    /// Handles a ready connection to the name server of another process.
    pub(super) fn name_client_ready(&mut self, engine: &Engine<'_>, key: Key) {
        if let Some(Names::Shared(client)) = &mut self.names {
            client.ready(key, engine.now(), &engine.poller);
        }
    }

    /// Passes an answer of the name service on. Returns whether there was one.
    pub(super) fn pass_name(&mut self, engine: &mut Engine<'_>) -> Result<bool, RunError> {
        let Some(names) = &mut self.names else { return Ok(false) };
        if let Names::Shared(client) = names {
            while let Some(line) = client.news() {
                engine.sinks.print(&line);
            }
        }
        let Some(Answer { upcall, rc, text }) = names.answer() else { return Ok(false) };
        if engine.pass_name_to_tool(upcall, rc, &text)? {
            return Ok(true);
        }
        let request = RequestId(upcall.0);
        self.handle(engine, Event::UpcallReply { request, rc, text })?;
        Ok(true)
    }
}

impl Engine<'_> {
    /// Refuses a request of a query at a head of other hosts. Ranks send requests to their nodes.
    pub(super) fn refuse_upcall(&mut self, upcall: UpcallId) -> Result<(), RunError> {
        let now = Time(self.now());
        let refusal = Refusal::Unsupported;
        let (rc, text) = (refusal.rc(), refusal.to_string());
        Ok(self.core.handle(now, Input::UpcallComplete { upcall, rc, text: text.as_bytes() })?)
    }
}
