//! Client of a fleet: `hydrant run --on`, which does for the user what a head does, and `hydrant down`.

use std::ffi::OsString;
use std::iter::once;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use hydrant_control::protocol::StdinTarget;
use hydrant_control::{JobSummary, first_fit};
use hydrant_core::trace::SignalName;
use hydrant_iof::{Descriptor, NamedJob, window_size};
use hydrant_reactor::signals::Event as SignalEvent;
use hydrant_reactor::{Interest, Key, NO_SIGPIPE, Poller, Reactor, WriterState};
use hydrant_status::message::{decode, encode, message_len};
use rustix::fs::{fstat, major, minor};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use super::protocol::{JobRequest, REPLY_MAX, Reply, Request, connect};
use super::tally::Tally;
use crate::engine::output::{NamedRank, direct, output_files, pseudo_terminals};
use crate::engine::patience::{Noted, Patience};
use crate::engine::result::RunResult;
use crate::engine::token::{FLEET, IOF, Token};
use crate::engine::{Outlets, open};
use crate::error::RunError;
use crate::messages;
use crate::plan::{JobArray, OnFleet, Plan};

/// Bytes that are read at once.
const READ_MAX: usize = 64 * 1024;
/// Most tasks that have been submitted and have no room yet: they keep the slots of the fleet busy, and later jobs of others get
/// room behind them.
const UNPLACED_MAX: usize = 16;

/// Variables of the ranks of a job array, named as those of Slurm.
const TASK_ID: &str = "HYDRANT_ARRAY_TASK_ID";
const TASK_COUNT: &str = "HYDRANT_ARRAY_TASK_COUNT";
const TASK_MIN: &str = "HYDRANT_ARRAY_TASK_MIN";
const TASK_MAX: &str = "HYDRANT_ARRAY_TASK_MAX";

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

/// Runs a job in a fleet, or those of an array. Returns the exit code: that of the first task that failed.
///
/// # Errors
/// There is no such fleet, or it does not start the job.
pub fn run_on(plan: &mut Plan, on: &OnFleet) -> Result<u8, RunError> {
    open::check_stdin(plan, plan.size())?;
    plan.add_pool_attributes();
    open::start_from_here(plan.programs.iter_mut())?;
    let plan = &*plan;
    // It starts no processes, which would inherit the limit. A command that may not have more may need no more.
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let mut client = Client::new(plan, on)?;
    client.run()
}

/// The job of a plan, or of each task of an array.
fn request(plan: &Plan, on: &OnFleet) -> JobRequest {
    let cluster = &plan.options.cluster;
    let named = |appnum: u32| {
        let of = cluster.placement.program_hosts.iter().find(|(of, _)| *of == appnum);
        of.map_or_else(Vec::new, |(_, hosts)| hosts.iter().map(|host| host.name.clone()).collect())
    };
    let mut settings = plan.settings.clone();
    // No task of an array is the one that reads the input of all.
    if settings.stdin != StdinTarget::Tools && (on.array.is_some() || is_null_input()) {
        settings.stdin = StdinTarget::None;
    }
    let patterns = [&plan.options.outfile_pattern, &plan.options.errfile_pattern];
    let has_pid = |pattern: &&OsString| pattern.as_encoded_bytes().windows(2).any(|two| two == b"%p");
    let mut programs: Vec<_> =
        (0..).zip(&plan.programs).map(|(appnum, program)| (program.clone(), named(appnum))).collect();
    if let Some(array) = &on.array {
        programs.iter_mut().for_each(|(program, _)| describe(array, &mut program.env));
    }
    JobRequest {
        programs,
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

/// Adds the variables of an array to the environment of a program. The last one is the number of the task, which
/// [`Client::submit`] sets.
fn describe(array: &JobArray, env: &mut Vec<(OsString, OsString)>) {
    let (min, max) = array.bounds();
    let of_all = [(TASK_COUNT, array.count()), (TASK_MIN, min), (TASK_MAX, max), (TASK_ID, 0)];
    env.retain(|(name, _)| of_all.iter().all(|(own, _)| name != own));
    env.extend(of_all.map(|(name, value)| (name.into(), value.to_string().into())));
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
    named: NamedJob,
    /// Number of rank 0 among the ranks of all jobs that run.
    first: u32,
    programs: Vec<u32>,
    hosts: Vec<(u32, String)>,
}

impl KnownJob {
    fn size(&self) -> u32 {
        self.programs.iter().sum()
    }

    /// Numbers of its ranks among those of all jobs that run.
    fn slots(&self) -> Range<u32> {
        self.first..self.first + self.size()
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
        NamedRank { job: self.named, rank, slot: self.first + rank, appnum, host: self.host(rank) }
    }
}

/// A connection to the fleet, over which one job is submitted.
struct Connection {
    stream: UnixStream,
    /// The task of an array that the job is.
    task: Option<u32>,
    /// The submitted job and those that its ranks have spawned. None before there is room.
    jobs: Vec<KnownJob>,
    /// Part of a reply.
    input: Vec<u8>,
    out: Vec<u8>,
    interest: Option<Interest>,
    /// Time at which the job is ended.
    limit_at: Option<u64>,
    /// Sinks whose closing the fleet knows.
    closed: [bool; 2],
    /// The exit code, once all jobs are over.
    code: Option<u8>,
}

impl Connection {
    fn job(&self, ordinal: u32, rank: u32) -> Option<&KnownJob> {
        self.jobs.iter().find(|known| known.named.ordinal == ordinal && rank < known.size())
    }

    fn send(&mut self, request: &Request) {
        self.out.extend(encode(request));
    }

    /// Writes what is pending.
    fn flush(&mut self, key: Key, is_held: bool, poller: &Poller) -> Result<(), RunError> {
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
        let interest = match (is_held, self.out.is_empty()) {
            (false, true) => Some(Interest::Read),
            (false, false) => Some(Interest::ReadWrite),
            (true, false) => Some(Interest::Write),
            (true, true) => None,
        };
        if interest != self.interest {
            match (self.interest, interest) {
                (Some(_), Some(interest)) => poller.modify(&self.stream, key, interest)?,
                (None, Some(interest)) => poller.add(&self.stream, key, interest)?,
                (_, None) => poller.remove(&self.stream),
            }
            self.interest = interest;
        }
        Ok(())
    }
}

/// State of the client. Without an array it has one connection.
struct Client<'p> {
    plan: &'p Plan,
    on: &'p OnFleet,
    /// [`Request::Submit`], for each task with its number.
    submission: Request,
    reactor: Reactor,
    outlets: Outlets,
    result: RunResult,
    connections: Vec<Option<Connection>>,
    /// Tasks that have not been submitted, and how many there are.
    tasks: Box<dyn Iterator<Item = Option<u32>>>,
    left: u32,
    tally: Tally,
    /// The code of the first job that failed.
    code: u8,
    /// Why no more tasks are submitted.
    error: Option<RunError>,
    /// The first signal of the user that ends the jobs.
    patience: Option<Patience>,
    /// Number of such signals.
    signals: u32,
    /// The exit code of a command that it ends.
    left_by: Option<u8>,
    buffer: Vec<u8>,
}

impl<'p> Client<'p> {
    fn new(plan: &'p Plan, on: &'p OnFleet) -> Result<Client<'p>, RunError> {
        let (tasks, left): (Box<dyn Iterator<Item = Option<u32>>>, u32) = match &on.array {
            Some(array) => (Box::new(array.tasks().map(Some)), array.count()),
            None => (Box::new(once(None)), 1),
        };
        Ok(Client {
            plan,
            on,
            submission: Request::Submit(Box::new(request(plan, on))),
            reactor: Reactor::new(Token::Signals)?,
            outlets: Outlets::of_head(plan)?,
            result: RunResult::open(plan.options.json.as_deref())?,
            connections: Vec::new(),
            tasks,
            left,
            tally: Tally::default(),
            code: 0,
            error: None,
            patience: None,
            signals: 0,
            left_by: None,
            buffer: vec![0; READ_MAX],
        })
    }

    fn run(&mut self) -> Result<u8, RunError> {
        let mut keys = Vec::new();
        loop {
            self.submit_tasks();
            self.flush()?;
            if self.is_over() && self.outlets.sinks.are_empty() {
                return self.end();
            }
            let Outlets { stdin, streams, .. } = &self.outlets;
            let kill_at = self.patience.as_ref().and_then(Patience::kill_at);
            let limit_at = self.open().filter_map(|connection| connection.limit_at).min();
            let deadlines = [stdin.deadline(), streams.deadline(), limit_at, kill_at];
            self.reactor.poller.wait(self.reactor.clock.timeout(deadlines), &mut keys)?;
            let now = self.reactor.clock.now();
            let mut signals = false;
            for token in keys.iter().filter_map(|&key| Token::of(key)) {
                match token {
                    Token::Signals => signals = true,
                    Token::Fleet(key) => {
                        if let Some((_, at)) = FLEET.decode(key) {
                            self.receive(at as usize)?;
                        }
                    }
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

    fn open(&self) -> impl Iterator<Item = &Connection> {
        self.connections.iter().flatten()
    }

    /// Submits the next tasks, as long as there are not too many.
    fn submit_tasks(&mut self) {
        let at_once = self.on.array.as_ref().map_or(1, JobArray::at_once) as usize;
        while self.error.is_none()
            && self.patience.is_none()
            && self.open().count() < at_once
            && self.open().filter(|connection| connection.jobs.is_empty()).count() < UNPLACED_MAX
            && let Some(task) = self.tasks.next()
        {
            match self.submit(task) {
                Ok(()) => self.left -= 1,
                Err(error) => self.error = Some(error),
            }
        }
    }

    /// Submits a job over a connection of its own.
    fn submit(&mut self, task: Option<u32>) -> Result<(), RunError> {
        let stream = connect(&self.on.name)?;
        stream.set_nonblocking(true).map_err(RunError::system("cannot use the connection to the fleet"))?;
        let at = self.connections.iter().position(Option::is_none).unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.reactor.poller.add(&stream, FLEET.key(0, at as u32), Interest::Read)?;
        if let (Some(task), Request::Submit(job)) = (task, &mut self.submission) {
            let numbers = job.programs.iter_mut().filter_map(|(program, _)| program.env.last_mut());
            numbers.for_each(|(_, number)| *number = task.to_string().into());
        }
        // The time of a task counts from its start.
        let limit = self.plan.options.timeout.filter(|_| task.is_none());
        self.connections[at] = Some(Connection {
            stream,
            task,
            jobs: Vec::new(),
            input: Vec::new(),
            out: encode(&self.submission),
            interest: Some(Interest::Read),
            limit_at: limit.map(|limit| limit.as_millis() as u64),
            closed: [false; 2],
            code: None,
        });
        Ok(())
    }

    /// Whether all jobs are over that are started.
    fn is_over(&self) -> bool {
        self.open().next().is_none() && (self.left == 0 || self.error.is_some() || self.patience.is_some())
    }

    /// Ends the run with the exit code of its jobs: a result or output that is lost is a failure.
    fn end(&mut self) -> Result<u8, RunError> {
        let sinks = &mut self.outlets.sinks;
        let mut code = self.code;
        if let Some(left_by) = self.left_by.filter(|_| code == 0 && self.left > 0) {
            code = left_by;
        }
        // The error alone says why no task was started.
        let count = self.on.array.as_ref().map(JobArray::count);
        let count = count.filter(|&count| self.error.is_none() || self.left < count);
        if let Some(line) = count.and_then(|count| self.tally.line(count, self.left)) {
            sinks.print(&line);
        }
        if let Some(error) = self.error.take() {
            sinks.flush(&self.reactor.poller);
            return Err(error);
        }
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
        Ok(code)
    }

    /// Sends a request about each job that is not over.
    fn send(&mut self, request: &Request) {
        self.connections.iter_mut().flatten().for_each(|connection| connection.send(request));
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
        let are_closed = own.map(|sink| sinks.get(sink).state() != WriterState::Open);
        // Output that the user does not read is left with the fleet, which has the ranks wait.
        let is_held = own.iter().any(|&sink| sinks.get(sink).is_full());
        for (at, connection) in self.connections.iter_mut().enumerate() {
            let Some(connection) = connection else { continue };
            for (stderr, is_closed) in [false, true].into_iter().zip(are_closed) {
                if is_closed && !std::mem::replace(&mut connection.closed[usize::from(stderr)], true) {
                    connection.send(&Request::OutputClosed { stderr });
                }
            }
            connection.flush(FLEET.key(0, at as u32), is_held, &self.reactor.poller)?;
        }
        Ok(())
    }

    /// Reads once from the fleet, and handles what is complete.
    fn receive(&mut self, at: usize) -> Result<(), RunError> {
        let Some(connection) = self.connections.get_mut(at).and_then(Option::as_mut) else { return Ok(()) };
        let len = match recv(&connection.stream, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, len)) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(_) => 0,
        };
        connection.input.extend_from_slice(&self.buffer[..len]);
        let mut input = std::mem::take(&mut connection.input);
        let mut rest = &input[..];
        let mut is_sound = true;
        while let Some(message) = message_len(rest).filter(|&message| is_sound && message <= rest.len()) {
            let (message, behind) = rest.split_at(message);
            match decode(message) {
                Some(reply) => {
                    if let Err(error) = self.take(at, reply) {
                        self.give_up(at, error)?;
                    }
                }
                None => is_sound = false,
            }
            rest = behind;
        }
        is_sound &= message_len(rest).is_none_or(|len| len <= REPLY_MAX + 4);
        let handled = input.len() - rest.len();
        input.drain(..handled);
        let Some(connection) = &mut self.connections[at] else { return Ok(()) };
        match connection.code {
            Some(code) => self.close(at, code),
            None if len == 0 || !is_sound => {
                self.error.get_or_insert(RunError::FleetEnded(self.on.name.clone()));
                self.close(at, 1);
            }
            None => connection.input = input,
        }
        Ok(())
    }

    /// Ends a task whose output has nowhere to go. Others go on.
    fn give_up(&mut self, at: usize, error: RunError) -> Result<(), RunError> {
        let task = self.connections[at].as_ref().and_then(|connection| connection.task);
        // A wrong pattern is that of all.
        let Some(task) = task.filter(|_| !matches!(error, RunError::Pattern { .. })) else {
            return Err(error);
        };
        self.task_failed(task, &error);
        self.close(at, error.exit_code());
        Ok(())
    }

    /// A task has failed without a job of the fleet that says so.
    fn task_failed(&mut self, task: u32, error: &RunError) {
        let line = error.to_string();
        self.outlets.sinks.print(&of_task(task, &line));
        let (name, ranks, exits) = (String::new(), self.plan.size(), Vec::new());
        let summary = JobSummary { ordinal: 0, name, ranks, message: Some(line), exits };
        self.result.job_ended(Some(task), summary);
    }

    /// Closes the connection of a job that has ended with a code.
    fn close(&mut self, at: usize, code: u8) {
        let now = self.reactor.clock.now();
        let Some(Connection { stream, interest, task, jobs, .. }) = self.connections[at].take() else {
            return;
        };
        if interest.is_some() {
            self.reactor.poller.remove(&stream);
        }
        let Outlets { streams, sinks, .. } = &mut self.outlets;
        for slots in jobs.iter().map(KnownJob::slots) {
            (2 * slots.start..2 * slots.end).for_each(|stream| _ = streams.arrived(stream, now, &[], sinks));
            streams.clear(slots, sinks);
        }
        task.into_iter().for_each(|task| self.tally.add(task, code));
        self.code = if self.code == 0 { code } else { self.code };
    }

    fn take(&mut self, at: usize, reply: Reply) -> Result<(), RunError> {
        let (now, poller) = (self.reactor.clock.now(), &self.reactor.poller);
        let slots: Vec<_> = match reply {
            Reply::Job { .. } => self.open().flat_map(|open| &open.jobs).map(KnownJob::slots).collect(),
            _ => Vec::new(),
        };
        let Some(connection) = &mut self.connections[at] else { return Ok(()) };
        let (plan, task) = (self.plan, connection.task);
        let Outlets { stdin, streams, sinks } = &mut self.outlets;
        match reply {
            Reply::Refused { why, is_open } => {
                let error = RunError::Refused { name: self.on.name.clone(), why };
                connection.code = Some(error.exit_code());
                match task {
                    Some(task) if is_open => self.task_failed(task, &error),
                    _ => {
                        self.left += u32::from(connection.task.take().is_some());
                        self.error.get_or_insert(error);
                    }
                }
            }
            Reply::Waits(before) => {
                if plan.settings.verbose {
                    let line =
                        format!("the job waits for room in fleet {}, behind {before} others", self.on.name);
                    sinks.print(&task.map_or(line.clone(), |task| of_task(task, &line)));
                }
            }
            Reply::Job { ordinal, programs, hosts } => {
                let mut job = KnownJob { named: NamedJob { ordinal, task }, first: 0, programs, hosts };
                job.first = first_fit(slots.iter().cloned(), job.size());
                streams.make_room(job.slots(), (ordinal, job.named), sinks, |rank| job.host(rank));
                for rank in 0..job.size() {
                    let files = output_files(plan, &job.named(rank), None)?;
                    direct((streams, sinks), rank, files, plan.options.copy_output)?;
                }
                if task.is_some() && connection.jobs.is_empty() {
                    connection.limit_at = plan.options.timeout.map(|limit| now + limit.as_millis() as u64);
                }
                connection.jobs.push(job);
            }
            Reply::RankStarted { job, rank, pid } => {
                let job = connection.job(job, rank);
                let files =
                    job.map_or(Ok(Vec::new()), |job| output_files(plan, &job.named(rank), Some(pid)))?;
                direct((streams, sinks), rank, files, plan.options.copy_output)?;
            }
            Reply::Started => {
                if task.is_none() {
                    stdin.allow(None, now, poller);
                }
            }
            Reply::Output { job, rank, stderr, bytes } => {
                if let Some(job) = connection.job(job, rank) {
                    streams.arrived(2 * (job.first + rank) + u32::from(stderr), now, &bytes, sinks);
                }
            }
            Reply::Lines(lines) => {
                // A line about a rank comes behind what the rank has written.
                sinks.print(&task.map_or(lines.clone(), |task| of_task(task, &lines)));
            }
            Reply::StdinTaken(len) => stdin.allow(Some(len), now, poller),
            Reply::StdinClosed => {
                let closed = stdin.close(poller);
                closed.map_err(RunError::system("cannot let go of standard input"))?;
            }
            Reply::JobOver(summary) => self.result.job_ended(task, *summary),
            Reply::Over(code) => connection.code = Some(code),
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

    /// Handles a signal of the user. Returns an exit code if the fleet has had two that end the jobs, or there is output that
    /// nobody reads.
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
        let code = 128 + signal.as_raw() as u8;
        self.left_by.get_or_insert(code);
        if self.signals > 2 || self.open().next().is_none() {
            let (jobs, name) =
                (self.on.array.as_ref().map_or("job was", |_| "tasks were"), SignalName(signal.as_raw()));
            messages::print(messages::HYDRANT, format_args!("the {jobs} left by {name}"));
            return Some(code);
        }
        if self.on.array.is_some() {
            self.withdraw_unplaced();
        }
        self.send(&Request::Signal(signal.as_raw()));
        None
    }

    /// Takes back the tasks that have no room yet. A job ends with its connection.
    fn withdraw_unplaced(&mut self) {
        let poller = &self.reactor.poller;
        for known in &mut self.connections {
            if let Some(connection) = known.take_if(|connection| connection.jobs.is_empty()) {
                connection.interest.into_iter().for_each(|_| poller.remove(&connection.stream));
                self.left += 1;
            }
        }
    }

    fn keep_time(&mut self, now: u64) {
        if let Some(limit) = self.plan.options.timeout {
            for connection in self.connections.iter_mut().flatten() {
                if connection.limit_at.take_if(|at| *at <= now).is_some() {
                    connection.send(&Request::TimeLimit(limit));
                }
            }
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

/// Lines about a task of an array.
fn of_task(task: u32, lines: &str) -> String {
    lines.lines().map(|line| format!("task {task}: {line}\n")).collect()
}
