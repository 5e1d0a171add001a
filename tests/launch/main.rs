//! Whole jobs under `hydrant run`, as a user and a shell see them.

mod dynamic;
mod failures;
mod io;
mod port;
mod service;
mod signals;

use hydrant_tests::Job;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// A job of raw clients: `steps` are separated by line ends, a step from its text by the first blank.
fn raw(options: &str, steps: &str) -> Job {
    Job::hydrant(options).arg(RAW).steps(steps)
}

/// A shell script as a job's only program.
fn shell(options: &str, script: &str) -> Job {
    Job::hydrant(options).args(["sh", "-c"]).arg(script)
}
