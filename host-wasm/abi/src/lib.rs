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
//! | [`hydrant_handle`](exports::HANDLE) | [`HandleCall`] | `Result<`[`HandleResult`]`, `[`CallError`]`>` |
//! | [`hydrant_poll`](exports::POLL) | none | [`PollResult`], or no record |
//! | [`hydrant_snapshot`](exports::SNAPSHOT) | none | `Result<`[`MemorySpan`]`, `[`CallError`]`>` |
//! | [`hydrant_snapshot_room`](exports::SNAPSHOT_ROOM) | a length in bytes | `Result<`[`MemorySpan`]`, `[`CallError`]`>` |
//! | [`hydrant_restore`](exports::RESTORE) | a snapshot | `Result<`[`StartResult`]`, `[`CallError`]`>` |
//!
//! A call that reports a client's bytes, and its result:
//!
//! ```
//! use hydrant_abi::{CallError, HandleCall, HandleResult};
//! use hydrant_core::{ConnId, Fault, Input, Time};
//!
//! # fn main() -> Result<(), postcard::Error> {
//! // The host's side: encode a call.
//! let input = Input::Bytes { conn: ConnId(9), bytes: b"cmd=finalize\n", full: false };
//! let mut buf = [0; 64];
//! let record = postcard::to_slice(&HandleCall { now: Time(7), input }, &mut buf)?;
//! assert_eq!(record[..4], [7, 17, 9, 13]);
//!
//! // The module's side: decode it, and encode a result.
//! let call = HandleCall::decode(record).expect("it was just encoded");
//! assert_eq!(call.input, input);
//! let result: Result<HandleResult, CallError> = Err(Fault::NoSuchConn.into());
//! let mut buf = [0; 64];
//! assert_eq!(postcard::to_slice(&result, &mut buf)?, [1, 0, 0]);
//! # Ok(())
//! # }
//! ```
#![no_std]

use core::fmt;

use hydrant_core::server::Consumed;
use hydrant_core::{Fault, Input, Limits, Output, Time};
use serde::{Deserialize, Serialize};

/// Version of the ABI, which [`hydrant_abi_version`](exports::ABI_VERSION) returns. A host refuses every other version.
pub const ABI_VERSION: u32 = 5;

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
    /// Applies one input to the server.
    pub const HANDLE: &str = "hydrant_handle";
    /// Takes the server's next output.
    pub const POLL: &str = "hydrant_poll";
    /// Saves the server.
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

/// Variant number of [`Input::Bytes`].
const INPUT_BYTES: u8 = 17;

/// Input of [`hydrant_reserve`](exports::RESERVE): what the server is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReserveCall {
    /// Capacities of the server's tables.
    pub limits: Limits,
    /// Seed of a hash table. Any number is valid. An unpredictable one is best.
    pub seed: u32,
}

/// Input of [`hydrant_handle`](exports::HANDLE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleCall<'a> {
    /// The host's clock.
    pub now: Time,
    /// The input for the server.
    #[serde(borrow)]
    pub input: Input<'a>,
}

impl<'a> HandleCall<'a> {
    /// Decodes a record. Returns `None` for a malformed one.
    ///
    /// Most inputs are [`Input::Bytes`]. They are decoded by a path of their own, which is inlined into the caller.
    #[inline]
    pub fn decode(record: &'a [u8]) -> Option<HandleCall<'a>> {
        let (now, input) = postcard::take_from_bytes(record).ok()?;
        let input = match *input {
            [INPUT_BYTES, ref bytes @ ..] => {
                let (conn, bytes, full) = postcard::from_bytes(bytes).ok()?;
                Input::Bytes { conn, bytes, full }
            }
            _ => Input::read(input)?,
        };
        Some(HandleCall { now, input })
    }
}

/// Output of [`hydrant_reserve`](exports::RESERVE) and [`hydrant_restore`](exports::RESTORE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartResult {
    /// When the host has to send [`Input::Timeout`] if no other input comes first.
    pub poll_at: Option<Time>,
    /// Whether [`hydrant_poll`](exports::POLL) may return an output.
    pub has_output: bool,
}

/// Output of [`hydrant_handle`](exports::HANDLE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleResult {
    /// How much of [`Input::Bytes`] was consumed.
    pub consumed: Consumed,
    /// When the host has to send [`Input::Timeout`] if no other input comes first.
    pub poll_at: Option<Time>,
    /// Whether [`hydrant_poll`](exports::POLL) may return an output.
    pub has_output: bool,
}

/// Output of [`hydrant_poll`](exports::POLL), which leaves no record if there is no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollResult<'b> {
    /// What the host has to do.
    #[serde(borrow)]
    pub output: Output<'b>,
    /// Whether the next poll may return an output.
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
    use hydrant_core::ConnId;

    use super::*;

    fn encode<'b>(record: &impl Serialize, buf: &'b mut [u8]) -> &'b [u8] {
        postcard::to_slice(record, buf).expect("the buffer is long enough")
    }

    #[test]
    fn every_input_is_decoded_as_it_was_encoded() {
        let bytes = Input::Bytes { conn: ConnId(300), bytes: b"cmd=init\n", full: true };
        for input in [bytes, Input::Timeout, Input::Blocked { conn: ConnId(1) }] {
            let call = HandleCall { now: Time(1 << 40), input };
            let mut buf = [0; 64];
            let record = encode(&call, &mut buf);
            assert_eq!(HandleCall::decode(record), Some(call));
            for len in 0..record.len() {
                assert_eq!(HandleCall::decode(&record[..len]), None, "{input:?}, {len} bytes");
            }
        }
    }

    #[test]
    fn unknown_inputs_are_not_decoded() {
        assert_eq!(HandleCall::decode(&[7, 0x7f]), None);
        assert_eq!(HandleCall::decode(&[]), None);
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
