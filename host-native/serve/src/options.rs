//! Options of the servers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use hydrant_board::manage::Secret;
use hydrant_core::limits::SPAWN_BYTES_MIN;
use hydrant_core::{Limit, Limits};
use hydrant_placement::NodeGrouping;

use crate::network::Network;

/// Capacity for ranks of a management server. Another 1,024 ranks with few keys fit too.
const RANKS: u32 = 1024;

/// Source of the jobs that a server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobSource {
    /// The options describe each job. Another launcher starts its ranks.
    Described {
        /// Number of ranks of each job.
        size: u32,
    },
    /// Hosts open jobs over the management protocol and start their ranks.
    Managed {
        /// Address of the management port.
        addr: SocketAddr,
    },
}

/// Options of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Source of the jobs.
    pub source: JobSource,
    /// Secret that hosts of a management server need. None accepts every host.
    pub secret: Option<Secret>,
    /// Time without progress after which the host of a node is given up that does not read, or does not acknowledge, what the
    /// node sends.
    pub heartbeat: Duration,
    /// Path of recordings of the jobs, without their numbers. None for no recordings.
    pub record: Option<PathBuf>,
    /// Capacities that replace the defaults.
    pub limit: Vec<(Limit, u32)>,
    /// Write progress to the log.
    pub verbose: bool,
    /// Attributes of the served jobs.
    pub job: JobOptions,
}

/// Attributes of served jobs and restrictions for their ranks. With a management server only `pmi_port` and `allow` apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOptions {
    /// Address for the connections of ranks. Port 0 selects a free port.
    pub pmi_port: SocketAddr,
    /// Networks of accepted clients. Empty for all.
    pub allow: Vec<Network>,
    /// Number of jobs to serve one after the other. 0 for no limit.
    pub jobs: u32,
    /// Grouping of ranks into nodes.
    pub map: NodeGrouping,
    /// Number of ranks of each program. Empty for one program.
    pub programs: Vec<u32>,
    /// Process sets.
    pub pset: Vec<Pset>,
    /// Job id. None for a unique one.
    pub jobid: Option<String>,
    /// Universe size. None if it is not known.
    pub usize: Option<u32>,
    /// Time for all ranks to connect. Zero for no timeout.
    pub join_timeout: Duration,
    /// Time after which a fence is reported as stalled. Zero for never.
    pub fence_warning: Duration,
    /// Time that a look-up waits for a name.
    pub lookup_wait: Duration,
    /// PMI-1 subversion: 1 or 2.
    pub pmi1_version: u32,
}

impl Default for JobOptions {
    /// Returns the defaults of `hydrant serve`: one job on a free port of the loopback interface, each rank alone on its node.
    fn default() -> JobOptions {
        JobOptions {
            pmi_port: (Ipv4Addr::LOCALHOST, 0).into(),
            allow: Vec::new(),
            jobs: 1,
            map: NodeGrouping::Apart,
            programs: Vec::new(),
            pset: Vec::new(),
            jobid: None,
            usize: None,
            join_timeout: Duration::ZERO,
            fence_warning: Duration::from_secs(30),
            lookup_wait: Duration::ZERO,
            pmi1_version: 2,
        }
    }
}

/// A process set of consecutive ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pset {
    /// The set's name.
    pub name: String,
    /// First rank.
    pub first: u32,
    /// Number of ranks.
    pub count: u32,
}

impl Options {
    /// Options with the defaults of `hydrant serve`.
    pub fn new(source: JobSource) -> Options {
        Options {
            source,
            secret: None,
            heartbeat: Duration::from_secs(30),
            record: None,
            limit: Vec::new(),
            verbose: false,
            job: JobOptions::default(),
        }
    }

    /// Capacities of a management server.
    pub(crate) fn limits_managed(&self) -> Limits {
        self.replaced(Limits::for_ranks(RANKS))
    }

    /// Capacities for one job of `size` ranks.
    pub(crate) fn limits(&self, size: u32) -> Limits {
        let mut limits =
            Limits { jobs: 1, ranks: size, conns: size.saturating_add(64), ..Limits::for_ranks(size) };
        limits.psets = limits.psets.saturating_add((self.job.programs.len() + self.job.pset.len()) as u32);
        let mut limits = self.replaced(limits);
        // No processes are spawned.
        limits.spawn_bytes = limits.spawn_bytes.min(SPAWN_BYTES_MIN - 1);
        // PMIx clients learn from the server which ranks share their node, and would learn that all do.
        if self.job.map != NodeGrouping::Together {
            limits.commit_bytes = 0;
        }
        limits
    }

    /// Replaces capacities by those of the command line.
    fn replaced(&self, mut limits: Limits) -> Limits {
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        limits
    }
}
