//! Hosts that are lost while the job goes on (`-disable-auto-cleanup`).

use hydrant_tests::{Job, nodes};
use rustix::process::{Signal, kill_process};

const LOST: &str = "its daemon is lost: its connection was closed\n";

// Fault: The daemon of a host is killed in a job that goes on after failures
// Outcome: its ranks are dead, the host is named, and the fences of the others end
// Guarantee: A lost host is a change of membership
// Also: libraries `interop::openmpi_nodes::a_communicator_shrinks_after_the_loss_of_a_host`
#[test]
fn survivors_of_a_lost_host_meet_and_know_the_dead() {
    let asks = [
        (1, "send cmd=get kvsname=%j key=PMI_dead_processes\\n\nexpect value=2-3"),
        (2, "frame cmd=info-getjobattr;key=PMI_dead_processes;\nexpect value=2-3;"),
    ];
    for (version, asks) in asks {
        // Rank 0 comes to the second fence when the host is lost.
        let steps = format!(
            "init{version}\nfence{version}\nsay up\nonly 2,3\nforever\nonly 0\ncount\nall\n\
             fence{version}\n{asks}\nend{version}\nsay done"
        );
        let job = Job::hydrant(&nodes(3, 2, 3)).words("-disable-auto-cleanup -n 6").arg(crate::RAW);
        let mut job = job.steps(&steps).hold_input().start();
        job.await_stdout("up\n", 6);
        kill_process(job.children()[1], Signal::KILL).expect("the daemon runs");
        job.await_stderr(&format!("host n2 (node 2): {LOST}"));
        job.end_input();
        let outcome = job.wait();
        outcome.code(1).says("done", 4);
        outcome.warns("  2 ranks were running there, the other ranks go on\n");
        outcome.warns("rank 2 on n2, pid ").warns(" was lost, and 1 more rank failed\n");
    }
}

#[test]
fn several_hosts_are_lost_one_after_the_other() {
    let steps = "init1\nfence1\nsay up\nonly 1,2\nforever\nonly 0\ncount\nall\nfence1\nend1\nsay done";
    let options = format!("{} --with-ft ulfm -n 4", nodes(4, 1, 4));
    let mut job = Job::hydrant(&options).arg(crate::RAW).steps(steps).hold_input().start();
    job.await_stdout("up\n", 4);
    for (daemon, host) in job.children().into_iter().skip(1).zip(["n2", "n3"]) {
        kill_process(daemon, Signal::KILL).expect("the daemon runs");
        job.await_stderr(&format!("host {host} (node "));
    }
    job.end_input();
    // Of a fault-tolerant job the exits of the survivors count.
    job.wait()
        .code(0)
        .says("done", 2)
        .warns("rank 1 on n2, pid ")
        .warns(" was lost, and 1 more rank failed\n");
}

// Fault: Eight of forty hosts are lost at once, more hosts than a node of the tree has children otherwise
// Outcome: the ranks of these eight are dead, and those of the others finish
// Guarantee: A lost host is a change of membership
#[test]
fn nothing_but_the_lost_hosts_of_many_is_lost() {
    let steps = "init1\nfence1\nsay up\nonly 4,5,6,7,8,9,10,11\nforever\nonly 0\ncount\nall\nfence1\n\
                 send cmd=get kvsname=%j key=PMI_dead_processes\\n\nexpect value=4-11\nend1\nsay done";
    let job = Job::hydrant("-hosts n[1-40]:1 --bootstrap local -disable-auto-cleanup -n 40").arg(crate::RAW);
    let mut job = job.steps(steps).hold_input().start();
    job.await_stdout("up\n", 40);
    for &daemon in &job.children()[4..12] {
        kill_process(daemon, Signal::KILL).expect("the daemon runs");
    }
    for node in 5..=12 {
        job.await_stderr(&format!("host n{node} (node {node}): {LOST}"));
    }
    job.end_input();
    job.wait().code(1).says("done", 32);
}

#[test]
fn hosts_below_a_lost_one_are_lost_with_it() {
    // Of four hosts in a binary tree the head starts n1, with n2 and n3 below, and n4.
    let steps = "init2\nfence2\nsay up\nonly 0,1,2,3,4,5\nforever\nonly 6,7\nfence2\nend2\nsay done";
    let job = crate::raw("-disable-auto-cleanup -n 8", steps).start();
    job.await_stdout("up\n", 8);
    kill_process(job.children()[0], Signal::KILL).expect("the daemon runs");
    let outcome = job.wait();
    outcome.code(1).says("done", 2).warns(&format!("host n1 (node 1): {LOST}"));
    outcome.warns("  6 ranks were running there and on the 2 hosts below it, the other ranks go on\n");
}
