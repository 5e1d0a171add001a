//! Preloaded library for `--mpi-psets`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::LaunchError;

const LIBRARY: &str = "libhydrant_mpi.so";
/// Variable with the path of the library.
const VARIABLE: &str = "HYDRANT_MPI_LIB";

/// Finds the library: the path in `HYDRANT_MPI_LIB`, or the file next to this program or in `../lib` from there.
pub fn find() -> Result<PathBuf, LaunchError> {
    let candidates = match env::var_os(VARIABLE) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let exe =
                env::current_exe().map_err(LaunchError::system("cannot determine the path of hydrant"))?;
            let folder = exe.parent().unwrap_or(&exe);
            vec![folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)]
        }
    };
    let found = candidates.iter().find_map(|path| path.canonicalize().ok().filter(|path| path.is_file()));
    let library = found.ok_or(LaunchError::NoMpiLibrary { searched: candidates })?;
    // LD_PRELOAD has no quoting.
    if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(LaunchError::PreloadPath { library });
    }
    Ok(library)
}

/// Value of `LD_PRELOAD` with the library before the inherited ones.
pub(crate) fn before(library: &OsStr, others: Option<&OsStr>) -> OsString {
    let mut list = library.to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_libraries_are_kept() {
        let list = |others: Option<&str>| before("/lib/l.so".as_ref(), others.map(OsStr::new));
        assert_eq!(list(None), "/lib/l.so");
        assert_eq!(list(Some("")), "/lib/l.so");
        assert_eq!(list(Some("/a.so /b.so")), "/lib/l.so:/a.so /b.so");
    }
}
