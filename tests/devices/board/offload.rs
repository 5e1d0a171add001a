//! `hydrant offload` with a board: this machine's processor only starts the ranks.

use std::fs;
use std::sync::{Mutex, PoisonError};

use hydrant_tests::Job;
use hydrant_tests::offload::Target;
use hydrant_tests::peers::Peer;
use hydrant_tests::{hydrant_bin, nodes, target_dir};
use rustix::process::Signal;

use super::qemu::{Board, Kind};
use super::spawn::{STACK_MAX, stack};

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");

/// A board, and how `hydrant offload` reaches it.
fn target(clients: usize) -> Option<(Board, Target)> {
    let board = Board::small(clients, "")?;
    let ports: Vec<String> = (0..clients).map(|at| board.client(at).port().to_string()).collect();
    let target = Target { address: board.host(0).to_string(), ports: ports.join(","), raw: RAW };
    Some((board, target))
}

#[test]
fn real_clients_are_served_by_the_board_and_started_here() {
    let Some((board, target)) = target(16) else { return };
    target.real_clients(&[4, 16]);
    assert!(board.runs());
}

/// Held by tests whose jobs of Open MPI have more ranks than there are processors. Ranks of two such jobs and their boards
/// keep each other waiting for longer than the time after which ranks that are late are named.
static PROCESSORS: Mutex<()> = Mutex::new(());

/// The small board's tables and messages are too short for Open MPI 4, whose ranks commit 4 KiB.
#[test]
fn open_mpi_is_served_by_the_board() {
    let _alone = PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((board, target)) = target(16) else { return };
    target.open_mpi(Peer::OpenMpi5, 16, "");
    let path = target_dir().join(format!("offload-pmix-{}.rec", std::process::id()));
    let file = path.to_str().expect("the build directory has a name of characters");
    target.open_mpi(Peer::OpenMpi5, 4, &format!("--record {file}"));
    let replayed = Job::new(hydrant_bin()).args(["replay", "--quiet", file]).run();
    replayed.code(0).says(" outputs, all the same", 1);
    fs::remove_file(path).expect("it was written");
    assert!(board.runs());
}

#[test]
fn the_ranks_are_this_machines_and_what_is_said_of_them_too() {
    let Some((board, target)) = target(3) else { return };
    target.ranks_of_this_machine();
    target.failures();
    target.status();
    target.refusals(16);
    target.refuses_spawns();
    assert!(board.runs());
}

/// A board that serves nodes serves a run of one host as one, with as many limits as it has.
fn of_node(kind: Kind) -> Option<(Board, Target)> {
    let board = Board::of_node(kind, false)?;
    let target = Target { address: board.host(0).to_string(), ports: String::new(), raw: RAW };
    Some((board, target))
}

#[test]
fn ranks_of_a_small_board_that_serves_nodes_spawn() {
    let Some((board, target)) = of_node(Kind::Lm3s6965evb) else { return };
    target.spawns();
    target.recordings();
    target.spawned_failures();
    target.ranks_of_this_machine();
    target.status();
    target.refusals(16);
    let stack = stack(&board);
    assert!(stack < STACK_MAX, "{stack} bytes of stack");
    assert!(board.runs());
}

#[test]
fn ranks_of_open_mpi_spawn_at_a_large_board_that_serves_nodes() {
    let _alone = PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some((board, target)) = of_node(Kind::Mps2An386) else { return };
    target.open_mpi_spawns();
    target.repeated_spawns();
    target.recordings();
    target.open_mpi_recordings();
    assert!(board.runs());
}

/// The sockets of the aborted job are still closing when the next job opens.
// Fault: A job of all ranks of a board directly after an aborted one
// Outcome: it runs
// Guarantee: Closing connections of earlier jobs are aborted when a job opens
// Also: devices `board::trouble::closing_connections_leave_room_for_the_next_job`
#[test]
fn a_job_of_all_ranks_follows_an_aborted_one_at_once() {
    if !Peer::SlurmPmi2.there() || !Peer::Mpich5.there() {
        return;
    }
    let Some((board, target)) = target(16) else { return };
    for _ in 0..4 {
        let full =
            target.offload("-n 16").arg(Peer::SlurmPmi2.program("pmi2_kvs")).words("-k 8 -v 900").run();
        full.warns("limit kvs-bytes");
        assert!(!full.status.success(), "{full}");
        let hello = target.offload("-n 16").arg(Peer::Mpich5.program("mpi_hello")).run();
        hello.code(0).quiet().says(" of 16, program 0, universe -1, MPICH 5.0.2\n", 16);
    }
    assert!(board.runs());
}

#[test]
fn a_node_of_several_is_refused() {
    let Some((board, target)) = target(2) else { return };
    let options = format!("run {} --offload {} -n 2 true", nodes(2, 1, 2), target.address);
    let outcome = Job::new(hydrant_bin()).words(&options).run();
    outcome.code(1).warns(" refuses a node of this run: nodes of a run on several hosts are not supported");
    target.raw("-n 2", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
    assert!(board.runs());
}

#[test]
fn a_board_that_is_frozen_is_named() {
    let Some((board, target)) = target(2) else { return };
    target.frozen(|| board.signal(Signal::STOP));
    board.signal(Signal::CONT);
    assert!(board.runs());
}

#[test]
fn a_board_that_is_reset_is_named_and_serves_the_next_job() {
    let Some((mut board, target)) = target(2) else { return };
    let job = target.raw("--heartbeat 4 -n 2", "init2\nfence2\nsay up\nforever").start();
    job.await_stdout("up\n", 2);
    board.reset();
    board.await_log("serves up to");
    job.wait().code(1).warns(&target.address).warns(" is lost: ");
    target.raw("-n 2", "ack1\ninit1\nfence1\nend1").run().code(0).quiet();
    assert!(board.runs());
}

#[test]
fn what_a_board_said_is_what_this_machines_core_says() {
    let Some((board, target)) = target(4) else { return };
    let path = target_dir().join(format!("offload-{}.rec", std::process::id()));
    let file = path.to_str().expect("the build directory has a name of characters");
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v;\nexpect cmd=kvs-put-response;rc=0;\nfence2\nend2";
    target.raw(&format!("--record {file} -n 4"), steps).run().code(0).quiet();
    let replayed = Job::new(hydrant_bin()).args(["replay", "--quiet", file]).run();
    replayed.code(0).says(" outputs, all the same", 1);
    // The next job as well: a recording begins anew.
    target.raw(&format!("--record {file} -n 3"), steps).run().code(0).quiet();
    let replayed = Job::new(hydrant_bin()).args(["replay", "--quiet", file]).run();
    replayed.code(0).says(" outputs, all the same", 1);
    fs::remove_file(path).expect("it was written");
    assert!(board.runs());
}
