//! Driver: client connections, one backend, and their deadlines.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::trace::Exit;
use hydrant_core::{Backend, ConnId, Input, JobId, Output, Rank, Time};
use hydrant_reactor::{Interest, Key, KeyRange, Poller, Sent};
use rustix::net::SocketAddrAny;

use crate::conns::{Conn, Conns, Received};
use crate::port::{Client, Speaks};
use crate::{BackendError, CloseReason, Error, Event};

/// Time in milliseconds for the handshake of a client.
pub const HANDSHAKE_TIMEOUT: u64 = 10_000;

/// Reads from a connection of a rank whose process has ended, before the end counts. The limit is far above what a socket
/// holds, so it matters only for a connection that another process keeps writing to.
const LAST_READS: usize = 16;

/// Bytes read at once: a request that came in pieces, and a good piece more.
const READ_BUFFER: usize = MESSAGE_MAX as usize + 192 * 1024;

/// Bytes that have passed between clients and the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Received from clients.
    pub bytes_in: u64,
    /// Replies to clients.
    pub bytes_out: u64,
}

/// A backend and the sockets of its clients.
///
/// After each call that takes `now`, the owner calls [`poll`](Driver::poll) until it returns nothing. All times are
/// milliseconds of the owner's clock.
#[derive(Debug)]
pub struct Driver<B: ?Sized> {
    pub(crate) conns: Conns,
    keys: KeyRange,
    closed: VecDeque<Event>,
    /// Processes that have ended, whose last requests are read before that counts.
    exits: VecDeque<Exiting>,
    /// Tools that wait for the owner.
    tools: VecDeque<Tool>,
    pub(crate) traffic: Traffic,
    /// Buffer for requests, and behind [`READ_BUFFER`] bytes one for output of the backend. Together they are so long that the
    /// allocator maps them, and unused pages cost nothing.
    pub(crate) buffers: Box<[u8]>,
    pub(crate) backend: Box<B>,
}

/// A tool of PMIx that has connected to the port of a job's ranks, as one does that a rank starts.
#[derive(Debug)]
pub struct Tool {
    /// The job of the ranks.
    pub job: JobId,
    /// Its connection.
    pub client: Client,
    /// What it has said: its introduction, and what it has sent since.
    pub said: Vec<u8>,
}

/// End of a rank's process.
#[derive(Debug)]
struct Exiting {
    job: JobId,
    rank: Rank,
    /// None if the owner reports the end later.
    exit: Option<Exit>,
    /// Reads from its connection that have been made.
    reads: usize,
}

impl<B> Driver<B>
where
    B: Backend + ?Sized,
{
    /// Creates a driver without connections. They are watched with keys of the range `keys`, all of which must be the
    /// driver's.
    pub fn new(backend: Box<B>, keys: KeyRange) -> Driver<B> {
        let limits = backend.limits();
        Driver {
            conns: Conns::new(limits.conns),
            keys,
            closed: VecDeque::new(),
            exits: VecDeque::new(),
            tools: VecDeque::new(),
            traffic: Traffic::default(),
            buffers: vec![0; READ_BUFFER + limits.output_room()].into(),
            backend,
        }
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The backend, for input that is no connection's.
    pub fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Replaces a backend that failed. Connections stay open.
    pub fn replace_backend(&mut self, backend: Box<B>) {
        self.backend = backend;
    }

    /// Passes an input to the backend that does not belong to a connection.
    ///
    /// # Errors
    /// The backend did not accept the input.
    pub fn handle(&mut self, now: u64, input: Input<'_>) -> Result<(), BackendError> {
        self.backend.handle(Time(now), input).map(drop)
    }

    /// Adds the connection of a rank to its job. Returns none at the limit of connections.
    ///
    /// # Errors
    /// The backend or the poller refuses the connection.
    pub fn open(
        &mut self,
        fd: OwnedFd,
        job: JobId,
        rank: Rank,
        now: u64,
        poller: &Poller,
    ) -> Result<Option<ConnId>, Error> {
        let Some(id) = self.conns.insert(fd, job, now) else { return Ok(None) };
        self.watch(id, Input::Opened { conn: ConnId(id), job, rank: Some(rank) }, now, poller)?;
        // Not before: the backend refuses a rank that has another connection.
        self.conns.assign(id, job, rank);
        Ok(Some(ConnId(id)))
    }

    /// Adds a client of a job's port, which has to complete its handshake within [`HANDSHAKE_TIMEOUT`]. Returns none at the limit
    /// of connections.
    ///
    /// # Errors
    /// The backend or the poller refuses the connection.
    pub fn open_client(
        &mut self,
        client: Client,
        job: JobId,
        now: u64,
        poller: &Poller,
    ) -> Result<Option<ConnId>, Error> {
        let (is_own, speaks) = (client.is_own(), client.speaks);
        let Some(id) = self.conns.open_client(client.into(), job, speaks, now) else { return Ok(None) };
        self.watch(id, Input::Opened { conn: ConnId(id), job, rank: None }, now, poller)?;
        if is_own {
            self.handle(now, Input::Verified { conn: ConnId(id) })?;
        }
        Ok(Some(ConnId(id)))
    }

    /// Adds a client that this process has called, and that has had the answer to its introduction. `received` is the introduction
    /// that it would have sent as a caller, and what it has sent since; `answered` is the length of that answer. Returns none at
    /// the limit of connections.
    ///
    /// # Errors
    /// The backend or the poller refuses the connection.
    ///
    /// # Panics
    /// If `received` is longer than the [inbox](Driver::read_room).
    pub fn open_called(
        &mut self,
        client: Client,
        job: JobId,
        (received, answered): (&[u8], usize),
        now: u64,
        poller: &Poller,
    ) -> Result<Option<ConnId>, Error> {
        let Some(conn) = self.open_client(client, job, now, poller)? else { return Ok(None) };
        let room = self.read_room();
        if let Some(open) = self.conns.get_mut(conn.0) {
            open.hide(answered);
            let mut inbox = open.inbox(&mut self.buffers[..room]);
            inbox.space()[..received.len()].copy_from_slice(received);
            inbox.receive(conn, received.len(), |input| self.backend.handle(Time(now), input))?;
            open.keep(&inbox);
        }
        Ok(Some(conn))
    }

    /// Adds the connection of a client to a job of which it is the given rank. The client also has to send its first
    /// request within [`HANDSHAKE_TIMEOUT`]. Returns none at the limit of connections.
    ///
    /// # Errors
    /// The backend or the poller refuses the connection.
    pub fn open_incoming(
        &mut self,
        fd: OwnedFd,
        job: JobId,
        rank: Rank,
        now: u64,
        poller: &Poller,
    ) -> Result<Option<ConnId>, Error> {
        let Some(id) = self.conns.open_client(fd, job, Speaks::Any, now) else { return Ok(None) };
        self.watch(id, Input::Opened { conn: ConnId(id), job, rank: Some(rank) }, now, poller)?;
        Ok(Some(ConnId(id)))
    }

    /// Returns the number of the next connection. None at the limit of connections.
    pub fn next_conn(&self) -> Option<ConnId> {
        self.conns.next_id().map(ConnId)
    }

    /// Adds a connection for queries to a job. The connection belongs to no rank. Its client has to send a request within
    /// [`HANDSHAKE_TIMEOUT`]. Returns none at the limit of connections.
    ///
    /// # Errors
    /// The backend or the poller refuses the connection.
    pub fn open_query(
        &mut self,
        fd: OwnedFd,
        job: JobId,
        now: u64,
        poller: &Poller,
    ) -> Result<Option<ConnId>, Error> {
        let Some(id) = self.conns.open_query(fd, job, now) else { return Ok(None) };
        self.watch(id, Input::OpenedQuery { conn: ConnId(id), job }, now, poller)?;
        Ok(Some(ConnId(id)))
    }

    /// Watches a new connection, and passes the input that opens it to the backend. Closes it if either fails.
    fn watch(&mut self, id: u32, opened: Input<'_>, now: u64, poller: &Poller) -> Result<(), Error> {
        let socket = self.conns.get(id).and_then(Conn::socket).expect("the caller has opened it");
        let watched = poller.add(socket, self.keys.key(0, id), Interest::Read).map_err(Error::from);
        let result = watched.and_then(|()| Ok(self.handle(now, opened)?));
        if result.is_err() {
            self.conns.close(id);
        }
        result
    }

    /// Closes the oldest connection without a handshake, if the limit of connections is reached.
    /// Returns whether a connection was closed.
    ///
    /// # Errors
    /// The backend failed.
    pub fn make_room(&mut self, now: u64) -> Result<bool, Error> {
        if self.conns.has_room() { Ok(false) } else { self.displace(now) }
    }

    /// Closes the oldest connection whose client has not introduced itself, because the process has no descriptor left.
    /// Returns whether a connection was closed.
    ///
    /// # Errors
    /// The backend failed.
    pub fn displace(&mut self, now: u64) -> Result<bool, Error> {
        let Some((id, _)) = self.conns.oldest_incoming() else { return Ok(false) };
        self.end(id, now, CloseReason::NoHandshake)?;
        Ok(true)
    }

    /// Handles a ready connection: writes the buffered bytes of a reply, or reads once and passes the bytes to the
    /// backend. Ignores keys of another range.
    ///
    /// # Errors
    /// The backend or a system call failed.
    pub fn ready(&mut self, key: Key, now: u64, poller: &Poller) -> Result<(), Error> {
        let Some((_, id)) = self.keys.decode(key) else { return Ok(()) };
        match self.conns.get(id) {
            Some(conn) if conn.is_blocked() => self.flush(ConnId(id), now, poller).map(drop),
            // The poller reports its end alone.
            Some(conn) if conn.is_paused() => self.end(id, now, CloseReason::Ended),
            Some(_) => {
                self.read(ConnId(id), now, poller)?;
                self.pause_if_full(id, poller)
            }
            None => Ok(()),
        }
    }

    /// Has a connection wait while its requests fill the inbox, in place of closing the connection. Its client sends more than it
    /// has answers for.
    pub fn let_pause(&mut self, conn: ConnId) {
        if let Some(open) = self.conns.get_mut(conn.0) {
            open.let_pause();
        }
    }

    /// Has the client of a new connection handed over to [`take_tool`](Driver::take_tool) if it is a tool of PMIx that is no rank
    /// of the job. For clients whose [user](Client::is_own) the kernel has named.
    pub fn hand_over_tool(&mut self, conn: ConnId, jobid: &str) {
        if let Some(open) = self.conns.get_mut(conn.0) {
            open.hand_over_tool(jobid);
        }
    }

    /// Takes a tool that was handed over. Its connection has ended for the backend.
    pub fn take_tool(&mut self) -> Option<Tool> {
        self.tools.pop_front()
    }

    /// Reads a connection no more if its inbox is full, or again.
    fn pause_if_full(&mut self, id: u32, poller: &Poller) -> Result<(), Error> {
        let (room, key) = (self.read_room(), self.keys.key(0, id));
        if let Some(open) = self.conns.get_mut(id).filter(|open| !open.is_blocked())
            && open.pause_if_full(room)
            && let Some(socket) = open.socket()
        {
            let interest = if open.is_paused() { Interest::Hangup } else { Interest::Read };
            poller.modify(socket, key, interest)?;
        }
        Ok(())
    }

    /// Reads once from a connection and passes the bytes to the backend. Returns whether more bytes may be available.
    /// Does not read while a reply waits for the socket.
    ///
    /// # Errors
    /// The backend failed.
    pub(crate) fn read(&mut self, conn: ConnId, now: u64, poller: &Poller) -> Result<bool, Error> {
        let (ConnId(id), room) = (conn, self.read_room());
        let Some(open) = self.conns.get_mut(id).filter(|open| !open.is_blocked()) else { return Ok(false) };
        let mut inbox = open.inbox(&mut self.buffers[..room]);
        match open.receive(&mut inbox) {
            Received::Bytes(new) => {
                if let Some(speaks) = open.refused(&mut inbox) {
                    return self.end(id, now, CloseReason::OtherProtocol(speaks)).map(|()| false);
                }
                self.traffic.bytes_in = self.traffic.bytes_in.saturating_add(new as u64);
                let said = &self.buffers[..open.held() + new];
                if open.is_tool(said) {
                    let said = said.to_vec();
                    return self.hand_over(id, said, now, poller).map(|()| false);
                }
                let mut inbox = open.inbox(&mut self.buffers[..room]);
                inbox.receive(conn, new, |input| self.backend.handle(Time(now), input))?;
                open.keep(&inbox);
                open.received_request();
                Ok(true)
            }
            Received::Nothing => Ok(false),
            Received::End => self.end(id, now, CloseReason::Ended).map(|()| false),
            Received::Overrun => self.end(id, now, CloseReason::Overrun).map(|()| false),
        }
    }

    /// Ends the connection of a tool for the backend, and keeps it for the owner.
    fn hand_over(&mut self, id: u32, said: Vec<u8>, now: u64, poller: &Poller) -> Result<(), Error> {
        let job = self.conns.get(id).map(Conn::job);
        if let (Some(job), Some(socket)) = (job, self.conns.remove(id)) {
            poller.remove(&socket);
            self.tools.push_back(Tool { job, client: Client::own(socket), said });
        }
        Ok(self.handle(now, Input::Closed { conn: ConnId(id) })?)
    }

    /// Writes the buffered bytes of a reply. Returns whether there were any.
    ///
    /// # Errors
    /// The backend or a system call failed.
    fn flush(&mut self, conn: ConnId, now: u64, poller: &Poller) -> Result<bool, Error> {
        let key = self.keys.key(0, conn.0);
        let Some(open) = self.conns.get_mut(conn.0).filter(|open| open.is_blocked()) else {
            return Ok(false);
        };
        if open.flush() == Sent::All
            && let Some(socket) = open.socket()
        {
            let interest = if open.is_paused() { Interest::Hangup } else { Interest::Read };
            poller.modify(socket, key, interest)?;
            self.handle(now, Input::Writable { conn })?;
            self.conns.deferred.push(conn.0);
        }
        Ok(true)
    }

    /// Sends a message that is no reply to the client that is a rank. The message waits behind what the socket has not taken, if
    /// that is at most `waiting` bytes long. Returns whether the message was taken.
    ///
    /// # Errors
    /// The backend or a system call failed.
    pub fn send_aside(
        &mut self,
        (job, rank): (JobId, Rank),
        message: &[u8],
        waiting: usize,
        now: u64,
        poller: &Poller,
    ) -> Result<bool, Error> {
        let Some(conn) = self.conn_of(job, rank) else { return Ok(false) };
        let Some(open) = self.conns.get_mut(conn.0) else { return Ok(false) };
        if open.is_blocked() {
            return Ok(open.queue(message, waiting));
        }
        if open.send(message) == Sent::Blocked
            && let Some(socket) = open.socket()
        {
            poller.modify(socket, self.keys.key(0, conn.0), Interest::Write)?;
            self.handle(now, Input::Blocked { conn })?;
        }
        Ok(true)
    }

    /// Passes the deferred requests of a connection again at the next [`poll`](Driver::poll). The backend has become able to
    /// answer them for a reason other than a reply that was sent.
    pub fn resume(&mut self, conn: ConnId) {
        self.conns.deferred.push(conn.0);
    }

    /// Sends replies, closes connections on request of the backend, passes deferred requests again, and returns the
    /// next event. Returns none when no work is left.
    ///
    /// # Errors
    /// The backend or a system call failed.
    pub fn poll(&mut self, now: u64, poller: &Poller) -> Result<Option<Event>, Error> {
        loop {
            if let Some(event) = self.closed.pop_front() {
                return Ok(Some(event));
            }
            match self.backend.poll(&mut self.buffers[READ_BUFFER..])? {
                Some(output @ Output::Bytes { conn, bytes }) => {
                    self.traffic.bytes_out = self.traffic.bytes_out.saturating_add(bytes.len() as u64);
                    let Some(open) = self.conns.get_mut(conn.0) else { continue };
                    let is_blocked = open.send(bytes) == Sent::Blocked;
                    match open.socket() {
                        Some(socket) if is_blocked => {
                            poller.modify(socket, self.keys.key(0, conn.0), Interest::Write)?;
                            self.handle(now, Input::Blocked { conn })?;
                        }
                        socket => {
                            let is_external = socket.is_none();
                            if open.is_deferred() {
                                self.conns.deferred.push(conn.0);
                            }
                            if is_external {
                                return Ok(Some(Event::Output(output.to_owned())));
                            }
                        }
                    }
                }
                Some(output @ Output::Close { conn, why }) => {
                    if self.conns.is_external(conn.0) {
                        return Ok(Some(Event::Output(output.to_owned())));
                    }
                    self.end(conn.0, now, CloseReason::Backend(why))?;
                }
                Some(output) => {
                    if let Output::Joined { conn, job, rank } = output
                        && self.conns.get(conn.0).is_some()
                    {
                        self.conns.assign(conn.0, job, rank);
                    }
                    return Ok(Some(Event::Output(output.to_owned())));
                }
                None => {
                    if !self.retry(now, poller)? && !self.next_exit(now, poller)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Reports the end of a rank's process to the backend. [`poll`](Driver::poll) first reads the last requests of the rank,
    /// at most 16 times, if one of its connections is open or a client has not introduced itself yet. The end
    /// counts when `poll` has returned nothing.
    ///
    /// # Errors
    /// The backend refuses the end. If there are requests to read, `poll` returns that error.
    pub fn exited(&mut self, job: JobId, rank: Rank, exit: Exit, now: u64) -> Result<(), Error> {
        if self.socket_of(job, rank).is_none() && self.conns.incoming(job).is_empty() {
            return Ok(self.handle(now, Input::Exited { job, rank, exit })?);
        }
        self.exits.push_back(Exiting { job, rank, exit: Some(exit), reads: 0 });
        Ok(())
    }

    /// Has [`poll`](Driver::poll) read the last requests of a rank, as [`exited`](Driver::exited) does, whose end the owner
    /// reports later.
    pub fn read_last(&mut self, job: JobId, rank: Rank) {
        self.exits.push_back(Exiting { job, rank, exit: None, reads: 0 });
    }

    /// Reads once from the connection of a rank whose process has ended, or reports the end. Returns whether there was one.
    fn next_exit(&mut self, now: u64, poller: &Poller) -> Result<bool, Error> {
        let Some(exiting) = self.exits.front_mut() else { return Ok(false) };
        let (job, rank, exit, reads) = (exiting.job, exiting.rank, exiting.exit, exiting.reads);
        exiting.reads += 1;
        if reads == 0 {
            // The rank may be one of those that have not introduced themselves.
            for id in self.conns.incoming(job) {
                self.read(ConnId(id), now, poller)?;
            }
            return Ok(true);
        }
        if reads <= LAST_READS
            && let Some(conn) = self.socket_of(job, rank)
        {
            // The write of a reply that waits for the socket fails now, and reading continues.
            self.flush(conn, now, poller)?;
            if self.read(conn, now, poller)? {
                return Ok(true);
            }
        }
        self.exits.pop_front();
        if let Some(exit) = exit {
            self.handle(now, Input::Exited { job, rank, exit })?;
        }
        Ok(true)
    }

    /// The latest connection of a rank, if it is a socket.
    fn socket_of(&self, job: JobId, rank: Rank) -> Option<ConnId> {
        self.conn_of(job, rank).filter(|conn| !self.conns.is_external(conn.0))
    }

    /// Returns how many bytes of a connection the buffer has room for.
    pub fn read_room(&self) -> usize {
        READ_BUFFER.min(self.backend.bytes_max())
    }

    /// Passes the deferred requests of one connection again. Returns whether there was one.
    fn retry(&mut self, now: u64, poller: &Poller) -> Result<bool, Error> {
        let Some(id) = self.conns.deferred.pop() else { return Ok(false) };
        let room = self.read_room();
        if let Some(open) = self.conns.get_mut(id).filter(|open| open.is_deferred() && !open.is_blocked()) {
            let mut inbox = open.inbox(&mut self.buffers[..room]);
            inbox.resume(ConnId(id), |input| self.backend.handle(Time(now), input))?;
            open.keep(&inbox);
            self.pause_if_full(id, poller)?;
        }
        Ok(true)
    }

    /// Closes a connection without an event.
    ///
    /// # Errors
    /// The backend failed.
    pub fn close(&mut self, conn: ConnId, now: u64) -> Result<(), Error> {
        if self.conns.get(conn.0).is_some() {
            self.conns.close(conn.0);
            self.handle(now, Input::Closed { conn })?;
        }
        Ok(())
    }

    /// Closes a connection and reports that.
    fn end(&mut self, id: u32, now: u64, why: CloseReason) -> Result<(), Error> {
        let Some(open) = self.conns.get(id) else { return Ok(()) };
        let conn = ConnId(id);
        self.closed.push_back(Event::Closed { conn, job: open.job(), rank: open.rank(), why });
        self.close(conn, now)
    }

    /// Closes all connections of a job without events.
    ///
    /// # Errors
    /// The backend failed.
    pub fn close_job(&mut self, job: JobId, now: u64) -> Result<(), Error> {
        self.conns.of_job(job).into_iter().try_for_each(|id| self.close(ConnId(id), now))
    }

    /// Closes all connections of a job without events, and deregisters the job.
    ///
    /// # Errors
    /// The backend failed.
    pub fn deregister_job(&mut self, job: JobId, now: u64) -> Result<(), Error> {
        self.exits.retain(|exiting| exiting.job != job);
        self.close_job(job, now)?;
        Ok(self.handle(now, Input::DeregisterJob { job })?)
    }

    /// Returns the time of the next [`handle_timeout`](Driver::handle_timeout).
    pub fn poll_at(&mut self) -> Option<u64> {
        let handshake = self.conns.oldest_incoming().map(|(_, opened)| opened + HANDSHAKE_TIMEOUT);
        let backend = self.backend.poll_at().map(|Time(at)| at);
        handshake.into_iter().chain(backend).min()
    }

    /// Handles timeouts of the backend, and closes connections whose clients have not completed the handshake in time.
    /// Returns whether there were any.
    ///
    /// # Errors
    /// The backend failed.
    pub fn handle_timeout(&mut self, now: u64) -> Result<bool, Error> {
        let mut due = self.backend.poll_at().is_some_and(|Time(at)| at <= now);
        if due {
            self.handle(now, Input::Timeout)?;
        }
        while let Some((id, opened)) = self.conns.oldest_incoming()
            && opened + HANDSHAKE_TIMEOUT <= now
        {
            self.end(id, now, CloseReason::NoHandshake)?;
            due = true;
        }
        Ok(due)
    }

    /// The latest connection of a rank.
    pub(crate) fn conn_of(&self, job: JobId, rank: Rank) -> Option<ConnId> {
        self.conns.of_rank(job, rank).map(ConnId)
    }

    /// Returns the address of a client, if it has one.
    pub fn peer_addr(&self, conn: ConnId) -> Option<SocketAddrAny> {
        rustix::net::getpeername(self.conns.get(conn.0)?.socket()?).ok().flatten()
    }

    /// Bytes that have passed so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
}
