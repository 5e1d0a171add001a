//! Options of a job, declared once for the parser, the help and the man pages.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use hydrant_core::Limit;
use hydrant_core::server::FenceMode;
use hydrant_placement::{CpuBinding, Hosts, MemoryBinding, NetworkTopology};
use hydrant_run::plan::{
    Attribute, JobArray, Plugin, Pty, SharedMemory, Spare, StdinTarget, UniverseSize, UriTarget,
};

use super::hosts::HostArgs;
use crate::value::{self, Assignment, Timeout, timeout};
use hydrant_control::ExitCodeOf;

const OUTPUT: &str = "Job options: output";
const PROCESSES: &str = "Job options: processes";
const SERVER: &str = "Job options: PMI server";
const FLEET: &str = "Job options: fleet";

/// Options of the whole job.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job options: environment")]
pub(super) struct JobArgs {
    /// Set an environment variable for all ranks
    ///
    /// `NAME=VALUE` as one argument is accepted too. If a name is given twice, the last value is used.
    #[arg(long, value_name = "NAME VALUE", value_parser = value::assignment(), action = ArgAction::Append)]
    pub(super) genv: Vec<Assignment>,

    /// Inherit only these environment variables
    ///
    /// Names are separated by commas. The option may be repeated. Variables that are not set are ignored.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(value_parser = value::variable_name(), overrides_with_all = ["genvnone", "genvall"])]
    pub(super) genvlist: Vec<OsString>,

    /// Inherit no environment variables
    ///
    /// Variables set with --genv and --env are passed on. The last of --genvall, --genvlist and --genvnone is used.
    #[arg(long, overrides_with_all = ["genvlist", "genvall"])]
    pub(super) genvnone: bool,

    /// Inherit all environment variables (default)
    #[arg(long, overrides_with_all = ["genvlist", "genvnone"])]
    pub(super) genvall: bool,

    /// Prefix each line of output with the rank that wrote it, as `[3] `
    ///
    /// Lines of the first spawned job have the prefix `[1:3] `, those of the second `[2:3] `. With --array the number of the task
    /// is in front: `[7.3] `.
    #[arg(short = 'l', long, help_heading = OUTPUT)]
    pub(super) prepend_rank: bool,

    /// Prefix each line of output with a text of this form
    ///
    /// %r stands for the rank, %g for the number of the job (0; spawned jobs count from 1), %I for the number of the task
    /// (--array), %h for the host and %% for a percent sign.
    #[arg(long, value_name = "PATTERN", value_parser = value::prefix_pattern, overrides_with = "prepend_rank")]
    #[arg(help_heading = OUTPUT)]
    pub(super) prepend_pattern: Option<String>,

    /// Prefix each line of output with the time, in UTC with milliseconds
    #[arg(long, help_heading = OUTPUT)]
    pub(super) prepend_timestamp: bool,

    /// Output streams of ranks that are pseudo-terminals: those that go to a terminal (auto), all, or none
    ///
    /// A program writes to a terminal line by line, and to a pipe or file when its buffer is full. A pseudo-terminal has the
    /// size of the window. Standard input is not affected.
    #[arg(long, value_name = "WHEN", value_parser = value::pty(), default_value = "auto", help_heading = OUTPUT)]
    pub(super) pty: Pty,

    /// Write the standard output of each rank to a file
    ///
    /// PATTERN is the file name. %r stands for the rank, %p for the process id, %h for the host, %a for the number of the
    /// program (from 0), %g for the number of the job (0; spawned jobs count from 1), %I for the number of the task (--array)
    /// and %% for a percent sign. Existing files are replaced, and missing directories are made. Ranks with the same file name
    /// share the file.
    #[arg(long, value_name = "PATTERN", value_parser = value::pattern(), help_heading = OUTPUT)]
    pub(super) outfile_pattern: Option<OsString>,

    /// Write the standard error of each rank to a file
    ///
    /// PATTERN is that of --outfile-pattern.
    #[arg(long, value_name = "PATTERN", value_parser = value::pattern(), help_heading = OUTPUT)]
    pub(super) errfile_pattern: Option<OsString>,

    /// Make the standard error of each rank its standard output
    ///
    /// Lines keep the order in which the rank writes them. --errfile-pattern has no effect.
    #[arg(long, help_heading = OUTPUT)]
    pub(super) merge_stderr_to_stdout: bool,

    /// Print output that goes to files, too
    #[arg(long, help_heading = OUTPUT)]
    pub(super) copy_output: bool,

    /// Ranks that read standard input: all, none, one rank, or what PMIx tools push: tools
    ///
    /// By default rank 0 inherits it, and the other ranks have none. With `all` each rank gets every byte. The input waits for
    /// a rank that is 256 KiB behind, unless the rank closes its input or ends. Such ranks are named after --fence-warning.
    /// With `none` hydrant leaves its input unread, for the next command of a script. With `tools` it does so, and all ranks read
    /// what tools of PMIx push to them. Ranks of spawned jobs have no input.
    #[arg(short = 's', long, value_name = "WHICH", value_parser = value::stdin_target, default_value = "0")]
    #[arg(help_heading = PROCESSES)]
    pub(super) stdin: StdinTarget,

    /// Bind ranks to processors: none, hwthread, core, l3, numa, socket, machine, rr or user:CPUS
    ///
    /// Ranks of a host get one object each, round robin, in the order of the machine. `core:4` gives each rank four cores.
    /// l1 and l2 are caches, as l3. `rr` is one processor a rank by the kernel's numbers. `user:0+2,4-5` lists processors: + joins
    /// processors of one rank, a comma separates ranks. See -map-by, and "Binding" below. OMP_NUM_THREADS is not changed.
    #[arg(long, value_name = "HOW", value_parser = str::parse::<CpuBinding>, help_heading = PROCESSES)]
    pub(super) bind_to: Option<CpuBinding>,

    /// Bind each rank to N cores, as -bind-to core:N
    ///
    /// With -bind-to hwthread it is N hardware threads. The cores of a rank are in one socket while a socket has room.
    #[arg(long, value_name = "N", value_parser = value::within(1..=65_536), help_heading = PROCESSES)]
    #[arg(visible_alias = "cpus-per-task")]
    pub(super) cpus_per_rank: Option<u32>,

    /// Take the memory of ranks from NUMA nodes: none, local, bind:NODES or interleave[:NODES]
    ///
    /// `local` is the nodes of the rank's processors only, `bind:0,1` these nodes only. `interleave` takes pages from nodes in
    /// turn, by default from those of the rank's processors.
    #[arg(long, value_name = "HOW", value_parser = str::parse::<MemoryBinding>, default_value = "none")]
    #[arg(help_heading = PROCESSES)]
    pub(super) membind: MemoryBinding,

    /// Print the processors and the memory that each rank is bound to
    #[arg(long, help_heading = PROCESSES)]
    pub(super) report_bindings: bool,

    /// Give each rank N GPUs of its host
    ///
    /// Sets CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES and ZE_AFFINITY_MASK. The first rank of a host gets GPUs 0 to N-1, the next
    /// rank those after them. If a variable is set already, ranks get parts of its list. The job is refused if a host has too
    /// few GPUs, as far as the number is known: devices of NVIDIA and AMD, and tiles of Intel.
    #[arg(long, value_name = "N", value_parser = value::within(1..=1024), help_heading = PROCESSES)]
    #[arg(visible_alias = "gpus-per-task")]
    pub(super) gpus_per_rank: Option<u32>,

    /// Ask the MPI library to support these kinds of memory: system,cuda,rocm
    ///
    /// MPICH 5 reads them as PMI_mpi_memory_alloc_kinds. MPI_Session_get_info shows those that are supported.
    #[arg(long, value_name = "KINDS", value_parser = value::memory_alloc_kinds, help_heading = PROCESSES)]
    pub(super) memory_alloc_kinds: Option<String>,

    /// Memory that the ranks of a host share: a number of bytes, or 64K, 512M, 2G
    ///
    /// Each job has a pool on each host, of zeros and of fixed size. Ranks inherit its descriptor, whose number is the attribute
    /// memAnonMMAPfd of pmi2.h, and map it; memPoolType is anonmmap. Pages take memory when they are written.
    #[arg(long, value_name = "SIZE", value_parser = value::bytes, help_heading = PROCESSES)]
    pub(super) mem_pool: Option<u64>,

    /// Memory that MPI libraries share between ranks of a host, for ranks in containers: all, segments or none
    ///
    /// `segments` is for ranks in user or PID namespaces of their own with the same /dev/shm: they share segments, and do not read
    /// each other's memory. `none` is for ranks with a /dev/shm of their own: each counts as on a node of its own. Sets
    /// PMI_process_mapping and variables of MPICH, Open MPI and UCX, unless a program has them. See docs/containers.md.
    #[arg(long, value_name = "WAYS", value_parser = value::shared_memory, default_value = "all", help_heading = PROCESSES)]
    pub(super) shared_memory: SharedMemory,

    /// Universe size (MPI_UNIVERSE_SIZE): a number of processes, SYSTEM (slots of the hosts, or processors of this machine) or
    /// INFINITE (unset); default: slots of the allocation or host list, else unset
    #[arg(long, value_name = "N", value_parser = value::universe_size, help_heading = PROCESSES)]
    pub(super) usize: Option<UniverseSize>,

    /// Read the programs from a file, one per line
    ///
    /// A line has the form of the command line: options, program, arguments. Quotes and backslashes work as in a shell, # starts
    /// a comment, a backslash at the end continues the line, a colon there changes nothing. Job options may precede --configfile
    /// or stand on the file's first line. No program may be given on the command line.
    #[arg(long, value_name = "FILE", help_heading = PROCESSES)]
    pub(super) configfile: Option<PathBuf>,

    /// End the run after this time, and name the ranks that were running
    ///
    /// The time starts with hydrant. Fractions are allowed. The exit code is 124. The variable MPIEXEC_TIMEOUT has the same
    /// effect.
    #[arg(long, value_name = "SECONDS", value_parser = timeout, help_heading = PROCESSES)]
    pub(super) timeout: Option<Timeout>,

    /// Time in seconds that processes that ranks leave behind have to end, after the last byte of their output
    ///
    /// A tee or gzip that copies a rank's output ends later than the rank. When the ranks of a job have ended, hydrant reads
    /// their output to its end and waits for such processes, also when the job has failed. Those that are left after this
    /// time are named and get SIGTERM, then SIGKILL. Fractions are allowed, and unlimited.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds_or_unlimited, default_value = "5", help_heading = PROCESSES)]
    pub(super) drain: Duration,

    /// Time in seconds between SIGTERM and SIGKILL
    ///
    /// By default ranks of a job that hydrant ends have half a second. After a signal of the user hydrant waits without end
    /// for ranks that ignore it, and names them; a second SIGTERM or Ctrl-C kills them. Fractions are allowed, and unlimited.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds_or_unlimited, help_heading = PROCESSES)]
    pub(super) kill_grace: Option<Duration>,

    /// Print stack traces of the ranks on this host when the time limit is reached
    ///
    /// gdb, eu-stack or gstack takes them, the first that is installed. The ranks run on meanwhile, for 30 s at most.
    #[arg(long, help_heading = PROCESSES)]
    pub(super) get_stack_traces: bool,

    /// Keep the job running when a rank fails
    ///
    /// By default the job is killed when a rank exits with an error, is killed by a signal, or exits without finalizing.
    #[arg(long, help_heading = PROCESSES)]
    pub(super) disable_auto_cleanup: bool,

    /// Failures that give the exit code of a job that keeps running: the first, or those of ranks that were not killed by a
    /// signal (survivors)
    ///
    /// With `survivors` the exit code is 0 if some ranks were killed by a signal and all others exit with 0. If no rank exits
    /// with 0, the first death counts. --with-ft, --enable-recovery and --continuous of Open MPI include it: give another
    /// value behind them.
    #[arg(long, value_name = "WHICH", value_parser = value::exit_code, default_value = "first", help_heading = PROCESSES)]
    pub(super) exit_code: ExitCodeOf,

    /// Serve PMI over TCP instead of inherited sockets
    ///
    /// The environment of ranks has PMI_PORT and PMI_ID instead of PMI_FD. Port 0 selects a free port. At a loopback address
    /// only processes of the same user are accepted. At any other address every process that can reach it is accepted. On
    /// several hosts no address may be given: each daemon uses a free port of its loopback interface.
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::pmi_address, help_heading = SERVER)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = value::PMI_PORT_DEFAULT)]
    pub(super) pmi_port: Option<SocketAddr>,

    /// Make process sets visible to unmodified MPI programs
    ///
    /// Ranks preload libhydrant_mpi.so, which adds hydrant's sets to MPI_Session_get_num_psets and related calls. The MPI
    /// library must be MPICH 5, another library with MPICH's ABI, or one with the standard MPI ABI.
    #[arg(long, help_heading = SERVER)]
    pub(super) mpi_psets: bool,

    /// Set an attribute of the job, which ranks read with PMI2_Info_GetJobAttr
    ///
    /// The name has at most 64 bytes, the value 1024. PMI-1 clients get it as a key. Jobs that ranks spawn have it too. The option
    /// may be repeated; of one name the last value is used. An attribute that the server provides takes this value, but for
    /// those of the job itself, such as PMI_process_mapping.
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::job_attribute, action = ArgAction::Append)]
    #[arg(help_heading = SERVER)]
    pub(super) job_attr: Vec<Attribute>,

    /// Set an attribute of every node, which ranks read with PMI2_Info_GetNodeAttr
    ///
    /// As --job-attr. A rank can put another value, which only its node then has.
    #[arg(long, value_name = "NAME=VALUE", value_parser = value::node_attribute, action = ArgAction::Append)]
    #[arg(help_heading = SERVER)]
    pub(super) node_attr: Vec<Attribute>,

    /// Network between the hosts: complete, cart:4x4x2, hypercube, kautz or file:PATH
    ///
    /// Ranks read it as the attributes physTopology, physTopologyLevels, cartDims and cartCoords of pmi2.h. The hosts have the
    /// coordinates of a Cartesian network in their order: the last coordinate counts fastest. A file names the levels from the
    /// top, the dimensions, and the coordinates of each host, in lines such as 'levels cartesian,complete', 'dims 4x4x2' and
    /// 'n1 0,3,1'. Default on several hosts: the levels in Slurm's SLURM_TOPOLOGY_ADDR_PATTERN, or one complete network.
    #[arg(long, value_name = "NETWORK", value_parser = str::parse::<NetworkTopology>, help_heading = SERVER)]
    pub(super) topology: Option<NetworkTopology>,

    /// Run the PMI server in a WebAssembly sandbox
    ///
    /// FILE is the plugin. Default: the file in the variable HYDRANT_WASM, or hydrant.wasm in the directory of hydrant or in
    /// ../lib from there. Daemons on other hosts receive a copy. The plugin cannot open files or connections, its memory and
    /// run time are limited, and its output is validated. Compiled code is cached in the user's cache directory of each host.
    #[arg(long, value_name = "FILE", value_parser = value::plugin(), help_heading = SERVER)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) sandbox: Option<Plugin>,

    /// Go on with the built-in server when the plugin of --sandbox or a board of --offload fails
    ///
    /// Each host has a spare, the built-in server, and a journal of what its plugin or board has taken and answered. When the
    /// plugin traps, exceeds its time or breaks a rule, the spare repeats the journal and takes its place: ranks do not notice.
    /// So it does when the board dies, does not answer for 5 s or half of --heartbeat, or breaks a rule. One whose answers
    /// differ from those of the spare cannot be replaced, and the run ends as without a spare. Ranks do not connect to boards
    /// that have spares: each request goes through their host and takes one round trip more.
    #[arg(long, value_name = "SERVER", value_parser = value::spare(), help_heading = SERVER)]
    pub(super) spare: Option<Spare>,

    /// Report a fence that waits longer than this many seconds
    ///
    /// The warning names the missing ranks. MPI_Init and PMI barriers wait in fences. Fractions are allowed; 0 disables the
    /// warning.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "30", help_heading = SERVER)]
    pub(super) fence_warning: Duration,

    /// Key-value pairs that travel with a fence between hosts: all (collect), those that a host has asked for (lazy), or by
    /// the number of hosts (auto)
    ///
    /// With `lazy` a get of a value that is not on the host yet waits for the host of the rank that put it. PMI-2 clients name
    /// the rank (src_pmi_id). For others the host gets all values at its first get. Each key must be put by one rank only.
    /// `auto` is `collect` on up to 64 hosts.
    #[arg(long, value_name = "MODE", value_parser = value::fence_mode, default_value = "collect", help_heading = SERVER)]
    pub(super) fence: FenceMode,

    /// Time in seconds that a look-up waits for a name to be published
    ///
    /// MPI_Lookup_name fails after this time. Fractions are allowed; 0 disables waiting.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "0", help_heading = SERVER)]
    pub(super) lookup_wait: Duration,

    /// Share published names with other runs through this name server
    ///
    /// PATH is the socket that `hydrant serve` prints at its start. By default names are visible in this job and in the jobs
    /// that it spawns. Jobs of these runs may also connect to each other (PMI2_Job_Connect).
    #[arg(long, value_name = "PATH", value_parser = value::socket_path(), help_heading = SERVER)]
    #[arg(aliases = ["universe", "nameserver"])]
    pub(super) name_server: Option<PathBuf>,

    /// PMI-1 version to offer: 1.2, or 1.1 for clients that require it
    ///
    /// 1.2 has barriers of process groups. flux's client library requires 1.1.
    #[arg(long, value_name = "1.1|1.2", value_parser = value::pmi1_version, default_value = "1.2", help_heading = SERVER)]
    pub(super) pmi1_version: u32,

    /// Run the job in a fleet of this user, which 'hydrant up' has started
    ///
    /// The hosts are those of the fleet, and the job shares their slots with other jobs: it waits for room behind those that came
    /// before. Output, input, signals and exit codes are as without the option. If this command ends, so does the job.
    #[arg(long, value_name = "NAME", value_parser = value::fleet_name, help_heading = FLEET)]
    pub(super) on: Option<String>,

    /// Run the program once for each number of a list, as jobs of their own: 0-9999, 1,4,7 or 0-15:4, with %N at most N at a time
    ///
    /// The ranks of a task find its number in HYDRANT_ARRAY_TASK_ID, and in HYDRANT_ARRAY_TASK_COUNT, _MIN and _MAX how many tasks
    /// there are and their lowest and highest number, as those of Slurm's arrays. Numbers are 0 to 4000000. Tasks start in the
    /// order of the list; their standard input is empty. At most 512 run at a time, and 16 wait for room. Each has the time of
    /// --timeout. All tasks run, also when some fail: the exit code is that of the first that failed. SIGINT and SIGTERM end those
    /// that run, and no others start.
    #[arg(long, value_name = "LIST[%N]", value_parser = str::parse::<JobArray>, help_heading = FLEET)]
    pub(super) array: Option<JobArray>,

    /// Do not wait for room in the fleet: refuse the job
    #[arg(long, help_heading = FLEET)]
    pub(super) no_wait: bool,

    /// Write the address of the server for tools of PMIx: '-' standard output, '+' standard error
    ///
    /// Tools take it as 'pps --uri file:FILE'. Without the option they find the run by a file in the folder for temporary files,
    /// 0.1 s after its start. The file is not removed.
    #[arg(long, value_name = "FILE", value_parser = value::uri_target, help_heading = SERVER)]
    pub(super) report_uri: Option<UriTarget>,

    /// Record all PMI messages in a file for 'hydrant replay'
    ///
    /// The recording has every message of the ranks, its time, and the server's actions. It is complete enough for a bug
    /// report. It contains all keys, values and arguments of spawned programs, secrets included. Values that ranks read from
    /// shared memory (HYDRANT_KVS) are not recorded. On several hosts FILE has the launcher's part, and each daemon writes its
    /// part to FILE.HOST on its own host. Files have mode 0600 and replace existing files of this user. If a disk is full or a
    /// file reaches the limit of its size (ulimit -f), the recording ends and the job continues.
    #[arg(long, value_name = "FILE", help_heading = SERVER)]
    pub(super) record: Option<PathBuf>,

    /// Print where the time of each job's start went: daemons, start of the processes, PMI, fences, and the MPI library
    ///
    /// The table is printed on standard error at the end of the job. It names the slowest ranks and hosts, and the last rank to
    /// arrive in each fence, and gives hints where it has measured what an option would save. See docs/timeline.md.
    #[arg(long, help_heading = OUTPUT)]
    pub(super) profile: bool,

    /// Set the capacity of a server table
    ///
    /// Capacities are fixed at the start of the job; defaults depend on the number of ranks. A request that exceeds one is
    /// refused with an error that names the limit. Names are listed under "Limits" below.
    #[arg(long, value_name = "NAME=N", value_parser = value::limit, action = ArgAction::Append, help_heading = SERVER)]
    pub(super) limit: Vec<(Limit, u32)>,

    /// Print the exit codes of all ranks at the end of each job
    #[arg(long, help_heading = OUTPUT, alias = "print-all-exitcodes")]
    pub(super) exit_report: bool,

    /// Write the exits and failures of all jobs at the end as JSON, with --dry-run the plan
    ///
    /// Default: standard output. The ranks' own standard output then goes to standard error. docs/json.md describes the object.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,

    /// Print progress messages on standard error
    #[arg(short, long, help_heading = OUTPUT)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) hosts: HostArgs,
}

/// Options of one program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Program options")]
pub(super) struct ProgramArgs {
    /// Number of ranks; default: one per slot of the hosts, or as --ppn gives; otherwise 1
    #[arg(short, long = "np", value_name = "N", value_parser = value::ranks)]
    pub(super) n: Option<u32>,

    /// Run this program on these hosts: a:4,b:4 or n[01-16]:4, with the number of slots after the colon
    ///
    /// With --hosts or --hostfile, the hosts are among those. Without either, the hosts of all programs are the hosts of
    /// the job, and a program without --host runs on any of them, or in an allocation on any of the allocation.
    #[arg(short = 'H', long, value_name = "HOST[:SLOTS],...", value_parser = Hosts::parse, action = ArgAction::Set)]
    pub(super) host: Option<Hosts>,

    /// Set an environment variable for this program
    ///
    /// Overrides --genv. `NAME=VALUE` as one argument is accepted too.
    #[arg(long, value_name = "NAME VALUE", value_parser = value::assignment(), action = ArgAction::Append)]
    pub(super) env: Vec<Assignment>,

    /// Inherit only these environment variables
    ///
    /// --envlist, --envnone and --envall override --genvlist, --genvnone and --genvall for this program.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(value_parser = value::variable_name(), overrides_with_all = ["envnone", "envall"])]
    pub(super) envlist: Vec<OsString>,

    /// Inherit no environment variables
    #[arg(long, overrides_with_all = ["envlist", "envall"])]
    pub(super) envnone: bool,

    /// Inherit all environment variables
    #[arg(long, overrides_with_all = ["envlist", "envnone"])]
    pub(super) envall: bool,

    /// Start the program in this directory
    ///
    /// A relative program name with a slash is resolved from this directory. PWD names it.
    #[arg(long, value_name = "DIR")]
    pub(super) wdir: Option<PathBuf>,

    /// Search this program in these directories, separated by colons, instead of PATH
    #[arg(long, value_name = "DIR:...")]
    pub(super) path: Option<OsString>,

    /// Add the program's ranks to a process set
    ///
    /// The option may be repeated. Adjacent programs may share a set. A name without a scheme, such as ocean, is
    /// app://ocean; both names find the set. Every rank is in mpi://WORLD, mpi://SELF,
    /// hydrant://node/HOST and hydrant://app/N (the number of its program) by default.
    #[arg(long, value_name = "NAME", value_parser = value::pset_name, action = ArgAction::Append)]
    pub(super) pset: Vec<String>,
}

/// Options before the first program.
#[derive(Args, Clone, Debug)]
pub(super) struct FirstArgs {
    #[command(flatten)]
    pub(super) program: ProgramArgs,
    #[command(flatten)]
    pub(super) job: JobArgs,
}
