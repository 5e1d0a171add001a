//! A process of a run: one event loop without threads.
//!
//! The event loop of a [`Run`] passes what happens on to three parts. The [`Engine`] is what every process has: the poller, the PMI
//! server with the jobs that are registered there, their processes and streams, and the links to other nodes. The [`Head`] decides
//! about jobs and has what the user sees of them: status socket, time limit, result, name service, and answers to queries. The
//! [`Daemon`] starts and serves ranks. On one machine head and daemon share an engine, on several hosts each has its own. They
//! tell each other nothing but orders and reports.
//!
//! Each process has a number, `first + rank` of its job, which indexes connections, streams and processes. A wake-up reads once
//! from each ready descriptor, passes the bytes to the server and writes its replies at once: one `recv` and one `send` for a
//! request. Each request is answered before the next one is read, so a client whose reply is there before it waits need not be
//! woken, and other clients work meanwhile on other processors. io_uring saves system calls, but its replies leave at the end of a
//! turn: an echo server took 1.4 times the processor time of one with epoll. The scheduling policy is the default: with
//! `SCHED_BATCH` the server waits behind processes that compute.
//!
//! Signals are handled last, after the bytes that a rank sent before it ended. A sink that cannot be written to stops only the
//! streams that lead to it.

mod board;
mod called_debugger;
mod debugger;
mod drain;
mod event_loop;
mod fleet;
mod grow;
mod help_texts;
mod host_call;
mod job_control;
mod jobs;
mod look;
mod names;
mod nodes;
pub(crate) mod open;
pub(crate) mod output;
pub(crate) mod patience;
mod pmix_query;
mod pmix_support;
mod procs;
mod profile;
mod progress;
mod query;
mod ranks;
mod replace;
pub(crate) mod result;
mod serve;
mod server;
mod singletons;
mod spawn;
mod status;
mod time_limit;
pub(crate) mod token;
mod tool_input;
mod tool_jobs;
mod tool_output;
mod tool_relay;
mod tools;
mod usage;
mod wait;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hydrant_control::protocol::{Report, RunSettings, Setup, StdinTarget, SubmissionId, decode};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::{JobId, Limits};
use hydrant_driver::{PORT_FILES, Sharing};
use hydrant_iof::{Labels, PushedInput, SinkId, Sinks, Stdin, Streams, UNSENT_MAX};
use hydrant_overlay::{BEYOND_CREDIT_MAX, Enrolment};
use hydrant_placement::{Bootstrap, Environment, Location};
use hydrant_reactor::process::Guardian;
use hydrant_reactor::{
    Clock, Error, Interest, OpenFiles, Poller, Reactor, Signals, file::empty_input, take_inherited,
};
use hydrant_record::RecordingFile;
use hydrant_start::{FileReceiver, FileSender, POOL_FD, find_mpi_library, new_job_folder};
use hydrant_status::StatusServer;
use rustix::process::Pid;

use crate::backend::{BackendBuilder, read_plugin};
use crate::debugger_call::DebuggerCall;
use crate::enrol::await_hosts;
use crate::error::RunError;
use crate::json;
use crate::messages::{self, Warnings};
use crate::plan::{JOBS_LATE_MAX, Plan};
use crate::rendezvous::new_folder;
use crate::topology_file::SharedTopologyFile;
use called_debugger::CalledDebugger;
use drain::Drain;
use fleet::Fleet;
use grow::Growths;
use help_texts::HelpTexts;
use jobs::Jobs;
use look::Looker;
use names::Names;
pub use nodes::{DaemonError, daemon, forked_daemon, join_run};
use nodes::{LinkedBoards, Messages, Nodes};
use output::pseudo_terminals;
use patience::Patience;
use pmix_query::PmixQueries;
use procs::Procs;
use profile::{NodeProfile, Profile};
use progress::Progress;
use replace::Replacement;
use result::RunResult;
use server::{PmiServer, ServerParts};
use status::RankQueries;
use time_limit::TimeLimit;
use token::{IOF, Token};
use tool_input::Pushes;
use tool_jobs::ToolJob;
use tools::Tools;

/// Descriptors that the launcher needs beside those of ranks and connections: its own, and some while a rank starts.
const OWN_FILES: u64 = 40;
/// Connections of processes that are no ranks, for which a job's port reserves descriptors.
const STRANGERS: u64 = 64;
/// Descriptors for concurrent look-ups of names of other runs. The system may refuse further ones.
const LOOKUPS: u64 = 64;
/// Length of the reading buffer: a message that came in pieces, and 192 KiB more.
const BUFFER: usize = MESSAGE_MAX as usize + 192 * 1024;
// A daemon sends no more output than its link takes without credit.
const _: () = assert!(UNSENT_MAX + BUFFER < BEYOND_CREDIT_MAX as usize);

/// Runs a job and all that it spawns to their end. Returns the exit code: 0 if every rank exited with 0, otherwise that
/// of the rank that failed first. The code is 128 plus the signal's number for a rank that a signal ended.
///
/// The function takes over the calling process. Signals are blocked in the calling thread while it runs. Exits of child
/// processes are collected. Descriptors above standard error are marked close-on-exec. A standard input that is no
/// terminal becomes rank 0's. Call it once, from the only thread.
///
/// # Errors
/// The job was not started or could not be served. No process of it is running.
pub fn run(plan: &mut Plan) -> Result<u8, RunError> {
    let debugger = call_debugger(plan)?;
    let mut enrolment = await_hosts(plan)?;
    let result = run_with(plan, &mut enrolment, debugger);
    if let (Some(enrolment), Err(error)) = (&mut enrolment, &result) {
        enrolment.dismiss(&error.to_string());
    }
    result
}

/// Calls the debugger that has started this launcher, if there is one. A fleet has no job of its own.
fn call_debugger(plan: &Plan) -> Result<Option<DebuggerCall>, RunError> {
    if plan.options.fleet.is_some() {
        return Ok(None);
    }
    DebuggerCall::from_environment().map_err(|(uri, why)| RunError::Debugger { uri, why })
}

/// Runs a job, whose hosts may have joined by themselves.
fn run_with(
    plan: &mut Plan,
    enrolment: &mut Option<Enrolment>,
    debugger: Option<DebuggerCall>,
) -> Result<u8, RunError> {
    let located = match plan.options.offload {
        // The board serves the ranks of this machine.
        Some(_) => Location::Local,
        None => plan.locate(&Environment::current())?,
    };
    let is_filled = plan.options.fleet.is_some() && !plan.options.cluster.placement.fill.is_empty();
    if is_filled && located == Location::Local {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        plan.programs.iter_mut().for_each(|program| program.ranks = processors);
    }
    let plan = &*plan;
    let ranks = open::size(&plan.programs)?;
    open::check_stdin(plan, ranks)?;
    if let Some(notice) = plan.options.cluster.placement.surplus_nodes(ranks) {
        messages::print(messages::HYDRANT, notice);
    }
    match located {
        Location::Local if plan.options.cluster.elastic.is_some() => Err(RunError::NoHosts),
        Location::Local => run_here(plan, ranks, debugger),
        Location::Nodes(deployment) => {
            refuse_on_nodes(plan)?;
            if let Some(notice) = deployment.job_map.oversubscription() {
                messages::print(messages::HYDRANT, format_args!("warning: {notice}"));
            }
            nodes::run(plan, &deployment, enrolment, debugger)
        }
    }
}

/// Runs a job whose ranks are all on this machine, as [`run`] does.
fn run_here(plan: &Plan, ranks: u32, debugger: Option<DebuggerCall>) -> Result<u8, RunError> {
    let inherited = take_inherited()?;
    let reactor = Reactor::new(Token::Signals)?;
    let folder = new_folder();
    let files_folder = (!plan.options.cluster.preload_files.is_empty()).then(new_job_folder);
    let folders: Vec<&Path> = [&folder].into_iter().chain(&files_folder).map(PathBuf::as_path).collect();
    let guardian = start_guardian(&folders)?;
    let preload = plan.settings.mpi_psets.then(find_mpi_library).transpose()?;
    let files = OpenFiles::reserve(needed_files(plan, u64::from(ranks), 1))?;
    let seed = open::random()?;
    let mut slabs = None;
    let mut described = None;
    let server = match &plan.options.offload {
        Some(offload) => {
            let board = board::board_of(plan, offload)?;
            described = Some(board.described);
            ServerParts { recording: board.recording, ..ServerParts::new(board.core) }
        }
        None => {
            let limits = limits(plan, ranks);
            let plugin = plan.options.sandbox.as_ref();
            let plugin = plugin.map(|plugin| read_plugin(plugin, plan.options.spare)).transpose()?;
            let builder = BackendBuilder::new(plugin.as_ref(), &Warnings::default())?;
            let recording = record(plan.options.record.as_deref(), &limits, seed)?;
            // A client of a TCP port may be on another machine and cannot map the segment.
            let slabs = (&mut slabs, plan.options.pmi_port.is_none());
            let live = plan.options.profile.then(|| profile::live_of(&host_name()));
            let topology_file = Some(SharedTopologyFile::default());
            ServerParts::build(&builder, (limits, seed), recording, live, topology_file, slabs)?
        }
    };
    let outlets = Outlets::new(plan, ranks, &reactor.poller)?;
    let mut engine = Engine::new(plan, reactor, files, outlets, server)?;
    if let Some(board) = described.filter(|_| plan.settings.verbose) {
        engine.sinks.print(&board);
    }
    engine.procs.guard(guardian);
    engine.preload = preload;
    engine.inherited = inherited;
    let sent = files_folder.map_or_else(|| Ok(FileReceiver::default()), |folder| files_here(plan, folder))?;
    engine.files_folder = sent.folder().map(Path::to_owned);
    let nonce = open::nonce()?;
    let names = match &plan.options.name_server {
        Some(path) => {
            let now = engine.now();
            Some(Names::shared(plan, path, (&engine.host, nonce), now, &engine.poller)?)
        }
        // Boards have room for few names.
        None if engine.core.is_board() => Some(Names::local(&BackendBuilder::new(None, &engine.warnings)?)?),
        None => None,
    };
    let mut head = Head::alone(&mut engine, nonce, names, debugger)?;
    engine.tools.use_folder(folder, None);
    engine.expect_tools()?;
    head.handle(&mut engine, hydrant_control::Event::AllJoined)?;
    let daemon = Daemon::alone(&plan.settings, head.progress.is_some(), sent);
    let mut run = Run { engine, parts: Parts::Both(Box::new(head), Box::new(daemon)) };
    let result = run.run().and_then(|code| run.engine.part_from_board().map(|()| code));
    // After a run that the user has given up, and after an error.
    run.engine.procs.kill_and_wait(|_, _| {});
    result
}

/// Starts the guardian of this process's ranks, which removes folders too. The guardian shares the memory that there is by
/// now, and each page that is written later is copied, so it is started first.
pub(crate) fn start_guardian(folders: &[&Path]) -> Result<Guardian, Error> {
    Guardian::start(folders).map_err(Error::during("cannot start the guardian process"))
}

/// Files for ranks on this machine, which other hosts would receive.
fn files_here(plan: &Plan, folder: PathBuf) -> Result<FileReceiver, RunError> {
    let (mut sender, files) = FileSender::open(&[], false, &plan.options.cluster.preload_files)?;
    let mut receiver = FileReceiver::new(files, folder)?;
    sender.want();
    while let Some(piece) = sender.next_piece()? {
        let piece = decode(&piece).expect("the sender has encoded it");
        receiver.take(&piece)?;
    }
    Ok(receiver)
}

/// The name of this machine.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Refuses options that are unavailable on several hosts.
fn refuse_on_nodes(plan: &Plan) -> Result<(), RunError> {
    match plan.options.pmi_port {
        Some(addr) if addr != (Ipv4Addr::LOCALHOST, 0).into() => Err(RunError::PortOnNodes(addr)),
        _ => Ok(()),
    }
}

/// Creates the recording file if there is a path.
fn record(path: Option<&Path>, limits: &Limits, seed: u32) -> Result<Option<Rc<RecordingFile>>, RunError> {
    record_up_to(u64::MAX, path, limits, seed)
}

/// Like [`record`]. The recording ends at `max` bytes.
fn record_up_to(
    max: u64,
    path: Option<&Path>,
    limits: &Limits,
    seed: u32,
) -> Result<Option<Rc<RecordingFile>>, RunError> {
    let program = concat!("hydrant ", env!("CARGO_PKG_VERSION"));
    Ok(path.map(|path| RecordingFile::bounded(path, program, limits, seed, max)).transpose()?)
}

/// Source of the ranks' input and destination of their output.
pub(crate) struct Outlets {
    pub(crate) stdin: Stdin,
    pub(crate) streams: Streams,
    pub(crate) sinks: Sinks,
}

impl Outlets {
    /// Creates the outlets for ranks of this process.
    fn new(plan: &Plan, ranks: u32, poller: &Poller) -> Result<Outlets, RunError> {
        let stdin = Stdin::new(plan.settings.stdin, ranks, plan.settings.fence_warning, IOF, poller);
        Ok(Outlets { stdin, ..Outlets::of_head(plan)? })
    }

    /// This process's own, for ranks on other nodes.
    pub(crate) fn of_head(plan: &Plan) -> Result<Outlets, RunError> {
        let mut sinks = Sinks::new(IOF).map_err(RunError::system("cannot use standard output and error"))?;
        if plan.options.json.as_deref().is_some_and(json::is_stdout) {
            sinks.leave_stdout();
        }
        Ok(Outlets {
            stdin: Stdin::sent(IOF),
            streams: Streams::new(
                Labels::new(plan.options.prefix.clone()),
                pseudo_terminals(&plan.options),
                IOF,
            ),
            sinks,
        })
    }

    /// Another node's.
    fn of_daemon(setup: &Setup) -> Outlets {
        let stdin = Stdin::from_head(setup.settings.stdin, setup.settings.fence_warning, IOF);
        Outlets { stdin, streams: Streams::raw(setup.pseudo_terminals, IOF), sinks: Sinks::uplink(IOF) }
    }
}

/// A process of a run.
struct Run<'r> {
    engine: Engine<'r>,
    parts: Parts,
}

/// What decides in a process: the head about jobs, a daemon about its ranks.
enum Parts {
    /// The head of nodes on other hosts.
    Head(Box<Head>),
    /// The daemon of a node.
    Daemon(Box<Daemon>),
    /// The head and the only daemon of a run on one machine.
    Both(Box<Head>, Box<Daemon>),
}

impl Parts {
    fn head(&mut self) -> Option<&mut Head> {
        match self {
            Parts::Head(head) | Parts::Both(head, _) => Some(head),
            Parts::Daemon(_) => None,
        }
    }

    fn daemon(&mut self) -> Option<&mut Daemon> {
        match self {
            Parts::Daemon(daemon) | Parts::Both(_, daemon) => Some(daemon),
            Parts::Head(_) => None,
        }
    }
}

/// The head: what it decides, and what it has for the user.
struct Head {
    control: hydrant_control::Head,
    /// The PMI server of the head has failed.
    backend_failed: bool,
    /// Jobs whose ranks have ended.
    draining: Vec<JobId>,
    /// Program files for daemons that lack them.
    files: FileSender,
    /// Set when the run has ended. True if pending output is written first.
    finish: Option<bool>,
    /// Lost output has been reported.
    losses_reported: bool,
    /// Name service, unless names are the PMI server's own.
    names: Option<Names>,
    /// Status socket, if it could be opened.
    status: Option<StatusServer>,
    /// How processes are started on other hosts.
    bootstrap: Bootstrap,
    /// Questions to nodes about their ranks.
    rank_queries: RankQueries,
    /// Replacement of PMI servers under way.
    replacement: Option<Replacement>,
    /// Queries of PMIx clients.
    pmix_queries: PmixQueries,
    /// Requests for hosts to join or leave.
    growths: Growths,
    /// Help texts of PMIx clients.
    help_texts: HelpTexts,
    /// Input that tools and clients of a fleet push.
    pushes: Pushes,
    /// Clients of a fleet.
    fleet: Option<Fleet>,
    /// Debugger of the first job, until it lets the job start.
    debugger: Option<CalledDebugger>,
    /// Jobs that tools of PMIx have spawned.
    tool_jobs: Vec<ToolJob>,
    /// Signal of the user that ranks may ignore.
    patience: Option<Patience>,
    /// End of the run at its time limit, once it is reached.
    time_limit: Option<TimeLimit>,
    /// Debuggers have been shown the processes of the first job.
    debuggers_informed: bool,
    /// Line about a long start. None if standard error is no terminal, and once the job runs.
    progress: Option<Progress>,
    /// Where the time of the start went, if that is shown.
    profile: Option<Profile>,
    /// Result of the run.
    result: RunResult,
}

/// The daemon of a node.
struct Daemon {
    control: hydrant_control::Daemon,
    /// Jobs whose ranks here have ended, and whose output and other processes are waited for.
    draining: BTreeMap<JobId, Drain>,
    /// Program files from the head.
    files: FileReceiver,
    /// Credit that is held back until the children take streams: the neighbour, and a number of bytes.
    held: Vec<(u32, u32)>,
    /// Environment of the ranks here, if their host came with the program.
    environment: Option<Vec<(OsString, OsString)>>,
    /// Exit code of the first rank here that failed.
    failed: Option<u8>,
}

/// What head and daemon of a process have in common.
struct Engine<'r> {
    plan: &'r Plan,
    host: String,
    clock: Clock,
    poller: Poller,
    signals: Signals,
    files: OpenFiles,
    /// PMI server of this process.
    core: PmiServer<'r>,
    /// Warnings of the cores that have not been printed.
    warnings: Warnings,
    /// Recording file, if there is one.
    recording: Option<Rc<RecordingFile>>,
    /// Times of the ranks here, if a profile is shown.
    profile: Option<NodeProfile>,
    /// Location of the key-value log for ranks that read it themselves.
    sharing: Option<Sharing>,
    /// Topology file that ranks may ask for.
    topology_file: Option<SharedTopologyFile>,
    /// The connection to this node's board is polled for writing.
    board_blocked: bool,
    /// Boards that may be linked.
    boards: LinkedBoards,
    /// The server has had an output beside replies since this was last cleared.
    has_acted: bool,
    /// Bit set of the commands of PMIx clients that have been named as not supported.
    unserved: u64,
    /// Tools of PMIx.
    tools: Tools,
    /// Thread that looks at files, once one is monitored.
    looker: Option<Looker>,
    /// Jobs that are registered at the server.
    jobs: Jobs,
    procs: Procs,
    /// Processes that have ended and are no ranks.
    ended_helpers: Vec<Pid>,
    /// Folder with files that were sent for the ranks here.
    files_folder: Option<PathBuf>,
    /// Library that ranks preload, if MPI programs are to see process sets.
    preload: Option<PathBuf>,
    /// Descriptors that the user passes to the ranks. Empty at a daemon, whose parent is not the user.
    inherited: Vec<RawFd>,
    null: OwnedFd,
    stdin: Stdin,
    /// Input that tools push to ranks here.
    pushed: PushedInput,
    streams: Streams,
    sinks: Sinks,
    /// Sinks of the output of submissions.
    outlets: BTreeMap<SubmissionId, [SinkId; 2]>,
    /// Sinks that accept no more output, of which the head has not been told.
    closed_sinks: Vec<SinkId>,
    /// Messages between head and daemon, if both are here.
    messages: Messages,
    /// Links to other nodes, if there are any.
    nodes: Option<Nodes>,
    /// Buffer for reads.
    buffer: Vec<u8>,
}

impl<'r> Engine<'r> {
    fn new(
        plan: &'r Plan,
        reactor: Reactor,
        files: OpenFiles,
        outlets: Outlets,
        server: ServerParts<'r>,
    ) -> Result<Engine<'r>, RunError> {
        let ServerParts { core, warnings, recording, live, sharing, topology_file } = server;
        let Reactor { clock, poller, signals } = reactor;
        let Outlets { stdin, streams, sinks } = outlets;
        if let Some(stream) = core.stream() {
            poller.add(stream, Token::Board, Interest::Read)?;
        }
        Ok(Engine {
            plan,
            host: host_name(),
            clock,
            poller,
            signals,
            files,
            core,
            warnings,
            recording,
            profile: live.map(NodeProfile::new),
            sharing,
            topology_file,
            board_blocked: false,
            boards: LinkedBoards::default(),
            has_acted: false,
            unserved: 0,
            tools: Tools::default(),
            looker: None,
            jobs: Jobs::default(),
            procs: Procs::new(),
            ended_helpers: Vec::new(),
            files_folder: None,
            preload: None,
            inherited: Vec::new(),
            null: empty_input().map_err(RunError::system("cannot make an empty standard input"))?,
            stdin,
            pushed: PushedInput::new(IOF),
            streams,
            sinks,
            outlets: BTreeMap::new(),
            closed_sinks: Vec::new(),
            messages: Messages::default(),
            nodes: None,
            buffer: vec![0; BUFFER],
        })
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Settings of a job. Those of the run, if there is no such job.
    fn settings(&self, job: JobId) -> &RunSettings {
        let submitted = self.jobs.get(job).and_then(|job| job.run.submitted.as_ref());
        submitted.map_or(&self.plan.settings, |submitted| &submitted.settings)
    }

    /// Prints a line about a job, for the user who has started it.
    fn print_about(&mut self, job: JobId, line: &str) {
        // A head of other hosts has no ranks, and sends no reports.
        let has_ranks = self.node() != 0;
        match has_ranks && self.jobs.get(job).is_some_and(|job| job.submission.is_some()) {
            true => self.send_report(&Report::Tell { job, line: line.to_owned() }),
            false => self.sinks.print(line),
        }
    }

    /// Handles timeouts of the ranks' streams, and prints what there is to say about the PMI server.
    fn keep_streams_time(&mut self, now: u64) {
        if self.stdin.deadline().is_some_and(|at| at <= now) {
            self.stdin.pump(now, &self.poller);
            self.report_stalled_input(now);
        }
        self.print_warnings();
        if let Some(error) = self.recording.as_ref().and_then(|file| file.take_error()) {
            self.sinks.print(&format!("{error}; the recording ends early, the job goes on"));
        }
        self.streams.show(now, &mut self.sinks);
    }
}

fn limits(plan: &Plan, ranks: u32) -> Limits {
    let mut limits = Limits::for_ranks(ranks);
    // A set for each program, and those that the user named.
    let psets = plan.programs.iter().map(|program| 1 + program.psets.len()).sum::<usize>();
    if plan.settings.mpi_psets {
        // A connection for a rank's queries beside its own.
        limits.conns = limits.conns.saturating_add(limits.ranks);
    }
    if limits.commit_bytes > 0 {
        // A PMIx connection beside the inherited one.
        limits.conns = limits.conns.saturating_add(limits.ranks);
    }
    limits.psets = limits.psets.saturating_add(psets as u32);
    if plan.options.fleet.is_some() {
        // Each rank may be a job, with its sets.
        let jobs = plan.size().saturating_add(JOBS_LATE_MAX).min(ranks);
        limits.jobs = limits.jobs.saturating_add(jobs);
        limits.psets = limits.psets.saturating_add(jobs.saturating_mul(4));
    }
    let tools = tools::entries(plan, &limits);
    for limit in [&mut limits.jobs, &mut limits.ranks, &mut limits.conns] {
        *limit = limit.saturating_add(tools);
    }
    for &(limit, size) in &plan.options.limits {
        limits.set(limit, size);
    }
    limits
}

/// Returns the number of descriptors that the launcher needs for this number of ranks and jobs.
fn needed_files(plan: &Plan, ranks: u64, jobs: u64) -> u64 {
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    let files = patterns.into_iter().flatten().count() as u64;
    let of_job = if plan.options.pmi_port.is_some() { PORT_FILES + STRANGERS } else { 0 };
    // Jobs of a fleet have settings of their own.
    let any = plan.options.fleet.is_some();
    let queries = u64::from(any || plan.settings.mpi_psets);
    let sockets = u64::from(any || plan.settings.mpi_psets || plan.options.name_server.is_some());
    // A port for PMIx and a connection of each rank.
    let pmix = u64::from(plan.options.offload.is_none());
    // A connection to the daemon for each job, and one for each look-up that waits.
    let names = if plan.options.name_server.is_some() { jobs + LOOKUPS } else { 0 };
    let pipes = u64::from(any || matches!(plan.settings.stdin, StdinTarget::All | StdinTarget::Tools));
    let pool = u64::from(any || plan.settings.mem_pool.is_some());
    let all = OWN_FILES
        + names
        + jobs * (of_job + sockets + pmix + pool)
        + ranks * (3 + files + queries + pmix + pipes);
    // The number of the pool is one of the descriptors that may be open.
    let clients = if any { fleet::FILES } else { 0 };
    (all + clients).max(pool * (POOL_FD as u64 + 1))
}
