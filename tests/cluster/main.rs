//! Whole jobs over several daemons, all of them on this machine: `--bootstrap local`.

mod dynamic;
mod failures;
mod io;
mod mpi;
mod record;

use hydrant_tests::Job;

/// A PMI client that does what its arguments say; see its source for the steps.
const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// Options for hosts `n1` and so on, each with that many slots, in a tree of that radix.
fn nodes(hosts: u32, slots: u32, radix: u32) -> String {
    format!("-hosts n[1-{hosts}]:{slots} --bootstrap local --radix {radix}")
}

/// Trees of one daemon, of two, of two levels, and of many.
const SHAPES: [(u32, u32); 4] = [(1, 2), (2, 2), (4, 2), (16, 3)];

/// A job of raw clients over four daemons on two levels, two ranks on each: `steps` as [`Job::steps`] has them.
fn raw(options: &str, steps: &str) -> Job {
    Job::hydrant(&nodes(4, 2, 2)).words(options).arg(RAW).steps(steps)
}

/// A shell script as the only program of such a job.
fn shell(options: &str, script: &str) -> Job {
    Job::hydrant(&nodes(4, 2, 2)).words(options).args(["sh", "-c"]).arg(script)
}
