//! Failure of a node's PMI server. The run ends as it does when a host is lost, but links, streams and processes of the node
//! are ended in order.

use hydrant_control::protocol::BackendFailure;
use hydrant_core::server::Consumed;
use hydrant_core::{Backend, Input, Limits, Output, Time};
use hydrant_driver::BackendError;

use super::super::Engine;
use super::super::names::Names;
use super::{Nodes, Role};
use crate::error::RunError;

/// Stub in place of a failed backend: it accepts all inputs and has no outputs.
#[derive(Debug)]
pub(super) struct FailedBackend(pub(super) Limits);

impl Backend for FailedBackend {
    type Error = BackendError;

    fn handle(&mut self, _: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let bytes = if let Input::Bytes { bytes, .. } = input { bytes.len() as u32 } else { 0 };
        Ok(Consumed { bytes, again: false })
    }

    fn poll<'b>(&mut self, _: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(None)
    }

    fn poll_at(&self) -> Option<Time> {
        None
    }

    fn limits(&self) -> &Limits {
        &self.0
    }
}

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
        let limits = *self.core.limits();
        match &mut self.nodes {
            Some(Nodes { role: Role::Daemon(daemon), .. }) if !daemon.control.has_failed_backend() => {}
            Some(Nodes { role: Role::Head(head), .. }) if !head.backend_failed => {
                head.backend_failed = true;
                self.names.take_if(|names| matches!(names, Names::Local(_)));
            }
            _ => return Err(error),
        }
        self.core.replace(Box::new(FailedBackend(limits)));
        if self.is_daemon() {
            self.handle_at_daemon(hydrant_control::DaemonEvent::BackendFailed(failure))
        } else {
            self.handle_at_head(hydrant_control::Event::BackendFailed(failure))
        }
    }
}
