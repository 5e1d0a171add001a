//! Links between boards: messages of servers that no host passes on.
//!
//! A link has a delay and a window of its own, so a message may overtake the orders that its sender had, or come long after them.

use hydrant_core::Input;

use super::node::Item;
use super::world::{Event, World};

/// What is added to the numbers of nodes for the network of the boards.
const BOARDS: u32 = 1 << 16;
/// Length in bytes of a record's prefix.
const PREFIX: u64 = 4;

impl World<'_> {
    /// Whether no host passes on messages between the servers of two nodes.
    pub(super) fn are_linked(&self, one: u32, other: u32) -> bool {
        self.plan.are_linked && one != 0 && other != 0
    }

    /// Sends a message of a server over a link. Returns whether the link is full.
    pub(super) fn send_linked(&mut self, from: u32, to: u32, bytes: Vec<u8>) -> bool {
        let state = &self.nodes[from as usize];
        let (now, orders) = (state.inbox.busy.max(self.now), state.orders);
        let len = bytes.len() as u64 + PREFIX;
        let sent = self.net.send(now, BOARDS + from, BOARDS + to, len, &mut self.random);
        self.at(sent.at, Event::Item(to, Item::Linked { from, orders, bytes }));
        sent.blocked
    }

    /// A message arrives over a link. Its sender had so many orders.
    pub(super) fn take_linked(&mut self, node: u32, from: u32, orders: u32, bytes: &[u8]) {
        let state = &mut self.nodes[node as usize];
        self.overtaken += u32::from(orders > state.orders);
        let taken = state.handle(self.now, Input::Peer { node: from, bytes });
        assert!(taken.is_ok(), "node {node} refuses a message of board {from}: {taken:?}");
        if self.net.arrived(BOARDS + from, BOARDS + node, bytes.len() as u64 + PREFIX) {
            self.push(from, Item::Writable { to: node });
        }
    }
}
