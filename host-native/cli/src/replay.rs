//! `hydrant replay`: prints a recording and checks it against this build's server.

use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hydrant_core::Limits;
use hydrant_core::storage::Layout;
use hydrant_driver::installed_memory;
use hydrant_reactor::file::{Input, Taken};
use hydrant_record::{Checker, Reader, RecordError, Summary, Table};
use hydrant_run::RunError;
use hydrant_run::messages::{self, Warnings};
use hydrant_run::plan::Plugin;
use hydrant_run::{BackendBuilder, read_plugin};

use crate::timeline::PREFIX;
use crate::{timeline, value};

/// Options of `hydrant replay`.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Recording of 'hydrant run --record FILE'
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Show messages of this rank and of its job only
    ///
    /// With spawned jobs, this selects the rank of this number in each job. The check covers all messages.
    #[arg(long, value_name = "R", value_parser = value::within(0..=u32::MAX))]
    pub rank: Option<u32>,

    /// Print the result of the check only
    #[arg(short, long)]
    pub quiet: bool,

    /// Show the recording without checking it
    #[arg(long, conflicts_with_all = ["quiet", "sandbox"])]
    pub no_check: bool,

    /// Check the PMI server in a WebAssembly sandbox instead of the built-in one
    ///
    /// FILE is the plugin. Default: the file in the variable HYDRANT_WASM, or hydrant.wasm in the directory of hydrant or in
    /// ../lib from there.
    #[arg(long, value_name = "FILE", value_parser = value::plugin())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub sandbox: Option<Plugin>,

    /// Timeline instead of messages and check.
    #[command(flatten)]
    pub timeline: timeline::Options,
}

/// A recording could not be replayed to its end.
#[derive(Debug, thiserror::Error)]
#[error("{}: {kind}", file.display())]
pub struct ReplayError {
    /// The recording.
    pub file: PathBuf,
    /// Result of the check up to there.
    pub summary: Summary,
    /// Error of the step.
    #[source]
    pub kind: ReplayErrorKind,
}

/// Error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayErrorKind {
    /// It cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No server can be created for it.
    #[error("cannot create a server: {0}")]
    Server(Box<RunError>),
    /// Its server does not fit into this machine's memory.
    #[error("the server needs {needed} MiB of memory, and this machine has {installed} MiB")]
    Memory {
        /// Memory of the server's tables in MiB.
        needed: u64,
        /// Memory of this machine in MiB.
        installed: u64,
    },
}

impl From<RunError> for ReplayErrorKind {
    fn from(error: RunError) -> ReplayErrorKind {
        ReplayErrorKind::Server(Box::new(error))
    }
}

impl ReplayError {
    /// Remedy, if there is a specific one.
    fn hint(&self) -> Option<String> {
        match &self.kind {
            ReplayErrorKind::Server(error) => error.hint(),
            _ => None,
        }
    }
}

/// Runs the command. The exit code is 0 if there was neither an error nor a difference, and 1 otherwise.
pub fn main(options: &Options) -> ExitCode {
    if options.timeline.any() {
        return timeline::main(&options.file, &options.timeline);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let result = replay(options, &mut out);
    let (summary, error) = match &result {
        Ok(summary) => (summary, None),
        Err(error) => (&error.summary, Some(error)),
    };
    // Without a single input, only the error is printed.
    let verdict = (error.is_none() || summary.inputs > 0).then(|| verdict(options, summary, error.is_some()));
    let written = verdict.map_or(Ok(()), |verdict| writeln!(out, "{verdict}")).and_then(|()| out.flush());
    // A closed pipe, as of `| head`, is not an error.
    let write_error = written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    if let Some(error) = &write_error {
        messages::print(PREFIX, format_args!("cannot write to standard output: {error}"));
    }
    if let Some(error) = error {
        messages::print_error(PREFIX, error, error.hint());
    }
    if let Some(difference) = &summary.difference {
        messages::print(PREFIX, format_args!("{}: {difference}", options.file.display()));
    }
    match (error, &summary.difference, write_error) {
        (None, None, None) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn verdict(options: &Options, summary: &Summary, truncated: bool) -> String {
    let Summary { inputs, outputs, difference } = summary;
    let result = match difference {
        _ if options.no_check => "not checked",
        Some(_) => "not all the same",
        None if truncated => "all the same up to there",
        None => "all the same",
    };
    format!("{inputs} inputs, {outputs} outputs, {result}")
}

/// Replays a recording on the built-in server without printing it.
///
/// # Errors
/// [`ReplayError`] if the recording cannot be replayed to its end. A difference is not an error.
pub fn check(file: &Path) -> Result<Summary, ReplayError> {
    replay(&Options { file: file.to_owned(), quiet: true, ..Options::default() }, &mut io::sink())
}

/// Prints a recording to `out` and replays it. A write error ends the printing only.
///
/// # Errors
/// [`ReplayError`] if the recording cannot be replayed to its end. A difference is not an error.
pub fn replay(options: &Options, out: &mut dyn Write) -> Result<Summary, ReplayError> {
    let mut summary = Summary::default();
    match run(options, out, &mut summary) {
        Ok(()) => Ok(summary),
        Err(kind) => Err(ReplayError { file: options.file.clone(), summary, kind }),
    }
}

fn run(options: &Options, out: &mut dyn Write, summary: &mut Summary) -> Result<(), ReplayErrorKind> {
    let file = Input::open(&options.file, Taken::Streams).map_err(|error| RecordError::Read(error.into()))?;
    let mut reader = Reader::new(BufReader::new(file))?;
    let (limits, seed) = (reader.begin().limits, reader.begin().seed);
    let (mut storage, mut backend);
    let checker = match options.no_check {
        true => None,
        false => {
            check_memory(&limits)?;
            let plugin = options.sandbox.as_ref().map(|plugin| read_plugin(plugin, None)).transpose()?;
            let builder = BackendBuilder::new(plugin.as_ref(), &Warnings::default())?;
            storage = builder.storage(&limits, false)?;
            backend = builder.build_backend(limits, seed, &mut storage)?;
            Some(Checker::new(&mut *backend))
        }
    };
    let table = (!options.quiet).then(|| Table::new(out, options.rank, reader.begin()));
    Ok(hydrant_record::replay(&mut reader, checker, table, summary)?)
}

/// Checks that the machine has memory for tables of these limits, which come from an untrusted file.
fn check_memory(limits: &Limits) -> Result<(), ReplayErrorKind> {
    let installed = installed_memory();
    let needed = Layout::checked(limits).map_or(u64::MAX, |layout| layout.bytes() as u64);
    if needed > installed {
        return Err(ReplayErrorKind::Memory { needed: needed >> 20, installed: installed >> 20 });
    }
    Ok(())
}
