//! Events that a driver reports to its owner.

use std::fmt;

use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::{ConnId, JobId, Output, Rank, UpcallId};

/// Output of a backend that is no reply to a client, or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client has become a rank.
    Joined {
        /// Its connection.
        conn: ConnId,
        /// Its job.
        job: JobId,
        /// Its rank.
        rank: Rank,
    },
    /// The driver has closed a connection.
    Closed {
        /// The connection. Its number is free again.
        conn: ConnId,
        /// Job that the connection was opened for.
        job: JobId,
        /// Its rank, if it had one.
        rank: Option<Rank>,
        /// The reason.
        why: CloseReason,
    },
    /// A rank requests a spawn.
    Spawn {
        /// The number of the request.
        spawn: UpcallId,
        /// The job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The protocol of the request.
        protocol: Protocol,
        /// The request as the rank sent it.
        request: Vec<u8>,
    },
    /// A rank's request is decided by the host.
    Upcall {
        /// The number of the request.
        upcall: UpcallId,
        /// The job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The protocol of the request.
        protocol: Protocol,
        /// The request as the rank sent it.
        request: Vec<u8>,
    },
    /// A rank requests the end of its own process.
    KillRank {
        /// The job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Exit code of the request.
        code: Option<i32>,
        /// Its message.
        message: String,
    },
    /// The job has to end.
    AbortJob {
        /// The job.
        job: JobId,
        /// The cause.
        cause: Cause,
        /// The message of the rank that aborted it.
        message: String,
    },
    /// A fence waits for longer than the job's warning time.
    StalledFence {
        /// The job.
        job: JobId,
        /// Ranks that have entered it.
        arrived: u32,
        /// Ranks that take part.
        size: u32,
        /// The ranks that are missing, as a list of ranges.
        missing: String,
    },
    /// A rank requests that files are removed after its exit.
    RemoveFiles {
        /// The job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Their paths, separated by commas.
        paths: Vec<u8>,
    },
    /// A rank requests that text is printed as its output.
    Log {
        /// The job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The stream.
        stream: Stream,
        /// The text.
        text: Vec<u8>,
    },
    /// A message for the server of another node.
    Peer {
        /// The node.
        node: u32,
        /// The message.
        bytes: Vec<u8>,
    },
}

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed its end.
    Ended,
    /// The client did not complete the handshake in time, or was displaced by a newer client at the limit.
    NoHandshake,
    /// The client of a port for PMIx speaks something else.
    NotPmix,
    /// The client sends requests without reading the replies.
    Overrun,
    /// The backend closed it.
    Backend(Closing),
    /// A board closed it because of a message that is longer than the board reads, in bytes.
    TooLong(u32),
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CloseReason::Ended => f.write_str("the client closed it"),
            CloseReason::NoHandshake => f.write_str("the client did not complete its handshake in time"),
            CloseReason::NotPmix => f.write_str("it speaks no PMIx"),
            CloseReason::Overrun => f.write_str(OVERRUN),
            CloseReason::Backend(why) => why.fmt(f),
            CloseReason::TooLong(max) => {
                write!(f, "a message over {max} bytes, the longest that this board reads")
            }
        }
    }
}

/// Sentence for the user about [`CloseReason::Overrun`].
pub const OVERRUN: &str = "it goes on asking while as many replies as may be are under way, and the buffer for \
                           what it said is full";

impl Event {
    /// Converts an output to an event. None for the two outputs that a driver handles itself.
    pub fn of(output: Output<'_>) -> Option<Event> {
        Some(match output {
            Output::Bytes { .. } | Output::Close { .. } => return None,
            Output::Joined { conn, job, rank } => Event::Joined { conn, job, rank },
            Output::Spawn { spawn, job, rank, protocol, request } => {
                Event::Spawn { spawn, job, rank, protocol, request: request.to_vec() }
            }
            Output::Upcall { upcall, job, rank, protocol, request } => {
                Event::Upcall { upcall, job, rank, protocol, request: request.to_vec() }
            }
            Output::KillRank { job, rank, code, message } => {
                Event::KillRank { job, rank, code, message: message.to_owned() }
            }
            Output::AbortJob { job, cause, message } => {
                Event::AbortJob { job, cause, message: message.to_owned() }
            }
            Output::StalledFence { job, arrived, size, missing } => {
                Event::StalledFence { job, arrived, size, missing: missing.to_owned() }
            }
            Output::Peer { node, bytes } => Event::Peer { node, bytes: bytes.to_vec() },
            Output::RemoveFiles { job, rank, paths } => {
                Event::RemoveFiles { job, rank, paths: paths.to_vec() }
            }
            Output::Log { job, rank, stream, text } => Event::Log { job, rank, stream, text: text.to_vec() },
        })
    }
}
