//! Tests of links: a real server below its parent's, whose board the test plays.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use hydrant_core::manage::decode;
use hydrant_core::peer::tree::ROOT_ONE;
use hydrant_core::server::JobSpec;
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, JobId, Output, Rank, Server, Time};
use hydrant_driver::MappedStorage;

use super::*;
use crate::link_arrivals::LinkedNodes;
use crate::recorded::RecordedServer;

const JOB: JobId = JobId(0);
const TOKEN: [u8; 16] = [7; 16];
/// The parent.
const ABOVE: u32 = 1;
/// The node with the links.
const NODE: u32 = 2;
/// Two nodes with ranks, below each other, and the head.
const RADIX: u32 = 2 | ROOT_ONE;

fn limits() -> Limits {
    Limits { links: 3, ..Limits::for_ranks(2) }
}

/// Registers a job of one rank on each node.
fn describe(mut handle: impl FnMut(Input<'_>)) {
    handle(Input::RegisterJob(JobSpec::new(JOB, "kvs_0", 2)));
    for (rank, node) in [(0, ABOVE), (1, NODE)] {
        handle(Input::MapRanks { job: JOB, first: Rank(rank), count: 1, node });
    }
}

/// The message of the parent's server with the pairs of its rank.
fn message() -> Vec<u8> {
    let mut storage = MappedStorage::new(&limits());
    let mut server = Server::new(limits(), storage.lend(), 1).unwrap();
    server.handle(Time(0), Input::Node { node: ABOVE, nodes: 3, radix: RADIX }).unwrap();
    describe(|input| {
        server.handle(Time(0), input).unwrap();
    });
    let conn = ConnId(0);
    server.handle(Time(0), Input::Opened { conn, job: JOB, rank: Some(Rank(0)) }).unwrap();
    let said = b"cmd=init pmi_version=1 pmi_subversion=1\n";
    server.handle(Time(0), Input::Bytes { conn, bytes: said, full: false }).unwrap();
    server.handle(Time(0), Input::Exited { job: JOB, rank: Rank(0), exit: Exit::Code(3) }).unwrap();
    let mut buffer = vec![0; limits().output_room()];
    loop {
        match server.poll(&mut buffer).unwrap() {
            Some(Output::Peer { node: NODE, bytes }) => return bytes.to_vec(),
            Some(_) => {}
            None => panic!("the parent sends the exit of its rank"),
        }
    }
}

/// The node with its server, and the parent's end of the link.
struct Bench<'s> {
    endpoint: Endpoint<'s>,
    links: Links,
    above: TcpStream,
}

impl<'s> Bench<'s> {
    fn new(storage: &'s mut MappedStorage) -> Bench<'s> {
        let server = Server::new(limits(), storage.lend(), 1).unwrap();
        let server = RecordedServer::new(server, 1, None);
        let mut endpoint = Endpoint::of_thread(&[], &limits(), server).unwrap();
        let arrivals = LinkedNodes::default().accept(TOKEN, NODE).unwrap();
        let sender = arrivals.sender();
        let mut links = Links::new((arrivals, TOKEN, NODE), None, &limits(), endpoint.poller()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let above = listener.accept().unwrap().0;
        links.connecting = Some(ABOVE);
        sender.send(Arrival::Parent(Ok(Connection::of_host(own, None).unwrap())));
        links.take_arrivals(&mut endpoint).unwrap();
        let mut bench = Bench { endpoint, links, above };
        bench.say(GREETING);
        assert_eq!(bench.next_event(), LinkEvent::Linked { node: ABOVE });
        assert_eq!(bench.links.form(Tree::new(3, RADIX), true, 10_000, &mut bench.endpoint), Ok(()));
        bench
    }

    fn say(&mut self, message: &[u8]) {
        let mut buffer = vec![0; 1 << 16];
        self.above.write_all(encode_node_record(&message, &mut buffer).unwrap()).unwrap();
    }

    /// Waits until the link's socket is readable, and reads it.
    fn turn(&mut self) {
        let mut tokens = Vec::new();
        while !tokens.contains(&Token::Link(ABOVE)) {
            self.endpoint.turn(None, &mut tokens).unwrap();
        }
        self.links.ready(ABOVE, &mut self.endpoint).unwrap();
    }

    fn next_event(&mut self) -> LinkEvent {
        loop {
            if let Some(event) = self.links.next_event() {
                return event;
            }
            self.turn();
        }
    }

    fn exits(&self) -> Option<u32> {
        self.endpoint.server().job_report(JOB).map(|report| report.exited)
    }
}

// Fault: A message of another board comes after the end of its job
// Outcome: it is ignored
// Guarantee: A message names the job id. Its number may be another job's
#[test]
fn a_message_after_the_end_of_its_job_is_ignored() {
    let mut storage = MappedStorage::new(&limits());
    let mut bench = Bench::new(&mut storage);
    let message = message();
    describe(|input| bench.endpoint.handle(input).unwrap());
    assert_eq!(bench.exits(), Some(0));
    bench.say(&message);
    while bench.exits() == Some(0) {
        bench.turn();
    }
    assert_eq!(bench.exits(), Some(1));
    // The job ends here before the parent knows.
    bench.endpoint.handle(Input::DeregisterJob { job: JOB }).unwrap();
    bench.say(&message);
    bench.say(b"no message");
    assert_eq!(bench.next_event(), LinkEvent::BadPeer { node: ABOVE, why: Fault::BadPeer });
    assert!(!bench.links.neighbours[&ABOVE].is_open());
}

#[test]
fn messages_to_the_parent_are_records_and_others_go_by_the_host() {
    let mut storage = MappedStorage::new(&limits());
    let mut bench = Bench::new(&mut storage);
    assert!(bench.links.send(ABOVE, b"arrival", &mut bench.endpoint).unwrap());
    assert!(!bench.links.send(0, b"arrival", &mut bench.endpoint).unwrap(), "the head is not linked");
    let mut prefix = [0; NODE_PREFIX];
    bench.above.read_exact(&mut prefix).unwrap();
    let mut record = vec![0; u32::from_le_bytes(prefix) as usize];
    bench.above.read_exact(&mut record).unwrap();
    assert_eq!(decode::<&[u8]>(&record), Ok(&b"arrival"[..]));
}

#[test]
fn what_is_no_record_is_the_neighbours_mistake() {
    for bytes in [&[0xff; 8][..], &[1, 0, 0, 0, 0xff]] {
        let mut storage = MappedStorage::new(&limits());
        let mut bench = Bench::new(&mut storage);
        bench.above.write_all(bytes).unwrap();
        assert_eq!(bench.next_event(), LinkEvent::BadPeer { node: ABOVE, why: Fault::BadPeer });
    }
}

#[test]
fn a_lost_link_is_reported_once_after_a_delay() {
    let mut storage = MappedStorage::new(&limits());
    let mut bench = Bench::new(&mut storage);
    bench.above.shutdown(std::net::Shutdown::Both).unwrap();
    bench.turn();
    let at = bench.links.deadline().unwrap();
    bench.links.handle_timeout(at - 1);
    assert_eq!(bench.links.next_event(), None);
    bench.links.handle_timeout(at);
    let why = "it closed the connection".to_owned();
    assert_eq!(bench.links.next_event(), Some(LinkEvent::Unlinked { node: ABOVE, why }));
    assert_eq!((bench.links.deadline(), bench.links.next_event()), (None, None));
}

/// A parent that does not read.
// Fault: A board does not read its link
// Outcome: other boards go on; the sender keeps at most 1 MiB for it
// Guarantee: A full link blocks the server's output to this neighbour
#[test]
fn a_full_link_blocks_the_server() {
    let mut storage = MappedStorage::new(&limits());
    let mut bench = Bench::new(&mut storage);
    let bytes = vec![7; 16 * 1024];
    let mut sent = 0;
    while !bench.links.neighbours[&ABOVE].is_blocked {
        assert!(bench.links.send(ABOVE, &bytes, &mut bench.endpoint).unwrap());
        sent += 1;
        assert!(sent < 100_000, "the link takes everything");
    }
    let mut blocked = Vec::new();
    bench.endpoint.server().host_state(&mut |state| {
        if let hydrant_core::server::HostState::BlockedLink { node } = state {
            blocked.push(node);
        }
    });
    assert_eq!(blocked, [ABOVE]);
    let mut above = bench.above.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut record = vec![0; NODE_PREFIX + 3 + bytes.len()];
        let mut left = sent * record.len();
        while left > 0 {
            match above.read(&mut record) {
                Ok(0) | Err(_) => break,
                Ok(len) => left = left.saturating_sub(len),
            }
        }
    });
    while bench.links.neighbours[&ABOVE].is_blocked {
        bench.turn();
    }
    drop(bench);
    reader.join().unwrap();
}

#[test]
fn links_that_are_not_used_are_closed() {
    let mut storage = MappedStorage::new(&limits());
    let server = RecordedServer::new(Server::new(limits(), storage.lend(), 1).unwrap(), 1, None);
    let mut endpoint = Endpoint::of_thread(&[], &limits(), server).unwrap();
    let arrivals = LinkedNodes::default().accept(TOKEN, ABOVE).unwrap();
    let sender = arrivals.sender();
    let mut links = Links::new((arrivals, TOKEN, ABOVE), None, &limits(), endpoint.poller()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut connect = |from| {
        let child = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let own = Connection::of_server(listener.accept().unwrap().0, None).unwrap();
        sender.send(Arrival::Child(from, own));
        child
    };
    // The second takes the arrivals of no other. Node 9 is not in the tree.
    let mut children = [NODE, NODE, 9].map(&mut connect);
    links.take_arrivals(&mut endpoint).unwrap();
    assert_eq!(links.form(Tree::new(3, RADIX), true, 10_000, &mut endpoint), Ok(()));
    assert_eq!(links.neighbours.keys().copied().collect::<Vec<_>>(), [NODE]);
    let mut greeting = Vec::new();
    children[2].read_to_end(&mut greeting).unwrap();
    assert!(!greeting.is_empty(), "it was greeted, and closed with the tree");
    assert_eq!(children[1].read(&mut [0; 8]).unwrap(), 0);
    // What comes after the tree is of no use.
    let mut late = connect(NODE);
    links.take_arrivals(&mut endpoint).unwrap();
    assert_eq!(late.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(links.form(Tree::new(3, RADIX), true, 1, &mut endpoint), Err(Fault::BadNode));
    for addr in ["127.0.0.1:1", "host:1"] {
        links.connect(0, addr);
        assert!(matches!(links.next_event(), Some(LinkEvent::Unlinked { node: 0, .. })), "{addr}");
    }
}
