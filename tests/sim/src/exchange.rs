//! Cost of an exchange, a fence and the gets after it, with collecting and with lazy fences.

use std::collections::VecDeque;
use std::fmt::Write;

use hydrant_core::Limits;
use hydrant_core::server::FenceMode;
use hydrant_driver::MappedStorage;

use crate::fabric::Charge;
use crate::measure::{open_nodes, play};
use crate::net::Traffic;
use crate::node::{Deed, Layout};

/// Bytes of the value of each rank, about the size of an MPI library's address.
const VALUE: usize = 128;

/// Ranks whose values a rank gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The ranks before and after.
    Ring,
    /// The 26 neighbours in a periodic grid of three dimensions.
    Halo,
    /// Rank 0.
    One,
    /// The ranks before and after, by a client that names no rank.
    RingWithoutHints,
}

impl Pattern {
    /// All patterns.
    pub const ALL: [Pattern; 4] = [Pattern::Ring, Pattern::Halo, Pattern::One, Pattern::RingWithoutHints];

    fn name(self) -> &'static str {
        match self {
            Pattern::Ring => "ring",
            Pattern::Halo => "26 neighbours",
            Pattern::One => "rank 0",
            Pattern::RingWithoutHints => "ring without hints",
        }
    }

    /// Returns the ranks whose values `rank` of `side`³ ranks gets.
    fn sources(self, rank: u32, side: u32) -> Vec<u32> {
        let ranks = side.pow(3);
        match self {
            Pattern::Ring | Pattern::RingWithoutHints => vec![(rank + ranks - 1) % ranks, (rank + 1) % ranks],
            Pattern::One => vec![0],
            Pattern::Halo => {
                let (x, y, z) = (rank % side, rank / side % side, rank / side / side);
                let near = |at: u32| [side - 1, 0, 1].map(|step| (at + step) % side);
                let all = near(z).into_iter().flat_map(|z| near(y).map(|y| (y, z)));
                let all = all.flat_map(|(y, z)| near(x).map(|x| x + side * (y + side * z)));
                all.filter(|&other| other != rank).collect()
            }
        }
    }
}

/// Cost of an exchange.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Messages of all links.
    pub messages: u64,
    /// Maximum number of bytes that the head or a daemon received.
    pub received: u64,
    /// Mean number of bytes that a daemon received.
    pub mean: u64,
    /// From the last arrival in the fence to the last reply to a get, in nanoseconds.
    pub time: u64,
}

/// Counts an exchange of `side`³ ranks on so many daemons.
pub fn exchange(daemons: u32, side: u32, radix: u32, fence: FenceMode, pattern: Pattern) -> Cost {
    let ranks = side.pow(3);
    let block = ranks.div_ceil(daemons);
    let places = (0..ranks).map(|rank| 1 + rank / block).collect();
    let layout = Layout { nodes: daemons + 1, radix, places };
    let limits = Limits {
        jobs: 1,
        ranks,
        conns: block,
        keys: 64 * ranks,
        kvs_bytes: 8 * ranks * (VALUE as u32 + 32),
        links: radix + 1,
        ..Limits::NONE
    };
    let mut memory: Vec<MappedStorage> = (0..layout.nodes).map(|_| MappedStorage::new(&limits)).collect();
    let mut nodes = open_nodes(&mut memory, limits, &layout, fence);
    let mut deeds: Vec<Deed> = Vec::new();
    let mut requests = Vec::new();
    for rank in 0..ranks {
        let node = &mut nodes[layout.places[rank as usize] as usize];
        let put = format!("cmd=kvs-put;key=card-{rank};value={};", "v".repeat(VALUE));
        node.hear(0, rank, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        for text in [format!("cmd=fullinit;pmirank={rank};"), put] {
            while node.poll(&mut deeds) {}
            node.hear(0, rank, &frame(&text));
        }
        while node.poll(&mut deeds) {}
        deeds.clear();
        let get = |of: u32| {
            let hint = if pattern == Pattern::RingWithoutHints { -1 } else { i64::from(of) };
            frame(&format!("cmd=kvs-get;srcid={hint};key=card-{of};"))
        };
        let gets = pattern.sources(rank, side).into_iter().map(get);
        requests.push([frame("cmd=kvs-fence;")].into_iter().chain(gets).collect::<VecDeque<_>>());
    }
    let (fabric, time) = play(&mut nodes, &layout, requests, Charge::Receiver);
    let traffic = fabric.traffic();
    let received = |traffic: &Traffic| traffic.received;
    Cost {
        messages: fabric.total().0,
        received: traffic.iter().map(received).max().unwrap_or(0),
        mean: traffic.iter().skip(1).map(received).sum::<u64>() / u64::from(daemons),
        time,
    }
}

fn frame(text: &str) -> Vec<u8> {
    format!("{:6}{text}", text.len()).into_bytes()
}

/// Returns the costs of all patterns with both modes, as a table in Markdown.
pub fn table(most: u32, radix: u32) -> String {
    let mut text = String::from(
        "| daemons | ranks | gets | fences | messages | received, a daemon | received, most | time, us |\n\
         |---:|---:|---|---|---:|---:|---:|---:|\n",
    );
    for (daemons, side) in [(16, 8), (64, 16), (256, 16)] {
        for pattern in Pattern::ALL.into_iter().filter(|_| daemons <= most) {
            for (name, mode) in [("collect", FenceMode::Collect), ("lazy", FenceMode::Lazy)] {
                let Cost { messages, received, mean, time } = exchange(daemons, side, radix, mode, pattern);
                let (ranks, gets, time) = (side.pow(3), pattern.name(), time / 1000);
                let _ = writeln!(
                    text,
                    "| {daemons} | {ranks} | {gets} | {name} | {messages} | {mean} | {received} | {time} |"
                );
            }
        }
    }
    text
}
