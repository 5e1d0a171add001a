//! Hosts that join.

use hydrant_core::{OwnedInput, OwnedOutput, UpcallId, wire::Protocol};

use super::*;
use crate::protocol::RankBlock;

/// A run on two hosts that may have so many.
fn run_of(most: u32) -> Run {
    Run::with(Config { late: most - 2, least: Some(1), ..config(2) })
}

fn name(run: &mut Run, request: u64, host: &str) {
    run.event(Event::HostNamed { request, host: Host::with_slots(host, 4), may_be_there: false });
}

/// Answer to a request.
type Answer = (u64, Result<u32, String>);

/// Nodes whose daemons are to be started, and answers, since the last call.
fn take_growth(run: &mut Run) -> (Vec<u32>, Vec<Answer>) {
    let (mut started, mut answers) = (Vec::new(), Vec::new());
    for action in std::mem::take(&mut run.others) {
        match action {
            Action::StartDaemon { node, .. } => started.push(node),
            Action::HostChanged { request, result, .. } => {
                answers.push((request, result.map_err(|why| why.text)));
            }
            _ => {}
        }
    }
    (started, answers)
}

fn joined(epoch: u32, node: u32) -> Order {
    Order::Input(OwnedInput::NodeJoined { epoch, node })
}

/// A rank of the first job asks for a process set.
fn define(run: &mut Run, set: &str) {
    let request = format!("cmd=pset-define;name={set};members=0;").into_bytes();
    let (upcall, job, rank, protocol) = (UpcallId(1), FIRST, Rank(0), Protocol::V2);
    run.report(1, Report::Output(OwnedOutput::Upcall { upcall, job, rank, protocol, request }));
    let applied = run.others.iter().find_map(|action| match action {
        Action::Apply { request, .. } => Some(*request),
        _ => None,
    });
    run.others.clear();
    run.event(Event::BackendReply { request: applied.expect("the set is applied"), result: Ok(()) });
}

#[test]
fn a_host_that_joins_is_told_what_all_know_before_the_change() {
    let mut run = run_of(4);
    define(&mut run, "one");
    run.sent.clear();
    name(&mut run, 7, "c");
    assert_eq!((take_growth(&mut run), run.take_sent()), ((vec![3], vec![]), vec![]));
    define(&mut run, "two");
    run.sent.clear();
    run.event(Event::Joined { node: 3 });
    let sent = run.take_sent();
    let kind = |order: &Order| match order {
        Order::Setup(_) => "setup",
        Order::StartJob(record) if record.id == FIRST => "job",
        Order::Input(OwnedInput::PsetRequest { .. }) => "set",
        order if *order == joined(1, 3) => "joined",
        other => panic!("{other:?}"),
    };
    let sent: Vec<_> = sent.iter().map(|(to, order)| (*to, kind(order))).collect();
    let to = Destination::Node(3);
    let expected = [(to, "setup"), (to, "job"), (to, "set"), (to, "set"), (Destination::All, "joined")];
    assert_eq!(sent, expected);
    let change = Action::ChangeMembership(OwnedInput::NodeJoined { epoch: 1, node: 3 });
    let others = std::mem::take(&mut run.others);
    let [first, Action::IncludeNode { node: 3 }, Action::HostChanged { request: 7, result: Ok(3), .. }] =
        &*others
    else {
        panic!("{others:?}")
    };
    assert_eq!(*first, change);
    // A spawn goes there at once.
    run.programs = vec![Ok(SpawnProgram {
        program: program(4),
        hosts: vec![Host::new("c")],
        spread: None,
        stopped: Stopped::No,
    })];
    let (spawn, job, rank, protocol) = (UpcallId(2), FIRST, Rank(0), Protocol::V1);
    let request = b"mcmd=spawn\nnprocs=4\nexecname=b\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    run.report(
        1,
        Report::Output(OwnedOutput::Spawn { spawn, job, rank, protocol, request: request.to_vec() }),
    );
    let sent = run.take_sent();
    let [(Destination::All, Order::StartJob(record))] = &*sent else { panic!("{sent:?}") };
    assert_eq!(record.blocks, [RankBlock { node: 3, first: 0, count: 4 }]);
}

#[test]
fn what_is_over_is_not_told() {
    let mut run = run_of(3);
    define(&mut run, "one");
    run.programs =
        vec![Ok(SpawnProgram { program: program(1), hosts: Vec::new(), spread: None, stopped: Stopped::No })];
    let (spawn, job, rank, protocol) = (UpcallId(2), FIRST, Rank(0), Protocol::V1);
    let request = b"mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    run.report(
        1,
        Report::Output(OwnedOutput::Spawn { spawn, job, rank, protocol, request: request.to_vec() }),
    );
    let spawned = JobId(1);
    let node = run.head.jobs()[spawned].run.node(0);
    run.start(node, spawned, &[0]);
    run.succeed(1);
    run.succeed(2);
    run.take_sent();
    name(&mut run, 1, "c");
    run.event(Event::Joined { node: 3 });
    let jobs: Vec<_> =
        run.take_sent().into_iter().filter(|(_, order)| !matches!(order, Order::Setup(_))).collect();
    let [(_, Order::StartJob(record)), (_, change)] = &*jobs else { panic!("{jobs:?}") };
    assert_eq!((record.id, change), (spawned, &joined(1, 3)));
}

/// A spawn takes hosts that are there or that are joining as they are.
#[test]
fn requests_that_take_known_hosts_share_them() {
    let mut run = run_of(3);
    let add = |run: &mut Run, request: u64, host: &str| {
        run.event(Event::HostNamed { request, host: Host::new(host), may_be_there: true });
        take_growth(run)
    };
    assert_eq!(add(&mut run, 1, "n2"), (vec![], vec![(1, Ok(2))]));
    assert_eq!(add(&mut run, 2, "c"), (vec![3], vec![]));
    assert_eq!(add(&mut run, 3, "c"), (vec![], vec![]));
    let reason = "no route to host".to_owned();
    run.event(Event::NodesLost { nodes: 3..4, reason: reason.clone() });
    assert_eq!(take_growth(&mut run).1, [(2, Err(reason.clone())), (3, Err(reason))]);
    // One that does not is refused, and the others get the host.
    assert_eq!(add(&mut run, 4, "c"), (vec![3], vec![]));
    name(&mut run, 5, "c");
    assert_eq!(add(&mut run, 6, "c"), (vec![], vec![(5, Err("host c is in the run already".to_owned()))]));
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_growth(&mut run), (vec![], vec![(4, Ok(3)), (6, Ok(3))]));
    assert_eq!(add(&mut run, 7, "c"), (vec![], vec![(7, Ok(3))]));
    // The hosts of other runs are fixed.
    let mut fixed = Run::started(2);
    assert_eq!(add(&mut fixed, 1, "n1"), (vec![], vec![(1, Ok(1))]));
    let why = "hosts cannot join this run: start it with --elastic HOSTS".to_owned();
    assert_eq!(add(&mut fixed, 2, "c"), (vec![], vec![(2, Err(why))]));
}

#[test]
fn hosts_are_refused_by_name_and_their_numbers_are_free_again() {
    let mut run = run_of(3);
    let refused = |run: &mut Run, host: &str| {
        name(run, 5, host);
        let (started, answers) = take_growth(run);
        let [(5, Err(why))] = &*answers else { panic!("{answers:?}") };
        assert_eq!(started, []);
        why.clone()
    };
    assert_eq!(refused(&mut run, "n2"), "host n2 is in the run already");
    for try_of in ["bad", "worse"] {
        name(&mut run, 6, try_of);
        assert_eq!(take_growth(&mut run).0, [3]);
        assert_eq!(refused(&mut run, try_of), format!("host {try_of} is in the run already"));
        assert!(refused(&mut run, "d").starts_with("the run may have 3 hosts"));
        let reason = "no route to host".to_owned();
        run.event(Event::NodesLost { nodes: 3..4, reason: reason.clone() });
        assert_eq!(take_growth(&mut run).1, [(6, Err(reason))]);
    }
    assert_eq!((run.take_sent(), run.head.members().collect::<Vec<_>>()), (vec![], vec![1, 2]));
    name(&mut run, 8, "c");
    run.event(Event::Joined { node: 3 });
    assert_eq!(take_growth(&mut run), (vec![3], vec![(8, Ok(3))]));
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(
        refused(&mut run, "d"),
        "the run may have 3 hosts, and has had them: start it with a higher --elastic"
    );
    assert_eq!(
        refused(&mut Run::started(2), "c"),
        "hosts cannot join this run: start it with --elastic HOSTS"
    );
}

#[test]
fn a_host_that_is_named_early_joins_when_the_first_job_has_started() {
    let mut run = Run::new(Config { late: 1, least: Some(1), ..config(1) }, first_job(1, 1));
    name(&mut run, 1, "c");
    assert_eq!(take_growth(&mut run), (vec![], vec![]));
    run.event(Event::AllJoined);
    assert_eq!(take_growth(&mut run), (vec![2], vec![]));
    run.event(Event::Joined { node: 2 });
    assert_eq!(take_growth(&mut run), (vec![], vec![(1, Ok(2))]));
}

#[test]
fn a_run_with_too_many_requests_takes_no_more_hosts() {
    let mut run = run_of(3);
    for _ in 0..=4096 {
        define(&mut run, "one");
    }
    name(&mut run, 1, "c");
    let (_, answers) = take_growth(&mut run);
    assert!(matches!(&*answers, [(1, Err(why))] if why.contains("too often")), "{answers:?}");
}

// Fault: A host that has joined is lost in a run that goes on after failures
// Outcome: the servers get the next change, and the name may join again under another number
// Guarantee: A node that was a member never is again
#[test]
fn a_lost_newcomer_keeps_its_number() {
    let mut run = Run::with(Config { late: 2, least: Some(1), cleanup: false, ..config(2) });
    name(&mut run, 1, "c");
    run.event(Event::Joined { node: 3 });
    run.lose(3..4);
    run.take_sent();
    name(&mut run, 2, "c");
    run.event(Event::Joined { node: 4 });
    assert_eq!(run.take_sent().last(), Some(&to_all(joined(3, 4))));
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2, 4]);
}
