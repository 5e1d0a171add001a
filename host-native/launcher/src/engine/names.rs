//! Names that this run shares with others: between the core and the connections to the daemon.

use hydrant_core::wire::Protocol;
use hydrant_core::{Input, JobId, Rank, Time, UpcallId};
use hydrant_reactor::Key;

use super::Engine;
use crate::error::RunError;
use hydrant_services::names::{Answer, Request};

impl Engine<'_, '_> {
    /// Sends a rank's request to publish, unpublish or look up a name to the name server.
    pub(super) fn ask_name_server(
        &mut self,
        upcall: UpcallId,
        (job, rank): (JobId, Rank),
        (protocol, body): (Protocol, Vec<u8>),
    ) {
        let now = self.now();
        let wait = self.plan.options.lookup_wait.as_millis().try_into().unwrap_or(u32::MAX);
        let request = Request { upcall, job, rank, protocol, body, wait };
        let name_client = self.name_client.as_mut().expect("without one, names are the core's own");
        name_client.ask(request, now, &self.poller);
    }

    /// Handles a ready connection to the name server.
    pub(super) fn name_client_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        let Some(name_client) = &mut self.name_client else { return Ok(()) };
        name_client.ready(key, now, &self.poller);
        self.outputs()
    }

    /// Fails requests that the name server has not answered in time.
    pub(super) fn expire_names(&mut self, now: u64) -> Result<(), RunError> {
        match &mut self.name_client {
            Some(name_client) if name_client.deadline().is_some_and(|at| at <= now) => {
                name_client.expire(now)
            }
            _ => return Ok(()),
        }
        self.outputs()
    }

    /// Passes an answer of the name server to the server or the head. Returns whether there was one.
    pub(super) fn pass_name(&mut self) -> Result<bool, RunError> {
        let now = Time(self.now());
        let Some(name_client) = &mut self.name_client else { return Ok(false) };
        while let Some(line) = name_client.news() {
            self.sinks.print(&line);
        }
        let Some(Answer { upcall, rc, text }) = name_client.answer() else { return Ok(false) };
        if self.nodes.is_some() {
            let request = hydrant_control::RequestId(upcall.0);
            self.handle_at_head(hydrant_control::Event::NameServiceReply { request, rc, text })?;
        } else {
            self.core.handle(now, Input::UpcallComplete { upcall, rc, text: &text })?;
        }
        Ok(true)
    }

    /// Drops the look-ups of a rank whose process has ended.
    pub(super) fn drop_lookups(&mut self, job: JobId, rank: Rank) {
        if let Some(name_client) = &mut self.name_client {
            name_client.drop_lookups(|request| request.job == job && request.rank == rank);
        }
    }
}
