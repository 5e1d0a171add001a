//! Clients of the status socket: requests, silence, slow readers.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;
use crate::client::Connection;

const KEYS: KeyRange = KeyRange(3);

struct Loop {
    poller: Poller,
    server: StatusServer,
    now: u64,
}

impl Loop {
    fn new() -> Loop {
        let poller = Poller::new().unwrap();
        let server = StatusServer::open(KEYS, &poller).unwrap();
        Loop { poller, server, now: 0 }
    }

    fn connect(&self) -> Connection {
        Connection::open(self.server.address()).unwrap()
    }

    /// Handles what is ready until nothing is. Returns the requests.
    fn turn(&mut self) -> Vec<(ClientId, Request)> {
        let mut requests = Vec::new();
        loop {
            let mut keys = Vec::new();
            self.poller.wait(Some(std::time::Duration::ZERO), &mut keys).unwrap();
            if keys.is_empty() {
                return requests;
            }
            requests.extend(keys.iter().filter_map(|&key| self.server.ready(key, &self.poller, self.now)));
        }
    }

    /// Attaches a new client.
    fn attached(&mut self) -> Connection {
        let mut connection = self.connect();
        connection.send(&Request::Attach).unwrap();
        let [(client, Request::Attach)] = self.turn()[..] else { panic!("one request") };
        self.server.attach(client, &self.poller);
        assert_eq!(connection.receive(None).unwrap(), Reply::Done);
        connection
    }

    fn clients(&self) -> usize {
        self.server.clients.iter().flatten().count()
    }

    fn output(&mut self, bytes: Vec<u8>) {
        self.server.send(&Reply::Output { job: 0, rank: 1, stderr: false, bytes }, &self.poller);
    }
}

/// A stream that sends bytes of the test's own.
fn raw(connection: &Connection) -> UnixStream {
    UnixStream::from(connection.as_fd().try_clone_to_owned().unwrap())
}

#[test]
fn requests_are_answered_one_by_one() {
    let mut own = Loop::new();
    let mut connection = own.connect();
    // The second one is not read before the first is answered.
    connection.send(&Request::Run).unwrap();
    connection.send(&Request::Job(3)).unwrap();
    let [(client, Request::Run)] = own.turn()[..] else { panic!("one request") };
    own.server.reply(client, &Reply::Done, &own.poller);
    assert_eq!(connection.receive(None).unwrap(), Reply::Done);
    let [(same, Request::Job(3))] = own.turn()[..] else { panic!("one request") };
    assert_eq!(same, client);
    own.server.reply(client, &Reply::Job(None), &own.poller);
    assert_eq!(connection.receive(None).unwrap(), Reply::Job(None));
    drop(connection);
    assert!(own.turn().is_empty());
    assert_eq!(own.clients(), 0);
    // A reply to a client that has gone is dropped.
    own.server.reply(client, &Reply::Done, &own.poller);
}

#[test]
fn a_client_that_leaves_before_its_reply_is_dropped() {
    let mut own = Loop::new();
    let mut connection = own.connect();
    connection.send(&Request::Run).unwrap();
    assert_eq!(own.turn().len(), 1);
    drop(connection);
    assert!(own.turn().is_empty());
    assert_eq!(own.clients(), 0);
}

#[test]
fn bytes_that_are_no_request_end_the_connection() {
    let too_long = (REQUEST_MAX as u32 + 1).to_le_bytes();
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\x01\0\0\0\xff", b"\x02\0\0\0\0\0", b"\0\0\0\0", &too_long] {
        let mut own = Loop::new();
        let connection = own.connect();
        let mut stream = raw(&connection);
        stream.write_all(bytes).unwrap();
        assert!(own.turn().is_empty());
        assert_eq!(own.clients(), 0, "{bytes:?}");
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
}

#[test]
fn a_request_may_come_in_pieces() {
    let mut own = Loop::new();
    let connection = own.connect();
    let message = encode(&Request::Ranks { job: 1, first: 300 });
    for byte in &message[..message.len() - 1] {
        raw(&connection).write_all(&[*byte]).unwrap();
        assert!(own.turn().is_empty());
    }
    raw(&connection).write_all(&message[message.len() - 1..]).unwrap();
    assert_eq!(own.turn()[0].1, Request::Ranks { job: 1, first: 300 });
}

#[test]
fn silent_clients_give_way_and_end() {
    let mut own = Loop::new();
    let mut silent = Vec::new();
    for _ in 0..CLIENTS_MAX {
        silent.push(own.connect());
        own.now += 1;
        assert!(own.turn().is_empty());
    }
    let mut latest = own.connect();
    latest.send(&Request::Run).unwrap();
    assert_eq!(own.turn().len(), 1, "the oldest silent client has given way");
    assert_eq!(raw(&silent[0]).read(&mut [0]).unwrap(), 0);
    assert_eq!(own.clients(), CLIENTS_MAX);
    own.now = own.server.poll_at().unwrap();
    assert_eq!(own.now, 2 + IDLE_TIMEOUT);
    own.server.handle_timeout(&own.poller, own.now);
    assert_eq!(raw(&silent[1]).read(&mut [0]).unwrap(), 0);
    own.server.handle_timeout(&own.poller, own.now + IDLE_TIMEOUT);
    assert_eq!(own.clients(), 1, "one client waits for a reply");
    own.now = own.server.poll_at().unwrap();
    own.server.handle_timeout(&own.poller, own.now);
    assert_eq!((own.clients(), own.server.poll_at()), (0, None));
}

// Fault: The daemon of a host that is to join takes minutes to start, and more clients come than there are places
// Outcome: the client that has asked for the host gets its reply
// Guarantee: A request to change hosts has no deadline, and gives way only to its like
#[test]
fn clients_that_wait_for_hosts_keep_their_places() {
    let mut own = Loop::new();
    let mut waiting = own.connect();
    waiting.send(&Request::Grow("n3".to_owned())).unwrap();
    let [(client, Request::Grow(_))] = &own.turn()[..] else { panic!("one request") };
    let client = *client;
    let mut others = Vec::new();
    for _ in 0..CLIENTS_MAX {
        own.now += 1;
        let mut other = own.connect();
        other.send(&Request::Run).unwrap();
        assert_eq!(own.turn().len(), 1);
        others.push(other);
    }
    own.server.handle_timeout(&own.poller, own.now + REPLY_TIMEOUT);
    assert_eq!((own.clients(), own.server.poll_at()), (1, None));
    own.server.reply(client, &Reply::Done, &own.poller);
    assert_eq!(waiting.receive(None).unwrap(), Reply::Done);
    assert!(own.server.poll_at().is_some(), "its next request is awaited");
}

#[test]
fn attached_clients_keep_their_places() {
    let mut own = Loop::new();
    let mut attached: Vec<Connection> = (0..ATTACHED_MAX).map(|_| own.attached()).collect();
    let mut refused = own.connect();
    refused.send(&Request::Attach).unwrap();
    let [(client, _)] = own.turn()[..] else { panic!("one request") };
    own.server.attach(client, &own.poller);
    assert!(matches!(refused.receive(None), Ok(Reply::Refused(_))));
    for _ in 0..2 * CLIENTS_MAX {
        drop(own.connect());
        let _silent = own.connect();
        own.turn();
    }
    own.output(b"x\n".to_vec());
    for connection in &mut attached {
        assert!(matches!(connection.receive(None), Ok(Reply::Output { rank: 1, .. })));
    }
    // A client that follows output sends nothing.
    raw(&attached[0]).write_all(b"x").unwrap();
    attached.remove(1);
    own.turn();
    assert_eq!(own.server.clients.iter().flatten().filter(|client| client.attached).count(), 2);
}

#[test]
fn a_slow_reader_loses_output_with_a_notice() {
    let mut own = Loop::new();
    let mut connection = own.attached();
    let mut sent = 0;
    while own.server.clients[0].as_ref().is_some_and(|client| client.lost == 0) {
        own.output(vec![b'x'; 4000]);
        sent += 1;
        assert!(own.server.clients[0].as_ref().unwrap().out.len() <= 3 * OUTPUT_MAX);
    }
    own.output(vec![b'x'; 4000]);
    let (mut pieces, mut lost) = (0, 0);
    while lost == 0 {
        match connection.receive(None).unwrap() {
            Reply::Output { .. } => pieces += 1,
            Reply::Lost(bytes) => lost = bytes,
            other => panic!("{other:?}"),
        }
        own.turn();
    }
    assert_eq!(pieces, sent - 1);
    assert!((8000..8100).contains(&lost), "{lost}");
    own.output(b"later".to_vec());
    assert!(matches!(connection.receive(None), Ok(Reply::Output { bytes, .. }) if bytes == b"later"));
}
