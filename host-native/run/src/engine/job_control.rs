//! Orders of PMIx clients about processes (`PMIx_Job_control`): signals, those that are signals, and process sets.

use std::collections::BTreeSet;

use hydrant_control::protocol::Order;
use hydrant_control::{Event, format_ranges, ranges_of};
use hydrant_core::wire::pmix::{Command, Infos, Integers, Procs, WILDCARD, keys, status};
use hydrant_core::{JobId, OwnedInput, Rank, Refusal};
use hydrant_overlay::Destination;
use rustix::process::Signal;

use super::host_call::reply_body;
use super::status::Asker;
use super::tool_output::Pull;
use super::{Engine, Head};
use crate::error::RunError;

/// A process, or all of a job.
pub(super) struct Target {
    pub(super) job: JobId,
    pub(super) rank: Option<Rank>,
    pub(super) to: Destination,
}

/// Numbers of commands.
const JOB_CONTROL: u32 = 18;
pub(super) const PUSH_INPUT: u32 = 23;

impl Target {
    fn all(job: JobId) -> Target {
        Target { job, rank: None, to: Destination::Descendants }
    }
}

impl Head {
    /// Carries out a command of a PMIx client. Returns the body of the reply, or `None` if that follows later.
    pub(super) fn obey_pmix_command(
        &mut self,
        engine: &mut Engine<'_>,
        asker: Asker,
        job: JobId,
        integers: Integers,
        command: Command<'_>,
    ) -> Result<Option<Vec<u8>>, RunError> {
        let mut number = JOB_CONTROL;
        let code = match command {
            Command::JobControl { targets, orders } => {
                self.control_processes(engine, job, &targets, &orders)?.err().unwrap_or(status::SUCCESS)
            }
            Command::PullOutput { sources, channels, handler } if matches!(asker, Asker::Tool(_)) => {
                let pull = Pull::new(job, integers, channels, handler);
                return Ok(Some(self.pull_output(engine, pull, &sources)));
            }
            Command::PushInput { targets, bytes } if matches!(asker, Asker::Tool(_)) => {
                number = PUSH_INPUT;
                match self.push_input(engine, (asker, job), integers, &targets, bytes) {
                    Ok(()) => return Ok(None),
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
        Ok(Some(reply_body(integers, |writer| {
            writer.status(code);
            writer.array(0);
        })))
    }

    /// Names processes as a set, and signals them. Returns the status of a refusal: nothing is done then.
    fn control_processes(
        &mut self,
        engine: &mut Engine<'_>,
        own: JobId,
        targets: &Procs<'_>,
        orders: &Infos<'_>,
    ) -> Result<Result<(), i32>, RunError> {
        let Orders { signals, set } = match Orders::read(orders) {
            Ok(orders) => orders,
            Err(code) => return Ok(Err(code)),
        };
        let Some(targets) = self.targets(own, targets) else { return Ok(Err(status::NOT_FOUND)) };
        if let Some(name) = set
            && let Err(code) = self.define_set(engine, name, &targets)?
        {
            return Ok(Err(code));
        }
        for Target { job, rank, to } in targets {
            for signal in &signals {
                let signal = signal.as_raw();
                engine.send_order(to, Order::SignalRanks { job, rank, signal });
            }
        }
        Ok(Ok(()))
    }

    /// Defines a process set of ranks of one job at all PMI servers. Returns the status of a refusal.
    fn define_set(
        &mut self,
        engine: &mut Engine<'_>,
        name: &str,
        targets: &[Target],
    ) -> Result<Result<(), i32>, RunError> {
        let Some(job) = targets.first().and_then(|target| self.control.jobs().get(target.job)) else {
            return Ok(Err(status::NOT_FOUND));
        };
        if targets.iter().any(|target| target.job != job.id) {
            return Ok(Err(status::NOT_SUPPORTED));
        }
        let ranks = targets.iter().flat_map(|target| match target.rank {
            Some(Rank(rank)) => rank..rank + 1,
            None => 0..job.size(),
        });
        let ranks: BTreeSet<u32> = ranks.collect();
        let (id, first) = (job.id, ranks.first().map_or(Rank(0), |&rank| Rank(rank)));
        let members = format_ranges(&ranges_of(ranks.into_iter()));
        let request = format!("cmd=pset-define;name={name};members={members};").into_bytes();
        let input = OwnedInput::PsetRequest { job: id, rank: first, request };
        match engine.apply(input.view())? {
            Ok(()) => self.handle(engine, Event::SetsChanged(input)).map(Ok),
            Err(why) => {
                if engine.settings(id).verbose || matches!(why, Refusal::Full(..)) {
                    self.print_once(engine, id, format!("a process set of a PMIx client is refused: {why}"));
                }
                Ok(Err(why.pmix_status()))
            }
        }
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

/// What is to be done with processes.
struct Orders<'a> {
    signals: Vec<Signal>,
    /// Name of a process set.
    set: Option<&'a str>,
}

impl<'a> Orders<'a> {
    /// Returns the status of orders that are not supported.
    fn read(orders: &Infos<'a>) -> Result<Orders<'a>, i32> {
        let (mut signals, mut set) = (Vec::new(), None);
        for order in orders.iter().filter(|order| order.key != keys::JOB_CTRL_ID) {
            let signal = match order.key {
                keys::JOB_CTRL_SIGNAL => {
                    let number = order.as_u32().and_then(|number| i32::try_from(number).ok());
                    number.and_then(Signal::from_named_raw).ok_or(status::BAD_PARAM)?
                }
                keys::JOB_CTRL_PAUSE => Signal::STOP,
                keys::JOB_CTRL_RESUME => Signal::CONT,
                keys::JOB_CTRL_TERMINATE => Signal::TERM,
                keys::JOB_CTRL_KILL => Signal::KILL,
                keys::JOB_CTRL_DEFINE_PSET if set.is_none() => {
                    let name = order.as_string().and_then(|name| std::str::from_utf8(name).ok());
                    // The end of a field in the request, and in no name.
                    set = Some(name.filter(|name| !name.contains(';')).ok_or(status::BAD_PARAM)?);
                    continue;
                }
                _ => return Err(status::NOT_SUPPORTED),
            };
            // A false order is none.
            if order.as_bool() != Some(false) {
                signals.push(signal);
            }
        }
        if signals.is_empty() && set.is_none() {
            return Err(status::BAD_PARAM);
        }
        Ok(Orders { signals, set })
    }
}
