//! Servers of several nodes, joined by links whose messages arrive in any order that keeps each link's.

use std::collections::BTreeMap;

use super::restore::check_restored;
use super::*;
use crate::limits::exit_delay;

pub(super) const LIMITS: Limits = Limits {
    jobs: 2,
    ranks: 16,
    conns: 16,
    keys: 256,
    kvs_bytes: 1 << 17,
    groups: 4,
    names: 2,
    spawns: 4,
    spawn_bytes: 512,
    psets: 4,
    links: 4,
    commit_bytes: 0,
};

/// One of so many messages leads to a state that is saved and restored.
const RESTORED: u32 = 29;

/// Servers of several nodes. Node 0 is the head, and rank `r` is on node `1 + r % (nodes - 1)` unless placed otherwise.
pub(super) struct Cluster {
    pub(super) hosts: Vec<Host>,
    /// Messages in flight, by sender and receiver.
    pub(super) wires: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    pub(super) size: u32,
    /// Node of each rank.
    map: Vec<u32>,
    pub(super) seed: u64,
    /// Ranks with a reply since the last check, and the replies.
    pub(super) replies: BTreeMap<u32, String>,
    delivered: u32,
}

impl Cluster {
    pub(super) fn new(nodes: u32, radix: u32, size: u32, cleanup: bool, seed: u64) -> Cluster {
        let mut all = Cluster::unjoined(nodes, radix, size, cleanup, seed);
        (0..size).for_each(|rank| all.init(rank));
        all
    }

    /// Servers with other limits than [`LIMITS`].
    pub(super) fn with_limits(limits: Limits, nodes: u32, radix: u32, size: u32) -> Cluster {
        let mut all = Cluster::of(limits, (nodes, radix), spec(size), 1);
        (0..size).for_each(|rank| all.init(rank));
        all
    }

    /// Servers whose ranks have connections and have not initialized.
    pub(super) fn unjoined(nodes: u32, radix: u32, size: u32, cleanup: bool, seed: u64) -> Cluster {
        Cluster::of(LIMITS, (nodes, radix), JobSpec { cleanup, ..spec(size) }, seed)
    }

    /// Servers of a job with lazy fences, whose ranks use PMI-2.
    #[cfg(feature = "cluster")]
    pub(super) fn lazy(nodes: u32, radix: u32, size: u32, seed: u64) -> Cluster {
        let spec = JobSpec { fence: FenceMode::Lazy, ..spec(size) };
        let mut all = Cluster::of(LIMITS, (nodes, radix), spec, seed);
        for rank in 0..size {
            all.host(rank).join_v2(rank, &std::format!("pmirank={rank};"));
        }
        all
    }

    pub(super) fn of(limits: Limits, (nodes, radix): (u32, u32), spec: JobSpec<'_>, seed: u64) -> Cluster {
        let map = (0..spec.size).map(|rank| 1 + rank % (nodes - 1)).collect();
        Cluster::placed(limits, (nodes, radix), spec, map, seed)
    }

    /// Servers of ranks on the nodes of `map`.
    pub(super) fn placed(
        limits: Limits,
        (nodes, radix): (u32, u32),
        spec: JobSpec<'_>,
        map: Vec<u32>,
        seed: u64,
    ) -> Cluster {
        let size = spec.size;
        let hosts = (0..nodes).map(|node| server_of(limits, node, (nodes, radix), spec, &map)).collect();
        let mut all = Cluster {
            hosts,
            wires: BTreeMap::new(),
            size,
            map,
            seed,
            replies: BTreeMap::new(),
            delivered: 0,
        };
        for rank in 0..size {
            let host = all.host(rank);
            host.open(rank, Some(rank));
        }
        all
    }

    pub(super) fn init(&mut self, rank: u32) {
        let host = self.host(rank);
        host.says(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
        host.replies.clear();
    }

    pub(super) fn node(&self, rank: u32) -> usize {
        self.map[rank as usize] as usize
    }

    pub(super) fn host(&mut self, rank: u32) -> &mut Host {
        let node = self.node(rank);
        &mut self.hosts[node]
    }

    pub(super) fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }

    /// Collects the outputs of the servers.
    pub(super) fn collect(&mut self) {
        for (from, host) in (0u32..).zip(&mut self.hosts) {
            for (to, message) in host.messages.drain(..) {
                self.wires.entry((from, to)).or_default().push_back(message);
            }
            for (conn, reply) in host.replies.drain(..) {
                assert_eq!(self.replies.insert(conn.0, reply), None, "rank {conn} is answered twice");
            }
        }
    }

    /// Takes one of the messages that come next on their links, with its sender and receiver.
    pub(super) fn next_message(&mut self) -> Option<(u32, u32, Vec<u8>)> {
        self.collect();
        let full: Vec<(u32, u32)> =
            self.wires.iter().filter(|(_, wire)| !wire.is_empty()).map(|(&exits, _)| exits).collect();
        if full.is_empty() {
            return None;
        }
        let (from, to) = full[self.random(full.len())];
        let message = self.wires.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        Some((from, to, message))
    }

    /// Delivers one message. Returns false if none is in flight.
    pub(super) fn deliver(&mut self) -> bool {
        let Some((from, to, message)) = self.next_message() else { return false };
        self.take(from, to, &message);
        true
    }

    /// Passes a message to its receiver.
    pub(super) fn take(&mut self, from: u32, to: u32, message: &[u8]) {
        let host = &mut self.hosts[to as usize];
        host.tell(Input::Peer { node: from, bytes: message });
        self.delivered += 1;
        if self.delivered.is_multiple_of(RESTORED) {
            check_restored(&host.server);
        }
    }

    pub(super) fn after_command(&mut self) {
        while self.deliver() {}
    }

    /// Delivers all messages, after exits have waited for others on each node on their way.
    pub(super) fn after_exits(&mut self) {
        for _ in 0..self.hosts.len() {
            self.after_command();
            for host in &mut self.hosts {
                host.now = host.now.after(exit_delay(host.server.limits()));
                host.tell(Input::Timeout);
            }
        }
        self.after_command();
    }

    pub(super) fn says(&mut self, rank: u32, line: &str) {
        self.host(rank).says(rank, &std::format!("cmd={line}\n"));
        self.collect();
    }

    pub(super) fn asks(&mut self, rank: u32, line: &str) -> String {
        self.says(rank, line);
        self.replies.remove(&rank).expect("it is answered at once")
    }

    pub(super) fn get(&mut self, rank: u32, key: &str) -> String {
        self.asks(rank, &std::format!("get kvsname=kvs_1 key={key}"))
    }

    /// Returns the number of group slots in use on all nodes.
    pub(super) fn groups(&self) -> u32 {
        self.hosts.iter().map(|host| host.server.used(Limit::Groups)).sum()
    }

    /// Sends the same request for each of these ranks, with deliveries in between. No rank may get a reply before all
    /// requests were sent.
    pub(super) fn collective(&mut self, ranks: &[u32], line: &str, reply: &str) {
        let mut waiting: Vec<u32> = ranks.to_vec();
        while !waiting.is_empty() {
            let at = self.random(waiting.len());
            let rank = waiting.swap_remove(at);
            assert!(self.replies.is_empty(), "released before rank {rank} has come: {:?}", self.replies);
            self.says(rank, line);
            for _ in 0..self.random(4) {
                self.deliver();
            }
        }
        self.after_command();
        let replies = std::mem::take(&mut self.replies);
        assert_eq!(replies.keys().copied().collect::<Vec<_>>(), ranks, "each rank once");
        assert!(replies.values().all(|got| got == reply), "{replies:?}");
    }
}

/// A server of a job's ranks on the nodes of `map`.
pub(super) fn server_of(
    limits: Limits,
    node: u32,
    (nodes, radix): (u32, u32),
    spec: JobSpec<'_>,
    map: &[u32],
) -> Host {
    let mut host = Host::with_limits(limits);
    host.tell(Input::Node { node, nodes, radix });
    host.job(spec);
    for (rank, &node) in (0..).zip(map) {
        host.tell(Input::MapRanks { job: JOB, first: Rank(rank), count: 1, node });
    }
    host
}
