//! Board that serves one node of a run by calls: this host keeps the connections of clients, the processes and the time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::manage::{Connection, ConnectionError, Secret};
use hydrant_core::manage::{BadRecord, OpenNode, STALL_MS};
use hydrant_core::server::Consumed;
use hydrant_core::server::call::{BYTES_MAX, Call, Return, call_max, return_max, take};
use hydrant_core::server::remote::{NODE_PREFIX, encode_node_record};
use hydrant_core::{Backend, BackendError, Input, Limits, Output, Server, Time};
use hydrant_validator::Validator;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::client::Board;
use crate::error::{BoardError, CallError, NODE, place};
use crate::patience::Patience;
use crate::time::timespec;

/// Longest time of a call.
const CALL_MAX: Duration = Duration::from_millis(STALL_MS);
/// Fewest bytes of a client that a board takes in a call. One that takes less fails, and costs no client its connection.
const BYTES_MIN: usize = 2048;

/// PMI server on a board, as a [`Backend`]: each call is a round trip to the board.
///
/// A [`Validator`] checks its results and outputs. After an error of the board every call fails.
#[derive(Debug)]
pub struct BoardBackend {
    /// As the user named it.
    target: String,
    addr: SocketAddr,
    link: Connection,
    validator: Validator,
    patience: Patience,
    poll_at: Option<Time>,
    /// The last return, and its outputs.
    record: Vec<u8>,
    outputs: Outputs,
    buffer: Vec<u8>,
    /// Maximum length of a client's bytes in a call.
    bytes_max: usize,
    failed: bool,
}

/// Outputs of a return.
#[derive(Clone, Copy, Debug, Default)]
struct Outputs {
    /// Offset of those that the host has not taken, and their number.
    at: usize,
    left: u32,
    /// Number of those that are offered.
    offered: u32,
    more: bool,
    /// Number of offered ones that the host has taken.
    taken: u32,
}

impl Outputs {
    fn are_any(&self) -> bool {
        self.left > 0 || self.more
    }
}

impl BoardBackend {
    /// Connects to a board's management port, and has it serve a node, with a server of this seed. A call, and slow calls without
    /// a pause, end after 5 s, and after half of `heartbeat`: a node inside a call sends no heartbeats.
    ///
    /// # Errors
    /// The connection failed, or the board refuses.
    pub fn connect(
        target: &str,
        secret: Option<&Secret>,
        heartbeat: Duration,
        open: OpenNode,
        seed: u32,
    ) -> Result<BoardBackend, BoardError> {
        let in_node = |why| BoardError::Node { target: target.to_owned(), why: Box::new(why) };
        let board = Board::connect(target, secret).map_err(in_node)?;
        // One that cannot be called refuses the node.
        let bytes_max = board.calls().map_or(BYTES_MAX, |most| (most as usize).clamp(BYTES_MIN, BYTES_MAX));
        let open = OpenNode { seed: Some(seed), ..open };
        let (addr, link, limits) = board.into_node(NODE, &open).map_err(in_node)?;
        Ok(BoardBackend {
            target: target.to_owned(),
            addr,
            link,
            validator: Validator::new(limits),
            patience: Patience::new(CALL_MAX.min(heartbeat / 2), Instant::now()),
            poll_at: None,
            record: Vec::new(),
            outputs: Outputs::default(),
            buffer: vec![0; NODE_PREFIX + call_max(&limits, bytes_max)],
            bytes_max,
            failed: false,
        })
    }

    /// Returns the board in a few words.
    pub fn describe(&self) -> String {
        format!("board {}", place(&self.target, &self.addr))
    }

    /// Returns how many offered replies the host has taken, for a call which withdraws the others.
    fn taken(&mut self) -> u32 {
        let Outputs { left, taken, more, .. } = self.outputs;
        self.outputs = Outputs { more: more || left > 0, ..Outputs::default() };
        taken
    }

    /// Calls the board. Its outputs are the next ones.
    fn call(&mut self, call: &Call<'_>) -> Result<Return, CallError> {
        let start = Instant::now();
        let within = self.patience.begin(start);
        self.link.send_unbounded(encode_node_record(call, &mut self.buffer)?)?;
        let max = return_max(self.validator.limits());
        while !self.link.next_of_node(&mut self.record, max)? {
            let left = within.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Err(CallError::timeout(within, self.patience.spent()));
            }
            let wanted = if self.link.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            match poll(&mut [PollFd::new(self.link.stream(), wanted)], Some(&timespec(left))) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(ConnectionError::Io(errno.into()).into()),
            }
            self.link.flush()?;
            self.link.fill()?;
        }
        self.patience.end(start, Instant::now());
        let (returned, rest) = take::<Return>(&self.record)?;
        let Return { result, poll_at, outputs, offered, more } = returned;
        // At most one output has been given up, and none by a server that was asked for none.
        let given_up = outputs.checked_sub(offered).ok_or(BadRecord::Malformed)?;
        let valid = match call {
            Call::Handle { .. } => given_up == 0 && (result.is_ok() || outputs == 0),
            Call::Poll { .. } => given_up <= 1 && result == Ok(Consumed::default()),
        };
        if !valid {
            return Err(BadRecord::Malformed.into());
        }
        self.poll_at = poll_at;
        self.outputs = Outputs { at: self.record.len() - rest.len(), left: outputs, offered, more, taken: 0 };
        Ok(returned)
    }

    /// Applies an input. Returns the result.
    fn apply(&mut self, now: Time, input: Input<'_>) -> Result<Result<Consumed, BackendError>, CallError> {
        let call = Call::Handle { taken: self.taken(), now, input };
        let consumed = match self.call(&call)?.result {
            Ok(consumed) => consumed,
            Err(fault) => return Ok(Err(fault.into())),
        };
        self.validator.check_input(now, &input, consumed, self.poll_at)?;
        if !self.outputs.are_any() {
            self.validator.check_silence()?;
        }
        Ok(Ok(consumed))
    }

    /// Returns the next output.
    fn next_output<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, CallError> {
        if self.outputs.left == 0 {
            if self.outputs.more {
                let call = Call::Poll { taken: self.taken() };
                self.call(&call)?;
            }
            if self.outputs.left == 0 {
                self.outputs.more = false;
                self.validator.check_silence()?;
                return Ok(None);
            }
        }
        let BoardBackend { record, outputs, validator, .. } = self;
        let rest = record.get(outputs.at..).unwrap_or_default();
        let (output, behind) = take::<Output<'_>>(rest)?;
        let is_offered = outputs.left <= outputs.offered;
        if is_offered && !matches!(output, Output::Bytes { .. }) {
            return Err(BadRecord::Malformed.into());
        }
        outputs.at = record.len() - behind.len();
        outputs.left -= 1;
        outputs.taken += u32::from(is_offered);
        validator.check_output(&output)?;
        if !outputs.are_any() {
            validator.check_silence()?;
        }
        output.copy_to(buf).map(Some).ok_or(CallError::Record(BadRecord::TooLong))
    }

    /// Marks the board as failed.
    fn fail(&mut self, why: CallError) -> BackendError {
        (self.failed, self.outputs) = (true, Outputs::default());
        let (target, addr) = (self.target.clone(), self.addr);
        BackendError::Other(Box::new(BoardError::Call { target, addr, why }))
    }

    fn check(&mut self) -> Result<(), BackendError> {
        if self.failed { Err(self.fail(CallError::Failed)) } else { Ok(()) }
    }
}

impl Backend for BoardBackend {
    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        self.check()?;
        self.apply(now, input).unwrap_or_else(|why| Err(self.fail(why)))
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        // Like a server, it keeps its output if `buf` may be too short.
        if !self.outputs.are_any() || buf.len() < self.validator.limits().output_room() {
            return Ok(None);
        }
        self.check()?;
        self.next_output(buf).map_err(|why| self.fail(why))
    }

    fn poll_at(&self) -> Option<Time> {
        self.poll_at
    }

    fn limits(&self) -> &Limits {
        self.validator.limits()
    }

    fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn inspect(&mut self) -> Option<&Server<'_>> {
        None
    }
}

#[cfg(test)]
mod tests;
