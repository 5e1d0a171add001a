//! Names that this run shares with others: between the core and the connections to the daemon.

use hydrant_core::wire::Protocol;
use hydrant_core::{Input, JobId, Rank, Time, UpcallId};
use hydrant_reactor::Key;

use super::Engine;
use crate::error::RunError;
use crate::universe::{Answer, Request};

impl Engine<'_, '_> {
    /// A rank asks for a name to be published, withdrawn or looked up.
    pub(super) fn ask_universe(
        &mut self,
        upcall: UpcallId,
        (job, rank): (JobId, Rank),
        (protocol, body): (Protocol, Vec<u8>),
    ) {
        let now = self.now();
        let wait = self.plan.options.lookup_wait.as_millis().try_into().unwrap_or(u32::MAX);
        let request = Request { upcall, job, rank, protocol, body, wait };
        let universe = self.universe.as_mut().expect("without one, names are the core's own");
        universe.ask(request, now, &self.poller);
    }

    /// A connection to the daemon has something.
    pub(super) fn universe_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        let Some(universe) = &mut self.universe else { return Ok(()) };
        universe.ready(key, now, &self.poller);
        self.outputs()
    }

    /// Gives up what the daemon does not answer.
    pub(super) fn expire_names(&mut self, now: u64) -> Result<(), RunError> {
        match &mut self.universe {
            Some(universe) if universe.deadline().is_some_and(|at| at <= now) => universe.expire(now),
            _ => return Ok(()),
        }
        self.outputs()
    }

    /// Tells the core what has become of a request; whether there was one.
    pub(super) fn pass_name(&mut self) -> Result<bool, RunError> {
        let now = Time(self.now());
        let Some(universe) = &mut self.universe else { return Ok(false) };
        while let Some(line) = universe.news() {
            self.sinks.say(&line);
        }
        let Some(Answer { upcall, rc, text }) = universe.answer() else { return Ok(false) };
        if self.nodes.is_some() {
            let request = hydrant_control::RequestId(upcall.0);
            self.handle_at_head(hydrant_control::Event::NameServiceReply { request, rc, text })?;
        } else {
            self.core.handle(now, Input::UpcallComplete { upcall, rc, text: &text })?;
        }
        Ok(true)
    }

    /// The process of a rank has ended, and with it what it waits for.
    pub(super) fn drop_lookups(&mut self, job: JobId, rank: Rank) {
        if let Some(universe) = &mut self.universe {
            universe.drop_lookups(|request| request.job == job && request.rank == rank);
        }
    }
}
