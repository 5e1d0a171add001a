//! The library that `--mpi-psets` has ranks load before their MPI library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::RunError;

const LIBRARY: &str = "libhydrant_mpi.so";
/// Names the library where it is not found by itself.
const VARIABLE: &str = "HYDRANT_MPI_LIB";

/// Finds it: what the user says, else beside this program, else in the `lib` beside the program's folder.
pub(crate) fn find() -> Result<PathBuf, RunError> {
    let candidates = match env::var_os(VARIABLE) {
        Some(said) => vec![PathBuf::from(said)],
        None => {
            let exe = env::current_exe().map_err(RunError::system("cannot find out where hydrant lies"))?;
            let folder = exe.parent().unwrap_or(&exe);
            vec![folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)]
        }
    };
    let found = candidates.iter().find_map(|path| path.canonicalize().ok().filter(|path| path.is_file()));
    let library = found.ok_or(RunError::NoMpiLibrary { searched: candidates })?;
    // LD_PRELOAD has no way to quote them.
    if library.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        return Err(RunError::PreloadPath { library });
    }
    Ok(library)
}

/// `LD_PRELOAD` with the library before what stands there already.
pub(super) fn before(library: &OsStr, others: Option<&OsStr>) -> OsString {
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
    fn what_was_to_be_loaded_still_is() {
        let list = |others: Option<&str>| before("/lib/l.so".as_ref(), others.map(OsStr::new));
        assert_eq!(list(None), "/lib/l.so");
        assert_eq!(list(Some("")), "/lib/l.so");
        assert_eq!(list(Some("/a.so /b.so")), "/lib/l.so:/a.so /b.so");
    }
}
