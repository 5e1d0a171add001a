//! Events of an endpoint for its owner.

use std::net::SocketAddr;

use hydrant_core::server::remote::NodeReport;
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::{ConnId, JobId, Limit, Output, Rank};
use hydrant_driver::Event;

/// Maximum length in bytes of a text in an event, so that the event fits into a record.
const TEXT_MAX: usize = 448;

/// A change of a job.
#[derive(Debug)]
pub(crate) enum JobEvent {
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
    /// Returns the job that the event is of.
    pub(crate) fn job(&self) -> Option<JobId> {
        match *self {
            JobEvent::Joined { job, .. }
            | JobEvent::Left { job, .. }
            | JobEvent::Abort { job, .. }
            | JobEvent::Kill { job, .. }
            | JobEvent::StalledFence { job, .. }
            | JobEvent::Closed { job, .. }
            | JobEvent::RemoveFiles { job, .. }
            | JobEvent::Log { job, .. }
            | JobEvent::Node(Event::Spawn { job, .. } | Event::Upcall { job, .. }) => Some(job),
            JobEvent::Full { .. } | JobEvent::Node(_) => None,
        }
    }

    /// Returns the report for the host of a node, which calls the job `job`. None if the host sees the event itself.
    pub(crate) fn report(&self, job: JobId) -> Option<NodeReport<'_>> {
        let output = match *self {
            // The host sees processes end, and its own limits.
            JobEvent::Left { .. } | JobEvent::Full { .. } => return None,
            JobEvent::Closed { rank, why, .. } => return Some(NodeReport::Closed { job, rank, why }),
            JobEvent::Joined { rank, conn, .. } => Output::Joined { conn, job, rank },
            JobEvent::Abort { cause, ref message, .. } => Output::AbortJob { job, cause, message },
            JobEvent::Kill { rank, code, ref message, .. } => Output::KillRank { job, rank, code, message },
            JobEvent::StalledFence { arrived, size, ref missing, .. } => {
                Output::StalledFence { job, arrived, size, missing }
            }
            JobEvent::RemoveFiles { rank, ref paths, .. } => Output::RemoveFiles { job, rank, paths },
            JobEvent::Log { rank, stream, ref text, .. } => Output::Log { job, rank, stream, text },
            JobEvent::Node(Event::Spawn { spawn, rank, protocol, ref request, .. }) => {
                Output::Spawn { spawn, job, rank, protocol, request }
            }
            JobEvent::Node(Event::Upcall { upcall, rank, protocol, ref request, .. }) => {
                Output::Upcall { upcall, job, rank, protocol, request }
            }
            JobEvent::Node(Event::Peer { node, ref bytes }) => Output::Peer { node, bytes },
            JobEvent::Node(_) => return None,
        };
        Some(NodeReport::Output(output))
    }
}

/// Truncates a text to [`TEXT_MAX`] bytes.
pub(crate) fn truncate(text: &str) -> &str {
    let fits = text.len().min(TEXT_MAX);
    let end = (0..=fits).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_at_a_character() {
        let text = format!("{}äb", "a".repeat(TEXT_MAX - 1));
        assert_eq!(truncate(&text), &text[..TEXT_MAX - 1]);
        assert_eq!(truncate(&text[..TEXT_MAX - 1]).len(), TEXT_MAX - 1);
        assert_eq!(truncate(&"a".repeat(TEXT_MAX + 1)).len(), TEXT_MAX);
    }
}
