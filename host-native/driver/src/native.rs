//! Backend in this process.

use std::ptr::NonNull;

use hydrant_core::server::{Consumed, FenceReport, RankStatus};
use hydrant_core::{Backend, Fault, Input, JobId, Limits, Output, Rank, Server, Storage, Time, snapshot};

use crate::{BackendError, MappedStorage};

/// A server in this process with the error type of backends that are chosen at run time. A [`Driver`](crate::Driver) of a
/// [`Server`] alone needs no such wrapper.
#[derive(Debug)]
pub struct NativeBackend<'s>(pub Server<'s>);

impl Backend for NativeBackend<'_> {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(self.0.handle(now, input)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(self.0.poll(buf).map_err(Fault::from)?)
    }

    fn poll_at(&self) -> Option<Time> {
        self.0.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.0.limits()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.0.kvs_space(job)
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.0.rank_status(job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        self.0.fence_report(job)
    }
}

/// A server in this process with storage of its own.
#[derive(Debug)]
pub struct OwnedServer {
    /// Borrows from the storage. Fields are dropped in their order.
    server: Server<'static>,
    _storage: LentStorage,
}

/// Storage that is lent to a server, and freed with this value.
#[derive(Debug)]
struct LentStorage(NonNull<MappedStorage>);

impl Drop for LentStorage {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of a leaked box, and the server, which borrows from it, has been dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl OwnedServer {
    /// Creates a server, as [`Server::new`] does.
    ///
    /// # Errors
    /// The limits are invalid, or there is not enough memory for them.
    pub fn new(limits: Limits, seed: u32) -> Result<OwnedServer, BackendError> {
        OwnedServer::within(&limits, |storage| Server::new_zeroed(limits, storage, seed))
    }

    /// Restores a server from a snapshot, as [`Server::restore`] does.
    ///
    /// # Errors
    /// The snapshot is invalid, or there is not enough memory for its limits.
    pub fn restore(saved: &[u8]) -> Result<OwnedServer, BackendError> {
        OwnedServer::within(&snapshot::limits(saved)?, |storage| Server::restore(saved, storage))
    }

    /// Creates a server in storage of its own.
    fn within(
        limits: &Limits,
        create: impl FnOnce(Storage<'static>) -> Result<Server<'static>, Fault>,
    ) -> Result<OwnedServer, BackendError> {
        let storage = MappedStorage::try_new(limits).map_err(|why| BackendError::Other(Box::new(why)))?;
        let mut storage = LentStorage(NonNull::from(Box::leak(Box::new(storage))));
        // SAFETY: nothing else accesses the storage. It stays at its address until `LentStorage` is dropped, which is after
        // the server: at an error here, and as the later field of `OwnedServer`.
        let lent = unsafe { storage.0.as_mut() }.lend();
        Ok(OwnedServer { server: create(lent)?, _storage: storage })
    }

    /// The server.
    pub fn server(&self) -> &Server<'_> {
        &self.server
    }
}

impl Backend for OwnedServer {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(self.server.handle(now, input)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Ok(self.server.poll(buf).map_err(Fault::from)?)
    }

    fn poll_at(&self) -> Option<Time> {
        self.server.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.server.limits()
    }

    fn rank_status(&self, job: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        self.server.rank_status(job, rank)
    }

    fn fence_report(&self, job: JobId) -> Option<FenceReport> {
        self.server.fence_report(job)
    }
}
