//! Steps of the ranks: requests, output, replies, ends.

use hydrant_control::DaemonEvent;
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, Input, JobId, Rank};
use libc::{SIGINT, SIGKILL, SIGTERM};

use super::node::{Item, Owner};
use super::plan::MS;
use super::process::{Failure, Process, rank_name};
use super::script::{Ending, Step, request};
use super::world::{Event, SOCKET, World};
use crate::rank::{self, Script};

/// Bytes that a pipe holds.
pub(super) const PIPE: u32 = 64 * 1024;

impl World<'_> {
    /// Starts the process of a rank. Its PMI connection is open.
    pub(super) fn start(&mut self, node: u32, job: JobId, rank: u32) -> Option<u32> {
        let local = self.nodes[node as usize].jobs[&job].clone();
        let pid = self.processes.len() as u32;
        let program = &self.plan.programs[local.program as usize];
        let steps = program.scripts[rank as usize].clone();
        let name = local.name.clone();
        let script = Script { steps: Vec::new(), at: 0, name, protocol: program.protocol, exit: None };
        let _: ConnId = self.nodes[node as usize].open(self.now, job, Some(rank), Owner::Rank(pid))?;
        self.processes.push(Process {
            pid,
            node,
            job,
            ordinal: local.ordinal,
            rank,
            program: local.program,
            script,
            steps,
            at: 0,
            awaited: 0,
            written: [0; 2],
            read: [0; 2],
            unwritten: 0,
            input_read: 0,
            unread: 0,
            stubborn: self.random.u32(..6) == 0,
            ending: false,
            exit: None,
        });
        self.nodes[node as usize].processes.insert((job, rank), pid);
        self.open_input(node, job, rank, pid);
        let later = self.random.u64(0..2 * MS);
        self.later(later, Event::Act(pid));
        Some(pid)
    }

    /// A rank takes its next step.
    pub(super) fn act(&mut self, pid: u32) {
        let process = &mut self.processes[pid as usize];
        if process.ending || process.exit.is_some() || process.awaited > 0 {
            return;
        }
        let Some(step) = process.steps.get(process.at).cloned() else { return };
        match step {
            Step::Sleep(time) => {
                process.at += 1;
                return self.later(time, Event::Act(pid));
            }
            Step::Write { stderr, len } => {
                if process.unwritten == 0 {
                    process.unwritten = len;
                }
                return self.write(pid, stderr);
            }
            Step::Read { len } => {
                if self.take_input(pid, len) {
                    self.next(pid);
                }
                return;
            }
            Step::CloseInput => {
                let node = process.node;
                self.later(SOCKET, Event::Item(node, Item::InputHangup { pid }));
                return self.next(pid);
            }
            Step::End(ending @ (Ending::Exit(_) | Ending::Signal(_) | Ending::CutOff)) => {
                return self.end(pid, ending);
            }
            Step::End(ending) => self.note(pid, ending),
            Step::Pmi(_)
            | Step::Publish { .. }
            | Step::Lookup { .. }
            | Step::Unpublish { .. }
            | Step::Spawn { .. } => {}
        }
        self.ask(pid, &step);
    }

    /// Sends the request of a step in two parts.
    fn ask(&mut self, pid: u32, step: &Step) {
        let process = &mut self.processes[pid as usize];
        let meetings = &self.plan.programs[process.program as usize].meetings;
        let sizes: Vec<u32> = self.plan.programs.iter().map(|program| program.scripts.len() as u32).collect();
        let (message, replies) = request(step, &process.script, process.rank, meetings, &sizes)
            .expect("steps without a request are handled before");
        process.awaited = replies;
        let (node, rank) = (process.node, process.rank);
        if let Some(checks) = self.checks.get_mut(&process.ordinal) {
            match *step {
                Step::Pmi(rank::Step::Meet { meeting }) => checks.arrive(rank, meeting),
                Step::Pmi(rank::Step::Put { key, round, .. }) => checks.ask_put(rank, key, round),
                _ => {}
            }
        }
        if replies == 0 {
            // An abort has no reply: the rank runs until it is killed, or for five seconds.
            process.at = process.steps.len();
            self.later(5000 * MS, Event::Die { pid, exit: Exit::Code(0) });
        }
        let cut = self.random.usize(0..=message.len());
        let later = self.random.u64(1..20_000);
        let (front, back) = message.split_at(cut);
        self.later(SOCKET, Event::Item(node, Item::Client { pid, bytes: front.to_vec() }));
        self.later(SOCKET + later, Event::Item(node, Item::Client { pid, bytes: back.to_vec() }));
    }

    /// Writes as much as the pipe takes.
    fn write(&mut self, pid: u32, stderr: bool) {
        let process = &mut self.processes[pid as usize];
        let stream = usize::from(stderr);
        let room = PIPE - (process.written[stream] - process.read[stream]);
        let len = process.unwritten.min(room);
        process.unwritten -= len;
        process.written[stream] += len;
        let (node, blocked) = (process.node, process.unwritten > 0);
        if len > 0 {
            self.later(SOCKET, Event::Item(node, Item::Read));
        }
        if !blocked {
            self.next(pid);
        }
    }

    /// Goes on to the next step.
    fn next(&mut self, pid: u32) {
        self.processes[pid as usize].at += 1;
        let think = self.random.u64(0..100_000);
        self.later(think, Event::Act(pid));
    }

    /// A rank ends by itself.
    fn end(&mut self, pid: u32, ending: Ending) {
        self.note(pid, ending);
        let process = &mut self.processes[pid as usize];
        let exit = match ending {
            Ending::Signal(signal) => Exit::Signal(signal),
            Ending::Exit(code) => Exit::Code(code),
            _ => {
                let node = process.node;
                process.at = process.steps.len();
                self.later(SOCKET, Event::Item(node, Item::Hangup { pid }));
                return self.later(3000 * MS, Event::Die { pid, exit: Exit::Code(0) });
            }
        };
        process.ending = true;
        self.later(1, Event::Die { pid, exit });
    }

    /// Notes a failure that no other failure has caused.
    fn note(&mut self, pid: u32, ending: Ending) {
        let process = &self.processes[pid as usize];
        let done = &process.steps[..process.at];
        let is = |wanted: rank::Step| done.contains(&Step::Pmi(wanted));
        let inside = is(rank::Step::Init) && !is(rank::Step::Finalize);
        let code = match ending {
            Ending::Exit(0) if inside && self.plan.cleanup => 1,
            // The others may wait for it.
            Ending::Exit(0) => return,
            Ending::Exit(code) | Ending::SelfAbort(code) | Ending::Abort(code) => code,
            Ending::Signal(signal) => 128 + signal,
            Ending::CutOff => 1,
        };
        if matches!(ending, Ending::SelfAbort(_))
            && let Some(checks) = self.checks.get_mut(&process.ordinal)
        {
            checks.excuse(process.rank);
        }
        // The daemon's line about a rank that leaves alone does not name the host.
        let culprit = match ending {
            Ending::SelfAbort(_) => rank_name(process.ordinal, Rank(process.rank)),
            _ => process.name(self.head.control.host(process.node)),
        };
        let departures = &self.plan.departures;
        let leaves = departures.iter().any(|leaving| leaving.force && leaving.node == process.node);
        let may_be_asked = leaves && !self.plan.cleanup;
        self.failures.push(Failure { of: Some(process.ordinal), code, culprit, may_be_asked });
    }

    /// A process ends. Its node learns of it after its last bytes.
    pub(super) fn die(&mut self, pid: u32, exit: Exit) {
        let process = &mut self.processes[pid as usize];
        if process.exit.is_some()
            || process.ending && exit == Exit::Code(0) && process.at >= process.steps.len()
        {
            return;
        }
        (process.exit, process.ending) = (Some(exit), true);
        if let Some(checks) = self.checks.get_mut(&process.ordinal) {
            checks.died(process.rank);
        }
        let node = process.node;
        let is_ended = matches!(exit, Exit::Signal(signal) if [SIGKILL, SIGTERM].contains(&signal.into()));
        // A node that has not joined may be named as a host that is there as another one.
        let host = |node| self.head.control.host(node);
        let is_named = |leaving: u32| leaving == node || host(leaving) == host(node);
        let leaves = self.plan.departures.iter().any(|leaving| leaving.force && is_named(leaving.node));
        if is_ended && leaves && self.plan.cleanup {
            let process = &self.processes[pid as usize];
            let code = exit.exit_code();
            let culprit = process.name(self.head.control.host(node));
            let of = Some(process.ordinal);
            self.failures.push(Failure { of, code, culprit, may_be_asked: false });
        }
        self.later(SOCKET, Event::Item(node, Item::InputHangup { pid }));
        self.later(10 * SOCKET, Event::Item(node, Item::Ended { pid, exit }));
    }

    /// Sends a signal to a process.
    pub(super) fn signal(&mut self, pid: u32, signal: i32) {
        let process = &mut self.processes[pid as usize];
        let ends = match signal {
            SIGKILL => true,
            SIGINT | SIGTERM => !process.stubborn,
            _ => false,
        };
        if ends && !process.ending && process.exit.is_none() {
            process.ending = true;
            let time = self.random.u64(1_000..MS);
            self.later(time, Event::Die { pid, exit: Exit::Signal(signal as u8) });
        }
    }

    /// Kills all processes of a node at once.
    pub(super) fn kill_all(&mut self, node: u32) {
        for process in self.processes.iter_mut().filter(|process| process.node == node) {
            if process.exit.is_none() {
                (process.exit, process.ending) = (Some(Exit::Signal(SIGKILL as u8)), true);
                if let Some(checks) = self.checks.get_mut(&process.ordinal) {
                    checks.died(process.rank);
                }
            }
        }
    }

    /// A node learns of the end of a process.
    pub(super) fn ended(&mut self, node: u32, pid: u32, exit: Exit) {
        let Process { job, rank, .. } = self.processes[pid as usize];
        let state = &mut self.nodes[node as usize];
        if state.ended || state.processes.get(&(job, rank)) != Some(&pid) {
            return;
        }
        let conn = state.conn_of(Owner::Rank(pid));
        let first = self.random.bool();
        if let Some(conn) = conn.filter(|_| first) {
            state.close(self.now, conn);
        }
        self.at_daemon(node, DaemonEvent::RankExited { job, rank: Rank(rank), exit });
        let state = &mut self.nodes[node as usize];
        state.tell(self.now, Input::Exited { job, rank: Rank(rank), exit });
        if let Some(conn) = conn.filter(|_| !first) {
            state.close(self.now, conn);
        }
    }

    /// Handles a reply to a rank.
    pub(super) fn reply(&mut self, pid: u32, bytes: &[u8]) {
        let process = &mut self.processes[pid as usize];
        if process.exit.is_some() {
            return;
        }
        // Values of a liar can be any bytes.
        let reply = &*String::from_utf8_lossy(bytes);
        let Some(step) = process.steps.get(process.at).cloned() else { return };
        assert!(process.awaited > 0, "{} is answered twice: {reply}", process.describe());
        process.awaited -= 1;
        let (done, rank, ordinal, node) = (process.awaited == 0, process.rank, process.ordinal, process.node);
        let exempt = self
            .plan
            .liar
            .as_ref()
            .is_some_and(|&(liar, _)| node == liar || self.tree.children(liar).len() > 0);
        let fine = rank::field(reply, "rc") == Some("0");
        if let (Step::Pmi(step), Some(checks)) = (&step, self.checks.get_mut(&ordinal).filter(|_| !exempt)) {
            match *step {
                rank::Step::Put { key, round, .. } => {
                    assert!(fine, "a put of rank {rank} is refused: {reply}");
                    checks.put(rank, key, round);
                }
                rank::Step::Get { .. } if self.are_keys_false => {}
                rank::Step::Get { rank: of, key } => checks.got(rank, of, key, rank::round(reply)),
                rank::Step::Meet { meeting } => {
                    checks.release(rank, meeting, reply);
                    self.tell_reader(pid);
                }
                rank::Step::Init | rank::Step::Finalize => assert!(fine, "rank {rank}: {reply}"),
                rank::Step::End(_) => unreachable!("an end has no request"),
            }
        }
        if done {
            self.next(pid);
        }
    }
}
