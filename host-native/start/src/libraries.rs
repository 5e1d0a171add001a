//! Shared libraries of a program, as its dynamic linker finds them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hydrant_control::protocol::Program;
use hydrant_doctor::{dynamic_linker, script_interpreter, shared_object_name};

/// Libraries of glibc, which fit the dynamic linker of each host, before their `.so`.
const GLIBC: [&str; 14] = [
    "libBrokenLocale",
    "libanl",
    "libc",
    "libc_malloc_debug",
    "libdl",
    "libm",
    "libmvec",
    "libnsl",
    "libpthread",
    "libresolv",
    "librt",
    "libthread_db",
    "libutil",
    "linux-vdso",
];

/// Returns the libraries of a program in the order of loading, without those of glibc. For a script they are those of its
/// interpreter.
///
/// The dynamic linker of a host takes a library of `LD_PRELOAD` for a needed one if its name (`DT_SONAME`) is the needed one.
/// Libraries without that name are left out: they would be loaded twice.
///
/// # Errors
/// The dynamic linker does not find a library, or is none of glibc.
pub(crate) fn libraries(program: &Program, file: &Path) -> Result<Vec<PathBuf>, String> {
    let file = script_interpreter(file).unwrap_or_else(|| file.to_owned());
    let Some(linker) = dynamic_linker(&file) else { return Ok(Vec::new()) };
    let name = linker.file_name().map(OsStr::as_bytes).unwrap_or_default();
    if !name.starts_with(b"ld-linux") && !name.starts_with(b"ld64") {
        return Err(format!("{} is no dynamic linker of glibc", linker.display()));
    }
    let mut command = Command::new(&linker);
    command.arg("--list").arg(&file).env_clear().envs(program.env.iter().cloned()).env_remove("LD_PRELOAD");
    let output = command.output().map_err(|why| format!("{}: {why}", linker.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
    }
    Ok(output.stdout.split(|&byte| byte == b'\n').filter_map(listed).collect())
}

/// Returns the file of a library of the list, whose lines are `NAME => FILE (ADDRESS)`, if it is to be sent.
fn listed(line: &[u8]) -> Option<PathBuf> {
    let (name, file) = find(line, b" => ").map(|at| (&line[..at], &line[at + 4..]))?;
    let file = &file[..find(file, b" (0x")?];
    let (name, file) = (std::str::from_utf8(name).ok()?.trim_start(), Path::new(OsStr::from_bytes(file)));
    let is_glibc = name.split_once(".so").is_some_and(|(name, _)| GLIBC.contains(&name));
    let is_wanted = !is_glibc && file.is_absolute() && shared_object_name(file)? == name;
    is_wanted.then(|| file.to_owned())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}
