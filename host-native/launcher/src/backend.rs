//! Choice of the PMI server's backend: in this process, or a plugin in a sandbox.

use hydrant_control::protocol::PluginFile;
use hydrant_core::{Limits, Server};
use hydrant_driver::{AnyBackend, MappedStorage, NativeBackend};

use crate::error::RunError;
use crate::plan::Plugin;

/// Finds and reads a plugin.
pub(crate) fn read_plugin(plugin: &Plugin) -> Result<PluginFile, RunError> {
    #[cfg(feature = "sandbox")]
    return crate::sandbox::read(plugin);
    #[cfg(not(feature = "sandbox"))]
    match plugin {
        Plugin::Installed | Plugin::File(_) => Err(RunError::NoSandbox),
    }
}

/// Builds backends of one kind.
pub(crate) enum BackendBuilder {
    /// Servers in this process.
    BuiltIn,
    /// Servers in a plugin.
    #[cfg(feature = "sandbox")]
    Sandbox(hydrant_wasm::Sandbox),
}

impl BackendBuilder {
    /// A builder of servers in this process, or in a plugin. Compiling a plugin may take seconds.
    pub(crate) fn new(plugin: Option<&PluginFile>) -> Result<BackendBuilder, RunError> {
        match plugin {
            None => Ok(BackendBuilder::BuiltIn),
            #[cfg(feature = "sandbox")]
            Some(plugin) => Ok(BackendBuilder::Sandbox(crate::sandbox::load(plugin)?)),
            #[cfg(not(feature = "sandbox"))]
            Some(_) => Err(RunError::NoSandbox),
        }
    }

    /// Storage for a backend with these limits. A plugin has memory of its own and needs none.
    pub(crate) fn storage(&self, limits: &Limits, shared: bool) -> Result<MappedStorage, RunError> {
        let storage = match self {
            BackendBuilder::BuiltIn if shared => MappedStorage::try_shared(limits),
            BackendBuilder::BuiltIn => MappedStorage::try_new(limits),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(_) => MappedStorage::try_new(&Limits::NONE),
        };
        Ok(storage?)
    }

    /// Builds a backend in storage from [`BackendBuilder::storage`] that has not been used.
    pub(crate) fn build<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Box<AnyBackend<'s>>, RunError> {
        match self {
            BackendBuilder::BuiltIn => {
                Ok(Box::new(NativeBackend(Server::new_zeroed(limits, storage.lend(), seed)?)))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(sandbox) => {
                Ok(Box::new(crate::sandbox::Sandboxed::new(sandbox, limits, seed)?))
            }
        }
    }
}
