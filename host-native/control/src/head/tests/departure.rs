//! Hosts that leave.

use hydrant_core::trace::Cause;
use hydrant_core::wire::Protocol;
use hydrant_core::{OwnedInput, OwnedOutput, UpcallId};

use super::*;
use crate::error::HostRefusalKind;

/// A run on so many hosts that more may join. A rank that fails ends its job with `cleanup`.
fn run_on(hosts: u32, cleanup: bool) -> Run {
    Run::with(Config { late: 2, least: Some(1), radix: 8, cleanup, ..config(hosts) })
}

fn leave(run: &mut Run, host: &str, force: bool) {
    run.event(Event::HostLeaves { request: 9, host: host.into(), force });
}

fn refused(run: &mut Run, host: &str, force: bool) -> String {
    leave(run, host, force);
    match &*std::mem::take(&mut run.others) {
        [Action::HostChanged { request: 9, result: Err(why), .. }] => why.text.clone(),
        others => panic!("{others:?}"),
    }
}

fn lost(epoch: u32, node: u32) -> OwnedInput {
    OwnedInput::NodeLost { epoch, node }
}

/// Asserts that a node is no member from the change with that number on, and that the answer follows the end of its daemon.
fn has_left(run: &mut Run, epoch: u32, node: u32) {
    let change = lost(epoch, node);
    assert_eq!(run.take_sent().last(), Some(&to_all(Order::Input(change.clone()))));
    let is_answer = |action: &Action| matches!(action, Action::HostChanged { .. });
    let others = std::mem::take(&mut run.others);
    let at = others.iter().position(|action| *action == Action::DismissNode { node }).expect("it ends");
    assert_eq!(others[at + 1], Action::ChangeMembership(change));
    assert!(!others.iter().any(is_answer) && run.head.members().all(|member| member != node));
    run.event(Event::NodeEnded { node });
    let answers = std::mem::take(&mut run.others);
    assert!(matches!(&*answers, [Action::HostChanged { request: 9, result: Ok(of), .. }] if *of == node));
}

#[test]
fn a_host_without_ranks_leaves_at_once() {
    let mut run = run_on(2, true);
    run.succeed(2);
    leave(&mut run, "n2", false);
    has_left(&mut run, 1, 2);
    assert_eq!(
        (refused(&mut run, "n2", true), run.printed.len()),
        ("host n2 is not in the run any more: name another one".to_owned(), 0)
    );
    run.succeed(1);
    run.ended(0, &[]);
}

// Fault: A host with ranks is to leave a job that goes on after failures, by force
// Outcome: the ranks there are ended, which is no failure, and the change of membership follows when the host is done with them
// Guarantee: A rank that the user has asked to end does not decide about the exit code
#[test]
fn forced_ranks_are_no_failures_of_a_job_that_goes_on() {
    let mut run = run_on(2, false);
    leave(&mut run, "n2", true);
    assert_eq!(run.take_sent(), [to_node(2, Order::AbortJob(FIRST))]);
    assert_eq!((run.others.len(), run.head.members().count()), (0, 2));
    assert_eq!(refused(&mut run, "n2", true), "host n2 is leaving already");
    run.exit(2, 2, Exit::Signal(15));
    run.exit(2, 3, Exit::Signal(9));
    run.others.clear();
    run.report(2, Report::JobDone(FIRST));
    has_left(&mut run, 1, 2);
    run.succeed(1);
    run.ended(0, &["host n2 leaves: its ranks are ended"]);
}

// Fault: A host with ranks is to leave a job that ends with its first failure, by force
// Outcome: ranks that exit with 0 have left, and one that dies ends the job
// Guarantee: What the death of a rank means is decided in one place
#[test]
fn a_forced_rank_that_dies_ends_a_job_that_does_not_go_on() {
    let mut run = run_on(2, true);
    leave(&mut run, "n2", true);
    run.take_sent();
    run.exit(2, 2, Exit::Code(0));
    run.exit(2, 3, Exit::Signal(15));
    let cause = Cause::Died { rank: Rank(3), exit: Exit::Signal(15) };
    run.report(2, Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: String::new() }));
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    run.report(2, Report::JobDone(FIRST));
    run.exit(1, 0, Exit::Signal(15));
    run.exit(1, 1, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    assert_eq!((run.finished, run.head.exit_code()), (Some(true), 143));
    assert!(run.printed[1].starts_with("rank 3 died by SIGTERM"), "{:?}", run.printed);
}

#[test]
fn hosts_that_cannot_leave_are_refused_by_name() {
    let mut run = run_on(3, true);
    let has = refused(&mut run, "n2", false);
    assert_eq!(has, "host n2 has ranks 2-3: end them, or use --force");
    assert_eq!(refused(&mut run, "x", false), "host x is not in the run");
    run.event(Event::HostNamed { request: 1, host: Host::with_slots("c", 4), may_be_there: false });
    run.others.clear();
    assert_eq!(refused(&mut run, "c", false), "host c is joining: let it leave later");
    run.event(Event::NodesLost { nodes: 4..5, reason: "no route".into() });
    run.others.clear();
    assert_eq!(refused(&mut run, "c", false), "host c is not in the run");
    run.succeed(2);
    run.succeed(3);
    leave(&mut run, "n2", false);
    leave(&mut run, "n3", false);
    run.others.clear();
    assert_eq!(refused(&mut run, "n1", true), "host n1 is the last one: end the run instead");
    let mut few = Run::with(Config { late: 0, least: Some(2), radix: 8, ..config(2) });
    assert_eq!(refused(&mut few, "n2", true), "host n2 is one of the last 2, which stay (--elastic 2:MAX)");
    let fixed = refused(&mut Run::started(2), "n2", true);
    assert_eq!(fixed, "hosts cannot leave this run: start it with --elastic HOSTS");
    let mut deep = Run::with(Config { late: 1, least: Some(1), radix: 2, ..config(4) });
    let inside = "host n1 connects n2, n3 with the head: let those leave first, or start the run with a higher --radix";
    assert_eq!(refused(&mut deep, "n1", true), inside);
}

/// Each kind of refusal can be told from the others, and the hosts without ranks are those that a client need not name.
#[test]
fn refusals_have_kinds_and_idle_hosts_are_known() {
    let mut run = run_on(3, true);
    let mut kind = |host: &str| {
        leave(&mut run, host, false);
        match &*std::mem::take(&mut run.others) {
            [Action::HostChanged { result: Err(why), .. }] => why.kind,
            others => panic!("{others:?}"),
        }
    };
    assert_eq!((kind("n1"), kind("x")), (HostRefusalKind::Busy, HostRefusalKind::Absent));
    assert_eq!(run.head.idle_hosts().count(), 0);
    run.succeed(2);
    run.succeed(3);
    assert_eq!(run.head.idle_hosts().collect::<Vec<_>>(), ["n3", "n2"]);
    leave(&mut run, "n3", false);
    has_left(&mut run, 1, 3);
    assert_eq!(run.head.idle_hosts().collect::<Vec<_>>(), ["n2"]);
}

/// A spawn goes to the hosts that stay, and one that names a host that leaves is refused.
#[test]
fn no_ranks_are_placed_on_a_host_that_leaves() {
    let mut run = run_on(2, false);
    leave(&mut run, "n2", true);
    let spawned = |hosts: &[&str]| {
        let hosts = hosts.iter().map(|&host| Host::new(host)).collect();
        vec![Ok(SpawnProgram { program: program(3), hosts, spread: None, stopped: Stopped::No })]
    };
    let request = b"mcmd=spawn\nnprocs=3\nexecname=b\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd\n";
    let mut spawn = |hosts: &[&str]| {
        run.programs = spawned(hosts);
        run.take_sent();
        let (spawn, job, rank, protocol) = (UpcallId(2), FIRST, Rank(0), Protocol::V1);
        let request = request.to_vec();
        run.report(1, Report::Output(OwnedOutput::Spawn { spawn, job, rank, protocol, request }));
        run.take_sent()
    };
    let sent = spawn(&[]);
    let [(Destination::All, Order::StartJob(record))] = &*sent else { panic!("{sent:?}") };
    assert!(record.blocks.iter().all(|block| block.node == 1), "{:?}", record.blocks);
    let sent = spawn(&["n2"]);
    assert!(matches!(
        &*sent,
        [(Destination::Node(1), Order::Input(OwnedInput::SpawnComplete { started: false, .. }))]
    ));
    assert!(
        run.printed
            .last()
            .is_some_and(|line| line.ends_with("host n2 is not in the run any more: name another one"))
    );
}

// Fault: A host is lost while its ranks are being ended for it to leave
// Outcome: the change of membership is that of a lost host, and who has asked for it to leave is told
// Guarantee: A node stops being a member once
#[test]
fn a_host_that_is_lost_while_it_leaves_is_lost() {
    let mut run = run_on(2, false);
    leave(&mut run, "n2", true);
    run.lose(2..3);
    let changes = |action: &&Action| matches!(action, Action::ChangeMembership(_));
    assert_eq!(run.others.iter().filter(changes).count(), 1);
    let is_told = |action: &Action| matches!(action, Action::HostChanged { request: 9, result: Err(_), .. });
    assert!(run.others.iter().any(is_told));
    run.others.clear();
    run.event(Event::NodeEnded { node: 2 });
    assert_eq!(run.others, []);
}
