//! JSON that commands print: one object, whose first members name its form (`docs/json.md`).

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use hydrant_control::{JobSummary, format_ranges};
use hydrant_core::Exit;
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
    let document = Document { form, version: VERSION, body };
    let mut text =
        serde_json::to_string_pretty(&document).expect("keys are strings, and memory takes every byte");
    text.push('\n');
    text
}

/// Writes a document to a file, or to standard output for `-`.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    if path != Path::new("-") {
        return fs::write(path, text);
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
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
    ordinal: u32,
    name: &'a str,
    ranks: u32,
    message: Option<&'a str>,
    exits: Vec<ExitOfRanks>,
}

#[derive(Serialize)]
struct ExitOfRanks {
    ranks: String,
    exit_code: Option<u8>,
    signal: Option<u8>,
}

/// Returns the document of a run that has ended, with the error that kept it from going on.
pub fn result(exit_code: u8, error: Option<&RunError>, jobs: &[JobSummary]) -> String {
    let exit = |(exit, ranks): &(Option<Exit>, Vec<(u32, u32)>)| {
        let (exit_code, signal) = match *exit {
            Some(Exit::Code(code)) => (Some(code), None),
            Some(Exit::Signal(signal)) => (None, Some(signal)),
            Some(Exit::Lost) | None => (None, None),
        };
        ExitOfRanks { ranks: format_ranges(ranks), exit_code, signal }
    };
    let ended = jobs.iter().map(|job| EndedJob {
        ordinal: job.ordinal,
        name: &job.name,
        ranks: job.ranks,
        message: job.message.as_deref(),
        exits: job.exits.iter().map(exit).collect(),
    });
    let jobs = ended.collect();
    let (error, hint) = (error.map(RunError::to_string), error.and_then(RunError::hint));
    document("result", &ResultDocument { exit_code, error, hint, jobs })
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
        insta::assert_snapshot!(result(139, None, &[job]) + &result(2, Some(&RunError::Size(0)), &[]));
    }
}
