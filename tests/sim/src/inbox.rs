//! Inbox of a node that is busy with one item after the other.

use std::collections::VecDeque;

/// Nanoseconds that a node of normal speed takes to handle an item.
const WORK: u64 = 2_000;

/// Items that wait for a node.
#[derive(Debug)]
pub struct Inbox<T> {
    items: VecDeque<T>,
    /// The node has been told to take an item.
    scheduled: bool,
    /// Time at which the node is done with the last item.
    pub busy: u64,
}

impl<T> Default for Inbox<T> {
    fn default() -> Inbox<T> {
        Inbox { items: VecDeque::new(), scheduled: false, busy: 0 }
    }
}

impl<T> Inbox<T> {
    /// Adds an item. Returns the time at which the node takes one, unless it has been told already.
    pub fn push(&mut self, now: u64, item: T) -> Option<u64> {
        self.items.push_back(item);
        (!std::mem::replace(&mut self.scheduled, true)).then(|| self.busy.max(now))
    }

    /// Takes an item, for which the node needs `slowness` times the normal time. Also returns the time at which it takes the
    /// next one.
    pub fn take(&mut self, now: u64, slowness: u64) -> Option<(T, Option<u64>)> {
        let item = self.items.pop_front();
        self.scheduled = !self.items.is_empty();
        let item = item?;
        self.busy = now + WORK * slowness;
        Some((item, self.scheduled.then_some(self.busy)))
    }

    /// Keeps some of the items.
    pub fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.items.retain(keep);
    }
}
