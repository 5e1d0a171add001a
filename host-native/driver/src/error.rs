//! Errors of the driver.

use std::io;
use std::net::SocketAddr;

use hydrant_core::{BackendError, Fault};

/// Error of a driver.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl Error {
    /// Returns the server's own error, if it is one.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Error::Backend(why) => why.fault(),
            Error::System(_) => None,
        }
    }
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

impl ListenError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.why.kind() {
            io::ErrorKind::AddrInUse => "a process listens at this port already; port 0 selects a free one",
            io::ErrorKind::AddrNotAvailable => "give an address of this machine, or 127.0.0.1",
            io::ErrorKind::PermissionDenied => "give a port from 1024 on; port 0 selects a free one",
            _ => return None,
        })
    }
}
