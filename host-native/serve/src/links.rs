//! Links of a node to the servers of its neighbours on other boards. Messages between them need no host.
//!
//! The server of a child connects to that of its parent, by the management port, in answer to
//! [`NodeRequest::Link`](hydrant_core::server::remote::NodeRequest::Link). Before the first job the host says whether the node
//! uses its links. From then on messages for these neighbours never take another way. [`hydrant_core::server::link`] has the
//! records.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsFd;

use hydrant_board::Board;
use hydrant_board::manage::{Connection, ConnectionError, Secret};
use hydrant_core::manage::OpenLink;
use hydrant_core::peer::tree::Tree;
use hydrant_core::server::link::{Arrived, GREETING, link_record_max, next_arrival};
use hydrant_core::server::remote::{NODE_PREFIX, encode_node_record};
use hydrant_core::{Fault, Input, Limits};
use hydrant_reactor::{Interest, Poller, limit_unacknowledged};

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::link_arrivals::{Arrival, Arrivals};
use crate::token::Token;

/// Bytes that wait for a neighbour above which its server sends no more to it.
const HIGH_WATER: usize = 1 << 20;
/// Milliseconds from the loss of a link to its report. The loss of a board, which says more, is mostly reported earlier.
const LOST_DELAY: u64 = 1000;

/// Something that the host learns of.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LinkEvent {
    /// The link to the parent is there.
    Linked { node: u32 },
    /// A link is lost, or the one to the parent did not come up.
    Unlinked { node: u32, why: String },
    /// The server does not accept what a neighbour has sent.
    BadPeer { node: u32, why: Fault },
}

/// Links of one node.
#[derive(Debug)]
pub(crate) struct Links {
    arrivals: Arrivals,
    token: [u8; 16],
    node: u32,
    secret: Option<Secret>,
    /// A connection to this neighbour, the parent, is being made.
    connecting: Option<u32>,
    /// The node is in its tree. Later connections are of no use.
    is_formed: bool,
    neighbours: BTreeMap<u32, Link>,
    events: VecDeque<LinkEvent>,
    /// Number of messages that were sent over links.
    pub(crate) sent: u64,
    record_max: usize,
    /// Copy of the message that the server handles.
    message: Vec<u8>,
    buffer: Vec<u8>,
}

/// Link to a neighbour.
#[derive(Debug)]
struct Link {
    connection: Connection,
    /// The parent's server has not answered yet.
    is_awaited: bool,
    /// The server sends nothing to the neighbour until the socket has taken more.
    is_blocked: bool,
    interest: Option<Interest>,
    state: State,
}

#[derive(Debug)]
enum State {
    Open,
    /// Lost, which is reported at that time.
    Lost(String, u64),
    Reported,
}

impl Link {
    fn new(connection: Connection, is_awaited: bool) -> Link {
        Link { connection, is_awaited, is_blocked: false, interest: None, state: State::Open }
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Open)
    }

    fn lose(&mut self, poller: &Poller, state: State) {
        if self.interest.take().is_some() {
            poller.remove(self.connection.stream());
        }
        self.state = state;
    }

    /// Watches the socket for what the link waits for.
    fn watch(&mut self, node: u32, poller: &Poller) -> Result<(), Error> {
        if !self.is_open() {
            return Ok(());
        }
        let wanted = if self.connection.is_blocked() { Interest::ReadWrite } else { Interest::Read };
        let (stream, key) = (self.connection.stream(), Token::Link(node));
        match self.interest.replace(wanted) {
            None => poller.add(stream, key, wanted)?,
            Some(before) if before != wanted => poller.modify(stream, key, wanted)?,
            Some(_) => {}
        }
        Ok(())
    }
}

impl Links {
    /// Links of a node that is opened with that token, none yet.
    pub(crate) fn new(
        (arrivals, token, node): (Arrivals, [u8; 16], u32),
        secret: Option<Secret>,
        limits: &Limits,
        poller: &Poller,
    ) -> Result<Links, Error> {
        poller.add(arrivals.wake(), Token::Bell, Interest::Read)?;
        Ok(Links {
            arrivals,
            token,
            node,
            secret,
            connecting: None,
            is_formed: false,
            neighbours: BTreeMap::new(),
            events: VecDeque::new(),
            sent: 0,
            record_max: link_record_max(limits),
            message: Vec::new(),
            buffer: vec![0; NODE_PREFIX + link_record_max(limits)],
        })
    }

    /// Returns the next event for the host.
    pub(crate) fn next_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// Connects to the server of the parent at the management port `addr`, on a thread.
    pub(crate) fn connect(&mut self, node: u32, addr: &str) {
        // Names would be looked up for any host.
        let refusal = if addr.parse::<SocketAddr>().is_err() {
            Some("is not IP:PORT")
        } else if self.is_formed {
            Some("came after the tree of the nodes was formed")
        } else if self.connecting.is_some() || self.neighbours.contains_key(&node) {
            Some("is of a node that this one is linked to already")
        } else {
            None
        };
        if let Some(what) = refusal {
            let why = format!("the address {addr:?} of another board {what}");
            self.events.push_back(LinkEvent::Unlinked { node, why });
            return;
        }
        self.connecting = Some(node);
        let open = OpenLink { token: self.token, to: node, from: self.node };
        let (addr, secret, sender) = (addr.to_owned(), self.secret.clone(), self.arrivals.sender());
        let connect = move || {
            let board = Board::connect(&addr, secret.as_ref());
            let linked = board.and_then(|board| board.into_link(&open)).map_err(|why| why.to_string());
            sender.send(Arrival::Parent(linked));
        };
        let started = std::thread::Builder::new().name("link".to_owned()).spawn(connect);
        if let Err(why) = started {
            self.arrivals.sender().send(Arrival::Parent(Err(format!("cannot start a thread: {why}"))));
        }
    }

    /// Takes connections that have come up.
    pub(crate) fn take_arrivals(&mut self, endpoint: &mut Endpoint<'_>) -> Result<(), Error> {
        for arrival in self.arrivals.take() {
            let (is_parent, node, connection) = match arrival {
                Arrival::Parent(result) => match (self.connecting.take(), result) {
                    (Some(node), Ok(connection)) => (true, node, connection),
                    (Some(node), Err(why)) => {
                        self.events.push_back(LinkEvent::Unlinked { node, why });
                        continue;
                    }
                    (None, _) => continue,
                },
                Arrival::Child(node, connection) => (false, node, connection),
            };
            if self.is_formed || self.neighbours.contains_key(&node) {
                continue;
            }
            let mut link = Link::new(connection, is_parent);
            if !is_parent {
                // It shows the child that this node uses the link.
                let greeting = encode_node_record(&GREETING, &mut self.buffer);
                let sent = greeting.map_err(ConnectionError::from);
                if sent.and_then(|record| link.connection.send_unbounded(record)).is_err() {
                    continue;
                }
            }
            self.neighbours.insert(node, link);
            self.ready(node, endpoint)?;
        }
        Ok(())
    }

    /// Makes the node a node of its tree. Without `is_linked` all links are closed.
    pub(crate) fn form(
        &mut self,
        tree: Tree,
        is_linked: bool,
        silence: u32,
        endpoint: &mut Endpoint<'_>,
    ) -> Result<(), Fault> {
        let (node, nodes, radix) = (self.node, tree.nodes(), tree.form());
        if self.is_formed {
            return Err(Fault::BadNode);
        }
        endpoint.handle(Input::Node { node, nodes, radix })?;
        self.is_formed = true;
        self.connecting = None;
        self.neighbours.retain(|&other, link| {
            let stays = is_linked && tree.are_neighbours(node, other) && !link.is_awaited;
            if !stays {
                link.lose(endpoint.poller(), State::Reported);
            }
            stays
        });
        for link in self.neighbours.values() {
            // The system may not know the option. The heartbeats of the hosts remain.
            let _ = limit_unacknowledged(link.connection.stream().as_fd(), silence);
        }
        Ok(())
    }

    /// Sends a message of the server to a neighbour. Returns false if it is not linked.
    pub(crate) fn send(
        &mut self,
        node: u32,
        bytes: &[u8],
        endpoint: &mut Endpoint<'_>,
    ) -> Result<bool, Error> {
        let Some(link) = self.neighbours.get_mut(&node).filter(|_| self.is_formed) else { return Ok(false) };
        if !link.is_open() {
            return Ok(true);
        }
        self.sent += 1;
        let sent = encode_node_record(&bytes, &mut self.buffer).map_err(ConnectionError::from);
        if let Err(why) = sent.and_then(|record| link.connection.send_unbounded(record)) {
            link.lose(endpoint.poller(), State::Lost(why.to_string(), endpoint.now() + LOST_DELAY));
            return Ok(true);
        }
        if link.connection.waiting() > HIGH_WATER && !link.is_blocked {
            link.is_blocked = true;
            // The node is a neighbour.
            let _ = endpoint.handle(Input::PeerBlocked { node });
        }
        link.watch(node, endpoint.poller())?;
        Ok(true)
    }

    /// Sends bytes that wait for the socket, and handles messages that have arrived.
    pub(crate) fn ready(&mut self, node: u32, endpoint: &mut Endpoint<'_>) -> Result<(), Error> {
        let mut message = std::mem::take(&mut self.message);
        let passed = self.pass(node, &mut message, endpoint);
        self.message = message;
        let Some(link) = self.neighbours.get_mut(&node) else { return Ok(()) };
        match passed {
            Ok(()) => link.watch(node, endpoint.poller())?,
            Err(Bad::Lost(why)) => {
                let state = State::Lost(why.to_string(), endpoint.now() + LOST_DELAY);
                link.lose(endpoint.poller(), state);
            }
            Err(Bad::Message(why)) => {
                link.lose(endpoint.poller(), State::Reported);
                self.events.push_back(LinkEvent::BadPeer { node, why });
            }
        }
        endpoint.poll_driver()
    }

    fn pass(&mut self, node: u32, message: &mut Vec<u8>, endpoint: &mut Endpoint<'_>) -> Result<(), Bad> {
        let Some(link) = self.neighbours.get_mut(&node).filter(|link| link.is_open()) else { return Ok(()) };
        link.connection.flush()?;
        if link.is_blocked && link.connection.waiting() <= HIGH_WATER / 2 {
            link.is_blocked = false;
            // The node is a neighbour.
            let _ = endpoint.handle(Input::PeerWritable { node });
        }
        let mut is_filled = false;
        loop {
            let is_ended = link.connection.is_ended();
            let arrived = next_arrival(link.connection.received(), self.record_max, link.is_awaited);
            match arrived.map_err(|_| Bad::Message(Fault::BadPeer))? {
                Arrived::Part if !is_filled => {
                    link.connection.fill()?;
                    is_filled = true;
                }
                Arrived::Part if is_ended => return Err(ConnectionError::Closed.into()),
                Arrived::Part => return Ok(()),
                Arrived::Greeting(len) => {
                    link.connection.consume(len);
                    link.is_awaited = false;
                    self.events.push_back(LinkEvent::Linked { node });
                }
                Arrived::Message(bytes, len) => {
                    message.clear();
                    message.extend_from_slice(bytes);
                    link.connection.consume(len);
                    endpoint.handle(Input::Peer { node, bytes: message }).map_err(Bad::Message)?;
                    is_filled = false;
                }
            }
        }
    }

    /// Returns the time of the next [`Links::handle_timeout`], while the node has jobs.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let lost = self.neighbours.values().filter_map(|link| match link.state {
            State::Lost(_, at) => Some(at),
            State::Open | State::Reported => None,
        });
        lost.min()
    }

    /// Reports lost links of a node that has jobs.
    pub(crate) fn handle_timeout(&mut self, now: u64) {
        for (&node, link) in &mut self.neighbours {
            if let State::Lost(why, at) = &mut link.state
                && *at <= now
            {
                self.events.push_back(LinkEvent::Unlinked { node, why: std::mem::take(why) });
                link.state = State::Reported;
            }
        }
    }
}

/// Reason for the end of a link.
enum Bad {
    Lost(ConnectionError),
    Message(Fault),
}

impl From<ConnectionError> for Bad {
    fn from(why: ConnectionError) -> Bad {
        Bad::Lost(why)
    }
}

#[cfg(test)]
mod tests;
