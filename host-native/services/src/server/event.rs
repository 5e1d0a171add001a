//! Events of an endpoint for its owner.

use std::net::SocketAddr;

use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::{ConnId, JobId, Limit, Rank};
use hydrant_driver::Event;

/// A change of a job.
#[derive(Debug)]
pub(super) enum JobEvent {
    /// A client has become a rank.
    Joined { job: JobId, rank: Rank, conn: ConnId, from: Option<SocketAddr> },
    /// A rank's connection has closed, after finalize or before.
    Left { job: JobId, rank: Rank, finalized: bool },
    /// The job has to end.
    Abort { job: JobId, cause: Cause, message: String },
    /// A rank asked for its own process to be killed.
    Kill { job: JobId, rank: Rank, code: Option<i32>, message: String },
    /// A fence waits for longer than the warning time.
    StalledFence { job: JobId, arrived: u32, size: u32, missing: String },
    /// The server has closed a client's connection because of the client's input.
    Closed { job: JobId, conn: ConnId, rank: Option<Rank>, why: Closing },
    /// A client has named files to remove when the rank's process has exited.
    RemoveFiles { job: JobId, rank: Rank, paths: Vec<u8> },
    /// A PMIx client sent text to print as output of its rank.
    Log { job: JobId, rank: Rank, stream: Stream, text: Vec<u8> },
    /// A client was refused because a limit is used up.
    Full { limit: Limit },
    /// A spawn, an upcall, or a message for another node. Only servers of nodes have these.
    Node(Event),
}

impl JobEvent {
    /// Returns whether the event is of a job.
    pub(super) fn is_of(&self, which: JobId) -> bool {
        match self {
            JobEvent::Joined { job, .. }
            | JobEvent::Left { job, .. }
            | JobEvent::Abort { job, .. }
            | JobEvent::Kill { job, .. }
            | JobEvent::StalledFence { job, .. }
            | JobEvent::Closed { job, .. }
            | JobEvent::RemoveFiles { job, .. }
            | JobEvent::Log { job, .. } => *job == which,
            JobEvent::Full { .. } | JobEvent::Node(_) => false,
        }
    }
}
