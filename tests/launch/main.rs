//! The `hydrant` command on one machine. Needs nothing but the command and a shell.

/// Arguments, messages and exit codes of the command itself.
mod command;
/// PMI requests beyond put, get and fence: groups, rings, attributes, spawns, names, process sets.
mod dynamic;
/// Ranks that fail, abort or are not there, and the exit code.
mod failures;
/// Input and output of ranks, descriptors and environment.
mod io;
/// The name service: `hydrant serve --universe`, and jobs that join it.
mod names;
/// PMI requests by shell scripts.
mod pmi;
/// The TCP port of `--pmi-port`.
mod port;
/// `hydrant probe`.
mod probe;
/// Processes of ranks: start, signals, binding, descriptors.
mod ranks;
/// `hydrant run --record` and `hydrant replay`.
mod record;
/// `hydrant serve --size`.
mod serve;
/// Put, get and fence, and malformed requests.
mod service;
/// Signals to a job, from processes and from a shell's terminal.
mod signals;
/// Spawned jobs.
mod spawn;
/// Standard input, output and error.
mod streams;
/// A job on a terminal.
mod terminal;

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
