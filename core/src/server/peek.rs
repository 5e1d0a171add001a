//! Replies that a host reads before it takes them.

use super::Server;
use crate::ids::ConnId;
use crate::state::{PmixResponse, Response};

/// Position in the order of the next replies. It is valid until the server changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peek {
    first: Option<ConnId>,
    next: u32,
    /// Number of connections whose replies are before this position.
    passed: u32,
    more: bool,
}

impl Peek {
    /// Returns whether [`Server::poll`] may return an output when all replies up to this position have been taken.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.more
    }
}

impl Server<'_> {
    /// Writes the reply at a position to `buf`, and moves the position to the next one. Returns the reply's connection and
    /// length, or `None` if no other reply can be read without taking an output.
    ///
    /// The replies are the next ones of [`poll`](Server::poll), at most one of each connection. The host takes as many of
    /// them as it has carried out with [`take_reply`](Server::take_reply), before the next input. The others remain, so
    /// the outputs are those of a host that polls.
    pub fn peek_reply(&self, at: &mut Peek, buf: &mut [u8]) -> Option<(ConnId, usize)> {
        let next = match at.first {
            None if self.events_pending || self.links.are_ready() => {
                at.more = true;
                return None;
            }
            // A search for another connection would go round all of them.
            Some(_) if !self.has_reply_behind(at) => return None,
            None => self.ready.next(),
            Some(_) => self.ready.from(at.next),
        };
        let conn = next.map(ConnId).filter(|&conn| at.first != Some(conn))?;
        let reply = if buf.len() < self.output_max as usize { None } else { self.plain_reply(conn) };
        let Some((index, response, more)) = reply else {
            at.more = true;
            return None;
        };
        at.first = at.first.or(Some(conn));
        at.next = conn.0 + 1;
        at.passed += 1;
        at.more |= more;
        Some((conn, self.encode(conn, index, response, buf)))
    }

    /// Returns whether [`peek_reply`](Server::peek_reply) has another reply to look for behind a position.
    #[must_use]
    pub fn has_reply_behind(&self, at: &Peek) -> bool {
        at.passed != self.ready.len()
    }

    /// Takes the first reply that [`peek_reply`](Server::peek_reply) returns. Returns whether there was one.
    pub fn take_reply(&mut self) -> bool {
        if self.events_pending || self.links.are_ready() {
            return false;
        }
        let Some(conn) = self.ready.next().map(ConnId) else { return false };
        let Some((index, _, more)) = self.plain_reply(conn) else { return false };
        self.ready.pass(conn.0);
        self.conns[conn.index()].remove_reply(index);
        if more {
            self.check_ready(conn);
        } else {
            self.ready.remove(conn.0);
        }
        true
    }

    /// Returns the next output of a connection if it is a reply that changes nothing but the connection: its index, the
    /// response, and whether the connection has another output.
    fn plain_reply(&self, conn: ConnId) -> Option<(usize, Response, bool)> {
        let slot = self.conns.get(conn.index())?;
        if slot.joined_pending || slot.events.due {
            return None;
        }
        let (index, response) = slot.next_response()?;
        let more = slot.closing_pending || slot.replies.len() > 1;
        match response {
            Response::Upcall(..)
            | Response::Port(_)
            | Response::Pmix(
                PmixResponse::Published { .. } | PmixResponse::Notice(_) | PmixResponse::Report(_),
            ) => None,
            _ => Some((index, response, more)),
        }
    }
}
