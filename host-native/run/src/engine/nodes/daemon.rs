//! Daemon of a node: its start, and the adapter of its decisions.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::rc::Rc;

use hydrant_board::manage::Secret;
use hydrant_board::{BoardBackend, NodeBoard, RECORDING_MAX};
use hydrant_control::protocol::{JobRecord, Order, Report, Setup, decode};
use hydrant_control::{DaemonAction, DaemonConfig, DaemonEvent};
use hydrant_core::trace::Cause;
use hydrant_core::{Backend, Fault, Input, JobId, Limits, OwnedOutput, Rank, Time};
use hydrant_driver::{BackendError, MappedStorage, OwnedServer};
use hydrant_overlay::{Channel, DaemonMain, DaemonSpec, Event, Overlay};
use hydrant_start::FileReceiver;
use rustix::process::Signal;

use super::super::profile::live_of;
use super::super::server::{PmiServer, ServerParts};
use super::super::token::{LINKS, Token};
use super::super::{Daemon, Engine, Outlets, Parts, Run, open, record, record_up_to};
use super::actions::start_error;
use super::boards::LinkedBoards;
use super::setup::plan_of;
use super::{Nodes, ONLY_NODE};
use crate::backend::{BackendBuilder, RunBackend, Spared};
use crate::error::RunError;
use crate::join::{JoinError, JoinOptions, Joined, join};
use crate::messages::{self, Warnings};
use crate::plan::{Program, RunSettings};
use crate::topology_file::SharedTopologyFile;
use hydrant_core::manage::OpenNode;

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

impl Daemon {
    /// The only one of a run on one machine. It reports ranks that have joined if their number is shown.
    pub(in super::super) fn alone(settings: &RunSettings, progress: bool, files: FileReceiver) -> Daemon {
        let config = DaemonConfig {
            node: ONLY_NODE,
            process: std::process::id(),
            needs_ready: false,
            verbose: settings.verbose,
            progress,
            kill_grace: settings.kill_grace,
        };
        Daemon::new(config, files)
    }

    fn new(config: DaemonConfig, files: FileReceiver) -> Daemon {
        let control = hydrant_control::Daemon::new(config);
        let (draining, held) = (BTreeMap::new(), Vec::new());
        Daemon { control, draining, files, held, environment: None, failed: None }
    }
}

impl DaemonError {
    /// Remedy, if there is a specific one.
    pub fn hint(&self) -> Option<String> {
        match self {
            DaemonError::Join(error) => error.hint().map(str::to_owned),
            DaemonError::Run(error) => error.hint(),
        }
    }

    /// Exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonError::Join(JoinError::Enrol(error)) => error.exit_code(),
            _ => 1,
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
    serve(DaemonSpec::read().map_err(JoinError::from)?, None).map(|_| ())
}

/// Makes this machine a host of a run that waits for hosts, and runs its daemon until the run ends. Returns the exit code of the
/// first rank here that failed, otherwise 0.
///
/// The function takes over the calling process as [`daemon`] does, but for standard input.
///
/// # Errors
/// No run takes this host, or as for [`daemon`].
pub fn join_run(options: &JoinOptions) -> Result<u8, DaemonError> {
    let spec = options.applicant.enrol().map_err(JoinError::from)?;
    let comes_with_program = options.applicant.application.program.is_some();
    serve(spec, comes_with_program.then(|| options.environment.clone()))
}

/// Returns what daemons run that this process forks, and those that they fork.
pub fn forked_daemon() -> DaemonMain {
    Rc::new(|spec| match serve(spec, None) {
        Ok(_) => 0,
        Err(error) => {
            messages::print_error(messages::DAEMON, &error, error.hint());
            1
        }
    })
}

/// Runs a daemon. Returns the exit code of the first rank here that failed, otherwise 0.
fn serve(spec: DaemonSpec, environment: Option<Vec<(OsString, OsString)>>) -> Result<u8, DaemonError> {
    match join(spec, forked_daemon(), Token::Signals.into(), LINKS)? {
        Some(joined) => Ok(serve_node(joined, environment)?),
        None => Ok(0),
    }
}

/// Serves the ranks of a node until the head ends the run.
///
/// # Errors
/// The parent is lost, or the node cannot continue. No process of the node is running.
fn serve_node(joined: Joined, environment: Option<Vec<(OsString, OsString)>>) -> Result<u8, RunError> {
    let Joined { reactor, files, overlay: mut links, host, mut setup, guardian, folder } = joined;
    let is_slow = setup.plugin.is_some() || !setup.files.is_empty();
    if is_slow || setup.boards.of_node(links.node()).is_some() {
        // A plugin may have to be compiled, files be compared, and a board be waited for.
        links.announce_pause(reactor.clock.now(), &reactor.poller);
    }
    // The process ends after this, and its memory with it. To unmap it first costs more.
    let mut slabs = ManuallyDrop::new(None);
    let (server, unfit) = match ServerParts::of_node(&setup, &host, &links, &mut slabs) {
        Ok(server) => (server, None),
        Err(error) => (ServerParts::new(PmiServer::local(RunBackend::failed(setup.limits))), Some(error)),
    };
    let needs_ready = setup.needs_ready();
    let boards = LinkedBoards::new(&setup.boards);
    let (received, unfit) = match FileReceiver::new(std::mem::take(&mut setup.files), folder) {
        Ok(received) => (received, unfit),
        Err(error) => (FileReceiver::default(), unfit.or(Some(error.into()))),
    };
    let lacks_files = received.is_incomplete();
    let config = DaemonConfig {
        node: links.node(),
        process: std::process::id(),
        needs_ready: needs_ready && !lacks_files,
        verbose: setup.settings.verbose,
        progress: setup.progress,
        kill_grace: setup.settings.kill_grace,
    };
    let outlets = Outlets::of_daemon(&setup);
    let plan = plan_of(setup);
    let mut engine = Engine::new(&plan, reactor, files, outlets, server)?;
    engine.procs.guard(guardian);
    engine.host = host;
    engine.nodes = Some(Nodes::new(links, received.descriptors()));
    engine.files_folder = received.folder().map(Path::to_owned);
    engine.boards = boards;
    let mut daemon = Daemon { environment, ..Daemon::new(config, received) };
    daemon.begin(&mut engine, unfit, lacks_files)?;
    let mut run = Run { engine, parts: Parts::Daemon(Box::new(daemon)) };
    let result = run.run();
    run.engine.procs.kill_and_wait(|_, _| {});
    let failed = run.parts.daemon().and_then(|daemon| daemon.failed);
    match run.engine.nodes.and_then(|nodes| nodes.lifeline_lost) {
        Some(lost) => Err(Box::new(lost).into()),
        None => result.map(|_| failed.unwrap_or_default()),
    }
}

/// A program in the environment of its host. What the program has of its own was assigned by the user, or by who spawned it.
fn in_environment(program: &Program, own: &[(OsString, OsString)]) -> Program {
    let is_assigned = |name: &OsString| program.env.iter().any(|(assigned, _)| assigned == name);
    let inherited = own.iter().filter(|(name, _)| !is_assigned(name));
    Program { env: inherited.chain(&program.env).cloned().collect(), ..program.clone() }
}

impl<'s> ServerParts<'s> {
    /// The server of the node with those links.
    fn of_node(
        setup: &Setup,
        host: &str,
        links: &Overlay,
        slabs: &'s mut Option<MappedStorage>,
    ) -> Result<ServerParts<'s>, RunError> {
        let limits = setup.limits;
        let (node, tree) = (links.node(), links.tree());
        if let Some(target) = setup.boards.of_node(node) {
            let (nodes, radix, link) = (tree.nodes(), tree.radix(), setup.boards.link);
            let open = OpenNode { node, nodes, radix, limits, seed: None, link, record: None };
            if setup.boards.spare {
                return ServerParts::beside_board(setup, host, target, open);
            }
            return ServerParts::at_board(setup, host, target, open);
        }
        // The head may have hundreds of children, and a link takes memory for all ranks.
        let place = tree.place(node);
        let own = place.children.len() as u32 + u32::from(place.parent.is_some());
        let is_linked = setup.boards.link.is_some();
        let limits = if is_linked { limits } else { Limits { links: limits.links.min(own), ..limits } };
        let seed = open::random()?;
        let builder = BackendBuilder::new(setup.plugin.as_ref(), &Warnings::default())?;
        let recording = record(setup.recording(host).as_deref(), &limits, seed)?;
        let live = setup.profile.then(|| live_of(host));
        let (topology_file, slabs) = (Some(SharedTopologyFile::default()), (slabs, !setup.by_port));
        let mut server = ServerParts::build(&builder, (limits, seed), recording, live, topology_file, slabs)?;
        // Whether boards are linked decides about the tree.
        if setup.boards.link.is_none() {
            let input = Input::Node { node, nodes: tree.nodes(), radix: tree.form() };
            server.core.handle(Time(0), input)?;
        }
        Ok(server)
    }

    /// A server on a board, to which the ranks connect.
    fn at_board(
        setup: &Setup,
        host: &str,
        target: &str,
        open: OpenNode,
    ) -> Result<ServerParts<'s>, RunError> {
        let (secret, seed) = (setup.boards.secret.map(Secret::from_bytes), open::random()?);
        let open = OpenNode { record: setup.record.is_some().then_some(seed), ..open };
        let mut board = NodeBoard::connect(target, secret.as_ref(), setup.boards.heartbeat, open)?;
        let path = setup.recording(host);
        let recording = record_up_to(RECORDING_MAX, path.as_deref(), board.own_limits(), seed)?;
        if let Some(file) = &recording {
            board.record(Rc::clone(file));
        }
        Ok(ServerParts { recording, ..ServerParts::new(PmiServer::Node(Box::new(board))) })
    }

    /// A server on a board, with a spare here.
    fn beside_board(
        setup: &Setup,
        host: &str,
        target: &str,
        open: OpenNode,
    ) -> Result<ServerParts<'s>, RunError> {
        let OpenNode { node, nodes, radix, .. } = open;
        let (secret, seed) = (setup.boards.secret.map(Secret::from_bytes), open::random()?);
        let board = BoardBackend::connect(target, secret.as_ref(), setup.boards.heartbeat, open, seed)?;
        let limits = *board.limits();
        let spare = OwnedServer::new(limits, seed)?;
        let warnings = Warnings::default();
        let recording = record(setup.recording(host).as_deref(), &limits, seed)?;
        let topology_file = SharedTopologyFile::default();
        let core = Box::new(Spared::new(board, spare, &warnings));
        let mut core = RunBackend::new(core, recording.as_ref(), None, Some(&topology_file));
        core.handle(Time(0), Input::Node { node, nodes, radix })?;
        let topology_file = Some(topology_file);
        Ok(ServerParts { warnings, recording, topology_file, ..ServerParts::new(PmiServer::local(core)) })
    }
}

impl Daemon {
    /// Begins the service of a node: reports it, or what is unfit on it.
    fn begin(
        &mut self,
        engine: &mut Engine<'_>,
        unfit: Option<RunError>,
        lacks_files: bool,
    ) -> Result<(), RunError> {
        match unfit {
            Some(error) => self.break_off(engine, error)?,
            None if engine.awaits_tree() => engine.report_board(),
            None => self.handle(engine, DaemonEvent::SetupApplied)?,
        }
        if lacks_files {
            engine.send_report(&Report::NeedsFiles);
        }
        Ok(())
    }

    /// Handles an event of the links.
    pub(in super::super) fn take_link_event(
        &mut self,
        engine: &mut Engine<'_>,
        event: Event,
    ) -> Result<(), RunError> {
        match event {
            Event::Message { channel: Channel::Control, body, .. } => {
                self.handle(engine, DaemonEvent::Order(Order::decode(&body)?))
            }
            Event::Message { via, body, .. } => self.take_piece(engine, via, &body),
            Event::CreditAvailable { neighbour } => {
                self.return_held(engine);
                engine.credit_available(neighbour);
                Ok(())
            }
            Event::LifelineLost(why) => {
                if let Some(nodes) = &mut engine.nodes {
                    nodes.lifeline_lost = Some(why);
                }
                self.handle(engine, DaemonEvent::LifelineLost)
            }
            Event::Shutdown => self.handle(engine, DaemonEvent::Shutdown),
            // The engine reports these to the head separately. The head decides.
            Event::Failed(_)
            | Event::Retrying(_)
            | Event::Applied { .. }
            | Event::Turned { .. }
            | Event::Joined { .. }
            | Event::Left { .. }
            | Event::Complete
            | Event::Closed => Ok(()),
        }
    }

    /// Handles all that the PMI server of the node has done.
    pub(in super::super) fn take_outputs(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        while let Some(output) = engine.next_output(engine.now())? {
            self.take_output(engine, output)?;
        }
        Ok(())
    }

    /// Handles an output of the node's PMI server.
    pub(in super::super) fn take_output(
        &mut self,
        engine: &mut Engine<'_>,
        output: OwnedOutput,
    ) -> Result<(), RunError> {
        if let OwnedOutput::AbortJob { cause: Cause::Abort { .. }, .. } = output
            && engine.jobs.len() > 1
        {
            // A rank aborts when its connection to a rank of another job breaks. That one has failed first.
            self.take_exits(engine)?;
        }
        self.handle(engine, DaemonEvent::Output(output))
    }

    /// Stores a piece of a program file, and reports the last one.
    fn take_piece(&mut self, engine: &mut Engine<'_>, via: u32, body: &[u8]) -> Result<(), RunError> {
        self.held.push((via, body.len() as u32));
        let taken = match decode(body) {
            Some(piece) => self.files.take(&piece),
            None => Ok(false),
        };
        self.return_held(engine);
        match taken {
            Ok(true) => self.report_ready(engine),
            Ok(false) => {}
            Err(error) => self.break_off(engine, error.into())?,
        }
        Ok(())
    }

    /// Reports that the settings are applied, when the tree is formed and all files are there.
    fn report_ready(&self, engine: &mut Engine<'_>) {
        if !self.files.is_incomplete() && !engine.awaits_tree() {
            engine.send_report(&Report::Ready);
        }
    }

    /// Returns the credit of pieces, which the overlay has passed on, once the children take more.
    fn return_held(&mut self, engine: &mut Engine<'_>) {
        if let Some(nodes) = &mut engine.nodes
            && nodes.links.children_have_credit()
        {
            for (via, bytes) in std::mem::take(&mut self.held) {
                nodes.links.consumed(via, bytes);
            }
        }
    }

    /// Applies an event and executes the actions that follow.
    pub(in super::super) fn handle(
        &mut self,
        engine: &mut Engine<'_>,
        event: DaemonEvent,
    ) -> Result<(), RunError> {
        self.note(engine, event)?;
        self.carry_out(engine)
    }

    /// Applies an event whose actions are executed later.
    pub(in super::super) fn note(&mut self, engine: &Engine<'_>, event: DaemonEvent) -> Result<(), RunError> {
        Ok(self.control.handle(engine.now(), event)?)
    }

    /// Kills processes of this node whose kill timeout has passed.
    pub(in super::super) fn keep_time(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        self.control.handle_timeout(engine.now());
        self.carry_out(engine)
    }

    /// Reports how much of the standard input ranks have read, and which pushes of tools are over.
    pub(in super::super) fn report_input(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        engine.report_pushed();
        let (consumed, closed) = engine.stdin.take_news();
        if consumed > 0 {
            self.handle(engine, DaemonEvent::StdinConsumed(consumed))?;
        }
        if closed {
            self.handle(engine, DaemonEvent::StdinClosed)?;
        }
        Ok(())
    }

    /// Executes the actions.
    pub(in super::super) fn carry_out(&mut self, engine: &mut Engine<'_>) -> Result<(), RunError> {
        while let Some(action) = self.control.poll() {
            self.carry_out_action(engine, action)?;
        }
        Ok(())
    }

    fn carry_out_action(&mut self, engine: &mut Engine<'_>, action: DaemonAction) -> Result<(), RunError> {
        match action {
            DaemonAction::Send(report) => {
                if let Report::JobDone(job) = report {
                    engine.report_profile(job);
                }
                engine.send_report(&report);
            }
            DaemonAction::LinkBoard { addrs } => engine.link_board(&addrs)?,
            DaemonAction::FormTree { are_linked } => {
                engine.form_tree(are_linked)?;
                self.report_ready(engine);
            }
            DaemonAction::OpenJob { record } => self.open_job(engine, *record)?,
            DaemonAction::SignalAll(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal_everything(engine, signal);
                }
            }
            DaemonAction::ResizeWindows { job, size } => engine.resize_windows(job, size),
            DaemonAction::SignalJob { job, signal } => engine.signal_ranks(job, None, signal),
            DaemonAction::SignalRank { job, rank, signal } => engine.signal_ranks(job, Some(rank), signal),
            DaemonAction::ReleaseRanks { job, integers } => engine.release_ranks(job, integers),
            DaemonAction::DrainOutput { job } => self.drain(engine, job),
            DaemonAction::DeregisterJob { job } => engine.drop_job(job)?,
            DaemonAction::Input(input) => engine.tell_core(input.view())?,
            DaemonAction::FeedStdin(bytes) => engine.stdin.feed(&bytes, engine.now(), &engine.poller),
            DaemonAction::CloseOutput { job, streams } => engine.cut_output(job, &streams),
            DaemonAction::QueryRanks { query, job, first, count } => {
                engine.query_ranks_here(query, job, (first, count))?;
            }
            DaemonAction::QueryUsage { query, parts } => engine.report_usage(query, parts),
            DaemonAction::PushInput { push, job, rank, bytes } => {
                engine.push_input_here(push, (job, rank), &bytes);
            }
            DaemonAction::RelayTool { number, relayed } => engine.take_relayed((0, number), relayed)?,
            DaemonAction::ReplaceServer { plugin } => {
                let replaced = engine.replace_server(plugin.as_deref()).map_err(|error| error.with_hint());
                engine.send_report(&Report::ServerReplaced(replaced));
            }
            DaemonAction::Print(line) => engine.sinks.print(&line),
            DaemonAction::EndNode => engine.end_node(),
        }
        Ok(())
    }

    /// Registers a job and prepares its ranks on this node, unless a head in this process has done so.
    ///
    /// # Errors
    /// The plugin has failed.
    fn open_job(&mut self, engine: &mut Engine<'_>, mut record: JobRecord) -> Result<(), RunError> {
        let job = record.id;
        if let Some(own) = &self.environment {
            record.programs = record.programs.iter().map(|program| in_environment(program, own)).collect();
        }
        let opened = match engine.jobs.get(job) {
            Some(_) => Ok(()),
            None => engine.open_here(record, Some(&self.files)),
        };
        let event = match opened {
            Ok(()) => DaemonEvent::JobOpened { job },
            Err(mut errors) => {
                if let Some((_, error)) = errors.pop_if(|(_, error)| error.is_plugins()) {
                    return Err(error);
                }
                self.failed = self.failed.or(errors.first().map(|(_, error)| error.exit_code()));
                let errors = errors.iter().map(|(appnum, error)| start_error(*appnum, error)).collect();
                DaemonEvent::OpenFailed { job, errors }
            }
        };
        self.note(engine, event)
    }

    /// Reports that a rank cannot be started here.
    pub(in super::super) fn start_failed(
        &mut self,
        engine: &Engine<'_>,
        job: JobId,
        rank: u32,
        error: &RunError,
    ) -> Result<(), RunError> {
        let appnum = engine.jobs.get(job).map(|job| job.program(rank).0);
        self.note(engine, DaemonEvent::StartFailed { job, error: start_error(appnum, error) })
    }
}

impl Engine<'_> {
    /// Ends this node's ranks, and has the nodes below end theirs.
    fn end_node(&mut self) {
        let mut others = Vec::new();
        self.procs.kill_and_wait(|pid, status| others.push((pid, status)));
        self.helpers_ended(others);
        self.end_links();
    }

    /// Passes a decision of the head to the server. The job may have ended on this node.
    fn tell_core(&mut self, input: Input<'_>) -> Result<(), RunError> {
        let now = Time(self.now());
        match self.core.handle(now, input) {
            Err(BackendError::Fault(Fault::NoSuchUpcall | Fault::NoSuchJob)) | Ok(_) => Ok(()),
            // The sets of a job that this node could not open are missing here. The job ends.
            Err(BackendError::Fault(Fault::Refused(_))) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Signals the ranks of a job, or one of them.
    fn signal_ranks(&mut self, job: JobId, rank: Option<Rank>, signal: i32) {
        let Some((job, signal)) = self.jobs.get(job).zip(Signal::from_named_raw(signal)) else { return };
        let slots = rank.map_or(job.slots(), |rank| job.slot(rank.0)..job.slot(rank.0) + 1);
        self.procs.signal(slots, signal);
    }

    /// Closes output streams of ranks, each with true for standard error. The job may have ended.
    fn cut_output(&mut self, job: JobId, streams: &[(Rank, bool)]) {
        let Some(job) = self.jobs.get(job) else { return };
        for &(rank, stderr) in streams {
            self.streams.cut(2 * job.slot(rank.0) + u32::from(stderr), &mut self.sinks);
        }
    }
}
