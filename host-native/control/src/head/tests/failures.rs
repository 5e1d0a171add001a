//! Failed ranks, lost daemons, and failed PMI servers.

use hydrant_core::OwnedInput;
use hydrant_core::trace::Cause;

use super::*;
use crate::protocol::BackendFailure;

fn abort(rank: u32, code: i32) -> Report {
    let cause = Cause::Abort { rank: Rank(rank), code: Some(code) };
    Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: String::new() })
}

fn died(rank: u32) -> Report {
    let cause = Cause::Died { rank: Rank(rank), exit: Exit::Signal(11) };
    Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: String::new() })
}

#[test]
fn an_abort_ends_the_job_on_all_nodes() {
    let mut run = Run::started(2);
    run.report(1, abort(1, 5));
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    for (node, rank) in [(1, 0), (1, 1), (2, 2), (2, 3)] {
        run.exit(node, rank, Exit::Signal(15));
    }
    run.report(1, Report::JobDone(FIRST));
    run.report(2, Report::JobDone(FIRST));
    run.ended(
        5,
        &["rank 1 aborted the job with code 5\n  rank 1 on n1, pid 101, program a.out\n  3 other ranks were ended"],
    );
}

#[test]
fn of_two_failures_the_first_counts() {
    let mut run = Run::started(2);
    run.report(2, died(3));
    run.report(1, abort(0, 5));
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    for (node, rank) in [(1, 0), (1, 1), (2, 2), (2, 3)] {
        run.exit(node, rank, Exit::Signal(9));
    }
    run.report(2, Report::JobDone(FIRST));
    run.lose(1..2);
    run.ended(
        139,
        &["rank 3 died by SIGSEGV\n  rank 3 on n2, pid 103, program a.out\n  4 other ranks were ended"],
    );
}

// Fault: A rank aborts while another host cannot start its ranks
// Outcome: the report names the rank that aborted
// Guarantee: A failed start after an abort changes neither exit code nor report
#[test]
fn a_start_that_fails_after_an_abort_leaves_the_report() {
    let mut run = Run::new(config(2), first_job(2, 1));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0]);
    run.report(1, abort(0, 5));
    run.report(2, Report::StartFailed { job: FIRST, error: start_error("not found") });
    run.report(2, Report::JobDone(FIRST));
    run.exit(1, 0, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    let others = "1 other rank was not started";
    run.ended(
        5,
        &[&format!("rank 0 aborted the job with code 5\n  rank 0 on n1, pid 100, program a.out\n  {others}")],
    );
}

#[test]
fn a_rank_that_asked_for_an_exit_code_gets_it() {
    let mut run = Run::started(1);
    run.report(1, Report::Exited { job: FIRST, rank: Rank(0), exit: Exit::Signal(15), requested: Some(6) });
    run.exit(1, 1, Exit::Code(0));
    run.report(1, Report::JobDone(FIRST));
    run.ended(6, &["rank 0 on n1, pid 100, program a.out aborted itself with code 6"]);
}

#[test]
fn a_daemon_is_lost_before_the_job_starts() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.lose(2..3);
    run.ended(1, &["the job was not started: host n2 (node 2): its daemon is lost"]);
    assert_eq!(run.take_sent(), []);
}

#[test]
fn a_daemon_is_lost_while_the_job_starts() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.report(2, Report::RanksStarted { job: FIRST, ranks: vec![(Rank(2), 5)] });
    run.take_sent();
    run.lose(2..3);
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    run.exit(1, 0, Exit::Signal(15));
    run.exit(1, 1, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    run.ended(
        1,
        &["host n2 (node 2): its daemon is lost\n  1 rank was running there, 2 other ranks were ended, 1 other rank was \
           not started"],
    );
}

#[test]
fn daemons_below_a_lost_one_are_lost_too() {
    let mut run = Run::started(3);
    run.lose(2..4);
    run.report(3, Report::JobStarted(FIRST));
    run.exit(1, 0, Exit::Signal(15));
    run.exit(1, 1, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    run.ended(
        1,
        &["host n2 (node 2): its daemon is lost\n  4 ranks were running there and on the host below it, 2 other ranks were \
           ended"],
    );
}

#[test]
fn a_daemon_that_is_lost_after_a_failure_is_not_the_reason() {
    let mut run = Run::started(2);
    run.report(1, abort(0, 9));
    run.lose(2..3);
    for rank in [0, 1] {
        run.exit(1, rank, Exit::Signal(15));
    }
    run.report(1, Report::JobDone(FIRST));
    assert_eq!((run.finished, run.head.exit_code()), (Some(true), 9));
    assert!(run.printed[0].starts_with("rank 0 aborted the job with code 9\n"), "{:?}", run.printed);
}

#[test]
fn a_daemon_is_lost_after_its_ranks_have_ended() {
    let mut run = Run::started(2);
    run.succeed(2);
    run.lose(2..3);
    run.exit(1, 0, Exit::Signal(15));
    run.exit(1, 1, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    run.ended(
        1,
        &["host n2 (node 2): its daemon is lost\n  2 other ranks were ended, 2 other ranks had ended before"],
    );
}

#[test]
fn a_daemon_that_is_lost_after_the_last_job_changes_nothing() {
    let mut run = Run::started(1);
    run.succeed(1);
    run.lose(1..2);
    run.ended(0, &[]);
}

#[test]
fn all_daemons_are_lost() {
    let mut run = Run::started(2);
    run.lose(1..2);
    assert_eq!(run.finished, None);
    run.lose(2..3);
    run.ended(
        1,
        &["host n1 (node 1): its daemon is lost\n  2 ranks were running there, 2 other ranks were ended"],
    );
}

#[test]
fn a_failed_backend_aborts_the_job_and_its_node_stays() {
    let mut run = Run::started(2);
    run.report(2, Report::BackendFailed(BackendFailure::Own("the plugin trapped".into())));
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    for (node, rank) in [(2, 2), (2, 3), (1, 0), (1, 1)] {
        run.exit(node, rank, Exit::Signal(9));
    }
    run.report(1, Report::JobDone(FIRST));
    assert_eq!(run.finished, None, "node 2 is busy");
    run.report(2, Report::JobDone(FIRST));
    run.ended(
        1,
        &["host n2 (node 2): the plugin trapped\n  2 ranks were running there, 2 other ranks were ended"],
    );
}

// Fault: The PMI server of a node fails in a run that goes on after failures, or in a fleet
// Outcome: the node is lost with those below it, and its daemon ends
// Guarantee: A node without a server gets no more ranks, and jobs without ranks there do not notice
#[test]
fn a_run_goes_on_without_a_node_whose_backend_has_failed() {
    let mut run = Run::going_on(3, ExitCodeOf::First);
    run.report(3, Report::BackendFailed(BackendFailure::Own("the plugin trapped".into())));
    let lost = |epoch, node| to_all(Order::Input(OwnedInput::NodeLost { epoch, node }));
    assert_eq!(run.take_sent(), [to_node(3, Order::End), lost(1, 3)]);
    assert_eq!(run.head.members().collect::<Vec<_>>(), [1, 2]);
    let line = "host n3 (node 3): the plugin trapped\n  2 ranks were running there, the other ranks go on";
    assert_eq!(run.printed, [line]);
    run.lose(3..4);
    assert_eq!((run.take_sent(), run.printed.len()), (vec![], 1), "it is known");
    // Neighbours fail together: node 2 is below node 1.
    run.report(2, Report::BackendFailed(BackendFailure::Neighbour { node: 1, why: "bad frame".into() }));
    assert_eq!(run.take_sent(), [to_node(1, Order::End), lost(2, 1)]);
    assert_eq!((run.head.members().count(), run.finished), (0, Some(true)));
}

#[test]
fn a_backend_that_sends_an_invalid_message_is_named() {
    let mut run = Run::new(Config { plugin: Some("liar.wasm".into()), ..config(2) }, first_job(2, 2));
    run.event(Event::AllJoined);
    run.report(2, Report::BackendFailed(BackendFailure::Neighbour { node: 1, why: "bad frame".into() }));
    run.report(1, Report::JobDone(FIRST));
    run.report(2, Report::JobDone(FIRST));
    run.ended(
        1,
        &["host n1 (node 1): plugin liar.wasm sent host n2 (node 2) an invalid message: bad frame\n  4 other ranks were \
           not started"],
    );
}

#[test]
fn the_heads_own_backend_fails() {
    let failure = || Event::BackendFailed(BackendFailure::Own("no memory".into()));
    let mut run = Run::new(config(1), first_job(1, 2));
    run.event(failure());
    run.ended(1, &["the job was not started: host login (node 0): no memory"]);
    let mut run = Run::started(1);
    run.event(failure());
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    run.succeed(1);
    run.ended(1, &["host login (node 0): no memory\n  2 other ranks were ended"]);
}

/// The request to register the job has no answer then.
#[test]
fn the_heads_own_backend_fails_while_it_registers_a_job() {
    let mut head = Head::new(config(1), first_job(1, 2));
    head.handle(0, Event::AllJoined).expect("the daemon has joined");
    let opened = std::iter::from_fn(|| head.poll()).any(|action| matches!(action, Action::OpenJob { .. }));
    assert!(opened, "a job without settings to wait for is registered at once");
    head.handle(0, Event::BackendFailed(BackendFailure::Own("trapped".into()))).expect("the head takes it");
    let (mut printed, mut finished) = (Vec::new(), None);
    while let Some(action) = head.poll() {
        match action {
            Action::Print(line) => printed.push(line),
            Action::Finish { flush } => finished = Some(flush),
            _ => {}
        }
    }
    assert_eq!(printed, ["host login (node 0): trapped"]);
    assert_eq!((finished.is_some(), head.exit_code()), (true, 1));
}

#[test]
fn the_heads_own_backend_aborts_a_job() {
    let mut run = Run::started(1);
    let cause = |rank| Cause::Absent { rank: Rank(rank), exit: Exit::Code(0) };
    run.event(Event::Output(OwnedOutput::AbortJob { job: FIRST, cause: cause(9), message: String::new() }));
    assert_eq!(run.take_sent(), [], "there is no rank 9");
    run.event(Event::Output(OwnedOutput::AbortJob { job: FIRST, cause: cause(1), message: String::new() }));
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
}

fn lost(epoch: u32, node: u32) -> OwnedInput {
    OwnedInput::NodeLost { epoch, node }
}

// Fault: Hosts are lost one after the other in a run that goes on after failures
// Outcome: each loss is printed once, the servers get numbered changes, and the other ranks go on
// Guarantee: A lost host is a change of membership
#[test]
fn a_run_that_goes_on_survives_lost_daemons() {
    let mut run = Run::going_on(4, ExitCodeOf::First);
    run.lose(3..5);
    assert_eq!(run.take_sent(), [to_all(Order::Input(lost(1, 3)))]);
    assert_eq!(run.others.remove(0), Action::ChangeMembership(lost(1, 3)));
    let line = "host n3 (node 3): its daemon is lost\n  4 ranks were running there and on the host below it, the other \
                ranks go on";
    assert_eq!(run.printed, [line]);
    run.report(4, exited(FIRST, 6, Exit::Code(0)));
    run.lose(2..3);
    assert_eq!(run.take_sent(), [to_all(Order::Input(lost(2, 2)))]);
    run.succeed(1);
    assert_eq!((run.finished, run.head.exit_code()), (Some(true), 1));
    let last = "rank 4 on n3, pid 104, program a.out was lost, and 5 more ranks failed";
    assert_eq!(run.printed.last().map(String::as_str), Some(last));
    let mut run = Run::going_on(2, ExitCodeOf::Survivors);
    run.lose(2..3);
    run.succeed(1);
    assert_eq!((run.finished, run.head.exit_code()), (Some(true), 0));
}

#[test]
fn a_run_that_goes_on_ends_with_its_last_host() {
    let mut run = Run::going_on(2, ExitCodeOf::Survivors);
    run.lose(1..2);
    run.succeed(2);
    assert_eq!(run.finished, Some(true));
    let mut run = Run::going_on(2, ExitCodeOf::Survivors);
    run.lose(1..2);
    run.lose(2..3);
    assert_eq!((run.finished, run.head.exit_code()), (Some(true), 1), "nobody survived");
    assert!(
        run.printed[1].ends_with("\n  2 ranks were running there, no other ranks were running"),
        "{:?}",
        run.printed
    );
}

#[test]
fn a_job_that_has_not_started_on_a_lost_host_ends() {
    let mut run = Run::new(Config { cleanup: false, ..config(2) }, first_job(2, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.take_sent();
    run.lose(2..3);
    assert_eq!(run.take_sent(), [to_all(Order::Input(lost(1, 2))), to_all(Order::AbortJob(FIRST))]);
    run.exit(1, 0, Exit::Signal(15));
    run.exit(1, 1, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    let others = "2 other ranks were ended, 2 other ranks were not started";
    run.ended(1, &[&format!("host n2 (node 2): its daemon is lost\n  {others}")]);
}
