//! What a host drives.

use super::Server;
use super::io::{Consumed, Input, Output};
use crate::fault::Fault;
use crate::ids::JobId;
use crate::limits::Limits;
use crate::time::Time;

/// A server, or whatever stands for one: behind the border of a sandbox, or with somebody who takes notes.
pub trait Backend {
    /// Why an input was not taken, or nothing can be said any more. [`Fault`] where nothing stands between.
    type Error;

    /// Takes in what happened, as [`Server::handle`] does.
    ///
    /// # Errors
    /// The host's mistake, or that of what stands between.
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Self::Error>;

    /// The next thing for the host to do, as [`Server::poll`] gives it.
    ///
    /// # Errors
    /// The mistake of what stands between.
    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, Self::Error>;

    /// When the host has to say [`Input::Timeout`], if nothing else happens before.
    fn poll_at(&self) -> Option<Time>;

    /// The limits that it was made with.
    fn limits(&self) -> &Limits;

    /// The number of a job's key-value space, as [`Server::kvs_space`] gives it. Nothing where the log lies in memory
    /// that the host cannot share.
    fn kvs_space(&self, _job: JobId) -> Option<u32> {
        None
    }
}

impl Backend for Server<'_> {
    type Error = Fault;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Fault> {
        Server::handle(self, now, input)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, Fault> {
        Ok(Server::poll(self, buf)?)
    }

    fn poll_at(&self) -> Option<Time> {
        Server::poll_at(self)
    }

    fn limits(&self) -> &Limits {
        Server::limits(self)
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        Server::kvs_space(self, job)
    }
}
