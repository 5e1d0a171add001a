//! Errors of the servers.

use hydrant_core::{Fault, Limit};
use hydrant_driver::{BackendError, InsufficientMemory, ListenError};
use hydrant_placement::PlacementError;
use hydrant_reactor::OpenFilesError;

/// Error of a server that cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server needs more open files than the process may have.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// A port cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server's tables are larger than the memory.
    #[error(transparent)]
    InsufficientMemory(#[from] InsufficientMemory),
    /// The map of ranks to nodes is invalid.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A process set cannot be defined.
    #[error("cannot define process set {name:?}: {why}")]
    Pset {
        /// The set.
        name: String,
        /// The server's reason.
        why: Fault,
    },
    /// The server refused an input, or its connections failed.
    #[error(transparent)]
    Driver(#[from] hydrant_driver::Error),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Error {
        Error::Driver(error.into())
    }
}

impl From<Fault> for Error {
    fn from(why: Fault) -> Error {
        Error::Driver(why.into())
    }
}

impl Error {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Listen(error) => error.hint().map(str::to_owned),
            Error::OpenFiles(error) => Some(format!("{} or lower --limit conns=N", error.hint()?)),
            Error::Driver(error) => error.fault().and_then(full).map(raise),
            Error::Pset { why, .. } => full(*why).map(raise),
            _ => None,
        }
    }
}

fn full(why: Fault) -> Option<Limit> {
    match why {
        Fault::Full(limit, _) => Some(limit),
        _ => None,
    }
}

fn raise(limit: Limit) -> String {
    format!("raise it with --limit {}=N", limit.name())
}
