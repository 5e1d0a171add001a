//! Errors of the client.

use std::error;
use std::io;
use std::os::fd::RawFd;

use hydrant_wire::client;
use hydrant_wire::{EncodeError, Op};
use rustix::io::Errno;

/// Why a connection could not be opened, or why a request failed.
///
/// After [`Error::Refused`], [`Error::RequestTooLong`] and [`Error::Protocol`] of a request that could not be encoded
/// the connection stays usable. Every other error of a request ends the connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An environment variable has a value of the wrong form.
    #[error("invalid environment variable {name}='{value}': not {expected}")]
    InvalidVariable {
        /// Name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The expected form, with its article: "a number".
        expected: &'static str,
    },
    /// An environment variable that another one requires is missing.
    #[error("environment variable {name} is not set; {required_by} requires it")]
    MissingVariable {
        /// Name of the missing variable.
        name: &'static str,
        /// The variable that is set.
        required_by: &'static str,
    },
    /// `PMI_FD` names a descriptor that is not open.
    #[error(
        "PMI_FD={0} is not an open descriptor: a program between the process manager and this one closed it"
    )]
    NotOpen(RawFd),
    /// `PMI_FD` names a descriptor that is not a stream socket.
    #[error(
        "PMI_FD={0} is not a stream socket: a program between the process manager and this one replaced it"
    )]
    NotSocket(RawFd),
    /// The connection to the server could not be established.
    #[error("cannot connect to {variable}={address}: {error}")]
    Connect {
        /// The variable that contains the address.
        variable: &'static str,
        /// The address.
        address: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The socket failed.
    #[error("the connection to the PMI server failed: {0}")]
    Io(#[from] Errno),
    /// A [`Transport`](crate::Transport) that is not a socket failed.
    #[error("the connection to the PMI server failed: {0}")]
    Transport(#[source] Box<dyn error::Error + Send + Sync>),
    /// The server closed the connection, or this process did.
    #[error("the PMI server closed the connection")]
    Closed,
    /// The encoded request exceeds [`MESSAGE_MAX`](hydrant_wire::limits::MESSAGE_MAX).
    #[error("the request is longer than the maximum PMI message (64 KiB)")]
    RequestTooLong,
    /// The request cannot be encoded or is out of order, or the server violated the protocol.
    #[error(transparent)]
    Protocol(client::Error),
    /// The reply does not contain the result of the command.
    #[error("the PMI server sent an unexpected reply to {0:?}")]
    UnexpectedReply(Op),
    /// The server refused the request.
    #[error("the PMI server refused {op:?} with rc {rc}: {text}")]
    Refused {
        /// The refused command.
        op: Op,
        /// Return code of the reply.
        rc: i32,
        /// Error message of the reply; may be empty.
        text: String,
    },
    /// A thread panicked while it held the connection.
    #[error("a thread panicked while it used the connection to the PMI server")]
    Poisoned,
}

impl From<client::Error> for Error {
    fn from(error: client::Error) -> Error {
        match error {
            client::Error::Encode(EncodeError::DoesNotFit) => Error::RequestTooLong,
            other => Error::Protocol(other),
        }
    }
}
