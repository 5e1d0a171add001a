//! Messages between the head and the daemons of a run: postcard records, in [`Channel::Control`] except for [`Piece`]s,
//! which are in [`Channel::Stream`].
//!
//! [`Channel::Control`]: hydrant_overlay::Channel::Control
//! [`Channel::Stream`]: hydrant_overlay::Channel::Stream

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_core::trace::{Cause, Exit};
use hydrant_core::wire::Protocol;
use hydrant_core::{JobId, Limit, Limits, Rank, UpcallId};
use hydrant_placement::CpuBinding;
use serde::{Deserialize, Serialize};

use crate::border::PluginFile;
use crate::plan::{Cluster, Options, Program};

/// From the head to one node, or to all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Who is there? See [`Report::Here`].
    Who,
    /// What holds for all jobs of the run. Comes once, before any job.
    Setup(Box<Setup>),
    /// A job begins: its ranks on this node are to be started.
    Job(Box<JobRecord>),
    /// A signal for all ranks, by its number.
    Signal(i32),
    /// The job ends: its ranks have to go, in their own way if they are quick.
    End(JobId),
    /// The job could not be started as a whole: its ranks go at once, and nothing is said of it.
    Undo(JobId),
    /// All nodes are done with the job.
    Forget(JobId),
    /// A fence of the job is late: whoever is missing here is to be named.
    Late(JobId),
    /// A process set has been defined, with members as `0-3,7`.
    Define { job: JobId, name: String, members: String },
    /// Two jobs are connected, or not any more.
    Connected { job: JobId, other: JobId, connected: bool },
    /// What has become of [`Report::Names`].
    Named { upcall: UpcallId, rc: i32, text: Vec<u8> },
    /// What has become of [`Report::Spawn`].
    Launched { upcall: UpcallId, started: bool, full: Option<Limit>, codes: Vec<u8> },
    /// For rank 0's standard input; nothing at its end.
    Input(Vec<u8>),
    /// Nobody takes these ranks' output, standard error's where so said, any more.
    Cut { job: JobId, streams: Vec<(Rank, bool)> },
}

/// From a node to the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The daemon's process, by its number on its host.
    Here { pid: u32 },
    /// The node has what [`Order::Setup`] asks for. Said where [that may fail](Setup::is_waited_for).
    Ready,
    /// The node's core is of no use, and the run cannot go on. Its ranks are ended, its links stay.
    Broken(Broken),
    /// These ranks run, as processes of these numbers.
    Began { job: JobId, ranks: Vec<(Rank, u32)> },
    /// All ranks on this node have been started.
    Started(JobId),
    /// A rank or a whole job cannot be started.
    Failed { job: JobId, why: StartError },
    /// A rank's process has ended; what it had asked to be ended with counts instead.
    Exited { job: JobId, rank: Rank, exit: Exit, asked: Option<u8> },
    /// All ranks on this node are gone, and all that they wrote has been sent.
    Done(JobId),
    /// The job has to end.
    End { job: JobId, cause: Cause, message: String },
    /// A fence is late, and these ranks of this node are missing; none where only others' are.
    Late { job: JobId, missing: String },
    /// A rank asks for a spawn. The answer is [`Order::Launched`].
    Spawn { upcall: UpcallId, job: JobId, rank: Rank, protocol: Protocol, request: Vec<u8> },
    /// A rank asks for something that all nodes or other runs have to know. The answer is [`Order::Named`].
    Names { upcall: UpcallId, job: JobId, rank: Rank, protocol: Protocol, request: Vec<u8> },
    /// So many bytes of rank 0's standard input are on their way no more.
    Taken(u32),
    /// Rank 0 reads no more.
    InputClosed,
    /// A line for the user.
    Say(String),
}

/// What is wrong with a core.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Broken {
    /// It could not be made, or has failed.
    Own(String),
    /// It does not understand what the core of this neighbour says.
    Neighbour { node: u32, why: String },
}

/// Some of a rank's output; nothing at its end.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Piece<'a> {
    pub(crate) job: JobId,
    pub(crate) rank: Rank,
    /// Standard error rather than standard output.
    pub(crate) error: bool,
    #[serde(borrow)]
    pub(crate) bytes: &'a [u8],
}

/// Why a node cannot start what it should.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StartError {
    /// The program, where it is one that is wrong.
    pub(crate) appnum: Option<u32>,
    /// The launcher's exit code for it.
    pub(crate) code: u8,
    /// The `errno` for whoever asked for the job.
    pub(crate) errno: u8,
    pub(crate) limit: Option<Limit>,
    /// In words.
    pub(crate) text: String,
}

/// Ranks `first..first + count` on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) node: u32,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// A job as all nodes are told of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) id: JobId,
    /// 0 is the command line's, the others are counted from 1 on.
    pub(crate) ordinal: u32,
    /// What clients know it as.
    pub(crate) name: String,
    pub(crate) programs: Vec<Program>,
    /// Where its ranks are.
    pub(crate) places: Vec<Place>,
    /// `PMI_process_mapping`.
    pub(crate) mapping: String,
    /// Process sets, with their ranks in ranges: the first, and how many.
    pub(crate) psets: Vec<(String, Vec<(u32, u32)>)>,
    pub(crate) spawned: Option<Spawned>,
}

/// Where a spawned job comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Spawned {
    /// The node that was asked.
    pub(crate) node: u32,
    /// The spawn, by its number there.
    pub(crate) upcall: UpcallId,
    /// What clients know the asking job as.
    pub(crate) spawner: String,
    /// Pairs for the job's key-value space.
    pub(crate) preput: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What holds for all jobs of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    /// What cores run in, where that is not the daemon itself.
    pub(crate) plugin: Option<PluginFile>,
    /// What each node's core is recorded to, [with its host's name behind it](Setup::recording).
    pub(crate) record: Option<OsString>,
    pub(crate) bind: CpuBinding,
    pub(crate) universe: Option<u32>,
    pub(crate) cleanup: bool,
    pub(crate) verbose: bool,
    /// Whether ranks find their server by a port.
    pub(crate) by_port: bool,
    pub(crate) mpi_psets: bool,
    pub(crate) fence_warning: Duration,
    pub(crate) lookup_wait: Duration,
    pub(crate) pmi1_subversion: u32,
}

impl Setup {
    /// What a plan says, with limits that suit all nodes.
    pub(crate) fn new(options: &Options, limits: Limits) -> Setup {
        Setup {
            limits,
            plugin: None,
            record: None,
            bind: options.bind.clone(),
            universe: options.universe_size,
            cleanup: options.cleanup,
            verbose: options.verbose,
            by_port: options.pmi_port.is_some(),
            mpi_psets: options.mpi_psets,
            fence_warning: options.fence_warning,
            lookup_wait: options.lookup_wait,
            pmi1_subversion: options.pmi1_subversion,
        }
    }

    /// Whether nodes may lack what it asks for, so that no job begins before all have said that they are ready.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.plugin.is_some() || self.record.is_some()
    }

    /// The file that the core of the node on that host is recorded to.
    pub(crate) fn recording(&self, host: &str) -> Option<PathBuf> {
        let mut file = self.record.clone()?;
        file.push(".");
        file.push(host);
        Some(file.into())
    }

    /// A daemon's options: what is the head's alone is left out.
    pub(crate) fn options(self) -> Options {
        Options {
            prepend_rank: false,
            universe_size: self.universe,
            outfile_pattern: None,
            errfile_pattern: None,
            bind: self.bind,
            cleanup: self.cleanup,
            verbose: self.verbose,
            pmi_port: self.by_port.then(|| (std::net::Ipv4Addr::LOCALHOST, 0).into()),
            mpi_psets: self.mpi_psets,
            fence_warning: self.fence_warning,
            lookup_wait: self.lookup_wait,
            pmi1_subversion: self.pmi1_subversion,
            name_server: None,
            record: None,
            limits: Vec::new(),
            offload: None,
            sandbox: None,
            cluster: Cluster::default(),
        }
    }
}

/// The bytes of a record.
pub(crate) fn encode(record: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(record).expect("writing to memory fails for no type of a record")
}

/// A record from its bytes; nothing where they are none.
pub(crate) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    postcard::from_bytes(bytes).ok()
}
