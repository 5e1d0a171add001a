//! PMI state of a process: uninitialised, joined or finalised.

use std::sync::{Arc, RwLock};

use hydrant_wire::Protocol;
use hydrant_wire::client::Start;

use super::{CallError, Library};
use crate::{Environment, Segment, Singleton, Socket, Transport};

enum Stage<P> {
    Uninitialized,
    Ready(Arc<P>),
    /// The inherited socket is closed, and another file may have its number. The process cannot join again.
    Failed,
    Finalized,
}

/// PMI state of this process, for a `static`. `P` is the process between its first and its last call.
pub struct Lifecycle<P>(RwLock<Stage<P>>);

impl<P> Lifecycle<P> {
    /// The state before the first call.
    #[allow(clippy::new_without_default, reason = "for a static")]
    pub const fn new() -> Lifecycle<P> {
        Lifecycle(RwLock::new(Stage::Uninitialized))
    }

    /// Joins the job: reads the environment, connects, and lets `join` perform the handshake. A second call returns the
    /// same process.
    ///
    /// # Errors
    /// Errors of the environment and of connecting leave the state unchanged. Those of `join` are final.
    pub fn init(
        &self,
        protocol: Protocol,
        join: impl FnOnce(&Environment, Box<dyn Transport>, Start) -> Result<P, CallError>,
    ) -> Result<Arc<P>, CallError> {
        let mut stage = self.0.write().map_err(|_| CallError::Panicked)?;
        match &*stage {
            Stage::Ready(process) => Ok(Arc::clone(process)),
            Stage::Finalized => Err(CallError::Finalized),
            Stage::Failed => Err(CallError::InitFailed),
            Stage::Uninitialized => {
                let environment = Environment::read(std::env::var_os)?;
                let (transport, start) = connect(&environment, protocol)?;
                match join(&environment, transport, start) {
                    Ok(process) => {
                        let process = Arc::new(process);
                        *stage = Stage::Ready(Arc::clone(&process));
                        Ok(process)
                    }
                    Err(error) => {
                        *stage = Stage::Failed;
                        Err(error)
                    }
                }
            }
        }
    }

    /// Whether the process has joined, also after its last call.
    pub fn was_initialized(&self) -> bool {
        self.0.read().is_ok_and(|stage| matches!(*stage, Stage::Ready(_) | Stage::Finalized))
    }

    /// Returns the process between its first and its last call.
    ///
    /// # Errors
    /// [`CallError::Uninitialized`], [`CallError::Finalized`].
    pub fn current(&self) -> Result<Arc<P>, CallError> {
        match &*self.0.read().map_err(|_| CallError::Panicked)? {
            Stage::Ready(process) => Ok(Arc::clone(process)),
            Stage::Uninitialized | Stage::Failed => Err(CallError::Uninitialized),
            Stage::Finalized => Err(CallError::Finalized),
        }
    }

    /// Ends the state and returns the process, which has to leave the job. Later calls fail.
    ///
    /// # Errors
    /// As [`Lifecycle::current`].
    pub fn finalize(&self) -> Result<Arc<P>, CallError> {
        let process = self.current()?;
        let mut stage = self.0.write().map_err(|_| CallError::Panicked)?;
        if !matches!(*stage, Stage::Ready(_)) {
            return Err(CallError::Finalized);
        }
        *stage = Stage::Finalized;
        Ok(process)
    }
}

/// Connects to the server of the environment, or creates one in this process if there is none.
///
/// # Errors
/// Those of [`Socket::open`], and a missing variable.
pub fn connect(
    environment: &Environment,
    protocol: Protocol,
) -> Result<(Box<dyn Transport>, Start), CallError> {
    let Some(server) = &environment.server else {
        let singleton = Singleton::new().map_err(CallError::Singleton)?;
        return Ok((Box::new(singleton), Start::Fd { rank: 0, size: 1 }));
    };
    let start = server.start(protocol)?;
    // SAFETY: PMI_FD passes its descriptor to the PMI library of the process, which calls this.
    let socket = unsafe { Socket::open(server)? };
    Ok((Box::new(socket), start))
}

/// Maps the shared memory with the key-value space of `jobid`, if the server offers it. An offer that cannot be used is
/// reported as a diagnostic.
pub fn segment(library: &Library, environment: &Environment, jobid: &str) -> Option<Segment> {
    let segment = environment.segment.as_deref().map(|offer| Segment::open(offer, jobid)).transpose();
    segment.unwrap_or_else(|error| {
        if library.debugs() {
            library.print(library.init, format_args!("HYDRANT_KVS is not used: {error}"));
        }
        None
    })
}
