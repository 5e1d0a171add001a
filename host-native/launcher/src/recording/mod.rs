//! Recordings: all that a core was told and said, in a file that plays again on any core.
//!
//! A file is [`MAGIC`], the [`VERSION`] as two bytes, and frames up to its end. Numbers outside of records are
//! little-endian. A frame is
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of the record, at most [`RECORD_MAX`] |
//! | 4 | CRC-32 of the record (that of zlib) |
//! | length | a [`Record`] as postcard |
//!
//! The first record is [`Record::Begin`] and the last is [`Record::End`]. A file without that end was cut off: what it
//! holds is good up to there.

mod check;
mod reader;
mod tape;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::PathBuf;

pub use check::{Check, Difference};
pub use hydrant_core::server::Record;
pub use reader::{Begin, Entry, Reader};
pub(crate) use tape::{Recorder, Tape, begin};
pub use writer::Writer;

use crate::error::RunError;

/// What a file begins with. Its first byte is no text, and its last one shows whether line ends were translated.
pub const MAGIC: [u8; 8] = *b"\x89hydrec\n";
/// The version of the format. Another one is due when a record's bytes change their meaning, which they do when an
/// input, an output or a limit gets another field or another place among its like.
pub const VERSION: u16 = 1;
/// The longest record in bytes: more than any host hands in at once.
pub const RECORD_MAX: usize = 16 << 20;

/// Bytes before the first frame.
const PREAMBLE: usize = MAGIC.len() + 2;
/// Bytes before a record.
const FRAME: usize = 8;

/// Why a recording cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The system does not let it be read.
    #[error("cannot read it: {0}")]
    System(#[from] io::Error),
    /// Another kind of file.
    #[error("this is no recording: those begin as `hydrant run --record` writes them")]
    Foreign,
    /// A format that this build does not read.
    #[error(
        "it is written in version {0} of the format and this hydrant reads version {VERSION}: use the hydrant that wrote it"
    )]
    Version(u16),
    /// It ends too early.
    #[error("it ends at offset {offset}{}: whoever recorded was killed, is still at it, or had no room to write",
        if *.within { ", within a record" } else { ", without the record that says it is whole" })]
    Truncated {
        /// The file's length in bytes.
        offset: u64,
        /// Whether that is within a record.
        within: bool,
    },
    /// Its bytes are not those that were written.
    #[error("it is damaged at offset {offset}: {what}")]
    Damaged {
        /// Of the frame, in bytes from the beginning.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// No core can be made for it.
    #[error("no core can be made for it: {0}")]
    Core(#[from] Box<RunError>),
    /// The core that it asks for does not fit on this machine.
    #[error("its limits ask for {needed} MiB of memory, and this machine has {there}")]
    Memory {
        /// What the tables would take, in MiB.
        needed: u64,
        /// The machine's memory, in MiB.
        there: u64,
    },
}

/// Why a run cannot be recorded, or not to its end.
#[derive(Debug, thiserror::Error)]
#[error("cannot record to {}: {why}", path.display())]
pub struct TapeError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub why: io::Error,
}
