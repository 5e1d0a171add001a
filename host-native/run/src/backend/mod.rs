//! Choice of the PMI server's core: in this process, or a plugin in a sandbox. One can take the place of another.

mod run_backend;
#[cfg(feature = "sandbox")]
mod sandbox;
mod saved;
mod spare;

use std::path::PathBuf;

use hydrant_control::protocol::PluginFile;
use hydrant_core::server::{Consumed, FenceReport, RankStatus};
use hydrant_core::{Backend, Input, JobId, Limits, Output, Rank, Server, Time};
use hydrant_driver::{AnyBackend, BackendError, LateServer, MappedStorage, NativeBackend, OwnedServer};
#[cfg(feature = "sandbox")]
use hydrant_wasm::PluginBackend;

use crate::error::RunError;
use crate::messages::Warnings;
use crate::plan::{Plugin, Spare};
pub(crate) use run_backend::RunBackend;
#[cfg(feature = "sandbox")]
use sandbox::Checked;
use saved::Saved;
#[cfg(feature = "sandbox")]
use spare::Primary;
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

/// Builds cores of one kind.
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

    /// Storage for a core with these limits, which ranks may read if it is `shared`. A plugin has memory of its own and needs none.
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

    /// As [`BackendBuilder::build_boxed`], not on the heap.
    pub(crate) fn build<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Core<'s>, RunError> {
        match self {
            BackendBuilder::BuiltIn => {
                Ok(Core::BuiltIn(NativeBackend(Server::new_zeroed(limits, storage.lend(), seed)?)))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(sandbox) => {
                Ok(Core::Sandboxed(Box::new(sandbox::server(sandbox, limits, seed)?)))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, warnings) => {
                let plugin = sandbox::server(sandbox, limits, seed)?;
                let spare = OwnedServer::new(limits, seed)?;
                Ok(Core::Spared(Box::new(Spared::new(plugin, spare, warnings))))
            }
        }
    }

    /// Builds a core in storage from [`BackendBuilder::storage`] that has not been used.
    ///
    /// # Errors
    /// The limits are invalid, or the plugin fails.
    pub fn build_boxed<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Box<AnyBackend<'s>>, RunError> {
        Ok(Box::new(self.build(limits, seed, storage)?))
    }

    /// Builds a server that a run may never need. One in this process is created with its first input.
    #[cfg_attr(not(feature = "sandbox"), expect(unused_variables, reason = "only plugins borrow memory"))]
    pub(crate) fn build_late<'s>(
        &self,
        limits: Limits,
        seed: u32,
        storage: &'s mut MappedStorage,
    ) -> Result<Box<AnyBackend<'s>>, RunError> {
        match self {
            BackendBuilder::BuiltIn => Ok(Box::new(LateServer::new(limits, seed))),
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(_) | BackendBuilder::Spared(..) => {
                Ok(Box::new(self.build(limits, seed, storage)?))
            }
        }
    }

    /// Builds a core that goes on with a state.
    fn restore<'s>(&self, saved: Saved) -> Result<Core<'s>, RunError> {
        match self {
            BackendBuilder::BuiltIn => {
                let server = OwnedServer::restore(&saved.state)?;
                #[cfg(feature = "sandbox")]
                if saved.is_plugins {
                    // What a plugin has stored is checked as what it says.
                    return Ok(Core::Checked(Box::new(Checked::new(server, saved.validator))));
                }
                Ok(Core::Restored(server))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Sandbox(sandbox) => {
                Ok(Core::Sandboxed(Box::new(sandbox::restore(sandbox, saved)?)))
            }
            // What a plugin has stored is no state for a spare, whose outputs are not checked.
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, _) if saved.is_plugins => {
                Ok(Core::Sandboxed(Box::new(sandbox::restore(sandbox, saved)?)))
            }
            #[cfg(feature = "sandbox")]
            BackendBuilder::Spared(sandbox, warnings) => {
                let spare = OwnedServer::restore(&saved.state)?;
                let plugin = sandbox::restore(sandbox, saved)?;
                Ok(Core::Spared(Box::new(Spared::new(plugin, spare, warnings))))
            }
        }
    }
}

/// Core of a PMI server.
pub(crate) enum Core<'s> {
    /// In this process, in lent storage, which ranks may read.
    BuiltIn(NativeBackend<'s>),
    /// In this process, with the state of a core in this process.
    Restored(OwnedServer),
    /// In this process, with the state of a plugin.
    #[cfg(feature = "sandbox")]
    Checked(Box<Checked>),
    /// In a plugin.
    #[cfg(feature = "sandbox")]
    Sandboxed(Box<PluginBackend>),
    /// In a plugin or on a board, with one in this process as its spare.
    Spared(Box<Spared>),
    /// Stub in place of a failed core: it accepts all inputs and has no outputs.
    Failed(Limits),
    /// A test's own.
    #[cfg(test)]
    Fake(Box<dyn Backend<Error = BackendError> + 's>),
}

impl<'s> Core<'s> {
    /// Puts a core of another kind in the place of this one, which goes on if that fails.
    pub(crate) fn replace(&mut self, builder: &BackendBuilder) -> Result<(), RunError> {
        let saved = match self {
            Core::BuiltIn(backend) => Saved::of(&backend.0),
            Core::Restored(server) => Saved::of(server.server()),
            #[cfg(feature = "sandbox")]
            Core::Checked(checked) => checked.save(),
            #[cfg(feature = "sandbox")]
            Core::Sandboxed(sandboxed) => Primary::save(&mut **sandboxed)?,
            Core::Spared(spared) => spared.save()?,
            Core::Failed(_) => return Err(RunError::CoreFailed),
            #[cfg(test)]
            Core::Fake(_) => return Err(RunError::CoreFailed),
        };
        let successor = builder.restore(saved)?;
        if let Core::BuiltIn(backend) = std::mem::replace(self, successor) {
            // Ranks that have mapped its log ask from now on.
            backend.0.retire();
        }
        Ok(())
    }

    fn backend(&self) -> Option<&dyn Backend<Error = BackendError>> {
        Some(match self {
            Core::BuiltIn(backend) => backend,
            Core::Restored(server) => server,
            #[cfg(feature = "sandbox")]
            Core::Checked(checked) => &**checked,
            #[cfg(feature = "sandbox")]
            Core::Sandboxed(sandboxed) => &**sandboxed,
            Core::Spared(spared) => &**spared,
            Core::Failed(_) => return None,
            #[cfg(test)]
            Core::Fake(fake) => &**fake,
        })
    }
}

impl Backend for Core<'_> {
    type Error = BackendError;

    #[inline]
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        match self {
            Core::BuiltIn(backend) => backend.handle(now, input),
            Core::Restored(server) => server.handle(now, input),
            #[cfg(feature = "sandbox")]
            Core::Checked(checked) => checked.handle(now, input),
            #[cfg(feature = "sandbox")]
            Core::Sandboxed(sandboxed) => sandboxed.handle(now, input),
            Core::Spared(spared) => spared.handle(now, input),
            Core::Failed(_) => {
                let bytes = if let Input::Bytes { bytes, .. } = input { bytes.len() as u32 } else { 0 };
                Ok(Consumed { bytes, again: false })
            }
            #[cfg(test)]
            Core::Fake(fake) => fake.handle(now, input),
        }
    }

    #[inline]
    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        match self {
            Core::BuiltIn(backend) => backend.poll(buf),
            Core::Restored(server) => server.poll(buf),
            #[cfg(feature = "sandbox")]
            Core::Checked(checked) => checked.poll(buf),
            #[cfg(feature = "sandbox")]
            Core::Sandboxed(sandboxed) => sandboxed.poll(buf),
            Core::Spared(spared) => spared.poll(buf),
            Core::Failed(_) => Ok(None),
            #[cfg(test)]
            Core::Fake(fake) => fake.poll(buf),
        }
    }

    fn poll_at(&self) -> Option<Time> {
        self.backend()?.poll_at()
    }

    fn limits(&self) -> &Limits {
        match self {
            Core::Failed(limits) => limits,
            core => core.backend().map_or(&Limits::NONE, Backend::limits),
        }
    }

    fn bytes_max(&self) -> usize {
        self.backend().map_or(usize::MAX, Backend::bytes_max)
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.backend()?.kvs_space(job)
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.backend()?.rank_status(job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        self.backend()?.fence_report(job)
    }
}
