//! Puts, fences and gets under each process manager; the program checks every value.

use std::path::PathBuf;

use hydrant_tests::peers::{Peer, clients_dir, intel_bin, intel_lib};
use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Job, hydrant_bin};

use super::support::{BOTH, HYDRA_4, HYDRA_5, HYDRANT, Launcher, SRUN, Whose, alone, prefix};

fn kvs() -> PathBuf {
    clients_dir().join("pmi2_kvs.c")
}

fn jobs() -> PathBuf {
    clients_dir().join("pmi2_jobs.c")
}

fn exchange(launcher: Launcher, size: u32, header: Whose, library: Whose) {
    let Some(job) = launcher.job(size, header, library, &kvs()) else { return };
    let outcome = job.words("-k 4 -v 900 -l 3").run();
    outcome.code(0).quiet().says(&format!("pmi2 size={size} "), 1).says(" errs=0 ", 1);
}

/// A program built against either header runs with either library.
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Fence` | collective; earlier puts of all processes are visible after it
// | done
// Also: libraries `interop::slurm::a_fence_after_the_other`, `pmi2::nodes::the_calls_of_one_job`
#[test]
fn under_hydrant() {
    for launcher in HYDRANT {
        for (header, library) in BOTH.into_iter().flat_map(|header| BOTH.map(|library| (header, library))) {
            exchange(launcher, 5, header, library);
        }
        exchange(launcher, 32, Whose::Slurm, Whose::Own);
    }
}

#[test]
fn under_hydra_4() {
    for launcher in HYDRA_4 {
        for header in BOTH {
            exchange(launcher, 5, header, Whose::Own);
        }
    }
    exchange(HYDRA_4[0], 5, Whose::Own, Whose::Slurm);
}

/// Its answer to `fullinit` lacks fields that Slurm's own library insists on.
#[test]
fn under_hydra_5() {
    for launcher in HYDRA_5 {
        for header in BOTH {
            exchange(launcher, 5, header, Whose::Own);
        }
    }
}

#[test]
fn under_srun() {
    let Some(_cluster) = Cluster::running() else { return };
    for (header, library) in BOTH.into_iter().flat_map(|header| BOTH.map(|library| (header, library))) {
        exchange(SRUN, 4, header, library);
    }
    for header in BOTH {
        exchange(Launcher::Srun("-p four -N 4"), 8, header, Whose::Own);
    }
    for probe in ["probe --pmi 1", "probe --pmi 2"] {
        let Some(job) = SRUN.job_of(4, hydrant_bin(), None) else { return };
        job.words(probe).run().code(0).quiet().says("4 ranks on 1 host exchanged 16 cards", 1);
    }
}

/// A key without a value, and attributes from every source.
#[test]
fn missing_keys_and_attributes() {
    for (launcher, appnum) in [HYDRANT[0], HYDRA_4[0], HYDRA_5[0], SRUN].into_iter().zip([0; 4]) {
        let Some(job) = launcher.job(2, Whose::Own, Whose::Own, &kvs()) else { return };
        let outcome = job.words("missing").run();
        outcome.code(0).says(" errs=0 ", 1).warns("get of missing key: rc=14 len=0\n");
        outcome.warns(&format!("rank 1/2 appnum={appnum} spawned=0 jobid=")).warns(" mapping=(vector,(0,1,");
    }
}

#[test]
fn alone_without_a_server() {
    for header in BOTH {
        if header == Whose::Slurm && !Peer::SlurmPmi2.there() {
            return;
        }
        let outcome = alone(header, &kvs()).words("-k 8 -v 1000 -l 50").run();
        outcome.code(0).quiet().says("pmi2 size=1 ", 1).says(" errs=0 ", 1);
    }
}

// Shows: pmi2.h, Joining and leaving | `PMI2_Abort` `flag` | nonzero: all processes, zero: this one | done
// Also: libraries `interop::functions::aborting_oneself_leaves_the_others`,
// `interop::functions::aborting_the_world_ends_all_ranks`
// Shows: pmi2.h, Joining and leaving | `PMI2_Abort` `msg` | is printed | done: up to 4,096 bytes of UTF-8 with its
// lines, other control characters escaped; firmware: 200 bytes, at a node on `mps2-an386` 4,096
// Also: launch `failures::an_abort_message_is_printed_whole`, hydrant-core `an_abort_message_is_whole_and_printable`
// Shows: pmi2.h, Joining and leaving | `PMI2_Abort` | does not return if it succeeds | done: returns only without
// init
// Also: libraries `pmi2::functions::every_code_where_it_belongs`
#[test]
fn aborts() {
    for launcher in HYDRANT {
        let Some(job) = launcher.job(4, Whose::Own, Whose::Own, &jobs()) else { return };
        let outcome = job.words("world").run();
        outcome.code(1).says("survived", 0).warns("the whole; world");
        let Some(job) = launcher.job(4, Whose::Own, Whose::Own, &jobs()) else { return };
        job.words("one").run().says(" survived\n", 3).warns("this rank; alone");
        let long = "m".repeat(1020) + "END!";
        for (said, printed) in
            [(&*long, &*long), ("café: one\ntwo\x1b[31m", "café: one\nhydrant:     two\\x1b[31m")]
        {
            let Some(job) = launcher.job(2, Whose::Own, Whose::Own, &jobs()) else { return };
            let outcome = job.words("world").arg(said).run();
            outcome.code(1).warns(&format!("rank 0 aborted the job: {printed}\n"));
        }
    }
    let outcome = alone(Whose::Own, &jobs()).arg("world").run();
    outcome.code(1).warns("PMI2_Abort: the whole; world\n");
}

// Shows: pmi2.h, Spawn | `argcs`, `argvs` | their arguments | done: also empty ones, and ones with blanks and
// semicolons
// Shows: pmi2.h, Spawn | `info_keyval_sizes`, `_vectors` | info of each program | done: `wdir`, `path`, `host`,
// `soft`, `file`, `env`; others are ignored
// Also: launch `spawn::info_keys_choose_folder_environment_and_number`
// Shows: pmi2.h, Spawn | an info key for the environment | variables of the new processes | done: `env`
#[test]
fn spawns_under_hydrant() {
    for launcher in HYDRANT {
        let Some(job) = launcher.job(1, Whose::Own, Whose::Own, &jobs()) else { return };
        let outcome = job.words("spawn").run();
        outcome.code(0).quiet().says("spawned\n", 1);
        outcome.says(" of 3 program 0 in / env=of;info with 4:[][two words][semi;colon][]\n", 2);
        let Some(job) = launcher.job(2, Whose::Own, Whose::Own, &jobs()) else { return };
        job.words("missing").run().code(0).says(" goes on\n", 2);
    }
}

/// Intel MPI loads the PMI-2 library that `I_MPI_PMI_LIBRARY` names.
#[test]
fn intel_mpi_over_this_library() {
    if !Peer::Intel.there() {
        return;
    }
    let job = Job::hydrant("-n 2").arg(intel_bin().join("IMB-MPI1")).words("PingPong -msglog 0:4 -iter 10");
    let job = job.env("LD_LIBRARY_PATH", intel_lib()).env("I_MPI_FABRICS", "shm").env("I_MPI_PMI", "pmi2");
    let outcome = job.env("I_MPI_PMI_LIBRARY", prefix().join("lib/libpmi2.so.0")).run();
    outcome.code(0).says("# Benchmarking PingPong", 1).says("All processes entering MPI_Finalize", 1);
}
