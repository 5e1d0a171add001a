//! Client of a fleet: `hydrant run --on`, which does for the user what a head does, and `hydrant down`.

use std::os::unix::net::UnixStream;
use std::rc::Rc;

use hydrant_control::protocol::StdinTarget;
use hydrant_core::trace::SignalName;
use hydrant_iof::{Descriptor, window_size};
use hydrant_reactor::signals::Event as SignalEvent;
use hydrant_reactor::{Interest, NO_SIGPIPE, Reactor, WriterState};
use hydrant_status::message::{decode, encode, message_len};
use rustix::fs::{fstat, major, minor};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::Signal;

use super::protocol::{JobRequest, REPLY_MAX, Reply, Request, connect};
use crate::engine::output::{NamedRank, direct, output_files, pseudo_terminals};
use crate::engine::patience::{Noted, Patience};
use crate::engine::result::RunResult;
use crate::engine::token::{FLEET, IOF, Token};
use crate::engine::{Outlets, open};
use crate::error::RunError;
use crate::messages;
use crate::plan::{OnFleet, Plan};

/// Bytes that are read at once.
const READ_MAX: usize = 64 * 1024;

/// Ends a fleet of this user. Returns when it has ended.
///
/// # Errors
/// There is no such fleet, or it is another user's.
pub fn down(name: &str) -> Result<(), RunError> {
    let stream = connect(name)?;
    let failed = |why: std::io::Error| RunError::FleetSocket { name: name.to_owned(), why };
    std::io::Write::write_all(&mut &stream, &encode(&Request::End)).map_err(failed)?;
    // It sends nothing, and closes the connection at its end.
    let mut buffer = [0; 64];
    while std::io::Read::read(&mut &stream, &mut buffer).is_ok_and(|len| len > 0) {}
    Ok(())
}

/// Runs a job in a fleet. Returns its exit code.
///
/// # Errors
/// There is no such fleet, or it does not start the job.
pub fn run_on(plan: &mut Plan, on: &OnFleet) -> Result<u8, RunError> {
    open::check_stdin(plan, plan.size())?;
    plan.add_pool_attributes();
    open::start_from_here(plan.programs.iter_mut())?;
    let plan = &*plan;
    let stream = connect(&on.name)?;
    let reactor = Reactor::new(Token::Signals)?;
    stream.set_nonblocking(true).map_err(RunError::system("cannot use the connection to the fleet"))?;
    reactor.poller.add(&stream, FLEET.key(0, 0), Interest::Read)?;
    let mut client = Client::new(plan, on, stream, reactor)?;
    client.send(&Request::Submit(Box::new(request(plan, on))));
    client.run()
}

/// The job of a plan.
fn request(plan: &Plan, on: &OnFleet) -> JobRequest {
    let cluster = &plan.options.cluster;
    let named = |appnum: u32| {
        let of = cluster.placement.program_hosts.iter().find(|(of, _)| *of == appnum);
        of.map_or_else(Vec::new, |(_, hosts)| hosts.iter().map(|host| host.name.clone()).collect())
    };
    let mut settings = plan.settings.clone();
    if settings.stdin != StdinTarget::Tools && (settings.stdin == StdinTarget::None || is_null_input()) {
        settings.stdin = StdinTarget::None;
    }
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    let has_pid =
        |pattern: &&std::ffi::OsString| pattern.as_encoded_bytes().windows(2).any(|two| two == b"%p");
    JobRequest {
        programs: (0..)
            .zip(&plan.programs)
            .map(|(appnum, program)| (program.clone(), named(appnum)))
            .collect(),
        policy: cluster.placement.policy,
        settings: Rc::new(settings),
        pseudo_terminals: pseudo_terminals(&plan.options),
        exit_code_of: plan.options.exit_code_of,
        exit_report: plan.options.exit_report,
        waits: on.waits,
        wants_processes: patterns.into_iter().flatten().any(|pattern| has_pid(&pattern)),
        wants_summaries: plan.options.json.is_some(),
    }
}

/// Whether standard input is `/dev/null`, which needs no forwarding.
fn is_null_input() -> bool {
    let null = (1, 3);
    cfg!(target_os = "linux")
        && fstat(rustix::stdio::stdin())
            .is_ok_and(|stat| (major(stat.st_rdev), minor(stat.st_rdev)) == null && stat.st_size == 0)
}

/// A job as the client knows it.
struct KnownJob {
    ordinal: u32,
    /// Number of rank 0 among the ranks of all jobs.
    first: u32,
    programs: Vec<u32>,
    hosts: Vec<(u32, String)>,
}

impl KnownJob {
    fn size(&self) -> u32 {
        self.programs.iter().sum()
    }

    fn host(&self, rank: u32) -> &str {
        let mut end = 0;
        let mut of = self.hosts.iter().skip_while(|(count, _)| {
            end += count;
            end <= rank
        });
        of.next().map_or("", |(_, host)| host)
    }

    fn named(&self, rank: u32) -> NamedRank<'_> {
        let mut end = 0;
        let is_before = |programs: &&u32| {
            end += **programs;
            end <= rank
        };
        let appnum = self.programs.iter().take_while(is_before).count() as u32;
        NamedRank { job: self.ordinal, rank, slot: self.first + rank, appnum, host: self.host(rank) }
    }
}

/// State of the client.
struct Client<'p> {
    plan: &'p Plan,
    on: &'p OnFleet,
    stream: UnixStream,
    reactor: Reactor,
    outlets: Outlets,
    result: RunResult,
    jobs: Vec<KnownJob>,
    /// Part of a reply.
    input: Vec<u8>,
    out: Vec<u8>,
    interest: Option<Interest>,
    /// Time at which the job is ended.
    limit_at: Option<u64>,
    /// The first signal of the user that ends the job.
    patience: Option<Patience>,
    /// Number of such signals.
    signals: u32,
    /// Sinks whose closing the fleet knows.
    closed: [bool; 2],
    /// The exit code, once all jobs are over.
    code: Option<u8>,
}

impl<'p> Client<'p> {
    fn new(
        plan: &'p Plan,
        on: &'p OnFleet,
        stream: UnixStream,
        reactor: Reactor,
    ) -> Result<Client<'p>, RunError> {
        let outlets = Outlets::of_head(plan)?;
        Ok(Client {
            plan,
            on,
            stream,
            reactor,
            outlets,
            result: RunResult::open(plan.options.json.as_deref())?,
            jobs: Vec::new(),
            input: Vec::new(),
            out: Vec::new(),
            interest: Some(Interest::Read),
            limit_at: plan.options.timeout.map(|limit| limit.as_millis() as u64),
            patience: None,
            signals: 0,
            closed: [false; 2],
            code: None,
        })
    }

    fn run(&mut self) -> Result<u8, RunError> {
        let mut keys = Vec::new();
        loop {
            self.flush()?;
            if let Some(code) = self.code.filter(|_| self.outlets.sinks.are_empty()) {
                return Ok(self.end(code));
            }
            let Outlets { stdin, streams, .. } = &self.outlets;
            let kill_at = self.patience.as_ref().and_then(Patience::kill_at);
            let deadlines = [stdin.deadline(), streams.deadline(), self.limit_at, kill_at];
            self.reactor.poller.wait(self.reactor.clock.timeout(deadlines), &mut keys)?;
            let now = self.reactor.clock.now();
            let mut signals = false;
            for token in keys.iter().filter_map(|&key| Token::of(key)) {
                match token {
                    Token::Signals => signals = true,
                    Token::Fleet(_) => self.receive()?,
                    Token::Iof(key) => match Descriptor::of(IOF, key) {
                        Some(Descriptor::Stdin) => self.outlets.stdin.pump(now, &self.reactor.poller),
                        Some(Descriptor::Sink(sink)) => {
                            self.outlets.sinks.flush_one(sink as usize, &self.reactor.poller);
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
            if signals && let Some(code) = self.take_signals(now)? {
                return Ok(code);
            }
            self.keep_time(now);
        }
    }

    /// Ends the run with the exit code of its jobs: a result or output that is lost is a failure.
    fn end(&mut self, code: u8) -> u8 {
        let sinks = &mut self.outlets.sinks;
        let mut code = code;
        if let Some((sink, errno)) = sinks.failure() {
            let line = format!("output was lost, cannot write {}: {errno}", sinks.name(sink));
            sinks.print(&line);
            code = if code == 0 { 1 } else { code };
        }
        let written = self.result.write(code);
        if let Err(line) = &written {
            sinks.print(line);
            code = if code == 0 { 1 } else { code };
        }
        sinks.flush(&self.reactor.poller);
        code
    }

    fn send(&mut self, request: &Request) {
        self.out.extend(encode(request));
    }

    /// Writes what is pending, to the user and to the fleet.
    fn flush(&mut self) -> Result<(), RunError> {
        for bytes in self.outlets.stdin.take_pieces() {
            self.send(&Request::Stdin(bytes));
        }
        let sinks = &mut self.outlets.sinks;
        sinks.flush(&self.reactor.poller);
        while sinks.changed().is_some() {}
        let own = [sinks.stdout(), sinks.stderr()];
        for (at, sink) in own.into_iter().enumerate() {
            let is_closed = self.outlets.sinks.get(sink).state() != WriterState::Open;
            if is_closed && !std::mem::replace(&mut self.closed[at], true) && self.code.is_none() {
                self.send(&Request::OutputClosed { stderr: at == 1 });
            }
        }
        let mut sent = 0;
        while sent < self.out.len() {
            match send(&self.stream, &self.out[sent..], SendFlags::DONTWAIT | NO_SIGPIPE) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // What the fleet has sent before it closed the connection is still to be read.
                Err(_) => sent = self.out.len(),
            }
        }
        self.out.drain(..sent);
        // Output that the user does not read is left with the fleet, which has the ranks wait.
        let is_held = own.iter().any(|&sink| self.outlets.sinks.get(sink).is_full());
        let interest = match (is_held || self.code.is_some(), self.out.is_empty()) {
            (false, true) => Some(Interest::Read),
            (false, false) => Some(Interest::ReadWrite),
            (true, false) => Some(Interest::Write),
            (true, true) => None,
        };
        if interest != self.interest {
            let poller = &self.reactor.poller;
            match (self.interest, interest) {
                (Some(_), Some(interest)) => poller.modify(&self.stream, FLEET.key(0, 0), interest)?,
                (None, Some(interest)) => poller.add(&self.stream, FLEET.key(0, 0), interest)?,
                (_, None) => poller.remove(&self.stream),
            }
            self.interest = interest;
        }
        Ok(())
    }

    /// Reads once from the fleet, and handles what is complete.
    fn receive(&mut self) -> Result<(), RunError> {
        let before = self.input.len();
        self.input.resize(before + READ_MAX, 0);
        let received = recv(&self.stream, &mut self.input[before..], RecvFlags::DONTWAIT);
        let len = match received {
            Ok((_, len)) => len,
            Err(Errno::AGAIN | Errno::INTR) => {
                self.input.truncate(before);
                return Ok(());
            }
            Err(_) => 0,
        };
        self.input.truncate(before + len);
        let input = std::mem::take(&mut self.input);
        let mut rest = &input[..];
        while let Some(message) = message_len(rest).filter(|&message| message <= rest.len()) {
            let (message, behind) = rest.split_at(message);
            let reply = decode(message).ok_or_else(|| self.lost())?;
            self.take(reply)?;
            rest = behind;
        }
        let is_sound = message_len(rest).is_none_or(|len| len <= REPLY_MAX + 4);
        if len == 0 && self.code.is_none() || !is_sound {
            return Err(self.lost());
        }
        self.input = rest.to_vec();
        Ok(())
    }

    fn lost(&self) -> RunError {
        RunError::FleetEnded(self.on.name.clone())
    }

    fn take(&mut self, reply: Reply) -> Result<(), RunError> {
        let now = self.reactor.clock.now();
        let verbose = self.plan.settings.verbose;
        let Outlets { stdin, streams, sinks } = &mut self.outlets;
        match reply {
            Reply::Refused(why) => return Err(RunError::Refused { name: self.on.name.clone(), why }),
            Reply::Waits(before) => {
                if verbose {
                    sinks.print(&format!(
                        "the job waits for room in fleet {}, behind {before} others",
                        self.on.name
                    ));
                }
            }
            Reply::Job { ordinal, programs, hosts } => {
                let first = self.jobs.last().map_or(0, |job| job.first + job.size());
                let job = KnownJob { ordinal, first, programs, hosts };
                streams
                    .make_room(first..first + job.size(), (ordinal, ordinal), sinks, |rank| job.host(rank));
                for rank in 0..job.size() {
                    let files = output_files(self.plan, &job.named(rank), None)?;
                    direct((streams, sinks), rank, files, self.plan.options.copy_output)?;
                }
                self.jobs.push(job);
            }
            Reply::RankStarted { job, rank, pid } => {
                let job = self.jobs.iter().find(|known| known.ordinal == job && rank < known.size());
                let files =
                    job.map_or(Ok(Vec::new()), |job| output_files(self.plan, &job.named(rank), Some(pid)))?;
                direct((streams, sinks), rank, files, self.plan.options.copy_output)?;
            }
            Reply::Started => stdin.allow(None, now, &self.reactor.poller),
            Reply::Output { job, rank, stderr, bytes } => {
                if let Some(job) = self.jobs.iter().find(|known| known.ordinal == job && rank < known.size())
                {
                    streams.arrived(2 * (job.first + rank) + u32::from(stderr), now, &bytes, sinks);
                }
            }
            Reply::Lines(lines) => {
                // A line about a rank comes behind what the rank has written.
                sinks.print(&lines);
            }
            Reply::StdinTaken(len) => stdin.allow(Some(len), now, &self.reactor.poller),
            Reply::StdinClosed => {
                let closed = stdin.close(&self.reactor.poller);
                closed.map_err(RunError::system("cannot let go of standard input"))?;
            }
            Reply::JobOver(summary) => self.result.job_ended(*summary),
            Reply::Over(code) => {
                for job in &self.jobs {
                    (2 * job.first..2 * (job.first + job.size()))
                        .for_each(|stream| _ = streams.arrived(stream, now, &[], sinks));
                }
                self.code = Some(code);
            }
        }
        Ok(())
    }

    /// Passes signals on. Returns an exit code if the user gives up.
    fn take_signals(&mut self, now: u64) -> Result<Option<u8>, RunError> {
        let mut events = Vec::new();
        self.reactor.signals.read(&mut events)?;
        for event in events {
            match event {
                SignalEvent::Forward(signal) => {
                    if let Some(code) = self.hear(signal, now) {
                        return Ok(Some(code));
                    }
                }
                SignalEvent::Stop => {
                    self.send(&Request::Signal(Signal::TSTP.as_raw()));
                    self.flush()?;
                    self.reactor.signals.stop_process();
                    self.send(&Request::Signal(Signal::CONT.as_raw()));
                    self.outlets.stdin.pump(now, &self.reactor.poller);
                }
                SignalEvent::Continue => {
                    self.send(&Request::Signal(Signal::CONT.as_raw()));
                    self.outlets.stdin.pump(now, &self.reactor.poller);
                }
                SignalEvent::WindowResized => self.send(&Request::WindowResized(window_size())),
                SignalEvent::Child => {}
            }
        }
        Ok(None)
    }

    /// Handles a signal of the user. Returns an exit code if the fleet has had two that end the job, or there is output that nobody
    /// reads.
    fn hear(&mut self, signal: Signal, now: u64) -> Option<u8> {
        if matches!(signal, Signal::USR1 | Signal::USR2) {
            self.send(&Request::Signal(signal.as_raw()));
            return None;
        }
        let noted = Patience::note(&mut self.patience, signal, now, self.plan.settings.kill_grace);
        if noted == Noted::Twice {
            return None;
        }
        self.signals += 1;
        if self.signals > 2 || self.code.is_some() {
            let name = SignalName(signal.as_raw());
            messages::print(messages::HYDRANT, format_args!("the job was left by {name}"));
            return Some(128 + signal.as_raw() as u8);
        }
        self.send(&Request::Signal(signal.as_raw()));
        None
    }

    fn keep_time(&mut self, now: u64) {
        if let Some(limit) = self.plan.options.timeout.filter(|_| self.limit_at.is_some_and(|at| at <= now)) {
            self.limit_at = None;
            self.send(&Request::TimeLimit(limit));
        }
        if let Some((signal, times)) = self.patience.as_mut().and_then(|patience| patience.take_kill(now)) {
            (0..times).for_each(|_| self.send(&Request::Signal(signal.as_raw())));
        }
        let Outlets { stdin, streams, sinks } = &mut self.outlets;
        if stdin.deadline().is_some_and(|at| at <= now) {
            stdin.pump(now, &self.reactor.poller);
        }
        streams.show(now, sinks);
    }
}
