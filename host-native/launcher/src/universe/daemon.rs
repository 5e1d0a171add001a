//! `hydrant serve`: the daemon that keeps the names. One event loop, no threads, no process but itself.

use std::io::Write;
use std::time::Duration;

use hydrant_core::Server;
use hydrant_driver::{Error, MappedStorage, NativeBackend};
use hydrant_reactor::signals::Event;
use hydrant_reactor::{Key, KeyRange, Log, OpenFiles, OpenFilesError, Reactor};
use rustix::process::Signal;

use super::socket::{self, Visitor};
use super::{Keeper, Options, UniverseError};

/// Keys of this event loop.
const OWN: KeyRange = KeyRange(0);
const SIGNALS: Key = OWN.key(0, 0);
const LISTENER: Key = OWN.key(1, 0);
const LOG: Key = OWN.key(2, 0);
const CONNS: KeyRange = KeyRange(1);

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
    let reactor = Reactor::new(SIGNALS)?;
    let conns = limits.conns;
    let _files = OpenFiles::reserve(OWN_FILES + u64::from(conns)).map_err(|error| match error {
        OpenFilesError::HardLimit { needed, limit } => UniverseError::OpenFiles { conns, needed, limit },
        OpenFilesError::System(error) => error.into(),
    })?;
    let mut storage = MappedStorage::try_new(&limits)?;
    let server = Server::new(limits, storage.lend(), 0).map_err(Error::from)?;
    let keeper = Keeper::new(Box::new(NativeBackend(server)), CONNS);
    let path = options.path();
    let socket = socket::Listener::open(&path)?;
    let mut daemon = Daemon::new(reactor, socket, keeper)?;
    // Where nobody reads it, nobody needs it.
    let _ = writeln!(std::io::stdout(), "hydrant serve: listening at {}", path.display());
    daemon.run()?;
    Ok(())
}

struct Daemon<'s> {
    reactor: Reactor,
    listener: hydrant_reactor::Listener<socket::Listener>,
    keeper: Keeper<'s>,
    log: Log,
}

impl<'s> Daemon<'s> {
    fn new(reactor: Reactor, socket: socket::Listener, keeper: Keeper<'s>) -> Result<Daemon<'s>, Error> {
        let listener = hydrant_reactor::Listener::new(socket, LISTENER, &reactor.poller)?;
        Ok(Daemon { reactor, listener, keeper, log: Log::stderr(crate::messages::SERVE, LOG)? })
    }

    /// The event loop.
    fn run(&mut self) -> Result<(), Error> {
        let mut keys = Vec::new();
        loop {
            let timeout = self.timeout();
            self.reactor.poller.wait(timeout, &mut keys)?;
            let now = self.now();
            for &key in &keys {
                match key {
                    LISTENER => self.accept()?,
                    LOG => self.log.flush(&self.reactor.poller),
                    key => self.keeper.ready(key, &self.reactor.poller, now)?,
                }
            }
            if keys.contains(&SIGNALS) && self.is_ended()? {
                return Ok(());
            }
            self.keeper.keep_time(&self.reactor.poller, now)?;
            self.listener.resume(&self.reactor.poller, now)?;
            while let Some(line) = self.keeper.news() {
                self.log.line(&line, &self.reactor.poller);
            }
        }
    }

    fn now(&self) -> u64 {
        self.reactor.clock.now()
    }

    fn timeout(&mut self) -> Option<Duration> {
        self.reactor.clock.timeout([self.keeper.deadline(), self.listener.deadline()])
    }

    /// Takes the signals that have come; whether one of them is the end.
    fn is_ended(&mut self) -> Result<bool, Error> {
        let mut events = Vec::new();
        self.reactor.signals.read(&mut events)?;
        if events.contains(&Event::Stop) {
            self.reactor.signals.stop_process();
        }
        let ends = |event: &Event| {
            matches!(event, Event::Forward(Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT))
        };
        Ok(events.iter().any(ends))
    }

    fn accept(&mut self) -> Result<(), Error> {
        loop {
            match self.listener.socket().accept() {
                Ok(Visitor::Admitted(fd)) => {
                    let now = self.now();
                    self.keeper.open(fd, &self.reactor.poller, now)?;
                }
                Ok(Visitor::Foreign(user)) => {
                    self.log.line(&format!("turned away a process of user {user}"), &self.reactor.poller)
                }
                Ok(Visitor::Nobody) => return Ok(()),
                Err(error) => {
                    self.log.line(
                        &format!("cannot take in connections for a while: {error}"),
                        &self.reactor.poller,
                    );
                    let now = self.now();
                    self.listener.pause(&self.reactor.poller, now);
                    return Ok(());
                }
            }
        }
    }
}
