//! State of a server that its host knows from inputs and outputs: jobs, connections, links and upcalls.

use super::Server;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::state::Phase;
use crate::tables::upcalls::Stage;
use crate::wire::Integers;

/// Part of the state that a host keeps of a server: what it has given the server, or the server has requested of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState<'a> {
    /// The node of the server, and the tree of nodes.
    Node {
        /// Number of the node.
        node: u32,
        /// Number of nodes.
        nodes: u32,
        /// Radix of the tree, as [`Input::Node`](super::Input::Node) had it.
        radix: u32,
    },
    /// A link that the host has blocked, or whose neighbour is no member.
    BlockedLink {
        /// The neighbour.
        node: u32,
    },
    /// A registered job. Its ranks follow.
    Job {
        /// The job.
        job: JobId,
        /// Its job id.
        name: &'a str,
        /// Number of its ranks.
        size: u32,
        /// Whether the host carries out requests about names.
        remote_names: bool,
        /// Whether its fences are lazy.
        lazy: bool,
        /// Whether the host has been told to abort it.
        aborted: bool,
    },
    /// A rank of a job on several nodes.
    Rank {
        /// Its job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Its node.
        node: u32,
    },
    /// An open connection.
    Conn {
        /// The connection.
        conn: ConnId,
        /// Its job.
        job: JobId,
        /// Whether the host has been told to close it.
        closing: bool,
        /// Whether the host has blocked it.
        blocked: bool,
        /// Whether its client has sent a request that tells the protocol.
        spoken: bool,
        /// Encoding of integers of a PMIx client.
        pmix: Option<Integers>,
        /// Number of pending replies.
        owed: u32,
    },
    /// A spawn or another upcall that the host has not completed.
    Upcall(UpcallId),
}

impl Server<'_> {
    /// Passes all that the host knows of to `visit`, so that another host can go on with the server.
    pub fn host_state(&self, visit: &mut dyn FnMut(HostState<'_>)) {
        let (links, node, tree, _) = self.links.state();
        visit(HostState::Node { node, nodes: tree.nodes(), radix: tree.form() });
        for link in links.iter().filter(|link| link.blocked || !link.is_open()) {
            visit(HostState::BlockedLink { node: link.node });
        }
        for (id, job) in (0..).map(JobId).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty()) {
            visit(HostState::Job {
                job: id,
                name: &job.name,
                size: job.size,
                remote_names: job.remote_names,
                lazy: job.lazy,
                aborted: job.ending.is_some() && !job.ending_pending,
            });
            for (rank, slot) in (0..).map(Rank).zip(&self.ranks[job.slots()]) {
                visit(HostState::Rank { job: id, rank, node: slot.node });
            }
        }
        for (id, conn) in (0..).map(ConnId).zip(&*self.conns) {
            let Some(job) = conn.job else { continue };
            visit(HostState::Conn {
                conn: id,
                job,
                closing: conn.closing.is_some() && !conn.closing_pending,
                blocked: conn.blocked,
                spoken: conn.pmix.is_some() || conn.phase != Phase::Opened,
                pmix: conn.pmix.map(|dialect| dialect.integers),
                owed: conn.replies.len() as u32,
            });
        }
        let (upcalls, _) = self.upcalls.state();
        for (id, slot) in (0..).map(UpcallId).zip(upcalls) {
            if slot.parent.is_some() && matches!(slot.stage, Stage::Passed | Stage::Begun(_)) {
                visit(HostState::Upcall(id));
            }
        }
    }

    /// Ends a server whose log other processes read. They find no key in it from now on.
    pub fn retire(mut self) {
        self.kvs.clear();
    }
}
