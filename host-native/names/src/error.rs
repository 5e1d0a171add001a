//! Errors of name servers and of connections to them.

use std::io;
use std::path::PathBuf;

use hydrant_driver::{BackendError, InsufficientMemory};
use hydrant_reactor::OpenFilesError;
use rustix::io::Errno;

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
            NameServiceError::NoServer { why, .. } | NameServiceError::Listen { why, .. }
                if why.raw_os_error() == Some(Errno::NAMETOOLONG.raw_os_error()) =>
            {
                "choose a shorter path: that of a socket has 107 bytes at most".to_owned()
            }
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
