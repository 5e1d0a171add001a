//! `hydrant run --offload`: jobs over several hosts whose ranks boards serve, on this machine's processor and on a DPU's.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running};
use hydrant_tests::{hydrant_bin, nodes};
use rustix::process::Signal;

use super::offload::managed;
use super::{Machine, RAW, aarch64_bin};

/// Boards of the first hosts, n1 and so on. Later hosts have none.
pub(super) struct Fleet {
    pub(super) boards: Vec<(Running, String)>,
    folder: Folder,
    secret: String,
}

impl Fleet {
    pub(super) fn start(machines: &[Machine]) -> Fleet {
        Fleet::with(machines, "")
    }

    /// Starts boards with these options of `hydrant serve` more.
    pub(super) fn with(machines: &[Machine], options: &str) -> Fleet {
        if machines.iter().any(|machine| matches!(machine, Machine::Aarch64)) {
            // A board that runs meanwhile would have less time for its test.
            aarch64_bin();
        }
        let folder = Folder::new("fleet");
        let secret = folder.file("secret", "what the boards and their hosts share");
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("the file is this user's");
        let boards = machines.iter().map(|&machine| {
            let (running, target) =
                managed(machine, &format!("--limit ranks=2000 --secret-file {secret} {options}"));
            (running, target.address)
        });
        let boards: Vec<_> = boards.collect();
        let fleet = Fleet { boards, folder, secret };
        fleet.name_boards();
        fleet
    }

    fn name_boards(&self) {
        let lines = (1..).zip(&self.boards).map(|(number, (_, address))| format!("n{number} {address}\n"));
        self.folder.file("boards", &lines.collect::<String>());
    }

    /// Has later runs reach a board at another address.
    pub(super) fn move_board(&mut self, board: usize, address: String) {
        self.boards[board].1 = address;
        self.name_boards();
    }

    /// `hydrant run OPTIONS` over so many hosts with `slots` each.
    pub(super) fn run(&self, hosts: u32, slots: u32, options: &str) -> Job {
        let job = Job::new(hydrant_bin()).arg("run").words(&nodes(hosts, slots, 2));
        let job = job.args(["--offload-file", &self.folder.path("boards")]);
        job.args(["--offload-secret", &self.secret]).words(options)
    }

    /// A job of raw clients over four hosts, two ranks on each. All nodes are recorded.
    pub(super) fn raw(&self, options: &str, steps: &str) -> Job {
        self.run(4, 2, "").recorded().words(options).arg(RAW).steps(steps)
    }

    pub(super) fn address(&self, board: usize) -> &str {
        &self.boards[board].1
    }

    /// Ends the boards, which have nothing to complain about.
    pub(super) fn end(self) {
        for (board, _) in self.boards {
            board.signal(Signal::TERM);
            board.wait().code(0).quiet();
        }
    }
}

pub(super) const MIXED: [Machine; 2] = [Machine::Here, Machine::Aarch64];
pub(super) const HERE: [Machine; 3] = [Machine::Here; 3];

/// Three hosts, of which the last has no board.
#[test]
fn mpich_runs_over_boards_and_a_host_without_one() {
    if !Peer::Mpich5.there() {
        return;
    }
    let fleet = Fleet::start(&MIXED);
    let hello = fleet.run(3, 6, "-n 16").arg(Peer::Mpich5.program("mpi_hello")).run();
    hello.code(0).quiet().says(" of 16, program 0, universe 18, MPICH 5.0.2\n", 16);
    let sum = fleet.run(3, 6, "-n 16").arg(Peer::Mpich5.program("mpi_allreduce")).run();
    sum.code(0).quiet().says("allreduce of 16: 0 wrong\n", 1);
    let spawn = fleet.run(3, 6, "-usize 9 -n 4").arg(Peer::Mpich5.program("mpi_spawn")).words("self 2").run();
    spawn.code(0);
    fleet.end();
}

#[test]
fn open_mpi_runs_over_boards() {
    if !Peer::OpenMpi5.there() {
        return;
    }
    let fleet = Fleet::start(&HERE[..2]);
    let folder = Folder::new("fleet-ompi");
    let job = fleet.run(3, 2, "-n 6").recorded();
    let job = job.assign(Peer::OpenMpi5.variables(&folder.0));
    let outcome = job.arg(Peer::OpenMpi5.program("mpi_allreduce")).run();
    outcome.code(0).says("allreduce of 6: 0 wrong\n", 1);
    fleet.end();
}

#[test]
fn the_probe_finds_everything_right_over_boards() {
    let fleet = Fleet::start(&MIXED);
    for (hosts, fence) in [(2, "collect"), (5, "collect"), (5, "lazy")] {
        let ranks = 2 * hosts;
        let job = fleet.run(hosts, 2, &format!("--fence {fence} -n {ranks}")).arg(hydrant_bin()).arg("probe");
        job.run().code(0).quiet().says(&format!("exchanged {} cards", ranks * ranks), 1);
    }
    fleet.end();
}

#[test]
fn failures_and_exit_codes_are_those_of_a_run_without_boards() {
    let fleet = Fleet::start(&HERE);
    let steps = "init2\nfence2\nonly 5\nkill 9\nall\nforever";
    let outcome = fleet.raw("-n 8", steps).run();
    outcome.code(137).warns("rank 5 died by SIGKILL\n").warns("rank 5 on n3, pid ");
    outcome.warns("7 other ranks were ended\n");
    // No rank waits for rank 1. The server of one that does may report it first, in other words.
    let outcome = fleet.raw("-n 8", "init2\nfence2\nonly 1\nexit 4\nall\nforever").run();
    outcome.code(4).warns("rank 1 exited with code 4 without finalizing\n").warns("rank 1 on n1, pid ");
    let steps = "init2\nfence2\nonly 2\nframe cmd=abort;isworld=TRUE;msg=enough;\nall\nforever";
    fleet.raw("-n 8", steps).run().code(1).warns("rank 2 aborted the job").warns("enough");
    let steps = "init2\nonly 3\nframe cmd=abort;isworld=FALSE;msg=alone;exitcode=3;\nforever\nall\nfence2\nend2\nsay done";
    fleet
        .raw("-n 8", steps)
        .run()
        .code(3)
        .says("done", 7)
        .warns("rank 3 aborted itself with code 3: alone\n");
    let steps = "init2\nonly 3,4\nkill 9\nall\nfence2\nend2\nsay done";
    fleet.raw("-disable-auto-cleanup -n 8", steps).run().code(137).says("done", 6);
    let script = r#"read line; echo "$PMI_RANK $line"; exit $((PMI_RANK == 6 ? 9 : 0))"#;
    let outcome = fleet.run(4, 2, "-l -n 8").args(["sh", "-c", script]).input("to rank 0\n").run();
    outcome.code(9).says("[0] 0 to rank 0\n", 1).says("[7] 7 \n", 1).warns("rank 6 on n4, pid ");
    fleet.end();
}

#[test]
fn a_late_fence_over_boards_names_who_is_missing() {
    let fleet = Fleet::start(&HERE[..2]);
    let steps = "init2\nfence2\nonly 0\ncount\nall\nfence2\nend2\nsay done";
    let mut job = fleet.raw("--fence-warning 1 -n 8", steps).hold_input().start();
    job.await_stderr("ranks have been waiting for 1 s: missing: rank 0 (pid ").await_stderr(" on n1)\n");
    job.end_input();
    job.wait().code(0).says("done", 8);
    fleet.end();
}

#[test]
fn names_sets_groups_and_spawns_cross_boards() {
    let fleet = Fleet::start(&HERE);
    let steps = "init2
        only 6
        frame cmd=name-lookup;name=svc;wait=1000000;
        expect cmd=name-lookup-response;rc=0;port=p;
        only 1
        frame cmd=name-publish;name=svc;port=p;
        expect cmd=name-publish-response;rc=0;
        frame cmd=name-lookup;name=none;
        refused nobody has published
        all
        fence2
        only 5
        frame cmd=pset-define;name=odd;members=1,3,5,7;
        expect cmd=pset-define-response;rc=0;
        frame cmd=pset-define;name=odd;members=1,3;
        refused other members
        all
        fence2
        only 1,7
        frame cmd=pset-info;name=odd;
        expect cmd=pset-info-response;rc=0;size=4;
        all
        fence2
        end2
        say done";
    fleet.raw("-n 8", steps).run().code(0).quiet().says("done", 8);
    let child = format!("exec {RAW} init2 fence2 end2 say met");
    let spawn = |asker: u32| {
        format!(
            "init2\nonly {asker}\nframe cmd=spawn;ncmds=1;preputcount=0;subcmd=sh;maxprocs=6;argc=2;argv0=-c;\
             argv1={child};infokeycount=1;infokey0=host;infoval0=n4,n2,n1;\n\
             expect cmd=spawn-response;rc=0;\nall\nfence2\nend2\nsay done"
        )
    };
    for asker in [0, 7] {
        fleet.raw("-n 8", &spawn(asker)).run().code(0).quiet().says("met\n", 6).says("done\n", 8);
    }
    fleet.end();
}

/// All ranks of the board's host are cut off, and exit by themselves.
// Fault: A board without a spare is killed or freezes, and its ranks exit
// Outcome: the job ends with code 1 and names host and board
// Guarantee: A lost board is reported before exits of its ranks
// Also: devices `serve::fleet::a_board_that_is_frozen_ends_the_job_by_its_name`
#[test]
fn a_board_that_is_killed_ends_the_job_by_its_name() {
    for rest in ["forever", "fence2"] {
        let mut fleet = Fleet::start(&HERE[..2]);
        let steps = format!("init2\nfence2\nsay up\nonly 0\nforever\nall\n{rest}");
        let job = fleet.raw("-n 8", &steps).start();
        job.await_stdout("up\n", 8);
        let (board, address) = fleet.boards.remove(1);
        board.signal(Signal::KILL);
        let outcome = job.wait();
        outcome.code(1).warns(&format!("host n2 (node 2): board {address} is lost: "));
        outcome.warns("2 ranks were running there, 6 other ranks were ended\n");
        assert!(!board.wait().status.success());
        fleet.end();
    }
}

#[test]
fn a_board_that_is_frozen_ends_the_job_by_its_name() {
    let fleet = Fleet::start(&HERE[..2]);
    let job = fleet.raw("--heartbeat 4 -n 8", "init2\nfence2\nsay up\nforever").start();
    job.await_stdout("up\n", 8);
    fleet.boards[0].0.signal(Signal::STOP);
    let address = fleet.address(0).to_owned();
    let outcome = job.wait();
    outcome.code(1).warns(&format!("host n1 (node 1): the board {address} has not answered for 4 s"));
    fleet.boards[0].0.signal(Signal::CONT);
    // It goes on with other runs.
    fleet.raw("-n 8", "init2\nfence2\nend2\nsay done").run().code(0).says("done", 8);
    for (board, _) in fleet.boards {
        board.signal(Signal::TERM);
        board.wait().code(0);
    }
}

/// The only host of a job has a daemon if it has a board.
#[test]
fn a_board_serves_a_job_on_this_host_alone_that_spawns() {
    let fleet = Fleet::start(&HERE[..1]);
    let run = || {
        let job = Job::new(hydrant_bin()).args(["run", "--offload", fleet.address(0)]);
        job.args(["--offload-secret", &fleet.secret, "-n", "3"])
    };
    run().arg(hydrant_bin()).arg("probe").run().code(0).quiet().says("exchanged 9 cards", 1);
    let steps = format!(
        "init2\nonly 1\nframe cmd=spawn;ncmds=1;preputcount=0;subcmd={RAW};maxprocs=2;argc=5;argv0=init2;\
         argv1=fence2;argv2=end2;argv3=say;argv4=met;\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2\nsay done"
    );
    run().arg(RAW).steps(&steps).run().code(0).quiet().says("met\n", 2).says("done\n", 3);
    if Peer::Mpich5.there() {
        let spawn = run().args(["-usize", "9"]).arg(Peer::Mpich5.program("mpi_spawn")).words("self 2");
        spawn.run().code(0);
    }
    fleet.end();
}

#[test]
fn several_runs_share_a_board() {
    let fleet = Fleet::start(&HERE[..1]);
    let waiting = "init2\nfence2\nsay here\nonly 0\ncat\nall\nfence2\nend2";
    let mut first = fleet.run(2, 2, "-n 4").arg(RAW).steps(waiting).hold_input().start();
    let mut second = fleet.run(2, 2, "-n 3").arg(RAW).steps(waiting).hold_input().start();
    first.await_stdout("here", 4);
    second.await_stdout("here", 3);
    second.end_input();
    second.wait().code(0).quiet();
    first.end_input();
    first.wait().code(0).quiet();
    fleet.end();
}

#[test]
fn what_cannot_be_had_with_boards_is_refused_by_name() {
    let refused = |options: &str| Job::new(hydrant_bin()).words(&format!("run {options} true")).run();
    let hosts = nodes(2, 1, 2);
    for option in ["--mpi-psets", "--sandbox", "--sandbox --spare native"] {
        let name = option.split(' ').next().unwrap_or_default();
        let outcome = refused(&format!("{hosts} --offload dpu-%h {option}"));
        outcome.code(2).warns(&format!("{name} cannot be used with --offload: "));
    }
    refused(&format!("{hosts} --offload dpu-%x")).code(2).warns("only %h and %% may follow a percent sign");
    refused(&format!("{hosts} --offload-file /dev/null/none")).code(2).warns("cannot read /dev/null/none");
    let outcome = refused(&format!("{hosts} --offload 127.0.0.1:1"));
    outcome.code(1).warns("the job was not started: host n").warns(": board 127.0.0.1:1: cannot connect: ");
    let fleet = Fleet::start(&HERE[..1]);
    let alone = refused(&format!("{hosts} --offload-secret {}", fleet.secret));
    alone
        .code(2)
        .warns("--offload-secret is of no use without --offload or --offload-file\nhint: add --offload");
    let open = refused(&format!("{hosts} --offload {}", fleet.address(0)));
    open.code(1).warns(" refuses the handshake: ").warns("set --offload-secret FILE");
    let many = fleet.run(2, 1, "--limit ranks=3000 true").run();
    many.code(1).warns(" has smaller tables than this run: ranks=2000\n");
    many.warns("hint: start the run with --limit ranks=2000 if its ranks need no more, or the board with larger limits");
    for (board, _) in fleet.boards {
        board.signal(Signal::TERM);
        board.wait().code(0);
    }
}

/// Of the ranks of three hosts, two wait in a fence at boards, and the one of a host without a board in a look-up.
#[test]
fn status_shows_what_ranks_of_boards_wait_for() {
    let fleet = Fleet::start(&HERE[..2]);
    let steps = "init2\nfence2\nsay up\nonly 0,2\nfence2\nonly 4\nforever\nonly 1\n\
        frame cmd=info-getnodeattr;key=late;wait=TRUE;\nexpect rc=0\n\
        only 3\nframe cmd=name-lookup;name=svc;wait=1000000;\nexpect rc=0";
    for options in ["", "--spare native"] {
        let job = fleet.run(3, 2, options).words("-n 5").arg(RAW).steps(steps).start();
        job.await_stdout("up\n", 5);
        let watch = Job::command("status --watch=0.1").arg(job.pid().to_string()).start();
        for text in ["2 ranks in fence 2 for ", "node attribute late", "request"] {
            watch.await_stdout(text, 1);
        }
        job.signal(Signal::TERM);
        job.wait().code(143);
        watch.wait().code(0);
    }
    fleet.end();
}
