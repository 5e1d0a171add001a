//! Settings of a host: capacities, the plugin, and its place among several nodes.

use std::path::PathBuf;
use std::time::Duration;

use hydrant_core::limits::{MESSAGE_MAX, SPAWN_BYTES_MIN};
use hydrant_core::{Backend, Limits};
use hydrant_driver::OwnedServer;

use crate::error::Error;

/// Settings of a [`Host`](crate::Host).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Capacities of the server: numbers of entries, and bytes. Servers of several nodes have the same.
    pub limits: Limits,
    /// The plugin, or none for the built-in server.
    pub plugin: Option<Plugin>,
    /// Place among the servers of several nodes. None for a server that serves all ranks.
    pub node: Option<Node>,
}

impl Settings {
    /// A built-in server for one job of so many ranks, without spawns. A rank has 64 pairs and 64 KiB, and a second connection
    /// for PMIx. With [`Limits::for_ranks`] as [`limits`](Settings::limits) there is room for spawned jobs.
    pub fn for_ranks(ranks: u32) -> Settings {
        let limits = Limits {
            jobs: 1,
            ranks,
            conns: ranks.saturating_mul(2),
            keys: ranks.saturating_mul(64),
            kvs_bytes: ranks.saturating_mul(1 << 16).min(u32::MAX / 4 * 3),
            groups: 16,
            names: 16,
            // So few bytes are for files to remove and for text of PMIx clients only.
            spawns: 16,
            spawn_bytes: SPAWN_BYTES_MIN - 1,
            psets: 16,
            links: 0,
            commit_bytes: MESSAGE_MAX / 4,
        };
        Settings { limits, plugin: None, node: None }
    }

    /// Makes the server that of node `number` of `count`, from 0. The ranks of the limits are those of all nodes. Node 0 has a
    /// link to each of the others, which carry messages of up to 32 KiB; [`node`](Settings::node) changes the tree.
    #[must_use]
    pub fn on_node(mut self, number: u32, count: u32) -> Settings {
        self.limits.links = count;
        self.node = Some(Node { number, count, radix: count.saturating_sub(1).max(1) });
        self
    }
}

/// Place of a server among those of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Number of the node, from 0.
    pub number: u32,
    /// Number of nodes.
    pub count: u32,
    /// Maximum number of children of a node in the [tree](hydrant_core::peer::tree::Tree), whose root is node 0.
    pub radix: u32,
}

/// Plugin of a host: the server as `hydrant.wasm`, in a sandbox. Needs the feature `sandbox`.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// The file.
    pub file: PathBuf,
    /// Folder for compiled plugins. Without it the plugin is compiled at each start, in less than a second.
    pub cache: Option<PathBuf>,
    /// Maximum time of one call, after which the plugin has failed.
    pub call: Duration,
    /// Whether traps are found by handlers of SIGSEGV, SIGILL and SIGFPE, which the process then has. Without them calls take
    /// longer.
    pub signal_handlers: bool,
}

impl Plugin {
    /// Maximum time of one call unless the launcher sets another one.
    pub const CALL: Duration = Duration::from_secs(5);

    /// A plugin without a cache, whose calls take at most [`CALL`](Plugin::CALL), and with handlers of signals.
    pub fn new(file: impl Into<PathBuf>) -> Plugin {
        Plugin { file: file.into(), cache: None, call: Plugin::CALL, signal_handlers: true }
    }
}

/// Creates a server, in a plugin if there is one.
pub(crate) fn server(
    limits: Limits,
    seed: u32,
    plugin: Option<&Plugin>,
) -> Result<Box<dyn Backend + Send>, Error> {
    match plugin {
        None => Ok(Box::new(OwnedServer::new(limits, seed)?)),
        #[cfg(feature = "sandbox")]
        Some(Plugin { file, cache, call, signal_handlers }) => {
            let settings = hydrant_wasm::Settings {
                deadline: *call,
                cache: cache.clone(),
                signal_handlers: *signal_handlers,
            };
            let sandbox =
                hydrant_reactor::signals::with_all_blocked(|| hydrant_wasm::Sandbox::load(file, &settings));
            Ok(Box::new(sandbox?.server(limits, seed)?))
        }
        #[cfg(not(feature = "sandbox"))]
        Some(plugin) => Err(Error::NoSandbox(plugin.file.clone())),
    }
}
