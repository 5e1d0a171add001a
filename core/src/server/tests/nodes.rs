//! Tests of several servers, one per node.

use std::collections::BTreeSet;

use super::cluster::{Cluster, LIMITS};
use super::*;
use crate::limits::{AUTO_NODES_MAX, exit_delay};
use crate::peer::message::{Collective, GroupKind, Head, JobRef, RecordKind, Writer};
use crate::peer::tree::{LATE, ROOT_ONE};
use crate::tables::link_set::LinkSet;

#[test]
fn a_fence_brings_every_put_to_every_node() {
    let usual = [(2, 2, 3, 1), (3, 2, 4, 2), (5, 2, 9, 3), (9, 3, 16, 4), (4, 3, 2, 5)];
    let linked = usual.map(|(nodes, radix, size, seed)| (nodes, radix | ROOT_ONE, size, seed));
    for (nodes, radix, size, seed) in usual.into_iter().chain(linked) {
        let mut all = Cluster::new(nodes, radix, size, true, seed);
        let ranks: Vec<u32> = (0..size).collect();
        for round in 0..4 {
            for rank in 0..size {
                let line = std::format!("put kvsname=kvs_1 key=k{rank} value=v{rank}.{round}");
                assert_eq!(all.asks(rank, &line), "cmd=put_result rc=0\n");
            }
            all.collective(&ranks, "barrier_in", "cmd=barrier_out rc=0\n");
            for (rank, other) in ranks.iter().flat_map(|&rank| ranks.iter().map(move |&other| (rank, other)))
            {
                let value = std::format!("cmd=get_result rc=0 value=v{other}.{round}\n");
                assert_eq!(all.get(rank, &std::format!("k{other}")), value);
            }
        }
        // Each record was sent over each link of its path once.
        let logs: BTreeSet<u32> = all.hosts.iter().map(|host| host.server.kvs.written()).collect();
        assert_eq!(logs.len(), 1, "all logs are of one length: {logs:?}");
    }
}

#[test]
fn large_data_travel_while_a_rank_is_late() {
    let limits = Limits { kvs_bytes: 1 << 20, ..LIMITS };
    // The less all data are, the shorter are the pieces.
    let data = [(30, 30_000), (5, 8_000)];
    for ((keys, least), radix) in
        data.into_iter().flat_map(|data| [2, 4, 2 | ROOT_ONE].map(|radix| (data, radix)))
    {
        let mut all = Cluster::with_limits(limits, 5, radix, 4);
        for (rank, key) in (0..4).flat_map(|rank| (0..keys).map(move |key| (rank, key))) {
            let value = "v".repeat(1000);
            let line = std::format!("put kvsname=kvs_1 key=k{rank}.{key} value={value}");
            assert_eq!(all.asks(rank, &line), "cmd=put_result rc=0\n");
        }
        let late = 3;
        let before = all.host(late).server.kvs.written();
        (0..late).for_each(|rank| all.says(rank, "barrier_in"));
        all.after_command();
        let ahead = all.host(late).server.kvs.written() - before;
        assert!(ahead > least, "radix {radix}, {keys} keys: {ahead} bytes came ahead of the release");
        assert!(all.replies.is_empty(), "no rank is released before the last arrival");
        all.says(late, "barrier_in");
        all.after_command();
        assert_eq!(std::mem::take(&mut all.replies).len(), 4);
        let logs: BTreeSet<u32> = all.hosts.iter().map(|host| host.server.kvs.written()).collect();
        assert_eq!(logs.len(), 1, "no record is sent twice: {logs:?}");
        assert!(all.get(late, "k0.4").starts_with("cmd=get_result rc=0 value=vvv"));
        assert!(!all.hosts.iter().any(|host| host.server.is_collecting()), "the fence is over");
    }
}

#[test]
fn a_blocked_link_holds_back_what_is_behind_it() {
    let mut all = Cluster::new(3, 2, 4, true, 7);
    all.hosts[0].tell(Input::PeerBlocked { node: 2 });
    for rank in 0..4 {
        all.says(rank, "barrier_in");
    }
    all.after_command();
    assert_eq!(all.replies.keys().copied().collect::<Vec<_>>(), [0, 2], "the others are behind the link");
    all.hosts[0].tell(Input::PeerWritable { node: 2 });
    all.after_command();
    assert_eq!(all.replies.len(), 4);
}

#[test]
fn groups_meet_across_nodes_and_carry_their_puts() {
    for seed in 0..20 {
        let form = if seed % 2 == 0 { ROOT_ONE } else { 0 };
        let mut all = Cluster::new(7, 2 | form, 12, true, seed);
        for round in 0..3 {
            // Ranks 0 and 6 share a node. Ranks 1 and 3 do not.
            for (group, ranks) in [("1,3", &[1, 3][..]), ("0,6", &[0, 6]), ("0,2,4,11", &[0, 2, 4, 11])] {
                let first = ranks[0];
                // Which of two ranks has put a key last is known above both of them only.
                let key = if form == 0 { String::from("g") } else { std::format!("g{first}") };
                all.asks(first, &std::format!("put kvsname=kvs_1 key={key} value={group}.{round}"));
                let line = std::format!("barrier_in group={group}:{round}");
                all.collective(ranks, &line, &std::format!("cmd=barrier_out rc=0 tag={round}\n"));
                let last = ranks[ranks.len() - 1];
                let value = std::format!("cmd=get_result rc=0 value={group}.{round}\n");
                assert_eq!(all.get(last, &key), value);
            }
            all.collective(&[0, 6], "barrier_in group=NODE:9", "cmd=barrier_out rc=0 tag=9\n");
            let all_ranks: Vec<u32> = (0..12).collect();
            all.collective(&all_ranks, "barrier_in group=WORLD:1", "cmd=barrier_out rc=0 tag=1\n");
        }
        assert_eq!(all.groups(), 0, "no slot is left taken");
    }
}

#[test]
fn a_group_whose_member_dies_while_it_waits_ends_on_all_nodes() {
    let mut all = Cluster::new(7, 2, 12, false, 1);
    // Rank 0 is on a node above that of rank 1. Rank 4 is in another part of the tree.
    for (tag, dies, comes) in [(1, 0, 1), (2, 4, 1), (3, 3, 1)] {
        let line = std::format!("barrier_in group={dies},{comes}:{tag}");
        all.says(dies, &line);
        all.after_command();
        assert!(all.groups() > 0 && all.replies.is_empty());
        all.host(dies).exits(dies, Exit::Signal(9));
        all.after_command();
        all.says(comes, &line);
        all.after_command();
        let reply = std::format!("cmd=barrier_out rc=0 tag={tag}\n");
        assert_eq!(std::mem::take(&mut all.replies).remove(&comes), Some(reply));
        assert_eq!(all.groups(), 0, "of ranks {dies} and {comes}");
    }
}

#[test]
fn groups_end_when_any_member_dies_at_any_time() {
    for (nodes, radix, seed) in
        (0..120).map(|seed| ([2, 4, 7, 9][seed % 4], 2 + seed as u32 % 2, seed as u64))
    {
        let form = if seed % 3 == 0 { ROOT_ONE } else { 0 };
        let mut all = Cluster::new(nodes, radix | form, 12, false, seed);
        let mut dead = BTreeSet::new();
        for tag in 0..5 {
            let members: Vec<u32> = (0..12).filter(|_| all.random(2) == 0).collect();
            let mut coming: Vec<u32> = members.iter().copied().filter(|rank| !dead.contains(rank)).collect();
            let list = members.iter().map(|rank| std::format!("{rank}")).collect::<Vec<_>>().join(",");
            while !coming.is_empty() {
                assert!(all.replies.is_empty(), "seed {seed}: released before {coming:?} have come");
                let at = all.random(coming.len());
                let rank = coming[at];
                let fate = all.random(6);
                if fate != 0 {
                    all.says(rank, &std::format!("barrier_in group={list}:{tag}"));
                }
                coming.swap_remove(at);
                for _ in 0..all.random(4) {
                    all.deliver();
                }
                if fate < 2 {
                    all.host(rank).exits(rank, Exit::Signal(9));
                    dead.insert(rank);
                }
                for _ in 0..all.random(4) {
                    all.deliver();
                }
            }
            all.after_command();
            let replies = std::mem::take(&mut all.replies);
            for rank in members.iter().filter(|rank| !dead.contains(rank)) {
                let reply = std::format!("cmd=barrier_out rc=0 tag={tag}\n");
                assert_eq!(replies.get(rank), Some(&reply), "seed {seed}, rank {rank} of {list}");
            }
            assert_eq!(all.groups(), 0, "seed {seed}, group {list}");
        }
    }
}

fn v2(all: &mut Cluster) {
    for rank in 0..all.size {
        all.host(rank).tell(Input::Closed { conn: ConnId(rank) });
        all.host(rank).open(rank, Some(rank));
        all.host(rank).join_v2(rank, &std::format!("pmirank={rank};"));
    }
}

#[test]
fn a_ring_closes_across_nodes() {
    for seed in 0..10 {
        let size = 7;
        let mut all = Cluster::new(4, 2, size, true, seed);
        v2(&mut all);
        for round in 0..3 {
            for rank in 0..size {
                let text = std::format!(
                    "cmd=ring;ring-count={};ring-left=l{rank}.{round};ring-right=r{rank};",
                    rank + 1
                );
                all.host(rank).asks(rank, &text);
                all.collect();
            }
            all.after_command();
            for rank in 0..size {
                let below: u32 = (0..rank).map(|rank| rank + 1).sum();
                let (before, after) = ((rank + size - 1) % size, (rank + 1) % size);
                let fields =
                    std::format!("ring-count={below};ring-left=r{before};ring-right=l{after}.{round};");
                let replies = all.replies.remove(&rank).expect("each rank gets a reply");
                assert!(replies.contains(&fields), "{replies} of rank {rank} is not {fields}");
            }
        }
    }
}

#[test]
fn fences_do_not_wait_for_the_dead_of_other_nodes() {
    for seed in 0..20 {
        let form = if seed % 2 == 0 { ROOT_ONE } else { 0 };
        let mut all = Cluster::new(5, 2 | form, 8, false, seed);
        let living = [0, 1, 2, 4, 5, 6];
        all.says(0, "barrier_in");
        all.says(2, "barrier_in group=2,3,7:4");
        // These are all ranks of one node.
        for rank in [3, 7] {
            all.host(rank).exits(rank, Exit::Signal(9));
        }
        all.after_command();
        assert_eq!(all.replies.remove(&2).as_deref(), Some("cmd=barrier_out rc=0 tag=4\n"));
        for &rank in &living[1..] {
            assert!(all.replies.is_empty());
            all.says(rank, "barrier_in");
        }
        all.after_command();
        assert_eq!(std::mem::take(&mut all.replies).len(), living.len());
        all.collective(&living, "barrier_in", "cmd=barrier_out rc=0\n");
        assert_eq!(all.get(1, "PMI_dead_processes"), "cmd=get_result rc=0 value=3,7\n");
        assert!(all.hosts.iter().all(|host| host.events.is_empty()));
    }
}

#[test]
fn a_rank_that_left_is_missed_on_other_nodes() {
    let mut all = Cluster::new(4, 2, 3, true, 3);
    all.collective(&[0, 1, 2], "barrier_in", "cmd=barrier_out rc=0\n");
    all.says(0, "barrier_in");
    all.asks(2, "finalize");
    all.host(2).exits(2, Exit::Code(0));
    all.after_exits();
    assert_eq!(all.hosts[1].events.len(), 1, "{:?}", all.hosts[1].events);
    assert!(all.hosts[1].events[0].contains("Absent { rank: Rank(2)"), "{:?}", all.hosts[1].events);
    assert!(all.hosts[2].events.is_empty() && all.hosts[3].events.is_empty());
}

#[test]
fn a_rank_that_was_ended_alone_is_not_missed() {
    let mut all = Cluster::new(4, 2, 3, true, 3);
    v2(&mut all);
    all.host(2).asks(2, "cmd=abort;isworld=FALSE;");
    all.host(2).exits(2, Exit::Signal(15));
    for rank in [0, 1] {
        all.host(rank).asks(rank, "cmd=kvs-fence;");
        all.collect();
    }
    all.after_command();
    assert_eq!(all.replies.len(), 2, "{:?}", all.replies);
    let events: Vec<_> = all.hosts.iter().flat_map(|host| &host.events).collect();
    assert!(events.iter().all(|event| !event.contains("End")), "{events:?}");
}

#[test]
fn what_one_node_admits_has_room_on_all() {
    let mut all = Cluster::new(5, 2, 8, true, 1);
    let ranks: Vec<u32> = (0..8).collect();
    let value = "v".repeat(500);
    let mut puts = 0;
    for rank in 0..8 {
        for key in 0.. {
            let reply = all.asks(rank, &std::format!("put kvsname=kvs_1 key=k{rank}.{key} value={value}"));
            if reply != "cmd=put_result rc=0\n" {
                assert!(reply.contains("limit_kvs-bytes") || reply.contains("kvs-bytes"), "{reply}");
                break;
            }
            puts += 1;
        }
    }
    assert!(puts > 8);
    all.collective(&ranks, "barrier_in", "cmd=barrier_out rc=0\n");
    for rank in 0..8 {
        assert!(all.get(rank, "k7.0").contains("rc=0"));
    }
}

// Shows: pmi2.h, Key-value space | `PMI2_KVS_Put` | the same key twice before a fence: undefined | free: the last
// value counts
#[test]
fn a_key_put_again_and_again_takes_one_key_everywhere() {
    let mut all = Cluster::new(3, 2, 2, true, 1);
    for round in 0..LIMITS.keys + 9 {
        let line = std::format!("put kvsname=kvs_1 key=k value={round}");
        assert_eq!(all.asks(0, &line), "cmd=put_result rc=0\n");
    }
    all.collective(&[0, 1], "barrier_in", "cmd=barrier_out rc=0\n");
    assert_eq!(all.get(1, "k"), std::format!("cmd=get_result rc=0 value={}\n", LIMITS.keys + 8));
}

#[test]
fn lazy_fences_on_several_nodes_need_the_feature() {
    let lazy = if cfg!(feature = "cluster") { Ok(()) } else { Err(Fault::NoLazyFences) };
    for (nodes, late, fence, wanted) in [
        (1, 0, FenceMode::Lazy, Ok(())),
        (3, 0, FenceMode::Collect, Ok(())),
        (3, 0, FenceMode::Auto, Ok(())),
        (3, 0, FenceMode::Lazy, lazy),
        (AUTO_NODES_MAX + 1, 0, FenceMode::Auto, Ok(())),
        (AUTO_NODES_MAX + 2, 0, FenceMode::Auto, lazy),
        (AUTO_NODES_MAX + 2, 1, FenceMode::Auto, Ok(())),
    ] {
        let mut host = Host::with_limits(LIMITS);
        host.tell(Input::Node { node: nodes - late - 1, nodes, radix: 2 | (late * LATE) });
        let registered = host.server.handle(Time(0), Input::RegisterJob(JobSpec { fence, ..spec(2) }));
        assert_eq!(registered.map(drop), wanted, "{fence:?} on {nodes} nodes, of which {late} join later");
    }
}

#[test]
fn a_rank_is_where_it_was_placed_last() {
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::with_limits(LIMITS)).collect();
    for (node, host) in (0u32..).zip(&mut hosts) {
        host.tell(Input::Node { node, nodes: 3, radix: 2 });
        host.job(spec(2));
        for place in [2, 1] {
            host.tell(Input::MapRanks { job: JOB, first: Rank(0), count: 2, node: place });
        }
        let job = &host.server.jobs[0];
        let below = LinkSet::parent(node == 0);
        assert_eq!((job.local, job.below), (if node == 1 { 2 } else { 0 }, below));
    }
    let host = &mut hosts[1];
    host.exits(0, Exit::Code(0));
    let late = Input::MapRanks { job: JOB, first: Rank(0), count: 2, node: 2 };
    assert_eq!(host.server.handle(Time(0), late), Err(Fault::BadAttribute));
}

// Fault: A daemon reports the arrival of its ranks before they have arrived
// Outcome: the run ends
// Guarantee: A node accepts no release while its ranks are missing
#[test]
fn a_release_before_the_ranks_of_a_node_have_arrived_is_refused() {
    let mut all = Cluster::new(3, 2, 4, true, 1);
    let job = JobRef { job: JOB, name: all.hosts[0].server.jobs[0].hash };
    for at in [Collective::Fence, Collective::Ring] {
        let mut buf = [0; 64];
        let writer = Writer::new(&mut buf, Head::Release { job, at, collects: true }).unwrap();
        let release = writer.finish().to_vec();
        let early = Input::Peer { node: 0, bytes: &release };
        assert_eq!(
            all.hosts[1].server.handle(Time(0), early),
            Err(Fault::BadPeer),
            "{at:?}: none has arrived"
        );
        // One of the two ranks of the node.
        all.says(0, "barrier_in");
        all.after_command();
        assert_eq!(all.hosts[1].server.handle(Time(0), early), Err(Fault::BadPeer), "{at:?}: one is missing");
    }
}

// Fault: A daemon changes a ring text to one that no reply can carry
// Outcome: its link and the run end; the host is named
// Guarantee: Ring texts have no NUL
#[test]
fn nonsense_from_a_neighbour_changes_nothing() {
    let mut all = Cluster::new(4, 2, 6, true, 1);
    all.says(0, "barrier_in");
    let job = JobRef { job: JOB, name: all.hosts[0].server.jobs[0].hash };
    let message = |head: Head, body: &[u8]| {
        let mut buf = [0; 64];
        let mut writer = Writer::new(&mut buf, head).unwrap();
        assert!(body.iter().all(|byte| writer.push(byte)));
        writer.finish().to_vec()
    };
    let [records, ring] = [RecordKind::Pair, RecordKind::Ring].map(|of| Head::Records { job, of });
    let group = Collective::Group { kind: GroupKind::Barrier, tag: 0 };
    let arrive = |at| Head::Arrive { job, at, collects: true };
    let release = |at| Head::Release { job, at, collects: true };
    let gone =
        |rank: u8| [message(Head::Exits, &[]), message(records, &[])[1..3].to_vec(), vec![rank]].concat();
    let messages = [
        vec![],
        vec![9],
        gone(0),
        // Ranks that the job does not have, truncated records, and a ring's record of another rank.
        message(records, &[99, 1, b'k', 1, b'v']),
        message(records, &[0, 1, b'k', 9, b'v']),
        message(records, &[0, 0, 1, b'v']),
        message(ring, &[0, 5, 1, 0, 0, 0, b'l', 0]),
        // A ring's record of an unknown kind, and a text with NUL, which no reply can carry.
        message(ring, &[0, 5, 0, 0, 0, 0, b'x', 1, b'v']),
        message(ring, &[0, 5, 0, 0, 0, 0, b'l', 3, b'a', 0, b'b']),
        // Messages that only a parent or only a child sends, and groups without members or waiting ranks.
        message(release(Collective::Fence), &[]),
        message(release(group), &[1]),
        message(arrive(Collective::Ring), &[]),
        message(arrive(group), &[]),
        message(arrive(group), &[0, 1]),
    ];
    let mut errors = 0;
    for message in &messages {
        for (host, node) in [(0, 3), (1, 0)] {
            let host = &mut all.hosts[host];
            let before = host.snapshot();
            if host.server.handle(Time(0), Input::Peer { node, bytes: message }).is_err() {
                errors += 1;
                assert_eq!(host.snapshot(), before, "{message:?}");
            }
        }
    }
    assert!(errors >= messages.len(), "{errors}");
    assert_eq!(
        all.hosts[0].server.handle(Time(0), Input::Peer { node: 7, bytes: &[0] }),
        Err(Fault::BadNode)
    );
    let mut host = Host::with_limits(LIMITS);
    for (node, nodes, radix) in [(2, 2, 2), (0, 9, 8), (0, 0, 0)] {
        assert_eq!(host.server.handle(Time(0), Input::Node { node, nodes, radix }), Err(Fault::BadNode));
    }
}

#[test]
fn ranks_of_other_nodes_are_not_let_in() {
    let mut all = Cluster::new(3, 2, 4, true, 1);
    let opened = Input::Opened { conn: ConnId(9), job: JOB, rank: Some(Rank(1)) };
    assert_eq!(all.hosts[1].server.handle(Time(0), opened), Err(Fault::RankTaken));
    let exited = Input::Exited { job: JOB, rank: Rank(1), exit: Exit::Code(0) };
    assert_eq!(all.hosts[1].server.handle(Time(0), exited), Err(Fault::NoSuchRank));
    all.hosts[1].open(9, None);
    all.hosts[1].says(9, "cmd=initack pmiid=1\n");
    assert!(all.hosts[1].replies.pop_front().unwrap().1.contains("rc=3"));
    assert!(all.hosts[1].events[0].contains("Refused"));
}

#[test]
fn sets_and_connections_are_the_hosts_business() {
    let mut all = Cluster::new(3, 2, 4, true, 1);
    v2(&mut all);
    let host = all.host(1);
    host.asks(1, "cmd=pset-define;name=app://odd;members=1,3;");
    let event = host.events.pop().unwrap();
    assert!(
        event.contains("Upcall { upcall: UpcallId(0), job: JobId(0), rank: Rank(1), protocol: V2"),
        "{event}"
    );
    for host in &mut all.hosts {
        host.tell(Input::Define { job: JOB, name: "app://odd", members: b"1,3", other: None });
        let again = Input::Define { job: JOB, name: "app://odd", members: b"1", other: None };
        let taken = Fault::Refused(Refusal::PsetTaken);
        assert_eq!(host.server.handle(Time(0), again), Err(taken));
    }
    let request = |request| Input::PsetRequest { job: JOB, rank: Rank(3), request };
    for (body, result) in [
        (&b"cmd=pset-retire;name=odd;"[..], Ok(())),
        (b"cmd=pset-define;name=odd;members=1,3;", Err(Fault::Refused(Refusal::PsetRetired))),
        (b"cmd=pset-prune;", Ok(())),
        (b"cmd=pset-retire;name=odd;", Err(Fault::Refused(Refusal::NoPset))),
        (b"cmd=pset-define;name=odd;members=1,3;", Ok(())),
        (b"cmd=pset-info;name=odd;", Err(Fault::BadPset)),
    ] {
        for host in &mut all.hosts {
            assert_eq!(host.server.handle(Time(0), request(body)).map(drop), result);
        }
    }
    let host = all.host(1);
    host.tell(Input::UpcallComplete { upcall: crate::UpcallId(0), rc: 0, text: b"" });
    host.gets(1, "cmd=pset-define-response;rc=0;");
    host.asks(1, "cmd=pset-info;name=app://odd;");
    host.gets(1, "cmd=pset-info-response;rc=0;size=2;serial=3;");
    host.asks(1, "cmd=job-connect;jobid=kvs_2;");
    assert_eq!(host.events.len(), 1);
    host.tell(Input::UpcallComplete { upcall: crate::UpcallId(0), rc: 3, text: b"no such job" });
    host.gets(1, "cmd=job-connect-response;rc=3;errmsg=no such job;");
}

#[test]
fn the_head_answers_queries_of_ranks_of_all_nodes() {
    let mut all = Cluster::new(3, 2, 4, true, 1);
    all.says(3, "put kvsname=kvs_1 key=k value=v");
    all.after_command();
    all.replies.clear();
    (0..4).for_each(|rank| all.says(rank, "barrier_in"));
    all.after_command();
    let head = &mut all.hosts[0];
    head.tell(Input::OpenedQuery { conn: ConnId(9), job: JOB });
    head.join_v2(9, "pmirank=3;");
    head.asks(9, "cmd=kvs-get;key=k;");
    head.gets(9, "cmd=kvs-get-response;rc=0;found=TRUE;value=v;");
    // A daemon answers its own ranks.
    let daemon = &mut all.hosts[1];
    daemon.tell(Input::OpenedQuery { conn: ConnId(9), job: JOB });
    daemon.says(9, "cmd=init pmi_version=2 pmi_subversion=0\n");
    daemon.asks(9, "cmd=fullinit;pmirank=3;");
    let (_, said) = daemon.replies.pop_back().unwrap();
    assert!(said.contains("rc=3;errmsg=no such rank"), "{said}");
}

#[test]
fn the_missing_are_named_where_they_are() {
    let mut all = Cluster::new(3, 2, 4, true, 1);
    all.says(0, "barrier_in");
    all.says(2, "barrier_in");
    for host in &mut all.hosts {
        host.now = Time(1000);
        host.tell(Input::Timeout);
    }
    let late = all.hosts[1].events.pop().unwrap();
    assert!(late.contains("arrived: 2, size: 2, missing: \"\""), "only others are missing: {late}");
    for host in &mut all.hosts {
        host.tell(Input::StalledFence { job: JOB });
        host.tell(Input::StalledFence { job: JOB });
    }
    let late: Vec<String> = all.hosts.iter_mut().flat_map(|host| host.events.drain(..)).collect();
    assert_eq!(late.len(), 1, "{late:?}");
    assert!(late[0].contains("arrived: 0, size: 2, missing: \"1,3\""), "{late:?}");
    // The next fence is independent.
    for rank in [1, 3] {
        all.says(rank, "barrier_in");
    }
    all.after_command();
    assert_eq!(std::mem::take(&mut all.replies).len(), 4);
    all.says(0, "barrier_in");
    all.hosts[2].tell(Input::StalledFence { job: JOB });
    assert!(all.hosts[2].events.pop().is_some_and(|late| late.contains("missing: \"1,3\"")));
}

#[test]
fn an_exit_without_init_ends_the_job_on_another_node() {
    for exits_first in [true, false] {
        let mut all = Cluster::unjoined(5, 2, 4, true, 3);
        let exit = Exit::Code(0);
        if !exits_first {
            all.init(3);
        }
        all.host(0).exits(0, exit);
        all.after_exits();
        if exits_first {
            all.init(3);
        }
        let cause = Cause::Absent { rank: Rank(0), exit };
        let ended = std::format!("{:?}", Output::AbortJob { job: JOB, cause, message: "" });
        assert_eq!(all.host(3).events, [ended]);
        assert!(all.host(1).events.is_empty() && all.hosts[0].events.is_empty());
    }
}

#[test]
fn exits_without_failure_travel_together() {
    let mut all = Cluster::new(3, 2, 8, true, 3);
    let in_flight = |all: &mut Cluster| {
        all.collect();
        all.wires.values().map(VecDeque::len).sum::<usize>()
    };
    (0..8).for_each(|rank| drop(all.asks(rank, "finalize")));
    [0, 2, 4].into_iter().for_each(|rank| all.host(rank).exits(rank, Exit::Code(0)));
    assert_eq!(in_flight(&mut all), 0, "they wait for others");
    let host = all.host(0);
    assert_eq!(host.server.poll_at(), Some(Time(exit_delay(&LIMITS))));
    host.now = Time(exit_delay(&LIMITS));
    host.tell(Input::Timeout);
    assert_eq!((in_flight(&mut all), all.host(0).server.poll_at()), (1, None));
    all.host(6).exits(6, Exit::Code(0));
    all.host(1).exits(1, Exit::Signal(9));
    assert_eq!(in_flight(&mut all), 2, "a failure does not wait");
    all.after_exits();
    assert_eq!(all.hosts[0].server.poll_at(), None);
}

#[test]
fn exits_that_fill_a_message_are_continued_in_the_next() {
    // A message has room for some 380 exits.
    let limits = Limits { ranks: 450, conns: 450, ..LIMITS };
    let map = (0..450).map(|rank| if rank < 449 { 1 } else { 2 }).collect();
    let mut all = Cluster::placed(limits, (3, 2), JobSpec { cleanup: false, ..spec(450) }, map, 1);
    all.hosts[1].tell(Input::PeerBlocked { node: 0 });
    for rank in 0..449 {
        all.host(rank).exits(rank, Exit::Signal(9));
    }
    all.hosts[1].tell(Input::PeerWritable { node: 0 });
    all.collect();
    assert_eq!(all.wires[&(1, 0)].len(), 2);
    // They go on while a message waits.
    all.host(449).exits(449, Exit::Signal(9));
    all.after_exits();
    for host in &all.hosts {
        assert_eq!(host.server.ranks.iter().filter(|slot| slot.exit.is_some()).count(), 450);
        assert_eq!(host.server.jobs[0].exited, 450);
    }
}

#[test]
fn a_rank_that_is_cut_off_is_lost_to_other_nodes() {
    for cleanup in [true, false] {
        let mut all = Cluster::new(4, 2, 3, cleanup, 5);
        all.host(2).tell(Input::Closed { conn: ConnId(2) });
        all.host(2).now = Time(crate::limits::CUT_OFF_DELAY);
        all.host(2).tell(Input::Timeout);
        all.after_command();
        all.says(0, "barrier_in");
        all.says(1, "barrier_in");
        all.after_command();
        let cause = Cause::Absent { rank: Rank(2), exit: Exit::Lost };
        let ended = std::format!("{:?}", Output::AbortJob { job: JOB, cause, message: "" });
        if cleanup {
            assert_eq!(all.host(0).events, [ended]);
        } else {
            assert_eq!(all.replies.len(), 2, "the job continues without it: {:?}", all.replies);
        }
        // Its exit follows later.
        all.host(2).exits(2, Exit::Code(0));
        all.after_command();
    }
}
