//! Tests of the daemon: a host that opens every job, unless a test refuses it.

use std::rc::Rc;

use hydrant_core::trace::Cause;
use hydrant_core::wire::Protocol;
use hydrant_core::{ConnId, OwnedInput, OwnedOutput, UpcallId, trace::Exit};
use libc::{SIGCONT, SIGINT, SIGKILL, SIGTERM, SIGTSTP, SIGUSR1};

use super::*;
use crate::KILL_TIMEOUT;
use crate::protocol::{Order, RankBlock, StartError, SubmissionId, Submitted};
use crate::tests::{record, setup};

const JOB: JobId = JobId(0);

/// A daemon of node 1 with its host.
struct Run {
    daemon: Daemon,
    now: u64,
    /// Reports since the last look.
    sent: Vec<Report>,
    /// Actions of other kinds since the last look, without those that are answered.
    others: Vec<DaemonAction>,
    refuse_open: bool,
}

impl Run {
    fn new() -> Run {
        Run::with(DaemonConfig {
            node: 1,
            process: 77,
            needs_ready: false,
            verbose: false,
            progress: true,
            kill_grace: None,
        })
    }

    fn with(config: DaemonConfig) -> Run {
        let daemon = Daemon::new(config);
        Run { daemon, now: 0, sent: Vec::new(), others: Vec::new(), refuse_open: false }
    }

    /// A daemon with a job whose ranks 0 and 1 run here, and rank 2 on node 2.
    fn started() -> Run {
        let mut run = Run::new();
        run.order(start(JOB, &[1, 1, 2]));
        run.start_all(JOB);
        run.take_sent();
        run
    }

    fn event(&mut self, event: DaemonEvent) {
        self.daemon.handle(self.now, event).expect("the node goes on");
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.daemon.poll() {
            match action {
                DaemonAction::Send(report) => self.sent.push(report),
                DaemonAction::OpenJob { record } => {
                    let job = record.id;
                    let answer = match self.refuse_open {
                        true => DaemonEvent::OpenFailed { job, errors: vec![start_error()] },
                        false => DaemonEvent::JobOpened { job },
                    };
                    self.daemon.handle(self.now, answer).expect("no order");
                }
                other => self.others.push(other),
            }
        }
    }

    fn order(&mut self, order: Order) {
        self.event(DaemonEvent::Order(order));
    }

    /// Starts all ranks of a job, as process 100 + rank.
    fn start_all(&mut self, job: JobId) {
        while let Some(rank) = self.daemon.next_rank(job) {
            let event = DaemonEvent::RankStarted { job, rank, pid: 100 + rank.0 };
            self.daemon.handle(self.now, event).expect("no order");
        }
        self.carry_out();
    }

    fn exit(&mut self, rank: u32) {
        self.event(DaemonEvent::RankExited { job: JOB, rank: Rank(rank), exit: Exit::Code(0) });
    }

    fn take_sent(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.sent)
    }

    fn take_others(&mut self) -> Vec<DaemonAction> {
        std::mem::take(&mut self.others)
    }
}

/// An order to start a job whose ranks run on these nodes.
fn start(id: JobId, nodes: &[u32]) -> Order {
    let block = |(first, &node): (u32, &u32)| RankBlock { node, first, count: 1 };
    let mut record = record(id.0, id.0, &[nodes.len() as u32]);
    record.blocks = (0..).zip(nodes).map(block).collect();
    Order::StartJob(Box::new(record))
}

#[test]
fn ranks_wait_for_other_nodes_where_boards_are_linked() {
    let mut run = Run::new();
    run.order(Order::FormTree { are_linked: true });
    run.order(start(JOB, &[1, 1, 2]));
    run.order(start(JobId(1), &[2]));
    let opened = |job: JobId| Report::JobOpened { job, ordinal: job.0 };
    assert_eq!(run.take_sent(), [opened(JOB), opened(JobId(1))], "a board passes messages of all jobs on");
    assert_eq!((run.daemon.next_rank(JOB), run.daemon.starting()), (None, vec![]));
    run.order(Order::StartRanks(JOB));
    assert_eq!((run.daemon.next_rank(JOB), run.daemon.starting()), (Some(Rank(0)), vec![JOB]));
    // A job that is canceled before is over at once.
    run.order(start(JobId(2), &[1]));
    run.order(Order::CancelJob(JobId(2)));
    assert!(run.take_others().contains(&DaemonAction::DrainOutput { job: JobId(2) }));
    run.event(DaemonEvent::OutputDrained { job: JobId(2) });
    assert_eq!(run.take_sent().last(), Some(&Report::JobDone(JobId(2))));
}

fn start_error() -> StartError {
    StartError { appnum: None, code: 127, errno: 2, limit: None, text: "no such file".into() }
}

fn signal_job(signal: i32) -> DaemonAction {
    DaemonAction::SignalJob { job: JOB, signal }
}

fn exited(rank: u32, exit: Exit) -> Report {
    Report::Exited { job: JOB, rank: Rank(rank), exit, requested: None }
}

#[test]
fn a_job_is_reported_from_start_to_end() {
    let mut run = Run::new();
    run.order(start(JOB, &[2, 1, 1]));
    assert_eq!((run.daemon.starting(), run.daemon.next_rank(JOB)), (vec![JOB], Some(Rank(1))));
    run.start_all(JOB);
    let ranks = vec![(Rank(1), 101), (Rank(2), 102)];
    assert_eq!(run.take_sent(), [Report::RanksStarted { job: JOB, ranks }, Report::JobStarted(JOB)]);
    run.exit(2);
    run.exit(1);
    assert_eq!(run.take_sent(), [exited(2, Exit::Code(0)), exited(1, Exit::Code(0))]);
    assert_eq!(run.take_others(), [DaemonAction::DrainOutput { job: JOB }]);
    run.event(DaemonEvent::OutputDrained { job: JOB });
    run.event(DaemonEvent::OutputDrained { job: JOB });
    assert_eq!(run.take_sent(), [Report::JobDone(JOB)], "after the output, and once");
    run.order(Order::DeregisterJob(JOB));
    assert_eq!(run.take_others(), [DaemonAction::DeregisterJob { job: JOB }]);
    run.order(start(JOB, &[1]));
    assert_eq!(run.daemon.starting(), [JOB], "the number is free");
}

#[test]
fn ranks_are_reported_as_started_before_anything_else_about_them() {
    let mut run = Run::new();
    run.order(start(JOB, &[1, 1]));
    let started = DaemonEvent::RankStarted { job: JOB, rank: Rank(0), pid: 100 };
    run.daemon.handle(0, started).unwrap();
    run.exit(0);
    let ranks = vec![(Rank(0), 100)];
    assert_eq!(run.take_sent(), [Report::RanksStarted { job: JOB, ranks }, exited(0, Exit::Code(0))]);
    assert_eq!(run.take_others(), [], "rank 1 has not been started");
}

#[test]
fn a_job_without_ranks_here_is_registered_and_not_reported() {
    let mut run = Run::new();
    run.order(start(JOB, &[2, 2]));
    let cause = Cause::Abort { rank: Rank(0), code: None };
    run.event(DaemonEvent::Output(OwnedOutput::AbortJob { job: JOB, cause, message: String::new() }));
    assert_eq!((run.daemon.starting(), run.take_sent(), run.take_others()), (vec![], vec![], vec![]));
    run.order(Order::DeregisterJob(JOB));
    assert_eq!(run.take_others(), [DaemonAction::DeregisterJob { job: JOB }]);
}

#[test]
fn a_job_that_cannot_be_opened_is_done_at_once() {
    let mut run = Run::new();
    run.refuse_open = true;
    run.order(start(JOB, &[1]));
    let failed = Report::StartFailed { job: JOB, error: start_error() };
    assert_eq!(run.take_sent(), [failed.clone(), Report::JobDone(JOB)]);
    run.order(Order::CancelJob(JOB));
    run.order(Order::DeregisterJob(JOB));
    assert_eq!(run.take_others(), []);
    run.order(start(JobId(1), &[2]));
    assert_eq!(run.take_sent(), [Report::StartFailed { job: JobId(1), error: start_error() }]);
}

#[test]
fn a_rank_that_cannot_be_started_cancels_the_job_here() {
    let mut run = Run::new();
    run.order(start(JOB, &[1, 1, 1]));
    let started = DaemonEvent::RankStarted { job: JOB, rank: Rank(0), pid: 100 };
    run.daemon.handle(0, started).unwrap();
    run.event(DaemonEvent::StartFailed { job: JOB, error: start_error() });
    let ranks = vec![(Rank(0), 100)];
    let failed = Report::StartFailed { job: JOB, error: start_error() };
    assert_eq!(run.take_sent(), [Report::RanksStarted { job: JOB, ranks }, failed]);
    assert_eq!((run.daemon.next_rank(JOB), run.take_others()), (None, vec![signal_job(SIGKILL)]));
    run.event(DaemonEvent::RankExited { job: JOB, rank: Rank(0), exit: Exit::Signal(9) });
    assert_eq!(run.take_others(), [DaemonAction::DrainOutput { job: JOB }]);
    assert_eq!(run.take_sent(), [exited(0, Exit::Signal(9))], "the job never started as a whole");
}

#[test]
fn an_aborted_job_is_killed_after_the_timeout() {
    let mut run = Run::started();
    run.now = 1000;
    run.order(Order::AbortJob(JOB));
    assert_eq!(run.take_others(), [signal_job(SIGTERM), signal_job(SIGCONT)]);
    run.exit(0);
    assert_eq!(run.daemon.poll_at(), Some(1000 + KILL_TIMEOUT));
    run.daemon.handle_timeout(1000 + KILL_TIMEOUT - 1);
    assert_eq!(run.daemon.poll(), None);
    run.daemon.handle_timeout(1000 + KILL_TIMEOUT);
    run.carry_out();
    assert_eq!(run.take_others(), [signal_job(SIGKILL)]);
    run.order(Order::AbortJob(JobId(9)));
    assert_eq!(run.take_others(), [], "no such job");
}

#[test]
fn a_deregistered_job_is_not_killed() {
    let mut run = Run::started();
    run.order(Order::AbortJob(JOB));
    run.exit(0);
    run.exit(1);
    run.event(DaemonEvent::OutputDrained { job: JOB });
    run.order(Order::DeregisterJob(JOB));
    assert_eq!(run.daemon.poll_at(), None);
}

#[test]
fn a_rank_that_asks_to_be_ended_has_its_code_reported() {
    let mut run = Run::started();
    let (rank, message) = (Rank(1), "no input".to_owned());
    run.event(DaemonEvent::Output(OwnedOutput::KillRank { job: JOB, rank, code: Some(6), message }));
    let signal = |signal| DaemonAction::SignalRank { job: JOB, rank, signal };
    let line = DaemonAction::Print("rank 1 aborted itself with code 6: no input".into());
    assert_eq!(run.take_others(), [line, signal(SIGTERM), signal(SIGCONT)]);
    run.daemon.handle_timeout(KILL_TIMEOUT);
    run.carry_out();
    assert_eq!(run.take_others(), [signal(SIGKILL)]);
    run.event(DaemonEvent::RankExited { job: JOB, rank, exit: Exit::Signal(9) });
    let report = Report::Exited { job: JOB, rank, exit: Exit::Signal(9), requested: Some(6) };
    assert_eq!(run.take_sent(), [report]);
}

#[test]
fn signals_that_end_ranks_stop_the_start_of_others() {
    for (signal, next) in [(SIGUSR1, Some(Rank(0))), (SIGTSTP, Some(Rank(0))), (SIGTERM, None)] {
        let mut run = Run::new();
        run.order(start(JOB, &[1, 1]));
        run.order(Order::Signal(signal));
        assert_eq!(run.daemon.next_rank(JOB), next, "signal {signal}");
        assert_eq!(run.others[0], DaemonAction::SignalAll(signal));
        let drains = run.others.contains(&DaemonAction::DrainOutput { job: JOB });
        assert_eq!(drains, next.is_none(), "a job none of whose ranks starts is over");
        let unfinished = Report::StartFailed { job: JOB, error: StartError::unfinished() };
        assert_eq!(run.take_sent(), if next.is_none() { vec![unfinished] } else { Vec::new() });
    }
}

#[test]
fn signals_of_the_daemon_are_passed_on() {
    let verbose = DaemonConfig {
        node: 1,
        process: 77,
        needs_ready: false,
        verbose: true,
        progress: false,
        kill_grace: None,
    };
    let mut run = Run::with(verbose);
    run.order(start(JOB, &[1]));
    run.event(DaemonEvent::Suspended);
    run.event(DaemonEvent::Resumed);
    run.event(DaemonEvent::Signal(SIGUSR1));
    assert_eq!(run.daemon.next_rank(JOB), Some(Rank(0)));
    run.start_all(JOB);
    run.event(DaemonEvent::Signal(SIGINT));
    run.event(DaemonEvent::Signal(SIGINT));
    let all = DaemonAction::SignalAll;
    let print = |name: &str| DaemonAction::Print(format!("passing {name} on"));
    let (usr1, int) = (print("SIGUSR1"), print("SIGINT"));
    let expected =
        [all(SIGTSTP), all(SIGCONT), usr1, all(SIGUSR1), int.clone(), all(SIGINT), int, all(SIGKILL)];
    assert_eq!(run.take_others(), expected);
}

#[test]
fn a_failed_backend_ends_the_ranks_and_keeps_the_links() {
    let mut run = Run::started();
    let failure = BackendFailure::Own("trap".into());
    run.event(DaemonEvent::BackendFailed(failure.clone()));
    assert!(run.daemon.has_failed_backend());
    assert_eq!(run.take_sent(), [Report::BackendFailed(failure)]);
    assert_eq!(run.take_others(), [DaemonAction::SignalAll(SIGKILL)]);
    run.order(Order::Input(OwnedInput::UpcallComplete { upcall: UpcallId(0), rc: 0, text: Vec::new() }));
    run.order(start(JobId(1), &[1]));
    run.order(start(JobId(2), &[2]));
    assert_eq!((run.take_sent(), run.take_others()), (vec![Report::JobDone(JobId(1))], vec![]));
    run.exit(0);
    run.exit(1);
    run.event(DaemonEvent::OutputDrained { job: JOB });
    assert_eq!(run.take_sent().last(), Some(&Report::JobDone(JOB)));
}

#[test]
fn a_backend_that_fails_while_it_registers_a_job_ends_it() {
    let mut run = Run::new();
    run.daemon.handle(0, DaemonEvent::Order(start(JOB, &[1]))).unwrap();
    assert!(matches!(run.daemon.poll(), Some(DaemonAction::OpenJob { .. })));
    let failure = BackendFailure::Own("trap".into());
    run.event(DaemonEvent::BackendFailed(failure.clone()));
    assert_eq!(run.take_sent(), [Report::BackendFailed(failure), Report::JobDone(JOB)]);
    run.order(Order::DeregisterJob(JOB));
    assert_eq!(run.take_others(), [DaemonAction::SignalAll(SIGKILL)]);
}

#[test]
fn a_lost_lifeline_ends_the_node() {
    for event in [DaemonEvent::LifelineLost, DaemonEvent::Shutdown] {
        let mut run = Run::started();
        run.order(start(JobId(1), &[1]));
        run.order(Order::AbortJob(JOB));
        run.take_others();
        run.event(event);
        assert_eq!(run.take_others(), [DaemonAction::EndNode]);
        assert_eq!(
            (run.daemon.starting(), run.daemon.next_rank(JobId(1)), run.daemon.poll_at()),
            (vec![], None, None)
        );
        run.exit(0);
        run.order(Order::Identify);
        assert_eq!((run.take_sent(), run.take_others()), (vec![], vec![]));
    }
}

#[test]
fn settings_are_acknowledged_if_the_head_waits() {
    for needs_ready in [false, true] {
        let mut run = Run::with(DaemonConfig {
            node: 1,
            process: 77,
            needs_ready,
            verbose: false,
            progress: false,
            kill_grace: None,
        });
        run.order(Order::Setup(Box::new(setup())));
        run.event(DaemonEvent::SetupApplied);
        assert_eq!(
            run.take_sent(),
            [Report::Ready].iter().filter(|_| needs_ready).cloned().collect::<Vec<_>>()
        );
    }
}

#[test]
fn requests_of_ranks_are_reported_until_the_node_is_done() {
    let mut run = Run::started();
    let upcall = |upcall| {
        DaemonEvent::Output(OwnedOutput::Upcall {
            upcall: UpcallId(upcall),
            job: JOB,
            rank: Rank(0),
            protocol: Protocol::V2,
            request: b"x".to_vec(),
        })
    };
    run.event(upcall(3));
    run.event(DaemonEvent::Output(OwnedOutput::StalledFence {
        job: JOB,
        arrived: 0,
        size: 0,
        missing: "1".into(),
    }));
    assert!(matches!(
        run.take_sent()[..],
        [Report::Output(OwnedOutput::Upcall { .. }), Report::Output(OwnedOutput::StalledFence { .. })]
    ));
    run.order(Order::Input(OwnedInput::UpcallComplete {
        upcall: UpcallId(3),
        rc: 0,
        text: b"port".to_vec(),
    }));
    let complete = DaemonAction::Input(OwnedInput::UpcallComplete {
        upcall: UpcallId(3),
        rc: 0,
        text: b"port".to_vec(),
    });
    assert_eq!(run.take_others(), [complete]);
    run.exit(0);
    run.exit(1);
    run.event(DaemonEvent::OutputDrained { job: JOB });
    run.take_sent();
    run.event(upcall(4));
    assert_eq!(run.take_sent(), []);
}

#[test]
fn standard_streams_follow_the_head() {
    let mut run = Run::started();
    let (push, job, rank, bytes) = (7, JobId(9), Some(Rank(1)), b"in".to_vec());
    run.order(Order::PushInput { push, job, rank, bytes: bytes.clone() });
    assert_eq!(run.take_others(), [DaemonAction::PushInput { push, job, rank, bytes }]);
    run.order(Order::Stdin(b"in".to_vec()));
    run.order(Order::CloseOutput { job: JOB, streams: vec![(Rank(0), true)] });
    run.order(Order::CloseOutput { job: JobId(5), streams: vec![(Rank(0), true)] });
    let close = DaemonAction::CloseOutput { job: JOB, streams: vec![(Rank(0), true)] };
    assert_eq!(run.take_others(), [DaemonAction::FeedStdin(b"in".to_vec()), close]);
    run.event(DaemonEvent::StdinConsumed(2));
    run.event(DaemonEvent::StdinClosed);
    assert_eq!(run.take_sent(), [Report::StdinConsumed(2), Report::StdinClosed]);
}

#[test]
fn invalid_orders_end_the_node() {
    let mut run = Run::started();
    let again = run.daemon.handle(0, DaemonEvent::Order(start(JOB, &[1])));
    for error in [again.unwrap_err(), Order::decode(b"\xff").unwrap_err()] {
        assert_eq!(error.to_string(), "the head sent an invalid order");
    }
}

/// The head shows the start of the job of the command line alone.
#[test]
fn ranks_of_submitted_jobs_that_join_are_not_reported() {
    let mut run = Run::new();
    let Order::StartJob(mut record) = start(JOB, &[1]) else { panic!("a job") };
    let settings = Rc::new(setup().settings);
    record.submitted = Some(Submitted { id: SubmissionId(0), settings, pseudo_terminals: None });
    run.order(Order::StartJob(record));
    run.start_all(JOB);
    run.take_sent();
    run.event(DaemonEvent::Output(OwnedOutput::Joined { conn: ConnId(0), job: JOB, rank: Rank(0) }));
    assert_eq!((run.take_sent(), run.daemon.poll_at()), (vec![], None));
}

#[test]
fn ranks_that_join_are_reported_together() {
    let mut run = Run::new();
    run.order(start(JOB, &[1, 1, 1, 2]));
    run.start_all(JOB);
    run.take_sent();
    let joined = |run: &mut Run, rank| {
        run.event(DaemonEvent::Output(OwnedOutput::Joined { conn: ConnId(0), job: JOB, rank: Rank(rank) }))
    };
    joined(&mut run, 0);
    run.now = 100;
    joined(&mut run, 1);
    // A rank may connect again.
    joined(&mut run, 1);
    assert_eq!(run.take_sent(), []);
    assert_eq!(run.daemon.poll_at(), Some(JOINED_DELAY));
    run.now = JOINED_DELAY;
    run.daemon.handle_timeout(run.now);
    run.carry_out();
    assert_eq!(run.take_sent(), [Report::RanksJoined { job: JOB, ranks: 2 }]);
    assert_eq!(run.daemon.poll_at(), None);
    // The last one is reported at once. Rank 3 runs elsewhere.
    joined(&mut run, 3);
    joined(&mut run, 2);
    assert_eq!(run.take_sent(), [Report::RanksJoined { job: JOB, ranks: 1 }]);
    assert_eq!(run.daemon.poll_at(), None);
}

#[test]
fn ranks_that_join_are_not_reported_without_need() {
    let config = DaemonConfig {
        node: 1,
        process: 77,
        needs_ready: false,
        verbose: false,
        progress: false,
        kill_grace: None,
    };
    let mut run = Run::with(config);
    run.order(start(JOB, &[1, 2]));
    run.start_all(JOB);
    run.take_sent();
    run.event(DaemonEvent::Output(OwnedOutput::Joined { conn: ConnId(0), job: JOB, rank: Rank(0) }));
    assert_eq!((run.take_sent(), run.daemon.poll_at()), (Vec::new(), None));
}
