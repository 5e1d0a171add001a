//! Check of a program: its file, its architecture, and the MPI library that it needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use hydrant_reactor::process::{DEFAULT_PATH, check_executable, find_in_path};

use crate::elf::{self, NoExec};
use crate::finding::Finding;
use crate::library::{OPEN_MPI, library};
use crate::machine::Machine;

const TOPIC: &str = "program";

pub(crate) fn check(machine: &Machine, command: &OsStr) -> Vec<Finding> {
    let path = match find(machine, command) {
        Ok(path) => path,
        Err(finding) => return vec![finding],
    };
    let name = path.display();
    let own = own_architecture();
    let kind = elf::kind(&path);
    let interpreter = elf::script_interpreter(&path).filter(|path| kind == NoExec::Script && !path.exists());
    if let Some(interpreter) = interpreter {
        let text = format!("{name} is a script for {interpreter:?}, and there is no such file");
        return vec![Finding::problem(
            TOPIC,
            text,
            "correct its first line, which must not end with a carriage return",
        )];
    }
    match kind {
        NoExec::Script => vec![Finding::note(
            TOPIC,
            format!("{name} is a script; its interpreter loads the MPI library"),
            Some("with mpi4py: python3 -c 'from mpi4py import MPI; print(MPI.Get_library_version())'"),
        )],
        NoExec::Data => {
            vec![Finding::problem(TOPIC, format!("{name} is no program"), "name the program itself")]
        }
        NoExec::Program(other) if other != own && other != "another architecture" => vec![Finding::problem(
            TOPIC,
            format!("{name} was built for {other}, this machine is {own}"),
            "build it for this machine, or run it on hosts of its architecture (-hosts)",
        )],
        NoExec::Program(_) => [needs(&path)].into_iter().chain(start_time(machine, &path)).collect(),
    }
}

/// Architecture of this program, as [`elf::kind`] names it.
fn own_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "powerpc64" => "ppc64",
        "riscv64" => "riscv",
        "loongarch64" => "loongarch",
        "arm" => "arm (32 bits)",
        "x86" => "x86 (32 bits)",
        other => other,
    }
}

fn find(machine: &Machine, command: &OsStr) -> Result<PathBuf, Finding> {
    let name = command.to_string_lossy();
    if command.as_bytes().contains(&b'/') {
        let path = Path::new(command);
        return match check_executable(path) {
            Ok(()) => Ok(path.to_owned()),
            Err(error) => {
                let hint = match error.kind() {
                    std::io::ErrorKind::PermissionDenied => format!("make it executable: chmod +x {name}"),
                    _ => "check the path".to_owned(),
                };
                Err(Finding::problem(TOPIC, format!("cannot execute {name}: {error}"), hint))
            }
        };
    }
    let search = machine.variable("PATH").cloned().unwrap_or_else(|| OsString::from(DEFAULT_PATH));
    // As hydrant run does. An empty list is the working directory.
    let find = |list| find_in_path(command, Path::new(""), list, &mut None);
    find(&search).or_else(|| find(OsStr::new(""))).ok_or_else(|| {
        let text = format!("{name} is neither in PATH nor in this directory");
        Finding::problem(TOPIC, text, "name it with its directory".to_owned())
    })
}

/// Finding for the shared libraries of a program of this machine.
fn needs(path: &Path) -> Finding {
    let name = path.display();
    let files = elf::needed_libraries(path);
    match files.iter().find_map(|file| Some((file, library(file)?))) {
        Some((file, library)) => Finding::ok(
            TOPIC,
            format!(
                "{name} needs {file} ({}), which hydrant serves by {}",
                library.name,
                library.protocol.name()
            ),
        ),
        None if files.is_empty() => Finding::note(
            TOPIC,
            format!("{name} needs no shared library; a statically linked MPI library is not seen"),
            None,
        ),
        None => Finding::note(
            TOPIC,
            format!("{name} needs no MPI library itself: {}", files.join(", ")),
            Some(
                "'ldd' shows the libraries of its libraries; a program without MPI runs as independent processes",
            ),
        ),
    }
}

/// Directories of `/sys/class` with devices of networks that libfabric knows, beside Ethernet.
const FABRICS: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];

/// Finding for what makes the start of this program slow on this machine.
fn start_time(machine: &Machine, path: &Path) -> Option<Finding> {
    let is_open_mpi = |file: &str| library(file).is_some_and(|found| found.name == OPEN_MPI.name);
    let mpi =
        elf::library_file(path, machine.variable("LD_LIBRARY_PATH").map(OsString::as_os_str), is_open_mpi)?;
    let has_fabric = FABRICS
        .iter()
        .any(|folder| machine.path(folder).read_dir().is_ok_and(|mut devices| devices.next().is_some()));
    let has_libfabric = elf::needed_libraries(&mpi).iter().any(|file| file.starts_with("libfabric.so"));
    (has_libfabric && !has_fabric && machine.variable("OMPI_MCA_btl").is_none()).then(|| {
        Finding::note(
            "start",
            "this Open MPI uses libfabric, and this machine has no network but Ethernet: its component btl/ofi may sleep for a \
             second in MPI_Init",
            Some("leave it out: hydrant run --mca btl ^ofi; 'hydrant run --profile' shows where the time of a start goes"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;
    use crate::machine::tests::Root;
    use std::os::unix::fs::PermissionsExt;

    fn of(root: &Root, name: &str) -> Finding {
        let path = root.machine().path(name).into_os_string();
        check(&root.machine(), &path).pop().expect("a finding")
    }

    #[test]
    fn programs_are_told_apart() {
        let root = Root::new("program");
        root.write("script", "echo");
        assert!(of(&root, "script").hint.expect("a remedy").starts_with("make it executable: chmod +x "));
        let mut foreign = [0; 64];
        foreign[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        foreign[18] = 21;
        std::fs::write(root.machine().path("foreign"), foreign).expect("it is writable");
        root.write("data", "\u{1}\0");
        for name in ["script", "foreign", "data"] {
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.machine().path(name), mode).expect("the file is ours");
        }
        assert_eq!(of(&root, "script").level, Level::Note);
        for (line, wanted) in [("#! /bin/sh -e\n", Level::Note), ("#!/bin/sh\r\n", Level::Problem)] {
            root.write("script", line);
            assert_eq!(of(&root, "script").level, wanted, "{line:?}");
        }
        assert!(of(&root, "foreign").text.contains("was built for ppc64"));
        assert_eq!(of(&root, "data").level, Level::Problem);
        assert_eq!(of(&root, "missing").level, Level::Problem);
        let own = std::env::current_exe().expect("the system knows this program");
        let finding = check(&root.machine(), own.as_os_str()).pop().expect("a finding");
        assert!(finding.text.contains("needs no MPI library itself"), "{finding:?}");
    }

    #[test]
    fn a_name_is_searched_in_path() {
        let root = Root::new("path");
        let mut machine = root.machine();
        machine.variables.insert("PATH".into(), machine.path("bin").into_os_string());
        let finding = check(&machine, OsStr::new("a.out")).pop().expect("a finding");
        assert_eq!(finding.text, "a.out is neither in PATH nor in this directory");
    }
}
