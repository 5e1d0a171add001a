//! Fleets: `hydrant up`, `hydrant run --on`, `hydrant down`.

use std::fs::{File, Permissions};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use hydrant_tests::{Fleet, Folder, Job, Running, hydrant_path, until};
use rustix::process::{Signal, WaitOptions, waitpid};

use crate::ASK;

/// A job of one rank that runs a script of bash, which takes descriptors of any number.
fn script(fleet: &Fleet, script: &str) -> Job {
    fleet.job("bash -c").arg(script)
}

#[test]
fn jobs_of_a_fleet_have_output_input_and_exit_codes() {
    let fleet = Fleet::new("-n 4");
    let job = fleet.shell("-l -n 2", "read line; echo $PMI_RANK $PMI_SIZE $line; echo bad >&2; exit 3");
    let outcome = job.input("one\ntwo\n").run();
    outcome.code(3).says("[0] 0 2 one\n", 1).says("[1] 1 2\n", 1).warns("[1] bad\n");
    outcome.warns("rank ").warns(" exited with code 3");
    fleet.shell("-n 2 --stdin all", "cat; exit $PMI_RANK").input("x\n").run().code(1).says("x\n", 2);
    fleet.job("-n 1").arg("./nothing").run().code(127).warns("./nothing");
    fleet.shell("", "kill -9 $$").run().code(137).warns("rank 0 on ").warns("died by SIGKILL");
    let folder = Folder::new("fleet-files");
    let files = format!("-n 2 --outfile-pattern {} --exit-report", folder.path("out.%r.%p"));
    let outcome = fleet.shell(&files, "echo $$ >&2; echo out $PMI_RANK").run();
    outcome.code(0).stdout_is("").warns("exit codes: 0 of ranks 0-1");
    assert_eq!(std::fs::read_dir(folder.path(".")).unwrap().count(), 2);
    fleet.end();
}

/// What a process of the fleet finds is for the user of the job, and for each of them.
#[test]
fn the_user_of_a_job_is_told_about_its_clients() {
    for hosts in ["-n 4", "-hosts n1:4 --bootstrap local"] {
        let fleet = Fleet::new(hosts);
        for _ in 0..2 {
            let outcome = script(&fleet, "echo rubbish >&$PMI_FD; read -r reply <&$PMI_FD; exit 0").run();
            outcome.code(0).warns("closed the PMI connection of rank 0: ");
            let outcome = fleet.job("-n 2 --bind-to user:0 true").run();
            outcome.code(0).warns("note: ");
            let outcome = fleet.job("-v bash -c").arg(format!("{ASK} init; ask cmd=finalize")).run();
            outcome.code(0).warns("rank 0 has joined");
        }
        Job::command("down").arg(&fleet.name).run().code(0).quiet();
        fleet.running.wait().code(0).quiet();
    }
}

#[test]
fn ranks_of_a_job_find_each_other_and_names_of_other_jobs() {
    let fleet = Fleet::new("-n 4");
    let publish =
        "ask 'cmd=publish_name service=door port=here'; echo $reply; read -r stop; ask cmd=finalize";
    let mut server = script(&fleet, &format!("{ASK} init; {publish}")).hold_input().start();
    server.await_stdout("cmd=publish_result", 1);
    let look = "ask 'cmd=lookup_name service=door'; echo $reply";
    let outcome = script(&fleet, &format!("{ASK} init; {look}; ask cmd=finalize")).run();
    outcome.code(0).says("port=here", 1);
    server.end_input();
    server.wait().code(0);
    fleet.end();
}

#[test]
fn signals_reach_the_ranks_of_one_job_alone() {
    let fleet = Fleet::new("-n 4");
    let script = "trap 'echo got; exit 5' USR1; trap '' INT; echo up; while :; do :; done";
    let [first, other] = [0, 1].map(|_| fleet.shell("-v", script).start());
    first.await_stdout("up\n", 1);
    other.await_stdout("up\n", 1);
    first.signal(Signal::USR1);
    first.wait().code(5).stdout_is("up\ngot\n");
    // The ranks ignore the first one.
    other.signal(Signal::INT);
    other.await_stderr("passing SIGINT on");
    other.signal(Signal::INT);
    other.wait().code(130).warns("the job was ended by SIGINT");
    fleet.end();
}

// Fault: `hydrant run --on` is killed while its job runs
// Outcome: the ranks end, and their slots are free
// Guarantee: A job of a fleet ends with its client
#[test]
fn a_job_ends_with_its_client() {
    let fleet = Fleet::new("-n 1");
    let job = fleet.shell("", "echo up; while :; do :; done").start();
    job.await_stdout("up\n", 1);
    job.signal(Signal::KILL);
    job.wait().signaled(Signal::KILL);
    // There is room once the rank has ended.
    fleet.job("true").run().code(0).quiet();
    fleet.end();
}

#[test]
fn jobs_wait_for_room_in_their_order() {
    let fleet = Fleet::new("-n 2");
    let mut first = fleet.shell("-n 2", "echo up; read line || :").hold_input().start();
    first.await_stdout("up\n", 2);
    let refused = fleet.job("--no-wait -n 1 true").run();
    refused.code(1).stderr_is(&format!(
        "hydrant: fleet {}: 0 of the fleet's 2 slots are free; the job has 1 ranks\n",
        fleet.name
    ));
    let large = fleet.shell("-v -n 2", "echo large").start();
    large.await_stderr("behind 0 others");
    let small = fleet.shell("-v -n 1", "echo small").start();
    small.await_stderr("behind 1 others");
    // One that gives up lets the others pass.
    large.signal(Signal::TERM);
    large.wait().code(1).warns("ended by SIGTERM before there was room");
    first.end_input();
    first.wait().code(0);
    small.wait().code(0).says("small\n", 1);
    fleet.end();
}

#[test]
fn what_a_fleet_cannot_do_is_refused_in_one_line() {
    let fleet = Fleet::new("-n 2");
    let refused = |job: Job, code: i32, text: &str| {
        let outcome = job.run();
        outcome.code(code).warns(text);
    };
    refused(fleet.job("-n 3 true"), 1, "the job has 3 ranks, and the fleet has 2 slots");
    refused(fleet.job("-hosts a,b true"), 2, "-hosts is an option of the fleet");
    refused(fleet.job("--bootstrap ssh true"), 2, "--bootstrap is an option of the fleet");
    refused(fleet.job("--pmi-port true"), 2, "--pmi-port does not apply to fleets");
    refused(fleet.job("--preload-libs true"), 2, "--preload-libs does not apply to fleets");
    refused(fleet.job("-n 2 -host localhost:2 true"), 2, "-host of a job in a fleet takes names of hosts");
    refused(Job::command("run --on no-such-fleet true"), 1, "there is no fleet no-such-fleet");
    refused(Job::command("down no-such-fleet"), 1, "there is no fleet no-such-fleet");
    refused(Job::command("run --no-wait true"), 2, "--on NAME");
    refused(Job::command("up -l"), 2, "-l is an option of a job");
    refused(Job::command("up --elastic 4"), 1, "--elastic needs hosts");
    refused(Job::command("up true"), 2, "'hydrant up' starts no program");
    let twice = Job::command("up --foreground --name").arg(&fleet.name);
    refused(twice, 1, &format!("there is a fleet {} already", fleet.name));
    fleet.end();
}

/// Another user cannot run jobs in a fleet, or end it. Needs root to become another user.
#[test]
fn fleets_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        return hydrant_tests::tell("skipped: not root, who can become another user");
    }
    let (fleet, folder) = (Fleet::new("-n 1"), Folder::new("fleet-of-another-user"));
    std::fs::set_permissions(&folder.0, Permissions::from_mode(0o755)).unwrap();
    // A copy, because others may not enter where the original lies.
    let program = folder.path("hydrant");
    std::fs::copy(hydrant_path(), &program).unwrap();
    let other = |words| {
        let job = Job::new("setpriv").words("--reuid=65534 --regid=65534 --clear-groups").arg(&program);
        job.dir("/").words(words).arg(&fleet.name)
    };
    for job in [other("run --on").arg("true"), other("down")] {
        job.run().code(1).warns(&format!("fleet {} is another user's (user 0)", fleet.name));
    }
    fleet.job("true").run().code(0).quiet();
    fleet.end();
}

#[test]
fn a_fleet_goes_on_when_the_command_has_returned() {
    let name = format!("test-{}-detached", std::process::id());
    // A `Job` may leave no process.
    let up = Command::new(hydrant_path()).args(["up", "-n", "2", "--name", &name]).output().unwrap();
    let line = format!("fleet {name} is ready: 1 host, 2 slots\n");
    assert_eq!((up.status.code(), String::from_utf8_lossy(&up.stdout).into_owned()), (Some(0), line));
    let listed = Job::command("ps").run();
    let line = listed.code(0).lines().into_iter().find(|line| line.ends_with(&format!("fleet {name}")));
    let pid = line.expect("it is listed").split_whitespace().next().unwrap().to_owned();
    let shown = Job::command("status --json").arg(&pid).run();
    shown.code(0).says("\"slots\": 2", 1).says("\"free\": 2", 1);
    let job = Job::command("run --on").arg(&name).words("sh -c").arg("echo up; while :; do :; done").start();
    job.await_stdout("up\n", 1);
    // Its jobs end with it.
    Job::command("down").arg(&name).run().code(0).quiet();
    job.wait().code(143).warns("the fleet was ended");
    Job::command("down").arg(&name).run().code(1);
}

// Fault: A client stops in the middle of a request, or sends one that is none
// Outcome: its connection closes; other clients are served
// Guarantee: Whatever reads from a stranger has a budget
#[test]
fn a_client_that_sends_no_request_is_closed() {
    let fleet = Fleet::new("-n 1");
    let script = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        s.connect('\\0hydrant/fleet/1/%d/%s' % (__import__('os').geteuid(), sys.argv[1]))\n\
        s.sendall(bytes.fromhex(sys.argv[2]))\n\
        print(s.recv(1))\n";
    for bytes in ["ffffffff", "01000000ff", "020000000209", "00000000"] {
        let job = Job::new("python3").arg("-c").arg(script).arg(&fleet.name).arg(bytes);
        job.run().code(0).stdout_is("b''\n");
    }
    fleet.job("true").run().code(0).quiet();
    fleet.end();
}

#[test]
fn a_client_that_does_not_read_holds_up_no_other() {
    let fleet = Fleet::new("-n 2");
    let folder = Folder::new("fleet-slow");
    let fifo = folder.fifo("out");
    let script = "echo up >&2; yes | head -c 4000000; echo done >&2";
    let writer = File::options().read(true).write(true).open(&fifo).unwrap();
    let slow = fleet.shell("", script).stdout(writer.try_clone().unwrap()).start();
    slow.await_stderr("up\n");
    fleet.job("echo quick").run().code(0).stdout_is("quick\n");
    let mut reader = File::open(&fifo).unwrap();
    drop(writer);
    let mut all = vec![0; 4_000_000];
    reader.read_exact(&mut all).unwrap();
    slow.wait().code(0);
    fleet.end();
}

#[test]
fn the_example_in_python_collects_its_tasks() {
    let fleet = Fleet::new("-n 3");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fleet_tasks.py");
    let job = Job::new("python3").arg(example);
    let job = job.words("--tasks 40 --at-once 6 --hydrant").arg(hydrant_path()).arg(&fleet.name);
    let job = job.words("sh -c").arg("echo task $TASK; exit $((TASK % 20 == 7))");
    let outcome = job.run();
    outcome.code(1).stdout_is("40 tasks, 40 lines of output; exit codes: 0 (38 times) 1 (2 times)\n");
    outcome.warns("task 7 exited with code 1: ").warns("task 27 exited with code 1: ");
    fleet.end();
}

// Fault: A fleet in which some job always runs, so that the tables of its server are never empty
// Outcome: values of jobs that are over make room for those of later ones
// Guarantee: Any number of jobs after one another
#[test]
fn jobs_come_and_go_beside_one_that_stays() {
    let fleet = Fleet::new("-n 2 --limit kvs-bytes=12000");
    let ask = |steps: &str| format!("{ASK} init; {steps}; echo $reply; ask cmd=finalize");
    let put = |key: &str| format!("ask \"cmd=put kvsname=$kvs key={key} value=$(printf '%0900d' 0)\"");
    let named = "ask cmd=get_my_kvsname; kvs=${reply#*kvsname=}";
    let get =
        format!("{named}; {}; echo up; read -r stop; ask \"cmd=get kvsname=$kvs key=stays\"", put("stays"));
    let mut long = script(&fleet, &ask(&get)).hold_input().start();
    long.await_stdout("up\n", 1);
    for _ in 0..30 {
        let outcome = script(&fleet, &ask(&format!("{named}; {}", put("k")))).run();
        outcome.code(0).says("cmd=put_result rc=0", 1);
    }
    long.end_input();
    long.wait().code(0).says("cmd=get_result rc=0 value=000", 1);
    fleet.end();
}

#[test]
fn a_stopped_job_stops_in_its_fleet_and_goes_on() {
    let fleet = Fleet::new("-n 2");
    let script = "trap 'echo on' CONT; trap 'exit 0' USR1; echo $$; while :; do :; done";
    let other = fleet.shell("", "trap 'echo on' CONT; echo up; read line; exit 3").hold_input();
    let mut other = other.start();
    other.await_stdout("up\n", 1);
    let mut job = fleet.shell("", script).start();
    let [rank] = job.lines();
    job.signal(Signal::TSTP);
    let (_, status) = waitpid(Some(job.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
    assert_eq!(status.stopping_signal(), Some(Signal::TSTP.as_raw()));
    while !std::fs::read_to_string(format!("/proc/{rank}/stat")).unwrap().contains(" T ") {
        std::thread::yield_now();
    }
    job.signal(Signal::CONT);
    assert_eq!(job.lines::<1>(), ["on"]);
    job.signal(Signal::USR1);
    job.wait().code(0).says("on\n", 1);
    other.end_input();
    other.wait().code(3).stdout_is("up\n");
    fleet.end();
}

#[test]
fn jobs_stop_in_a_fleet_whose_session_has_no_number() {
    if !rustix::process::geteuid().is_root() {
        return hydrant_tests::tell("skipped: not root, who may make a PID namespace");
    }
    // As in a container. The session is that of a process outside.
    let fleet = Fleet::within("unshare --pid --fork --kill-child", "-n 1");
    let script = "trap 'echo on' CONT; trap 'exit 0' USR1; echo up; while :; do :; done";
    let mut job = fleet.shell("", script).start();
    assert_eq!(job.lines::<1>(), ["up"]);
    job.signal(Signal::TSTP);
    let (_, status) = waitpid(Some(job.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
    assert_eq!(status.stopping_signal(), Some(Signal::TSTP.as_raw()));
    job.signal(Signal::CONT);
    assert_eq!(job.lines::<1>(), ["on"]);
    job.signal(Signal::USR1);
    job.wait().code(0);
    fleet.end();
}

#[test]
fn many_jobs_leave_nothing_behind() {
    // Tools of PMIx have their port from the start then.
    let folder = Folder::new("fleet-tools");
    let fleet = Fleet::new(&format!("-n 4 --report-uri {}", folder.path("uri")));
    let pid = fleet.running.pid().as_raw_nonzero();
    let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = files();
    for _ in 0..10 {
        let jobs: Vec<Running> = (0..8).map(|_| fleet.job("-n 1").arg("true").start()).collect();
        jobs.into_iter().for_each(|job| _ = job.wait().code(0).quiet());
    }
    // The last command may end before the fleet has closed its connection.
    assert!(until(|| files() == before), "{} descriptors, {before} before", files());
    fleet.end();
}

#[test]
fn bound_ranks_of_two_jobs_have_processors_of_their_own() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return hydrant_tests::tell("skipped: one processor");
    }
    let fleet = Fleet::new("-n 2");
    let script = "grep Cpus_allowed_list /proc/self/status; read line || :";
    let bound = || fleet.shell("-bind-to hwthread", script).hold_input().start();
    let mut jobs = [bound(), bound()];
    jobs.iter().for_each(|job| _ = job.await_stdout("Cpus_allowed_list", 1));
    assert_ne!(jobs[0].stdout(), jobs[1].stdout());
    jobs.iter_mut().for_each(|job| _ = job.end_input());
    jobs.into_iter().for_each(|job| _ = job.wait().code(0));
    fleet.end();
}
