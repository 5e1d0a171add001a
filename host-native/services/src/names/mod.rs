//! Name service: names that separate runs of one user share (`MPI_Publish_name`), connections between their jobs
//! (`PMI2_Job_Connect`), and a run's client for both.
//!
//! Both ends speak PMI-2 over a Unix socket. In the server each connection is a job of one rank, so the names of a
//! connection are withdrawn, and its job is disconnected, when it closes. A connection that a run opens for one of its
//! jobs has the job's id, so the server's own relation of connected jobs is that of the runs' jobs. It stores no values.
//! The names of one run on several hosts are kept in the head's process, without sockets.

mod client;
mod local;
mod request;
mod server;
mod service;
mod socket;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use hydrant_core::{Limit, Limits};
use hydrant_driver::{BackendError, InsufficientMemory};
use hydrant_reactor::OpenFilesError;

pub use client::NameClient;
pub use local::LocalNames;
pub use request::{Answer, Request};
pub use server::serve;
use service::NameService;

/// Options of a name service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Path of the socket. None for the user's default.
    pub path: Option<PathBuf>,
    /// Capacities for names and connections that replace the defaults.
    pub limit: Vec<(Limit, u32)>,
}

/// Default capacities.
const LIMITS: Limits = Limits { jobs: 1024, ranks: 1024, conns: 1024, names: 1024, ..Limits::NONE };

impl Options {
    /// Returns whether a name service has this limit.
    pub fn accepts(limit: Limit) -> bool {
        matches!(limit, Limit::Names | Limit::Conns)
    }

    /// Capacities of all tables.
    pub fn limits(&self) -> Limits {
        let mut limits = LIMITS;
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        per_connection(limits)
    }

    /// Returns the path of the socket, and whether its directory must be this user's alone.
    fn path(&self) -> (PathBuf, bool) {
        match &self.path {
            Some(path) => (path.clone(), false),
            None => default_path(std::env::var_os("XDG_RUNTIME_DIR"), rustix::process::geteuid().as_raw()),
        }
    }
}

/// Each connection is a job of one rank.
const fn per_connection(limits: Limits) -> Limits {
    Limits { jobs: limits.conns, ranks: limits.conns, ..limits }
}

/// Capacities of the name service inside a single run.
pub const LIMITS_OF_RUN: Limits = per_connection(LIMITS);

/// Returns the user's own path, and whether its directory is one that another user could have made.
fn default_path(runtime: Option<OsString>, user: u32) -> (PathBuf, bool) {
    match runtime.map(PathBuf::from).filter(|dir| dir.is_absolute()) {
        Some(dir) => (dir.join("hydrant-universe"), false),
        None => (PathBuf::from(format!("/tmp/hydrant-{user}/universe")), true),
    }
}

/// Error of a name server, or of a connection to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameServiceError {
    /// Path without a name server.
    #[error("no name server at {}: {why}", path.display())]
    NoServer {
        /// The socket.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// Name server of another user.
    #[error("the name server at {} belongs to user {user}", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// Its user id.
        user: u32,
    },
    /// Path of a running name server.
    #[error("a name server is already running at {}", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Directory in which another name server is starting.
    #[error("another name server is starting in {}", dir.display())]
    Busy {
        /// The socket's directory.
        dir: PathBuf,
    },
    /// Default directory that another user controls or can enter.
    #[error("the directory {} of the name server is unsafe: {why}", dir.display())]
    UnsafeDir {
        /// The socket's directory.
        dir: PathBuf,
        /// What makes it unsafe.
        why: String,
    },
    /// Path of a file that is not a socket.
    #[error("{} exists and is not a socket", path.display())]
    NoSocket {
        /// The file.
        path: PathBuf,
    },
    /// Socket that cannot be created.
    #[error("cannot listen at {}: {why}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// Hard limit of open files that is too low.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// Failed system call.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
    /// Server tables that do not fit into memory.
    #[error(transparent)]
    InsufficientMemory(#[from] InsufficientMemory),
    /// Failure of the server or of its connections.
    #[error(transparent)]
    Driver(#[from] hydrant_driver::Error),
}

impl From<BackendError> for NameServiceError {
    fn from(error: BackendError) -> NameServiceError {
        NameServiceError::Driver(error.into())
    }
}

impl NameServiceError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            NameServiceError::NoServer { path, .. } => {
                format!("start one with: hydrant serve --name-server {}", path.display())
            }
            NameServiceError::Taken { .. } => "use this server, or choose another path".to_owned(),
            NameServiceError::Busy { .. } => "try again".to_owned(),
            NameServiceError::UnsafeDir { .. } => {
                "remove it, or choose another path: hydrant serve --name-server PATH".to_owned()
            }
            NameServiceError::NoSocket { .. } => "remove the file, or choose another path".to_owned(),
            NameServiceError::OpenFiles(error) => format!("{} or lower --limit conns=N", error.hint()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_users_own() {
        assert_eq!(
            default_path(Some("/run/user/7".into()), 7),
            (PathBuf::from("/run/user/7/hydrant-universe"), false)
        );
        for unusable in [None, Some("".into()), Some("run".into())] {
            assert_eq!(default_path(unusable, 7), (PathBuf::from("/tmp/hydrant-7/universe"), true));
        }
    }

    #[test]
    fn limits_are_those_that_matter_here() {
        let limit = vec![(Limit::Conns, 5), (Limit::Names, 7)];
        let limits = Options { path: None, limit }.limits();
        assert_eq!((limits.jobs, limits.ranks, limits.conns, limits.names), (5, 5, 5, 7));
        assert!(!Options::accepts(Limit::Keys));
    }
}
