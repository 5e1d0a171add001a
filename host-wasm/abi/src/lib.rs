//! Records, export names and version number of the ABI of `hydrant.wasm`.
//!
//! `hydrant.wasm` is [`hydrant_core::Server`] as a WebAssembly module without imports. A host writes a record into the
//! module's input buffer, calls an [export](exports) with its length, and reads the record that the module left in its
//! output buffer. Records are encoded as [postcard](https://postcard.jamesmunns.com/wire-format), version 1.
//! `docs/wasm-abi.md` describes calls and encoding for hosts in other languages.
//!
//! | export | input | output |
//! |---|---|---|
//! | [`hydrant_reserve`](exports::RESERVE) | [`ReserveCall`] | `Result<`[`StartResult`]`, `[`CallError`]`>` |
//! | [`hydrant_handle`](exports::HANDLE) | [inputs](turn::Part) | a [return](turn::TurnHead) |
//! | [`hydrant_poll`](exports::POLL) | none | a [return](turn::TurnHead) |
//! | [`hydrant_snapshot`](exports::SNAPSHOT) | none | `Result<`[`MemorySpan`]`, `[`CallError`]`>` |
//! | [`hydrant_snapshot_room`](exports::SNAPSHOT_ROOM) | a length in bytes | `Result<`[`MemorySpan`]`, `[`CallError`]`>` |
//! | [`hydrant_restore`](exports::RESTORE) | a snapshot | `Result<`[`StartResult`]`, `[`CallError`]`>` |
//!
//! Inputs and returns have [fixed layouts](turn), so that a client's bytes and the reply to them are not encoded. A call that
//! reports a client's bytes, and its return:
//!
//! ```
//! use hydrant_abi::turn::{InputResult, Part, TurnHead};
//!
//! // The host's side: a head, and the bytes behind it.
//! let bytes = b"cmd=finalize\n";
//! let mut buf = [0; 64];
//! let room = Part { conn: 9, len: bytes.len() as u32 }.write(&mut buf).expect("the buffer is long enough");
//! room[..bytes.len()].copy_from_slice(bytes);
//! assert_eq!(buf[..9], [9, 0, 0, 0, 13, 0, 0, 0, b'c']);
//!
//! // The module's side: a head, and the result of the input.
//! let mut buf = [0; 64];
//! let head = TurnHead { results: 1, outputs: 0, flags: 0, error: 0, poll_at: 0 };
//! let rest = head.write(&mut buf).expect("the buffer is long enough");
//! InputResult { bytes: 13, again: 0 }.write(rest).expect("the buffer is long enough");
//! assert_eq!(buf[..TurnHead::LEN + InputResult::LEN][24..], [13, 0, 0, 0, 0, 0, 0, 0]);
//! ```
#![no_std]

pub mod turn;

use core::fmt;

use hydrant_core::{Fault, Limits, Time};
use serde::{Deserialize, Serialize};

/// Version of the ABI, which [`hydrant_abi_version`](exports::ABI_VERSION) returns. A host refuses every other version.
pub const ABI_VERSION: u32 = 1;

/// Names that the module exports.
pub mod exports {
    /// The module's memory.
    pub const MEMORY: &str = "memory";
    /// Returns [`ABI_VERSION`](crate::ABI_VERSION).
    pub const ABI_VERSION: &str = "hydrant_abi_version";
    /// Returns the address of the input buffer, to which the host writes records.
    pub const INPUT_ADDRESS: &str = "hydrant_input_address";
    /// Returns the size of the input buffer in bytes.
    pub const INPUT_SIZE: &str = "hydrant_input_size";
    /// Returns the address of the output buffer, from which the host reads records.
    pub const OUTPUT_ADDRESS: &str = "hydrant_output_address";
    /// Returns the size of the output buffer in bytes.
    pub const OUTPUT_SIZE: &str = "hydrant_output_size";
    /// Creates the server.
    pub const RESERVE: &str = "hydrant_reserve";
    /// Takes replies of the last return, applies inputs at a time, and returns the next replies.
    pub const HANDLE: &str = "hydrant_handle";
    /// Takes replies of the last return, and returns the next outputs.
    pub const POLL: &str = "hydrant_poll";
    /// Takes replies of the last return, and saves the server.
    pub const SNAPSHOT: &str = "hydrant_snapshot";
    /// Allocates memory for a snapshot to restore.
    pub const SNAPSHOT_ROOM: &str = "hydrant_snapshot_room";
    /// Creates the server from a snapshot.
    pub const RESTORE: &str = "hydrant_restore";

    /// All names.
    pub const ALL: [&str; 12] = [
        MEMORY,
        ABI_VERSION,
        INPUT_ADDRESS,
        INPUT_SIZE,
        OUTPUT_ADDRESS,
        OUTPUT_SIZE,
        RESERVE,
        HANDLE,
        POLL,
        SNAPSHOT,
        SNAPSHOT_ROOM,
        RESTORE,
    ];
}

/// Input of [`hydrant_reserve`](exports::RESERVE): what the server is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveCall {
    /// Capacities of the server's tables.
    pub limits: Limits,
    /// Seed of a hash table. Any number is valid. An unpredictable one is best.
    pub seed: u32,
}

/// Output of [`hydrant_reserve`](exports::RESERVE) and [`hydrant_restore`](exports::RESTORE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartResult {
    /// When the host has to send [`Input::Timeout`](hydrant_core::Input::Timeout) if no other input comes first.
    pub poll_at: Option<Time>,
    /// Whether [`hydrant_poll`](exports::POLL) may return an output.
    pub has_output: bool,
}

/// A range of the module's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemorySpan {
    /// Address of the first byte.
    pub address: u32,
    /// Length in bytes.
    pub len: u32,
}

/// A call failed. The server is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallError {
    /// The server refused the call.
    Fault(Fault),
    /// The record is malformed or longer than its buffer.
    InvalidRecord,
    /// The call needs a server and there is none yet, or creates one and there is one already.
    WrongState,
    /// The module cannot have as much memory, in bytes.
    OutOfMemory(u64),
}

impl From<Fault> for CallError {
    fn from(fault: Fault) -> CallError {
        CallError::Fault(fault)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::Fault(fault) => fault.fmt(f),
            CallError::InvalidRecord => f.write_str("malformed record"),
            CallError::WrongState => f.write_str("call out of order"),
            CallError::OutOfMemory(bytes) => write!(f, "out of memory: {bytes} bytes requested"),
        }
    }
}

impl core::error::Error for CallError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode<'b>(record: &impl Serialize, buf: &'b mut [u8]) -> &'b [u8] {
        postcard::to_slice(record, buf).expect("the buffer is long enough")
    }

    #[test]
    fn layouts_are_read_as_they_are_written() {
        use turn::{Part, TurnHead};
        let head = TurnHead { results: 1, outputs: 2, flags: 3, error: 4, poll_at: 5 << 40 };
        let mut buf = [0xff; 32];
        assert_eq!(head.write(&mut buf).map(|rest| rest.len()), Some(8));
        assert_eq!(buf[..20], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(buf[20..26], [0, 5, 0, 0, 0xff, 0xff]);
        assert_eq!(TurnHead::read(&buf), Some((head, &[0xff; 8][..])));
        assert_eq!(TurnHead::read(&buf[..TurnHead::LEN - 1]), None);
        assert_eq!(Part { conn: 1, len: 2 }.write(&mut buf[..Part::LEN - 1]), None);
    }

    #[test]
    fn errors_have_fixed_numbers() {
        let expected: [(CallError, &[u8]); 4] = [
            (Fault::NoSuchConn.into(), &[1, 0, 0]),
            (CallError::InvalidRecord, &[1, 1]),
            (CallError::WrongState, &[1, 2]),
            (CallError::OutOfMemory(300), &[1, 3, 0xac, 0x02]),
        ];
        for (error, record) in expected {
            let mut buf = [0; 16];
            assert_eq!(encode(&Err::<MemorySpan, _>(error), &mut buf), record, "{error}");
        }
    }
}
