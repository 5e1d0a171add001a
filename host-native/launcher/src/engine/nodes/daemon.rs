//! The daemon of a node: it obeys orders of the head and sends it reports.

use std::rc::Rc;

use hydrant_control::protocol::{JobRecord, Order, Report, Setup, decode};
use hydrant_core::{Fault, Input, JobId, Limits, Rank, Time};
use hydrant_overlay::{Channel, Event, Overlay};
use rustix::process::Signal;

use super::super::jobs::Ranks;
use super::super::server::PmiServer;
use super::super::token::{LINKS, Token};
use super::super::{Engine, Outlets, open, record, recorded};
use super::actions::start_error;
use super::backend_failure::FailedBackend;
use super::setup::options_of;
use super::{Nodes, Role};
use crate::backend::BackendBuilder;
use crate::error::RunError;
use crate::join::{JoinError, Joined, join};
use crate::launch::{PreparedProgram, find_mpi_library, prepare};
use crate::plan::Plan;
use hydrant_driver::{AnyBackend, BackendError, MappedStorage, Sharing};
use hydrant_record::RecordingFile;

/// Error that ends a daemon early.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// It could not join the other nodes, or was ended before it had anything to serve.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// It could not serve its ranks.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl DaemonError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            DaemonError::Join(error) => error.hint().map(str::to_owned),
            DaemonError::Run(error) => error.hint(),
        }
    }
}

/// Runs the daemon of a node until its parent ends it.
///
/// The function takes over the calling process. Standard input is read, signals are blocked in the calling thread, and
/// exits of child processes are collected. Call it once, from the only thread.
///
/// # Errors
/// The node could not start, or its parent is lost. All daemons below it have been killed.
pub fn daemon() -> Result<(), DaemonError> {
    match join(Token::Signals.into(), LINKS)? {
        Some(joined) => Ok(serve_node(joined)?),
        None => Ok(()),
    }
}

/// Serves the ranks of a node until the head ends the run.
///
/// # Errors
/// The parent is lost, or the node cannot continue. No process of the node is running.
fn serve_node(joined: Joined) -> Result<(), RunError> {
    let Joined { reactor, files, overlay: mut links, host, setup } = joined;
    if setup.plugin.is_some() {
        // It may have to be compiled.
        links.announce_pause(reactor.clock.now(), &reactor.poller);
    }
    let mut slabs = MappedStorage::new(&Limits::NONE);
    let (own, unfit) = match Own::make(&setup, &host, &links, &mut slabs) {
        Ok(own) => (own, None),
        Err(error) => (Own::gone(setup.limits), Some(error)),
    };
    let Own { core, recording, sharing } = own;
    let waited_for = setup.needs_ready();
    let plan = Plan { programs: Vec::new(), options: options_of(setup) };
    let outlets = Outlets::of_daemon(&reactor.poller)?;
    let mut engine = Engine::new(&plan, reactor, files, outlets, PmiServer::local(core))?;
    engine.recording = recording;
    engine.sharing = sharing;
    engine.host = host;
    engine.nodes = Some(Nodes::new(links, Role::Daemon { backend_failed: false }));
    match unfit {
        Some(error) => engine.break_off(error)?,
        None if waited_for => engine.report_up(&Report::Ready),
        None => {}
    }
    let result = engine.run();
    engine.procs.kill_and_wait(|_, _| {});
    match engine.nodes.and_then(|nodes| nodes.lifeline_lost) {
        Some(lost) => Err(Box::new(lost).into()),
        None => result.map(drop),
    }
}

/// Backend of a node with its recording and its shared segment.
struct Own<'s> {
    core: Box<AnyBackend<'s>>,
    recording: Option<Rc<RecordingFile>>,
    sharing: Option<Sharing>,
}

impl<'s> Own<'s> {
    /// Creates the stub of a node whose backend could not be created.
    fn gone(limits: Limits) -> Own<'s> {
        Own { core: Box::new(FailedBackend(limits)), recording: None, sharing: None }
    }

    /// Makes the core of the node with those links.
    fn make(
        setup: &Setup,
        host: &str,
        links: &Overlay,
        slabs: &'s mut MappedStorage,
    ) -> Result<Own<'s>, RunError> {
        let limits = setup.limits;
        let seed = open::random()?;
        let builder = BackendBuilder::new(setup.plugin.as_ref())?;
        *slabs = builder.storage(&limits, !setup.by_port)?;
        let sharing = slabs.sharing(seed);
        let recording = record(setup.recording(host).as_deref(), &limits, seed)?;
        let mut core = recorded(builder.build(limits, seed, slabs)?, recording.as_ref());
        let (node, tree) = (links.node(), links.tree());
        core.handle(Time(0), Input::Node { node, nodes: tree.nodes(), radix: tree.radix() })?;
        Ok(Own { core, recording, sharing })
    }
}

impl Engine<'_, '_> {
    pub(super) fn take_daemon_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Message { channel: Channel::Control, body, .. } => {
                let order = decode(&body).ok_or_else(|| RunError::links("the head sent an invalid order"))?;
                self.obey(order)
            }
            Event::Message { via, body, .. } => {
                self.consumed(via, body.len() as u32);
                Ok(())
            }
            Event::CreditAvailable { neighbour } => {
                if let Some(nodes) = &mut self.nodes
                    && nodes.links.tree().parent(nodes.links.node()) == Some(neighbour)
                {
                    self.sinks.stuff(!nodes.links.has_credit(0));
                }
                Ok(())
            }
            Event::LifelineLost(why) => {
                if let Some(nodes) = &mut self.nodes {
                    nodes.lifeline_lost = Some(why);
                }
                self.end_node();
                Ok(())
            }
            Event::Shutdown => {
                self.end_node();
                Ok(())
            }
            // The engine reports these to the head separately. The head decides.
            Event::Failed(_) | Event::Joined { .. } | Event::Complete | Event::Closed => Ok(()),
        }
    }

    /// Ends this node's ranks, and has the nodes below end theirs.
    fn end_node(&mut self) {
        self.stop_starting();
        let mut others = Vec::new();
        self.procs.kill_and_wait(|pid, status| others.push((pid, status)));
        for (pid, status) in others {
            self.helper_ended(pid, status);
        }
        self.end_links();
    }

    fn obey(&mut self, order: Order) -> Result<(), RunError> {
        let now = Time(self.now());
        match order {
            Order::Identify => self.report_up(&Report::Identity { pid: std::process::id() }),
            Order::Setup(_) => {}
            Order::StartJob(record) => self.take_job(*record)?,
            Order::Signal(number) => self.take_order_signal(number),
            Order::AbortJob(job) => self.terminate_job(job),
            Order::CancelJob(job) => self.cancel_local(job),
            Order::DeregisterJob(job) => self.drop_job(job)?,
            Order::StalledFence(job) => self.tell_core(now, Input::StalledFence { job })?,
            Order::DefineSet { job, name, members } => {
                self.tell_core(now, Input::Define { job, name: &name, members: members.as_bytes() })?;
            }
            Order::ConnectJobs { job, other, connected } => {
                self.tell_core(now, Input::Connected { job, other, connected })?;
            }
            Order::UpcallComplete { upcall, rc, text } => {
                self.tell_core(now, Input::UpcallComplete { upcall, rc, text: &text })?;
            }
            Order::SpawnComplete { upcall, started, full, codes } => {
                self.tell_core(now, Input::SpawnComplete { spawn: upcall, started, full, codes: &codes })?;
            }
            Order::Stdin(bytes) => self.stdin.feed(&bytes, &self.poller),
            Order::CloseOutput { job, streams } => {
                let Some(first) = self.jobs.get(job).map(|job| job.slots().start) else { return Ok(()) };
                for (rank, stderr) in streams {
                    self.streams.cut(2 * (first + rank.0) + u32::from(stderr), &mut self.sinks);
                }
            }
        }
        self.outputs()
    }

    /// Passes a decision of the head to the server. The job may have ended on this node.
    fn tell_core(&mut self, now: Time, input: Input<'_>) -> Result<(), RunError> {
        match self.core.handle(now, input) {
            Err(BackendError::Fault(Fault::NoSuchUpcall | Fault::NoSuchJob)) | Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn take_job(&mut self, record: JobRecord) -> Result<(), RunError> {
        let id = record.id;
        let any = Ranks::of_node(&record.blocks, self.node()).count() > 0;
        if let Some(Nodes { role: Role::Daemon { backend_failed: true }, .. }) = &self.nodes {
            // The head gave the order before it knew.
            if any {
                self.report_up(&Report::JobDone(id));
            }
            return Ok(());
        }
        let opened = self.check_here(&record).and_then(|checked| self.open(record, checked, None));
        let Err(error) = opened else { return Ok(()) };
        let of_plugin = error.is_plugins();
        if !of_plugin {
            self.report_start_failed(id, None, &error);
        }
        if any {
            self.report_up(&Report::JobDone(id));
        }
        if of_plugin { Err(error) } else { Ok(()) }
    }

    /// Finds the programs that have ranks on this node.
    fn check_here(&mut self, record: &JobRecord) -> Result<Vec<Option<PreparedProgram>>, RunError> {
        if self.plan.options.mpi_psets && self.preload.is_none() {
            self.preload = Some(find_mpi_library()?);
        }
        let here = Ranks::of_node(&record.blocks, self.node());
        let mut first = 0;
        let checked = record.programs.iter().map(|program| {
            let ranks = first..first + program.ranks;
            first = ranks.end;
            let any = here.from(ranks.start).is_some_and(|rank| ranks.contains(&rank));
            any.then(|| prepare(program).map_err(RunError::from)).transpose()
        });
        checked.collect()
    }

    fn take_order_signal(&mut self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if !matches!(signal, Signal::USR1 | Signal::USR2 | Signal::TSTP | Signal::CONT) {
            self.stop_starting();
        }
        self.procs.signal_all(signal);
    }

    /// Kills the ranks of a canceled job.
    fn cancel_local(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.cancel(None, 0);
        job.run.stop_starting();
        self.procs.signal(job.slots(), Signal::KILL);
    }

    /// Reports that a rank, or the job as a whole, cannot be started here.
    pub(in super::super) fn report_start_failed(&mut self, job: JobId, rank: Option<u32>, error: &RunError) {
        let known = self.jobs.get(job);
        let appnum = known.zip(rank).map(|(job, rank)| job.program(rank).0);
        self.report_up(&Report::StartFailed { job, error: start_error(appnum, error) });
        self.cancel_local(job);
    }

    /// Reports that ranks run, as processes of these numbers.
    pub(in super::super) fn report_ranks_started(&mut self, job: JobId, ranks: Vec<(Rank, u32)>) {
        if !ranks.is_empty() {
            self.report_up(&Report::RanksStarted { job, ranks });
        }
    }
}
