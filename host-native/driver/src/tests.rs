//! A driver with clients over socket pairs, under a clock that the test sets.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use hydrant_core::server::JobSpec;
use hydrant_core::trace::{Cause, Closing, Exit};
use hydrant_core::wire::Integers;
use hydrant_core::wire::pmix::{Hello, Kind};
use hydrant_core::{ConnId, Fault, Input, JobId, Limits, OwnedOutput, Rank, Server};
use hydrant_reactor::{Interest, Key, KeyRange, Poller};

use super::conns::INTRODUCTION_READ;
use super::{Client, CloseReason, Driver, Event, HANDSHAKE_TIMEOUT, MappedStorage, Speaks};

const JOB: JobId = JobId(0);

struct World<'s> {
    driver: Driver<Server<'s>>,
    poller: Poller,
    now: u64,
}

impl<'s> World<'s> {
    fn new(limits: Limits, storage: &'s mut MappedStorage) -> World<'s> {
        let server = Server::new(limits, storage.lend(), 1).unwrap();
        let mut driver = Driver::new(Box::new(server), KeyRange(4));
        driver.handle(0, Input::RegisterJob(JobSpec::new(JOB, "kvs_0", limits.ranks))).unwrap();
        World { driver, poller: Poller::new().unwrap(), now: 0 }
    }

    /// A client's socket, and its connection.
    fn client(&mut self, rank: Option<Rank>) -> (UnixStream, Option<ConnId>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let conn = match rank {
            Some(rank) => self.driver.open(ours.into(), JOB, rank, self.now, &self.poller),
            None => self.driver.open_client(client_of(ours), JOB, self.now, &self.poller),
        };
        (theirs, conn.unwrap())
    }

    fn poll(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.driver.poll(self.now, &self.poller).unwrap()).collect()
    }

    /// Handles all events that are ready.
    fn turn(&mut self) -> Vec<Event> {
        let (mut keys, mut events) = (Vec::new(), Vec::new());
        self.poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        for key in keys {
            self.driver.ready(key, self.now, &self.poller).unwrap();
            events.extend(self.poll());
        }
        if self.driver.handle_timeout(self.now).unwrap() {
            events.extend(self.poll());
        }
        events
    }
}

/// A client of any protocol whose user is unknown.
fn client_of(socket: UnixStream) -> Client {
    Client::remote(OwnedFd::from(socket).into(), Speaks::Any)
}

/// All that a client has to read.
fn read(client: &mut UnixStream) -> String {
    let mut text = Vec::new();
    match client.read_to_end(&mut text) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    }
    String::from_utf8(text).unwrap()
}

const INIT: &[u8] = b"cmd=init pmi_version=1 pmi_subversion=1\n";

/// Spawn requests may be that long.
// Fault: Two messages of 40 KB arrive in one read
// Outcome: both are served
// Guarantee: The limit of 65,536 bytes is a message's
#[test]
fn long_messages_that_arrive_together_are_served() {
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (mut client, _) = world.client(Some(Rank(0)));
    client.write_all(INIT).unwrap();
    world.turn();
    read(&mut client);
    let put = |key: &str| format!("cmd=put kvsname=kvs_0 key={key} value={}\n", "x".repeat(40_000));
    client.write_all([put("a"), put("b"), put("c")].concat().as_bytes()).unwrap();
    let events = world.turn();
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(read(&mut client).matches("cmd=put_result rc=7").count(), 3);
}

#[test]
fn a_client_that_says_nothing_is_closed_after_the_handshake_timeout() {
    let limits = Limits::for_ranks(2);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    world.now = 5;
    let (_silent, silent) = world.client(None);
    let (mut other, conn) = world.client(None);
    other.write_all(b"cmd=initack pmiid=1\n").unwrap();
    let joined = Event::Output(OwnedOutput::Joined { conn: conn.unwrap(), job: JOB, rank: Rank(1) });
    assert_eq!(world.turn(), [joined]);
    assert_eq!(world.driver.poll_at(), Some(5 + HANDSHAKE_TIMEOUT));
    world.now = 4 + HANDSHAKE_TIMEOUT;
    assert_eq!(world.turn(), []);
    world.now += 1;
    let why = CloseReason::NoHandshake;
    assert_eq!(world.turn(), [Event::Closed { conn: silent.unwrap(), job: JOB, rank: None, why }]);
    assert_eq!(world.driver.poll_at(), None);
    assert_eq!(world.driver.conn_of(JOB, Rank(1)), conn);
}

#[test]
fn a_client_that_has_not_introduced_itself_is_read_in_small_pieces() {
    const GREETING: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (mut stranger, conn) = world.client(None);
    let greetings = GREETING.repeat(1000);
    stranger.write_all(&greetings).unwrap();
    assert!(world.driver.read(conn.unwrap(), 0, &world.poller).unwrap());
    assert_eq!(world.driver.traffic().bytes_in, INTRODUCTION_READ as u64);
    assert_eq!((world.poll(), world.driver.traffic().bytes_in), (Vec::new(), INTRODUCTION_READ as u64));
    // A turn of the event loop reads the next piece, between those of other connections.
    world.turn();
    assert_eq!(world.driver.traffic().bytes_in, 2 * INTRODUCTION_READ as u64);
}

#[test]
fn the_rank_of_an_incoming_connection_does_not_replace_its_first_request() {
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let next = world.driver.next_conn();
    let conn = world.driver.open_incoming(ours.into(), JOB, Rank(0), 0, &world.poller).unwrap();
    assert_eq!(conn, next);
    assert_eq!(world.driver.poll_at(), Some(HANDSHAKE_TIMEOUT));
}

#[test]
fn the_oldest_incoming_connection_makes_room() {
    let limits = Limits { conns: 2, ..Limits::for_ranks(2) };
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (_first, first) = world.client(None);
    assert!(!world.driver.make_room(0).unwrap());
    let (_second, _) = world.client(Some(Rank(0)));
    assert_eq!(world.client(None).1, None);
    assert!(world.driver.make_room(0).unwrap());
    let why = CloseReason::NoHandshake;
    assert_eq!(world.poll(), [Event::Closed { conn: first.unwrap(), job: JOB, rank: None, why }]);
    // Ranks keep their connections.
    let (_third, third) = world.client(Some(Rank(1)));
    assert!(third.is_some() && !world.driver.make_room(0).unwrap());
}

#[test]
fn pipelined_requests_are_all_answered() {
    const REQUESTS: usize = 500;
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (mut client, _) = world.client(Some(Rank(0)));
    let mut requests = INIT.to_vec();
    requests.extend(b"cmd=get_maxes\n".repeat(REQUESTS));
    client.write_all(&requests).unwrap();
    let mut replies = String::new();
    while replies.lines().count() < 1 + REQUESTS {
        let events = world.turn();
        assert!(
            events.iter().all(|event| matches!(event, Event::Output(OwnedOutput::Joined { .. }))),
            "{events:?}"
        );
        replies.push_str(&read(&mut client));
    }
    assert_eq!(replies.lines().count(), 1 + REQUESTS);
    assert!(replies.lines().skip(1).all(|line| line.starts_with("cmd=maxes ")), "{replies}");
    let traffic = world.driver.traffic();
    assert_eq!((traffic.bytes_in, traffic.bytes_out), (requests.len() as u64, replies.len() as u64));
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (mut client, conn) = world.client(Some(Rank(0)));
    client.write_all(INIT).unwrap();
    world.turn();
    // No requests are read while a reply waits for the socket, so the client's writes fail in the end.
    let mut blocked = 0;
    while blocked < 3 {
        match client.write(&b"cmd=get_maxes\n".repeat(100)) {
            Ok(_) => blocked = 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                blocked += 1;
            }
        }
        assert_eq!(world.turn(), []);
    }
    // After the client closes its end, the connection is closed and its number is free.
    drop(client);
    let mut events = Vec::new();
    while events.is_empty() {
        events = world.turn();
    }
    assert_eq!(
        events,
        [Event::Closed { conn: conn.unwrap(), job: JOB, rank: Some(Rank(0)), why: CloseReason::Ended }]
    );
    assert_eq!(world.driver.next_conn(), conn);
}

#[test]
fn a_connection_that_the_server_gives_up_is_closed() {
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (mut client, conn) = world.client(None);
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    match world.turn().as_slice() {
        [
            Event::Closed {
                conn: closed, rank: None, why: CloseReason::Backend(Closing::Malformed(_)), ..
            },
        ] => {
            assert_eq!(Some(*closed), conn);
        }
        other => panic!("{other:?}"),
    }
    // Keys of other ranges and of closed connections are ignored.
    world.driver.ready(KeyRange(4).key(0, 0), 0, &world.poller).unwrap();
    world.driver.ready(KeyRange(5).key(0, 0), 0, &world.poller).unwrap();
}

/// Replies that wait for the socket are dropped with it, and the requests behind them are read.
#[test]
fn the_last_requests_of_a_rank_come_before_its_exit() {
    let limits = Limits::for_ranks(1);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (mut client, _) = world.client(Some(Rank(0)));
    client.write_all(INIT).unwrap();
    assert_eq!(world.turn().len(), 1);
    client.write_all(&b"cmd=get_maxes\n".repeat(8000)).unwrap();
    assert_eq!(world.turn(), []);
    client.write_all(b"cmd=abort exitcode=7\n").unwrap();
    drop(client);
    world.driver.exited(JOB, Rank(0), Exit::Code(3), 0).unwrap();
    let events = world.poll();
    let is_abort = |event: &&Event| {
        matches!(event, Event::Output(OwnedOutput::AbortJob { cause: Cause::Abort { .. }, .. }))
    };
    assert_eq!((events.iter().filter(is_abort).count(), events.len()), (1, 2), "{events:?}");
    // Without a connection it counts at once.
    let again = world.driver.exited(JOB, Rank(0), Exit::Code(3), 0);
    assert_eq!(again.unwrap_err().fault(), Some(Fault::RankTaken));
}

#[test]
fn a_connection_that_the_backend_refuses_is_closed() {
    let limits = Limits::for_ranks(2);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let (_client, conn) = world.client(Some(Rank(0)));
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let opened = world.driver.open(ours.into(), JOB, Rank(0), 0, &world.poller);
    assert_eq!(opened.unwrap_err().fault(), Some(Fault::RankTaken));
    assert_eq!((read(&mut theirs), world.driver.conn_of(JOB, Rank(0))), (String::new(), conn));
    assert_eq!(world.driver.next_conn(), Some(ConnId(1)));
}

/// A tool of PMIx in the environment of a rank connects to the port of the rank's job.
#[test]
fn tools_among_the_clients_of_a_job_are_handed_over() {
    let limits = Limits { commit_bytes: 256, ..Limits::for_ranks(1) };
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let hello = |kind, namespace: &str| {
        let integers = Integers::Flexible;
        let hello = Hello { kind, namespace: namespace.as_bytes(), rank: 0, major: 5, integers };
        let mut message = vec![0; 256];
        let len = hello.write((0, 0), &mut message).unwrap();
        message.truncate(len);
        message
    };
    for said in [
        hello(Kind::ClientTool, "toolqry.7"),
        hello(Kind::NamedTool, "toolqry.7"),
        hello(Kind::Tool, ""),
        [hello(Kind::ClientTool, "toolqry.7"), b"and more".to_vec()].concat(),
    ] {
        let (mut client, conn) = world.client(None);
        world.driver.hand_over_tool(conn.unwrap(), "kvs_0");
        // The introduction comes in two pieces.
        let (first, rest) = said.split_at(20);
        for piece in [first, rest] {
            assert!(world.driver.take_tool().is_none());
            client.write_all(piece).unwrap();
            assert_eq!(world.turn(), []);
        }
        let tool = world.driver.take_tool().expect("it has introduced itself");
        assert_eq!(tool.said, said);
        assert_eq!(world.driver.next_conn(), conn, "its number is free");
        assert_eq!(read(&mut client), "", "nobody has answered");
        // Its socket may be watched again.
        world.poller.add(&tool.client.stream, Key(1), Interest::Read).unwrap();
        tool.client.stream.shutdown(Shutdown::Both).unwrap();
    }
    for (said, takes_tools) in [
        (hello(Kind::Client, "kvs_0"), true),
        (hello(Kind::Client, "toolqry.7"), true),
        (hello(Kind::ClientTool, "kvs_0"), true),
        (hello(Kind::ClientTool, "toolqry.7"), false),
    ] {
        let (mut client, conn) = world.client(None);
        if takes_tools {
            world.driver.hand_over_tool(conn.unwrap(), "kvs_0");
        }
        client.write_all(&said).unwrap();
        assert_eq!(world.turn().len(), 1, "it has joined, or has been refused");
        assert!(world.driver.take_tool().is_none());
        world.driver.close(conn.unwrap(), 0).unwrap();
    }
}

/// Bytes of the one are the owner's to carry, those of the other are not, and numbers are used once.
#[test]
fn external_connections_are_beside_sockets() {
    let limits = Limits::for_ranks(3);
    let mut storage = MappedStorage::new(&limits);
    let mut world = World::new(limits, &mut storage);
    let conn = ConnId(1);
    let opened = |conn| Input::Opened { conn, job: JOB, rank: Some(Rank(2)) };
    let refused = world.driver.handle_external(0, opened(ConnId(limits.conns)));
    assert_eq!(refused.unwrap_err().fault(), Some(Fault::NoSuchConn));
    world.driver.handle_external(0, opened(conn)).unwrap();
    let sockets = [0, 1].map(|rank| world.client(Some(Rank(rank))));
    assert_eq!([&sockets[0], &sockets[1]].map(|(_, conn)| *conn), [Some(ConnId(0)), Some(ConnId(2))]);
    assert_eq!(world.driver.is_socket(conn), world.driver.room(ConnId(0)).is_some());
    let room = world.driver.room(conn).unwrap();
    world.driver.receive(conn, &INIT[..9], 0).unwrap();
    assert_eq!(world.driver.room(conn), Some(room - 9));
    world.driver.receive(conn, &INIT[9..], 0).unwrap();
    world.driver.handle_external(0, Input::Blocked { conn }).unwrap();
    assert_eq!(world.poll(), []);
    world.driver.handle_external(0, Input::Writable { conn }).unwrap();
    let outputs = world.poll();
    let [Event::Output(OwnedOutput::Joined { rank, .. }), Event::Output(OwnedOutput::Bytes { bytes, .. })] =
        &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert_eq!((rank, bytes.starts_with(b"cmd=response")), (&Rank(2), true));
    world.driver.handle_external(0, Input::Closed { conn }).unwrap();
    assert_eq!((world.driver.room(conn), world.driver.next_conn()), (None, Some(conn)));
}
