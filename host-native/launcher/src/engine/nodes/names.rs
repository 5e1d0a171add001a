//! Name server of a run on several hosts, at the head.

use hydrant_reactor::Key;

use super::{Engine, Nodes, Role};
use crate::error::RunError;
use crate::universe::Keeper;

impl<'s> Engine<'_, 's> {
    /// The name server, if this is the head and names are not kept by another process.
    fn name_server<'n>(nodes: &'n mut Option<Nodes<'s>>) -> Option<&'n mut Keeper<'s>> {
        match nodes {
            Some(Nodes { role: Role::Head(head), .. }) => head.names.as_mut(),
            _ => None,
        }
    }

    /// A connection of the name server is ready.
    pub(in super::super) fn names_conn_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        match Self::name_server(&mut self.nodes) {
            Some(server) => Ok(server.ready(key, &self.poller, now)?),
            None => Ok(()),
        }
    }

    /// Gives the name server its ends of new connections.
    pub(super) fn connect_names(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let fresh = self.universe.as_mut().map(|universe| universe.take_fresh()).unwrap_or_default();
        let Some(server) = Self::name_server(&mut self.nodes) else { return Ok(()) };
        Ok(fresh.into_iter().try_for_each(|fd| server.open(fd, &self.poller, now))?)
    }

    /// Handles deadlines of the name server.
    pub(super) fn keep_names_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let Some(server) = Self::name_server(&mut self.nodes) else { return Ok(()) };
        server.keep_time(&self.poller, now)?;
        while let Some(line) = server.news() {
            self.sinks.say(&line);
        }
        Ok(())
    }
}
