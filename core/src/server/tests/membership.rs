//! Tests of changes of membership: nodes that are lost while the jobs go on.

use std::collections::BTreeSet;
use std::string::ToString;

use super::cluster::{Cluster, LIMITS};
use super::*;
use crate::peer::tree::Tree;

/// Begin of a message that stands for the order of the head on a link.
const ORDER: u8 = 0xff;

/// Servers of a job that goes on, and its dead.
struct Members {
    all: Cluster,
    tree: Tree,
    lost: BTreeSet<u32>,
    epoch: u32,
}

impl Members {
    fn new(all: Cluster, radix: u32) -> Members {
        let tree = Tree::new(all.hosts.len() as u32, radix);
        Members { all, tree, lost: BTreeSet::new(), epoch: 0 }
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
        self.apply(0, self.epoch, node);
    }

    fn apply(&mut self, at: u32, epoch: u32, node: u32) {
        self.all.hosts[at as usize].tell(Input::NodeLost { epoch, node });
        for child in self.tree.children(at).map(|part| part.start) {
            self.all.wires.entry((at, child)).or_default().push_back(vec![ORDER, epoch as u8, node as u8]);
        }
        self.drop_lost();
    }

    /// Delivers one message or order. Returns false if none is in flight.
    fn deliver(&mut self) -> bool {
        self.drop_lost();
        match self.all.next_message() {
            Some((_, to, order)) if order[0] == ORDER => self.apply(to, order[1].into(), order[2].into()),
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
