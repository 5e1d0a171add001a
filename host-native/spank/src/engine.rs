//! Server of a step: in this process, or in a plugin.

use std::path::Path;
use std::time::Duration;

use hydrant_core::server::Consumed;
use hydrant_core::{Backend, Input, Limits, Output, Server, Time};
use hydrant_driver::{AnyBackend, BackendError, MappedStorage, NativeBackend};
use hydrant_wasm::{Plugin, PluginError, Sandbox, Settings};

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
            Engine::Sandbox(sandbox) => {
                Ok(Box::new(Sandboxed(sandbox.server(limits, seed).map_err(backend_error)?)))
            }
        }
    }
}

/// Server in a plugin.
#[derive(Debug)]
struct Sandboxed(Plugin);

fn backend_error(error: hydrant_wasm::Error) -> BackendError {
    match error {
        hydrant_wasm::Error::Fault(why) => why.into(),
        hydrant_wasm::Error::Plugin(why) => BackendError::Other(Box::new(why)),
    }
}

impl Backend for Sandboxed {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        self.0.handle(now, input).map_err(backend_error)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        self.0.poll(buf).map_err(backend_error)
    }

    fn poll_at(&self) -> Option<Time> {
        self.0.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }
}
