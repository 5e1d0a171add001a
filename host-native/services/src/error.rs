//! Errors of the servers.

use hydrant_core::{Fault, Limit};
use hydrant_driver::{BackendError, InsufficientMemory, ListenError};
use hydrant_placement::PlacementError;
use hydrant_reactor::OpenFilesError;

use crate::names::NameServiceError;

/// Error of a server that cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name service failed.
    #[error(transparent)]
    Names(#[from] NameServiceError),
    /// The server needs more open files than the process may have.
    #[error("{conns} connections need {needed} open files, but the hard limit is {limit}")]
    OpenFiles {
        /// Connections at the same time.
        conns: u32,
        /// Descriptors that the server needs.
        needed: u64,
        /// The hard limit `RLIMIT_NOFILE`.
        limit: u64,
    },
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
    /// The backend failed.
    #[error(transparent)]
    Backend(Box<dyn std::error::Error + Send + Sync>),
    /// The server refused an input.
    #[error("cannot serve the job: {why}")]
    Fault {
        /// The server's reason.
        #[from]
        why: Fault,
    },
    /// A system call failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl From<BackendError> for Error {
    fn from(error: BackendError) -> Error {
        match error {
            BackendError::Fault(why) => why.into(),
            BackendError::Other(why) => Error::Backend(why),
        }
    }
}

impl From<hydrant_driver::Error> for Error {
    fn from(error: hydrant_driver::Error) -> Error {
        match error {
            hydrant_driver::Error::Backend(why) => why.into(),
            hydrant_driver::Error::System(why) => why.into(),
        }
    }
}

impl Error {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Names(error) => error.hint(),
            Error::OpenFiles { .. } => Some(
                "raise the limit (ulimit -Hn, or LimitNOFILE of a systemd service) or set --limit conns=N"
                    .to_owned(),
            ),
            Error::Fault { why } | Error::Pset { why, .. } => full(why).map(raise),
            _ => None,
        }
    }

    /// For `map_err`: too few open files for so many connections.
    pub(crate) fn open_files(conns: u32) -> impl Fn(OpenFilesError) -> Error {
        move |error| match error {
            OpenFilesError::HardLimit { needed, limit } => Error::OpenFiles { conns, needed, limit },
            OpenFilesError::System(error) => error.into(),
        }
    }
}

fn full(why: &Fault) -> Option<Limit> {
    match why {
        Fault::Full(limit, _) => Some(*limit),
        _ => None,
    }
}

fn raise(limit: Limit) -> String {
    format!("raise it with --limit {}=N", limit.name())
}
