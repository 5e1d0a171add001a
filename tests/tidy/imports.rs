//! Import cycles between the files of a crate.
//!
//! The check reads paths that begin with `crate::` or `super::`, in `use` lines and elsewhere, and follows names that a
//! module re-exports from its own submodules. `mod` declarations and unit tests at the end of a file do not count.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use super::{code, read, root, rust_files};

/// A module as its path below the crate's root. The root is the empty path.
type Module = Vec<String>;

/// The files of a crate by module, with the source as [`code`].
type Files = BTreeMap<Module, String>;

#[test]
fn files_of_a_crate_have_no_import_cycles() {
    let mut cycles = Vec::new();
    let roots = crate_roots();
    assert!(roots.len() > 15, "only {roots:?} found");
    for dir in &roots {
        let shown = dir.strip_prefix(root()).expect("found below it").display();
        let files = files_of_crate(dir, &roots);
        cycles.extend(cycles_of(&files).iter().map(|cycle| format!("{shown}: {cycle}")));
    }
    assert!(
        cycles.is_empty(),
        "files import each other; move what both need into a file below them:\n{}",
        cycles.join("\n")
    );
}

/// Folders with a `lib.rs` or `main.rs`.
fn crate_roots() -> Vec<PathBuf> {
    let is_root = |file: &PathBuf| file.ends_with("lib.rs") || file.ends_with("main.rs");
    let roots: BTreeSet<PathBuf> = rust_files(root())
        .iter()
        .filter(|file| is_root(file))
        .filter_map(|file| file.parent())
        .map(Path::to_owned)
        .collect();
    roots.into_iter().collect()
}

/// The modules of the crate in `dir`. Crates inside `dir` and single-file programs in its `bin` do not belong to it.
fn files_of_crate(dir: &Path, roots: &[PathBuf]) -> Files {
    let is_foreign = |file: &Path| {
        let is_inner = |other: &PathBuf| other != dir && other.starts_with(dir) && file.starts_with(other);
        file.starts_with(dir.join("bin")) || roots.iter().any(is_inner)
    };
    let own = rust_files(dir).into_iter().filter(|file| !is_foreign(file));
    own.map(|file| {
        let inner = file.strip_prefix(dir).expect("found below it").with_extension("");
        let mut module: Module = inner.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
        (module, without_unit_tests(&code(&read(&file))))
    })
    .collect()
}

fn without_unit_tests(code: &str) -> String {
    code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

/// One line for each module that imports itself by way of others.
fn cycles_of(files: &Files) -> Vec<String> {
    let edges: BTreeMap<&Module, BTreeSet<Module>> =
        files.iter().map(|(module, code)| (module, imported(module, code, files))).collect();
    files.keys().filter_map(|module| cycle_through(module, &edges)).collect()
}

/// The shortest cycle through `start`, for a message.
fn cycle_through(start: &Module, edges: &BTreeMap<&Module, BTreeSet<Module>>) -> Option<String> {
    let mut from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for next in &edges[module] {
            if next == start {
                let mut path = vec![name(start), name(module)];
                let mut at = module;
                while at != start {
                    at = from[at];
                    path.push(name(at));
                }
                path.reverse();
                return Some(path.join(" -> "));
            }
            if !from.contains_key(next) {
                from.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}

fn name(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("::") }
}

/// The other modules that a module imports from.
fn imported(module: &Module, code: &str, files: &Files) -> BTreeSet<Module> {
    let mut found: BTreeSet<Module> =
        absolute_paths(module, code).iter().filter_map(|path| home(path, files)).collect();
    found.remove(module);
    found
}

/// All paths that begin with `crate::` or `super::`, as paths from the crate's root.
fn absolute_paths(module: &Module, code: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let mut rest = &code[at + start.len()..];
            let mut base = if start == "crate::" { Module::new() } else { module.clone() };
            if start == "super::" {
                base.pop();
                while let Some(more) = rest.strip_prefix("super::") {
                    base.pop();
                    rest = more;
                }
            }
            expand(rest, base, &mut paths);
        }
    }
    paths
}

/// Appends the paths that `text` begins with, each behind `prefix`. Returns the rest of the text.
fn expand<'t>(text: &'t str, mut prefix: Module, paths: &mut Vec<Module>) -> &'t str {
    let mut rest = text.trim_start();
    if let Some(list) = rest.strip_prefix('{') {
        rest = list.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            let before = rest;
            rest = expand(rest, prefix.clone(), paths).trim_start();
            // An alias, a comma, or code that is no path.
            let skip = rest.find([',', '}']).unwrap_or(rest.len());
            rest = rest[skip..].trim_start_matches(',').trim_start();
            assert!(rest.len() < before.len(), "each entry of a list takes text");
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    prefix.extend((end > 0).then(|| rest[..end].to_owned()));
    rest = &rest[end..];
    match rest.strip_prefix("::") {
        Some(inner) if inner.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '{') => {
            expand(inner, prefix, paths)
        }
        _ => {
            paths.push(prefix);
            rest
        }
    }
}

/// The module that defines the item of a path: the longest module in it, or the submodule that this one has the item
/// from.
fn home(path: &Module, files: &Files) -> Option<Module> {
    let len = (0..=path.len()).rev().find(|&len| files.contains_key(&path[..len]))?;
    let (module, item) = (path[..len].to_vec(), path.get(len));
    let submodule = item.and_then(|item| {
        let known = own_imports(&module, &files[&module]).into_iter();
        known.filter(|path| path.last() == Some(item)).find_map(|path| {
            let deeper =
                (module.len() + 1..path.len()).rev().find(|&len| files.contains_key(&path[..len]))?;
            Some([&path[..deeper], std::slice::from_ref(item)].concat())
        })
    });
    match submodule {
        Some(path) => home(&path, files),
        None => Some(module),
    }
}

/// The paths in `use` lines that begin with a submodule, as paths from the crate's root.
fn own_imports(module: &Module, code: &str) -> Vec<Module> {
    let mut paths = Vec::new();
    for line in code.split(';') {
        let Some(at) = line.find("use ").filter(|&at| !line[..at].ends_with(|c: char| c.is_alphanumeric()))
        else {
            continue;
        };
        let path = line[at + 4..].trim_start();
        if !["crate::", "super::"].iter().any(|start| path.starts_with(start)) {
            expand(path.strip_prefix("self::").unwrap_or(path), module.clone(), &mut paths);
        }
    }
    paths
}

#[test]
fn the_cycle_check_sees_what_it_should() {
    let module =
        |path: &str| path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Module>();
    let files = |files: &[(&str, &str)]| {
        files
            .iter()
            .map(|&(path, source)| (module(path), without_unit_tests(&code(source))))
            .collect::<Files>()
    };
    let cycles = |list: &[(&str, &str)]| cycles_of(&files(list));
    let root = ("", "mod a; mod b; pub use a::Made; pub use b::{Used, c::Deep as Other};");
    assert_eq!(cycles(&[root, ("a", "use crate::b::Used;"), ("b", "use std::fmt; // crate::a")]), [""; 0]);
    let both = ["a -> b -> a", "b -> a -> b"];
    assert_eq!(cycles(&[root, ("a", "use crate::b::Used;"), ("b", "fn f() -> super::a::Made {}")]), both);
    // Through a name that the root re-exports, and in a list.
    assert_eq!(cycles(&[root, ("a", "use crate::{b::{self}, x};"), ("b", "use crate::Made;")]), both);
    assert_eq!(
        cycles(&[root, ("b", "mod c; use super::a::{self};"), ("a", ""), ("b::c", "use super::super::a;")]),
        [""; 0]
    );
    assert_eq!(
        cycles(&[root, ("a", "use crate::b::c::Deep;"), ("b::c", "use super::super::Made;"), ("b", "")]),
        ["a -> b::c -> a", "b::c -> a -> b::c"]
    );
    let unit_tests = "#[cfg(test)]\nmod tests {\n    use crate::a::Made;\n}\n";
    assert_eq!(cycles(&[root, ("a", "use crate::b::Used;"), ("b", unit_tests)]), [""; 0]);
}
