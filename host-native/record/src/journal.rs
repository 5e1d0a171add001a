//! Journal of a backend in memory, with which another backend catches up.

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{Backend, BackendError, Input, Output, Time};

use crate::{Checker, Difference, Entry};

/// Inputs that a backend has taken since another one has [caught up](Journal::catch_up), or since the journal was last
/// [taken](Journal::take), with the results and outputs.
///
/// Calls that have failed are not part of it: they have not changed the state of a server.
///
/// ```
/// use hydrant_core::storage::FixedStorage;
/// use hydrant_core::{Input, Limits, Server, Time, fixed_storage};
/// use hydrant_record::Journal;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut first: fixed_storage!(Limits::NONE) = FixedStorage::new();
/// let mut second: fixed_storage!(Limits::NONE) = FixedStorage::new();
/// let mut server = Server::new(Limits::NONE, first.lend(), 7)?;
/// let mut spare = Server::new(Limits::NONE, second.lend(), 7)?;
///
/// let mut journal = Journal::default();
/// journal.handle(&mut server, Time(20), Input::Timeout)?;
/// assert!(journal.len() > 0);
/// journal.catch_up(&mut spare)?;
/// assert_eq!(journal.len(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Journal {
    /// [`Record`]s as postcard, one after another.
    records: Vec<u8>,
    /// The last record is [`Record::Silence`]. Another one would not add to it.
    silent: bool,
}

impl Journal {
    /// Returns the size of the journal in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty journal is no special case")]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Passes an input to a backend. Adds it with its result, unless it fails.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn handle(
        &mut self,
        backend: &mut (impl Backend + ?Sized),
        now: Time,
        input: Input<'_>,
    ) -> Result<Consumed, BackendError> {
        let consumed = backend.handle(now, input)?;
        self.add(&Record::Input { now, input });
        self.add(&Record::Took { consumed, wake: backend.poll_at() });
        Ok(consumed)
    }

    /// Takes the next output of a backend. Adds it, unless the backend fails.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn poll<'b>(
        &mut self,
        backend: &mut (impl Backend + ?Sized),
        buf: &'b mut [u8],
    ) -> Result<Option<Output<'b>>, BackendError> {
        let output = backend.poll(buf)?;
        self.add(&output.map_or(Record::Silence, Record::Output));
        Ok(output)
    }

    /// Has another backend take the inputs, compares its results and outputs, and empties the journal.
    ///
    /// # Errors
    /// [`Difference`] if a result or an output is not that of the first backend. The other one cannot take its place.
    pub fn catch_up(&mut self, backend: &mut dyn Backend) -> Result<(), Difference> {
        let mut checker = Checker::new(backend);
        let mut rest = &self.records[..];
        while !rest.is_empty() {
            let offset = (self.records.len() - rest.len()) as u64;
            let (record, behind) = postcard::take_from_bytes(rest).expect("the journal has encoded it");
            checker.replay(&Entry { offset, record })?;
            rest = behind;
        }
        self.records.clear();
        Ok(())
    }

    /// Empties the journal. Returns its [`Record`]s as postcard, one after another.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.records)
    }

    fn add(&mut self, record: &Record<'_>) {
        let silent = matches!(record, Record::Silence);
        if std::mem::replace(&mut self.silent, silent) && silent {
            return;
        }
        let records = std::mem::take(&mut self.records);
        self.records =
            postcard::to_extend(record, records).expect("records are serializable, a vector has room");
    }
}
