//! Trait of server backends that a host can drive, and their error.

use alloc::boxed::Box;
use core::error::Error;
use core::fmt;

use super::Server;
use super::io::{Consumed, Input, Output};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::time::Time;

/// PMI server backend: a [`Server`] in this process, one elsewhere, or a wrapper that adds something to another backend.
///
/// All methods are required, so a wrapper that forgets one does not compile. What can be asked of a server is not part of the
/// trait: [`inspect`](Backend::inspect) returns the server itself.
pub trait Backend {
    /// Applies one input, as [`Server::handle`] does.
    ///
    /// # Errors
    /// [`Fault`] or a failure of the backend.
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError>;

    /// Returns the next output, as [`Server::poll`] does.
    ///
    /// # Errors
    /// A short buffer, or a failure of the backend.
    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError>;

    /// Returns when [`Input::Timeout`] is due.
    fn poll_at(&self) -> Option<Time>;

    /// Returns the limits of the server.
    fn limits(&self) -> &Limits;

    /// Returns the maximum length of a client's bytes in an input, `usize::MAX` if there is none. A host reads no more, and
    /// the buffer is [full](Input::Bytes::full) then.
    fn bytes_max(&self) -> usize;

    /// Returns a server in this process that has taken all inputs, or `None` if there is none. Hosts read from it what they
    /// show: what ranks wait for, what fences have learned, the numbers of key-value spaces.
    fn inspect(&mut self) -> Option<&Server<'_>>;
}

/// Error of a backend.
#[derive(Debug)]
pub enum BackendError {
    /// Usage error by the host, or a limit.
    Fault(Fault),
    /// Failure of the backend's environment, for example of a sandbox.
    Other(Box<dyn Error + Send + Sync>),
}

impl BackendError {
    /// Returns the server's own error, if it is one.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            BackendError::Fault(why) => Some(*why),
            BackendError::Other(_) => None,
        }
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackendError::Fault(why) => write!(f, "cannot serve the job: {why}"),
            BackendError::Other(why) => why.fmt(f),
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BackendError::Fault(why) => Some(why),
            BackendError::Other(why) => why.source(),
        }
    }
}

impl From<Fault> for BackendError {
    fn from(why: Fault) -> BackendError {
        BackendError::Fault(why)
    }
}

impl Backend for Server<'_> {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(Server::handle(self, now, input)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(Server::poll(self, buf).map_err(Fault::from)?)
    }

    fn poll_at(&self) -> Option<Time> {
        Server::poll_at(self)
    }

    fn limits(&self) -> &Limits {
        Server::limits(self)
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        Some(self)
    }
}
