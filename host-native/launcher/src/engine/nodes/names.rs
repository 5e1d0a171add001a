//! Name server of a run on several hosts, at the head.

use hydrant_reactor::Key;

use super::{Engine, Nodes, Role};
use crate::error::RunError;
use hydrant_driver::AnyBackend;
use hydrant_services::names::NameService;

impl<'s> Engine<'_, 's> {
    /// Returns the name server, if this is the head and no other process keeps the names.
    fn name_server<'n>(nodes: &'n mut Option<Nodes<'s>>) -> Option<&'n mut NameService<AnyBackend<'s>>> {
        match nodes {
            Some(Nodes { role: Role::Head(head), .. }) => head.names.as_mut(),
            _ => None,
        }
    }

    /// Handles a ready connection of the name server.
    pub(in super::super) fn names_conn_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        match Self::name_server(&mut self.nodes) {
            Some(server) => Ok(server.ready(key, &self.poller, now)?),
            None => Ok(()),
        }
    }

    /// Passes the name server its ends of new connections.
    pub(super) fn connect_names(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let fresh = self.name_client.as_mut().map(|client| client.take_fresh()).unwrap_or_default();
        let Some(server) = Self::name_server(&mut self.nodes) else { return Ok(()) };
        for fd in fresh {
            server.open(fd, &self.poller, now)?;
        }
        Ok(())
    }

    /// Handles deadlines of the name server.
    pub(super) fn keep_names_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let Some(server) = Self::name_server(&mut self.nodes) else { return Ok(()) };
        server.handle_timeout(&self.poller, now)?;
        while let Some(line) = server.next_line() {
            self.sinks.print(&line);
        }
        Ok(())
    }
}
