//! `hydrant serve`: the daemon that keeps the names. One event loop, no threads, no process but itself.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::server::JobSpec;
use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Server, Time};
use rustix::process::Signal;

use super::socket::{Listener, Visitor};
use super::{Options, UniverseError};
use crate::engine::conns::{Conns, Received, Sent};
use crate::engine::poller::{Interest, Poller, Token};
use crate::engine::signals::{Event, Signals};
use crate::error::RunError;
use crate::launch::OpenFiles;
use crate::slabs::HeapSlabs;

/// How long a client may take to introduce itself, in milliseconds.
const INTRODUCTION_TIME: u64 = 10_000;
/// How long the socket rests when the system has no room for connections, in milliseconds.
const REST: u64 = 100;
/// Descriptors that the daemon needs beside those of its connections.
const OWN_FILES: u64 = 16;

/// Keeps the names of its user's runs until a signal ends it. Says on standard output where it listens once it does.
///
/// It takes over the process that calls it: signals are blocked in the calling thread while it runs. Call it once and
/// from the only thread.
///
/// # Errors
/// It could not begin, or not go on; its socket is gone.
pub fn serve(options: &Options) -> Result<(), UniverseError> {
    let limits = options.limits();
    let signals = Signals::new()?;
    let conns = limits.conns;
    let _files = OpenFiles::reserve(conns, OWN_FILES + u64::from(conns)).map_err(|error| match error {
        RunError::OpenFiles { needed, limit, .. } => UniverseError::OpenFiles { conns, needed, limit },
        error => error.into(),
    })?;
    let mut slabs = HeapSlabs::new(&limits);
    let server = Server::new(limits, slabs.lend(), 0).map_err(RunError::from)?;
    let path = options.path();
    let listener = Listener::open(&path)?;
    let mut daemon = Daemon::new(signals, listener, &limits, server)?;
    // Where nobody reads it, nobody needs it.
    let _ = writeln!(std::io::stdout(), "hydrant serve: listening at {}", path.display());
    daemon.run()?;
    Ok(())
}

struct Daemon<'s> {
    start: Instant,
    poller: Poller,
    signals: Signals,
    listener: Listener,
    /// The socket is not listened at until then.
    rest: Option<u64>,
    server: Server<'s>,
    /// By the same number each is a connection, a job and the job's only rank.
    conns: Conns,
    /// How many there have been.
    count: u64,
    /// Connections with messages to hand in again.
    again: Vec<u32>,
    buffer: Vec<u8>,
    reply: Box<[u8]>,
}

impl<'s> Daemon<'s> {
    fn new(
        signals: Signals,
        listener: Listener,
        limits: &Limits,
        server: Server<'s>,
    ) -> Result<Daemon<'s>, RunError> {
        let poller = Poller::new()?;
        poller.add(&signals, Token::Signals, Interest::Read).map_err(RunError::system("epoll"))?;
        poller.add(&listener, Token::Listener(0), Interest::Read).map_err(RunError::system("epoll"))?;
        let mut conns = Conns::new(limits.conns);
        conns.make_room(limits.conns);
        Ok(Daemon {
            start: Instant::now(),
            poller,
            signals,
            listener,
            rest: None,
            server,
            conns,
            count: 0,
            again: Vec::new(),
            buffer: vec![0; 2 * MESSAGE_MAX as usize],
            reply: vec![0; limits.output_max()].into(),
        })
    }

    /// The event loop.
    fn run(&mut self) -> Result<(), RunError> {
        let mut tokens = Vec::new();
        loop {
            let timeout = self.timeout();
            self.poller.wait(timeout, &mut tokens)?;
            for &token in &tokens {
                match token {
                    Token::Listener(_) => self.accept()?,
                    Token::Conn(id) => self.conn_ready(id)?,
                    _ => {}
                }
            }
            if tokens.contains(&Token::Signals) && self.is_ended()? {
                return Ok(());
            }
            self.keep_time()?;
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn timeout(&mut self) -> Option<Duration> {
        let stranger = self.conns.oldest_unnamed().map(|(_, opened)| opened + INTRODUCTION_TIME);
        let wake = self.server.wake().map(|Time(at)| at);
        let at = [stranger, wake, self.rest].into_iter().flatten().min()?;
        Some(Duration::from_millis(at.saturating_sub(self.now())))
    }

    fn keep_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        if self.server.wake().is_some_and(|Time(at)| at <= now) {
            self.server.handle(Time(now), Input::Tick)?;
            self.outputs()?;
        }
        while let Some((id, opened)) = self.conns.oldest_unnamed()
            && opened + INTRODUCTION_TIME <= now
        {
            self.close(id)?;
        }
        if self.rest.is_some_and(|at| at <= now) {
            self.rest = None;
            self.poller
                .add(&self.listener, Token::Listener(0), Interest::Read)
                .map_err(RunError::system("epoll"))?;
        }
        Ok(())
    }

    /// Takes the signals that have come; whether one of them is the end.
    fn is_ended(&mut self) -> Result<bool, RunError> {
        let mut events = Vec::new();
        self.signals.read(&mut events)?;
        if events.contains(&Event::Stop) {
            self.signals.stop_here();
        }
        let ends = |event: &Event| {
            matches!(event, Event::Forward(Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT))
        };
        Ok(events.iter().any(ends))
    }

    fn accept(&mut self) -> Result<(), RunError> {
        loop {
            match self.listener.accept() {
                Ok(Visitor::Admitted(fd)) => self.open(fd)?,
                Ok(Visitor::Foreign(user)) => say(&format!("turned away a process of user {user}")),
                Ok(Visitor::Nobody) => return Ok(()),
                Err(error) => {
                    say(&format!("cannot take in connections for a while: {error}"));
                    self.poller.remove(&self.listener);
                    self.rest = Some(self.now() + REST);
                    return Ok(());
                }
            }
        }
    }

    fn open(&mut self, fd: OwnedFd) -> Result<(), RunError> {
        let now = self.now();
        let Some(id) = self.conns.open(fd, JobId::default(), None, now) else {
            say("turned away a connection: limit conns is used up, raise it with --limit conns=N");
            return Ok(());
        };
        let conn = self.conns.get(id).expect("it was opened just now");
        self.poller.add(conn.fd(), Token::Conn(id), Interest::Read).map_err(RunError::system("epoll"))?;
        self.count += 1;
        let job = JobId(id);
        let name = format!("run-{}", self.count);
        self.server.handle(Time(now), Input::Job(JobSpec::new(job, &name, 1)))?;
        self.server.handle(Time(now), Input::Opened { conn: ConnId(id), job, rank: Some(Rank(0)) })?;
        Ok(())
    }

    fn close(&mut self, id: u32) -> Result<(), RunError> {
        if self.conns.get(id).is_none() {
            return Ok(());
        }
        self.conns.close(id);
        let now = Time(self.now());
        self.server.handle(now, Input::Closed { conn: ConnId(id) })?;
        self.server.handle(now, Input::Forget { job: JobId(id) })?;
        self.outputs()
    }

    fn conn_ready(&mut self, id: u32) -> Result<(), RunError> {
        let now = Time(self.now());
        let Some(conn) = self.conns.get(id) else { return Ok(()) };
        if conn.is_blocked() {
            if conn.flush() == Sent::Blocked {
                return Ok(());
            }
            let fd = conn.fd();
            self.poller.modify(fd, Token::Conn(id), Interest::Read).map_err(RunError::system("epoll"))?;
            self.server.handle(now, Input::Writable { conn: ConnId(id) })?;
            self.again.push(id);
            return self.outputs();
        }
        match conn.receive(&mut self.buffer) {
            Received::Bytes(len) => {
                conn.hand_in(&mut self.server, now, id, &self.buffer[..len])?;
                self.outputs()
            }
            Received::Nothing => Ok(()),
            Received::End => self.close(id),
        }
    }

    /// Does what the core says until it says nothing more.
    fn outputs(&mut self) -> Result<(), RunError> {
        let now = Time(self.now());
        loop {
            match self.server.poll(&mut self.reply[..]) {
                Some(Output::Bytes { conn, bytes }) => {
                    let Some(to) = self.conns.get(conn.0) else { continue };
                    if to.send(bytes) == Sent::All {
                        if to.has_more() {
                            self.again.push(conn.0);
                        }
                        continue;
                    }
                    let fd = to.fd();
                    self.poller
                        .modify(fd, Token::Conn(conn.0), Interest::Write)
                        .map_err(RunError::system("epoll"))?;
                    self.server.handle(now, Input::Blocked { conn })?;
                }
                Some(Output::Joined { conn, .. }) => self.conns.name(conn.0, conn.0),
                Some(Output::Close { conn, why }) => {
                    if let Closing::Malformed(malformed) = why {
                        say(&format!("closed a connection: {malformed}"));
                    }
                    self.close(conn.0)?;
                }
                // Who aborts is its own only rank.
                Some(Output::End { job, .. } | Output::Kill { job, .. }) => self.close(job.0)?,
                // There is no room for spawns, names are this server's own, and no fence is waited for.
                Some(Output::Spawn { .. } | Output::Names { .. } | Output::Late { .. }) => {}
                None => {
                    let Some(id) = self.again.pop() else { return Ok(()) };
                    let Some(conn) = self.conns.get(id) else { continue };
                    let Some(bytes) = conn.take_again() else { continue };
                    conn.hand_in(&mut self.server, now, id, &bytes)?;
                }
            }
        }
    }
}

/// A line of the log.
fn say(line: &str) {
    // Where nobody reads it, nobody needs it.
    let _ = writeln!(std::io::stderr(), "hydrant serve: {line}");
}
