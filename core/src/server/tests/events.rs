//! Tests of PMIx events between nodes.

use super::pmix::Cluster;
use super::*;
use crate::peer::tree::ROOT_ONE;
use crate::wire::pmix::{Writer, event, status};

/// Code of an event.
const CODE: i32 = -3456;
/// Range of an event: the sender's job.
const RANGE_JOB: u8 = 3;
/// Number of the command NOTIFY in the encoding of a status.
const NOTIFY: i32 = 6;

fn command(writer: &mut Writer<'_>, number: u8) {
    writer.single();
    writer.byte(number);
}

/// Registers a rank for all events.
fn register(all: &mut Cluster, job: u32, rank: u32) {
    register_for(all, job, rank, &[]);
}

/// Registers a rank for events with these codes, or for all.
fn register_for(all: &mut Cluster, job: u32, rank: u32, codes: &[i32]) {
    all.asks(job, rank, 9, |writer| {
        command(writer, 13);
        writer.array(codes.len() as u32);
        codes.iter().for_each(|&code| writer.int32(code));
        writer.array(0);
    });
    assert_eq!(all.reply(job, rank).map(|(tag, code, _)| (tag, code)), Some((9, status::SUCCESS)));
}

fn notify(all: &mut Cluster, job: u32, rank: u32) {
    all.asks(job, rank, 8, |writer| {
        command(writer, 12);
        writer.status(CODE);
        writer.single();
        writer.byte(RANGE_JOB);
        writer.array(0);
    });
    assert_eq!(all.reply(job, rank).map(|(tag, code, _)| (tag, code)), Some((8, status::SUCCESS)));
}

/// Returns the numbers of events of a job's ranks.
fn events(all: &mut Cluster, job: u32, size: u32) -> Vec<usize> {
    let mut of = |rank| {
        let messages = core::iter::from_fn(|| all.reply(job, rank));
        messages.inspect(|(tag, code, _)| assert_eq!((*tag, *code), (0, NOTIFY))).count()
    };
    (0..size).map(&mut of).collect()
}

#[test]
fn a_notice_reaches_the_ranks_of_all_nodes_once() {
    for (nodes, radix) in [(2, 2), (4, 2), (6, 1), (5, 4), (5, 2 | ROOT_ONE)] {
        let mut all = Cluster::new(nodes, radix, &[6, 2], false, 5);
        (0..6).for_each(|rank| register(&mut all, 0, rank));
        (0..2).for_each(|rank| register(&mut all, 1, rank));
        for sender in 0..6 {
            notify(&mut all, 0, sender);
            all.settle();
            let expected: Vec<usize> = (0..6).map(|rank| usize::from(rank != sender)).collect();
            assert_eq!(events(&mut all, 0, 6), expected, "{nodes} nodes");
            assert_eq!(events(&mut all, 1, 2), [0, 0], "the jobs are not connected");
        }
    }
}

/// A rank that registers when all others have got an event gets it, on the sender's node and on others.
#[test]
fn a_notice_stays_on_all_nodes_for_ranks_that_register_later() {
    for (nodes, radix) in [(2, 2), (4, 2), (6, 1), (5, 2 | ROOT_ONE)] {
        let mut all = Cluster::new(nodes, radix, &[6, 2], false, 5);
        (0..3).for_each(|rank| register(&mut all, 0, rank));
        for _ in 0..3 {
            notify(&mut all, 0, 2);
            all.settle();
            assert_eq!(events(&mut all, 0, 6), [1, 1, 0, 0, 0, 0], "{nodes} nodes");
        }
        (3..6).for_each(|rank| register_for(&mut all, 0, rank, &[CODE]));
        all.settle();
        assert_eq!(events(&mut all, 0, 6), [0, 0, 0, 3, 3, 3], "{nodes} nodes");
        register_for(&mut all, 1, 0, &[CODE]);
        assert_eq!(events(&mut all, 1, 2), [0, 0], "the jobs are not connected");
    }
}

#[test]
fn a_death_is_reported_on_all_nodes() {
    let mut all = Cluster::new(4, 2, &[6], false, 7);
    (0..6).for_each(|rank| register(&mut all, 0, rank));
    let rank = Rank(4);
    all.tell(2, Input::Exited { job: JobId(0), rank, exit: Exit::Signal(9) });
    all.settle();
    assert_eq!(events(&mut all, 0, 4), [1; 4]);
}

#[test]
fn changes_of_process_sets_are_reported_to_those_who_registered_for_them() {
    let mut all = Cluster::new(3, 2, &[4, 2], false, 3);
    let both = [event::SET_DEFINED, event::SET_RETIRED];
    register(&mut all, 0, 0);
    register_for(&mut all, 0, 1, &both);
    register_for(&mut all, 0, 2, &both[1..]);
    register_for(&mut all, 1, 0, &both);
    let change = |all: &mut Cluster, request: &[u8]| {
        (0..3).for_each(|node| all.tell(node, Input::PsetRequest { job: JobId(0), rank: Rank(1), request }));
        assert_eq!(events(all, 1, 2), [0, 0], "of the other job");
        events(all, 0, 4)
    };
    assert_eq!(change(&mut all, b"cmd=pset-define;name=a;members=0-1;"), [0, 1, 0, 0]);
    assert_eq!(change(&mut all, b"cmd=pset-define;name=a;members=0-1;"), [0; 4], "nothing has changed");
    assert_eq!(change(&mut all, b"cmd=pset-retire;name=a;"), [0, 1, 1, 0]);
    assert_eq!(change(&mut all, b"cmd=pset-prune;"), [0; 4]);
    assert_eq!(change(&mut all, b"cmd=pset-define;name=a;members=0-1;"), [0, 1, 0, 0]);
    let host = || Input::Define { job: JobId(0), name: "hydrant://node/a", members: b"0-3", other: None };
    (0..3).for_each(|node| all.tell(node, host()));
    // Who registers gets the sets that there are and that no host defined, also if it had registered for their ends before.
    register_for(&mut all, 0, 3, &both);
    assert_eq!(events(&mut all, 0, 4), [0, 0, 0, 1]);
    register_for(&mut all, 0, 2, &both[..1]);
    assert_eq!(events(&mut all, 0, 4), [0, 0, 1, 0]);
    assert_eq!(change(&mut all, b"cmd=pset-retire;name=a;"), [0, 1, 1, 1]);
}

#[test]
fn changes_of_a_process_set_are_reported_to_the_jobs_of_its_ranks() {
    let mut all = Cluster::new(3, 2, &[4, 2, 2], false, 3);
    for (job, ranks) in [(0, 4), (1, 2), (2, 2)] {
        (0..ranks)
            .for_each(|rank| register_for(&mut all, job, rank, &[event::SET_DEFINED, event::SET_RETIRED]));
    }
    let tell = |all: &mut Cluster, input: &dyn Fn() -> Input<'static>| {
        (0..3).for_each(|node| all.tell(node, input()));
        [events(all, 0, 4), events(all, 1, 2), events(all, 2, 2)].concat()
    };
    let (job, other) = (JobId(0), Some(JobId(1)));
    let defined = tell(&mut all, &|| Input::Define { job, name: "both", members: b"2-3", other });
    assert_eq!(defined, [1, 1, 1, 1, 1, 1, 0, 0]);
    // The other job ends. The set ends for the first one too.
    let over = tell(&mut all, &|| Input::DeregisterJob { job: JobId(1) });
    assert_eq!(over, [1, 1, 1, 1, 0, 0, 0, 0]);
}

/// Sends an event with data of this length, which most events have no room for.
#[cfg(feature = "cluster")]
fn notify_long(all: &mut Cluster, rank: u32, len: usize) -> i32 {
    all.asks(0, rank, 8, |writer| {
        command(writer, 12);
        writer.status(CODE);
        writer.single();
        writer.byte(RANGE_JOB);
        writer.array(1);
        writer.info(b"data", crate::wire::pmix::kind::STRING);
        writer.string(&vec![b'd'; len]);
    });
    all.reply(0, rank).map(|(tag, code, _)| (tag, code)).filter(|&(tag, _)| tag == 8).expect("a reply").1
}

#[test]
#[cfg(feature = "cluster")]
fn long_notices_without_end_take_bounded_room() {
    let limits = Limits { names: 8, commit_bytes: 2048, ..pmix::LIMITS };
    let mut all = Cluster::with_limits(limits, (4, 2), &[6], false, 5);
    register(&mut all, 0, 0);
    let shares: Vec<_> = all.servers.iter().map(|server| server.kvs.state().1).collect();
    for nth in 0..600 {
        let (rank, len) = (1 + nth % 5, 1100 + nth as usize);
        assert_eq!(notify_long(&mut all, rank, len), status::SUCCESS, "notice {nth}");
        all.settle();
        assert_eq!(events(&mut all, 0, 6), [1, 0, 0, 0, 0, 0], "notice {nth}");
    }
    // The head has no ranks, so none has taken of its share.
    assert_eq!(all.servers[0].kvs.state().1, shares[0]);
}
