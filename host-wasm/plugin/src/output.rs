//! Return of a call in the output buffer.

use hydrant_abi::CallError;
use hydrant_abi::turn::{DEADLINE, INPUTS_MAX, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::{Consumed, Offered, Peek};
use hydrant_core::{ConnId, Server, Time};

use crate::TEXT;

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
    #[inline]
    pub(crate) fn answer(
        &mut self,
        server: &mut Server<'_>,
        now: Time,
        (conn, bytes): (ConnId, &[u8]),
        offered: &mut Offered,
    ) -> bool {
        let Some((head, room)) = self.room() else { return false };
        match server.answer(now, conn, bytes, offered, room) {
            Some(0) => {
                self.withdraw();
                true
            }
            Some(len) => {
                let _ = Part { conn: conn.0, len: len as u32 }.write(head);
                self.push(len);
                true
            }
            None => false,
        }
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
        (self.start, self.end) = (self.results_end, self.results_end);
        if !server.has_event() {
            while let Some((head, room)) = self.room()
                && let Some((conn, len)) = server.offer_reply(&mut last.offered, room)
            {
                let _ = Part { conn: conn.0, len: len as u32 }.write(head);
                self.push(len);
            }
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
    #[inline]
    pub(crate) fn finish(self) -> u32 {
        let _ = self.head.write(self.buf);
        if self.start != self.results_end && self.end > self.start {
            self.buf.copy_within(self.start..self.end, self.results_end);
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
