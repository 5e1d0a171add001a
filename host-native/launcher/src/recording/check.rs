//! Whether a core says again what was recorded.

use hydrant_core::Time;
use hydrant_core::server::{Consumed, Record};

use super::Entry;
use crate::border::{AnyBackend, BackendError, output_buffer};

/// Plays a recording to a core and compares what it says.
pub struct Check<'c> {
    core: Box<AnyBackend<'c>>,
    /// Where the core writes to.
    buf: Box<[u8]>,
    /// What it made of the last input.
    made: Option<Result<Consumed, BackendError>>,
    inputs: u64,
    outputs: u64,
}

/// The first thing that a core says otherwise than it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "after input {input}, at offset {offset}, this core does otherwise than was recorded\n  recorded: {recorded}\n  \
     this one: {played}"
)]
pub struct Difference {
    /// The number of the input, from 1; 0 before the first.
    pub input: u64,
    /// Where the record stands that differs, in bytes from the beginning.
    pub offset: u64,
    /// What it says.
    pub recorded: String,
    /// What the core said instead.
    pub played: String,
}

impl<'c> Check<'c> {
    /// For a core that nobody has told anything yet, made with the limits and the seed of [`Record::Begin`].
    pub(crate) fn new(core: Box<AnyBackend<'c>>) -> Check<'c> {
        let buf = output_buffer(core.limits());
        Check { core, buf, made: None, inputs: 0, outputs: 0 }
    }

    /// How many inputs have been played.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// How many outputs have come, each as it was recorded.
    pub fn outputs(&self) -> u64 {
        self.outputs
    }

    /// Plays the next record.
    ///
    /// # Errors
    /// The core says something else. There is no sense in playing on.
    pub fn play(&mut self, entry: &Entry<'_>) -> Result<(), Difference> {
        let mut text = String::new();
        let played = match entry.record {
            Record::Begin { .. } | Record::End { .. } => return Ok(()),
            Record::Input { now, input } => {
                self.inputs += 1;
                self.made = Some(self.core.handle(now, input));
                return Ok(());
            }
            Record::Took { .. } | Record::Refused(_) | Record::Broke { .. } if self.made.is_some() => {
                let wake = self.core.poll_at();
                self.made.take().map_or(Record::Silence, |made| handled(&made, wake, &mut text))
            }
            Record::Output(_) | Record::Silence | Record::Broke { .. } => match self.core.poll(&mut self.buf)
            {
                Ok(Some(output)) => Record::Output(output),
                Ok(None) => Record::Silence,
                Err(error) => failed(&error, &mut text),
            },
            Record::Took { .. } | Record::Refused(_) => Record::Silence,
        };
        if played != entry.record {
            return Err(Difference {
                input: self.inputs,
                offset: entry.offset,
                recorded: said(&entry.record),
                played: said(&played),
            });
        }
        self.outputs += u64::from(matches!(played, Record::Output(_)));
        Ok(())
    }
}

/// What a core made of an input, as a record, which may borrow from `text`.
pub(super) fn handled<'t>(
    made: &Result<Consumed, BackendError>,
    wake: Option<Time>,
    text: &'t mut String,
) -> Record<'t> {
    match made {
        Ok(consumed) => Record::Took { consumed: *consumed, wake },
        Err(error) => failed(error, text),
    }
}

/// A core's error as a record.
pub(super) fn failed<'t>(error: &BackendError, text: &'t mut String) -> Record<'t> {
    match error.fault() {
        Some(fault) => Record::Refused(fault),
        None => {
            *text = error.to_string();
            Record::Broke { why: text }
        }
    }
}

/// A record for a reader.
fn said(record: &Record<'_>) -> String {
    crate::replay::describe(record)
}
