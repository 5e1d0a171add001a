//! Fleets of several hosts (`hydrant up`, `hydrant run --on`, `hydrant down`).

use std::fs::{self, File};
use std::io::Write;

use hydrant_tests::{Fleet, Folder, Job, Running, nodes};
use rustix::process::{Signal, kill_process};

use crate::RAW;

/// A fleet of local daemons, each with two slots.
fn fleet(hosts: u32) -> Fleet {
    Fleet::new(&nodes(hosts, 2, 2))
}

/// A job whose lines are labeled with the hosts of its ranks.
fn labeled(fleet: &Fleet, options: &str, script: &str) -> Job {
    fleet.job(options).args(["--prepend-pattern", "%h ", "sh", "-c"]).arg(script)
}

/// Such a job that waits for a line. Its only rank exits with 3.
fn reader(fleet: &Fleet, options: &str, line: &str, ranks: usize) -> Running {
    let script = "echo up; read line || :; echo got $line; [ $PMI_SIZE -gt 1 ] || exit 3";
    let job = labeled(fleet, options, script).hold_input().start();
    job.await_stdout(line, ranks);
    job
}

#[test]
fn jobs_run_beside_each_other_with_input_and_exit_codes_of_their_own() {
    let fleet = fleet(2);
    let mut first = reader(&fleet, "-n 2 --stdin all", "n1 up\n", 2);
    let mut second = reader(&fleet, "-n 2 --stdin 1", "n2 up\n", 2);
    second.send(b"two\n").unwrap();
    second.end_input();
    second.wait().code(0).quiet().says("n2 got two\n", 1).says("n2 got\n", 1);
    first.send(b"one\n").unwrap();
    first.end_input();
    first.wait().code(0).quiet().says("n1 got one\n", 2);
    let mut third = reader(&fleet, "-n 1 -host n2", "n2 up\n", 1);
    third.end_input();
    third.wait().code(3).says("n2 got\n", 1);
    fleet.end();
}

#[test]
fn a_job_waits_until_hosts_have_room() {
    let fleet = fleet(2);
    let mut first = reader(&fleet, "-n 1", "n1 up\n", 1);
    let large = labeled(&fleet, "-v -n 4", "echo large").start();
    large.await_stderr("behind 0 others");
    first.end_input();
    first.wait().code(3);
    large.wait().code(0).says("n1 large\n", 2).says("n2 large\n", 2);
    fleet.end();
}

#[test]
fn the_end_of_a_fleet_ends_its_jobs_on_all_hosts() {
    let fleet = fleet(3);
    let job = fleet.shell("-n 5", "echo up; while :; do :; done").start();
    job.await_stdout("up\n", 5);
    let waiting = fleet.job("-v -n 2 true").start();
    waiting.await_stderr("behind 0 others");
    fleet.end();
    job.wait().code(143).warns("the fleet was ended");
    waiting.wait().code(1).warns("the fleet was ended before there was room");
}

// Fault: The daemon of a host of a fleet is killed
// Outcome: the jobs with ranks there end, the fleet and its other jobs go on, and what is larger than the fleet now is refused
// Guarantee: A job of a fleet shares no fate with jobs on other hosts
#[test]
fn a_lost_host_ends_the_jobs_that_have_ranks_there() {
    let fleet = fleet(2);
    let mut other = reader(&fleet, "-n 1 -host n1", "n1 up\n", 1);
    let there = reader(&fleet, "-n 1 -host n2", "n2 up\n", 1);
    let large = fleet.job("-v -n 4 true").start();
    large.await_stderr("behind 0 others");
    kill_process(fleet.running.children()[1], Signal::KILL).expect("the daemon runs");
    let lost = "host n2 (node 2): its daemon is lost: its connection was closed\n";
    there.wait().code(1).warns(lost);
    large.wait().code(1).warns("the job has 4 ranks, and the fleet has 2 slots");
    fleet.running.await_stderr(lost);
    other.send(b"on\n").unwrap();
    other.end_input();
    other.wait().code(3).says("n1 got on\n", 1);
    // More than may be under way: the host that is lost takes none of it.
    let input = "0123456\n".repeat(1 << 16);
    let outcome = fleet.job("-n 1 --stdin all cat").input(input.as_bytes()).run();
    outcome.code(0).stdout_is(&input);
    fleet.job("-host n2 true").run().code(1).warns("n2");
    fleet.end();
}

/// A job that waits for room gets that of a host that joins. A host leaves when it has no ranks, and jobs that need it are refused.
#[test]
fn hosts_join_and_leave_a_fleet() {
    let fleet = Fleet::new("-hosts n1:2 --bootstrap local --elastic 3");
    let pid = fleet.running.pid().to_string();
    let change = |command: &str| Job::command(command).arg(&pid).run();
    let mut first = reader(&fleet, "-n 2", "n1 up\n", 2);
    let waiting = labeled(&fleet, "-v -n 2", "echo up").start();
    waiting.await_stderr("behind 0 others");
    change("grow -hosts n2:2").code(0).quiet();
    waiting.wait().code(0).says("n2 up\n", 2);
    change("grow -hosts n2").code(1).warns("host n2 is in the run already");
    let mut there = reader(&fleet, "-n 1 -host n2", "n2 up\n", 1);
    change("shrink -hosts n2").code(1).warns("host n2 has rank 0: end them, or use --force");
    let large = fleet.job("-v -n 4 true").start();
    large.await_stderr("behind 0 others");
    there.end_input();
    there.wait().code(3);
    change("shrink -hosts n2").code(0).quiet();
    large.wait().code(1).warns("the job has 4 ranks, and the fleet has 2 slots");
    first.end_input();
    first.wait().code(0);
    fleet.job("-host n2 true").run().code(1).warns("n2");
    change("grow -hosts n3:4").code(0).quiet();
    labeled(&fleet, "-n 6", "echo up").run().code(0).says("n1 up\n", 2).says("n3 up\n", 4);
    fleet.end();
}

// Fault: A host without ranks leaves a fleet before it has answered to the input of a job
// Outcome: the job gets the rest of its input
// Guarantee: Nothing is awaited from a host that has left
#[test]
fn the_input_of_a_job_goes_on_when_a_host_leaves() {
    let fleet = Fleet::new("-v -hosts n1:1,n2:1 --bootstrap local --elastic 1:2");
    let mut job = fleet.job("-n 1 -host n1 --stdin all cat").hold_input().start();
    job.send(b"up\n").unwrap();
    job.await_stdout("up\n", 1);
    let idle = fleet.running.children()[1];
    kill_process(idle, Signal::STOP).expect("the daemon runs");
    // All that may be under way.
    let input = "0123456\n".repeat(1 << 15);
    job.send(input.as_bytes()).unwrap();
    job.await_stdout("0123456\n", 1 << 14);
    let leaves = Job::command("shrink -hosts n2").arg(fleet.running.pid().to_string()).start();
    fleet.running.await_stderr("host n2 (node 2) has left");
    kill_process(idle, Signal::CONT).expect("the daemon runs");
    leaves.wait().code(0).quiet();
    job.send(b"rest\n").unwrap();
    job.end_input();
    job.wait().code(0).stdout_is(&format!("up\n{input}rest\n"));
    fleet.end();
}

// Fault: A host is to join a fleet and cannot serve ranks: it cannot write its recording
// Outcome: `hydrant grow` says why, and jobs go on; it joins once it can
// Guarantee: A host is a member of the run once it has applied the settings
// Also: hydrant-control `a_host_that_cannot_serve_ranks_does_not_join`
#[test]
fn a_host_that_cannot_serve_ranks_does_not_join_a_fleet() {
    let folder = Folder::new("fleet-unfit");
    fs::create_dir(folder.path("f.rec.c")).expect("the folder is new");
    let record = folder.path("f.rec");
    let fleet = Fleet::new(&format!("-hosts n1:1 --bootstrap local --elastic 2 --record {record}"));
    let pid = fleet.running.pid().to_string();
    let grow = || Job::command("grow -hosts c").arg(&pid).run();
    let mut job = reader(&fleet, "-n 1", "n1 up\n", 1);
    let outcome = grow();
    outcome.code(1).warns("refused: host c (node 2): ").warns("f.rec.c");
    fleet.job("-n 2 true").run().code(1).warns("the job has 2 ranks, and the fleet has 1 slots");
    fs::remove_dir(folder.path("f.rec.c")).expect("nothing is recorded there");
    grow().code(0).quiet();
    labeled(&fleet, "-n 1", "echo up").run().code(0).says("c up\n", 1);
    job.end_input();
    job.wait().code(3).says("n1 got\n", 1);
    fleet.end();
}

/// A fleet that has grown has tables for the slots that it has then: as many jobs run at a time, and as many ranks in one.
#[test]
fn a_fleet_that_has_grown_runs_a_job_in_each_slot() {
    let folder = Folder::new("fleet-grown");
    let gate = folder.fifo("gate");
    let fleet = Fleet::new("-hosts n1:2 --bootstrap local --elastic 20");
    let pid = fleet.running.pid().to_string();
    // The universe of a job are the slots that there are when it starts.
    let check_universe = |ranks: u32, slots: u32| {
        let steps = format!(
            "init1\nsend cmd=get_universe_size\\n\nexpect cmd=universe_size rc=0 size={slots}\nfence1\nend1"
        );
        fleet.job(&format!("-n {ranks}")).arg(RAW).steps(&steps).run().code(0).quiet();
    };
    check_universe(1, 2);
    Job::command("grow -hosts n2:70").arg(&pid).run().code(0).quiet();
    check_universe(72, 72);
    // Each task waits for all others. The gate stays open for those that open it last.
    let mut open = File::options().read(true).write(true).open(&gate).expect("the gate is there");
    let tasks = fleet.shell("--array 0-71", &format!("echo up; read line < {gate}")).start();
    tasks.await_stdout("up\n", 72);
    open.write_all(&[b'\n'; 72]).expect("a gate is a pipe");
    tasks.wait().code(0).quiet();
    fleet.end();
}
