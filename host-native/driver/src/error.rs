//! Errors of backends and of the driver.

use std::error::Error as StdError;
use std::io;
use std::net::SocketAddr;

use hydrant_core::Fault;

/// Why a backend did not accept an input, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Usage error by the host, or a limit.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// Failure of what runs the server, for example a sandbox.
    #[error(transparent)]
    Other(Box<dyn StdError + Send + Sync>),
}

impl BackendError {
    /// The server's own error, if it is one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            BackendError::Fault(why) => Some(*why),
            BackendError::Other(_) => None,
        }
    }
}

/// Why a driver cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl From<Fault> for Error {
    fn from(why: Fault) -> Error {
        Error::Backend(why.into())
    }
}

/// A port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {addr}: {why}")]
pub struct ListenError {
    /// The address.
    pub addr: SocketAddr,
    /// The error of the system.
    pub why: io::Error,
}
