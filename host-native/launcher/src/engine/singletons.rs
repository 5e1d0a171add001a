//! Line about ranks that have not joined their job although their program uses MPI.

use hydrant_core::JobId;

use super::Engine;
use super::jobs::Job;
use crate::launch::needed_libraries;

/// MPI library or client library of a process manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Library {
    /// Its name for users.
    name: &'static str,
    /// Protocols that it speaks.
    protocols: &'static str,
    /// Variable by which it finds its launcher.
    variable: &'static str,
}

const OPEN_MPI: Library = Library { name: "Open MPI", protocols: "PMIx", variable: "PMIX_NAMESPACE" };
const LIBPMIX: Library = Library { name: "libpmix", protocols: "PMIx", variable: "PMIX_NAMESPACE" };
const MPICH: Library = Library { name: "MPICH's ABI", protocols: "PMI-1 or PMI-2", variable: "PMI_RANK" };

/// Returns the library with the file name of a shared object.
fn library(file: &str) -> Option<Library> {
    match file.split_once(".so.")? {
        ("libmpi", "12" | "0") | ("libmpich" | "libmpi_abi", _) => Some(MPICH),
        ("libmpi", _) => Some(OPEN_MPI),
        ("libpmix", _) => Some(LIBPMIX),
        _ => None,
    }
}

/// Returns the line for a program that needs a shared object.
fn line(command: &str, file: &str, library: Library, served: bool) -> String {
    let Library { name, protocols, variable } = library;
    let remedy = if served {
        format!("the environment of the ranks must contain {variable} when they call MPI_Init")
    } else {
        format!("{protocols} is not served with these options; see docs/pmix.md")
    };
    format!(
        "no rank has joined the job, so each process that called MPI_Init was a job of one rank: {command} needs {file} \
         ({name}, which speaks {protocols})\nhint: {remedy}"
    )
}

impl Engine<'_, '_> {
    /// Returns the line about a job on this machine that succeeded, if none of its ranks has joined and a program needs
    /// an MPI library.
    pub(super) fn describe_singletons(&mut self, id: JobId) -> Option<String> {
        let serves_pmix = self.serves_pmix();
        let job: &Job = self.jobs.get(id).filter(|job| job.size() > 1 && !job.run.joined)?;
        let launcher = job.run.launcher.as_ref()?;
        launcher.programs().find_map(|(command, path)| {
            let files = needed_libraries(&path);
            let (file, library) = files.iter().find_map(|file| Some((file, library(file)?)))?;
            let served = library.protocols != OPEN_MPI.protocols || serves_pmix;
            Some(line(&command.to_string_lossy(), file, library, served))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_files() {
        let known = [
            ("libmpi.so.40", Some(OPEN_MPI)),
            ("libmpi.so.12", Some(MPICH)),
            ("libmpich.so.12", Some(MPICH)),
            ("libmpi_abi.so.0", Some(MPICH)),
            ("libpmix.so.2", Some(LIBPMIX)),
            ("libc.so.6", None),
            ("libmpi.so", None),
        ];
        for (file, expected) in known {
            assert_eq!(library(file), expected, "{file}");
        }
    }
}
