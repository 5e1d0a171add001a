//! Return of a call in the output buffer.

use hydrant_abi::CallError;
use hydrant_abi::turn::{DEADLINE, INPUTS_MAX, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::{Consumed, Peek};
use hydrant_core::{Server, Time};

use crate::TEXT;

/// A return while it is written: the head, which comes last, and the length so far.
pub(crate) struct Turn<'b> {
    head: TurnHead,
    buf: &'b mut [u8],
    end: usize,
}

impl<'b> Turn<'b> {
    pub(crate) fn new(buf: &'b mut [u8]) -> Turn<'b> {
        let head = TurnHead { results: 0, outputs: 0, flags: 0, error: 0, poll_at: 0 };
        Turn { head, buf, end: TurnHead::LEN }
    }

    /// Returns whether there is room for the result of another input.
    pub(crate) fn has_place(&self) -> bool {
        self.head.results < INPUTS_MAX
    }

    /// Writes the result of an accepted input.
    pub(crate) fn accepted(&mut self, Consumed { bytes, again }: Consumed) {
        let result = InputResult { bytes, again: u32::from(again) };
        if self.buf.get_mut(self.end..).and_then(|rest| result.write(rest)).is_some() {
            self.head.results += 1;
            self.end += InputResult::LEN;
        }
    }

    /// Writes the next replies, which the host takes later. Returns their number.
    pub(crate) fn offer(&mut self, server: &Server<'_>) -> u32 {
        let mut at = Peek::default();
        while let Some((head, room)) = self.room()
            && let Some((conn, len)) = server.peek_reply(&mut at, room)
        {
            let _ = Part { conn: conn.0, len: len as u32 }.write(head);
            self.push(len);
        }
        self.set_more(at.has_more());
        self.head.outputs
    }

    /// Returns whether there are outputs, none of which is in the return.
    pub(crate) fn has_others_only(&self) -> bool {
        self.head.outputs == 0 && self.head.flags & MORE != 0
    }

    /// Takes the next output and writes its record.
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
        self.set_more(server.has_output());
    }

    /// Writes the record of an error in the place of outputs.
    pub(crate) fn fail(&mut self, error: &CallError) {
        let record = self.buf.get_mut(self.end..).and_then(|rest| postcard::to_slice(error, rest).ok());
        self.head.error = record.map_or(0, |record| record.len() as u32);
        self.end += self.head.error as usize;
    }

    /// Sets whether there are outputs behind those of the return.
    pub(crate) fn set_more(&mut self, more: bool) {
        self.head.flags = if more { MORE } else { 0 };
    }

    /// Writes the head. Returns the length of the return.
    pub(crate) fn finish(mut self, poll_at: Option<Time>) -> u32 {
        if let Some(Time(at)) = poll_at {
            self.head.flags |= DEADLINE;
            self.head.poll_at = at;
        }
        let _ = self.head.write(self.buf);
        self.end as u32
    }

    /// Returns the places of the next output's head and bytes.
    fn room(&mut self) -> Option<(&mut [u8], &mut [u8])> {
        self.buf.get_mut(self.end..)?.split_at_mut_checked(Part::LEN)
    }

    fn push(&mut self, len: usize) {
        self.head.outputs += 1;
        self.end += Part::LEN + len;
    }
}
