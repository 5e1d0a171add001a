//! A server whose ranks somebody else starts: ports, connections, the core. Who has it serve which job, and what becomes
//! of what happens, is its master's business: the [command line's](super::own) or a [host's](super::desk).

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::manage::{BoardReport, JobReport, RankReport};
use hydrant_core::trace::{Cause, Closing, Exit};
use hydrant_core::{ConnId, Fault, Input, JobId, Limit, Limits, Output, Rank, Time};
use hydrant_reactor::signals::Event;
use hydrant_reactor::{Interest, Key, Listener, Log, Poller, Reactor};
use rustix::process::Signal;

use super::Network;
use super::token::{CONNS, Token};
use crate::border::Native;
use crate::engine::conns::{Conns, HANDSHAKE_TIMEOUT, OVERRUN, Received};
use crate::engine::jobs::free_stretch;
use crate::engine::port::Port;
use crate::error::RunError;

/// Descriptors that a server needs beside those of its connections.
pub(super) const OWN_FILES: u64 = 16;

/// What has happened to a job.
#[derive(Debug)]
pub(super) enum News {
    /// A client has become a rank.
    Joined { job: JobId, rank: Rank, conn: ConnId, from: Option<SocketAddr> },
    /// A rank's connection has closed, after finalize or before.
    Left { job: JobId, rank: Rank, finalized: bool },
    /// The job has to end.
    End { job: JobId, cause: Cause, message: String },
    /// A rank asked to be ended alone.
    Kill { job: JobId, rank: Rank, code: Option<i32>, message: String },
    /// A fence waits for too long.
    Late { job: JobId, arrived: u32, size: u32, missing: String },
    /// A client's connection cannot go on, for what it said.
    Closed { job: JobId, conn: ConnId, rank: Option<Rank>, why: Closing },
    /// A client was refused for want of room.
    Full { limit: Limit },
}

/// The server.
pub(super) struct Station<'s> {
    allow: Vec<Network>,
    reactor: Reactor,
    core: Native<'s>,
    conns: Conns,
    /// Where the clients of each job connect, by the job's number.
    doors: Vec<Option<Door>>,
    news: VecDeque<News>,
    counters: BoardReport,
    buffer: Vec<u8>,
    reply: Box<[u8]>,
    keys: Vec<Key>,
    /// The last to go, as it may take a while.
    log: Log,
}

/// Where the clients of a job connect.
#[derive(Debug)]
struct Door {
    listener: Listener<Port>,
    /// Nobody is let in for now, who comes waits.
    held: bool,
    /// Its first rank among those of all jobs.
    first: u32,
    size: u32,
}

impl<'s> Station<'s> {
    pub(super) fn new(
        allow: &[Network],
        limits: &Limits,
        core: Native<'s>,
        reactor: Reactor,
    ) -> Result<Station<'s>, RunError> {
        let mut conns = Conns::new(limits.conns, CONNS);
        conns.make_room(limits.ranks);
        Ok(Station {
            allow: allow.to_vec(),
            reactor,
            core,
            conns,
            doors: Vec::new(),
            news: VecDeque::new(),
            counters: BoardReport { sockets: limits.conns, ..BoardReport::default() },
            buffer: vec![0; 2 * MESSAGE_MAX as usize],
            reply: vec![0; limits.output_max()].into(),
            keys: Vec::new(),
            log: Log::stderr("hydrant serve", Token::Log)?,
        })
    }

    /// A line of the log.
    pub(super) fn say(&mut self, line: &str) {
        self.log.line(line, &self.reactor.poller);
    }

    pub(super) fn poller(&self) -> &Poller {
        &self.reactor.poller
    }

    /// Milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.reactor.clock.now()
    }

    /// What has happened that the master has not been told.
    pub(super) fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// The lowest number that no job has.
    pub(super) fn free_id(&self) -> JobId {
        let free = self.doors.iter().position(Option::is_none);
        JobId(free.unwrap_or(self.doors.len()) as u32)
    }

    /// Lets the clients of a job come, which the core knows already.
    pub(super) fn open(&mut self, job: JobId, size: u32, port: Port) -> Result<(), RunError> {
        let listener = Listener::new(port, Token::Listener(job.0), &self.reactor.poller)?;
        let taken = self.doors.iter().flatten().map(|door| door.first..door.first + door.size);
        let first = free_stretch(taken, size);
        self.conns.make_room(first.saturating_add(size));
        if self.doors.len() <= job.index() {
            self.doors.resize_with(job.index() + 1, || None);
        }
        self.doors[job.index()] = Some(Door { listener, held: false, first, size });
        self.counters.jobs = self.counters.jobs.saturating_add(1);
        Ok(())
    }

    /// Has who comes to a job wait outside, or lets them in.
    pub(super) fn hold(&mut self, job: JobId, held: bool) {
        if let Some(door) = self.doors.get_mut(job.index()).and_then(Option::as_mut) {
            door.held = held;
        }
    }

    /// Tells the core something that is no connection's.
    pub(super) fn tell(&mut self, input: Input<'_>) -> Result<(), Fault> {
        let now = Time(self.now());
        self.core.0.handle(now, input).map(drop)
    }

    /// A rank's process has ended. What it said last is heard first: it may be on its way.
    pub(super) fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), RunError> {
        self.accept(job)?;
        let mut ids = self.conns.unnamed(job);
        // Hosts may tell of ranks that there are none of, which the core refuses.
        let door = self.doors.get(job.index()).and_then(Option::as_ref).filter(|door| rank.0 < door.size);
        ids.extend(door.and_then(|door| self.conns.of_process(door.first + rank.0)));
        for id in ids {
            while self.read(id)? {}
        }
        self.tell(Input::Exited { job, rank, exit })?;
        self.outputs()
    }

    /// Closes a job's connections, and lets go of it.
    pub(super) fn forget(&mut self, job: JobId) -> Result<(), RunError> {
        self.empty(job)?;
        if let Some(door) = self.doors.get_mut(job.index()) {
            *door = None;
        }
        self.news.retain(|news| !news.is_of(job));
        Ok(())
    }

    /// Closes a job's connections and has the core forget it; its port stays, for another job of that number.
    pub(super) fn empty(&mut self, job: JobId) -> Result<(), RunError> {
        for id in self.conns.of_job(job) {
            self.conns.close(id);
            self.tell(Input::Closed { conn: ConnId(id) })?;
        }
        self.tell(Input::DeregisterJob { job })?;
        self.outputs()
    }

    /// How a job is doing.
    pub(super) fn job_report(&self, job: JobId) -> Option<JobReport> {
        self.core.0.job_report(job)
    }

    /// How a rank is doing.
    pub(super) fn rank_report(&self, job: JobId, rank: Rank) -> Option<RankReport> {
        self.core.0.rank_report(job, rank)
    }

    /// How the server is doing.
    pub(super) fn report(&self) -> BoardReport {
        let free_sockets = self.counters.sockets - self.core.0.used(Limit::Conns).min(self.counters.sockets);
        BoardReport { uptime: self.now(), free_sockets, ..self.counters }
    }

    /// How much of a limit is used, and its size.
    pub(super) fn usage(&self, limit: Limit) -> (u32, u32) {
        (self.core.0.used(limit), self.core.0.limits().of(limit))
    }

    /// Waits until something happens, or until `deadline`, and does what is this server's to do. `tokens` then holds
    /// what has come for others, among what came for it.
    pub(super) fn step(&mut self, deadline: Option<u64>, tokens: &mut Vec<Token>) -> Result<(), RunError> {
        let timeout = self.timeout(deadline);
        let mut keys = std::mem::take(&mut self.keys);
        let waited = self.reactor.poller.wait(timeout, &mut keys);
        tokens.clear();
        tokens.extend(keys.iter().filter_map(|&key| Token::of(key)));
        self.keys = keys;
        waited?;
        for &token in &*tokens {
            match token {
                Token::Listener(job) => self.accept(JobId(job))?,
                Token::Conn(id) => self.conn_ready(id)?,
                Token::Log => self.log.flush(&self.reactor.poller),
                Token::Signals | Token::Manage | Token::Host(_) => {}
            }
        }
        self.keep_time()
    }

    fn timeout(&mut self, deadline: Option<u64>) -> Option<Duration> {
        if !self.news.is_empty() {
            return Some(Duration::ZERO);
        }
        let stranger = self.conns.oldest_unnamed().map(|(_, opened)| opened + HANDSHAKE_TIMEOUT);
        let wake = self.core.0.poll_at().map(|Time(at)| at);
        let rests = self.doors.iter().flatten().map(|door| door.listener.deadline());
        self.reactor.clock.timeout([stranger, wake, deadline].into_iter().chain(rests))
    }

    fn keep_time(&mut self) -> Result<(), RunError> {
        let now = self.now();
        if self.core.0.poll_at().is_some_and(|Time(at)| at <= now) {
            self.tell(Input::Timeout)?;
            self.outputs()?;
        }
        while let Some((id, opened)) = self.conns.oldest_unnamed()
            && opened + HANDSHAKE_TIMEOUT <= now
        {
            self.close(id)?;
        }
        let mut doors = self.doors.iter_mut().flatten();
        Ok(doors.try_for_each(|door| door.listener.resume(&self.reactor.poller, now))?)
    }

    /// Takes the signals that have come; the first that is to end the server.
    pub(super) fn take_signals(&mut self) -> Result<Option<Signal>, RunError> {
        let mut events = Vec::new();
        self.reactor.signals.read(&mut events)?;
        if events.contains(&Event::Stop) {
            self.reactor.signals.stop_process();
        }
        let ends = |event: &Event| match event {
            Event::Forward(signal) if !matches!(*signal, Signal::USR1 | Signal::USR2) => Some(*signal),
            _ => None,
        };
        Ok(events.iter().find_map(ends))
    }

    fn accept(&mut self, job: JobId) -> Result<(), RunError> {
        let now = self.now();
        let Some(door) = self.doors.get_mut(job.index()).and_then(Option::as_mut) else { return Ok(()) };
        if door.held {
            door.listener.pause(&self.reactor.poller, now);
            return Ok(());
        }
        let mut admitted = Vec::new();
        if let Err(error) = door.listener.socket().accept(&mut admitted) {
            self.log.line(&format!("cannot take in connections for a while: {error}"), &self.reactor.poller);
            door.listener.pause(&self.reactor.poller, now);
        }
        admitted.into_iter().try_for_each(|stream| self.admit(job, stream))
    }

    /// Whether somebody from that address may come in.
    pub(super) fn allows(&mut self, from: SocketAddr) -> bool {
        let allowed = self.allow.is_empty() || self.allow.iter().any(|network| network.contains(from.ip()));
        if !allowed {
            self.say(&format!("turned away {from}: --allow names no network that it is in"));
        }
        allowed
    }

    fn admit(&mut self, job: JobId, stream: TcpStream) -> Result<(), RunError> {
        let Ok(from) = stream.peer_addr() else { return Ok(()) };
        if !self.allows(from) {
            return Ok(());
        }
        if !self.conns.has_room()
            && let Some((oldest, _)) = self.conns.oldest_unnamed()
        {
            self.close(oldest)?;
        }
        let now = self.now();
        let Some(id) = self.conns.open(stream.into(), job, None, now) else {
            self.counters.turned_away = self.counters.turned_away.saturating_add(1);
            self.say(&format!("turned away {from}: limit conns is used up, raise it with --limit conns=N"));
            return Ok(());
        };
        self.counters.accepted = self.counters.accepted.saturating_add(1);
        let conn = self.conns.get(id).expect("it was opened just now");
        self.reactor.poller.add(conn.fd(), Token::Conn(id), Interest::Read)?;
        Ok(self.tell(Input::Opened { conn: ConnId(id), job, rank: None })?)
    }

    fn conn_ready(&mut self, id: u32) -> Result<(), RunError> {
        let at = (&self.reactor.poller, Time(self.now()));
        let received = self.conns.ready(id, &mut self.core, at, &mut self.buffer)?;
        self.received(id, received).map(drop)
    }

    /// Reads once and answers at once; whether there may be more.
    fn read(&mut self, id: u32) -> Result<bool, RunError> {
        let now = Time(self.now());
        let received = self.conns.read(id, &mut self.core, now, &mut self.buffer)?;
        self.received(id, received)
    }

    fn received(&mut self, id: u32, received: Received) -> Result<bool, RunError> {
        match received {
            Received::End => self.close(id)?,
            Received::Overrun => {
                let who =
                    self.rank_of(id).map_or("a connection that was no rank's".to_owned(), |(job, rank)| {
                        format!("the connection of rank {rank} of job {job}")
                    });
                self.say(&format!("closed {who}: {OVERRUN}"));
                self.counters.closed = self.counters.closed.saturating_add(1);
                self.close(id)?;
            }
            Received::Bytes(len) => {
                self.counters.bytes_in = self.counters.bytes_in.saturating_add(len as u64);
                self.outputs()?;
            }
            Received::Nothing => self.outputs()?,
        }
        Ok(matches!(received, Received::Bytes(_)))
    }

    /// Whose connection that is.
    fn rank_of(&mut self, id: u32) -> Option<(JobId, Rank)> {
        let conn = self.conns.get(id)?;
        let (job, process) = (conn.job(), conn.process()?);
        let door = self.doors.get(job.index())?.as_ref()?;
        Some((job, Rank(process.checked_sub(door.first)?)))
    }

    /// Closes a connection.
    fn close(&mut self, id: u32) -> Result<(), RunError> {
        if self.conns.get(id).is_none() {
            return Ok(());
        }
        if let Some((job, rank)) = self.rank_of(id) {
            let finalized = self.rank_report(job, rank).is_some_and(|report| report.finalized);
            self.news.push_back(News::Left { job, rank, finalized });
        }
        self.conns.close(id);
        self.tell(Input::Closed { conn: ConnId(id) })?;
        self.outputs()
    }

    /// Does what the core says until it says nothing more.
    pub(super) fn outputs(&mut self) -> Result<(), RunError> {
        loop {
            let now = Time(self.reactor.clock.now());
            let news = match self.core.0.poll(&mut self.reply[..]).map_err(Fault::from)? {
                Some(Output::Bytes { conn, bytes }) => {
                    self.counters.bytes_out = self.counters.bytes_out.saturating_add(bytes.len() as u64);
                    self.conns.deliver(conn, bytes, &mut self.core, (&self.reactor.poller, now))?;
                    continue;
                }
                Some(Output::Close { conn, why }) => {
                    self.turn_away(conn, why)?;
                    continue;
                }
                // There is no room for upcalls, so the core has refused them, and there are no other nodes.
                Some(Output::Spawn { .. } | Output::Upcall { .. } | Output::Peer { .. }) => continue,
                Some(Output::Joined { conn, job, rank }) => self.joined(conn, job, rank),
                Some(Output::AbortJob { job, cause, message }) => {
                    News::End { job, cause, message: message.to_owned() }
                }
                Some(Output::KillRank { job, rank, code, message }) => {
                    News::Kill { job, rank, code, message: message.to_owned() }
                }
                Some(Output::StalledFence { job, arrived, size, missing }) => {
                    News::Late { job, arrived, size, missing: missing.to_owned() }
                }
                None => match self.core.0.take_limit_hit() {
                    Some(limit) => News::Full { limit },
                    None if self.conns.hand_in_again(&mut self.core, now)? => continue,
                    None => return Ok(()),
                },
            };
            self.news.push_back(news);
        }
    }

    fn joined(&mut self, conn: ConnId, job: JobId, rank: Rank) -> News {
        let from = self.conns.get(conn.0).and_then(|conn| rustix::net::getpeername(conn.fd()).ok().flatten());
        let from = from.and_then(|from| from.try_into().ok());
        if let Some(Some(door)) = self.doors.get(job.index()) {
            self.conns.name(conn.0, door.first + rank.0);
        }
        News::Joined { job, rank, conn, from }
    }

    /// The core cannot go on with a connection.
    fn turn_away(&mut self, conn: ConnId, why: Closing) -> Result<(), RunError> {
        let rank = self.rank_of(conn.0).map(|(_, rank)| rank);
        if let Some(open) = self.conns.get(conn.0).filter(|_| why != Closing::JobOver) {
            let job = open.job();
            self.counters.closed = self.counters.closed.saturating_add(1);
            self.news.push_back(News::Closed { job, conn, rank, why });
        }
        self.close(conn.0)
    }
}

impl News {
    fn is_of(&self, which: JobId) -> bool {
        match self {
            News::Joined { job, .. }
            | News::Left { job, .. }
            | News::End { job, .. }
            | News::Kill { job, .. }
            | News::Late { job, .. }
            | News::Closed { job, .. } => *job == which,
            News::Full { .. } => false,
        }
    }
}
