//! Recordings of a PMI server: all inputs, results and outputs of one server, in a file that can be replayed.
//!
//! A file is [`MAGIC`], the [`VERSION`] as two bytes, and frames up to its end. Numbers outside of records are
//! little-endian. A frame is
//!
//! | bytes | content |
//! |---|---|
//! | 4 | length of the record, at most [`RECORD_MAX`] |
//! | 4 | CRC-32 of the record (that of zlib) |
//! | length | a [`Record`] as postcard |
//!
//! The first record is [`Record::Begin`] and the last is [`Record::End`]. A file without [`Record::End`] is truncated. Its
//! records are valid up to there.
//!
//! A [`RecordingFile`] records a [`Backend`](hydrant_core::Backend). [`replay`] reads a recording, prints
//! it as a [`Table`] and replays it with a [`Checker`]. A [`Journal`] is a recording in memory, with which another backend
//! catches up.
//!
//! ```
//! use std::io;
//!
//! use hydrant_core::{Input, Limits, Time};
//! use hydrant_record::{Reader, Record, Summary, Table, Writer, replay};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file)?;
//! writer.write(&Record::Begin { program: "example 1.0", limits: Limits::NONE, seed: 7 })?;
//! writer.write(&Record::Input { now: Time(20), input: Input::Timeout })?;
//! writer.finish()?;
//!
//! let mut reader = Reader::new(&file[..])?;
//! assert_eq!(reader.begin().program, "example 1.0");
//! let mut out = Vec::new();
//! let table = Table::new(&mut out, None, reader.begin());
//! let mut summary = Summary::default();
//! replay(&mut reader, None, Some(table), &mut summary)?;
//! assert_eq!((summary.inputs, summary.outputs), (1, 0));
//! assert!(String::from_utf8(out)?.contains("timeout"));
//! # Ok(())
//! # }
//! ```

mod checker;
mod describe;
mod error;
mod journal;
mod pmix;
mod reader;
mod recording_file;
mod replay;
mod table;
#[cfg(test)]
mod tests;
mod writer;

pub use checker::{Checker, Difference};
pub use describe::describe;
pub use error::{RecordError, WriteError};
pub use hydrant_core::server::Record;
pub use journal::Journal;
pub use pmix::Dialect;
pub use reader::{Begin, Entry, Reader};
pub use recording_file::{RecordingFile, create_file};
pub use replay::{Summary, replay};
pub use table::Table;
pub use writer::Writer;

/// First bytes of a file. The first one is not text, and the last one shows whether line ends were translated.
pub const MAGIC: [u8; 8] = *b"\x89hydrec\n";
/// Version of the format. It changes when the encoding of a record changes, which includes every new or moved field or
/// variant of an input, an output or a limit.
pub const VERSION: u16 = 1;
/// Maximum length of a record in bytes. It is more than any host passes to a server at once.
pub const RECORD_MAX: usize = 16 << 20;

/// Bytes before the first frame.
const PREAMBLE: usize = MAGIC.len() + 2;
/// Bytes before a record.
const FRAME: usize = 8;
