//! The map of crates in `ARCHITECTURE.md`.

use std::collections::{BTreeMap, BTreeSet};

use super::tables::rows;
use super::{files_below, read, root};

/// Folders whose crates the map does not list one by one.
const TESTS: &str = "tests";

/// The section of the architecture with the map.
fn section(architecture: &str) -> &str {
    let section = architecture.split("\n## ").find(|section| section.starts_with("Map\n"));
    section.expect("ARCHITECTURE.md has a section Map")
}

/// Returns the folder of each crate in the map's table.
fn folders(map: &str) -> BTreeMap<String, String> {
    let entry = |row: Vec<&str>| {
        let [name, folder, _] = row[..] else { panic!("{row:?}: a row of the map has 3 cells") };
        (name.to_owned(), folder.trim_matches(['`', '/']).to_owned())
    };
    rows(map).into_iter().map(entry).collect()
}

/// Returns the line of each crate in the map's block of layers, counted from the lowest.
fn layers(map: &str) -> BTreeMap<String, usize> {
    let block = map.split("```").nth(1).expect("the map has a block of layers");
    let lines = block.trim().lines().enumerate();
    lines
        .flat_map(|(layer, line)| line.split_whitespace().map(move |word| (full_name(word), layer)))
        .collect()
}

fn full_name(word: &str) -> String {
    if word.starts_with("hydrant") { word.to_owned() } else { format!("hydrant-{word}") }
}

/// Returns the imports of a crate that do not lead to a layer below its own.
fn wrong_uses(name: &str, uses: &BTreeSet<String>, layers: &BTreeMap<String, usize>) -> Vec<String> {
    let layer =
        |name: &str| *layers.get(name).unwrap_or_else(|| panic!("{name} is in no layer of ARCHITECTURE.md"));
    let own = layer(name);
    let wrong = uses.iter().filter(|other| layer(other) >= own);
    wrong.map(|other| format!("{name} (layer {own}) uses {other} (layer {})", layer(other))).collect()
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
fn the_map_has_every_crate_in_a_layer_above_those_that_it_uses() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    let map = section(&architecture);
    let (folders, layers) = (folders(map), layers(map));
    let mut found = BTreeMap::new();
    let mut wrong = Vec::new();
    for file in files_below(root(), &["toml"]).iter().filter(|file| file.ends_with("Cargo.toml")) {
        let folder = file.parent().expect("a file lies in a folder").strip_prefix(root());
        let folder = folder.expect("found below it").display().to_string();
        if folder.starts_with(TESTS) {
            continue;
        }
        if let Some((name, uses)) = manifest(&read(file)) {
            wrong.extend(wrong_uses(&name, &uses, &layers));
            found.insert(name, folder);
        }
    }
    assert!(found.len() > 20, "only {:?} found", found.keys());
    assert_eq!(found, folders, "the crates (left) are not those of the table in ARCHITECTURE.md");
    assert!(wrong.is_empty(), "imports point down the layers of ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

#[test]
fn the_map_check_sees_what_it_should() {
    let text = "[package]\nname = \"hydrant-a\"\n[dependencies]\nhydrant-b.workspace = true\nlibc = \"1\"\n\
                hydrant = { path = \"x\" }\n[dev-dependencies]\nhydrant-c.workspace = true\n";
    let uses = BTreeSet::from(["hydrant".to_owned(), "hydrant-b".to_owned()]);
    assert_eq!(manifest(text), Some(("hydrant-a".to_owned(), uses.clone())));
    assert_eq!(manifest("[workspace]\n"), None);
    let map = section(
        "# A\n\n## Map\n\n```\nb  c\na\nhydrant\n```\n\n| crate | folder | holds |\n|---|---|---|\n\
         | hydrant-a | `x/a/` | it |\n\n## B\n",
    );
    assert_eq!(folders(map), BTreeMap::from([("hydrant-a".to_owned(), "x/a".to_owned())]));
    let layers = layers(map);
    assert_eq!(layers["hydrant-c"], 0);
    let uses = |names: &[&str]| names.iter().map(|name| full_name(name)).collect::<BTreeSet<_>>();
    assert_eq!(wrong_uses("hydrant-a", &uses(&["b", "c"]), &layers), [""; 0]);
    assert_eq!(
        wrong_uses("hydrant-b", &uses(&["c"]), &layers),
        ["hydrant-b (layer 0) uses hydrant-c (layer 0)"]
    );
    assert_eq!(wrong_uses("hydrant-a", &uses(&["hydrant"]), &layers).len(), 1);
}
