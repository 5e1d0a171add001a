//! JSON that commands print: one object, whose first members name its form (`docs/json.md`).

use std::io::{self, Write};
use std::path::Path;

use hydrant_control::{JobSummary, format_ranges};
use hydrant_core::Exit;
use hydrant_reactor::file::{Access, Output};
use hydrant_reactor::is_control;
use hydrant_timeline::{Fence, Part, Slow, Summary, Usage};
use serde::Serialize;

use crate::error::RunError;

/// Version of all forms. It grows when a member is removed or changes its meaning, and not when one is added.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a, T> {
    form: &'a str,
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// Returns the text of a document, with a line end.
pub fn document(form: &str, body: &impl Serialize) -> String {
    finished(serde_json::to_string_pretty(&Document { form, version: VERSION, body }))
}

/// Returns a document in one line, for readers of several.
pub fn line(form: &str, body: &impl Serialize) -> String {
    finished(serde_json::to_string(&Document { form, version: VERSION, body }))
}

/// Adds the line end, and escapes the characters that [act on a terminal](is_control), all of which are in strings.
fn finished(text: serde_json::Result<String>) -> String {
    let mut text = text.expect("keys are strings, and memory takes every byte");
    if text.contains(is_control) {
        let escape = |c: char| match is_control(c) {
            true => format!("\\u{:04x}", u32::from(c)),
            false => c.to_string(),
        };
        text = text.chars().map(escape).collect();
    }
    text.push('\n');
    text
}

/// Where a document is written.
#[derive(Debug)]
pub(crate) enum Target {
    Stdout,
    File(Output),
}

impl Target {
    /// Opens a file, or standard output for `-`. What the file held is lost from here on.
    pub(crate) fn open(path: &Path) -> io::Result<Target> {
        match is_stdout(path) {
            true => Ok(Target::Stdout),
            false => Ok(Target::File(Output::create(path, Access::Umask)?)),
        }
    }

    pub(crate) fn write(&mut self, text: &str) -> io::Result<()> {
        match self {
            Target::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(text.as_bytes())?;
                out.flush()
            }
            Target::File(file) => file.write_all(text.as_bytes()),
        }
    }
}

/// Returns whether a document for this path goes to standard output, which then has nothing else.
pub(crate) fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout"].map(Path::new).contains(&path)
}

/// Writes a document to a file, or to standard output for `-`.
///
/// # Errors
/// The file cannot be opened or written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    Target::open(path)?.write(text)
}

#[derive(Serialize)]
struct ResultDocument<'a> {
    exit_code: u8,
    error: Option<String>,
    hint: Option<String>,
    jobs: Vec<EndedJob<'a>>,
}

#[derive(Serialize)]
struct EndedJob<'a> {
    task: Option<u32>,
    ordinal: u32,
    name: &'a str,
    ranks: u32,
    message: Option<&'a str>,
    exits: Vec<ExitOfRanks>,
    profile: Option<Profile<'a>>,
}

#[derive(Serialize)]
struct Profile<'a> {
    ranks: u64,
    hosts: u64,
    start_up: Phase<'a>,
    phases: Vec<Phase<'a>>,
    fences: Vec<EndedFence<'a>>,
    first_fence: Option<Used>,
    hints: Vec<String>,
}

#[derive(Serialize)]
struct Phase<'a> {
    name: &'a str,
    in_start_up: bool,
    sum_ms: u64,
    max_ms: u64,
    slowest: Vec<Slowest<'a>>,
}

#[derive(Serialize)]
struct Slowest<'a> {
    rank: Option<u32>,
    host: Option<&'a str>,
    ms: u64,
}

#[derive(Serialize)]
struct EndedFence<'a> {
    name: &'a str,
    ranks: u64,
    first_ms: u64,
    last_ms: u64,
    sum_ms: u64,
    max_ms: u64,
    last: Slowest<'a>,
}

#[derive(Serialize)]
struct Used {
    ranks: u64,
    elapsed_ms: u64,
    running_ms: u64,
    queued_ms: u64,
    read_bytes: u64,
    libraries: u64,
}

impl<'a> Profile<'a> {
    fn of(summary: &'a Summary) -> Profile<'a> {
        let fence = |fence: &'a Fence| EndedFence {
            name: &fence.name,
            ranks: fence.ranks,
            first_ms: fence.arrivals.0,
            last_ms: fence.arrivals.1,
            sum_ms: fence.waited,
            max_ms: fence.longest,
            last: Slowest::of(&fence.last),
        };
        let Usage { ranks, elapsed, running, queued, read, libraries, .. } = summary.usage;
        let used = Used {
            ranks,
            elapsed_ms: elapsed,
            running_ms: running,
            queued_ms: queued,
            read_bytes: read,
            libraries,
        };
        Profile {
            ranks: summary.ranks,
            hosts: summary.hosts,
            start_up: Phase::of(&summary.all),
            phases: summary.parts.iter().map(Phase::of).collect(),
            fences: summary.collectives.iter().map(fence).collect(),
            first_fence: (ranks > 0).then_some(used),
            hints: summary.hints(),
        }
    }
}

impl<'a> Phase<'a> {
    fn of(part: &'a Part) -> Phase<'a> {
        let Part { name, starts, sum, max, slowest } = part;
        let slowest = slowest.iter().map(Slowest::of).collect();
        Phase { name, in_start_up: *starts, sum_ms: *sum, max_ms: *max, slowest }
    }
}

impl<'a> Slowest<'a> {
    fn of(Slow { rank, host, millis }: &'a Slow) -> Slowest<'a> {
        Slowest { rank: *rank, host: (!host.is_empty()).then_some(host), ms: *millis }
    }
}

#[derive(Serialize)]
struct ExitOfRanks {
    ranks: String,
    exit_code: Option<u8>,
    signal: Option<u8>,
}

/// Returns the document of a run that has ended, with the error that kept it from going on, its jobs, each with the task of an
/// array that it belongs to, and their profiles.
pub fn result(
    exit_code: u8,
    error: Option<&RunError>,
    jobs: &[(Option<u32>, JobSummary)],
    profiles: &[Summary],
) -> String {
    let exit = |(exit, ranks): &(Option<Exit>, Vec<(u32, u32)>)| {
        let (exit_code, signal) = match *exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            Some(Exit::Lost) | None => (None, None),
        };
        ExitOfRanks { ranks: format_ranges(ranks), exit_code, signal }
    };
    let ended = jobs.iter().map(|(task, job)| EndedJob {
        task: *task,
        ordinal: job.ordinal,
        name: &job.name,
        ranks: job.ranks,
        message: job.message.as_deref(),
        exits: job.exits.iter().map(exit).collect(),
        profile: profiles.iter().find(|profile| profile.job == job.name).map(Profile::of),
    });
    let jobs = ended.collect();
    let (error, hint) = (error.map(RunError::to_string), error.and_then(RunError::hint));
    document("result", &ResultDocument { exit_code, error, hint, jobs })
}

/// Returns the document of a run whose command line is invalid.
pub fn refusal(exit_code: u8, error: String, hint: Option<String>) -> String {
    document("result", &ResultDocument { exit_code, error: Some(error), hint, jobs: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_the_exits_of_all_ranks() {
        let exits = vec![
            (Some(Exit::Code(0)), vec![(0, 2), (4, 1)]),
            (Some(Exit::Signal(11)), vec![(2, 1)]),
            (None, vec![(3, 1)]),
        ];
        let message = Some("rank 2 \"died\"".to_owned());
        let job = JobSummary { ordinal: 0, name: "kvs_1".to_owned(), ranks: 5, message, exits };
        insta::assert_snapshot!(
            result(139, None, &[(None, job.clone()), (Some(7), job)], &[])
                + &result(2, Some(&RunError::Size(0)), &[], &[])
        );
    }
}
