//! Fixed layouts of inputs and of a return.

use hydrant_abi::CallError;
use hydrant_abi::turn::{DEADLINE, FULL, INPUTS_MAX, InputResult, MORE, Part, RECORD, TurnHead};
use hydrant_core::server::Consumed;
use hydrant_core::{ConnId, Input, Time};

use crate::error::PluginErrorKind;

// The validator keeps what one call may need.
const _: () = assert!(INPUTS_MAX as usize <= hydrant_validator::INPUTS_MAX);

/// A return that has been read: all but its results and outputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
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

/// Length of the head and the result of a return for one input.
const ONE: usize = TurnHead::LEN + InputResult::LEN;

impl Returned {
    /// Reads the return of a call with so many inputs. Returns `None` if it is malformed.
    #[inline]
    pub(crate) fn read(bytes: &[u8], inputs: u32) -> Option<Returned> {
        let (head, _) = TurnHead::read(bytes)?;
        // The input that is refused has no result.
        let valid = if head.error == 0 { head.results == inputs } else { head.results < inputs.max(1) };
        let start = TurnHead::LEN + head.results as usize * InputResult::LEN;
        (valid && start <= bytes.len()).then(|| Returned::new(head, start, bytes.len()))
    }

    /// Reads the return of a call with one input that was accepted. Returns `None` if it is another one.
    #[inline(always)]
    pub(crate) fn read_one(bytes: &[u8]) -> Option<(Returned, Consumed)> {
        let (head, result) = TurnHead::read(bytes.first_chunk::<ONE>()?)?;
        let (InputResult { bytes: consumed, again }, _) = InputResult::read(result)?;
        let returned = Returned::new(head, ONE, bytes.len());
        let consumed = Consumed { bytes: consumed, again: again != 0 };
        (head.results == 1 && head.error == 0).then_some((returned, consumed))
    }

    #[inline(always)]
    fn new(head: TurnHead, start: usize, end: usize) -> Returned {
        Returned {
            poll_at: (head.flags & DEADLINE != 0).then_some(Time(head.poll_at)),
            error: head.error,
            start,
            end,
            outputs: head.outputs,
            more: head.flags & MORE != 0,
        }
    }

    /// Returns the results of the accepted inputs in the bytes of the return.
    #[inline]
    pub(crate) fn results<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(TurnHead::LEN..self.start).unwrap_or_default()
    }

    /// Decodes the error in the bytes of the return.
    #[cold]
    pub(crate) fn error(&self, bytes: &[u8]) -> Result<CallError, PluginErrorKind> {
        let record = bytes.get(self.start..).and_then(|rest| rest.get(..self.error as usize));
        postcard::from_bytes(record.ok_or_else(malformed)?).map_err(|_| malformed())
    }
}

/// Reads results, which lie one behind the other.
#[inline]
pub(crate) fn consumed(results: &[u8]) -> impl Iterator<Item = Consumed> {
    let results = results.chunks_exact(InputResult::LEN).filter_map(InputResult::read);
    results.map(|(InputResult { bytes, again }, _)| Consumed { bytes, again: again != 0 })
}

#[cold]
pub(crate) fn malformed() -> PluginErrorKind {
    PluginErrorKind::InvalidRecord("malformed")
}

/// Writes an input that is no client's bytes. Returns its length, or `None` if there is too little room.
#[cold]
pub(crate) fn write_record(input: &Input<'_>, buf: &mut [u8]) -> Option<u32> {
    let (head, room) = buf.split_at_mut_checked(Part::LEN)?;
    let len = postcard::to_slice(input, room).ok()?.len() as u32;
    Part { conn: RECORD, len }.write(head)?;
    Some(Part::LEN as u32 + len)
}

/// Writes bytes of a client. Returns the length of the input, or `None` if there is too little room.
#[inline]
pub(crate) fn write_bytes(conn: ConnId, bytes: &[u8], full: bool, buf: &mut [u8]) -> Option<u32> {
    if conn.0 == RECORD {
        // No connection has this number. The plugin says so.
        return write_record(&Input::Bytes { conn, bytes, full }, buf);
    }
    let (head, room) = buf.split_at_mut_checked(Part::LEN)?;
    room.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let len = bytes.len() as u32;
    Part { conn: conn.0, len: len | if full { FULL } else { 0 } }.write(head)?;
    Some(Part::LEN as u32 + len)
}

/// Bytes of one connection among those of several, for [`Plugin::handle_bytes`](crate::Plugin::handle_bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientBytes<'a> {
    /// The connection.
    pub conn: ConnId,
    /// All bytes that the host holds, as in [`Input::Bytes`].
    pub bytes: &'a [u8],
    /// Whether the host's buffer has no room for more of them.
    pub full: bool,
    /// What the plugin has consumed. The call sets it.
    pub consumed: Consumed,
}

impl<'a> ClientBytes<'a> {
    /// Creates bytes that no plugin has seen.
    #[must_use]
    pub const fn new(conn: ConnId, bytes: &'a [u8], full: bool) -> ClientBytes<'a> {
        ClientBytes { conn, bytes, full, consumed: Consumed { bytes: 0, again: false } }
    }
}

/// Writes the inputs of several connections behind each other. Returns the number of those that fit into one call, and their
/// length.
#[inline]
pub(crate) fn write_inputs(received: &[ClientBytes<'_>], buf: &mut [u8]) -> (usize, u32) {
    let (mut inputs, mut len) = (0, 0);
    for &ClientBytes { conn, bytes, full, .. } in received.iter().take(INPUTS_MAX as usize) {
        let room = buf.get_mut(len as usize..).unwrap_or_default();
        let Some(written) = write_bytes(conn, bytes, full, room) else { break };
        len += written;
        inputs += 1;
    }
    (inputs, len)
}
