//! Daemon of a node: its start, and the adapter of its decisions.

use std::mem::ManuallyDrop;
use std::rc::Rc;

use hydrant_board::manage::Secret;
use hydrant_board::{BoardBackend, NodeBoard, RECORDING_MAX};
use hydrant_control::protocol::{JobRecord, Order, Report, Setup, decode};
use hydrant_control::{DaemonAction, DaemonConfig, DaemonEvent, NodeRanks};
use hydrant_core::{Backend, Fault, Input, JobId, Limits, Rank, Time};
use hydrant_driver::{BackendError, MappedStorage, OwnedServer};
use hydrant_overlay::{Channel, DaemonMain, DaemonSpec, Event, Overlay};
use hydrant_start::FileReceiver;
use hydrant_start::{PreparedProgram, find_mpi_library, prepare_file};
use rustix::process::Signal;

use super::super::server::{PmiServer, ServerParts};
use super::super::token::{LINKS, Token};
use super::super::{Engine, Outlets, open, record, record_up_to, start_guardian};
use super::actions::start_error;
use super::boards::LinkedBoards;
use super::setup::plan_of;
use super::{Nodes, ONLY_NODE};
use crate::backend::{BackendBuilder, RunBackend, Spared};
use crate::error::RunError;
use crate::join::{JoinError, Joined, join};
use crate::messages::{self, Warnings};
use crate::plan::RunSettings;
use crate::topology_file::SharedTopologyFile;
use hydrant_core::manage::OpenNode;

/// Program that cannot be started, or none for the whole job, and the reason.
pub(in super::super) type ProgramError = (Option<u32>, RunError);

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

/// A daemon among the nodes.
pub(in super::super) struct Daemon {
    pub(in super::super) control: hydrant_control::Daemon,
    /// Jobs whose ranks have ended and whose output is being sent.
    draining: Vec<JobId>,
    /// Program files from the head.
    files: FileReceiver,
    /// Credit that is held back until the children take streams: the neighbour, and a number of bytes.
    held: Vec<(u32, u32)>,
    /// Boards that may be linked.
    pub(super) boards: LinkedBoards,
}

impl Daemon {
    /// The node of a run on one machine.
    pub(in super::super) fn alone(settings: &RunSettings) -> Daemon {
        let config = DaemonConfig {
            node: ONLY_NODE,
            process: std::process::id(),
            needs_ready: false,
            verbose: settings.verbose,
            progress: false,
            kill_grace: settings.kill_grace,
        };
        Daemon::new(config, FileReceiver::default(), LinkedBoards::default())
    }

    fn new(config: DaemonConfig, files: FileReceiver, boards: LinkedBoards) -> Daemon {
        let control = hydrant_control::Daemon::new(config);
        Daemon { control, draining: Vec::new(), files, held: Vec::new(), boards }
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
}

/// Runs the daemon of a node until its parent ends it.
///
/// The function takes over the calling process. Standard input is read, signals are blocked in the calling thread, and
/// exits of child processes are collected. Call it once, from the only thread.
///
/// # Errors
/// The node could not start, or its parent is lost. All daemons below it have been killed.
pub fn daemon() -> Result<(), DaemonError> {
    serve(DaemonSpec::read().map_err(JoinError::from)?)
}

/// Returns what daemons run that this process forks, and those that they fork.
pub fn forked_daemon() -> DaemonMain {
    Rc::new(|spec| match serve(spec) {
        Ok(()) => 0,
        Err(error) => {
            messages::print_error(messages::DAEMON, &error, error.hint());
            1
        }
    })
}

fn serve(spec: DaemonSpec) -> Result<(), DaemonError> {
    match join(spec, forked_daemon(), Token::Signals.into(), LINKS)? {
        Some(joined) => Ok(serve_node(joined)?),
        None => Ok(()),
    }
}

/// Serves the ranks of a node until the head ends the run.
///
/// # Errors
/// The parent is lost, or the node cannot continue. No process of the node is running.
fn serve_node(joined: Joined) -> Result<(), RunError> {
    let Joined { reactor, files, overlay: mut links, host, mut setup } = joined;
    let guardian = start_guardian()?;
    let is_slow = setup.plugin.is_some() || !setup.files.is_empty();
    if is_slow || setup.boards.of_node(links.node()).is_some() {
        // A plugin may have to be compiled, files be compared, and a board be waited for.
        links.announce_pause(reactor.clock.now(), &reactor.poller);
    }
    // The process ends after this, and its memory with it. To unmap it first costs more.
    let mut slabs = ManuallyDrop::new(MappedStorage::new(&Limits::NONE));
    let (server, unfit) = match ServerParts::of_node(&setup, &host, &links, &mut slabs) {
        Ok(server) => (server, None),
        Err(error) => (ServerParts::new(PmiServer::local(RunBackend::failed(setup.limits))), Some(error)),
    };
    let needs_ready = setup.needs_ready();
    let boards = LinkedBoards::new(&setup.boards);
    let (received, unfit) = match FileReceiver::new(std::mem::take(&mut setup.files)) {
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
    engine.nodes = Some(Nodes::new(links));
    engine.daemon = Some(Box::new(Daemon::new(config, received, boards)));
    match unfit {
        Some(error) => engine.break_off(error)?,
        None if engine.awaits_tree() => engine.report_board(),
        None => engine.handle_at_daemon(DaemonEvent::SetupApplied)?,
    }
    if lacks_files {
        engine.send_report(&Report::NeedsFiles);
    }
    let result = engine.run();
    engine.procs.kill_and_wait(|_, _| {});
    match engine.nodes.and_then(|nodes| nodes.lifeline_lost) {
        Some(lost) => Err(Box::new(lost).into()),
        None => result.map(drop),
    }
}

impl<'s> ServerParts<'s> {
    /// The server of the node with those links.
    fn of_node(
        setup: &Setup,
        host: &str,
        links: &Overlay,
        slabs: &'s mut MappedStorage,
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
        let seed = open::random()?;
        let builder = BackendBuilder::new(setup.plugin.as_ref(), &Warnings::default())?;
        let recording = record(setup.recording(host).as_deref(), &limits, seed)?;
        let (topology_file, slabs) = (Some(SharedTopologyFile::default()), (slabs, !setup.by_port));
        let mut server = ServerParts::build(&builder, (limits, seed), recording, topology_file, slabs)?;
        // Whether boards are linked decides about the tree.
        if setup.boards.link.is_none() {
            let input = Input::Node { node, nodes: tree.nodes(), radix: tree.radix() };
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
        let mut core = RunBackend::new(core, recording.as_ref(), Some(&topology_file));
        core.handle(Time(0), Input::Node { node, nodes, radix })?;
        let topology_file = Some(topology_file);
        Ok(ServerParts { warnings, recording, topology_file, ..ServerParts::new(PmiServer::local(core)) })
    }
}

impl Engine<'_, '_> {
    /// Handles an event of the links at a daemon.
    pub(super) fn take_daemon_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Message { channel: Channel::Control, to_all, body, .. } => {
                let number = to_all.then(|| self.count_order());
                self.tell_board(number, false)?;
                let order = Order::decode(&body)?;
                self.handle_at_daemon(DaemonEvent::Order(order))?;
                self.tell_board(number, true)?;
                self.outputs()
            }
            Event::Message { via, body, .. } => self.take_piece(via, &body),
            Event::CreditAvailable { neighbour } => {
                self.return_held();
                if let Some(nodes) = &mut self.nodes
                    && nodes.links.tree().parent(nodes.links.node()) == Some(neighbour)
                {
                    self.sinks.set_blocked(!nodes.links.has_credit(0));
                }
                Ok(())
            }
            Event::LifelineLost(why) => {
                if let Some(nodes) = &mut self.nodes {
                    nodes.lifeline_lost = Some(why);
                }
                self.handle_at_daemon(DaemonEvent::LifelineLost)
            }
            Event::Shutdown => self.handle_at_daemon(DaemonEvent::Shutdown),
            // The engine reports these to the head separately. The head decides.
            Event::Failed(_)
            | Event::Retrying(_)
            | Event::Joined { .. }
            | Event::Complete
            | Event::Closed => Ok(()),
        }
    }

    /// Stores a piece of a program file, and reports the last one.
    fn take_piece(&mut self, via: u32, body: &[u8]) -> Result<(), RunError> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        daemon.held.push((via, body.len() as u32));
        let taken = match decode(body) {
            Some(piece) => daemon.files.take(&piece),
            None => Ok(false),
        };
        self.return_held();
        match taken {
            Ok(true) => self.report_ready(),
            Ok(false) => {}
            Err(error) => self.break_off(error.into())?,
        }
        Ok(())
    }

    /// Reports that the settings are applied, when the tree is formed and all files are there.
    pub(super) fn report_ready(&mut self) {
        let has_files = self.daemon.as_ref().is_some_and(|daemon| !daemon.files.is_incomplete());
        if has_files && !self.awaits_tree() {
            self.send_report(&Report::Ready);
        }
    }

    /// Returns the credit of pieces, which the overlay has passed on, once the children take more.
    fn return_held(&mut self) {
        let Some(nodes) = &mut self.nodes else { return };
        if nodes.children_have_credit()
            && let Some(daemon) = &mut self.daemon
        {
            for (via, bytes) in std::mem::take(&mut daemon.held) {
                nodes.links.consumed(via, bytes);
            }
        }
    }

    /// Passes an event to the daemon and executes its actions. Does nothing where ranks run on other nodes only.
    pub(in super::super) fn handle_at_daemon(&mut self, event: DaemonEvent) -> Result<(), RunError> {
        self.note_at_daemon(event)?;
        self.carry_out_at_daemon()
    }

    /// Passes an event to the daemon, whose actions are executed later.
    pub(in super::super) fn note_at_daemon(&mut self, event: DaemonEvent) -> Result<(), RunError> {
        let now = self.now();
        match &mut self.daemon {
            Some(daemon) => Ok(daemon.control.handle(now, event)?),
            None => Ok(()),
        }
    }

    /// Kills processes of this node whose kill timeout has passed.
    pub(super) fn keep_daemon_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        daemon.control.handle_timeout(now);
        self.carry_out_at_daemon()
    }

    /// Executes the actions of the daemon.
    pub(in super::super) fn carry_out_at_daemon(&mut self) -> Result<(), RunError> {
        while let Some(action) = self.daemon.as_mut().and_then(|daemon| daemon.control.poll()) {
            self.carry_out_daemon_action(action)?;
        }
        Ok(())
    }

    fn carry_out_daemon_action(&mut self, action: DaemonAction) -> Result<(), RunError> {
        match action {
            DaemonAction::Send(report) => self.send_report(&report),
            DaemonAction::LinkBoard { addrs } => self.link_board(&addrs)?,
            DaemonAction::FormTree { are_linked } => {
                self.form_tree(are_linked)?;
                self.report_ready();
            }
            DaemonAction::OpenJob { record } => self.open_at_daemon(*record)?,
            DaemonAction::SignalAll(signal) => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    self.signal_everything(signal);
                }
            }
            DaemonAction::ResizeWindows(size) => self.resize_windows(size),
            DaemonAction::SignalJob { job, signal } => self.signal_at_daemon(job, None, signal),
            DaemonAction::SignalRank { job, rank, signal } => self.signal_at_daemon(job, Some(rank), signal),
            DaemonAction::DrainOutput { job } => self.drain_at_daemon(job),
            DaemonAction::DeregisterJob { job } => self.drop_job(job)?,
            DaemonAction::Input(input) => self.tell_core(input.view())?,
            DaemonAction::FeedStdin(bytes) => self.stdin.feed(&bytes, self.now(), &self.poller),
            DaemonAction::CloseOutput { job, streams } => {
                let Some(first) = self.jobs.get(job).map(|job| job.slots().start) else { return Ok(()) };
                for (rank, stderr) in streams {
                    self.streams.cut(2 * (first + rank.0) + u32::from(stderr), &mut self.sinks);
                }
            }
            DaemonAction::QueryRanks { query, job, first, count } => {
                self.query_ranks_here(query, job, (first, count))?;
            }
            DaemonAction::ReplaceServer { plugin } => {
                let replaced = self.replace_server(plugin.as_deref()).map_err(|error| error.with_hint());
                self.send_report(&Report::ServerReplaced(replaced));
            }
            DaemonAction::Print(line) => self.sinks.print(&line),
            DaemonAction::EndNode => self.end_node(),
        }
        Ok(())
    }

    /// Ends this node's ranks, and has the nodes below end theirs.
    fn end_node(&mut self) {
        let mut others = Vec::new();
        self.procs.kill_and_wait(|pid, status| others.push((pid, status)));
        for (pid, status) in others {
            self.helper_ended(pid, status);
        }
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

    /// Registers a job and prepares its ranks on this node.
    ///
    /// # Errors
    /// The plugin has failed.
    fn open_at_daemon(&mut self, record: JobRecord) -> Result<(), RunError> {
        let job = record.id;
        let opened = match self.jobs.get(job) {
            // By the head in this process.
            Some(_) => Ok(()),
            None => self.open_here(record),
        };
        let event = match opened {
            Ok(()) => DaemonEvent::JobOpened { job },
            Err(mut errors) => {
                if let Some((_, error)) = errors.pop_if(|(_, error)| error.is_plugins()) {
                    return Err(error);
                }
                let errors = errors.iter().map(|(appnum, error)| start_error(*appnum, error)).collect();
                DaemonEvent::OpenFailed { job, errors }
            }
        };
        self.note_at_daemon(event)
    }

    /// Opens a job, which may have ranks here. On failure returns an error for each program that cannot be started, or one
    /// about the whole job.
    pub(in super::super) fn open_here(&mut self, record: JobRecord) -> Result<(), Vec<ProgramError>> {
        let checked = self.check_here(&record)?;
        self.open(record, checked).map_err(|error| vec![(None, error)])
    }

    /// Finds the programs that have ranks on this node.
    fn check_here(&mut self, record: &JobRecord) -> Result<Vec<Option<PreparedProgram>>, Vec<ProgramError>> {
        let here = NodeRanks::of_node(&record.blocks, self.node());
        if self.plan.settings.mpi_psets && self.preload.is_none() && here.count() > 0 {
            match find_mpi_library() {
                Ok(library) => self.preload = Some(library),
                Err(error) => return Err(vec![(None, error.into())]),
            }
        }
        let mut first = 0;
        let files = self.daemon.as_ref().map(|daemon| &daemon.files).filter(|_| record.ordinal == 0);
        let (mut checked, mut errors) = (Vec::new(), Vec::new());
        for (appnum, program) in (0..).zip(&*record.programs) {
            let file = files.and_then(|files| files.of_program(appnum));
            let ranks = first..first + program.ranks;
            first = ranks.end;
            let any = here.from(ranks.start).is_some_and(|rank| ranks.contains(&rank));
            match any.then(|| prepare_file(program, file)).transpose() {
                Ok(file) => checked.push(file),
                Err(error) => errors.push((Some(appnum), error.into())),
            }
        }
        if errors.is_empty() { Ok(checked) } else { Err(errors) }
    }

    fn signal_at_daemon(&mut self, job: JobId, rank: Option<Rank>, signal: i32) {
        let Some((job, signal)) = self.jobs.get(job).zip(Signal::from_named_raw(signal)) else { return };
        let slots = rank.map_or(job.slots(), |rank| job.slot(rank.0)..job.slot(rank.0) + 1);
        self.procs.signal(slots, signal);
    }

    /// Reports that a rank cannot be started here.
    pub(in super::super) fn start_failed(
        &mut self,
        job: JobId,
        rank: u32,
        error: &RunError,
    ) -> Result<(), RunError> {
        let appnum = self.jobs.get(job).map(|job| job.program(rank).0);
        self.note_at_daemon(DaemonEvent::StartFailed { job, error: start_error(appnum, error) })
    }

    /// Sends the rest of the output of a job all of whose ranks here have ended.
    fn drain_at_daemon(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(id) else { return };
        // No more connections are accepted.
        (job.run.port, job.run.pmix) = (None, None);
        let slots = job.slots();
        self.begin_drain(id);
        self.read_ended(slots);
        if let Some(daemon) = &mut self.daemon {
            daemon.draining.push(id);
        }
    }

    /// Reports jobs whose output has been sent.
    pub(in super::super) fn settle_daemon(&mut self) -> Result<(), RunError> {
        let Some(daemon) = &mut self.daemon else { return Ok(()) };
        for job in std::mem::take(&mut daemon.draining) {
            if self.is_drained(job) {
                self.print_singletons(job);
                self.handle_at_daemon(DaemonEvent::OutputDrained { job })?;
            } else if let Some(daemon) = &mut self.daemon {
                daemon.draining.push(job);
            }
        }
        Ok(())
    }
}
