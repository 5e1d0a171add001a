//! Random runs: the head with daemons that are late, lie, fail, or get lost. All decisions are those of the real state
//! machines.
//!
//! A failure names its seed. `HYDRANT_CONTROL_SEED=N` runs that seed alone.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::trace::Cause;
use hydrant_core::wire::Protocol;
use hydrant_core::{OwnedInput, OwnedOutput, Refusal, UpcallId};
use libc::SIGINT;

use super::node::Node;
use super::*;
use crate::protocol::{OutputChunk, decode};
use crate::tests::Random;

/// Number of seeds in the suite.
const SEEDS: u64 = 2000;
/// Steps after which a run hangs.
const STEPS_MAX: u32 = 100_000;

/// Head, host and daemons of one seed.
struct World {
    random: Random,
    head: Head,
    now: u64,
    nodes: Vec<Node>,
    /// Daemons that the links have lost, but have not reported yet.
    lost_unreported: Vec<u32>,
    /// Actions that are answered later.
    open: Vec<JobId>,
    draining: Vec<JobId>,
    resolving: Vec<RequestId>,
    replying: Vec<RequestId>,
    naming: Vec<RequestId>,
    joined: bool,
    known_lost: BTreeSet<u32>,
    /// Exit code of the first failure that the head was told of.
    first_failure: Option<u8>,
    /// Exit codes of the first ranks that failed in spawned jobs of which ranks were still being started.
    early_failures: BTreeMap<JobId, u8>,
    canceled: BTreeSet<JobId>,
    aborted: BTreeSet<JobId>,
    spawned: BTreeSet<JobId>,
    abort_sent: BTreeSet<JobId>,
    signals: u32,
    finished: Option<bool>,
    stalled_lines: u32,
    /// Number of reports that the head has refused.
    refused: u32,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let nodes = 1 + random.below(4) as u32;
        let ranks = 1 + random.below(3) as u32;
        World {
            head: Head::new(config(nodes), first_job(nodes, ranks)),
            now: 0,
            nodes: (1..=nodes).map(Node::new).collect(),
            lost_unreported: Vec::new(),
            open: Vec::new(),
            draining: Vec::new(),
            resolving: Vec::new(),
            replying: Vec::new(),
            naming: Vec::new(),
            joined: false,
            known_lost: BTreeSet::new(),
            first_failure: None,
            early_failures: BTreeMap::new(),
            canceled: BTreeSet::new(),
            aborted: BTreeSet::new(),
            spawned: BTreeSet::new(),
            abort_sent: BTreeSet::new(),
            signals: 0,
            finished: None,
            stalled_lines: 0,
            refused: 0,
            random,
        }
    }

    /// Runs to the end. Returns whether any job has failed, and how many reports were refused.
    fn run(&mut self) -> (bool, u32) {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the run hangs: {:?}", self.head);
            // No new failure occurs late in a run, so that it ends.
            self.step(step > 800);
            if let Some(flush) = self.finished
                && (!flush || self.head.is_over())
            {
                break;
            }
        }
        self.check_end();
        (self.first_failure.is_some(), self.refused)
    }

    fn step(&mut self, calm: bool) {
        self.now += self.random.below(20);
        let at = self.random.below(self.nodes.len() as u64) as usize;
        match self.random.below(100) {
            0..30 => self.deliver_order(at),
            30..60 => self.deliver_report(at),
            60..80 if !self.nodes[at].lost => {
                self.nodes[at].act(self.now, &mut self.random, calm, &self.aborted);
            }
            80..90 => self.answer(),
            90..94 => self.deliver_output(at),
            94..96 => self.lie(at),
            96 => self.report_late(at),
            97 if !calm && self.random.chance(8) => self.lose(at),
            98 if !calm && self.random.chance(3) => self.interrupt(),
            99 => self.report_loss(),
            _ => {}
        }
    }

    fn lose(&mut self, at: usize) {
        if !self.nodes[at].lost {
            self.lost_unreported.push(self.nodes[at].number);
            self.nodes[at].lose(self.now, &mut self.random);
        }
    }

    fn report_loss(&mut self) {
        let Some(node) = self.lost_unreported.pop() else { return };
        let busy = self.head.jobs().iter().any(|job| !job.is_aborted() && !job.is_canceled());
        if busy || self.head.awaits_nodes() {
            self.first_failure.get_or_insert(1);
        }
        self.aborted.extend(self.head.jobs().ids(|_| true));
        self.known_lost.insert(node);
        self.handle(Event::NodesLost { nodes: node..node + 1, reason: format!("node {node} is lost") });
    }

    fn interrupt(&mut self) {
        self.signals += 1;
        self.handle(Event::Signal(SIGINT));
    }

    fn deliver_order(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if !node.lost {
            node.deliver_order(self.now, &mut self.random);
        }
    }

    fn deliver_report(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.outbox.is_empty() || self.known_lost.contains(&node.number) {
            return;
        }
        let (node, bytes) = (node.number, node.outbox.remove(0));
        let report: Report = decode(&bytes).expect("daemons send reports");
        self.note_failure(&report);
        let chunk = encode(&OutputChunk { job: FIRST, rank: Rank(9999), stderr: false, bytes: b"x" });
        if self.head.jobs().get(FIRST).is_some() {
            assert!(self.head.decode_output(node, &chunk).is_err());
        }
        self.handle(Event::Message { node, bytes: &bytes });
    }

    /// The head receives output in the order in which ranks wrote it.
    fn deliver_output(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.output.is_empty() || self.known_lost.contains(&node.number) {
            return;
        }
        let (job, chunk) = node.output.remove(0);
        let decoded = self.head.decode_output(node.number, &chunk).expect("a rank of the node wrote it");
        assert!(decoded.is_some(), "output of {job:?} arrives after its end");
    }

    /// A daemon, or a node that is none of the run, sends what it must not. The head names it and does not change.
    fn lie(&mut self, at: usize) {
        let node = self.nodes[at].number;
        if !self.joined || self.known_lost.contains(&node) {
            return;
        }
        let strangers = [0, self.nodes.len() as u32 + 1];
        let report = match self.random.below(10) {
            0 => return self.refuses(node, b"\xff\xff"),
            1 => {
                let mut bytes = encode(&Report::Identity { pid: 1 });
                bytes.push(0);
                return self.refuses(node, &bytes);
            }
            2 => {
                let stranger = strangers[self.random.below(2) as usize];
                return self.refuses(stranger, &encode(&Report::Ready));
            }
            lie => {
                let Some(job) = self.head.jobs().get(FIRST) else { return };
                let other = (0..job.size()).find(|&rank| job.run.node(rank) != node);
                let waiting =
                    (0..job.size()).find(|&rank| job.run.node(rank) == node && job.pid(rank).is_none());
                let running = (0..job.size()).any(|rank| job.run.node(rank) == node && job.is_running(rank));
                let beyond = job.size() + self.random.below(3) as u32;
                let (upcall, protocol, request) = (UpcallId(0), Protocol::V1, Vec::new());
                match (lie, other, waiting) {
                    (3, Some(rank), _) => exited(FIRST, rank, Exit::Code(3)),
                    (4, Some(rank), _) => Report::RanksStarted { job: FIRST, ranks: vec![(Rank(rank), 5)] },
                    (5, Some(rank), _) => Report::Output(OwnedOutput::Spawn {
                        spawn: upcall,
                        job: FIRST,
                        rank: Rank(rank),
                        protocol,
                        request,
                    }),
                    (8, Some(rank), _) => {
                        let cause = Cause::Abort { rank: Rank(rank), code: Some(0) };
                        Report::Output(OwnedOutput::AbortJob { job: FIRST, cause, message: String::new() })
                    }
                    (9, _, Some(_)) => Report::JobStarted(FIRST),
                    (6, _, Some(rank)) => exited(FIRST, rank, Exit::Code(3)),
                    (7, ..) if running => Report::JobDone(FIRST),
                    _ => exited(FIRST, beyond, Exit::Code(3)),
                }
            }
        };
        self.refuses(node, &encode(&report));
    }

    fn refuses(&mut self, node: u32, bytes: &[u8]) {
        let before = format!("{:?}", self.head);
        match self.head.handle(self.now, Event::Message { node, bytes }) {
            Err(Error::InvalidReport { node: named, .. }) => assert_eq!(named, node),
            other => panic!("{} of node {node} is answered by {other:?}", bytes.escape_ascii()),
        }
        assert_eq!(format!("{:?}", self.head), before, "a refused report changes nothing");
        self.refused += 1;
    }

    /// A report about a job that is over has no effect.
    fn report_late(&mut self, at: usize) {
        let (node, job) = (self.nodes[at].number, JobId(500));
        let report = match self.random.below(3) {
            0 => exited(job, 0, Exit::Code(9)),
            1 => Report::JobDone(job),
            _ => Report::StartFailed { job, error: start_error("late") },
        };
        self.handle(Event::Message { node, bytes: &encode(&report) });
        self.note_started();
    }

    /// Counts failures in spawned jobs that have been started as a whole.
    fn note_started(&mut self) {
        let World { head, early_failures, canceled, aborted, first_failure, .. } = self;
        early_failures.retain(|job, code| {
            let is_ending = canceled.contains(job) || aborted.contains(job);
            let Some(of) = head.jobs().get(*job).filter(|_| !is_ending) else { return false };
            if of.spawn.is_none() {
                first_failure.get_or_insert(*code);
            }
            of.spawn.is_some()
        });
    }

    /// The exit code of a report, if it is the first failure that the head gets.
    fn note_failure(&mut self, report: &Report) {
        let alive = |job: &JobId| self.head.jobs().get(*job).is_some() && !self.canceled.contains(job);
        let code = match report {
            Report::Exited { job, rank, exit, requested } => {
                let counts =
                    alive(job) && !self.aborted.contains(job) && self.head.jobs()[*job].is_running(rank.0);
                let code = Some(requested.unwrap_or(exit.exit_code())).filter(|&code| counts && code != 0);
                let is_starting = alive(job) && self.head.jobs()[*job].spawn.is_some();
                if let Some(code) = code.filter(|_| is_starting) {
                    self.early_failures.entry(*job).or_insert(code);
                }
                code.filter(|_| !is_starting)
            }
            Report::Output(OwnedOutput::AbortJob { job, cause: Cause::Abort { code, .. }, .. }) => {
                let counts = alive(job) && self.aborted.insert(*job);
                code.filter(|&code| counts && code != 0).map(|code| (code as u8).max(1))
            }
            Report::StartFailed { job, error } if self.signals > 0 && *error == StartError::unfinished() => {
                (alive(job) && !self.aborted.contains(job) && self.canceled.insert(*job)).then_some(130)
            }
            Report::StartFailed { job, error } => {
                let counts = alive(job) && self.canceled.insert(*job);
                let answered = |job: &JobId| self.head.jobs()[*job].spawn.is_none();
                (counts && (!self.spawned.contains(job) || answered(job))).then_some(error.code)
            }
            Report::BackendFailed(_) => {
                let ids = self.head.jobs().ids(|job| !job.is_canceled());
                let any = ids.iter().any(|job| !self.aborted.contains(job));
                self.aborted.extend(ids);
                any.then_some(1)
            }
            _ => None,
        };
        self.first_failure = self.first_failure.or(code);
    }

    /// Answers one action that waits.
    fn answer(&mut self) {
        if !self.joined {
            self.joined = true;
            return self.handle(Event::AllJoined);
        }
        match self.random.below(5) {
            0 => {
                if let Some(job) = self.open.pop() {
                    let error = StartError { errno: 28, ..start_error("no room") };
                    let fails = job != FIRST && self.random.chance(10);
                    self.handle(if fails {
                        Event::OpenFailed { job, error }
                    } else {
                        Event::JobOpened { job }
                    });
                }
            }
            1 => {
                if let Some(job) = self.draining.pop() {
                    self.handle(Event::OutputDrained { job, reader_closed: false });
                }
            }
            2 => {
                if let Some(request) = self.resolving.pop() {
                    let program = SpawnProgram {
                        program: program(1 + self.random.below(5) as u32),
                        hosts: Vec::new(),
                        spread: None,
                        stopped: Stopped::No,
                    };
                    let result =
                        if self.random.chance(20) { Err((2, "not found".into())) } else { Ok(program) };
                    self.handle(Event::SpawnResolved { request, nonce: 3, programs: vec![result] });
                }
            }
            3 => {
                if let Some(request) = self.replying.pop() {
                    let result = if self.random.chance(20) { Err(Refusal::PsetTaken) } else { Ok(()) };
                    self.handle(Event::BackendReply { request, result });
                }
            }
            _ => {
                if let Some(request) = self.naming.pop() {
                    self.handle(Event::UpcallReply { request, rc: 0, text: b"port".to_vec() });
                }
            }
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.head.handle(self.now, event).expect("daemons send valid reports");
        while let Some(action) = self.head.poll() {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Send { to: Destination::Node(node), order } => {
                assert!(!self.known_lost.contains(&node), "an order to lost node {node}: {order:?}");
                self.nodes[node as usize - 1].inbox.push(encode(&order));
            }
            Action::Send { to: Destination::All, order } => {
                match order {
                    Order::Input(OwnedInput::StalledFence { .. }) => self.stalled_lines = 0,
                    Order::AbortJob(job) => assert!(self.abort_sent.insert(job), "{job:?} is aborted twice"),
                    _ => {}
                }
                for node in self.nodes.iter_mut().filter(|node| !self.known_lost.contains(&node.number)) {
                    node.inbox.push(encode(&order));
                }
            }
            Action::OpenJob { record } => {
                self.canceled.remove(&record.id);
                self.aborted.remove(&record.id);
                self.spawned.remove(&record.id);
                self.abort_sent.remove(&record.id);
                if record.ordinal > 0 {
                    self.spawned.insert(record.id);
                }
                self.open.push(record.id);
            }
            Action::DrainOutput { job } => self.draining.push(job),
            Action::CloseJob { job, .. } => {
                let lost = self.nodes.iter().flat_map(|node| &node.output).any(|(of, _)| *of == job);
                assert!(!lost, "output of {job:?} is lost");
            }
            Action::ResolveSpawn { request, .. } => self.resolving.push(request),
            Action::Apply { request, .. } => self.replying.push(request),
            Action::CallNameService { request, .. } => self.naming.push(request),
            Action::Print(lines) => {
                self.stalled_lines += u32::from(lines.contains("have been waiting"));
                assert!(self.stalled_lines <= 16);
            }
            Action::Finish { flush } => {
                assert_ne!(self.finished, Some(false), "the run ends once");
                self.finished = Some(flush);
            }
            _ => {}
        }
    }

    fn check_end(&mut self) {
        let code = self.head.exit_code();
        let gave_up = self.finished == Some(false);
        if gave_up || self.signals > 1 {
            assert_eq!(code, 130);
        } else {
            assert_eq!(code, self.first_failure.unwrap_or(0), "the exit code is the first failure's");
        }
        for node in self.nodes.iter_mut().filter(|node| !node.lost) {
            node.end(self.now, &mut self.random, gave_up);
        }
    }
}

#[test]
fn random_runs_end_with_the_first_failures_exit_code() {
    let seed = std::env::var("HYDRANT_CONTROL_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = seed.map_or(0..SEEDS, |seed: u64| seed..seed + 1);
    let (mut failed, mut refused) = (0, 0);
    for seed in seeds.clone() {
        let run = std::panic::catch_unwind(|| World::new(seed).run());
        match run {
            Ok((has_failed, count)) => {
                failed += u32::from(has_failed);
                refused += count;
            }
            Err(_) => panic!("HYDRANT_CONTROL_SEED={seed} cargo test -p hydrant-control random_runs"),
        }
    }
    if seeds.end - seeds.start == SEEDS {
        let share = u64::from(failed) * 100 / SEEDS;
        assert!((20..95).contains(&share), "{share} % of the runs fail, which covers too little");
        assert!(u64::from(refused) > SEEDS, "{refused} reports were refused, which covers too little");
    }
}
