//! Enrolment: how hosts become nodes of a run that does not start their daemons.
//!
//! The head of a run listens, and a host that joins proves that it has the secret of the run, or its own. It says its name and
//! its slots and waits. When all hosts have enrolled, the head sends each the record that a daemon of another
//! [`Bootstrap`](hydrant_placement::Bootstrap) reads from its standard input. The daemon goes on as all daemons do. A host that
//! comes when the run has begun gets its record at once, if hosts may join.
//!
//! ```text
//! host → head   hello: magic, version, and the initiation of a link's handshake with the index as its node
//! head → host   verdict: a byte, version, and the response of the handshake
//! host → head   application: name, slots, program          (encrypted, and the proof of the secret)
//! head → host   decision: a record, or a refusal           (encrypted)
//! ```
//!
//! Versions are in clear, because hosts of different versions cannot understand anything else of each other. They are part of
//! the handshake too.

mod applicant;
mod door;
mod head;
pub(crate) mod hello;
mod late;

use std::ffi::OsString;
use std::io;

use hydrant_core::trace::SignalName;
use hydrant_noise::KeyExchange;
use hydrant_reactor::{Error, OpenFilesError};
use serde::{Deserialize, Serialize};

use crate::error::{InterfaceError, LinkError, SpecError};
use crate::link::{LinkIdentity, OverlayId};
use crate::version::VERSION;

pub use applicant::Applicant;
pub(crate) use door::Greeted;
pub use door::Secrets;
pub use head::{Enrolled, Enrolment, Notice, Terms};
pub(crate) use late::{Knock, LATE_HOSTS_MAX, LateHosts};

/// Node number of a host without an index.
const NO_INDEX: u32 = u32::MAX;
/// Overlay of the handshake. The run makes one for its links later.
const OVERLAY: OverlayId = OverlayId::of(*b"hydrant enrolls\n");
/// Most slots of a host.
pub const SLOTS_MAX: u32 = 4096;

/// What a host offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Application {
    /// Its name in the run.
    pub name: String,
    /// Its slots.
    pub slots: u32,
    /// Program to run there, with its arguments. Without one the run has a program.
    pub program: Option<Vec<OsString>>,
}

/// What becomes of an application.
#[derive(Serialize, Deserialize)]
enum Decision {
    /// The record of the daemon.
    Record(Vec<u8>),
    /// The head does not take the host.
    Refused(String),
}

/// Error of an enrolment, at the host or at the head.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// No run answers at the address.
    #[error("no run has answered at {address} within {} s (--bootstrap-timeout): {why}", *.millis as f64 / 1000.0)]
    Unreachable {
        /// The address.
        address: String,
        /// The time limit in milliseconds.
        millis: u64,
        /// Error of the last attempt.
        why: String,
    },
    /// The run at the address has all its hosts.
    #[error(
        "the run at {address} has all its hosts, and no other one has answered there within {} s (--bootstrap-timeout)",
        *.millis as f64 / 1000.0
    )]
    Full {
        /// The address.
        address: String,
        /// The time limit in milliseconds.
        millis: u64,
    },
    /// The run has another version.
    #[error(
        "hydrant here is {VERSION}, and that of the run at {address} is {theirs}: install the same version on all hosts"
    )]
    Version {
        /// The address.
        address: String,
        /// Its version.
        theirs: String,
    },
    /// The run has another secret.
    #[error("the run at {0} has another secret")]
    Secret(String),
    /// The run has a secret for each host.
    #[error("the run at {0} has a secret for each host, by its index: say --index")]
    NoIndex(String),
    /// The run has no secret for this index.
    #[error("the run at {address} has no secret for index {index}")]
    NoSecret {
        /// The address.
        address: String,
        /// The index.
        index: u32,
    },
    /// The answer was made without the secret.
    #[error("what answers at {0} does not have the secret")]
    Foreign(String),
    /// The head does not take this host.
    #[error("the run at {address} refuses this host: {why}")]
    Refused {
        /// The address.
        address: String,
        /// The reason.
        why: String,
    },
    /// The head has ended, or has all its hosts.
    #[error("the run at {address} has ended, or has all its hosts: {error}")]
    Ended {
        /// The address.
        address: String,
        /// Error of the connection.
        error: LinkError,
    },
    /// The hosts have not come in time.
    #[error("{joined} within {} s (--bootstrap-timeout), and the run waits for {wanted}", *.millis as f64 / 1000.0)]
    Missing {
        /// The hosts that have joined, in words.
        joined: String,
        /// What the run waits for, in words.
        wanted: String,
        /// The time limit in milliseconds.
        millis: u64,
    },
    /// A signal ended the process.
    #[error("ended by {0}")]
    Signal(SignalName),
    /// The record of the head is invalid.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// There is no interface to listen on.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The head cannot listen.
    #[error("cannot listen for hosts at {0}: {1}")]
    Listen(std::net::SocketAddr, io::Error),
    /// The limit of open files is too low.
    #[error(transparent)]
    OpenFiles(#[from] OpenFilesError),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] Error),
}

impl EnrolError {
    /// Exit code of the command: 128 and the number of the signal that ended it, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            EnrolError::Signal(SignalName(signal)) => {
                u8::try_from(*signal).map_or(1, |signal| signal.saturating_add(128))
            }
            _ => 1,
        }
    }
}

fn identity(index: Option<u32>) -> LinkIdentity {
    let child = index.unwrap_or(NO_INDEX);
    LinkIdentity { overlay: OVERLAY, parent: 0, child, exchange: KeyExchange::PskDhe }
}

#[cfg(test)]
mod tests;
