//! Search for the file of a command.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The directories in which a shell looks without `PATH`.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Finds a command in a list of directories, as in `PATH`. Relative directories are below `wdir`. Returns the first match,
/// as the directory names it. The first file that must not be run is kept in `denied`, with the reason.
pub fn find_in_path(
    command: &OsStr,
    wdir: &Path,
    path: &OsStr,
    denied: &mut Option<(PathBuf, io::Error)>,
) -> Option<PathBuf> {
    for dir in path.as_bytes().split(|&byte| byte == b':') {
        // An empty entry is the current directory, and needs a slash lest the name be looked up again.
        let dir = if dir.is_empty() { Path::new(".") } else { Path::new(OsStr::from_bytes(dir)) };
        let path = dir.join(command);
        match check_executable(&wdir.join(&path)) {
            Ok(()) if !command.is_empty() => return Some(path),
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                denied.get_or_insert((path, why));
            }
            _ => {}
        }
    }
    None
}

/// Checks that this user may execute a file.
///
/// # Errors
/// The reason why the file cannot be executed.
pub fn check_executable(path: &Path) -> io::Result<()> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a regular file"));
    }
    Ok(access(path, Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_match_counts() {
        let find = |command: &str, path: &str| {
            find_in_path(OsStr::new(command), Path::new(""), OsStr::new(path), &mut None)
        };
        assert_eq!(find("sh", "/nowhere:/bin:/usr/bin"), Some("/bin/sh".into()));
        assert_eq!(find("sh", "/nowhere"), None);
        assert_eq!(find("", "/bin"), None);
        let mut denied = None;
        let found = find_in_path(OsStr::new("null"), Path::new("/"), OsStr::new("dev"), &mut denied);
        assert_eq!((found, denied.unwrap().0), (None, "dev/null".into()));
    }
}
