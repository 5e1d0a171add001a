//! `hydrant run --offload --spare native`: the built-in server takes the place of a board that fails.

use std::fs;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Outcome, Running, hydrant_bin};
use rustix::process::Signal;

use super::fleet::{Fleet, HERE, MIXED};
use super::{Machine, RAW};

const TAKEN: &str = "; the built-in server has taken its place\n";

/// A job whose boards have spares, with the folder of its recordings.
struct Spared {
    fleet: Fleet,
    folder: Folder,
}

impl Spared {
    fn start(machines: &[Machine]) -> Spared {
        Spared { fleet: Fleet::start(machines), folder: Folder::new("spared") }
    }

    /// `hydrant run OPTIONS` over so many hosts with `slots` each.
    fn run(&self, hosts: u32, slots: u32, options: &str) -> Job {
        let job = self.fleet.run(hosts, slots, "--spare native --record");
        job.arg(self.folder.path("run.rec")).words(options)
    }

    /// A job of raw clients over three hosts, two ranks on each, of which the last host has no board.
    fn raw(&self, steps: &str) -> Job {
        self.run(3, 2, "-n 6").arg(RAW).steps(steps)
    }

    /// Kills or stops the board of host n1 or n2. Returns the beginning of its warning.
    fn fail(&mut self, node: usize, signal: Signal) -> (Running, String) {
        let (board, address) = self.fleet.boards.remove(node - 1);
        board.signal(signal);
        if signal == Signal::KILL {
            board.await_end();
        }
        (board, format!("hydrant: host n{node} (node {node}): warning: board {address}: "))
    }

    /// Each server's recording replays: it has the outputs of one server without a failure.
    fn replays(&self, nodes: usize) {
        let files: Vec<_> = fs::read_dir(self.folder.path(".")).expect("the folder is there").collect();
        assert_eq!(files.len(), 1 + nodes, "{files:?}");
        for file in files {
            let file = file.expect("the folder is there").path();
            Job::new(hydrant_bin()).words("replay --quiet").arg(file).run().code(0).says("all the same", 1);
        }
    }
}

/// Asserts that the run has ended well, with one warning.
#[track_caller]
fn goes_on(outcome: &Outcome, warning: &str, why: &str) {
    outcome.code(0).warns(warning).warns(why).warns(TAKEN);
    assert_eq!(outcome.stderr.matches("warning: board").count(), 1, "{outcome}");
}

/// Ends what is left of a board that has been killed or stopped.
fn end(board: Running) {
    board.signal(Signal::KILL);
    board.wait().signaled(Signal::KILL);
}

const PMI1: &str = "init1
    send cmd=put kvsname=%j key=k%r value=v%r\\n
    expect cmd=put_result rc=0
    say put
    cat
    fence1
    send cmd=get kvsname=%j key=k0\\n
    expect cmd=get_result rc=0 value=v0
    send cmd=get kvsname=%j key=k5\\n
    expect cmd=get_result rc=0 value=v5
    fence1
    end1
    say done";
const PMI2: &str = "init2
    frame cmd=kvs-put;key=k%r;value=v%r;
    expect cmd=kvs-put-response;rc=0;
    say put
    cat
    fence2
    frame cmd=kvs-get;key=k0;
    expect cmd=kvs-get-response;rc=0;found=TRUE;value=v0;
    frame cmd=kvs-get;key=k5;
    expect cmd=kvs-get-response;rc=0;found=TRUE;value=v5;
    fence2
    end2
    say done";

/// The board of host n1 or n2 fails behind the puts of all ranks and before their fence.
// Fault: A board with `--spare native` is killed or cut off between puts and fence, or in MPI_Init; or all boards are
// Outcome: the job goes on; a warning names host, board and failure
// Guarantee: The built-in server takes over
// Also: devices `serve::spares::mpich_does_not_notice_a_board_that_fails`,
// `serve::spares::open_mpi_does_not_notice_a_board_that_fails`,
// `serve::spares::a_run_goes_on_without_all_of_its_boards`,
// `board::spares::ranks_do_not_notice_firmware_that_is_killed_before_between_and_behind_fences`,
// `board::spares::mpich_does_not_notice_firmware_that_is_killed`
#[test]
fn ranks_do_not_notice_a_board_that_fails_between_a_put_and_its_fence() {
    for (steps, node, signal, why) in [
        (PMI1, 1, Signal::KILL, "the connection is lost: "),
        (PMI2, 2, Signal::KILL, "the connection is lost: "),
        (PMI2, 1, Signal::STOP, "no response within "),
    ] {
        let mut spared = Spared::start(&HERE[..2]);
        let job = spared.run(3, 2, "--heartbeat 4 --stdin all -n 6").arg(RAW).steps(steps);
        let mut job = job.hold_input().start();
        job.await_stdout("put\n", 6);
        let (board, warning) = spared.fail(node, signal);
        job.end_input();
        let outcome = job.wait();
        goes_on(&outcome, &warning, why);
        outcome.says("done\n", 6);
        end(board);
        spared.replays(3);
        spared.fleet.end();
    }
}

/// Both boards fail. Jobs that are spawned and exit codes are those of the spares.
#[test]
fn a_run_goes_on_without_all_of_its_boards() {
    let mut spared = Spared::start(&HERE[..2]);
    let child = format!("exec {RAW} init2 fence2 end2 say met");
    let steps = format!(
        "init2\nfence2\nsay up\ncat\nfence2\nonly 3
        frame cmd=spawn;ncmds=1;preputcount=0;subcmd=sh;maxprocs=6;argc=2;argv0=-c;\
        argv1={child};infokeycount=1;infokey0=host;infoval0=n2,n1,n3;
        expect cmd=spawn-response;rc=0;
        all\nfence2\nend2\nsay done\nonly 3\nexit 7"
    );
    let job = spared.run(3, 2, "--stdin all -n 6").arg(RAW).steps(&steps);
    let mut job = job.hold_input().start();
    job.await_stdout("up\n", 6);
    let (second, second_warning) = spared.fail(2, Signal::KILL);
    let (first, first_warning) = spared.fail(1, Signal::KILL);
    job.end_input();
    let outcome = job.wait();
    outcome.code(7).says("met\n", 6).says("done\n", 6);
    outcome
        .warns(&first_warning)
        .warns(&second_warning)
        .warns("rank 3 on n2, pid ")
        .warns(" exited with code 7\n");
    assert_eq!(outcome.stderr.matches(TAKEN).count(), 2, "{outcome}");
    end(first);
    end(second);
    spared.replays(3);
}

/// Runs a program whose last rank starts when the others wait in the fence of `MPI_Init` and a board has failed.
fn last_rank_waits(job: Job, program: &str, last: u32) -> Job {
    let script = format!("[ \"$PMI_RANK\" != {last} ] || read -r line; exec {program}");
    job.words("sh -c").arg(script).hold_input()
}

// Fault: A board with `--spare native` freezes
// Outcome: the job goes on, after 5 s or half of `--heartbeat`
// Guarantee: A call ends before other hosts miss the heartbeats of its host
// Also: devices `board::spares::mpich_does_not_notice_firmware_that_is_frozen`, hydrant-board
// `a_board_that_does_not_answer_has_failed`, `slow_calls_share_the_time_of_one`
#[test]
fn mpich_does_not_notice_a_board_that_fails() {
    if !Peer::Mpich5.there() {
        return;
    }
    let program = Peer::Mpich5.program("mpi_allreduce");
    for (node, signal, why) in [
        (1, Signal::KILL, "the connection is lost: "),
        (2, Signal::KILL, "the connection is lost: "),
        (1, Signal::STOP, "no response within "),
    ] {
        let mut spared = Spared::start(&HERE[..2]);
        let job = spared.run(2, 8, "--heartbeat 4 --fence-warning 1 --stdin 15 -n 16");
        let mut job = last_rank_waits(job, &program.display().to_string(), 15).start();
        job.await_stderr(" missing: rank 15 ");
        let (board, warning) = spared.fail(node, signal);
        job.end_input();
        let outcome = job.wait();
        goes_on(&outcome, &warning, why);
        outcome.says("allreduce of 16: 0 wrong\n", 1);
        end(board);
        spared.replays(2);
        spared.fleet.end();
    }
}

#[test]
fn open_mpi_does_not_notice_a_board_that_fails() {
    if !Peer::OpenMpi5.there() {
        return;
    }
    let program = Peer::OpenMpi5.program("mpi_allreduce");
    for (signal, why) in [(Signal::KILL, "the connection is lost: "), (Signal::STOP, "no response within ")] {
        let mut spared = Spared::start(&HERE[..2]);
        let folder = Folder::new("spared-ompi");
        let job = spared.run(3, 2, "--heartbeat 4 --fence-warning 1 --stdin 5 -n 6");
        let job = job.assign(Peer::OpenMpi5.variables(&folder.0));
        let mut job = last_rank_waits(job, &program.display().to_string(), 5).start();
        job.await_stderr(" missing: rank 5 ");
        let (board, warning) = spared.fail(1, signal);
        job.end_input();
        let outcome = job.wait();
        goes_on(&outcome, &warning, why);
        outcome.says("allreduce of 6: 0 wrong\n", 1);
        end(board);
        spared.replays(3);
        spared.fleet.end();
    }
}

/// The recordings show that boards have the outputs of a server in this process.
#[test]
fn boards_with_spares_serve_what_others_do() {
    let spared = Spared::start(&MIXED);
    let probe = spared.run(3, 2, "--fence lazy -n 6").arg(hydrant_bin()).arg("probe").run();
    probe.code(0).quiet().says("exchanged 36 cards", 1);
    spared.replays(3);
    if Peer::Mpich5.there() {
        let sum = spared.run(2, 2, "-n 4").arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).quiet().says("allreduce of 4: 0 wrong\n", 1);
        let spawn = spared.run(3, 6, "-usize 9 -n 4").arg(Peer::Mpich5.program("mpi_spawn")).words("self 2");
        spawn.run().code(0).says(" of 4 done", 4);
        spared.replays(3);
    }
    let steps = "init2
        only 4
        frame cmd=name-lookup;name=svc;wait=1000000;
        expect cmd=name-lookup-response;rc=0;port=p;
        only 1
        frame cmd=name-publish;name=svc;port=p;
        expect cmd=name-publish-response;rc=0;
        all
        fence2
        end2
        say done";
    spared.raw(steps).run().code(0).quiet().says("done\n", 6);
    spared.replays(3);
    let outcome = spared.raw("init2\nfence2\nonly 1\nkill 9\nall\nforever").run();
    outcome.code(137).warns("rank 1 died by SIGKILL\n").warns("5 other ranks were ended\n");
    spared.fleet.end();
}

/// Nothing is left to fail.
#[test]
fn the_built_in_server_replaces_a_board_that_has_a_spare() {
    let mut spared = Spared::start(&HERE[..2]);
    let job = spared.run(3, 2, "--stdin all -n 6").arg(RAW).steps(PMI2);
    let mut job = job.hold_input().start();
    job.await_stdout("put\n", 6);
    let replace = Job::new(hydrant_bin()).words("replace --built-in").arg(job.pid().to_string());
    replace.run().code(0).quiet();
    let boards = [2, 1].map(|node| spared.fail(node, Signal::KILL).0);
    job.end_input();
    job.wait().code(0).quiet().says("done\n", 6);
    boards.into_iter().for_each(end);
    spared.replays(3);
}
