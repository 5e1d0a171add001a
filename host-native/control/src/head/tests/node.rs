//! Node of a random run: a daemon with processes, a PMI server and output that do random things.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_core::trace::Cause;
use hydrant_core::wire::Protocol;
use hydrant_core::{OwnedInput, UpcallId};
use libc::{SIGCONT, SIGINT, SIGKILL, SIGTERM};

use super::*;
use crate::protocol::{BackendFailure, OutputChunk};
use crate::tests::Random;
use crate::{Daemon, DaemonAction, DaemonConfig, DaemonEvent};

/// A process of a rank.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// It runs on after `SIGTERM` and `SIGINT`.
    stubborn: bool,
    /// The signal that ends it soon.
    ended_by: Option<i32>,
    /// Exit code that its rank asked to be ended with.
    requested: Option<u8>,
}

/// A daemon and its host.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) number: u32,
    pub(super) inbox: Vec<Vec<u8>>,
    pub(super) outbox: Vec<Vec<u8>>,
    /// Output of ranks that the head has not received, as encoded chunks with their jobs.
    pub(super) output: Vec<(JobId, Vec<u8>)>,
    pub(super) lost: bool,
    daemon: Daemon,
    processes: BTreeMap<(JobId, u32), Process>,
    /// Jobs that are registered at the PMI server, with their ordinals.
    registered: BTreeMap<JobId, u32>,
    draining: Vec<JobId>,
    /// Spawns and upcalls that wait for their result.
    pending: BTreeSet<u32>,
    next_upcall: u32,
    ended: bool,
}

impl Node {
    pub(super) fn new(number: u32) -> Node {
        let process = 50 + number;
        let config = DaemonConfig {
            node: number,
            process,
            needs_ready: false,
            verbose: false,
            progress: false,
            kill_grace: None,
        };
        Node {
            number,
            inbox: Vec::new(),
            outbox: Vec::new(),
            output: Vec::new(),
            lost: false,
            daemon: Daemon::new(config),
            processes: BTreeMap::new(),
            registered: BTreeMap::new(),
            draining: Vec::new(),
            pending: BTreeSet::new(),
            next_upcall: 0,
            ended: false,
        }
    }

    /// Delivers the next order.
    pub(super) fn deliver_order(&mut self, now: u64, random: &mut Random) {
        if !self.inbox.is_empty() {
            let order = self.inbox.remove(0);
            self.handle(
                now,
                random,
                DaemonEvent::Order(Order::decode(&order).expect("the head sends orders")),
            );
        }
    }

    /// The link to the head is lost.
    pub(super) fn lose(&mut self, now: u64, random: &mut Random) {
        self.lost = true;
        self.output.clear();
        self.handle(now, random, DaemonEvent::LifelineLost);
        assert!(self.ended && self.processes.is_empty(), "node {} runs on without its head", self.number);
    }

    /// The run ends in order: all orders have arrived.
    pub(super) fn end(&mut self, now: u64, random: &mut Random, gave_up: bool) {
        while !self.inbox.is_empty() {
            self.deliver_order(now, random);
        }
        let left = (&self.registered, &self.processes);
        assert!(
            // The last job is not deregistered.
            gave_up || self.registered.len() <= 1 && self.processes.is_empty(),
            "node {}: {left:?}",
            self.number
        );
        self.handle(now, random, DaemonEvent::Shutdown);
        assert!(self.ended && self.processes.is_empty());
    }

    fn handle(&mut self, now: u64, random: &mut Random, event: DaemonEvent) {
        self.daemon.handle(now, event).expect("the head sends valid orders");
        self.carry_out(now, random);
    }

    fn carry_out(&mut self, now: u64, random: &mut Random) {
        while let Some(action) = self.daemon.poll() {
            assert!(!self.ended, "node {} has ended: {action:?}", self.number);
            match action {
                DaemonAction::Send(report) => self.outbox.push(encode(&report)),
                DaemonAction::OpenJob { record } => {
                    let event = self.open(record.id, record.ordinal, random);
                    self.daemon.handle(now, event).expect("no order");
                }
                DaemonAction::ResizeWindows { .. } => {}
                DaemonAction::SignalAll(signal) => self.signal(signal, |_| true),
                DaemonAction::SignalJob { job, signal } => self.signal(signal, |(of, _)| of == job),
                DaemonAction::SignalRank { job, rank, signal } => {
                    self.signal(signal, |target| target == (job, rank.0));
                }
                DaemonAction::DrainOutput { job } => {
                    assert!(self.processes.keys().all(|&(of, _)| of != job), "{job:?} has running ranks");
                    self.draining.push(job);
                }
                DaemonAction::DeregisterJob { job } => {
                    assert!(self.registered.remove(&job).is_some(), "{job:?} is not registered");
                    assert!(self.processes.keys().all(|&(of, _)| of != job), "{job:?} has running ranks");
                    assert!(!self.draining.contains(&job), "output of {job:?} is lost");
                }
                DaemonAction::Input(
                    OwnedInput::SpawnComplete { spawn: upcall, .. }
                    | OwnedInput::UpcallComplete { upcall, .. },
                ) => {
                    assert!(self.pending.remove(&upcall.0), "node {} did not ask", self.number);
                }
                DaemonAction::EndNode => {
                    self.processes.clear();
                    self.ended = true;
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, job: JobId, ordinal: u32, random: &mut Random) -> DaemonEvent {
        if random.chance(1) {
            return DaemonEvent::OpenFailed {
                job,
                errors: vec![StartError { appnum: None, ..start_error("no room") }],
            };
        }
        let known = self.registered.insert(job, ordinal);
        assert!(known.is_none(), "the number of {job:?} is in use on node {}", self.number);
        DaemonEvent::JobOpened { job }
    }

    fn signal(&mut self, signal: i32, fits: impl Fn((JobId, u32)) -> bool) {
        for (_, process) in self.processes.iter_mut().filter(|&(&target, _)| fits(target)) {
            let ends = match signal {
                SIGKILL => true,
                SIGINT | SIGTERM => !process.stubborn,
                _ => false,
            };
            if ends {
                process.ended_by.get_or_insert(signal);
            }
        }
        assert!(matches!(signal, SIGKILL | SIGINT | SIGTERM | SIGCONT), "signal {signal}");
    }

    /// Does something that processes, the PMI server or time do by themselves.
    ///
    /// Ranks of `aborted` jobs run until they are killed, and ranks that wait for the head do not end by themselves.
    pub(super) fn act(&mut self, now: u64, random: &mut Random, calm: bool, aborted: &BTreeSet<JobId>) {
        if self.daemon.poll_at().is_some_and(|at| at <= now) {
            self.daemon.handle_timeout(now);
            return self.carry_out(now, random);
        }
        match random.below(8) {
            0 | 1 => self.start_some(now, random, calm),
            2 => {
                let sent = |job: &JobId| self.output.iter().all(|(of, _)| of != job);
                if let Some(at) = self.draining.iter().position(sent) {
                    let job = self.draining.remove(at);
                    self.handle(now, random, DaemonEvent::OutputDrained { job });
                }
            }
            3 => {
                let ended = self.processes.iter().find_map(|(&of, process)| Some((of, process.ended_by?)));
                if let Some(((job, rank), signal)) = ended {
                    self.exit(now, random, (job, rank), Exit::Signal(signal as u8));
                }
            }
            _ => self.run_rank(now, random, calm, aborted),
        }
    }

    /// Starts the next ranks of a job.
    fn start_some(&mut self, now: u64, random: &mut Random, calm: bool) {
        let starting = self.daemon.starting();
        let Some(&job) = starting.get(random.below(starting.len().max(1) as u64) as usize) else { return };
        for _ in 0..1 + random.below(3) {
            let Some(rank) = self.daemon.next_rank(job) else { break };
            if random.chance(3) && !calm {
                let error =
                    StartError { appnum: random.chance(50).then_some(0), ..start_error("cannot start") };
                self.daemon.handle(now, DaemonEvent::StartFailed { job, error }).expect("no order");
                break;
            }
            let process = Process { stubborn: random.chance(20), ..Process::default() };
            assert!(self.processes.insert((job, rank.0), process).is_none(), "rank {rank:?} runs");
            let event = DaemonEvent::RankStarted { job, rank, pid: 1000 + rank.0 };
            self.daemon.handle(now, event).expect("no order");
        }
        self.carry_out(now, random);
    }

    fn exit(&mut self, now: u64, random: &mut Random, (job, rank): (JobId, u32), exit: Exit) {
        let process = self.processes.remove(&(job, rank)).expect("the process ran");
        self.handle(now, random, DaemonEvent::RankExited { job, rank: Rank(rank), exit });
        let requested = process.requested;
        let report = encode(&Report::Exited { job, rank: Rank(rank), exit, requested });
        assert!(self.outbox.contains(&report), "{report:?} is missing in {:?}", self.outbox);
    }

    /// One of the ranks does something.
    fn run_rank(&mut self, now: u64, random: &mut Random, calm: bool, aborted: &BTreeSet<JobId>) {
        let at = random.below(self.processes.len().max(1) as u64) as usize;
        let Some((&(job, rank), process)) = self.processes.iter_mut().nth(at) else { return };
        if aborted.contains(&job) || process.ended_by.is_some() {
            return;
        }
        let spawned = self.registered[&job] > 0;
        let rank_id = Rank(rank);
        match random.below(if calm { 1 } else { 40 }) {
            28 => {
                let code = random.below(256) as u8;
                process.requested.get_or_insert(code.max(1));
                let (code, message) = (Some(code.into()), String::new());
                self.handle(
                    now,
                    random,
                    DaemonEvent::Output(OwnedOutput::KillRank { job, rank: rank_id, code, message }),
                );
            }
            30 => {
                let cause = Cause::Abort { rank: rank_id, code: Some(random.below(256) as i32) };
                self.handle(
                    now,
                    random,
                    DaemonEvent::Output(OwnedOutput::AbortJob { job, cause, message: String::new() }),
                );
            }
            31 if !spawned => {
                let request = b"mcmd=spawn\nnprocs=1\nexecname=b\ntotspawns=1\nspawnssofar=1\nargcnt=0\n\
                                preput_num=0\ninfo_num=0\nendcmd\n";
                let (spawn, protocol, request) = (self.new_upcall(), Protocol::V1, request.to_vec());
                let event =
                    DaemonEvent::Output(OwnedOutput::Spawn { spawn, job, rank: rank_id, protocol, request });
                self.handle(now, random, event);
            }
            32 | 33 => {
                let request: &[u8] = match random.below(3) {
                    0 => b"cmd=name-lookup;name=ocean;",
                    1 => b"cmd=pset-define;name=left;members=0;",
                    _ => b"rubbish",
                };
                let (upcall, protocol, request) = (self.new_upcall(), Protocol::V2, request.to_vec());
                let event = DaemonEvent::Output(OwnedOutput::Upcall {
                    upcall,
                    job,
                    rank: rank_id,
                    protocol,
                    request,
                });
                self.handle(now, random, event);
            }
            // Also in calm times, when only the first choice is left.
            _ if random.chance(10) => {
                let bytes = [random.below(256) as u8; 3];
                let chunk = OutputChunk { job, rank: rank_id, stderr: random.chance(50), bytes: &bytes };
                self.output.push((job, encode(&chunk)));
            }
            34 => {
                let missing = rank.to_string();
                self.handle(
                    now,
                    random,
                    DaemonEvent::Output(OwnedOutput::StalledFence { job, arrived: 0, size: 0, missing }),
                );
            }
            36 if random.chance(10) && !self.daemon.has_failed_backend() => {
                let failure = BackendFailure::Own("trap".into());
                self.handle(now, random, DaemonEvent::BackendFailed(failure));
            }
            other => {
                let failed = other == 37 && random.chance(30);
                let exit = if failed { Exit::Code(random.below(256) as u8) } else { Exit::Code(0) };
                if failed || other < 10 && self.pending.is_empty() {
                    self.exit(now, random, (job, rank), exit);
                }
            }
        }
    }

    fn new_upcall(&mut self) -> UpcallId {
        let upcall = UpcallId(self.next_upcall);
        self.next_upcall += 1;
        self.pending.insert(upcall.0);
        upcall
    }
}
