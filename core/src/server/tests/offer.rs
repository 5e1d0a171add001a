//! Replies that the server takes for a host.

use super::*;
use proptest::prelude::*;

/// Host that has the server answer and offer, beside one that polls.
struct Pair {
    offering: Server<'static>,
    polling: Server<'static>,
    offered: Offered,
    /// Replies of the offer.
    replies: Vec<(ConnId, Vec<u8>)>,
}

/// Requests in their frequent form and in others.
const REQUESTS: [&str; 17] = [
    "cmd=put kvsname=kvs_1 key=K value=V",
    "cmd=put key=K value=V W",
    r"cmd=put kvsname=kvs_1 key=K value=a\ b",
    "cmd=put kvsname=other key=K value=V",
    "cmd=get kvsname=kvs_1 key=K",
    "cmd=get kvsname=kvs_1 key=K",
    "cmd=barrier_in",
    "cmd=barrier_in",
    "cmd=get_maxes",
    "cmd=kvs-put;key=K;value=V;",
    "cmd=kvs-put;key=K;value=a;;b;",
    "cmd=kvs-get;jobid=kvs_1;key=K;",
    "cmd=kvs-get;thrid=7;key=K;",
    "cmd=kvs-fence;",
    "cmd=put kvsname=kvs_1 key=K value=VVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVVV",
    "cmd=put kvsname=kvs_1 key=KKKKKKKKKKKKKKKKKKKKKKKKK value=V",
    "cmd=get kvsname=kvs_1 key=KKKKKKKKKKKKKKKKKKKKKKKKK",
];

impl Pair {
    /// Creates servers with a job of four ranks: two speak PMI-1 and two PMI-2.
    fn new() -> Pair {
        let server = || {
            let mut host = Host::with_limits(SMALL);
            host.job(spec(4));
            for rank in 0..4 {
                host.open(rank, Some(rank));
            }
            for rank in 0..2 {
                host.says(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
                host.replies.pop_front().unwrap();
            }
            for rank in 2..4 {
                host.join_v2(rank, &format!("pmirank={rank};"));
            }
            host.server
        };
        Pair { offering: server(), polling: server(), offered: Offered::new(), replies: Vec::new() }
    }

    /// Passes bytes to both servers, as the plugin does.
    fn hand_in(&mut self, conn: u32, bytes: &[u8]) {
        let (now, conn, mut buf) = (Time(0), ConnId(conn), [0; OUTPUT_MAX]);
        let input = Input::Bytes { conn, bytes, full: false };
        let polled = self.polling.handle(now, input).unwrap();
        let answered = crate::wire::frequent_op(bytes).and_then(|op| match op {
            crate::wire::Op::Fence => {
                self.offering.answer_fence(now, (conn, bytes), &mut self.offered).map(|()| 0)
            }
            op => self.offering.answer(op, (conn, bytes), &mut self.offered, &mut buf),
        });
        let consumed = match answered {
            Some(len) => {
                if len > 0 {
                    self.replies.push((conn, buf[..len].to_vec()));
                }
                Consumed { bytes: bytes.len() as u32, again: false }
            }
            None => {
                assert!(self.offering.settle(&mut self.offered, 0));
                self.offering.handle(now, input).unwrap()
            }
        };
        if self.offered.is_empty() {
            self.replies.clear();
        }
        assert_eq!(consumed, polled);
        assert_eq!(self.offered.len() as usize, self.replies.len());
    }

    /// Has the server offer pending replies. Takes some of all, and as many of the other server. Both are then the same.
    fn take(&mut self, most: u32) {
        let mut buf = vec![0; 3 * OUTPUT_MAX];
        if !self.offering.has_event() {
            let begin = |head: &mut [u8; 3], conn: ConnId, len: usize| {
                let [high, low] = (len as u16).to_be_bytes();
                *head = [conn.0 as u8, high, low];
            };
            let (replies, len) = self.offering.offer_replies(&mut self.offered, &mut buf, begin);
            let (before, mut rest) = (self.replies.len(), &buf[..len]);
            while let [conn, high, low, reply @ ..] = rest {
                let (reply, behind) = reply.split_at(usize::from(u16::from_be_bytes([*high, *low])));
                self.replies.push((ConnId(u32::from(*conn)), reply.to_vec()));
                rest = behind;
            }
            assert_eq!(self.replies.len() - before, replies as usize);
        }
        let mut buf = [0; OUTPUT_MAX];
        let taken = most.min(self.offered.len());
        assert!(self.offering.settle(&mut self.offered, taken));
        for (conn, bytes) in self.replies.drain(..).take(taken as usize) {
            assert_eq!(self.polling.poll(&mut buf).unwrap(), Some(Output::Bytes { conn, bytes: &bytes }));
        }
        let [one, other] = [&self.offering, &self.polling].map(|server| {
            let mut saved = vec![0; server.snapshot_len()];
            server.snapshot(&mut saved).unwrap();
            saved
        });
        assert!(one == other, "the servers differ");
    }

    /// Takes one output of each server, which is not offered.
    fn poll(&mut self) {
        let (mut one, mut other) = ([0; OUTPUT_MAX], [0; OUTPUT_MAX]);
        assert_eq!(self.offering.poll(&mut one).unwrap(), self.polling.poll(&mut other).unwrap());
    }
}

/// Returns a request in the framing of its protocol.
fn message(request: usize, key: u8, value: u8) -> Vec<u8> {
    let value = ["", "b", "b c", "1234567890123456"][usize::from(value % 4)];
    let body = REQUESTS[request].replace('K', &format!("key_{key}")).replace('V', value);
    let message = if body.ends_with(';') { format!("{:6}{body}", body.len()) } else { body + "\n" };
    message.into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn offers_are_the_outputs_of_a_server_that_is_polled(
        calls in prop::collection::vec(
            (prop::collection::vec((0u32..4, 0..REQUESTS.len(), 0u8..3, 0u8..4), 0..6), 0u32..6, any::<bool>(), 0u32..12),
            1..24,
        ),
    ) {
        let mut pair = Pair::new();
        for (requests, most, polls, blocked) in calls {
            for (conn, request, key, value) in requests {
                pair.hand_in(conn, &message(request, key, value));
            }
            pair.take(most);
            if polls {
                pair.poll();
            }
            let conn = ConnId(blocked % 4);
            let input = match blocked {
                0..4 => Input::Blocked { conn },
                4..8 => Input::Writable { conn },
                _ => continue,
            };
            pair.offering.handle(Time(0), input).unwrap();
            pair.polling.handle(Time(0), input).unwrap();
        }
    }
}

#[test]
fn one_request_of_each_rank_is_answered_at_once() {
    let mut pair = Pair::new();
    for (conn, request) in [(0, 0), (1, 0), (2, 9), (3, 9), (0, 4), (1, 4), (2, 11), (3, 11)] {
        pair.hand_in(conn, &message(request, conn as u8, 3));
        assert_eq!(pair.offered.len(), conn + 1);
        if conn == 3 {
            pair.take(u32::MAX);
        }
    }
    assert!(!pair.offering.has_output());
}

#[test]
fn another_request_withdraws_the_replies_before_it() {
    let mut pair = Pair::new();
    pair.hand_in(0, &message(0, 0, 1));
    pair.hand_in(1, &message(0, 1, 1));
    assert_eq!(pair.offered.len(), 2);
    pair.hand_in(2, &message(13, 0, 0));
    assert_eq!(pair.offered.len(), 0);
    pair.hand_in(3, &message(9, 0, 0));
    assert_eq!(pair.offered.len(), 0, "others are pending");
    pair.take(u32::MAX);
    // A connection before that of the last reply is not behind it.
    pair.hand_in(1, &message(0, 0, 1));
    pair.hand_in(0, &message(0, 0, 1));
    assert_eq!(pair.offered.len(), 0);
    pair.take(1);
    pair.take(1);
    pair.hand_in(3, &message(11, 0, 0));
    assert!(!pair.offering.settle(&mut pair.offered, 2), "more than there are");
    pair.replies.clear();
    pair.take(1);
}
