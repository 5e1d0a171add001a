//! Process of a rank, and the bytes that it writes.

use std::ops::Range;

use hydrant_core::trace::Exit;
use hydrant_core::{JobId, Rank};

use super::script::Step;
use crate::rank::Script;

/// Process of a rank.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) node: u32,
    pub(super) job: JobId,
    pub(super) ordinal: u32,
    pub(super) rank: u32,
    /// Index of its program in the plan.
    pub(super) program: u32,
    pub(super) script: Script,
    pub(super) steps: Vec<Step>,
    pub(super) at: usize,
    /// Replies that it waits for.
    pub(super) awaited: u32,
    /// Bytes that the pipe of standard output and that of standard error have taken.
    pub(super) written: [u32; 2],
    /// Bytes that the daemon has read.
    pub(super) read: [u32; 2],
    /// Bytes of the current step that the pipe has not taken.
    pub(super) unwritten: u32,
    /// Bytes of standard input that it has read.
    pub(super) input_read: u32,
    /// Bytes of the current step that it has not read.
    pub(super) unread: u32,
    /// `SIGTERM` and `SIGINT` are ignored.
    pub(super) stubborn: bool,
    /// A signal or its own step is about to end it.
    pub(super) ending: bool,
    pub(super) exit: Option<Exit>,
}

/// Returns a byte of a stream.
fn byte_of(pid: u32, stderr: bool, at: u32) -> u8 {
    // 16 bits, which the compiler multiplies many at a time.
    let mixed = (at as u16).wrapping_mul(0x9e37) >> 8;
    (mixed ^ (at >> 16) as u16 ^ (pid as u16).wrapping_mul(37) ^ u16::from(stderr)) as u8
}

/// Returns bytes of a stream.
pub(super) fn bytes_of(pid: u32, stderr: bool, range: Range<u32>) -> Vec<u8> {
    range.map(|at| byte_of(pid, stderr, at)).collect()
}

/// Failure of a rank or host that no other failure has caused.
pub(super) struct Failure {
    /// Number of the job if a rank of it failed.
    pub(super) of: Option<u32>,
    /// Exit code of the run that it causes.
    pub(super) code: u8,
    /// Rank or host as a report names it.
    pub(super) culprit: String,
    /// Its host leaves by force while the job goes on: the head may have asked it to end before it hears of this.
    pub(super) may_be_asked: bool,
}

impl Process {
    pub(super) fn describe(&self) -> String {
        let Process { node, pid, exit, at, .. } = self;
        let name = rank_name(self.ordinal, Rank(self.rank));
        format!(
            "{name} on n{node}, pid {pid}, {exit:?}, step {at} {:?}, {} of input, written {:?}, read {:?}",
            self.steps.get(*at),
            self.input_read,
            self.written,
            self.read
        )
    }

    /// The rank on its host.
    pub(super) fn name(&self, host: &str) -> String {
        format!("{} on {host}", rank_name(self.ordinal, Rank(self.rank)))
    }

    /// Reads up to `room` bytes of a pipe.
    pub(super) fn take(&mut self, stderr: bool, room: u32) -> Vec<u8> {
        let stream = usize::from(stderr);
        let len = (self.written[stream] - self.read[stream]).min(room);
        let from = self.read[stream];
        self.read[stream] += len;
        bytes_of(self.pid, stderr, from..from + len)
    }

    pub(super) fn is_read(&self) -> bool {
        self.read == self.written
    }

    pub(super) fn waits_for_pipe(&self) -> bool {
        self.unwritten > 0 && self.exit.is_none()
    }
}

/// A rank in messages.
pub(super) fn rank_name(ordinal: u32, rank: Rank) -> String {
    match ordinal {
        0 => format!("rank {rank}"),
        _ => format!("rank {rank} of spawned job {ordinal}"),
    }
}
