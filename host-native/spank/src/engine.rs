//! Server of a step: in this process, or in a plugin.

use std::path::Path;
use std::time::Duration;

use hydrant_core::{Limits, Server};
use hydrant_driver::{AnyBackend, BackendError, MappedStorage, NativeBackend};
use hydrant_wasm::{PluginBackend, PluginError, Sandbox, Settings};

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

    /// Storage for a server with these limits. A plugin has memory of its own.
    pub(crate) fn storage(
        &self,
        limits: &Limits,
    ) -> Result<MappedStorage, hydrant_driver::InsufficientMemory> {
        MappedStorage::try_new(match self {
            Engine::BuiltIn => limits,
            Engine::Sandbox(_) => &Limits::NONE,
        })
    }

    /// Makes a server in storage that has not been used.
    pub(crate) fn server<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Box<AnyBackend<'s>>, BackendError> {
        match self {
            Engine::BuiltIn => Ok(Box::new(NativeBackend(Server::new_zeroed(limits, storage.lend(), seed)?))),
            Engine::Sandbox(sandbox) => Ok(Box::new(PluginBackend(sandbox.server(limits, seed)?))),
        }
    }
}
