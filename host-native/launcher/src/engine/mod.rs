//! Runs a job and those that it spawns: one process, one event loop, no threads.

pub(crate) mod conns;
mod jobs;
mod open;
mod output;
pub(crate) mod poller;
mod port;
mod procs;
mod query;
mod ranks;
mod report;
mod serve;
pub(crate) mod signals;
mod sink;
mod spawn;
mod stdin;
mod streams;
mod universe;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::{Input, JobId, Limits, Server, Time};

use crate::error::RunError;
use crate::launch::{OpenFiles, check, find_mpi_library, keep_descriptors};
use crate::plan::Plan;
use crate::slabs::HeapSlabs;
use crate::universe::Universe;
use conns::Conns;
use jobs::Jobs;
use poller::{Interest, Poller, Token};
use procs::Procs;
use ranks::Doomed;
use report::Verdict;
use signals::Signals;
use sink::Sinks;
use stdin::Stdin;
use streams::Streams;

/// Descriptors that the launcher needs beside those of ranks and connections: its own, and some while a rank starts.
const OWN_FILES: u64 = 32;
/// Connections to a job's port that descriptors are kept for beside its ranks' own.
const STRANGERS: u64 = 64;
/// Descriptors for look-ups that wait for other runs at the same time; beyond them the system may refuse one.
const LOOKUPS: u64 = 64;
/// Reading buffer: room for a message that came in pieces, and a good piece more.
const BUFFER: usize = MESSAGE_MAX as usize + 192 * 1024;

/// Runs a job and all that it spawns to their end and gives the exit code: 0 when every rank exited with 0, otherwise
/// that of the rank that failed first, 128 plus the signal's number for one that died by a signal.
///
/// It takes over the process that calls it: signals are blocked in the calling thread while it runs, the exits of
/// child processes are collected, descriptors above standard error are marked close-on-exec, and a standard input
/// that is no terminal becomes rank 0's. Call it once and from the only thread.
///
/// # Errors
/// The job was not started, or could not be served; nothing of it runs any more.
pub fn run(plan: &Plan) -> Result<u8, RunError> {
    let ranks = open::size(&plan.programs)?;
    keep_descriptors()?;
    let signals = Signals::new()?;
    let preload = plan.options.mpi_psets.then(find_mpi_library).transpose()?;
    let limits = limits(plan, ranks);
    let files = OpenFiles::reserve(ranks, needed_files(plan, u64::from(ranks), 1))?;
    let mut slabs = HeapSlabs::new(&limits);
    let seed = open::random()?;
    let server = Server::new(limits, slabs.lend(), seed)?;
    let mut engine = Engine::new(plan, signals, files, &limits, server)?;
    engine.preload = preload;
    let checked = plan.programs.iter().map(check).collect::<Result<_, _>>()?;
    engine.open_job(plan.programs.clone(), checked, None)?;
    let result = engine.run();
    if result.is_err() {
        engine.procs.kill_and_wait();
    }
    result
}

/// All that running jobs consist of.
struct Engine<'p, 's> {
    plan: &'p Plan,
    /// The library that ranks load first, where process sets are for MPI programs to see.
    preload: Option<PathBuf>,
    host: String,
    start: Instant,
    poller: Poller,
    signals: Signals,
    files: OpenFiles,
    jobs: Jobs,
    procs: Procs,
    /// Ranks that asked to be ended alone.
    doomed: Vec<Doomed>,
    server: Server<'s>,
    conns: Conns,
    /// Connections with messages to hand in again.
    again: Vec<u32>,
    null: OwnedFd,
    stdin: Stdin,
    streams: Streams,
    sinks: Sinks,
    verdict: Verdict,
    /// Where names are kept that other runs see too.
    universe: Option<Universe>,
    /// Where everything is read into.
    buffer: Vec<u8>,
    /// Where the core writes to.
    reply: Box<[u8]>,
}

impl<'p, 's> Engine<'p, 's> {
    fn new(
        plan: &'p Plan,
        signals: Signals,
        files: OpenFiles,
        limits: &Limits,
        server: Server<'s>,
    ) -> Result<Engine<'p, 's>, RunError> {
        let poller = Poller::new()?;
        poller.add(&signals, Token::Signals, Interest::Read).map_err(RunError::system("epoll"))?;
        let path = plan.options.name_service.as_deref();
        let universe = path.map(|path| Universe::join(path, JobId::default(), &poller)).transpose();
        Ok(Engine {
            plan,
            preload: None,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            start: Instant::now(),
            signals,
            files,
            jobs: Jobs::default(),
            procs: Procs::new(),
            doomed: Vec::new(),
            server,
            conns: Conns::new(limits.conns),
            again: Vec::new(),
            null: streams::null().map_err(RunError::system("cannot open /dev/null"))?,
            stdin: Stdin::new(&poller).map_err(RunError::system("cannot use standard input"))?,
            streams: Streams::new(plan.options.prepend_rank),
            sinks: Sinks::new().map_err(RunError::system("cannot use standard output and error"))?,
            verdict: Verdict::default(),
            universe: universe.map_err(Box::new)?,
            buffer: vec![0; BUFFER],
            reply: vec![0; limits.output_max()].into(),
            poller,
        })
    }

    /// The event loop.
    fn run(&mut self) -> Result<u8, RunError> {
        let mut tokens = Vec::new();
        loop {
            self.start_some()?;
            if self.settle()? {
                return Ok(self.verdict.code());
            }
            let starting = self.jobs.iter().any(|job| job.is_starting());
            let timeout = if starting { Some(Duration::ZERO) } else { self.timeout() };
            self.poller.wait(timeout, &mut tokens)?;
            for &token in &tokens {
                match token {
                    Token::Signals => {}
                    Token::Listener(id) => self.accept(JobId(id))?,
                    Token::Queries(id) => self.accept_queries(JobId(id))?,
                    Token::Conn(id) => self.conn_ready(id)?,
                    Token::Stream(id) => self.stream_ready(id),
                    Token::Sink(id) => self.sinks.flush_one(id as usize, &self.poller),
                    Token::Universe(number) => self.universe_ready(number)?,
                    Token::Terminal | Token::Stdin => self.stdin.pump(self.now(), &self.poller),
                }
            }
            // Last, so that what a rank said before it ended has been heard.
            if tokens.contains(&Token::Signals) {
                self.take_signals()?;
            }
            self.keep_time()?;
            self.flush();
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// How long nothing has to be done unless something happens.
    fn timeout(&mut self) -> Option<Duration> {
        let stranger = self.conns.oldest_unnamed().map(|(_, opened)| opened + serve::INTRODUCTION_TIME);
        let wake = self.server.wake().map(|Time(at)| at);
        let of_jobs = self.jobs.iter().flat_map(|job| [job.kill_at, job.port_pause]);
        let doomed = self.doomed.iter().map(|doomed| Some(doomed.at));
        let names = self.universe.as_ref().and_then(Universe::deadline);
        let at = [stranger, wake, names, self.streams.deadline(), self.stdin.deadline()]
            .into_iter()
            .chain(of_jobs)
            .chain(doomed);
        let at = at.flatten().min()?;
        Some(Duration::from_millis(at.saturating_sub(self.now())))
    }

    /// Does what was due.
    fn keep_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        if self.server.wake().is_some_and(|Time(at)| at <= now) {
            self.server.handle(Time(now), Input::Tick)?;
            self.outputs()?;
        }
        self.expire_names(now)?;
        self.end_doomed(now);
        self.resume_ports(now)?;
        if self.stdin.deadline().is_some_and(|at| at <= now) {
            self.stdin.pump(now, &self.poller);
        }
        self.drop_strangers(now)?;
        self.streams.show(now, &mut self.sinks);
        Ok(())
    }
}

fn limits(plan: &Plan, ranks: u32) -> Limits {
    let mut limits = Limits::for_ranks(ranks);
    // A set for each program, and those that the user named.
    let psets = plan.programs.iter().map(|program| 1 + program.psets.len()).sum::<usize>();
    if plan.options.mpi_psets {
        // A connection for a rank's queries beside its own.
        limits.conns = limits.conns.saturating_add(limits.ranks);
    }
    limits.psets = limits.psets.saturating_add(psets as u32);
    for &(limit, size) in &plan.options.limits {
        limits.set(limit, size);
    }
    limits
}

/// How many descriptors the launcher needs for so many ranks and jobs.
fn needed_files(plan: &Plan, ranks: u64, jobs: u64) -> u64 {
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    let files = patterns.into_iter().flatten().count() as u64;
    let of_job = if plan.options.pmi_port.is_some() { 1 + STRANGERS } else { 0 };
    let queries = u64::from(plan.options.mpi_psets);
    // A connection to the daemon for each job, and one for each look-up that waits.
    let names = if plan.options.name_service.is_some() { jobs + LOOKUPS } else { 0 };
    OWN_FILES + names + jobs * (of_job + queries) + ranks * (3 + files + queries)
}
