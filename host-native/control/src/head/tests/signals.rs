//! Signals of the user.

use hydrant_core::trace::Cause;
use libc::{SIGCONT, SIGINT, SIGKILL, SIGTERM, SIGTSTP, SIGUSR1};

use super::*;

#[test]
fn an_interrupt_before_all_daemons_have_joined_ends_the_run() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.event(Event::Signal(SIGINT));
    assert_eq!((run.finished, run.head.exit_code()), (Some(false), 130));
    assert_eq!(run.printed, ["ended by SIGINT before all hosts were there"]);
    run.event(Event::AllJoined);
    run.event(Event::Signal(SIGINT));
    assert!(!run.sent.iter().any(|(_, order)| matches!(order, Order::Setup(_) | Order::StartJob(_))));
    assert_eq!((run.printed.len(), run.head.exit_code()), (1, 130));
}

#[test]
fn an_interrupt_before_the_debugger_releases_the_job_ends_the_run() {
    let mut run = Run::new(config(1), FirstJob { awaits_debugger: true, ..first_job(1, 2) });
    run.event(Event::AllJoined);
    run.event(Event::Signal(SIGINT));
    assert_eq!((run.finished, run.head.exit_code()), (Some(false), 130));
    assert_eq!(run.printed, ["ended by SIGINT before the debugger released the job"]);
}

#[test]
fn an_interrupt_is_passed_on_and_the_second_one_kills() {
    let mut run = Run::started(1);
    run.event(Event::Signal(SIGINT));
    run.event(Event::Signal(SIGINT));
    let signals = [SIGINT, SIGKILL].map(|signal| to_all(Order::Signal(signal)));
    assert_eq!((run.take_sent(), run.finished), (signals.to_vec(), None));
    run.exit(1, 0, Exit::Signal(9));
    run.exit(1, 1, Exit::Signal(9));
    run.report(1, Report::JobDone(FIRST));
    run.ended(130, &["the job was ended by SIGINT"]);
}

// Fault: Ctrl-C while daemons start ranks
// Outcome: code 130; the ranks get SIGTERM, later SIGKILL
// Guarantee: A job that is not started as a whole ends
// Also: hydrant-control `signals_that_end_ranks_stop_the_start_of_others`
#[test]
fn an_interrupted_start_ends_ranks_that_ignore_the_signal() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.report(2, Report::RanksStarted { job: FIRST, ranks: vec![(Rank(2), 5)] });
    run.event(Event::Signal(SIGINT));
    run.take_sent();
    run.report(2, Report::StartFailed { job: FIRST, error: StartError::unfinished() });
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))]);
    for (node, rank) in [(1, 0), (1, 1), (2, 2)] {
        run.exit(node, rank, Exit::Signal(9));
    }
    run.report(1, Report::JobDone(FIRST));
    run.report(2, Report::JobDone(FIRST));
    run.ended(130, &["the job was ended by SIGINT"]);
}

#[test]
fn ranks_that_die_by_the_signal_were_ended_by_it() {
    let mut run = Run::started(1);
    run.event(Event::Signal(SIGTERM));
    run.exit(1, 1, Exit::Signal(SIGTERM as u8));
    run.exit(1, 0, Exit::Code(0));
    run.report(1, Report::JobDone(FIRST));
    run.ended(143, &["the job was ended by SIGTERM"]);
}

#[test]
fn an_abort_before_the_signal_is_the_reason() {
    let mut run = Run::started(1);
    let cause = Cause::Abort { rank: Rank(0), code: Some(4) };
    run.report(1, Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: "no".into() }));
    run.event(Event::Signal(SIGTERM));
    run.exit(1, 0, Exit::Code(4));
    run.exit(1, 1, Exit::Signal(15));
    run.report(1, Report::JobDone(FIRST));
    run.ended(
        4,
        &["rank 0 aborted the job with code 4: no\n  rank 0 on n1, pid 100, program a.out\n  1 other rank was ended"],
    );
}

#[test]
fn a_signal_before_nodes_have_reported_their_ranks_ends_the_run() {
    let mut run = Run::new(config(1), first_job(1, 2));
    run.event(Event::AllJoined);
    run.event(Event::Signal(SIGTERM));
    assert_eq!((run.finished, run.head.exit_code()), (Some(false), 143));
    assert_eq!(run.printed, ["the job was ended by SIGTERM"]);
}

#[test]
fn signals_for_ranks_do_not_end_the_run() {
    let mut run = Run::started(1);
    run.head.config.verbose = true;
    run.event(Event::Signal(SIGUSR1));
    run.event(Event::Suspended);
    run.event(Event::Resumed);
    let signals = [SIGUSR1, SIGTSTP, SIGCONT].map(|signal| to_all(Order::Signal(signal)));
    assert_eq!(run.take_sent(), signals);
    run.succeed(1);
    run.ended(0, &["passing SIGUSR1 on"]);
}
