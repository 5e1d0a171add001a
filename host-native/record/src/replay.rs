//! Replay of a whole recording.

use std::io::Read;

use hydrant_core::server::Record;

use crate::{Checker, Difference, Reader, RecordError, Table};

/// Counters of a replay and the result of its check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inputs that were read.
    pub inputs: u64,
    /// Outputs that were read.
    pub outputs: u64,
    /// First difference between recording and replay.
    pub difference: Option<Box<Difference>>,
}

/// Reads a recording to its end, replays it with `checker` and prints it to `table`.
///
/// Counts and the first difference are added to `summary`, also if an error follows. After a difference the rest is read and
/// printed, but not replayed.
///
/// # Errors
/// [`RecordError`] if the recording cannot be read to its end.
pub fn replay<R: Read>(
    reader: &mut Reader<R>,
    mut checker: Option<Checker<'_>>,
    mut table: Option<Table<'_>>,
    summary: &mut Summary,
) -> Result<(), RecordError> {
    while let Some(entry) = reader.next_record()? {
        summary.inputs += u64::from(matches!(entry.record, Record::Input { .. }));
        summary.outputs += u64::from(matches!(entry.record, Record::Output(_)));
        if let Some(table) = &mut table {
            table.print(&entry.record);
        }
        if let Some(Err(difference)) = checker.as_mut().map(|checker| checker.replay(&entry)) {
            summary.difference = Some(Box::new(difference));
            checker = None;
        }
    }
    Ok(())
}
