//! The table of `docs/faults.md`, from the comments above tests.
//!
//! ```text
//! // Fault: The fault.
//! // Outcome: Its effect on the job.
//! // Guarantee: The rule that the test shows.
//! // Also: core `module::test`, other tests of the same fault
//! ```

use std::fs;

use super::tables::{SUITES, folders, module};
use super::{read, root, rust_files};

const HEADING: &str = "| fault | outcome | guarantee | test |\n|---|---|---|---|\n";

/// Returns the row of one fault: `comment` is the text behind `Fault: `, and `test` the test below it.
fn row(comment: &str, test: &str) -> Option<String> {
    let (fault, rest) = comment.split_once(" Outcome: ")?;
    let (outcome, rest) = rest.split_once(" Guarantee: ")?;
    let (guarantee, also) =
        rest.split_once(" Also: ").map_or((rest, None), |(text, also)| (text, Some(also)));
    let own_suite = test.split_once('`').map_or("", |(suite, _)| suite);
    // The suite is said once for tests of one suite that follow each other.
    let also = also.map(|also| format!(", {}", also.strip_prefix(own_suite).unwrap_or(also)));
    Some(format!("| {fault} | {outcome} | {guarantee} | {test}{} |\n", also.unwrap_or_default()))
}

/// Returns the faults above each test of a file, with the name of the test's function.
fn faults(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(fault) = line.strip_prefix("// Fault: ") {
            pending.push(fault.to_owned());
        } else if let Some(function) = line.strip_prefix("fn ") {
            let name = function.split('(').next().unwrap_or_default();
            found.extend(pending.drain(..).map(|fault| (fault, name.to_owned())));
        } else if let (Some(text), Some(last)) = (line.strip_prefix("// "), pending.last_mut()) {
            *last += " ";
            *last += text;
        }
    }
    found
}

fn table() -> String {
    let folders = folders();
    let mut rows = Vec::new();
    for file in rust_files(root()) {
        let found = faults(&read(&file));
        let Some((suite, folder)) = folders
            .iter()
            .filter(|(_, folder)| file.starts_with(folder))
            .max_by_key(|(_, f)| f.as_os_str().len())
        else {
            continue;
        };
        for (fault, function) in found {
            let mut path = if SUITES.contains(&suite.as_str()) { module(&file, folder) } else { Vec::new() };
            path.push(function);
            let test = format!("{suite} `{}`", path.join("::"));
            let row = row(&fault, &test);
            rows.push(
                row.unwrap_or_else(|| panic!("{}: {test}: write Fault, Outcome, Guarantee", file.display())),
            );
        }
    }
    rows.sort_by_cached_key(|row| row.rsplit(" | ").next().map(str::to_owned));
    HEADING.to_owned() + &rows.concat()
}

#[test]
fn the_table_of_faults_is_that_of_the_tests() {
    let path = root().join("docs/faults.md");
    let page = read(&path);
    let (text, old) = page.split_at(page.find(HEADING).expect("docs/faults.md has the heading of the table"));
    let new = table();
    if std::env::var_os("HYDRANT_WRITE_FAULTS").is_some() {
        fs::write(&path, format!("{text}{new}")).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    } else {
        assert_eq!(old, new, "HYDRANT_WRITE_FAULTS writes the table");
    }
}

#[test]
fn the_reader_of_faults_sees_what_it_should() {
    let source =
        "// Fault: a\n// b Outcome: c Guarantee: d\n// Fault: e\n#[test]\nfn f() {\n// g\n}\nfn h() {}\n";
    let found = faults(source);
    assert_eq!(
        found,
        [("a b Outcome: c Guarantee: d".to_owned(), "f".to_owned()), ("e".to_owned(), "f".to_owned())]
    );
    assert_eq!(row(&found[0].0, "core `f`").as_deref(), Some("| a b | c | d | core `f` |\n"));
    assert_eq!(row(&found[1].0, "core `f`"), None);
    assert_eq!(
        row("a Outcome: b Guarantee: c Also: core `g`, launch `h`", "core `f`").as_deref(),
        Some("| a | b | c | core `f`, `g`, launch `h` |\n")
    );
}
