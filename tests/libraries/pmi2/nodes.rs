//! Jobs on several nodes, over either library: the programs check what they get.

use std::path::PathBuf;

use hydrant_tests::Folder;
use hydrant_tests::peers::clients_dir;

use super::support::{BOTH, HYDRANT, Launcher, Whose};

/// Four daemons, with two ranks each if there are eight.
const NODES: &str = "-hosts n[1-4]:2 --bootstrap local --radix 2";

fn calls() -> PathBuf {
    clients_dir().join("pmi2_calls.c")
}

#[test]
fn the_calls_of_one_job() {
    for library in BOTH {
        for test in ["kvs", "ring", "names"] {
            let Some(job) = Launcher::Hydrant(NODES).job(8, Whose::Slurm, library, &calls()) else { return };
            job.words(test).run().code(0).quiet().says(&format!("{test} of rank "), 8);
        }
    }
}

/// Values that a fence has not moved, with hints, without, and missing ones.
// Shows: pmi2.h, Key-value space | `PMI2_KVS_Get` `src_pmi_id` | a hint to the server | done: with lazy fences the
// host of that rank is asked; a wrong hint costs time only. If several ranks put the key, the value may be that of
// any of them
// Also: nodes `lazy::hints_lead_to_the_value_good_or_bad`, hydrant-core `without_a_good_hint_all_nodes_are_asked`
#[test]
fn lazy_fences() {
    let lazy = "--fence lazy -hosts n[1-4]:2 --bootstrap local --radix 2";
    for library in BOTH {
        let kvs = clients_dir().join("pmi2_kvs.c");
        for args in ["-k 4 -v 900 -l 3", "ring -l 4"] {
            let Some(job) = Launcher::Hydrant(lazy).job(8, Whose::Slurm, library, &kvs) else { return };
            job.words(args).run().code(0).quiet().says("pmi2 size=8 ", 1).says(" errs=0 ", 1);
        }
        for test in ["kvs", "ring", "names"] {
            let Some(job) = Launcher::Hydrant(lazy).job(8, Whose::Slurm, library, &calls()) else { return };
            job.words(test).run().code(0).quiet().says(&format!("{test} of rank "), 8);
        }
    }
}

/// Slurm's library returns the size of the job.
// Shows: pmi2.h, Job | `PMI2_Info_GetSize` `size` | number of processes on the node | done; Slurm's library returns
// the size of the job
// Also: hydrant-client `ranks_of_a_node`
#[test]
fn ranks_know_how_many_share_their_node() {
    let Some(job) = Launcher::Hydrant(NODES).job(7, Whose::Own, Whose::Own, &calls()) else { return };
    let outcome = job.words("init").run();
    outcome.code(0).quiet();
    for rank in 0..7 {
        let local = if rank == 6 { 1 } else { 2 };
        outcome.says(&format!("rank {rank} of 7 appnum 0, {local} on this node, job named\n"), 1);
    }
}

/// Ways to reach the server, and the second of two nodes for the jobs that are spawned.
fn ways() -> [Launcher; 3] {
    [HYDRANT[0], HYDRANT[1], Launcher::Hydrant("-hosts n[1-2]:1 --bootstrap local")]
}

fn jobs() -> PathBuf {
    clients_dir().join("pmi2_jobs.c")
}

#[test]
fn connecting_and_disconnecting() {
    for launcher in ways() {
        let folder = Folder::new("pmi2-connect");
        let Some(job) = launcher.job(1, Whose::Own, Whose::Own, &jobs()) else { return };
        let outcome = job.words("connect").words(&folder.path("pipe")).run();
        outcome.code(0).quiet().says("connected\n", 1).says("child 0 of 1 ", 1);
    }
}

/// The parent sees that they are no longer connected.
#[test]
fn jobs_that_have_disconnected_fail_alone() {
    for (launcher, library) in ways().into_iter().flat_map(|launcher| BOTH.map(|library| (launcher, library)))
    {
        let Some(job) = launcher.job(1, Whose::Slurm, library, &jobs()) else { return };
        let mut job = job.words("part").start();
        job.await_stderr("rank 0 of spawned job 1 died by SIGABRT\n");
        job.end_input();
        job.wait().code(134).says("the parent goes on\n", 1);
    }
}

/// Two jobs are connected by a third one, and stay so when it has ended.
// Shows: pmi2.h, Job | `PMI2_Job_Connect` | joins all jobs connected to one side with all connected to the other |
// done: across runs too
// Also: launch `runs::connecting_joins_the_jobs_of_both_sides`, hydrant-core `connecting_joins_both_sides`
#[test]
fn connecting_joins_what_is_connected() {
    for (launcher, library) in ways().into_iter().flat_map(|launcher| BOTH.map(|library| (launcher, library)))
    {
        let folder = Folder::new("pmi2-chain");
        let Some(job) = launcher.job(1, Whose::Slurm, library, &jobs()) else { return };
        let outcome = job.words("chain").words(&folder.path("one")).words(&folder.path("two")).run();
        outcome.code(0).quiet().says("chained\n", 1).says("read what is put in the other job\n", 1);
    }
}
