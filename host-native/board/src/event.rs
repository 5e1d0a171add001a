//! Events of a board's job for the launcher.

use hydrant_core::Rank;
use hydrant_core::trace::{Cause, Stream};

/// An event of the job that a board serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoardEvent {
    /// A client has become a rank.
    Joined {
        /// The rank.
        rank: Rank,
    },
    /// The job has to be aborted.
    AbortJob {
        /// The reason.
        cause: Cause,
        /// Message of a rank that called abort. Otherwise empty.
        message: String,
    },
    /// The process of a rank has to be killed, as the rank asked.
    KillRank {
        /// The rank.
        rank: Rank,
        /// Exit code that the rank asked for.
        code: Option<i32>,
        /// Message of the rank.
        message: String,
    },
    /// A client has named files to remove when the rank's process has exited.
    RemoveFiles {
        /// The rank.
        rank: Rank,
        /// Absolute paths, separated by commas.
        paths: Vec<u8>,
    },
    /// A client has sent text to print as output of its rank.
    Log {
        /// The rank.
        rank: Rank,
        /// The stream.
        stream: Stream,
        /// The text.
        text: Vec<u8>,
    },
    /// A fence waits longer than the warning time.
    StalledFence {
        /// Number of ranks that have arrived.
        arrived: u32,
        /// Number of ranks of the job.
        size: u32,
        /// Missing ranks, as `0-3,7`.
        missing: String,
    },
}

impl BoardEvent {
    /// Returns the rank of the event, if it has one.
    pub(crate) fn rank(&self) -> Option<Rank> {
        match *self {
            BoardEvent::Joined { rank }
            | BoardEvent::KillRank { rank, .. }
            | BoardEvent::RemoveFiles { rank, .. }
            | BoardEvent::Log { rank, .. } => Some(rank),
            BoardEvent::AbortJob { cause, .. } => Some(cause.rank()),
            BoardEvent::StalledFence { .. } => None,
        }
    }
}
