//! Registered job: its name, its port, the variables of its ranks, and which of them run.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::RawFd;

use hydrant_core::{Fault, JobSpec, Rank};
use hydrant_driver::{Speaks, TcpPort};
use hydrant_reactor::Listener;

use crate::event::Event;
use crate::variables::{Variables, is_spawned};

/// Maximum number of requests of a rank to remove files that wait for its end. Further ones are carried out at once.
const REMOVALS_MAX: usize = 64;

/// A registered job.
#[derive(Debug)]
pub(crate) struct Served {
    name: String,
    size: u32,
    is_spawned: bool,
    /// Name of this node's host for PMIx clients, if the launcher has named it.
    pub(crate) host: Option<String>,
    /// Port for clients, and their protocols.
    pub(crate) port: Option<(Listener<TcpPort>, Speaks)>,
    /// Ranks that were set up and whose processes have not ended, each with its requests to remove files then.
    running: BTreeMap<Rank, Vec<Event>>,
    /// Ranks whose processes have ended.
    exited: BTreeSet<Rank>,
}

impl Served {
    pub(crate) fn new(spec: &JobSpec<'_>) -> Served {
        Served {
            name: spec.name.to_owned(),
            size: spec.size,
            is_spawned: is_spawned(spec.spawn, spec.spawner),
            host: None,
            port: None,
            running: BTreeMap::new(),
            exited: BTreeSet::new(),
        }
    }

    /// Returns the faults of an exit that the server learns of when the rank's last requests have been read.
    pub(crate) fn check_exit(&self, rank: Rank) -> Result<(), Fault> {
        self.check_rank(rank)?;
        if self.exited.contains(&rank) { Err(Fault::RankTaken) } else { Ok(()) }
    }

    pub(crate) fn check_rank(&self, rank: Rank) -> Result<(), Fault> {
        if rank.0 < self.size { Ok(()) } else { Err(Fault::NoSuchRank) }
    }

    /// Notes that the process of a rank is to be started.
    pub(crate) fn set_up(&mut self, rank: Rank) {
        self.running.insert(rank, Vec::new());
    }

    /// Notes that the process of a rank has ended. Returns the requests that have waited for that.
    pub(crate) fn exit(&mut self, rank: Rank) -> Vec<Event> {
        self.exited.insert(rank);
        self.running.remove(&rank).unwrap_or_default()
    }

    /// Returns a request to remove files if it can be carried out, and keeps it if the process of the rank runs.
    pub(crate) fn keep_removal(&mut self, rank: Rank, request: Event) -> Option<Event> {
        match self.running.get_mut(&rank) {
            Some(requests) if requests.len() < REMOVALS_MAX => {
                requests.push(request);
                None
            }
            _ => Some(request),
        }
    }

    /// Variables of a rank, which inherits its connection as descriptor `fd` or connects to the port.
    pub(crate) fn variables(&self, rank: Rank, fd: Option<RawFd>) -> Vec<(&'static str, String)> {
        let port = self.port.as_ref().map(|(port, speaks)| (port.socket().addr(), *speaks));
        let Served { ref name, size, is_spawned, ref host, .. } = *self;
        Variables { name, size, is_spawned, host: host.as_deref(), fd, port }.of(rank)
    }
}

#[cfg(test)]
mod tests {
    use hydrant_core::{JobId, OwnedOutput};

    use super::*;

    #[test]
    fn files_are_removed_when_their_rank_has_ended() {
        let mut job = Served::new(&JobSpec::new(JobId(0), "job", 2));
        let (here, other) = (Rank(0), Rank(1));
        let request = |rank| {
            let paths = b"/dev/shm/segment".to_vec();
            Event::Output(OwnedOutput::RemoveFiles { job: JobId(0), rank, paths })
        };
        job.set_up(here);
        // The host carries the bytes of the other rank, and knows when it ends.
        assert_eq!(job.keep_removal(other, request(other)), Some(request(other)));
        for _ in 0..REMOVALS_MAX {
            assert_eq!(job.keep_removal(here, request(here)), None);
        }
        assert_eq!(job.keep_removal(here, request(here)), Some(request(here)));
        assert_eq!(job.exit(here), vec![request(here); REMOVALS_MAX]);
        assert_eq!(job.keep_removal(here, request(here)), Some(request(here)));
        assert_eq!(
            [here, other, Rank(2)].map(|rank| job.check_exit(rank).err()),
            [Some(Fault::RankTaken), None, Some(Fault::NoSuchRank)]
        );
    }
}
