//! The library and its header from the outside: what they contain, and how they are installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use hydrant_tests::peers::{Peer, SLURM_LIBPMI2};
use hydrant_tests::target_dir;
use object::{Object, ObjectSymbol};

use super::support::{install, prefix, sources, succeed};

/// A folder for one test, gone when it is over.
pub(crate) struct Folder(pub(crate) std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let dir = target_dir().join("pmi2").join(format!("{name}.{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        Folder(dir)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Every constant, structure and function has the same value, layout and type in both headers.
// Shows: pmi2.h, Constants and types | all constants, structures, prototypes | equal values, layouts and types |
// done: 154 compared with Slurm's header
// Shows: pmi2.h, Constants and types | `PMI2_Keyvalpair.isCopy`, `PMI2_Command` | a parsed message | free: declared;
// no function has them as arguments
// Shows: pmi2.h, Constants and types | `MPID_Info.handle`, `.pobj_mutex`, `.ref_count` | fields of MPICH's objects |
// free: neither read nor written
// Shows: pmi2.h, Constants and types | `PMI2U_Info` | another name of `MPID_Info` | done
// Shows: pmi2.h, Return codes | `PMI2_ERR_INVALID_NUM_PARSED` | a length of parsed text | free: never returned,
// because no function parses a text of the caller
// Shows: pmi2.h, Job | `HAVE_PMIX_RING` | 1 | done
#[test]
fn both_headers_say_the_same() {
    if !Peer::SlurmPmi2.there() {
        return;
    }
    let said = compare_headers("pmi2", &sources().join("layout.c"), prefix());
    assert_eq!(said, "154 compared, 0 wrong\n");
}

/// Compiles a table of a header, that of Slurm and the installed one, and compares both. `name` is that of header and library.
pub(crate) fn compare_headers(name: &str, table: &Path, prefix: &Path) -> String {
    let folder = Folder::new(&format!("{name}-layout"));
    for (own, header) in [("slurm", format!("<slurm/{name}.h>")), ("own", format!("<{name}.h>"))] {
        let mut command = Command::new("cc");
        command.args(["-std=c11", "-Wall", "-c", &format!("-DTABLE={own}"), &format!("-DHEADER={header}")]);
        command.arg("-I").arg(prefix.join("include")).arg(table);
        succeed(command.arg("-o").arg(folder.0.join(format!("{own}.o"))));
    }
    let (program, lib) = (folder.0.join("compare"), prefix.join("lib"));
    let mut command = Command::new("cc");
    command.arg("-o").arg(&program).arg(sources().join("layout_compare.c"));
    command.arg(folder.0.join("slurm.o")).arg(folder.0.join("own.o"));
    succeed(command.arg("-L").arg(&lib).arg(format!("-l{name}")));
    // The functions are only looked at for their types.
    succeed(Command::new(program).env("LD_LIBRARY_PATH", lib))
}

/// The functions that a library exports.
pub(crate) fn exports(library: &Path) -> BTreeSet<String> {
    let data = fs::read(library).unwrap_or_else(|e| panic!("{}: {e}", library.display()));
    let file = object::File::parse(&*data).expect("the linker made it");
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
    defined.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect()
}

#[test]
fn nothing_but_the_interface_is_exported() {
    let (added, own): (BTreeSet<_>, BTreeSet<_>) = exports(&prefix().join("lib/libpmi2.so.0"))
        .into_iter()
        .partition(|name| name.starts_with("hydrant_"));
    let binary = ["hydrant_kvs_put", "hydrant_node_attr_get", "hydrant_node_attr_put"];
    assert!(added.iter().eq(&binary), "{added:?}");
    assert_eq!(own.len(), 22, "{own:?}");
    if Peer::SlurmPmi2.there() {
        let theirs = exports(Path::new(SLURM_LIBPMI2));
        assert!(own.is_subset(&theirs), "{own:?} {theirs:?}");
    }
}

/// A program that knows the installed library by pkg-config alone, in C99 and in C++.
// Shows: pmi2.h, Constants and types | `extern "C"` | a header for C and C++ | done: C99 and C++
#[test]
fn installing_takes_one_command() {
    let folder = Folder::new("install");
    let said = install("pmi2", &folder.0);
    assert!(said.contains("libpmi2.so.0, pmi2.h and pmi2.pc"), "{said}");
    let link = fs::read_link(folder.0.join("lib/libpmi2.so")).expect("a link for the linker");
    assert_eq!(link, Path::new("libpmi2.so.0"));
    let flags = succeed(
        Command::new("pkg-config")
            .args(["--cflags", "--libs", "pmi2"])
            .env("PKG_CONFIG_PATH", folder.0.join("lib/pkgconfig")),
    );
    let source = folder.0.join("program.c");
    let text =
        "#include <pmi2.h>\nint main(void) { int n; return PMI2_Init(&n, &n, &n, &n) || PMI2_Finalize(); }\n";
    fs::write(&source, text).expect("the folder was made for this");
    for language in [&["-x", "c", "-std=c99"][..], &["-x", "c++"]] {
        if language.contains(&"c++") && Command::new("c++").arg("--version").output().is_err() {
            hydrant_tests::tell("SKIPPED: there is no C++ compiler");
            continue;
        }
        let compiler = if language.contains(&"c++") { "c++" } else { "cc" };
        let program = folder.0.join("program");
        let mut command = Command::new(compiler);
        command
            .args(["-Wall", "-Wextra", "-pedantic", "-Werror"])
            .args(language)
            .arg(&source)
            .args(["-x", "none"]);
        succeed(command.args(flags.split_whitespace()).arg("-o").arg(&program));
        succeed(Command::new(&program).env("LD_LIBRARY_PATH", folder.0.join("lib")));
    }
}

/// The loader finds the library by the name that Slurm's has.
#[test]
fn programs_look_for_it_by_slurms_name() {
    let program = super::support::program(super::support::Whose::Own, &sources().join("codes.c"));
    let data = fs::read(&program).expect("it was built just now");
    let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&*data).expect("the linker made it");
    let needed =
        file.elf_section_table().dynamic(file.endian(), &*data).expect("a program has a dynamic section");
    let (entries, strings) = needed.expect("a program has needs");
    let strings =
        file.elf_section_table().strings(file.endian(), &*data, strings).expect("names of what it needs");
    let names: Vec<String> = entries
        .iter()
        .filter(|entry| object::read::elf::Dyn::tag32(*entry, file.endian()) == Some(object::elf::DT_NEEDED))
        .filter_map(|entry| object::read::elf::Dyn::string(entry, file.endian(), strings).ok())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    assert!(names.iter().any(|name| name == "libpmi2.so.0"), "{names:?}");
}
