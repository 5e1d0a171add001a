//! Failure of a node's PMI server. The run ends as it does when a host is lost, but links, streams and processes of the node
//! are ended in order.

use super::super::Engine;
use super::super::names::Names;
use super::{Nodes, Role};
use crate::error::RunError;
use hydrant_control::protocol::BackendFailure;

impl Engine<'_, '_> {
    /// Ends a run on several nodes whose PMI server here has failed. A stub replaces it, and the head ends all jobs.
    ///
    /// # Errors
    /// The error itself, if there are no other nodes, they cannot be reached, or it is no error of the server.
    pub(in super::super) fn break_off(&mut self, error: RunError) -> Result<(), RunError> {
        let failure = match &error {
            RunError::Links(_) | RunError::Overlay(_) | RunError::LifelineLost(_) => return Err(error),
            RunError::Peer { node, why } => BackendFailure::Neighbour { node: *node, why: why.to_string() },
            // Other errors of a head are about the command line.
            error if self.is_daemon() || error.is_plugins() => BackendFailure::Own(error.with_hint()),
            _ => return Err(error),
        };
        match &mut self.nodes {
            Some(Nodes { role: Role::Daemon(daemon), .. }) if !daemon.control.has_failed_backend() => {}
            Some(Nodes { role: Role::Head(head), .. }) if !head.backend_failed => {
                head.backend_failed = true;
                self.names.take_if(|names| matches!(names, Names::Local(_)));
            }
            _ => return Err(error),
        }
        self.core.fail();
        if self.is_daemon() {
            self.handle_at_daemon(hydrant_control::DaemonEvent::BackendFailed(failure))
        } else {
            self.handle_at_head(hydrant_control::Event::BackendFailed(failure))
        }
    }
}
