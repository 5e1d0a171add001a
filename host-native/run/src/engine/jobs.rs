//! Jobs that are registered at the PMI server of this process: on a node and at the head of several.
//!
//! Each job has a range of slots, one for each rank. The slots index the tables of processes, streams and connections. A head of
//! several nodes starts no ranks, and has streams for the output of all of them.

use std::ffi::OsStr;
use std::fs;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hydrant_control::NodeRanks;
use hydrant_control::protocol::{JobRecord, RankBlock, StdinTarget, Submitted};
use hydrant_driver::TcpPort;
use hydrant_reactor::Listener;
use hydrant_start::{Launcher, MemoryPool};

use super::query::Query;

/// A job at this process.
pub(super) type Job = hydrant_control::Job<LocalRanks>;
/// All of them.
pub(super) type Jobs = hydrant_control::Jobs<LocalRanks>;

/// Maximum number of files of a job that are removed after the exit of its ranks.
const LEFTOVERS_MAX: usize = 1 << 16;

/// Hosts of the ranks of a job.
#[derive(Debug, Default)]
pub(super) struct RankHosts {
    /// Node of each rank, in ascending order of ranks.
    blocks: Vec<RankBlock>,
    /// Host of each node, in ascending order of nodes.
    names: Vec<(u32, String)>,
}

impl RankHosts {
    /// Takes the hosts from a record.
    pub(super) fn take(record: &mut JobRecord) -> RankHosts {
        RankHosts { blocks: mem::take(&mut record.blocks), names: mem::take(&mut record.hosts) }
    }

    /// Host of a rank. Empty for ranks that the job does not have.
    pub(super) fn of(&self, rank: u32) -> &str {
        let at = self.blocks.partition_point(|block| block.first + block.count <= rank);
        let node = self.blocks.get(at).map(|block| block.node);
        let at = node.and_then(|node| self.names.binary_search_by_key(&node, |(node, _)| *node).ok());
        at.map_or("", |at| &self.names[at].1)
    }
}

/// Ranks of a job on this machine, and what the process has for all of the job's ranks.
#[derive(Default)]
pub(super) struct LocalRanks {
    /// Ranks that this process starts.
    pub(super) ranks: NodeRanks,
    /// Hosts of all ranks.
    pub(super) hosts: RankHosts,
    /// Missing without such ranks.
    pub(super) launcher: Option<Launcher>,
    /// Port for PMI clients, in the place of inherited sockets.
    pub(super) port: Option<Listener<TcpPort>>,
    /// Port for PMIx clients.
    pub(super) pmix: Option<Listener<TcpPort>>,
    /// Query socket.
    pub(super) queries: Option<Listener<Query>>,
    /// Whether a rank has joined.
    pub(super) joined: bool,
    /// PMIx clients that were refused.
    pub(super) unserved: u64,
    /// Files to remove after the exit of a rank.
    pub(super) leftovers: Vec<(u32, PathBuf)>,
    /// Whether fences bring this host all values, as far as it has been printed.
    pub(super) fences_collect: Option<bool>,
    /// Where a job of a fleet comes from, and its settings.
    pub(super) submitted: Option<Submitted>,
    /// Memory that these ranks share.
    pub(super) pool: Option<MemoryPool>,
    /// Ranks that read what tools push.
    pub(super) pushed_to: Option<StdinTarget>,
}

impl LocalRanks {
    /// Adds files to remove after the exit of a rank. `paths` are separated by commas. Those that `allows` rejects are left
    /// out.
    pub(super) fn add_leftovers(&mut self, rank: u32, paths: &[u8], allows: fn(&Path) -> bool) {
        let paths = paths.split(|&byte| byte == b',').map(|path| Path::new(OsStr::from_bytes(path)));
        let new = paths.filter(|path| path.is_absolute() && allows(path)).map(|path| (rank, path.to_owned()));
        self.leftovers.extend(new.take(LEFTOVERS_MAX.saturating_sub(self.leftovers.len())));
    }

    /// Removes the files that a rank has left. They may be gone.
    pub(super) fn remove_leftovers(&mut self, rank: u32) {
        self.leftovers.retain(|(of, path)| {
            let remove = *of == rank;
            if remove {
                drop(fs::remove_file(path));
            }
            !remove
        });
    }

    /// The next time at which a pause of a listening socket ends.
    pub(super) fn resume_at(&self) -> Option<u64> {
        let ports = self.port.iter().chain(&self.pmix).map(Listener::deadline);
        ports.chain(self.queries.iter().map(Listener::deadline)).flatten().min()
    }

    /// The ports that the job listens at.
    pub(super) fn ports_mut(&mut self) -> impl Iterator<Item = &mut Listener<TcpPort>> {
        self.port.iter_mut().chain(&mut self.pmix)
    }
}

/// Most pipes of jobs that tools have spawned, for what tools push to ranks on this machine.
pub(super) fn count_pushed(jobs: &Jobs) -> u64 {
    let spawned = jobs.iter().filter(|job| job.ordinal > 0 && job.run.pushed_to.is_some());
    spawned.map(|job| u64::from(job.run.ranks.count())).sum()
}

/// Number of ranks of all jobs on this machine.
pub(super) fn count_ranks(jobs: &Jobs) -> u64 {
    jobs.iter().map(|job| u64::from(job.run.ranks.count())).sum()
}
