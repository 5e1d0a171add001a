//! Arrival of connections for links of nodes, from the management port or from the thread that has made one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::board::Connection;

/// Token of a run, and node.
type Name = ([u8; 16], u32);

/// A connection that has come up, or not.
#[derive(Debug)]
pub(super) enum Arrival {
    /// From the server of this node, which takes the node for its parent.
    Child(u32, Connection),
    /// To the parent.
    Parent(Result<Connection, String>),
}

/// Nodes of a management server that other boards may link to.
#[derive(Clone, Debug, Default)]
pub(super) struct Meeting(Arc<Mutex<BTreeMap<Name, Door>>>);

impl Meeting {
    fn doors(&self) -> MutexGuard<'_, BTreeMap<Name, Door>> {
        // No function panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts links to a node from now on, until the place is dropped.
    pub(super) fn place(&self, token: [u8; 16], node: u32) -> io::Result<Place> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let (sender, arrivals) = channel();
        let door = Door { sender, ringer: Arc::new(ringer) };
        match self.doors().entry((token, node)) {
            Entry::Vacant(free) => free.insert(door.clone()),
            Entry::Occupied(_) => return Err(io::Error::other("this node of the run is served already")),
        };
        Ok(Place { meeting: self.clone(), name: (token, node), bell, arrivals, door })
    }

    /// Returns the door of a node that was opened with that token.
    pub(super) fn door(&self, token: [u8; 16], node: u32) -> Option<Door> {
        self.doors().get(&(token, node)).cloned()
    }
}

/// Sender of connections to a node.
#[derive(Clone, Debug)]
pub(super) struct Door {
    sender: Sender<Arrival>,
    ringer: Arc<UnixStream>,
}

impl Door {
    /// Passes a connection to the thread of the node. A node that has ended drops it.
    pub(super) fn arrive(&self, arrival: Arrival) {
        if self.sender.send(arrival).is_ok() {
            // A full buffer wakes the thread too.
            let _ = (&*self.ringer).write(&[0]);
        }
    }
}

/// Receiver of connections to a node.
#[derive(Debug)]
pub(super) struct Place {
    meeting: Meeting,
    name: Name,
    bell: UnixStream,
    arrivals: Receiver<Arrival>,
    door: Door,
}

impl Place {
    /// Returns the descriptor that is readable when connections have arrived.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(super) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Returns the connections that have arrived.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        let mut bytes = [0; 64];
        while (&self.bell).read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
        self.arrivals.try_iter().collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.meeting.doors().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_place_until_it_ends() {
        let meeting = Meeting::default();
        let place = meeting.place([1; 16], 2).unwrap();
        assert!(meeting.place([1; 16], 2).is_err());
        assert!(meeting.door([2; 16], 2).is_none() && meeting.door([1; 16], 1).is_none());
        let door = meeting.door([1; 16], 2).unwrap();
        door.arrive(Arrival::Parent(Err("late".to_owned())));
        place.door().arrive(Arrival::Parent(Err("later".to_owned())));
        assert_eq!(place.arrivals().len(), 2);
        assert!(place.arrivals().is_empty());
        drop(place);
        door.arrive(Arrival::Parent(Err("too late".to_owned())));
        assert!(meeting.door([1; 16], 2).is_none() && meeting.place([1; 16], 2).is_ok());
    }
}
