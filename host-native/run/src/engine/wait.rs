//! Waits of the event loop, with answers to requests between them.

use std::time::Duration;

use hydrant_reactor::{Key, Listener};

use super::Engine;
use super::names::Names;
use super::nodes::Nodes;
use super::progress::Progress;
use super::status::Status;
use super::token::CONNS;
use crate::error::RunError;

impl Engine<'_, '_> {
    /// Waits until there is more to do than to answer requests, and answers those that come. Returns the time, and in `keys`
    /// what is ready.
    ///
    /// A daemon beside others wakes for few requests at a time, and the rest of a turn costs as much as an answer.
    pub(super) fn wait(&mut self, keys: &mut Vec<Key>) -> Result<u64, RunError> {
        // Output that waited for the links is read at the end of the turn.
        if self.is_starting() || self.sinks.have_changed() || !self.messages.are_empty() {
            self.poller.wait(Some(Duration::ZERO), keys)?;
            return Ok(self.now());
        }
        let others = self.deadline();
        loop {
            // Requests change these deadlines alone, unless the server acts.
            let topology = self.topology_file.as_ref().and_then(|file| file.borrow().poll_at());
            let deadlines = [others, self.core.poll_at(), topology];
            self.poller.wait(self.clock.timeout(deadlines), keys)?;
            let now = self.now();
            let is_due = deadlines.iter().flatten().any(|&at| at <= now);
            let are_requests = !keys.is_empty() && keys.iter().all(|&key| CONNS.contains(key));
            // A turn shows errors of a recording.
            if is_due || !are_requests || self.recording.is_some() {
                return Ok(now);
            }
            self.has_acted = false;
            for key in keys.drain(..) {
                self.conn_ready(key, now)?;
            }
            if self.has_acted || !self.warnings.borrow().is_empty() {
                return Ok(now);
            }
        }
    }

    /// Returns the next deadline that is not the server's and not that of the topology file.
    fn deadline(&mut self) -> Option<u64> {
        let ports = self.jobs.iter().flat_map(|job| job.run.ports().map(Listener::deadline));
        let queries = self.queries.values().map(Listener::deadline);
        let nodes = self.nodes.as_mut().and_then(Nodes::deadline);
        let daemon = self.daemon.as_ref().and_then(|daemon| daemon.control.poll_at());
        let at = [
            self.drains_at(),
            self.patience_at(),
            self.names.as_ref().and_then(Names::poll_at),
            nodes,
            daemon,
            self.time_limit_at(),
            self.status_socket.as_ref().and_then(Status::poll_at),
            self.progress.as_ref().and_then(Progress::poll_at),
            self.streams.deadline(),
            self.stdin.deadline(),
        ];
        at.into_iter().chain(ports).chain(queries).flatten().min()
    }
}
