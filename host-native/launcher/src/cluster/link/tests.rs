use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

/// The two ends of a link, over a socket pair.
pub(crate) fn pair() -> (Link, Link) {
    let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let ends = Ends { job: JobKey::random().unwrap(), parent: 0, child: 1 };
    let secret = Secret::random().unwrap();
    let (opening, bytes) = Opening::new(&ends, &secret);
    let (parent, bytes) = answer(&ends, &secret, &bytes).unwrap();
    let child = opening.finish(&bytes).unwrap();
    (Link::new(a, parent, 0), Link::new(b, child, 0))
}

/// All that has come to `link`.
fn received(link: &mut Link) -> Result<Vec<(Channel, Vec<u8>)>, LinkError> {
    let mut all = Vec::new();
    let mut buffer = vec![0; BUFFER];
    while link.receive(1, &mut buffer, |channel, message| all.push((channel, message)))? {}
    Ok(all)
}

#[test]
fn messages_of_all_channels_come_in_order() {
    let (mut a, mut b) = pair();
    a.send(0, Channel::Peer, b"one").unwrap();
    a.send(0, Channel::Link, b"").unwrap();
    a.send(0, Channel::Control, b"two").unwrap();
    assert!(a.is_blocked() && received(&mut b).unwrap().is_empty(), "nothing leaves before it is flushed");
    assert_eq!(a.flush().unwrap(), Sent::All);
    let expected =
        [(Channel::Peer, b"one".to_vec()), (Channel::Link, Vec::new()), (Channel::Control, b"two".to_vec())];
    assert_eq!(received(&mut b).unwrap(), expected);
    b.send(0, Channel::Stream, b"back").unwrap();
    b.flush().unwrap();
    assert_eq!(received(&mut a).unwrap(), [(Channel::Stream, b"back".to_vec())]);
}

#[test]
fn long_messages_are_split_and_joined_while_the_socket_is_full() {
    let (mut a, mut b) = pair();
    let long: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 7 / 3) as u8).collect();
    let edges = [PIECE_MAX - 1, PIECE_MAX, PIECE_MAX + 1, 2 * PIECE_MAX];
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
fn frames_may_come_a_byte_at_a_time() {
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
fn what_is_changed_repeated_or_left_out_is_found_out() {
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
fn the_bound_of_a_message_holds_on_both_sides() {
    let (mut a, mut b) = pair();
    assert!(matches!(a.send(0, Channel::Peer, &vec![0; MESSAGE_MAX + 1]), Err(LinkError::TooLong)));
    assert!(!a.is_blocked());
    b.message = vec![0; MESSAGE_MAX];
    a.send(0, Channel::Peer, b"x").unwrap();
    a.flush().unwrap();
    assert!(matches!(received(&mut b), Err(LinkError::TooLong)));
}

#[test]
fn rubbish_from_an_authentic_end_is_an_error() {
    let (mut a, mut b) = pair();
    a.seal(b"\x07").unwrap();
    a.flush().unwrap();
    assert!(matches!(received(&mut b), Err(LinkError::Malformed)));
    let (mut a, mut b) = pair();
    // Shorter than its own tag.
    a.outbox = vec![0, 3, 1, 2, 3];
    a.flush().unwrap();
    assert!(matches!(received(&mut b), Err(LinkError::Forged)));
}

#[test]
fn what_was_said_before_the_end_is_heard() {
    let (mut a, mut b) = pair();
    a.send(0, Channel::Control, b"last words").unwrap();
    a.flush().unwrap();
    drop(a);
    // That nobody is there is noticed by receiving, not by sending.
    b.send(0, Channel::Control, b"hello?").unwrap();
    assert_eq!(b.flush().unwrap(), Sent::All);
    let mut heard = Vec::new();
    let mut buffer = vec![0; BUFFER];
    assert!(b.receive(1, &mut buffer, |_, message| heard.push(message)).unwrap());
    assert_eq!(heard, [b"last words"]);
    assert!(matches!(received(&mut b), Err(LinkError::Closed)));
}
