//! `hydrant replay`: shows what a recording holds, and whether this build's core says the same again.

mod describe;
mod show;

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hydrant_core::Limits;
use hydrant_core::storage::Layout;

use crate::border::{Maker, read_plugin};
use crate::cli::value;
use crate::plan::Plugin;
use crate::recording::{Check, Difference, Reader, Record, RecordingError};
use crate::storage::installed_memory;
pub(crate) use describe::describe;
use show::Show;

/// What is to be shown.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What 'hydrant run --record FILE' wrote
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Show only what concerns this rank, and its job as a whole
    ///
    /// Where ranks have spawned jobs, it is the rank of that number in each of them. Everything is checked all the same.
    #[arg(long, value_name = "R", value_parser = value::within(0..=u32::MAX))]
    pub rank: Option<u32>,

    /// Show nothing but the result of the check
    #[arg(short, long)]
    pub quiet: bool,

    /// Only show what was recorded
    #[arg(long, conflicts_with_all = ["quiet", "sandbox"])]
    pub no_check: bool,

    /// Check the core in a sandbox instead of the one that is built in
    ///
    /// FILE is the core as a WebAssembly plugin; without it, the file that the variable HYDRANT_WASM names, or hydrant.wasm
    /// beside hydrant or in ../lib from there.
    #[arg(long, value_name = "FILE", value_parser = value::plugin())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub sandbox: Option<Plugin>,
}

/// How far a recording was read, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Inputs that were read.
    pub inputs: u64,
    /// Outputs that were read.
    pub outputs: u64,
    /// The first answer of the core that is another one.
    pub difference: Option<Box<Difference>>,
}

/// A recording that could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct ReplayError {
    /// The recording.
    pub file: PathBuf,
    /// What came of it until there.
    pub played: Played,
    /// What is wrong with it.
    #[source]
    pub why: RecordingError,
}

/// Runs the command: 0 when the core did as it was recorded, else 1.
pub fn main(options: &Options) -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    let result = replay(options, &mut out);
    let (played, error) = match &result {
        Ok(played) => (played, None),
        Err(error) => (&error.played, Some(error)),
    };
    // Of a file of which nothing could be played there is nothing to say but why.
    let verdict = (error.is_none() || played.inputs > 0).then(|| verdict(options, played, error.is_some()));
    let shown = verdict.map_or(Ok(()), |verdict| writeln!(out, "{verdict}")).and_then(|()| out.flush());
    // A reader that has seen enough, `| head`, is no error.
    let unshown = shown.err().filter(|why| why.kind() != io::ErrorKind::BrokenPipe);
    if let Some(why) = &unshown {
        let _ = writeln!(io::stderr(), "hydrant replay: cannot write to standard output: {why}");
    }
    if let Some(error) = error {
        let _ = writeln!(io::stderr(), "hydrant replay: {error}");
    }
    if let Some(difference) = &played.difference {
        let _ = writeln!(io::stderr(), "hydrant replay: {}: {difference}", options.file.display());
    }
    match (error, &played.difference, unshown) {
        (None, None, None) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn verdict(options: &Options, played: &Played, cut: bool) -> String {
    let Played { inputs, outputs, difference } = played;
    let result = match difference {
        _ if options.no_check => "not checked",
        Some(_) => "not all the same",
        None if cut => "all the same up to there",
        None => "all the same",
    };
    format!("{inputs} inputs, {outputs} outputs, {result}")
}

/// Plays a recording to the core that is built in and shows nothing.
///
/// # Errors
/// It cannot be read to its end.
pub fn check(file: &Path) -> Result<Played, ReplayError> {
    replay(&Options { file: file.to_owned(), quiet: true, ..Options::default() }, &mut io::sink())
}

/// Plays a recording as the options say and shows it. Where nobody reads what is shown, it is checked all the same.
///
/// # Errors
/// It cannot be read to its end.
pub fn replay(options: &Options, out: &mut dyn Write) -> Result<Played, ReplayError> {
    let mut played = Played::default();
    match play(options, out, &mut played) {
        Ok(()) => Ok(played),
        Err(why) => Err(ReplayError { file: options.file.clone(), played, why }),
    }
}

fn play(options: &Options, out: &mut dyn Write, played: &mut Played) -> Result<(), RecordingError> {
    let mut reader = Reader::new(BufReader::new(File::open(&options.file)?))?;
    let (limits, seed) = (reader.begin().limits, reader.begin().seed);
    let mut slabs;
    let mut check = match options.no_check {
        true => None,
        false => {
            fits(&limits)?;
            let plugin = options.sandbox.as_ref().map(read_plugin).transpose().map_err(Box::new)?;
            let maker = Maker::new(plugin.as_ref()).map_err(Box::new)?;
            slabs = maker.slabs(&limits, false).map_err(Box::new)?;
            Some(Check::new(maker.core(limits, seed, &mut slabs).map_err(Box::new)?))
        }
    };
    let mut show = (!options.quiet).then(|| Show::new(out, options.rank, reader.begin()));
    while let Some(entry) = reader.next_record()? {
        played.inputs += u64::from(matches!(entry.record, Record::Input { .. }));
        played.outputs += u64::from(matches!(entry.record, Record::Output(_)));
        if let Some(show) = &mut show {
            show.record(&entry.record);
        }
        if let Some(Err(difference)) = check.as_mut().map(|check| check.play(&entry)) {
            played.difference = Some(Box::new(difference));
            check = None;
        }
    }
    Ok(())
}

/// Whoever sends a recording should not be able to use up this machine's memory.
fn fits(limits: &Limits) -> Result<(), RecordingError> {
    let there = installed_memory();
    let needed = Layout::checked(limits).map_or(u64::MAX, |lengths| lengths.bytes() as u64);
    if needed > there {
        return Err(RecordingError::Memory { needed: needed >> 20, there: there >> 20 });
    }
    Ok(())
}
