//! Trait of server backends that a host can drive.

use super::Server;
use super::io::{Consumed, Input, Output};
use super::status::{FenceReport, RankStatus};
use crate::fault::Fault;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::Limits;
use crate::time::Time;

/// Bytes of one connection among those of several, for [`Backend::handle_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBytes<'a> {
    /// The connection.
    pub conn: ConnId,
    /// All bytes that the host holds, as in [`Input::Bytes`].
    pub bytes: &'a [u8],
    /// Whether the host's buffer has no room for more of them.
    pub full: bool,
    /// What the backend has consumed. The call sets it.
    pub consumed: Consumed,
}

impl<'a> ClientBytes<'a> {
    /// Creates bytes that no backend has seen.
    #[must_use]
    pub const fn new(conn: ConnId, bytes: &'a [u8], full: bool) -> ClientBytes<'a> {
        ClientBytes { conn, bytes, full, consumed: Consumed { bytes: 0, again: false } }
    }

    /// Returns the bytes as an input.
    #[must_use]
    pub const fn input(&self) -> Input<'a> {
        Input::Bytes { conn: self.conn, bytes: self.bytes, full: self.full }
    }

    /// Hands the bytes to a backend by themselves, and notes what it has consumed.
    ///
    /// # Errors
    /// Those of [`Backend::handle`].
    pub fn hand_to<B: Backend + ?Sized>(&mut self, backend: &mut B, now: Time) -> Result<(), B::Error> {
        self.consumed = backend.handle(now, self.input())?;
        Ok(())
    }
}

/// PMI server backend: a [`Server`] in this process, one in a WebAssembly sandbox, or a wrapper that records another
/// backend.
pub trait Backend {
    /// Error of a call. [`Fault`] for a server in this process.
    type Error;

    /// Applies one input, as [`Server::handle`] does.
    ///
    /// # Errors
    /// [`Fault`] or a failure of the backend.
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Self::Error>;

    /// Applies the bytes of several connections in their order, as one call of [`handle`](Backend::handle) for each does.
    /// The host then polls once for all of them. A connection may occur once.
    ///
    /// A backend for which a call is costly overrides it. A backend whose [`poll_at`](Backend::poll_at) has to be known
    /// after each input does not.
    ///
    /// # Errors
    /// Those of [`handle`](Backend::handle). The backend may have applied the bytes before those that failed.
    fn handle_bytes(&mut self, now: Time, received: &mut [ClientBytes<'_>]) -> Result<(), Self::Error> {
        received.iter_mut().try_for_each(|bytes| bytes.hand_to(self, now))
    }

    /// Returns the next output, as [`Server::poll`] does.
    ///
    /// # Errors
    /// A short buffer, or a failure of the backend.
    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, Self::Error>;

    /// Returns when [`Input::Timeout`] is due.
    fn poll_at(&self) -> Option<Time>;

    /// Returns the limits of the server.
    fn limits(&self) -> &Limits;

    /// Returns the maximum length of a client's bytes in an input. A host reads no more, and the buffer is
    /// [full](Input::Bytes::full) then.
    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    /// Returns the number of a job's key-value space, as [`Server::kvs_space`] does, or `None` if the host cannot
    /// share the memory of the log.
    fn kvs_space(&self, _job: JobId) -> Option<u32> {
        None
    }

    /// Returns the state of a rank for display, as [`Server::rank_status`] does, or `None` if the backend cannot be asked.
    fn rank_status(&self, _job: JobId, _rank: Rank) -> Option<RankStatus<'_>> {
        None
    }

    /// Returns what the server has learned of a job's gets, as [`Server::fence_report`] does, or `None` if the backend cannot
    /// be asked.
    fn fence_report(&self, _job: JobId) -> Option<FenceReport> {
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

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        Server::rank_status(self, job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        Server::fence_report(self, job)
    }
}

impl<B: Backend + ?Sized> Backend for &mut B {
    type Error = B::Error;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, B::Error> {
        (**self).handle(now, input)
    }

    fn handle_bytes(&mut self, now: Time, received: &mut [ClientBytes<'_>]) -> Result<(), B::Error> {
        (**self).handle_bytes(now, received)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, B::Error> {
        (**self).poll(buf)
    }

    fn poll_at(&self) -> Option<Time> {
        (**self).poll_at()
    }

    fn limits(&self) -> &Limits {
        (**self).limits()
    }

    fn bytes_max(&self) -> usize {
        (**self).bytes_max()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        (**self).kvs_space(job)
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        (**self).rank_status(job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        (**self).fence_report(job)
    }
}
