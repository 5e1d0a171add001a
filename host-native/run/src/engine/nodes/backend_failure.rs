//! Failure of a node's PMI server. The run ends as it does when a host is lost, but links, streams and processes of the node
//! are ended in order.

use hydrant_control::protocol::BackendFailure;
use hydrant_control::{DaemonEvent, Event};

use super::super::names::Names;
use super::super::{Daemon, Engine, Head};
use crate::error::RunError;

/// The failure of a PMI server that an error is about. None for an error of links.
fn failure(error: &RunError) -> Option<BackendFailure> {
    match error {
        RunError::Links(_) | RunError::Overlay(_) | RunError::LifelineLost(_) => None,
        RunError::Peer { node, why } => Some(BackendFailure::Neighbour { node: *node, why: why.to_string() }),
        error => Some(BackendFailure::Own(error.with_hint())),
    }
}

impl Daemon {
    /// Ends a run on several nodes whose PMI server here has failed. A stub replaces it, and the head ends all jobs.
    ///
    /// # Errors
    /// The error itself, if there are no other nodes, they cannot be reached, or the server has failed before.
    pub(in super::super) fn break_off(
        &mut self,
        engine: &mut Engine<'_>,
        error: RunError,
    ) -> Result<(), RunError> {
        let goes_on = !engine.is_alone() && !self.control.has_failed_backend();
        let Some(failure) = failure(&error).filter(|_| goes_on) else { return Err(error) };
        engine.core.fail();
        self.handle(engine, DaemonEvent::BackendFailed(failure))
    }
}

impl Head {
    /// Ends a run on several nodes whose PMI server at the head has failed. A stub replaces it, and all jobs end.
    ///
    /// # Errors
    /// The error itself, if it is not the server's, or the server has failed before.
    pub(in super::super) fn break_off(
        &mut self,
        engine: &mut Engine<'_>,
        error: RunError,
    ) -> Result<(), RunError> {
        // Other errors of a head are about the command line.
        let is_servers = matches!(error, RunError::Peer { .. }) || error.is_plugins();
        let goes_on = is_servers && !self.backend_failed;
        let Some(failure) = failure(&error).filter(|_| goes_on) else { return Err(error) };
        self.backend_failed = true;
        self.names.take_if(|names| matches!(names, Names::Local(_)));
        engine.core.fail();
        self.handle(engine, Event::BackendFailed(failure))
    }
}
