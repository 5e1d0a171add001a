//! Events of an endpoint for its owner.

use hydrant_core::server::remote::NodeReport;
use hydrant_core::trace::Closing;
use hydrant_core::{JobId, Limit, OwnedOutput, Rank};

/// Maximum length in bytes of a text in an event, so that the event fits into a record.
const TEXT_MAX: usize = 448;

/// A change of a job.
#[derive(Debug)]
pub(crate) enum JobEvent {
    /// An output of the server. Only servers of nodes have spawns, upcalls, and messages for other nodes.
    Output(OwnedOutput),
    /// A rank's connection has closed, after finalize or before.
    Left { job: JobId, rank: Rank, finalized: bool },
    /// The server has closed a client's connection because of the client's input.
    Closed { job: JobId, rank: Option<Rank>, why: Closing },
    /// A client was refused because a limit is used up.
    Full { limit: Limit },
}

impl JobEvent {
    /// Returns the job that the event is of.
    pub(crate) fn job(&self) -> Option<JobId> {
        match *self {
            JobEvent::Output(ref output) => output.view().job(),
            JobEvent::Left { job, .. } | JobEvent::Closed { job, .. } => Some(job),
            JobEvent::Full { .. } => None,
        }
    }

    /// Returns the report for the host of a node, which calls the job `job`. None if the host sees the event itself.
    pub(crate) fn report(&self, job: JobId) -> Option<NodeReport<'_>> {
        match *self {
            // The host sees processes end, and its own limits.
            JobEvent::Left { .. } | JobEvent::Full { .. } => None,
            JobEvent::Closed { rank, why, .. } => Some(NodeReport::Closed { job, rank, why }),
            JobEvent::Output(ref output) => Some(NodeReport::Output(output.view().with_job(job))),
        }
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
