//! Job arrays: `hydrant run --on NAME --array LIST`.

use std::fs::File;
use std::io::Write as _;

use hydrant_tests::{Fleet, Folder, Job, Running};
use rustix::process::Signal;

/// The number of the task, of the tasks, and the lowest and highest one.
const NUMBERS: &str =
    "$HYDRANT_ARRAY_TASK_ID $HYDRANT_ARRAY_TASK_COUNT $HYDRANT_ARRAY_TASK_MIN $HYDRANT_ARRAY_TASK_MAX";

/// A script that runs until it is ended.
const ENDLESS: &str = "echo up; while :; do :; done";

/// An array of endless tasks in a fleet of two slots, when two run.
fn two_run(fleet: &Fleet, list: &str) -> Running {
    let job = fleet.shell(&format!("--array {list}"), ENDLESS).start();
    job.await_stdout("up\n", 2);
    job
}

#[test]
fn tasks_are_jobs_of_their_own_in_the_order_of_the_list() {
    let fleet = Fleet::new("-n 1");
    // A variable of an array around this one does not count.
    let job = fleet.shell("--array 20,0-9:3%1", &format!("echo {NUMBERS} $PMI_RANK $PMI_SIZE"));
    let outcome = job.env("HYDRANT_ARRAY_TASK_ID", "7").run();
    let lines = [20, 0, 3, 6, 9].map(|task| format!("{task} 5 0 20 0 1\n"));
    outcome.code(0).quiet().stdout_is(&lines.concat());
    let outcome = fleet.shell("--array 1-3 -l", "echo \"$(cat)\" in; echo bad >&2").input("nobody's\n").run();
    outcome.code(0).stdout_is("[1.0]  in\n[2.0]  in\n[3.0]  in\n").warns("[3.0] bad\n");
    let names = fleet.shell("--array 0-9", "echo $PMI_JOBID").run();
    let mut names = names.code(0).lines();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 10);
    fleet.end();
}

#[test]
fn no_more_tasks_run_at_once_than_the_user_wants() {
    let fleet = Fleet::new("-n 8");
    let folder = Folder::new("array-at-once");
    let gate = folder.fifo("gate");
    let log = folder.path("log");
    let mut open = File::options().read(true).write(true).open(&gate).unwrap();
    let script = format!("echo + >> {log}; echo up; read line < {gate}; echo - >> {log}");
    let running = fleet.shell("--array 0-7%2", &script).start();
    running.await_stdout("up\n", 2);
    open.write_all(&[b'\n'; 8]).unwrap();
    running.wait().code(0).says("up\n", 8);
    let mut most = 0;
    folder.read("log").lines().fold(0, |now: u32, line| {
        let now = if line == "+" { now + 1 } else { now - 1 };
        most = most.max(now);
        now
    });
    assert_eq!(most, 2);
    fleet.end();
}

// Fault: The file for the output of one task cannot be opened
// Outcome: this task fails, and all others run to their end
// Guarantee: Tasks share no fate
#[test]
fn a_task_without_its_file_fails_alone() {
    let fleet = Fleet::new("-n 2");
    let folder = Folder::new("array-file");
    std::fs::create_dir(folder.path("1")).unwrap();
    let options = format!("--array 0-3 --outfile-pattern {}", folder.path("%I"));
    let outcome = fleet.shell(&options, "echo $HYDRANT_ARRAY_TASK_ID").run();
    outcome.code(1).warns("task 1: ").warns("1 of 4 tasks failed: task 1 with code 1");
    assert_eq!(["0", "2", "3"].map(|task| folder.read(task)), ["0\n", "2\n", "3\n"]);
    fleet.end();
}

#[test]
fn all_tasks_run_and_the_first_failure_is_the_exit_code() {
    let fleet = Fleet::new("-n 1");
    let script = "case $HYDRANT_ARRAY_TASK_ID in 3) exit 7;; 6) kill -9 $$;; esac; echo on";
    let outcome = fleet.shell("--array 0-9", script).run();
    outcome.code(7).says("on\n", 8).warns("task 3: rank 0 on ").warns("task 6: rank 0 died by SIGKILL");
    outcome.stderr_ends("2 of 10 tasks failed: task 3 with code 7, task 6 with code 137");
    // Tasks that do not start fail, too.
    let outcome = fleet.job("-n 2 --array 0-1 true").run();
    let why = format!("fleet {}: the job has 2 ranks, and the fleet has 1 slots\n", fleet.name);
    outcome.code(1).warns(&format!("task 0: {why}")).warns(&format!("task 1: {why}"));
    outcome.stderr_ends("2 of 2 tasks failed: task 0 with code 1, task 1 with code 1");
    let outcome = fleet.shell("--array 0-1%1 --json", "exit $HYDRANT_ARRAY_TASK_ID").run();
    outcome.code(1).says("\"task\": 0", 1).says("\"task\": 1", 1).says("\"exit_code\": 0", 1);
    let busy = fleet.shell("", ENDLESS).start();
    busy.await_stdout("up\n", 1);
    fleet
        .job("--no-wait --array 4 true")
        .run()
        .code(1)
        .warns("task 4: ")
        .warns("0 of the fleet's 1 slots are free");
    busy.signal(Signal::TERM);
    busy.wait().code(143);
    // Each task has this time.
    let outcome = fleet.shell("--array 0-1 --timeout 1", "while :; do :; done").run();
    outcome.code(124).warns("task 0: the time limit of 1 s").warns("task 1: the time limit of 1 s");
    fleet.end();
}

#[test]
fn files_and_labels_have_the_numbers_of_tasks() {
    let fleet = Fleet::new("-n 4");
    let folder = Folder::new("array-files");
    let options = format!("-n 2 --array 3,100-299 --outfile-pattern {}", folder.path("out/%I.%r"));
    let outcome = fleet.shell(&options, "echo $HYDRANT_ARRAY_TASK_ID $PMI_RANK").run();
    outcome.code(0).quiet().stdout_is("");
    assert_eq!(std::fs::read_dir(folder.path("out")).unwrap().count(), 2 * 201);
    assert_eq!(
        (folder.read("out/3.1"), folder.read("out/299.0")),
        ("3 1\n".to_owned(), "299 0\n".to_owned())
    );
    // Tasks that share a file go on behind each other.
    let options = format!("--array 1-9%1 --outfile-pattern {}", folder.path("all"));
    fleet.shell(&options, "echo $HYDRANT_ARRAY_TASK_ID").run().code(0).quiet();
    assert_eq!(folder.read("all"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let outcome = fleet.shell("--array 8 -n 2 --prepend-pattern %I/%r:", "echo x").run();
    outcome.code(0).says("8/0:x\n", 1).says("8/1:x\n", 1);
    fleet.end();
}

#[test]
fn lists_that_are_none_are_refused() {
    let refused = |options: &str, text: &str| {
        _ = Job::command(&format!("run {options}")).arg("true").run().code(2).warns(text)
    };
    refused("--array 0-3", "--array is of no use without --on NAME (a fleet that 'hydrant up' starts)");
    refused("--on f --array 0-3x", "invalid value '0-3x' for --array: expected numbers and ranges");
    refused("--on f --array 1,1", "task 1 is in it twice");
    refused("--on f --array 0-4000001", "the numbers of tasks are 0 to 4000000");
    refused("--on f --array 0-9%513", "expected a number of tasks from 1 to 512 behind %");
    refused(
        "--on f --array 0-9 --stdin all",
        "--stdin cannot be used with --array: the tasks of an array have an empty standard input",
    );
    Job::command("run --on no-such-fleet --array 0-9 true")
        .run()
        .code(1)
        .stderr_starts("hydrant: there is no fleet");
}

#[test]
fn a_signal_ends_the_tasks_that_run_and_starts_no_others() {
    let fleet = Fleet::new("-n 2");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let job = two_run(&fleet, "0-99999");
        job.signal(signal);
        let outcome = job.wait();
        outcome.code(code).stdout_is("up\nup\n").stderr_ends("; 99998 of 100000 tasks were not started");
    }
    // The ranks ignore the first one.
    let job = fleet.shell("-v --array 0-9", &format!("trap '' INT; {ENDLESS}")).start();
    job.await_stdout("up\n", 2);
    job.signal(Signal::INT);
    job.await_stderr("task 0: passing SIGINT on").await_stderr("task 1: passing SIGINT on");
    job.signal(Signal::INT);
    job.wait().code(130).stdout_is("up\nup\n");
    // Tasks that end well upon the signal leave others that did not start.
    let job = fleet.shell("--array 0-9", "trap 'exit 0' USR1 TERM; echo up; while :; do :; done").start();
    job.await_stdout("up\n", 2);
    job.signal(Signal::TERM);
    job.wait().code(143).stdout_is("up\nup\n").warns("8 of 10 tasks were not started");
    fleet.end();
}

// Fault: The client of a job array is killed while tasks run and others wait for room
// Outcome: all of them end, and their slots are free
// Guarantee: A job of a fleet ends with its client
#[test]
fn tasks_end_with_their_client() {
    let fleet = Fleet::new("-n 2");
    let job = two_run(&fleet, "0-99");
    job.signal(Signal::KILL);
    job.wait().signaled(Signal::KILL);
    fleet.job("-n 2 true").run().code(0).quiet();
    fleet.end();
}

// Fault: A fleet ends while the tasks of an array run, and when many are yet to start
// Outcome: the command ends, and one line says so
// Guarantee: One failure is one message
#[test]
fn an_array_ends_with_its_fleet() {
    let fleet = Fleet::new("-n 2");
    let job = two_run(&fleet, "0-99999");
    let name = fleet.name.clone();
    fleet.end();
    let outcome = job.wait();
    outcome.code(1).warns("99998 of 100000 tasks were not started\n");
    outcome.stderr_ends(&format!("hydrant: fleet {name}: the fleet was ended before there was room"));
    let fleet = Fleet::new("-n 2");
    let job = two_run(&fleet, "0-99999");
    let name = fleet.name.clone();
    fleet.running.signal(Signal::KILL);
    fleet.running.wait().signaled(Signal::KILL);
    job.wait().code(1).stderr_ends(&format!("hydrant: fleet {name} has ended"));
}
