//! Server of a host: the built-in one, or a plugin.

use std::path::Path;
use std::time::Duration;

use hydrant_core::server::Consumed;
use hydrant_core::{Input, Limits, Output, Time};
use hydrant_driver::{BackendError, OwnedServer};

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

/// Server of a host.
#[derive(Debug)]
pub(crate) enum Backend {
    BuiltIn(Box<OwnedServer>),
    #[cfg(feature = "sandbox")]
    Sandbox(Box<hydrant_wasm::Plugin>),
}

impl Backend {
    /// Creates a server, in a plugin if there is one.
    pub(crate) fn new(limits: Limits, seed: u32, plugin: Option<PluginFile<'_>>) -> Result<Backend, Error> {
        match plugin {
            None => Ok(Backend::BuiltIn(Box::new(OwnedServer::new(limits, seed)?))),
            #[cfg(feature = "sandbox")]
            Some(PluginFile { file, cache, call }) => {
                let settings = hydrant_wasm::Settings {
                    deadline: call,
                    cache: cache.map(Path::to_owned),
                    ..Default::default()
                };
                let sandbox = hydrant_reactor::signals::with_all_blocked(|| {
                    hydrant_wasm::Sandbox::load(file, &settings)
                })?;
                Ok(Backend::Sandbox(Box::new(sandbox.server(limits, seed)?)))
            }
            #[cfg(not(feature = "sandbox"))]
            Some(plugin) => Err(Error::NoSandbox(plugin.file.to_owned())),
        }
    }

    /// Returns whether `poll` may return an output.
    pub(crate) fn has_output(&self) -> bool {
        match self {
            Backend::BuiltIn(built_in) => built_in.server().has_output(),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => plugin.has_output(),
        }
    }
}

/// The error of a server in this process.
fn faulted(error: BackendError) -> Error {
    Error::Fault(error.fault().expect("a server in this process fails by its own faults only"))
}

impl hydrant_core::Backend for Backend {
    type Error = Error;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Error> {
        match self {
            Backend::BuiltIn(built_in) => built_in.handle(now, input).map_err(faulted),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => Ok(plugin.handle(now, input)?),
        }
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, Error> {
        match self {
            Backend::BuiltIn(built_in) => built_in.poll(buf).map_err(faulted),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => Ok(plugin.poll(buf)?),
        }
    }

    fn poll_at(&self) -> Option<Time> {
        match self {
            Backend::BuiltIn(built_in) => built_in.poll_at(),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => plugin.poll_at(),
        }
    }

    fn limits(&self) -> &Limits {
        match self {
            Backend::BuiltIn(built_in) => built_in.limits(),
            #[cfg(feature = "sandbox")]
            Backend::Sandbox(plugin) => plugin.limits(),
        }
    }
}
