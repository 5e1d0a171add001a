//! Replay of records on a backend, with comparison.

use std::fmt::Display;

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{Backend, Fault, Time};

use crate::{Entry, describe};

/// Replays a recording on a backend and compares its results and outputs with the recorded ones.
pub struct Checker<'b, E> {
    backend: Box<dyn Backend<Error = E> + 'b>,
    fault_of: fn(&E) -> Option<Fault>,
    /// Buffer for outputs.
    buf: Box<[u8]>,
    /// Result of the last input, until it is compared.
    result: Option<Result<Consumed, E>>,
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

impl<'b, E: Display> Checker<'b, E> {
    /// Returns a checker for a new backend with the limits and the seed of [`Record::Begin`].
    ///
    /// `fault_of` returns the server's [`Fault`] in an error. A recording distinguishes it from other failures.
    pub fn new(
        backend: Box<dyn Backend<Error = E> + 'b>,
        fault_of: fn(&E) -> Option<Fault>,
    ) -> Checker<'b, E> {
        let buf = vec![0; backend.limits().output_room()].into();
        Checker { backend, fault_of, buf, result: None, inputs: 0, outputs: 0 }
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
                result.map_or(Record::Silence, |result| {
                    result_record(&result, poll_at, self.fault_of, &mut text)
                })
            }
            Record::Output(_) | Record::Silence | Record::Broke { .. } => {
                match self.backend.poll(&mut self.buf) {
                    Ok(Some(output)) => Record::Output(output),
                    Ok(None) => Record::Silence,
                    Err(error) => error_record(&error, self.fault_of, &mut text),
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
pub(crate) fn result_record<'t, E: Display>(
    result: &Result<Consumed, E>,
    poll_at: Option<Time>,
    fault_of: fn(&E) -> Option<Fault>,
    text: &'t mut String,
) -> Record<'t> {
    match result {
        Ok(consumed) => Record::Took { consumed: *consumed, wake: poll_at },
        Err(error) => error_record(error, fault_of, text),
    }
}

/// Returns the record of a backend's error, which may borrow from `text`.
pub(crate) fn error_record<'t, E: Display>(
    error: &E,
    fault_of: fn(&E) -> Option<Fault>,
    text: &'t mut String,
) -> Record<'t> {
    match fault_of(error) {
        Some(fault) => Record::Refused(fault),
        None => {
            *text = error.to_string();
            Record::Broke { why: text }
        }
    }
}
