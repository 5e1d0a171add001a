//! Plan of a job: the command line with every default filled in.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hydrant_board::manage::Secret;
use hydrant_control::ExitCodeOf;
pub use hydrant_control::protocol::{Attribute, Program, RunSettings, SharedMemory, StdinTarget};
use hydrant_control::protocol::{AttributeOf, JobRecord};
use hydrant_core::Limit;
use hydrant_core::limits::DEBUGGED_ATTR;
use hydrant_core::peer::tree::RADIX_MIN;
pub use hydrant_iof::{LinePrefix, Prefix, Pty};
use hydrant_overlay::{BOOTSTRAP_TIMEOUT_DEFAULT, HEARTBEAT_DEFAULT, RADIX_MAX, radix_default};
use hydrant_placement::{
    Bootstrap, Deployment, Environment, JobMap, Location, NetworkTopology, Node, PlacementError,
    PlacementOptions, locate,
};
use hydrant_start::POOL_FD;

pub use crate::job_array::JobArray;

/// Most ranks on hosts that may join which tables are made for without `--limit`.
const RANKS_LATE_MAX: u32 = 1 << 14;
/// The same for jobs of a fleet, of which each takes 5 KiB at each node.
pub(crate) const JOBS_LATE_MAX: u32 = 1 << 10;

/// Job that is ready to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Programs in the order of the command line; at least one.
    pub programs: Vec<Program>,
    /// Settings of all nodes.
    pub settings: RunSettings,
    /// Options that concern the head alone.
    pub options: Options,
    /// How options of other launchers were read, for a user at a terminal.
    pub notes: Vec<String>,
}

impl Plan {
    /// Settings of a job.
    pub(crate) fn settings_of<'a>(&'a self, record: &'a JobRecord) -> &'a RunSettings {
        record.submitted.as_ref().map_or(&self.settings, |submitted| &submitted.settings)
    }

    /// A plan of these programs with the default options.
    pub fn new(programs: Vec<Program>) -> Plan {
        Plan { programs, settings: RunSettings::default(), options: Options::default(), notes: Vec::new() }
    }

    /// Number of ranks of all programs.
    pub fn size(&self) -> u32 {
        self.programs.iter().map(|program| program.ranks).sum()
    }

    /// Maximum number of children in the tree of daemons. The head has those of the start and those that join.
    pub fn radix(&self, deployment: &Deployment) -> u32 {
        let room = RADIX_MAX.saturating_sub(self.late(deployment)).max(RADIX_MIN);
        self.options.cluster.radix.unwrap_or(self.usual_radix(&deployment.bootstrap).min(room))
    }

    /// The same without hosts that join. In a run that goes on after failures a lost daemon takes those below it along, so that
    /// the widest tree loses least. Boards have few links.
    fn usual_radix(&self, bootstrap: &Bootstrap) -> u32 {
        let Cluster { radix, boards, .. } = &self.options.cluster;
        let goes_on = !self.settings.cleanup && !boards.are_any();
        radix.unwrap_or(if goes_on { RADIX_MAX } else { radix_default(bootstrap) })
    }

    /// Number of hosts that may join after the start: those that the run was given and others.
    pub(crate) fn late(&self, deployment: &Deployment) -> u32 {
        let (there, unused) = (deployment.job_map.nodes().len() as u32, deployment.unused.len() as u32);
        let others = |elastic: Elastic| elastic.most.saturating_sub(there + unused);
        unused + self.options.cluster.elastic.map_or(0, others)
    }

    /// Number of ranks that tables of servers are made for: those of the start, and with `--elastic` as many more on each host that
    /// may join as the largest host of the start has slots.
    pub(crate) fn ranks_expected(&self, job_map: &JobMap, late: u32) -> u32 {
        let slots = |node: &Node| node.host.ranks_per_turn().max(node.size());
        let largest = job_map.nodes().iter().map(slots).max().unwrap_or(0);
        let joining = if self.options.cluster.elastic.is_some() { late.saturating_mul(largest) } else { 0 };
        job_map.ranks().saturating_add(joining.min(RANKS_LATE_MAX))
    }

    /// Takes the hosts without ranks out of the job map whose daemons can be started when a spawn needs them. The tree of the
    /// others is the same with and without them.
    fn set_unused_aside(&self, deployment: &mut Deployment) {
        let Cluster { boards, preload, preload_files, elastic, radix, .. } = &self.options.cluster;
        let sends_files = preload.is_some() || !preload_files.is_empty();
        let (is_fleet, is_enrolled) = (self.options.fleet.is_some(), deployment.bootstrap == Bootstrap::Join);
        if is_fleet || is_enrolled || boards.are_any() || sends_files {
            return;
        }
        let hosts = deployment.job_map.nodes().len() as u32;
        let with_ranks = deployment.job_map.nodes().iter().filter(|node| node.size() > 0).count() as u32;
        // So many at least have a daemon from the start.
        let started = with_ranks.max(hosts.saturating_sub(RADIX_MAX - RADIX_MIN));
        let usual = self.usual_radix(&deployment.bootstrap);
        let children = radix.unwrap_or(usual.min(started)).max(RADIX_MIN);
        let room = RADIX_MAX.saturating_sub(children).saturating_sub(self.late(deployment));
        let least = elastic.map_or(0, |elastic| elastic.least);
        deployment.unused = deployment.job_map.take_unused(room.min(hosts.saturating_sub(least)) as usize);
    }

    /// Finds the hosts of the job and maps its ranks to them. Programs without a number of ranks get one. Adds the attributes of
    /// the network, of the memory pool and of a debugger that runs this process.
    ///
    /// # Errors
    /// Hosts cannot be read, are invalid, or take fewer ranks than the job has.
    pub fn locate(&mut self, environment: &Environment<'_>) -> Result<Location, PlacementError> {
        let mut ranks: Vec<u32> = self.programs.iter().map(|program| program.ranks).collect();
        let Cluster { placement, boards, .. } = &mut self.options.cluster;
        let (mut location, slots) = locate(placement, &mut ranks, environment)?;
        if location == Location::Local && boards.are_any() {
            // A board serves the ranks of a daemon.
            placement.bootstrap = Some(Bootstrap::Local);
            location = locate(placement, &mut ranks, environment)?.0;
        }
        for (program, ranks) in self.programs.iter_mut().zip(ranks) {
            program.ranks = ranks;
        }
        self.options.universe_size = match (self.options.universe_size, slots) {
            // More ranks than slots are in the universe as well.
            (UniverseSize::Slots, Some(slots)) => UniverseSize::Size(slots.max(self.size())),
            (UniverseSize::System, Some(slots)) => UniverseSize::Size(slots),
            (given, _) => given,
        };
        if let Location::Nodes(deployment) = &mut location {
            self.set_unused_aside(deployment);
        }
        let hosts: Vec<&str> = match &location {
            Location::Local => Vec::new(),
            Location::Nodes(Deployment { job_map, unused, .. }) => {
                let hosts = job_map.nodes().iter().map(|node| &node.host).chain(unused);
                hosts.map(|host| &*host.name).collect()
            }
        };
        let topology = self.options.topology.clone();
        let found = || (!hosts.is_empty()).then(|| NetworkTopology::of_environment(environment));
        if let Some(topology) = topology.or_else(found) {
            self.set_topology(&topology, &hosts, &environment.hostname)?;
        }
        self.add_pool_attributes();
        if crate::mpir::is_awaited() {
            let (of, name, value) = (AttributeOf::Job, DEBUGGED_ATTR.to_owned(), "TRUE".to_owned());
            self.settings.attributes.push(Attribute { of, name, value });
        }
        Ok(location)
    }

    /// Adds the attributes of the memory pool, by which ranks find it.
    pub(crate) fn add_pool_attributes(&mut self) {
        if self.settings.mem_pool.is_some() {
            let of_pool = [("memPoolType", "anonmmap".to_owned()), ("memAnonMMAPfd", POOL_FD.to_string())];
            let of_pool = of_pool.map(|(name, value)| (AttributeOf::Nodes, name.to_owned(), value));
            let of_pool = of_pool.map(|(of, name, value)| Attribute { of, name, value });
            self.settings.attributes.extend(of_pool);
        }
    }

    /// Adds the attributes of a network before those of the user. Without daemons the only node is node 0 on the host `here`,
    /// otherwise daemons have the numbers from 1 on.
    fn set_topology(
        &mut self,
        topology: &NetworkTopology,
        hosts: &[&str],
        here: &str,
    ) -> Result<(), PlacementError> {
        let numbers = if hosts.is_empty() { 0..=0 } else { 1..=hosts.len() as u32 };
        let coordinates =
            topology.coordinates(if hosts.is_empty() { std::slice::from_ref(&here) } else { hosts })?;
        let of_job = topology.job_attributes().into_iter();
        let of_job = of_job.map(|(name, value)| (AttributeOf::Job, name, value));
        let of_nodes = numbers.zip(coordinates);
        let of_nodes = of_nodes.map(|(node, value)| (AttributeOf::Node(node), "cartCoords", value));
        let all =
            of_job.chain(of_nodes).map(|(of, name, value)| Attribute { of, name: name.to_owned(), value });
        self.settings.attributes.splice(0..0, all.collect::<Vec<_>>());
        Ok(())
    }
}

/// Options of the whole job that concern the head alone. [`RunSettings`] are those that every node needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Text before each line of output.
    pub prefix: Prefix,
    /// Universe size (`MPI_UNIVERSE_SIZE`).
    pub universe_size: UniverseSize,
    /// Whether output streams of ranks are pseudo-terminals.
    pub pty: Pty,
    /// File name pattern for standard output: `%r` rank, `%g` job (0; spawned jobs count from 1), `%I` task of an array,
    /// `%h` host, `%p` pid, `%a` appnum, `%%` percent sign. Default: the launcher's standard output.
    pub outfile_pattern: Option<OsString>,
    /// The same for standard error.
    pub errfile_pattern: Option<OsString>,
    /// Output in files goes to the launcher's standard output and error too.
    pub copy_output: bool,
    /// Network between the hosts. Default: that of Slurm, or one switch.
    pub topology: Option<NetworkTopology>,
    /// Which failures of ranks give the exit code.
    pub exit_code_of: ExitCodeOf,
    /// Print the exit codes of all ranks at the end of each job.
    pub exit_report: bool,
    /// File for the result or the plan as JSON. `-` is standard output.
    pub json: Option<PathBuf>,
    /// Where the address of the server is written for tools of PMIx.
    pub report_uri: Option<UriTarget>,
    /// Time from the start of the command after which all jobs are ended.
    pub timeout: Option<Duration>,
    /// Print stack traces of the ranks on this host at the time limit.
    pub stack_traces: bool,
    /// Serve `PMI_PORT` clients at this address instead of handing each rank a connected socket.
    pub pmi_port: Option<SocketAddr>,
    /// Plugin that runs the PMI server in a sandbox. Default: the built-in server.
    pub sandbox: Option<Plugin>,
    /// What takes the place of a plugin that fails. Default: nothing, the run ends.
    pub spare: Option<Spare>,
    /// Socket of the name server. Default: this run stores its names itself.
    pub name_server: Option<PathBuf>,
    /// Recording of all inputs and outputs of the server, for `hydrant replay`.
    pub record: Option<PathBuf>,
    /// Print where the time of each job's start went.
    pub profile: bool,
    /// Capacities set by the user.
    pub limits: Vec<(Limit, u32)>,
    /// Board that serves the job. Default: the launcher.
    pub offload: Option<Offload>,
    /// Fleet that the job runs in. Default: hosts of its own.
    pub on: Option<OnFleet>,
    /// What a fleet is started with, which has no job.
    pub fleet: Option<FleetOptions>,
    /// Hosts, mapping and daemons.
    pub cluster: Cluster,
}

/// Fleet that a job runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnFleet {
    /// Its name.
    pub name: String,
    /// Whether the job waits for room.
    pub waits: bool,
    /// The program is run once for each task of an array. Default: one job.
    pub array: Option<JobArray>,
}

/// What a fleet is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetOptions {
    /// Its name.
    pub name: String,
    /// The command stays until the fleet has ended.
    pub foreground: bool,
    /// This process is the one that goes on without the terminal that the fleet was started from.
    pub detached: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            prefix: Prefix::default(),
            universe_size: UniverseSize::default(),
            pty: Pty::Auto,
            outfile_pattern: None,
            errfile_pattern: None,
            copy_output: false,
            topology: None,
            exit_code_of: ExitCodeOf::First,
            exit_report: false,
            json: None,
            report_uri: None,
            timeout: None,
            stack_traces: false,
            pmi_port: None,
            sandbox: None,
            spare: None,
            name_server: None,
            record: None,
            profile: false,
            limits: Vec::new(),
            offload: None,
            on: None,
            fleet: None,
            cluster: Cluster::default(),
        }
    }
}

/// Where the address of the server is written for tools of PMIx.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UriTarget {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, which is replaced.
    File(PathBuf),
}

impl fmt::Display for UriTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriTarget::Stdout => f.write_str("standard output"),
            UriTarget::Stderr => f.write_str("standard error"),
            UriTarget::File(path) => path.display().fmt(f),
        }
    }
}

/// Universe size: how many processes a run can have, for programs that spawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UniverseSize {
    /// Slots of the allocation or of the hosts that the user named. Without either it is not set.
    #[default]
    Slots,
    /// This number of processes.
    Size(u32),
    /// Slots as well. Without them, processors of this machine.
    System,
    /// Not set.
    Infinite,
}

impl UniverseSize {
    /// The number of processes that ranks are told, after [`Plan::locate`]. `None` if it is not set.
    pub fn known(self) -> Option<u32> {
        match self {
            UniverseSize::Size(size) => Some(size),
            UniverseSize::System => std::thread::available_parallelism()
                .ok()
                .and_then(|processors| processors.get().try_into().ok()),
            UniverseSize::Slots | UniverseSize::Infinite => None,
        }
    }
}

/// What takes the place of a plugin that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spare {
    /// The built-in server.
    Native,
}

/// How many hosts a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elastic {
    /// So many stay at least.
    pub least: u32,
    /// Most hosts that it has had.
    pub most: u32,
}

/// Where ranks run, and how daemons are started there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Hosts, mapping of ranks, and the method that starts daemons.
    pub placement: PlacementOptions,
    /// Program that replaces the `ssh` or `srun` in the `PATH`.
    pub bootstrap_exec: Option<PathBuf>,
    /// Arguments of that program behind its options.
    pub bootstrap_args: Vec<OsString>,
    /// Time for a daemon from its start until it has joined.
    pub bootstrap_timeout: Duration,
    /// Path of `hydrant` on the hosts. By default it is the path of this program.
    pub remote_hydrant: Option<OsString>,
    /// Network interface of the links between daemons, by its name or one of its addresses.
    pub iface: Option<String>,
    /// Maximum number of daemons below one daemon in the tree, if the user set it.
    pub radix: Option<u32>,
    /// Files of the job's programs that hosts receive.
    pub preload: Option<Preload>,
    /// Other files that hosts receive: paths in the working directory, which they have in the folder of the run too.
    pub preload_files: Vec<PathBuf>,
    /// Time without a message after which a link counts as closed.
    pub heartbeat: Duration,
    /// Print the plan and start nothing.
    pub dry_run: bool,
    /// Boards that serve the ranks of hosts.
    pub boards: Boards,
    /// How many hosts the run may have, if hosts may join and leave while it runs.
    pub elastic: Option<Elastic>,
    /// Hosts that join by themselves, if the run waits for such.
    pub join: Option<JoinedHosts>,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            placement: PlacementOptions::default(),
            bootstrap_exec: None,
            bootstrap_args: Vec::new(),
            bootstrap_timeout: BOOTSTRAP_TIMEOUT_DEFAULT,
            remote_hydrant: None,
            iface: None,
            radix: None,
            preload: None,
            preload_files: Vec::new(),
            heartbeat: HEARTBEAT_DEFAULT,
            dry_run: false,
            boards: Boards::default(),
            elastic: None,
            join: None,
        }
    }
}

/// Files that hosts receive from the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preload {
    /// Program files, unless the host has the same.
    Programs,
    /// Program files and the libraries that they need, without those of glibc. Hosts use no files of their own.
    Libraries,
}

/// Hosts that join a run by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedHosts {
    /// Number of hosts. Without it, as many as have slots for all ranks.
    pub hosts: Option<u32>,
    /// Port at which the head listens for them. Default: any free one.
    pub port: Option<u16>,
    /// Secret of the hosts.
    pub secret: JoinSecret,
    /// Whether the hosts come with their programs. The only program of the plan then has no command.
    pub with_programs: bool,
}

/// Secret of hosts that join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JoinSecret {
    /// All have the same.
    One(Secret),
    /// A folder with a file for each, named by its index.
    Folder(PathBuf),
}

/// Boards that serve the ranks of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boards {
    /// Management port of the boards of all hosts, with `%h` for the host.
    pub pattern: Option<String>,
    /// Boards of single hosts.
    pub hosts: Vec<BoardOf>,
    /// Secret that the boards have too.
    pub secret: Option<Secret>,
}

/// Board of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardOf {
    /// The host.
    pub host: String,
    /// Management port of its board. None if it has no board.
    pub target: Option<String>,
    /// Management port of its board for other boards, if they reach it at another address than the host does.
    pub link_addr: Option<SocketAddr>,
}

impl Boards {
    /// Returns whether hosts may have boards.
    pub fn are_any(&self) -> bool {
        self.pattern.is_some() || !self.hosts.is_empty()
    }

    /// The management port of a host's board.
    pub fn of_host(&self, host: &str) -> Option<String> {
        match self.named(host) {
            Some(board) => board.target.clone(),
            None => self.pattern.as_deref().map(|pattern| Boards::fill(pattern, host)),
        }
    }

    /// The management port of a host's board for other boards, if it is another one.
    pub fn link_addr(&self, host: &str) -> Option<SocketAddr> {
        self.named(host)?.link_addr
    }

    fn named(&self, host: &str) -> Option<&BoardOf> {
        self.hosts.iter().rev().find(|board| board.host == host)
    }

    /// Replaces `%h` by the host and `%%` by a percent sign.
    pub fn fill(pattern: &str, host: &str) -> String {
        let parts: Vec<String> = pattern.split("%%").map(|part| part.replace("%h", host)).collect();
        parts.join("%")
    }
}

/// Board that serves a job whose processes run on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offload {
    /// Management port, as `HOST:PORT` or `HOST`.
    pub target: String,
    /// Secret that the board has too. None for a board without one.
    pub secret: Option<Secret>,
    /// Ports for the ranks, round robin. If empty, the port that the board reports.
    pub ports: Vec<u16>,
    /// Print the board's counters at the end.
    pub summary: bool,
}

/// Plugin of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Installed `hydrant.wasm`: in the directory of the command or in `../lib` from there.
    Installed,
    /// This file.
    File(PathBuf),
}
