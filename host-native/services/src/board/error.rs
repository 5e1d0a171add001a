//! Errors of a board.

use std::io;
use std::net::SocketAddr;

use hydrant_core::manage::{self, Error};
use hydrant_core::{Fault, Limit};
use hydrant_record::WriteError;

use super::client::{PATIENCE, RECORDING};
use super::heartbeat::Silence;

/// Error of a board or of the connection to it.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The connection to the management port failed.
    #[error("no board answers at {target}: {why}; --target names its management port, {port} unless it was told otherwise", port = manage::PORT)]
    Unreachable {
        /// As the user named it.
        target: String,
        /// Error of the system.
        why: io::Error,
    },
    /// The connection was lost or carries an invalid message.
    #[error("the board at {addr} is lost: {why}")]
    Lost {
        /// Its management port.
        addr: SocketAddr,
        /// Reason.
        why: String,
    },
    /// The board refused a request.
    #[error("the board at {addr} refuses {what}: {why}{}", advice(what, why))]
    Refused {
        /// Its management port.
        addr: SocketAddr,
        /// Description of the request.
        what: &'static str,
        /// Reason of the board.
        why: Error,
    },
    /// The board's recording cannot be written.
    #[error(transparent)]
    Recording(#[from] WriteError),
    /// It does not answer heartbeats.
    #[error("the board {name} at {addr} {silence}")]
    Frozen {
        /// Its name.
        name: String,
        /// Its management port.
        addr: SocketAddr,
        /// Time without an answer.
        silence: Silence,
    },
    /// It does not answer a request.
    #[error("the board at {addr} has not answered for {} s: {what}", PATIENCE.as_secs())]
    Silent {
        /// Its management port.
        addr: SocketAddr,
        /// Description of the request.
        what: &'static str,
    },
}

/// Returns advice for the user about a refusal.
fn advice(what: &str, why: &Error) -> &'static str {
    match why {
        Error::Order if what == RECORDING => {
            "; a board is recorded from before its first job on: start it again"
        }
        Error::NoRecording => "; what 'hydrant run' serves itself can be recorded",
        Error::Busy => "; wait until that is over, or use another board",
        Error::Core(Fault::Full(Limit::Jobs, _)) => {
            "; it serves other jobs: wait until one is over, or use another board"
        }
        Error::Core(Fault::Full(..)) => "; a board's tables are as large as it was built or started with",
        _ => "",
    }
}
