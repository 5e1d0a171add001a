//! Failure of a node's PMI server. The run ends as it does when a host is lost, but links, streams and processes of the node
//! are ended in order.

use super::super::Engine;
use super::super::names::Names;
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
            error if self.head.is_none() || error.is_plugins() => BackendFailure::Own(error.with_hint()),
            _ => return Err(error),
        };
        match (&mut self.head, &self.daemon) {
            // The only server of the run.
            (Some(_), Some(_)) => return Err(error),
            (Some(head), None) if !head.backend_failed => {
                head.backend_failed = true;
                self.names.take_if(|names| matches!(names, Names::Local(_)));
            }
            (None, Some(daemon)) if !daemon.control.has_failed_backend() => {}
            _ => return Err(error),
        }
        self.core.fail();
        self.handle_at_daemon(hydrant_control::DaemonEvent::BackendFailed(failure.clone()))?;
        self.handle_at_head(hydrant_control::Event::BackendFailed(failure))
    }
}
