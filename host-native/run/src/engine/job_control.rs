//! Orders of PMIx clients about processes (`PMIx_Job_control`): signals, and those that are signals.

use hydrant_control::protocol::Order;
use hydrant_core::wire::pmix::{Command, Infos, Integers, Procs, WILDCARD, status};
use hydrant_core::{JobId, Rank};
use hydrant_overlay::Destination;
use rustix::process::Signal;

use super::host_call::short_body;
use super::status::Asker;
use super::tool_output::Pull;
use super::{Engine, Head};

/// A process, or all of a job.
pub(super) struct Target {
    pub(super) job: JobId,
    pub(super) rank: Option<Rank>,
    pub(super) to: Destination,
}

/// Numbers of commands.
const JOB_CONTROL: u32 = 18;
pub(super) const PUSH_INPUT: u32 = 23;
/// Key that has no effect: a name for the request.
const ID: &[u8] = b"pmix.jctrl.id";

impl Target {
    fn all(job: JobId) -> Target {
        Target { job, rank: None, to: Destination::Descendants }
    }
}

impl Head<'_> {
    /// Carries out a command of a PMIx client. Returns the body of the reply, or `None` if that follows later.
    pub(super) fn obey_pmix_command(
        &mut self,
        engine: &mut Engine<'_>,
        asker: Asker,
        job: JobId,
        integers: Integers,
        command: Command<'_>,
    ) -> Option<Vec<u8>> {
        let mut number = JOB_CONTROL;
        let code = match command {
            Command::JobControl { targets, orders } => self.control_processes(engine, job, &targets, &orders),
            Command::PullOutput { sources, channels, handler } if matches!(asker, Asker::Tool(_)) => {
                let pull = Pull::new(job, integers, channels, handler);
                return Some(self.pull_output(engine, pull, &sources));
            }
            Command::PushInput { targets, bytes } if matches!(asker, Asker::Tool(_)) => {
                number = PUSH_INPUT;
                match self.push_input(engine, (asker, job), integers, &targets, bytes) {
                    Ok(()) => return None,
                    Err(code) => code,
                }
            }
            Command::StopOutput { handler } => {
                engine.tools.pulls.retain(|pull| !pull.is(job, handler));
                status::SUCCESS
            }
            _ => status::NOT_SUPPORTED,
        };
        if code == status::NOT_SUPPORTED {
            engine.name_unserved(1 << number);
        }
        Some(short_body(integers, |writer| {
            writer.status(code);
            writer.array(0);
        }))
    }

    /// Signals processes. Returns the status of the request: nothing is done unless all of it can be.
    fn control_processes(
        &self,
        engine: &mut Engine<'_>,
        own: JobId,
        targets: &Procs<'_>,
        orders: &Infos<'_>,
    ) -> i32 {
        let signals = match signals(orders) {
            Ok(signals) => signals,
            Err(code) => return code,
        };
        let Some(targets) = self.targets(own, targets) else { return status::NOT_FOUND };
        for Target { job, rank, to } in targets {
            for signal in &signals {
                let signal = signal.as_raw();
                engine.send_order(to, Order::SignalRanks { job, rank, signal });
            }
        }
        status::SUCCESS
    }

    /// Returns what processes stand for. None if one of them does not exist.
    pub(super) fn targets(&self, own: JobId, targets: &Procs<'_>) -> Option<Vec<Target>> {
        let jobs = self.control.jobs();
        if targets.is_empty() {
            return Some(vec![Target::all(jobs.get(own)?.id)]);
        }
        let target = |proc: hydrant_core::wire::pmix::Proc<'_>| {
            let job = jobs.named(proc.namespace)?;
            match proc.rank {
                WILDCARD => Some(Target::all(job.id)),
                rank if rank < job.size() => {
                    let to = Destination::Node(job.run.node(rank));
                    Some(Target { job: job.id, rank: Some(Rank(rank)), to })
                }
                _ => None,
            }
        };
        targets.iter().map(target).collect()
    }
}

/// Returns the signals of orders, or the status of orders that are not supported.
fn signals(orders: &Infos<'_>) -> Result<Vec<Signal>, i32> {
    let mut signals = Vec::new();
    for order in orders.iter().filter(|order| order.key != ID) {
        let signal = match order.key {
            b"pmix.jctrl.sig" => {
                let number = order.as_u32().and_then(|number| i32::try_from(number).ok());
                number.and_then(Signal::from_named_raw).ok_or(status::BAD_PARAM)?
            }
            b"pmix.jctrl.pause" => Signal::STOP,
            b"pmix.jctrl.resume" => Signal::CONT,
            b"pmix.jctrl.term" => Signal::TERM,
            b"pmix.jctrl.kill" => Signal::KILL,
            _ => return Err(status::NOT_SUPPORTED),
        };
        // A false order is none.
        if order.as_bool() != Some(false) {
            signals.push(signal);
        }
    }
    if signals.is_empty() { Err(status::BAD_PARAM) } else { Ok(signals) }
}
