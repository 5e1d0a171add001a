//! Tests of reads of other jobs at nodes that learn of releases later than the ranks of these jobs.

use super::cluster::{Cluster, LIMITS};
use super::restore::check_restored;
use super::*;
use crate::ids::UpcallId;
use crate::peer::message::{self, Head, Writer};
use crate::peer::tree::ROOT_ONE;

/// Connections of readers at the head. Ranks have those before.
const READERS: [u32; 3] = [13, 14, 15];
/// Job with a rank on each node but the head. It is connected to the other one, and looks up names.
const OTHER: JobId = JobId(1);

/// A cluster whose ranks use PMI-2.
fn cluster(nodes: u32, radix: u32, size: u32, fence: FenceMode, seed: u64) -> Cluster {
    let mut all = Cluster::of(LIMITS, (nodes, radix), JobSpec { fence, ..spec(size) }, seed);
    for rank in 0..size {
        all.host(rank).join_v2(rank, &format!("pmirank={rank};"));
    }
    all
}

/// Starts the other job. Returns the connections of its ranks by node.
fn with_other(all: &mut Cluster) -> Vec<(usize, u32)> {
    let nodes = all.hosts.len();
    let conns: Vec<_> = (1..nodes).map(|node| (node, all.size + node as u32 - 1)).collect();
    for host in &mut all.hosts {
        host.job(JobSpec { remote_names: true, ..JobSpec::new(OTHER, "kvs_2", nodes as u32 - 1) });
        for node in 1..nodes as u32 {
            host.tell(Input::MapRanks { job: OTHER, first: Rank(node - 1), count: 1, node });
        }
        host.tell(Input::Connected { job: JOB, other: OTHER, connected: true });
    }
    for &(node, conn) in &conns {
        let rank = node as u32 - 1;
        all.hosts[node].tell(Input::Opened { conn: ConnId(conn), job: OTHER, rank: Some(Rank(rank)) });
        all.hosts[node].join_v2(conn, &format!("pmirank={rank};"));
    }
    conns
}

/// Looks up a name, or connects to a job, and the host succeeds.
fn ask_host(all: &mut Cluster, node: usize, conn: u32, request: &str, result: &[u8]) {
    let host = &mut all.hosts[node];
    host.asks(conn, request);
    let asked = host.events.pop().expect("the host is asked");
    assert!(asked.starts_with("Upcall { upcall: UpcallId(0), job: JobId(1)"), "{asked}");
    host.tell(Input::UpcallComplete { upcall: UpcallId(0), rc: 0, text: result });
    all.collect();
}

fn look_up(all: &mut Cluster, node: usize, conn: u32) {
    ask_host(all, node, conn, "cmd=name-lookup;name=n;", b"port");
}

/// Returns whether a look-up is answered, and takes the reply.
fn has_found(all: &mut Cluster, conn: u32) -> bool {
    let reply = all.replies.remove(&conn);
    let found = "cmd=name-lookup-response;rc=0;port=port;";
    assert!(reply.as_ref().is_none_or(|reply| reply.contains(found)), "{reply:?}");
    reply.is_some()
}

/// Opens the connection of a client of another run at a node, and sends the handshake.
fn visit(all: &mut Cluster, node: usize, conn: u32) {
    all.collect();
    let host = &mut all.hosts[node];
    host.tell(Input::OpenedQuery { conn: ConnId(conn), job: JOB });
    host.says(conn, "cmd=init pmi_version=2 pmi_subversion=0\n");
    host.gets_line(conn, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n");
    host.asks(conn, &format!("cmd=fullinit;pmirank={};", node.saturating_sub(1)));
    all.collect();
}

/// Returns whether a reader has been let in, and takes the reply.
fn is_let_in(all: &mut Cluster, conn: u32) -> bool {
    let reply = all.replies.remove(&conn);
    assert!(reply.as_ref().is_none_or(|reply| reply.contains("cmd=fullinit-response;rc=0;")), "{reply:?}");
    reply.is_some()
}

/// Delivers the next message of a node to another one. Returns its head.
fn pass(all: &mut Cluster, from: u32, to: u32) -> Head {
    all.collect();
    let message = all.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front).expect("a message");
    all.hosts[to as usize].tell(Input::Peer { node: from, bytes: &message });
    all.collect();
    message::split(&message).unwrap().0
}

fn send(host: &mut Host, from: u32, number: u32) -> Result<Consumed, Fault> {
    let mut buf = [0; 8];
    let bytes = Writer::new(&mut buf, Head::Echo { number }).unwrap().finish();
    host.server.handle(host.now, Input::Peer { node: from, bytes })
}

/// Has ranks 0 and 1 on nodes 1 and 2 leave a fence that the head does not know of, because its link is blocked.
fn fenced() -> Cluster {
    let mut all = cluster(3, 2 | ROOT_ONE, 2, FenceMode::Collect, 1);
    all.hosts[1].tell(Input::PeerBlocked { node: 0 });
    for rank in 0..2 {
        all.host(rank).asks(rank, &format!("cmd=kvs-put;key=k{rank};value=v{rank};"));
        all.host(rank).asks(rank, "cmd=kvs-fence;");
        all.host(rank).replies.clear();
    }
    all.collect();
    assert!(matches!(pass(&mut all, 2, 1), Head::Arrive { .. }));
    assert!(matches!(pass(&mut all, 1, 2), Head::Release { .. }));
    assert_eq!(std::mem::take(&mut all.replies).len(), 2, "both ranks have left the fence");
    all
}

#[test]
fn a_reader_is_let_in_when_the_head_has_what_was_released_before() {
    let mut all = fenced();
    let [first, second, third] = READERS;
    visit(&mut all, 0, first);
    visit(&mut all, 0, second);
    all.hosts[0].asks(first, "cmd=kvs-get;key=k1;");
    let (_, refused) = all.hosts[0].replies.pop_front().expect("it is not let in yet");
    assert!(refused.contains("cmd=kvs-get-response;rc=") && !refused.contains("rc=0;"), "{refused}");
    assert!(matches!(pass(&mut all, 0, 1), Head::Echo { number: 1 }));
    assert!(matches!(pass(&mut all, 0, 1), Head::Echo { number: 2 }));
    visit(&mut all, 0, third);
    check_restored(&all.hosts[0].server);
    check_restored(&all.hosts[1].server);
    all.hosts[1].tell(Input::PeerWritable { node: 0 });
    assert!(matches!(pass(&mut all, 1, 0), Head::Release { .. }), "an echo follows what was released before");
    assert!(!is_let_in(&mut all, second), "more may come");
    assert_eq!(pass(&mut all, 1, 0), Head::Echo { number: 2 }, "it is one to the first reader, too");
    assert!(is_let_in(&mut all, second) && !is_let_in(&mut all, third));
    for rank in 0..2 {
        all.hosts[0].asks(second, &format!("cmd=kvs-get;key=k{rank};"));
        all.hosts[0].gets(second, &format!("cmd=kvs-get-response;rc=0;found=TRUE;value=v{rank};"));
    }
    all.after_command();
    assert!(is_let_in(&mut all, third));
}

#[test]
fn a_reader_that_leaves_is_not_waited_for() {
    let mut all = fenced();
    let [gone, late, _] = READERS;
    visit(&mut all, 0, gone);
    pass(&mut all, 0, 1);
    all.hosts[0].tell(Input::Closed { conn: ConnId(gone) });
    all.hosts[1].tell(Input::PeerWritable { node: 0 });
    // The echo of the first is none for the next one on the same connection.
    visit(&mut all, 0, gone);
    visit(&mut all, 0, late);
    all.hosts[0].asks(late, "cmd=finalize;");
    all.hosts[0].replies.clear();
    pass(&mut all, 1, 0);
    pass(&mut all, 1, 0);
    assert!(!is_let_in(&mut all, gone));
    all.after_command();
    assert!(is_let_in(&mut all, gone) && is_let_in(&mut all, late));
}

#[test]
fn a_look_up_is_answered_when_its_node_has_what_was_released_before() {
    // Node 3 is below node 2.
    let mut all = cluster(8, 2 | ROOT_ONE, 7, FenceMode::Collect, 1);
    let conns = with_other(&mut all);
    let (node, conn) = conns[2];
    assert_eq!(all.hosts[node].server.links.get(0).map(|link| link.node), Some(2));
    all.hosts[1].tell(Input::PeerBlocked { node: 2 });
    for rank in 0..7 {
        all.host(rank).asks(rank, &format!("cmd=kvs-put;key=k{rank};value=v{rank};"));
        all.host(rank).asks(rank, "cmd=kvs-fence;");
        all.host(rank).replies.clear();
    }
    all.after_command();
    assert!(
        all.replies.contains_key(&0) && !all.replies.contains_key(&2),
        "ranks elsewhere have left the fence"
    );
    look_up(&mut all, node, conn);
    let wait = |all: &Cluster| {
        all.hosts[node].server.rank_status(OTHER, Rank(2)).and_then(|status| status.wait)
            == Some(Wait::Upcall)
    };
    assert!(wait(&all));
    check_restored(&all.hosts[node].server);
    all.after_command();
    assert!(!has_found(&mut all, conn));
    check_restored(&all.hosts[1].server);
    all.hosts[1].tell(Input::PeerWritable { node: 2 });
    assert!(matches!(pass(&mut all, 1, 2), Head::Release { .. }));
    assert_eq!(pass(&mut all, 1, 2), Head::Echo { number: 1 });
    assert!(matches!(pass(&mut all, 2, 3), Head::Release { .. }));
    assert!(!has_found(&mut all, conn) && wait(&all));
    assert_eq!(pass(&mut all, 2, 3), Head::Echo { number: 1 });
    assert!(has_found(&mut all, conn) && !wait(&all));
    all.hosts[node].asks(conn, "cmd=kvs-get;jobid=kvs_1;key=k0;");
    all.hosts[node].replies.retain(|(id, _)| id.0 == conn);
    all.hosts[node].gets(conn, "cmd=kvs-get-response;rc=0;found=TRUE;value=v0;");
}

#[test]
fn requests_of_a_child_follow_together() {
    let mut all = cluster(8, 2 | ROOT_ONE, 7, FenceMode::Collect, 1);
    let conns = with_other(&mut all);
    let (third, fourth) = (conns[2], conns[3]);
    look_up(&mut all, third.0, third.1);
    assert_eq!(pass(&mut all, 3, 2), Head::Echo { number: 1 });
    for number in 2..4 {
        // The client of the first look-up is gone, and the next one has its connection.
        all.hosts[3].tell(Input::Closed { conn: ConnId(third.1) });
        all.hosts[3].tell(Input::Opened { conn: ConnId(third.1), job: OTHER, rank: Some(Rank(2)) });
        all.hosts[3].join_v2(third.1, "pmirank=2;");
        look_up(&mut all, third.0, third.1);
        assert_eq!(pass(&mut all, 3, 2), Head::Echo { number });
    }
    look_up(&mut all, fourth.0, fourth.1);
    assert_eq!(pass(&mut all, 4, 2), Head::Echo { number: 1 });
    check_restored(&all.hosts[2].server);
    assert_eq!(pass(&mut all, 2, 1), Head::Echo { number: 1 }, "the first of node 3");
    assert_eq!(pass(&mut all, 2, 1), Head::Echo { number: 2 }, "that of node 4");
    assert_eq!(pass(&mut all, 1, 2), Head::Echo { number: 1 });
    assert_eq!(pass(&mut all, 2, 3), Head::Echo { number: 1 });
    assert!(!has_found(&mut all, third.1), "it was asked for before");
    assert_eq!(pass(&mut all, 2, 1), Head::Echo { number: 3 }, "all others of node 3");
    all.after_command();
    assert!(has_found(&mut all, third.1) && has_found(&mut all, fourth.1));
    assert!(all.wires.values().all(VecDeque::is_empty));
}

#[test]
fn look_ups_at_the_root_do_not_wait() {
    for (form, node) in [(ROOT_ONE, 1), (0, 1), (0, 3)] {
        let mut all = cluster(4, 2 | form, 3, FenceMode::Collect, 1);
        let conns = with_other(&mut all);
        let conn = conns[node - 1].1;
        look_up(&mut all, node, conn);
        assert!(has_found(&mut all, conn), "node {node}");
        assert!(all.wires.values().all(VecDeque::is_empty));
    }
}

#[test]
fn only_requests_that_lead_to_reads_wait() {
    let mut all = cluster(4, 2 | ROOT_ONE, 3, FenceMode::Collect, 1);
    let (node, conn) = with_other(&mut all)[2];
    for (request, result) in
        [("cmd=name-publish;name=n;port=p;", &b""[..]), ("cmd=kvs-get;jobid=kvs_3;key=k;", b"v")]
    {
        ask_host(&mut all, node, conn, request, result);
        let reply = all.replies.remove(&conn).expect("it does not wait");
        assert!(reply.contains(";rc=0;"), "{reply}");
    }
    ask_host(&mut all, node, conn, "cmd=job-connect;jobid=kvs_1;", b"");
    assert_eq!(all.replies.remove(&conn), None);
    all.after_command();
    let reply = all.replies.remove(&conn).expect("the echo has come");
    assert!(reply.contains("cmd=job-connect-response;rc=0;"), "{reply}");
}

#[test]
fn queries_elsewhere_do_not_wait() {
    let mut all = cluster(3, 2 | ROOT_ONE, 2, FenceMode::Collect, 1);
    for node in [1, 2] {
        visit(&mut all, node, READERS[0]);
        assert!(is_let_in(&mut all, READERS[0]), "node {node}");
    }
    let mut all = cluster(3, 2, 2, FenceMode::Collect, 1);
    visit(&mut all, 0, READERS[0]);
    assert!(is_let_in(&mut all, READERS[0]), "the root releases fences");
    assert!(all.wires.values().all(VecDeque::is_empty));
}

#[test]
fn unexpected_echoes_are_refused() {
    let mut all = cluster(4, 2 | ROOT_ONE, 3, FenceMode::Collect, 1);
    let before = all.hosts[0].snapshot();
    assert_eq!(send(&mut all.hosts[0], 1, 1), Err(Fault::BadPeer), "it has not been asked for");
    assert_eq!(all.hosts[0].snapshot(), before);
    assert_eq!(send(&mut all.hosts[2], 1, 1), Err(Fault::BadPeer), "node 2 has not asked for it either");
    visit(&mut all, 0, READERS[0]);
    assert_eq!(send(&mut all.hosts[0], 1, 2), Err(Fault::BadPeer), "only the first has been asked for");
    assert!(send(&mut all.hosts[0], 1, 1).is_ok());
    let mut usual = cluster(4, 2, 3, FenceMode::Collect, 1);
    assert_eq!(send(&mut usual.hosts[0], 1, 1), Err(Fault::BadPeer), "the head is the root");
    assert_eq!(send(&mut usual.hosts[1], 0, 0), Err(Fault::BadPeer), "its parent is the root");
}

/// A reader: a client of another run at the head, or a rank of the other job.
enum Reader {
    /// Not there.
    Gone,
    /// Waits to be let in, or for the reply to a look-up, and has heard of this fence.
    Introduced(u32),
    /// Waits for the value that this rank put before that fence.
    Reading(u32, u32),
}

/// Readers that come in each round.
const VISITS: u32 = 12;

/// Ranks put and fence, with deliveries in any order and a link to the head that is blocked now and then. Readers come when
/// a rank has left a fence.
fn run(all: &mut Cluster, rounds: u32) {
    let size = all.size;
    let (mut left, mut read, mut blocked) = (0, 0, false);
    // With the head as the root, the host completes look-ups behind what the head has released.
    let elsewhere = if all.hosts[0].server.is_behind_root() { with_other(all) } else { Vec::new() };
    let at_head = READERS.into_iter().map(|conn| (0, conn));
    let mut readers: Vec<_> = at_head.chain(elsewhere).map(|at| (at, Reader::Gone)).collect();
    for round in 1..=rounds {
        for rank in 0..size {
            all.host(rank).asks(rank, &format!("cmd=kvs-put;key=k{rank};value={round};"));
            all.collect();
            all.replies.remove(&rank);
            all.host(rank).asks(rank, "cmd=kvs-fence;");
        }
        let (mut waiting, mut visits) = (size, VISITS);
        loop {
            let is_still = !all.deliver();
            if is_still || all.random(8) == 0 {
                blocked = !blocked && !is_still;
                let node = 0;
                all.hosts[1].tell(if blocked {
                    Input::PeerBlocked { node }
                } else {
                    Input::PeerWritable { node }
                });
            }
            all.collect();
            for rank in 0..size {
                if all.replies.remove(&rank).is_some() {
                    (left, waiting) = (round, waiting - 1);
                }
            }
            let rank = all.random(size as usize) as u32;
            for (at, reader) in &mut readers {
                if matches!(reader, Reader::Gone) && left > 0 && visits > 0 && all.random(8) == 0 {
                    visits -= 1;
                    *reader = come(all, *at, left);
                }
                *reader = turn(all, *at, std::mem::replace(reader, Reader::Gone), rank, &mut read);
            }
            if is_still
                && (waiting, visits) == (0, 0)
                && !all.deliver()
                && readers.iter().all(|(_, of)| matches!(of, Reader::Gone))
            {
                break;
            }
        }
    }
    assert_eq!(read, rounds * VISITS);
}

/// Has a reader come that has heard of a fence.
fn come(all: &mut Cluster, (node, conn): (usize, u32), fence: u32) -> Reader {
    if node == 0 {
        visit(all, node, conn);
    } else {
        look_up(all, node, conn);
    }
    Reader::Introduced(fence)
}

fn turn(all: &mut Cluster, (node, conn): (usize, u32), reader: Reader, rank: u32, read: &mut u32) -> Reader {
    match reader {
        Reader::Introduced(fence) if if node == 0 { is_let_in(all, conn) } else { has_found(all, conn) } => {
            all.hosts[node].asks(conn, &format!("cmd=kvs-get;jobid=kvs_1;key=k{rank};"));
            Reader::Reading(fence, rank)
        }
        Reader::Reading(fence, rank) if all.replies.contains_key(&conn) => {
            let reply = all.replies.remove(&conn).unwrap_or_default();
            let value = reply.split_once("found=TRUE;value=").map(|(_, value)| value.trim_end_matches(';'));
            let found = value.map_or(0, |value| value.parse().expect("the round"));
            assert!(found >= fence, "round {found} of rank {rank}, which was put before fence {fence}");
            if node == 0 {
                all.hosts[node].tell(Input::Closed { conn: ConnId(conn) });
            }
            *read += 1;
            Reader::Gone
        }
        other => other,
    }
}

#[test]
fn a_reader_finds_what_was_put_before_a_fence_that_a_rank_has_left() {
    for seed in 0..60 {
        let (nodes, radix, size) = [(2, 2, 3), (3, 2, 5), (5, 2, 9), (8, 3, 6), (8, 2, 5)][seed as usize % 5];
        let is_lazy = cfg!(feature = "cluster") && seed % 2 == 1;
        let fence = if is_lazy { FenceMode::Lazy } else { FenceMode::Collect };
        let form = if seed % 8 < 6 { ROOT_ONE } else { 0 };
        run(&mut cluster(nodes, radix | form, size, fence, seed), 4);
    }
}
