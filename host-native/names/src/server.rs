//! Process that provides the name service: one event loop.

use std::time::Duration;

use hydrant_core::Server;
use hydrant_driver::{ACCEPT_MAX, BackendError, MappedStorage};
use hydrant_reactor::signals::Event;
use hydrant_reactor::{Key, KeyRange, Log, OpenFiles, Reactor, announce};
use rustix::process::Signal;

use crate::error::NameServiceError;
use crate::options::Options;
use crate::service::NameService;
use crate::socket::{self, Accepted};

/// Keys of this event loop.
const OWN: KeyRange = KeyRange(0);
const SIGNALS: Key = OWN.key(0, 0);
const LISTENER: Key = OWN.key(1, 0);
const LOG: Key = OWN.key(2, 0);
const CONNS: KeyRange = KeyRange(1);

/// Descriptors that the server needs beside those of its connections.
const OWN_FILES: u64 = 16;

/// Provides the name service until a signal ends it. Prints the path of its socket on standard output once it listens.
///
/// The function takes over the calling process: signals are blocked in the calling thread. Call it once, from the only
/// thread.
///
/// # Errors
/// The service could not start or continue. Its socket is removed.
pub fn serve(options: &Options) -> Result<(), NameServiceError> {
    let limits = options.limits();
    let reactor = Reactor::new(SIGNALS)?;
    let _files = OpenFiles::reserve(OWN_FILES + u64::from(limits.conns))?;
    let mut storage = MappedStorage::try_new(&limits)?;
    let server = Server::new_zeroed(limits, storage.lend(), 0).map_err(BackendError::from)?;
    let service = NameService::new(Box::new(server), CONNS);
    let (path, is_private) = options.path();
    let socket = socket::Listener::open(&path, is_private)?;
    let mut name_server = NameServer::new(reactor, socket, service)?;
    // A closed standard output is no error.
    let _ = announce(format_args!("hydrant serve: listening at {}", path.display()));
    name_server.run()?;
    Ok(())
}

struct NameServer<'s> {
    reactor: Reactor,
    listener: hydrant_reactor::Listener<socket::Listener>,
    service: NameService<Server<'s>>,
    log: Log,
}

impl<'s> NameServer<'s> {
    fn new(
        reactor: Reactor,
        socket: socket::Listener,
        service: NameService<Server<'s>>,
    ) -> Result<NameServer<'s>, NameServiceError> {
        let listener = hydrant_reactor::Listener::new(socket, LISTENER, &reactor.poller)?;
        Ok(NameServer { reactor, listener, service, log: Log::stderr("hydrant serve", LOG)? })
    }

    /// The event loop.
    fn run(&mut self) -> Result<(), NameServiceError> {
        let mut keys = Vec::new();
        loop {
            let timeout = self.timeout();
            self.reactor.poller.wait(timeout, &mut keys)?;
            let now = self.now();
            for &key in &keys {
                match key {
                    LISTENER => self.accept()?,
                    LOG => self.log.flush(&self.reactor.poller),
                    key => self.service.ready(key, &self.reactor.poller, now)?,
                }
            }
            if keys.contains(&SIGNALS) && self.is_ended()? {
                return Ok(());
            }
            self.service.handle_timeout(&self.reactor.poller, now)?;
            self.listener.resume(&self.reactor.poller, now)?;
            while let Some(line) = self.service.next_line() {
                self.log.line(&line, &self.reactor.poller);
            }
        }
    }

    fn now(&self) -> u64 {
        self.reactor.clock.now()
    }

    fn timeout(&mut self) -> Option<Duration> {
        self.reactor.clock.timeout([self.service.poll_at(), self.listener.deadline()])
    }

    /// Reads pending signals. Returns whether one of them ends the service.
    fn is_ended(&mut self) -> Result<bool, NameServiceError> {
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

    fn accept(&mut self) -> Result<(), NameServiceError> {
        // More may be pending; the socket stays readable then.
        for _ in 0..ACCEPT_MAX {
            match self.listener.socket().accept() {
                Ok(Accepted::Admitted(fd, alias)) => {
                    let now = self.now();
                    self.service.open((fd, alias), &self.reactor.poller, now)?;
                }
                Ok(Accepted::Foreign(user)) => {
                    self.log.line(&format!("refused a process of user {user}"), &self.reactor.poller)
                }
                Ok(Accepted::None) => return Ok(()),
                Err(error) => {
                    self.log.line(
                        &format!("warning: paused accepting connections: {error}"),
                        &self.reactor.poller,
                    );
                    let now = self.now();
                    self.listener.pause(&self.reactor.poller, now);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
