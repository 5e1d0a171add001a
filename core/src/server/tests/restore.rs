//! Tests of damaged and forged snapshots: an error, or a working server.

use super::*;
use crate::UpcallId;
use crate::fault::Damage;
use crate::peer::message::{Collective, Head, Writer};
use crate::peer::tree::ROOT_ONE;
use crate::snapshot::{DIGEST, HEADER};
use crate::store::log::hash;

/// Limits of a node among several.
const NODE: Limits = Limits { links: 3, commit_bytes: if cfg!(feature = "pmix") { 128 } else { 0 }, ..SMALL };

/// Limits with which members of process sets have both forms.
const SETS: Limits = Limits { ranks: 160, psets: 4, ..SMALL };

/// Creates a server with an entry in every table.
fn busy() -> Host {
    let mut host = Host::v2(3);
    host.tell(Input::Pset { job: JOB, name: "low", first: Rank(0), count: 2 });
    host.asks(0, "cmd=kvs-put;key=a;value=b;");
    host.asks(1, "cmd=name-publish;name=n;port=p;");
    host.asks(2, "cmd=info-getnodeattr;key=later;wait=TRUE;thrid=7;");
    host.asks(0, "cmd=spawn;ncmds=1;preputcount=0;subcmd=x;maxprocs=1;argc=0;infokeycount=0;");
    host.asks(1, "cmd=ring;ring-count=2;ring-left=l;ring-right=r;");
    host.asks(2, "cmd=kvs-fence;thrid=8;");
    host.tell(Input::Blocked { conn: ConnId(1) });
    host.asks(1, "cmd=kvs-get;key=a;thrid=9;");
    host.replies.clear();
    host.events.clear();
    host
}

/// Checks that a restored server is the one that was saved.
pub(super) fn check_restored(server: &Server<'_>) {
    let snapshot = saved(server);
    let mut storage = OwnedStorage::new(server.limits());
    let restored = Server::restore(&snapshot, storage.lend());
    let restored = restored.unwrap_or_else(|why| panic!("a state cannot be restored: {why:?}"));
    assert!(saved(&restored) == snapshot);
    // Counted at the end of each job, and in the whole log.
    #[cfg(feature = "cluster")]
    assert_eq!(restored.kvs.dead(), server.kvs.dead());
}

fn saved(server: &Server<'_>) -> Vec<u8> {
    let mut buf = vec![0; server.snapshot_len()];
    server.snapshot(&mut buf).unwrap().to_vec()
}

/// The first server of a storage finds unused slots and writes none of them. Later ones reset what is there.
#[test]
fn a_server_in_used_storage_is_new() {
    let mut storage = OwnedStorage::new(&SMALL);
    let new = saved(&Server::new(SMALL, storage.lend(), SEED).unwrap());
    let busy = saved(&busy().server);
    assert!(saved(&Server::restore(&busy, storage.lend()).unwrap()) == busy && busy != new);
    assert!(saved(&Server::new(SMALL, storage.lend(), SEED).unwrap()) == new);
}

/// Creates the server of an inner node of a tree in the middle of a fence, a group's barrier and a lazy get.
fn node() -> Host {
    let mut host = Host::with_limits(NODE);
    host.tell(Input::Node { node: 1, nodes: 7, radix: 2 });
    let fence = if cfg!(feature = "cluster") { FenceMode::Lazy } else { FenceMode::Collect };
    host.job(JobSpec { fence, ..spec(4) });
    for (first, node) in [(0, 1), (2, 3), (3, 4)] {
        host.tell(Input::MapRanks { job: JOB, first: Rank(first), count: 2.min(4 - first), node });
    }
    for rank in 0..2 {
        host.open(rank, Some(rank));
        host.join_v2(rank, &format!("pmirank={rank};"));
    }
    host.asks(0, "cmd=kvs-put;key=a;value=b;");
    host.tell(Input::PeerBlocked { node: 3 });
    host.tell(Input::PeerBlocked { node: 0 });
    let mut buf = [0; 64];
    let job = host.server.jobs[0].reference(JOB);
    let head = Head::Arrive { job, at: Collective::Fence, collects: true };
    let arrive = Writer::new(&mut buf, head).unwrap().finish();
    host.tell(Input::Peer { node: 3, bytes: arrive });
    host.asks(0, "cmd=kvs-fence;thrid=8;");
    host.asks(1, "cmd=kvs-get;key=missing;thrid=9;");
    host.asks(1, "cmd=ring;ring-count=2;ring-left=l;ring-right=r;");
    host.replies.clear();
    host.messages.clear();
    host
}

fn restored(snapshot: &[u8]) -> Result<Server<'static>, Fault> {
    let limits = snapshot::limits(snapshot)?;
    if ![NODE, SMALL, SETS].contains(&limits) {
        return Err(Fault::Snapshot(Damage::Limits));
    }
    Server::restore(snapshot, storage(&limits))
}

// Fault: A board that has served a job is asked for a recording
// Outcome: the next job is recorded
// Guarantee: A recording begins whenever a board has no job
// Also: devices `board::offload::what_a_board_said_is_what_this_machines_core_says`
#[test]
fn a_server_that_restarts_equals_a_new_one() {
    let new = saved(&Host::with_limits(SMALL).server);
    let mut host = busy();
    assert!(!host.server.restart(), "it has a job");
    host.tell(Input::DeregisterJob { job: JOB });
    assert!(!host.server.restart(), "it has connections");
    for conn in 0..3 {
        host.tell(Input::Closed { conn: ConnId(conn) });
    }
    // Context ids of PMIx groups begin anew.
    host.server.contexts = 3;
    assert_ne!(saved(&host.server), new);
    assert!(host.server.restart());
    assert_eq!(saved(&host.server), new);
    assert!(host.server.take_limit_hit().is_none() && !host.server.has_output());
}

/// Sets the digest of changed bytes.
fn sign(snapshot: &mut [u8]) {
    let (body, digest) = snapshot.split_last_chunk_mut::<DIGEST>().unwrap();
    *digest = hash(0, body).to_le_bytes();
}

/// Applies many inputs to a server. Its outputs are arbitrary. It must not panic.
fn exercise(mut server: Server<'static>) {
    let mut buf = [0; OUTPUT_MAX];
    let spawn = UpcallId(0);
    let put = b"    26cmd=kvs-put;key=c;value=d;";
    let mut inputs = vec![
        Input::Writable { conn: ConnId(1) },
        Input::SpawnComplete { spawn, started: false, full: None, codes: &[2] },
        Input::UpcallComplete { upcall: UpcallId(1), rc: 0, text: b"port" },
        Input::Attr { job: JOB, key: b"k", value: b"v" },
        Input::RegisterJob(JobSpec::new(JobId(0), "other", 1)),
        Input::Timeout,
        Input::PeerWritable { node: 0 },
        Input::PeerWritable { node: 3 },
    ];
    for request in [
        &b"cmd=pset-combine;name=all;operation=union;pset1=bits;pset2=runs;"[..],
        b"cmd=pset-retire;name=bits;",
        b"cmd=pset-prune;",
        b"cmd=pset-define;name=more;members=0,3;",
    ] {
        inputs.push(Input::PsetRequest { job: JOB, rank: Rank(0), request });
    }
    for conn in (0..4).map(ConnId) {
        inputs.push(Input::Bytes { conn, bytes: put, full: false });
        for body in [
            "cmd=kvs-fence;",
            "cmd=ring;ring-count=1;ring-left=a;ring-right=b;",
            "cmd=info-getnodeattr;key=later;wait=TRUE;",
            "cmd=info-putnodeattr;key=later;value=1;",
            "cmd=name-lookup;name=n;",
            "cmd=kvs-get;key=a;",
        ] {
            let text: &'static str = Box::leak(format!("{:6}{body}", body.len()).into_boxed_str());
            inputs.push(Input::Bytes { conn, bytes: text.as_bytes(), full: false });
        }
    }
    for rank in (0..3).map(Rank) {
        inputs.push(Input::Exited { job: JOB, rank, exit: Exit::Signal(9) });
    }
    inputs.extend((0..4).map(|conn| Input::Closed { conn: ConnId(conn) }));
    inputs.push(Input::DeregisterJob { job: JOB });
    inputs.push(Input::RegisterJob(JobSpec::new(JOB, "next", 2)));
    for (at, input) in inputs.into_iter().enumerate() {
        // Most of these inputs are faults.
        let _ = server.handle(Time(at as u64 * 1000), input);
        for _ in 0..100 {
            if server.poll(&mut buf).unwrap().is_none() {
                break;
            }
        }
        let _ = saved(&server);
    }
}

#[test]
fn what_is_restored_is_what_was_saved() {
    for host in [busy(), node(), with_sets()] {
        let snapshot = saved(&host.server);
        assert!(saved(&restored(&snapshot).unwrap()) == snapshot);
        exercise(restored(&snapshot).unwrap());
    }
}

#[test]
fn a_restored_node_sends_what_its_links_held_back() {
    let mut host = node();
    let mut other = node();
    other.server = restored(&saved(&host.server)).unwrap();
    for input in [
        Input::PeerWritable { node: 0 },
        Input::Bytes { conn: ConnId(1), bytes: b"    14cmd=kvs-fence;", full: false },
        Input::PeerWritable { node: 3 },
    ] {
        host.tell(input);
        other.tell(input);
        assert_eq!(host.messages, other.messages, "after {input:?}");
        assert_eq!(host.replies, other.replies, "after {input:?}");
    }
    assert!(host.messages.iter().any(|&(node, _)| node == 0), "the arrival goes to the parent");
    assert!(saved(&host.server) == saved(&other.server));
}

#[test]
fn a_job_is_restored_while_its_ranks_are_mapped() {
    for (node, radix) in [(0, 2), (1, 2), (0, 2 | ROOT_ONE), (1, 2 | ROOT_ONE), (3, 2 | ROOT_ONE)] {
        let mut host = Host::with_limits(NODE);
        host.tell(Input::Node { node, nodes: 7, radix });
        host.job(spec(4));
        check_restored(&host.server);
        for (first, node) in [(3, 4), (0, 1), (1, 0), (2, 3), (1, 2)] {
            host.tell(Input::MapRanks { job: JOB, first: Rank(first), count: 1, node });
            check_restored(&host.server);
        }
    }
}

#[test]
fn damage_is_found() {
    let snapshot = saved(&busy().server);
    for len in 0..snapshot.len() {
        let error = restored(&snapshot[..len]).unwrap_err();
        let expected = if len < HEADER.len() + DIGEST { Damage::Header } else { Damage::Digest };
        assert_eq!(error, Fault::Snapshot(expected), "cut to {len} bytes");
    }
    for at in 0..snapshot.len() {
        let mut damaged = snapshot.clone();
        damaged[at] ^= 0x40;
        let expected = if at < HEADER.len() { Damage::Header } else { Damage::Digest };
        assert_eq!(restored(&damaged).unwrap_err(), Fault::Snapshot(expected), "at byte {at}");
    }
    let mut longer = snapshot.clone();
    longer.insert(snapshot.len() - DIGEST, 0);
    sign(&mut longer);
    assert_eq!(restored(&longer).unwrap_err(), Fault::Snapshot(Damage::Encoding));
}

#[test]
fn limits_that_no_memory_holds_are_refused() {
    let mut snapshot = saved(&Host::with_limits(Limits::NONE).server);
    // The first limit, jobs, is set to the maximum.
    snapshot.splice(HEADER.len()..HEADER.len() + 1, [0xff, 0xff, 0xff, 0xff, 0x0f]);
    sign(&mut snapshot);
    let error = Server::restore(&snapshot, storage(&SMALL)).unwrap_err();
    assert!(
        matches!(error, Fault::InsufficientStorage { .. } | Fault::Snapshot(Damage::Limits)),
        "{error:?}"
    );
}

#[test]
fn what_was_made_up_is_refused_or_harmless() {
    let expected =
        ["Conns", "Encoding", "Upcalls", "Jobs", "Kvs", "Names", "Nodes", "Psets", "Ranks", "Turn"];
    make_up(&saved(&busy().server), &expected);
}

#[test]
fn what_was_made_up_of_a_node_is_refused_or_harmless() {
    make_up(&saved(&node().server), &["Conns", "Encoding", "Jobs", "Kvs", "Nodes", "Ranks"]);
}

/// Creates a server with process sets of both forms, and with words that a removed set has left.
fn with_sets() -> Host {
    let mut host = Host::with_limits(SETS);
    host.job(spec(6));
    for (name, members) in [("gone", "1,3"), ("bits", "0,2,4"), ("runs", "0-1,4"), ("run", "2-5")] {
        host.tell(Input::Define { job: JOB, name, members: members.as_bytes(), other: None });
    }
    for request in [&b"cmd=pset-retire;name=gone;"[..], b"cmd=pset-prune;"] {
        host.tell(Input::PsetRequest { job: JOB, rank: Rank(1), request });
    }
    host
}

#[test]
fn what_was_made_up_of_sets_is_refused_or_harmless() {
    make_up(&saved(&with_sets().server), &["Encoding", "Jobs", "Psets"]);
}

/// Changes each byte of a snapshot. `expected` are the errors that this must lead to.
fn make_up(snapshot: &[u8], expected: &[&str]) {
    let mut found = std::collections::BTreeSet::new();
    let mut harmless = 0;
    for at in HEADER.len()..snapshot.len() - DIGEST {
        for change in [1, 4, 0x20, 0x80] {
            let mut made_up = snapshot.to_vec();
            made_up[at] ^= change;
            sign(&mut made_up);
            match restored(&made_up) {
                Ok(server) => {
                    // The encoding of a number may be longer than necessary, but not in a new snapshot.
                    let again = saved(&server);
                    let whole = restored(&again).is_ok_and(|server| saved(&server) == again);
                    assert!(whole, "byte {at} changed by {change}");
                    harmless += 1;
                    exercise(server);
                }
                Err(Fault::Snapshot(damage)) => _ = found.insert(format!("{damage:?}")),
                Err(Fault::InsufficientStorage { .. }) => {}
                Err(other) => panic!("byte {at} changed by {change}: {other}"),
            }
        }
    }
    for damage in expected {
        assert!(found.contains(*damage), "{damage} was not found, only {found:?}");
    }
    assert!(harmless > 0, "a value in the log may be anything");
}
