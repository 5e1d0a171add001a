//! Boards that serve nodes of runs on several hosts, beside an emulated aarch64 and hosts without a board.

use std::fs;
use std::slice::from_ref;

use hydrant_core::manage::{Error, OpenNode, Request};
use hydrant_core::server::remote::{NODE_PREFIX, NodeRequest, encode_node_record};
use hydrant_core::{Fault, Input, Limit, Limits};
use hydrant_tests::offload;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job};
use hydrant_tests::{hydrant_bin, nodes};
use rustix::process::Signal;

use super::manager::Manager;
use super::qemu::{Board, Kind, secret_file};
use crate::serve::Machine;
use crate::serve::offload::managed;

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
/// What the small board has room for.
pub(super) const SMALL: &str = "--limit jobs=3 --limit ranks=16 --limit keys=128 --limit kvs-bytes=16384 --limit groups=4 \
    --limit spawn-bytes=1024 --limit psets=16 --limit commit-bytes=1024";
/// What the small board has room for beside a link, or as a called node.
pub(super) const SHORT: &str = "--limit jobs=1 --limit ranks=16 --limit keys=128 --limit kvs-bytes=16384 --limit groups=4 \
    --limit spawn-bytes=512 --limit psets=8 --limit commit-bytes=0";
/// What the large board has room for if it is built for as many ranks.
pub(super) const LARGE: &str = "--limit jobs=8 --limit ranks=16 --limit keys=128 --limit kvs-bytes=65536 --limit groups=4 \
    --limit spawn-bytes=2304 --limit psets=64 --limit commit-bytes=1024";
/// Limits of [`SMALL`].
pub(super) const LIMITS: Limits = Limits {
    jobs: 3,
    ranks: 16,
    conns: 64,
    keys: 128,
    kvs_bytes: 16384,
    groups: 4,
    names: 64,
    spawns: 64,
    spawn_bytes: 1024,
    psets: 16,
    links: 3,
    commit_bytes: 1024,
};

/// A run over `hosts` hosts with four slots each, of which the first have boards at these addresses.
pub(super) fn run(folder: &Folder, hosts: u32, boards: &[String], options: &str) -> Job {
    let lines = (1..).zip(boards).map(|(number, address)| format!("n{number} {address}\n"));
    let file = folder.file("boards", &lines.collect::<String>());
    let job = Job::new(hydrant_bin()).arg("run").words(&nodes(hosts, 4, 2));
    job.args(["--offload-file", &file]).words(options)
}

#[test]
fn two_boards_an_aarch64_and_a_host_serve_one_job() {
    let Some(small) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let Some(large) = Board::of_node(Kind::Mps2An386, false) else { return };
    let (dpu, target) = managed(Machine::Aarch64, "--limit ranks=2000");
    let folder = Folder::new("fleet-boards");
    let boards = [small.host(0).to_string(), large.host(0).to_string(), target.address];
    let run = |options: &str| run(&folder, 4, &boards, &format!("{SMALL} {options}"));
    let probe = run("-n 16").arg(hydrant_bin()).arg("probe").run();
    probe.code(0).quiet().says("exchanged 256 cards", 1);
    if Peer::Mpich4.there() {
        for _ in 0..2 {
            let sum = run("-n 16").arg(Peer::Mpich4.program("mpi_allreduce")).run();
            sum.code(0).says("allreduce of 16: 0 wrong\n", 1);
        }
    }
    let steps = "init2\nfence2\nonly 5\nkill 9\nall\nforever";
    let outcome = run("-n 16").arg(RAW).steps(steps).run();
    outcome.code(137).warns("rank 5 died by SIGKILL\n").warns("15 other ranks were ended\n");
    let steps = "init2\nonly 1\nframe cmd=abort;isworld=TRUE;msg=enough;\nall\nforever";
    run("-n 16").arg(RAW).steps(steps).run().code(1).warns("rank 1 aborted the job").warns("enough");
    run("-n 16").arg(RAW).steps("init2\nfence2\nend2\nsay done").run().code(0).says("done", 16);
    dpu.signal(Signal::TERM);
    dpu.wait().code(0).quiet();
    assert!(small.runs() && large.runs());
}

/// MPICH 5 puts 5 KiB for a host of four ranks, more than the small board has room for.
#[test]
fn mpich_5_is_served_by_a_large_board_and_a_host() {
    if !Peer::Mpich5.there() {
        return;
    }
    let Some(board) = Board::of_node(Kind::Mps2An386, false) else { return };
    let folder = Folder::new("fleet-large");
    let run = |options: &str| run(&folder, 4, &[board.host(0).to_string()], &format!("{LARGE} {options}"));
    let sum = run("-n 16").arg(Peer::Mpich5.program("mpi_allreduce")).run();
    sum.code(0).says("allreduce of 16: 0 wrong\n", 1);
    assert!(board.runs());
}

/// The same with a secret: the board's host reads and writes records in encrypted frames.
#[test]
fn a_board_with_a_secret_serves_a_node_beside_hosts_without_a_board() {
    let Some(mut board) = Board::of_node(Kind::Mps2An386, true) else { return };
    let folder = Folder::new("fleet-secret");
    let boards = [board.host(0).to_string()];
    let run = |options: &str| run(&folder, 4, &boards, &format!("{LARGE} {options}"));
    let secret = format!("--offload-secret {} -n 16", secret_file().display());
    for fence in ["collect", "lazy"] {
        let run = || run(&format!("{secret} --fence {fence}"));
        run().arg(hydrant_bin()).arg("probe").run().code(0).quiet().says("exchanged 256 cards", 1);
        if Peer::Mpich5.there() {
            let hello = run().arg(Peer::Mpich5.program("mpi_hello")).run();
            hello.code(0).says(" of 16, program 0, universe 16, MPICH 5.0.2\n", 16);
            let sum = run().arg(Peer::Mpich5.program("mpi_allreduce")).run();
            sum.code(0).says("allreduce of 16: 0 wrong\n", 1);
        }
    }
    // Values that fill the log of the board, in records of more than one frame.
    let value = "v".repeat(900);
    let steps = format!(
        "init2\nframe cmd=kvs-put;key=k%r;value={value}%r;\nexpect rc=0\nfence2\n\
        only 0\nframe cmd=kvs-get;srcid=15;key=k15;\nexpect rc=0;found=TRUE;value={value}15;\n\
        only 15\nframe cmd=kvs-get;srcid=0;key=k0;\nexpect rc=0;found=TRUE;value={value}0;\n\
        all\nend2"
    );
    run(&secret).arg(RAW).steps(&steps).run().code(0).quiet();
    let refused = run("-n 16 true").run();
    refused.code(1).warns(" refuses the handshake: ").warns("set --offload-secret FILE");
    board.await_log("does not have the secret, and is given up");
    let other = folder.path("other");
    fs::copy(secret_file(), &other).expect("there is room");
    fs::write(&other, "another secret of a host").expect("there is room");
    let refused = run(&format!("--offload-secret {other} -n 16 true")).run();
    refused.code(1).warns(" refuses the handshake: ").warns("the board has another secret, or none");
    board.await_log("does not have the secret, and is given up");
    run(&format!("{secret} true")).run().code(0).quiet();
    // A recorded run of one host, and a spawn of it.
    let child = offload::script(&folder, RAW, "child", "init2\nfence2\nend2\nsay met");
    let steps = format!(
        "init2\nonly 0\n{}\nexpect cmd=spawn-response;rc=0;\nall\nfence2\nend2\nsay done",
        offload::spawn_request(&child, 2)
    );
    let lone = Job::new(hydrant_bin()).args(["offload", "--target", &boards[0], "--secret-file"]);
    let file = folder.path("run.rec");
    let lone = lone.arg(secret_file()).args(["--record", &file, "-n", "2"]).arg(RAW).steps(&steps).run();
    lone.code(0).quiet().says("met\n", 2).says("done\n", 2);
    let replay = Job::new(hydrant_bin()).args(["replay", &file]).run();
    replay.code(0).says(" outputs, all the same", 1).says("! start spawn", 1);
    assert!(board.runs());
}

#[test]
fn limits_above_those_of_the_board_are_named_with_what_to_do() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("fleet-limits");
    let boards = [board.host(0).to_string()];
    let outcome = run(&folder, 2, &boards, "-n 4 true").run();
    outcome
        .code(1)
        .warns("has smaller tables than this run: jobs=3, ranks=16, keys=128, kvs-bytes=16384, ")
        .warns(&format!("hint: start the run with {}", &SMALL[..40]));
    run(&folder, 2, &boards, &format!("{SMALL} -n 4 true")).run().code(0).quiet();
    assert!(board.runs());
}

/// The small board has room for lazy fences without PMIx, and the large one with it.
#[test]
fn boards_with_lazy_fences_serve_them() {
    let folder = Folder::new("fleet-lazy");
    let small = SMALL.replace("commit-bytes=1024", "commit-bytes=0");
    for (kind, features, limits) in [
        (Kind::Lm3s6965evb, "nodes,cluster", small),
        (Kind::Mps2An386, "pmix,nodes,cluster", LARGE.to_owned()),
    ] {
        let Some(board) = Board::of_node_with(kind, features, false) else { return };
        let run = |options: &str| {
            run(&folder, 4, &[board.host(0).to_string()], &format!("{limits} --fence lazy {options}"))
        };
        let probe = run("-n 16").arg(hydrant_bin()).arg("probe").run();
        probe.code(0).quiet().says("exchanged 256 cards", 1);
        // A get of a rank behind the head, and one of a key that no rank has put.
        let steps = "init2\nframe cmd=kvs-put;key=k%r;value=v%r;\nexpect rc=0\nfence2\n\
            only 0\nframe cmd=kvs-get;srcid=15;key=k15;\nexpect rc=0;found=TRUE;value=v15\n\
            only 15\nframe cmd=kvs-get;srcid=1;key=k1;\nexpect rc=0;found=TRUE;value=v1\n\
            only 2\nframe cmd=kvs-get;srcid=-1;key=none;\nexpect rc=0;found=FALSE\n\
            all\nfence2\nend2";
        run("-n 16").arg(RAW).steps(steps).run().code(0).quiet();
        let peer = if kind == Kind::Lm3s6965evb { Peer::Mpich4 } else { Peer::Mpich5 };
        if peer.there() {
            let sum = run("-n 16").arg(peer.program("mpi_allreduce")).run();
            sum.code(0).says("allreduce of 16: 0 wrong\n", 1);
        }
        assert!(board.runs());
    }
}

#[test]
fn a_board_without_lazy_fences_refuses_them_with_what_to_do() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("fleet-not-lazy");
    let boards = [board.host(0).to_string()];
    let run = |fence: &str| run(&folder, 2, &boards, &format!("{SMALL} --fence {fence} -n 4 true")).run();
    run("lazy")
        .code(1)
        .warns(&format!(
            "host n1: board {} has no lazy fences (--fence lazy, and --fence auto on more than 64 hosts)\n",
            boards[0]
        ))
        .warns("hint: start the run with --fence collect, or build ");
    for fence in ["auto", "collect"] {
        run(fence).code(0).quiet();
    }
    assert!(board.runs());
}

#[test]
fn a_board_that_stops_ends_the_job_by_its_name() {
    for (signal, says) in [(Signal::KILL, " is lost: "), (Signal::STOP, " has not answered for 4 s")] {
        let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
        let folder = Folder::new("fleet-stopped");
        let boards = [board.host(0).to_string()];
        let job = run(&folder, 2, &boards, &format!("{SMALL} --heartbeat 4 -n 8"));
        let job = job.arg(RAW).steps("init2\nfence2\nsay up\nforever").start();
        job.await_stdout("up\n", 8);
        board.signal(signal);
        let outcome = job.wait();
        outcome.code(1).warns("host n1 (node 1): ").warns(&boards[0]).warns(says);
        if signal == Signal::STOP {
            board.signal(Signal::CONT);
        }
    }
}

#[test]
fn a_board_that_is_reset_ends_the_job_by_its_name_and_serves_the_next() {
    for kind in [Kind::Lm3s6965evb, Kind::Mps2An386] {
        let Some(mut board) = Board::of_node(kind, false) else { return };
        let folder = Folder::new("fleet-reset");
        let boards = [board.host(0).to_string()];
        let run = || run(&folder, 2, &boards, &format!("{SMALL} --heartbeat 4 -n 8")).arg(RAW);
        let job = run().steps("init2\nfence2\nsay up\nforever").start();
        job.await_stdout("up\n", 8);
        board.reset();
        board.await_log("serves up to");
        let outcome = job.wait();
        outcome.code(1).warns("host n1 (node 1): ").warns(&boards[0]).warns(" is lost: ");
        run().steps("init2\nfence2\nend2\nsay done").run().code(0).quiet().says("done", 8);
        assert!(board.runs());
    }
}

#[test]
fn a_second_host_is_refused_while_the_board_serves_another() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let folder = Folder::new("fleet-busy");
    let [first, second] = [0, 1].map(|at| board.host(at).to_string());
    let run = |boards: &[String]| run(&folder, 3, boards, &format!("{SMALL} -n 8")).arg(RAW);
    let offload = || Job::new(hydrant_bin()).args(["offload", "--target", &second, "-n", "2"]).arg(RAW);
    let (waits, passes) = ("init2\nfence2\nsay up\nonly 0\ncat\nall\nfence2\nend2", "init2\nfence2\nend2");
    let busy = "refuses a node of this run: in use by another host\n";
    let hint = "hint: wait until its host has finished, or use another board\n";

    let mut job = run(from_ref(&first)).steps(waits).hold_input().start();
    job.await_stdout("up\n", 8);
    let refused = run(from_ref(&second)).steps(passes).run();
    refused.code(1).warns(&format!("board {second} ")).warns(busy).warns(hint);
    let refused = offload().steps(passes).run();
    refused.code(1).warns("refuses the job: in use by another host\n").warns(hint);
    job.end_input();
    job.wait().code(0).quiet();

    // Two hosts of one run name the same board: the later one is refused.
    let refused = run(&[first.clone(), second.clone()]).steps(passes).run();
    refused.code(1).warns(busy).warns(hint);

    let mut job = offload().steps(&waits.replace("say up", "only 1\nsay up\nall")).hold_input().start();
    job.await_stdout("up\n", 1);
    let refused = run(from_ref(&first)).steps(passes).run();
    refused.code(1).warns(busy).warns(hint);
    job.end_input();
    job.wait().code(0).quiet();
    run(from_ref(&first)).steps(passes).run().code(0).quiet();
    assert!(board.runs());
}

/// Both requests are there when the board goes on.
// Fault: Two hosts ask a board at the same moment to serve their nodes
// Outcome: one is served, the other refused: in use by another host
// Guarantee: A node that is to be served next counts
#[test]
fn of_two_hosts_that_ask_at_once_one_is_served() {
    let Some(board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let open = OpenNode { node: 1, nodes: 3, radix: 2, limits: LIMITS, seed: None, link: None, record: None };
    let mut hosts = [0, 1].map(|at| Manager::connect(board.host(at)));
    board.signal(Signal::STOP);
    hosts.iter_mut().for_each(|host| host.say(&Request::Node(open)));
    board.signal(Signal::CONT);
    let mut reports = hosts.each_mut().map(Manager::report);
    reports.sort();
    assert_eq!(reports, ["Done", "Refused(Busy)"].map(|report| Some(report.to_owned())));
    assert!(board.runs());
}

/// A record after which the board ends the node. While it serves it, it is busy for others.
#[track_caller]
pub(super) fn ends_the_node(board: &mut Board, open: OpenNode, record: &[u8]) {
    let mut host = Manager::connect(board.host(0));
    host.done(&Request::Node(open));
    let mut other = Manager::connect(board.host(1));
    assert_eq!(other.refused(&Request::Node(open)), Error::Busy);
    drop(other);
    board.await_log(" is gone");
    host.say_bytes(record);
    assert!(host.closed(), "{record:?}");
    board.await_log("the node has ended: Malformed");
}

/// Requests of a host that lies. The board ends the connection or refuses, and serves the next host.
#[test]
fn a_host_that_lies_is_refused_by_name_or_given_up() {
    let Some(mut board) = Board::of_node(Kind::Lm3s6965evb, false) else { return };
    let open = OpenNode { node: 1, nodes: 3, radix: 2, limits: LIMITS, seed: None, link: None, record: None };
    let mut host = Manager::connect(board.host(0));
    for (wrong, why) in [
        (OpenNode { limits: Limits { ranks: 17, ..LIMITS }, ..open }, Fault::Full(Limit::Ranks, 16)),
        (OpenNode { limits: Limits { links: 9, ..LIMITS }, ..open }, Fault::Full(Limit::Links, 8)),
        (OpenNode { node: 3, ..open }, Fault::Full(Limit::Links, 8)),
        (OpenNode { node: 0, nodes: u32::MAX, radix: u32::MAX >> 1, ..open }, Fault::Full(Limit::Links, 8)),
        (OpenNode { node: 1, nodes: u32::MAX, radix: u32::MAX, ..open }, Fault::Full(Limit::Links, 8)),
    ] {
        assert_eq!(host.refused(&Request::Node(wrong)), Error::Fault(why), "{wrong:?}");
    }
    assert_eq!(host.refused(&Request::Node(OpenNode { seed: Some(1), ..open })), Error::NoCalls);
    let recorded = OpenNode { record: Some(1), ..open };
    assert_eq!(host.refused(&Request::Node(recorded)), Error::Fault(Fault::Full(Limit::Conns, 8)));
    assert_eq!(host.refused(&Request::Node(OpenNode { link: Some([1; 16]), ..open })), Error::NoLink);
    // The board has two connections for hosts.
    drop(host);
    board.await_log(" is gone");
    let mut buf = vec![0; 8192];
    let mut requests = vec![vec![0xFF; NODE_PREFIX], vec![1, 0, 0, 0, 0xFF]];
    for input in [Input::Timeout, Input::Node { node: 0, nodes: 1, radix: 2 }] {
        requests
            .push(encode_node_record(&NodeRequest::Input(input), &mut buf).expect("it is short").to_vec());
    }
    for request in requests {
        ends_the_node(&mut board, open, &request);
    }
    assert!(board.runs());
}
