//! Recording file of a backend.
//!
//! Buffered records are handed to the system before the server becomes idle, so they survive a killed launcher. On several nodes
//! each node has a recording of its own: messages of neighbours are inputs, so each plays alone.
//! [`Limits::output_room`](hydrant_core::Limits::output_room) makes the room for a message the same in a replay.

use std::cell::{Cell, RefCell};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{Backend, BackendError, Input, Limits, Output, Time};
use hydrant_reactor::file::{self, Access};
use hydrant_reactor::printable;

use crate::checker::{error_record, result_record};
use crate::{WriteError, Writer};

/// Size of the write buffer in bytes.
const BUFFER: usize = 64 * 1024;

/// File that a server is recorded to.
///
/// A write error ends the recording, and [`take_error`](RecordingFile::take_error) returns it. Dropping the file ends the
/// recording. An error at that point is printed to standard error.
#[derive(Debug)]
pub struct RecordingFile {
    path: PathBuf,
    /// `None` after the recording has ended.
    writer: RefCell<Option<Writer<BufWriter<file::Output>>>>,
    /// Maximum length in bytes.
    max: u64,
    /// The last record is [`Record::Silence`]. Another one would not add to it.
    silent: Cell<bool>,
    error: RefCell<Option<WriteError>>,
}

impl RecordingFile {
    /// Creates the file, which only this user can read, and writes [`Record::Begin`]. An existing file is replaced.
    ///
    /// # Errors
    /// [`WriteError`] if the file cannot be created or written.
    pub fn create(
        path: &Path,
        program: &str,
        limits: &Limits,
        seed: u32,
    ) -> Result<Rc<RecordingFile>, WriteError> {
        RecordingFile::bounded(path, program, limits, seed, u64::MAX)
    }

    /// Creates the file as [`RecordingFile::create`] does. The recording ends with an error when it would be longer than `max`
    /// bytes.
    ///
    /// # Errors
    /// [`WriteError`] if the file cannot be created or written.
    pub fn bounded(
        path: &Path,
        program: &str,
        limits: &Limits,
        seed: u32,
        max: u64,
    ) -> Result<Rc<RecordingFile>, WriteError> {
        let begun = create_file(path).and_then(|mut writer| {
            writer.write(&Record::Begin { program, limits: *limits, seed })?;
            Ok(writer)
        });
        let writer = begun.map_err(|source| WriteError { path: path.to_owned(), source })?;
        Ok(Rc::new(RecordingFile {
            path: path.to_owned(),
            writer: RefCell::new(Some(writer)),
            max,
            silent: Cell::new(false),
            error: RefCell::new(None),
        }))
    }

    /// Returns the error that ended the recording, once.
    pub fn take_error(&self) -> Option<WriteError> {
        self.error.take()
    }

    /// Returns the size of the recording in bytes, or none after an error.
    pub fn size(&self) -> Option<u64> {
        self.writer.borrow().as_ref().map(Writer::len)
    }

    /// Passes an input to a backend, and records it with its result.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn handle(
        &self,
        backend: &mut (impl Backend + ?Sized),
        now: Time,
        input: Input<'_>,
    ) -> Result<Consumed, BackendError> {
        // Before the backend handles it, so that the input of a crash is recorded.
        self.write(&Record::Input { now, input });
        let result = backend.handle(now, input);
        let poll_at = backend.poll_at();
        self.write(&result_record(&result, poll_at, &mut String::new()));
        result
    }

    /// Takes the next output of a backend and records it.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn poll<'b>(
        &self,
        backend: &mut (impl Backend + ?Sized),
        buf: &'b mut [u8],
    ) -> Result<Option<Output<'b>>, BackendError> {
        let output = backend.poll(buf);
        let mut text = String::new();
        self.write(&match &output {
            Ok(Some(output)) => Record::Output(*output),
            Ok(None) => Record::Silence,
            Err(error) => error_record(error, &mut text),
        });
        output
    }

    /// Writes the next record of a backend elsewhere. The buffer is flushed at every [`Record::Silence`], so that a killed host
    /// loses at most the records since its last poll.
    pub fn write(&self, record: &Record<'_>) {
        let silent = matches!(record, Record::Silence);
        if self.silent.replace(silent) && silent {
            return;
        }
        self.attempt(|writer| {
            writer.write(record)?;
            if writer.len() > self.max {
                let why = format!("the recording has reached its maximum of {} MiB", self.max >> 20);
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
            }
            if silent { writer.flush() } else { Ok(()) }
        });
    }

    /// Calls `act`. An error ends the recording and drops the buffer, because writing it again would fail again.
    fn attempt(&self, act: impl FnOnce(&mut Writer<BufWriter<file::Output>>) -> io::Result<()>) {
        let mut slot = self.writer.borrow_mut();
        let Some(writer) = slot.as_mut() else { return };
        if let Err(source) = act(writer) {
            *self.error.borrow_mut() = Some(WriteError { path: self.path.clone(), source });
            let Some(writer) = slot.take() else { return };
            let (file, _unwritten) = writer.into_inner().into_parts();
            drop(file);
        }
    }
}

impl Drop for RecordingFile {
    fn drop(&mut self) {
        self.attempt(Writer::finish);
        if let Some(error) = self.error.take() {
            // Standard error may be closed.
            let error = error.to_string();
            let _ = writeln!(io::stderr(), "hydrant: {}; the recording is incomplete", printable(&error));
        }
    }
}

/// Creates a recording in a file that only this user can read, without [`Record::Begin`]. An existing file is replaced.
///
/// # Errors
/// An I/O error.
pub fn create_file(path: &Path) -> io::Result<Writer<BufWriter<file::Output>>> {
    let file = file::Output::create(path, Access::Private)?;
    Writer::new(BufWriter::with_capacity(BUFFER, file))
}
