//! Validation of reports, stalled fences, and output.

use hydrant_core::trace::{Cause, Stream};
use hydrant_core::wire::Protocol;
use hydrant_core::{ConnId, OwnedInput, OwnedOutput, UpcallId};

use super::*;
use crate::protocol::{BackendFailure, OutputChunk};

#[test]
fn reports_about_ranks_of_other_nodes_are_rejected() {
    let (job, protocol, request) = (FIRST, Protocol::V1, Vec::new());
    let cause = |rank| Cause::Abort { rank: Rank(rank), code: None };
    let upcall = UpcallId(0);
    let reports = [
        exited(FIRST, 2, Exit::Code(0)),
        exited(FIRST, 4, Exit::Code(0)),
        exited(FIRST, u32::MAX, Exit::Code(0)),
        Report::RanksStarted { job, ranks: vec![(Rank(3), 9)] },
        Report::Output(OwnedOutput::Spawn {
            spawn: upcall,
            job,
            rank: Rank(2),
            protocol,
            request: request.clone(),
        }),
        Report::Output(OwnedOutput::Upcall { upcall, job, rank: Rank(2), protocol, request }),
        Report::RanksJoined { job, ranks: 0 },
        Report::RanksJoined { job, ranks: 5 },
        Report::Output(OwnedOutput::AbortJob { job, cause: cause(4), message: String::new() }),
        Report::BackendFailed(BackendFailure::Neighbour { node: 3, why: String::new() }),
        Report::BackendFailed(BackendFailure::Neighbour { node: 1, why: String::new() }),
    ];
    for report in reports {
        Run::started(2).rejects(1, &report);
    }
    for report in [Report::StdinConsumed(1), Report::StdinClosed] {
        Run::started(2).rejects(2, &report);
    }
    for node in [0, 3] {
        Run::started(2).rejects(node, &Report::Ready);
    }
}

/// A daemon carries these out itself, also for ranks of its own.
#[test]
fn outputs_that_are_the_daemons_own_are_rejected() {
    let (job, rank, conn) = (FIRST, Rank(0), ConnId(0));
    let outputs = [
        OwnedOutput::Bytes { conn, bytes: vec![1] },
        OwnedOutput::Joined { conn, job, rank },
        OwnedOutput::KillRank { job, rank, code: None, message: String::new() },
        OwnedOutput::Peer { node: 2, bytes: vec![1] },
        OwnedOutput::RemoveFiles { job, rank, paths: b"/file".to_vec() },
        OwnedOutput::Log { job, rank, stream: Stream::Stdout, text: b"text".to_vec() },
    ];
    for output in outputs {
        Run::started(2).rejects(1, &Report::Output(output));
    }
}

#[test]
fn reports_of_nodes_without_ranks_of_the_job_are_rejected() {
    let mut first = first_job(2, 1);
    first.blocks = vec![RankBlock { node: 1, first: 0, count: 2 }];
    let missing = String::new();
    let cause = Cause::Abort { rank: Rank(0), code: None };
    let reports = [
        Report::JobStarted(FIRST),
        Report::JobDone(FIRST),
        Report::RanksJoined { job: FIRST, ranks: 1 },
        Report::Output(OwnedOutput::StalledFence {
            job: FIRST,
            arrived: 0,
            size: 0,
            missing: missing.clone(),
        }),
        Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: missing }),
    ];
    for report in reports {
        let mut run = Run::new(config(2), first.clone());
        run.event(Event::AllJoined);
        run.rejects(2, &report);
    }
}

#[test]
fn reports_in_a_wrong_order_are_rejected() {
    let started = |ranks| Report::RanksStarted { job: FIRST, ranks };
    let fresh = || {
        let mut run = Run::new(config(1), first_job(1, 2));
        run.event(Event::AllJoined);
        run
    };
    fresh().rejects(1, &exited(FIRST, 0, Exit::Code(0)));
    fresh().rejects(1, &started(vec![(Rank(0), 5), (Rank(0), 6)]));
    for pid in [0, 1 << 31, u32::MAX] {
        fresh().rejects(1, &started(vec![(Rank(0), pid)]));
    }
    let mut run = Run::started(1);
    run.rejects(1, &started(vec![(Rank(0), 5)]));
    run.rejects(1, &Report::JobDone(FIRST));
    run.exit(1, 0, Exit::Code(0));
    run.exit(1, 0, Exit::Code(1));
    assert_eq!(run.head.exit_code(), 0, "a rank ends once");
    run.rejects(1, &Report::JobDone(FIRST));
}

// Fault: A daemon reports that a rank of another host aborted or died
// Outcome: the run ends; the daemon's host is named
// Guarantee: A daemon reports aborts and deaths of its own ranks only
#[test]
fn an_abort_by_a_rank_of_another_node_is_rejected() {
    let report = |cause| Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: String::new() });
    let (rank, exit) = (Rank(2), Exit::Code(0));
    let causes = [
        Cause::Abort { rank, code: Some(0) },
        Cause::NoFinalize { rank, exit },
        Cause::Died { rank, exit: Exit::Signal(9) },
    ];
    for cause in causes {
        Run::started(2).rejects(1, &report(cause));
    }
    let mut run = Run::started(2);
    run.report(1, report(Cause::Absent { rank, exit }));
    assert_eq!(run.take_sent(), [to_all(Order::AbortJob(FIRST))], "ranks of the node wait for it");
}

#[test]
fn a_start_is_reported_after_all_ranks() {
    let mut run = Run::new(config(1), first_job(1, 2));
    run.event(Event::AllJoined);
    run.rejects(1, &Report::JobStarted(FIRST));
    run.report(1, Report::RanksStarted { job: FIRST, ranks: vec![(Rank(0), 5)] });
    run.rejects(1, &Report::JobStarted(FIRST));
}

#[test]
fn bytes_that_are_no_report_are_rejected() {
    let mut run = Run::started(1);
    let error = run.try_event(Event::Message { node: 1, bytes: b"\xff\xff" }).unwrap_err();
    assert_eq!(error.to_string(), "host n1 (node 1) sent an invalid report");
}

#[test]
fn reports_about_ended_jobs_and_of_lost_nodes_are_ignored() {
    let mut run = Run::started(2);
    let gone = JobId(5);
    let stale = [exited(gone, 0, Exit::Code(1)), Report::JobDone(gone), Report::JobStarted(gone)];
    stale.into_iter().for_each(|report| run.report(1, report));
    run.report(1, Report::RanksStarted { job: gone, ranks: vec![(Rank(7), 1)] });
    run.report(1, Report::StartFailed { job: gone, error: start_error("late") });
    run.report(
        1,
        Report::Output(OwnedOutput::StalledFence { job: gone, arrived: 0, size: 0, missing: "1".into() }),
    );
    run.lose(2..3);
    run.take_sent();
    run.report(2, Report::Print("lost".into()));
    run.report(2, exited(FIRST, 0, Exit::Code(1)));
    assert_eq!((run.take_sent(), run.printed.len()), (Vec::new(), 0));
}

#[test]
fn lines_of_daemons_are_printed() {
    let mut run = Run::started(1);
    run.report(1, Report::Identity { pid: 3 });
    run.report(1, Report::Print("started rank 0".into()));
    assert_eq!(run.printed, ["started rank 0"]);
}

#[test]
fn output_is_checked() {
    let mut run = Run::started(2);
    let chunk = |job, rank| OutputChunk { job, rank: Rank(rank), stderr: false, bytes: b"hello" };
    let decode =
        |run: &Run, node, chunk| run.head.decode_output(node, &encode(&chunk)).map(|chunk| chunk.is_some());
    assert!(matches!(decode(&run, 1, chunk(FIRST, 1)), Ok(true)));
    assert!(matches!(decode(&run, 1, chunk(JobId(3), 1)), Ok(false)));
    assert!(decode(&run, 1, chunk(FIRST, 2)).is_err());
    assert!(decode(&run, 2, chunk(FIRST, 4)).is_err());
    assert!(run.head.decode_output(1, b"\xff").is_err());
    run.event(Event::OutputClosed { job: FIRST, streams: vec![(Rank(1), false)] });
    run.event(Event::OutputClosed { job: JobId(3), streams: vec![(Rank(1), false)] });
    run.event(Event::OutputClosed { job: FIRST, streams: Vec::new() });
    assert_eq!(run.take_sent(), [to_all(Order::CloseOutput { job: FIRST, streams: vec![(Rank(1), false)] })]);
}

#[test]
fn a_stalled_fence_is_reported_by_all_nodes_in_a_limited_number_of_lines() {
    let mut run = Run::started(20);
    let stalled = |missing: &str| {
        Report::Output(OwnedOutput::StalledFence { job: FIRST, arrived: 0, size: 0, missing: missing.into() })
    };
    run.report(1, stalled(""));
    assert_eq!(run.take_sent(), [to_all(Order::Input(OwnedInput::StalledFence { job: FIRST }))]);
    for node in 2..=20 {
        run.report(node, stalled(&format!("{node}")));
    }
    assert_eq!((run.take_sent(), run.printed.len()), (Vec::new(), 16));
    assert_eq!(run.printed[0], "ranks have been waiting for 1 s: missing: rank 2 (pid 102 on n2)");
    run.now = 999;
    run.report(1, stalled("0"));
    assert_eq!(run.printed.len(), 16);
    run.now = 1000;
    run.report(1, stalled("0"));
    assert_eq!(
        (run.take_sent(), run.printed.len()),
        (vec![to_all(Order::Input(OwnedInput::StalledFence { job: FIRST }))], 17)
    );
}
