//! Server of a host: the built-in one, or a plugin.

use std::path::Path;
use std::time::Duration;

use hydrant_core::{Backend, Limits};
use hydrant_driver::OwnedServer;

use crate::error::Error;

/// Plugin of a host.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "sandbox"),
    allow(dead_code, reason = "a library without the sandbox refuses plugins")
)]
pub(crate) struct PluginFile<'a> {
    pub(crate) file: &'a Path,
    pub(crate) cache: Option<&'a Path>,
    /// Maximum time of one call.
    pub(crate) call: Duration,
}

/// Creates a server, in a plugin if there is one.
pub(crate) fn new(
    limits: Limits,
    seed: u32,
    plugin: Option<PluginFile<'_>>,
) -> Result<Box<dyn Backend>, Error> {
    match plugin {
        None => Ok(Box::new(OwnedServer::new(limits, seed)?)),
        #[cfg(feature = "sandbox")]
        Some(PluginFile { file, cache, call }) => {
            let cache = cache.map(Path::to_owned);
            let settings = hydrant_wasm::Settings { deadline: call, cache, ..Default::default() };
            let sandbox =
                hydrant_reactor::signals::with_all_blocked(|| hydrant_wasm::Sandbox::load(file, &settings));
            Ok(Box::new(sandbox?.server(limits, seed)?))
        }
        #[cfg(not(feature = "sandbox"))]
        Some(plugin) => Err(Error::NoSandbox(plugin.file.to_owned())),
    }
}
