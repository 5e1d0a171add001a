//! Errors of daemons, links and interfaces.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use hydrant_reactor::{Error, OpenFilesError};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::version::VERSION;

/// Maximum size of a message in bytes. It bounds the memory for an incomplete message.
pub const MESSAGE_MAX: usize = 64 << 20;

/// Error of a node's links as a whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverlayError {
    /// There is no interface to listen on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The node cannot listen at an address.
    #[error("cannot listen at {0}: {1}")]
    Listen(IpAddr, io::Error),
    /// The parent cannot be reached.
    #[error(transparent)]
    Connect(#[from] Box<ConnectError>),
    /// A message cannot be sent.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The limit of open files is too low.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Error),
}

impl OverlayError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            OverlayError::OpenFiles(error) => error.hint(),
            _ => None,
        }
    }
}

/// The network interface to listen on is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InterfaceError {
    /// No interface has the name or address. The second field lists the names of all interfaces.
    #[error("this machine has no network interface {0:?}; there are {there}", there = .1.join(", "))]
    Unknown(String, Vec<String>),
    /// The interface has no address that another machine can connect to.
    #[error("the network interface {0:?} has no IP address")]
    NoAddress(String),
    /// The system cannot list the interfaces.
    #[error("cannot list the network interfaces: {0}")]
    System(#[from] io::Error),
}

/// A daemon cannot reach its parent at any address.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach host {host} (node {node}), the parent of this daemon, at {addr}: {error}")]
pub struct ConnectError {
    /// The parent's host.
    pub host: String,
    /// The parent.
    pub node: u32,
    /// The last address that was tried.
    pub addr: SocketAddr,
    /// The error at that address.
    pub error: AttemptError,
}

/// Error of connecting to one address of the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttemptError {
    /// A system call failed.
    #[error("{0}")]
    System(Errno),
    /// No response within the time limit.
    #[error("no response")]
    Timeout,
    /// The connection was closed before the response.
    #[error("connection closed")]
    Closed,
    /// The response does not belong to this job.
    #[error("the response is not from this job")]
    Foreign,
}

/// Error that makes a link unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The connection was closed. Usually the process at the other end has ended.
    #[error("its connection was closed")]
    Closed,
    /// A system call failed.
    #[error("its connection failed: {0}")]
    Io(#[from] Errno),
    /// Nothing was received for that many milliseconds.
    #[error("no message for {} s", *.0 as f64 / 1000.0)]
    Silent(u64),
    /// A frame was not made by the other end, or not for this position.
    #[error("its messages cannot be authenticated")]
    Forged,
    /// A message is longer than [`MESSAGE_MAX`](crate::MESSAGE_MAX).
    #[error("it sent a message of more than {MESSAGE_MAX} bytes")]
    TooLong,
    /// The other end has sent more of streams than it has credit for.
    #[error("it sent more output than it has credit for")]
    NoCredit,
    /// An authentic message is invalid, or a message to be sent would be.
    #[error("it sent an invalid message")]
    Malformed,
}

/// Failure of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("host {host} (node {node}): {cause}")]
pub struct DaemonFailure {
    /// The node.
    pub node: u32,
    /// Its host.
    pub host: String,
    /// The cause.
    pub cause: FailureCause,
}

impl DaemonFailure {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match &self.cause {
            FailureCause::BootstrapExited { command, .. } if Path::new(command).ends_with("ssh") => {
                Some(format!(
                    "try: ssh -o BatchMode=yes {} true. If that works, install hydrant at the same path there, or name its path \
                 with --remote-hydrant",
                    self.host
                ))
            }
            _ => None,
        }
    }
}

/// Cause of a daemon's failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FailureCause {
    /// The bootstrap command cannot be started.
    #[error("its daemon cannot be started: {0}")]
    NotStarted(String),
    /// The bootstrap command ended before the daemon had joined.
    #[error("{command} {status} before the daemon had joined{}", indent(.output))]
    BootstrapExited {
        /// The command.
        command: String,
        /// Its exit status in words.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// The bootstrap command ended before the daemon had joined, for a reason that may pass, and is started again.
    #[error("{command} {status}, and is started again until {} s have passed (--bootstrap-timeout){}", *.millis as f64 / 1000.0, indent(.output))]
    Retrying {
        /// The command.
        command: String,
        /// Its exit status in words.
        status: String,
        /// The time limit in milliseconds.
        millis: u64,
        /// The last lines of its output.
        output: String,
    },
    /// The daemon has not connected in time.
    #[error("its daemon has not joined within {} s (--bootstrap-timeout){}", *.millis as f64 / 1000.0, indent(.output))]
    JoinTimeout {
        /// The time limit in milliseconds.
        millis: u64,
        /// The last lines of the bootstrap command's output.
        output: String,
    },
    /// The host has asked to join, and has gone.
    #[error("it has gone before it could join")]
    Gone,
    /// The command that had started all daemons ended.
    #[error("its daemon is lost: {command} {status}{}", indent(.output))]
    StepEnded {
        /// The command.
        command: String,
        /// Its exit status in words.
        status: String,
        /// The last lines of its output.
        output: String,
    },
    /// The link to a daemon that had joined failed.
    #[error("its daemon is lost: {error}{}", indent(.output))]
    LinkLost {
        /// The error of the link.
        error: String,
        /// The last lines of the bootstrap command's output.
        output: String,
    },
}

/// Output of a command, indented below a message.
fn indent(output: &str) -> String {
    output.lines().map(|line| format!("\n    {line}")).collect()
}

/// The link to the parent failed.
#[derive(Debug, thiserror::Error)]
#[error("host {host} (node {node}), the parent of this daemon, is lost: {error}")]
pub struct LifelineLost {
    /// The parent.
    pub node: u32,
    /// Its host.
    pub host: String,
    /// The error of the link.
    pub error: LinkError,
}

/// A daemon's specification cannot be read from its standard input.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// Standard input is empty or holds something else.
    #[error("is started by hydrant itself, with a specification on standard input; there is none")]
    Missing,
    /// The launcher has another version.
    #[error(
        "hydrant here is {VERSION}, and the launcher's is {0}: install the same version on all hosts, or name it with --remote-hydrant"
    )]
    Version(String),
    /// The specification is invalid.
    #[error("the launcher's specification is invalid")]
    Malformed,
    /// The specification is for daemons of other hosts.
    #[error("this host, {0}, is not among those that the launcher has started daemons on")]
    NoPlace(String),
    /// Standard input cannot be read.
    #[error("cannot read standard input: {0}")]
    Io(#[from] Errno),
}
