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
    steps_of(Job::hydrant(options).arg(RAW), steps)
}

/// Adds the steps of a raw client.
fn steps_of(job: Job, steps: &str) -> Job {
    let lines = steps.lines().map(str::trim_start).filter(|line| !line.is_empty());
    lines.fold(job, |job, line| match line.split_once(' ') {
        Some((step, text)) => job.arg(step).arg(text),
        None => job.arg(line),
    })
}

/// A shell script as a job's only program.
fn shell(options: &str, script: &str) -> Job {
    Job::hydrant(options).args(["sh", "-c"]).arg(script)
}
