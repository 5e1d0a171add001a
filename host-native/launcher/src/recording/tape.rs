//! A file that a run is recorded to, and the core that does so.

use std::cell::RefCell;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hydrant_core::server::{Consumed, Record};
use hydrant_core::{Backend, Input, JobId, Limits, Output, Time};

use super::check::{failed, handled};
use super::{TapeError, Writer};
use crate::border::{AnyBackend, BackendError};

/// What is held back, in bytes.
const BUFFER: usize = 64 * 1024;

/// A file that is recorded to. When the last one lets go of it, the recording ends.
#[derive(Debug)]
pub(crate) struct Tape {
    path: PathBuf,
    /// Missing once the recording has ended.
    writer: RefCell<Option<Writer<BufWriter<File>>>>,
    /// Why it ended early, until somebody has said so.
    trouble: RefCell<Option<TapeError>>,
}

impl Tape {
    /// Begins a recording in a file of the user's alone, in place of what is there.
    pub(crate) fn create(path: &Path, limits: &Limits, seed: u32) -> Result<Rc<Tape>, TapeError> {
        let begun = begin(path).and_then(|mut writer| {
            let program = concat!("hydrant ", env!("CARGO_PKG_VERSION"));
            writer.write(&Record::Begin { program, limits: *limits, seed })?;
            Ok(writer)
        });
        let writer = begun.map_err(|why| TapeError { path: path.to_owned(), why })?;
        Ok(Rc::new(Tape {
            path: path.to_owned(),
            writer: RefCell::new(Some(writer)),
            trouble: RefCell::new(None),
        }))
    }

    /// What there is to tell the user: once, that the recording had to end.
    pub(crate) fn complaint(&self) -> Option<String> {
        self.trouble.take().map(|trouble| format!("{trouble}; the recording ends early, the job goes on"))
    }

    /// Whatever went before a silence is handed to the system, so that nothing is missing when the launcher is killed.
    fn write(&self, record: &Record<'_>) {
        self.attempt(|writer| {
            writer.write(record)?;
            if matches!(record, Record::Silence) { writer.flush() } else { Ok(()) }
        });
    }

    /// Where it fails, the recording is over and what was held back is dropped: to try again would fail again.
    fn attempt(&self, act: impl FnOnce(&mut Writer<BufWriter<File>>) -> io::Result<()>) {
        let mut slot = self.writer.borrow_mut();
        let Some(writer) = slot.as_mut() else { return };
        if let Err(why) = act(writer) {
            *self.trouble.borrow_mut() = Some(TapeError { path: self.path.clone(), why });
            let Some(writer) = slot.take() else { return };
            let (file, _unwritten) = writer.into_inner().into_parts();
            drop(file);
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        self.attempt(Writer::finish);
        if let Some(trouble) = self.trouble.take() {
            // Where nobody reads it, nobody needs it.
            let _ = writeln!(io::stderr(), "hydrant: {trouble}; the recording is not whole");
        }
    }
}

/// Begins a recording in a file of the user's alone, in place of what is there, without its first record.
pub(crate) fn begin(path: &Path) -> io::Result<Writer<BufWriter<File>>> {
    Writer::new(BufWriter::with_capacity(BUFFER, open(path)?))
}

/// A file that nobody else may read, also where it was there before with other rights.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// A core that takes notes of another one.
pub(crate) struct Recorder<'s> {
    core: Box<AnyBackend<'s>>,
    tape: Rc<Tape>,
}

impl<'s> Recorder<'s> {
    /// Records that core, which nobody has told anything yet.
    pub(crate) fn new(core: Box<AnyBackend<'s>>, tape: Rc<Tape>) -> Recorder<'s> {
        Recorder { core, tape }
    }
}

impl Backend for Recorder<'_> {
    type Error = BackendError;

    fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, BackendError> {
        // Before the core sees it, so that it is known what went before a crash.
        self.tape.write(&Record::Input { now, input });
        let made = self.core.handle(now, input);
        self.tape.write(&handled(&made, self.core.poll_at(), &mut String::new()));
        made
    }

    fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, BackendError> {
        let said = self.core.poll(buf);
        let mut text = String::new();
        self.tape.write(&match &said {
            Ok(Some(output)) => Record::Output(*output),
            Ok(None) => Record::Silence,
            Err(error) => failed(error, &mut text),
        });
        said
    }

    fn poll_at(&self) -> Option<Time> {
        self.core.poll_at()
    }

    fn limits(&self) -> &Limits {
        self.core.limits()
    }

    fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.core.kvs_space(job)
    }
}
