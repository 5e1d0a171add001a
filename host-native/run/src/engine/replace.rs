//! Replacement of the PMI servers during a run, at the request of a client of the status socket.
//!
//! Each node saves the state of its server and has another one go on with it. A node whose new one cannot be loaded, or refuses
//! the state, keeps the old one. Connections, links and recordings do not notice.

use std::path::Path;

use hydrant_control::protocol::{Order, PluginFile};
use hydrant_overlay::Destination;
use hydrant_status::record::Text;
use hydrant_status::{ClientId, Reply};

use super::Engine;
use crate::backend::{BackendBuilder, read_plugin};
use crate::error::RunError;
use crate::plan::Plugin;

/// Milliseconds until a client is answered without the nodes that are late. A node may have to compile the plugin.
const TIMEOUT: u64 = 60_000;

/// A replacement under way on several nodes.
pub(super) struct Replacement {
    client: ClientId,
    pub(super) deadline: u64,
    /// Nodes that have not answered.
    awaited: Vec<u32>,
    /// Nodes that have kept their servers, with the reasons.
    kept: Vec<String>,
}

impl Engine<'_, '_> {
    /// Replaces the server of each node by one in a plugin, or in the nodes' own processes. The client is answered at once, or
    /// when all nodes have answered.
    pub(super) fn replace_servers(&mut self, client: ClientId, path: Option<&Text>) {
        if self.status_socket.as_ref().is_some_and(|status| status.replacement.is_some()) {
            return self.answer_replacement(client, vec!["another replacement is under way".to_owned()]);
        }
        let plugin = match path.map(|path| self.read_successor(path)).transpose() {
            Ok(plugin) => plugin,
            Err(error) => return self.answer_replacement(client, vec![error.with_hint()]),
        };
        // The head tries first: what it cannot load, no node can.
        if let Err(error) = self.replace_server(plugin.as_ref()) {
            return self.answer_replacement(client, vec![error.with_hint()]);
        }
        let Some(hosts) =
            self.nodes.as_ref().and(self.head.as_ref()).map(|head| head.control.hosts().len() as u32)
        else {
            // That was the only one.
            return self.answer_replacement(client, Vec::new());
        };
        let now = self.now();
        let order = Order::ReplaceServer { plugin: plugin.map(Box::new) };
        for node in 1..=hosts {
            self.send_order(now, Destination::Node(node), order.clone());
        }
        if let Some(status) = &mut self.status_socket {
            let (awaited, kept) = ((1..=hosts).collect(), Vec::new());
            status.replacement = Some(Replacement { client, deadline: now + TIMEOUT, awaited, kept });
        }
    }

    /// Replaces the server of this node.
    ///
    /// # Errors
    /// The new server cannot be loaded, or refuses the state. The old one goes on.
    pub(super) fn replace_server(&mut self, plugin: Option<&PluginFile>) -> Result<(), RunError> {
        if self.core.is_board() {
            return Err(RunError::ServerOnBoard);
        }
        // Compiling a plugin takes time.
        self.announce_pause();
        let builder = BackendBuilder::new(plugin, &self.warnings)?;
        if let Some(driver) = self.core.driver() {
            driver.backend_mut().replace_server(&builder)?;
        }
        // Ranks that are started from now on ask for all values.
        self.sharing = None;
        Ok(())
    }

    fn read_successor(&self, path: &Text) -> Result<PluginFile, RunError> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(&path.0));
        let read = read_plugin(&Plugin::File(path.to_owned()), self.plan.options.spare)?;
        // As for a plugin from the beginning on: a node inside a call sends no heartbeat.
        let deadline = read.deadline.min(self.plan.options.cluster.heartbeat / 2);
        Ok(PluginFile { deadline, ..read })
    }

    /// A node has replaced its server, or kept it for this reason.
    pub(super) fn server_replaced(&mut self, node: u32, result: Result<(), String>) {
        let host = self.head.as_ref().map_or_else(String::new, |head| head.control.host(node).to_owned());
        let Some(status) = &mut self.status_socket else { return };
        let Some(replacement) = &mut status.replacement else { return };
        replacement.awaited.retain(|&awaited| awaited != node);
        if let Err(why) = result {
            replacement.kept.push(format!("{host}: {why}"));
        }
        if replacement.awaited.is_empty() {
            self.end_replacement();
        }
    }

    /// Answers the client of the replacement under way.
    pub(super) fn end_replacement(&mut self) {
        let Some(status) = &mut self.status_socket else { return };
        let Some(Replacement { client, awaited, mut kept, .. }) = status.replacement.take() else { return };
        if let Some(head) = &self.head {
            kept.extend(awaited.iter().map(|&node| format!("{}: no answer", head.control.host(node))));
        }
        self.answer_replacement(client, kept);
    }

    fn answer_replacement(&mut self, client: ClientId, kept: Vec<String>) {
        let reply = if kept.is_empty() { Reply::Done } else { Reply::Refused(kept.join("; ")) };
        self.reply(client, &reply);
    }
}
