//! Tests of unauthenticated connections over TCP.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use hydrant_noise::KeyExchange;

use super::*;
use crate::link::{Initiator, OverlayId, RESPONSE_LEN};

const CHILD: u32 = 5;

/// Node 2, which waits for its child, node 5.
struct Parent {
    socket: ListenSocket,
    incoming: IncomingConnections,
    overlay: OverlayId,
    secret: Secret,
    expects_child: bool,
}

impl Parent {
    fn new() -> Parent {
        let socket = ListenSocket::bind(Ipv4Addr::LOCALHOST.into(), 0).unwrap();
        let overlay = OverlayId::random().unwrap();
        Parent {
            socket,
            incoming: IncomingConnections::default(),
            overlay,
            secret: Secret::random().unwrap(),
            expects_child: true,
        }
    }

    fn identity(&self) -> LinkIdentity {
        LinkIdentity { overlay: self.overlay, parent: 2, child: CHILD, exchange: KeyExchange::Psk }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.socket.addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// Accepts all connections and reads from each.
    fn turn(&mut self, now: u64) -> Option<Authenticated> {
        while let Some(stream) = self.socket.accept().unwrap() {
            self.incoming.add(stream, now, 30_000).unwrap();
        }
        let (identity, secret) = (self.identity(), &self.secret);
        let expected =
            |node| (self.expects_child && node == CHILD).then_some(ExpectedChild { identity, secret });
        (0..INCOMING_MAX as u32).find_map(|index| {
            let expected = Expected { child: expected, guide: None, secrets: None };
            match self.incoming.receive(index, expected)? {
                Arrival::Child(child) => Some(child),
                Arrival::Host(..) | Arrival::Turned(..) => None,
            }
        })
    }

    /// Repeats until a child is authenticated.
    fn authenticate(&mut self, now: u64) -> Authenticated {
        until(|| self.turn(now))
    }

    /// Repeats until this many connections are unauthenticated.
    fn hold(&mut self, now: u64, count: usize) {
        until(|| {
            assert!(self.turn(now).is_none());
            (self.incoming.slots.iter().flatten().count() == count).then_some(())
        });
    }
}

fn until<T>(mut done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(done) = done() {
            return done;
        }
        assert!(Instant::now() < deadline, "timeout");
        std::thread::yield_now();
    }
}

/// The child's side of a connection. Returns the bytes that it sent.
fn join(parent: &mut Parent, stream: &mut TcpStream) -> [Vec<u8>; 2] {
    let (initiator, bytes) = Initiator::new(&parent.identity(), &parent.secret);
    stream.write_all(&bytes).unwrap();
    let mut response = [0; RESPONSE_LEN];
    stream.set_nonblocking(true).unwrap();
    until(|| {
        assert!(parent.turn(0).is_none(), "an initiation alone authenticates no child");
        stream.peek(&mut response).is_ok_and(|len| len == response.len()).then_some(())
    });
    stream.set_nonblocking(false).unwrap();
    stream.read_exact(&mut response).unwrap();
    let mut noise = initiator.finish(&response).unwrap();
    let mut frame = vec![0, HEARTBEAT_LEN as u8 - 2];
    noise.seal(&[0], &mut frame).unwrap();
    assert_eq!(frame.len(), HEARTBEAT_LEN);
    stream.write_all(&frame).unwrap();
    [bytes.to_vec(), frame]
}

#[test]
fn only_the_child_is_authenticated() {
    let mut parent = Parent::new();
    let silent = parent.connect();
    let mut rubbish = parent.connect();
    rubbish.write_all(&[b'G'; 4096]).unwrap();
    let mut half = parent.connect();
    let (_, initiator) = Initiator::new(&parent.identity(), &parent.secret);
    half.write_all(&initiator[..30]).unwrap();
    let mut wrong_secret = parent.connect();
    let (_, bytes) = Initiator::new(&parent.identity(), &Secret::random().unwrap());
    wrong_secret.write_all(&bytes).unwrap();
    let mut wrong_number = parent.connect();
    let (_, bytes) = Initiator::new(&LinkIdentity { child: 6, ..parent.identity() }, &parent.secret);
    wrong_number.write_all(&bytes).unwrap();
    let mut pretender = parent.connect();
    let (_, mut bytes) = Initiator::new(&LinkIdentity { child: 6, ..parent.identity() }, &parent.secret);
    bytes[8..12].copy_from_slice(&CHILD.to_be_bytes());
    pretender.write_all(&bytes).unwrap();
    // The silent and the incomplete connection are open, the others are closed.
    parent.hold(0, 2);
    for stream in [&mut wrong_secret, &mut wrong_number, &mut pretender] {
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
    let mut child = parent.connect();
    join(&mut parent, &mut child);
    assert_eq!(parent.authenticate(0).node, CHILD);
    assert_eq!(parent.incoming.deadline(), Some(HANDSHAKE_TIMEOUT));
    parent.incoming.expire(HANDSHAKE_TIMEOUT);
    for mut stream in [silent, half] {
        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
    }
}

#[test]
fn a_replayed_handshake_is_rejected() {
    let mut parent = Parent::new();
    let mut child = parent.connect();
    let recorded = join(&mut parent, &mut child);
    // The child's last frame has not been read.
    let mut replay = parent.connect();
    replay.write_all(&recorded.concat()).unwrap();
    assert_eq!(parent.authenticate(0).node, CHILD);
    let mut rest = Vec::new();
    until(|| parent.turn(0).is_none().then(|| parent.incoming.oldest().is_none()).filter(|&gone| gone));
    // The connection may be reset, because not all bytes were read.
    let _ = replay.read_to_end(&mut rest);
    assert!(rest.len() <= RESPONSE_LEN);
    parent.expects_child = false;
    let mut again = parent.connect();
    again.write_all(&recorded.concat()).unwrap();
    until(|| {
        assert!(parent.turn(0).is_none());
        (again.read(&mut [0; 8]).is_ok_and(|len| len == 0) || again.take_error().is_ok()).then_some(())
    });
}

#[test]
fn silent_connections_are_replaced() {
    let mut parent = Parent::new();
    let crowd: Vec<TcpStream> = (0..INCOMING_MAX).map(|_| parent.connect()).collect();
    parent.hold(3, INCOMING_MAX);
    let mut child = parent.connect();
    join(&mut parent, &mut child);
    assert_eq!(parent.authenticate(4).node, CHILD);
    assert_eq!(parent.incoming.slots.len(), INCOMING_MAX);
    drop(crowd);
}
