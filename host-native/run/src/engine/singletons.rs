//! Line about ranks that have not joined their job although their program uses MPI.

use hydrant_core::trace::Exit;
use hydrant_doctor::{Library, Protocol, library, needed_libraries};

use super::jobs::Job;

/// Returns the line for a program that needs a shared object.
fn line(command: &str, file: &str, library: Library, served: bool) -> String {
    let Library { name, protocol, variable } = library;
    let protocols = protocol.name();
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

/// Returns the line about a job that succeeded with all of its ranks here, if none of them has joined and a program needs an MPI
/// library.
pub(super) fn describe_singletons(job: &Job, serves_pmix: bool) -> Option<String> {
    if job.size() < 2 || job.run.joined {
        return None;
    }
    let succeeded = |rank| job.exit(rank) == Some(Exit::Code(0));
    if !(0..job.size()).all(succeeded) {
        return None;
    }
    let launcher = job.run.launcher.as_ref()?;
    launcher.programs().find_map(|(command, path)| {
        let files = needed_libraries(&path);
        let (file, library) = files.iter().find_map(|file| Some((file, library(file)?)))?;
        let served = library.protocol != Protocol::Pmix || serves_pmix;
        Some(line(&command.to_string_lossy(), file, library, served))
    })
}
