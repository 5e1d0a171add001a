//! Buffer for a message that is longer than its socket's buffer.

use hydrant_core::manage::STALL_MS;
use hydrant_core::server::Input;
use hydrant_core::{ConnId, Time};

use super::Serve;
use crate::board::Board;
use crate::net::{Net, Socket};

/// Buffer for one long message. It has one owner at a time, and other connections wait for it.
pub(super) struct Long<'s> {
    buf: &'s mut [u8],
    len: usize,
    owner: Option<ConnId>,
    since: u64,
}

impl<'s> Long<'s> {
    pub(super) const fn new(buf: &'s mut [u8]) -> Long<'s> {
        Long { buf, len: 0, owner: None, since: 0 }
    }

    pub(super) fn is_of(&self, conn: ConnId) -> bool {
        self.owner == Some(conn)
    }

    /// Returns the deadline of the message.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.owner.map(|_| self.since + STALL_MS)
    }

    pub(super) const fn extend_deadline(&mut self, millis: u64) {
        self.since += millis;
    }
}

impl<B: Board> Serve<'_, B> {
    /// Releases the buffer if a connection owns it.
    pub(super) fn release_long(&mut self, conn: ConnId) {
        if self.long.is_of(conn) {
            self.long.owner = None;
            self.deferred = true;
        }
    }

    /// Gives the buffer to a connection, if it is free.
    pub(super) fn begin_long(&mut self, net: &mut B::Net, conn: ConnId) {
        if self.long.owner.is_none() {
            self.long.owner = Some(conn);
            self.long.len = 0;
            self.long.since = B::millis();
            self.clients[conn.index()].seen = 0;
            self.receive_long(net, conn);
        }
    }

    /// Appends received bytes and passes all to the server. A message that is longer than the buffer or incomplete at its
    /// deadline is reported as too long.
    pub(super) fn receive_long(&mut self, net: &mut B::Net, conn: ConnId) {
        loop {
            let is_free = self.is_free(net);
            let client = &mut self.clients[conn.index()];
            let socket = net.socket_mut(client.handle);
            let long = &mut self.long;
            // A closed socket has no more bytes.
            let more = socket.recv_slice(&mut long.buf[long.len..]);
            long.len += more;
            let late = B::millis() >= long.since + STALL_MS;
            let again = client.again && client.replied;
            if (more == 0 && !late && !again) || !is_free {
                return;
            }
            client.replied = false;
            let full = late || long.len == long.buf.len();
            let input = Input::Bytes { conn, bytes: &long.buf[..long.len], full };
            let now = Time(B::millis());
            let to = (&mut self.recording, &mut self.node);
            let took = super::handle(&mut self.server, to, net, now, input);
            let Ok(took) = took else { return };
            let consumed = took.bytes as usize;
            self.counters.bytes_in += consumed as u64;
            long.buf.copy_within(consumed..long.len, 0);
            long.len -= consumed;
            client.again = took.again;
            if consumed > 0 {
                long.since = B::millis();
            }
            if long.len == 0 {
                self.release_long(conn);
            }
            self.drain(net);
            if consumed == 0 || !self.long.is_of(conn) {
                return;
            }
        }
    }
}
