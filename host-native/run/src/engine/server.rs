//! PMI server of the ranks: a driver in this process, or a board.

use std::net::{IpAddr, TcpStream};
use std::rc::Rc;

use hydrant_board::{NodeBoard, NodeEvent};
use hydrant_core::{Backend, BackendError, Input, JobId, Limits, Server, Time};
use hydrant_driver::{Driver, MappedStorage, Sharing};
use hydrant_reactor::Poller;
use hydrant_record::RecordingFile;

use super::token;
use crate::backend::{BackendBuilder, RunBackend, SharedLive};
use crate::error::RunError;
use crate::messages::Warnings;
use crate::topology_file::SharedTopologyFile;

/// The PMI server of a node, and what belongs to it.
pub(super) struct ServerParts<'s> {
    pub(super) core: PmiServer<'s>,
    /// Warnings of the core that have not been printed.
    pub(super) warnings: Warnings,
    /// Recording file, if there is one.
    pub(super) recording: Option<Rc<RecordingFile>>,
    /// Times of all requests, for the profile.
    pub(super) live: Option<SharedLive>,
    /// Location of the key-value log for ranks that read it themselves.
    pub(super) sharing: Option<Sharing>,
    /// Topology file that ranks may ask for.
    pub(super) topology_file: Option<SharedTopologyFile>,
}

impl<'s> ServerParts<'s> {
    /// A server with nothing beside it.
    pub(super) fn new(core: PmiServer<'s>) -> ServerParts<'s> {
        let warnings = Warnings::default();
        ServerParts { core, warnings, recording: None, live: None, sharing: None, topology_file: None }
    }

    /// A server in this process or in a plugin, in memory that is stored in `slabs`. Ranks may read the memory if it
    /// `is_shared`.
    ///
    /// # Errors
    /// The limits are invalid, the memory is not there, or the plugin fails.
    pub(super) fn build(
        builder: &BackendBuilder,
        (limits, seed): (Limits, u32),
        recording: Option<Rc<RecordingFile>>,
        live: Option<SharedLive>,
        topology_file: Option<SharedTopologyFile>,
        (slabs, is_shared): (&'s mut Option<MappedStorage>, bool),
    ) -> Result<ServerParts<'s>, RunError> {
        let slabs = slabs.insert(builder.storage(&limits, is_shared)?);
        let sharing = slabs.sharing(seed);
        let core = builder.build(limits, seed, slabs)?;
        let backend = RunBackend::new(core, recording.as_ref(), live.as_ref(), topology_file.as_ref());
        let warnings = builder.warnings();
        let core = PmiServer::local(backend);
        Ok(ServerParts { core, warnings, recording, live, sharing, topology_file })
    }
}

/// The PMI server of a run.
pub(super) enum PmiServer<'s> {
    /// A backend in this process, whose clients connect to this process.
    Local(Box<Driver<RunBackend<'s>>>),
    /// A board that serves this node of the run, whose clients connect to it.
    Node(Box<NodeBoard>),
}

impl<'s> PmiServer<'s> {
    /// A server in this process.
    pub(super) fn local(backend: RunBackend<'s>) -> PmiServer<'s> {
        PmiServer::Local(Box::new(Driver::new(Box::new(backend), token::CONNS)))
    }

    /// Returns the driver, if the server is in this process.
    pub(super) fn driver(&mut self) -> Option<&mut Driver<RunBackend<'s>>> {
        match self {
            PmiServer::Local(driver) => Some(driver),
            PmiServer::Node(_) => None,
        }
    }

    /// Returns whether clients connect to a board.
    pub(super) fn is_board(&self) -> bool {
        !matches!(self, PmiServer::Local(_))
    }

    /// Returns the board of this node, if it has one.
    pub(super) fn node(&mut self) -> Option<&mut NodeBoard> {
        match self {
            PmiServer::Node(board) => Some(board),
            PmiServer::Local(_) => None,
        }
    }

    /// Returns the connection to the board of this node, to poll for reading.
    pub(super) fn stream(&self) -> Option<&TcpStream> {
        match self {
            PmiServer::Local(_) => None,
            PmiServer::Node(board) => Some(board.stream()),
        }
    }

    /// Returns the host that clients connect to, if it is a board.
    pub(super) fn host(&self) -> Option<IpAddr> {
        match self {
            PmiServer::Local(_) => None,
            PmiServer::Node(board) => Some(board.host()),
        }
    }

    /// Passes an input that does not belong to a connection.
    ///
    /// # Errors
    /// The server did not accept the input.
    pub(super) fn handle(&mut self, now: Time, input: Input<'_>) -> Result<(), BackendError> {
        match self {
            PmiServer::Local(driver) => driver.handle(now.0, input),
            PmiServer::Node(board) => board.handle(&input),
        }
    }

    /// Closes all connections of a job, and deregisters the job.
    ///
    /// # Errors
    /// The server cannot continue.
    pub(super) fn deregister_job(&mut self, now: u64, job: JobId) -> Result<(), RunError> {
        match self {
            PmiServer::Local(driver) => Ok(driver.deregister_job(job, now)?),
            PmiServer::Node(board) => Ok(board.handle(&Input::DeregisterJob { job })?),
        }
    }

    /// The next event of the server.
    ///
    /// # Errors
    /// The server cannot continue.
    pub(super) fn poll(&mut self, now: u64, poller: &Poller) -> Result<Option<NodeEvent>, RunError> {
        match self {
            PmiServer::Local(driver) => Ok(driver.poll(now, poller)?.map(NodeEvent::Server)),
            PmiServer::Node(board) => Ok(board.event()?),
        }
    }

    /// The next line of a board for the user.
    pub(super) fn line(&mut self) -> Option<String> {
        self.node()?.line()
    }

    /// Returns the time of the next [`handle_timeout`](PmiServer::handle_timeout).
    pub(super) fn poll_at(&mut self) -> Option<u64> {
        match self {
            PmiServer::Local(driver) => driver.poll_at(),
            PmiServer::Node(board) => Some(board.poll_at()),
        }
    }

    /// Handles timeouts. Returns whether there were any.
    ///
    /// # Errors
    /// The server cannot continue.
    pub(super) fn handle_timeout(&mut self, now: u64) -> Result<bool, RunError> {
        match self {
            PmiServer::Local(driver) => Ok(driver.handle_timeout(now)?),
            PmiServer::Node(board) => Ok(board.handle_timeout()?),
        }
    }

    /// The limits of the server.
    pub(super) fn limits(&self) -> &Limits {
        match self {
            PmiServer::Local(driver) => driver.backend().limits(),
            PmiServer::Node(board) => board.limits(),
        }
    }

    /// Returns the server to look into, if there is one in this process.
    pub(super) fn inspect(&mut self) -> Option<&Server<'_>> {
        self.driver()?.backend_mut().inspect()
    }

    /// Puts a stub in the place of a backend that failed. The clients stay connected.
    pub(super) fn fail(&mut self) {
        let backend = RunBackend::failed(*self.limits());
        match self {
            PmiServer::Local(driver) => driver.replace_backend(Box::new(backend)),
            PmiServer::Node(_) => *self = PmiServer::local(backend),
        }
    }
}
