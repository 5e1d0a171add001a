//! PMI server of the ranks: a driver in this process, or a board.

use hydrant_core::{Input, JobId, Limits, Time};
use hydrant_driver::{AnyBackend, BackendError, Driver};

use super::token;
use crate::error::RunError;
use hydrant_services::board::Board;

/// The PMI server of a run.
pub(super) enum PmiServer<'s> {
    /// A backend in this process, whose clients connect to this process.
    Local(Box<Driver<AnyBackend<'s>>>),
    /// A board, whose clients connect to it.
    Board(Box<Board>),
}

impl<'s> PmiServer<'s> {
    /// A server in this process.
    pub(super) fn local(backend: Box<AnyBackend<'s>>) -> PmiServer<'s> {
        PmiServer::Local(Box::new(Driver::new(backend, token::CONNS)))
    }

    /// Returns the driver, if the server is in this process.
    pub(super) fn driver(&mut self) -> Option<&mut Driver<AnyBackend<'s>>> {
        match self {
            PmiServer::Local(driver) => Some(driver),
            PmiServer::Board(_) => None,
        }
    }

    /// Returns the board, if the server is a board.
    pub(super) fn board(&mut self) -> Option<&mut Board> {
        match self {
            PmiServer::Local(_) => None,
            PmiServer::Board(board) => Some(board),
        }
    }

    /// Passes an input that does not belong to a connection.
    ///
    /// # Errors
    /// The server did not accept the input.
    pub(super) fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), BackendError> {
        match self {
            PmiServer::Local(driver) => driver.handle(now.0, input),
            PmiServer::Board(board) => {
                board.handle(&input).map_err(|error| BackendError::Other(Box::new(error)))
            }
        }
    }

    /// Returns the time of the next [`handle_timeout`](PmiServer::handle_timeout).
    pub(super) fn poll_at(&mut self) -> Option<u64> {
        match self {
            PmiServer::Local(driver) => driver.poll_at(),
            PmiServer::Board(board) => board.poll_at(),
        }
    }

    /// Handles timeouts. Returns whether there were any.
    ///
    /// # Errors
    /// The server cannot continue.
    pub(super) fn handle_timeout(&mut self, now: u64) -> Result<bool, RunError> {
        match self {
            PmiServer::Local(driver) => Ok(driver.handle_timeout(now)?),
            PmiServer::Board(board) => Ok(board.handle_timeout()?),
        }
    }

    /// The limits of the server.
    pub(super) fn limits(&self) -> &Limits {
        match self {
            PmiServer::Local(driver) => driver.backend().limits(),
            PmiServer::Board(board) => board.limits(),
        }
    }

    /// Returns the number of a job's key-value space in shared memory, if it is shared.
    pub(super) fn kvs_space(&self, job: JobId) -> Option<u32> {
        match self {
            PmiServer::Local(driver) => driver.backend().kvs_space(job),
            PmiServer::Board(_) => None,
        }
    }

    /// Replaces a backend that failed. The clients stay connected.
    pub(super) fn replace(&mut self, backend: Box<AnyBackend<'s>>) {
        match self {
            PmiServer::Local(driver) => driver.replace_backend(backend),
            PmiServer::Board(_) => *self = PmiServer::local(backend),
        }
    }
}
