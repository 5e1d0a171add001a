//! Rules for releases: one version everywhere, tested examples in READMEs, and settings of docs.rs.

use std::fs;
use std::ops::Range;
use std::path::Path;

use super::{files_below, read, root};

/// Writes this version, and that of the workspace too.
const WRITE: &str = "HYDRANT_WRITE_VERSION";

/// Returns where the version of hydrant is in a line of a file with this name.
fn version(file: &str, line: &str) -> Option<Range<usize>> {
    let (before, after) = match file {
        "Cargo.toml" if line.contains("path = \"") => (", version = \"", '"'),
        "Cargo.toml" | "pyproject.toml" if line.starts_with("version = ") => ("version = \"", '"'),
        "package.json" if line.starts_with("  \"version\"") => ("\"version\": \"", '"'),
        "recipe.yaml" if line.starts_with("  version: ") => ("  version: ", '\n'),
        _ if file.ends_with(".1") && line.starts_with(".TH ") => ("\"hydrant ", '"'),
        _ => return None,
    };
    let start = line.find(before)? + before.len();
    Some(start..start + line[start..].find(after)?)
}

/// Returns the text of a file with a version in all places for it, and their number.
fn with_version(path: &Path, wanted: &str) -> (String, usize) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut places = 0;
    let text = read(path);
    let lines = text.split_inclusive('\n').map(str::to_owned).map(|mut line| {
        if let Some(range) = version(name, &line) {
            line.replace_range(range, wanted);
            places += 1;
        }
        line
    });
    (lines.collect(), places)
}

/// Other workspaces, packages of other systems, manual pages and dependencies within the workspace name a version of their own.
/// `HYDRANT_WRITE_VERSION=0.2.0` writes another one everywhere: cargo takes no workspace in which only one place has it.
#[test]
fn every_file_has_the_version_of_the_workspace() {
    let write = std::env::var(WRITE).ok();
    let wanted = write.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
    let mut files = 0;
    for path in files_below(root(), &["toml", "json", "yaml", "1"]) {
        let (text, places) = with_version(&path, wanted);
        files += usize::from(places > 0);
        if write.is_some() && text != read(&path) {
            fs::write(&path, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        assert!(
            text == read(&path),
            "{} has another version than {wanted}: run {WRITE}={wanted} cargo test -p hydrant-tests --test tidy version",
            path.display()
        );
    }
    assert!(files > 25, "only {files} files with a version");
    for log in ["CHANGELOG.md", "core/CHANGELOG.md"] {
        let heading = format!("## [{wanted}]");
        assert!(
            read(&root().join(log)).lines().any(|line| line == heading),
            "{log} has no section {heading:?}"
        );
    }
}

#[test]
fn versions_are_found_where_they_are() {
    let found = |file: &str, line: &str| version(file, line).map(|range| line[range].to_owned());
    let some = Some("0.9.0".to_owned());
    assert_eq!(found("Cargo.toml", "version = \"0.9.0\"\n"), some);
    assert_eq!(
        found("Cargo.toml", "hydrant-abi = { path = \"host-wasm/abi\", version = \"0.9.0\" }\n"),
        some
    );
    assert_eq!(found("Cargo.toml", "serde = { version = \"1.0.229\", features = [] }\n"), None);
    assert_eq!(found("package.json", "  \"version\": \"0.9.0\",\n"), some);
    assert_eq!(found("recipe.yaml", "  version: 0.9.0\n"), some);
    assert_eq!(found("hydrant-up.1", ".TH hydrant-up 1  \"hydrant 0.9.0\" hydrant\n"), some);
}

/// `cargo test --doc` runs the examples in a README that the crate includes. docs.rs builds the default features of a crate without
/// settings.
#[test]
fn documentation_of_published_crates_is_whole() {
    let mut with_examples = 0;
    for manifest in files_below(root(), &["toml"]).iter().filter(|file| file.ends_with("Cargo.toml")) {
        let (folder, text) = (manifest.parent().expect("a file lies in a folder"), read(manifest));
        let readme = folder.join("README.md");
        if !text.contains("[package]") || text.contains("publish = false") {
            continue;
        }
        let (features, settings) = (text.contains("[features]"), text.contains("[package.metadata.docs.rs]"));
        assert_eq!(
            features,
            settings,
            "{}: a crate with features needs settings of docs.rs, and one without needs none",
            manifest.display()
        );
        if read(&readme).lines().any(|line| line.starts_with("```rust")) {
            with_examples += 1;
            let lib = folder.join("src/lib.rs");
            assert!(
                read(&lib).contains("include_str!(\"../README.md\")"),
                "{} does not include its README",
                lib.display()
            );
        }
    }
    assert!(with_examples >= 3, "only {with_examples} READMEs with examples");
}
