//! Registered job: its name, its port, the variables of its ranks, and which of them run.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::{Fault, JobSpec, Rank};
use hydrant_driver::{Speaks, TcpPort, pmix_variables};
use hydrant_reactor::Listener;

use crate::event::Event;

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
            is_spawned: spec.spawn.is_some() || !spec.spawner.is_empty(),
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

    /// Variables of a rank: those of PMI for a client that inherits its connection or connects to the port, and those of PMIx
    /// if the port is for such clients.
    pub(crate) fn variables(&self, rank: Rank, fd: Option<i32>) -> Vec<(&'static str, String)> {
        let port = self.port.as_ref().map(|(port, speaks)| (port.socket().addr().to_string(), *speaks));
        let mut variables = match (fd, &port) {
            (Some(fd), _) => vec![("PMI_FD", fd.to_string())],
            (None, Some((address, Speaks::Any | Speaks::Pmi))) => {
                vec![("PMI_PORT", address.clone()), ("PMI_ID", rank.to_string())]
            }
            (None, _) => Vec::new(),
        };
        variables.extend([("PMI_RANK", rank.to_string()), ("PMI_SIZE", self.size.to_string())]);
        if self.is_spawned {
            variables.push(("PMI_SPAWNED", "1".to_owned()));
        }
        if let Some((address, Speaks::Any | Speaks::Pmix)) = port {
            variables.extend(pmix_variables(&self.name, Some(&address)));
            variables.push(("PMIX_RANK", rank.to_string()));
            variables.extend(self.host.iter().map(|host| ("PMIX_HOSTNAME", host.clone())));
            // MPICH 5 does not choose between PMI and PMIx by itself.
            variables.push(("MPIR_CVAR_PMI_VERSION", "1".to_owned()));
        }
        variables
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
