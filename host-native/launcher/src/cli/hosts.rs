//! The options that say where ranks run.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgAction, Args};
use hydrant_core::peer::tree::RADIX_MIN;
use hydrant_placement::{Bootstrap, HostSource, Hosts, MapBy, MappingPolicy, PlacementOptions, RankBy};

use super::configfile;
use super::error::UsageError;
use super::words::Given;
use crate::plan::{BOOTSTRAP_TIMEOUT_DEFAULT, Cluster, HEARTBEAT_DEFAULT, RADIX_DEFAULT, RADIX_MAX};

/// Where ranks run.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of where the job runs, before its first program")]
pub(super) struct HostArgs {
    /// Run on these hosts, a:4,b:4 or n[01-16]:4, with the slots of each behind a colon
    ///
    /// A host without slots has one. A host that is named again has the slots of both. See "Where ranks run".
    #[arg(short = 'H', long, value_name = "HOST[:SLOTS],...", value_parser = Hosts::parse, action = ArgAction::Set)]
    #[arg(visible_alias = "host")]
    pub(super) hosts: Option<Hosts>,

    /// Run on the hosts that a file names, one to a line
    ///
    /// A line is HOST or HOST:SLOTS, as hydra has it, and behind it slots=N, max_slots=N as Open MPI has them, and
    /// user=NAME for ssh. # starts a comment.
    #[arg(short = 'f', long, value_name = "FILE", visible_alias = "machinefile")]
    pub(super) hostfile: Option<PathBuf>,

    /// Give each host N ranks in a turn, whatever its slots
    #[arg(long, value_name = "N", value_parser = ppn, visible_aliases = ["perhost", "npernode"])]
    pub(super) ppn: Option<u32>,

    /// Deal ranks out one a host in turn: -ppn 1
    #[arg(long)]
    pub(super) rr: bool,

    /// How ranks are dealt out to hosts: slot (fill one, then the next) or node (one each in turn)
    #[arg(long, value_name = "slot|node", value_parser = str::parse::<MapBy>)]
    pub(super) map_by: Option<MapBy>,

    /// How ranks are numbered: slot (host by host) or node (one of each host in turn)
    ///
    /// Otherwise they are numbered in the order in which they were dealt out.
    #[arg(long, value_name = "slot|node", value_parser = str::parse::<RankBy>)]
    pub(super) rank_by: Option<RankBy>,

    /// How daemons are started on hosts: ssh, srun, qrsh, local or exec:COMMAND
    ///
    /// Otherwise srun in a Slurm job, qrsh in a parallel job of SGE, and ssh elsewhere. `local` starts all of them on this
    /// machine, and the hosts' names are labels. COMMAND is quoted as in a shell; {host} in it is the host, {args} what to run there.
    #[arg(long, value_name = "HOW", value_parser = bootstrap, visible_alias = "launcher")]
    pub(super) bootstrap: Option<Bootstrap>,

    /// Start this program instead of the ssh or srun in PATH, or the qrsh below SGE_ROOT
    #[arg(long, value_name = "PROGRAM", visible_alias = "launcher-exec")]
    pub(super) bootstrap_exec: Option<PathBuf>,

    /// After how many seconds a daemon that has not joined is given up, and the job is not started
    ///
    /// They are counted from each daemon's own start.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value_t = Seconds(BOOTSTRAP_TIMEOUT_DEFAULT))]
    pub(super) bootstrap_timeout: Seconds,

    /// Where hydrant is on the hosts; by default where it is here
    ///
    /// The variable HYDRANT_REMOTE says the same. With `--bootstrap local` it is this very program.
    #[arg(long, value_name = "PATH")]
    pub(super) remote_hydrant: Option<OsString>,

    /// The network interface for links between daemons, by its name or an address of it
    ///
    /// By its name it is the same on every host. An address is this machine's; daemons then use what leads to their parent.
    #[arg(long, value_name = "IF", value_parser = iface)]
    pub(super) iface: Option<String>,

    /// How many daemons a daemon starts and holds links to at most: 2 to 32
    ///
    /// They hang together in a tree, whose depth grows with the logarithm of the number of hosts to this base.
    #[arg(long, value_name = "N", value_parser = radix, default_value_t = RADIX_DEFAULT)]
    pub(super) radix: u32,

    /// After how many seconds without a word a host is lost, and the job ends
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value_t = Seconds(HEARTBEAT_DEFAULT))]
    pub(super) heartbeat: Seconds,

    /// Print which rank would run where, and how it would be started; start nothing
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// What the options say together.
pub(super) fn cluster(args: HostArgs, given: &[Given]) -> Result<Cluster, UsageError> {
    for (one, other, why) in
        [("hosts", "hostfile", "the hosts are named once"), ("ppn", "rr", "-rr is -ppn 1")]
    {
        contradiction(given, one, other, why)?;
    }
    if args.map_by == Some(MapBy::Node) {
        let why = "with -map-by node a host takes one rank at a time";
        contradiction(given, "ppn", "map_by", why)?;
        contradiction(given, "rr", "map_by", why)?;
    }
    if matches!(args.bootstrap, Some(Bootstrap::Local | Bootstrap::Exec(_))) {
        contradiction(given, "bootstrap_exec", "bootstrap", "it replaces ssh, srun or qrsh")?;
    }
    let hosts = match (args.hosts, args.hostfile) {
        (Some(hosts), _) => HostSource::List(hosts),
        (None, Some(file)) => HostSource::File(file),
        (None, None) => HostSource::Allocation,
    };
    let policy = MappingPolicy {
        ppn: args.ppn.or(args.rr.then_some(1)),
        map_by: args.map_by.unwrap_or_default(),
        rank_by: args.rank_by,
    };
    Ok(Cluster {
        placement: PlacementOptions { hosts, policy, fill: Vec::new(), bootstrap: args.bootstrap },
        bootstrap_exec: args.bootstrap_exec,
        bootstrap_timeout: args.bootstrap_timeout.0,
        remote_hydrant: args.remote_hydrant,
        iface: args.iface,
        radix: args.radix,
        heartbeat: args.heartbeat.0,
        dry_run: args.dry_run,
    })
}

/// Refuses two options that cannot both hold, at the later of them.
fn contradiction(given: &[Given], one: &str, other: &str, why: &'static str) -> Result<(), UsageError> {
    let last = |id: &str| given.iter().enumerate().rfind(|(_, given)| given.id == id);
    let (Some(one), Some(other)) = (last(one), last(other)) else { return Ok(()) };
    let (first, second) = if one.0 < other.0 { (one.1, other.1) } else { (other.1, one.1) };
    Err(UsageError::Contradiction {
        at: second.at.clone(),
        option: second.spelled.clone(),
        other: first.spelled.clone(),
        why,
    })
}

fn ppn(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give the number of ranks a host takes, a whole number from 1 up".to_owned()),
        Ok(ranks) => Ok(ranks),
    }
}

pub(crate) fn bootstrap(text: &str) -> Result<Bootstrap, String> {
    match text {
        "ssh" => return Ok(Bootstrap::Ssh),
        "srun" | "slurm" => return Ok(Bootstrap::Srun),
        "qrsh" | "sge" => return Ok(Bootstrap::Qrsh),
        // hydra's word.
        "local" | "fork" => return Ok(Bootstrap::Local),
        _ => {}
    }
    let command = text.strip_prefix("exec:");
    let command = command.ok_or("there are ssh, srun, qrsh, local and exec:'COMMAND {host} {args}'")?;
    let lines = configfile::parse(Path::new("exec:").into(), command.as_bytes());
    let lines = lines.map_err(|error| error.to_string())?;
    let words: Vec<OsString> = lines.into_iter().flatten().map(|word| word.text).collect();
    let args = words.iter().filter(|word| word.to_string_lossy().contains("{args}")).count();
    if args == 1 && words[0] != "{args}" {
        Ok(Bootstrap::Exec(words))
    } else {
        Err("behind exec: stands a command with {args} once, as in exec:'rsh {host} {args}'".to_owned())
    }
}

fn iface(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(
            "give the name of a network interface, for example eth0, or one of its addresses".to_owned()
        );
    }
    Ok(text.to_owned())
}

fn radix(text: &str) -> Result<u32, String> {
    let radix = text.parse().ok().filter(|radix| (RADIX_MIN..=RADIX_MAX).contains(radix));
    radix.ok_or_else(|| format!("give a whole number from {RADIX_MIN} to {RADIX_MAX}"))
}

/// A time to wait for something, which help shows in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) Duration);

impl Seconds {
    /// From the clock's resolution to eleven days.
    const RANGE: RangeInclusive<f64> = 0.001..=1e6;
}

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_secs_f64().fmt(f)
    }
}

pub(crate) fn seconds(text: &str) -> Result<Seconds, String> {
    let seconds = text.parse().ok().filter(|seconds| Seconds::RANGE.contains(seconds));
    seconds
        .map(|seconds| Seconds(Duration::from_secs_f64(seconds)))
        .ok_or_else(|| "give a number of seconds from 0.001 to 1000000, for example 30 or 0.5".to_owned())
}
