//! Fixed layouts of one input and of a return.

use hydrant_abi::CallError;
use hydrant_abi::turn::{DEADLINE, FULL, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::Consumed;
use hydrant_core::{Input, Time};

use crate::error::PluginErrorKind;

/// A return that has been read: all but its outputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
    /// Result of the input.
    pub(crate) consumed: Consumed,
    pub(crate) poll_at: Option<Time>,
    /// Length of the record of an error, which begins at `start`. 0 without an error.
    pub(crate) error: u32,
    /// Range of the outputs in the buffer, and their number.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) outputs: u32,
    /// Whether there may be outputs behind these.
    pub(crate) more: bool,
}

impl Returned {
    /// Reads the return of a call with so many inputs, 0 or 1. Returns `None` if it is malformed.
    #[inline]
    pub(crate) fn read(bytes: &[u8], inputs: u32) -> Option<Returned> {
        let (head, rest) = TurnHead::read(bytes)?;
        let mut returned = Returned {
            consumed: Consumed::default(),
            poll_at: (head.flags & DEADLINE != 0).then_some(Time(head.poll_at)),
            error: head.error,
            start: TurnHead::LEN,
            end: bytes.len(),
            outputs: head.outputs,
            more: head.flags & MORE != 0,
        };
        // The input that is refused has no result.
        if head.results != if head.error == 0 { inputs } else { 0 } {
            return None;
        }
        if head.results > 0 {
            let (InputResult { bytes, again }, _) = InputResult::read(rest)?;
            returned.consumed = Consumed { bytes, again: again != 0 };
            returned.start += InputResult::LEN;
        }
        Some(returned)
    }

    /// Decodes the error in the bytes of the return.
    #[cold]
    pub(crate) fn error(&self, bytes: &[u8]) -> Result<CallError, PluginErrorKind> {
        let record = bytes.get(self.start..).and_then(|rest| rest.get(..self.error as usize));
        postcard::from_bytes(record.ok_or_else(malformed)?).map_err(|_| malformed())
    }
}

#[cold]
pub(crate) fn malformed() -> PluginErrorKind {
    PluginErrorKind::InvalidRecord("malformed")
}

/// Writes an input. Returns its length, or `None` if there is too little room.
#[inline]
pub(crate) fn write_input(input: &Input<'_>, buf: &mut [u8]) -> Option<u32> {
    let (head, room) = buf.split_at_mut_checked(Part::LEN)?;
    let part = match *input {
        Input::Bytes { conn, bytes, full } if conn.0 != RECORD => {
            room.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Part { conn: conn.0, len: bytes.len() as u32 | if full { FULL } else { 0 } }
        }
        _ => Part { conn: RECORD, len: postcard::to_slice(input, room).ok()?.len() as u32 },
    };
    part.write(head)?;
    Some(Part::LEN as u32 + (part.len & !FULL))
}
