//! Intel MPI, which speaks PMI-1 by itself and PMI-2 through a library that is named to it.

use hydrant_tests::Job;
use hydrant_tests::peers::{Peer, SLURM_LIBPMI2, intel_bin, intel_lib};

/// One ping-pong of Intel's benchmark between two ranks, over shared memory.
fn ping_pong(options: &str, env: &[(&str, &str)]) {
    if !Peer::Intel.there() {
        return;
    }
    let mut job = Job::hydrant(&format!("{options} -n 2")).arg(intel_bin().join("IMB-MPI1"));
    job = job.words("PingPong -msglog 0:4 -iter 10");
    job = job.env("LD_LIBRARY_PATH", intel_lib()).env("I_MPI_FABRICS", "shm");
    for (key, value) in env {
        job = job.env(key, value);
    }
    let outcome = job.run();
    outcome.code(0).says("# Benchmarking PingPong", 1).says("# #processes = 2", 1);
    outcome.says("All processes entering MPI_Finalize", 1);
}

#[test]
fn its_own_pmi1() {
    ping_pong("", &[]);
}

#[test]
fn its_own_pmi1_by_port() {
    ping_pong("--pmi-port", &[]);
}

#[test]
fn slurms_pmi2() {
    if Peer::SlurmPmi2.there() {
        ping_pong("", &[("I_MPI_PMI", "pmi2"), ("I_MPI_PMI_LIBRARY", SLURM_LIBPMI2)]);
    }
}
