//! Listening socket that pauses for 100 ms after `accept` fails.

use std::os::fd::AsFd;

use crate::{Error, Interest, Key, Poller};

/// Length of a pause in milliseconds.
const PAUSE_MS: u64 = 100;

/// A listening socket in an event loop.
///
/// `accept` fails when the process or the system has no descriptor left. The pending connection keeps the socket
/// readable, so the loop would spin. The owner calls [`pause`](Listener::pause) then and [`resume`](Listener::resume) at
/// the [`deadline`](Listener::deadline).
#[derive(Debug)]
pub struct Listener<L> {
    socket: L,
    key: Key,
    /// End of the pause.
    paused_until: Option<u64>,
}

impl<L: AsFd> Listener<L> {
    /// Has `poller` report `key` when a connection is pending. `socket` listens already.
    ///
    /// # Errors
    /// The system cannot watch the socket.
    pub fn new(socket: L, key: impl Into<Key>, poller: &Poller) -> Result<Listener<L>, Error> {
        let key = key.into();
        poller.add(&socket, key, Interest::Read)?;
        Ok(Listener { socket, key, paused_until: None })
    }

    /// The listening socket.
    pub fn socket(&self) -> &L {
        &self.socket
    }

    /// Reports no pending connection for the next 100 ms. `now` is the time in milliseconds.
    pub fn pause(&mut self, poller: &Poller, now: u64) {
        poller.remove(&self.socket);
        self.paused_until = Some(now + PAUSE_MS);
    }

    /// Returns the time of the next [`resume`](Listener::resume).
    pub fn deadline(&self) -> Option<u64> {
        self.paused_until
    }

    /// Ends a pause whose time has passed at `now`.
    ///
    /// # Errors
    /// The system cannot watch the socket.
    pub fn resume(&mut self, poller: &Poller, now: u64) -> Result<(), Error> {
        if self.paused_until.is_some_and(|at| at <= now) {
            self.paused_until = None;
            poller.add(&self.socket, self.key, Interest::Read)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_paused_listener_reports_nothing() {
        let mut poller = Poller::new().unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = socket.local_addr().unwrap();
        let mut listener = Listener::new(socket, Key(7), &poller).unwrap();
        let _client = TcpStream::connect(addr).unwrap();
        let mut keys = Vec::new();
        poller.wait(None, &mut keys).unwrap();
        assert_eq!(keys, [Key(7)]);
        listener.pause(&poller, 5);
        assert_eq!(listener.deadline(), Some(105));
        listener.resume(&poller, 104).unwrap();
        poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        assert!(keys.is_empty());
        listener.resume(&poller, 105).unwrap();
        assert_eq!(listener.deadline(), None);
        poller.wait(None, &mut keys).unwrap();
        assert_eq!(keys, [Key(7)]);
    }
}
