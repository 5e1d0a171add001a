//! The tables of `docs/faults.md`, `docs/conformance.md` and `docs/pmix.md`, from comments above tests.
//!
//! ```text
//! // Fault: The fault.
//! // Outcome: Its effect on the job.
//! // Guarantee: The rule that the test shows.
//! // Also: core `module::test`, other tests of the same fault
//!
//! // Shows: standard, section | name | what the standard asks for | done: what hydrant does
//! // Also: core `module::test`
//!
//! // Serves: section | request (number of the command), attribute or query | served: what the answer is
//! // Also: core `module::test`
//! ```
//!
//! In a file of another language the comments stand above functions, and the line ``// Test: suite `module::test` ``
//! names the test that runs the file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{files_below, read, root, rust_files};

/// Suites of `tests/`. Every other suite is a crate, with its tests anywhere below its folder.
const SUITES: &[&str] = &["core", "devices", "launch", "libraries", "nodes", "sandbox", "sites"];

/// Tables of one page with a comment for each row.
struct Page {
    path: &'static str,
    /// Beginning of a comment.
    keyword: &'static str,
    /// Text between the cells of a row.
    separators: &'static [&'static str],
    /// Whether the first cell is the section of the page that the row belongs to.
    has_sections: bool,
    /// The heading of each table.
    heading: &'static str,
    /// Column by which rows are sorted.
    sorted_by: usize,
}

const FAULTS: Page = Page {
    path: "docs/faults.md",
    keyword: "// Fault: ",
    separators: &[" Outcome: ", " Guarantee: "],
    has_sections: false,
    heading: "| fault | outcome | guarantee | test |\n|---|---|---|---|\n",
    sorted_by: 3,
};

const CONFORMANCE: Page = Page {
    path: "docs/conformance.md",
    keyword: "// Shows: ",
    separators: &[" | ", " | ", " | "],
    has_sections: true,
    heading: "| name | asks for | hydrant | test |\n|---|---|---|---|\n",
    sorted_by: 0,
};

const PMIX: Page = Page {
    path: "docs/pmix.md",
    keyword: "// Serves: ",
    separators: &[" | ", " | "],
    has_sections: true,
    heading: "| name | hydrant | test |\n|---|---|---|\n",
    sorted_by: 0,
};

const PAGES: &[Page] = &[FAULTS, CONFORMANCE, PMIX];

/// Beginnings of a state in `docs/pmix.md`.
const SERVED: &[&str] = &["served", "in part: ", "refused"];
/// Commands of libpmix, which have the numbers from 0 on.
const PMIX_COMMANDS: u32 = 40;

/// Beginnings of a state in `docs/conformance.md`: of rows with a test, and of rows that are written by hand.
const SHOWN: &[&str] = &["done", "partly: ", "free: ", "not: "];
const NOT_SHOWN: &[&str] = &["library", "not: ", "not tested: "];

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
fn folders() -> BTreeMap<String, PathBuf> {
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
fn module(file: &Path, folder: &Path) -> Vec<String> {
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

/// Returns the comments of a page in a file, each with the line of code below it.
fn comments<'a>(page: &Page, source: &'a str) -> Vec<(String, &'a str)> {
    let mut found = Vec::new();
    let mut pending: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix(page.keyword) {
            pending.push(text.to_owned());
            is_open = true;
        } else if PAGES.iter().any(|other| line.starts_with(other.keyword)) {
            is_open = false;
        } else if line.starts_with("//") || line.starts_with("#[") {
            let text = line.strip_prefix("// ").filter(|_| is_open);
            if let (Some(text), Some(last)) = (text, pending.last_mut()) {
                *last += " ";
                *last += text;
            }
        } else {
            found.extend(pending.drain(..).map(|comment| (comment, line)));
        }
    }
    found
}

/// Returns the name of the test that a comment of a file belongs to; `below` is the line of code below the comment.
fn test(suite: &str, folder: &Path, file: &Path, source: &str, below: &str) -> Option<String> {
    if let Some(test) = source.lines().find_map(|line| line.strip_prefix("// Test: ")) {
        return Some(test.to_owned());
    }
    let function = below.strip_prefix("fn ")?.split('(').next()?;
    let mut path = if SUITES.contains(&suite) { module(file, folder) } else { Vec::new() };
    path.push(function.to_owned());
    Some(format!("{suite} `{}`", path.join("::")))
}

/// Returns section and cells of a row.
fn row(page: &Page, comment: &str, test: &str) -> Option<(String, Vec<String>)> {
    let (mut rest, also) =
        comment.split_once(" Also: ").map_or((comment, None), |(text, also)| (text, Some(also)));
    let mut cells = Vec::new();
    for separator in page.separators {
        let (cell, others) = rest.split_once(separator)?;
        cells.push(cell.to_owned());
        rest = others;
    }
    cells.push(rest.to_owned());
    let section = if page.has_sections { cells.remove(0) } else { String::new() };
    let own_suite = test.split_once('`').map_or("", |(suite, _)| suite);
    // The suite is said once for tests of one suite that follow each other.
    let also = also.map(|also| format!(", {}", also.strip_prefix(own_suite).unwrap_or(also)));
    cells.push(format!("{test}{}", also.unwrap_or_default()));
    Some((section, cells))
}

/// Returns the rows of each section.
fn table(page: &Page) -> BTreeMap<String, Vec<Vec<String>>> {
    let folders = folders();
    let mut sections: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    for file in files_below(root(), &["rs", "c"]) {
        let source = read(&file);
        let found = comments(page, &source);
        let Some((suite, folder)) = folders
            .iter()
            .filter(|(_, folder)| file.starts_with(folder))
            .max_by_key(|(_, folder)| folder.as_os_str().len())
        else {
            continue;
        };
        for (comment, below) in found {
            let row = test(suite, folder, &file, &source, below).and_then(|test| row(page, &comment, &test));
            let (section, cells) = row.unwrap_or_else(|| {
                panic!("{}: {comment}: write it above a test, as {} says", file.display(), file!())
            });
            sections.entry(section).or_default().push(cells);
        }
    }
    for rows in sections.values_mut() {
        let key = |row: &Vec<String>| (row[page.sorted_by].replace('`', ""), row.join(" | "));
        rows.sort_by_cached_key(key);
        let mut statements: Vec<&[String]> = rows.iter().map(|row| &row[..row.len() - 2]).collect();
        statements.sort();
        let twice = statements.windows(2).find(|pair| pair[0] == pair[1]);
        assert!(twice.is_none(), "{}: one row for each statement, with `Also: `: {twice:?}", page.path);
    }
    sections
}

/// Returns the page with the rows of its tables replaced.
fn written(page: &Page, text: &str, mut rows: BTreeMap<String, Vec<Vec<String>>>) -> String {
    let mut new = String::new();
    let (mut chapter, mut section) = ("", String::new());
    let mut rest = text;
    while let Some(line) = rest.split_inclusive('\n').next() {
        if let Some(title) = line.strip_prefix("## ").filter(|_| page.has_sections) {
            chapter = title.trim_end();
            section = chapter.to_owned();
        } else if let Some(title) = line.strip_prefix("### ").filter(|_| page.has_sections) {
            section = format!("{chapter}, {}", title.trim_end());
        }
        if let Some(behind) = rest.strip_prefix(page.heading) {
            new += page.heading;
            for row in rows.remove(&section).unwrap_or_default() {
                new += &format!("| {} |\n", row.join(" | "));
            }
            rest = behind;
            while rest.starts_with("| ") {
                rest = rest.split_once('\n').map_or("", |(_, next)| next);
            }
        } else {
            new += line;
            rest = &rest[line.len()..];
        }
    }
    assert!(rows.is_empty(), "{} has no table in these sections: {:?}", page.path, rows.keys());
    new
}

#[test]
fn pages_have_the_rows_of_the_tests() {
    for page in PAGES {
        let path = root().join(page.path);
        let text = read(&path);
        let new = written(page, &text, table(page));
        if std::env::var_os("HYDRANT_WRITE_TABLES").is_some() {
            fs::write(&path, new).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        } else {
            assert_eq!(text, new, "HYDRANT_WRITE_TABLES writes {}", page.path);
        }
    }
}

#[test]
fn tables_name_tests_that_exist() {
    let mut suites: BTreeMap<String, BTreeSet<(&str, String)>> = BTreeMap::new();
    for page in PAGES {
        for row in table(page).values().flatten() {
            for (suite, path) in row.last().map_or(Vec::new(), |cell| named(cell)) {
                suites.entry(suite.to_owned()).or_default().insert((page.path, path.to_owned()));
            }
        }
    }
    let folders = folders();
    let mut wrong = Vec::new();
    for (suite, tests) in &suites {
        let sources = folders.get(suite).map(|folder| sources(folder)).unwrap_or_default();
        let missing = tests.iter().filter(|(_, path)| !exists(&sources, path));
        wrong.extend(missing.map(|(page, path)| format!("{page}: no test {path} in {suite}")));
    }
    let count: usize = suites.values().map(BTreeSet::len).sum();
    assert!(count > 100, "only {count} tests found: the comments have another form");
    assert!(wrong.is_empty(), "name suite and path of a test:\n{}", wrong.join("\n"));
}

#[test]
fn rows_of_conformance_have_a_state() {
    let text = read(&root().join(CONFORMANCE.path));
    let has_state = |row: &Vec<&str>| match row[..] {
        [_, _, state, _] => SHOWN.iter().any(|known| state.starts_with(known)),
        [_, _, state] => NOT_SHOWN.iter().any(|known| state.starts_with(known)),
        _ => false,
    };
    let wrong: Vec<String> =
        rows(&text).iter().filter(|row| !has_state(row)).map(|row| row.join(" | ")).collect();
    assert!(
        wrong.is_empty(),
        "begin with {SHOWN:?} above a test and with {NOT_SHOWN:?} in a table without tests:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn rows_of_pmix_have_a_state_and_all_commands() {
    let table = table(&PMIX);
    let rows = || table.values().flatten();
    let wrong: Vec<String> = rows()
        .filter(|row| !SERVED.iter().any(|state| row[1].starts_with(state)))
        .map(|row| row.join(" | "))
        .collect();
    assert!(wrong.is_empty(), "begin with {SERVED:?}:\n{}", wrong.join("\n"));
    let in_parentheses = |row: &Vec<String>| {
        let parts = row[0].split('(').skip(1).filter_map(|part| part.split_once(')'));
        parts.flat_map(|(numbers, _)| numbers.split(", ").map(str::to_owned)).collect::<Vec<_>>()
    };
    let named: BTreeSet<String> = table["Requests"].iter().flat_map(in_parentheses).collect();
    let missing: Vec<u32> =
        (0..PMIX_COMMANDS).filter(|number| !named.contains(&number.to_string())).collect();
    assert!(missing.is_empty(), "requests without a row: {missing:?}");
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

#[test]
fn the_reader_of_comments_sees_what_it_should() {
    let source = "// z\n// Fault: a\n// b Outcome: c Guarantee: d\n// Shows: x, y | n | t |\n// done\n// Fault: e\n\
                  #[test]\nfn f() {\n// g\n}\nfn h() {}\n";
    assert_eq!(
        comments(&FAULTS, source),
        [("a b Outcome: c Guarantee: d".to_owned(), "fn f() {"), ("e".to_owned(), "fn f() {")]
    );
    assert_eq!(comments(&CONFORMANCE, source), [("x, y | n | t | done".to_owned(), "fn f() {")]);
    let cells =
        |page, comment| row(page, comment, "core `f`").map(|(section, cells)| (section, cells.join(" | ")));
    let fault = |cells: &str| Some((String::new(), cells.to_owned()));
    assert_eq!(cells(&FAULTS, "a Outcome: c Guarantee: d"), fault("a | c | d | core `f`"));
    assert_eq!(cells(&FAULTS, "e"), None);
    assert_eq!(
        cells(&FAULTS, "a Outcome: b Guarantee: c Also: core `g`, launch `h`"),
        fault("a | b | c | core `f`, `g`, launch `h`")
    );
    let shown = cells(&CONFORMANCE, "x, y | n | t | done").expect("a row");
    assert_eq!(shown, ("x, y".to_owned(), "n | t | done | core `f`".to_owned()));
    let (file, folder) = (Path::new("/t/core/a.rs"), Path::new("/t/core"));
    assert_eq!(test("core", folder, file, "", "fn f() {").as_deref(), Some("core `a::f`"));
    assert_eq!(test("core", folder, file, "", "static int f;"), None);
    let named = "/* c */\n// Test: core `b`\n";
    assert_eq!(test("core", folder, file, named, "static int f;").as_deref(), Some("core `b`"));
}

#[test]
fn the_writer_of_pages_replaces_rows() {
    let page = Page { heading: "| a |\n|---|\n", ..CONFORMANCE };
    let rows = BTreeMap::from([("S, T".to_owned(), vec![vec!["new".to_owned()]])]);
    let text = "## S\n### T\n\n| a |\n|---|\n| old |\n\n| b |\n|---|\n| kept |\n";
    assert_eq!(written(&page, text, rows), text.replace("old", "new"));
}
