//! What is to be run: the command line with every default filled in. Nothing here touches the system.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_core::Limit;
use serde::{Deserialize, Serialize};

use crate::cluster::Hosts;

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
}

/// One program of a job. Its position in [`Plan::programs`] is its `appnum`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(with = "crate::cluster::control::path")]
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
    pub universe_size: Option<u32>,
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

/// Where ranks run, and how daemons come to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Who names the hosts.
    pub hosts: HostSource,
    /// Ranks that a host takes in one turn, instead of as many as it has slots.
    pub ppn: Option<u32>,
    /// How ranks are dealt out to hosts.
    pub map_by: By,
    /// Programs, by their `appnum`, that as many ranks run as all hosts take in one turn. Without hosts it is as many as
    /// each of them says.
    pub fill: Vec<u32>,
    /// In which order they are numbered; where missing, in that in which they were dealt.
    pub rank_by: Option<By>,
    /// What starts a daemon on a host; where missing, what suits the batch system.
    pub bootstrap: Option<Bootstrap>,
    /// The program that is started instead of the `ssh` or `srun` in the `PATH`.
    pub bootstrap_exec: Option<PathBuf>,
    /// How long a daemon may take from its start until it has joined.
    pub bootstrap_timeout: Duration,
    /// Where `hydrant` is on the hosts; where it is here, when missing.
    pub remote_hydrant: Option<OsString>,
    /// The network interface, by its name or one of its addresses, that links between daemons use.
    pub iface: Option<String>,
    /// The most daemons that one starts and holds links to, beside its own parent.
    pub radix: u32,
    /// A link that says nothing for so long is dead.
    pub heartbeat: Duration,
    /// Print the plan and start nothing.
    pub dry_run: bool,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            hosts: HostSource::Found,
            ppn: None,
            map_by: By::Slot,
            fill: Vec::new(),
            rank_by: None,
            bootstrap: None,
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

/// With 16, two levels of daemons reach 272 hosts and three reach 4,368. Each level costs a fence one hop each way;
/// each child costs a daemon one more copy of everybody's data to send, and one more process while it starts.
pub const RADIX_DEFAULT: u32 = 16;
/// The largest radix.
pub const RADIX_MAX: u32 = 32;
/// How long a link may say nothing.
pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(30);
/// How long a daemon may take to join: as long as an ssh that asks slow name servers, or an srun that waits its turn.
pub const BOOTSTRAP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);

/// Who names the hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSource {
    /// The batch system, in one of its jobs; otherwise there is this machine only.
    #[default]
    Found,
    /// The command line.
    List(Hosts),
    /// A file, of hydra's form or Open MPI's.
    File(PathBuf),
}

/// What is done by turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A host's slots together, then the next host.
    #[default]
    Slot,
    /// One rank a host, round and round.
    Node,
}

/// What starts a daemon on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bootstrap {
    /// `ssh`.
    Ssh,
    /// Slurm's `srun`, as a step of the job that this process is part of.
    Srun,
    /// Grid Engine's `qrsh -inherit`, as a task of the job that this process is part of.
    Qrsh,
    /// The user's own command: `{host}` in its words is the host's name, `{args}` is what to run there.
    Exec(Vec<OsString>),
    /// Nothing: all daemons run on this machine, and the hosts' names are labels.
    Local,
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

/// Which processors each rank may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
