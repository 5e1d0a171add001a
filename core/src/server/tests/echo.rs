//! Tests of reads of other runs at a head that learns of releases later than ranks.

use super::cluster::{Cluster, LIMITS};
use super::restore::check_restored;
use super::*;
use crate::peer::message::{self, Head, Writer};
use crate::peer::tree::ROOT_ONE;

/// Connections of readers at the head. Ranks have those before.
const READERS: [u32; 3] = [13, 14, 15];

/// A cluster whose ranks use PMI-2.
fn cluster(nodes: u32, radix: u32, size: u32, fence: FenceMode, seed: u64) -> Cluster {
    let mut all = Cluster::of(LIMITS, (nodes, radix), JobSpec { fence, ..spec(size) }, seed);
    for rank in 0..size {
        all.host(rank).join_v2(rank, &format!("pmirank={rank};"));
    }
    all
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
    assert_eq!(send(&mut all.hosts[1], 2, 1), Err(Fault::BadPeer), "its sender is not the head");
    assert_eq!(send(&mut all.hosts[2], 1, 0), Err(Fault::BadPeer), "its receiver is not the head");
    visit(&mut all, 0, READERS[0]);
    assert_eq!(send(&mut all.hosts[0], 1, 2), Err(Fault::BadPeer), "only the first has been asked for");
    assert!(send(&mut all.hosts[0], 1, 1).is_ok());
    let mut usual = cluster(4, 2, 3, FenceMode::Collect, 1);
    assert_eq!(send(&mut usual.hosts[0], 1, 1), Err(Fault::BadPeer), "the head is the root");
    assert_eq!(send(&mut usual.hosts[1], 0, 0), Err(Fault::BadPeer), "its parent is the root");
}

/// A reader at the head.
enum Reader {
    /// Not there.
    Gone,
    /// Waits to be let in, and has heard of this fence.
    Introduced(u32),
    /// Waits for the value that this rank put before that fence.
    Reading(u32, u32),
}

/// Ranks put and fence, with deliveries in any order and a link to the head that is blocked now and then. Readers come when
/// a rank has left a fence.
fn run(all: &mut Cluster, rounds: u32) {
    let size = all.size;
    let (mut left, mut read, mut blocked) = (0, 0, false);
    let mut readers = READERS.map(|conn| (conn, Reader::Gone));
    for round in 1..=rounds {
        for rank in 0..size {
            all.host(rank).asks(rank, &format!("cmd=kvs-put;key=k{rank};value={round};"));
            all.collect();
            all.replies.remove(&rank);
            all.host(rank).asks(rank, "cmd=kvs-fence;");
        }
        let mut waiting = size;
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
            for (conn, reader) in &mut readers {
                *reader = turn(all, *conn, std::mem::replace(reader, Reader::Gone), (left, rank), &mut read);
            }
            if is_still
                && waiting == 0
                && !all.deliver()
                && readers.iter().all(|(_, of)| matches!(of, Reader::Gone))
            {
                break;
            }
        }
    }
    assert!(read >= rounds, "{read} reads");
}

fn turn(all: &mut Cluster, conn: u32, reader: Reader, (left, rank): (u32, u32), read: &mut u32) -> Reader {
    match reader {
        Reader::Gone if left > 0 && all.random(4) == 0 => {
            visit(all, 0, conn);
            Reader::Introduced(left)
        }
        Reader::Introduced(fence) if is_let_in(all, conn) => {
            all.hosts[0].asks(conn, &format!("cmd=kvs-get;key=k{rank};"));
            Reader::Reading(fence, rank)
        }
        Reader::Reading(fence, rank) if all.replies.contains_key(&conn) => {
            let reply = all.replies.remove(&conn).unwrap_or_default();
            let value = reply.split_once("found=TRUE;value=").map(|(_, value)| value.trim_end_matches(';'));
            let found = value.map_or(0, |value| value.parse().expect("the round"));
            assert!(found >= fence, "round {found} of rank {rank}, which was put before fence {fence}");
            all.hosts[0].tell(Input::Closed { conn: ConnId(conn) });
            *read += 1;
            Reader::Gone
        }
        other => other,
    }
}

#[test]
fn a_reader_finds_what_was_put_before_a_fence_that_a_rank_has_left() {
    for seed in 0..60 {
        let (nodes, radix, size) =
            [(2, 2, 3), (3, 2, 5), (5, 2, 9), (9, 3, 12), (12, 2, 11)][seed as usize % 5];
        let is_lazy = cfg!(feature = "lazy-fences") && seed % 2 == 1;
        let fence = if is_lazy { FenceMode::Lazy } else { FenceMode::Collect };
        let form = if seed % 8 < 6 { ROOT_ONE } else { 0 };
        run(&mut cluster(nodes, radix | form, size, fence, seed), 4);
    }
}
