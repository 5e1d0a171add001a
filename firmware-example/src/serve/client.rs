//! One client's socket.

use hydrant_core::manage::STALL_MS;
use hydrant_core::server::{Consumed, Input};
use hydrant_core::{ConnId, Rank, Time};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{self, State};

use super::Serve;
use crate::memory::CLIENT_BUFFER;
use crate::net::Net;
use crate::time;

/// A socket for clients, and who is there. Its place among the others is its number in the core.
pub(crate) struct Client {
    pub(crate) handle: SocketHandle,
    /// Whether the core knows of a connection.
    pub(super) open: bool,
    /// Whose it is, once that is known.
    pub(super) rank: Option<Rank>,
    /// How many bytes the core has seen and left.
    pub(super) seen: usize,
    /// Whether a whole message waits for a reply to be taken, and whether one was.
    pub(super) again: bool,
    pub(super) replied: bool,
    /// Whether the core may not speak, because its last words wait to be read.
    blocked: bool,
    /// Whether it is to be closed.
    pub(super) closing: bool,
    /// Whether without ceremony, because nothing has been said to it.
    pub(super) abrupt: bool,
    /// When it connected; after that, when it was closed from here.
    since: u64,
}

impl Client {
    pub(crate) const fn new(handle: SocketHandle) -> Client {
        Client {
            handle,
            open: false,
            rank: None,
            seen: 0,
            again: false,
            replied: false,
            blocked: false,
            closing: false,
            abrupt: false,
            since: 0,
        }
    }
}

impl Client {
    /// How long it may be without saying whose it is, while it is.
    pub(super) fn stranger_until(&self) -> Option<u64> {
        (self.open && self.rank.is_none()).then_some(self.since + HANDSHAKE_TIMEOUT_MS)
    }
}

/// Milliseconds that a client or host has for its handshake. Other clients may need its socket.
pub(crate) const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

impl Serve {
    /// Sees to one client.
    pub(super) fn client(&mut self, net: &mut Net, at: usize) {
        let conn = ConnId(at as u32);
        if !self.clients[at].open && !self.welcome(net, conn) {
            return;
        }
        self.unblock(net, conn);
        self.take_in(net, conn);
        let client = &mut self.clients[at];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
        // A message that is not whole when the client has closed never will be.
        let over = socket.state() != State::Established && socket.recv_queue() == client.seen;
        let stranger = client.stranger_until().is_some_and(|until| time::millis() >= until);
        if stranger {
            defmt::warn!("conn {} did not say whose it is, and is given up", conn);
        }
        if !over && !stranger && !client.closing {
            return self.block(net, conn);
        }
        if stranger || client.abrupt {
            // Its socket is free for somebody else at once.
            socket.abort();
        } else {
            // What has been said is sent before.
            socket.close();
        }
        let rank = client.rank;
        *client = Client { since: time::millis(), ..Client::new(client.handle) };
        self.leave_long(conn);
        self.tell(net, Input::Closed { conn });
        self.lost(net, rank);
    }

    /// Listens where somebody is welcome, and tells the core who came. Whether somebody did.
    fn welcome(&mut self, net: &mut Net, conn: ConnId) -> bool {
        let client = &mut self.clients[conn.index()];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
        let job = self.job.as_ref().filter(|job| job.serving()).map(|job| job.id);
        match (socket.state(), job) {
            (State::Closed, Some(_)) => {
                // The port is not 0, and the socket is closed.
                let _ = socket.listen(self.port);
            }
            (State::Closed | State::SynReceived, _) | (State::Listen, Some(_)) => {}
            (State::Established | State::CloseWait, Some(job)) => {
                if self.is_complete() {
                    return false;
                }
                let client = &mut self.clients[conn.index()];
                client.open = true;
                client.since = time::millis();
                self.counters.accepted = self.counters.accepted.saturating_add(1);
                self.tell(net, Input::Opened { conn, job, rank: None });
                return true;
            }
            (State::Established | State::CloseWait, None) => {
                self.counters.turned_away = self.counters.turned_away.saturating_add(1);
                socket.abort();
            }
            (State::Listen | State::TimeWait, _) => socket.abort(),
            // On the way out, as long as the client's side takes part.
            _ if time::millis() >= client.since + STALL_MS => socket.abort(),
            _ => {}
        }
        false
    }

    /// Hands the core what the client said.
    fn take_in(&mut self, net: &mut Net, conn: ConnId) {
        if self.long.is_of(conn) {
            return self.take_in_long(net, conn);
        }
        loop {
            let client = &mut self.clients[conn.index()];
            let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
            let queued = socket.recv_queue();
            let again = client.again && client.replied;
            if self.tail.is_some() || client.closing {
                return;
            }
            if queued == client.seen && !again {
                if queued == CLIENT_BUFFER && !client.again {
                    self.begin_long(net, conn);
                }
                return;
            }
            client.replied = false;
            let Some((took, whole)) = self.hand_in(net, conn, queued) else { return };
            let consumed = took.bytes as usize;
            self.counters.bytes_in += consumed as u64;
            let client = &mut self.clients[conn.index()];
            client.again = took.again;
            // What lies behind the buffer's end has not been looked at yet where something before it was consumed.
            client.seen = if whole < queued && consumed > 0 { 0 } else { queued - consumed };
            self.drain(net);
        }
    }

    /// Hands in what lies in the socket's buffer: from where it lies, or, when the core can do nothing with the part
    /// before the buffer's end, all of it in one piece. Gives how much the core looked at first.
    fn hand_in(&mut self, net: &mut Net, conn: ConnId, queued: usize) -> Option<(Consumed, usize)> {
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(self.clients[conn.index()].handle);
        let now = Time(time::millis());
        let server = &mut self.server;
        let mut whole = 0;
        if self.tape.is_some() {
            // A record is sent while the bytes are looked at, which they cannot be in a socket's buffer.
            let len = socket.peek_slice(self.reply).ok()?;
            return self.hand_in_copy(net, conn, len);
        }
        let took = socket.recv(|bytes| {
            whole = bytes.len();
            let took = server.handle(now, Input::Bytes { conn, bytes, full: false });
            (took.map_or(0, |took| took.bytes as usize), took)
        });
        let took = took.ok()?.ok()?;
        if took.bytes > 0 || took.again || whole == queued {
            return Some((took, whole));
        }
        let len = socket.peek_slice(self.reply).ok()?;
        self.hand_in_copy(net, conn, len)
    }

    /// The same from the reply's buffer, which is longer than the socket's and holds a copy of it. No reply waits there,
    /// since nothing is taken in meanwhile.
    fn hand_in_copy(&mut self, net: &mut Net, conn: ConnId, len: usize) -> Option<(Consumed, usize)> {
        let input = Input::Bytes { conn, bytes: &self.reply[..len], full: false };
        let now = Time(time::millis());
        let took = super::handle(&mut self.server, &mut self.tape, net, now, input).ok()?;
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(self.clients[conn.index()].handle);
        let mut left = took.bytes as usize;
        while left > 0 {
            let dropped = socket.recv(|bytes| (left.min(bytes.len()), left.min(bytes.len())));
            left -= dropped.ok().filter(|&dropped| dropped > 0)?;
        }
        Some((took, len))
    }

    /// Has the core hold its tongue while most of the socket's buffer waits to be read.
    fn block(&mut self, net: &mut Net, conn: ConnId) {
        let client = &mut self.clients[conn.index()];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
        if client.open && !client.blocked && socket.send_queue() > CLIENT_BUFFER / 2 {
            client.blocked = true;
            self.tell(net, Input::Blocked { conn });
        }
    }

    fn unblock(&mut self, net: &mut Net, conn: ConnId) {
        let client = &mut self.clients[conn.index()];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
        if client.blocked && socket.send_queue() <= CLIENT_BUFFER / 2 {
            client.blocked = false;
            self.tell(net, Input::Writable { conn });
        }
    }
}
