//! Errors of reading and of writing recordings.

use std::io;
use std::path::PathBuf;

use crate::VERSION;

/// A recording cannot be read to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Reading failed.
    #[error("cannot read: {0}")]
    Read(#[from] io::Error),
    /// The file is not a recording.
    #[error("not a recording of hydrant run --record")]
    NotARecording,
    /// The file has another version of the format.
    #[error(
        "format version {0}, this hydrant reads version {VERSION}: use the hydrant that wrote the recording"
    )]
    Version(u16),
    /// The file ends too early.
    #[error("truncated at offset {offset}{}: the recording program was killed, is still running or had no space to write",
        if *.inside_record { ", inside a record" } else { ", without an end record" })]
    Truncated {
        /// Length of the file in bytes.
        offset: u64,
        /// The file ends inside a record.
        inside_record: bool,
    },
    /// A frame is invalid.
    #[error("damaged at offset {offset}: {problem}")]
    Damaged {
        /// Offset of the frame in bytes.
        offset: u64,
        /// Description of the problem.
        problem: &'static str,
    },
}

/// A recording cannot be written, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("cannot record to {}: {source}", path.display())]
pub struct WriteError {
    /// The file.
    pub path: PathBuf,
    /// The I/O error.
    pub source: io::Error,
}
