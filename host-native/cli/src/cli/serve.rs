//! Command line of `hydrant serve`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hydrant_board::manage::Secret;
use hydrant_core::Limit;
use hydrant_core::limits::JOBID_MAX;
use hydrant_overlay::HEARTBEAT_DEFAULT;
use hydrant_placement::NodeGrouping;
use hydrant_serve::{JobOptions, JobSource, Network, Options, Pset};

use crate::value::{self, Timeout, timeout};

/// Default address of `--manage`.
const MANAGE_DEFAULT: &str = "127.0.0.1:4100";

/// Server of a command line, with options without their syntax.
pub(super) enum Server {
    /// Server for ranks.
    Ranks(Box<Options>),
    /// Name server.
    Names(hydrant_names::Options),
}

/// Options of `hydrant serve`.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub(super) struct ServeArgs {
    /// Socket of the name server
    ///
    /// A missing directory is created with mode 0700. Default: hydrant-universe in XDG_RUNTIME_DIR, or
    /// /tmp/hydrant-UID/universe if that variable is not set.
    #[arg(long, value_name = "PATH", value_parser = value::socket_path(), conflicts_with = "served")]
    #[arg(aliases = ["universe", "nameserver"])]
    pub name_server: Option<PathBuf>,

    /// Serve a job of N ranks that another launcher starts
    ///
    /// The environment of each rank must have PMI_PORT, which is printed on standard output, and PMI_ID, its rank from 0. With
    /// `--map together` PMIx clients are served too: their environment must have the printed variables that do not begin with
    /// PMI_, and PMIX_RANK. They are printed again for each job.
    #[arg(short = 'n', long, value_name = "N", value_parser = value::ranks, group = "served")]
    pub size: Option<u32>,

    /// Serve the jobs of 'hydrant offload', and hosts of 'hydrant run --offload'; listen for hosts at this address
    ///
    /// 'hydrant offload --target ADDR:PORT' starts the ranks of a job on its host, and this server serves them. At a loopback
    /// address only processes of the same user are accepted, unless --secret-file is given. Any other address requires
    /// --secret-file or --insecure.
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::address, group = "served")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = MANAGE_DEFAULT)]
    pub manage: Option<SocketAddr>,

    /// File with a secret that hosts need
    ///
    /// The secret encrypts and authenticates the connections of 'hydrant offload --secret-file'. It has at least 16 bytes, and
    /// other users must not be able to read the file. Ranks do not use it: PMI has no authentication.
    #[arg(long, value_name = "FILE", value_parser = value::secret_file(), requires = "manage", conflicts_with = "insecure")]
    pub secret_file: Option<Secret>,

    /// Accept hosts without a secret at an address that other machines reach
    ///
    /// Every process that reaches the address can open jobs, and can query and end jobs of its own address. Requests and
    /// replies are not encrypted. Use it on a trusted network only, with --allow.
    #[arg(long, requires = "manage")]
    pub insecure: bool,

    /// Time in seconds after which a host of a run is lost that does not read what this server sends
    ///
    /// It holds for nodes of 'hydrant run --offload' and for runs of 'hydrant offload --record', whose hosts must read to the end.
    /// The ranks of such a host lose their connections.
    #[arg(long, value_name = "SECONDS", value_parser = timeout, default_value_t = Timeout(HEARTBEAT_DEFAULT), requires = "manage")]
    pub heartbeat: Timeout,

    /// Record the jobs to FILE.1, FILE.2, ...
    ///
    /// A recording has all inputs and outputs of the PMI server, for 'hydrant replay'. It begins when a job starts while
    /// there is no other, and ends with the last job. Jobs that run at the same time share a recording. The recordings
    /// together have at most 1 GiB. Only this user can read them: they contain all that the ranks have exchanged. With
    /// --manage, runs that their hosts record, and nodes of runs on several hosts, are not among them.
    #[arg(long, value_name = "FILE", requires = "served")]
    pub record: Option<PathBuf>,

    /// Set the capacity of a server table
    ///
    /// A name server has the limits names and conns. Each run needs one connection, each spawned job one more,
    /// and each waiting look-up one more. With --size or --manage all limits of 'hydrant help run' are valid.
    #[arg(long, value_name = "NAME=N", value_parser = value::limit, action = clap::ArgAction::Append)]
    pub limit: Vec<(Limit, u32)>,

    /// Print progress messages on standard error
    #[arg(short, long)]
    pub verbose: bool,

    /// Options of the served job.
    #[command(flatten)]
    pub job: JobArgs,
}

/// Attributes of the served job and restrictions for its ranks.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Options of a served job (with --size)")]
pub(super) struct JobArgs {
    /// Address for the connections of ranks; port 0 selects a free port
    ///
    /// At a loopback address only processes of the same user are accepted. At any other address every process that can reach it
    /// is accepted as the rank that it claims to be: PMI has no authentication. Use a trusted network and --allow. With
    /// --manage the ranks of job 0 connect to this port and those of job N to the port N higher, or to the next one that is
    /// free; port 0 selects a free port for each job.
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::pmi_address, requires = "served")]
    #[arg(default_value = value::PMI_PORT_DEFAULT)]
    pub pmi_port: SocketAddr,

    /// Accept connections from this network only: 10.0.0.0/8 or one address
    ///
    /// The option may be repeated. Connections from other addresses are closed before any data is read. Processes that
    /// send from an allowed address are not kept out. With --manage the restriction applies to hosts and ranks.
    #[arg(long, value_name = "NETWORK", action = clap::ArgAction::Append, requires = "served")]
    pub allow: Vec<Network>,

    /// Number of jobs to serve one after the other on the same port; 0 means no limit
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value::within(0..=u32::MAX), requires = "size")]
    pub jobs: u32,

    /// Mapping of ranks to nodes: apart, together, or the number of ranks of each node, as 4 or 4,4,2
    ///
    /// MPICH uses shared memory between ranks of the same node and fails if they are on different machines. `apart`, a node for
    /// each rank, is correct everywhere. Use `together` or a list in rank order if the placement is known.
    #[arg(long, value_name = "HOW", default_value = "apart", requires = "size")]
    pub map: NodeGrouping,

    /// Number of ranks of each program, in rank order
    ///
    /// MPI_APPNUM is 0 for the ranks of the first program, 1 for those of the second, and so on.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = value::ranks, requires = "size")]
    pub programs: Vec<u32>,

    /// Process set: its name and its ranks
    ///
    /// The option may be repeated. A name without a scheme, such as ocean, is app://ocean. Every rank is in mpi://WORLD,
    /// mpi://SELF and hydrant://app/N by default.
    #[arg(long, value_name = "NAME=FIRST-LAST", value_parser = pset, action = clap::ArgAction::Append, requires = "size")]
    pub pset: Vec<Pset>,

    /// Job id; default: a unique one
    #[arg(long, value_name = "NAME", value_parser = jobid, requires = "size")]
    pub jobid: Option<String>,

    /// Universe size (MPI_UNIVERSE_SIZE); default: unset
    #[arg(long, value_name = "N", value_parser = value::ranks, requires = "size")]
    pub usize: Option<u32>,

    /// Time in seconds for all ranks to connect; 0 disables the timeout
    ///
    /// The time is measured from the start for the first job, and from the first connection for later jobs. A job with missing
    /// ranks fails after this time.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "0", requires = "size")]
    pub join_timeout: Duration,

    /// Report a fence that waits longer than this many seconds
    ///
    /// The warning names the missing ranks. Fractions are allowed; 0 disables the warning.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "30", requires = "size")]
    pub fence_warning: Duration,

    /// Time in seconds that a look-up waits for a name to be published
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "0", requires = "size")]
    pub lookup_wait: Duration,

    /// PMI-1 version to offer: 1.2, or 1.1 for clients that require it
    #[arg(long, value_name = "1.1|1.2", value_parser = value::pmi1_version, default_value = "1.2", requires = "size")]
    pub pmi1_version: u32,
}

fn pset(text: &str) -> Result<Pset, String> {
    let wrong = || "expected NAME=FIRST-LAST, for example ocean=0-3".to_owned();
    // A name may hold an equals sign.
    let (name, ranks) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (first, last) = ranks.split_once('-').unwrap_or((ranks, ranks));
    let first: u32 = first.parse().map_err(|_| wrong())?;
    let last: u32 = last.parse().map_err(|_| wrong())?;
    let count = last.checked_sub(first).and_then(|more| more.checked_add(1)).ok_or_else(wrong)?;
    Ok(Pset { name: value::pset_name(name)?, first, count })
}

/// Refuses job options with `--manage`, where the host describes the job. Clap does not check `requires = "size"` if
/// `--manage` rules `--size` out.
fn check_managed(given: impl Fn(&str) -> bool) -> Result<(), String> {
    let of_job = JobArgs::augment_args(clap::Command::new("serve"));
    let of_job = of_job.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "pmi_port" | "allow"));
    match of_job.filter(|arg| given(arg.get_id().as_str())).find_map(clap::Arg::get_long) {
        Some(option) => Err(format!("--{option} requires --size; with --manage the host describes the job")),
        None => Ok(()),
    }
}

/// Refuses options of a management port beside `--size`.
fn check_described(given: impl Fn(&str) -> bool) -> Result<(), String> {
    let of_managed = ["secret_file", "insecure", "heartbeat"];
    match of_managed.into_iter().find(|id| given(id)) {
        Some(id) => {
            Err(format!("--{} requires --manage; with --size there are no hosts", id.replace('_', "-")))
        }
        None => Ok(()),
    }
}

fn jobid(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b'\\');
    if text.is_empty() || text.len() > JOBID_MAX || !text.bytes().all(fits) {
        return Err(format!(
            "expected 1 to {JOBID_MAX} printable ASCII characters without blanks, ';', '=' and '\\'"
        ));
    }
    Ok(text.to_owned())
}

impl ServeArgs {
    /// Checks options against each other. `given` returns whether the user gave the option with this identifier in clap.
    pub(super) fn check(&self, given: impl Fn(&str) -> bool) -> Result<(), String> {
        let folder = self.record.as_ref().and_then(|file| file.parent());
        if let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
            return Err(format!(
                "--record: {} is no directory; make it, or name another file",
                folder.display()
            ));
        }
        let size = match (self.size, self.manage) {
            (Some(size), _) => {
                check_described(given)?;
                size
            }
            (None, Some(addr)) => return self.check_secret(addr).and_then(|()| check_managed(given)),
            (None, None) => return self.check_names(),
        };
        if let Err(placed) = self.job.map.check_size(size) {
            return Err(format!("--map has {placed} ranks, but --size is {size}"));
        }
        let for_pmix = |(limit, size): &&(Limit, u32)| *limit == Limit::CommitBytes && *size > 0;
        if let Some((_, size)) =
            self.limit.iter().find(for_pmix).filter(|_| self.job.map != NodeGrouping::Together)
        {
            return Err(format!(
                "--limit commit-bytes={size}: PMIx clients are served with --map together, on one host; on several hosts use \
                 'hydrant run --bootstrap join' and 'hydrant join'"
            ));
        }
        let ranks: u64 = self.job.programs.iter().map(|&ranks| u64::from(ranks)).sum();
        if !self.job.programs.is_empty() && ranks != u64::from(size) {
            return Err(format!("--programs has {ranks} ranks, but --size is {size}"));
        }
        let beyond = |pset: &&Pset| u64::from(pset.first) + u64::from(pset.count) > u64::from(size);
        if let Some(pset) = self.job.pset.iter().find(beyond) {
            return Err(format!("--pset {}: the ranks of the job are 0 to {}", pset.name, size - 1));
        }
        Ok(())
    }

    /// Refuses a management port that other machines reach without a secret, unless the user accepts that. On this machine the
    /// port accepts processes of this user only.
    fn check_secret(&self, addr: SocketAddr) -> Result<(), String> {
        match self.secret_file.is_some() || self.insecure || addr.ip().to_canonical().is_loopback() {
            true => Ok(()),
            false => Err(format!(
                "--manage={addr}: other machines can reach this address; set --secret-file FILE, or accept every host with --insecure"
            )),
        }
    }

    /// Refuses limits that a name service does not have.
    fn check_names(&self) -> Result<(), String> {
        match self.limit.iter().find(|(limit, size)| !hydrant_names::Options::accepts(*limit) || *size == 0) {
            Some((limit, size)) => Err(format!(
                "--limit {}={size}: a name server has the limits names=N and conns=N, with N at least 1",
                limit.name()
            )),
            None => Ok(()),
        }
    }

    /// The options of the name server, or of the server that the options choose.
    pub(super) fn into_server(self) -> Server {
        let source = match (self.size, self.manage) {
            (Some(size), _) => JobSource::Described { size },
            (None, Some(addr)) => JobSource::Managed { addr },
            (None, None) => {
                return Server::Names(hydrant_names::Options { path: self.name_server, limit: self.limit });
            }
        };
        let job = self.job;
        Server::Ranks(Box::new(Options {
            source,
            secret: self.secret_file,
            heartbeat: self.heartbeat.0,
            record: self.record,
            limit: self.limit,
            verbose: self.verbose,
            job: JobOptions {
                pmi_port: job.pmi_port,
                allow: job.allow,
                jobs: job.jobs,
                map: job.map,
                programs: job.programs,
                pset: job.pset,
                jobid: job.jobid,
                usize: job.usize,
                join_timeout: job.join_timeout,
                fence_warning: job.fence_warning,
                lookup_wait: job.lookup_wait,
                pmi1_version: job.pmi1_version,
            },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_ranges_of_ranks() {
        assert_eq!(pset("a=b=2-4"), Ok(Pset { name: "app://a=b".to_owned(), first: 2, count: 3 }));
        assert_eq!(pset("one=7").unwrap().count, 1);
        for wrong in ["a", "a=3-2", "a=x", "a=0-"] {
            assert!(pset(wrong).unwrap_err().contains("ocean=0-3"), "{wrong}");
        }
        for wrong in ["=1-2", "mpi://x=0-1"] {
            assert!(pset(wrong).unwrap_err().contains("printable ASCII"), "{wrong}");
        }
    }

    #[test]
    fn ids_are_what_clients_can_read() {
        assert!(jobid("kvs_1").is_ok());
        for wrong in ["", "a b", "a;b", "a=b", &"x".repeat(65)] {
            assert!(jobid(wrong).is_err(), "{wrong}");
        }
    }
}
