//! The lazy fence of hydrant and the gets after it, for more nodes than the simulation of real servers has memory for.
//!
//! The algorithm is that of `server/fetch.rs` of the core, with sets of nodes in place of sets of ranks: all ranks of a
//! node are asked for together. A test compares it with real servers.

use std::collections::BTreeMap;
use std::ops::Range;

use hydrant_core::JobId;
use hydrant_core::peer::message::{Collective, Head, JobRef, RecordKind, Writer};
use hydrant_core::peer::tree::Tree;

use super::ranges::{Ranges, count};
use crate::fabric::{Charge, Fabric};
use crate::pattern::{Cost, Exchange, VALUE};

/// Message between nodes. Nodes and ranks are ranges in ascending order, and records those in the order of the log.
#[derive(Debug)]
enum Message {
    Arrival,
    Release,
    Fetch(Vec<Range<u32>>),
    Records(Vec<Range<u32>>),
    Fetched(Vec<Range<u32>>),
    /// [`Message::Records`] and [`Message::Fetched`] for a node without children.
    Answer(Vec<Range<u32>>),
}

/// Link to a neighbour.
#[derive(Debug)]
struct Link {
    to: u32,
    is_leaf: bool,
    /// Nodes whose data come over it.
    beyond: [Range<u32>; 2],
    /// Nodes to ask for.
    due: Ranges,
    /// Nodes that the neighbour has asked for, and how many of them are not here.
    asked: Ranges,
    lacking: u64,
    /// Number of the first pair of the log that no fence or answer has passed.
    cursor: u64,
}

/// Part of the log.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// Rank after the last one.
    end: u32,
    /// Number of the first pair.
    number: u64,
}

#[derive(Debug)]
struct Node {
    /// The parent is the first.
    links: Vec<Link>,
    /// Nodes that are here or asked for, and those that are here.
    wanted: Ranges,
    here: Ranges,
    /// Pairs in the log, by the first rank of a stretch.
    log: BTreeMap<u32, Stretch>,
    written: u64,
    /// Children whose arrival is missing.
    missing: u32,
}

/// Lengths of heads, and the maximum length of a message.
#[derive(Debug)]
struct Lengths {
    collective: u64,
    fetch: u64,
    records: u64,
    room: u64,
}

struct Model {
    exchange: Exchange,
    lengths: Lengths,
    nodes: Vec<Node>,
    fabric: Fabric<Message>,
    /// Number of the current get of each rank, and whether it waits.
    gets: Vec<(u8, bool)>,
    last: u64,
}

/// Counts a lazy fence and the gets after it.
///
/// # Panics
/// The daemons have different numbers of ranks.
pub fn exchange(exchange: Exchange) -> Cost {
    assert_eq!(exchange.block() * exchange.daemons, exchange.ranks(), "each daemon has as many ranks");
    let tree = Tree::new(exchange.daemons + 1, exchange.radix);
    let mut model = Model {
        exchange,
        lengths: Lengths::of(&exchange),
        nodes: (0..tree.nodes()).map(|node| Node::new(node, tree, exchange.block())).collect(),
        fabric: Fabric::new(tree.nodes(), Charge::Receiver),
        gets: vec![(0, false); exchange.ranks() as usize],
        last: 0,
    };
    for node in 1..tree.nodes() {
        model.arrive(node);
    }
    while let Some(message) = model.fabric.receive() {
        model.apply(message.from, message.to, message.body);
    }
    assert!(model.gets.iter().all(|&(_, waits)| !waits), "all ranks have all values");
    Cost::of(&model.fabric, model.last)
}

impl Model {
    /// Arrives at the parent when all have arrived here, or releases all at the root.
    fn arrive(&mut self, number: u32) {
        let node = &self.nodes[number as usize];
        match node.links.first() {
            _ if node.missing > 0 => {}
            Some(parent) if number > 0 => {
                self.fabric.send(number, parent.to, self.lengths.collective, Message::Arrival);
            }
            _ => self.release(number),
        }
    }

    fn release(&mut self, number: u32) {
        let first = usize::from(number > 0);
        for link in &self.nodes[number as usize].links[first..] {
            self.fabric.send(number, link.to, self.lengths.collective, Message::Release);
        }
        self.go_on(number, self.ranks_of(number..number + 1).collect());
    }

    fn apply(&mut self, from: u32, number: u32, message: Message) {
        let node = &mut self.nodes[number as usize];
        match message {
            Message::Arrival => {
                node.missing -= 1;
                self.arrive(number);
            }
            Message::Release => self.release(number),
            Message::Fetch(nodes) => {
                node.receive_fetch(from, nodes);
                self.go_on(number, Vec::new());
            }
            Message::Records(ranks) => node.store(ranks),
            Message::Fetched(nodes) | Message::Answer(nodes) => {
                node.receive_fetched(nodes);
                self.go_on(number, self.answered(number));
            }
        }
    }

    /// Returns the ranks of nodes. Node 0 has none.
    fn ranks_of(&self, nodes: Range<u32>) -> Range<u32> {
        let first = |node: u32| node.saturating_sub(1) * self.exchange.block();
        first(nodes.start)..first(nodes.end)
    }

    /// Returns the ranks of a node whose get waits for a value that is here.
    fn answered(&self, number: u32) -> Vec<u32> {
        let is_here = |&rank: &u32| {
            let (get, waits) = self.gets[rank as usize];
            let source = self.exchange.source(rank, u32::from(get));
            waits && source.is_some_and(|source| self.has(number, source))
        };
        self.ranks_of(number..number + 1).filter(is_here).collect()
    }

    /// Sends what is due, and has ranks that get a reply request their next value, until all wait.
    fn go_on(&mut self, number: u32, mut replied: Vec<u32>) {
        self.send_due(number);
        while !replied.is_empty() {
            self.last = self.last.max(self.fabric.now(number));
            replied.retain(|&rank| self.get_next(number, rank));
            self.send_due(number);
        }
    }

    /// A rank has a reply, and requests the next value. Returns whether it has the next reply already.
    fn get_next(&mut self, number: u32, rank: u32) -> bool {
        let (get, waits) = self.gets[rank as usize];
        let get = get + u8::from(waits);
        let Some(source) = self.exchange.source(rank, u32::from(get)) else {
            self.gets[rank as usize] = (get, false);
            return false;
        };
        let is_here = self.has(number, source);
        self.gets[rank as usize] = (get + u8::from(is_here), !is_here);
        if !is_here {
            let of = self.exchange.node(source);
            let all = 1..self.exchange.daemons + 1;
            self.nodes[number as usize].ask(if self.exchange.pattern.has_hints() { of..of + 1 } else { all });
        }
        is_here
    }

    /// Returns whether the pair of a rank is in the log of a node.
    fn has(&self, number: u32, rank: u32) -> bool {
        let (node, of) = (&self.nodes[number as usize], self.exchange.node(rank));
        node.here.contains(&(of..of + 1)) || node.has(rank)
    }

    /// Sends requests and answers over all links of a node.
    fn send_due(&mut self, number: u32) {
        for at in 0..self.nodes[number as usize].links.len() {
            let link = &mut self.nodes[number as usize].links[at];
            let due = std::mem::take(&mut link.due);
            let asked = if link.lacking == 0 { std::mem::take(&mut link.asked) } else { Ranges::default() };
            let to = link.to;
            for (len, nodes) in self.requests(&due) {
                self.fabric.send(number, to, len, Message::Fetch(nodes));
            }
            if !asked.is_empty() {
                self.send_answer(number, at, &asked);
            }
        }
    }

    fn send_answer(&mut self, number: u32, at: usize, asked: &Ranges) {
        let link = &self.nodes[number as usize].links[at];
        let (to, is_leaf) = (link.to, link.is_leaf);
        let parts = self.nodes[number as usize].find(at, asked.iter().map(|nodes| self.ranks_of(nodes)));
        let fetched = self.requests(asked);
        if is_leaf {
            let mut lens = Vec::new();
            for part in &parts {
                self.lengths.pack(part, |is_first, _, len| match lens.last_mut() {
                    Some(last) if !is_first => *last += len,
                    _ => lens.push(self.lengths.records + len),
                });
            }
            lens.extend(fetched.iter().map(|&(len, _)| len));
            self.fabric.send_all(number, to, lens, Message::Answer(asked.iter().collect()));
        } else {
            for (len, ranks) in parts.iter().flat_map(|part| self.lengths.messages(part)).collect::<Vec<_>>()
            {
                self.fabric.send(number, to, len, Message::Records(ranks));
            }
            for (len, nodes) in fetched {
                self.fabric.send(number, to, len, Message::Fetched(nodes));
            }
        }
        let node = &mut self.nodes[number as usize];
        node.links[at].cursor = node.written;
    }

    /// Returns the messages that name nodes, with their lengths.
    fn requests(&self, nodes: &Ranges) -> Vec<(u64, Vec<Range<u32>>)> {
        let mut messages: Vec<(u64, Vec<Range<u32>>)> = Vec::new();
        for range in nodes.iter() {
            let ranks = self.ranks_of(range.clone());
            let len = varint(ranks.start) + varint(ranks.end - ranks.start);
            match messages.last_mut() {
                Some((sum, ranges)) if *sum + len <= self.lengths.room => {
                    *sum += len;
                    ranges.push(range);
                }
                _ => messages.push((self.lengths.fetch + len, vec![range])),
            }
        }
        messages
    }
}

impl Node {
    /// A node whose ranks have put their values.
    fn new(number: u32, tree: Tree, block: u32) -> Node {
        let own = if number == 0 { 0 } else { block };
        let link = |to, beyond: [Range<u32>; 2]| Link {
            to,
            is_leaf: to > number && tree.children(to).len() == 0,
            beyond,
            due: Ranges::default(),
            asked: Ranges::default(),
            lacking: 0,
            cursor: u64::from(own),
        };
        let part = tree.subtree(number);
        let parent = tree.parent(number).map(|to| link(to, [0..part.start, part.end..tree.nodes()]));
        let children = tree.children(number).map(|part| link(part.start, [part, 0..0]));
        let mut here = Ranges::default();
        here.insert(number..number + 1);
        let mut node = Node {
            links: parent.into_iter().chain(children).collect(),
            wanted: here.clone(),
            here,
            log: BTreeMap::new(),
            written: 0,
            missing: tree.children(number).len() as u32,
        };
        let first = number.saturating_sub(1) * block;
        node.store(std::iter::once(first..first + own));
        node
    }

    /// Asks for the pairs of nodes that are neither here nor asked for.
    fn ask(&mut self, nodes: Range<u32>) {
        for new in self.wanted.insert(nodes) {
            for link in &mut self.links {
                for part in &link.beyond {
                    let part = part.start.max(new.start)..part.end.min(new.end);
                    if !part.is_empty() {
                        link.due.insert(part);
                    }
                }
            }
        }
    }

    /// A neighbour asks for the pairs of nodes.
    fn receive_fetch(&mut self, from: u32, nodes: Vec<Range<u32>>) {
        for range in nodes {
            let link = self.links.iter_mut().find(|link| link.to == from);
            let link = link.expect("messages come from neighbours");
            let all = u64::from(range.end - range.start);
            link.lacking += all - count(self.here.within(range.clone()));
            link.asked.insert(range.clone());
            self.ask(range);
        }
    }

    /// A neighbour has sent all pairs of nodes.
    fn receive_fetched(&mut self, nodes: Vec<Range<u32>>) {
        for range in nodes {
            for link in &mut self.links {
                link.lacking -= count(link.asked.within(range.clone()));
            }
            self.here.insert(range);
        }
    }

    /// Appends the pairs of ranks to the log.
    fn store(&mut self, ranks: impl IntoIterator<Item = Range<u32>>) {
        for Range { start, end } in ranks {
            let number = self.written;
            self.written += u64::from(end - start);
            if let Some((&first, stretch)) = self.log.range_mut(..start).next_back()
                && stretch.end == start
                && stretch.number + u64::from(start - first) == number
            {
                stretch.end = end;
            } else if start < end {
                self.log.insert(start, Stretch { end, number });
            }
        }
    }

    /// Returns whether the pair of a rank is in the log.
    fn has(&self, rank: u32) -> bool {
        self.log.range(..=rank).next_back().is_some_and(|(_, stretch)| rank < stretch.end)
    }

    /// Returns the pairs of ranks in the order of the log: those before the cursor of a link, and those behind it.
    fn find(&self, at: usize, ranks: impl Iterator<Item = Range<u32>>) -> [Vec<Range<u32>>; 2] {
        let cursor = self.links[at].cursor;
        let mut found = [Vec::new(), Vec::new()];
        for ranks in ranks {
            let first = self.log.range(..=ranks.start).next_back().map_or(ranks.start, |(&first, _)| first);
            for (&first, &Stretch { end, number }) in self.log.range(first..ranks.end) {
                let passed = cursor.saturating_sub(number).min(u64::from(end - first)) as u32;
                for (found, part) in found.iter_mut().zip([first..first + passed, first + passed..end]) {
                    let part = part.start.max(ranks.start)..part.end.min(ranks.end);
                    if part.start < part.end {
                        found.push((number + u64::from(part.start - first), part));
                    }
                }
            }
        }
        found.map(|mut found| {
            found.sort_unstable_by_key(|&(number, _)| number);
            found.into_iter().map(|(_, ranks)| ranks).collect()
        })
    }
}

impl Lengths {
    fn of(exchange: &Exchange) -> Lengths {
        // The hash of the name of the simulated job takes four bytes, as those of one name in 16.
        let job = JobRef { job: JobId(0), name: 1 << 27 };
        let len = |head: Head| {
            let mut room = [0; 32];
            Writer::new(&mut room, head).map_or(0, |writer| writer.finish().len() as u64)
        };
        Lengths {
            collective: len(Head::Arrive { job, at: Collective::Fence, collects: true }),
            fetch: len(Head::Fetch { job }),
            records: len(Head::Records { job, of: RecordKind::Pair }),
            room: exchange.limits().peer_message_max() as u64,
        }
    }

    /// Returns the messages with the pairs of ranks, with their lengths.
    fn messages(&self, ranks: &[Range<u32>]) -> Vec<(u64, Vec<Range<u32>>)> {
        let mut messages: Vec<(u64, Vec<Range<u32>>)> = Vec::new();
        self.pack(ranks, |is_first, part, len| match messages.last_mut() {
            Some((sum, parts)) if !is_first => {
                *sum += len;
                match parts.last_mut() {
                    Some(last) if last.end == part.start => last.end = part.end,
                    _ => parts.push(part),
                }
            }
            _ => messages.push((self.records + len, vec![part])),
        });
        messages
    }

    /// Divides the pairs of ranks into messages. `put` takes whether ranks are the first of a message, the ranks, and the
    /// bytes of their pairs.
    fn pack(&self, ranks: &[Range<u32>], mut put: impl FnMut(bool, Range<u32>, u64)) {
        let mut left = 0;
        for range in ranks {
            let mut start = range.start;
            while start < range.end {
                let (each, last) = pair(start);
                let is_first = left < each;
                if is_first {
                    left = self.room - self.records;
                }
                let end = range.end.min(last).min(start.saturating_add((left / each) as u32));
                let len = u64::from(end - start) * each;
                left -= len;
                put(is_first, start..end, len);
                start = end;
            }
        }
    }
}

/// Returns the length of a rank's pair in a message, and the first rank after it whose pair may have another.
fn pair(rank: u32) -> (u64, u32) {
    let digits = rank.checked_ilog10().unwrap_or(0) + 1;
    let key = "card-".len() as u64 + u64::from(digits);
    let len = varint(rank) + varint(key as u32) + key + varint(VALUE) + u64::from(VALUE);
    let longer = 1 << (7 * varint(rank)).min(31);
    (len, 10u32.saturating_pow(digits).min(longer))
}

/// Returns the length of a number in postcard.
fn varint(number: u32) -> u64 {
    u64::from(number.checked_ilog2().unwrap_or(0) / 7 + 1)
}
