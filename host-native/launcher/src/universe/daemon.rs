//! `hydrant serve`: the daemon that keeps the names. One event loop, no threads, no process but itself.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::socket::{Listener, Visitor};
use super::{Keeper, Options, UniverseError};
use crate::border::Maker;
use crate::engine::gate::Gate;
use crate::engine::log::Log;
use crate::engine::poller::{Interest, Poller, Token};
use crate::engine::signals::{Event, Signals};
use crate::error::RunError;
use crate::launch::OpenFiles;

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
    let maker = Maker::BuiltIn;
    let mut slabs = maker.slabs(&limits, false)?;
    let keeper = Keeper::new(&maker, limits, &mut slabs)?;
    let path = options.path();
    let listener = Listener::open(&path)?;
    let mut daemon = Daemon::new(signals, listener, keeper)?;
    // Where nobody reads it, nobody needs it.
    let _ = writeln!(std::io::stdout(), "hydrant serve: listening at {}", path.display());
    daemon.run()?;
    Ok(())
}

struct Daemon<'s> {
    start: Instant,
    poller: Poller,
    signals: Signals,
    gate: Gate<Listener>,
    keeper: Keeper<'s>,
    log: Log,
}

impl<'s> Daemon<'s> {
    fn new(signals: Signals, listener: Listener, keeper: Keeper<'s>) -> Result<Daemon<'s>, RunError> {
        let poller = Poller::new()?;
        poller.add(&signals, Token::Signals, Interest::Read).map_err(RunError::system("epoll"))?;
        let gate = Gate::open(listener, Token::Listener(0), &poller)?;
        Ok(Daemon { start: Instant::now(), poller, signals, gate, keeper, log: Log::new()? })
    }

    /// The event loop.
    fn run(&mut self) -> Result<(), RunError> {
        let mut tokens = Vec::new();
        loop {
            let timeout = self.timeout();
            self.poller.wait(timeout, &mut tokens)?;
            let now = self.now();
            for &token in &tokens {
                match token {
                    Token::Listener(_) => self.accept()?,
                    Token::Conn(id) => self.keeper.ready(id, &self.poller, now)?,
                    token => self.log.ready(token, &self.poller),
                }
            }
            if tokens.contains(&Token::Signals) && self.is_ended()? {
                return Ok(());
            }
            self.keeper.keep_time(&self.poller, now)?;
            self.gate.resume(&self.poller, now)?;
            while let Some(line) = self.keeper.news() {
                self.log.say(&line, &self.poller);
            }
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    fn timeout(&mut self) -> Option<Duration> {
        let at = [self.keeper.deadline(), self.gate.deadline()].into_iter().flatten().min()?;
        Some(Duration::from_millis(at.saturating_sub(self.now())))
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
            match self.gate.listener().accept() {
                Ok(Visitor::Admitted(fd)) => {
                    let now = self.now();
                    self.keeper.open(fd, &self.poller, now)?;
                }
                Ok(Visitor::Foreign(user)) => {
                    self.log.say(&format!("turned away a process of user {user}"), &self.poller)
                }
                Ok(Visitor::Nobody) => return Ok(()),
                Err(error) => {
                    self.log.say(&format!("cannot take in connections for a while: {error}"), &self.poller);
                    let now = self.now();
                    self.gate.rest(&self.poller, now);
                    return Ok(());
                }
            }
        }
    }
}
