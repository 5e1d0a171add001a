//! Link of a node to the head in srun.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use hydrant_overlay::{Channel, Link, LinkError, RECEIVE_BUFFER_MIN, Ticket, connect};
use hydrant_reactor::{Clock, Error, Interest, Key, KeyRange, Poller};
use rustix::io::Errno;

use crate::message::{Ready, ToHead, encode};
use crate::servers::Servers;

/// Key of the link in the poller.
pub(crate) const LINK: Key = KeyRange(0).key(1, 0);
/// Bytes queued for a link above which a server stops sending to it.
pub(crate) const HIGH_WATER: usize = 1 << 20;
/// Maximum time of each step of the connection to the head.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time in milliseconds for the last messages.
const LAST_MESSAGES: u64 = 2_000;

/// Place of a node in its step, and the head.
#[derive(Debug)]
pub(crate) struct Place {
    /// All servers.
    pub(crate) servers: Servers,
    /// Number of this node among them.
    pub(crate) number: u32,
    /// Number of nodes of the step.
    pub(crate) nodes: u32,
    pub(crate) head: SocketAddr,
    pub(crate) ticket: Ticket,
    /// Name of the job that has spawned the step.
    pub(crate) spawner: Option<String>,
}

impl Place {
    /// Whether the node knows the job from the head only. Otherwise it connects to the head when a rank needs it.
    pub(crate) fn is_led(&self) -> bool {
        self.nodes > 1 || self.spawner.is_some()
    }
}

/// Tells the head why a node does not serve its tasks, which have these ranks.
pub(crate) fn refuse(place: &Place, name: String, ranks: Vec<u32>, why: String) -> Result<(), LinkError> {
    let mut poller = Poller::new().map_err(Errno::from)?;
    let mut link = Uplink::connect(place, Clock::start(), &poller)?;
    link.send(&ToHead::Ready(Ready { name, ranks, refused: Some(why), ..Ready::default() }));
    Ok(link.close(&mut poller).map_err(Errno::from)?)
}

/// Link to the head.
#[derive(Debug)]
pub(crate) struct Uplink {
    link: Link,
    clock: Clock,
    buffer: Vec<u8>,
    /// Neighbours that the server may not send to until the queue drains.
    blocked: BTreeSet<u32>,
}

impl Uplink {
    /// Connects to the head.
    pub(crate) fn connect(place: &Place, clock: Clock, poller: &Poller) -> Result<Uplink, LinkError> {
        let link = connect(place.head, &place.ticket, place.number, CONNECT_TIMEOUT, clock.now())?;
        poller.add(link.fd(), LINK, Interest::Read).map_err(Errno::from)?;
        Ok(Uplink { link, clock, buffer: vec![0; RECEIVE_BUFFER_MIN], blocked: BTreeSet::new() })
    }

    /// Sends a message of the server to a neighbour. Returns whether the server has to wait from now on.
    pub(crate) fn send_peer(&mut self, to: u32, bytes: &[u8]) -> Result<bool, LinkError> {
        self.link.send(self.clock.now(), Channel::Peer, bytes)?;
        Ok(self.link.queued() > HIGH_WATER && self.blocked.insert(to))
    }

    /// Sends a message about the tasks. The loss of the link is reported when it is read.
    pub(crate) fn send(&mut self, message: &ToHead) {
        let _ = self.link.send(self.clock.now(), Channel::Control, &encode(message));
    }

    /// Reads once.
    pub(crate) fn receive(&mut self) -> Result<Vec<(Channel, Vec<u8>)>, LinkError> {
        let mut messages = Vec::new();
        let on_message = |channel, message| messages.push((channel, message));
        self.link.receive(self.clock.now(), &mut self.buffer, on_message)?;
        Ok(messages)
    }

    /// Writes as many bytes as the socket takes. Returns the neighbours that the server can send to again.
    pub(crate) fn flush(&mut self, poller: &Poller) -> Result<BTreeSet<u32>, Error> {
        let _ = self.link.flush();
        let interest = if self.link.is_blocked() { Interest::ReadWrite } else { Interest::Read };
        poller.modify(self.link.fd(), LINK, interest)?;
        let is_drained = self.link.queued() <= HIGH_WATER / 2;
        Ok(if is_drained { std::mem::take(&mut self.blocked) } else { BTreeSet::new() })
    }

    /// Sends the last message and waits until it is written, for a limited time.
    pub(crate) fn close(mut self, poller: &mut Poller) -> Result<(), Error> {
        self.send(&ToHead::Over);
        let last = self.clock.now() + LAST_MESSAGES;
        let mut keys = Vec::new();
        self.flush(poller)?;
        while self.link.is_blocked() && self.clock.now() < last {
            poller.modify(self.link.fd(), LINK, Interest::Write)?;
            poller.wait(self.clock.timeout([Some(last)]), &mut keys)?;
            if self.link.flush().is_err() {
                break;
            }
        }
        Ok(())
    }
}
