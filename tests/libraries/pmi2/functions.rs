//! Each function with right and wrong arguments, and from several threads: the programs check each result themselves.

use std::path::PathBuf;

use hydrant_tests::peers::{Peer, clients_dir};
use hydrant_tests::slurm::Cluster;
use hydrant_tests::{Job, hydrant_bin, nodes};

use super::header::Folder;
use super::support::{
    BOTH, HYDRA_4, HYDRA_5, HYDRANT, Launcher, SRUN, Whose, alone, prefix, program, sources,
};

fn codes() -> PathBuf {
    sources().join("codes.c")
}

fn threads() -> PathBuf {
    sources().join("threads.c")
}

fn calls() -> PathBuf {
    clients_dir().join("pmi2_calls.c")
}

#[test]
fn every_code_where_it_belongs() {
    for header in BOTH {
        for launcher in HYDRANT {
            for size in [1, 3] {
                let Some(job) = launcher.job(size, header, Whose::Own, &codes()) else { return };
                job.run().code(0).says(&format!(" of {size} are right\n"), size as usize);
            }
        }
    }
}

// Shows: pmi2.h, Job | `PMIX_Ring` with one process, or a singleton | rank 0 of 1, and the process's own value twice
// | done
// Also: libraries `interop::functions::a_ring_of_one_and_of_many`
#[test]
fn every_code_alone() {
    let outcome = alone(Whose::Own, &codes()).arg("alone").run();
    outcome.code(0).says("codes of rank 0 of 1 are right\n", 1);
}

/// The same program gives the same answers over Slurm's library.
// Shows: pmi2.h, Joining and leaving | `PMI2_Init` `size`, `rank` | number of processes, rank of this one | done
// Also: libraries `interop::functions::init_twice_rank_and_size`
#[test]
fn the_calls_of_one_job_over_either_library() {
    for library in BOTH {
        for test in ["init", "kvs", "node", "job", "ring", "names"] {
            // Slurm's library cannot repeat PMI2_Init by port.
            let ways = if library == Whose::Slurm { &HYDRANT[..1] } else { &HYDRANT[..] };
            for launcher in ways {
                let Some(job) = launcher.job(4, Whose::Slurm, library, &calls()) else { return };
                let outcome = job.words(test).run();
                outcome.code(0).quiet();
                // A line a rank, and in one test one for each of eleven attributes.
                let lines = if test == "job" { 15 } else { 4 };
                assert_eq!(outcome.lines().len(), lines, "{outcome}");
            }
        }
    }
}

/// The list of 300 local ranks is longer than a value. The library computes it from the mapping.
#[test]
fn all_local_ranks_of_hundreds() {
    let Some(job) = HYDRANT[0].job(300, Whose::Slurm, Whose::Own, &calls()) else { return };
    job.words("local").run().code(0).quiet().says("300 local ranks of rank ", 300);
}

/// Slurm's library fails on a value of more than 1,024 bytes, so a longer list is not found. Up to there it is complete.
#[test]
fn local_ranks_that_fit_into_a_value_over_either_library() {
    for library in BOTH {
        let Some(job) = HYDRANT[0].job(200, Whose::Slurm, library, &calls()) else { return };
        job.words("local").run().code(0).quiet().says("200 local ranks of rank ", 200);
    }
    let Some(job) = HYDRANT[0].job(300, Whose::Slurm, Whose::Slurm, &calls()) else { return };
    job.words("local-missing").run().code(0).quiet().says("-1 local ranks of rank ", 300);
}

/// hydra and Slurm have no such attribute.
#[test]
fn local_ranks_under_hydra_and_srun() {
    let cluster = Cluster::running();
    for launcher in [HYDRA_4[0], HYDRA_5[0]].into_iter().chain(cluster.is_some().then_some(SRUN)) {
        let Some(job) = launcher.job(3, Whose::Own, Whose::Own, &calls()) else { continue };
        job.words("local-array").run().code(0).quiet().says("3 local ranks of rank ", 3);
    }
}

/// `PMI2_Init` returns the number of the program on the command line.
// Shows: pmi2.h, Joining and leaving | `PMI2_Init` `appnum` | number of the program on the command line | done
// Also: libraries `interop::functions::spawning_with_arguments_info_and_preputs`
#[test]
fn programs_have_numbers() {
    for library in BOTH {
        let Some(job) = HYDRANT[0].job(1, Whose::Slurm, library, &calls()) else { return };
        let outcome = job.words("init : -n 2").program(Whose::Slurm, &calls()).words("init").run();
        outcome.code(0).quiet().says("rank 0 of 3 appnum 0, 3 on this node, job named\n", 1);
        for rank in 1..3 {
            outcome.says(&format!("rank {rank} of 3 appnum 1, 3 on this node, job named\n"), 1);
        }
    }
}

/// Attributes of the command line reach all hosts, over either library.
// Shows: pmi2.h, Attributes of the node | `cartCoords` | coordinates in a Cartesian network | done: `--topology
// cart:4x4x2`, or `file:PATH` with coordinates for each host; otherwise not found
// Also: libraries `interop::functions::node_attributes`, hydrant-placement `a_file_gives_places_to_hosts`
// Shows: pmi2.h, Attributes of the job | `cartDims` | the dimensions of a Cartesian one | done: `--topology
// cart:4x4x2`
#[test]
fn attributes_that_the_user_gives() {
    const GIVEN: [&str; 6] =
        ["--job-attr", "site=north hall;1", "--node-attr", "rack=3;4", "--topology", "cart:2x3"];
    for library in BOTH {
        for hosts in [1, 4] {
            if library == Whose::Slurm && !Peer::SlurmPmi2.there() {
                return;
            }
            let options = if hosts == 1 { String::new() } else { nodes(hosts, 2, 2) };
            let job = Job::hydrant(&options).args(GIVEN).words(&format!("-n {}", 2 * hosts));
            let job = job.arg(program(library, &calls())).arg("given");
            let own = library == Whose::Own;
            let job = if own { job.env("LD_LIBRARY_PATH", prefix().join("lib")) } else { job };
            let outcome = job.run();
            outcome.code(0).quiet().says("site: north hall;1\n", 1);
            outcome.says("physTopology: hierarchical\n", 1);
            outcome.says("physTopologyLevels: cartesian,complete\n", 1).says("cartDims: 2,3\n", 1);
            for rank in 0..2 * hosts {
                let host = rank / 2;
                outcome.says(&format!("rank {rank} at {},{} of 2\n", host / 3, host % 3), 1);
            }
        }
    }
    let folder = Folder::new("network");
    let file = folder.0.join("net");
    std::fs::write(&file, "levels cartesian,complete\ndims 2x3\nn1 1,2\nn2 0,1\n")
        .expect("the folder is there");
    let job = Job::hydrant(&nodes(2, 1, 2)).args(GIVEN).arg(format!("--topology=file:{}", file.display()));
    let job = job.words("-n 2").arg(program(Whose::Own, &calls())).arg("given");
    let outcome = job.env("LD_LIBRARY_PATH", prefix().join("lib")).run();
    outcome
        .code(0)
        .quiet()
        .says("cartDims: 2,3\n", 1)
        .says("rank 0 at 1,2 of 2\n", 1)
        .says("rank 1 at 0,1 of 2\n", 1);
}

/// Over either library, on one host and on two.
// Shows: pmi2.h, Attributes of the node | `memPoolType`, `memAnonMMAPfd` | shared memory of the process manager, and
// its descriptor | done: `--mem-pool SIZE`, `anonmmap`; otherwise not found
// Also: libraries `interop::functions::node_attributes`
#[test]
fn ranks_of_a_host_share_a_memory_pool() {
    let source = clients_dir().join("pmi2_pool.c");
    for library in BOTH {
        for (options, locals) in
            [("--mem-pool 1M", 4), ("--mem-pool 1M -hosts n[1-2]:2 --bootstrap local", 2)]
        {
            let Some(job) = Launcher::Hydrant(options).job(4, library, library, &source) else { return };
            job.words("1048576").run().code(0).quiet().says(&format!(" shares with {locals}\n"), 4);
        }
    }
    for (options, argument) in [("--mem-pool 1M --pmi-port", "1048576"), ("", "missing")] {
        let job =
            Launcher::Hydrant(options).job(1, Whose::Own, Whose::Own, &source).expect("hydrant is there");
        job.words(argument).run().code(0).quiet();
    }
}

/// Limits of the system, and the place where a pool has no common parent.
#[test]
fn a_memory_pool_that_cannot_be_had_is_an_error() {
    let outcome = Job::hydrant("--mem-pool 8388607T -n 1 true").run();
    outcome
        .code(1)
        .warns("the memory pool of 9223370937343148032 bytes exceeds ")
        .warns("--mem-pool a smaller SIZE");
    let limited = Job::new("sh").args(["-c", "ulimit -f 8; exec \"$@\"", "sh"]).arg(hydrant_bin());
    limited
        .words("run --mem-pool 1M -n 1 true")
        .run()
        .code(1)
        .warns("exceeds the limit of file sizes (ulimit -f), ");
    let offload = Job::new(hydrant_bin()).words("offload --target 127.0.0.1 --mem-pool 1M -n 1 true").run();
    offload.code(2).warns("--mem-pool does not apply to 'hydrant offload'");
}

fn run_threads(launcher: Launcher, test: &str) {
    let Some(job) = launcher.job(3, Whose::Own, Whose::Own, &threads()) else { return };
    // hydra has no ring; it ends a job that asks for one.
    let job = if matches!(launcher, Launcher::Hydra4(_) | Launcher::Hydra5(_)) {
        job.env("NO_RING", "1")
    } else {
        job
    };
    job.words(test).run().code(0).quiet().says(" of 3 done\n", 3);
}

// Shows: pmi2.h, Return codes | `PMI2_FAIL` | failure without a reason | done: the connection is closed, or the
// server sent no reason
// Also: hydrant-client `client_errors_have_codes`
// Shows: pmi2.h, Attributes of the node | `PMI2_Info_GetNodeAttr` `waitfor` | waits until there is one, and never
// returns with `found` 0 | done
// Also: libraries `interop::functions::node_attributes`
#[test]
fn threads_under_hydrant() {
    for launcher in HYDRANT {
        for test in ["calls", "waits", "one", "end"] {
            run_threads(launcher, test);
        }
    }
}

/// Not `end`, in which a client leaves with requests under way: hydra 4.0.2 answers them all the same and dies by
/// SIGPIPE now and then.
#[test]
fn threads_under_hydra() {
    for launcher in [HYDRA_4[0], HYDRA_5[0]] {
        for test in ["calls", "waits", "one"] {
            run_threads(launcher, test);
        }
    }
}

/// Slurm does not tell threads apart, so that only one of them can wait for an attribute.
#[test]
fn threads_under_srun() {
    let Some(_cluster) = Cluster::running() else { return };
    for test in ["calls", "one", "end"] {
        run_threads(SRUN, test);
    }
}

#[test]
fn threads_alone() {
    for test in ["calls", "waits", "one", "end"] {
        alone(Whose::Own, &threads())
            .arg(test)
            .run()
            .code(0)
            .quiet()
            .says("threads of rank 0 of 1 done\n", 1);
    }
}

#[test]
fn errors_of_the_environment_name_the_variable() {
    let wrong = [
        (&[("PMI_FD", "x"), ("PMI_RANK", "0")][..], "invalid environment variable PMI_FD='x'"),
        (&[("PMI_FD", "987"), ("PMI_RANK", "0")], "PMI_FD=987"),
        (&[("PMI_FD", "0")], "environment variable PMI_RANK is not set"),
        (&[("PMI_PORT", "127.0.0.1:1")], "environment variable PMI_ID is not set"),
        // No process listens there.
        (&[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")], "cannot connect to PMI_PORT=127.0.0.1:1"),
    ];
    for (variables, message) in wrong {
        let job = alone(Whose::Own, &calls()).arg("init");
        let job = variables.iter().fold(job, |job, (key, value)| job.env(key, value));
        // The program prints "gave" and the code when PMI2_Init fails.
        job.run().code(97).warns(&format!("hydrant-pmi2: PMI2_Init: {message}")).warns("gave ");
    }
}

#[test]
fn pmi2_debug_prints_errors() {
    let job = alone(Whose::Own, &calls()).arg("names").env("PMI2_DEBUG", "1");
    job.run().code(0).warns("hydrant-pmi2: PMI2_Nameserv_publish: the name is NULL or empty\n");
}
