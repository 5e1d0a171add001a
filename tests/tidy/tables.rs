//! Tests that the tables of `docs/conformance.md` and `docs/faults.md` name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{files_below, read, root, rust_files};

/// Suites of `tests/`. Every other suite is a crate, with its tests anywhere below its folder.
pub(super) const SUITES: &[&str] = &["core", "devices", "launch", "libraries", "nodes", "sandbox", "sites"];

/// Beginnings of a state in `docs/conformance.md`.
const STATES: &[&str] = &["done", "partly: ", "not: ", "library", "free"];

/// Returns the cells of each row of all tables, without headings.
pub(super) fn rows(document: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = document.lines().collect();
    let is_heading = |at: usize| lines.get(at + 1).is_some_and(|next| next.starts_with("|---"));
    let rows = lines.iter().enumerate().filter(|&(at, line)| line.starts_with("| ") && !is_heading(at));
    rows.map(|(_, line)| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Returns suite and path of each test in a cell like "suite `a::b`, `a::c`, other `d`".
fn named(cell: &str) -> Vec<(&str, &str)> {
    let mut suite = "";
    let parts: Vec<&str> = cell.split('`').collect();
    let pairs = parts.chunks_exact(2).map(|pair| (pair[0].trim_matches([',', ' ']), pair[1]));
    pairs
        .map(|(before, path)| {
            suite = if before.is_empty() { suite } else { before };
            (suite, path)
        })
        .collect()
}

/// A Rust file of a suite: its module, and its source.
type Source = (Vec<String>, String);

/// Returns the folder of each suite.
pub(super) fn folders() -> BTreeMap<String, PathBuf> {
    let tests = root().join("tests");
    let mut folders: BTreeMap<String, PathBuf> =
        SUITES.iter().map(|&suite| (suite.to_owned(), tests.join(suite))).collect();
    for manifest in files_below(root(), &["toml"]).iter().filter(|file| file.ends_with("Cargo.toml")) {
        let text = read(manifest);
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let folder = manifest.parent().expect("a file lies in a folder");
        folders.extend(name.map(|name| (name.to_owned(), folder.to_owned())));
    }
    folders
}

/// Returns the path of a file's module in its suite.
pub(super) fn module(file: &Path, folder: &Path) -> Vec<String> {
    let unnamed = ["main", "mod", "lib", "src", "tests"];
    let inner = file.strip_prefix(folder).expect("found below it").with_extension("");
    let parts = inner.iter().filter_map(|part| part.to_str()).filter(|part| !unnamed.contains(part));
    parts.map(str::to_owned).collect()
}

fn sources(folder: &Path) -> Vec<Source> {
    let source = |file: PathBuf| (module(&file, folder), read(&file));
    rust_files(folder).into_iter().map(source).collect()
}

/// Whether a file of a suite has the test, in the module that its path names.
fn exists(sources: &[Source], path: &str) -> bool {
    let mut modules: Vec<&str> = path.split("::").filter(|part| *part != "tests").collect();
    let function = format!("fn {}(", modules.pop().unwrap_or_default());
    let is_named =
        |own: &[String]| own.len() >= modules.len() && own[own.len() - modules.len()..].iter().eq(&modules);
    sources.iter().any(|(module, source)| is_named(module) && has_test(source, &function))
}

/// Whether the source has the function, with `#[test]` among the lines directly above it.
fn has_test(source: &str, function: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let at = lines.iter().position(|line| line.starts_with(function));
    let above = at.map(|at| lines[..at].iter().rev()).into_iter().flatten();
    above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).any(|line| *line == "#[test]")
}

#[test]
fn tables_name_tests_that_exist() {
    let documents = ["docs/conformance.md", "docs/faults.md"].map(|name| (name, read(&root().join(name))));
    let mut suites: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (document, text) in &documents {
        for (suite, path) in rows(text).iter().filter_map(|row| row.last()).flat_map(|cell| named(cell)) {
            suites.entry(suite).or_default().push((document, path));
        }
    }
    let folders = folders();
    let mut wrong = Vec::new();
    for (suite, tests) in &suites {
        let sources = folders.get(*suite).map(|folder| sources(folder)).unwrap_or_default();
        let missing = tests.iter().filter(|(_, path)| !exists(&sources, path));
        wrong.extend(missing.map(|(document, path)| format!("{document}: no test {path} in {suite}")));
    }
    let count: usize = suites.values().map(Vec::len).sum();
    assert!(count > 100, "only {count} tests found: the tables have another form");
    assert!(wrong.is_empty(), "name suite and path of a test:\n{}", wrong.join("\n"));
}

#[test]
fn rows_of_conformance_have_a_state_and_a_test() {
    let text = read(&root().join("docs/conformance.md"));
    let wrong: Vec<String> = rows(&text)
        .iter()
        .filter(|row| match row[..] {
            [_, _, state, tests] => {
                let is_shown = !state.starts_with("done") || !named(tests).is_empty();
                !STATES.iter().any(|known| state.starts_with(known)) || !is_shown
            }
            _ => true,
        })
        .map(|row| row.join(" | "))
        .collect();
    assert!(
        wrong.is_empty(),
        "four cells, a state of {STATES:?}, a test if it is done:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_table_check_sees_what_it_should() {
    let table =
        "| fault | test |\n|---|---|\n| a | core `b::c`, `d` and, hydrant-core `e` |\ntext | no row |\n";
    assert_eq!(rows(table), [["a", "core `b::c`, `d` and, hydrant-core `e`"]]);
    assert_eq!(
        named("core `b::c`, `d`, hydrant-core `e`"),
        [("core", "b::c"), ("core", "d"), ("hydrant-core", "e")]
    );
    assert!(
        has_test("#[test]\n#[ignore]\nfn a() {}", "fn a(")
            && !has_test("#[test]\nfn b() {}\nfn a() {}", "fn a(")
    );
    let own = sources(&root().join("tests/tidy"));
    assert!(exists(&own, "tables::the_table_check_sees_what_it_should"));
    assert!(!exists(&own, "words::the_table_check_sees_what_it_should"));
}
