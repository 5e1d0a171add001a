//! A node whose core is of no use any more. The run ends as it does when a host is lost, but in order: links, streams and
//! processes are not the core's.

use hydrant_core::server::Consumed;
use hydrant_core::{Backend, Input, Limits, Output, Time};
use rustix::process::Signal;

use super::super::Engine;
use super::{Nodes, Role};
use crate::border::BackendError;
use crate::control::{Broken, Report};
use crate::error::RunError;

/// Stands where a core was: takes everything and says nothing.
#[derive(Debug)]
pub(super) struct Gone(pub(super) Limits);

impl Backend for Gone {
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
    /// Ends a run on several nodes whose core here has failed: its place is taken by one that says nothing, and the head
    /// has everything end.
    ///
    /// # Errors
    /// The error itself, where there are no other nodes, they cannot be told, or it is not of the core.
    pub(in super::super) fn break_off(&mut self, error: RunError) -> Result<(), RunError> {
        let broken = match &error {
            RunError::Links(_) | RunError::Overlay(_) | RunError::LifelineLost(_) => return Err(error),
            RunError::Peer { node, why } => Broken::Neighbour { node: *node, why: why.to_string() },
            // A head's other errors are about what it was asked for.
            error if self.is_daemon() || error.is_plugins() => Broken::Own(error.with_hint()),
            _ => return Err(error),
        };
        let limits = *self.core.limits();
        match &mut self.nodes {
            Some(Nodes { role: Role::Daemon { broken }, .. }) if !*broken => *broken = true,
            Some(Nodes { role: Role::Head(head), .. }) if !head.broken => {
                head.broken = true;
                head.names.close();
            }
            _ => return Err(error),
        }
        self.core.replace(Box::new(Gone(limits)));
        if self.is_daemon() {
            self.start_no_more();
            self.procs.signal_all(Signal::KILL);
            self.report_up(&Report::Broken(broken));
        } else {
            self.hear_of_broken(0, broken);
        }
        Ok(())
    }
}
