//! Open MPI 5.0.11, 4.1.4 and 4.1.8 over four daemons on this machine, which it takes for four hosts.

use std::fs;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Outcome, nodes};
use rustix::process::{Signal, kill_process};

use super::openmpi::Launch;

const TCP: &str = "-env OMPI_MCA_btl self,tcp";

/// Job on four hosts of two slots, whose daemons form a tree of two levels.
fn launch(peer: Peer, options: &str) -> Option<Launch> {
    launch_on(peer, (4, 2), options)
}

/// Job on hosts with so many slots each. Open MPI 4 names its segments by host and local rank, and all daemons are on one host.
fn launch_on(peer: Peer, (hosts, slots): (u32, u32), options: &str) -> Option<Launch> {
    let transport = if peer == Peer::OpenMpi5 { "" } else { TCP };
    Launch::new(peer, &format!("{} {transport} {options}", nodes(hosts, slots, 2)))
}

#[test]
fn ranks_of_all_nodes_form_one_job() {
    for peer in Peer::OPEN_MPI {
        let Some(job) = launch(peer, "-n 8") else { return };
        let outcome = job.program(peer, "mpi_hello", "").job.run();
        outcome.code(0).quiet().says(" of 8, program 0, universe 8, Open ", 8);
        for rank in 0..8 {
            outcome.says(&format!("rank {rank} of "), 1);
        }
        let Some(job) = launch(peer, "-n 8") else { return };
        job.program(peer, "mpi_ring", "").job.run().code(0).says("ring of 8: 140\n", 1);
        let Some(job) = launch(peer, "-ppn 1 -n 6") else { return };
        job.program(peer, "mpi_allreduce", "").job.run().code(0).says("allreduce of 6: 0 wrong\n", 1);
    }
}

/// A rank finds the others of its host by the name that hydrant has for it, which is not the machine's here.
#[test]
fn hosts_have_more_than_two_ranks() {
    for peer in Peer::OPEN_MPI {
        let Some(job) = launch_on(peer, (2, 4), "-n 8") else { return };
        job.program(peer, "mpi_ring", "").job.run().code(0).says("ring of 8: 140\n", 1);
    }
}

/// Without a fence that collects, data are fetched from the node of their rank. Open MPI 5.0 may hang then with shared memory,
/// also under its own launcher: it wires it before all ranks have committed (open-mpi/ompi#14321).
#[test]
fn data_are_fetched_when_ranks_first_communicate() {
    let direct = "-env OMPI_MCA_pmix_base_async_modex 1 -env OMPI_MCA_mpi_add_procs_cutoff 0";
    for peer in Peer::OPEN_MPI {
        let Some(job) = Launch::new(peer, &format!("{} -n 8 {direct} {TCP}", nodes(4, 2, 2))) else { return };
        job.program(peer, "mpi_ring", "").job.run().code(0).says("ring of 8: 140\n", 1);
    }
}

#[test]
fn ranks_spawn_on_other_nodes() {
    for peer in Peer::OPEN_MPI {
        let Some(job) = launch(peer, "-usize 9 -n 2") else { return };
        let outcome = job.program(peer, "mpi_spawn", "world 3").job.run();
        outcome.code(0).says(" of 2 done, universe 9\n", 2);
        for rank in 0..3 {
            outcome.says(&format!("child {rank} of 3\n"), 1);
        }
    }
}

#[test]
fn a_communicator_over_hosts_shrinks_after_a_death() {
    let Some(launch) = launch_on(Peer::OpenMpi5, (2, 2), "--with-ft ulfm -n 4") else { return };
    let outcome = launch.program(Peer::OpenMpi5, "mpi_shrink", "").job.run();
    outcome.code(0).says(": 3 of 4 are left, agreed 1\n", 3).warns("rank 1 on ");
}

/// Runs a program on three hosts, kills the daemon of the second one when all six ranks are up, and returns the outcome.
fn lose_a_host(program: &str, args: &str) -> Option<Outcome> {
    let options = format!("{} --with-ft ulfm -ppn 2 -n 6", nodes(3, 4, 3));
    let Launch { job, folder: _kept } =
        Launch::new(Peer::OpenMpi5, &options)?.program(Peer::OpenMpi5, program, args);
    let job = job.start();
    job.await_stdout(" is up\n", 6);
    kill_process(job.daemons()[1], Signal::KILL).expect("it runs");
    let outcome = job.wait();
    outcome.code(0).warns("host n2 (node 2): its daemon is lost: its connection was closed\n");
    Some(outcome)
}

/// Its launcher learns of the loss by the link to the daemon, and its ranks by an event.
#[test]
fn a_communicator_shrinks_after_the_loss_of_a_host() {
    let Some(outcome) = lose_a_host("mpi_shrink", "others") else { return };
    outcome.says(": 4 of 6 are left, agreed 1\n", 4);
}

#[test]
fn a_communicator_is_filled_up_by_spawn_after_the_loss_of_a_host() {
    let Some(outcome) = lose_a_host("mpi_survive", "1000000000 refill") else { return };
    outcome.says(": 6 are left after 1 losses\n", 4).says(": 6 are left after 0 losses\n", 2);
}

#[test]
fn names_and_connections_span_nodes() {
    for peer in Peer::OPEN_MPI {
        let Some(job) = launch(peer, "-ppn 1 -n 2") else { return };
        job.program(peer, "mpi_port", "").job.run().code(0).says("received 41\n", 1);
    }
}

#[test]
fn groups_span_nodes() {
    let Some(job) = launch(Peer::OpenMpi5, "-ppn 1 --pset ocean -n 3") else { return };
    let folder = job.folder.0.join("rounds");
    fs::create_dir(&folder).expect("the folder is new");
    let Launch { job, folder: _kept } = job.program(Peer::OpenMpi5, "mpi_sessions", "1 1");
    let outcome = job.arg(&folder).run();
    outcome.code(0).says("round 0 of 1 threads: size 3\n", 3);
    // Open MPI 5.0 has no groups of other sets.
    outcome.says(" mpix://shared\n", 3);
}

// Fault: A PMIx rank aborts the job, and ranks of other hosts fail because their connections to it break
// Outcome: the exit code is the abort's
// Guarantee: The head has the abort before the rank is killed
// Also: core `pmix::property::requests_of_mixed_jobs_agree_with_the_model`
#[test]
fn failures_end_the_job_on_all_nodes() {
    for peer in Peer::OPEN_MPI {
        let Some(job) = launch(peer, "-ppn 1 -n 4") else { return };
        let outcome = job.program(peer, "mpi_end", "abort 17").job.run();
        outcome.code(17).warns("rank 1 aborted the job with code 17\n");
    }
    let peer = Peer::OpenMpi5;
    let Some(job) = launch(peer, "-ppn 1 -n 4") else { return };
    // Ranks of other nodes abort with 14 when their connections to the dead rank break. The first report at the head counts.
    let outcome = job.program(peer, "mpi_end", "kill").job.run();
    match outcome.status.code() {
        Some(14) => outcome.warns(" aborted the job with code 14\n"),
        _ => outcome.code(137).warns("rank 1 died by SIGKILL\n"),
    };
    let Some(job) = launch(peer, "-ppn 1 -n 3") else { return };
    let outcome = job.program(peer, "mpi_hello", "").job.args([":", "-n", "1", "true"]).run();
    outcome.code(1).warns("rank 3 exited with code 0 while others wait for it\n");
}
