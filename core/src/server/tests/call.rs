//! Calls of a server, whose results and outputs are those of a server that is polled.

use super::*;
use crate::manage::BadRecord;
use crate::server::call::{BYTES_MAX, Call, Callee, Return, call_max, return_max, take};
use crate::server::remote::{NODE_PREFIX, encode_node_record, next_node_record};

const LIMITS: Limits = Limits { links: 3, ..SMALL };

/// A server that is called, and one that is polled. Both get the same inputs.
struct Pair {
    called: Server<'static>,
    callee: Callee,
    polled: Server<'static>,
    /// Buffer for returns.
    buf: Vec<u8>,
    /// Outputs of the last return, whether each is offered, and how many of the offered ones have been taken.
    outputs: VecDeque<(String, bool)>,
    taken: u32,
    more: bool,
    calls: u32,
}

impl Pair {
    fn new(buf: usize) -> Pair {
        let server = || Server::new(LIMITS, storage(&LIMITS), SEED).unwrap();
        Pair {
            called: server(),
            callee: Callee::default(),
            polled: server(),
            buf: vec![0; buf],
            outputs: VecDeque::new(),
            taken: 0,
            more: false,
            calls: 0,
        }
    }

    fn call(&mut self, call: &Call<'_>) -> Result<Consumed, Fault> {
        let mut sent = vec![0; NODE_PREFIX + call_max(&LIMITS, BYTES_MAX)];
        let sent = encode_node_record(call, &mut sent).unwrap();
        assert_eq!(take::<Call<'_>>(&sent[NODE_PREFIX..]), Ok((*call, &[][..])));
        let mut scratch = vec![0; LIMITS.output_room()];
        let record = self.callee.carry_out(&mut self.called, call, &mut self.buf, &mut scratch).unwrap();
        let (record, _) = next_node_record(record, return_max(&LIMITS)).unwrap().unwrap();
        let (returned, mut rest) = take::<Return>(record).unwrap();
        self.outputs.clear();
        for left in (1..=returned.outputs).rev() {
            let (output, behind) = take::<Output<'_>>(rest).unwrap();
            self.outputs.push_back((format!("{output:?}"), left <= returned.offered));
            rest = behind;
        }
        assert_eq!(rest, []);
        (self.taken, self.more) = (0, returned.more);
        self.calls += 1;
        returned.result
    }

    fn handle(&mut self, input: Input<'_>) -> Result<Consumed, Fault> {
        let now = Time(5);
        let call = Call::Handle { taken: self.taken, now, input };
        let result = self.call(&call);
        assert_eq!(result, self.polled.handle(now, input), "{input:?}");
        assert_eq!(self.called.poll_at(), self.polled.poll_at());
        result
    }

    fn says(&mut self, conn: u32, body: &str) {
        let bytes = format!("{:6}{body}", body.len());
        let input = Input::Bytes { conn: ConnId(conn), bytes: bytes.as_bytes(), full: false };
        self.handle(input).unwrap();
    }

    fn poll(&mut self) -> Option<String> {
        if self.outputs.is_empty() && self.more {
            let _ = self.call(&Call::Poll { taken: self.taken });
        }
        let output = self.outputs.pop_front();
        self.taken += u32::from(matches!(output, Some((_, true))));
        let mut buf = vec![0; LIMITS.output_room()];
        let polled = self.polled.poll(&mut buf).unwrap().map(|output| format!("{output:?}"));
        let output = output.map(|(output, _)| output);
        assert_eq!(output, polled);
        output
    }

    fn drain(&mut self) -> usize {
        std::iter::from_fn(|| self.poll()).count()
    }

    /// A job of three ranks on this node and one on another.
    fn begin(buf: usize) -> Pair {
        let mut pair = Pair::new(buf);
        pair.handle(Input::Node { node: 1, nodes: 3, radix: 2 }).unwrap();
        pair.handle(Input::RegisterJob(spec(4))).unwrap();
        pair.handle(Input::MapRanks { job: JOB, first: Rank(0), count: 3, node: 1 }).unwrap();
        pair.handle(Input::MapRanks { job: JOB, first: Rank(3), count: 1, node: 2 }).unwrap();
        for rank in 0..3 {
            let conn = ConnId(rank);
            pair.handle(Input::Opened { conn, job: JOB, rank: Some(Rank(rank)) }).unwrap();
            let init = b"cmd=init pmi_version=2 pmi_subversion=0\n";
            pair.handle(Input::Bytes { conn, bytes: init, full: false }).unwrap();
            pair.says(rank, &format!("cmd=fullinit;pmirank={rank};"));
        }
        // Two replies each, and that the rank has joined.
        assert_eq!(pair.drain(), 9);
        pair
    }
}

#[test]
fn a_called_server_has_the_outputs_of_one_that_is_polled() {
    for buf in [Callee::buffer_min(&LIMITS), return_max(&LIMITS)] {
        let mut pair = Pair::begin(buf);
        let before = pair.calls;
        pair.says(0, "cmd=kvs-put;key=a;value=b;");
        assert_eq!((pair.drain(), pair.calls - before), (1, 1), "a put is one round trip");
        for conn in [2, 0, 1] {
            pair.says(conn, "cmd=job-getid;");
        }
        // Replies that the host has not taken are withdrawn: another connection is blocked after the first one.
        let first = pair.poll().unwrap();
        let conn = (0..3).map(ConnId).find(|conn| !first.contains(&format!("{conn:?}"))).unwrap();
        pair.handle(Input::Blocked { conn }).unwrap();
        assert_eq!(pair.drain(), 1);
        pair.handle(Input::Writable { conn }).unwrap();
        assert_eq!(pair.drain(), 1);
        for conn in 0..3 {
            pair.says(conn, "cmd=kvs-fence;");
        }
        assert!(pair.poll().unwrap().starts_with("Peer"));
        pair.handle(Input::PeerBlocked { node: 0 }).unwrap();
        assert_eq!(pair.drain(), 0);
        let unknown = Input::Exited { job: JobId(9), rank: Rank(0), exit: Exit::Lost };
        assert_eq!(pair.handle(unknown), Err(Fault::NoSuchJob));
        pair.handle(Input::Exited { job: JOB, rank: Rank(1), exit: Exit::Code(3) }).unwrap();
        assert!(pair.poll().unwrap().starts_with("AbortJob"));
        pair.drain();
    }
}

#[test]
fn a_host_takes_only_what_it_was_offered() {
    let mut pair = Pair::begin(return_max(&LIMITS));
    pair.says(0, "cmd=job-getid;");
    let Pair { mut callee, mut called, mut buf, .. } = pair;
    let mut scratch = vec![0; LIMITS.output_room()];
    let refused = callee.carry_out(&mut called, &Call::Poll { taken: 2 }, &mut buf, &mut scratch);
    assert_eq!(refused, Err(BadRecord::Malformed));
    let again = callee.carry_out(&mut called, &Call::Poll { taken: 1 }, &mut buf, &mut scratch);
    assert_eq!(again, Err(BadRecord::Malformed), "nothing is offered behind an error");
    buf.truncate(99);
    let short = callee.carry_out(&mut called, &Call::Poll { taken: 0 }, &mut buf, &mut scratch);
    assert_eq!(short, Err(BadRecord::TooLong));
}
