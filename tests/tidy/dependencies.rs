//! Rules for crates of other people: their source, their licences, and how many versions of each there are.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{files_below, read, root};

/// Source of all crates.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Variable with the folder of another workspace whose licences are looked at. Its crates are fetched.
const WORKSPACE: &str = "HYDRANT_TIDY_WORKSPACE";

/// Licences under which a program that contains the crate may be distributed as hydrant is.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates with another licence, which only the tests use: those of defmt-decoder.
const OF_TESTS: &[&str] = &["alterable_logger", "colored"];

/// Crates of which dependencies need several versions.
const SEVERAL: &[&str] = &[
    "chacha20",
    "cpufeatures",
    "embedded-io",
    "getrandom",
    "gimli",
    "hashbrown",
    "object",
    "r-efi",
    "syn",
    "wasm-encoder",
    "wasmparser",
    "windows-sys",
];

/// The packages of a workspace, with another argument of `cargo metadata`.
fn packages(workspace: &Path, argument: &str) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO"));
    command.current_dir(workspace).args(["metadata", "--format-version", "1", "--locked", argument]);
    let output = command.output().expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    match metadata["packages"].take() {
        Value::Array(packages) => packages,
        other => panic!("packages are an array, not {other}"),
    }
}

/// The packages of Cargo.lock.
fn own_packages() -> Vec<Value> {
    packages(root(), "--offline")
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

/// Whether an SPDX expression can be satisfied with [`LICENCES`]. `/` is an old form of `OR`.
fn is_free(expression: &str) -> bool {
    let one_of = |choice: &str| {
        let choice = choice.trim_matches(['(', ')', ' ']);
        choice.replace('/', " OR ").split(" OR ").any(|licence| LICENCES.contains(&licence.trim()))
    };
    expression.split(" AND ").all(one_of)
}

#[test]
fn crates_come_from_the_registry() {
    let mut locks = files_below(root(), &["lock"]);
    locks.retain(|file| file.ends_with("Cargo.lock"));
    assert!(locks.len() > 5, "only {locks:?} found");
    for lock in locks {
        let text = read(&lock);
        let source = |line: &'_ str| line.strip_prefix("source = \"")?.strip_suffix('"').map(str::to_owned);
        let sources: BTreeSet<String> = text.lines().filter_map(source).collect();
        assert!(sources.iter().all(|source| source == REGISTRY), "{}: {sources:?}", lock.display());
    }
}

#[test]
fn crates_have_free_licences() {
    let mut all = own_packages();
    all.retain(|package| !OF_TESTS.contains(&text(package, "name")));
    if let Ok(folder) = env::var(WORKSPACE) {
        all.extend(packages(&root().join(folder), "--all-features"));
    }
    let named = all.iter().map(|package| (text(package, "name"), text(package, "license")));
    let wrong: Vec<_> = named.filter(|(_, licence)| !is_free(licence)).collect();
    assert!(wrong.is_empty(), "with another licence: {wrong:#?}");
}

#[test]
fn few_crates_have_several_versions() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in own_packages() {
        versions
            .entry(text(&package, "name").to_owned())
            .or_default()
            .insert(text(&package, "version").to_owned());
    }
    let several: Vec<&str> =
        versions.iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| name.as_str()).collect();
    assert_eq!(several, SEVERAL, "cargo tree --duplicates shows who needs them");
}

#[test]
fn expressions_of_licences_are_understood() {
    for free in ["MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "GPL-3.0-only OR MIT"] {
        assert!(is_free(free), "{free}");
    }
    for other in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "(MIT OR Apache-2.0) AND GPL-3.0-only"] {
        assert!(!is_free(other), "{other}");
    }
}
