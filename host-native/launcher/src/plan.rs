//! What is to be run: the command line with every default filled in. Nothing here touches the system.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_core::Limit;

/// Variables that the launcher sets itself and nobody else may.
pub(crate) const OWN_VARIABLES: [&str; 11] = [
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
}

/// One program of a job. Its position in [`Plan::programs`] is its `appnum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// How many ranks run it; at least one.
    pub ranks: u32,
    /// The program as it was named: a path when it holds a slash, else looked up in `PATH`.
    pub command: OsString,
    /// Its arguments, without its name.
    pub args: Vec<OsString>,
    /// Its whole environment, free of foreign PMI variables, without what the launcher adds for each rank.
    pub env: Vec<(OsString, OsString)>,
    /// The directory it starts in; the launcher's own when missing.
    pub wdir: Option<PathBuf>,
    /// Directories, separated by colons, where the command is looked up before the `PATH`.
    pub path: Option<OsString>,
    /// Process sets that its ranks are in, beside those that every program has. A name that stands at adjacent
    /// programs is one set.
    pub psets: Vec<String>,
}

/// What holds for the whole job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Start each line of output with `[rank] `.
    pub prepend_rank: bool,
    /// `universeSize`, where the user named it.
    pub universe: Option<u32>,
    /// File name pattern for standard output instead of the launcher's own; `%r` rank, `%g` job (0, and from 1 those
    /// that are spawned), `%h` host, `%p` pid, `%a` appnum, `%%` a percent sign.
    pub outfile_pattern: Option<String>,
    /// The same for standard error.
    pub errfile_pattern: Option<String>,
    /// Which processors each rank may use.
    pub bind: Bind,
    /// Whether a rank that fails ends the job.
    pub cleanup: bool,
    /// Report what is done, on standard error.
    pub verbose: bool,
    /// Serve `PMI_PORT` clients at this address instead of handing each rank a connected socket.
    pub pmi_port: Option<SocketAddr>,
    /// Show process sets to MPI programs: have ranks load `libhydrant_mpi.so` and answer what it asks.
    pub mpi_psets: bool,
    /// After which a waiting fence names the ranks that it waits for; zero for never.
    pub fence_warning: Duration,
    /// How long a look-up waits for a name that nobody has published yet.
    pub lookup_wait: Duration,
    /// The subversion of PMI-1 that is answered: 2 offers group barriers, 1 suits clients that insist on 1.1.
    pub pmi1_subversion: u32,
    /// The socket of the daemon that keeps the names of several runs; where missing, this run keeps its own.
    pub name_service: Option<PathBuf>,
    /// Limits that the user set by name.
    pub limits: Vec<(Limit, u32)>,
}

/// Which processors each rank may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// All that the launcher may use.
    #[default]
    None,
    /// One core a rank, round robin, with all hardware threads of that core.
    Core,
    /// One hardware thread a rank, round robin.
    Hwthread,
    /// These processor numbers, one set a rank, round robin: `user:0+2,1+3` gives rank 0 processors 0 and 2.
    User(Vec<Vec<u32>>),
}
