//! Tests of the head: a host that answers actions at once, and daemons that the tests play. Random runs have real daemons.

mod boards;
mod departure;
mod failures;
mod fleet;
mod growth;
mod node;
mod random;
mod reports;
mod requests;
mod signals;
mod starts;

use std::time::Duration;

use hydrant_core::trace::Exit;
use hydrant_core::{JobId, Rank};
use hydrant_placement::{Host, MapBy};

use super::*;
use crate::protocol::{Boards, Report, Setup, StartError, encode};
use crate::tests::{program, setup};

/// The job of the command line.
const FIRST: JobId = JobId(0);

/// A head with its host. Actions that need an answer get it at once.
struct Run {
    head: Head,
    now: u64,
    /// Orders in the order in which they were sent.
    sent: Vec<(Destination, Order)>,
    /// Printed lines.
    printed: Vec<String>,
    /// Actions of other kinds, without those that are answered.
    others: Vec<Action>,
    /// Answer to the next job that is opened, if it is a failure.
    refuse_open: Option<StartError>,
    /// Answer to spawns.
    programs: Vec<Result<SpawnProgram, (u8, String)>>,
    finished: Option<bool>,
}

fn config(nodes: u32) -> Config {
    Config {
        host: "login".into(),
        hosts: (1..=nodes).map(|node| Host::with_slots(&format!("n{node}"), 2)).collect(),
        unused: 0,
        late: 0,
        least: None,
        map_by: MapBy::Slot,
        verbose: false,
        cleanup: true,
        stays: false,
        universe_size: None,
        exit_code_of: ExitCodeOf::First,
        exit_report: false,
        is_alone: false,
        shares_names: false,
        fence_warning: 1000,
        plugin: None,
        process: 7,
        order_max: Some(1 << 16),
        radix: 2,
        link_addrs: Vec::new(),
    }
}

/// A job with `ranks` ranks on each node.
fn first_job(nodes: u32, ranks: u32) -> FirstJob {
    let block = |node: u32| RankBlock { node, first: (node - 1) * ranks, count: ranks };
    FirstJob {
        programs: vec![program(nodes * ranks)],
        blocks: (1..=nodes).map(block).collect(),
        mapping: "(vector,(0,1,1))".into(),
        nonce: 1,
        setup: setup(),
        awaits_debugger: false,
    }
}

impl Run {
    fn new(config: Config, first: FirstJob) -> Run {
        Run {
            head: Head::new(config, first),
            now: 0,
            sent: Vec::new(),
            printed: Vec::new(),
            others: Vec::new(),
            refuse_open: None,
            programs: Vec::new(),
            finished: None,
        }
    }

    /// A run whose first job, of two ranks a node, runs on all nodes.
    fn started(nodes: u32) -> Run {
        Run::with(config(nodes))
    }

    /// The same run, which goes on after failures.
    fn going_on(nodes: u32, exit_code_of: ExitCodeOf) -> Run {
        Run::with(Config { cleanup: false, exit_code_of, ..config(nodes) })
    }

    fn with(config: Config) -> Run {
        let nodes = config.hosts.len() as u32;
        let mut run = Run::new(config, first_job(nodes, 2));
        run.event(Event::AllJoined);
        for node in 1..=nodes {
            run.start(node, FIRST, &[2 * node - 2, 2 * node - 1]);
        }
        run.sent.clear();
        run.others.clear();
        run
    }

    fn event(&mut self, event: Event<'_>) {
        self.try_event(event).expect("the run goes on");
    }

    fn try_event(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.head.handle(self.now, event)?;
        while let Some(action) = self.head.poll() {
            match action {
                Action::Send { to, order } => self.sent.push((to, order)),
                Action::Print(lines) => self.printed.push(lines),
                Action::Finish { flush } => self.finished = Some(flush),
                Action::OpenJob { record } => {
                    let job = record.id;
                    let answer = match self.refuse_open.take() {
                        Some(error) => Event::OpenFailed { job, error },
                        None => Event::JobOpened { job },
                    };
                    self.head.handle(self.now, answer)?;
                }
                Action::ResolveSpawn { request, .. } => {
                    let programs = self.programs.clone();
                    self.head.handle(self.now, Event::SpawnResolved { request, nonce: 2, programs })?;
                }
                Action::DrainOutput { job } => {
                    self.head.handle(self.now, Event::OutputDrained { job, reader_closed: false })?;
                }
                other => self.others.push(other),
            }
        }
        Ok(())
    }

    fn try_report(&mut self, node: u32, report: &Report) -> Result<(), Error> {
        self.try_event(Event::Message { node, bytes: &encode(report) })
    }

    fn report(&mut self, node: u32, report: Report) {
        self.try_report(node, &report).expect("the report is valid");
    }

    /// Asserts that a report ends the run, and names its node.
    fn rejects(&mut self, node: u32, report: &Report) {
        let error = self.try_report(node, report).expect_err("the report is invalid");
        assert!(
            matches!(error, Error::InvalidReport { node: named, .. } if named == node),
            "{report:?}: {error}"
        );
    }

    /// A node starts all of its ranks.
    fn start(&mut self, node: u32, job: JobId, ranks: &[u32]) {
        let ranks = ranks.iter().map(|&rank| (Rank(rank), 100 + rank)).collect();
        self.report(node, Report::RanksStarted { job, ranks });
        self.report(node, Report::JobStarted(job));
    }

    fn exit(&mut self, node: u32, rank: u32, exit: Exit) {
        self.report(node, exited(FIRST, rank, exit));
    }

    /// All ranks of the first job exit with 0 on a node, which is done then.
    fn succeed(&mut self, node: u32) {
        for rank in [2 * node - 2, 2 * node - 1] {
            self.exit(node, rank, Exit::Code(0));
        }
        self.report(node, Report::JobDone(FIRST));
    }

    fn lose(&mut self, nodes: std::ops::Range<u32>) {
        let reason = format!("host n{} (node {}): its daemon is lost", nodes.start, nodes.start);
        self.event(Event::NodesLost { nodes, reason });
    }

    /// Orders sent since the last call.
    fn take_sent(&mut self) -> Vec<(Destination, Order)> {
        std::mem::take(&mut self.sent)
    }

    /// Asserts that the run is over with that exit code, after this text.
    fn ended(&self, code: u8, printed: &[&str]) {
        assert_eq!((self.finished, self.head.is_over()), (Some(true), true));
        assert_eq!(self.head.exit_code(), code);
        assert_eq!(self.printed, printed);
    }
}

fn exited(job: JobId, rank: u32, exit: Exit) -> Report {
    Report::Exited { job, rank: Rank(rank), exit, requested: None }
}

fn to_all(order: Order) -> (Destination, Order) {
    (Destination::All, order)
}

fn to_node(node: u32, order: Order) -> (Destination, Order) {
    (Destination::Node(node), order)
}

fn start_error(text: &str) -> StartError {
    StartError { appnum: Some(0), code: 127, errno: 2, limit: None, text: text.into() }
}

#[test]
fn a_job_that_succeeds_ends_on_all_nodes() {
    let mut run = Run::started(2);
    run.succeed(1);
    assert_eq!((run.take_sent(), run.finished), (Vec::new(), None));
    run.succeed(2);
    assert_eq!(run.take_sent(), [], "the servers go with their last job");
    run.ended(0, &[]);
    assert!(run.others.iter().any(|action| matches!(action, Action::CloseJob { job: FIRST, .. })));
    assert!(
        !run.others.contains(&Action::DeregisterJob { job: FIRST }),
        "the backend goes with its last job"
    );
}

#[test]
fn boards_are_told_of_the_end_of_the_last_job() {
    let boards = Boards { targets: vec![(1, "board".into())], ..setup().boards };
    let mut run = Run::new(config(1), FirstJob { setup: Setup { boards, ..setup() }, ..first_job(1, 2) });
    run.event(Event::AllJoined);
    run.report(1, Report::Ready);
    run.start(1, FIRST, &[0, 1]);
    run.take_sent();
    run.succeed(1);
    assert_eq!(run.take_sent(), [to_all(Order::DeregisterJob(FIRST))]);
}

#[test]
fn a_job_ends_once_its_output_is_written() {
    let mut head = Head::new(config(1), first_job(1, 1));
    let mut handle = |event: Event<'_>| {
        head.handle(0, event).unwrap();
        std::iter::from_fn(|| head.poll()).collect::<Vec<_>>()
    };
    handle(Event::AllJoined);
    handle(Event::JobOpened { job: FIRST });
    let reports = [
        Report::RanksStarted { job: FIRST, ranks: vec![(Rank(0), 5)] },
        Report::JobStarted(FIRST),
        exited(FIRST, 0, Exit::Code(1)),
        Report::JobDone(FIRST),
    ];
    let actions = reports.map(|report| handle(Event::Message { node: 1, bytes: &encode(&report) }));
    assert_eq!(actions[3], [Action::DrainOutput { job: FIRST }]);
    let report = "rank 0 on n1, pid 5, program a.out exited with code 1";
    let actions = handle(Event::OutputDrained { job: FIRST, reader_closed: false });
    let [print, Action::CloseJob { job: FIRST, summary, .. }, finish] = &*actions else {
        panic!("{actions:?}")
    };
    assert_eq!((print, finish), (&Action::Print(report.into()), &Action::Finish { flush: true }));
    assert_eq!((summary.ordinal, summary.message.as_deref()), (0, Some(report)));
    assert_eq!(summary.exits, [(Some(Exit::Code(1)), vec![(0, 1)])]);
    assert_eq!(handle(Event::OutputDrained { job: FIRST, reader_closed: false }), []);
}

#[test]
fn lost_output_is_a_failure() {
    let mut run = Run::started(1);
    run.succeed(1);
    run.event(Event::OutputLost);
    run.ended(1, &[]);
}

#[test]
fn settings_are_sent_as_given() {
    let mut run = Run::new(config(1), FirstJob { setup: setup_of(3), ..first_job(1, 1) });
    run.event(Event::AllJoined);
    assert_eq!(run.sent[0], to_all(Order::Setup(Box::new(setup_of(3)))));
}

fn setup_of(seconds: u64) -> Setup {
    let mut setup = setup();
    setup.settings.fence_warning = Duration::from_secs(seconds);
    setup
}
