//! Server with its clock, its timer, and the bytes that it has not consumed.

use std::os::fd::RawFd;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::server::Inbox;
use hydrant_core::{Backend as _, ConnId, Fault, Input, Limits, Output, Time};
use hydrant_reactor::{Clock, random_u32};

use crate::backend::{Backend, PluginFile};
use crate::error::Error;
use crate::timer::{Due, Timer};
use crate::types::HostOutput;

/// Server and what belongs to it.
#[derive(Debug)]
pub(crate) struct Host {
    backend: Backend,
    clock: Clock,
    timer: Timer,
    /// Connections by number, up to the highest one so far.
    conns: Vec<Conn>,
    /// Connections with messages to pass again.
    deferred: Vec<u32>,
    /// Buffer for the bytes of one connection.
    inbox: Box<[u8]>,
    /// Buffer for one output.
    output: Box<[u8]>,
}

/// Connection of a client.
#[derive(Clone, Debug, Default)]
struct Conn {
    open: bool,
    blocked: bool,
    /// A complete message is held, which waits for a reply to be taken.
    waiting: bool,
    /// Bytes that the server has not consumed.
    held: Vec<u8>,
}

impl Host {
    /// Creates a server without jobs.
    pub(crate) fn new(limits: Limits, plugin: Option<PluginFile<'_>>) -> Result<Host, Error> {
        let backend = Backend::new(limits, random_u32()?, plugin)?;
        Ok(Host {
            clock: Clock::start(),
            timer: Timer::new()?,
            conns: Vec::new(),
            deferred: Vec::new(),
            inbox: vec![0; MESSAGE_MAX as usize].into(),
            output: vec![0; limits.output_room()].into(),
            backend,
        })
    }

    /// Descriptor that is readable while [`next`](Host::next) has work.
    pub(crate) fn fd(&self) -> RawFd {
        self.timer.fd()
    }

    /// Applies an input other than bytes and timeouts.
    pub(crate) fn input(&mut self, input: Input<'_>) -> Result<(), Error> {
        self.check(&input)?;
        let handled = self.backend.handle(self.now(), input);
        if handled.is_ok() {
            self.track(&input);
        }
        self.set_timer()?;
        handled.map(drop)
    }

    /// Refuses an input that a plugin's buffer or the table of connections cannot hold.
    fn check(&self, input: &Input<'_>) -> Result<(), Error> {
        let limits = self.backend.limits();
        let len = match *input {
            Input::Attr { key, value, .. } | Input::Preput { key, value, .. } => {
                key.len().saturating_add(value.len())
            }
            Input::Define { members: bytes, .. }
            | Input::Peer { bytes, .. }
            | Input::SpawnComplete { codes: bytes, .. }
            | Input::UpcallComplete { text: bytes, .. }
            | Input::PsetRequest { request: bytes, .. } => bytes.len(),
            Input::Opened { conn, .. } | Input::OpenedQuery { conn, .. } if conn.0 >= limits.conns => {
                return Err(Fault::NoSuchConn.into());
            }
            _ => 0,
        };
        let max = limits.output_room().max(MESSAGE_MAX as usize);
        if len > max { Err(Error::TooLong { what: "the input", max }) } else { Ok(()) }
    }

    /// Records what an accepted input means for connections.
    fn track(&mut self, input: &Input<'_>) {
        match *input {
            Input::Opened { conn, .. } | Input::OpenedQuery { conn, .. } => {
                if self.conns.len() <= conn.index() {
                    self.conns.resize_with(conn.index() + 1, Conn::default);
                }
                self.conns[conn.index()] = Conn { open: true, ..Conn::default() };
            }
            Input::Closed { conn } => {
                if let Some(closed) = self.conns.get_mut(conn.index()) {
                    *closed = Conn::default();
                }
            }
            Input::Blocked { conn } | Input::Writable { conn } => {
                if let Some(open) = self.conns.get_mut(conn.index()) {
                    open.blocked = matches!(input, Input::Blocked { .. });
                }
                self.defer(conn);
            }
            _ => {}
        }
    }

    /// Notes that a connection's messages are to be passed again, if there are any and the client can take replies.
    fn defer(&mut self, conn: ConnId) {
        let passes = self.conns.get(conn.index()).is_some_and(|open| open.waiting && !open.blocked);
        if passes && !self.deferred.contains(&conn.0) {
            self.deferred.push(conn.0);
        }
    }

    /// Returns how many bytes of a connection the next call of [`bytes`](Host::bytes) takes.
    pub(crate) fn room(&self, conn: u32) -> usize {
        let open = self.conns.get(conn as usize).filter(|open| open.open);
        open.map_or(0, |open| self.inbox.len() - open.held.len())
    }

    /// Passes bytes of a client to the server.
    pub(crate) fn bytes(&mut self, conn: u32, bytes: &[u8]) -> Result<(), Error> {
        if !self.conns.get(conn as usize).is_some_and(|open| open.open) {
            return Err(Fault::NoSuchConn.into());
        }
        let room = self.room(conn);
        if bytes.len() > room {
            return Err(Error::Room { conn, given: bytes.len(), room });
        }
        let passed = self.pass(conn, bytes);
        self.set_timer()?;
        passed
    }

    /// Passes the bytes held of an open connection and new ones to the server.
    fn pass(&mut self, conn: u32, new: &[u8]) -> Result<(), Error> {
        let now = self.now();
        let Host { backend, conns, inbox, .. } = self;
        let open = &mut conns[conn as usize];
        inbox[..open.held.len()].copy_from_slice(&open.held);
        let mut inbox = Inbox::continued(&mut inbox[..], open.held.len(), open.waiting);
        inbox.space()[..new.len()].copy_from_slice(new);
        inbox.receive(backend, now, ConnId(conn), new.len())?;
        open.held.clear();
        open.held.extend_from_slice(inbox.held());
        open.waiting = inbox.is_waiting();
        Ok(())
    }

    /// Returns the next output, whose bytes are valid until the next call.
    pub(crate) fn next(&mut self) -> Result<Option<HostOutput>, Error> {
        let next = self.poll();
        self.set_timer()?;
        next
    }

    fn poll(&mut self) -> Result<Option<HostOutput>, Error> {
        let now = self.now();
        if self.backend.poll_at().is_some_and(|at| at <= now) {
            self.backend.handle(now, Input::Timeout)?;
        }
        loop {
            match self.backend.poll(&mut self.output)? {
                Some(output) => {
                    let result = HostOutput::new(output);
                    // Its messages are passed at the next call, because the host sends this reply first.
                    if let Output::Bytes { conn, .. } = output {
                        self.defer(conn);
                    }
                    return Ok(Some(result));
                }
                None => {
                    let Some(conn) = self.deferred.pop() else { return Ok(None) };
                    if self.conns.get(conn as usize).is_some_and(|open| open.waiting && !open.blocked) {
                        self.pass(conn, &[])?;
                    }
                }
            }
        }
    }

    fn now(&self) -> Time {
        Time(self.clock.now())
    }

    /// Sets the timer to when [`next`](Host::next) has work.
    fn set_timer(&mut self) -> Result<(), Error> {
        let due = if self.backend.has_output() || !self.deferred.is_empty() {
            Due::Now
        } else {
            self.backend.poll_at().map_or(Due::Never, |Time(at)| Due::At(at))
        };
        self.timer.set(due, self.clock.now())
    }
}
