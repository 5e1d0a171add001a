//! Tests of a log whose jobs come and go while one stays, and of one whose keys are put again and again.

use super::cluster::{Cluster, LIMITS};
use super::restore::check_restored;
use super::*;
use crate::peer::tree::ROOT_ONE;
use crate::wire::log::LogView;

const SHORT: JobId = JobId(1);

/// Runs a job of one rank on connection 9 that stores a lot for its size. `put` is asked of its rank.
fn short_job(host: &mut Host, number: u32) {
    host.job(JobSpec { job: SHORT, name: &format!("short_{number}"), ..spec(1) });
    host.tell(Input::Attr { job: SHORT, key: b"mapping", value: &[b'm'; 300] });
    host.tell(Input::Opened { conn: ConnId(9), job: SHORT, rank: Some(Rank(0)) });
    host.join_v2(9, "");
    host.asks(9, &format!("cmd=kvs-put;key=k{number};value={};", "s".repeat(500)));
    let (_, reply) = host.replies.pop_back().unwrap();
    assert!(reply.contains("rc=0;"), "job {number}: {reply}");
    host.tell(Input::DeregisterJob { job: SHORT });
    host.tell(Input::Closed { conn: ConnId(9) });
    host.events.clear();
}

#[test]
fn jobs_come_and_go_beside_one_that_stays() {
    let limits = Limits { jobs: 2, ranks: 8, conns: 10, kvs_bytes: 8192, keys: 64, ..SMALL };
    let mut host = Host::with_limits(limits);
    host.job(spec(2));
    (0..2).for_each(|rank| host.open(rank, Some(rank)));
    (0..2).for_each(|rank| host.join_v2(rank, &format!("pmirank={rank};")));
    short_job(&mut host, 0);
    let key = |n: u32| format!("cmd=kvs-put;key=k{n};value=value of {n};");
    // More than the quota of the rank comes out of the common half.
    for number in 0..20 {
        host.asks(0, &key(number));
        host.gets(0, "cmd=kvs-put-response;rc=0;");
        short_job(&mut host, 1000 + number);
    }
    host.asks(1, "cmd=info-getnodeattr;key=seg;wait=TRUE;");
    host.tell(Input::Blocked { conn: ConnId(0) });
    host.asks(0, "cmd=kvs-get;key=k7;");
    host.silent();
    let (mut longest, mut fell) = (0, 0);
    for number in 1..400 {
        let before = host.server.kvs.written();
        short_job(&mut host, number);
        let after = host.server.kvs.written();
        longest = longest.max(after);
        fell += u32::from(after < before);
        check_restored(&host.server);
    }
    assert!(longest < limits.kvs_bytes && fell > 10, "{longest} bytes, compacted {fell} times");
    host.tell(Input::Writable { conn: ConnId(0) });
    host.gets(0, "cmd=kvs-get-response;rc=0;found=TRUE;value=value of 7;");
    host.asks(0, "cmd=info-putnodeattr;key=seg;value=found;");
    host.replies.make_contiguous().sort_by_key(|(conn, _)| conn.0);
    host.gets(0, "cmd=info-putnodeattr-response;rc=0;");
    host.gets(1, "cmd=info-getnodeattr-response;rc=0;found=TRUE;value=found;");
    for number in 0..20 {
        host.asks(1, &format!("cmd=kvs-get;key=k{number};"));
        host.gets(1, &format!("cmd=kvs-get-response;rc=0;found=TRUE;value=value of {number};"));
    }
    // A reader of shared memory finds a record that has moved.
    let (words, _) = host.server.kvs.log().as_bytes().as_chunks();
    let mut words: Vec<_> = words.iter().map(|&word| AtomicU32::new(u32::from_ne_bytes(word))).collect();
    words.resize_with(limits.kvs_bytes as usize / 4, || AtomicU32::new(0));
    let view = LogView::new(&words, host.index, SEED).unwrap();
    let mut buf = [0; 32];
    let len = view.get(host.server.kvs_space(JOB).unwrap(), b"k19", &mut buf).unwrap();
    assert_eq!(&buf[..len as usize], b"value of 19");
}

// Fault: A rank has not taken the value of a key of a connected job, which ends
// Outcome: there is no such key
// Guarantee: The reply to a get is the reply to a get, whatever ends
#[test]
fn a_get_of_a_job_that_ends_finds_nothing() {
    let mut host = Host::with_limits(Limits { jobs: 2, ranks: 8, conns: 10, ..SMALL });
    host.job(spec(1));
    host.open(0, Some(0));
    host.join_v2(0, "pmirank=0;");
    host.job(JobSpec { job: SHORT, name: "short", ..spec(1) });
    host.tell(Input::Preput { job: SHORT, key: b"k", value: b"v" });
    host.tell(Input::Connected { job: JOB, other: SHORT, connected: true });
    host.tell(Input::Blocked { conn: ConnId(0) });
    host.asks(0, "cmd=kvs-get;jobid=short;key=k;");
    host.tell(Input::DeregisterJob { job: SHORT });
    host.tell(Input::Writable { conn: ConnId(0) });
    host.gets(0, "cmd=kvs-get-response;rc=0;found=FALSE;");
}

/// Returns whether that is reserved which the ranks have left of their quota.
fn is_rest_reserved(server: &Server<'_>) -> bool {
    let job = &server.jobs[JOB.index()];
    let rests = server.ranks[job.slots()].iter().map(|rank| job.quota.less(rank.used).bytes);
    server.kvs.state().0.bytes == rests.sum()
}

// Fault: A program puts the same keys, or commits, again and again
// Outcome: nothing
// Guarantee: What a newer value has replaced leaves the log when room is wanted, once it is a 16th of it. Replies keep their values
// Also: hydrant-core `nodes_agree_on_keys_that_are_put_again_and_again`, `commits_without_end_take_bounded_room`
#[test]
fn a_key_that_is_put_again_and_again_takes_bounded_room() {
    let limits = Limits { jobs: 2, ranks: 8, conns: 10, kvs_bytes: 8192, keys: 64, ..SMALL };
    let mut host = Host::with_limits(limits);
    host.job(spec(2));
    (0..2).for_each(|rank| host.open(rank, Some(rank)));
    (0..2).for_each(|rank| host.join_v2(rank, &format!("pmirank={rank};")));
    host.asks(1, "cmd=kvs-put;key=other;value=stays;");
    host.gets(1, "cmd=kvs-put-response;rc=0;");
    let (mut fell, mut pending) = (0, None);
    for number in 0..3000 {
        let before = host.server.kvs.written();
        host.asks(0, &format!("cmd=kvs-put;key=k{};value=value of {number};", number % 7));
        host.gets(0, "cmd=kvs-put-response;rc=0;");
        fell += u32::from(host.server.kvs.written() < before);
        assert!(is_rest_reserved(&host.server), "after {number}");
        match number % 500 {
            100 => {
                host.tell(Input::Blocked { conn: ConnId(1) });
                host.asks(1, &format!("cmd=kvs-get;key=k{};", number % 7));
                host.silent();
                pending = Some(number);
            }
            499 => {
                let number = pending.take().unwrap();
                host.tell(Input::Writable { conn: ConnId(1) });
                let value = format!("cmd=kvs-get-response;rc=0;found=TRUE;value=value of {number};");
                host.gets(1, &value);
                check_restored(&host.server);
            }
            _ => {}
        }
    }
    assert!(fell > 10, "compacted {fell} times");
    host.asks(1, "cmd=kvs-get;key=other;");
    host.gets(1, "cmd=kvs-get-response;rc=0;found=TRUE;value=stays;");
    // What does not fit is refused, once and for all.
    for number in 0..100 {
        host.asks(1, &format!("cmd=kvs-put;key=n{};value={};", number % 20, "n".repeat(600)));
    }
    let refused = host.replies.drain(..).filter(|(_, reply)| reply.contains("kvs-bytes")).count();
    assert!((40..100).contains(&refused), "{refused} puts are refused");
    assert!(is_rest_reserved(&host.server));
}

#[test]
fn many_replies_keep_the_value_of_their_request() {
    let limits = Limits { jobs: 2, ranks: 8, conns: 10, kvs_bytes: 1 << 14, keys: 64, ..SMALL };
    let mut host = Host::with_limits(limits);
    host.job(spec(8));
    (0..8).for_each(|rank| host.open(rank, Some(rank)));
    (0..8).for_each(|rank| host.join_v2(rank, &format!("pmirank={rank};")));
    let put = |host: &mut Host, number: u32| {
        host.asks(0, &format!("cmd=kvs-put;key=k{};value={number:0>200};", number % 2));
        host.gets(0, "cmd=kvs-put-response;rc=0;");
    };
    // More replies than records that a compaction keeps one by one: of one record, and then each of another.
    for (first, puts) in [(0, 0), (1000, 2)] {
        (first..first + 2).for_each(|number| put(&mut host, number));
        for conn in 1..6 {
            host.tell(Input::Blocked { conn: ConnId(conn) });
        }
        for nth in 0..20 {
            host.asks(1 + nth % 5, "cmd=kvs-get;key=k0;");
            (0..puts).for_each(|other| put(&mut host, first + 2 * (nth + 1) + other));
        }
        check_restored(&host.server);
        (first + 100..first + 600).for_each(|number| put(&mut host, number));
        for conn in 1..6 {
            host.tell(Input::Writable { conn: ConnId(conn) });
            for nth in (conn - 1..20).step_by(5) {
                let value = first + nth * puts;
                host.gets(conn, &format!("cmd=kvs-get-response;rc=0;found=TRUE;value={value:0>200};"));
            }
        }
    }
}

/// Returns how often records of the log have moved.
fn compactions(host: &Host) -> u32 {
    host.index.last().unwrap().load(Ordering::Relaxed) / 2
}

#[test]
fn a_rank_that_puts_in_the_last_room_has_little_compacted() {
    let limits = Limits { jobs: 1, ranks: 2, conns: 2, kvs_bytes: 1 << 16, keys: 256, ..SMALL };
    let mut host = Host::with_limits(limits);
    host.job(spec(2));
    (0..2).for_each(|rank| host.open(rank, Some(rank)));
    (0..2).for_each(|rank| host.join_v2(rank, &format!("pmirank={rank};")));
    let put = |host: &mut Host, key: u32, len: usize| {
        host.asks(0, &format!("cmd=kvs-put;key=k{key};value={:0>len$};", 0));
        host.replies.pop_front().unwrap().1.contains("rc=0;")
    };
    // Replies keep what is replaced until all room is used.
    host.tell(Input::Blocked { conn: ConnId(1) });
    for key in 1000..1003 {
        assert!(put(&mut host, key, 100));
        host.asks(1, &format!("cmd=kvs-get;key=k{key};"));
        assert!(put(&mut host, key, 100));
    }
    for len in [900, 300] {
        let mut key = len as u32;
        while put(&mut host, key, len) {
            key += 1;
        }
    }
    host.tell(Input::Writable { conn: ConnId(1) });
    host.replies.clear();
    let (mut moved, mut done) = (0, 0);
    for number in 0..1000 {
        let before = (compactions(&host), host.server.kvs.written());
        done += u32::from(put(&mut host, 1000 + number % 3, 100));
        if compactions(&host) > before.0 {
            moved += before.1;
        }
    }
    assert!(moved < 32 * 120 * 1000, "{moved} bytes were gone through, {done} puts were done");
    // The other rank has its quota, and what has been replaced makes room once it is much.
    for number in 0..200 {
        host.asks(1, &format!("cmd=kvs-put;key=n{};value={:0>500};", number % 8, number));
        host.gets(1, "cmd=kvs-put-response;rc=0;");
    }
}

#[test]
fn what_replies_keep_is_not_looked_for_at_each_refusal() {
    // Records that are kept one by one, and more than those.
    for (replies, len) in [(2, 1000), (20, 200)] {
        let limits = Limits { ranks: 8, conns: 8, kvs_bytes: 1 << 15, keys: 64, ..SMALL };
        let mut host = Host::with_limits(limits);
        host.job(spec(8));
        (0..8).for_each(|rank| host.open(rank, Some(rank)));
        (0..8).for_each(|rank| host.join_v2(rank, &format!("pmirank={rank};")));
        let put = |host: &mut Host, rank: u32, key: u32, len: usize| {
            host.asks(rank, &format!("cmd=kvs-put;key=k{key};value={key:0>len$};"));
            host.replies.pop_front().unwrap().1.contains("rc=0;")
        };
        for conn in 2..8 {
            host.tell(Input::Blocked { conn: ConnId(conn) });
        }
        // The replies' records are not in the quota of the rank, which others do not get.
        (90..92).for_each(|key| assert!(put(&mut host, 0, key, 1000)));
        for nth in 0..replies {
            assert!(put(&mut host, 0, 0, len));
            host.asks(2 + nth % 6, "cmd=kvs-get;key=k0;");
        }
        assert!(put(&mut host, 0, 0, 1));
        let mut key = 1;
        while put(&mut host, 1, key, 1000) {
            key += 1;
        }
        let (before, snapshot) = (compactions(&host), host.snapshot());
        for _ in 0..100 {
            assert!(!put(&mut host, 1, key, 1000));
        }
        assert_eq!(compactions(&host), before, "{replies} replies");
        assert!(host.snapshot() == snapshot, "a refusal changes nothing");
        check_restored(&host.server);
        for conn in 2..8 {
            host.tell(Input::Writable { conn: ConnId(conn) });
        }
        host.replies.clear();
        assert!(put(&mut host, 1, key, 1000), "once the replies are taken there is room");
    }
}

/// Fills what is left of the log with pairs of a rank of [`SHORT`] on connection 9, and returns how many there are.
fn fill(host: &mut Host, value: usize) -> u32 {
    let mut key = 0;
    loop {
        host.asks(9, &format!("cmd=kvs-put;key=k{key};value={:0>value$};", 0));
        if !host.replies.pop_back().unwrap().1.contains("rc=0;") {
            return key;
        }
        key += 1;
    }
}

#[test]
fn a_job_has_its_room_after_one_that_had_all() {
    // The log or the keys run short.
    for value in [800, 1] {
        let limits = Limits { jobs: 3, ranks: 4, conns: 10, kvs_bytes: 1 << 14, keys: 128, ..SMALL };
        let mut host = Host::with_limits(limits);
        host.job(spec(1));
        let whole = host.server.jobs[JOB.index()].quota;
        let begin = |host: &mut Host, number: u32| {
            host.job(JobSpec { job: SHORT, name: &format!("short_{number}"), ..spec(1) });
            host.tell(Input::Opened { conn: ConnId(9), job: SHORT, rank: Some(Rank(0)) });
            host.join_v2(9, "");
        };
        let end = |host: &mut Host| {
            host.tell(Input::DeregisterJob { job: SHORT });
            host.tell(Input::Closed { conn: ConnId(9) });
            host.events.clear();
        };
        for number in 0..4 {
            begin(&mut host, number);
            assert_eq!(host.server.jobs[SHORT.index()].quota, whole, "job {number}");
            assert!(fill(&mut host, value) >= 15, "job {number}");
            // Another job ends when nearly all is used.
            let other = JobId(2);
            host.job(JobSpec { job: other, name: "other", ..spec(1) });
            host.tell(Input::DeregisterJob { job: other });
            end(&mut host);
            check_restored(&host.server);
        }
    }
}

#[test]
fn the_host_has_the_room_of_jobs_that_are_over() {
    let limits = Limits { jobs: 2, ranks: 4, conns: 10, kvs_bytes: 1 << 14, keys: 128, ..SMALL };
    let mut host = Host::with_limits(limits);
    host.job(spec(1));
    let attr = |host: &mut Host, number: u32| {
        let key = format!("a{number}");
        let input = Input::Attr { job: JOB, key: key.as_bytes(), value: &[b'a'; 500] };
        host.server.handle(host.now, input).map(drop)
    };
    (0..3).for_each(|number| attr(&mut host, number).unwrap());
    host.job(JobSpec { job: SHORT, name: "short", ..spec(1) });
    for number in 0..8 {
        let key = format!("b{number}");
        host.tell(Input::Attr { job: SHORT, key: key.as_bytes(), value: &[b'b'; 500] });
    }
    host.tell(Input::DeregisterJob { job: SHORT });
    let written = host.server.kvs.written();
    assert!(written > 11 * 500, "the log is not compacted at the end of the job");
    // What the host has replaced makes room, too.
    for number in 0..200 {
        attr(&mut host, number % 20).unwrap();
    }
    let mut number = 20;
    let refused = loop {
        let before = host.snapshot();
        match attr(&mut host, number) {
            Ok(()) => number += 1,
            Err(fault) => {
                assert!(host.snapshot() == before, "a fault changes nothing");
                break fault;
            }
        }
    };
    assert_eq!(refused, Fault::Full(Limit::KvsBytes, limits.kvs_bytes));
    assert!((24..32).contains(&number), "{number} attributes");
}

/// Servers of three to five nodes, whose tree, fences and order of messages the seed decides. Six ranks use PMI-2.
fn cluster(limits: Limits, seed: u64) -> Cluster {
    let fence = if seed.is_multiple_of(2) { FenceMode::Collect } else { FenceMode::Lazy };
    let radix = if seed.is_multiple_of(3) { 2 | ROOT_ONE } else { 2 };
    let spec = JobSpec { fence, ..spec(6) };
    let mut all = Cluster::of(limits, (3 + seed as u32 % 3, radix), spec, seed);
    (0..all.size).for_each(|rank| all.host(rank).join_v2(rank, &format!("pmirank={rank};")));
    all
}

#[test]
fn nodes_agree_on_keys_that_are_put_again_and_again() {
    let limits = Limits { kvs_bytes: 1 << 13, keys: 64, ..LIMITS };
    for seed in 0..12 {
        let mut all = cluster(limits, seed);
        let size = all.size;
        let mut rounds = [0; 6];
        let mut fell = vec![0; all.hosts.len()];
        let mut written = vec![0; all.hosts.len()];
        let put = |all: &mut Cluster, rank: u32, round: u32| {
            let value = format!("{rank}.{round}.{}", "v".repeat(100));
            all.host(rank).asks(rank, &format!("cmd=kvs-put;key=k{rank};value={value};"));
            all.collect();
            let reply = all.replies.remove(&rank).unwrap();
            assert!(reply.contains("rc=0;"), "seed {seed}, rank {rank}, round {round}: {reply}");
            all.host(rank).asks(rank, "cmd=kvs-fence;");
        };
        let progress = |all: &mut Cluster| all.deliver() || !all.replies.is_empty();
        (0..size).for_each(|rank| put(&mut all, rank, 0));
        while rounds.iter().any(|&round| round < 100) {
            all.collect();
            let Some((rank, _)) = all.replies.pop_first() else {
                assert!(progress(&mut all), "seed {seed}: nothing is left to do in the rounds {rounds:?}");
                continue;
            };
            // The fence is complete for this rank, and others may be in the next one.
            let round = rounds[rank as usize];
            for of in 0..size {
                all.host(rank).asks(rank, &format!("cmd=kvs-get;jobid=kvs_1;srcid={of};key=k{of};"));
                all.collect();
                let reply = loop {
                    match all.replies.remove(&rank) {
                        Some(reply) => break reply,
                        None => assert!(progress(&mut all), "seed {seed}: rank {rank} waits for k{of}"),
                    }
                };
                let is = |round| reply.contains(&format!("value={of}.{round}."));
                assert!(is(round) || is(round + 1), "seed {seed}, rank {rank}, round {round}: {reply}");
            }
            rounds[rank as usize] += 1;
            if round < 100 {
                put(&mut all, rank, round + 1);
            }
            for (node, host) in all.hosts.iter().enumerate() {
                let now = host.server.kvs.written();
                fell[node] += u32::from(now < written[node]);
                written[node] = now;
            }
        }
        assert!(fell[1..].iter().all(|&fell| fell > 2), "seed {seed}: compacted {fell:?} times");
    }
}

#[test]
fn a_release_brings_the_values_from_before_it() {
    let limits = Limits { kvs_bytes: 1 << 13, keys: 64, ..LIMITS };
    let mut all = Cluster::of(limits, (3, 2 | ROOT_ONE), spec(2), 1);
    (0..2).for_each(|rank| all.host(rank).join_v2(rank, &format!("pmirank={rank};")));
    let put = |all: &mut Cluster, value: u32| {
        all.host(0).asks(0, &format!("cmd=kvs-put;key=k;value={value:0>100};"));
        all.collect();
        assert!(all.replies.remove(&0).unwrap().contains("rc=0;"), "value {value}");
    };
    put(&mut all, 0);
    put(&mut all, 1);
    // The release stays at node 1, while its rank goes on.
    all.hosts[1].tell(Input::PeerBlocked { node: 2 });
    for rank in 0..2 {
        all.host(rank).asks(rank, "cmd=kvs-fence;");
    }
    all.settle();
    assert!(all.replies.remove(&0).is_some() && all.replies.is_empty());
    let (mut fell, mut written) = (0, 0);
    for value in 2..200 {
        put(&mut all, value);
        let now = all.hosts[1].server.kvs.written();
        fell += u32::from(now < written);
        written = now;
    }
    assert!(fell > 2, "compacted {fell} times");
    all.hosts[1].tell(Input::PeerWritable { node: 2 });
    all.settle();
    assert!(all.replies.remove(&1).is_some());
    all.host(1).asks(1, "cmd=kvs-get;jobid=kvs_1;srcid=0;key=k;");
    all.settle();
    assert!(all.replies.remove(&1).unwrap().ends_with(&format!("value={:0>100};", 1)));
}

#[test]
fn an_answer_to_a_lost_node_keeps_no_record() {
    let limits = Limits { kvs_bytes: 1 << 13, keys: 64, ..LIMITS };
    let spec = JobSpec { fence: FenceMode::Lazy, cleanup: false, ..spec(2) };
    let mut all = Cluster::of(limits, (3, 2 | ROOT_ONE), spec, 1);
    (0..2).for_each(|rank| all.host(rank).join_v2(rank, &format!("pmirank={rank};")));
    let put = |all: &mut Cluster, number: u32| {
        all.host(0).asks(0, &format!("cmd=kvs-put;key=k{};value={number:0>100};", number % 3));
        all.collect();
        assert!(all.replies.remove(&0).unwrap().contains("rc=0;"), "number {number}");
    };
    (0..3).for_each(|number| put(&mut all, number));
    for rank in 0..2 {
        all.host(rank).asks(rank, "cmd=kvs-fence;");
    }
    all.settle();
    all.replies.clear();
    all.host(1).asks(1, "cmd=kvs-get;jobid=kvs_1;srcid=0;key=k0;");
    let (from, to, request) = all.next_message().expect("the key is asked for");
    assert_eq!((from, to), (2, 1));
    let server = &mut all.hosts[1].server;
    server.handle(Time(0), Input::Peer { node: 2, bytes: &request }).unwrap();
    let mut buf = vec![0; limits.output_room()];
    assert!(matches!(server.poll(&mut buf), Ok(Some(Output::Peer { node: 2, .. }))), "the answer begins");
    all.hosts[1].tell(Input::NodeLost { epoch: 1, node: 2 });
    all.collect();
    (3..200).for_each(|number| put(&mut all, number));
    let kvs = &all.hosts[1].server.kvs;
    let records = core::iter::successors(kvs.step(0), |&(_, next)| kvs.step(next));
    let values: Vec<_> = records.map(|(record, _)| record.value).collect();
    let is_first = |value: &&[u8]| (0..3).any(|number| *value == format!("{number:0>100}").as_bytes());
    assert_eq!(values.iter().copied().filter(is_first).count(), 0);
}

/// Registers a job of one rank for each node but the head, whose connection has number 15, or deregisters it.
fn toggle(all: &mut Cluster, number: &mut u32, runs: &mut bool) {
    let name = format!("short_{number}");
    let nodes = all.hosts.len() as u32;
    all.collect();
    for (node, host) in (0u32..).zip(&mut all.hosts) {
        if *runs {
            host.tell(Input::DeregisterJob { job: SHORT });
            if node > 0 {
                host.tell(Input::Closed { conn: ConnId(15) });
            }
            host.events.clear();
            continue;
        }
        host.job(JobSpec { job: SHORT, name: &name, ..spec(nodes - 1) });
        for rank in 0..nodes - 1 {
            host.tell(Input::MapRanks { job: SHORT, first: Rank(rank), count: 1, node: rank + 1 });
        }
        host.tell(Input::Attr { job: SHORT, key: b"mapping", value: &[b'm'; 900] });
        if node > 0 {
            host.tell(Input::Opened { conn: ConnId(15), job: SHORT, rank: Some(Rank(node - 1)) });
            host.join_v2(15, "");
            host.asks(15, &format!("cmd=kvs-put;key=s{node};value={};", "s".repeat(900)));
            assert!(host.replies.pop_back().unwrap().1.contains("rc=0;"), "job {number}");
            host.asks(15, "cmd=kvs-fence;");
            host.replies.retain(|(conn, _)| conn.0 != 15);
        }
    }
    *number += u32::from(!*runs);
    *runs = !*runs;
}

#[test]
fn nodes_agree_on_values_while_their_logs_are_compacted() {
    let limits = Limits { kvs_bytes: 1 << 15, keys: 128, ..LIMITS };
    for seed in 0..8 {
        let mut all = cluster(limits, seed);
        let size = all.size;
        let (mut number, mut runs, mut fell) = (0, false, 0);
        let mut written = 0;
        for round in 0..12 {
            for rank in 0..size {
                let line = format!("cmd=kvs-put;key=k{rank};value=v{rank}.{round};");
                all.host(rank).asks(rank, &line);
                all.collect();
                assert!(all.replies.remove(&rank).unwrap().contains("rc=0;"), "seed {seed}, round {round}");
            }
            for rank in 0..size {
                all.host(rank).asks(rank, "cmd=kvs-fence;");
                for _ in 0..all.random(3) {
                    toggle(&mut all, &mut number, &mut runs);
                    all.random_deliveries();
                }
                let now = all.hosts[1].server.kvs.written();
                fell += u32::from(now < written);
                written = now;
            }
            all.settle();
            assert_eq!(std::mem::take(&mut all.replies).len() as u32, size, "seed {seed}, round {round}");
            for (rank, other) in (0..size).flat_map(|rank| (0..size).map(move |other| (rank, other))) {
                all.host(rank).asks(rank, &format!("cmd=kvs-get;jobid=kvs_1;srcid={other};key=k{other};"));
                if all.random(4) == 0 {
                    toggle(&mut all, &mut number, &mut runs);
                }
                all.settle();
                let reply = all.replies.remove(&rank).expect("a get has a reply");
                assert!(reply.ends_with(&format!("value=v{other}.{round};")), "seed {seed}: {reply}");
            }
        }
        assert!(fell > 2 && number > 20, "seed {seed}: {number} jobs, compacted {fell} times");
    }
}

impl Cluster {
    /// Delivers some messages. Replies of short jobs are dropped.
    fn random_deliveries(&mut self) {
        for _ in 0..self.random(6) {
            self.deliver();
            self.replies.remove(&15);
            self.hosts.iter_mut().for_each(|host| host.replies.retain(|(conn, _)| conn.0 != 15));
        }
    }

    /// Delivers all messages.
    fn settle(&mut self) {
        loop {
            self.hosts.iter_mut().for_each(|host| host.replies.retain(|(conn, _)| conn.0 != 15));
            if !self.deliver() {
                break;
            }
        }
    }
}
