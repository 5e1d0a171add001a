//! Errors of clients and servers of the status socket.

use std::io;

/// Error of a client or of the server's start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The list of sockets cannot be read.
    #[error("cannot list the sockets of runs: {0}")]
    List(#[source] io::Error),
    /// No run of this user has this process id, or one that begins so.
    #[error("no running job {0}")]
    NoSuchRun(String),
    /// Several process ids begin so.
    #[error("{job} could be each of {}", join(candidates))]
    Ambiguous {
        /// Text of the user.
        job: String,
        /// The process ids.
        candidates: Vec<u32>,
    },
    /// The run has ended, or another user listens at its name.
    #[error("cannot connect to job {pid}: {why}")]
    Connect {
        /// Process id of the run.
        pid: u32,
        /// Reason given by the operating system.
        why: io::Error,
    },
    /// No reply arrived in time.
    #[error("job {pid} does not answer")]
    Timeout {
        /// Process id of the run.
        pid: u32,
    },
    /// The connection closed before the reply.
    #[error("job {pid} has ended")]
    Closed {
        /// Process id of the run.
        pid: u32,
    },
    /// The reply is not one of this protocol.
    #[error("job {pid} sent an unknown reply")]
    Reply {
        /// Process id of the run.
        pid: u32,
    },
    /// The run refused the request.
    #[error("job {pid} refused: {why}")]
    Refused {
        /// Process id of the run.
        pid: u32,
        /// Its reason.
        why: String,
    },
    /// The server's socket cannot be opened.
    #[error("cannot listen for status requests: {0}")]
    Listen(#[source] io::Error),
    /// The poller failed.
    #[error(transparent)]
    System(#[from] hydrant_reactor::Error),
}

impl Error {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NoSuchRun(_) | Error::Ambiguous { .. } => Some("'hydrant ps' lists running jobs"),
            Error::Timeout { .. } => Some("it may be stopped: kill -CONT PID lets it go on"),
            _ => None,
        }
    }
}

fn join(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
