//! PMI state of this process: uninitialised, joined or finalised.

use std::sync::{Arc, RwLock};

use hydrant_client::{Connection, Environment, Segment, SharedConnection, Socket, Transport, to_string};
use hydrant_core::client::{Identity, Start};
use hydrant_core::wire::{Command, Protocol, Reply};

use crate::diagnostics;
use crate::error::Error;
use crate::singleton::Singleton;

/// A process between `PMI2_Init` and `PMI2_Finalize`.
pub(crate) struct Process {
    pub(crate) connection: SharedConnection<Box<dyn Transport>>,
    pub(crate) identity: Identity,
    pub(crate) jobid: String,
    pub(crate) spawned: bool,
    /// Whether the server is inside this process.
    pub(crate) singleton: bool,
    /// Shared memory with the job's key-value space, if the server offers it.
    pub(crate) segment: Option<Segment>,
}

enum Stage {
    Uninitialized,
    Ready(Arc<Process>),
    /// The inherited socket is closed, and another file may have its number. `PMI2_Init` cannot be repeated.
    Failed,
    Finalized,
}

static STAGE: RwLock<Stage> = RwLock::new(Stage::Uninitialized);

impl Process {
    /// Joins the job. A second call returns the same process.
    pub(crate) fn init() -> Result<Arc<Process>, Error> {
        let mut stage = STAGE.write().map_err(|_| Error::Panicked)?;
        match &*stage {
            Stage::Ready(process) => Ok(Arc::clone(process)),
            Stage::Finalized => Err(Error::Finalized),
            Stage::Failed => Err(Error::InitFailed),
            Stage::Uninitialized => {
                let environment = Environment::read(std::env::var_os)?;
                let (transport, start) = connect(&environment)?;
                let process = match Process::join(&environment, transport, start) {
                    Ok(process) => Arc::new(process),
                    Err(error) => {
                        *stage = Stage::Failed;
                        return Err(error);
                    }
                };
                *stage = Stage::Ready(Arc::clone(&process));
                Ok(process)
            }
        }
    }

    fn join(
        environment: &Environment,
        transport: Box<dyn Transport>,
        start: Start,
    ) -> Result<Process, Error> {
        let connection = Connection::open(transport, Protocol::V2, start, environment.jobid.as_deref())?;
        let connection = SharedConnection::new(connection)?;
        let identity = connection.identity();
        // First request of the session: its reply shows whether the server returns thread ids.
        let jobid = connection.request(&Command::GetJobId, |reply| match reply {
            Reply::JobId(id) => Some(to_string(id)),
            _ => None,
        })?;
        let segment = environment.segment.as_deref().map(|offer| Segment::open(offer, &jobid)).transpose();
        let segment = segment.unwrap_or_else(|error| {
            if diagnostics::enabled() {
                diagnostics::print("PMI2_Init", format_args!("HYDRANT_KVS is not used: {error}"));
            }
            None
        });
        let (spawned, singleton) = (environment.spawned, environment.server.is_none());
        Ok(Process { connection, identity, jobid, spawned, singleton, segment })
    }

    /// Whether `PMI2_Init` has succeeded. As `pmi2.h` documents, this stays true after `PMI2_Finalize`.
    pub(crate) fn was_initialized() -> bool {
        STAGE.read().is_ok_and(|stage| matches!(*stage, Stage::Ready(_) | Stage::Finalized))
    }

    /// Returns the process between `PMI2_Init` and `PMI2_Finalize`.
    pub(crate) fn current() -> Result<Arc<Process>, Error> {
        match &*STAGE.read().map_err(|_| Error::Panicked)? {
            Stage::Ready(process) => Ok(Arc::clone(process)),
            Stage::Uninitialized | Stage::Failed => Err(Error::Uninitialized),
            Stage::Finalized => Err(Error::Finalized),
        }
    }

    /// Leaves the job. Later calls and outstanding calls of other threads fail.
    pub(crate) fn finalize() -> Result<(), Error> {
        let process = Process::current()?;
        let mut stage = STAGE.write().map_err(|_| Error::Panicked)?;
        if !matches!(*stage, Stage::Ready(_)) {
            return Err(Error::Finalized);
        }
        *stage = Stage::Finalized;
        drop(stage);
        Ok(process.connection.finalize()?)
    }
}

/// Connects to the server of the environment, or creates one in this process if there is none.
fn connect(environment: &Environment) -> Result<(Box<dyn Transport>, Start), Error> {
    let Some(server) = &environment.server else {
        let singleton = Singleton::new().map_err(Error::Singleton)?;
        return Ok((Box::new(singleton), Start::Fd { rank: 0, size: 1 }));
    };
    // SAFETY: PMI_FD passes its descriptor to the PMI library of the process, which is this one.
    let socket = unsafe { Socket::open(server)? };
    Ok((Box::new(socket), server.start(Protocol::V2)?))
}
