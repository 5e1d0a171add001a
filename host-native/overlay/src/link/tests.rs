//! Tests of a link over a socket pair.

use hydrant_noise::KeyExchange;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

/// Both ends of a link over a socket pair.
pub(crate) fn pair() -> (Link, Link) {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let identity = LinkIdentity {
        overlay: OverlayId::random().unwrap(),
        parent: 0,
        child: 1,
        exchange: KeyExchange::Psk,
    };
    let secret = Secret::random().unwrap();
    let (initiator, bytes) = Initiator::new(&identity, &secret);
    let (parent, bytes) = respond(&identity, &secret, &bytes).unwrap();
    let child = initiator.finish(&bytes).unwrap();
    (Link::new(a, parent, 0), Link::new(b, child, 0))
}

/// Both ends of a link that a forked process has inherited.
fn inherited_pair() -> (Link, Link) {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    (Link::inherited(a, 0), Link::inherited(b, 0))
}

/// All messages that `link` has received.
fn received(link: &mut Link) -> Result<Vec<(Channel, Vec<u8>)>, LinkError> {
    let mut all = Vec::new();
    let mut buffer = vec![0; RECEIVE_BUFFER_MIN];
    while link.receive(1, &mut buffer, |channel, message| all.push((channel, message)))? {}
    Ok(all)
}

#[test]
fn messages_of_all_channels_arrive_in_order() {
    carries_messages_in_order(pair());
    carries_messages_in_order(inherited_pair());
}

fn carries_messages_in_order((mut a, mut b): (Link, Link)) {
    a.send(0, Channel::Peer, b"one").unwrap();
    a.send(0, Channel::Link, b"").unwrap();
    a.send(0, Channel::Control, b"two").unwrap();
    assert!(a.is_blocked() && received(&mut b).unwrap().is_empty(), "nothing is written before the flush");
    assert_eq!(a.flush().unwrap(), Sent::All);
    let expected =
        [(Channel::Peer, b"one".to_vec()), (Channel::Link, Vec::new()), (Channel::Control, b"two".to_vec())];
    assert_eq!(received(&mut b).unwrap(), expected);
    b.send(0, Channel::Stream, b"back").unwrap();
    b.flush().unwrap();
    assert_eq!(received(&mut a).unwrap(), [(Channel::Stream, b"back".to_vec())]);
}

#[test]
fn long_messages_are_fragmented_while_the_socket_is_full() {
    carries_long_messages(pair());
    carries_long_messages(inherited_pair());
}

fn carries_long_messages((mut a, mut b): (Link, Link)) {
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let edges = [FRAGMENT_MAX - 1, FRAGMENT_MAX, FRAGMENT_MAX + 1, 2 * FRAGMENT_MAX];
    a.send(0, Channel::Peer, &long).unwrap();
    for len in edges {
        a.send(0, Channel::Stream, &long[..len]).unwrap();
    }
    assert_eq!(a.flush().unwrap(), Sent::Blocked);
    assert!(a.queued() > 1_000_000);
    let mut all = Vec::new();
    while all.len() < 1 + edges.len() {
        all.extend(received(&mut b).unwrap());
        a.flush().unwrap();
    }
    assert!(!a.is_blocked());
    assert!(all[0] == (Channel::Peer, long.clone()));
    for ((channel, message), len) in all[1..].iter().zip(edges) {
        assert!(*channel == Channel::Stream && message[..] == long[..len], "{len}");
    }
}

#[test]
fn frames_may_arrive_byte_by_byte() {
    let (mut a, mut b) = pair();
    a.send(0, Channel::Control, b"slow").unwrap();
    let frame = std::mem::take(&mut a.outbox);
    for (at, byte) in frame.iter().enumerate() {
        send(&a.fd, &[*byte], SendFlags::empty()).unwrap();
        let all = received(&mut b).unwrap();
        assert_eq!(all.len(), usize::from(at + 1 == frame.len()));
    }
}

#[test]
fn only_an_authentic_frame_is_a_sign_of_life() {
    let (mut a, mut b) = pair();
    let mut buffer = vec![0; RECEIVE_BUFFER_MIN];
    a.send(0, Channel::Link, b"").unwrap();
    let (begin, end) = a.outbox.split_at(5);
    send(&a.fd, begin, SendFlags::empty()).unwrap();
    assert!(b.receive(7, &mut buffer, |_, _| {}).unwrap());
    assert_eq!(b.last_received(), 0, "half a frame");
    send(&a.fd, end, SendFlags::empty()).unwrap();
    assert!(b.receive(8, &mut buffer, |_, _| {}).unwrap());
    assert_eq!(b.last_received(), 8);
    // A whole frame of somebody who has no secret.
    send(&a.fd, &[&[0, 17][..], &[0; 17]].concat(), SendFlags::empty()).unwrap();
    assert!(matches!(b.receive(9, &mut buffer, |_, _| {}), Err(LinkError::Forged)));
    assert_eq!(b.last_received(), 8);
}

#[test]
fn changed_repeated_and_missing_frames_are_detected() {
    for tamper in [0, 1, 2] {
        let (mut a, mut b) = pair();
        a.send(0, Channel::Control, b"first").unwrap();
        let first = a.outbox.clone();
        a.send(0, Channel::Control, b"second").unwrap();
        match tamper {
            0 => *a.outbox.last_mut().unwrap() ^= 1,
            1 => a.outbox.splice(first.len().., first).for_each(drop),
            _ => drop(a.outbox.drain(..first.len())),
        }
        a.flush().unwrap();
        assert!(matches!(received(&mut b), Err(LinkError::Forged)), "{tamper}");
    }
}

#[test]
fn both_ends_enforce_the_maximum_message_size() {
    let (mut a, mut b) = pair();
    assert!(matches!(a.send(0, Channel::Peer, &vec![0; MESSAGE_MAX + 1]), Err(LinkError::TooLong)));
    assert!(!a.is_blocked());
    b.message = vec![0; MESSAGE_MAX];
    a.send(0, Channel::Peer, b"x").unwrap();
    a.flush().unwrap();
    assert!(matches!(received(&mut b), Err(LinkError::TooLong)));
}

#[test]
fn invalid_messages_of_an_authentic_end_are_errors() {
    let (mut a, mut b) = pair();
    a.seal(b"\x07").unwrap();
    a.flush().unwrap();
    assert!(matches!(received(&mut b), Err(LinkError::Malformed)));
    // Without an encryption, an unknown channel and a frame without a channel.
    for frame in [&b"\0\x01\x07"[..], b"\0\0"] {
        let (mut a, mut b) = inherited_pair();
        a.outbox = frame.to_vec();
        a.flush().unwrap();
        assert!(matches!(received(&mut b), Err(LinkError::Malformed)));
    }
    let (mut a, mut b) = pair();
    // Shorter than its own tag.
    a.outbox = vec![0, 3, 1, 2, 3];
    a.flush().unwrap();
    assert!(matches!(received(&mut b), Err(LinkError::Forged)));
}

#[test]
fn messages_before_the_close_are_received() {
    let (mut a, mut b) = pair();
    a.send(0, Channel::Control, b"last words").unwrap();
    a.flush().unwrap();
    drop(a);
    // Only receiving reports the close, not sending.
    b.send(0, Channel::Control, b"hello?").unwrap();
    assert_eq!(b.flush().unwrap(), Sent::All);
    let mut messages = Vec::new();
    let mut buffer = vec![0; RECEIVE_BUFFER_MIN];
    assert!(b.receive(1, &mut buffer, |_, message| messages.push(message)).unwrap());
    assert_eq!(messages, [b"last words"]);
    assert!(matches!(received(&mut b), Err(LinkError::Closed)));
}
