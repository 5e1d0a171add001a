//! Replay of records on a backend, with comparison.

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{Backend, BackendError, Time};

use crate::{Entry, describe};

/// Replays a recording on a backend and compares its results and outputs with the recorded ones.
pub struct Checker<'b> {
    backend: &'b mut (dyn Backend + 'b),
    /// Buffer for outputs.
    buf: Box<[u8]>,
    /// Result of the last input, until it is compared.
    result: Option<Result<Consumed, BackendError>>,
    inputs: u64,
    outputs: u64,
}

/// First difference between a recording and its replay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("difference after input {input}, at offset {offset}\n  recorded: {recorded}\n  replayed: {replayed}")]
pub struct Difference {
    /// Number of the last input, from 1. 0 before the first input.
    pub input: u64,
    /// Offset in bytes of the record that differs.
    pub offset: u64,
    /// Description of that record.
    pub recorded: String,
    /// Description of the backend's result or output.
    pub replayed: String,
}

impl<'b> Checker<'b> {
    /// Returns a checker for a new backend with the limits and the seed of [`Record::Begin`].
    pub fn new(backend: &'b mut (dyn Backend + 'b)) -> Checker<'b> {
        let buf = vec![0; backend.limits().output_room()].into();
        Checker { backend, buf, result: None, inputs: 0, outputs: 0 }
    }

    /// Returns the number of replayed inputs.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// Returns the number of outputs that equal the recorded ones.
    pub fn outputs(&self) -> u64 {
        self.outputs
    }

    /// Replays the next record.
    ///
    /// # Errors
    /// [`Difference`] if the backend's result or output is not the recorded one. Further records cannot be replayed.
    pub fn replay(&mut self, entry: &Entry<'_>) -> Result<(), Difference> {
        let mut text = String::new();
        let replayed = match entry.record {
            Record::Begin { .. } | Record::End { .. } => return Ok(()),
            Record::Input { now, input } => {
                self.inputs += 1;
                self.result = Some(self.backend.handle(now, input));
                return Ok(());
            }
            Record::Took { .. } | Record::Refused(_) | Record::Broke { .. } if self.result.is_some() => {
                let poll_at = self.backend.poll_at();
                let result = self.result.take();
                result.map_or(Record::Silence, |result| result_record(&result, poll_at, &mut text))
            }
            Record::Output(_) | Record::Silence | Record::Broke { .. } => {
                match self.backend.poll(&mut self.buf) {
                    Ok(Some(output)) => Record::Output(output),
                    Ok(None) => Record::Silence,
                    Err(error) => error_record(&error, &mut text),
                }
            }
            Record::Took { .. } | Record::Refused(_) => Record::Silence,
        };
        if replayed != entry.record {
            return Err(Difference {
                input: self.inputs,
                offset: entry.offset,
                recorded: describe(&entry.record),
                replayed: describe(&replayed),
            });
        }
        self.outputs += u64::from(matches!(replayed, Record::Output(_)));
        Ok(())
    }
}

/// Returns the record of an input's result, which may borrow from `text`.
pub(crate) fn result_record<'t>(
    result: &Result<Consumed, BackendError>,
    poll_at: Option<Time>,
    text: &'t mut String,
) -> Record<'t> {
    match result {
        Ok(consumed) => Record::Took { consumed: *consumed, wake: poll_at },
        Err(error) => error_record(error, text),
    }
}

/// Returns the record of a backend's error, which may borrow from `text`.
pub(crate) fn error_record<'t>(error: &BackendError, text: &'t mut String) -> Record<'t> {
    match error.fault() {
        Some(fault) => Record::Refused(fault),
        None => {
            *text = error.to_string();
            Record::Broke { why: text }
        }
    }
}
