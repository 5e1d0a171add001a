//! The map of crates in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::rows;
use super::{files_below, read, root};

/// Folders whose crates the map does not list one by one.
const TESTS: &str = "tests";

/// A crate of the map: its folder, and the crates that it uses.
type Entry = (String, BTreeSet<String>);

/// Returns the crates of the first table of the architecture by name.
fn mapped(architecture: &str) -> BTreeMap<String, Entry> {
    let table = architecture.split("\n## ").find(|section| section.starts_with("Map\n"));
    let rows = rows(table.expect("ARCHITECTURE.md has a section Map"));
    let entry = |row: Vec<&str>| {
        let [name, folder, _, uses] = row[..] else { panic!("{row:?}: a row of the map has 4 cells") };
        let uses = uses.split(", ").filter(|word| *word != "-");
        let uses = uses.map(|word| full_name(word.trim_start_matches("optionally ")));
        (name.to_owned(), (folder.trim_matches(['`', '/']).to_owned(), uses.collect()))
    };
    rows.into_iter().map(entry).filter(|(_, (folder, _))| folder != TESTS).collect()
}

fn full_name(word: &str) -> String {
    if word.starts_with("hydrant") { word.to_owned() } else { format!("hydrant-{word}") }
}

/// Returns the name of the crate of a manifest, and the crates of this repository that it depends on. Dependencies of its
/// tests do not count.
fn manifest(text: &str) -> Option<(String, BTreeSet<String>)> {
    let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))?;
    let mut is_dependencies = false;
    let mut uses = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('[') {
            is_dependencies =
                line.ends_with("dependencies]") && !line.contains("dev-") && !line.contains("workspace");
        } else if is_dependencies && line.starts_with("hydrant") {
            let end = line.find(|c: char| !c.is_alphanumeric() && c != '-').unwrap_or(line.len());
            uses.insert(line[..end].to_owned());
        }
    }
    Some((name.to_owned(), uses))
}

#[test]
fn the_map_has_every_crate_and_what_it_uses() {
    let mut crates = BTreeMap::new();
    for file in files_below(root(), &["toml"]).iter().filter(|file| file.ends_with("Cargo.toml")) {
        let folder = file.parent().expect("a file lies in a folder").strip_prefix(root());
        let folder = folder.expect("found below it").display().to_string();
        if folder.starts_with(TESTS) {
            continue;
        }
        crates.extend(manifest(&read(file)).map(|(name, uses)| (name, (folder, uses))));
    }
    assert!(crates.len() > 20, "only {:?} found", crates.keys());
    let mapped = mapped(&read(&root().join("ARCHITECTURE.md")));
    for (name, entry) in &crates {
        assert_eq!(
            mapped.get(name),
            Some(entry),
            "{name}: the map of ARCHITECTURE.md (left) is not its manifest"
        );
    }
    for name in mapped.keys() {
        assert!(crates.contains_key(name), "{name} is in the map of ARCHITECTURE.md, and is no crate");
    }
}

#[test]
fn the_map_check_sees_what_it_should() {
    let text = "[package]\nname = \"hydrant-a\"\n[dependencies]\nhydrant-b.workspace = true\nlibc = \"1\"\n\
                hydrant = { path = \"x\" }\n[dev-dependencies]\nhydrant-c.workspace = true\n";
    let uses = BTreeSet::from(["hydrant".to_owned(), "hydrant-b".to_owned()]);
    assert_eq!(manifest(text), Some(("hydrant-a".to_owned(), uses.clone())));
    assert_eq!(manifest("[workspace]\n"), None);
    let map = "# A\n\n## Map\n\n| crate | folder | holds | uses |\n|---|---|---|---|\n\
               | hydrant-a | `x/a/` | it | b, optionally hydrant |\n| hydrant-t, -u | `tests/` | tests | - |\n\n## B\n";
    assert_eq!(mapped(map), BTreeMap::from([("hydrant-a".to_owned(), ("x/a".to_owned(), uses))]));
}
