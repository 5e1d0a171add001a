//! The core needs nothing but `core`: looks at what the linker made of it for machines without operating system.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hydrant_tests::cross;
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use wasmparser::{KnownCustom, Name, Parser, Payload};

/// Parts of the names by which allocators are known to linkers.
const ALLOCATORS: &[&str] =
    &["alloc", "malloc", "calloc", "realloc", "__rg_", "__rdl_", "dlmalloc", "sbrk", "memory.grow"];

/// Builds tests/freestanding for the target as a `kind` of library.
fn build(target: &str, kind: &str) -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("freestanding/Cargo.toml");
    cross(target, &manifest, &["rustc", "--release", "--lib", "--crate-type", kind]).join("release")
}

fn no_allocator<'a>(names: impl IntoIterator<Item = &'a str>) {
    let found: Vec<&str> =
        names.into_iter().filter(|name| ALLOCATORS.iter().any(|part| name.contains(part))).collect();
    assert!(found.is_empty(), "allocators: {found:?}");
}

#[test]
fn nothing_allocates_in_web_assembly() {
    let file = build("wasm32-unknown-unknown", "cdylib").join("hydrant_freestanding.wasm");
    let bytes = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (mut imports, mut exports, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(&bytes) {
        match payload.expect("the linker made a module") {
            Payload::ImportSection(section) => imports.extend(section.into_iter().flatten()),
            Payload::ExportSection(section) => exports.extend(section.into_iter().flatten()),
            Payload::CustomSection(section) => {
                let KnownCustom::Name(section) = section.as_known() else { continue };
                for subsection in section {
                    if let Name::Function(map) = subsection.expect("the module is whole") {
                        names.extend(map.into_iter().flatten().map(|naming| naming.name));
                    }
                }
            }
            _ => {}
        }
    }
    assert!(imports.is_empty(), "the module asks its host for {imports:?}");
    assert!(exports.iter().any(|export| export.name == "hydrant_exercise"), "the entry is gone: {exports:?}");
    assert!(names.iter().any(|name| name.contains("hydrant_core")), "no names to look at: {names:?}");
    no_allocator(names);
    hydrant_tests::tell(&format!("the core as WebAssembly: {} bytes", bytes.len()));
}

#[test]
fn nothing_allocates_on_a_microcontroller() {
    let file = build("thumbv6m-none-eabi", "staticlib").join("libhydrant_freestanding.a");
    let bytes = fs::read(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let archive = ArchiveFile::parse(bytes.as_slice()).expect("the compiler made an archive");
    let (mut defined, mut wanted, mut storage) = (BTreeSet::new(), BTreeSet::new(), None);
    for member in archive.members() {
        let member = member.expect("the archive is whole");
        // An archive holds more than objects.
        if !member.name().ends_with(b".o") {
            continue;
        }
        let data = member.data(bytes.as_slice()).expect("the archive is whole");
        let member = object::File::parse(data).expect("the compiler made an object");
        for symbol in member.symbols() {
            let name = symbol.name().expect("symbols have names").to_owned();
            if name == "hydrant_storage" {
                let section = symbol.section_index().and_then(|at| member.section_by_index(at).ok());
                storage = section.map(|section| section.kind());
            }
            if symbol.is_undefined() { &mut wanted } else { &mut defined }.insert(name);
        }
    }
    assert!(defined.contains("hydrant_exercise"), "the entry is gone");
    assert_eq!(storage, Some(SectionKind::UninitializedData), "static storage is not in .bss");
    no_allocator(defined.iter().chain(&wanted).map(String::as_str));
    wanted.remove("");
    let foreign: Vec<&String> = wanted.difference(&defined).collect();
    assert!(foreign.is_empty(), "it needs what only an operating system has: {foreign:?}");
}
