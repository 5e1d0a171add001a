//! Tests of changes of membership: nodes that are lost while the jobs go on, and nodes that join.

use std::collections::BTreeSet;
use std::string::ToString;

use super::cluster::{Cluster, LIMITS, server_of};
use super::*;
use crate::peer::tree::{LATE, Tree};

/// Begin of a message that stands for the order of the head on a link.
const ORDER: u8 = 0xff;

/// Servers of a job that goes on, and its dead.
struct Members {
    all: Cluster,
    tree: Tree,
    lost: BTreeSet<u32>,
    /// Nodes that have not joined.
    awaited: BTreeSet<u32>,
    epoch: u32,
}

impl Members {
    fn new(all: Cluster, radix: u32) -> Members {
        let tree = Tree::new(all.hosts.len() as u32, radix);
        let awaited = (tree.nodes() - tree.late()..tree.nodes()).collect();
        Members { all, tree, lost: BTreeSet::new(), awaited, epoch: 0 }
    }

    /// Returns whether a rank's node is a member.
    fn lives(&self, rank: u32) -> bool {
        !self.lost.contains(&(self.all.node(rank) as u32))
    }

    fn living(&self) -> Vec<u32> {
        (0..self.all.size).filter(|&rank| self.lives(rank)).collect()
    }

    /// A node and those below it are lost. The head applies the change, and the order travels behind what it has sent.
    fn lose(&mut self, node: u32) {
        self.all.collect();
        self.lost.extend(self.tree.subtree(node));
        self.epoch += 1;
        self.apply(0, Input::NodeLost { epoch: self.epoch, node });
    }

    /// A node joins. The order is the first that it gets.
    fn join(&mut self, node: u32) {
        self.all.collect();
        self.awaited.remove(&node);
        self.epoch += 1;
        self.apply(0, Input::NodeJoined { epoch: self.epoch, node });
    }

    fn apply(&mut self, at: u32, change: Input<'_>) {
        self.all.hosts[at as usize].tell(change);
        let children = self.tree.children(at).map(|part| part.start);
        for child in children.filter(|child| !self.awaited.contains(child)) {
            let mut order = vec![ORDER; 32];
            let len = postcard::to_slice(&change, &mut order[1..]).expect("a change is short").len();
            order.truncate(1 + len);
            self.all.wires.entry((at, child)).or_default().push_back(order);
        }
        self.drop_lost();
    }

    /// Delivers one message or order. Returns false if none is in flight.
    fn deliver(&mut self) -> bool {
        self.drop_lost();
        match self.all.next_message() {
            Some((_, to, order)) if order[0] == ORDER => {
                self.apply(to, Input::read(&order[1..]).expect("a change"));
            }
            Some((from, to, message)) => self.all.take(from, to, &message),
            None => return false,
        }
        true
    }

    /// Drops what lost nodes have sent and are sent.
    fn drop_lost(&mut self) {
        self.all.collect();
        let (lost, all) = (&self.lost, &mut self.all);
        all.wires.retain(|(from, to), _| !lost.contains(from) && !lost.contains(to));
        let dead: Vec<u32> = (0..all.size).filter(|&rank| lost.contains(&(all.node(rank) as u32))).collect();
        all.replies.retain(|rank, _| !dead.contains(rank));
    }

    fn after_command(&mut self) {
        while self.deliver() {}
    }

    /// Returns the reply to a get of a connection of a node, once all messages have been delivered.
    fn get(&mut self, node: u32, conn: u32, key: &str) -> String {
        self.all.hosts[node as usize].says(conn, &format!("cmd=get kvsname={key}\n"));
        self.after_command();
        self.all.replies.remove(&conn).expect("the get is answered")
    }

    /// Another host gets the number of a node that is lost.
    fn replace(&mut self, host: Host, node: u32) {
        self.all.hosts[node as usize] = host;
        self.lost.remove(&node);
        self.join(node);
        self.after_command();
    }

    /// Sends a line for each living rank among these, with deliveries in between, and loses nodes at random. Returns the
    /// ranks that live at the end, each of which has been answered once.
    fn meet(&mut self, ranks: &[u32], line: &str, loses: bool) -> Vec<(u32, String)> {
        let mut coming: Vec<u32> = ranks.iter().copied().filter(|&rank| self.lives(rank)).collect();
        let mut left = usize::from(loses) * (1 + self.all.random(2));
        while !coming.is_empty() {
            let at = self.all.random(coming.len());
            let rank = coming.swap_remove(at);
            assert!(self.all.replies.is_empty(), "released before rank {rank} has come");
            self.all.says(rank, line);
            for _ in 0..self.all.random(6) {
                self.deliver();
            }
            if left > 0 && self.all.random(3) == 0 {
                left -= 1;
                self.lose_some();
                coming.retain(|&rank| self.lives(rank));
            }
            for _ in 0..self.all.random(6) {
                self.deliver();
            }
        }
        if left > 0 {
            self.lose_some();
        }
        self.after_command();
        std::mem::take(&mut self.all.replies).into_iter().collect()
    }

    /// Loses a random node if ranks are left then.
    fn lose_some(&mut self) {
        let node = 1 + self.all.random(self.all.hosts.len() - 1) as u32;
        let subtree = self.tree.subtree(node);
        let is_left = |&rank: &u32| self.lives(rank) && !subtree.contains(&(self.all.node(rank) as u32));
        if !self.lost.contains(&node) && (0..self.all.size).any(|rank| is_left(&rank)) {
            self.lose(node);
        }
    }

    /// Returns the number of group slots in use on the nodes that are members.
    fn groups(&self) -> u32 {
        let members = (0..).zip(&self.all.hosts).filter(|(node, _)| !self.lost.contains(node));
        members.map(|(_, host)| host.server.used(Limit::Groups)).sum()
    }
}

/// Returns the ranks of a value such as `0,2-3`.
fn numbers(reply: &str) -> Vec<u32> {
    let (_, list) = reply.trim_end().split_once("value=").expect("a value");
    let ranges = list.split(',').filter(|range| !range.is_empty()).flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().expect("a rank")..=last.parse::<u32>().expect("a rank")
    });
    ranges.collect()
}

/// Clusters of several shapes, each with a seed.
fn shapes() -> impl Iterator<Item = (u32, u32, u64)> {
    (0..96).map(|seed| ([3, 4, 7, 9][seed as usize % 4], [2, 3][seed as usize % 2], seed))
}

// Fault: Hosts are lost at any time of fences, with or without hosts below them
// Outcome: every fence among the other ranks ends, and they know the dead when it does
// Guarantee: Fences wait for the members of their epoch
// Also: nodes `membership::survivors_of_a_lost_host_meet_and_know_the_dead`
#[test]
fn fences_complete_among_the_living_whatever_node_is_lost() {
    let mut lost = 0;
    for (nodes, radix, seed) in shapes() {
        let mut members = Members::new(Cluster::new(nodes, radix, 12, false, seed), radix);
        let ranks: Vec<u32> = (0..12).collect();
        for round in 0..5 {
            let replies = members.meet(&ranks, "barrier_in", round % 2 == 0);
            let released: Vec<u32> = replies.iter().map(|(rank, _)| *rank).collect();
            assert_eq!(released, members.living(), "seed {seed}, round {round}: lost {:?}", members.lost);
            assert!(
                replies.iter().all(|(_, reply)| reply == "cmd=barrier_out rc=0\n"),
                "seed {seed}: {replies:?}"
            );
            let dead: Vec<u32> = ranks.iter().copied().filter(|&rank| !members.lives(rank)).collect();
            for rank in members.living() {
                let known = members.all.get(rank, "PMI_dead_processes");
                assert_eq!(numbers(&known), dead, "seed {seed}, rank {rank}: {known}");
            }
        }
        lost += members.lost.len();
        assert!(members.all.hosts.iter().all(|host| host.events.is_empty()), "no job ends");
    }
    assert!(lost > 96, "{lost} nodes are lost");
}

// Fault: A host leaves a job that ends with its first failure before another server has heard that the rank there has ended
// Outcome: the job goes on
// Guarantee: No rank is dead because its host leaves
#[test]
fn a_rank_of_a_host_that_has_left_is_not_missed() {
    let mut members = Members::new(Cluster::new(4, 3, 4, true, 1), 3);
    members.all.says(2, "finalize");
    members.all.host(2).tell(Input::Exited { job: JOB, rank: Rank(2), exit: Exit::Code(0) });
    // The message of the end is still on its way to the other servers.
    members.lose(members.all.node(2) as u32);
    members.after_command();
    // Rank 3 is on the host of rank 0, and goes on.
    members.all.says(0, "finalize");
    members.all.host(0).tell(Input::Exited { job: JOB, rank: Rank(0), exit: Exit::Code(0) });
    members.after_command();
    let events: Vec<_> = members.all.hosts.iter().flat_map(|host| &host.events).collect();
    assert!(events.is_empty(), "{events:?}");
}

#[test]
fn groups_complete_among_the_living_whatever_node_is_lost() {
    for (nodes, radix, seed) in shapes() {
        let mut members = Members::new(Cluster::new(nodes, radix, 12, false, seed), radix);
        for tag in 0..6 {
            let mut ranks: Vec<u32> = (0..12).filter(|_| members.all.random(2) == 0).collect();
            if ranks.is_empty() {
                ranks.push(5);
            }
            let list = ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let replies = members.meet(&ranks, &format!("barrier_in group={list}:{tag}"), tag % 2 == 0);
            let released: Vec<u32> = replies.iter().map(|(rank, _)| *rank).collect();
            let living: Vec<u32> = ranks.iter().copied().filter(|&rank| members.lives(rank)).collect();
            assert_eq!(released, living, "seed {seed}, group {list}: lost {:?}", members.lost);
            assert_eq!(members.groups(), 0, "seed {seed}, group {list}: no slot is left taken");
        }
    }
}

#[test]
fn gets_of_pairs_of_a_lost_node_are_answered() {
    for seed in 0..60 {
        let (nodes, radix) = ([3, 4, 7][seed as usize % 3], [2, 3][seed as usize % 2]);
        let spec = JobSpec { fence: FenceMode::Lazy, cleanup: false, ..spec(6) };
        let mut all = Cluster::of(LIMITS, (nodes, radix), spec, seed);
        for rank in 0..6 {
            all.host(rank).join_v2(rank, &format!("pmirank={rank};"));
            all.host(rank).asks(rank, &format!("cmd=kvs-put;key=k{rank};value=v{rank};"));
            all.collect();
        }
        all.replies.clear();
        for rank in 0..6 {
            all.host(rank).asks(rank, "cmd=kvs-fence;");
        }
        all.after_command();
        assert_eq!(std::mem::take(&mut all.replies).len(), 6);
        let mut members = Members::new(all, radix);
        let (asking, of) = (5, members.all.random(5) as u32);
        let get = |members: &mut Members, key: u32| {
            let line = format!("cmd=kvs-get;jobid=kvs_1;srcid={key};key=k{key};");
            members.all.host(asking).asks(asking, &line);
            members.all.collect();
        };
        get(&mut members, of);
        for _ in 0..members.all.random(8) {
            members.deliver();
        }
        let node = members.all.node(of) as u32;
        if members.tree.subtree(node).contains(&(members.all.node(asking) as u32)) {
            continue;
        }
        members.lose(node);
        members.after_command();
        let reply = members.all.replies.remove(&asking).expect("the get is answered");
        let is_known = reply.contains(&format!("found=TRUE;value=v{of};"));
        assert!(is_known || reply.contains("found=FALSE;"), "seed {seed}: {reply}");
        // Pairs of the others are there as before.
        for key in members.living() {
            get(&mut members, key);
            members.after_command();
            let reply = members.all.replies.remove(&asking).expect("the get is answered");
            assert!(reply.contains(&format!("found=TRUE;value=v{key};")), "seed {seed}: {reply}");
        }
    }
}

#[test]
fn changes_are_taken_in_order_and_about_other_nodes_only() {
    let mut all = Cluster::new(7, 2, 6, false, 1);
    let host = &mut all.hosts[1];
    let child = Tree::new(7, 2).children(1).next().expect("node 1 has children").start;
    for (epoch, node) in [(0, child), (2, child), (1, 1), (1, 0), (1, 7), (1, u32::MAX)] {
        let before = host.server.snapshot_len();
        let refused = host.server.handle(Time(0), Input::NodeLost { epoch, node });
        assert_eq!(refused, Err(Fault::BadNode), "change {epoch} of node {node}");
        assert_eq!(host.server.snapshot_len(), before);
    }
    host.tell(Input::NodeLost { epoch: 1, node: child });
    // What a lost neighbour had sent is dropped, and nothing is sent to it.
    host.tell(Input::Peer { node: child, bytes: b"\xff" });
    host.tell(Input::PeerWritable { node: child });
    host.tell(Input::NodeLost { epoch: 2, node: child });
}

// Fault: Hosts join at any time of fences, and a later job has ranks on them
// Outcome: the fences end as without them, and the new ranks find what older jobs have put
// Guarantee: A host that joins has all that the members of its epoch have
// Also: nodes `growth::a_spawn_uses_a_host_that_has_joined`
#[test]
fn nodes_join_at_any_time_of_fences_and_serve_later_jobs() {
    let form = 2 | (2 * LATE);
    for seed in 0..36 {
        let map: Vec<u32> = (0..4).map(|rank| 1 + rank % 2).collect();
        let fence = if seed % 3 == 0 { FenceMode::Lazy } else { FenceMode::Collect };
        let spec_of_all = JobSpec { cleanup: false, fence, ..spec(4) };
        let mut all = Cluster::placed(LIMITS, (5, form), spec_of_all, map.clone(), seed);
        (0..4).for_each(|rank| all.init(rank));
        let mut members = Members::new(all, form);
        for (round, joins) in [None, Some(4), Some(3), None].into_iter().enumerate() {
            for rank in 0..4 {
                let put = format!("put kvsname=kvs_1 key=k{rank}.{round} value=v{rank}.{round}");
                members.all.asks(rank, &put);
            }
            let at = members.all.random(4) as u32;
            for rank in 0..4 {
                joins.filter(|_| rank == at).into_iter().for_each(|node| members.join(node));
                assert!(members.all.replies.is_empty(), "seed {seed}: released before rank {rank} has come");
                members.all.says(rank, "barrier_in");
                for _ in 0..members.all.random(6) {
                    members.deliver();
                }
            }
            members.after_command();
            assert_eq!(std::mem::take(&mut members.all.replies).len(), 4, "seed {seed}, round {round}");
            assert_eq!(
                members.get(map[1], 1, &format!("kvs_1 key=k0.{round}")),
                format!("cmd=get_result rc=0 value=v0.{round}\n")
            );
        }
        // Ranks of a later job are on an old node and the new ones.
        serve_later_job(&mut members, &[3, 1, 4]);
        for host in &mut members.all.hosts {
            host.tell(Input::DeregisterJob { job: LATER });
        }
        // Another host has the number of one that has left.
        members.lose(4);
        members.after_command();
        members.replace(server_of(LIMITS, 4, (5, form), spec_of_all, &map), 4);
        serve_later_job(&mut members, &[4, 2]);
    }
}

/// A job that begins when others have put.
const LATER: JobId = JobId(1);

/// Registers a job, connected to the first one, with a rank on each of these nodes, which initializes on connection 8 and on.
fn register_later(members: &mut Members, nodes: &[u32]) {
    let size = nodes.len() as u32;
    for host in &mut members.all.hosts {
        host.tell(Input::RegisterJob(JobSpec { spawner: "kvs_1", ..JobSpec::new(LATER, "kvs_2", size) }));
        for (rank, &node) in (0..).zip(nodes) {
            host.tell(Input::MapRanks { job: LATER, first: Rank(rank), count: 1, node });
        }
    }
    for host in &mut members.all.hosts {
        host.tell(Input::Connected { job: LATER, other: JOB, connected: true });
    }
    for (rank, &node) in (0..).zip(nodes) {
        let host = &mut members.all.hosts[node as usize];
        host.tell(Input::Opened { conn: ConnId(8 + rank), job: LATER, rank: Some(Rank(rank)) });
        host.says(8 + rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
        host.replies.clear();
    }
}

/// Registers a job with a rank on each of these nodes, which meet, and read what both jobs have put.
fn serve_later_job(members: &mut Members, nodes: &[u32]) {
    register_later(members, nodes);
    for (rank, &node) in (0..).zip(nodes) {
        let host = &mut members.all.hosts[node as usize];
        host.says(8 + rank, &format!("cmd=put kvsname=kvs_2 key=l{rank} value=w{rank}\n"));
        host.replies.clear();
        host.says(8 + rank, "cmd=barrier_in\n");
    }
    members.after_command();
    assert_eq!(std::mem::take(&mut members.all.replies).len(), nodes.len(), "the later job meets");
    for (rank, &node) in (0..).zip(nodes) {
        for (key, value) in [("kvs_2 key=l1", "w1"), ("kvs_1 key=k3.0", "v3.0"), ("kvs_1 key=k0.3", "v0.3")] {
            let reply = members.get(node, 8 + rank, key);
            assert_eq!(reply, format!("cmd=get_result rc=0 value={value}\n"), "{key} on node {node}");
        }
        let reply = members.get(node, 8 + rank, "kvs_1 key=none");
        assert!(reply.starts_with("cmd=get_result rc=1 "), "{reply}");
    }
}

// Fault: A late host that has asked for pairs leaves before the answer, and another one joins in its place
// Outcome: the other one gets no answer that it has not asked for
// Guarantee: Nothing of a lost node is left to the next one of its number
#[test]
fn a_node_that_joins_does_not_get_the_answer_to_a_lost_one() {
    let form = 2 | LATE;
    let map = [1, 2];
    let lazy = JobSpec { cleanup: false, fence: FenceMode::Lazy, ..spec(2) };
    let mut members = Members::new(Cluster::placed(LIMITS, (4, form), lazy, map.to_vec(), 1), form);
    members.all.init(0);
    members.all.asks(0, "put kvsname=kvs_1 key=k value=v");
    members.join(3);
    members.after_command();
    register_later(&mut members, &[3]);
    let late = &mut members.all.hosts[3];
    late.says(8, "cmd=get kvsname=kvs_1 key=k\n");
    let (_, request) = late.messages.pop_front().expect("it asks its parent");
    members.all.hosts[0].tell(Input::Peer { node: 3, bytes: &request });
    members.lose(3);
    for host in &mut members.all.hosts[..3] {
        host.tell(Input::DeregisterJob { job: LATER });
    }
    members.replace(server_of(LIMITS, 3, (4, form), lazy, &map), 3);
    register_later(&mut members, &[3]);
    assert_eq!(members.get(3, 8, "kvs_1 key=k"), "cmd=get_result rc=0 value=v\n");
}

#[test]
fn a_node_that_joins_is_one_of_the_tree_and_no_member() {
    let form = 2 | (2 * LATE);
    let mut hosts: Vec<Host> = (0..5).map(|_| Host::with_limits(LIMITS)).collect();
    for (node, host) in (0..).zip(&mut hosts) {
        host.tell(Input::Node { node, nodes: 5, radix: form });
    }
    let refused = |host: &mut Host, epoch, node| {
        let before = host.snapshot();
        let refused = host.server.handle(Time(0), Input::NodeJoined { epoch, node });
        assert_eq!(refused, Err(Fault::BadNode), "change {epoch} of node {node}");
        assert_eq!(host.snapshot(), before);
    };
    for (epoch, node) in [(0, 3), (2, 3), (1, 0), (1, 2), (1, 5), (1, u32::MAX)] {
        refused(&mut hosts[0], epoch, node);
    }
    let early = hosts[0].server.handle(Time(0), Input::Peer { node: 3, bytes: b"\xff" });
    assert_eq!(early, Err(Fault::BadPeer), "it has not joined");
    for node in [0, 1] {
        hosts[node].tell(Input::NodeJoined { epoch: 1, node: 3 });
    }
    refused(&mut hosts[0], 2, 3);
    for node in [0, 1] {
        hosts[node].tell(Input::NodeLost { epoch: 2, node: 3 });
        refused(&mut hosts[node], 3, 4 - 2);
        // A job has ranks there, which are not those of the next host.
        hosts[node].job(spec(1));
        hosts[node].tell(Input::MapRanks { job: JOB, first: Rank(0), count: 1, node: 3 });
        refused(&mut hosts[node], 3, 3);
    }
    // The changes before are not those of a node that joins.
    refused(&mut hosts[4], 0, 4);
    hosts[4].tell(Input::NodeJoined { epoch: 3, node: 4 });
    refused(&mut hosts[4], 4, 4);
}
