//! Replies that are read before they are taken, in every test of this module.

use super::*;

impl Host {
    /// Returns the replies that can be read without taking them.
    pub(super) fn peek(&self) -> Vec<(ConnId, String)> {
        let mut at = Peek::default();
        let mut buf = [0; OUTPUT_MAX];
        let mut replies = Vec::new();
        while let Some((conn, len)) = self.server.peek_reply(&mut at, &mut buf) {
            replies.push((conn, String::from_utf8(buf[..len].to_vec()).unwrap()));
        }
        assert_eq!(self.server.has_output(), at.has_more() || !replies.is_empty());
        replies
    }

    /// Takes the first half of the replies as a host does that reads them before. Returns the others.
    pub(super) fn take_peeked(&mut self) -> VecDeque<(ConnId, String)> {
        let mut replies = VecDeque::from(self.peek());
        let before = self.snapshot();
        assert!(replies == self.peek() && self.snapshot() == before, "reading changes nothing");
        let rest = replies.split_off(replies.len().div_ceil(2));
        for reply in replies {
            assert!(self.server.take_reply());
            self.replies.push_back(reply);
        }
        rest
    }

    /// Adds a reply that was polled. It is the next one that was read before.
    pub(super) fn push_polled(&mut self, reply: (ConnId, String), peeked: &mut VecDeque<(ConnId, String)>) {
        assert!(peeked.pop_front().is_none_or(|peeked| peeked == reply), "{reply:?}");
        self.replies.push_back(reply);
    }
}

#[test]
fn each_connection_has_one_reply_in_its_turn() {
    let mut host = Host::v2(3);
    let message = |body: &str| format!("{:6}{body}", body.len());
    for (conn, body) in [
        (1, "cmd=job-getid;"),
        (0, "cmd=kvs-fence;"),
        (1, "cmd=kvs-put;key=a;value=b;"),
        (2, "cmd=job-getid;"),
    ] {
        let body = message(body);
        let input = Input::Bytes { conn: ConnId(conn), bytes: body.as_bytes(), full: false };
        host.server.handle(host.now, input).unwrap();
    }
    let mut at = Peek::default();
    let mut buf = [0; OUTPUT_MAX];
    let mut conns = Vec::new();
    while let Some((conn, _)) = host.server.peek_reply(&mut at, &mut buf) {
        conns.push(conn.0);
    }
    assert_eq!((conns, at.has_more()), (vec![1, 2], true));
    let mut short = [0; 16];
    let mut at = Peek::default();
    assert_eq!((host.server.peek_reply(&mut at, &mut short), at.has_more()), (None, true));
    // Connection 1 is blocked after the first reply, and the next one is that of connection 2.
    assert!(host.server.take_reply());
    host.server.handle(host.now, Input::Blocked { conn: ConnId(1) }).unwrap();
    assert_eq!(host.peek().iter().map(|(conn, _)| conn.0).collect::<Vec<_>>(), [2]);
    assert!(host.server.take_reply() && !host.server.take_reply());
}
