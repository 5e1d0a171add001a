//! Whether this process is initialised, and as whom.

use std::sync::{Arc, RwLock};

use hydrant_core::client::Identity;
use hydrant_core::wire::{Command, Reply};

use crate::connection::{Connection, string};
use crate::environment::{Environment, Place, debugging};
use crate::error::Error;
use crate::segment::Segment;
use crate::transport::Transport;

/// A process that has called `PMI2_Init`.
pub(crate) struct Process {
    pub(crate) connection: Connection,
    pub(crate) identity: Identity,
    pub(crate) jobid: String,
    pub(crate) spawned: bool,
    /// Whether there is no server but the one within.
    pub(crate) alone: bool,
    /// Where values are found without asking the server.
    pub(crate) segment: Option<Segment>,
}

enum Stage {
    Fresh,
    Ready(Arc<Process>),
    /// Its socket is closed, and its number may be somebody else's by now: there is no second try.
    Failed,
    Finalized,
}

static STAGE: RwLock<Stage> = RwLock::new(Stage::Fresh);

impl Process {
    /// Joins the job. A second call changes nothing.
    pub(crate) fn init() -> Result<Arc<Process>, Error> {
        let mut stage = STAGE.write().map_err(|_| Error::Panicked)?;
        match &*stage {
            Stage::Ready(process) => Ok(Arc::clone(process)),
            Stage::Finalized => Err(Error::Finalized),
            Stage::Failed => Err(Error::Failed),
            Stage::Fresh => {
                let environment = Environment::read(std::env::var_os)?;
                let transport = Transport::open(&environment.place)?;
                let process = match Process::join(&environment, transport) {
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

    fn join(environment: &Environment, transport: Transport) -> Result<Process, Error> {
        let (connection, identity) = Connection::introduce(transport, environment)?;
        // The first request of all: its reply tells whether the server repeats `thrid`.
        let jobid = connection.ask(&Command::GetJobId, |reply| match reply {
            Reply::JobId(id) => Some(string(id)),
            _ => None,
        })?;
        let alone = environment.place == Place::Alone;
        let offer = environment.offer.as_deref().map(|offer| Segment::open(offer, &jobid)).transpose();
        let segment = offer.unwrap_or_else(|declined| {
            if debugging() {
                eprintln!("hydrant-pmi2: PMI2_Init: HYDRANT_KVS is not used: {declined}");
            }
            None
        });
        Ok(Process { connection, identity, jobid, spawned: environment.spawned, alone, segment })
    }

    /// Whether `PMI2_Init` has succeeded; as pmi2.h says, `PMI2_Finalize` does not take that back.
    pub(crate) fn was_initialized() -> bool {
        STAGE.read().is_ok_and(|stage| matches!(*stage, Stage::Ready(_) | Stage::Finalized))
    }

    /// The process as it is between `PMI2_Init` and `PMI2_Finalize`.
    pub(crate) fn current() -> Result<Arc<Process>, Error> {
        match &*STAGE.read().map_err(|_| Error::Panicked)? {
            Stage::Ready(process) => Ok(Arc::clone(process)),
            Stage::Fresh | Stage::Failed => Err(Error::Uninitialized),
            Stage::Finalized => Err(Error::Finalized),
        }
    }

    /// Leaves the job; calls that come later, or are under way in other threads, fail.
    pub(crate) fn finalize() -> Result<(), Error> {
        let process = Process::current()?;
        let mut stage = STAGE.write().map_err(|_| Error::Panicked)?;
        if !matches!(*stage, Stage::Ready(_)) {
            return Err(Error::Finalized);
        }
        *stage = Stage::Finalized;
        drop(stage);
        process.connection.finalize()
    }
}
