//! Rules for source files that neither the compiler nor clippy checks.

mod dependencies;
mod imports;
mod map;
mod tables;
mod version;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The floors of hydrant-core, the lowest of which is hydrant-wire. A module imports from floors below its own, and from
/// nothing beside it except as [`BESIDE`] says.
const FLOORS: &[&[&str]] = &[
    &["wire"],
    &["ids", "limits", "time", "fault", "trace"],
    &["store"],
    &["tables"],
    &["state", "storage", "snapshot", "peer", "manage"],
    &["server"],
];

/// Floor 1 holds the words that everyone uses, and those are made of each other. On floor 4 a snapshot is
/// of the storage, and both hold links to other nodes.
const BESIDE: &[(&str, &str)] = &[
    ("fault", "limits"),
    ("fault", "ids"),
    ("trace", "ids"),
    ("trace", "fault"),
    ("trace", "time"),
    ("snapshot", "storage"),
    ("snapshot", "state"),
    ("storage", "state"),
    ("snapshot", "peer"),
    ("storage", "peer"),
];

/// Longest line of a comment in characters.
const COMMENT_MAX: usize = 132;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is a folder of the workspace")
}

/// Every Rust file below `dir`, build products left out.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    files_below(dir, &["rs"])
}

/// Every file below `dir` with one of these extensions, build products left out.
fn files_below(dir: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("an entry of a folder that was just opened").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                dirs.push(path);
            } else if path.extension().is_some_and(|own| extensions.iter().any(|known| own == *known)) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The source without comments and without what stands in string and character literals.
fn code(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(raw) = raw_string(rest) {
            raw
        } else if bytes[at] == b'"' {
            quoted(rest)
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            2 + rest[2..].find('\'').unwrap_or(0) + 1
        } else {
            0
        };
        if skip == 0 {
            let c = rest.chars().next().expect("at is a character boundary before the end");
            out.push(c);
            at += c.len_utf8();
        } else {
            out.extend(rest[..skip].chars().filter(|&c| c == '\n'));
            at += skip;
        }
    }
    out
}

fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let hashes = body.bytes().take_while(|&b| b == b'#').count();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inner.find(&close)? + close.len();
    Some(rest.len() - inner.len() + end)
}

fn quoted(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += 1 + usize::from(bytes[at] == b'\\');
    }
    (at + 1).min(bytes.len())
}

/// The modules of the crate that `source`, a file of `module`, names: by `crate::`, and by `super::` as far as that
/// leads to the crate's root.
fn imports(source: &str, depth: usize) -> BTreeSet<String> {
    let code = code(source);
    let mut found = BTreeSet::new();
    let to_root = "super::".repeat(depth);
    for start in ["crate::", to_root.as_str()] {
        if start.is_empty() {
            continue;
        }
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let rest = &code[at + start.len()..];
            let names = rest.strip_prefix('{').map_or_else(|| word(rest).into_iter().collect(), heads);
            // In an inline module `super` is the file itself, so only names of modules tell something.
            found.extend(names.into_iter().filter(|name| start == "crate::" || floor(name).is_some()));
        }
    }
    found
}

fn word(rest: &str) -> Option<String> {
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then(|| rest[..end].to_owned())
}

/// The first word of each entry of a braced list, given from behind its opening brace.
fn heads(list: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut depth = 0;
    let mut entry = String::new();
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                heads.extend(word(entry.trim()));
                entry.clear();
                continue;
            }
            _ => {}
        }
        entry.push(c);
    }
    heads.extend(word(entry.trim()));
    heads
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// The module of hydrant-core that a name re-exported at its root comes from.
fn home(name: &str, reexports: &[(String, String)]) -> String {
    reexports.iter().find(|(_, known)| known == name).map_or(name, |(module, _)| module).to_owned()
}

fn reexports(lib: &str) -> Vec<(String, String)> {
    let code = code(lib);
    let mut all = Vec::new();
    for statement in code.split(';').filter_map(|s| s.trim().strip_prefix("pub use ")) {
        let Some((module, names)) = statement.split_once("::") else { continue };
        match names.strip_prefix('{') {
            Some(list) => all.extend(heads(list).into_iter().map(|name| (module.to_owned(), name))),
            None => all.push((module.to_owned(), names.rsplit("::").next().unwrap_or(names).to_owned())),
        }
    }
    all
}

/// What is wrong with one file's imports, one line each.
fn wrong_imports(module: &str, imports: &BTreeSet<String>) -> Vec<String> {
    let Some(own) = floor(module) else {
        return vec![format!("module {module} has no floor: give it one in {}", file!())];
    };
    let mut wrong = Vec::new();
    for other in imports.iter().filter(|other| *other != module) {
        let Some(theirs) = floor(other) else {
            wrong.push(format!("{module} names crate::{other}, which is no module with a floor"));
            continue;
        };
        if theirs > own || (theirs == own && !BESIDE.contains(&(module, other))) {
            wrong.push(format!("{module} (floor {own}) imports {other} (floor {theirs})"));
        }
        if module == "tables" && other == "wire" {
            wrong.push("tables import wire".to_owned());
        }
    }
    wrong
}

#[test]
fn imports_point_down() {
    let source = root().join("core/src");
    let reexports = reexports(&read(&source.join("lib.rs")));
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in rust_files(&source) {
        let inner = file.strip_prefix(&source).expect("found below it");
        let parts: Vec<&str> = inner.iter().filter_map(|part| part.to_str()).collect();
        let module = parts[0].trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        seen.insert(module.to_owned());
        let depth = if parts.len() == 1 || parts.ends_with(&["mod.rs"]) {
            parts.len().max(2) - 1
        } else {
            parts.len()
        };
        let names = imports(&read(&file), depth);
        let modules = names.iter().map(|name| home(name, &reexports)).collect();
        wrong.extend(wrong_imports(module, &modules).iter().map(|w| format!("{}: {w}", inner.display())));
    }
    assert!(seen.len() >= 5, "only {seen:?} found in {}", source.display());
    assert!(wrong.is_empty(), "imports must point down the floors:\n{}", wrong.join("\n"));
}

/// Words that begin a clause, and no noun phrase.
const CLAUSES: &[&str] = &["What", "How", "Whether", "Who", "Where", "Which", "Whatever", "Whoever"];

/// Tables are exempt.
#[test]
fn comments_have_short_lines() {
    let mut long = Vec::new();
    for file in rust_files(root()) {
        for (at, line) in read(&file).lines().enumerate() {
            let text = line.trim_start();
            if text.starts_with("//") && !text.contains("| ") && line.chars().count() > COMMENT_MAX {
                long.push(format!("{}:{}", file.display(), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than {COMMENT_MAX} characters:\n{}", long.join("\n"));
}

#[test]
fn files_begin_with_what_they_hold() {
    let mut wrong = Vec::new();
    for file in rust_files(root()) {
        let source = read(&file);
        let inner = file.strip_prefix(root()).expect("found below it");
        let Some(title) = source.lines().next().and_then(|line| line.strip_prefix("//! ")) else {
            wrong.push(format!(
                "{}:1: write `//! ` and a noun phrase that says what the file holds",
                inner.display()
            ));
            continue;
        };
        let first = title.split(' ').next().unwrap_or_default();
        if CLAUSES.contains(&first) {
            wrong.push(format!("{}:1: write a noun phrase instead of \"{first} …\"", inner.display()));
        }
    }
    assert!(wrong.is_empty(), "the first line of a file says what it holds:\n{}", wrong.join("\n"));
}

/// Crates outside the workspace, which clippy's `undocumented_unsafe_blocks` does not see.
const OUTSIDE: &[&str] = &["firmware-example", "host-wasm/plugin", "tests/freestanding"];

#[test]
fn unsafe_says_why_it_is_safe() {
    let mut wrong = Vec::new();
    for file in OUTSIDE.iter().flat_map(|folder| rust_files(&root().join(folder))) {
        let source = read(&file);
        let lines: Vec<&str> = source.lines().collect();
        for (number, line) in code(&source).lines().enumerate() {
            let block = line.contains("unsafe {") || line.contains("unsafe impl") || line.ends_with("unsafe");
            if block && !explained(&lines, number) {
                wrong.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe without a SAFETY comment above it:\n{}", wrong.join("\n"));
}

/// Whether a SAFETY comment stands on the line, or right above the statement that the line belongs to.
fn explained(lines: &[&str], number: usize) -> bool {
    let safety = |line: &str| line.contains("SAFETY:");
    if safety(lines[number]) {
        return true;
    }
    // A comment above may have several lines, and the statement may begin some lines earlier.
    lines[..number].iter().rev().take(12).take_while(|line| !line.trim().is_empty()).any(|line| safety(line))
}

#[test]
fn the_core_forbids_what_it_promises_to_do_without() {
    for source in ["core/src", "core/wire/src"].map(|folder| root().join(folder)) {
        let lib = read(&source.join("lib.rs"));
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            assert!(lib.lines().any(|line| line == attribute), "{} lost {attribute}", source.display());
        }
        // Owned storage, inputs and outputs allocate, and the error of backends holds what a host has allocated. All are behind
        // a feature that is off by default.
        for file in rust_files(&source) {
            let code = code(&read(&file));
            let owned = [
                "core/src/lib.rs",
                "storage/generate.rs",
                "storage/owned.rs",
                "server/owned.rs",
                "server/backend.rs",
            ]
            .iter()
            .any(|name| file.ends_with(name));
            assert!(owned || !code.contains("alloc::"), "{} asks for an allocator", file.display());
        }
    }
}

#[test]
fn the_import_reader_sees_what_it_should() {
    let names = |source: &str, depth| imports(source, depth).into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::wire::{Reply, command::Op};", 1), ["wire"]);
    assert_eq!(names("use crate::{ids::Rank, tables::{kvs, fence}, time};", 1), ["ids", "tables", "time"]);
    assert_eq!(names("fn f() -> crate::Limits { super::x() }", 2), ["Limits"]);
    assert_eq!(names("use super::super::server::Output;", 2), ["server"]);
    assert_eq!(
        names("// crate::a\n/* crate::b */ const S: &str = \"crate::c\"; 'x'; r#\"crate::d\"#;", 1),
        [""; 0]
    );
    assert_eq!(names("const Q: char = '\"'; use crate::e;", 1), ["e"]);
    assert_eq!(wrong_imports("tables", &["wire".to_owned()].into()).len(), 1);
    assert_eq!(wrong_imports("peer", &["server".to_owned()].into()).len(), 1);
    assert_eq!(wrong_imports("server", &["tables".to_owned(), "wire".to_owned()].into()).len(), 0);
}
