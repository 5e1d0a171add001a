//! Waits of the event loop, with answers to requests between them.

use std::time::Duration;

use hydrant_reactor::Key;

use super::nodes::Nodes;
use super::token::CONNS;
use super::{Engine, Run};
use crate::error::RunError;

impl Run<'_> {
    /// Waits until there is more to do than to answer requests, and answers those that come. Returns the time, and in `keys`
    /// what is ready.
    ///
    /// A daemon beside others wakes for few requests at a time, and the rest of a turn costs as much as an answer.
    pub(super) fn wait(&mut self, keys: &mut Vec<Key>) -> Result<u64, RunError> {
        let Run { engine, parts } = self;
        let is_starting = parts.daemon().is_some_and(|daemon| daemon.is_starting());
        let is_unsettled = parts.head().is_some_and(|head| head.is_unsettled());
        // Output that waited for the links is read at the end of the turn.
        if is_starting || is_unsettled || engine.sinks.have_changed() || !engine.messages.are_empty() {
            engine.poller.wait(Some(Duration::ZERO), keys)?;
            return Ok(engine.now());
        }
        let of_head = parts.head().and_then(|head| head.poll_at(engine.plan));
        let of_daemon = parts.daemon().and_then(|daemon| daemon.poll_at(engine));
        let others = [of_head, of_daemon, engine.poll_at()].into_iter().flatten().min();
        loop {
            // Requests change these deadlines alone, unless the server acts.
            let engine = &mut self.engine;
            let topology = engine.topology_file.as_ref().and_then(|file| file.borrow().poll_at());
            let deadlines = [others, engine.core.poll_at(), topology];
            engine.poller.wait(engine.clock.timeout(deadlines), keys)?;
            let now = engine.now();
            let is_due = deadlines.iter().flatten().any(|&at| at <= now);
            let are_requests = !keys.is_empty() && keys.iter().all(|&key| CONNS.contains(key));
            // A turn shows errors of a recording, and looks at ranks for a profile.
            if is_due || !are_requests || engine.recording.is_some() || engine.profile.is_some() {
                return Ok(now);
            }
            engine.has_acted = false;
            for key in keys.drain(..) {
                self.conn_ready(key, now)?;
            }
            if self.engine.has_acted || !self.engine.warnings.borrow().is_empty() {
                return Ok(now);
            }
        }
    }
}

impl Engine<'_> {
    /// Returns the next deadline that is not the server's and not that of the topology file.
    fn poll_at(&mut self) -> Option<u64> {
        let ports = self.jobs.iter().filter_map(|job| job.run.resume_at()).min();
        let nodes = self.nodes.as_mut().and_then(Nodes::deadline);
        let tools = self.tools.poll_at();
        let at = [nodes, ports, tools, self.streams.deadline(), self.stdin.deadline()];
        at.into_iter().flatten().min()
    }
}
