//! Runs a job: one process, one event loop, no threads.

mod conns;
mod output;
mod poller;
mod port;
mod procs;
mod ranks;
mod report;
mod serve;
mod signals;
mod sink;
mod stdin;
mod streams;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hydrant_core::limits::{JOBID_MAX, MESSAGE_MAX};
use hydrant_core::server::JobSpec;
use hydrant_core::{Input, JobId, Limits, Rank, Server, Time};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::RunError;
use crate::launch::{Launcher, OpenFiles, Service, keep_descriptors};
use crate::plan::Plan;
use crate::slabs::HeapSlabs;
use conns::Conns;
use poller::{Interest, Poller, Token};
use port::Port;
use procs::Procs;
use report::Outcome;
use signals::Signals;
use sink::Sinks;
use stdin::Stdin;
use streams::Streams;

/// The only job of a launcher.
const JOB: JobId = JobId(0);
/// Descriptors that the launcher needs beside those of ranks and connections: its own, and some while a rank starts.
const OWN_FILES: u64 = 32;
/// Reading buffer: room for a message that came in pieces, and a good piece more.
const BUFFER: usize = MESSAGE_MAX as usize + 192 * 1024;

/// Runs a job to its end and gives its exit code: 0 when every rank exited with 0, otherwise that of the rank that
/// failed first, 128 plus the signal's number for one that died by a signal.
///
/// It takes over the process that calls it: signals are blocked in the calling thread while it runs, the exits of
/// child processes are collected, descriptors above standard error are marked close-on-exec, and a standard input
/// that is no terminal becomes rank 0's. Call it once and from the only thread.
///
/// # Errors
/// The job was not started, or could not be served; nothing of it runs any more.
pub fn run(plan: &Plan) -> Result<u8, RunError> {
    let size: u64 = plan.programs.iter().map(|program| u64::from(program.ranks)).sum();
    let ranks = u32::try_from(size).ok().filter(|&size| size > 0 && size <= i32::MAX as u32);
    let ranks = ranks.ok_or(RunError::Size(size))?;
    keep_descriptors()?;
    let signals = Signals::new()?;
    let limits = limits(plan, ranks);
    let files = OpenFiles::reserve(ranks, needed_files(plan, ranks, &limits))?;
    let mut slabs = HeapSlabs::new(&limits);
    let seed = random()?;
    let server = Server::new(limits, slabs.lend(), seed)?;
    let mut engine = Engine::new(plan, ranks, signals, files, &limits, server)?;
    let result = engine.run();
    if result.is_err() {
        engine.procs.kill_and_wait();
    }
    result
}

/// All that a running job consists of.
struct Engine<'p, 's> {
    plan: &'p Plan,
    ranks: u32,
    host: String,
    start: Instant,
    poller: Poller,
    signals: Signals,
    files: OpenFiles,
    launcher: Launcher,
    /// The next rank to start; the job's size when all have been, or no more shall be.
    next: u32,
    procs: Procs,
    server: Server<'s>,
    conns: Conns,
    /// Connections with messages to hand in again.
    again: Vec<u32>,
    port: Option<Port>,
    /// The port is not listened on until then, because the system had no room for connections.
    port_pause: Option<u64>,
    null: OwnedFd,
    stdin: Stdin,
    streams: Streams,
    sinks: Sinks,
    outcome: Outcome,
    /// When those who were asked to end are made to.
    kill_at: Option<u64>,
    /// All ranks are gone, and what they wrote last is being passed on.
    draining: bool,
    /// Where everything is read into.
    buffer: Vec<u8>,
    /// Where the core writes to.
    reply: Box<[u8]>,
}

impl<'p, 's> Engine<'p, 's> {
    fn new(
        plan: &'p Plan,
        ranks: u32,
        signals: Signals,
        files: OpenFiles,
        limits: &Limits,
        mut server: Server<'s>,
    ) -> Result<Engine<'p, 's>, RunError> {
        let poller = Poller::new()?;
        poller.add(&signals, Token::Signals, Interest::Read).map_err(RunError::system("epoll"))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let jobid = jobid(&host)?;
        open_job(&mut server, plan, ranks, &jobid)?;
        let port = plan.options.pmi_port.map(Port::open).transpose()?;
        let service = match &port {
            None => Service::Fd,
            Some(port) => {
                poller.add(port, Token::Listener, Interest::Read).map_err(RunError::system("epoll"))?;
                Service::Port(port.for_ranks(&host))
            }
        };
        let launcher = Launcher::new(plan, &jobid, host.as_ref(), &service, signals.ignored())?;
        let sinks = Sinks::new().map_err(RunError::system("cannot use standard output and error"))?;
        let streams = Streams::new(ranks, plan.options.prepend_rank, &sinks);
        let mut engine = Engine {
            plan,
            ranks,
            start: Instant::now(),
            signals,
            files,
            launcher,
            next: 0,
            procs: Procs::new(ranks),
            server,
            conns: Conns::new(ranks, limits.conns),
            again: Vec::new(),
            port,
            port_pause: None,
            null: streams::null().map_err(RunError::system("cannot open /dev/null"))?,
            stdin: Stdin::new(&poller).map_err(RunError::system("cannot use standard input"))?,
            streams,
            sinks,
            outcome: Outcome::default(),
            kill_at: None,
            draining: false,
            buffer: vec![0; BUFFER],
            reply: vec![0; limits.output_max()].into(),
            host,
            poller,
        };
        engine.open_files()?;
        Ok(engine)
    }

    /// The event loop.
    fn run(&mut self) -> Result<u8, RunError> {
        let mut tokens = Vec::new();
        loop {
            if self.next < self.ranks {
                self.start_some()?;
            }
            if self.next == self.ranks && self.procs.running() == 0 && self.drain() {
                return Ok(self.outcome.code());
            }
            let timeout = if self.next < self.ranks { Some(Duration::ZERO) } else { self.timeout() };
            self.poller.wait(timeout, &mut tokens)?;
            for &token in &tokens {
                match token {
                    Token::Signals => {}
                    Token::Listener => self.accept()?,
                    Token::Conn(id) => self.conn_ready(id)?,
                    Token::Stream(id) => self.stream_ready(id),
                    Token::Sink(id) => self.sinks.flush_one(id as usize, &self.poller),
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
        let (line, input) = (self.streams.deadline(), self.stdin.deadline());
        let at = [stranger, wake, self.kill_at, self.port_pause, line, input];
        let at = at.into_iter().flatten().min()?;
        Some(Duration::from_millis(at.saturating_sub(self.now())))
    }

    /// Does what was due.
    fn keep_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        if self.server.wake().is_some_and(|Time(at)| at <= now) {
            self.server.handle(Time(now), Input::Tick)?;
            self.outputs()?;
        }
        if self.kill_at.is_some_and(|at| at <= now) {
            self.kill_at = None;
            self.kill();
        }
        if self.port_pause.is_some_and(|at| at <= now) {
            self.resume_port()?;
        }
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
    for &(limit, size) in &plan.options.limits {
        limits.set(limit, size);
    }
    limits
}

fn needed_files(plan: &Plan, ranks: u32, limits: &Limits) -> u64 {
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    let files = patterns.into_iter().flatten().count() as u64;
    let conns = if plan.options.pmi_port.is_some() { limits.conns } else { ranks };
    OWN_FILES + u64::from(conns) + u64::from(ranks) * (2 + files)
}

/// Tells the core what it is to serve.
fn open_job(server: &mut Server<'_>, plan: &Plan, ranks: u32, jobid: &str) -> Result<(), RunError> {
    let begin = Time(0);
    let spec = JobSpec {
        universe: plan.options.universe,
        cleanup: plan.options.cleanup,
        fence_warning: plan.options.fence_warning.as_millis().try_into().unwrap_or(u64::MAX),
        ..JobSpec::new(JOB, jobid, ranks)
    };
    server.handle(begin, Input::Job(spec))?;
    let mut first = 0;
    for (appnum, program) in (0..).zip(&plan.programs) {
        let count = program.ranks;
        server.handle(begin, Input::Program { job: JOB, first: Rank(first), count, appnum })?;
        first += count;
    }
    // All ranks are on one node.
    let mapping = format!("(vector,(0,1,{ranks}))");
    let attr = Input::Attr { job: JOB, key: b"PMI_process_mapping", value: mapping.as_bytes() };
    server.handle(begin, attr)?;
    Ok(())
}

/// A name that no other job has: `kvs_PID_0_RANDOM_HOST`, cut to what the core takes.
fn jobid(host: &str) -> Result<String, RunError> {
    let mut name = format!("kvs_{}_0_{:08x}_", std::process::id(), random()?);
    name.extend(host.chars().filter(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
    name.truncate(JOBID_MAX);
    Ok(name)
}

fn random() -> Result<u32, RunError> {
    let mut bytes = [0; 4];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(RunError::system("getrandom"))?;
    Ok(u32::from_ne_bytes(bytes))
}
