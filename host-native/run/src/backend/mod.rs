//! Choice of the PMI server: in this process, or a plugin in a sandbox. One can take the place of another.

mod run_backend;
#[cfg(feature = "sandbox")]
mod sandbox;
mod saved;
mod spare;

use std::path::PathBuf;

use hydrant_control::protocol::PluginFile;
use hydrant_core::server::Consumed;
use hydrant_core::{Backend, BackendError, Input, Limits, Output, Server, Time};
use hydrant_driver::{LateServer, MappedStorage, OwnedServer};

use crate::error::RunError;
use crate::messages::Warnings;
use crate::plan::{Plugin, Spare};
pub(crate) use run_backend::{RunBackend, SharedLive};
#[cfg(feature = "sandbox")]
use sandbox::Checked;
pub(crate) use saved::Saved;
pub(crate) use spare::Spared;

/// Finds a plugin: the named file, else that in `HYDRANT_WASM`, else `hydrant.wasm` in the folder of this program or in `../lib`
/// from there.
///
/// # Errors
/// There is none, or this build has no sandbox.
pub fn find_plugin(plugin: &Plugin) -> Result<PathBuf, RunError> {
    #[cfg(feature = "sandbox")]
    return sandbox::find(plugin);
    #[cfg(not(feature = "sandbox"))]
    match plugin {
        Plugin::Installed | Plugin::File(_) => Err(RunError::NoSandbox),
    }
}

/// Finds and reads a plugin. `spare` is what takes its place if it fails.
///
/// # Errors
/// As [`find_plugin`], or the file cannot be read.
pub fn read_plugin(plugin: &Plugin, spare: Option<Spare>) -> Result<PluginFile, RunError> {
    #[cfg(feature = "sandbox")]
    return sandbox::read(plugin, spare);
    #[cfg(not(feature = "sandbox"))]
    match (plugin, spare) {
        (Plugin::Installed | Plugin::File(_), _) => Err(RunError::NoSandbox),
    }
}

/// Builds servers of one kind.
pub enum BackendBuilder {
    /// Servers in this process.
    BuiltIn,
    /// Servers in a plugin.
    #[cfg(feature = "sandbox")]
    Sandbox(hydrant_wasm::Sandbox),
    /// Servers in a plugin, each with one in this process as its spare.
    #[cfg(feature = "sandbox")]
    Spared(hydrant_wasm::Sandbox, Warnings),
}

impl BackendBuilder {
    /// A builder of servers in this process, or in a plugin. Compiling a plugin may take seconds.
    ///
    /// # Errors
    /// The plugin is invalid, or this build has no sandbox.
    #[cfg_attr(
        not(feature = "sandbox"),
        expect(unused_variables, reason = "built-in servers have no spares")
    )]
    pub fn new(plugin: Option<&PluginFile>, warnings: &Warnings) -> Result<BackendBuilder, RunError> {
        match plugin {
            None => Ok(BackendBuilder::BuiltIn),
            #[cfg(feature = "sandbox")]
            Some(plugin) if plugin.spare => {
                Ok(BackendBuilder::Spared(sandbox::load(plugin)?, warnings.clone()))
            }
            #[cfg(feature = "sandbox")]
            Some(plugin) => Ok(BackendBuilder::Sandbox(sandbox::load(plugin)?)),
            #[cfg(not(feature = "sandbox"))]
            Some(_) => Err(RunError::NoSandbox),
        }
    }

    /// Warnings of the servers. Only those with spares have any.
    pub(crate) fn warnings(&self) -> Warnings {
        match self {
            BackendBuilder::BuiltIn => Warnings::default(),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(_) => Warnings::default(),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(_, warnings) => warnings.clone(),
        }
    }

    /// Storage for a server with these limits, which ranks may read if it is `shared`. A plugin has memory of its own and needs
    /// none.
    ///
    /// # Errors
    /// The memory is not there.
    pub fn storage(&self, limits: &Limits, shared: bool) -> Result<MappedStorage, RunError> {
        let storage = match self {
            BackendBuilder::BuiltIn if shared => MappedStorage::try_shared(limits),
            BackendBuilder::BuiltIn => MappedStorage::try_new(limits),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(_) | BackendBuilder::Spared(..) => MappedStorage::try_new(&Limits::NONE),
        };
        Ok(storage?)
    }

    /// Builds a server in storage from [`BackendBuilder::storage`] that has not been used.
    pub(crate) fn build<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Box<dyn Replaceable + 's>, RunError> {
        match self {
            BackendBuilder::BuiltIn => Ok(Box::new(Server::new_zeroed(limits, storage.lend(), seed)?)),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(sandbox) => Ok(Box::new(sandbox::server(sandbox, limits, seed)?)),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, warnings) => {
                Ok(Box::new(spared(sandbox, warnings, limits, seed)?))
            }
        }
    }

    /// Builds a server in storage from [`BackendBuilder::storage`] that has not been used.
    ///
    /// # Errors
    /// The limits are invalid, or the plugin fails.
    pub fn build_backend<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Box<dyn Backend + 's>, RunError> {
        Ok(self.build(limits, seed, storage)?)
    }

    /// Builds a server that a run may never need. One in this process is created with its first input.
    pub(crate) fn build_late(&self, limits: Limits, seed: u32) -> Result<Box<dyn Backend>, RunError> {
        match self {
            BackendBuilder::BuiltIn => Ok(Box::new(LateServer::new(limits, seed))),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(sandbox) => Ok(Box::new(sandbox::server(sandbox, limits, seed)?)),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, warnings) => {
                Ok(Box::new(spared(sandbox, warnings, limits, seed)?))
            }
        }
    }

    /// Builds a server that goes on with a state.
    fn restore(&self, saved: Saved) -> Result<Box<dyn Replaceable>, RunError> {
        match self {
            BackendBuilder::BuiltIn => {
                let server = OwnedServer::restore(&saved.state)?;
                #[cfg(feature = "sandbox")]
                if saved.is_plugins {
                    // What a plugin has stored is checked as what it says.
                    return Ok(Box::new(Checked::new(server, saved.validator)));
                }
                Ok(Box::new(server))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(sandbox) => Ok(Box::new(sandbox::restore(sandbox, saved)?)),
            // What a plugin has stored is no state for a spare, whose outputs are not checked.
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, _) if saved.is_plugins => {
                Ok(Box::new(sandbox::restore(sandbox, saved)?))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, warnings) => {
                let spare = OwnedServer::restore(&saved.state)?;
                let plugin = sandbox::restore(sandbox, saved)?;
                Ok(Box::new(Spared::new(plugin, spare, warnings)))
            }
        }
    }
}

/// Builds a server in a plugin, with one in this process as its spare.
#[cfg(feature = "sandbox")]
fn spared(
    sandbox: &hydrant_wasm::Sandbox,
    warnings: &Warnings,
    limits: Limits,
    seed: u32,
) -> Result<Spared, RunError> {
    let plugin = sandbox::server(sandbox, limits, seed)?;
    Ok(Spared::new(plugin, OwnedServer::new(limits, seed)?, warnings))
}

/// PMI server whose state another one can go on with.
pub(crate) trait Replaceable: Backend {
    /// Returns the state.
    ///
    /// # Errors
    /// The server has failed, or is on a board.
    fn save(&mut self) -> Result<Saved, RunError>;

    /// Ends the server, whose state another one goes on with.
    fn retire(self: Box<Self>);
}

/// In this process, in lent storage, which ranks may read.
impl Replaceable for Server<'_> {
    fn save(&mut self) -> Result<Saved, RunError> {
        Ok(Saved::of(self))
    }

    fn retire(self: Box<Self>) {
        // Ranks that have mapped its log ask from now on.
        Server::retire(*self);
    }
}

/// In this process, with the state of a server in this process.
impl Replaceable for OwnedServer {
    fn save(&mut self) -> Result<Saved, RunError> {
        Ok(Saved::of(self.server()))
    }

    fn retire(self: Box<Self>) {}
}

/// Stub in place of a failed server: it accepts all inputs and has no outputs.
pub(crate) struct FailedBackend(pub(crate) Limits);

impl Backend for FailedBackend {
    fn handle(&mut self, _: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let bytes = if let Input::Bytes { bytes, .. } = input { bytes.len() as u32 } else { 0 };
        Ok(Consumed { bytes, again: false })
    }

    fn poll<'b>(&mut self, _: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(None)
    }

    fn poll_at(&self) -> Option<Time> {
        None
    }

    fn limits(&self) -> &Limits {
        &self.0
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        None
    }
}

impl Replaceable for FailedBackend {
    fn save(&mut self) -> Result<Saved, RunError> {
        Err(RunError::ServerFailed)
    }

    fn retire(self: Box<Self>) {}
}
