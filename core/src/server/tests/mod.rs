//! Tests of the server by its inputs and outputs.

mod again;
mod call;
mod cluster;
mod dynamic;
#[cfg(feature = "cluster")]
mod echo;
#[cfg(feature = "pmix")]
mod events;
#[cfg(feature = "cluster")]
mod lazy;
mod lost;
#[cfg(feature = "cluster")]
mod membership;
mod names;
mod nodes;
mod peek;
#[cfg(feature = "pmix")]
mod pmix;
mod query;
#[cfg(feature = "cluster")]
mod reclaim;
mod restore;
mod shared;

use core::sync::atomic::{AtomicU32, Ordering};
use std::boxed::Box;
use std::collections::VecDeque;
use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::limits::OUTPUT_MAX;
use crate::storage::{OwnedStorage, Storage};
use crate::trace::{Cause, Closing, Exit};

const JOB: JobId = JobId(0);

const SMALL: Limits = Limits {
    jobs: 1,
    ranks: 4,
    conns: 6,
    keys: 32,
    kvs_bytes: 4096,
    groups: 2,
    names: 2,
    spawns: 2,
    spawn_bytes: 512,
    psets: 3,
    links: 0,
    commit_bytes: 0,
};

/// Hash seed of every server here.
const SEED: u32 = 7;

/// Allocates storage for these limits that is never freed. The index is not empty, because [`Server::new`] clears it.
fn storage(limits: &Limits) -> Storage<'static> {
    let storage = Box::leak(Box::new(OwnedStorage::new(limits))).lend();
    storage.bulk.index.iter().for_each(|slot| slot.store(9, Ordering::Relaxed));
    storage
}

/// Server with its outputs.
struct Host {
    server: Server<'static>,
    /// Index of its log, for readers of shared memory.
    index: &'static [AtomicU32],
    now: Time,
    replies: VecDeque<(ConnId, String)>,
    events: Vec<String>,
    /// Messages for neighbours that have not been sent.
    messages: VecDeque<(u32, Vec<u8>)>,
}

impl Host {
    fn with_limits(limits: Limits) -> Host {
        let storage = storage(&limits);
        let index = storage.bulk.index;
        let server = Server::new(limits, storage, SEED).unwrap();
        let (replies, events, messages) = (VecDeque::new(), Vec::new(), VecDeque::new());
        Host { server, index, now: Time(0), replies, events, messages }
    }

    /// Registers a job of `size` ranks on connections with the same numbers.
    fn new(size: u32) -> Host {
        let mut host = Host::with_limits(SMALL);
        host.job(spec(size));
        for rank in 0..size {
            host.open(rank, Some(rank));
        }
        host
    }

    /// Does the same, with each rank after PMI-2's handshake.
    fn v2(size: u32) -> Host {
        let mut host = Host::new(size);
        (0..size).for_each(|rank| host.join_v2(rank, &format!("pmirank={rank};")));
        host
    }

    fn join_v2(&mut self, conn: u32, fields: &str) {
        self.says(conn, "cmd=init pmi_version=2 pmi_subversion=0\n");
        self.gets_line(conn, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
        self.asks(conn, &format!("cmd=fullinit;{fields}"));
        let (_, reply) = self.replies.pop_front().unwrap();
        assert!(reply.contains("cmd=fullinit-response;rc=0;"), "{reply}");
    }

    fn job(&mut self, spec: JobSpec<'_>) {
        self.tell(Input::RegisterJob(spec));
    }

    fn open(&mut self, conn: u32, rank: Option<u32>) {
        self.tell(Input::Opened { conn: ConnId(conn), job: JOB, rank: rank.map(Rank) });
    }

    fn tell(&mut self, input: Input<'_>) -> Consumed {
        let consumed = self.server.handle(self.now, input).unwrap();
        let mut peeked = self.take_peeked();
        let mut buf = [0; OUTPUT_MAX];
        while let Some(output) = self.server.poll(&mut buf).unwrap() {
            match output {
                Output::Bytes { conn, bytes } => {
                    let reply = (conn, String::from_utf8(bytes.to_vec()).unwrap());
                    self.push_polled(reply, &mut peeked);
                }
                Output::Joined { .. } => {}
                Output::Peer { node, bytes } => self.messages.push_back((node, bytes.to_vec())),
                other => self.events.push(format!("{other:?}")),
            }
        }
        consumed
    }

    fn says(&mut self, conn: u32, bytes: &str) -> Consumed {
        self.tell(Input::Bytes { conn: ConnId(conn), bytes: bytes.as_bytes(), full: false })
    }

    /// Sends a PMI-2 request.
    fn asks(&mut self, conn: u32, body: &str) -> Consumed {
        let consumed = self.says(conn, &format!("{:6}{body}", body.len()));
        assert_eq!(consumed.bytes as usize, body.len() + 6);
        consumed
    }

    fn gets_line(&mut self, conn: u32, reply: &str) {
        assert_eq!(self.replies.pop_front(), Some((ConnId(conn), reply.into())));
    }

    /// Expects a PMI-2 reply.
    fn gets(&mut self, conn: u32, body: &str) {
        self.gets_line(conn, &format!("{:6}{body}", body.len()));
    }

    fn silent(&self) {
        assert_eq!((self.replies.is_empty(), self.events.len()), (true, 0), "{:?}", self.events);
    }

    fn exits(&mut self, rank: u32, exit: Exit) {
        self.tell(Input::Exited { job: JOB, rank: Rank(rank), exit });
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut buf = vec![0; 1 << 18];
        self.server.snapshot(&mut buf).unwrap().to_vec()
    }
}

fn spec(size: u32) -> JobSpec<'static> {
    JobSpec { universe_size: Some(9), fence_warning: 1000, ..JobSpec::new(JOB, "kvs_1", size) }
}

#[test]
fn a_fence_releases_all_ranks_once_all_have_arrived() {
    let mut host = Host::v2(3);
    for rank in 0..3 {
        host.asks(rank, &format!("cmd=kvs-put;key=k{rank};value=v{rank};"));
        host.gets(rank, "cmd=kvs-put-response;rc=0;");
    }
    host.asks(1, "cmd=kvs-fence;");
    host.asks(0, "cmd=kvs-fence;");
    host.silent();
    host.asks(2, "cmd=kvs-fence;");
    let mut released: Vec<u32> = host.replies.drain(..).map(|(conn, _)| conn.0).collect();
    released.sort_unstable();
    assert_eq!(released, [0, 1, 2]);
    host.asks(0, "cmd=kvs-get;jobid=kvs_1;srcid=2;key=k2;");
    host.gets(0, "cmd=kvs-get-response;rc=0;found=TRUE;value=v2;");
    host.asks(0, "cmd=kvs-get;key=-NONEXIST-KEY;");
    host.gets(0, "cmd=kvs-get-response;rc=0;found=FALSE;");
}

#[test]
fn one_rank_counts_once_per_fence() {
    let mut host = Host::v2(2);
    host.asks(0, "cmd=kvs-fence;thrid=a;");
    host.asks(0, "cmd=kvs-fence;thrid=b;");
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(reply.contains("thrid=b;rc=14;errmsg="), "{reply}");
    host.asks(1, "cmd=kvs-fence;");
    host.gets(1, "cmd=kvs-fence-response;rc=0;");
    host.gets(0, "cmd=kvs-fence-response;thrid=a;rc=0;");
}

#[test]
fn a_waiting_get_is_answered_by_the_put() {
    let mut host = Host::v2(3);
    host.asks(0, "cmd=info-getnodeattr;key=seg;wait=TRUE;");
    host.asks(1, "cmd=info-getnodeattr;key=seg;wait=FALSE;");
    host.gets(1, "cmd=info-getnodeattr-response;rc=0;found=FALSE;");
    host.asks(1, "cmd=info-getnodeattr;key=seg;wait=TRUE;");
    host.silent();
    host.asks(2, "cmd=info-putnodeattr;key=seg;value=a;;b;");
    host.replies.make_contiguous().sort_by_key(|(conn, _)| conn.0);
    host.gets(0, "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=a;;b;");
    host.gets(1, "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=a;;b;");
    host.gets(2, "cmd=info-putnodeattr-response;rc=0;");
}

#[test]
fn pmi1_reads_job_attributes_as_keys() {
    let mut host = Host::with_limits(SMALL);
    host.job(spec(1));
    let (key, value) = (&b"PMI_process_mapping"[..], &b"(vector,(0,1,1))"[..]);
    host.tell(Input::Attr { job: JOB, key, value });
    host.tell(Input::Program { job: JOB, first: Rank(0), count: 1, appnum: 3 });
    host.open(0, Some(0));
    for (line, reply) in [
        ("init pmi_version=1 pmi_subversion=1", "response_to_init rc=0 pmi_version=1 pmi_subversion=2"),
        ("get_maxes", "maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ("get_appnum", "appnum rc=0 appnum=3"),
        ("get_universe_size", "universe_size rc=0 size=9"),
        ("get_my_kvsname", "my_kvsname rc=0 kvsname=kvs_1"),
        ("get kvsname=kvs_1 key=PMI_process_mapping", "get_result rc=0 value=(vector,(0,1,1))"),
        ("get kvsname=kvs_1 key=universeSize", "get_result rc=0 value=9"),
        ("put kvsname=kvs_1 key=a value=b c", "put_result rc=0"),
        ("get kvsname=kvs_1 key=a", "get_result rc=0 value=b c"),
        ("barrier_in", "barrier_out rc=0"),
        ("barrier_in group=0:5", "barrier_out rc=0 tag=5"),
        ("finalize", "finalize_ack rc=0"),
    ] {
        host.says(0, &format!("cmd={line}\n"));
        host.gets_line(0, &format!("cmd={reply}\n"));
    }
}

#[test]
fn group_barriers_overlap() {
    let mut host = Host::new(3);
    for rank in 0..3 {
        host.says(rank, "cmd=init pmi_version=1 pmi_subversion=1\n");
    }
    host.replies.clear();
    host.says(0, "cmd=barrier_in group=0,1:0\n");
    host.says(1, "cmd=barrier_in group=WORLD:7\n");
    host.says(1, "cmd=barrier_in group=0,1:0\n");
    host.replies.make_contiguous().sort_by_key(|(conn, _)| conn.0);
    host.gets_line(0, "cmd=barrier_out rc=0 tag=0\n");
    host.gets_line(1, "cmd=barrier_out rc=0 tag=0\n");
    host.says(0, "cmd=barrier_in group=WORLD:7\n");
    host.silent();
    host.says(2, "cmd=barrier_in group=WORLD:7\n");
    assert_eq!(host.replies.len(), 3);
}

#[test]
fn bytes_may_come_in_any_split_and_replies_keep_their_order() {
    let mut host = Host::v2(1);
    let message = "    24cmd=kvs-put;key=;value=;    14cmd=job-getid;    31cmd=kvs-get;key=unpublished-k1;";
    for end in 0..message.len() {
        assert_eq!(
            host.says(0, &message[..end]).bytes,
            match end {
                0..30 => 0,
                30..50 => 30,
                _ => 50,
            }
        );
        if end >= 30 {
            let (_, reply) = host.replies.pop_front().unwrap();
            assert!(reply.contains("cmd=kvs-put-response;rc=4;errmsg="), "{reply}");
        }
        if end >= 50 {
            host.gets(0, "cmd=job-getid-response;rc=0;jobid=kvs_1;");
        }
    }
}

/// Spawn-sized messages: the limit is a message's, and not that of the bytes read at once.
#[test]
fn long_messages_that_arrive_together_are_served() {
    let message = |key: &str| {
        let body = format!("cmd=kvs-put;key={key};value={};", "x".repeat(40_000));
        format!("{:6}{body}", body.len())
    };
    let both = [message("a"), message("b")].concat();
    let mut host = Host::v2(1);
    // The host's buffer has the length of the longest message and is full.
    let (read, rest) = both.split_at(crate::limits::MESSAGE_MAX as usize);
    let consumed =
        host.tell(Input::Bytes { conn: ConnId(0), bytes: read.as_bytes(), full: true }).bytes as usize;
    assert_eq!(consumed, message("a").len());
    let rest = format!("{}{rest}", &read[consumed..]);
    assert_eq!(host.says(0, &rest).bytes as usize, rest.len());
    assert!(host.events.is_empty() && host.replies.len() == 2, "{:?}", host.events);
    // An incomplete message that fills the buffer is too long for it.
    host.tell(Input::Bytes { conn: ConnId(0), bytes: &read.as_bytes()[..5000], full: true });
    assert!(host.events.iter().any(|event| event.contains("TooLong")), "{:?}", host.events);
}

// Fault: A rank repeats requests that a full table refuses
// Outcome: the limit is printed once
// Guarantee: One line per job and limit
#[test]
fn a_limit_is_reported_once_per_job() {
    let mut host = Host::v2(1);
    let value = "x".repeat(1000);
    for key in 0..9 {
        host.asks(0, &format!("cmd=kvs-put;key={key};value={value};"));
        host.replies.clear();
    }
    assert_eq!(host.server.take_limit_hit(), Some(Limit::KvsBytes));
    host.asks(0, &format!("cmd=kvs-put;key=a;value={value};"));
    assert!(host.replies.pop_front().is_some_and(|(_, reply)| reply.contains("rc=2;")));
    assert_eq!(host.server.take_limit_hit(), None);
    host.tell(Input::DeregisterJob { job: JOB });
    host.tell(Input::Closed { conn: ConnId(0) });
    host.job(spec(1));
    host.open(0, Some(0));
    host.join_v2(0, "");
    for key in 0..9 {
        host.asks(0, &format!("cmd=kvs-put;key={key};value={value};"));
        host.replies.clear();
    }
    assert_eq!(host.server.take_limit_hit(), Some(Limit::KvsBytes), "another job");
}

#[test]
fn a_crowded_connection_waits_for_its_replies() {
    let mut host = Host::v2(2);
    let get = "    41cmd=info-getnodeattr;key=never;wait=TRUE;";
    let consumed = host.says(0, &get.repeat(5));
    assert_eq!(consumed, Consumed { bytes: 4 * get.len() as u32, again: true });
    host.asks(0, "cmd=abort;exitcode=3;message=out of patience;");
    assert_eq!(host.events.len(), 1);
    assert!(host.events[0].contains("code: Some(3)") && host.events[0].contains("out of patience"));
}

#[test]
fn clients_by_port_are_let_in_once() {
    let mut host = Host::with_limits(SMALL);
    host.job(spec(2));
    for conn in 0..3 {
        host.open(conn, None);
    }
    host.says(0, "cmd=initack pmiid=1\n");
    host.gets_line(
        0,
        "cmd=initack rc=0 rank=1 size=2 appnum=0 debug=0\ncmd=set size=2\ncmd=set rank=1\ncmd=set debug=0\n",
    );
    host.says(0, "cmd=init pmi_version=1 pmi_subversion=1\n");
    host.replies.clear();
    host.join_v2(1, "srcid=0;threaded=FALSE;");
    for (conn, line) in
        [(2, "cmd=initack pmiid=1\n"), (3, "cmd=initack pmiid=2\n"), (4, "GET / HTTP/1.1\r\n")]
    {
        host.tell(Input::Opened { conn: ConnId(5), job: JOB, rank: None });
        host.says(5, line);
        assert_eq!(host.events.pop().map(|event| event.contains("Close")), Some(true), "{conn}");
        host.tell(Input::Closed { conn: ConnId(5) });
        host.replies.clear();
    }
    host.asks(1, "cmd=job-getid;");
    host.gets(1, "cmd=job-getid-response;rc=0;jobid=kvs_1;");
}

#[test]
fn a_refused_introduction_closes_the_connection() {
    let mut host = Host::new(2);
    for refused in [
        "cmd=init pmi_version=99 pmi_subversion=1\n",
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=init pmi_version=2 pmi_subversion=0\n    13cmd=fullinit;",
    ] {
        host.tell(Input::Opened { conn: ConnId(4), job: JOB, rank: None });
        let consumed = host.says(4, &refused.repeat(9)).bytes as usize;
        assert_eq!(consumed, 9 * refused.len(), "the rest is dropped");
        let (_, reply) = host.replies.pop_back().unwrap();
        assert!(!reply.contains("rc=0"), "{reply}");
        assert!(host.replies.len() <= 1, "one attempt is answered: {:?}", host.replies);
        assert_eq!(host.events.pop().as_deref(), Some("Close { conn: ConnId(4), why: Refused }"));
        host.tell(Input::Closed { conn: ConnId(4) });
        host.replies.clear();
    }
}

#[test]
fn failures_end_the_job_and_say_why() {
    let (died, zero) = (Exit::Signal(11), Exit::Code(0));
    let cause = |setup: &dyn Fn(&mut Host)| {
        let mut host = Host::new(2);
        host.join_v2(0, "pmirank=0;");
        setup(&mut host);
        assert_eq!(host.events.len(), 1, "{:?}", host.events);
        host.events.remove(0)
    };
    let no_finalize = cause(&|host| host.exits(0, zero));
    assert!(no_finalize.contains(&format!("{:?}", Cause::NoFinalize { rank: Rank(0), exit: zero })));
    let killed = cause(&|host| host.exits(1, died));
    assert!(killed.contains(&format!("{:?}", Cause::Died { rank: Rank(1), exit: died })));
    let absent = format!("{:?}", Cause::Absent { rank: Rank(1), exit: zero });
    assert!(
        cause(&|host| {
            host.asks(0, "cmd=kvs-fence;");
            host.exits(1, zero)
        })
        .contains(&absent)
    );
    assert!(
        cause(&|host| {
            host.exits(1, zero);
            host.asks(0, "cmd=kvs-fence;");
        })
        .contains(&absent)
    );
    let mut host = Host::v2(2);
    host.asks(0, "cmd=finalize;");
    host.exits(0, Exit::Code(5));
    assert!(host.events.is_empty(), "after finalize a rank may end as it likes");
}

#[test]
fn survivors_go_on_where_failures_are_tolerated() {
    let mut host = Host::with_limits(SMALL);
    host.job(JobSpec { cleanup: false, ..spec(3) });
    for rank in 0..3 {
        host.open(rank, Some(rank));
        host.join_v2(rank, "");
    }
    host.asks(0, "cmd=kvs-fence;");
    host.exits(1, Exit::Signal(9));
    host.silent();
    host.asks(2, "cmd=info-getjobattr;key=PMI_dead_processes;");
    host.gets(2, "cmd=info-getjobattr-response;rc=0;found=TRUE;value=1;");
    host.asks(0, "cmd=kvs-fence;");
    host.replies.clear();
    host.asks(2, "cmd=kvs-fence;");
    assert_eq!(host.replies.len(), 2);
}

#[test]
fn a_late_fence_names_the_missing() {
    let mut host = Host::v2(4);
    host.now = Time(500);
    host.asks(1, "cmd=kvs-fence;");
    // All ranks have initialized, and the wake-up for that is harmless.
    host.now = Time(1000);
    host.tell(Input::Timeout);
    assert_eq!(host.server.poll_at(), Some(Time(1500)));
    host.now = Time(1499);
    host.tell(Input::Timeout);
    host.silent();
    host.now = Time(1500);
    host.tell(Input::Timeout);
    assert_eq!(host.events.len(), 1);
    assert!(host.events[0].contains("arrived: 1, size: 4, missing: \"0,2-3\""), "{:?}", host.events);
    host.tell(Input::Timeout);
    assert_eq!((host.events.len(), host.server.poll_at()), (1, None), "said once");
}

#[test]
fn a_rank_keeps_its_quota_when_others_fill_the_log() {
    let mut host = Host::v2(4);
    let value = "x".repeat(200);
    let mut stored = 0;
    loop {
        host.asks(0, &format!("cmd=kvs-put;key=k{stored};value={value};"));
        let (_, reply) = host.replies.pop_front().unwrap();
        if !reply.contains("rc=0;") {
            assert!(reply.contains("rc=2;errmsg=limit kvs-bytes"), "{reply}");
            break;
        }
        stored += 1;
    }
    assert!(stored > 10);
    for rank in 1..4 {
        host.asks(rank, &format!("cmd=kvs-put;key=r{rank};value={value};"));
        host.gets(rank, "cmd=kvs-put-response;rc=0;");
    }
    host.asks(1, "cmd=kvs-get;key=k0;");
    host.gets(1, &format!("cmd=kvs-get-response;rc=0;found=TRUE;value={value};"));
}

#[test]
fn a_fault_leaves_the_state_as_it_was() {
    let mut host = Host::v2(2);
    host.asks(0, "cmd=kvs-fence;");
    let before = host.snapshot();
    let conn = ConnId(99);
    for (input, fault) in [
        (Input::RegisterJob(spec(1)), Fault::JobInUse),
        (Input::RegisterJob(JobSpec { job: JobId(1), ..spec(1) }), Fault::Full(Limit::Jobs, 1)),
        (Input::Opened { conn, job: JOB, rank: None }, Fault::Full(Limit::Conns, 6)),
        (Input::Opened { conn: ConnId(0), job: JOB, rank: None }, Fault::ConnInUse),
        (Input::Opened { conn: ConnId(4), job: JOB, rank: Some(Rank(0)) }, Fault::RankTaken),
        (Input::Opened { conn: ConnId(4), job: JOB, rank: Some(Rank(2)) }, Fault::NoSuchRank),
        (Input::Opened { conn: ConnId(4), job: JobId(3), rank: None }, Fault::NoSuchJob),
        (Input::Bytes { conn, bytes: b"cmd=", full: false }, Fault::NoSuchConn),
        (Input::Closed { conn }, Fault::NoSuchConn),
        (Input::Exited { job: JOB, rank: Rank(7), exit: Exit::Lost }, Fault::NoSuchRank),
        (Input::Attr { job: JOB, key: b"a", value: b"b" }, Fault::BadAttribute),
        (Input::Program { job: JOB, first: Rank(0), count: 3, appnum: 0 }, Fault::BadAttribute),
        (Input::DeregisterJob { job: JobId(1) }, Fault::NoSuchJob),
    ] {
        assert_eq!(host.server.handle(Time(9), input), Err(fault), "{input:?}");
        assert_eq!(host.snapshot(), before, "{input:?}");
    }
}

#[test]
fn a_refusal_changes_nothing_but_the_reply_owed() {
    let mut host = Host::v2(2);
    // The next connection in turn is part of the state. This leaves it after a reply to rank 0.
    host.asks(0, "cmd=job-getid;");
    host.replies.clear();
    let before = host.snapshot();
    let (long_key, long_value) = ("k".repeat(65), "v".repeat(1025));
    for (body, rc) in [
        (format!("cmd=kvs-put;key={long_key};value=v;"), 5),
        (format!("cmd=kvs-put;key=k;value={long_value};"), 7),
        ("cmd=kvs-put;key=;value=v;".into(), 4),
        ("cmd=kvs-put;value=v;".into(), 3),
        ("cmd=kvs-get;jobid=other;key=k;".into(), 3),
        ("cmd=no-such-command;".into(), 14),
    ] {
        host.asks(0, &body);
        let (_, reply) = host.replies.pop_front().unwrap();
        assert!(reply.contains(&format!(";rc={rc};errmsg=")), "{body} {reply}");
        assert_eq!(host.snapshot(), before, "{body}");
    }
}

#[test]
fn rubbish_costs_that_connection_only() {
    let mut host = Host::v2(2);
    host.says(0, "abcdefcmd=kvs-fence;");
    assert!(host.events.pop().unwrap().contains("Malformed(Length)"));
    host.says(0, "    14cmd=job-getid;");
    host.silent();
    host.tell(Input::Closed { conn: ConnId(0) });
    host.asks(1, "cmd=job-getid;");
    host.gets(1, "cmd=job-getid-response;rc=0;jobid=kvs_1;");
}

#[test]
fn a_blocked_connection_keeps_its_reply() {
    let mut host = Host::v2(2);
    host.tell(Input::Blocked { conn: ConnId(0) });
    host.asks(0, "cmd=job-getid;");
    host.silent();
    host.tell(Input::Writable { conn: ConnId(0) });
    host.gets(0, "cmd=job-getid-response;rc=0;jobid=kvs_1;");
}

#[test]
fn jobs_one_after_the_other_find_nothing_of_each_other() {
    let mut host = Host::v2(1);
    host.asks(0, "cmd=kvs-put;key=k;value=v;");
    host.replies.clear();
    host.tell(Input::DeregisterJob { job: JOB });
    assert_eq!(
        host.events.pop(),
        Some(format!("{:?}", Output::Close { conn: ConnId(0), why: Closing::JobOver }))
    );
    host.tell(Input::Closed { conn: ConnId(0) });
    host.job(spec(1));
    host.open(0, Some(0));
    host.join_v2(0, "");
    host.asks(0, "cmd=kvs-get;key=k;");
    host.gets(0, "cmd=kvs-get-response;rc=0;found=FALSE;");
}

#[test]
fn a_client_may_repeat_the_handshake() {
    let mut host = Host::v2(1);
    host.join_v2(0, "pmirank=0;");
    host.asks(0, "cmd=job-getid;");
    host.gets(0, "cmd=job-getid-response;rc=0;jobid=kvs_1;");
    host.says(0, "cmd=init pmi_version=1 pmi_subversion=1\n");
    let (_, reply) = host.replies.pop_front().unwrap();
    assert!(reply.contains("rc=14"), "but not in the other protocol: {reply}");
    host.says(0, "cmd=barrier_in\n");
    assert!(host.events.pop().unwrap().contains("Malformed(Length)"), "nor say anything else in a line");

    let mut host = Host::new(1);
    let init = "cmd=init pmi_version=1 pmi_subversion=1\n";
    for line in
        [init, "cmd=barrier_in\n", init, "cmd=barrier_in\n", "cmd=finalize\n", init, "cmd=barrier_in\n"]
    {
        host.says(0, line);
        let (_, reply) = host.replies.pop_front().unwrap();
        assert!(reply.contains("rc=0"), "{line}{reply}");
    }
}
