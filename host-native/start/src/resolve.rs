//! Resolution of commands to files.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use hydrant_control::protocol::Program;
use hydrant_reactor::process::{DEFAULT_PATH, check_executable, find_in_path};
use rustix::fs::{Access, access};

use crate::LaunchError;

/// Checks that the working directory of ranks can be entered.
pub(crate) fn check_wdir(dir: &Path) -> Result<(), LaunchError> {
    let fail = |why| LaunchError::WorkingDir { dir: dir.to_owned(), why };
    if !std::fs::metadata(dir).map_err(fail)?.is_dir() {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    access(dir, Access::EXEC_OK).map_err(|errno| fail(errno.into()))
}

/// Returns the `PWD` of the ranks of a program that names a working directory. `None` if their environment has a name of this
/// directory already, perhaps one with links that the user prefers.
pub(crate) fn working_dir(program: &Program) -> Option<PathBuf> {
    let wdir = program.wdir.as_deref()?;
    let place = |dir: &Path| std::fs::metadata(dir).map(|found| (found.dev(), found.ino())).ok();
    let known = program.env.iter().rfind(|(name, _)| name == "PWD").map(|(_, value)| Path::new(value));
    if known.is_some_and(|known| known.is_absolute() && place(known) == place(wdir)) {
        return None;
    }
    let path = std::env::current_dir().ok()?.join(wdir);
    // A shell refuses a PWD with dots.
    match path.components().any(|part| part == Component::ParentDir) {
        true => path.canonicalize().ok(),
        false => Some(path.components().collect()),
    }
}

/// Finds the file of a program, relative to the working directory of its ranks.
///
/// The order is: the program's own search path, then the command itself if it contains a slash, otherwise the `PATH` of
/// the ranks' environment and the working directory behind it, as in srun and Open MPI's mpirun.
pub(crate) fn resolve(program: &Program) -> Result<PathBuf, LaunchError> {
    let command = program.command.as_os_str();
    let wdir = program.wdir.as_deref().unwrap_or(Path::new(""));
    let mut denied = None;
    if let Some(search) = program.path.as_ref().filter(|_| Path::new(command).is_relative())
        && let Some(path) = find_in_path(command, wdir, search, &mut denied)
    {
        return Ok(path);
    }
    if command.as_bytes().contains(&b'/') {
        let path = wdir.join(command);
        return match check_executable(&path) {
            Ok(()) => Ok(command.into()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                Err(LaunchError::NotFound { command: command.to_owned(), searched: None })
            }
            Err(why) => Err(LaunchError::NotExecutable { path, why }),
        };
    }
    let found = program.env.iter().rfind(|(name, _)| name == "PATH");
    let search = found.map_or_else(|| OsString::from(DEFAULT_PATH), |(_, value)| value.clone());
    let in_path = find_in_path(command, wdir, &search, &mut denied);
    // An empty list has one entry, the working directory.
    in_path.or_else(|| find_in_path(command, wdir, OsStr::new(""), &mut denied)).ok_or_else(|| match denied {
        Some((path, why)) => LaunchError::NotExecutable { path, why },
        None => LaunchError::NotFound { command: command.to_owned(), searched: Some(search) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(command: &str, path: Option<&str>, wdir: Option<&str>) -> Program {
        let env = path.map(|path| ("PATH".into(), path.into()));
        Program {
            ranks: 1,
            command: command.into(),
            args: Vec::new(),
            env: env.into_iter().collect(),
            wdir: wdir.map(PathBuf::from),
            path: None,
            psets: Vec::new(),
        }
    }

    #[test]
    fn the_path_of_the_ranks_is_searched() {
        let found = resolve(&program("sh", Some("/nowhere:/bin"), None)).unwrap();
        assert_eq!(found, Path::new("/bin/sh"));
        assert_eq!(resolve(&program("sh", None, None)).unwrap().file_name(), Some(OsStr::new("sh")));
        let missing = resolve(&program("sh", Some("/nowhere"), None)).unwrap_err();
        assert!(matches!(missing, LaunchError::NotFound { searched: Some(_), .. }), "{missing}");
        assert_eq!(missing.exit_code(), 127);
        assert!(resolve(&program("", Some("/bin"), None)).is_err());
    }

    #[test]
    fn the_search_path_of_a_program_comes_first() {
        let own = Program { path: Some("/nowhere:/".into()), ..program("bin/sh", None, None) };
        assert_eq!(resolve(&own).unwrap(), Path::new("/bin/sh"));
        let own = Program { path: Some("/bin".into()), ..program("sh", Some("/nowhere"), None) };
        assert_eq!(resolve(&own).unwrap(), Path::new("/bin/sh"));
        let beside = Program { path: Some("/nowhere".into()), ..program("sh", Some("/bin"), None) };
        assert_eq!(resolve(&beside).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn relative_names_start_in_the_working_directory() {
        assert_eq!(resolve(&program("./sh", None, Some("/bin"))).unwrap(), Path::new("./sh"));
        assert_eq!(resolve(&program("sh", Some(""), Some("/bin"))).unwrap(), Path::new("./sh"));
        assert_eq!(resolve(&program("sh", Some("bin"), Some("/"))).unwrap(), Path::new("bin/sh"));
        assert_eq!(resolve(&program("sh", Some("/nowhere"), Some("/bin"))).unwrap(), Path::new("./sh"));
        let denied = resolve(&program("passwd", Some("/nowhere"), Some("/etc"))).unwrap_err();
        assert!(matches!(denied, LaunchError::NotExecutable { .. }), "{denied}");
    }

    #[test]
    fn errors_name_the_file() {
        let error = resolve(&program("/etc/passwd", None, None)).unwrap_err();
        assert_eq!(error.to_string(), "cannot start /etc/passwd: Permission denied (os error 13)");
        assert_eq!(error.exit_code(), 126);
        assert!(matches!(
            resolve(&program("/bin/", None, None)).unwrap_err(),
            LaunchError::NotExecutable { .. }
        ));
        assert!(check_wdir(Path::new("/etc/passwd")).is_err());
        assert!(check_wdir(Path::new("/nowhere")).is_err());
        assert!(check_wdir(Path::new("/")).is_ok());
    }
}
