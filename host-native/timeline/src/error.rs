//! Errors of making a timeline and of writing it.

use std::io;

use hydrant_record::RecordError;

/// A timeline cannot be made or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimelineError {
    /// A recording cannot be read at all. A recording that can be read in part is an entry of
    /// [`Node::cut`](crate::Node::cut) instead.
    #[error("{label}: {source}")]
    Record {
        /// Name of the recording.
        label: String,
        /// The reason.
        source: RecordError,
    },
    /// Two recordings are of the same node.
    #[error(
        "{first} and {second} are both recordings of node {node}: a timeline has one recording of each node"
    )]
    SameNode {
        /// Name of one recording.
        first: String,
        /// Name of the other one.
        second: String,
        /// Number of the node.
        node: u32,
    },
    /// Two recordings have no job in common.
    #[error("{first} and {second} have no job in common: a timeline shows the recordings of one run")]
    Unrelated {
        /// Name of one recording.
        first: String,
        /// Name of the other one.
        second: String,
    },
    /// Writing failed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for TimelineError {
    fn from(error: serde_json::Error) -> TimelineError {
        TimelineError::Write(error.into())
    }
}
