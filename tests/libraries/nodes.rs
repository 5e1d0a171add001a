//! Real libraries, whose ranks know of each other by what goes through the tree.

use hydrant_tests::peers::{Peer, SLURM_LIBPMI2, clients_dir, intel_bin, intel_lib, python};
use hydrant_tests::{Folder, Job};
use hydrant_tests::{SHAPES, nodes};
use rustix::process::{Signal, kill_process};

/// A program of MPICH 5.0.2's on hosts of two slots, where there is an MPICH to build it with.
fn mpich(hosts: u32, radix: u32, options: &str, program: &str, args: &str) -> Option<Job> {
    let peer = Peer::Mpich5;
    let job = || Job::hydrant(&nodes(hosts, 2, radix)).words(options);
    peer.there().then(|| job().arg(peer.program(program)).words(args))
}

#[test]
fn hello_from_everywhere() {
    for (hosts, radix) in SHAPES {
        let size = 2 * hosts;
        let Some(job) = mpich(hosts, radix, &format!("-n {size}"), "mpi_hello", "") else { return };
        let outcome = job.run();
        outcome.code(0).quiet().says("MPICH 5.0.2", size as usize);
        for rank in 0..size {
            outcome.says(&format!("rank {rank} of {size}, program 0, "), 1);
        }
    }
}

#[test]
fn collectives() {
    for (hosts, radix) in [(2, 2), (4, 2)] {
        let size = 2 * hosts;
        let sum = 5 * size * (size - 1) / 2;
        let options = format!("-n {size}");
        let Some(ring) = mpich(hosts, radix, &options, "mpi_ring", "") else { return };
        ring.run().code(0).quiet().says(&format!("ring of {size}: {sum}\n"), 1);
        let Some(allreduce) = mpich(hosts, radix, &options, "mpi_allreduce", "") else { return };
        allreduce.run().code(0).quiet().says(&format!("allreduce of {size}: 0 wrong\n"), 1);
    }
}

/// MPICH reads the addresses of other hosts without hints, by PMI-1.
#[test]
fn lazy_fences() {
    for (hosts, radix) in [(2, 2), (4, 2)] {
        let size = 2 * hosts;
        let options = format!("--fence lazy -n {size}");
        let Some(ring) = mpich(hosts, radix, &options, "mpi_ring", "") else { return };
        let sum = 5 * size * (size - 1) / 2;
        ring.run().code(0).quiet().says(&format!("ring of {size}: {sum}\n"), 1);
        let Some(allreduce) = mpich(hosts, radix, &options, "mpi_allreduce", "") else { return };
        allreduce.run().code(0).quiet().says(&format!("allreduce of {size}: 0 wrong\n"), 1);
    }
    let Some(spawn) = mpich(4, 2, "--fence lazy -usize 9 -n 2", "mpi_spawn", "world 3") else { return };
    spawn.run().code(0).quiet().says(" of 2 done, universe 9\n", 2).says("child ", 3);
}

#[test]
fn spawning() {
    let Some(world) = mpich(4, 2, "-usize 9 -n 2", "mpi_spawn", "world 3") else { return };
    let outcome = world.run();
    outcome.code(0).quiet().says(" of 2 done, universe 9\n", 2);
    for rank in 0..3 {
        outcome.says(&format!("child {rank} of 3\n"), 1);
    }
    let Some(at_once) = mpich(4, 2, "-n 4", "mpi_spawn", "self 2") else { return };
    let outcome = at_once.run();
    outcome.code(0).quiet().says(" of 4 done", 4).says("child 0 of 2\n", 4).says("child 1 of 2\n", 4);
    let Some(nested) = mpich(4, 2, "--pmi-port -n 1", "mpi_spawn", "nested 3") else { return };
    nested.run().code(0).quiet().says("child 0 of 1\n", 4).says(" of 1 done", 1);
    let Some(again) = mpich(2, 2, "-n 2", "mpi_spawn", "again 5") else { return };
    again.run().code(0).quiet().says("child 0 of 1\n", 5).says(" of 2 done", 2);
}

#[test]
fn a_spawn_that_fails_is_an_error_and_leaves_nothing() {
    let Some(missing) = mpich(4, 2, "-n 2", "mpi_spawn", "missing") else { return };
    let outcome = missing.run();
    outcome.code(0).says("refused: class other codes other other\n", 2);
    outcome.says("child 0 of 1\n", 1).says(" of 2 done", 2);
    let Some(partly) = mpich(4, 2, "-n 1", "mpi_spawn", "partly") else { return };
    partly.run().code(0).says("refused: ", 1).says("child", 0).says(" of 1 done", 1);
}

#[test]
fn a_child_that_fails_is_the_exit_code() {
    let Some(job) = mpich(2, 2, "-n 2", "mpi_spawn", "fails 5") else { return };
    job.run().code(5).says(" of 2 done", 2).warns("5");
}

#[test]
fn mpi4py_spawns() {
    if Peer::Mpich5.there() {
        let job = Job::hydrant(&nodes(2, 2, 2)).words("-n 1").arg(python());
        let outcome = job.arg(clients_dir().join("mpi_spawn.py")).run();
        assert_eq!(outcome.code(0).quiet().lines(), ["gathered [0, 7, 14]"], "{outcome}");
    }
}

/// The rank that is left on the first host starts as many on the hosts that are left as it has lost.
#[test]
fn a_lost_host_is_made_up_for_by_spawn() {
    if !Peer::Mpich5.there() {
        return;
    }
    let job = Job::hydrant(&nodes(3, 2, 3)).words("-disable-auto-cleanup -n 6").arg(python());
    let mut job = job.arg(clients_dir().join("mpi_refill.py")).args(["2", "3"]).hold_input().start();
    job.await_stdout("up\n", 6);
    kill_process(job.daemons()[1], Signal::KILL).expect("it runs");
    job.await_stderr("host n2 (node 2): its daemon is lost: its connection was closed\n");
    job.end_input();
    let outcome = job.wait();
    outcome.code(1).says("parent of 3\n", 1).says("child of 3\n", 2).says("done\n", 4);
}

/// All nodes know the same names, and they are told apart from those that are not there.
#[test]
fn names() {
    let Some(job) = mpich(3, 2, "-ppn 1 -n 3", "mpi_names", "inside") else { return };
    let wrong = "unknown name, unpublished again";
    let first = format!("rank 0: published success, again name, {wrong} service, after name");
    let other =
        [1, 2].map(|rank| format!("rank {rank}: published none, again none, {wrong} none, after name"));
    let outcome = job.run();
    assert_eq!(outcome.code(0).quiet().lines(), [&first, &other[0], &other[1]], "{outcome}");
}

#[test]
fn sessions() {
    let folder = Folder::new("sessions");
    let Some(job) = mpich(3, 2, "-ppn 1 -n 3", "mpi_sessions", "1 3") else { return };
    let outcome = job.arg(&folder.0).run();
    outcome.code(0).quiet().says("psets: mpi://world mpi://self", 9);
    for round in 0..3 {
        outcome.says(&format!("round {round} of 1 threads: size 3\n"), 3);
    }
}

#[test]
fn slurms_library() {
    if !Peer::SlurmPmi2.there() {
        return;
    }
    for (hosts, radix, size) in [(4, 2, 16), (16, 3, 64)] {
        let options = format!("{} -n {size}", nodes(hosts, size / hosts, radix));
        for args in ["", "-k 4 -v 900", "-l 10"] {
            let outcome = Job::hydrant(&options).arg(Peer::SlurmPmi2.program("pmi2_kvs")).words(args).run();
            outcome.code(0).says(&format!("pmi2 size={size} "), 1).says(" errs=0 ", 1);
        }
    }
}

/// Intel's benchmark between two hosts, by PMI-1 and by PMI-2.
#[test]
fn intel_mpi() {
    if !Peer::Intel.there() || !Peer::SlurmPmi2.there() {
        return;
    }
    let pmi2: &[(&str, &str)] = &[("I_MPI_PMI", "pmi2"), ("I_MPI_PMI_LIBRARY", SLURM_LIBPMI2)];
    for (env, fence) in [(&[][..], "collect"), (pmi2, "collect"), (pmi2, "lazy")] {
        let job = Job::hydrant(&nodes(2, 1, 2))
            .words(&format!("-n 2 --fence {fence}"))
            .arg(intel_bin().join("IMB-MPI1"));
        let job = job.words("PingPong -msglog 0:4 -iter 10");
        let job = job.env("LD_LIBRARY_PATH", intel_lib());
        let job = job.env("I_MPI_FABRICS", "ofi").env("FI_PROVIDER", "tcp");
        let job = job.env("FI_PROVIDER_PATH", intel_lib());
        let outcome = env.iter().fold(job, |job, (key, value)| job.env(key, value)).run();
        outcome.code(0).says("# Benchmarking PingPong", 1).says("# #processes = 2", 1);
    }
}
