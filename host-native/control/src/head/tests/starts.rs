//! Start of the first job.

use std::ffi::OsString;

use super::*;
use crate::protocol::{StdinTarget, Stop, StopAt, ToolOptions};

#[test]
fn nothing_is_sent_before_all_daemons_have_joined() {
    let mut run = Run::new(Config { verbose: true, ..config(2) }, first_job(2, 2));
    run.event(Event::Joined { node: 2 });
    assert_eq!((run.take_sent(), run.head.awaits_nodes()), (Vec::new(), true));
    assert_eq!(run.printed, ["the daemon of host n2 has joined"]);
    run.event(Event::AllJoined);
    let sent = run.take_sent();
    assert!(
        matches!(&sent[..], [(_, Order::Setup(_)), (_, Order::StartJob(record))] if record.name.starts_with("kvs_7_0_"))
    );
    assert_eq!((run.others.clone(), run.head.awaits_nodes()), (vec![Action::AllowStdin(None)], false));
    run.event(Event::AllJoined);
    assert_eq!(run.take_sent(), []);
}

#[test]
fn the_job_waits_for_nodes_that_have_to_prepare() {
    let setup = Setup { record: Some(OsString::from("/tmp/x")), ..setup() };
    let mut run = Run::new(config(2), FirstJob { setup, ..first_job(2, 2) });
    run.event(Event::AllJoined);
    run.report(2, Report::Ready);
    run.report(2, Report::Ready);
    assert_eq!(run.take_sent().len(), 1, "the settings");
    run.report(1, Report::Ready);
    assert!(matches!(&run.take_sent()[..], [(Destination::All, Order::StartJob(_))]));
}

/// The job of a launcher that a debugger has started is the debugger's spawn.
#[test]
fn the_job_waits_for_its_debugger() {
    let mut run = Run::new(config(2), FirstJob { awaits_debugger: true, ..first_job(2, 2) });
    run.event(Event::AllJoined);
    assert!(matches!(&run.take_sent()[..], [(Destination::All, Order::Setup(_))]));
    assert_eq!((run.others.clone(), run.finished), (vec![Action::FirstJobWaits], None));
    run.event(released(Stopped::Some([1, 2].into())));
    let sent = run.take_sent();
    let [(Destination::All, Order::StartJob(record))] = &sent[..] else { panic!("{sent:?}") };
    let stop = record.spawned.as_ref().and_then(|spawned| spawned.tool.as_ref()?.stop.as_ref());
    assert_eq!((record.ordinal, stop.map(|stop| &*stop.ranks)), (0, Some(&[(1, 2)][..])));
    run.event(released(Stopped::No));
    assert_eq!(run.take_sent(), [], "once");
    run.others.clear();
    run.start(1, FIRST, &[0, 1]);
    run.start(2, FIRST, &[2, 3]);
    for node in [1, 2] {
        run.report(node, Report::JobStarted(FIRST));
    }
    let answered = Action::AnswerTool { upcall: SPAWN, started: true, limit: None, codes: vec![0] };
    assert!(run.others.contains(&answered), "{:?}", run.others);
}

#[test]
fn the_debugger_of_the_job_names_ranks_that_it_has() {
    let mut run = Run::new(config(1), FirstJob { awaits_debugger: true, ..first_job(1, 2) });
    run.event(Event::AllJoined);
    let error = run.try_event(released(Stopped::Some([2].into()))).unwrap_err();
    assert!(matches!(error, Error::NoRankToStop { rank: 2, size: 2 }), "{error}");
}

/// Number of a debugger's spawn.
const SPAWN: hydrant_core::UpcallId = hydrant_core::UpcallId(9);

fn released(stopped: Stopped) -> Event<'static> {
    let stop = Some(Stop { at: StopAt::Init, ranks: Vec::new() });
    let (job, tool) = (JobId(63), "tool".to_owned());
    Event::FirstJobReleased {
        upcall: SPAWN,
        job,
        tool,
        stopped,
        options: ToolOptions { stop, ..ToolOptions::default() },
    }
}

#[test]
fn a_job_that_is_too_large_for_a_message_ends_the_run() {
    let mut run = Run::new(Config { order_max: Some(10), ..config(1) }, first_job(1, 1));
    let error = run.try_event(Event::AllJoined).unwrap_err();
    assert!(matches!(error, Error::JobTooLarge { max: 10, .. }), "{error}");
}

#[test]
fn the_host_cannot_register_the_job() {
    let mut run = Run::new(config(1), first_job(1, 1));
    run.refuse_open = Some(start_error("no room"));
    run.event(Event::AllJoined);
    assert_eq!(run.take_sent().len(), 1, "the settings");
    run.ended(127, &["no room"]);
}

#[test]
fn a_node_that_cannot_start_its_ranks_cancels_the_job() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.take_sent();
    run.report(2, Report::StartFailed { job: FIRST, error: start_error("cannot start a.out: not found") });
    run.report(2, Report::StartFailed { job: FIRST, error: start_error("again") });
    assert_eq!(run.take_sent(), [to_all(Order::CancelJob(FIRST))]);
    run.report(2, Report::JobDone(FIRST));
    run.exit(1, 0, Exit::Signal(9));
    run.exit(1, 1, Exit::Signal(9));
    run.report(1, Report::JobDone(FIRST));
    run.ended(127, &["host n2: cannot start a.out: not found"]);
}

#[test]
fn the_job_is_aborted_while_the_host_registers_it() {
    let mut head = Head::new(config(1), first_job(1, 1));
    let mut handle = |event: Event<'_>| {
        head.handle(0, event).unwrap();
        std::iter::from_fn(|| head.poll()).collect::<Vec<_>>()
    };
    handle(Event::AllJoined);
    handle(Event::NodesLost { nodes: 1..2, reason: "host n1 is lost".into() });
    let actions = handle(Event::JobOpened { job: FIRST });
    assert!(!actions.iter().any(|action| matches!(action, Action::Send { order: Order::StartJob(_), .. })));
    assert!(actions.contains(&Action::DrainOutput { job: FIRST }));
}

#[test]
fn input_goes_to_the_node_of_rank_0() {
    let mut first = first_job(2, 1);
    first.blocks = vec![RankBlock { node: 2, first: 0, count: 1 }, RankBlock { node: 1, first: 1, count: 1 }];
    let mut run = Run::new(config(2), first);
    run.event(Event::StdinRead(b"early".to_vec()));
    run.event(Event::AllJoined);
    run.take_sent();
    run.event(Event::StdinRead(b"x".to_vec()));
    assert_eq!(run.take_sent(), [to_node(2, Order::Stdin(b"x".to_vec()))]);
    run.report(2, Report::StdinConsumed(1));
    run.report(2, Report::StdinClosed);
    assert_eq!(run.others, [Action::AllowStdin(None), Action::AllowStdin(Some(1)), Action::CloseStdin]);
    run.lose(2..3);
    run.take_sent();
    run.event(Event::StdinRead(b"late".to_vec()));
    assert_eq!(run.take_sent(), []);
}

#[test]
fn input_for_all_ranks_has_the_pace_of_the_slowest_node() {
    let mut first = first_job(2, 2);
    first.setup.settings.stdin = StdinTarget::All;
    let mut run = Run::new(config(3), first);
    run.event(Event::AllJoined);
    run.take_sent();
    run.event(Event::StdinRead(b"abcd".to_vec()));
    assert_eq!(run.take_sent(), [to_all(Order::Stdin(b"abcd".to_vec()))]);
    run.report(1, Report::StdinConsumed(4));
    run.report(2, Report::StdinConsumed(1));
    run.report(2, Report::StdinClosed);
    run.report(1, Report::StdinClosed);
    let allowed = [None, Some(1), Some(3)].map(Action::AllowStdin);
    assert_eq!(run.others, [&allowed[..], &[Action::CloseStdin]].concat());
    run.rejects(3, &Report::StdinConsumed(1));
}

// Fault: A daemon reports that its ranks have read more input than they were sent
// Outcome: the run ends; the host is named
// Guarantee: The head reads at most 256 KiB ahead of the slowest reader
#[test]
fn a_node_that_consumes_more_input_than_it_was_sent_is_rejected() {
    let mut run = Run::new(config(1), first_job(1, 1));
    run.event(Event::AllJoined);
    run.event(Event::StdinRead(b"abcd".to_vec()));
    run.report(1, Report::StdinConsumed(3));
    run.rejects(1, &Report::StdinConsumed(2));
    run.report(1, Report::StdinConsumed(1));
    run.rejects(1, &Report::StdinConsumed(u32::MAX));
}

// Fault: A daemon reports a failed start with exit code 0
// Outcome: the run ends with code 1
// Guarantee: A job that cannot be started has failed
#[test]
fn a_job_that_cannot_be_started_has_failed() {
    let mut run = Run::new(config(1), first_job(1, 1));
    run.event(Event::AllJoined);
    let error = StartError { code: 0, ..start_error("no such program") };
    run.report(1, Report::StartFailed { job: FIRST, error });
    run.report(1, Report::JobDone(FIRST));
    run.ended(1, &["host n1: no such program"]);
}

// Fault: A daemon is done with a job before it has started all ranks
// Outcome: the job ends with code 1; the host is named
// Guarantee: Code 0 needs all ranks of the first job
// Also: hydrant-control `a_start_is_reported_after_all_ranks`
#[test]
fn a_node_that_is_done_before_all_of_its_ranks_were_started_has_failed() {
    let mut run = Run::new(config(2), first_job(2, 2));
    run.event(Event::AllJoined);
    run.start(1, FIRST, &[0, 1]);
    run.report(2, Report::RanksStarted { job: FIRST, ranks: vec![(Rank(2), 5)] });
    run.take_sent();
    // A signal to its daemon stops the start.
    run.exit(2, 2, Exit::Code(0));
    run.report(2, Report::JobDone(FIRST));
    assert_eq!(run.take_sent(), [to_all(Order::CancelJob(FIRST))]);
    run.exit(1, 0, Exit::Signal(9));
    run.exit(1, 1, Exit::Signal(9));
    run.report(1, Report::JobDone(FIRST));
    run.ended(1, &["host n2: its daemon has not started all ranks"]);
}
