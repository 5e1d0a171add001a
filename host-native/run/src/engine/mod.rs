//! Engine of a run: one process and one event loop without threads.
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
mod debugger;
mod drain;
mod jobs;
mod names;
mod nodes;
pub(crate) mod open;
mod output;
mod patience;
mod pmix_query;
mod procs;
mod progress;
mod query;
mod ranks;
mod replace;
mod report;
mod serve;
mod server;
mod singletons;
mod spawn;
mod status;
mod time_limit;
mod token;
mod wait;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hydrant_control::protocol::{Setup, StdinTarget};
use hydrant_control::{JobSummary, job_name};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::{JobId, Limits};
use hydrant_driver::{MappedStorage, PORT_FILES, Sharing};
use hydrant_iof::{Labels, Sinks, Stdin, Streams, UNSENT_MAX};
use hydrant_names::NameClient;
use hydrant_overlay::BEYOND_CREDIT_MAX;
use hydrant_placement::{Bootstrap, Environment, Location};
use hydrant_reactor::process::Guardian;
use hydrant_reactor::{
    Clock, Interest, Key, Listener, OpenFiles, Poller, Reactor, Signals, file::empty_input, take_inherited,
};
use hydrant_record::RecordingFile;
use hydrant_start::{POOL_FD, find_mpi_library};

use crate::backend::{BackendBuilder, read_plugin};
use crate::error::RunError;
use crate::json::{self, Target};
use crate::messages::{self, Warnings};
use crate::plan::Plan;
use crate::topology_file::SharedTopologyFile;
use jobs::Jobs;
use names::Names;
use nodes::{Daemon, Head, Messages, Nodes};
pub use nodes::{DaemonError, daemon, forked_daemon};
use output::pseudo_terminals;
use patience::Patience;
use pmix_query::PmixQuery;
use procs::Procs;
use progress::Progress;
use query::Query;
use server::{PmiServer, ServerParts};
use status::Status;
use time_limit::TimeLimit;
use token::{IOF, Token};

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
    let located = match plan.options.offload {
        // The board serves the ranks of this machine.
        Some(_) => Location::Local,
        None => plan.locate(&Environment::current())?,
    };
    let plan = &*plan;
    let ranks = open::size(&plan.programs)?;
    if let StdinTarget::Rank(rank) = plan.settings.stdin
        && rank >= ranks
    {
        return Err(RunError::StdinRank { rank, ranks });
    }
    if let Some(notice) = plan.options.cluster.placement.surplus_nodes(ranks) {
        messages::print(messages::HYDRANT, notice);
    }
    match located {
        Location::Local => run_here(plan, ranks),
        Location::Nodes(deployment) => {
            refuse_on_nodes(plan)?;
            if let Some(notice) = deployment.job_map.oversubscription() {
                messages::print(messages::HYDRANT, format_args!("warning: {notice}"));
            }
            nodes::run(plan, &deployment)
        }
    }
}

/// Runs a job whose ranks are all on this machine, as [`run`] does.
fn run_here(plan: &Plan, ranks: u32) -> Result<u8, RunError> {
    let inherited = take_inherited()?;
    let reactor = Reactor::new(Token::Signals)?;
    let guardian = start_guardian()?;
    let preload = plan.settings.mpi_psets.then(find_mpi_library).transpose()?;
    let files = OpenFiles::reserve(needed_files(plan, u64::from(ranks), 1))?;
    let seed = open::random()?;
    let mut name_storage = MappedStorage::new(&Limits::NONE);
    let mut slabs = MappedStorage::new(&Limits::NONE);
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
            let topology_file = Some(SharedTopologyFile::default());
            ServerParts::build(&builder, (limits, seed), recording, topology_file, slabs)?
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
    let nonce = open::nonce()?;
    let name = job_name(std::process::id(), 0, nonce, &engine.host);
    let name_client = plan
        .options
        .name_server
        .as_deref()
        .map(|path| NameClient::join(path, (JobId::default(), &name), token::NAME_CLIENT, &engine.poller))
        .transpose();
    engine.names = name_client.map_err(Box::new)?.map(Names::Shared);
    if engine.core.node().is_some() {
        // Boards have room for few names.
        engine.names = Some(Names::local(&BackendBuilder::new(None, &engine.warnings)?, &mut name_storage)?);
    }
    let head = Head::alone(plan, &engine.host, nonce, *engine.core.limits())?;
    engine.head = Some(Box::new(head));
    engine.daemon = Some(Box::new(Daemon::alone(&plan.settings)));
    engine.handle_at_head(hydrant_control::Event::AllJoined)?;
    engine.open_status(Bootstrap::Local);
    let result = engine.run().and_then(|code| engine.part_from_board().map(|()| code));
    // After a run that the user has given up, and after an error.
    engine.procs.kill_and_wait(|_, _| {});
    result
}

/// Starts the guardian of this process's ranks. The guardian shares the memory that there is by now, and each page that is
/// written later is copied, so it is started before the tables of the server are filled.
fn start_guardian() -> Result<Guardian, RunError> {
    Guardian::start().map_err(RunError::system("cannot start the guardian process"))
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
struct Outlets {
    stdin: Stdin,
    streams: Streams,
    sinks: Sinks,
}

impl Outlets {
    /// Creates the outlets for ranks of this process.
    fn new(plan: &Plan, ranks: u32, poller: &Poller) -> Result<Outlets, RunError> {
        let stdin = Stdin::new(plan.settings.stdin, ranks, plan.settings.fence_warning, IOF, poller);
        Ok(Outlets { stdin, ..Outlets::of_head(plan)? })
    }

    /// This process's own, for ranks on other nodes.
    fn of_head(plan: &Plan) -> Result<Outlets, RunError> {
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

/// All that running jobs consist of.
struct Engine<'p, 's> {
    plan: &'p Plan,
    /// The connection to this node's board is polled for writing.
    board_blocked: bool,
    /// Library that ranks preload, if MPI programs are to see process sets.
    preload: Option<PathBuf>,
    /// Descriptors that the user passes to the ranks. Empty at a daemon, whose parent is not the user.
    inherited: Vec<RawFd>,
    /// Location of the key-value log for ranks that read it themselves.
    sharing: Option<Sharing>,
    /// Topology file that MPICH's ranks may ask for.
    topology_file: Option<SharedTopologyFile>,
    host: String,
    clock: Clock,
    poller: Poller,
    signals: Signals,
    files: OpenFiles,
    jobs: Jobs,
    procs: Procs,
    /// Signal of the user that ranks may ignore.
    patience: Option<Patience>,
    core: PmiServer<'s>,
    /// Warnings of the cores that have not been printed.
    warnings: Warnings,
    /// Recording file, if there is one.
    recording: Option<Rc<RecordingFile>>,
    null: OwnedFd,
    stdin: Stdin,
    streams: Streams,
    sinks: Sinks,
    /// Lost output has been reported.
    losses_reported: bool,
    /// Name service, unless names are the PMI server's own.
    names: Option<Names<'s>>,
    /// Query sockets of the jobs.
    queries: BTreeMap<JobId, Listener<Query>>,
    /// Decides about jobs, if this process is the head.
    head: Option<Box<Head>>,
    /// Starts and serves ranks, if there are ranks of this process.
    daemon: Option<Box<Daemon>>,
    /// Messages between the two, if both are here.
    messages: Messages,
    /// Links to other nodes, if there are any.
    nodes: Option<Nodes>,
    /// Status socket. Daemons have none.
    status_socket: Option<Status>,
    /// Jobs that have ended, if a result is written.
    ended: Vec<JobSummary>,
    /// Where the result of the run is written.
    result: Option<Target>,
    /// Debuggers have been shown the processes of the first job.
    debuggers_informed: bool,
    /// End of the run at its time limit, once it is reached.
    time_limit: Option<TimeLimit>,
    /// Queries of PMIx clients under way.
    pmix_queries: Vec<PmixQuery>,
    /// Lines about queries of PMIx clients that have been printed.
    query_notes: BTreeSet<String>,
    /// Bit set of the commands of PMIx clients that have been named as not supported.
    unserved: u64,
    /// Line about a long start. None if standard error is no terminal, and once the job runs.
    progress: Option<Progress>,
    /// The server has had an output beside replies since this was last cleared.
    has_acted: bool,
    /// Buffer for reads.
    buffer: Vec<u8>,
}

impl<'p, 's> Engine<'p, 's> {
    fn new(
        plan: &'p Plan,
        reactor: Reactor,
        files: OpenFiles,
        outlets: Outlets,
        server: ServerParts<'s>,
    ) -> Result<Engine<'p, 's>, RunError> {
        let ServerParts { core, warnings, recording, sharing, topology_file } = server;
        let Reactor { clock, poller, signals } = reactor;
        let Outlets { stdin, streams, sinks } = outlets;
        // Before any rank starts, so that no job is lost for a result that cannot be written.
        let result = plan.options.json.as_deref().map(|path| {
            Target::open(path).map_err(|why| RunError::ResultFile { path: path.to_owned(), why })
        });
        if let Some(stream) = core.stream() {
            poller.add(stream, Token::Board, Interest::Read)?;
        }
        Ok(Engine {
            plan,
            board_blocked: false,
            preload: None,
            inherited: Vec::new(),
            sharing,
            topology_file,
            host: host_name(),
            clock,
            signals,
            files,
            jobs: Jobs::default(),
            procs: Procs::new(),
            patience: None,
            core,
            warnings,
            recording,
            null: empty_input().map_err(RunError::system("cannot make an empty standard input"))?,
            stdin,
            streams,
            sinks,
            losses_reported: false,
            names: None,
            queries: BTreeMap::new(),
            head: None,
            daemon: None,
            messages: Messages::default(),
            nodes: None,
            status_socket: None,
            ended: Vec::new(),
            result: result.transpose()?,
            debuggers_informed: false,
            time_limit: None,
            pmix_queries: Vec::new(),
            query_notes: BTreeSet::new(),
            unserved: 0,
            progress: None,
            has_acted: false,
            buffer: vec![0; BUFFER],
            poller,
        })
    }

    /// The event loop.
    fn run(&mut self) -> Result<u8, RunError> {
        let mut keys = Vec::new();
        loop {
            match self.turn(&mut keys) {
                Ok(None) => {}
                Ok(Some(code)) => {
                    self.end_progress();
                    self.end_status(code);
                    return Ok(self.write_result(code));
                }
                Err(error) => self.break_off(error)?,
            }
        }
    }

    /// Waits for events and handles them. Returns the exit code when the run is complete.
    fn turn(&mut self, keys: &mut Vec<Key>) -> Result<Option<u8>, RunError> {
        self.deliver()?;
        self.start_some()?;
        loop {
            if self.settle()? {
                return Ok(Some(self.exit_code()));
            }
            if !self.deliver()? {
                break;
            }
        }
        self.flush_links()?;
        self.watch_board()?;
        let (mut signals, now) = (false, self.wait(keys)?);
        for token in keys.iter().filter_map(|&key| Token::of(key)) {
            match token {
                Token::Signals => signals = true,
                Token::Listener(id) | Token::Pmix(id) => self.accept(JobId(id))?,
                Token::Queries(id) => self.accept_queries(JobId(id))?,
                Token::Conn(key) => self.conn_ready(key, now)?,
                Token::NameClient(key) => self.name_client_ready(key)?,
                Token::Board => self.outputs()?,
                Token::Iof(key) => self.stream_ready(key),
                Token::Links(key) => self.link_ready(key)?,
                Token::Status(key) => self.status_ready(key),
            }
        }
        // Signals are handled last, so that output of a rank precedes its exit.
        if signals {
            self.take_signals()?;
        }
        self.keep_time()?;
        self.turn_nodes()?;
        self.flush();
        self.copy_output();
        Ok(None)
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Handles timeouts.
    fn keep_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        if self.core.handle_timeout(now)? {
            self.outputs()?;
        }
        self.keep_topology_file(now)?;
        self.keep_time_limit(now)?;
        self.expire_names(now)?;
        self.keep_patience(now)?;
        self.resume_ports(now)?;
        self.keep_status_time(now);
        if !self.pmix_queries.is_empty() {
            // Nodes may be late with the states of ranks.
            self.finish_pmix_queries()?;
            self.carry_out_actions()?;
        }
        self.keep_progress(now);
        if self.stdin.deadline().is_some_and(|at| at <= now) {
            self.stdin.pump(now, &self.poller);
            self.report_stalled_input(now);
        }
        for warning in self.warnings.take() {
            match self.head {
                None => self.sinks.print(&format!("host {} (node {}): {warning}", self.host, self.node())),
                Some(_) => self.sinks.print(&warning),
            }
        }
        if let Some(error) = self.recording.as_ref().and_then(|file| file.take_error()) {
            self.sinks.print(&format!("{error}; the recording ends early, the job goes on"));
        }
        self.streams.show(now, &mut self.sinks);
        Ok(())
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
    let queries = u64::from(plan.settings.mpi_psets);
    let sockets = u64::from(plan.settings.mpi_psets || plan.options.name_server.is_some());
    // A port for PMIx and a connection of each rank.
    let pmix = u64::from(plan.options.offload.is_none());
    // A connection to the daemon for each job, and one for each look-up that waits.
    let names = if plan.options.name_server.is_some() { jobs + LOOKUPS } else { 0 };
    let pipes = u64::from(plan.settings.stdin == StdinTarget::All);
    let pool = u64::from(plan.settings.mem_pool.is_some());
    let all = OWN_FILES
        + names
        + jobs * (of_job + sockets + pmix + pool)
        + ranks * (3 + files + queries + pmix + pipes);
    // The number of the pool is one of the descriptors that may be open.
    all.max(pool * (POOL_FD as u64 + 1))
}
