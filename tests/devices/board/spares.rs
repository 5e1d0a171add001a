//! `hydrant run --offload --spare native`: the built-in server takes the place of firmware that fails.

use hydrant_core::manage::{Error, OpenNode, Request};
use hydrant_core::server::call::Call;
use hydrant_core::server::remote::{NodeRequest, encode_node_record};
use hydrant_core::{Fault, Limit, Limits};
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, hydrant_bin};
use rustix::process::Signal;

use super::fleet::{self, LARGE, LIMITS, SHORT, SMALL};
use super::manager::Manager;
use super::qemu::{Board, Kind, secret_file};
use super::recording::Recorded;
use super::spawn::{STACK_MAX, stack};

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
const FEATURES: &str = "pmix,nodes,links,spares";
const TAKEN: &str = "; the built-in server has taken its place\n";

fn start(secret: bool) -> Option<Board> {
    Board::of_node_with(Kind::Mps2An386, FEATURES, secret)
}

/// The small board, which has no room for other features beside this one.
fn start_small() -> Option<Board> {
    Board::of_node_with(Kind::Lm3s6965evb, "nodes,spares", false)
}

/// A job whose first hosts have these boards, with recordings.
struct Spared {
    recorded: Recorded,
    limits: &'static str,
    /// MPICH whose data fit into the boards.
    mpich: Peer,
}

impl Spared {
    fn new(boards: &[&Board]) -> Spared {
        Spared { recorded: Recorded::new(boards), limits: LARGE, mpich: Peer::Mpich5 }
    }

    /// The same with small boards.
    fn small(boards: &[&Board]) -> Spared {
        Spared { limits: SHORT, mpich: Peer::Mpich4, ..Spared::new(boards) }
    }

    /// A run over `hosts` hosts with four slots each.
    fn run(&self, hosts: u32, options: &str) -> Job {
        self.recorded.run(hosts, &format!("{} --spare native {options}", self.limits))
    }

    /// Each server's recording replays: it has the outputs of one server without a failure.
    fn replays(&self, hosts: usize) {
        self.recorded.replay(hosts, "", 0);
    }

    /// Lets a job go on when the board of the first host has failed, and wants a warning that names both and the reason.
    #[track_caller]
    fn goes_on_without_board(&self, mut job: Running, why: &str, says: &str, times: usize) {
        job.end_input();
        let outcome = job.wait();
        let address = &self.recorded.boards[0];
        let warning = format!("hydrant: host n1 (node 1): warning: board {address}: {why}");
        outcome.code(0).says(says, times).warns(&warning).warns(TAKEN);
        assert_eq!(outcome.stderr.matches("warning: board").count(), 1, "{outcome}");
    }

    /// MPICH's job of eight ranks on two hosts. The last rank starts at the end of its input, when the others wait in the fence
    /// of `MPI_Init`.
    fn mpich(&self, options: &str) -> Running {
        let program = self.mpich.program("mpi_allreduce");
        let script = format!("[ \"$PMI_RANK\" != 7 ] || read -r line; exec {}", program.display());
        let job = self.run(2, &format!("{options} --fence-warning 1 --stdin 7 -n 8"));
        let job = job.words("sh -c").arg(script).hold_input().start();
        job.await_stderr(" missing: rank 7 ");
        job
    }
}

/// Reason for a spare in the place of a board that was killed.
const LOST: &str = "the connection is lost: ";

/// The board is killed before, between and behind the fences of a job.
#[test]
fn ranks_do_not_notice_firmware_that_is_killed_before_between_and_behind_fences() {
    let put = "frame cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0";
    let get = "frame cmd=kvs-get;key=k0;\nexpect rc=0;found=TRUE;value=v0\n\
        frame cmd=kvs-get;key=k7;\nexpect rc=0;found=TRUE;value=v7";
    let wait = "say up\ncat";
    for steps in [
        format!("init2\n{put}\n{wait}\nfence2\n{get}\nfence2\nend2\nsay done"),
        format!("init2\n{put}\nfence2\n{wait}\n{get}\nfence2\nend2\nsay done"),
        format!("init2\n{put}\nfence2\n{get}\nfence2\n{wait}\nend2\nsay done"),
    ] {
        let Some(board) = start(false) else { return };
        let spared = Spared::new(&[&board]);
        let job = spared.run(2, "--stdin all -n 8").arg(RAW).steps(&steps).hold_input().start();
        job.await_stdout("up\n", 8);
        board.signal(Signal::KILL);
        spared.goes_on_without_board(job, LOST, "done\n", 8);
        spared.replays(2);
    }
}

#[test]
fn mpich_does_not_notice_firmware_that_is_killed() {
    if !Peer::Mpich5.there() {
        return;
    }
    let Some(board) = start(true) else { return };
    let spared = Spared::new(&[&board]);
    let job = spared.mpich(&format!("--offload-secret {}", secret_file().display()));
    board.signal(Signal::KILL);
    spared.goes_on_without_board(job, LOST, "allreduce of 8: 0 wrong\n", 1);
    spared.replays(2);
}

/// The board is killed in the fence of `MPI_Init`, and between fences of raw clients.
#[test]
fn ranks_do_not_notice_a_small_board_that_is_killed() {
    let Some(board) = start_small() else { return };
    let spared = Spared::small(&[&board]);
    let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\nsay up\ncat\n\
        frame cmd=kvs-get;key=k0;\nexpect rc=0;found=TRUE;value=v0\nfence2\nend2\nsay done";
    let job = spared.run(2, "--stdin all -n 8").arg(RAW).steps(steps).hold_input().start();
    job.await_stdout("up\n", 8);
    board.signal(Signal::KILL);
    spared.goes_on_without_board(job, LOST, "done\n", 8);
    spared.replays(2);
    if !Peer::Mpich4.there() {
        return;
    }
    let Some(board) = start_small() else { return };
    let spared = Spared::small(&[&board]);
    let job = spared.mpich("");
    board.signal(Signal::KILL);
    spared.goes_on_without_board(job, LOST, "allreduce of 8: 0 wrong\n", 1);
    spared.replays(2);
}

/// The recordings show that the small board has the outputs of a server in the host's process, also for a message that is longer
/// than a call may be.
#[test]
fn a_small_board_is_called_with_at_most_a_message() {
    let Some(board) = start_small() else { return };
    let spared = Spared::small(&[&board]);
    let probe = spared.run(4, "-n 16").arg(hydrant_bin()).arg("probe").run();
    probe.code(0).quiet().says("exchanged 256 cards", 1);
    spared.replays(4);
    if Peer::Mpich4.there() {
        let sum = spared.run(4, "-n 16").arg(Peer::Mpich4.program("mpi_allreduce")).run();
        sum.code(0).quiet().says("allreduce of 16: 0 wrong\n", 1);
        spared.replays(4);
    }
    let stack = stack(&board);
    assert!(stack < STACK_MAX, "{stack} bytes of stack");
    let long = "v".repeat(3000);
    let steps = format!(
        "init2\nonly 0\nframe cmd=kvs-put;key=k;value={long};\neof\nsay closed\nexit 3\nall\nforever"
    );
    let outcome = spared.run(2, "-n 8").arg(RAW).steps(&steps).run();
    outcome.code(3).says("closed\n", 1);
    spared.replays(2);
    assert!(board.runs());
}

/// A processor that has stopped while its network goes on, and a board that is frozen as a whole. A call has half of the
/// heartbeat's time. Both serve the next run when they go on.
#[test]
fn mpich_does_not_notice_firmware_that_is_frozen() {
    if !Peer::Mpich5.there() {
        return;
    }
    let Some(mut board) = start(false) else { return };
    let spared = Spared::new(&[&board]);
    for only_processor in [true, false] {
        let job = spared.mpich("--heartbeat 8");
        if only_processor {
            board.halt();
        } else {
            board.signal(Signal::STOP);
        }
        let why = "no response within 4 s";
        spared.goes_on_without_board(job, why, "allreduce of 8: 0 wrong\n", 1);
        spared.replays(2);
        if only_processor {
            board.go_on();
        } else {
            board.signal(Signal::CONT);
        }
        board.await_log("the node has ended: Closed");
        let sum = spared.run(2, "-n 8").arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).quiet().says("allreduce of 8: 0 wrong\n", 1);
        board.await_log("the node has ended: Closed");
    }
    assert!(board.runs());
}

/// The recordings show that firmware has the outputs of a server in the host's process.
#[test]
fn firmware_with_spares_serves_what_others_do() {
    let (Some(mut one), Some(two)) = (start(false), start(false)) else { return };
    let spared = Spared::new(&[&one, &two]);
    for fence in ["collect", "lazy"] {
        let probe = spared.run(3, &format!("--fence {fence} -n 12")).arg(hydrant_bin()).arg("probe").run();
        probe.code(0).quiet().says("exchanged 144 cards", 1);
        spared.replays(3);
    }
    if Peer::Mpich5.there() {
        let sum = spared.run(2, "-n 8").arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).quiet().says("allreduce of 8: 0 wrong\n", 1);
        spared.replays(2);
        let spawn = spared.run(2, "-usize 9 -n 4").arg(Peer::Mpich5.program("mpi_spawn")).words("self 2");
        spawn.run().code(0).says(" of 4 done", 4);
        spared.replays(2);
    }
    if Peer::OpenMpi5.there() {
        let job = spared.run(2, "-n 2 -ppn 1");
        let job = job.assign(Peer::OpenMpi5.variables(&spared.recorded.folder.0));
        let sum = job.arg(Peer::OpenMpi5.program("mpi_allreduce")).run();
        sum.code(0).says("allreduce of 2: 0 wrong\n", 1);
        spared.replays(2);
    }
    // The same boards serve nodes without a spare.
    let probe = fleet::run(&spared.recorded.folder, 2, &spared.recorded.boards, &format!("{LARGE} -n 8"));
    probe.arg(hydrant_bin()).arg("probe").run().code(0).quiet().says("exchanged 64 cards", 1);
    one.await_log("the node has ended: Closed");
    assert!(one.runs() && two.runs());
}

#[test]
fn a_board_without_the_feature_refuses_spares_with_what_to_do() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("spares-none");
    let run = |options: &str| {
        fleet::run(&folder, 2, &[board.host(0).to_string()], &format!("{SMALL} {options} -n 4 true")).run()
    };
    run("--spare native")
        .code(1)
        .warns("refuses a node of this run: nodes with a spare on their host are not supported\n")
        .warns("hint: run without --spare, use a board with 'hydrant serve --manage', or build ")
        .warns(" with the feature spares\n");
    run("").code(0).quiet();
    assert!(board.runs());
}

/// The board ends the connection or refuses, and serves the next host.
#[test]
fn a_host_whose_calls_make_no_sense_is_refused_or_given_up() {
    let Some(mut board) = start(false) else { return };
    let limits = Limits { jobs: 8, links: 9, conns: 112, names: 16, spawns: 16, ..LIMITS };
    let seed = Some(1);
    let open = OpenNode { node: 1, nodes: 3, radix: 2, limits, seed, link: None, record: None };
    let mut host = Manager::connect(board.host(0));
    let many = OpenNode { limits: Limits { conns: 113, ..limits }, ..open };
    assert_eq!(host.refused(&Request::Node(many)), Error::Fault(Fault::Full(Limit::Conns, 112)));
    for wrong in [OpenNode { record: seed, ..open }, OpenNode { link: Some([1; 16]), ..open }] {
        assert_eq!(host.refused(&Request::Node(wrong)), Error::NoCalls);
    }
    drop(host);
    board.await_log(" is gone");
    let mut buf = [0; 64];
    let untaken = encode_node_record(&Call::Poll { taken: 1 }, &mut buf).expect("it is short").to_vec();
    let request =
        encode_node_record(&NodeRequest::Sync { number: 1 }, &mut buf).expect("it is short").to_vec();
    for call in [vec![0xFF; 4], vec![1, 0, 0, 0, 0xFF], untaken, request] {
        fleet::ends_the_node(&mut board, open, &call);
    }
    assert!(board.runs());
}
