//! Backend in this process.

use std::ptr::NonNull;

use hydrant_core::server::Consumed;
use hydrant_core::{Backend, BackendError, Fault, Input, Limits, Output, Server, Storage, Time, snapshot};

use crate::{InsufficientMemory, MappedStorage};

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

// SAFETY: this value owns the storage, which is `Send`. The server's references to it move to another thread with it, in
// `OwnedServer`.
unsafe impl Send for LentStorage {}

const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<MappedStorage>();
};

impl Drop for LentStorage {
    fn drop(&mut self) {
        // SAFETY: the pointer is that of a leaked box, and the server, which borrows from it, has been dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A server with storage of its own could not be created.
#[derive(Debug, thiserror::Error)]
pub enum OwnedServerError {
    /// Limits or a snapshot that the server refuses.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// There is not enough memory for the limits.
    #[error(transparent)]
    Memory(#[from] InsufficientMemory),
}

impl From<OwnedServerError> for BackendError {
    fn from(error: OwnedServerError) -> BackendError {
        match error {
            OwnedServerError::Fault(fault) => fault.into(),
            OwnedServerError::Memory(why) => BackendError::Other(Box::new(why)),
        }
    }
}

impl OwnedServer {
    /// Creates a server, as [`Server::new`] does.
    ///
    /// # Errors
    /// The limits are invalid, or there is not enough memory for them.
    pub fn new(limits: Limits, seed: u32) -> Result<OwnedServer, OwnedServerError> {
        OwnedServer::within(&limits, |storage| Server::new_zeroed(limits, storage, seed))
    }

    /// Restores a server from a snapshot, as [`Server::restore`] does.
    ///
    /// # Errors
    /// The snapshot is invalid, or there is not enough memory for its limits.
    pub fn restore(saved: &[u8]) -> Result<OwnedServer, OwnedServerError> {
        OwnedServer::within(&snapshot::limits(saved)?, |storage| Server::restore(saved, storage))
    }

    /// Creates a server in storage of its own.
    fn within(
        limits: &Limits,
        create: impl FnOnce(Storage<'static>) -> Result<Server<'static>, Fault>,
    ) -> Result<OwnedServer, OwnedServerError> {
        let storage = MappedStorage::try_new(limits)?;
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

/// A server in this process that is created with its first input. Until then it takes no memory for its tables.
#[derive(Debug)]
pub struct LateServer {
    limits: Limits,
    seed: u32,
    server: Option<OwnedServer>,
}

impl LateServer {
    /// Prepares a server, which [`OwnedServer::new`] creates later.
    pub fn new(limits: Limits, seed: u32) -> LateServer {
        LateServer { limits, seed, server: None }
    }
}

impl Backend for LateServer {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        let server = match &mut self.server {
            Some(server) => server,
            None => self.server.insert(OwnedServer::new(self.limits, self.seed)?),
        };
        server.handle(now, input)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        self.server.as_mut().map_or(Ok(None), |server| server.poll(buf))
    }

    fn poll_at(&self) -> Option<Time> {
        self.server.as_ref()?.poll_at()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        self.server.as_mut()?.inspect()
    }
}

impl Backend for OwnedServer {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        Ok(self.server.handle(now, input)?)
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        Backend::poll(&mut self.server, buf)
    }

    fn poll_at(&self) -> Option<Time> {
        self.server.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.server.limits()
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        Some(&self.server)
    }
}

#[cfg(test)]
mod tests {
    use hydrant_core::JobId;
    use hydrant_core::server::JobSpec;

    use super::*;

    #[test]
    fn a_late_server_is_created_with_its_first_input() {
        let limits = Limits::for_ranks(1);
        let mut late = LateServer::new(limits, 3);
        let mut buffer = vec![0; limits.output_room()];
        assert!(late.poll(&mut buffer).unwrap().is_none() && late.poll_at().is_none());
        assert!(late.server.is_none() && *late.limits() == limits);
        let register = || Input::RegisterJob(JobSpec::new(JobId(0), "job", 1));
        late.handle(Time(0), register()).unwrap();
        // The second one finds the job.
        assert!(late.handle(Time(0), register()).is_err() && late.server.is_some());
    }

    #[test]
    fn a_late_server_without_memory_refuses_its_first_input() {
        let mut late = LateServer::new(Limits { conns: u32::MAX, ..Limits::for_ranks(1) }, 3);
        assert!(matches!(late.handle(Time(0), Input::Timeout), Err(BackendError::Other(_))));
    }
}
