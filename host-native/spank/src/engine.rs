//! Server of a step: in this process, or in a plugin.

use std::path::Path;
use std::time::Duration;

use hydrant_core::{Backend, BackendError, Limits};
use hydrant_driver::OwnedServer;
use hydrant_wasm::{PluginError, Sandbox, Settings};

/// What makes the server of a step.
#[derive(Debug)]
pub(crate) enum Engine {
    /// In this process.
    BuiltIn,
    /// In a plugin.
    Sandbox(Sandbox),
}

impl Engine {
    /// Loads a plugin. Its traps are found without handlers of signals, which are Slurm's in this process.
    pub(crate) fn load(file: &Path, cache: Option<&Path>, call: Duration) -> Result<Engine, PluginError> {
        let settings = Settings { deadline: call, cache: cache.map(Path::to_owned), signal_handlers: false };
        Ok(Engine::Sandbox(Sandbox::load(file, &settings)?))
    }

    /// Makes a server.
    pub(crate) fn server(&self, limits: Limits, seed: u32) -> Result<Box<dyn Backend>, BackendError> {
        match self {
            Engine::BuiltIn => Ok(Box::new(OwnedServer::new(limits, seed)?)),
            Engine::Sandbox(sandbox) => Ok(Box::new(sandbox.server(limits, seed)?)),
        }
    }
}
