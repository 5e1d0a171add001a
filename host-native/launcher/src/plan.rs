//! Plan of a job: the command line with every default filled in.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use hydrant_control::protocol::Program;
use hydrant_core::Limit;
use hydrant_overlay::{BOOTSTRAP_TIMEOUT_DEFAULT, HEARTBEAT_DEFAULT, RADIX_DEFAULT};
use hydrant_placement::{CpuBinding, Environment, Location, PlacementError, PlacementOptions, locate};

/// Variables that the launcher sets itself and nobody else may.
pub(crate) const OWN_VARIABLES: [&str; 12] = [
    "PMI_FD",
    "PMI_PORT",
    "PMI_ID",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_SPAWNED",
    "PMI_JOBID",
    "PMI_HOSTNAME",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "HYDRANT_QUERY",
    "HYDRANT_KVS",
];

/// A job that is ready to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The programs in the order of the command line; at least one.
    pub programs: Vec<Program>,
    /// What holds for the whole job.
    pub options: Options,
}

impl Plan {
    /// The number of ranks of all programs.
    pub fn size(&self) -> u32 {
        self.programs.iter().map(|program| program.ranks).sum()
    }

    /// Finds the hosts of the job and maps its ranks to them. Programs without a number of ranks get one.
    ///
    /// # Errors
    /// Hosts cannot be read, are invalid, or take fewer ranks than the job has.
    pub fn locate(&mut self, environment: &Environment<'_>) -> Result<Location, PlacementError> {
        let mut ranks: Vec<u32> = self.programs.iter().map(|program| program.ranks).collect();
        let location = locate(&self.options.cluster.placement, &mut ranks, environment)?;
        for (program, ranks) in self.programs.iter_mut().zip(ranks) {
            program.ranks = ranks;
        }
        Ok(location)
    }
}

/// What holds for the whole job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Start each line of output with `[rank] `.
    pub prepend_rank: bool,
    /// `universeSize`, where the user named it.
    pub universe_size: Option<u32>,
    /// File name pattern for standard output instead of the launcher's own; `%r` rank, `%g` job (0, and from 1 those
    /// that are spawned), `%h` host, `%p` pid, `%a` appnum, `%%` a percent sign.
    pub outfile_pattern: Option<String>,
    /// The same for standard error.
    pub errfile_pattern: Option<String>,
    /// Which processors each rank may use.
    pub bind: CpuBinding,
    /// Whether a rank that fails ends the job.
    pub cleanup: bool,
    /// Report what is done, on standard error.
    pub verbose: bool,
    /// Serve `PMI_PORT` clients at this address instead of handing each rank a connected socket.
    pub pmi_port: Option<SocketAddr>,
    /// Show process sets to MPI programs: have ranks load `libhydrant_mpi.so` and answer what it asks.
    pub mpi_psets: bool,
    /// Run the protocol core in a sandbox, as this plugin; in the launcher itself where missing.
    pub sandbox: Option<Plugin>,
    /// After which a waiting fence names the ranks that it waits for; zero for never.
    pub fence_warning: Duration,
    /// How long a look-up waits for a name that nobody has published yet.
    pub lookup_wait: Duration,
    /// The subversion of PMI-1 that is answered: 2 offers group barriers, 1 suits clients that insist on 1.1.
    pub pmi1_subversion: u32,
    /// The socket of the daemon that keeps the names of several runs; where missing, this run keeps its own.
    pub name_server: Option<PathBuf>,
    /// The file that everything is written to which the core is told and says, for `hydrant replay`.
    pub record: Option<PathBuf>,
    /// Limits that the user set by name.
    pub limits: Vec<(Limit, u32)>,
    /// The board that serves the job; where missing, the launcher does.
    pub offload: Option<Offload>,
    /// Where ranks run.
    pub cluster: Cluster,
}

/// Where ranks run, and how daemons are started there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Hosts, mapping of ranks, and the method that starts daemons.
    pub placement: PlacementOptions,
    /// Program that replaces the `ssh` or `srun` in the `PATH`.
    pub bootstrap_exec: Option<PathBuf>,
    /// Time for a daemon from its start until it has joined.
    pub bootstrap_timeout: Duration,
    /// Path of `hydrant` on the hosts. By default it is the path of this program.
    pub remote_hydrant: Option<OsString>,
    /// Network interface of the links between daemons, by its name or one of its addresses.
    pub iface: Option<String>,
    /// Maximum number of daemons that one daemon starts and holds links to, without its parent.
    pub radix: u32,
    /// Time without a message after which a link counts as closed.
    pub heartbeat: Duration,
    /// Print the plan and start nothing.
    pub dry_run: bool,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            placement: PlacementOptions::default(),
            bootstrap_exec: None,
            bootstrap_timeout: BOOTSTRAP_TIMEOUT_DEFAULT,
            remote_hydrant: None,
            iface: None,
            radix: RADIX_DEFAULT,
            heartbeat: HEARTBEAT_DEFAULT,
            dry_run: false,
        }
    }
}

/// A board that serves a job whose processes run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Its management port, as `HOST:PORT` or `HOST`.
    pub target: String,
    /// The ports that ranks connect to, one after the other; the one that the board names where this is empty.
    pub ports: Vec<u16>,
    /// Say at the end what the board counted.
    pub summary: bool,
}

/// Which plugin a sandbox runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// `hydrant.wasm` where it is installed: beside the command, or in the `lib` beside the command's folder.
    Installed,
    /// This file.
    File(PathBuf),
}
