//! Options of hosts, mapping and daemons.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args};
use hydrant_core::peer::tree::RADIX_MIN;
use hydrant_overlay::{BOOTSTRAP_TIMEOUT_DEFAULT, HEARTBEAT_DEFAULT, RADIX_MAX};
use hydrant_placement::{Bootstrap, HostSource, Hosts, MapBy, MappingPolicy, PlacementOptions, RankBy};
use hydrant_run::plan::{Cluster, Elastic, JoinSecret, JoinedHosts, Preload};

use super::argument::ParsedOption;
use super::boards::{BoardArgs, boards};
use super::conflict::conflict;
use super::environment::Environment;
use super::error::UsageError;
use super::mapping::{Mapping, RankMap};
use super::scanner::Segment;
use super::variables;
use crate::value::{self, Timeout, bootstrap, join_secret, timeout};

/// Options of hosts, mapping and daemons.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job options: hosts")]
pub(super) struct HostArgs {
    /// Run on these hosts: a:4,b:4 or n[01-16]:4, with the number of slots after the colon
    ///
    /// A host has one slot by default. A host that is listed twice has the sum of the slots. USER@HOST is for ssh. See "Hosts
    /// and mapping", and --host for hosts of one program.
    #[arg(long, value_name = "HOST[:SLOTS],...", value_parser = Hosts::parse, action = ArgAction::Set)]
    pub(super) hosts: Option<Hosts>,

    /// Run on the hosts of a file, one per line
    ///
    /// A line is HOST or HOST:SLOTS as in hydra, followed by slots=N and max_slots=N as in Open MPI. USER@HOST, or user=NAME
    /// behind the host, is for ssh. # starts a comment.
    #[arg(short = 'f', long, value_name = "FILE", visible_alias = "machinefile")]
    pub(super) hostfile: Option<PathBuf>,

    /// Use the first N hosts only and give each about as many ranks, as srun does
    ///
    /// It implies --map-by block, unless --map-by or --rr says otherwise. A job of fewer ranks uses as many hosts as it has ranks.
    #[arg(long, value_name = "N", value_parser = nodes)]
    pub(super) nodes: Option<u32>,

    /// Assign N ranks to each host per pass, regardless of its slots
    #[arg(long, value_name = "N", value_parser = ppn, visible_aliases = ["perhost", "npernode"])]
    pub(super) ppn: Option<u32>,

    /// Assign one rank to each host per pass, as -ppn 1
    #[arg(long)]
    pub(super) rr: bool,

    /// Map ranks by slot (fill one host, then the next), node (one rank per host in turn), block (spread consecutive ranks), or by
    /// an object of each host
    ///
    /// Objects are those of --bind-to: `socket` spreads the ranks of each host over its sockets, `numa:2` over pairs of NUMA
    /// nodes. Without --bind-to ranks are bound to these objects. `:PE=N` behind it is --cpus-per-rank, `ppr:N:node` is --ppn.
    #[arg(long, value_name = "ORDER|OBJECT", value_parser = str::parse::<Mapping>)]
    pub(super) map_by: Option<Mapping>,

    /// Run each rank on the host of this position: 1,1,0,0 runs ranks 0 and 1 on the second host
    ///
    /// (FIRST,HOSTS,RANKS) stands for RANKS ranks on each of HOSTS hosts. Further ranks start again at the front of the list.
    #[arg(long, value_name = "HOST,...", value_parser = str::parse::<RankMap>)]
    pub(super) rankmap: Option<RankMap>,

    /// Number ranks by slot (host by host) or by node (one rank of each host in turn)
    ///
    /// Default: the order of the mapping.
    #[arg(long, value_name = "slot|node", value_parser = str::parse::<RankBy>)]
    pub(super) rank_by: Option<RankBy>,

    /// Launcher for daemons on hosts: ssh, srun, qrsh, local, join or exec:COMMAND
    ///
    /// Default: srun in a Slurm job, qrsh in a parallel job of SGE, otherwise ssh. `local` forks all daemons on this machine,
    /// and host names are labels. With --iface they are programs of their own that connect over that interface, as on several
    /// hosts. `join` waits for hosts that run 'hydrant join'. COMMAND is quoted as in a shell. {host} in it is replaced by the
    /// host, {args} by the command to run there. Variables of hydra, Intel MPI and Open MPI are read where no option says
    /// otherwise: see docs/kubernetes.md.
    #[arg(long, value_name = "HOW", value_parser = bootstrap, visible_alias = "launcher")]
    pub(super) bootstrap: Option<Bootstrap>,

    /// Let hosts join and leave while the job runs, up to MAX in all: see 'hydrant grow' and 'shrink'
    ///
    /// At least MIN hosts stay, 1 by default. Programs may ask for hosts: with PMIx_Allocation_request, and with the info keys
    /// add-host and add-hostfile of MPI_Comm_spawn. Programs that ranks spawn run there at once. Tables are made for MAX hosts at
    /// the start, each with the slots of the largest one; --limit makes them larger. At most 1,020 hosts can join, and with --radix
    /// 1,022 minus that number.
    #[arg(long, value_name = "[MIN:]MAX", value_parser = elastic)]
    pub(super) elastic: Option<Elastic>,

    /// Wait for N hosts that join by themselves, with --bootstrap join
    ///
    /// Without it the run waits for hosts with as many slots as the job has ranks (-n).
    #[arg(long, value_name = "N", value_parser = nodes)]
    pub(super) expect: Option<u32>,

    /// File with the secret that hosts need to join, or a folder with a file for each host
    ///
    /// A secret has at least 16 bytes, and other users must not be able to read its file. The files of a folder are named by the
    /// number of the host, its --index: 0, 1 and so on. No host can then join as another.
    #[arg(long = "secret-file", value_name = "FILE|FOLDER", value_parser = join_secret())]
    pub(super) join_secret: Option<JoinSecret>,

    /// Port at which the run waits for hosts that join; default: any free one, which is printed
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) join_port: Option<u16>,

    /// Program to start instead of ssh or srun in PATH, or qrsh in SGE_ROOT
    #[arg(long, value_name = "PROGRAM", visible_alias = "launcher-exec")]
    pub(super) bootstrap_exec: Option<PathBuf>,

    /// Time in seconds for a daemon to connect; the job is not started if one exceeds it
    ///
    /// The time is measured for each daemon from its own start. Within it, an ssh that does not find or reach its host is
    /// started again. With --bootstrap join it is the time for all hosts to join.
    #[arg(long, value_name = "SECONDS", value_parser = timeout, default_value_t = Timeout(BOOTSTRAP_TIMEOUT_DEFAULT))]
    pub(super) bootstrap_timeout: Timeout,

    /// Path of hydrant on the hosts; default: the path on this machine
    ///
    /// The variable HYDRANT_REMOTE has the same effect. With `--bootstrap local` it is the running program.
    #[arg(long, value_name = "PATH")]
    pub(super) remote_hydrant: Option<OsString>,

    /// Network interface between hosts, by name or address
    ///
    /// A name applies to every host. An address belongs to this machine; other hosts then use the interface that leads to their
    /// parent. Ranks of several hosts get the variables of libfabric, UCX, MPICH and Open MPI for it, unless they have them.
    #[arg(long, value_name = "IF", value_parser = iface)]
    pub(super) iface: Option<String>,

    /// Largest number of children of a daemon in the tree of daemons: 2 to 1022
    ///
    /// The depth of the tree is the logarithm of the number of hosts to this base. Default: 8, because daemons start their
    /// children, and 4 with srun, which starts all daemons at once. With --disable-auto-cleanup it is 1022, because a host that is
    /// lost takes those below it along.
    #[arg(long, value_name = "N", value_parser = radix)]
    pub(super) radix: Option<u32>,

    /// Send the program files along to hosts that do not have them
    ///
    /// A host that has the same file at the same path, by its SHA-256, uses its own. Other hosts keep the file in memory
    /// until the run ends, 512 MiB for all programs at most. Input files and the working directory must be there, and
    /// libraries without --preload-libs. Spawned programs are not sent.
    #[arg(long)]
    pub(super) preload_binary: bool,

    /// Send the program files and their shared libraries along to all hosts
    ///
    /// Hosts read neither from their disk, so that many hosts do not open the same files of one file server. Libraries are those
    /// that the program is linked with, as its dynamic linker finds them here, without those of glibc; plugins that it opens
    /// later are not sent. Ranks load them first (LD_PRELOAD), from memory.
    #[arg(long)]
    pub(super) preload_libs: bool,

    /// Send files along to all hosts: data.txt,tables/a.bin
    ///
    /// Each host has them under these names in a folder of the run, which ranks find in OMPI_FILE_LOCATION, and which is removed at
    /// the end. Names are relative to the working directory and lead to nothing outside of it; files have 512 MiB at most, with
    /// those of --preload-binary and --preload-libs. The option may be repeated.
    #[arg(long, value_name = "FILE,...", value_delimiter = ',', action = ArgAction::Append)]
    #[arg(value_parser = value::preload_file())]
    pub(super) preload_files: Vec<PathBuf>,

    /// Time in seconds without a message after which a host or a board is lost and the job is killed
    #[arg(long, value_name = "SECONDS", value_parser = timeout, default_value_t = Timeout(HEARTBEAT_DEFAULT))]
    pub(super) heartbeat: Timeout,

    /// Print the mapping of ranks and the start commands without starting anything
    #[arg(long)]
    pub(super) dry_run: bool,

    #[command(flatten)]
    pub(super) boards: BoardArgs,
}

/// Converts the options into a plan. `all_name_hosts` tells whether every program has hosts of its own.
pub(super) fn cluster(
    args: HostArgs,
    options: &[ParsedOption],
    environment: &Environment,
    all_name_hosts: bool,
) -> Result<Cluster, UsageError> {
    for (one, other, why) in [("hosts", "hostfile", "both list the hosts"), ("ppn", "rr", "-rr means -ppn 1")]
    {
        conflict(options, one, other, why)?;
    }
    let mapping = args.map_by.unwrap_or_default();
    if mapping.ppn.is_some() {
        conflict(options, "ppn", "map_by", "ppr:N:node means -ppn N")?;
        conflict(options, "rr", "map_by", "ppr:N:node means -ppn N")?;
    }
    if mapping.hosts == Some(MapBy::Node) {
        conflict(options, "rr", "map_by", "-map-by node assigns one rank per host in turn")?;
    }
    for other in ["ppn", "rr", "rank_by"] {
        conflict(options, "rankmap", other, "the rank map names the host of each rank")?;
    }
    for preload in ["preload_binary", "preload_libs", "preload_files"] {
        conflict(options, "elastic", preload, "hosts that join later get no program files")?;
    }
    let join = joined(&args, options)?;
    if matches!(args.bootstrap, Some(Bootstrap::Local | Bootstrap::Exec(_) | Bootstrap::Join)) {
        conflict(options, "bootstrap_exec", "bootstrap", "it replaces ssh, srun or qrsh only")?;
    }
    let hosts = match (args.hosts, args.hostfile) {
        (Some(hosts), _) => HostSource::List(hosts),
        (None, Some(file)) => HostSource::File(file),
        (None, None) if all_name_hosts => HostSource::Allocation,
        (None, None) => variables::hosts(environment),
    };
    let agent = variables::agent(environment)?;
    let is_agent_given = args.bootstrap.is_some() || args.bootstrap_exec.is_some();
    let default =
        if is_agent_given { variables::Agent { program: None, bootstrap: None, ..agent } } else { agent };
    let policy = MappingPolicy {
        ppn: args.ppn.or(args.rr.then_some(1)).or(mapping.ppn),
        map_by: mapping.hosts.unwrap_or(match args.nodes {
            Some(_) if !args.rr => MapBy::Block,
            _ => MapBy::Slot,
        }),
        rank_by: args.rank_by,
    };
    Ok(Cluster {
        placement: PlacementOptions {
            hosts,
            program_hosts: Vec::new(),
            nodes: args.nodes,
            policy,
            rank_map: args.rankmap.map_or_else(Vec::new, |map| map.0),
            fill: Vec::new(),
            elastic: args.elastic.is_some(),
            bootstrap: args.bootstrap,
            default_bootstrap: default.bootstrap,
        },
        bootstrap_exec: args.bootstrap_exec.or(default.program),
        bootstrap_args: default.args,
        bootstrap_timeout: args.bootstrap_timeout.0,
        remote_hydrant: args.remote_hydrant,
        iface: args.iface,
        radix: args.radix,
        preload: match (args.preload_libs, args.preload_binary) {
            (true, _) => Some(Preload::Libraries),
            (false, true) => Some(Preload::Programs),
            (false, false) => None,
        },
        preload_files: args.preload_files,
        heartbeat: args.heartbeat.0,
        dry_run: args.dry_run,
        boards: boards(args.boards, options)?,
        elastic: args.elastic,
        join,
    })
}

/// What the run says about hosts that join.
fn joined(args: &HostArgs, options: &[ParsedOption]) -> Result<Option<JoinedHosts>, UsageError> {
    let given = |id: &str| options.iter().rfind(|option| option.id == id);
    let alone = |option: &ParsedOption, needed| {
        let (location, option) = (option.location.clone(), option.shown());
        Err(UsageError::Alone { location, option, needed })
    };
    let Some(bootstrap) = given("bootstrap").filter(|_| args.bootstrap == Some(Bootstrap::Join)) else {
        return match ["expect", "join_secret", "join_port"].into_iter().find_map(given) {
            Some(option) => alone(option, "--bootstrap join"),
            None => Ok(None),
        };
    };
    for other in ["hosts", "hostfile"] {
        conflict(options, "bootstrap", other, "hosts that join say their names and slots")?;
    }
    conflict(options, "bootstrap", "dry_run", "the hosts that join are not known before")?;
    let Some(secret) = args.join_secret.clone() else { return alone(bootstrap, "--secret-file FILE") };
    Ok(Some(JoinedHosts { hosts: args.expect, port: args.join_port, secret, with_programs: false }))
}

/// Whether hosts may bring the program that a command line lacks.
pub(super) fn may_bring_program(segment: &Segment) -> bool {
    let bootstrap = segment.options.iter().rfind(|option| option.id == "bootstrap");
    segment.command.is_empty() && bootstrap.is_some_and(|bootstrap| bootstrap.value() == "join")
}

/// Checks what a run says about hosts that join against its programs. `is_filled` tells whether a program has no number of ranks.
pub(super) fn check_join(
    join: &JoinedHosts,
    segments: &[Segment],
    is_filled: bool,
) -> Result<(), UsageError> {
    let all: Vec<ParsedOption> = segments.iter().flat_map(|segment| &segment.options).cloned().collect();
    conflict(&all, "bootstrap", "host", "hosts that join say their names and slots")?;
    match all.iter().rfind(|option| option.id == "bootstrap") {
        Some(option) if join.hosts.is_none() && is_filled => {
            let (location, option) = (option.location.clone(), option.shown());
            Err(UsageError::Alone { location, option, needed: "--expect N, or -n of each program" })
        }
        _ => Ok(()),
    }
}

fn ppn(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected a number of ranks, at least 1".to_owned()),
        Ok(ranks) => Ok(ranks),
    }
}

fn nodes(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|&nodes| nodes > 0)
        .ok_or_else(|| "expected a number of hosts, at least 1".to_owned())
}

fn elastic(text: &str) -> Result<Elastic, String> {
    let (least, most) = text.split_once(':').unwrap_or(("1", text));
    let elastic = Elastic { least: nodes(least)?, most: nodes(most)? };
    if elastic.least > elastic.most {
        return Err("expected MIN:MAX, the most hosts last".to_owned());
    }
    Ok(elastic)
}

fn iface(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err("expected a network interface, for example eth0, or one of its addresses".to_owned());
    }
    Ok(text.to_owned())
}

fn radix(text: &str) -> Result<u32, String> {
    let radix = text.parse().ok().filter(|radix| (RADIX_MIN..=RADIX_MAX).contains(radix));
    radix.ok_or_else(|| format!("expected a whole number from {RADIX_MIN} to {RADIX_MAX}"))
}
