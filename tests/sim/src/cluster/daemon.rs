//! Host of a daemon: actions, output of its ranks, and clients that are no ranks.

use hydrant_control::protocol::{
    BackendFailure, BoardReport, JobRecord, OutputChunk, Report, StartError, StdinTarget, encode,
};
use hydrant_control::{DaemonAction, DaemonEvent};
use hydrant_core::{ConnId, Input, JobId, Rank};

use super::head::{program_of, start_error};
use super::node::{Item, Owner, Packet};
use super::plan::MS;
use super::process::Failure;
use super::world::{Event, World};

/// Ranks that are started before a node handles other items.
const BATCH: usize = 4;
/// Most bytes of a rank's output in one message.
const CHUNK: u32 = 32 * 1024;

impl World<'_> {
    /// Passes an event to the daemon of a node and executes its actions.
    pub(super) fn at_daemon(&mut self, node: u32, event: DaemonEvent) {
        let now = self.now / MS;
        if let Some(daemon) = &mut self.nodes[node as usize].daemon {
            daemon.handle(now, event).expect("the head sends valid orders");
        }
        self.carry_out(node);
    }

    /// Executes the actions of the daemon of a node.
    pub(super) fn carry_out(&mut self, node: u32) {
        while let Some(action) = self.nodes[node as usize].daemon.as_mut().and_then(|daemon| daemon.poll()) {
            assert!(!self.nodes[node as usize].ended, "node {node} has ended: {action:?}");
            self.carry_out_at(node, action);
        }
    }

    fn carry_out_at(&mut self, node: u32, action: DaemonAction) {
        let now = self.now;
        let state = &mut self.nodes[node as usize];
        match action {
            DaemonAction::Send(report) => self.report(node, &report),
            DaemonAction::OpenJob { record } => self.open_at_daemon(node, &record),
            DaemonAction::SignalAll(signal) => self.signal_ranks(node, signal, |_, _| true),
            DaemonAction::SignalJob { job, signal } => self.signal_ranks(node, signal, |of, _| of == job),
            DaemonAction::SignalRank { job, rank, signal } => {
                self.signal_ranks(node, signal, |of, at| (of, at) == (job, rank.0));
            }
            DaemonAction::DrainOutput { job } => {
                if let Some(job) = state.jobs.get_mut(&job) {
                    job.draining = true;
                }
            }
            DaemonAction::DeregisterJob { job } => state.deregister(now, job),
            DaemonAction::Input(input) => self.decide(node, input.view()),
            DaemonAction::Print(line) => self.report(node, &Report::Print(line)),
            DaemonAction::LinkBoard { .. } => self.report(node, &Report::BoardLinked(Ok(()))),
            // The server has been in it from the start.
            DaemonAction::FormTree { are_linked } => {
                assert!(are_linked && self.plan.are_linked);
                self.report(node, &Report::Ready);
            }
            DaemonAction::ReplaceServer { .. } => self.report(node, &Report::ServerReplaced(Ok(()))),
            DaemonAction::QueryRanks { query, .. } => {
                self.report(node, &Report::RankStates { query, body: Vec::new() });
            }
            DaemonAction::QueryUsage { query, .. } => {
                self.report(node, &Report::Usage { query, body: Vec::new() });
            }
            DaemonAction::PushInput { push, .. } => {
                self.report(node, &Report::InputPushed { push, is_taken: false });
            }
            DaemonAction::RelayTool { .. } => unreachable!("no tool connects"),
            DaemonAction::ReleaseRanks { .. } => unreachable!("no rank is stopped for a debugger"),
            DaemonAction::EndNode => {
                // Messages of other nodes are passed on.
                state.ended = true;
                state.inbox.retain(|item| matches!(item, Item::Packet { .. }));
                self.kill_all(node);
                self.descend(node, &Packet::Shutdown);
                if self.left.contains(&node) {
                    self.later(MS, Event::Item(0, Item::Left(node)));
                }
            }
            DaemonAction::FeedStdin(bytes) => self.feed(node, &bytes),
            DaemonAction::ResizeWindows { .. } | DaemonAction::CloseOutput { .. } => {}
        }
    }

    /// Reports the board of a node, with room for all links.
    pub(super) fn report_board(&mut self, node: u32) {
        let board = BoardReport::At { addr: format!("192.0.2.{node}:4100"), links: self.plan.radix };
        self.report(node, &Report::Board(board));
    }

    /// Sends a report to the head.
    pub(super) fn report(&mut self, node: u32, report: &Report) {
        self.forward(node, 0, Packet::Report { from: node, bytes: encode(report) });
    }

    fn open_at_daemon(&mut self, node: u32, record: &JobRecord) {
        let job = record.id;
        let (program, settings) = (program_of(record), (self.plan.cleanup, self.plan.fence));
        let event = match self.nodes[node as usize].register(self.now, record, settings, program) {
            Ok(()) => {
                if record.ordinal == 0 {
                    let target = self.plan.input.map_or(StdinTarget::None, |input| input.target);
                    self.nodes[node as usize].fed.expect(record, node, target);
                }
                DaemonEvent::JobOpened { job }
            }
            Err(fault) => DaemonEvent::OpenFailed { job, errors: vec![start_error(&fault.to_string())] },
        };
        let now = self.now / MS;
        let daemon = self.nodes[node as usize].daemon.as_mut().expect("a daemon has opened the job");
        daemon.handle(now, event).expect("this is no order");
    }

    fn signal_ranks(&mut self, node: u32, signal: i32, fits: impl Fn(JobId, u32) -> bool) {
        let processes = &self.nodes[node as usize].processes;
        let fitting: Vec<u32> =
            processes.iter().filter(|&(&(job, rank), _)| fits(job, rank)).map(|(_, &pid)| pid).collect();
        for pid in fitting {
            self.signal(pid, signal);
        }
    }

    /// Starts the next ranks of each job.
    pub(super) fn start_some(&mut self, node: u32) {
        self.nodes[node as usize].is_starting = false;
        let starting = self.nodes[node as usize].daemon.as_ref().map(|daemon| daemon.starting());
        for job in starting.into_iter().flatten() {
            for _ in 0..BATCH {
                let daemon = self.nodes[node as usize].daemon.as_ref();
                let Some(rank) = daemon.and_then(|daemon| daemon.next_rank(job)) else { break };
                let refused = self.plan.start_fails == Some(node);
                let started = if refused { None } else { self.start(node, job, rank.0) };
                let event = match started {
                    Some(pid) => DaemonEvent::RankStarted { job, rank, pid: pid + 1 },
                    None => {
                        let ordinal = self.nodes[node as usize].jobs[&job].ordinal;
                        let error = StartError {
                            code: 127,
                            appnum: Some(0),
                            ..start_error("cannot start the program")
                        };
                        if ordinal == 0 {
                            let culprit = format!("n{node}");
                            self.failures.push(Failure { of: None, code: 127, culprit, may_be_asked: false });
                        }
                        DaemonEvent::StartFailed { job, error }
                    }
                };
                let now = self.now / MS;
                let daemon = self.nodes[node as usize].daemon.as_mut().expect("a daemon starts ranks");
                daemon.handle(now, event).expect("this is no order");
            }
            self.carry_out(node);
        }
    }

    /// Reads the pipes of ranks while the head takes output.
    pub(super) fn read(&mut self, node: u32) {
        if self.nodes[node as usize].ended {
            return;
        }
        let pids: Vec<((JobId, u32), u32)> =
            self.nodes[node as usize].processes.iter().map(|(&key, &pid)| (key, pid)).collect();
        for ((job, rank), pid) in pids {
            for stderr in [false, true] {
                while self.nodes[node as usize].credit > 0 {
                    let bytes = self.processes[pid as usize].take(stderr, CHUNK);
                    if bytes.is_empty() {
                        break;
                    }
                    let chunk = OutputChunk { job, rank: Rank(rank), stderr, bytes: &bytes };
                    self.send_output(node, encode(&chunk));
                }
            }
            if self.processes[pid as usize].waits_for_pipe() {
                self.later(1_000, Event::Act(pid));
            }
        }
    }

    pub(super) fn send_output(&mut self, node: u32, bytes: Vec<u8>) {
        self.nodes[node as usize].credit -= bytes.len() as i64;
        self.forward(node, 0, Packet::Output { from: node, bytes });
    }

    /// Reports jobs whose output has been sent, and starts ranks.
    pub(super) fn settle_daemon(&mut self, node: u32) {
        if self.nodes[node as usize].ended {
            return;
        }
        let draining = |(&id, job): (&JobId, &super::node::LocalJob)| job.draining.then_some(id);
        let jobs: Vec<JobId> = self.nodes[node as usize].jobs.iter().filter_map(draining).collect();
        if !jobs.is_empty() {
            self.read(node);
        }
        for job in jobs {
            let state = &mut self.nodes[node as usize];
            let mut of_job = state.processes.iter().filter(|&(&(of, _), _)| of == job);
            if of_job.all(|(_, &pid)| self.processes[pid as usize].is_read()) {
                state.jobs.get_mut(&job).expect("the job is draining").draining = false;
                self.at_daemon(node, DaemonEvent::OutputDrained { job });
            }
        }
        self.send_input_news(node);
        let state = &mut self.nodes[node as usize];
        let is_due = state.daemon.as_ref().is_some_and(|daemon| !daemon.starting().is_empty());
        if is_due && !std::mem::replace(&mut state.is_starting, true) {
            self.later(MS / 20, Event::Item(node, Item::Start));
        }
    }

    /// Passes a decision of the head to the server of a node.
    fn decide(&mut self, node: u32, input: Input<'_>) {
        if let Err(fault) = self.nodes[node as usize].decide(self.now, input) {
            // A head whose server has failed refuses nothing.
            assert!(self.nodes[0].server.is_none(), "node {node}: {input:?} is a fault: {fault}");
            self.backend_failed(node, BackendFailure::Own(fault.to_string()));
        }
    }

    /// The server of a node has failed, and is replaced by a stub.
    pub(super) fn backend_failed(&mut self, node: u32, failure: BackendFailure) {
        self.nodes[node as usize].server = None;
        if node == 0 {
            return self.backend_failed_at_head(failure);
        }
        let has_failed = |daemon: &hydrant_control::Daemon| daemon.has_failed_backend();
        if !self.nodes[node as usize].daemon.as_ref().is_some_and(has_failed) {
            self.at_daemon(node, DaemonEvent::BackendFailed(failure));
        }
    }

    /// A client that is no rank connects to the port of a job, and sends rubbish, half of a handshake or nothing.
    pub(super) fn stranger(&mut self, node: u32) {
        let state = &mut self.nodes[node as usize];
        let Some((&job, _)) = state.jobs.iter().next().filter(|_| !state.ended) else { return };
        let stranger = state.strangers;
        state.strangers += 1;
        if state.open(self.now, job, None, Owner::Stranger(stranger)).is_none() {
            return;
        }
        let messages: [&[u8]; 6] = [
            b"",
            b"cmd=init pmi_version=1 pmi_subv",
            b"cmd=init pmi_version=99 pmi_subversion=0\n",
            b"cmd=initack pmiid=9999\n",
            b"\xff\x00\n\n\n    77cmd=fullinit;pmirank=9;",
            b"GET / HTTP/1.1\r\n\r\n",
        ];
        let bytes = messages[self.random.usize(..messages.len())];
        for _ in 0..self.random.u32(1..4) {
            let later = self.random.u64(1..20 * MS);
            self.later(later, Event::Item(node, Item::Rubbish { stranger, bytes: Some(bytes.to_vec()) }));
        }
        // The time that hosts allow for a handshake.
        self.later(10_000 * MS, Event::Item(node, Item::Rubbish { stranger, bytes: None }));
    }

    /// Bytes of a client that is no rank, or its end.
    pub(super) fn rubbish(&mut self, node: u32, stranger: u32, bytes: Option<Vec<u8>>) {
        let state = &mut self.nodes[node as usize];
        let Some(conn): Option<ConnId> = state.conn_of(Owner::Stranger(stranger)) else { return };
        match bytes {
            Some(bytes) => state.receive(self.now, conn, &bytes),
            None => drop(state.close(self.now, conn)),
        }
    }
}
