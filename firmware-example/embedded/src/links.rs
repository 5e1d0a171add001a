//! Links of a node to the boards of its neighbours in the tree: messages between them need no host.
//!
//! The records are those of [`hydrant_core::server::link`]. The board connects to that of its parent in answer to
//! [`Link`](hydrant_core::server::remote::NodeRequest::Link), with a socket of its own, and boards of children connect to its
//! management port.

use core::net::SocketAddr;

use hydrant_core::manage::{
    self, BadRecord, OpenLink, OpenNode, Report, Request, STALL_MS, VERSION, Welcome,
};
use hydrant_core::peer::Tree;
use hydrant_core::server::link::{Arrived, GREETING, next_arrival};
use hydrant_core::server::remote::NodeReport;
use hydrant_core::{Fault, Limits};

use crate::board::{Board, Handle, Sizes, on_link};
use crate::channel::Channel;
use crate::connection::Connection;
use crate::net::{Net, Socket, State as SocketState};
use crate::noise::{Forged, Initiator};

/// Milliseconds until the parent's board is linked. Its handshakes with other boards come first.
const OPEN_TIME: u64 = 2 * STALL_MS;
/// Milliseconds from the loss of a link to its report. The loss of a board, which says more, is mostly reported earlier.
const LOST_DELAY: u64 = 1000;

/// Links of the node that is served.
pub struct Links<B: Board> {
    /// The node, if it was opened with a token.
    open: Option<OpenNode>,
    /// The node is in its tree.
    is_formed: bool,
    /// Socket for the connection to the parent's board.
    socket: Handle<B>,
    /// Child whose connection is accepted next.
    joining: Option<u32>,
    /// The parent's, and those of children.
    slots: &'static mut [Slot<B>],
    /// Numbers of messages that were sent over links and by the host.
    pub(crate) sent: u32,
    pub(crate) by_host: u32,
}

/// Room for a link.
pub struct Slot<B: Board> {
    /// Received bytes that are not handled.
    inbox: &'static mut [u8],
    len: usize,
    peer: Option<Peer<B>>,
}

impl<B: Board> Slot<B> {
    /// With a buffer of [`Sizes::INBOX`] bytes.
    pub const fn new(inbox: &'static mut [u8]) -> Slot<B> {
        Slot { inbox, len: 0, peer: None }
    }
}

/// Neighbour whose board is linked, was, or may be.
struct Peer<B: Board> {
    node: u32,
    link: Connection<B>,
    state: State,
    /// The server sends nothing to it until its socket has room for the longest message.
    is_blocked: bool,
}

enum State {
    /// The parent's board is connected to, until the time is over.
    Opening(Step, u64),
    Open,
    /// Lost, which is reported at that time.
    Lost(&'static str, u64),
    /// Lost, which is reported.
    Closed,
    /// Not used by the tree.
    Unused,
}

/// What the parent's board does next.
enum Step {
    /// It accepts the connection.
    Accept,
    /// It answers the handshake.
    Answer(Initiator),
    /// It welcomes.
    Welcome,
    /// It accepts the link.
    Link,
    /// Its node greets.
    Greet,
}

/// Reason for the end of a link.
pub(crate) enum Bad {
    Lost(&'static str),
    Message(Fault),
}

impl From<Forged> for Bad {
    fn from(_: Forged) -> Bad {
        Bad::Lost("it does not have the same secret")
    }
}

impl From<Fault> for Bad {
    fn from(why: Fault) -> Bad {
        Bad::Message(why)
    }
}

impl From<BadRecord> for Bad {
    fn from(_: BadRecord) -> Bad {
        Bad::Message(Fault::BadPeer)
    }
}

/// Received bytes of a link.
pub(crate) struct Received {
    /// Number of bytes in its buffer.
    pub(crate) len: usize,
    /// Some of them are new.
    pub(crate) are_new: bool,
    /// No more will come.
    pub(crate) are_last: bool,
}

impl<B: Board> Links<B> {
    /// Takes the memory of links, with the socket for the connection to the parent's board. Called once.
    /// There are [`Sizes::BOARD_LINKS`] slots.
    pub const fn new(socket: Handle<B>, slots: &'static mut [Slot<B>]) -> Links<B> {
        Links { open: None, is_formed: false, socket, joining: None, slots, sent: 0, by_host: 0 }
    }

    /// Begins with another node. Returns whether it was opened for links.
    pub(crate) fn restart(&mut self, open: Option<OpenNode>) -> bool {
        self.open = open.filter(|open| open.link.is_some());
        (self.is_formed, self.joining) = (false, None);
        (self.sent, self.by_host) = (0, 0);
        for slot in self.slots.iter_mut() {
            (slot.len, slot.peer) = (0, None);
        }
        // Two boards may have the same memory and times, but no two runs have the same token.
        if let Some(token) = self.open.and_then(|open| open.link) {
            let (words, _) = token.as_chunks();
            words.iter().for_each(|word| B::mix(u64::from_le_bytes(*word)));
        }
        self.open.is_some()
    }

    /// Returns the next deadline.
    pub(crate) fn poll_at(&self, has_jobs: bool) -> Option<u64> {
        let peers = self.slots.iter().filter_map(|slot| slot.peer.as_ref());
        let deadlines = peers.filter_map(|peer| match peer.state {
            State::Opening(_, until) => Some(until),
            State::Lost(_, at) if has_jobs => Some(at),
            _ => None,
        });
        deadlines.min()
    }

    /// Returns the sockets of links, of which each is free when the node has ended.
    pub(crate) fn handles(&self) -> impl Iterator<Item = Handle<B>> {
        self.slots.iter().filter_map(|slot| slot.peer.as_ref()).map(|peer| peer.link.handle())
    }

    /// Returns whether the board of another node may link to this one. The next connection is its.
    pub(crate) fn admit(&mut self, link: &OpenLink) -> bool {
        let has_name = |open: OpenNode| open.link == Some(link.token) && open.node == link.to;
        let is_known = self.peers().any(|peer| peer.node == link.from);
        let is_full = self.slots.iter().skip(B::PARENTS).all(|slot| slot.peer.is_some());
        let admits = self.open.is_some_and(has_name) && !self.is_formed && !is_known && !is_full;
        self.joining = Some(link.from).filter(|_| admits);
        admits
    }

    /// Takes the connection of a child, if [`Links::admit`] has admitted one. Returns it otherwise.
    pub(crate) fn accept(&mut self, net: &mut B::Net, mut link: Connection<B>) -> Option<Connection<B>> {
        let Some(node) = self.joining.take() else { return Some(link) };
        link.send(net, &GREETING);
        // One is free, because the child was admitted.
        if let Some(slot) = self.slots.iter_mut().skip(B::PARENTS).find(|slot| slot.peer.is_none()) {
            slot.peer = Some(Peer { node, link, state: State::Open, is_blocked: false });
        }
        None
    }

    fn peers(&self) -> impl Iterator<Item = &Peer<B>> {
        self.slots.iter().filter_map(|slot| slot.peer.as_ref())
    }

    /// Sends a message of the server. Returns None if the neighbour is not linked, and otherwise whether the link is full now.
    pub(crate) fn send(
        &mut self,
        net: &mut B::Net,
        limits: &Limits,
        node: u32,
        bytes: &[u8],
    ) -> Option<bool> {
        let is_linked = |peer: &&mut Peer<B>| peer.node == node && !matches!(peer.state, State::Unused);
        let peers = self.slots.iter_mut().filter_map(|slot| slot.peer.as_mut());
        let Some(peer) = peers.filter(|_| self.is_formed).find(is_linked) else {
            self.by_host = self.by_host.saturating_add(1);
            return None;
        };
        if matches!(peer.state, State::Open) {
            self.sent = self.sent.saturating_add(1);
            // There is room: the link would be blocked otherwise.
            peer.link.send(net, &bytes);
            peer.is_blocked = !has_room(net, &peer.link, limits);
        }
        Some(peer.is_blocked)
    }

    /// Begins to link this node to its parent: connects to the parent's board.
    pub(crate) fn connect(&mut self, net: &mut B::Net, node: u32, addr: &str) -> Result<(), &'static str> {
        let addr = match addr.parse() {
            Ok(SocketAddr::V4(addr)) if addr.port() > 0 => addr,
            _ => return Err("its address is no IPv4 address"),
        };
        let is_late = self.is_formed || self.peers().any(|peer| peer.node == node);
        let Some(slot) = self.slots.first_mut().filter(|slot| !is_late && slot.peer.is_none()) else {
            return Err("it is too late for a link");
        };
        net.connect(self.socket, addr);
        let (link, until) = (Connection::new(self.socket, Channel::new()), B::millis() + OPEN_TIME);
        let state = State::Opening(Step::Accept, until);
        slot.peer = Some(Peer { node, link, state, is_blocked: false });
        Ok(())
    }

    /// Goes on with the connection to the parent's board.
    pub(crate) fn open(&mut self, net: &mut B::Net, at: usize) -> Result<(), Bad> {
        let (Some(open), Slot { inbox, len, peer: Some(peer) }) = (self.open, &mut self.slots[at]) else {
            return Ok(());
        };
        let Peer { node, link, state: State::Opening(step, until), .. } = peer else { return Ok(()) };
        if B::millis() >= *until {
            return Err(Bad::Lost("it has not answered in time"));
        }
        let socket = net.socket_mut(link.handle());
        match step {
            Step::Accept if socket.state() == SocketState::Closed => {
                return Err(Bad::Lost("it refuses the connection"));
            }
            Step::Accept if !socket.may_send() => return Ok(()),
            Step::Accept => match link.begin(socket)? {
                Some(initiator) => {
                    *step = Step::Answer(initiator);
                    return Ok(());
                }
                None => link.request(socket, &Request::Hello { version: VERSION }),
            },
            Step::Answer(initiator) => {
                if !link.complete(socket, initiator)? {
                    return if socket.may_recv() { Ok(()) } else { Err(Forged.into()) };
                }
                link.request(socket, &Request::Hello { version: VERSION });
            }
            Step::Welcome | Step::Link | Step::Greet => {}
        }
        if matches!(step, Step::Accept | Step::Answer(_)) {
            *step = Step::Welcome;
        }
        let received = link.receive(net, inbox, *len)?;
        *len += received;
        while !matches!(step, Step::Greet) {
            let next = manage::next(&inbox[..*len]).map_err(|_| Bad::Lost("its reply is malformed"))?;
            let Some((record, whole)) = next else { break };
            let report = manage::decode(record).map_err(|_| Bad::Lost("its reply is malformed"))?;
            match (&step, report) {
                (Step::Welcome, Report::Welcome(Welcome { links: Some(_), .. })) => {
                    let token = open.link.unwrap_or_default();
                    let request = Request::Link(OpenLink { token, to: *node, from: open.node });
                    link.request(net.socket_mut(link.handle()), &request);
                    *step = Step::Link;
                }
                (Step::Link, Report::Done) => *step = Step::Greet,
                (_, Report::Refused(_)) => return Err(Bad::Lost("it refuses a link")),
                _ => return Err(Bad::Lost("it has no links")),
            }
            inbox.copy_within(whole..*len, 0);
            *len -= whole;
        }
        let socket = net.socket_mut(link.handle());
        if received == 0 && !socket.may_recv() {
            return Err(Bad::Lost("it closed the connection"));
        }
        Ok(())
    }

    /// Returns the node, if it is in no tree yet.
    pub(crate) fn unformed(&self) -> Option<OpenNode> {
        self.open.filter(|_| !self.is_formed)
    }

    /// The node is in its tree. Links that it does not use are closed, without `is_linked` all.
    pub(crate) fn form(
        &mut self,
        net: &mut B::Net,
        (node, tree): (u32, Tree),
        is_linked: bool,
        silence: u32,
    ) {
        self.is_formed = true;
        for at in 0..B::BOARD_LINKS {
            let Some(peer) = &self.slots[at].peer else { continue };
            let is_neighbour = is_linked && tree.are_neighbours(node, peer.node);
            match peer.state {
                State::Open if is_neighbour => net.set_patience(peer.link.handle(), Some(u64::from(silence))),
                State::Lost(..) if is_neighbour => {}
                _ => self.end(net, at, State::Unused),
            }
        }
    }

    /// Returns the neighbour of a link.
    pub(crate) fn node(&self, at: usize) -> Option<u32> {
        Some(self.slots[at].peer.as_ref()?.node)
    }

    /// Lends the buffer of a link, for [`Links::receive`].
    pub(crate) fn lend(&mut self, at: usize) -> &'static mut [u8] {
        core::mem::take(&mut self.slots[at].inbox)
    }

    /// Gets the buffer of a link back.
    pub(crate) fn get_back(&mut self, at: usize, inbox: &'static mut [u8]) {
        self.slots[at].inbox = inbox;
    }

    /// Receives bytes of an open link.
    pub(crate) fn receive(
        &mut self,
        net: &mut B::Net,
        at: usize,
        inbox: &mut [u8],
    ) -> Result<Option<Received>, Bad> {
        let Slot { len, peer: Some(peer), .. } = &mut self.slots[at] else { return Ok(None) };
        if !matches!(peer.state, State::Open | State::Opening(Step::Greet, _)) {
            return Ok(None);
        }
        if peer.link.is_stalled() {
            return Err(Bad::Lost("it does not read its messages"));
        }
        let received = peer.link.receive(net, inbox, *len)?;
        *len += received;
        let are_last = !net.socket_mut(peer.link.handle()).may_recv();
        Ok(Some(Received { len: *len, are_new: received > 0, are_last }))
    }

    /// Returns what received bytes of a link begin with.
    pub(crate) fn next_arrival<'b>(
        &self,
        at: usize,
        bytes: &'b [u8],
        max: usize,
    ) -> Result<Arrived<'b>, Bad> {
        let is_awaited = self.slots[at].peer.as_ref().is_some_and(|peer| !matches!(peer.state, State::Open));
        Ok(next_arrival(bytes, max, is_awaited)?)
    }

    /// The parent's node has greeted.
    pub(crate) fn greeted(&mut self, at: usize) {
        if let Some(peer) = &mut self.slots[at].peer {
            peer.state = State::Open;
        }
    }

    /// Drops handled bytes of a link from the front of its buffer.
    pub(crate) fn consume(&mut self, at: usize, inbox: &mut [u8], handled: usize) {
        let len = &mut self.slots[at].len;
        inbox.copy_within(handled..*len, 0);
        *len -= handled;
    }

    /// Returns the neighbour of a link that was full and takes the longest message again.
    pub(crate) fn unblock(&mut self, net: &mut B::Net, at: usize, limits: &Limits) -> Option<u32> {
        let peer = self.slots[at].peer.as_mut()?;
        if !peer.is_blocked || !has_room(net, &peer.link, limits) {
            return None;
        }
        peer.is_blocked = false;
        Some(peer.node)
    }

    /// Ends a link that is lost. Returns what the host is to learn, of a link that was lost earlier if the node `has_jobs`.
    pub(crate) fn settle(
        &mut self,
        net: &mut B::Net,
        at: usize,
        passed: Result<(), Bad>,
        has_jobs: bool,
    ) -> Option<NodeReport<'static>> {
        let (now, peer) = (B::millis(), self.slots[at].peer.as_ref()?);
        let node = peer.node;
        let unlinked = |why| Some(NodeReport::Unlinked { node, why });
        let (state, report) = match (passed, &peer.state) {
            (Err(Bad::Lost(why)), State::Opening(..)) => (State::Unused, unlinked(why)),
            (Err(Bad::Lost(why)), _) => (State::Lost(why, now + LOST_DELAY), None),
            (Err(Bad::Message(why)), _) => {
                (State::Closed, Some(NodeReport::Refused { request: u32::MAX, peer: Some(node), why }))
            }
            (Ok(()), &State::Lost(why, due)) if has_jobs && now >= due => (State::Closed, unlinked(why)),
            (Ok(()), _) => return None,
        };
        self.end(net, at, state);
        report
    }

    fn end(&mut self, net: &mut B::Net, at: usize, state: State) {
        let slot = &mut self.slots[at];
        slot.len = 0;
        if let Some(peer) = &mut slot.peer {
            net.socket_mut(peer.link.handle()).abort();
            peer.state = state;
        }
    }
}

/// Returns whether the socket of a link takes the longest message.
fn has_room<B: Board>(net: &mut B::Net, link: &Connection<B>, limits: &Limits) -> bool {
    let socket = net.socket_mut(link.handle());
    socket.send_capacity() - socket.send_queue() >= on_link::<B>(limits)
}
