//! The fence of hydrant itself, for more nodes than the simulation of real servers has memory for.
//!
//! A test compares it with that simulation where both are possible.

use std::ops::Range;

use hydrant_core::peer::tree::Tree;

use super::{Cost, Load};
use crate::fabric::{Charge, Fabric};
use crate::measure::limits;
use crate::pattern;

/// Bytes of a message without pairs.
const HEADER: u64 = 8;
/// Bytes of a pair beside key and value in a message, and in the log of a node.
const FRAMING: u64 = 5;
const RECORD: u64 = 19;
/// Least length of a piece in bytes of the log, and the square of the best length for each byte of all data.
const PIECE_MIN: u64 = 4096;
const PIECE_FACTOR: u64 = 250;
/// The place of the parent among the links of a node, and of the node's own ranks among the sources of pairs.
const PARENT: usize = 0;
const OWN: usize = usize::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pairs,
    Arrival,
    Release,
}

#[derive(Debug)]
struct Link {
    /// The neighbour, and its number of this link.
    to: u32,
    /// Next pairs to send: the index of the run, and pairs of it.
    run: usize,
    sent: u64,
    /// Pairs before the cursor.
    passed: u64,
    /// Sent after the pairs up to this number.
    due: Option<(Kind, u64)>,
}

#[derive(Debug)]
struct Node {
    links: Vec<Link>,
    /// Pairs in the order of their receipt, with the link that they came from.
    runs: Vec<(usize, u64)>,
    pairs: u64,
    waiting: u32,
    collects: bool,
}

/// Pairs of a message, and of the unsent part of the log from which on a piece is sent.
#[derive(Clone, Copy, Debug)]
struct Portions {
    most: u64,
    piece: u64,
}

impl Portions {
    fn of(load: Load, radix: u32) -> Portions {
        let room = limits(load, radix).peer_message_max() as u64;
        let piece = piece_min(load, radix);
        let (pair, full) = (load.pair(FRAMING), (3 * piece).min(room));
        let most = ((room - HEADER) / pair).min((full - HEADER).div_ceil(pair));
        Portions { most, piece: piece.div_ceil(load.pair(RECORD)) }
    }
}

/// Length of a piece, in bytes of the log.
fn piece_min(load: Load, radix: u32) -> u64 {
    let all = u64::from(load.daemons) * load.pairs() * load.pair(RECORD);
    let best = (all * PIECE_FACTOR).isqrt().max(PIECE_MIN);
    best.min(limits(load, radix).peer_message_max() as u64 / 2)
}

/// Pairs gathered up the tree and sent down it, in pieces once many are unsent.
pub fn fence(load: Load, radix: u32, charge: Charge) -> Cost {
    let (fabric, released) = play(load, radix, charge);
    Cost::of(&fabric, released)
}

/// Such a fence and gets after it, which are answered at once.
pub fn exchange(load: Load, radix: u32) -> pattern::Cost {
    let (fabric, released) = play(load, radix, Charge::Receiver);
    pattern::Cost::of(&fabric, released)
}

/// Returns the network counters and the time of the last release.
fn play(load: Load, radix: u32, charge: Charge) -> (Fabric<(Kind, u64)>, u64) {
    let tree = Tree::new(load.daemons + 1, radix);
    let portions = Portions::of(load, radix);
    let mut nodes: Vec<Node> = (0..tree.nodes()).map(|node| Node::new(node, tree, load)).collect();
    let mut fabric = Fabric::new(tree.nodes(), charge);
    let mut released = 0;
    for node in 1..tree.nodes() {
        nodes[node as usize].proceed(node);
        pump(&mut nodes[node as usize], node, false, (load, portions), &mut fabric);
    }
    while let Some(message) = fabric.receive() {
        let (kind, pairs) = message.body;
        let node = &mut nodes[message.to as usize];
        let link = node.links.iter().position(|link| link.to == message.from);
        let link = link.expect("messages come from neighbours");
        if pairs > 0 {
            node.runs.push((link, pairs));
            node.pairs += pairs;
            node.collects = true;
        }
        match kind {
            Kind::Pairs => {}
            Kind::Arrival => {
                node.waiting -= 1;
                node.proceed(message.to);
            }
            Kind::Release => node.release(),
        }
        let pieces = pairs > 0 && node.collects;
        pump(node, message.to, pieces, (load, portions), &mut fabric);
        if kind == Kind::Release {
            released = released.max(fabric.now(message.to));
        }
    }
    (fabric, released)
}

impl Node {
    fn new(number: u32, tree: Tree, load: Load) -> Node {
        let link = |to| Link { to, run: 0, sent: 0, passed: 0, due: None };
        let children: Vec<u32> = tree.children(number).map(|subtree: Range<u32>| subtree.start).collect();
        // The root has a place for the parent, too, so that all count alike.
        let parent = tree.parent(number).unwrap_or(u32::MAX);
        let own = if number == 0 { 0 } else { load.pairs() };
        Node {
            waiting: children.len() as u32,
            links: [parent].into_iter().chain(children).map(link).collect(),
            runs: if own > 0 { vec![(OWN, own)] } else { Vec::new() },
            pairs: own,
            collects: false,
        }
    }

    /// Arrives at the parent when all have arrived here, or releases all at the root.
    fn proceed(&mut self, number: u32) {
        if self.waiting == 0 && number == 0 {
            self.release();
        } else if self.waiting == 0 {
            self.links[PARENT].due = Some((Kind::Arrival, self.pairs));
        }
    }

    fn release(&mut self) {
        let pairs = self.pairs;
        self.links[PARENT + 1..].iter_mut().for_each(|link| link.due = Some((Kind::Release, pairs)));
        self.collects = false;
    }

    /// Takes pairs for a link, as many as fit into a message, up to a number of all pairs.
    fn take(&mut self, at: usize, up_to: u64, most: u64) -> u64 {
        let link = &mut self.links[at];
        let mut taken = 0;
        while link.passed < up_to && taken < most {
            let (source, pairs) = self.runs[link.run];
            let rest = pairs - link.sent;
            let count = if source == at { rest } else { rest.min(most - taken).min(up_to - link.passed) };
            taken += if source == at { 0 } else { count };
            link.passed += count;
            link.sent += count;
            if link.sent == pairs {
                (link.run, link.sent) = (link.run + 1, 0);
            }
        }
        taken
    }
}

/// Sends what is due over all links of a node, and pieces if it has received pairs.
fn pump(
    node: &mut Node,
    number: u32,
    pieces: bool,
    (load, Portions { most, piece }): (Load, Portions),
    fabric: &mut Fabric<(Kind, u64)>,
) {
    let pair = load.pair(FRAMING);
    for at in 0..node.links.len() {
        let to = node.links[at].to;
        loop {
            let due = node.links[at].due;
            let unsent = node.pairs - node.links[at].passed;
            let (kind, up_to) = match due {
                Some(due) => due,
                None if to != u32::MAX && pieces && unsent >= piece => (Kind::Pairs, node.pairs),
                None => break,
            };
            let pairs = node.take(at, up_to, most);
            let is_last = due.is_some() && node.links[at].passed == up_to;
            // Arrivals and releases have a message of their own after more than one.
            let len = HEADER + pairs * pair;
            if is_last && (pairs < most || pairs == 0) {
                node.links[at].due = None;
                fabric.send(number, to, len, (kind, pairs));
            } else if pairs > 0 {
                fabric.send(number, to, len, (Kind::Pairs, pairs));
            }
        }
    }
}

/// Messages of such a fence, about.
pub fn messages(load: Load, radix: u32) -> u64 {
    let data = u64::from(load.daemons) * load.bytes(FRAMING);
    u64::from(load.daemons) * (2 + data / piece_min(load, radix))
}
