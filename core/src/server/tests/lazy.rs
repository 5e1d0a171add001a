//! Tests of lazy fences: gets that ask other nodes for pairs.

use super::cluster::{Cluster, LIMITS};
use super::*;
use crate::peer::message::{Head, JobRef, RankRange, Writer};
use crate::peer::tree::ROOT_ONE;

const MISSING: &str = "cmd=kvs-get-response;rc=0;found=FALSE;";

fn put(all: &mut Cluster, rank: u32, key: &str, value: &str) {
    all.host(rank).asks(rank, &format!("cmd=kvs-put;key={key};value={value};"));
    all.collect();
    assert!(all.replies.remove(&rank).unwrap().contains("rc=0;"));
}

fn ask(all: &mut Cluster, rank: u32, source: i64, key: &str) {
    all.host(rank).asks(rank, &format!("cmd=kvs-get;jobid=kvs_1;srcid={source};key={key};"));
    all.collect();
}

/// Returns the value that a get finds once all messages have been delivered.
fn get(all: &mut Cluster, rank: u32, source: i64, key: &str) -> Option<String> {
    ask(all, rank, source, key);
    all.after_command();
    value(&all.replies.remove(&rank).expect("a get has a reply"))
}

fn value(reply: &str) -> Option<String> {
    if &reply[6..] == MISSING {
        return None;
    }
    let (_, value) = reply.split_once("found=TRUE;value=").expect("a value");
    Some(value.trim_end_matches(';').into())
}

fn fence(all: &mut Cluster) {
    for rank in 0..all.size {
        all.host(rank).asks(rank, "cmd=kvs-fence;");
    }
    all.after_command();
    assert_eq!(std::mem::take(&mut all.replies).len() as u32, all.size);
}

/// Returns how many records each node has.
fn records(all: &Cluster) -> Vec<u32> {
    let count = |host: &Host| {
        let (mut at, mut count) = (0, 0);
        while let Some((record, next)) = host.server.kvs.step(at) {
            (at, count) = (next, count + u32::from(!record.wanted));
        }
        count
    };
    all.hosts.iter().map(count).collect()
}

fn is_settled(all: &Cluster) {
    assert!(all.hosts.iter().all(|host| host.server.gets == 0), "a get is left waiting");
}

#[test]
fn a_fence_moves_nothing_and_a_hint_asks_one_node() {
    // Node 0 has the children 1 and 4. Theirs are 2, 3 and 5. Ranks 0 to 4 are on nodes 1 to 5.
    let mut all = Cluster::lazy(6, 2, 10, 1);
    for rank in 0..10 {
        put(&mut all, rank, &format!("k{rank}"), &format!("v{rank}"));
    }
    fence(&mut all);
    assert_eq!(records(&all), [0, 2, 2, 2, 2, 2]);
    assert_eq!(get(&mut all, 0, 4, "k4").as_deref(), Some("v4"));
    // Both ranks of node 5 were asked for. Nodes on the way have kept copies.
    assert_eq!(records(&all), [2, 4, 2, 2, 4, 2]);
    ask(&mut all, 5, 9, "k9");
    assert_eq!(value(&all.replies.remove(&5).unwrap()).as_deref(), Some("v9"), "at once");
    // What was asked for once comes with each fence.
    put(&mut all, 4, "k4", "new");
    fence(&mut all);
    assert_eq!(records(&all), [3, 5, 2, 2, 5, 3]);
    ask(&mut all, 0, 4, "k4");
    assert_eq!(value(&all.replies.remove(&0).unwrap()).as_deref(), Some("new"));
}

#[test]
fn without_a_good_hint_all_nodes_are_asked() {
    for (source, key) in
        [(-1, "k1"), (99, "k1"), (3, "k1"), (2, "k1"), (-1, "none"), (1, "none"), (2, "none")]
    {
        let mut all = Cluster::lazy(5, 2, 8, 3);
        (0..8).for_each(|rank| put(&mut all, rank, &format!("k{rank}"), "v"));
        fence(&mut all);
        assert_eq!(get(&mut all, 2, source, key).as_deref(), (key == "k1").then_some("v"), "{source} {key}");
        assert_eq!(records(&all)[3], 8, "{source} {key}: node 3 has all pairs");
        ask(&mut all, 6, 0, "neither");
        assert_eq!(value(&all.replies.remove(&6).unwrap()), None, "a node that has all asks none");
        is_settled(&all);
    }
}

#[test]
fn a_get_after_a_fence_sees_every_put_before_it() {
    for seed in 0..150 {
        let (nodes, radix, size) =
            [(2, 2, 3), (3, 2, 5), (5, 2, 9), (9, 3, 12), (12, 2, 11)][seed as usize % 5];
        // Answers with long values take several messages.
        let padding = [0, 900][seed as usize / 5 % 2];
        let form = if seed % 3 == 0 { ROOT_ONE } else { 0 };
        run(&mut Cluster::lazy(nodes, radix | form, size, seed), 1 + seed as u32 / 10 % 3, padding);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Put,
    Fence,
    /// Gets that are left before the next round.
    Get(u32),
    Done,
}

/// Runs ranks that put, fence and get at their own pace, with deliveries in any order. Gets begin after the fence `first`.
fn run(all: &mut Cluster, first: u32, padding: usize) {
    let rounds = 4;
    let size = all.size;
    let mut ranks = vec![(Step::Put, 0u32); size as usize];
    let mut asked: Vec<Option<(u32, bool)>> = vec![None; size as usize];
    let mut busy = vec![false; size as usize];
    // Newest value of each key that a node has been seen to have.
    let mut seen = vec![vec![0; size as usize]; all.hosts.len()];
    loop {
        let idle: Vec<u32> =
            (0..size).filter(|&rank| !busy[rank as usize] && ranks[rank as usize].0 != Step::Done).collect();
        if idle.is_empty() || all.random(3) == 0 {
            if !all.deliver() && idle.is_empty() && all.replies.is_empty() {
                break;
            }
        } else {
            let rank = idle[all.random(idle.len())];
            let (step, round) = &mut ranks[rank as usize];
            let text = match step {
                Step::Put => format!("cmd=kvs-put;key=k{rank};value={:0padding$};", *round + 1),
                Step::Fence => "cmd=kvs-fence;".into(),
                Step::Get(_) => {
                    let other = all.random(size as usize) as u32;
                    let hint = [i64::from(other), i64::from(other), -1, all.random(size as usize) as i64]
                        [all.random(4)];
                    let exists = all.random(8) > 0;
                    asked[rank as usize] = Some((other, exists));
                    let prefix = if exists { 'k' } else { 'x' };
                    format!("cmd=kvs-get;srcid={hint};key={prefix}{other};")
                }
                Step::Done => unreachable!(),
            };
            busy[rank as usize] = true;
            all.host(rank).asks(rank, &text);
            all.collect();
        }
        for (rank, reply) in std::mem::take(&mut all.replies) {
            let node = all.node(rank);
            let (step, round) = &mut ranks[rank as usize];
            assert!(std::mem::take(&mut busy[rank as usize]) && reply.contains("rc=0;"), "{reply}");
            *step = match *step {
                Step::Put => Step::Fence,
                Step::Fence => {
                    *round += 1;
                    if *round < first { Step::Put } else { Step::Get(3) }
                }
                Step::Get(left) => {
                    let (other, exists) = asked[rank as usize].take().unwrap();
                    let found: Option<u32> = value(&reply).map(|value| value.parse().unwrap());
                    assert_eq!(found.is_some(), exists, "rank {rank} gets {other} in round {round}");
                    let newest = found.unwrap_or(u32::MAX);
                    assert!(
                        newest >= *round,
                        "rank {rank} of node {node} gets {newest} of {other} after {round}"
                    );
                    if exists {
                        let seen = &mut seen[node][other as usize];
                        assert!(newest >= *seen, "an older value after a newer one");
                        *seen = newest;
                    }
                    match left {
                        1 if *round == rounds => Step::Done,
                        1 => Step::Put,
                        _ => Step::Get(left - 1),
                    }
                }
                Step::Done => unreachable!(),
            };
        }
    }
    assert!(ranks.iter().all(|rank| rank.0 == Step::Done), "ranks hang: {ranks:?}");
    is_settled(all);
    // No record came twice: each node has at most one record of each put.
    let most = size * rounds;
    assert!(records(all).iter().all(|&count| count <= most), "{:?}", records(all));
}

#[test]
fn groups_carry_the_pairs_that_were_asked_for() {
    let mut all = Cluster::lazy(7, 2, 12, 5);
    put(&mut all, 1, "k", "1");
    assert_eq!(get(&mut all, 3, 1, "k").as_deref(), Some("1"), "without a fence");
    put(&mut all, 1, "k", "2");
    for rank in [1, 3] {
        all.host(rank).tell(Input::Closed { conn: ConnId(rank) });
        all.host(rank).open(rank, Some(rank));
        all.init(rank);
    }
    all.collective(&[1, 3], "barrier_in group=1,3:9", "cmd=barrier_out rc=0 tag=9\n");
    assert_eq!(all.get(3, "k"), "cmd=get_result rc=0 value=2\n");
}

#[test]
fn pmi1_has_no_hints_and_asks_all() {
    let mut all = Cluster::lazy(4, 2, 6, 5);
    (0..6).for_each(|rank| put(&mut all, rank, &format!("k{rank}"), "v"));
    fence(&mut all);
    all.host(1).tell(Input::Closed { conn: ConnId(1) });
    all.host(1).open(1, Some(1));
    all.init(1);
    for (key, reply) in [("k3", "value=v"), ("k5", "value=v"), ("PMI_dead_processes", "value=")] {
        all.says(1, &format!("get kvsname=kvs_1 key={key}"));
        all.after_command();
        let got = all.replies.remove(&1).unwrap();
        assert_eq!(got, format!("cmd=get_result rc=0 {reply}\n"));
    }
    all.says(1, "get kvsname=kvs_1 key=none");
    assert!(!all.replies.remove(&1).unwrap().contains("rc=0"), "the node has all pairs and asks none");
}

#[test]
fn no_wait_outlives_its_connection_or_its_job() {
    let mut all = Cluster::lazy(5, 2, 8, 9);
    put(&mut all, 3, "k3", "v");
    ask(&mut all, 2, 3, "k3");
    assert_eq!(all.hosts[3].server.gets, 1);
    assert!(matches!(
        all.hosts[3].server.rank_status(JOB, Rank(2)).unwrap().wait,
        Some(Wait::Pair(key)) if key == b"k3"
    ));
    all.host(2).tell(Input::Closed { conn: ConnId(2) });
    is_settled(&all);
    all.after_command();
    assert_eq!(get(&mut all, 6, 3, "k3").as_deref(), Some("v"), "the answer was for the node");
    ask(&mut all, 6, 0, "k0");
    let messages: Vec<_> = all.wires.iter().filter(|(_, wire)| !wire.is_empty()).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    for host in &mut all.hosts {
        host.tell(Input::DeregisterJob { job: JOB });
    }
    is_settled(&all);
    all.after_command();
    assert!(all.hosts.iter().all(|host| host.server.modex.state().iter().all(|&word| word == 0)));
}

#[test]
fn the_pairs_of_another_job_are_asked_for_in_its_own_way() {
    let mut all = Cluster::lazy(4, 2, 6, 2);
    let other = JobId(1);
    for (node, host) in (0u32..).zip(&mut all.hosts) {
        host.job(JobSpec { job: other, name: "kvs_2", fence: FenceMode::Lazy, ..spec(6) });
        for rank in 0..6 {
            let node = 1 + rank % 3;
            host.tell(Input::MapRanks { job: other, first: Rank(rank), count: 1, node });
        }
        host.tell(Input::Connected { job: JOB, other, connected: true });
        if node == 2 {
            host.tell(Input::Opened { conn: ConnId(15), job: other, rank: Some(Rank(1)) });
            host.join_v2(15, "pmirank=1;");
            host.asks(15, "cmd=kvs-put;key=k;value=v;");
            host.gets(15, "cmd=kvs-put-response;rc=0;");
        }
    }
    let text = "cmd=kvs-get;jobid=kvs_2;srcid=1;key=k;";
    all.host(0).asks(0, text);
    all.after_command();
    assert_eq!(value(&all.replies.remove(&0).unwrap()).as_deref(), Some("v"));
    assert_eq!(get(&mut all, 0, 1, "k"), None, "of its own job");
    // A job that ends leaves no get of another job waiting.
    all.host(0).asks(0, "cmd=kvs-get;jobid=kvs_2;srcid=4;key=no;");
    all.collect();
    for host in &mut all.hosts {
        host.tell(Input::DeregisterJob { job: other });
    }
    all.after_command();
    assert_eq!(value(&all.replies.remove(&0).unwrap()), None);
    is_settled(&all);
}

#[test]
fn gets_of_jobs_that_end_take_no_room_for_ever() {
    let mut all = Cluster::lazy(3, 2, 2, 2);
    let other = JobId(1);
    let mut used = Vec::new();
    for number in 0..5 {
        for host in &mut all.hosts {
            host.job(JobSpec {
                job: other,
                name: &format!("other_{number}"),
                fence: FenceMode::Lazy,
                ..spec(1)
            });
            host.tell(Input::MapRanks { job: other, first: Rank(0), count: 1, node: 2 });
            host.tell(Input::Connected { job: JOB, other, connected: true });
        }
        all.host(0).asks(0, &format!("cmd=kvs-get;jobid=other_{number};srcid=0;key=no;"));
        all.after_command();
        assert_eq!(value(&all.replies.remove(&0).unwrap()), None);
        for host in &mut all.hosts {
            host.tell(Input::DeregisterJob { job: other });
        }
        let slot = all.hosts[1].server.jobs[JOB.index()].slots().start;
        used.push(all.hosts[1].server.ranks[slot].used);
    }
    assert!(used[0].bytes > 0 && used.iter().all(|later| *later == used[0]), "{used:?}");
    is_settled(&all);
}

#[test]
fn a_key_without_room_is_refused() {
    let mut all = Cluster::lazy(3, 2, 2, 2);
    let long = "x".repeat(1000);
    let mut refused = false;
    for key in 0..200 {
        all.host(0).asks(0, &format!("cmd=kvs-put;key=k{key};value={long};"));
        all.collect();
        refused |= !all.replies.remove(&0).unwrap().contains("rc=0;");
    }
    assert!(refused);
    // A get needs room for its key once it has to wait.
    for key in 0..200 {
        let before = all.hosts[1].server.gets;
        ask(&mut all, 0, 1, &format!("a-key-that-is-long-{key}"));
        match all.replies.remove(&0) {
            Some(reply) if !reply.contains("rc=0;") => {
                assert!(reply.contains("errmsg="), "{reply}");
                assert_eq!(all.hosts[1].server.gets, before);
                return;
            }
            Some(_) => panic!("no node has answered"),
            None => {
                all.host(0).tell(Input::Closed { conn: ConnId(0) });
                all.host(0).open(0, Some(0));
                all.host(0).join_v2(0, "pmirank=0;");
            }
        }
    }
    panic!("no get was refused");
}

#[test]
fn false_requests_and_answers_of_neighbours_change_nothing() {
    let mut all = Cluster::lazy(5, 2, 8, 1);
    put(&mut all, 0, "k0", "v");
    let job = JobRef { job: JOB, name: all.hosts[1].server.jobs[0].hash };
    ask(&mut all, 0, 1, "k1");
    let before = all.hosts[1].snapshot();
    let range = |first, count| RankRange { first, count };
    // Ranks 1 and 5 are on node 2, a child of node 1. Ranks 0 and 4 are on node 1.
    for (from, head, ranks) in [
        (2, Head::Fetch { job }, vec![range(1, 1)]),
        (2, Head::Fetch { job }, vec![range(0, 9)]),
        (2, Head::Fetch { job }, vec![range(4, 1), range(0, 1)]),
        (2, Head::Fetch { job }, vec![range(u32::MAX, u32::MAX)]),
        (0, Head::Fetch { job }, vec![range(3, 1)]),
        (2, Head::Fetched { job }, vec![range(0, 1)]),
        (2, Head::Fetched { job }, vec![range(2, 1)]),
        (0, Head::Fetched { job }, vec![range(1, 1)]),
        (0, Head::Fetched { job }, vec![range(3, 1)]),
    ] {
        let mut buf = [0; 64];
        let mut writer = Writer::new(&mut buf, head).unwrap();
        assert!(ranks.iter().all(|range| writer.push(range)));
        let input = Input::Peer { node: from, bytes: writer.finish() };
        assert_eq!(all.hosts[1].server.handle(Time(0), input), Err(Fault::BadPeer), "{head:?} {ranks:?}");
        assert!(all.hosts[1].snapshot() == before, "{head:?} {ranks:?}");
    }
    all.after_command();
    assert_eq!(value(&all.replies.remove(&0).unwrap()), None);
}

#[test]
fn only_large_jobs_are_lazy_by_themselves() {
    let limits = Limits { ranks: 200, links: 20, ..LIMITS };
    let lazy = |nodes: u32, fence: FenceMode| {
        let mut host = Host::with_limits(limits);
        if nodes > 1 {
            host.tell(Input::Node { node: 1, nodes, radix: 16 });
        }
        host.job(JobSpec { fence, ..spec(2) });
        host.server.jobs[0].lazy
    };
    assert!(!lazy(1, FenceMode::Lazy), "a single node has all pairs");
    assert!(lazy(3, FenceMode::Lazy) && !lazy(200, FenceMode::Collect));
    assert!(!lazy(65, FenceMode::Auto) && lazy(66, FenceMode::Auto));
}

#[test]
fn a_node_that_asks_many_asks_all_by_itself() {
    let limits = Limits { ranks: 200, links: 20, ..LIMITS };
    let mut host = Host::with_limits(limits);
    host.tell(Input::Node { node: 1, nodes: 102, radix: 16 });
    host.job(JobSpec { fence: FenceMode::Auto, ..spec(101) });
    for rank in 0..101 {
        host.tell(Input::MapRanks { job: JOB, first: Rank(rank), count: 1, node: rank + 1 });
    }
    for nth in 0..30 {
        host.open(nth % 16, None);
        host.join_v2(nth % 16, "pmirank=0;");
        host.asks(nth % 16, &format!("cmd=kvs-get;srcid={};key=k;", nth + 1));
        assert_eq!(host.server.jobs[0].all_asked, nth >= 25, "after {nth}");
        let report = host.server.fence_report(JOB).unwrap();
        let learned = (report.asked, report.others, report.collects, report.without_hint);
        assert_eq!(learned, (if nth >= 25 { 26 } else { nth + 1 }, 100, nth >= 25, false), "after {nth}");
        host.tell(Input::Closed { conn: ConnId(nth % 16) });
    }
}

#[test]
fn a_get_without_a_hint_is_reported_as_the_reason() {
    let limits = Limits { ranks: 200, links: 20, ..LIMITS };
    for (nodes, fence, known) in
        [(102, FenceMode::Auto, true), (102, FenceMode::Lazy, false), (3, FenceMode::Auto, false)]
    {
        let mut host = Host::with_limits(limits);
        host.tell(Input::Node { node: 1, nodes, radix: 16 });
        host.job(JobSpec { fence, ..spec(2) });
        host.tell(Input::MapRanks { job: JOB, first: Rank(0), count: 1, node: 1 });
        host.tell(Input::MapRanks { job: JOB, first: Rank(1), count: 1, node: 2 });
        host.open(0, None);
        host.join_v2(0, "pmirank=0;");
        assert_eq!(host.server.fence_report(JOB).map(|report| report.collects), known.then_some(false));
        host.asks(0, "cmd=kvs-get;srcid=-1;key=k;");
        let learned = host.server.fence_report(JOB).map(|report| (report.collects, report.without_hint));
        assert_eq!(learned, known.then_some((true, true)), "{nodes} nodes, {fence:?}");
    }
}
