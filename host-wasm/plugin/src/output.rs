//! Return of a call in the output buffer.

use hydrant_abi::CallError;
use hydrant_abi::turn::{DEADLINE, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::{Consumed, Peek};
use hydrant_core::{Server, Time};

use crate::{OFFERED, TEXT};

/// A return while it is written: the head, which comes last, and the length so far.
pub(crate) struct Turn<'b> {
    pub(crate) head: TurnHead,
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Turn<'b> {
    #[inline]
    pub(crate) fn new(buf: &'b mut [u8]) -> Turn<'b> {
        let head = TurnHead { results: 0, outputs: 0, flags: 0, error: 0, poll_at: 0 };
        Turn { head, buf, len: TurnHead::LEN }
    }

    /// Writes the result of an accepted input.
    #[inline]
    pub(crate) fn accepted(&mut self, Consumed { bytes, again }: Consumed) {
        let result = InputResult { bytes, again: u32::from(again) };
        if self.rest().and_then(|rest| result.write(rest)).is_some() {
            self.head.results += 1;
            self.len += InputResult::LEN;
        }
    }

    /// Writes the next replies.
    #[inline]
    pub(crate) fn offer(&mut self, server: &Server<'_>) {
        let mut at = Peek::default();
        if server.has_output() && self.offer_next(server, &mut at) && server.has_reply_behind(&at) {
            self.offer_others(server, &mut at);
        }
        OFFERED.with(|offered| *offered = self.head.outputs);
        self.head.flags = if at.has_more() { MORE } else { 0 };
    }

    /// Writes the replies behind a position. It is apart from [`Turn::offer`], because compilers load all that a loop needs
    /// in front of it.
    #[inline(never)]
    fn offer_others(&mut self, server: &Server<'_>, at: &mut Peek) {
        while self.offer_next(server, at) {}
    }

    /// Writes the reply at a position. Returns whether there is one.
    #[inline]
    fn offer_next(&mut self, server: &Server<'_>, at: &mut Peek) -> bool {
        if let Some((head, bytes)) = self.rest().and_then(|rest| rest.split_at_mut_checked(Part::LEN))
            && let Some((conn, len)) = server.peek_reply(at, bytes)
        {
            let _ = Part { conn: conn.0, len: len as u32 }.write(head);
            self.len += Part::LEN + len;
            self.head.outputs += 1;
            return true;
        }
        false
    }

    /// Takes the next output and writes its record.
    #[cold]
    pub(crate) fn poll(&mut self, server: &mut Server<'_>) {
        TEXT.with(|text| {
            let output = server.poll(text).ok().flatten();
            if let Some(output) = output
                && let Some((head, bytes)) = self.rest().and_then(|rest| rest.split_at_mut_checked(Part::LEN))
                && let Ok(record) = postcard::to_slice(&output, bytes)
            {
                let len = record.len();
                let _ = Part { conn: RECORD, len: len as u32 }.write(head);
                self.len += Part::LEN + len;
                self.head.outputs = 1;
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

    /// Writes the record of an error behind the results.
    #[cold]
    pub(crate) fn fail(&mut self, error: &CallError) {
        let record = self.rest().and_then(|rest| postcard::to_slice(error, rest).ok());
        self.head.error = record.map_or(0, |record| record.len() as u32);
        self.len += self.head.error as usize;
    }

    /// Writes the head. Returns the length of the return.
    #[inline]
    pub(crate) fn finish(self) -> u32 {
        let _ = self.head.write(self.buf);
        self.len as u32
    }

    #[inline]
    fn rest(&mut self) -> Option<&mut [u8]> {
        self.buf.get_mut(self.len..)
    }
}
