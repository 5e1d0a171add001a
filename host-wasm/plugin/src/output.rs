//! Return of a call in the output buffer.

use core::ops::Range;

use hydrant_abi::CallError;
use hydrant_abi::turn::{DEADLINE, FULL, INPUTS_MAX, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::{Consumed, Offered, Peek};
use hydrant_core::wire::{Op, frequent_op};
use hydrant_core::{ConnId, Server, Time};

use crate::{OUTPUT_MAX, TEXT};

/// Replies of the last return, of which the next call says how many the host has taken.
pub(crate) struct LastReplies {
    /// Replies that the server has taken for the host.
    pub(crate) offered: Offered,
    /// Number of those that it has not taken, if there are none that it has.
    pub(crate) peeked: u32,
}

impl LastReplies {
    pub(crate) const fn new() -> LastReplies {
        LastReplies { offered: Offered::new(), peeked: 0 }
    }
}

/// A return while it is written: the head, which comes last, and the lengths so far.
pub(crate) struct Turn<'b> {
    pub(crate) head: TurnHead,
    buf: &'b mut [u8],
    /// End of the results.
    results_end: usize,
    /// Range of the outputs. They lie behind the room of results that may follow, until the return is finished.
    start: usize,
    end: usize,
}

impl<'b> Turn<'b> {
    #[inline]
    pub(crate) fn new(buf: &'b mut [u8]) -> Turn<'b> {
        let head = TurnHead { results: 0, outputs: 0, flags: 0, error: 0, poll_at: 0 };
        Turn { head, buf, results_end: TurnHead::LEN, start: TurnHead::LEN, end: TurnHead::LEN }
    }

    /// Keeps room for the results of one input, or of several.
    #[inline]
    pub(crate) fn expect_results(&mut self, several: bool) {
        let results = if several { INPUTS_MAX as usize } else { 1 };
        self.start = TurnHead::LEN + results * InputResult::LEN;
        self.end = self.start;
    }

    /// Writes the result of an accepted input.
    #[inline]
    pub(crate) fn accepted(&mut self, Consumed { bytes, again }: Consumed) {
        let result = InputResult { bytes, again: u32::from(again) };
        if self.buf.get_mut(self.results_end..).and_then(|rest| result.write(rest)).is_some() {
            self.head.results += 1;
            self.results_end += InputResult::LEN;
        }
    }

    /// Has the server execute bytes as [`Server::answer`], and writes the reply. Returns whether it has.
    #[inline(always)]
    pub(crate) fn answer(
        &mut self,
        server: &mut Server<'_>,
        now: Time,
        message: (ConnId, &[u8]),
        offered: &mut Offered,
    ) -> bool {
        let Some((head, room)) = self.room() else { return false };
        let answered = answer_frequent(server, now, message, offered, room);
        if answered == NOT_ANSWERED {
            return false;
        }
        if answered == 0 {
            self.withdraw();
        } else {
            let _ = Part { conn: message.0.0, len: answered }.write(head);
            self.push(answered as usize);
        }
        true
    }

    /// Drops the outputs so far.
    #[inline]
    pub(crate) fn withdraw(&mut self) {
        self.head.outputs = 0;
        self.end = self.start;
    }

    /// Writes the next replies.
    #[inline]
    pub(crate) fn offer(&mut self, server: &mut Server<'_>, last: &mut LastReplies) {
        if server.has_output() {
            self.offer_pending(server, last);
        }
    }

    /// Writes pending replies, those to puts, gets and fences until there is another one, or others.
    #[inline(never)]
    fn offer_pending(&mut self, server: &mut Server<'_>, last: &mut LastReplies) {
        self.start = self.results_end;
        self.end = self.start;
        if !server.has_event()
            && let Some(room) = self.buf.get_mut(self.start..)
        {
            let begin = |head: &mut [u8; Part::LEN], conn: ConnId, len: usize| {
                let _ = Part { conn: conn.0, len: len as u32 }.write(head);
            };
            let (replies, len) = server.offer_replies(&mut last.offered, room, begin);
            self.head.outputs += replies;
            self.end += len;
        }
        let more = if last.offered.is_empty() { self.peek(server, last) } else { server.has_output() };
        self.head.flags = if more { MORE } else { 0 };
    }

    /// Writes pending replies that the host takes later. Returns whether there are other outputs.
    #[cold]
    fn peek(&mut self, server: &Server<'_>, last: &mut LastReplies) -> bool {
        let mut at = Peek::default();
        while let Some((head, room)) = self.room()
            && let Some((conn, len)) = server.peek_reply(&mut at, room)
        {
            let _ = Part { conn: conn.0, len: len as u32 }.write(head);
            self.push(len);
        }
        last.peeked = self.head.outputs;
        at.has_more()
    }

    /// Takes the next output and writes its record.
    #[cold]
    pub(crate) fn poll(&mut self, server: &mut Server<'_>) {
        TEXT.with(|text| {
            let output = server.poll(text).ok().flatten();
            if let Some(output) = output
                && let Some((head, room)) = self.room()
                && let Ok(record) = postcard::to_slice(&output, room)
            {
                let len = record.len();
                let _ = Part { conn: RECORD, len: len as u32 }.write(head);
                self.push(len);
            }
        });
        self.head.flags = if server.has_output() { MORE } else { 0 };
    }

    #[inline]
    pub(crate) fn set_poll_at(&mut self, poll_at: Option<Time>) {
        if let Some(Time(at)) = poll_at {
            self.head.flags |= DEADLINE;
            self.head.poll_at = at;
        }
    }

    /// Writes the record of an error in the place of outputs.
    #[cold]
    pub(crate) fn fail(&mut self, error: &CallError) {
        (self.start, self.end) = (self.results_end, self.results_end);
        self.head.outputs = 0;
        let rest = self.buf.get_mut(self.end..);
        let record = rest.and_then(|rest| postcard::to_slice(error, rest).ok());
        self.head.error = record.map_or(0, |record| record.len() as u32);
        self.end += self.head.error as usize;
    }

    /// Writes the head. Returns the length of the return.
    #[inline(always)]
    pub(crate) fn finish(self) -> u32 {
        let _ = self.head.write(self.buf);
        if self.start != self.results_end && self.end > self.start {
            close_gap(self.buf, self.start..self.end, self.results_end);
        }
        (self.results_end + self.end - self.start) as u32
    }

    /// Returns the places of the next output's head and bytes.
    #[inline]
    fn room(&mut self) -> Option<(&mut [u8], &mut [u8])> {
        self.buf.get_mut(self.end..)?.split_at_mut_checked(Part::LEN)
    }

    #[inline]
    fn push(&mut self, len: usize) {
        self.head.outputs += 1;
        self.end += Part::LEN + len;
    }
}

/// Moves outputs behind the results. It is a function of its own, because the return of one input has no gap.
#[inline(never)]
fn close_gap(buf: &mut [u8], outputs: Range<usize>, to: usize) {
    buf.copy_within(outputs, to);
}

/// In the place of the length of a reply: the server has not executed the command.
const NOT_ANSWERED: u32 = u32::MAX;

/// Has the server execute the only input of a call as [`Server::answer`] does, and writes the return, whose parts have fixed
/// places. Returns its length, or `None` if the server has not executed it.
#[inline(always)]
pub(crate) fn answer_only(
    server: &mut Server<'_>,
    now: Time,
    inputs: &[u8],
    last: &mut LastReplies,
    buf: &mut [u8; OUTPUT_MAX],
) -> Option<u32> {
    const RESULT: usize = TurnHead::LEN;
    const OUTPUT: usize = RESULT + InputResult::LEN;
    const REPLY: usize = OUTPUT + Part::LEN;
    let (Part { conn, len }, bytes) = Part::read(inputs)?;
    if (len & !FULL) as usize != bytes.len() {
        return None;
    }
    // No connection has the number of a record.
    let answered = answer_frequent(server, now, (ConnId(conn), bytes), &mut last.offered, &mut buf[REPLY..]);
    if answered == NOT_ANSWERED {
        return None;
    }
    let result = InputResult { bytes: bytes.len() as u32, again: 0 };
    result.write(&mut buf[RESULT..]);
    if answered == 0 && server.has_output() {
        return Some(accept_and_offer(server, bytes.len() as u32, last, buf));
    }
    Part { conn, len: answered }.write(&mut buf[OUTPUT..]);
    let (flags, poll_at) = server.poll_at().map_or((0, 0), |Time(at)| (DEADLINE, at));
    TurnHead { results: 1, outputs: u32::from(answered > 0), flags, error: 0, poll_at }.write(buf);
    Some(if answered > 0 { REPLY as u32 + answered } else { OUTPUT as u32 })
}

/// Writes the return of the only input of a call, all of whose bytes are accepted, and of pending replies. Returns its length.
#[inline(never)]
fn accept_and_offer(server: &mut Server<'_>, bytes: u32, last: &mut LastReplies, buf: &mut [u8]) -> u32 {
    let mut output = Turn::new(buf);
    output.accepted(Consumed { bytes, again: false });
    output.offer_pending(server, last);
    output.set_poll_at(server.poll_at());
    output.finish()
}

/// Has the server execute a command, if it may be a put, a get or a fence. Returns the length of the reply, 0 if it is pending, or
/// [`NOT_ANSWERED`].
#[inline(always)]
fn answer_frequent(
    server: &mut Server<'_>,
    now: Time,
    message: (ConnId, &[u8]),
    offered: &mut Offered,
    room: &mut [u8],
) -> u32 {
    let (conn, bytes) = message;
    match frequent_op(bytes) {
        Some(Op::Get) => answer::<true>(server, conn, bytes, offered, room),
        Some(Op::Put) => answer::<false>(server, conn, bytes, offered, room),
        Some(_) => length(server.answer_fence(now, message, offered).map(|()| 0)),
        None => NOT_ANSWERED,
    }
}

/// Has the server execute a get or a put as [`Server::answer`] does. Each has a function, because runtimes keep most values of a
/// large function on the stack.
#[inline(never)]
fn answer<const IS_GET: bool>(
    server: &mut Server<'_>,
    conn: ConnId,
    bytes: &[u8],
    offered: &mut Offered,
    room: &mut [u8],
) -> u32 {
    let op = if IS_GET { Op::Get } else { Op::Put };
    length(server.answer(op, (conn, bytes), offered, room))
}

/// Returns the length of a reply, or [`NOT_ANSWERED`]. It fits into a register.
#[inline(always)]
fn length(answered: Option<usize>) -> u32 {
    answered.map_or(NOT_ANSWERED, |len| len as u32)
}
