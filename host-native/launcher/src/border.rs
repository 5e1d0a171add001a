//! Choice of the PMI server's backend: in this process, or a plugin in a sandbox.

use hydrant_control::protocol::PluginFile;
use hydrant_core::server::Consumed;
use hydrant_core::{Backend, Fault, Input, JobId, Limits, Output, Server, Time};
pub(crate) use hydrant_driver::{AnyBackend, BackendError};

use crate::error::RunError;
use crate::plan::Plugin;
use hydrant_driver::MappedStorage;

/// The core itself, in this process.
#[derive(Debug)]
pub(crate) struct Native<'s>(pub(crate) Server<'s>);

impl Backend for Native<'_> {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(self.0.handle(now, input)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(self.0.poll(buf).map_err(Fault::from)?)
    }

    fn poll_at(&self) -> Option<Time> {
        self.0.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.0.kvs_space(job)
    }
}

/// Finds and reads a plugin.
pub(crate) fn read_plugin(plugin: &Plugin) -> Result<PluginFile, RunError> {
    #[cfg(feature = "sandbox")]
    return crate::sandbox::read(plugin);
    #[cfg(not(feature = "sandbox"))]
    match plugin {
        Plugin::Installed | Plugin::File(_) => Err(RunError::NoSandbox),
    }
}

/// What makes cores.
pub(crate) enum Maker {
    /// It makes servers in this process.
    BuiltIn,
    /// Servers in a plugin.
    #[cfg(feature = "sandbox")]
    Sandbox(hydrant_wasm::Sandbox),
}

impl Maker {
    /// Of what is built in, or of this plugin, which may take a while.
    pub(crate) fn new(plugin: Option<&PluginFile>) -> Result<Maker, RunError> {
        match plugin {
            None => Ok(Maker::BuiltIn),
            #[cfg(feature = "sandbox")]
            Some(plugin) => Ok(Maker::Sandbox(crate::sandbox::load(plugin)?)),
            #[cfg(not(feature = "sandbox"))]
            Some(_) => Err(RunError::NoSandbox),
        }
    }

    /// Memory for a core of these limits. A sandbox has memory of its own.
    pub(crate) fn slabs(&self, limits: &Limits, shared: bool) -> Result<MappedStorage, RunError> {
        let slabs = match self {
            Maker::BuiltIn if shared => MappedStorage::try_shared(limits),
            Maker::BuiltIn => MappedStorage::try_new(limits),
            #[cfg(feature = "sandbox")]
            Maker::Sandbox(_) => MappedStorage::try_new(&Limits::NONE),
        };
        Ok(slabs?)
    }

    /// Makes a core, in slabs that were made for it and that nobody has used.
    pub(crate) fn core<'s>(
        &self,
        limits: Limits,
        seed: u32,
        slabs: &'s mut MappedStorage,
    ) -> Result<Box<AnyBackend<'s>>, RunError> {
        match self {
            Maker::BuiltIn => Ok(Box::new(Native(Server::new_zeroed(limits, slabs.lend(), seed)?))),
            #[cfg(feature = "sandbox")]
            Maker::Sandbox(sandbox) => Ok(Box::new(crate::sandbox::Sandboxed::new(sandbox, limits, seed)?)),
        }
    }
}
