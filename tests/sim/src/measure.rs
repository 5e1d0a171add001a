//! Cost of a fence: messages, bytes and time, counted on the real server.

use std::collections::VecDeque;

use hydrant_core::limits::PEER_MESSAGE_MAX;
use hydrant_core::peer::tree::Tree;
use hydrant_core::server::FenceMode;
use hydrant_core::{Input, Limits};
use hydrant_driver::MappedStorage;

use crate::fabric::{Charge, Fabric, PER_BYTE, PER_MESSAGE, SPEED};
use crate::models::{Load, PART};
use crate::node::{Deed, Layout, Node};

/// Bytes of a rank's tables at a server, and of a pair's beside key and value.
const RANK: u64 = 88;
const PAIR: u64 = 24;

/// Cost of a fence in which every rank has put values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Daemons, ranks and values.
    pub load: Load,
    /// Links from the head to the daemon farthest from it.
    pub depth: u32,
    /// Maximum number of children of a node.
    pub children: u32,
    /// Bytes of all keys and values.
    pub data: u64,
    /// Messages of all links.
    pub messages: u64,
    /// Bytes of all links.
    pub bytes: u64,
    /// Maximum number of bytes that one node received.
    pub received: u64,
    /// Maximum number of bytes that one node sent.
    pub sent: u64,
    /// From the last arrival to the last release, in nanoseconds.
    pub time: u64,
    /// Lower [`bound`] of that time.
    pub bound: u64,
}

impl Cost {
    /// Returns the bytes that the busiest node received, divided by the size of all keys and values.
    pub fn received_times(&self) -> f64 {
        self.received as f64 / self.data.max(1) as f64
    }

    /// Returns the bytes that the busiest node sent to each neighbour, divided by the size of all keys and values.
    pub fn sent_times(&self) -> f64 {
        self.sent as f64 / self.data.max(1) as f64 / f64::from(self.children + 1)
    }
}

/// Returns the bytes of memory that [`fence`] needs: each node stores all values.
pub fn memory(load: Load) -> u64 {
    let Load { daemons, value, .. } = load;
    let rank = RANK + PAIR * u64::from(load.parts()) + u64::from(value);
    u64::from(daemons + 1) * u64::from(load.size()) * rank
}

/// Returns the lower bound of the time of a fence: the latency of one way up and one way down the tree, and one receipt and
/// one sending of all data.
pub fn bound(load: Load, radix: u32) -> u64 {
    let depth = Tree::new(load.daemons + 1, radix).depth();
    let data = u64::from(load.daemons) * load.bytes(0);
    2 * u64::from(depth) * (SPEED.delay + PER_MESSAGE) + data * (1000 * PER_BYTE + SPEED.per_kilobyte) / 1000
}

/// Opens a job on all nodes, each in memory of its own.
pub(crate) fn open_nodes<'m>(
    memory: &'m mut [MappedStorage],
    limits: Limits,
    layout: &Layout,
    fence: FenceMode,
) -> Vec<Node<'m>> {
    let mut nodes: Vec<Node<'_>> =
        memory.iter_mut().map(|memory| Node::new(limits, memory, 1, false)).collect();
    for (number, node) in (0u32..).zip(&mut nodes) {
        node.tell(0, Input::Node { node: number, nodes: layout.nodes, radix: layout.radix });
        node.open(0, number, layout, "kvs_sim", (true, fence));
    }
    nodes
}

/// The limits of the servers of a fence.
pub fn limits(load: Load, radix: u32) -> Limits {
    let size = load.size();
    let bytes = u64::from(size) * u64::from(load.parts() * (16 + 12 + 4) + load.value);
    Limits {
        jobs: 1,
        ranks: size,
        conns: load.ranks,
        keys: 2 * size * load.parts().max(1),
        // Half of the log is divided among the ranks. Messages have at most a quarter of it.
        kvs_bytes: u32::try_from(2 * bytes).unwrap_or(u32::MAX).max(4 * PEER_MESSAGE_MAX as u32),
        links: radix + 1,
        ..Limits::NONE
    }
}

/// Counts a fence.
pub fn fence(load: Load, radix: u32, charge: Charge) -> Cost {
    let Load { daemons, ranks, .. } = load;
    let tree = Tree::new(daemons + 1, radix);
    let size = load.size();
    let layout =
        Layout { nodes: daemons + 1, radix, places: (0..size).map(|rank| 1 + rank / ranks).collect() };
    let limits = limits(load, radix);
    let mut memory: Vec<MappedStorage> = (0..layout.nodes).map(|_| MappedStorage::new(&limits)).collect();
    let mut nodes = open_nodes(&mut memory, limits, &layout, FenceMode::Collect);
    let mut data = 0;
    for rank in 0..size {
        data += put_values(&mut nodes[layout.places[rank as usize] as usize], rank, load);
    }
    let (fabric, time) = meet(&mut nodes, &layout, charge);
    let traffic = fabric.traffic();
    let children = (0..layout.nodes).map(|node| tree.children(node).len() as u32).max();
    let (messages, bytes) = fabric.total();
    Cost {
        load,
        depth: tree.depth(),
        children: children.unwrap_or(0),
        data,
        messages,
        bytes,
        received: traffic.iter().map(|traffic| traffic.received).max().unwrap_or(0),
        sent: traffic.iter().map(|traffic| traffic.sent).max().unwrap_or(0),
        time,
        bound: bound(load, radix),
    }
}

/// A rank connects and puts its values. Returns the bytes of its keys and values.
fn put_values(node: &mut Node<'_>, rank: u32, load: Load) -> u64 {
    let mut data = 0;
    let mut deeds = Vec::new();
    node.hear(0, rank, b"cmd=init pmi_version=1 pmi_subversion=1\n");
    for part in 0..load.parts() {
        while node.poll(&mut deeds) {}
        deeds.clear();
        let len = (load.value - part * PART).min(PART) as usize;
        let key = if part == 0 { format!("card-{rank}") } else { format!("card{part}-{rank}") };
        data += (key.len() + len) as u64;
        let put = format!("cmd=put kvsname=kvs_sim key={key} value={}\n", "v".repeat(len));
        node.hear(0, rank, put.as_bytes());
    }
    while node.poll(&mut deeds) {}
    data
}

/// Runs a fence of all ranks. Returns the network counters and the time of the last release.
fn meet(nodes: &mut [Node<'_>], layout: &Layout, charge: Charge) -> (Fabric<Vec<u8>>, u64) {
    let fence = || VecDeque::from([b"cmd=barrier_in\n".to_vec()]);
    play(nodes, layout, layout.places.iter().map(|_| fence()).collect(), charge)
}

/// Has each rank send its requests, each after the reply to the one before. Returns the network counters and the time of
/// the last reply.
pub(crate) fn play(
    nodes: &mut [Node<'_>],
    layout: &Layout,
    mut requests: Vec<VecDeque<Vec<u8>>>,
    charge: Charge,
) -> (Fabric<Vec<u8>>, u64) {
    let mut fabric = Fabric::new(layout.nodes, charge);
    let mut last = 0;
    let mut deeds = Vec::new();
    for (rank, requests) in (0u32..).zip(&mut requests) {
        let request = requests.pop_front().expect("each rank has a request");
        nodes[layout.places[rank as usize] as usize].hear(0, rank, &request);
    }
    let mut waiting = requests.len();
    let mut turn = (0..nodes.len() as u32).collect::<Vec<_>>();
    loop {
        for node in turn.drain(..) {
            let state = &mut nodes[node as usize];
            loop {
                while state.poll(&mut deeds) {}
                if deeds.is_empty() {
                    break;
                }
                for deed in deeds.drain(..) {
                    let now = fabric.now(node);
                    match deed {
                        Deed::Reply { rank, .. } => {
                            last = last.max(now);
                            match requests[rank as usize].pop_front() {
                                Some(request) => state.hear(now, rank, &request),
                                None => waiting -= 1,
                            }
                        }
                        Deed::Send { to, bytes } => fabric.send(node, to, bytes.len() as u64, bytes),
                        Deed::End(cause) => unreachable!("no rank fails here: {cause:?}"),
                    }
                }
            }
        }
        let Some(message) = fabric.receive() else { break };
        let now = fabric.now(message.to);
        nodes[message.to as usize].tell(now, Input::Peer { node: message.from, bytes: &message.body });
        turn.push(message.to);
    }
    assert_eq!(waiting, 0, "all ranks have all replies");
    (fabric, last)
}
