//! Records of a server that its host calls: the host keeps connections, processes and the time, and passes every input, from
//! [`Input::Node`] on.
//!
//! A management connection carries them after [`Request::Node`](crate::manage::Request::Node) with a
//! [seed](crate::manage::OpenNode::seed). They are framed as [those of a node](super::remote). The host sends one [`Call`] and
//! waits for its [`Return`]. So the outputs follow from the limits, the seed and the calls, and another server can take the
//! place of this one in the middle of a call.
//!
//! Most outputs are replies. A return *offers* them: the next call says how many the host has taken, and the server has the
//! others still ([`Server::peek_reply`]). So they are the outputs of a server that is polled after each of the host's inputs.

use core::mem;

use serde::{Deserialize, Serialize};

use super::remote::{HEAD_MAX, NODE_PREFIX, request_max};
use super::{Consumed, Input, Output, Peek, Server};
use crate::fault::Fault;
use crate::limits::{Limits, MESSAGE_MAX};
use crate::manage::BadRecord;
use crate::time::Time;

/// Maximum length in bytes of a client's bytes in a call. A server may accept [less](crate::manage::Welcome::calls).
pub const BYTES_MAX: usize = 4 * MESSAGE_MAX as usize;
/// Maximum length in bytes of a [`Return`] with its prefix.
const RETURN_MAX: usize = 64;

/// Call of a host. Reply: [`Return`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call<'a> {
    /// Takes replies of the last return, and applies an input.
    Handle {
        /// Number of replies that the host has taken. The others are withdrawn.
        taken: u32,
        /// The time.
        now: Time,
        /// The input.
        #[serde(borrow)]
        input: Input<'a>,
    },
    /// Takes replies of the last return, and asks for other outputs.
    Poll {
        /// Number of replies that the host has taken. The others are withdrawn.
        taken: u32,
    },
}

/// Reply to a [`Call`]. In the same record `outputs` times [`Output`] follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// Result of the input. A fault has changed nothing, and no outputs follow it.
    pub result: Result<Consumed, Fault>,
    /// When [`Input::Timeout`] is due.
    pub poll_at: Option<Time>,
    /// Number of outputs.
    pub outputs: u32,
    /// Number of outputs at the end that are offered. The server has given up those before them, which is at most one.
    pub offered: u32,
    /// Whether there may be other outputs.
    pub more: bool,
}

/// Server's side of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Callee {
    /// Number of replies that the last return has offered.
    offered: u32,
}

/// Returns the maximum length in bytes of a call to a server with these limits, without its prefix. It has at most `bytes` of a
/// client.
pub const fn call_max(limits: &Limits, bytes: usize) -> usize {
    let record = request_max(limits);
    if record > bytes { HEAD_MAX + record } else { HEAD_MAX + bytes }
}

/// Returns the maximum length in bytes of a return of a server with these limits, without its prefix. A buffer for returns need not
/// be longer.
pub const fn return_max(limits: &Limits) -> usize {
    2 * (HEAD_MAX + limits.output_room())
}

impl Callee {
    /// Returns the length in bytes of the shortest buffer for returns of a server with these limits. More outputs fit into a
    /// longer one, up to [`return_max`].
    pub const fn buffer_min(limits: &Limits) -> usize {
        RETURN_MAX + HEAD_MAX + limits.output_room()
    }

    /// Carries out a call. Returns the record of its return with its prefix, which is somewhere in `buf`. `scratch` has the room
    /// of [an output](Limits::output_room).
    ///
    /// # Errors
    /// [`BadRecord::Malformed`] if the host takes more replies than the last return has offered. [`BadRecord::TooLong`] if a buffer
    /// is too short.
    pub fn carry_out<'b>(
        &mut self,
        server: &mut Server<'_>,
        call: &Call<'_>,
        buf: &'b mut [u8],
        scratch: &mut [u8],
    ) -> Result<&'b [u8], BadRecord> {
        let (Call::Handle { taken, .. } | Call::Poll { taken }) = *call;
        let offered = mem::take(&mut self.offered);
        if taken > offered || !(0..taken).all(|_| server.take_reply()) {
            return Err(BadRecord::Malformed);
        }
        let limits = server.limits();
        if buf.len() < Callee::buffer_min(limits) || scratch.len() < limits.output_room() {
            return Err(BadRecord::TooLong);
        }
        let mut outputs = Outputs { buf, len: RETURN_MAX, count: 0, more: false };
        let result = match *call {
            Call::Handle { now, input, .. } => server.handle(now, input),
            Call::Poll { .. } => Ok(Consumed::default()),
        };
        match (result, call) {
            (Err(_), _) => outputs.more = server.has_output(),
            (Ok(_), Call::Handle { .. }) => self.offered = outputs.offer(server, scratch),
            (Ok(_), Call::Poll { .. }) => {
                self.offered = outputs.offer(server, scratch);
                if outputs.count == 0 && outputs.more {
                    outputs.poll(server, scratch)?;
                    self.offered = outputs.offer(server, scratch);
                }
            }
        }
        let Outputs { buf, len, count, more } = outputs;
        let head = Return { result, poll_at: server.poll_at(), outputs: count, offered: self.offered, more };
        write_before(buf, len, &head)
    }
}

/// Outputs of a return.
struct Outputs<'b> {
    buf: &'b mut [u8],
    /// End of the outputs in `buf`, which begin at `RETURN_MAX`.
    len: usize,
    count: u32,
    more: bool,
}

impl Outputs<'_> {
    /// Adds the next replies as far as they fit. Returns their number.
    fn offer(&mut self, server: &Server<'_>, scratch: &mut [u8]) -> u32 {
        let mut at = Peek::default();
        let before = self.count;
        let mut all = true;
        while all && let Some((conn, len)) = server.peek_reply(&mut at, scratch) {
            all = self.add(&Output::Bytes { conn, bytes: &scratch[..len] });
        }
        self.more = at.has_more() || !all;
        self.count - before
    }

    /// Takes the next output.
    fn poll(&mut self, server: &mut Server<'_>, scratch: &mut [u8]) -> Result<(), BadRecord> {
        match server.poll(scratch) {
            Ok(None) => Ok(()),
            Ok(Some(output)) if self.add(&output) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(BadRecord::TooLong),
        }
    }

    /// Adds an output. Returns whether it fits.
    fn add(&mut self, output: &Output<'_>) -> bool {
        let written = postcard::to_slice(output, &mut self.buf[self.len..]).map(|bytes| bytes.len());
        let added = written.unwrap_or_default();
        self.len += added;
        self.count += u32::from(added > 0);
        added > 0
    }
}

/// Writes the return and its prefix before the outputs, which end at `end`. Returns the record.
fn write_before<'b>(buf: &'b mut [u8], end: usize, head: &Return) -> Result<&'b [u8], BadRecord> {
    let mut bytes = [0; RETURN_MAX - NODE_PREFIX];
    let head = postcard::to_slice(head, &mut bytes).map_err(|_| BadRecord::TooLong)?;
    let at = RETURN_MAX - head.len();
    let len = u32::try_from(end - at).map_err(|_| BadRecord::TooLong)?;
    buf[at..RETURN_MAX].copy_from_slice(head);
    buf[at - NODE_PREFIX..at].copy_from_slice(&len.to_le_bytes());
    Ok(&buf[at - NODE_PREFIX..end])
}

/// Decodes the first value in `bytes`: a [`Return`], or an [`Output`] behind it. Returns it and the rest.
///
/// # Errors
/// [`BadRecord::Malformed`]
pub fn take<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), BadRecord> {
    postcard::take_from_bytes(bytes).map_err(|_| BadRecord::Malformed)
}
