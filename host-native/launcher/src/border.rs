//! The core that serves a run: what the event loops drive, whatever stands behind it.

use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use hydrant_core::server::Consumed;
use hydrant_core::{Backend, Fault, Input, JobId, Limits, Output, Server, Time};
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::manage::{Board, BoardError};
use crate::plan::Plugin;
use crate::storage::OwnedStorage;

/// Why the core did not take an input.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The launcher's mistake, or a limit.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The board that serves instead does not.
    #[error(transparent)]
    Board(#[from] Box<BoardError>),
    /// The plugin's, where the core runs in a sandbox.
    #[cfg(feature = "sandbox")]
    #[error(transparent)]
    Plugin(#[from] hydrant_wasm::PluginError),
}

impl From<BoardError> for BackendError {
    fn from(error: BoardError) -> BackendError {
        Box::new(error).into()
    }
}

impl BackendError {
    /// The core's own error, where it is one.
    pub(crate) fn fault(&self) -> Option<Fault> {
        match self {
            BackendError::Fault(why) => Some(*why),
            BackendError::Board(_) => None,
            #[cfg(feature = "sandbox")]
            BackendError::Plugin(_) => None,
        }
    }
}

#[cfg(feature = "sandbox")]
impl From<hydrant_wasm::Error> for BackendError {
    fn from(error: hydrant_wasm::Error) -> BackendError {
        match error {
            hydrant_wasm::Error::Fault(why) => why.into(),
            hydrant_wasm::Error::Plugin(why) => why.into(),
        }
    }
}

/// Room for whatever a core says.
pub(crate) fn output_buffer(limits: &Limits) -> Box<[u8]> {
    vec![0; limits.output_room()].into()
}

/// Any core.
pub(crate) type AnyBackend<'s> = dyn Backend<Error = BackendError> + 's;

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

/// What serves a run.
pub(crate) enum Service<'s> {
    /// A core that the event loop hands its clients' bytes to.
    Core(Box<AnyBackend<'s>>),
    /// A board, whose clients are its own.
    Board(Box<Board>),
}

impl<'s> Service<'s> {
    /// The board, where it is one.
    pub(crate) fn board(&mut self) -> Option<&mut Board> {
        match self {
            Service::Core(_) => None,
            Service::Board(board) => Some(board),
        }
    }
}

impl<'s> Deref for Service<'s> {
    type Target = AnyBackend<'s>;

    fn deref(&self) -> &AnyBackend<'s> {
        match self {
            Service::Core(core) => &**core,
            Service::Board(board) => &**board,
        }
    }
}

impl<'s> DerefMut for Service<'s> {
    fn deref_mut(&mut self) -> &mut AnyBackend<'s> {
        match self {
            Service::Core(core) => &mut **core,
            Service::Board(board) => &mut **board,
        }
    }
}

/// A plugin's file as it was read, here or on another machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PluginFile {
    /// What errors call it.
    pub(crate) file: OsString,
    /// What it holds.
    pub(crate) code: Vec<u8>,
    /// How long one call may take.
    pub(crate) deadline: Duration,
}

impl PluginFile {
    /// Finds and reads a plugin.
    pub(crate) fn read(plugin: &Plugin) -> Result<PluginFile, RunError> {
        #[cfg(feature = "sandbox")]
        return crate::sandbox::read(plugin);
        #[cfg(not(feature = "sandbox"))]
        match plugin {
            Plugin::Installed | Plugin::File(_) => Err(RunError::NoSandbox),
        }
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
    pub(crate) fn slabs(&self, limits: &Limits, shared: bool) -> Result<OwnedStorage, RunError> {
        let slabs = match self {
            Maker::BuiltIn if shared => OwnedStorage::try_shared(limits),
            Maker::BuiltIn => OwnedStorage::try_new(limits),
            #[cfg(feature = "sandbox")]
            Maker::Sandbox(_) => OwnedStorage::try_new(&Limits::NONE),
        };
        Ok(slabs?)
    }

    /// Makes a core, in slabs that were made for it and that nobody has used.
    pub(crate) fn core<'s>(
        &self,
        limits: Limits,
        seed: u32,
        slabs: &'s mut OwnedStorage,
    ) -> Result<Box<AnyBackend<'s>>, RunError> {
        match self {
            Maker::BuiltIn => Ok(Box::new(Native(Server::new_zeroed(limits, slabs.lend(), seed)?))),
            #[cfg(feature = "sandbox")]
            Maker::Sandbox(sandbox) => Ok(Box::new(crate::sandbox::Sandboxed::new(sandbox, limits, seed)?)),
        }
    }
}
