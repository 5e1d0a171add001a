//! Standard input that tools of PMIx (`PMIx_IOF_push`) and clients of a fleet push to ranks.
//!
//! A push is answered when its ranks have taken it or have closed their input. Tools send more after that, and a connection has
//! few requests under way, so the bytes that wait are bounded by the requests that the server keeps. Those of a client have a
//! bound of their own.

use std::ops::Range;

use hydrant_control::protocol::{Order, Report, StdinTarget, SubmissionId};
use hydrant_core::wire::pmix::{Integers, Procs, status};
use hydrant_core::{JobId, Rank};
use hydrant_overlay::Destination;

use super::host_call::reply_body;
use super::job_control::{PUSH_INPUT, Target};
use super::status::Asker;
use super::{Engine, Head};
use crate::error::RunError;

/// Most processes that a push names. Each gets a copy of the bytes.
const TARGETS_MAX: u32 = 64;

/// Pushes of tools under way.
#[derive(Debug, Default)]
pub(super) struct Pushes {
    /// Number of the latest order.
    latest: u64,
    pending: Vec<Push>,
}

/// Who pushes.
#[derive(Clone, Copy, Debug)]
enum Pusher {
    /// A tool of PMIx, and the encoding of its integers.
    Tool(Asker, Integers),
    /// The client of a submission, and the number of bytes.
    Client(SubmissionId, u32),
}

/// A push that has no answer.
#[derive(Debug)]
struct Push {
    by: Pusher,
    /// Nodes and numbers of orders whose reports have not arrived.
    awaited: Vec<(u32, u64)>,
    /// A rank has taken it.
    is_taken: bool,
}

impl Head {
    /// Pushes bytes of a tool to ranks. The answer follows.
    ///
    /// # Errors
    /// The status of a request that cannot be carried out.
    pub(super) fn push_input(
        &mut self,
        engine: &mut Engine<'_>,
        (asker, tool): (Asker, JobId),
        integers: Integers,
        targets: &Procs<'_>,
        bytes: &[u8],
    ) -> Result<(), i32> {
        if targets.is_empty() {
            return Err(status::BAD_PARAM);
        }
        if targets.len() > TARGETS_MAX {
            return Err(status::OUT_OF_RESOURCE);
        }
        let targets = self.targets(tool, targets).ok_or(status::NOT_FOUND)?;
        let takes_input = |target: &Target| {
            let job = self.control.jobs().get(target.job);
            job.is_some_and(|job| match job.ordinal {
                0 => engine.settings(job.id).stdin == StdinTarget::Tools,
                _ => self.takes_input(job.id),
            })
        };
        if !targets.iter().all(takes_input) {
            engine.note_refused_input();
            return Err(status::NOT_SUPPORTED);
        }
        self.push(engine, targets, bytes, Pusher::Tool(asker, integers));
        Ok(())
    }

    /// Pushes bytes of a client to the ranks of its job that read standard input.
    pub(super) fn push_of_client(
        &mut self,
        engine: &mut Engine<'_>,
        (submission, job): (SubmissionId, JobId),
        bytes: &[u8],
    ) {
        let to = match engine.settings(job).stdin {
            StdinTarget::Rank(rank) => {
                let node = self.control.jobs().get(job).map_or(0, |job| job.run.node(rank));
                Target { job, rank: Some(Rank(rank)), to: Destination::Node(node) }
            }
            _ => Target { job, rank: None, to: Destination::Descendants },
        };
        self.push(engine, vec![to], bytes, Pusher::Client(submission, bytes.len() as u32));
    }

    fn push(&mut self, engine: &mut Engine<'_>, targets: Vec<Target>, bytes: &[u8], by: Pusher) {
        let mut awaited = Vec::new();
        for Target { job, rank, to } in targets {
            self.pushes.latest += 1;
            let push = self.pushes.latest;
            match to {
                Destination::Node(node) => awaited.push((node, push)),
                _ => awaited.extend(self.control.members().map(|node| (node, push))),
            }
            engine.send_order(to, Order::PushInput { push, job, rank, bytes: bytes.to_vec() });
        }
        self.pushes.pending.push(Push { by, awaited, is_taken: false });
    }

    /// A node has passed a push on. Answers the tool after the last node.
    pub(super) fn input_pushed(
        &mut self,
        engine: &mut Engine<'_>,
        report: (u32, u64),
        is_taken: bool,
    ) -> Result<(), RunError> {
        let mut pending = self.pushes.pending.iter_mut();
        let found = pending.find_map(|push| Some((push.awaited.iter().position(|at| *at == report)?, push)));
        let Some((at, push)) = found else { return Ok(()) };
        push.awaited.swap_remove(at);
        push.is_taken |= is_taken;
        self.answer_pushes(engine)
    }

    /// Nodes are lost or have left. Nothing is awaited from them.
    pub(super) fn pushes_gone(
        &mut self,
        engine: &mut Engine<'_>,
        nodes: &Range<u32>,
    ) -> Result<(), RunError> {
        for push in &mut self.pushes.pending {
            push.awaited.retain(|(node, _)| !nodes.contains(node));
        }
        self.answer_pushes(engine)
    }

    /// A submission is over. Its number may be that of another one before all nodes have reported.
    pub(super) fn forget_pushes(&mut self, submission: SubmissionId) {
        let is_of = |by: &Pusher| matches!(by, Pusher::Client(of, _) if *of == submission);
        self.pushes.pending.retain(|push| !is_of(&push.by));
    }

    /// Answers the pushes that all nodes have reported.
    fn answer_pushes(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        let over: Vec<Push> = self.pushes.pending.extract_if(.., |push| push.awaited.is_empty()).collect();
        for Push { by, is_taken, .. } in over {
            match by {
                Pusher::Tool(asker, integers) => {
                    let code = if is_taken { status::SUCCESS } else { status::INPUT_COMPLETE };
                    let body = reply_body(integers, |writer| writer.status(code));
                    self.answer_asker(engine, asker, 0, body)?;
                }
                Pusher::Client(submission, len) => self.input_of_client_taken(submission, len, is_taken),
            }
        }
        Ok(())
    }
}

impl Engine<'_> {
    /// Pushes bytes to ranks of a job here, which may be over.
    pub(super) fn push_input_here(&mut self, push: u64, (job, rank): (JobId, Option<Rank>), bytes: &[u8]) {
        let slots = self.jobs.get(job).map_or(0..0, |job| match rank {
            Some(Rank(rank)) => job.slot(rank)..job.slot(rank) + 1,
            None => job.slots(),
        });
        self.pushed.push(push, slots, bytes, &self.poller);
        self.report_pushed();
    }

    /// Says once what ranks need to take input of tools.
    fn note_refused_input(&mut self) {
        let is_new = self.unserved >> PUSH_INPUT & 1 == 0;
        if self.plan.settings.verbose && is_new {
            self.unserved |= 1 << PUSH_INPUT;
            self.sinks.print("refused input of a tool: ranks of the first job take it with --stdin tools");
        }
    }

    /// Reports the pushes that are over.
    pub(super) fn report_pushed(&mut self) {
        for (push, is_taken) in self.pushed.take_over() {
            self.send_report(&Report::InputPushed { push, is_taken });
        }
    }
}
