//! Boards of `hydrant run --offload` that exchange messages directly.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::JoinHandle;

use hydrant_core::manage::{self, Error, OpenLink, PREFIX, Report, Request, VERSION};
use hydrant_tests::offload::{Target, passes_fences_without_hosts};
use hydrant_tests::peers::Peer;
use hydrant_tests::{Folder, Job, Running};
use hydrant_tests::{free_ports, hydrant_bin, nodes};
use rustix::process::Signal;

use super::fleet::{Fleet, HERE};
use super::offload::managed;
use super::{Machine, RAW};

/// What a board says of a node that sent so many messages by links, and none by its host.
const BY_LINKS_ALONE: &str = " messages sent to other boards, 0 by its host\n";

/// A port in front of a board's, which accepts this number of connections.
pub(crate) struct Front {
    pub(crate) address: String,
    /// Keeps the port, so that no other process gets it once no more connections are accepted.
    _listener: TcpListener,
    thread: JoinHandle<Vec<TcpStream>>,
}

impl Front {
    pub(crate) fn new(board: &str, connections: usize) -> Front {
        // A port that the system chooses is free again when the socket stops listening.
        let [port] = free_ports();
        let address = format!("127.0.0.1:{port}");
        let listener = TcpListener::bind(&address).expect("the port is free");
        let board = board.to_owned();
        let accepting = listener.try_clone().expect("there are descriptors");
        let thread = std::thread::spawn(move || {
            let accept = |number| {
                let (client, _) = accepting.accept().expect("a connection comes");
                if number == connections {
                    // Later connections are refused. To close the socket does not suffice: a process that another test
                    // starts has a copy until its program is executed.
                    rustix::net::shutdown(&accepting, rustix::net::Shutdown::Both).expect("it listens");
                }
                let board = TcpStream::connect(&board).expect("the board is there");
                pass(client, board)
            };
            (1..=connections).map(accept).collect()
        });
        Front { address, _listener: listener, thread }
    }

    /// The connections to the board, when all have come.
    pub(crate) fn connections(self) -> Vec<TcpStream> {
        self.thread.join().expect("it accepts connections")
    }
}

/// Passes bytes both ways. Returns the connection to the board.
fn pass(client: TcpStream, board: TcpStream) -> TcpStream {
    for (from, to) in [(&client, &board), (&board, &client)] {
        let clone = |stream: &TcpStream| stream.try_clone().expect("there are descriptors");
        let (mut from, mut to) = (clone(from), clone(to));
        std::thread::spawn(move || {
            // An error ends the connection as its end does.
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    board
}

/// Ends boards with `-v`. Returns what each has written.
fn said(fleet: Fleet) -> Vec<String> {
    let ended = fleet.boards.into_iter().map(|(board, _)| {
        board.signal(Signal::TERM);
        let outcome = board.wait();
        outcome.code(0);
        outcome.stderr.clone()
    });
    ended.collect()
}

#[test]
fn fences_gets_and_names_go_from_board_to_board() {
    let fleet = Fleet::with(&HERE, "-v");
    let run = |options: &str| fleet.run(3, 2, &format!("-v {options} -n 6"));
    let probe = |options: &str| run(options).arg(hydrant_bin()).arg("probe").run();
    for options in ["--fence collect", "--fence lazy"] {
        let outcome = probe(options);
        outcome.code(0).says("exchanged 36 cards", 1).warns("hydrant: boards exchange messages directly\n");
    }
    if Peer::Mpich5.there() {
        let sum = run("").arg(Peer::Mpich5.program("mpi_allreduce")).run();
        sum.code(0).says("allreduce of 6: 0 wrong\n", 1);
        let spawn = run("-usize 9").arg(Peer::Mpich5.program("mpi_spawn")).words("self 2").run();
        spawn.code(0);
    }
    for (number, text) in (1..).zip(said(fleet)) {
        let ended = text.lines().filter(|line| line.contains("its host has closed the connection")).count();
        assert!(ended >= 3, "{text}");
        // The first node sends the head what it knows, in which no rank takes part.
        let by_links = text.matches(BY_LINKS_ALONE).count();
        assert_eq!(by_links, if number == 1 { 0 } else { ended }, "board {number}: {text}");
        assert!(!text.contains("; 0 messages sent"), "board {number}: {text}");
    }
}

/// Board 1 can be reached by its host only.
// Fault: Two boards cannot reach each other
// Outcome: the job runs, and a note names them and the reason
// Guarantee: Hosts pass on messages if a link is missing
#[test]
fn boards_that_cannot_reach_each_other_use_their_hosts() {
    let mut fleet = Fleet::with(&HERE[..2], "-v");
    let front = Front::new(fleet.address(0), 1);
    fleet.move_board(0, front.address.clone());
    let outcome = fleet.run(3, 2, "-n 6").arg(hydrant_bin()).arg("probe").run();
    let (one, two) = (fleet.address(0).to_owned(), fleet.address(1).to_owned());
    outcome.code(0).says("exchanged 36 cards", 1).warns(&format!(
        "note: boards exchange messages by way of their hosts: host n2: board {two} has no link to board {one}: \
         cannot connect to a board at {one}: "
    ));
    drop(front.connections());
    for text in said(fleet) {
        assert!(
            text.contains("; 0 messages sent to other boards, ") && !text.contains(", 0 by its host"),
            "{text}"
        );
    }
}

/// Board 1 can be reached by its host only at the address that its host has, and by board 2 at the address for other boards.
#[test]
fn a_board_may_have_another_address_for_other_boards() {
    let mut fleet = Fleet::with(&HERE[..2], "-v");
    let front = Front::new(fleet.address(0), 1);
    let addresses = format!("{} {}", front.address, fleet.address(0));
    fleet.move_board(0, addresses);
    let outcome = fleet.run(2, 2, "-v -n 4").arg(hydrant_bin()).arg("probe").run();
    outcome.code(0).says("exchanged 16 cards", 1).warns("hydrant: boards exchange messages directly\n");
    drop(front.connections());
    assert!(said(fleet)[1].contains(BY_LINKS_ALONE));
}

// Fault: The link between two boards breaks
// Outcome: the job ends after one second with code 1 and names both boards
// Guarantee: A board reports a lost link that nothing else explains
// Also: hydrant-serve `a_lost_link_is_reported_once_after_a_delay`
#[test]
fn a_broken_link_ends_the_job_by_the_names_of_both_boards() {
    let mut fleet = Fleet::start(&HERE[..2]);
    let front = Front::new(fleet.address(0), 2);
    fleet.move_board(0, front.address.clone());
    let job = fleet.raw("-n 8", "init2\nfence2\nsay up\nforever").start();
    job.await_stdout("up\n", 8);
    // That of the host is the first.
    front.connections()[1].shutdown(Shutdown::Both).expect("it is open");
    let outcome = job.wait();
    outcome.code(1);
    let (one, two) = (fleet.address(0).to_owned(), fleet.address(1).to_owned());
    let ends = [(1, &one, &two), (2, &two, &one)].map(|(number, board, other)| {
        format!("host n{number} (node {number}): board {board}: its link to board {other} is lost: ")
    });
    let text = outcome.stderr.clone();
    assert!(ends.iter().any(|end| text.contains(end)), "{outcome}");
    for (board, _) in fleet.boards {
        board.signal(Signal::TERM);
        board.wait().code(0);
    }
}

/// Tells a board something, and returns its answer as text.
fn ask(board: &mut TcpStream, request: &Request) -> String {
    let mut buffer = [0; 1024];
    board.write_all(manage::encode(request, &mut buffer).expect("it is short")).expect("it is read");
    let mut prefix = [0; PREFIX];
    board.read_exact(&mut prefix).expect("there is an answer");
    let record = &mut buffer[..usize::from(u16::from_le_bytes(prefix))];
    board.read_exact(record).expect("there is an answer");
    match manage::decode(record).expect("it is a report") {
        Report::Refused(Error::NoLink) => "no link".to_owned(),
        report => format!("{report:?}"),
    }
}

/// Two boards without a secret, and a job of raw clients on their hosts.
struct Open {
    boards: [(Running, Target); 2],
    folder: Folder,
}

impl Open {
    fn start() -> Open {
        let boards = [(); 2].map(|()| managed(Machine::Here, ""));
        Open { boards, folder: Folder::new("open-boards") }
    }

    /// Runs a job with boards at these addresses.
    fn run(&self, addresses: [&str; 2], steps: &str) -> Job {
        let [one, two] = addresses;
        self.folder.file("boards", &format!("n1 {one}\nn2 {two}\n"));
        let job = Job::new(hydrant_bin()).arg("run").words(&nodes(2, 2, 2));
        let job = job.args(["--offload-file", &self.folder.path("boards")]);
        job.words("-n 4").arg(RAW).steps(steps)
    }

    fn address(&self, board: usize) -> &str {
        &self.boards[board].1.address
    }
}

/// The token alone decides.
// Fault: A stranger, or a board of another run, asks a board for a link
// Outcome: it is refused
// Guarantee: A node is linked only by the random token of its run
// Also: hydrant-serve `a_node_is_accepted_for_once_until_it_ends`
#[test]
fn a_stranger_gets_no_link() {
    let open = Open::start();
    let addresses = [open.address(0), open.address(1)];
    let steps = "init2\nfence2\nsay up\nonly 0\ncat\nall\nfence2\nend2\nsay done";
    let mut job = open.run(addresses, steps).hold_input().start();
    job.await_stdout("up\n", 4);
    for (token, to, from) in [([0; 16], 1, 2), ([0xff; 16], 2, 1)] {
        let mut board = TcpStream::connect(open.address(0)).expect("it listens");
        assert!(ask(&mut board, &Request::Hello { version: VERSION }).starts_with("Welcome"));
        assert_eq!(ask(&mut board, &Request::Link(OpenLink { token, to, from })), "no link");
    }
    job.end_input();
    job.wait().code(0).quiet().says("done", 4);
    for (board, _) in open.boards {
        board.signal(Signal::TERM);
        board.wait().code(0).quiet();
    }
}

/// Bytes of board 2 that are no message.
// Fault: A board sends another one bytes that are no message, or a message that its node may not send
// Outcome: the job ends, and the sender is named
// Guarantee: Messages are checked as those of hosts
// Also: hydrant-serve `what_is_no_record_is_the_neighbours_mistake`
#[test]
fn a_board_that_sends_no_messages_is_named() {
    let open = Open::start();
    let front = Front::new(open.address(0), 2);
    let address = front.address.clone();
    let job = open.run([&address, open.address(1)], "init2\nfence2\nsay up\nforever").start();
    job.await_stdout("up\n", 4);
    (&front.connections()[1]).write_all(&[0xff; 8]).expect("it is open");
    let outcome = job.wait();
    let named = "host n2 (node 2): its PMI server sent host n1 (node 1) an invalid message: ";
    outcome.code(1).warns(named);
    for (board, _) in open.boards {
        board.signal(Signal::TERM);
        board.wait().code(0);
    }
}

// Fault: The launcher and all daemons are stopped while ranks of several boards are in fences
// Outcome: the fences end
// Guarantee: Boards that are linked need no host for messages between them
#[test]
fn fences_need_no_host() {
    let fleet = Fleet::start(&HERE);
    passes_fences_without_hosts(RAW, fleet.run(3, 2, "-n 6"), 3, 6);
    fleet.end();
}
