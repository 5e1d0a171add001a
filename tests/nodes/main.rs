//! Jobs over several daemons on this machine (`--bootstrap local`). Needs nothing but the command and a shell.

/// PMI requests between nodes: groups, rings, attributes, spawns, process sets.
mod dynamic;
/// Ranks, daemons and hosts that fail.
mod failures;
/// Fleets of several hosts.
mod fleet;
/// Hosts that join while the job runs.
mod growth;
/// Input, output and signals of ranks on several nodes.
mod io;
/// Hosts that join by themselves.
mod join;
/// Lazy fences.
mod lazy;
/// Hosts that are lost while the job goes on.
mod membership;
/// `hydrant status`, `kill` and `attach`.
mod observe;
/// Hosts of single programs, and how hosts are named.
mod placement;
/// Program files that are sent along.
mod preload_binary;
/// Other files that are sent along.
mod preload_files;
/// Profiles of starts.
mod profile;
/// Recordings of every node.
mod record;
/// Trees of daemons without a job: `hydrant reach`.
mod tree;

use hydrant_tests::Job;
use hydrant_tests::nodes;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// A job of raw clients over four daemons on two levels, two ranks on each: `steps` as [`Job::steps`] has them.
fn raw(options: &str, steps: &str) -> Job {
    Job::hydrant(&nodes(4, 2, 2)).words(options).arg(RAW).steps(steps)
}

/// A shell script as the only program of such a job.
fn shell(options: &str, script: &str) -> Job {
    Job::hydrant(&nodes(4, 2, 2)).words(options).args(["sh", "-c"]).arg(script)
}
