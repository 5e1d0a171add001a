//! Replacement of the PMI servers during a run, at the request of a client of the status socket.
//!
//! Each node saves the state of its server and has another one go on with it. A node whose new one cannot be loaded, or refuses
//! the state, keeps the old one. Connections, links and recordings do not notice.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hydrant_control::protocol::{Order, PluginFile};
use hydrant_overlay::Destination;
use hydrant_status::record::Text;
use hydrant_status::{ClientId, Reply};

use super::nodes::plugin_of;
use super::{Engine, Head};
use crate::backend::BackendBuilder;
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

impl Head {
    /// Replaces the server of each node by one in a plugin, or in the nodes' own processes. The client is answered at once, or
    /// when all nodes have answered.
    pub(super) fn replace_servers(&mut self, engine: &mut Engine<'_>, client: ClientId, path: Option<&Text>) {
        if self.replacement.is_some() {
            let why = "another replacement is under way".to_owned();
            return self.answer_replacement(engine, client, vec![why]);
        }
        let path = path.map(|path| Plugin::File(Path::new(OsStr::from_bytes(&path.0)).to_owned()));
        let plugin = match path.map(|plugin| plugin_of(engine.plan, &plugin)).transpose() {
            Ok(plugin) => plugin,
            Err(error) => return self.answer_replacement(engine, client, vec![error.with_hint()]),
        };
        // The head tries first: what it cannot load, no node can.
        if let Err(error) = engine.replace_server(plugin.as_ref()) {
            return self.answer_replacement(engine, client, vec![error.with_hint()]);
        }
        if engine.is_alone() {
            // That was the only one.
            return self.answer_replacement(engine, client, Vec::new());
        }
        let nodes: Vec<u32> = self.control.members().collect();
        let order = Order::ReplaceServer { plugin: plugin.map(Box::new) };
        for &node in &nodes {
            engine.send_order(Destination::Node(node), order.clone());
        }
        let deadline = engine.now() + TIMEOUT;
        self.replacement = Some(Replacement { client, deadline, awaited: nodes, kept: Vec::new() });
    }

    /// A node has replaced its server, or kept it for this reason.
    pub(super) fn server_replaced(&mut self, engine: &Engine<'_>, node: u32, result: Result<(), String>) {
        if let (Some(replacement), Err(why)) = (&mut self.replacement, result) {
            replacement.kept.push(format!("{}: {why}", self.control.host(node)));
        }
        self.replacement_over_at(engine, &(node..node + 1));
    }

    /// Nothing more is awaited from these nodes.
    pub(super) fn replacement_over_at(&mut self, engine: &Engine<'_>, nodes: &Range<u32>) {
        let Some(replacement) = &mut self.replacement else { return };
        replacement.awaited.retain(|awaited| !nodes.contains(awaited));
        if replacement.awaited.is_empty() {
            self.end_replacement(engine);
        }
    }

    /// Answers the client of the replacement under way.
    pub(super) fn end_replacement(&mut self, engine: &Engine<'_>) {
        let Some(Replacement { client, awaited, mut kept, .. }) = self.replacement.take() else { return };
        kept.extend(awaited.iter().map(|&node| format!("{}: no answer", self.control.host(node))));
        self.answer_replacement(engine, client, kept);
    }

    fn answer_replacement(&mut self, engine: &Engine<'_>, client: ClientId, kept: Vec<String>) {
        let reply = if kept.is_empty() { Reply::Done } else { Reply::Refused(kept.join("; ")) };
        self.reply(engine, client, &reply);
    }
}

impl Engine<'_> {
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
}
