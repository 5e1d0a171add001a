//! Cost of a fence: messages, bytes and time, counted on the real server.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write;

use hydrant_core::peer::tree::Tree;
use hydrant_core::server::FenceMode;
use hydrant_core::{Input, Limits};
use hydrant_driver::MappedStorage;

use crate::net::{Net, Speed, Traffic};
use crate::node::{Deed, Layout, Node};

/// Bytes of the value of each rank, about the size of an MPI library's address.
pub(crate) const VALUE: usize = 128;
/// A network as clusters have it: 5 microseconds, and 100 Gbit/s.
const SPEED: Speed = Speed { delay: 5_000, jitter: 0, per_kilobyte: 80, window: u64::MAX };
/// Cost of a message and of each byte at a daemon, in nanoseconds: system calls, encryption and the log.
const PER_MESSAGE: u64 = 4_000;
const PER_BYTE: u64 = 2;

/// Cost of a fence in which every rank puts one value, and of a fence without values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Number of daemons, without the head.
    pub daemons: u32,
    /// Ranks.
    pub ranks: u32,
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
    /// Lower bound of that time: the latency of one way up and one way down the tree, and one receipt and one sending of all data.
    pub bound: u64,
    /// Time of a fence without values, in the same unit.
    pub empty: u64,
}

impl Cost {
    /// Returns the bytes that the busiest node received, divided by the size of all keys and values.
    pub fn received_times(&self) -> f64 {
        self.received as f64 / self.data as f64
    }

    /// Returns the bytes that the busiest node sent to each neighbour, divided by the size of all keys and values.
    pub fn sent_times(&self) -> f64 {
        self.sent as f64 / self.data as f64 / f64::from(self.children + 1)
    }
}

/// Counts a fence with values and a fence without.
pub fn fence(daemons: u32, ranks: u32, radix: u32) -> Cost {
    let tree = Tree::new(daemons + 1, radix);
    let block = ranks.div_ceil(daemons);
    let places = (0..ranks).map(|rank| 1 + rank / block).collect();
    let layout = Layout { nodes: daemons + 1, radix, places };
    let limits = Limits {
        jobs: 1,
        ranks,
        conns: block,
        keys: 2 * ranks,
        // Half of the log is divided among the ranks, and each rank has one record.
        kvs_bytes: 2 * ranks * (16 + 12 + VALUE as u32 + 4),
        links: radix + 1,
        ..Limits::NONE
    };
    let mut memory: Vec<MappedStorage> = (0..layout.nodes).map(|_| MappedStorage::new(&limits)).collect();
    let mut nodes: Vec<Node<'_>> =
        memory.iter_mut().map(|memory| Node::new(limits, memory, 1, false)).collect();
    for (number, node) in (0u32..).zip(&mut nodes) {
        node.tell(0, Input::Node { node: number, nodes: layout.nodes, radix });
        node.open(0, number, &layout, "kvs_sim", (true, FenceMode::Collect));
    }
    let mut data = 0;
    let mut deeds = Vec::new();
    for rank in 0..ranks {
        let node = &mut nodes[layout.places[rank as usize] as usize];
        let key = format!("card-{rank}");
        let put = format!("cmd=put kvsname=kvs_sim key={key} value={}\n", "v".repeat(VALUE));
        data += (key.len() + VALUE) as u64;
        node.hear(0, rank, format!("cmd=init pmi_version=1 pmi_subversion=1\n{put}").as_bytes());
        while node.poll(&mut deeds) {}
        deeds.clear();
    }
    let (net, time) = meet(&mut nodes, &layout);
    let (_, empty) = meet(&mut nodes, &layout);
    let traffic: Vec<Traffic> = (0..layout.nodes).map(|node| net.traffic(node)).collect();
    let most = |of: fn(&Traffic) -> u64| traffic.iter().map(of).max().unwrap_or(0);
    let children = (0..layout.nodes).map(|node| tree.children(node).len() as u32).max();
    Cost {
        daemons,
        ranks,
        depth: tree.depth(),
        children: children.unwrap_or(0),
        data,
        messages: net.messages(),
        bytes: net.bytes(),
        received: most(|traffic| traffic.received),
        sent: most(|traffic| traffic.sent),
        time,
        bound: 2 * u64::from(tree.depth()) * (SPEED.delay + PER_MESSAGE)
            + data * (1000 * PER_BYTE + SPEED.per_kilobyte) / 1000,
        empty,
    }
}

/// Runs a fence of all ranks. Returns the network counters and the time of the last release.
fn meet(nodes: &mut [Node<'_>], layout: &Layout) -> (Net, u64) {
    let fence = || VecDeque::from([b"cmd=barrier_in\n".to_vec()]);
    play(nodes, layout, layout.places.iter().map(|_| fence()).collect())
}

/// Has each rank send its requests, each after the reply to the one before. Returns the network counters and the time of
/// the last reply.
pub(crate) fn play(
    nodes: &mut [Node<'_>],
    layout: &Layout,
    mut requests: Vec<VecDeque<Vec<u8>>>,
) -> (Net, u64) {
    let mut net = Net::new(SPEED);
    let mut random = fastrand::Rng::with_seed(0);
    let mut messages: Vec<Option<(u32, u32, Vec<u8>)>> = Vec::new();
    let mut queue = BinaryHeap::new();
    let mut busy = vec![0u64; nodes.len()];
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
            let now = busy[node as usize];
            let state = &mut nodes[node as usize];
            loop {
                while state.poll(&mut deeds) {}
                if deeds.is_empty() {
                    break;
                }
                for deed in deeds.drain(..) {
                    match deed {
                        Deed::Reply { rank, .. } => {
                            last = last.max(now);
                            match requests[rank as usize].pop_front() {
                                Some(request) => state.hear(now, rank, &request),
                                None => waiting -= 1,
                            }
                        }
                        Deed::Send { to, bytes } => {
                            let sent = net.send(now, node, to, bytes.len() as u64, &mut random);
                            queue.push(Reverse((sent.at, messages.len())));
                            messages.push(Some((node, to, bytes)));
                        }
                        Deed::End(cause) => unreachable!("no rank fails here: {cause:?}"),
                    }
                }
            }
        }
        let Some(Reverse((at, number))) = queue.pop() else { break };
        let (from, to, bytes) = messages[number].take().expect("each message arrives once");
        let busy = &mut busy[to as usize];
        *busy = at.max(*busy) + PER_MESSAGE + PER_BYTE * bytes.len() as u64;
        nodes[to as usize].tell(*busy, Input::Peer { node: from, bytes: &bytes });
        turn.push(to);
    }
    assert_eq!(waiting, 0, "all ranks have all replies");
    (net, last)
}

/// Sizes that are measured: daemons and ranks.
pub fn sizes(most: u32) -> Vec<(u32, u32)> {
    let daemons = [2, 4, 16, 64, 256, 1024].into_iter().filter(|&daemons| daemons <= most);
    let ranks = [16, 256, 4096, 16384];
    let pairs = daemons.flat_map(|daemons| ranks.map(|ranks| (daemons, ranks)));
    pairs.filter(|&(daemons, ranks)| ranks >= daemons && ranks <= 16 * most).collect()
}

/// The costs as a table in Markdown.
pub fn table(costs: &[Cost]) -> String {
    let mut text = String::from(
        "| nodes | ranks | depth | messages | received, most | sent, most, a neighbour | fence, us | bound, us | fence / bound | empty fence, us |\n\
         |---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for cost in costs {
        let Cost { daemons, ranks, depth, messages, time, empty, .. } = *cost;
        let (received, sent) = (cost.received_times(), cost.sent_times());
        let times = time as f64 / cost.bound as f64;
        let (time, bound, empty) = (time / 1000, cost.bound / 1000, empty / 1000);
        let _ = writeln!(
            text,
            "| {daemons} | {ranks} | {depth} | {messages} | {received:.3} | {sent:.3} | {time} | {bound} | {times:.2} | {empty} |"
        );
    }
    text
}
