//! Description of a job by its launcher.

use std::ops::Range;
use std::os::fd::RawFd;
use std::process;
use std::time::Duration;

use hydrant_core::limits::OVERSUBSCRIBED_ATTR;
use hydrant_core::{Fault, Input, JobId, JobSpec, JobSpecOf, Rank, UpcallId};
use hydrant_placement::{HOST_NAME_MAX, host_attributes, process_mapping};
use hydrant_reactor::fill_random;

use crate::error::Error;
use crate::port::Port;
use crate::variables::{Variables, is_spawned};

/// Attribute with the nodes of all ranks, which MPICH and Intel MPI read.
const MAPPING: &[u8] = b"PMI_process_mapping";

/// A job for [`Host::register_job`](crate::Host::register_job): its name, ranks, programs, nodes and attributes.
///
/// ```
/// use std::time::Duration;
///
/// use hydrant_host::{Host, Job, Settings};
///
/// // Rank 0 of one program and ranks 1 to 3 of another one, a process set, and a report of fences that wait for 30 s.
/// let job = Job::new("app", 4)
///     .program(1)
///     .program(3)
///     .pset("app://workers", 1..4)
///     .fence_warning(Duration::from_secs(30))
///     .attribute("my.site", "a value that ranks read as an attribute of their job");
/// Host::open(&Settings::for_ranks(4))?.register_job(&job)?;
/// # Ok::<(), hydrant_host::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name, size and behaviour. [`Host::register_job`](crate::Host::register_job) sets the number.
    pub spec: JobSpecOf<String>,
    programs: Vec<u32>,
    /// Nodes of consecutive ranks, with the names of their hosts.
    nodes: Vec<(u32, String, u32)>,
    psets: Vec<(String, Range<u32>)>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Job {
    /// A job of `size` ranks of one program, all on this node. A rank that fails ends it.
    ///
    /// `name` is what clients get as job id (PMI-1: kvsname, PMIx: namespace): printable ASCII without blanks, `;`, `=` and `\`,
    /// at most 64 bytes. A PMIx client of the same user that knows the name can connect as a rank, so that
    /// [`random_name`] is the better choice where users share an account.
    pub fn new(name: impl Into<String>, size: u32) -> Job {
        let name = name.into();
        let spec = JobSpec::new(JobId(0), &name, size).map(|text| (*text).to_owned());
        Job { spec, programs: Vec::new(), nodes: Vec::new(), psets: Vec::new(), attributes: Vec::new() }
    }

    /// The next `ranks` ranks run the next program (`MPI_APPNUM`, from 0). Ranks behind the last program are of program 0.
    #[must_use]
    pub fn program(mut self, ranks: u32) -> Job {
        self.programs.push(ranks);
        self
    }

    /// The next `ranks` ranks run on node `number`, whose host is `host` for PMIx clients (`PMIX_HOSTNAME`). A job whose ranks
    /// are on several nodes names the node of each rank. All servers get the same description. The name has at most 253
    /// bytes and no comma. It may be empty.
    #[must_use]
    pub fn node(mut self, number: u32, host: impl Into<String>, ranks: u32) -> Job {
        self.nodes.push((number, host.into(), ranks));
        self
    }

    /// Defines a process set of ranks, beside `mpi://WORLD` and `mpi://SELF` (MPI 4.1, section 11.3.2).
    #[must_use]
    pub fn pset(mut self, name: impl Into<String>, ranks: Range<u32>) -> Job {
        self.psets.push((name.into(), ranks));
        self
    }

    /// Sets an attribute, which ranks read: by `PMI2_Info_GetJobAttr`, or as a pair of the key-value space in PMI-1. A key of at
    /// most 64 bytes and a value of at most 1,024. `PMI_process_mapping` is set from the nodes, unless it is given.
    #[must_use]
    pub fn attribute(mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Job {
        self.attributes.push((key.into(), value.into()));
        self
    }

    /// Tells ranks how many processes there may be, spawned ones included (`MPI_UNIVERSE_SIZE`). Unknown otherwise.
    #[must_use]
    pub fn universe_size(mut self, processes: u32) -> Job {
        self.spec.universe_size = Some(processes);
        self
    }

    /// Whether a rank that fails aborts the job, as it does otherwise. If not, fences wait for live ranks only.
    #[must_use]
    pub fn cleanup(mut self, cleanup: bool) -> Job {
        self.spec.cleanup = cleanup;
        self
    }

    /// Has a fence reported that waits for so long, once ([`StalledFence`](crate::Output::StalledFence)). Never otherwise.
    #[must_use]
    pub fn fence_warning(mut self, after: Duration) -> Job {
        self.spec.fence_warning = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// The ranks of a node are more than its processors. Open MPI 5 then lets waiting ranks yield.
    #[must_use]
    pub fn oversubscribed(self) -> Job {
        self.attribute(OVERSUBSCRIBED_ATTR, "TRUE")
    }

    /// The job is started for a [`Spawn`](crate::Output::Spawn). [`Host::spawn_complete`](crate::Host::spawn_complete) follows.
    #[must_use]
    pub fn spawned_by(mut self, spawn: UpcallId) -> Job {
        self.spec.spawn = Some(spawn);
        self
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.spec.size
    }

    /// Returns the variables of a rank that inherits its connection as descriptor `socket`, or connects to a port, or both: for a
    /// launcher that starts ranks before it can register their job, as [`Host::rank_env`](crate::Host::rank_env) has them
    /// afterwards. `PMIX_HOSTNAME` is the host of the rank's node.
    ///
    /// ```
    /// use hydrant_host::{Job, Port, Rank, Speaks};
    ///
    /// let port = Port::open("127.0.0.1:0".parse()?, Speaks::Pmix)?;
    /// let variables = Job::new("app", 4).rank_env(Rank(2), Some(5), Some(&port))?;
    /// assert_eq!(variables[0], ("PMI_FD", "5".to_owned()));
    /// assert!(variables.contains(&("PMIX_NAMESPACE", "app".to_owned())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Fault`]: there is no such rank.
    pub fn rank_env(
        &self,
        rank: Rank,
        socket: Option<RawFd>,
        port: Option<&Port>,
    ) -> Result<Vec<(&'static str, String)>, Error> {
        let JobSpecOf { ref name, size, spawn, ref spawner, .. } = self.spec;
        if rank.0 >= size {
            return Err(Fault::NoSuchRank.into());
        }
        let host = self.host_of(rank);
        let port = port.map(|port| (port.address(), port.speaks()));
        let is_spawned = is_spawned(spawn, spawner);
        Ok(Variables { name, size, is_spawned, host, fd: socket, port }.of(rank))
    }

    /// Name of the host of a rank, if it has one.
    fn host_of(&self, Rank(rank): Rank) -> Option<&str> {
        let mut end = 0_u32;
        let mut nodes = self.nodes.iter();
        let of = nodes.find(|(_, _, count)| {
            end = end.saturating_add(*count);
            rank < end
        });
        of.map(|(_, host, _)| host.as_str()).filter(|host| !host.is_empty())
    }

    /// Name of the host of a node, if it has one.
    pub(crate) fn host(&self, number: u32) -> Option<&str> {
        let known = self.nodes.iter().find(|(known, host, _)| *known == number && !host.is_empty());
        known.map(|(_, host, _)| host.as_str())
    }

    /// Passes the inputs that follow the registration. `is_cluster` says whether several servers serve the job.
    pub(crate) fn describe(
        &self,
        job: JobId,
        is_cluster: bool,
        mut handle: impl FnMut(Input<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut first = 0_u32;
        for (appnum, &count) in (0..).zip(&self.programs) {
            handle(Input::Program { job, first: Rank(first), count, appnum })?;
            first = first.saturating_add(count);
        }
        let mut first = 0_u32;
        for (node, host, count) in &self.nodes {
            if host.len() > HOST_NAME_MAX || host.contains(',') {
                return Err(Error::HostName { node: *node, host: host.clone() });
            }
            if is_cluster {
                handle(Input::MapRanks { job, first: Rank(first), count: *count, node: *node })?;
            }
            first = first.saturating_add(*count);
        }
        for (key, value) in host_attributes(self.nodes.iter().map(|(node, host, _)| (*node, &**host))) {
            handle(Input::Attr { job, key: key.as_bytes(), value: value.as_bytes() })?;
        }
        if !self.nodes.is_empty() && first != self.spec.size {
            return Err(Error::Nodes { ranks: first, size: self.spec.size });
        }
        if !self.attributes.iter().any(|(key, _)| key == MAPPING) {
            let mapping = process_mapping(&self.runs())?;
            handle(Input::Attr { job, key: MAPPING, value: mapping.as_bytes() })?;
        }
        for (key, value) in &self.attributes {
            handle(Input::Attr { job, key, value })?;
        }
        for (name, ranks) in &self.psets {
            let (first, count) = (Rank(ranks.start), ranks.end.saturating_sub(ranks.start));
            handle(Input::Pset { job, name, first, count })?;
        }
        Ok(())
    }

    /// Nodes of all ranks. MPI libraries count from 0 those that have ranks.
    fn runs(&self) -> Vec<(u32, u32)> {
        if self.nodes.is_empty() {
            return vec![(0, self.spec.size)];
        }
        let mut numbers: Vec<u32> = self.nodes.iter().map(|(number, ..)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let of = |number| numbers.partition_point(|&known| known < number) as u32;
        self.nodes.iter().map(|&(number, _, count)| (of(number), count)).collect()
    }
}

/// Returns a name for a job that no client can guess: `job-PID-NUMBER`.
///
/// # Errors
/// The system has no random numbers.
pub fn random_name() -> Result<String, Error> {
    let mut secret = [0; 8];
    fill_random(&mut secret).map_err(|why| hydrant_reactor::Error { what: "getrandom", why })?;
    Ok(format!("job-{}-{:016x}", process::id(), u64::from_ne_bytes(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_from_0_for_mpi_libraries() {
        let inputs = |job: &Job, is_cluster| {
            let mut inputs = Vec::new();
            let described = job.describe(JobId(3), is_cluster, |input| {
                inputs.push(match input {
                    Input::MapRanks { first, count, node, .. } => format!("{first}+{count} at {node}"),
                    Input::Attr { key, value, .. } => {
                        format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(value))
                    }
                    other => format!("{other:?}"),
                });
                Ok(())
            });
            described.map(|()| inputs)
        };
        let job = Job::new("app", 4).node(1, "a", 2).node(2, "b", 1).node(1, "a", 1);
        let found = inputs(&job, true).expect("the nodes have all ranks");
        assert_eq!(found[..4], ["0+2 at 1", "2+1 at 2", "3+1 at 1", "pmix.hname.0=,a,b"]);
        assert_eq!(found[4], "PMI_process_mapping=(vector,(0,1,2),(1,1,1),(0,1,1))");
        // One server has all ranks.
        assert_eq!(inputs(&job, false).expect("as above").len(), 2);
        assert_eq!(
            inputs(&Job::new("app", 2), true).expect("one node"),
            ["PMI_process_mapping=(vector,(0,1,2))"]
        );
        let own = Job::new("app", 2).attribute("PMI_process_mapping", "(vector,(0,2,1))");
        assert_eq!(inputs(&own, true).expect("one node"), ["PMI_process_mapping=(vector,(0,2,1))"]);
        let short = Job::new("app", 4).node(0, "", 3);
        let why = inputs(&short, true).expect_err("rank 3 has no node").to_string();
        assert_eq!(why, "the nodes of the job have 3 ranks, and the job has 4");
        let two = Job::new("app", 4).node(7, "a,b", 4);
        let why = inputs(&two, true).expect_err("a comma").to_string();
        assert_eq!(why, "\"a,b\", the host of node 7: the name of a host has at most 253 bytes and no comma");
    }
}
