//! Replies that the server takes for a host, which may leave the last ones.

use heapless::Vec;

use super::Server;
use super::dispatch::framing;
use crate::ids::ConnId;
use crate::state::{Conn, Job, PendingReply, ReplyState, Response};
use crate::tables::kvs::Kvs;
use crate::time::Time;
use crate::wire::{self, Op, Protocol};

/// Largest number of replies of one offer.
pub const OFFERED_MAX: usize = 256;

/// Replies that the server has taken since the offer was last [settled](Server::settle).
///
/// A host that takes all of them costs the server nothing more.
#[derive(Debug)]
pub struct Offered {
    replies: [(u32, Plain); OFFERED_MAX],
    len: u32,
    /// Lower bound of the connection in turn before the first of them.
    turn: u32,
}

/// A response of a frequent reply: the place of a record, or one of two numbers that no record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plain(u32);

impl Plain {
    const PUT: Plain = Plain(u32::MAX);
    const FENCE: Plain = Plain(u32::MAX - 1);

    fn response(self) -> Response {
        match self {
            Plain::PUT => Response::Done(Op::Put),
            Plain::FENCE => Response::Fence(None),
            Plain(record) => Response::Record(Op::Get, record),
        }
    }
}

impl Offered {
    /// Creates an offer without replies.
    #[must_use]
    pub const fn new() -> Offered {
        Offered { replies: [(0, Plain(0)); OFFERED_MAX], len: 0, turn: 0 }
    }

    /// Returns the number of replies.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether there are no replies.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a reply. `turn` is the lower bound of the connection in turn before it. Returns false if there is no place.
    #[inline]
    fn push(&mut self, conn: ConnId, plain: Plain, turn: u32) -> bool {
        let Some(place) = self.replies.get_mut(self.len as usize) else { return false };
        *place = (conn.0, plain);
        if self.len == 0 {
            self.turn = turn;
        }
        self.len += 1;
        true
    }

    /// Returns whether a reply of this connection is in turn behind the others.
    #[inline]
    fn is_behind(&self, conn: ConnId) -> bool {
        let at = |conn: u32| conn.wrapping_sub(self.turn);
        match self.len.checked_sub(1).and_then(|last| self.replies.get(last as usize)) {
            Some(&(last, _)) => at(conn.0) > at(last) && (self.len as usize) < OFFERED_MAX,
            None => true,
        }
    }
}

impl Default for Offered {
    fn default() -> Offered {
        Offered::new()
    }
}

impl Server<'_> {
    /// Executes a client's bytes that are one `op` with which nothing is unusual: a put or a get. If its reply is the server's
    /// only output behind those of `offered`, it is written to `buf` and offered, and its length is returned. Otherwise 0 is
    /// returned, and `offered` has no replies: they are pending again.
    ///
    /// Returns `None` if [`handle`](Server::handle) has to execute the bytes, after [`settle`](Server::settle).
    #[inline(always)]
    pub fn answer(
        &mut self,
        op: Op,
        (conn, bytes): (ConnId, &[u8]),
        offered: &mut Offered,
        buf: &mut [u8],
    ) -> Option<usize> {
        let framing = framing(self.conns.get(conn.index())?);
        let requester = self.usual_requester(conn)?;
        let command = wire::only_frequent(op, bytes, framing)?;
        let response = self.frequent_response(requester, command)?;
        let slot = &self.conns[conn.index()];
        if slot.replies.is_empty()
            && !slot.blocked
            && !self.has_output()
            && offered.is_behind(conn)
            && buf.len() >= self.output_max as usize
            && let Some((plain, len)) = write_plain(&self.kvs, slot.protocol, response, buf)
            && offered.push(conn, plain, self.ready.turn())
        {
            self.ready.pass(conn.0);
            return Some(len);
        }
        self.withdraw(offered);
        self.add_plain_reply(conn, ReplyState::Ready(response));
        Some(0)
    }

    /// Executes a client's bytes that are one fence with which nothing is unusual. `offered` has no replies then: they are
    /// pending again.
    ///
    /// Returns `None` if [`handle`](Server::handle) has to execute the bytes, after [`settle`](Server::settle).
    #[inline(always)]
    pub fn answer_fence(
        &mut self,
        now: Time,
        (conn, bytes): (ConnId, &[u8]),
        offered: &mut Offered,
    ) -> Option<()> {
        let framing = framing(self.conns.get(conn.index())?);
        let requester = self.usual_requester(conn)?;
        if !wire::is_only_fence(bytes, framing) {
            return None;
        }
        self.withdraw(offered);
        self.frequent_fence(now, requester)
    }

    /// Takes the next outputs, each as long as it is the only reply of its connection and to a put, a get or a fence. They are
    /// written to `buf` one behind the other, each behind `HEAD` bytes, which `begin` gets with the connection and the reply's
    /// length. Returns the number of replies and the length of all. [`has_event`](Server::has_event) must be false.
    #[inline(always)]
    pub fn offer_replies<const HEAD: usize>(
        &mut self,
        offered: &mut Offered,
        buf: &mut [u8],
        begin: impl Fn(&mut [u8; HEAD], ConnId, usize),
    ) -> (u32, usize) {
        let before = offered.len();
        let mut written = 0;
        while let Some((first, in_turn)) = self.ready.next_word() {
            let mut left = in_turn;
            while left != 0
                && let Some((head, room)) = buf.get_mut(written..).and_then(<[u8]>::split_first_chunk_mut)
                && let conn = ConnId(first + left.trailing_zeros())
                && let Some(len) = self.offer_reply(conn, offered, room)
            {
                begin(head, conn, len);
                written += HEAD + len;
                left &= left - 1;
            }
            self.ready.take(first, in_turn ^ left);
            if left != 0 {
                break;
            }
        }
        (offered.len() - before, written)
    }

    /// Takes the reply of the connection in turn. Its bit in the set of ready connections remains.
    #[inline(always)]
    fn offer_reply(&mut self, conn: ConnId, offered: &mut Offered, buf: &mut [u8]) -> Option<usize> {
        let Server { conns, jobs, kvs, ready, output_max, .. } = self;
        let slot = conns.get_mut(conn.index())?;
        let [PendingReply { thrid, state: ReplyState::Ready(response) }] = slot.replies.as_slice() else {
            return None;
        };
        // Tested at once: a branch each would take longer.
        let unusual = !thrid.is_empty()
            | slot.pmix.is_some()
            | slot.joined_pending
            | slot.closing_pending
            | slot.events.due;
        if unusual || buf.len() < *output_max as usize {
            return None;
        }
        let (plain, len) = match response {
            // Its job is there: the end of a job drops its replies.
            Response::Fence(None) => (Plain::FENCE, wire::encode_frequent(slot.protocol, Op::Fence, buf)?),
            response => write_of_job(jobs, kvs, slot, *response, buf)?,
        };
        if !offered.push(conn, plain, ready.turn()) {
            return None;
        }
        slot.replies.clear();
        Some(len)
    }

    /// Returns whether an output that is not of a connection may be next.
    #[inline]
    #[must_use]
    pub fn has_event(&self) -> bool {
        self.events_pending || self.links.are_ready()
    }

    /// Ends an offer: the host has taken so many of its replies. The others are pending again, so the outputs are those of a
    /// host that polls. It must come before the next input. Returns false if there are not as many. All are pending again then.
    #[inline]
    pub fn settle(&mut self, offered: &mut Offered, taken: u32) -> bool {
        let is_valid = taken <= offered.len;
        if taken != offered.len {
            self.put_back(offered, if is_valid { taken } else { 0 });
        }
        offered.len = 0;
        is_valid
    }

    #[inline]
    fn withdraw(&mut self, offered: &mut Offered) {
        if offered.len > 0 {
            self.put_back(offered, 0);
            offered.len = 0;
        }
    }

    #[cold]
    #[inline(never)]
    fn put_back(&mut self, offered: &Offered, taken: u32) {
        for (at, &(conn, plain)) in (0..offered.len).zip(&offered.replies) {
            if at < taken {
                continue;
            }
            let state = ReplyState::Ready(plain.response());
            if let Some(slot) = self.conns.get_mut(conn as usize)
                && slot.replies.push(PendingReply { thrid: Vec::new(), state }).is_ok()
                && !slot.blocked
            {
                self.ready.insert(conn);
            }
        }
        match taken.checked_sub(1).and_then(|last| offered.replies.get(last as usize)) {
            Some(&(last, _)) => self.ready.pass(last),
            None => {
                self.ready.set_turn(offered.turn);
            }
        }
    }
}

/// Does the same as [`write_plain`] if the connection is one of a job. A job that has ended refuses.
#[inline(never)]
fn write_of_job(
    jobs: &[Job],
    kvs: &Kvs<'_>,
    slot: &Conn,
    response: Response,
    buf: &mut [u8],
) -> Option<(Plain, usize)> {
    jobs.get(slot.job?.index())?.slot(slot.rank?)?;
    write_plain(kvs, slot.protocol, response, buf)
}

/// Writes a frequent reply. Returns its response and its length, or `None` for other replies.
#[inline(always)]
fn write_plain(
    kvs: &Kvs<'_>,
    protocol: Protocol,
    response: Response,
    buf: &mut [u8],
) -> Option<(Plain, usize)> {
    let (plain, len) = match response {
        Response::Done(Op::Put) => (Plain::PUT, wire::encode_frequent(protocol, Op::Put, buf)?),
        Response::Fence(None) => (Plain::FENCE, wire::encode_frequent(protocol, Op::Fence, buf)?),
        Response::Record(Op::Get, record) => {
            (Plain(record), wire::encode_found(protocol, kvs.value(record)?, buf)?)
        }
        _ => return None,
    };
    Some((plain, len))
}
