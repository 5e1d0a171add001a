//! Arrival of connections for links of nodes, from the management port or from the thread that has made one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hydrant_board::manage::Connection;

/// A node of a run: the token of the run, and the number of the node.
type LinkedNode = ([u8; 16], u32);

/// A connection that has come up, or not.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// From the server of this node, which takes the node for its parent.
    Child(u32, Connection),
    /// To the parent.
    Parent(Result<Connection, String>),
}

/// Nodes of a management server that other boards may link to.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkedNodes(Arc<Mutex<BTreeMap<LinkedNode, ArrivalSender>>>);

impl LinkedNodes {
    fn senders(&self) -> MutexGuard<'_, BTreeMap<LinkedNode, ArrivalSender>> {
        // No function panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts links to a node from now on, until the receiver is dropped.
    pub(crate) fn accept(&self, token: [u8; 16], node: u32) -> io::Result<Arrivals> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        let sender = ArrivalSender { sender, waker: Arc::new(waker) };
        match self.senders().entry((token, node)) {
            Entry::Vacant(free) => free.insert(sender.clone()),
            Entry::Occupied(_) => return Err(io::Error::other("this node of the run is served already")),
        };
        Ok(Arrivals { nodes: self.clone(), node: (token, node), wake, receiver, sender })
    }

    /// Returns the sender of a node that was opened with that token.
    pub(crate) fn sender(&self, token: [u8; 16], node: u32) -> Option<ArrivalSender> {
        self.senders().get(&(token, node)).cloned()
    }
}

/// Sender of connections to a node.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalSender {
    sender: Sender<Arrival>,
    waker: Arc<UnixStream>,
}

impl ArrivalSender {
    /// Passes a connection to the thread of the node. A node that has ended drops it.
    pub(crate) fn send(&self, arrival: Arrival) {
        if self.sender.send(arrival).is_ok() {
            // A full buffer wakes the thread too.
            let _ = (&*self.waker).write(&[0]);
        }
    }
}

/// Receiver of connections to a node.
#[derive(Debug)]
pub(crate) struct Arrivals {
    nodes: LinkedNodes,
    node: LinkedNode,
    wake: UnixStream,
    receiver: Receiver<Arrival>,
    sender: ArrivalSender,
}

impl Arrivals {
    /// Returns the descriptor that is readable when connections have arrived.
    pub(crate) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(crate) fn sender(&self) -> ArrivalSender {
        self.sender.clone()
    }

    /// Returns the connections that have arrived.
    pub(crate) fn take(&self) -> Vec<Arrival> {
        let mut bytes = [0; 64];
        while (&self.wake).read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
        self.receiver.try_iter().collect()
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.nodes.senders().remove(&self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_accepted_for_once_until_it_ends() {
        let nodes = LinkedNodes::default();
        let arrivals = nodes.accept([1; 16], 2).unwrap();
        assert!(nodes.accept([1; 16], 2).is_err());
        assert!(nodes.sender([2; 16], 2).is_none() && nodes.sender([1; 16], 1).is_none());
        let sender = nodes.sender([1; 16], 2).unwrap();
        sender.send(Arrival::Parent(Err("late".to_owned())));
        arrivals.sender().send(Arrival::Parent(Err("later".to_owned())));
        assert_eq!(arrivals.take().len(), 2);
        assert!(arrivals.take().is_empty());
        drop(arrivals);
        sender.send(Arrival::Parent(Err("too late".to_owned())));
        assert!(nodes.sender([1; 16], 2).is_none() && nodes.accept([1; 16], 2).is_ok());
    }
}
