//! What `hydrant serve` can be asked for.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hydrant_core::limits::JOBID_MAX;
use hydrant_core::{Limit, Limits};
use hydrant_placement::NodeGrouping;

use super::allow::Network;
use crate::cli::value;
use crate::universe;

/// Ranks of hosts' jobs that there is room for, unless `--limit` says otherwise, beside 1,024 more of few keys.
const RANKS: u32 = 1024;
/// Where hosts manage a server when no address is given.
const MANAGE_DEFAULT: &str = "127.0.0.1:4100";

/// What `hydrant serve` is to do.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The socket to listen at for the runs that share names
    ///
    /// Its directory is made, for you alone, when it is missing. By default this is hydrant-universe in
    /// XDG_RUNTIME_DIR, or /tmp/hydrant-UID/universe where that variable is not set.
    #[arg(long, value_name = "PATH", value_parser = universe::path(), conflicts_with = "served")]
    pub universe: Option<PathBuf>,

    /// Serve a job of N ranks that somebody else starts
    ///
    /// Each has to find PMI_PORT, which is said on standard output, and PMI_ID, its rank from 0, in its environment.
    #[arg(short = 'n', long, value_name = "N", value_parser = value::ranks, group = "served")]
    pub size: Option<u32>,

    /// Serve the jobs of hosts, which manage this server by the port at this address
    ///
    /// Each 'hydrant offload --target ADDR:PORT' starts a job's ranks and has this server serve it. On a loopback address only
    /// processes of the same user are let in; any other address lets in whoever can reach it: --allow says who may.
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::address, group = "served")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = MANAGE_DEFAULT)]
    pub manage: Option<SocketAddr>,

    /// Change the size of one of the server's tables
    ///
    /// Of names, and of conns: connections of runs, one for each run, another for each job it spawned that publishes, and one
    /// for each look-up that waits. With --size or --manage, any limit that 'hydrant help run' lists.
    #[arg(long, value_name = "NAME=N", value_parser = value::limit, action = clap::ArgAction::Append)]
    pub limit: Vec<(Limit, u32)>,

    /// Say on standard error what is done
    #[arg(short, long)]
    pub verbose: bool,

    /// The job that is served.
    #[command(flatten)]
    pub job: JobOptions,
}

/// What the ranks of the job are told, and who may be one.
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Options of a job that somebody else starts, with --size")]
pub struct JobOptions {
    /// Where ranks connect, as IP:PORT; port 0 is any free one
    ///
    /// On a loopback address only processes of the same user are let in. Any other address lets in whoever can reach it
    /// and says first that it is some rank: PMI has no secret. Use a network that strangers cannot reach, and --allow. With
    /// --manage the ranks of job 0 connect here, and those of job N do so N ports higher; port 0 is any free one for each.
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::address, requires = "served")]
    #[arg(default_value = value::PMI_PORT_DEFAULT)]
    pub pmi_port: SocketAddr,

    /// Let in these addresses only: a network as 10.0.0.0/8, or one address
    ///
    /// May be given several times. Others are closed before they are heard. It keeps out neighbours, not somebody who
    /// can send from an allowed address. With --manage it holds for hosts as well as for ranks.
    #[arg(long, value_name = "NETWORK", action = clap::ArgAction::Append, requires = "served")]
    pub allow: Vec<Network>,

    /// How many jobs to serve, one after the other on the same port; 0 is without end
    #[arg(long, value_name = "COUNT", default_value = "1", value_parser = value::within(0..=u32::MAX), requires = "size")]
    pub jobs: u32,

    /// Which ranks share a node: apart, together, or how many ranks each node has, as 4 or 4,4,2
    ///
    /// MPICH uses shared memory between ranks that share a node and fails where they do not. So by default each rank is
    /// taken to be on a node of its own, which is right wherever ranks run; say together, or ranks a node in rank order,
    /// where you know.
    #[arg(long, value_name = "HOW", default_value = "apart", requires = "size")]
    pub map: NodeGrouping,

    /// How many ranks each program has, in rank order, where there are several
    ///
    /// Rank 0 and the others of the first program get MPI_APPNUM 0, those of the second 1, and so on.
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = value::ranks, requires = "size")]
    pub programs: Vec<u32>,

    /// A process set: its name and its ranks
    ///
    /// May be given several times. Every rank is in mpi://WORLD, mpi://SELF and hydrant://app/N anyway.
    #[arg(long, value_name = "NAME=FIRST-LAST", value_parser = pset, action = clap::ArgAction::Append, requires = "size")]
    pub pset: Vec<Pset>,

    /// The job's id; otherwise one that no other job has
    #[arg(long, value_name = "NAME", value_parser = jobid, requires = "size")]
    pub jobid: Option<String>,

    /// What MPI_UNIVERSE_SIZE says; otherwise the job's size
    #[arg(long, value_name = "N", value_parser = value::ranks, requires = "size")]
    pub usize: Option<u32>,

    /// How many seconds the ranks may take to come; 0 is as long as they like
    ///
    /// Counted from the start for the first job, from the first rank's coming for those that follow. A job whose ranks
    /// have not all come by then is given up.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "0", requires = "size")]
    pub join_timeout: Duration,

    /// After how many seconds a waiting fence names the ranks it waits for
    ///
    /// Fractions are understood; 0 is never.
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "30", requires = "size")]
    pub fence_warning: Duration,

    /// How many seconds a look-up waits for a name that nobody has published yet
    #[arg(long, value_name = "SECONDS", value_parser = value::seconds, default_value = "0", requires = "size")]
    pub lookup_wait: Duration,

    /// Which version of PMI-1 is answered: 1.2, or 1.1 for clients that insist on it
    #[arg(long, value_name = "1.1|1.2", value_parser = value::pmi1_version, default_value = "1.2", requires = "size")]
    pub pmi1_version: u32,
}

/// A process set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pset {
    /// Its name.
    pub name: String,
    /// Its first rank.
    pub first: u32,
    /// How many ranks.
    pub count: u32,
}

fn pset(text: &str) -> Result<Pset, String> {
    let wrong = || "write NAME=FIRST-LAST, for example ocean=0-3".to_owned();
    // A name may hold an equals sign.
    let (name, ranks) = text.rsplit_once('=').ok_or_else(wrong)?;
    let (first, last) = ranks.split_once('-').unwrap_or((ranks, ranks));
    let first: u32 = first.parse().map_err(|_| wrong())?;
    let last: u32 = last.parse().map_err(|_| wrong())?;
    let count = last.checked_sub(first).and_then(|more| more.checked_add(1)).ok_or_else(wrong)?;
    Ok(Pset { name: value::pset_name(name)?, first, count })
}

/// Options that describe a job are its host's to give. Clap does not ask for the `--size` that they require where it is
/// ruled out by `--manage`.
fn check_managed(given: impl Fn(&str) -> bool) -> Result<(), String> {
    let of_job = JobOptions::augment_args(clap::Command::new("serve"));
    let of_job = of_job.get_arguments().filter(|arg| !matches!(arg.get_id().as_str(), "pmi_port" | "allow"));
    match of_job.filter(|arg| given(arg.get_id().as_str())).find_map(clap::Arg::get_long) {
        Some(option) => {
            Err(format!("--{option} goes with --size: with --manage, hosts say what their jobs are"))
        }
        None => Ok(()),
    }
}

fn jobid(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b'=' | b'\\');
    if text.is_empty() || text.len() > JOBID_MAX || !text.bytes().all(fits) {
        return Err(format!("a job's id is 1 to {JOBID_MAX} letters, digits and signs but ; = and \\"));
    }
    Ok(text.to_owned())
}

impl Options {
    /// What one option has against another. `given` tells whether the option with that name in clap was.
    pub(crate) fn check(&self, given: impl Fn(&str) -> bool) -> Result<(), String> {
        let size = match (self.size, self.manage) {
            (Some(size), _) => size,
            (None, Some(_)) => return check_managed(given),
            (None, None) => return self.names().map(drop),
        };
        if let Err(placed) = self.job.map.check_size(size) {
            return Err(format!("--map is for {placed} ranks, and --size says {size}"));
        }
        let ranks: u64 = self.job.programs.iter().map(|&ranks| u64::from(ranks)).sum();
        if !self.job.programs.is_empty() && ranks != u64::from(size) {
            return Err(format!("--programs has {ranks} ranks, and --size says {size}"));
        }
        let beyond = |pset: &&Pset| u64::from(pset.first) + u64::from(pset.count) > u64::from(size);
        if let Some(pset) = self.job.pset.iter().find(beyond) {
            return Err(format!("--pset {}: the ranks of the job are 0 to {}", pset.name, size - 1));
        }
        Ok(())
    }

    /// What the daemon that keeps names is to do.
    pub(super) fn names(&self) -> Result<universe::Options, String> {
        let limit = self.limit.clone();
        match limit.iter().find(|(limit, size)| !universe::Options::takes(*limit) || *size == 0) {
            Some((limit, size)) => Err(format!(
                "--limit {}={size}: without --size or --manage there are names=N and conns=N, with a whole number from 1 up",
                limit.name()
            )),
            None => Ok(universe::Options { universe: self.universe.clone(), limit }),
        }
    }

    /// Room for hosts' jobs.
    pub(super) fn limits_managed(&self) -> Limits {
        let mut limits = Limits { spawns: 0, spawn_bytes: 0, ..Limits::for_ranks(RANKS) };
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        limits
    }

    /// Room for one job of so many ranks, which starts no processes.
    pub(super) fn limits(&self, size: u32) -> Limits {
        let mut limits = Limits::for_ranks(size);
        limits = Limits {
            jobs: 1,
            ranks: size,
            conns: size.saturating_add(64),
            spawns: 0,
            spawn_bytes: 0,
            ..limits
        };
        limits.psets = limits.psets.saturating_add((self.job.programs.len() + self.job.pset.len()) as u32);
        for &(limit, size) in &self.limit {
            limits.set(limit, size);
        }
        limits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_ranges_of_ranks() {
        assert_eq!(pset("a=b=2-4"), Ok(Pset { name: "a=b".to_owned(), first: 2, count: 3 }));
        assert_eq!(pset("one=7").unwrap().count, 1);
        for wrong in ["a", "a=3-2", "a=x", "a=0-"] {
            assert!(pset(wrong).unwrap_err().contains("ocean=0-3"), "{wrong}");
        }
        for wrong in ["=1-2", "mpi://x=0-1"] {
            assert!(pset(wrong).unwrap_err().contains("a set's name is "), "{wrong}");
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
