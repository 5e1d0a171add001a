//! Events that a driver reports to its owner.

use std::fmt;

use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, JobId, OwnedOutput, Rank};

use crate::port::Speaks;

/// Output of a backend that the driver does not carry out itself, or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An output of the backend. [`Bytes`](hydrant_core::OutputOf::Bytes) and [`Close`](hydrant_core::OutputOf::Close) are those
    /// of [external](crate::Driver::handle_external) connections.
    Output(OwnedOutput),
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
}

/// Reason for closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed its end.
    Ended,
    /// The client did not complete the handshake in time, or was displaced by a newer client at the limit.
    NoHandshake,
    /// The client does not speak what the clients of its port speak.
    OtherProtocol(Speaks),
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
            CloseReason::OtherProtocol(Speaks::Pmix) => f.write_str("it speaks no PMIx"),
            CloseReason::OtherProtocol(_) => f.write_str("it speaks PMIx at a port for PMI-1 and PMI-2"),
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
