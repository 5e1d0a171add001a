//! Tests of a log whose jobs come and go while one stays.

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
    for (seed, fence) in (0..8).map(|seed| (seed, [FenceMode::Collect, FenceMode::Lazy][seed % 2])) {
        let (nodes, size) = (3 + seed as u32 % 3, 6);
        let radix = if seed % 3 == 0 { 2 | ROOT_ONE } else { 2 };
        let spec = JobSpec { fence, ..spec(size) };
        let mut all = Cluster::of(limits, (nodes, radix), spec, seed as u64);
        (0..size).for_each(|rank| all.host(rank).join_v2(rank, &format!("pmirank={rank};")));
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
