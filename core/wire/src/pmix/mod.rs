//! PMIx messages: handshake, framing, data format, requests and the writer of replies.
//!
//! One dialect is implemented, which every libpmix from 4.1 on uses with a server that offers it: job data by `hash`,
//! buffers that do not describe themselves. [`Integers`] selects between the two encodings of integers, which are the
//! only difference between the formats v41 and v4 on one side, and v3 and v21 on the other side.
//!
//! - [`next_frame`] finds the end of a handshake or message in untrusted bytes.
//! - [`Hello::decode`] and [`decode`] convert it to validated types, which borrow from the bytes.
//! - [`Writer`] measures or writes the elements of a reply.
//!
//! A message consists of *packs*. A pack is a number of elements and the elements, all of one type. Arrays are a pack
//! with their length, followed by a pack with the elements unless the length is 0.
//!
//! ```
//! use hydrant_wire::pmix::{Command, Integers, decode, next_frame, Frame};
//!
//! let bytes = b"\0\0\0\0\0\0\0\x65\0\0\0\x02\0\0\0\0\x02\x00";
//! let Some(Frame::Message { tag, body, .. }) = next_frame(bytes)? else { panic!("the message is complete") };
//! assert_eq!(tag, 0x65);
//! assert_eq!(decode(Integers::Flexible, body).map(|command| command.ok()), Ok(Some(Command::JobInfo)));
//! # Ok::<(), hydrant_wire::Malformed>(())
//! ```

mod command;
mod frame;
mod host;
mod info;
pub mod keys;
mod names;
mod reader;
mod skip;
mod spawn;
#[cfg(test)]
mod tests;
mod writer;

pub use command::{
    App, Apps, Changes, Codes, Command, Commit, JOB_INFO, Keys, PackedCodes, Procs, Queries, Query, Strings,
    Unreadable, decode, number,
};
pub use frame::{
    FIRST_BYTE, Frame, HEADER_LEN, HEARTBEAT_TAG, HELLO_MAX, Hello, Kind, MESSAGE_MAX, is_commit, next_frame,
    write_header, write_hello_reply, write_tool_reply,
};
pub use host::{FileState, HelpText, HostCall, HostQuery};
pub use info::{Info, Infos};
pub use names::{
    DATA_SEPARATOR, Party, Published, SHARED, can_name, data_of, names_of, range_of, translate_lookup,
    translate_publish, translate_unpublish,
};
pub use reader::{NodePid, Proc, Reader};
pub use skip::DEPTH_MAX;
pub use spawn::translate_spawn;
pub use writer::Writer;

pub use super::Integers;
use crate::Refusal;

/// Rank that stands for all ranks of a namespace.
pub const WILDCARD: u32 = 0xffff_fffe;
/// Rank that stands for any rank, or for none.
pub const UNDEFINED: u32 = 0xffff_ffff;

/// Numbers of data types.
pub mod kind {
    /// One byte, 0 or 1.
    pub const BOOL: u16 = 1;
    /// NUL-terminated string, or none.
    pub const STRING: u16 = 3;
    /// Unsigned number with its own type in front in the fixed encoding.
    pub const SIZE: u16 = 4;
    /// Process id.
    pub const PID: u16 = 5;
    /// Signed number, 32 bits.
    pub const INT: u16 = 6;
    /// Signed number, 32 bits.
    pub const INT32: u16 = 9;
    /// Unsigned number, 32 bits.
    pub const UINT: u16 = 11;
    /// Unsigned number, 16 bits.
    pub const UINT16: u16 = 13;
    /// Unsigned number, 32 bits.
    pub const UINT32: u16 = 14;
    /// Unsigned number, 64 bits.
    pub const UINT64: u16 = 15;
    /// Number with a fraction, as text.
    pub const FLOAT: u16 = 16;
    /// Seconds and microseconds.
    pub const TIMEVAL: u16 = 18;
    /// Seconds since 1970.
    pub const TIME: u16 = 19;
    /// Status code.
    pub const STATUS: u16 = 20;
    /// Namespace and rank.
    pub const PROC: u16 = 22;
    /// Key, flags and value.
    pub const INFO: u16 = 24;
    /// Length and bytes.
    pub const BYTE_OBJECT: u16 = 27;
    /// How long published data are kept.
    pub const PERSIST: u16 = 30;
    /// Who may see published data or an event.
    pub const DATA_RANGE: u16 = 33;
    /// Process with its host, program and state.
    pub const PROC_INFO: u16 = 38;
    /// Array of elements of one type.
    pub const DATA_ARRAY: u16 = 39;
    /// Rank of a process.
    pub const PROC_RANK: u16 = 40;
    /// Attribute that a function heeds.
    pub const REGATTR: u16 = 48;
    /// Process id on a host, of the format v61 and later.
    pub const NODE_PID: u16 = 73;
}

/// Events for clients, in messages with the tag 0, and their codes.
pub mod event {
    /// Number of the command (NOTIFY).
    pub const COMMAND: u8 = 12;
    /// A debugger lets processes go on.
    pub const DEBUGGER_RELEASE: i32 = -3;
    /// A process aborted itself alone.
    pub const ABORTED: i32 = -7;
    /// A process ended without finalize.
    pub const NO_FINALIZE: i32 = -200;
    /// A process ended, in whatever way.
    pub const TERMINATED: i32 = -111;
    /// A process has sent no heartbeats.
    pub const HEARTBEAT_ALERT: i32 = -109;
    /// A file has not changed.
    pub const FILE_ALERT: i32 = -110;
    /// A request for hosts is over.
    pub const HOSTS_ANSWERED: i32 = -105;
    /// Hosts have joined or left, as a request has asked.
    pub const HOSTS_CHANGED: i32 = -195;
    /// Not all hosts of a request have joined or left.
    pub const HOSTS_REFUSED: i32 = -196;
    /// Use of processors, memory, disks or networks.
    pub const USAGE_UPDATE: i32 = -114;
    /// All processes of a job have ended.
    pub const JOB_END: i32 = -145;
    /// A group has lost a member.
    pub const MEMBER_FAILED: i32 = -170;
    /// A process set was defined.
    pub const SET_DEFINED: i32 = -55;
    /// A process set was retired.
    pub const SET_RETIRED: i32 = -56;
    /// A process, or all of a job, waits for a debugger.
    pub const READY_FOR_DEBUG: i32 = -58;
    /// A signal killed a process.
    pub const SIGNALLED: i32 = -402;
    /// Stands for all events at the end of a registration.
    pub const ALL: i32 = i32::MIN;
}

/// Requests for hosts (`pmix_alloc_directive_t`).
pub mod allocation {
    /// More hosts, apart from the others.
    pub const NEW: u8 = 1;
    /// More hosts.
    pub const EXTEND: u8 = 2;
    /// Hosts are given back.
    pub const RELEASE: u8 = 3;
}

/// Standard streams of processes, as bits of a set.
pub mod channel {
    /// Standard output.
    pub const STDOUT: u32 = 2;
    /// Standard error.
    pub const STDERR: u32 = 4;
}

/// Tag of messages with output of processes.
pub const OUTPUT_TAG: u32 = 2;
/// Tag of messages that a key of a process is removed: clients forget its value.
pub const REMOVED_TAG: u32 = 4;

/// Scopes that remove a key.
pub mod removal {
    /// For processes on the same node.
    pub const LOCAL: u8 = 5;
    /// For processes on other nodes.
    pub const REMOTE: u8 = 6;
    /// For all processes.
    pub const GLOBAL: u8 = 7;
}

/// Status codes.
pub mod status {
    /// Success.
    pub const SUCCESS: i32 = 0;
    /// Any failure without a code of its own.
    pub const ERROR: i32 = -1;
    /// The name exists.
    pub const EXISTS: i32 = -11;
    /// Data are published under the key, in the same range.
    pub const DUPLICATE_KEY: i32 = -53;
    /// A message that cannot be decoded.
    pub const UNPACK_FAILURE: i32 = -20;
    /// The request is not permitted.
    pub const NO_PERMISSIONS: i32 = -23;
    /// A deadline has passed.
    pub const TIMEOUT: i32 = -24;
    /// A process or host cannot be reached.
    pub const UNREACHABLE: i32 = -25;
    /// An invalid argument.
    pub const BAD_PARAM: i32 = -27;
    /// It is in use.
    pub const RESOURCE_BUSY: i32 = -28;
    /// A limit is reached.
    pub const OUT_OF_RESOURCE: i32 = -29;
    /// What would carry out the request is not there.
    pub const NOT_AVAILABLE: i32 = -64;
    /// The key, name, process or namespace does not exist.
    pub const NOT_FOUND: i32 = -46;
    /// The server does not implement the request.
    pub const NOT_SUPPORTED: i32 = -47;
    /// A spawn: a host is not in the run.
    pub const JOB_FAILED_TO_MAP: i32 = -179;
    /// A spawn: a program cannot be started.
    pub const JOB_FAILED_TO_LAUNCH: i32 = -181;
    /// The end of a job: a process aborted it.
    pub const JOB_ABORTED: i32 = -182;
    /// The end of a job: a signal killed a process.
    pub const JOB_SIGNALLED: i32 = -184;
    /// The end of a job: a process ended without finalize, or without having joined.
    pub const JOB_NO_FINALIZE: i32 = -185;
    /// The end of a job: a process exited with a code other than 0.
    pub const JOB_FAILED: i32 = -187;
    /// The input of a process has ended.
    pub const INPUT_COMPLETE: i32 = -173;
    /// Some of several items were found.
    pub const PARTIAL_SUCCESS: i32 = -52;

    /// Returns the status of a spawn that has failed with these codes of its programs: 0, or the `errno` of a failure.
    pub fn of_spawn(codes: &[u8]) -> i32 {
        /// Of Linux, and of FreeBSD and macOS.
        const EHOSTUNREACH: [u8; 2] = [113, 65];
        const EINVAL: u8 = 22;
        if codes.iter().any(|code| EHOSTUNREACH.contains(code)) {
            JOB_FAILED_TO_MAP
        } else if codes.contains(&EINVAL) {
            BAD_PARAM
        } else {
            JOB_FAILED_TO_LAUNCH
        }
    }
}

impl Refusal {
    /// Returns the PMIx status code that a client gets.
    pub const fn pmix_status(self) -> i32 {
        match self {
            Refusal::Full(..) | Refusal::Quota(..) => status::OUT_OF_RESOURCE,
            Refusal::BadField | Refusal::MissingField => status::UNPACK_FAILURE,
            Refusal::Unsupported | Refusal::NoSpawn => status::NOT_SUPPORTED,
            Refusal::TimedOut => status::TIMEOUT,
            Refusal::NameTaken => status::DUPLICATE_KEY,
            Refusal::PsetTaken | Refusal::PsetRetired => status::EXISTS,
            Refusal::NoName | Refusal::NoJob | Refusal::NoKvs | Refusal::NoPset => status::NOT_FOUND,
            Refusal::Rank
            | Refusal::EmptyKey
            | Refusal::KeyLength
            | Refusal::ValueLength
            | Refusal::NameLength
            | Refusal::BadGroup
            | Refusal::InFence
            | Refusal::Programs
            | Refusal::PsetName
            | Refusal::PsetEmpty
            | Refusal::Unprintable => status::BAD_PARAM,
            Refusal::NotInitialized
            | Refusal::Initialized
            | Refusal::Version
            | Refusal::NotConnected
            | Refusal::NotStarted
            | Refusal::PsetDead => status::ERROR,
        }
    }
}
