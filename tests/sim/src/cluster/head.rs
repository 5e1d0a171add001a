//! The host of the head: actions, names, and the destination of the output.

use hydrant_control::protocol::{BackendFailure, JobRecord, Order, Report, StartError};
use hydrant_control::{Action, Destination, Event as HeadEvent, SpawnProgram, Stopped, Upcall};
use hydrant_core::wire::{Protocol, decode_spawn};
use hydrant_core::{Fault, Input, JobId, Refusal, UpcallId};
use hydrant_names::{Answer, Request};
use hydrant_placement::Host;
use libc::SIGINT;

use super::node::{Item, Packet};
use super::plan::{Join, MS, Plan};
use super::process::bytes_of;
use super::world::{Event, LEAVING, World};
use crate::checks::Checks;

/// Bytes of pending output from which on no more is acknowledged.
const HIGH_WATER: u64 = 16 * 1024;
/// Bytes that the reader of the output takes at once, and the time between.
const READ: (u64, u64) = (32 * 1024, MS / 10);

impl World<'_> {
    /// Passes an event to the head and executes its actions.
    pub(super) fn at_head(&mut self, event: HeadEvent<'_>) {
        self.answer(event);
        self.carry_out_at_head();
    }

    /// Passes an event to the head while its actions are being executed.
    fn answer(&mut self, event: HeadEvent<'_>) {
        if self.head.broken {
            return;
        }
        let report = match event {
            HeadEvent::Message { bytes, .. } => hydrant_control::protocol::decode::<Report>(bytes),
            _ => None,
        };
        if let Err(error) = self.head.control.handle(self.now / MS, event) {
            assert!(self.plan.liar.is_some(), "the run ends: {error}: {report:?}");
            self.break_run(&error.to_string());
        }
    }

    /// The run ends by an error of the head: all links are closed.
    fn break_run(&mut self, error: &str) {
        self.head.printed.push(error.to_owned());
        (self.head.broken, self.head.shut_down) = (true, true);
        for child in self.tree.children(0) {
            self.later(MS, Event::Item(child.start, Item::Lost { neighbour: 0 }));
        }
    }

    /// The server of a node has refused a message of a neighbour, and is replaced by a stub.
    pub(super) fn backend_failed_at_head(&mut self, failure: BackendFailure) {
        if !std::mem::replace(&mut self.head.backend_failed, true) {
            self.at_head(HeadEvent::BackendFailed(failure));
        }
    }

    pub(super) fn carry_out_at_head(&mut self) {
        while let Some(action) = self.head.control.poll() {
            self.carry_out_action(action);
        }
    }

    /// The hosts that a spawn names: none, or those that have had no daemon at the start and may have left meanwhile.
    fn named_hosts(&mut self) -> Vec<Host> {
        let Plan { daemons, unused, .. } = self.plan;
        let names = unused > 0 && self.random.bool();
        let named = if names { daemons + 1..daemons + unused + 1 } else { 0..0 };
        named.map(|node| Host::new(self.head.control.host(node))).collect()
    }

    fn carry_out_action(&mut self, action: Action) {
        match action {
            Action::Send { to, order } => {
                if let Order::CancelJob(job) = order
                    && let Some(job) = self.head.control.jobs().get(job).filter(|job| job.spawn.is_some())
                {
                    self.undone.push(job.ordinal);
                }
                let bytes = hydrant_control::protocol::encode(&order);
                match to {
                    Destination::All => self.descend(0, &Packet::Order { to: None, bytes }),
                    Destination::Node(to) => {
                        self.forward(0, to, Packet::Order { to: Some(to), bytes });
                    }
                }
            }
            Action::OpenJob { record } => self.open_at_head(&record),
            Action::RankStarted { job, rank, pid } => {
                self.head.pids.insert((job, rank.0), pid - 1);
            }
            Action::ResolveSpawn { request, spawner, upcall } => {
                let hosts = self.named_hosts();
                let programs = resolve(&spawner, upcall.protocol, &upcall.request, &hosts);
                self.answer(HeadEvent::SpawnResolved { request, nonce: 7, programs });
            }
            Action::Apply { request, input } => {
                let result = self.apply(input.view());
                self.answer(HeadEvent::BackendReply { request, result });
            }
            Action::ChangeMembership(input) => {
                self.nodes[0].handle(self.now, input.view()).expect("the changes are in order");
            }
            Action::StartDaemon { node, .. } => {
                let join = Join::new(&mut self.random);
                self.later(join.delay, Event::Item(0, Item::Started { node, fails: join.fails }));
            }
            Action::IncludeNode { node } => drop(self.awaited.remove(&node)),
            Action::DismissNode { node } => self.dismiss(node),
            Action::HostChanged { request, result, .. } => {
                if let Some(node) = result.ok().filter(|_| request < LEAVING) {
                    assert!(!self.awaited.contains(&node), "node {node} gets orders");
                }
            }
            Action::CallNameService { request, upcall } => {
                let Upcall { job, rank, protocol, request: body, .. } = upcall;
                let upcall = Some(UpcallId(request.0));
                let request = Request { upcall, job, rank, protocol, body, wait: self.plan.lookup_wait };
                self.head.known.asked(&request, self.now / MS);
                self.head.names.ask(request, self.now / MS).expect("the name service works");
                self.collect_answers();
            }
            Action::AnswerQuery { .. }
            | Action::AnswerTool { .. }
            | Action::RelayTool { .. }
            | Action::FirstJobWaits => {
                unreachable!("nobody speaks PMIx")
            }
            Action::CancelLookups { job, rank } => {
                let is_its = |request: &Request| (request.job, request.rank) == (job, rank);
                self.head.known.dropped(is_its);
                self.head.names.process_ended(job, rank, self.now / MS).expect("the name service works");
                self.collect_answers();
            }
            Action::DrainOutput { job } => self.head.draining.push(job),
            Action::DeregisterJob { job } => {
                self.head.known.forget(job);
                self.head.names.forget(job, self.now / MS).expect("the name service works");
                self.collect_answers();
                self.nodes[0].deregister(self.now, job);
            }
            Action::CloseJob { job, .. } => self.close_job(job),
            Action::SendFiles => {}
            Action::Print(lines) => self.head.printed.push(lines),
            Action::Finish { flush } => self.head.finish = Some(flush),
            Action::AllowStdin(more) => self.allow_input(more),
            Action::CloseStdin => self.close_input(),
            Action::RanksJoined { .. } => {}
            Action::RankStates { .. }
            | Action::Usage { .. }
            | Action::Profile { .. }
            | Action::InputPushed { .. } => {}
            Action::ServerReplaced { .. } => {}
            Action::FormTree { .. } => {}
            Action::Tell { .. }
            | Action::FleetReady
            | Action::SubmissionWaits { .. }
            | Action::SubmissionStarted { .. }
            | Action::SubmissionRefused { .. }
            | Action::SubmissionOver { .. } => unreachable!("this is no fleet"),
        }
    }

    fn open_at_head(&mut self, record: &JobRecord) {
        let program = program_of(record);
        let cleanup = self.plan.cleanup;
        let settings = (cleanup, self.plan.fence);
        let event = match self.nodes[0].register(self.now, record, settings, program) {
            Ok(()) => {
                let size = self.nodes[0].jobs[&record.id].size;
                let meetings = &self.plan.programs[program as usize].meetings;
                let mut checks = Checks::new(size, !cleanup, meetings);
                let lying = record.blocks.iter().filter(|block| self.is_liar(block.node));
                lying
                    .flat_map(|block| block.first..block.first + block.count)
                    .for_each(|rank| checks.excuse(rank));
                self.checks.insert(record.ordinal, checks);
                HeadEvent::JobOpened { job: record.id }
            }
            Err(fault) => HeadEvent::OpenFailed { job: record.id, error: start_error(&fault.to_string()) },
        };
        self.answer(event);
    }

    fn apply(&mut self, input: Input<'_>) -> Result<(), Refusal> {
        match self.nodes[0].handle(self.now, input) {
            Ok(_) => Ok(()),
            Err(Fault::Refused(why)) => Err(why),
            Err(Fault::BadPset) => Err(Refusal::BadGroup),
            Err(Fault::NoSuchJob) => Err(Refusal::NoJob),
            Err(fault) => panic!("{input:?} is a fault: {fault}"),
        }
    }

    /// Output of a rank arrives.
    pub(super) fn take_output(&mut self, node: u32, bytes: &[u8]) {
        if self.head.broken {
            return;
        }
        let len = bytes.len() as u32;
        let chunk = match self.head.control.decode_output(node, bytes) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return self.acknowledge(node, len),
            Err(error) => {
                assert!(self.plan.liar.is_some(), "the run ends: {error}");
                return self.break_run(&error.to_string());
            }
        };
        self.head.written += chunk.bytes.len() as u64;
        self.head.sink += chunk.bytes.len() as u64;
        let pid = self.nodes[node as usize].processes.get(&(chunk.job, chunk.rank.0)).copied();
        if let Some(pid) = pid.filter(|_| !self.is_liar(node)) {
            let arrived = self.head.arrived.entry((pid, chunk.stderr)).or_default();
            let range = *arrived..*arrived + chunk.bytes.len() as u32;
            *arrived = range.end;
            let written = bytes_of(pid, chunk.stderr, range);
            assert!(chunk.bytes == written, "output of process {pid} is out of order");
        }
        self.head.unacknowledged.push((node, len));
        self.sink_soon();
    }

    fn acknowledge(&mut self, node: u32, bytes: u32) {
        self.forward(0, node, Packet::Credit { to: node, bytes });
    }

    fn sink_soon(&mut self) {
        if !std::mem::replace(&mut self.head.is_reading, true) {
            let (from, to) = self.plan.stall;
            let at = self.now + READ.1;
            let at = if (from..to).contains(&at) { to } else { at };
            self.at(at, Event::Item(0, Item::Sink));
        }
    }

    /// The reader of the output reads.
    pub(super) fn sink(&mut self) {
        self.head.is_reading = false;
        self.head.sink = self.head.sink.saturating_sub(READ.0);
        if self.head.sink < HIGH_WATER {
            for (node, bytes) in std::mem::take(&mut self.head.unacknowledged) {
                self.acknowledge(node, bytes);
            }
        }
        if self.head.sink > 0 || !self.head.unacknowledged.is_empty() {
            self.sink_soon();
        }
    }

    pub(super) fn interrupt(&mut self) {
        if !self.head.shut_down {
            self.head.interrupts += 1;
            self.at_head(HeadEvent::Signal(SIGINT));
        }
    }

    /// Checks the answers of the name service, and keeps them for the head.
    fn collect_answers(&mut self) {
        let answers: Vec<Answer> = std::iter::from_fn(|| self.head.names.answer()).collect();
        self.head.known.answered(&answers, self.now / MS);
        self.head.answers.extend(answers);
    }

    pub(super) fn names_timeout(&mut self) {
        self.head.names.handle_timeout(self.now / MS).expect("the name service works");
        self.collect_answers();
    }

    /// Reports jobs whose output has been written, reads input, answers requests about names, and ends the daemons after
    /// the last job.
    pub(super) fn settle_head(&mut self) {
        for job in std::mem::take(&mut self.head.draining) {
            self.at_head(HeadEvent::OutputDrained { job, reader_closed: false });
        }
        while let Some(answer) = self.head.answers.pop_front() {
            let request = hydrant_control::RequestId(answer.upcall.0);
            self.at_head(HeadEvent::UpcallReply { request, rc: answer.rc, text: answer.text });
        }
        self.read_input();
        let ready = self.head.finish.is_some_and(|flush| !flush || self.head.sink == 0);
        if ready && !std::mem::replace(&mut self.head.shut_down, true) {
            self.descend(0, &Packet::Shutdown);
        }
    }

    /// A job is over: all output of its ranks has arrived.
    fn close_job(&mut self, job: JobId) {
        for rank in 0.. {
            let Some(pid) = self.head.pids.remove(&(job, rank)) else {
                if self.head.pids.range((job, rank)..(JobId(job.0 + 1), 0)).next().is_none() {
                    break;
                }
                continue;
            };
            let Some(process) = self.processes.get(pid as usize) else { continue };
            if self.is_lost(process.node) || self.is_liar(process.node) || self.head.gave_up() {
                continue;
            }
            for stderr in [false, true] {
                let arrived = self.head.arrived.get(&(pid, stderr)).copied().unwrap_or(0);
                let written = process.written[usize::from(stderr)];
                assert_eq!(arrived, written, "output is lost: {}", process.describe());
            }
            assert!(process.exit.is_some(), "a job is over before its ranks: {}", process.describe());
        }
    }
}

/// Returns the index of a job's program in the plan.
pub(super) fn program_of(record: &JobRecord) -> u32 {
    let command = record.programs.first().and_then(|program| program.command.to_str());
    command.and_then(super::script::program_of).expect("all jobs run programs of the plan")
}

pub(super) fn start_error(text: &str) -> StartError {
    StartError { appnum: None, code: 65, errno: 28, limit: None, text: text.to_owned() }
}

fn resolve(
    spawner: &hydrant_control::protocol::Program,
    protocol: Protocol,
    body: &[u8],
    hosts: &[Host],
) -> Vec<Result<SpawnProgram, (u8, String)>> {
    let spawn = decode_spawn(protocol, body);
    let programs = spawn.iter().flat_map(|spawn| spawn.programs());
    let resolved = programs.map(|asked| {
        let command: Vec<u8> = asked.command().parts().flatten().copied().collect();
        let command = String::from_utf8_lossy(&command).into_owned();
        super::script::program_of(&command).ok_or((2, format!("{command}: not found")))?;
        let program = hydrant_control::protocol::Program {
            ranks: asked.maxprocs(),
            command: command.into(),
            ..spawner.clone()
        };
        Ok(SpawnProgram { program, hosts: hosts.to_vec(), spread: None, stopped: Stopped::No })
    });
    resolved.collect()
}
