//! Boards with firmware that exchange messages with other boards directly.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;

use hydrant_core::manage::{Error, OpenLink, OpenNode, Request};
use hydrant_core::server::remote::{NodeReport, NodeRequest, encode_node_record};
use hydrant_core::{Fault, Limits};
use hydrant_tests::offload::passes_fences_without_hosts;
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running, hydrant_bin};
use rustix::process::Signal;

use super::fleet::{self, LARGE, SHORT, SMALL};
use super::manager::Manager;
use super::qemu::{Board, Kind, secret_file};
use super::spawn::{STACK_MAX, stack};
use crate::serve::Machine;
use crate::serve::links::Front;
use crate::serve::names::{name_server, waits_for_a_fence};
use crate::serve::offload::managed;

const RAW: &str = env!("CARGO_BIN_EXE_pmi-raw");
const FEATURES: &str = "pmix,nodes,links";
/// Those of the small board, which has no room for the others beside links.
const SMALL_FEATURES: &str = "nodes,links";
/// What the head says.
const DIRECTLY: &str = "hydrant: boards exchange messages directly\n";
/// What a board says of a node that sent messages by links, and none by its host.
/// The same of the first node, which sends the launcher what it knows.
const SENT: &str = " messages sent to other boards, ";
const BY_LINKS_ALONE: &str = " messages sent to other boards, 0 by its host";

/// A line of the file of boards without the host. Boards reach this machine's ports at the gateway of QEMU's network.
fn address(board: &Board) -> String {
    let host = board.host(0);
    format!("{host} 10.0.2.2:{}", host.port())
}

fn start(secret: bool) -> Option<Board> {
    Board::of_node_with(Kind::Mps2An386, FEATURES, secret)
}

/// The small board, which links itself to its parent.
fn start_small() -> Option<Board> {
    Board::of_node_with(Kind::Lm3s6965evb, SMALL_FEATURES, false)
}

fn run(folder: &Folder, hosts: u32, boards: &[String], options: &str) -> Job {
    fleet::run(folder, hosts, boards, &format!("{LARGE} -v {options}"))
}

#[test]
fn mpich_runs_over_two_boards_that_need_no_host() {
    let (Some(mut one), Some(mut two)) = (start(false), start(false)) else { return };
    let folder = Folder::new("links-two");
    let boards = [address(&one), address(&two)];
    for fence in ["--fence collect -n 8", "--fence lazy -n 8"] {
        let probe = run(&folder, 2, &boards, fence).arg(hydrant_bin()).arg("probe").run();
        probe.code(0).says("exchanged 64 cards", 1).warns(DIRECTLY);
        two.await_log(BY_LINKS_ALONE);
        one.await_log(SENT);
    }
    if Peer::Mpich5.there() {
        let sum = run(&folder, 2, &boards, "-n 8").arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).says("allreduce of 8: 0 wrong\n", 1).warns(DIRECTLY);
        two.await_log(BY_LINKS_ALONE);
        let spawn = run(&folder, 2, &boards, "-usize 8 -n 2 -ppn 1");
        spawn.arg(Peer::Mpich5.program("mpi_spawn")).words("world 2").run().code(0).warns(DIRECTLY);
        two.await_log(BY_LINKS_ALONE);
    }
    if Peer::OpenMpi5.there() {
        let job = run(&folder, 2, &boards, "-n 2 -ppn 1");
        let job = job.assign(Peer::OpenMpi5.variables(&folder.0));
        let sum = job.arg(Peer::OpenMpi5.program("mpi_allreduce")).run();
        sum.code(0).says("allreduce of 2: 0 wrong\n", 1).warns(DIRECTLY);
        two.await_log(BY_LINKS_ALONE);
    }
    assert!(one.runs() && two.runs());
}

/// The first board releases fences, and answers the launcher for clients of other runs.
#[test]
fn reads_of_other_runs_wait_for_fences() {
    let (Some(one), Some(mut two)) = (start(false), start(false)) else { return };
    let folder = Folder::new("links-names");
    let service = name_server(&folder);
    let boards = [address(&one), address(&two)];
    for fence in ["collect", "lazy"] {
        let options = format!("--name-server {} --fence {fence} -ppn 2 -n 4", folder.path("names"));
        waits_for_a_fence(run(&folder, 2, &boards, &options), 4);
        two.await_log(BY_LINKS_ALONE);
    }
    assert!(one.runs() && two.runs());
    service.signal(Signal::TERM);
    service.wait().code(0).quiet();
}

/// One end has the firmware's implementation of links, the other the native one, in both places.
#[test]
fn firmware_and_a_native_board_exchange_messages_directly() {
    let Some(mut board) = start(false) else { return };
    let folder = Folder::new("links-mixed");
    let (native, target) = managed(Machine::Here, "--limit ranks=2000 -v");
    let port = target.address.rsplit(':').next().expect("an address has a port");
    // The board of the second host connects to that of the first.
    let firmware_first = [board.host(0).to_string(), target.address.clone()];
    let native_first = [format!("{} 10.0.2.2:{port}", target.address), board.host(0).to_string()];
    for (boards, says) in [(firmware_first, SENT), (native_first, BY_LINKS_ALONE)] {
        let probe = run(&folder, 3, &boards, "-n 12").arg(hydrant_bin()).arg("probe").run();
        probe.code(0).says("exchanged 144 cards", 1).warns(DIRECTLY);
        board.await_log(says);
    }
    assert!(board.runs());
    native.signal(Signal::TERM);
    let outcome = native.wait();
    outcome.code(0);
    assert!(outcome.stderr.contains(BY_LINKS_ALONE), "{outcome}");
}

/// Firmware is the root and a leaf. The third host is below the second, whose board firmware reaches at another address than the
/// others would, and the second and the fourth are below the first.
#[test]
fn a_small_board_and_three_others_serve_one_job_without_hosts() {
    let (Some(mut large), Some(mut small)) = (start(false), start_small()) else { return };
    let started = [Machine::Aarch64, Machine::Here].map(|it| managed(it, "--limit ranks=2000 -v"));
    let [(dpu, dpu_target), (native, native_target)] = started;
    let port = dpu_target.address.rsplit(':').next().expect("an address has a port");
    let boards = [
        large.host(0).to_string(),
        format!("{} 10.0.2.2:{port}", dpu_target.address),
        small.host(0).to_string(),
        native_target.address,
    ];
    let folder = Folder::new("links-small");
    let run = || fleet::run(&folder, 4, &boards, &format!("{SHORT} -v -n 16"));
    let mut jobs = vec![(run().arg(hydrant_bin()).arg("probe"), "exchanged 256 cards")];
    if Peer::Mpich4.there() {
        jobs.push((run().arg(Peer::Mpich4.program("mpi_allreduce")), "allreduce of 16: 0 wrong\n"));
    }
    let count = jobs.len();
    for (job, says) in jobs {
        job.run().code(0).says(says, 1).warns(DIRECTLY);
        small.await_log(BY_LINKS_ALONE);
        large.await_log(SENT);
    }
    let stack = stack(&small);
    assert!(stack < STACK_MAX, "{stack} bytes of stack");
    assert!(large.runs() && small.runs());
    for board in [dpu, native] {
        board.signal(Signal::TERM);
        let outcome = board.wait();
        outcome.code(0);
        assert_eq!(outcome.stderr.matches(BY_LINKS_ALONE).count(), count, "{outcome}");
    }
}

/// The small board is the root, whose child would link itself to it.
#[test]
fn a_board_with_too_few_links_for_its_place_uses_its_host() {
    let (Some(mut small), Some(mut large)) = (start_small(), start(false)) else { return };
    let folder = Folder::new("links-few");
    let boards = [&small, &large].map(address);
    let probe = fleet::run(&folder, 2, &boards, &format!("{SHORT} -n 8")).arg(hydrant_bin()).arg("probe");
    let note = format!(
        "note: boards exchange messages by way of their hosts: host n1: board {} accepts 0 links of other boards, \
         and its place takes 1 (name its host later)\n",
        small.host(0)
    );
    probe.run().code(0).says("exchanged 64 cards", 1).warns(&note);
    small.await_log(" 0 messages sent to other boards, ");
    large.await_log(" 0 messages sent to other boards, ");
    assert!(small.runs() && large.runs());
}

/// Messages, the handshake of both sides, and their frames. Board 2 is the child of one board and the parent of another, and the
/// last host has no board.
#[test]
fn links_are_encrypted_with_the_secret() {
    let (Some(mut one), Some(mut two), Some(mut three)) = (start(true), start(true), start(true)) else {
        return;
    };
    let folder = Folder::new("links-secret");
    let boards = [&one, &two, &three].map(address);
    let secret = format!("--offload-secret {} -n 16", secret_file().display());
    for _ in 0..2 {
        let probe = run(&folder, 4, &boards, &secret).arg(hydrant_bin()).arg("probe").run();
        probe.code(0).says("exchanged 256 cards", 1).warns(DIRECTLY);
        three.await_log(BY_LINKS_ALONE);
        two.await_log(BY_LINKS_ALONE);
        one.await_log(SENT);
    }
    assert!(one.runs() && two.runs() && three.runs());
}

#[test]
fn fences_need_no_host() {
    let (Some(one), Some(two)) = (start(false), start(false)) else { return };
    let folder = Folder::new("links-stopped");
    let boards = [address(&one), address(&two)];
    passes_fences_without_hosts(RAW, fleet::run(&folder, 2, &boards, &format!("{LARGE} -n 8")), 2, 8);
    assert!(one.runs() && two.runs());
}

#[test]
fn a_lost_board_ends_the_job_by_a_name() {
    let (Some(one), Some(two)) = (start(false), start(false)) else { return };
    let folder = Folder::new("links-lost");
    let boards = [address(&one), address(&two)];
    let job = run(&folder, 2, &boards, "--heartbeat 4 -n 8")
        .arg(RAW)
        .steps("init2\nfence2\nsay up\nforever")
        .start();
    job.await_stdout("up\n", 8);
    two.signal(Signal::KILL);
    let outcome = job.wait();
    outcome.code(1).warns("host n2 (node 2): ").warns(&two.host(0).to_string()).warns(" is lost: ");
    assert!(one.runs());
}

/// A link whose connection goes through the test.
fn job_through(front: &Front, one: &Board, two: &Board) -> Running {
    let folder = Folder::new("links-front");
    let port = front.address.rsplit(':').next().expect("an address has a port");
    let boards = [format!("{} 10.0.2.2:{port}", one.host(0)), two.host(0).to_string()];
    let job = run(&folder, 2, &boards, "-n 8").arg(RAW).steps("init2\nfence2\nsay up\nforever").start();
    job.await_stdout("up\n", 8);
    job
}

#[test]
fn a_broken_link_ends_the_job_by_the_names_of_both_boards() {
    let (Some(one), Some(two)) = (start(false), start(false)) else { return };
    let front = Front::new(&one.host(0).to_string(), 1);
    let job = job_through(&front, &one, &two);
    front.connections()[0].shutdown(Shutdown::Both).expect("it is open");
    let outcome = job.wait();
    outcome.code(1);
    let names = [one.host(0), two.host(0)];
    let ends = [(1, names[0], names[1]), (2, names[1], names[0])].map(|(number, board, other)| {
        format!("host n{number} (node {number}): board {board}: its link to board {other} is lost: ")
    });
    assert!(ends.iter().any(|end| outcome.stderr.contains(end)), "{outcome}");
    assert!(one.runs() && two.runs());
}

/// Bytes of board 2 that are no message, and strangers without the token of the run.
#[test]
fn a_board_believes_its_neighbours_only_and_names_them() {
    let (Some(one), Some(two)) = (start(false), start(false)) else { return };
    let front = Front::new(&one.host(0).to_string(), 1);
    let job = job_through(&front, &one, &two);
    for (token, to, from) in [([0; 16], 1, 2), ([0xff; 16], 1, 3)] {
        let mut stranger = Manager::connect(one.host(1));
        assert_eq!(stranger.refused(&Request::Link(OpenLink { token, to, from })), Error::NoLink);
    }
    (&front.connections()[0]).write_all(&[0xff; 8]).expect("it is open");
    let outcome = job.wait();
    outcome.code(1).warns("host n2 (node 2): its PMI server sent host n1 (node 1) an invalid message: ");
    assert!(one.runs() && two.runs());
}

/// Boards without links, and a board that the others do not reach.
#[test]
fn boards_that_cannot_be_linked_use_their_hosts() {
    let (Some(mut one), Some(small)) = (start(false), Board::of_node(Kind::Lm3s6965evb, false)) else {
        return;
    };
    let folder = Folder::new("links-none");
    let boards = [one.host(0).to_string(), small.host(0).to_string()];
    let probe = fleet::run(&folder, 3, &boards, &format!("{SMALL} -n 12")).arg(hydrant_bin()).arg("probe");
    probe.run().code(0).quiet().says("exchanged 144 cards", 1);
    one.await_log(" 0 messages sent to other boards, ");
    let Some(two) = start(false) else { return };
    // Nothing listens to port 1.
    let boards = [format!("{} 10.0.2.2:1", one.host(0)), two.host(0).to_string()];
    let probe = run(&folder, 2, &boards, "-n 8").arg(hydrant_bin()).arg("probe").run();
    let note = format!(
        "note: boards exchange messages by way of their hosts: host n2: board {} has no link to board {}: it ",
        two.host(0),
        one.host(0)
    );
    probe.code(0).says("exchanged 64 cards", 1).warns(&note);
    one.await_log(" 0 messages sent to other boards, ");
    assert!(one.runs() && two.runs() && small.runs());
}

/// Requests of a node's host, and the board's reports until it has handled them, without the last.
fn ask(host: &mut Manager, requests: &[NodeRequest<'_>]) -> Vec<String> {
    let mut buf = [0; 256];
    for request in requests.iter().chain([&NodeRequest::Sync { number: 7 }]) {
        let record = encode_node_record(request, &mut buf).expect("it is short").to_vec();
        host.say_bytes(&record);
    }
    let mut reports = Vec::new();
    host.node_reports(|report| {
        let is_last = *report == NodeReport::Synced { number: 7 };
        if !is_last {
            reports.push(format!("{report:?}"));
        }
        is_last
    });
    reports
}

/// The board reports who sent a message without sense, and hears no more of it.
#[test]
fn a_message_without_sense_is_reported() {
    let Some(mut board) = start(false) else { return };
    let limits = Limits { links: 3, commit_bytes: 1024, kvs_bytes: 65536, ..Limits::for_ranks(16) };
    let limits = Limits { ranks: 16, keys: 128, groups: 4, psets: 64, jobs: 8, spawn_bytes: 2304, ..limits };
    let token = [7; 16];
    let open = OpenNode { node: 1, nodes: 3, radix: 2, limits, seed: None, link: Some(token), record: None };
    let mut host = Manager::connect(board.host(0));
    host.done(&Request::Node(open));
    let mut child = Manager::connect(board.host(1));
    child.done(&Request::Link(OpenLink { token, to: 1, from: 2 }));
    // A node links once.
    let mut again = Manager::connect(board.host(2));
    assert_eq!(again.refused(&Request::Link(OpenLink { token, to: 1, from: 2 })), Error::NoLink);
    drop(again);
    let tree = NodeRequest::Tree { linked: true, silence: 60_000 };
    assert_eq!(ask(&mut host, &[tree]), Vec::<String>::new());
    assert_eq!(ask(&mut host, &[tree]), ["Refused { request: 2, peer: None, why: BadNode }"]);
    let mut buf = vec![0; 16384];
    let message = encode_node_record(&&[0xff; 8000][..], &mut buf).expect("it fits");
    child.stream.write_all(message).expect("the board reads");
    let mut refusals = Vec::new();
    host.node_reports(|report| match report {
        &NodeReport::Refused { peer, why, .. } => {
            refusals.push((peer, why));
            true
        }
        _ => false,
    });
    assert_eq!(refusals, [(Some(2), Fault::BadPeer)]);
    // Behind its greeting, unless a reset takes that.
    let ended = child.stream.read_to_end(&mut Vec::new()).err().map(|why| why.kind());
    assert!(matches!(ended, None | Some(ErrorKind::ConnectionReset)), "the link is open: {ended:?}");
    drop(host);
    board.await_log("the node has ended: Closed");
    assert!(board.runs());
}
