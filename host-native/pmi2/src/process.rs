//! PMI state of this process: uninitialised, joined or finalised.

use std::ffi::c_int;
use std::sync::Arc;

use hydrant_client::c::{CallError, Library, Lifecycle, segment};
use hydrant_client::{Connection, Environment, Segment, SharedConnection, Transport, to_string};
use hydrant_wire::client::{Identity, Start};
use hydrant_wire::{Command, Protocol, Reply};

/// How errors are printed and returned.
pub(crate) const LIBRARY: Library = Library {
    name: "hydrant-pmi2",
    init: "PMI2_Init",
    debug: "PMI2_DEBUG",
    code: |error| error.code() as c_int,
};

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

static PROCESS: Lifecycle<Process> = Lifecycle::new();

impl Process {
    /// Joins the job. A second call returns the same process.
    pub(crate) fn init() -> Result<Arc<Process>, CallError> {
        PROCESS.init(Protocol::V2, Process::join)
    }

    fn join(
        environment: &Environment,
        transport: Box<dyn Transport>,
        start: Start,
    ) -> Result<Process, CallError> {
        let connection = Connection::open(transport, Protocol::V2, start, environment.jobid.as_deref())?;
        let connection = SharedConnection::new(connection)?;
        let identity = connection.identity();
        // First request of the session: its reply shows whether the server returns thread ids.
        let jobid = connection.request(&Command::GetJobId, |reply| match reply {
            Reply::JobId(id) => Some(to_string(id)),
            _ => None,
        })?;
        let segment = segment(&LIBRARY, environment, &jobid);
        let (spawned, singleton) = (environment.spawned, environment.server.is_none());
        Ok(Process { connection, identity, jobid, spawned, singleton, segment })
    }

    /// Whether `PMI2_Init` has succeeded. As `pmi2.h` documents, this stays true after `PMI2_Finalize`.
    pub(crate) fn was_initialized() -> bool {
        PROCESS.was_initialized()
    }

    /// Returns the process between `PMI2_Init` and `PMI2_Finalize`.
    pub(crate) fn current() -> Result<Arc<Process>, CallError> {
        PROCESS.current()
    }

    /// Leaves the job. Later calls and outstanding calls of other threads fail.
    pub(crate) fn finalize() -> Result<(), CallError> {
        Ok(PROCESS.finalize()?.connection.finalize()?)
    }
}
