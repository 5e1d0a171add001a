//! Links between boards: messages of servers that no host passes on, and that wait for the orders of the head.
//!
//! Records and orders are those of hydrant-core. A link has a delay and a window of its own, so a message may overtake the
//! orders that its sender had, or come long after them.

use hydrant_core::Input;
use hydrant_core::server::link::{Arrived, Stage, next_arrival};
use hydrant_core::server::remote::{NODE_PREFIX, encode_node_record};

use super::node::Item;
use super::world::{Event, World};

/// What is added to the numbers of nodes for the network of the boards.
const BOARDS: u32 = 1 << 16;
/// Longest record beside its message.
const HEAD_MAX: usize = NODE_PREFIX + 16;

impl World<'_> {
    /// Whether no host passes on messages between the servers of two nodes.
    pub(super) fn are_linked(&self, one: u32, other: u32) -> bool {
        self.plan.are_linked && one != 0 && other != 0
    }

    /// Sends a message of a server over a link. Returns whether the link is full.
    pub(super) fn send_linked(&mut self, from: u32, to: u32, bytes: &[u8]) -> bool {
        let state = &self.nodes[from as usize];
        let mut buffer = vec![0; HEAD_MAX + bytes.len()];
        let record = state.links.orders.record(bytes);
        let record = encode_node_record(&record, &mut buffer).expect("the buffer has its length").to_vec();
        let now = state.inbox.busy.max(self.now);
        let len = record.len() as u64;
        let sent = self.net.send(now, BOARDS + from, BOARDS + to, len, &mut self.random);
        self.at(sent.at, Event::Item(to, Item::Linked { from, record }));
        sent.blocked
    }

    /// A record arrives over a link.
    pub(super) fn take_linked(&mut self, node: u32, from: u32, record: Vec<u8>) {
        self.nodes[node as usize].links.waiting.entry(from).or_default().push_back(record);
        self.take_waiting(node, from);
    }

    /// Handles the records of a link up to the first that waits.
    fn take_waiting(&mut self, node: u32, from: u32) {
        let now = self.now;
        loop {
            let state = &mut self.nodes[node as usize];
            let stage = Stage::Formed(state.links.orders);
            let queue = state.links.waiting.entry(from).or_default();
            let Some(record) = queue.pop_front() else { return };
            match next_arrival(&record, record.len(), stage) {
                Ok(Arrived::Message(bytes, _)) => {
                    let taken = state.handle(now, Input::Peer { node: from, bytes });
                    assert!(taken.is_ok(), "node {node} refuses a message of board {from}: {taken:?}");
                }
                Ok(Arrived::Held) => {
                    queue.push_front(record);
                    self.held += 1;
                    return;
                }
                other => panic!("node {node} finds {other:?} on the link of board {from}"),
            }
            if self.net.arrived(BOARDS + from, BOARDS + node, record.len() as u64) {
                self.push(from, Item::Writable { to: node });
            }
        }
    }

    /// A node begins the next order to all nodes.
    pub(super) fn begin_order(&mut self, node: u32) {
        let links = &mut self.nodes[node as usize].links;
        links.order += 1;
        links.orders.note(links.order, false);
    }

    /// The order has been carried out, and messages that wait for it are handled.
    pub(super) fn end_order(&mut self, node: u32) {
        let links = &mut self.nodes[node as usize].links;
        links.orders.note(links.order, true);
        let waiting: Vec<u32> = links.waiting.keys().copied().collect();
        for from in waiting {
            self.take_waiting(node, from);
        }
    }
}
