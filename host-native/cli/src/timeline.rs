//! `hydrant replay --summary`, `--trace` and `--html`: the timeline of a job from its recordings.

use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hydrant_reactor::file::{Access, Input, Output, Taken};
use hydrant_run::messages;
use hydrant_timeline::{Budget, Timeline, TimelineError, write_page, write_summary, write_trace};

/// Prefix of the messages of `hydrant replay`.
pub(crate) const PREFIX: &str = "hydrant replay";

/// Options of `hydrant replay` that show a timeline.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Eq)]
#[group(skip)]
pub struct Options {
    /// Recordings of other hosts of the same run (FILE.HOST), with --summary, --trace or --html
    #[arg(value_name = "FILES", requires = "timeline")]
    pub others: Vec<PathBuf>,

    /// Print where the time went: phases, slowest ranks, and the last rank to arrive in each fence
    #[arg(long, conflicts_with_all = CHECK)]
    pub summary: bool,

    /// Write a trace for Perfetto (ui.perfetto.dev) or Chrome
    ///
    /// Hosts are processes and ranks are threads. Arrows lead from the last rank to arrive in a fence to those that it released.
    #[arg(long, value_name = "JSON", conflicts_with_all = CHECK)]
    pub trace: Option<PathBuf>,

    /// Write a page for a browser: ranks against time, phases, fences, and the messages behind each span
    ///
    /// The page is one file and loads nothing. It contains messages of the ranks and is readable by this user only.
    #[arg(long, value_name = "HTML", conflicts_with_all = CHECK)]
    pub html: Option<PathBuf>,
}

/// Options of the check, which a timeline does not run.
const CHECK: [&str; 4] = ["rank", "quiet", "no_check", "sandbox"];

impl Options {
    /// Returns whether a timeline is asked for.
    pub fn any(&self) -> bool {
        self.summary || self.trace.is_some() || self.html.is_some()
    }
}

/// A timeline cannot be shown.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("cannot open {}: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{} is a recording that is read: it cannot be written", .0.display())]
    Overwrite(PathBuf),
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error("{}: {source}", path.display())]
    Write { path: PathBuf, source: TimelineError },
}

/// Runs the command. The exit code is 0 if all recordings are complete and everything was written, and 1 otherwise.
pub(crate) fn main(first: &Path, options: &Options) -> ExitCode {
    match show(first, options) {
        Ok(timeline) => {
            let mut code = ExitCode::SUCCESS;
            for node in &timeline.nodes {
                if let Some(cut) = &node.cut {
                    let text =
                        format_args!("{}: {cut}; the timeline shows the records up to there", node.label);
                    messages::print(PREFIX, text);
                    code = ExitCode::FAILURE;
                }
            }
            code
        }
        Err(error) => {
            messages::print(PREFIX, error);
            ExitCode::FAILURE
        }
    }
}

fn show(first: &Path, options: &Options) -> Result<Timeline, Error> {
    let files: Vec<&Path> = [first].into_iter().chain(options.others.iter().map(PathBuf::as_path)).collect();
    let outputs = || options.trace.iter().chain(&options.html);
    if let Some(output) = outputs().find(|output| files.iter().any(|file| is_same(file, output))) {
        return Err(Error::Overwrite(output.clone()));
    }
    let recordings = files.iter().map(|path| {
        let file = Input::open(path, Taken::Streams)
            .map_err(|source| Error::Open { path: path.to_path_buf(), source: source.into() })?;
        Ok((label(path, &files), BufReader::new(file)))
    });
    // The messages are shown by the page alone.
    let budget = Budget::default();
    let budget = if options.html.is_some() { budget } else { Budget { text: 0, ..budget } };
    let timeline = Timeline::read(recordings.collect::<Result<Vec<_>, Error>>()?, &budget)?;
    if let Some(path) = &options.trace {
        write(path, |out| write_trace(&timeline, out))?;
    }
    if let Some(path) = &options.html {
        write(path, |out| write_page(&timeline, &name(first), out))?;
    }
    if options.summary {
        let mut out = BufWriter::new(io::stdout().lock());
        match write_summary(&timeline, &mut out).and_then(|()| Ok(out.flush()?)) {
            // A closed pipe, as of `| head`, is not an error.
            Err(TimelineError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            result => result.map_err(|source| Error::Write { path: "standard output".into(), source })?,
        }
    }
    Ok(timeline)
}

/// Writes a file that only this user can read, because recordings contain what the ranks exchanged.
fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), TimelineError>) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let opened = Output::create(path, Access::Private);
    let mut out = BufWriter::new(opened.map_err(|error| failed(io::Error::from(error).into()))?);
    write(&mut out).and_then(|()| Ok(out.flush()?)).map_err(failed)
}

fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(a).is_some_and(|path| Some(path) == real(b))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the host of a recording `FILE.HOST`, or the name of the file.
fn label(path: &Path, all: &[&Path]) -> String {
    let name = name(path);
    let head = all.iter().map(|file| self::name(file)).find_map(|file| {
        let host = name.strip_prefix(&file)?.strip_prefix('.')?;
        (!host.is_empty()).then(|| host.to_owned())
    });
    head.or_else(|| name.split_once(".rec.").map(|(_, host)| host.to_owned())).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recordings_are_named_by_their_hosts() {
        let all = ["d/job", "d/job.n1", "d/job.n2.example"].map(Path::new);
        let labels = |all: &[&Path]| all.iter().map(|path| label(path, all)).collect::<Vec<_>>();
        assert_eq!(labels(&all), ["job", "n1", "n2.example"]);
        assert_eq!(labels(&["job.rec.n1", "job.rec.n2"].map(Path::new)), ["n1", "n2"]);
        assert_eq!(labels(&["job.rec"].map(Path::new)), ["job.rec"]);
    }
}
