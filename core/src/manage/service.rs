//! Interface between a management server and the PMI server that it manages.

use super::{BoardReport, Error, JobReport, OpenJob, OpenLink, OpenNode, RankReport};
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::{Limit, Limits};
use crate::trace::Exit;

/// Properties of a management server that differ between embedding programs.
#[derive(Clone, Copy, Debug)]
pub struct Config<'c> {
    /// Name of the server, for people. At most 256 bytes.
    pub name: &'c str,
    /// Capacities of the PMI server.
    pub limits: Limits,
    /// Port of the first job's clients, as reported to hosts.
    pub pmi_port: u16,
    /// Maximum length of a client's message in bytes, as reported to hosts.
    pub message_max: u32,
    /// Whether [`Service::begin_recording`] is supported.
    pub records: bool,
    /// Largest limits of the run of a node, if [`Service::begin_node`] is supported.
    pub nodes: Option<Limits>,
    /// Maximum number of children of a node that [`Service::begin_link`] accepts. `None` if nodes cannot be linked.
    pub links: Option<u32>,
    /// Whether only one host at a time may open and change jobs. Others are refused with [`Error::Busy`].
    pub exclusive: bool,
    /// Whether a job is dropped when it is over and the host that opened it is gone.
    pub drop_orphans: bool,
    /// Milliseconds that a host has for [`Request::Hello`](super::Request::Hello).
    pub handshake_timeout: u64,
    /// Milliseconds after which a [kept](OpenJob::keep) job without a host is dropped, if none of its clients is connected.
    /// `None` for never.
    pub keep_timeout: Option<u64>,
}

/// A request cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<E> {
    /// The host gets this error. The server goes on.
    Refused(Error),
    /// The embedding program failed. [`ManagementServer`](super::server::ManagementServer) returns the error to it.
    Fatal(E),
}

impl<E> From<Error> for Failure<E> {
    fn from(error: Error) -> Failure<E> {
        Failure::Refused(error)
    }
}

impl<E> From<Fault> for Failure<E> {
    fn from(fault: Fault) -> Failure<E> {
        Failure::Refused(Error::Fault(fault))
    }
}

/// Service that a management server controls: a PMI server with its ports and clients.
///
/// A method that fails with [`Failure::Refused`] must leave everything unchanged.
pub trait Service {
    /// Error that ends the embedding program.
    type Error;

    /// Registers a job and opens its port, without accepting clients. Returns its number and its port.
    ///
    /// # Errors
    /// [`Failure`] if there is no capacity or the job is invalid.
    fn open(&mut self, open: &OpenJob<'_>) -> Result<(JobId, u16), Failure<Self::Error>>;

    /// Sets the program number of ranks `first..first + count`.
    ///
    /// # Errors
    /// [`Failure`] if the ranks do not exist.
    fn set_program(
        &mut self,
        job: JobId,
        first: Rank,
        count: u32,
        appnum: u32,
    ) -> Result<(), Failure<Self::Error>>;

    /// Sets a job attribute.
    ///
    /// # Errors
    /// [`Failure`] if there is no capacity or the attribute is invalid.
    fn set_attr(&mut self, job: JobId, key: &[u8], value: &[u8]) -> Result<(), Failure<Self::Error>>;

    /// Defines ranks `first..first + count` as a process set.
    ///
    /// # Errors
    /// [`Failure`] if there is no capacity or the set is invalid.
    fn define_pset(
        &mut self,
        job: JobId,
        name: &str,
        first: Rank,
        count: u32,
    ) -> Result<(), Failure<Self::Error>>;

    /// Accepts the job's clients from now on.
    ///
    /// # Errors
    /// [`Failure`] if the job does not exist.
    fn accept_clients(&mut self, job: JobId) -> Result<(), Failure<Self::Error>>;

    /// Reports the exit of a rank's process to the PMI server.
    ///
    /// # Errors
    /// [`Failure`] if the rank does not exist.
    fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Failure<Self::Error>>;

    /// Closes the job's connections and port and deregisters it.
    ///
    /// # Errors
    /// [`Failure`] if the job does not exist.
    fn forget(&mut self, job: JobId) -> Result<(), Failure<Self::Error>>;

    /// Reports exits from now on as [`exit_of_connection`](super::server::exit_of_connection) derives them. Called when
    /// the host that reported the job's exits is disconnected. A service that calls
    /// [`rank_left`](super::server::ManagementServer::rank_left) for every closed connection need not do anything.
    fn derive_exits(&mut self, _job: JobId) {}

    /// Returns the state of a job.
    fn job_report(&self, job: JobId) -> Option<JobReport>;

    /// Returns the state of a rank.
    fn rank_report(&self, job: JobId, rank: Rank) -> Option<RankReport>;

    /// Returns the state of the server.
    fn board_report(&self) -> BoardReport;

    /// Returns how much of a limit is used.
    fn used(&self, limit: Limit) -> u32;

    /// Prepares to send a recording to a host. It starts after the reply.
    ///
    /// # Errors
    /// [`Failure`] if there is a recording already or it is too late for one.
    fn begin_recording(&mut self, _host: usize) -> Result<(), Failure<Self::Error>> {
        Err(Error::NoRecording.into())
    }

    /// Prepares to serve a node for a host, whose limits are at most [`Config::nodes`](Config::nodes). It starts
    /// after the reply, on the host's connection.
    ///
    /// # Errors
    /// [`Failure`] if nodes are not supported, or there is no capacity.
    fn begin_node(&mut self, _host: usize, _node: &OpenNode) -> Result<(), Failure<Self::Error>> {
        Err(Error::NoNodes.into())
    }

    /// Prepares to link the server of another node to one that is served here. The link uses the host's connection after the
    /// reply.
    ///
    /// # Errors
    /// [`Failure`] if no such node is served here, or links are not supported.
    fn begin_link(&mut self, _host: usize, _link: &OpenLink) -> Result<(), Failure<Self::Error>> {
        Err(Error::NoLink.into())
    }
}

/// Returns the exit of a process of which the server knows only the closed connection: code 0 if the rank had
/// `finalized`, otherwise [`Exit::Lost`]. A rank that has not joined cannot have finalized.
pub fn exit_of_connection(finalized: bool) -> Exit {
    if finalized { Exit::Code(0) } else { Exit::Lost }
}
