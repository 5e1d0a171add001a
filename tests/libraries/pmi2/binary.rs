//! Values of any bytes, which pmi2.h permits and C strings cannot hold.

use std::path::PathBuf;

use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Job, nodes};

use super::support::{HYDRA_4, HYDRA_5, HYDRANT, SRUN, Whose, alone, prefix, program, sources};

fn source() -> PathBuf {
    sources().join("binary.c")
}

/// Through memory that hydrant shares with its ranks, by messages, between hosts, and without a launcher.
// Shows: pmi2.h, Constants and types | `PMI2_Keyvalpair.valueLen` | values that contain NUL | done: between hydrant's
// libpmi2 and hydrant's servers, escaped; other clients get `rc` 6 for such a value, and other servers get none
// (`PMI2_ERR_INVALID_VAL`)
// Also: libraries `pmi2::binary::other_servers_get_no_value_with_nul`
#[test]
fn values_have_any_bytes() {
    for launcher in HYDRANT {
        let job = launcher.job(3, Whose::Own, Whose::Own, &source()).expect("hydrant is there");
        job.run().code(0).quiet().says("bytes of rank ", 3);
    }
    let job = Job::hydrant(&nodes(3, 1, 2)).words("-n 3").arg(program(Whose::Own, &source())).arg("hosts");
    job.env("LD_LIBRARY_PATH", prefix().join("lib")).run().code(0).quiet().says("bytes of rank ", 3);
    alone(Whose::Own, &source()).run().code(0).quiet().says("bytes of rank ", 1);
}

/// Other servers would cut a value at its first NUL, or leave it out.
#[test]
fn other_servers_get_no_value_with_nul() {
    let cluster = Cluster::running();
    for launcher in [HYDRA_4[0], HYDRA_5[0]].into_iter().chain(cluster.is_some().then_some(SRUN)) {
        let Some(job) = launcher.job(2, Whose::Own, Whose::Own, &source()) else { continue };
        job.words("refused").run().code(0).quiet().says("bytes of rank ", 2);
    }
}
