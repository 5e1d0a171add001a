//! MPICH 5.0.2 with mpi4py, and MPICH 4.0.2. Both speak PMI-1 and exchange their addresses through it.

use hydrant_tests::Job;
use hydrant_tests::peers::{Peer, clients_dir, peers_dir, python};

const SIZES: [u32; 4] = [2, 3, 8, 16];

/// What the library says of itself: several MPIs share one library name, so this is not to be taken for granted.
fn library(peer: Peer) -> &'static str {
    match peer {
        Peer::Mpich5 => "MPICH 5.0.2",
        _ => "MPICH 4.0.2",
    }
}

fn hello(peer: Peer) {
    if !peer.there() {
        return;
    }
    let program = peer.program("mpi_hello");
    for size in SIZES {
        let outcome = Job::hydrant(&format!("-n {size}")).arg(&program).run();
        outcome.code(0).says(&format!(" of {size}, program 0, "), size as usize);
        outcome.says(library(peer), size as usize);
        for rank in 0..size {
            outcome.says(&format!("rank {rank} of "), 1);
        }
    }
}

fn ring(peer: Peer) {
    if !peer.there() {
        return;
    }
    let program = peer.program("mpi_ring");
    for size in SIZES {
        let sum = 5 * size * (size - 1) / 2;
        let outcome = Job::hydrant(&format!("-n {size}")).arg(&program).run();
        outcome.code(0).says(&format!("ring of {size}: {sum}\n"), 1);
    }
}

fn allreduce(peer: Peer) {
    if !peer.there() {
        return;
    }
    let program = peer.program("mpi_allreduce");
    for size in SIZES {
        let outcome = Job::hydrant(&format!("-n {size}")).arg(&program).run();
        outcome.code(0).says(&format!("allreduce of {size}: 0 wrong\n"), 1);
    }
}

/// Both ways to find the server, and the attributes that come by way of it.
fn port_and_attributes(peer: Peer) {
    if !peer.there() {
        return;
    }
    let (program, library) = (peer.program("mpi_hello"), library(peer));
    for way in ["", "--pmi-port"] {
        let job = Job::hydrant(&format!("{way} -usize 7 -n 2")).arg(&program);
        let outcome = job.args([":", "-n", "1"]).arg(&program).run();
        let lines = [0, 1].map(|rank| format!("rank {rank} of 3, program 0, universe 7, {library}"));
        let last = format!("rank 2 of 3, program 1, universe 7, {library}");
        assert_eq!(outcome.code(0).lines(), [&lines[0], &lines[1], &last], "{way} {outcome}");
    }
}

/// Initialized ranks of MPICH on one host wait for each other in shared memory, and not in a fence.
fn rank_without_init(peer: Peer) {
    if !peer.there() {
        return;
    }
    let program = peer.program("mpi_hello");
    for options in ["", "--pmi-port"] {
        let job = Job::hydrant(&format!("{options} -n 1 true : -n 2")).arg(&program);
        job.run().code(1).stderr_starts("hydrant: rank 0 exited with code 0 while others wait for it\n");
        let job = Job::hydrant(&format!("{options} --fence-warning 0.2 -n 1 cat : -n 2")).arg(&program);
        let mut job = job.hold_input().start();
        job.await_stderr("have come, missing: rank 0 (pid ");
        job.end_input();
        job.wait().code(1).warns("rank 0 exited with code 0 while others wait for it");
    }
}

// Fault: A rank exits without PMI init, and the others wait for it in shared memory
// Outcome: the job ends and names the rank
// Guarantee: Such an exit ends the job once another rank is between init and finalize
// Also: hydrant-core `an_exit_without_init_ends_the_job_of_a_rank_that_has_initialized`
#[test]
fn mpich5_rank_without_init() {
    rank_without_init(Peer::Mpich5);
}

#[test]
fn mpich4_rank_without_init() {
    rank_without_init(Peer::Mpich4);
}

/// MPICH 5 tells PMI in `exit()` that it has finalized, MPICH 4 in `MPI_Finalize`.
#[test]
fn what_it_means_to_leave_behind_finalize_is_said() {
    if !Peer::Mpich5.there() || !Peer::Mpich4.there() {
        return;
    }
    let leave = |peer: Peer| Job::hydrant("-n 2").arg(peer.program("mpi_end")).arg("leave").run();
    leave(Peer::Mpich4).code(0).quiet();
    let outcome = leave(Peer::Mpich5);
    outcome.code(1).warns(" exited with code 0 without finalizing\n");
    outcome.warns(" or by _exit() behind the MPI_Finalize of MPICH 5, which tells PMI in exit()\n");
}

#[test]
fn mpich5_hello() {
    hello(Peer::Mpich5);
}

#[test]
fn mpich5_ring() {
    ring(Peer::Mpich5);
}

#[test]
fn mpich5_allreduce() {
    allreduce(Peer::Mpich5);
}

#[test]
fn mpich5_port_and_attributes() {
    port_and_attributes(Peer::Mpich5);
}

#[test]
fn mpich4_hello() {
    hello(Peer::Mpich4);
}

#[test]
fn mpich4_ring() {
    ring(Peer::Mpich4);
}

#[test]
fn mpich4_allreduce() {
    allreduce(Peer::Mpich4);
}

#[test]
fn mpich4_port_and_attributes() {
    port_and_attributes(Peer::Mpich4);
}

/// Every job of these tests is recorded, and replayed when it has ended: here it is seen that this happens. A rank says
/// and hears at least init, its names, its address, a fence, and finalize.
#[test]
fn jobs_are_replayed() {
    if !Peer::Mpich5.there() {
        return;
    }
    let outcome = Job::hydrant("-n 4").arg(Peer::Mpich5.program("mpi_hello")).run();
    let played = outcome.code(0).replayed.as_ref().expect("it is recorded");
    assert!(played.inputs >= 4 * 8 && played.outputs >= 4 * 6, "{played:?}");
    assert_eq!(played.difference, None);
}

#[test]
fn mpi4py_hello_and_allreduce() {
    if !Peer::Mpich5.there() {
        return;
    }
    for size in [2_u32, 4] {
        let job = Job::hydrant(&format!("-n {size}")).arg(python()).arg(clients_dir().join("mpi_hello.py"));
        let outcome = job.run();
        let sum = size * (size - 1) / 2;
        let lines: Vec<String> =
            (0..size).map(|rank| format!("rank {rank} of {size}, sum {sum}, MPICH Version: 5.0.2")).collect();
        assert_eq!(outcome.code(0).lines(), lines, "{outcome}");
    }
}

/// hydra's help lists its options. Each of them works here, is ignored with a reason, or is refused with its own hint.
#[test]
fn every_option_of_hydra_is_known() {
    if !Peer::Mpich5.there() {
        return;
    }
    let mpiexec = peers_dir().join("mpich/bin/mpiexec");
    let help = Job::new(mpiexec).arg("-help").env_remove("LD_PRELOAD").run().stdout;
    let lines = help.lines().filter_map(|line| line.strip_prefix("    -"));
    let options: Vec<&str> = lines.flat_map(|line| line.split_whitespace().next()).collect();
    assert!(options.len() > 40, "{help}");
    for option in options.iter().flat_map(|option| option.split('/')) {
        let option = option.trim_start_matches('-');
        let outcome = Job::command("run").arg(format!("-{option}")).run();
        let is_unknown = ["write -- before a program", "a similar option exists"];
        assert!(!is_unknown.iter().any(|hint| outcome.stderr.contains(hint)), "{outcome}");
    }
}

/// MPICH 5 asks its process manager for these kinds.
#[test]
fn mpich5_memory_alloc_kinds() {
    if !Peer::Mpich5.there() {
        return;
    }
    let script = "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_info().get('mpi_memory_alloc_kinds'))";
    for options in ["", "-hosts a,b -bootstrap local"] {
        let job = Job::hydrant(&format!("{options} -memory-alloc-kinds system,mpi:alloc_mem -n 2"));
        let outcome = job.arg(python()).arg("-c").arg(script).run();
        outcome.code(0).quiet().says("mpi,system,mpi:alloc_mem\n", 2);
    }
}
