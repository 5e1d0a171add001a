//! Preloaded libraries: that of `--mpi-psets`, and those that are sent along.

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

/// Value of `LD_PRELOAD` with libraries in this order. `None` if there are none.
pub(crate) fn list<'a>(libraries: impl Iterator<Item = &'a OsStr>) -> Option<OsString> {
    let libraries: Vec<_> = libraries.filter(|library| !library.is_empty()).collect();
    (!libraries.is_empty()).then(|| libraries.join(OsStr::new(":")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inherited_libraries_are_kept() {
        let list = |others: Option<&str>| {
            list([Some("/lib/l.so"), others].into_iter().flatten().map(OsStr::new)).unwrap()
        };
        assert_eq!(list(None), "/lib/l.so");
        assert_eq!(list(Some("")), "/lib/l.so");
        assert_eq!(list(Some("/a.so /b.so")), "/lib/l.so:/a.so /b.so");
    }
}
