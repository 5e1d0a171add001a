//! Socket of a client.

use hydrant_core::manage::STALL_MS;
use hydrant_core::server::{Consumed, Input};
use hydrant_core::{ConnId, JobId, Rank, Time};

use super::Serve;
use crate::board::{Board, Handle};
use crate::net::{Net, Socket, State};

/// Socket for clients, and the client that is connected. Its index is the connection's number in the server.
pub struct Client<B: Board> {
    pub(super) handle: Handle<B>,
    /// Job of the connection, if it is open in the server.
    pub(super) job: Option<JobId>,
    /// Its rank, once known.
    pub(super) rank: Option<Rank>,
    /// Number of bytes that the server has received and not consumed.
    pub(super) seen: usize,
    /// The bytes are to be passed again after a reply. `replied`: a reply was sent.
    pub(super) again: bool,
    pub(super) replied: bool,
    /// `Blocked` was reported to the server.
    blocked: bool,
    /// The connection is to be closed.
    pub(super) closing: bool,
    /// The connection is to be closed by a reset, because no reply was sent.
    pub(super) abrupt: bool,
    /// Time of the connection, or of its end by this side.
    pub(super) since: u64,
}

impl<B: Board> Client<B> {
    /// Over a closed socket.
    pub const fn new(handle: Handle<B>) -> Client<B> {
        Client {
            handle,
            job: None,
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

impl<B: Board> Client<B> {
    /// Returns the deadline of its handshake, if that is not complete.
    pub(super) fn handshake_deadline(&self) -> Option<u64> {
        (self.job.is_some() && self.rank.is_none()).then_some(self.since + HANDSHAKE_TIMEOUT_MS)
    }

    fn state(&self, net: &B::Net) -> State {
        net.socket(self.handle).state()
    }

    /// Returns whether a client can connect.
    pub(super) fn is_free(&self, net: &B::Net) -> bool {
        matches!(self.state(net), State::Closed | State::Listen)
    }

    /// Returns whether this side has closed the connection and the close handshake is not complete.
    pub(super) fn is_closing(&self, net: &B::Net) -> bool {
        matches!(
            self.state(net),
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck | State::TimeWait
        )
    }

    /// Returns the time at which a socket that is still closing is aborted.
    pub(super) fn closing_deadline(&self, net: &B::Net) -> Option<u64> {
        self.is_closing(net).then_some(self.since + STALL_MS)
    }
}

/// Milliseconds that a client or host has for its handshake. Other clients may need its socket.
pub(crate) const HANDSHAKE_TIMEOUT_MS: u64 = 10_000;

impl<B: Board> Serve<'_, B> {
    /// Handles one client.
    pub(super) fn client(&mut self, net: &mut B::Net, at: usize) {
        let conn = ConnId(at as u32);
        self.extend_deadlines(net);
        if self.clients[at].job.is_none() && !self.accept(net, conn) {
            return;
        }
        self.unblock(net, conn);
        self.receive(net, conn);
        self.extend_deadlines(net);
        let client = &mut self.clients[at];
        let socket = net.socket_mut(client.handle);
        // An incomplete message stays incomplete when the client has closed.
        let over = socket.state() != State::Established && socket.recv_queue() == client.seen;
        let expired = client.handshake_deadline().is_some_and(|until| B::millis() >= until);
        if expired {
            warn!("conn {} did not complete its handshake, and is given up", conn);
        }
        if !over && !expired && !client.closing {
            return self.block(net, conn);
        }
        if expired || client.abrupt {
            // The socket is free for another client at once.
            socket.abort();
        } else {
            // Queued replies are sent before.
            socket.close();
        }
        let rank = client.rank;
        *client = Client { since: B::millis(), ..Client::new(client.handle) };
        self.release_long(conn);
        self.handle_infallible(net, Input::Closed { conn });
        self.derive_exit(net, rank);
    }

    /// Gives all clients the time in which the board has waited for its host, and has not read what they sent.
    fn extend_deadlines(&mut self, net: &mut B::Net) {
        let waited = net.take_waited();
        if waited > 0 {
            self.clients.iter_mut().for_each(|client| client.since += waited);
            self.long.extend_deadline(waited);
        }
    }

    /// Reports a new client to the server. Returns whether there is one.
    fn accept(&mut self, net: &mut B::Net, conn: ConnId) -> bool {
        let client = &self.clients[conn.index()];
        let socket = net.socket_mut(client.handle);
        let job = socket.local_port().and_then(|port| self.job_at(port));
        match (socket.state(), job) {
            (State::Closed | State::Listen | State::SynReceived, _) => {}
            (State::Established | State::CloseWait, Some(job)) => {
                if self.is_complete() {
                    return false;
                }
                let client = &mut self.clients[conn.index()];
                client.job = Some(job);
                client.since = B::millis();
                self.counters.accepted = self.counters.accepted.saturating_add(1);
                self.handle_infallible(net, Input::Opened { conn, job, rank: None });
                return true;
            }
            (State::Established | State::CloseWait, None) => {
                self.counters.turned_away = self.counters.turned_away.saturating_add(1);
                socket.abort();
            }
            (State::TimeWait, _) => socket.abort(),
            // Closing, as long as the client responds.
            _ if B::millis() >= client.since + STALL_MS => socket.abort(),
            _ => {}
        }
        false
    }

    /// Passes a client's bytes to the server.
    fn receive(&mut self, net: &mut B::Net, conn: ConnId) {
        if self.long.is_of(conn) {
            return self.receive_long(net, conn);
        }
        loop {
            let is_free = self.is_free(net);
            let client = &mut self.clients[conn.index()];
            let socket = net.socket_mut(client.handle);
            let queued = socket.recv_queue();
            let again = client.again && client.replied;
            if client.closing || !is_free {
                return;
            }
            if queued == client.seen && !again {
                if queued == B::CLIENT_BUFFER && !client.again {
                    self.begin_long(net, conn);
                }
                return;
            }
            client.replied = false;
            let Some((took, whole)) = self.pass_bytes(net, conn, queued) else { return };
            let consumed = took.bytes as usize;
            self.counters.bytes_in += consumed as u64;
            let client = &mut self.clients[conn.index()];
            client.again = took.again;
            // After consumption, the bytes past the end of the buffer have not been seen.
            client.seen = if whole < queued && consumed > 0 { 0 } else { queued - consumed };
            self.drain(net);
        }
    }

    /// Passes the bytes of a socket's buffer to the server. They are passed in place. If the server needs more than the part
    /// before the wrap of the ring buffer, they are copied into one piece. Returns how many bytes were passed.
    fn pass_bytes(&mut self, net: &mut B::Net, conn: ConnId, queued: usize) -> Option<(Consumed, usize)> {
        let socket = net.socket_mut(self.clients[conn.index()].handle);
        let now = Time(B::millis());
        let server = &mut self.server;
        let mut whole = 0;
        if self.recording.is_some() {
            // Sending a record needs the sockets, so that the bytes cannot be borrowed from one.
            let len = socket.peek_slice(self.reply)?;
            return self.pass_copy(net, conn, len);
        }
        let took = socket.recv(|bytes| {
            whole = bytes.len();
            let took = server.handle(now, Input::Bytes { conn, bytes, full: false });
            (took.map_or(0, |took| took.bytes as usize), took)
        });
        let took = took?.ok()?;
        if took.bytes > 0 || took.again || whole == queued {
            return Some((took, whole));
        }
        let len = socket.peek_slice(self.reply)?;
        self.pass_copy(net, conn, len)
    }

    /// Does the same with a copy in the reply buffer, which is longer than the socket's. The reply buffer is unused, because
    /// no bytes are passed while a reply waits there.
    fn pass_copy(&mut self, net: &mut B::Net, conn: ConnId, len: usize) -> Option<(Consumed, usize)> {
        let input = Input::Bytes { conn, bytes: &self.reply[..len], full: false };
        let now = Time(B::millis());
        let took =
            super::handle(&mut self.server, (&mut self.recording, &mut self.node), net, now, input).ok()?;
        let socket = net.socket_mut(self.clients[conn.index()].handle);
        let mut left = took.bytes as usize;
        while left > 0 {
            let dropped = socket.recv(|bytes| (left.min(bytes.len()), left.min(bytes.len())));
            left -= dropped.filter(|&dropped| dropped > 0)?;
        }
        Some((took, len))
    }

    /// Reports `Blocked` while more than half of the send buffer is full.
    fn block(&mut self, net: &mut B::Net, conn: ConnId) {
        let client = &mut self.clients[conn.index()];
        let socket = net.socket_mut(client.handle);
        if client.job.is_some() && !client.blocked && socket.send_queue() > B::CLIENT_BUFFER / 2 {
            client.blocked = true;
            self.handle_infallible(net, Input::Blocked { conn });
        }
    }

    fn unblock(&mut self, net: &mut B::Net, conn: ConnId) {
        let client = &mut self.clients[conn.index()];
        let socket = net.socket_mut(client.handle);
        if client.blocked && socket.send_queue() <= B::CLIENT_BUFFER / 2 {
            client.blocked = false;
            self.handle_infallible(net, Input::Writable { conn });
        }
    }
}
