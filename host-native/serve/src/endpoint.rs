//! PMI endpoint of a server whose ranks are started by others: ports, connections and the server. Its owner registers
//! jobs and reacts to its events. The owner is the [command line's job](crate::pmi) or the [management
//! server](crate::management).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use hydrant_core::manage::BoardReport;
use hydrant_core::trace::{Closing, Exit};
use hydrant_core::{BackendError, ConnId, Fault, Input, JobId, Limit, Limits, Rank, Server};
use hydrant_driver::{Client, CloseReason, Driver, Event, OVERRUN, Speaks, TcpPort, is_out_of_files};
use hydrant_reactor::{Clock, Key, Listener, Log, Poller, Reactor, Signals, signals};
use rustix::process::Signal;

use crate::error::Error;
use crate::event::JobEvent;
use crate::network::Network;
use crate::recorded::RecordedServer;
use crate::status::{Processes, Status};
use crate::token::{CONNS, Token};

/// Descriptors that a server needs beside those of its connections.
pub(crate) const OWN_FILES: u64 = 16 + hydrant_status::FILES;

/// The endpoint.
pub(crate) struct Endpoint<'s> {
    /// Networks of accepted clients. Empty for all.
    allow: Vec<Network>,
    clock: Clock,
    poller: Poller,
    /// Signals of the process, unless another event loop handles them.
    signals: Option<Signals>,
    driver: Driver<RecordedServer<'s>>,
    /// The port of each job, by the job's number.
    ports: Vec<Option<JobPort>>,
    events: VecDeque<JobEvent>,
    counters: BoardReport,
    /// Number of connections from addresses outside `allow`.
    foreign: u64,
    keys: Vec<Key>,
    /// Status socket, if it could be opened.
    pub(crate) status: Option<Status>,
    /// Dropped last: it may wait for its reader.
    log: Log,
}

/// Port for the clients of a job.
#[derive(Debug)]
struct JobPort {
    listener: Listener<TcpPort>,
    /// New clients wait to be accepted.
    paused: bool,
    /// Number of ranks.
    size: u32,
}

impl<'s> Endpoint<'s> {
    pub(crate) fn new(
        allow: &[Network],
        limits: &Limits,
        server: RecordedServer<'s>,
        reactor: Reactor,
    ) -> Result<Endpoint<'s>, Error> {
        let Reactor { clock, poller, signals } = reactor;
        Endpoint::on(allow, limits, server, (clock, poller), Some(signals))
    }

    /// An endpoint whose event loop does not handle signals.
    pub(crate) fn of_thread(
        allow: &[Network],
        limits: &Limits,
        server: RecordedServer<'s>,
    ) -> Result<Endpoint<'s>, Error> {
        Endpoint::on(allow, limits, server, (Clock::start(), Poller::new()?), None)
    }

    fn on(
        allow: &[Network],
        limits: &Limits,
        server: RecordedServer<'s>,
        (clock, poller): (Clock, Poller),
        signals: Option<Signals>,
    ) -> Result<Endpoint<'s>, Error> {
        Ok(Endpoint {
            allow: allow.to_vec(),
            clock,
            poller,
            signals,
            driver: Driver::new(Box::new(server), CONNS),
            ports: Vec::new(),
            events: VecDeque::new(),
            counters: BoardReport { sockets: limits.conns, ..BoardReport::default() },
            foreign: 0,
            keys: Vec::new(),
            status: None,
            log: Log::stderr("hydrant serve", Token::Log)?,
        })
    }

    /// Opens the status socket of a server on the machine `host` that serves at `address`.
    ///
    /// # Errors
    /// The socket cannot be opened. The endpoint works without it.
    pub(crate) fn open_status(
        &mut self,
        processes: Processes,
        host: &str,
        address: &str,
    ) -> Result<(), hydrant_status::Error> {
        self.status = Some(Status::open(processes, host, address, &self.poller)?);
        Ok(())
    }

    /// Writes a line to the log.
    pub(crate) fn log(&mut self, line: &str) {
        self.log.line(line, &self.poller);
    }

    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Milliseconds since the start.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the next event for the owner.
    pub(crate) fn next_event(&mut self) -> Option<JobEvent> {
        self.events.pop_front()
    }

    /// Returns the lowest free job number.
    pub(crate) fn free_id(&self) -> JobId {
        let free = self.ports.iter().position(Option::is_none);
        JobId(free.unwrap_or(self.ports.len()) as u32)
    }

    /// Accepts clients of a registered job at `port`.
    pub(crate) fn open(&mut self, job: JobId, size: u32, port: TcpPort) -> Result<(), Error> {
        let listener = Listener::new(port, Token::Listener(job.0), &self.poller)?;
        if self.ports.len() <= job.index() {
            self.ports.resize_with(job.index() + 1, || None);
        }
        self.ports[job.index()] = Some(JobPort { listener, paused: false, size });
        self.counters.jobs = self.counters.jobs.saturating_add(1);
        Ok(())
    }

    /// Pauses or resumes accepting clients of a job.
    pub(crate) fn pause(&mut self, job: JobId, paused: bool) -> Result<(), Error> {
        if let Some(port) = self.ports.get_mut(job.index()).and_then(Option::as_mut) {
            port.paused = paused;
            if !paused {
                // Clients that have come during the pause are accepted at once.
                port.listener.resume(&self.poller, u64::MAX)?;
            }
        }
        Ok(())
    }

    /// Passes an input to the server that does not belong to a connection.
    pub(crate) fn handle(&mut self, input: Input<'_>) -> Result<(), Fault> {
        let fault = |why: BackendError| why.fault().expect("a server in this process has no other error");
        self.driver.handle(self.now(), input).map_err(fault)
    }

    /// Handles the exit of a rank's process. The last requests of the rank are read first.
    pub(crate) fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Error> {
        self.accept(job)?;
        self.driver.exited(job, rank, exit, self.clock.now())?;
        self.poll_driver()
    }

    /// Reads the last requests of a rank whose process has ended.
    pub(crate) fn read_last(&mut self, job: JobId, rank: Rank) -> Result<(), Error> {
        self.accept(job)?;
        self.driver.read_last(job, rank);
        self.poll_driver()
    }

    /// Closes a job's connections and its port, and deregisters it.
    pub(crate) fn close(&mut self, job: JobId) -> Result<(), Error> {
        self.deregister(job)?;
        if let Some(port) = self.ports.get_mut(job.index()) {
            *port = None;
        }
        self.events.retain(|event| event.job() != Some(job));
        Ok(())
    }

    /// Closes a job's connections and deregisters it. Its port stays open for another job of that number.
    pub(crate) fn deregister(&mut self, job: JobId) -> Result<(), Error> {
        self.driver.deregister_job(job, self.clock.now())?;
        self.poll_driver()
    }

    /// The server.
    pub(crate) fn server(&self) -> &Server<'s> {
        self.driver.backend()
    }

    /// Registered jobs with their numbers of ranks, in ascending order.
    pub(crate) fn jobs(&self) -> impl Iterator<Item = (JobId, u32)> {
        let jobs = (0..).map(JobId).zip(&self.ports);
        jobs.filter_map(|(job, port)| Some((job, port.as_ref()?.size)))
    }

    /// Address of the client of a connection.
    pub(crate) fn peer_addr(&self, conn: ConnId) -> Option<SocketAddr> {
        self.driver.peer_addr(conn).and_then(|from| from.try_into().ok())
    }

    /// State of the server.
    pub(crate) fn report(&self) -> BoardReport {
        let used = self.driver.backend().used(Limit::Conns);
        let free_sockets = self.counters.sockets - used.min(self.counters.sockets);
        let traffic = self.driver.traffic();
        BoardReport {
            uptime: self.now(),
            free_sockets,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
            ..self.counters
        }
    }

    /// Returns the used and the total number of slots of a limit.
    pub(crate) fn usage(&self, limit: Limit) -> (u32, u32) {
        let server = self.driver.backend();
        (server.used(limit), server.limits().of(limit))
    }

    /// Returns the bytes of the server's journal since the last call.
    pub(crate) fn take_journal(&mut self) -> Vec<u8> {
        self.driver.backend_mut().take_journal()
    }

    /// Waits for events of the endpoint's descriptors or until `deadline`, and handles them. Replaces `tokens` by all that
    /// are ready, the owner's included.
    pub(crate) fn turn(&mut self, deadline: Option<u64>, tokens: &mut Vec<Token>) -> Result<(), Error> {
        let timeout = self.timeout(deadline);
        self.poller.wait(timeout, &mut self.keys)?;
        tokens.clear();
        tokens.extend(self.keys.iter().filter_map(|&key| Token::of(key)));
        for &token in &*tokens {
            match token {
                Token::Listener(job) => self.accept(JobId(job))?,
                Token::Conn(key) => {
                    self.driver.ready(key, self.clock.now(), &self.poller)?;
                    self.poll_driver()?;
                }
                Token::Log => self.log.flush(&self.poller),
                Token::Status(key) => self.status_ready(key),
                Token::Signals
                | Token::Manage
                | Token::Host(_)
                | Token::Bell
                | Token::Link(_)
                | Token::Lone(_) => {}
            }
        }
        self.handle_timeout()
    }

    fn timeout(&mut self, deadline: Option<u64>) -> Option<Duration> {
        if !self.events.is_empty() {
            return Some(Duration::ZERO);
        }
        let ports = self.ports.iter().flatten().map(|port| port.listener.deadline());
        let status = self.status.as_ref().and_then(Status::poll_at);
        self.clock.timeout([self.driver.poll_at(), deadline, status].into_iter().chain(ports))
    }

    fn handle_timeout(&mut self) -> Result<(), Error> {
        let now = self.now();
        if self.driver.handle_timeout(now)? {
            self.poll_driver()?;
        }
        if let Some(status) = &mut self.status {
            status.handle_timeout(&self.poller, now);
        }
        let mut ports = self.ports.iter_mut().flatten();
        Ok(ports.try_for_each(|port| port.listener.resume(&self.poller, now))?)
    }

    /// Reads pending signals. Returns the first that ends the server.
    pub(crate) fn take_signals(&mut self) -> Result<Option<Signal>, Error> {
        let mut events = Vec::new();
        let Some(signals) = &mut self.signals else { return Ok(None) };
        signals.read(&mut events)?;
        if events.contains(&signals::Event::Stop) {
            signals.stop_process();
        }
        let ends = |event: &signals::Event| match event {
            signals::Event::Forward(signal) if !matches!(*signal, Signal::USR1 | Signal::USR2) => {
                Some(*signal)
            }
            _ => None,
        };
        Ok(events.iter().find_map(ends))
    }

    fn accept(&mut self, job: JobId) -> Result<(), Error> {
        let now = self.now();
        let Some(port) = self.ports.get_mut(job.index()).and_then(Option::as_mut) else { return Ok(()) };
        if port.paused {
            port.listener.pause(&self.poller, now);
            return Ok(());
        }
        let mut accepted = Vec::new();
        let result = port.listener.socket().accept(&mut accepted);
        accepted.into_iter().try_for_each(|client| self.open_conn(job, client))?;
        let Err(error) = result else { return Ok(()) };
        // The port stays readable, so the next turn accepts in place of the client that was closed here.
        if is_out_of_files(&error) && self.driver.displace(now)? {
            return self.poll_driver();
        }
        self.log(&format!("warning: paused accepting connections: {error}"));
        if let Some(port) = self.ports.get_mut(job.index()).and_then(Option::as_mut) {
            port.listener.pause(&self.poller, now);
        }
        Ok(())
    }

    /// Returns whether clients from this address are accepted. Logs the first refusal, and then the number of refusals
    /// whenever it has grown tenfold.
    pub(crate) fn allows(&mut self, from: SocketAddr) -> bool {
        let allowed = self.allow.is_empty() || self.allow.iter().any(|network| network.contains(from.ip()));
        if !allowed {
            self.foreign += 1;
            if let Some(line) = foreign_line(self.foreign, from) {
                self.log(&line);
            }
        }
        allowed
    }

    fn open_conn(&mut self, job: JobId, client: Client) -> Result<(), Error> {
        let Ok(from) = client.stream.peer_addr() else { return Ok(()) };
        if !self.allows(from) {
            return Ok(());
        }
        let now = self.now();
        if self.driver.make_room(now)? {
            self.poll_driver()?;
        }
        match self.driver.open_client(client, job, now, &self.poller)? {
            Some(_) => self.counters.accepted = self.counters.accepted.saturating_add(1),
            None => {
                self.counters.turned_away = self.counters.turned_away.saturating_add(1);
                self.log(&format!("refused {from}: limit conns is used up; raise it with --limit conns=N"));
            }
        }
        Ok(())
    }

    /// Sends replies and converts events of the driver to events of jobs.
    pub(crate) fn poll_driver(&mut self) -> Result<(), Error> {
        loop {
            let now = self.clock.now();
            match self.driver.poll(now, &self.poller)? {
                Some(event) => self.take_event(event),
                None => {
                    if let Some(error) = self.driver.backend_mut().take_error() {
                        self.log(&format!("{error}; later jobs are not recorded"));
                    }
                    match self.driver.backend_mut().take_limit_hit() {
                        Some(limit) => self.events.push_back(JobEvent::Full { limit }),
                        None => return Ok(()),
                    }
                }
            }
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::Closed { job, rank, why, .. } => self.take_closed(job, rank, why),
            Event::Output(output) => self.events.push_back(JobEvent::Output(output)),
        }
    }

    fn take_closed(&mut self, job: JobId, rank: Option<Rank>, why: CloseReason) {
        match why {
            CloseReason::Overrun => {
                let whose = rank.map_or("a connection that was no rank's".to_owned(), |rank| {
                    format!("the connection of rank {rank} of job {job}")
                });
                self.log(&format!("closed {whose}: {OVERRUN}"));
                self.counters.closed = self.counters.closed.saturating_add(1);
            }
            // The rank has another connection.
            CloseReason::Backend(Closing::Replaced) => return,
            CloseReason::Backend(why) if why != Closing::JobOver => {
                self.counters.closed = self.counters.closed.saturating_add(1);
                self.events.push_back(JobEvent::Closed { job, rank, why });
            }
            CloseReason::OtherProtocol(Speaks::Pmi) => {
                self.events.push_back(JobEvent::Closed { job, rank: None, why: Closing::Unserved });
            }
            CloseReason::Backend(_)
            | CloseReason::TooLong(_)
            | CloseReason::Ended
            | CloseReason::NoHandshake
            | CloseReason::OtherProtocol(_) => {}
        }
        if let Some(rank) = rank {
            let finalized = self.server().rank_report(job, rank).is_some_and(|report| report.finalized);
            self.events.push_back(JobEvent::Left { job, rank, finalized });
        }
    }
}

/// Returns the line for the log about the refused connection with this number: the first and each power of ten.
fn foreign_line(number: u64, from: SocketAddr) -> Option<String> {
    match number {
        1 => Some(format!("refused {from}: --allow has no network with this address")),
        _ if 10_u64.pow(number.ilog10()) == number => Some(format!(
            "refused {number} connections from addresses outside the networks of --allow, the last one from {from}"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use hydrant_core::OwnedOutput;
    use hydrant_core::server::JobSpec;

    use super::*;
    use hydrant_driver::MappedStorage;

    const JOB: JobId = JobId(0);

    /// An endpoint with a job of `size` ranks, and the port of it.
    fn endpoint<'s>(size: u32, storage: &'s mut MappedStorage, limits: Limits) -> (Endpoint<'s>, SocketAddr) {
        let server = RecordedServer::new(Server::new(limits, storage.lend(), 1).unwrap(), 1, None);
        let reactor = Reactor::new(Token::Signals).unwrap();
        let mut endpoint = Endpoint::new(&[], &limits, server, reactor).unwrap();
        endpoint.handle(Input::RegisterJob(JobSpec::new(JOB, "kvs_0", size))).unwrap();
        let port = TcpPort::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = port.addr();
        endpoint.open(JOB, size, port).unwrap();
        (endpoint, addr)
    }

    /// The next event, as text.
    fn next(endpoint: &mut Endpoint<'_>) -> JobEvent {
        let mut tokens = Vec::new();
        loop {
            if let Some(event) = endpoint.next_event() {
                return event;
            }
            endpoint.turn(None, &mut tokens).unwrap();
        }
    }

    fn client(addr: SocketAddr, rank: u32) -> TcpStream {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(format!("cmd=initack pmiid={rank}\n").as_bytes()).unwrap();
        stream
    }

    // Fault: Clients outside `--allow` connect without end
    // Outcome: closed; the log grows by one line for each tenfold number
    // Guarantee: The first refusal is logged, and the tenfold of each number
    #[test]
    fn refused_addresses_fill_no_log() {
        let from = ([10, 0, 0, 1], 5).into();
        let lines: Vec<String> = (1..=100_000).filter_map(|number| foreign_line(number, from)).collect();
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[0], "refused 10.0.0.1:5: --allow has no network with this address");
        assert!(
            lines[5].starts_with("refused 100000 connections ") && lines[5].ends_with(" from 10.0.0.1:5")
        );
    }

    #[test]
    fn a_rank_joins_and_leaves() {
        let limits = Limits::for_ranks(2);
        let mut storage = MappedStorage::new(&limits);
        let (mut endpoint, addr) = endpoint(2, &mut storage, limits);
        let mut stream = client(addr, 1);
        let from = stream.local_addr().unwrap();
        match next(&mut endpoint) {
            JobEvent::Output(OwnedOutput::Joined { job: JOB, rank: Rank(1), conn }) => {
                assert_eq!(endpoint.peer_addr(conn), Some(from));
            }
            other => panic!("{other:?}"),
        }
        assert!(stream.read(&mut [0; 256]).unwrap() > 0);
        let report = endpoint.report();
        assert_eq!((report.jobs, report.accepted, report.bytes_in), (1, 1, 20));
        assert!(report.bytes_out > 0);
        drop(stream);
        let left = next(&mut endpoint);
        assert!(matches!(left, JobEvent::Left { rank: Rank(1), finalized: false, .. }), "{left:?}");
    }

    #[test]
    fn a_client_that_sends_something_else_is_closed() {
        let limits = Limits::for_ranks(1);
        let mut storage = MappedStorage::new(&limits);
        let (mut endpoint, addr) = endpoint(1, &mut storage, limits);
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let closed = next(&mut endpoint);
        assert!(matches!(closed, JobEvent::Closed { rank: None, .. }), "{closed:?}");
        assert_eq!(endpoint.report().closed, 1);
    }

    #[test]
    fn the_end_of_a_rank_does_not_wait_for_a_stranger() {
        let limits = Limits::for_ranks(2);
        let mut storage = MappedStorage::new(&limits);
        let (mut endpoint, addr) = endpoint(2, &mut storage, limits);
        let mut stream = client(addr, 1);
        assert!(matches!(next(&mut endpoint), JobEvent::Output(OwnedOutput::Joined { rank: Rank(1), .. })));
        let mut stranger = TcpStream::connect(addr).unwrap();
        let greetings = b"cmd=init pmi_version=2 pmi_subversion=0\n".repeat(1000);
        stranger.write_all(&greetings).unwrap();
        let last = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=finalize\n";
        stream.write_all(last).unwrap();
        let before = endpoint.report().bytes_in;
        endpoint.exited(JOB, Rank(1), Exit::Code(0)).unwrap();
        assert!(endpoint.server().rank_report(JOB, Rank(1)).unwrap().finalized, "its last request is read");
        assert!(endpoint.report().bytes_in - before < greetings.len() as u64 / 2);
    }

    #[test]
    fn a_paused_job_accepts_no_client() {
        let limits = Limits::for_ranks(1);
        let mut storage = MappedStorage::new(&limits);
        let (mut endpoint, addr) = endpoint(1, &mut storage, limits);
        endpoint.pause(JOB, true).unwrap();
        let _stream = client(addr, 0);
        let mut tokens = Vec::new();
        endpoint.turn(None, &mut tokens).unwrap();
        assert_eq!((tokens.as_slice(), endpoint.report().accepted), (&[Token::Listener(0)][..], 0));
        endpoint.pause(JOB, false).unwrap();
        let listener = &endpoint.ports[0].as_ref().unwrap().listener;
        assert_eq!(listener.deadline(), None, "it waits for no timer");
        assert!(matches!(next(&mut endpoint), JobEvent::Output(OwnedOutput::Joined { rank: Rank(0), .. })));
    }

    #[test]
    fn the_number_of_a_closed_job_is_free() {
        let limits = Limits::for_ranks(1);
        let mut storage = MappedStorage::new(&limits);
        let (mut endpoint, addr) = endpoint(1, &mut storage, limits);
        let _stream = client(addr, 0);
        assert!(matches!(next(&mut endpoint), JobEvent::Output(OwnedOutput::Joined { .. })));
        assert_eq!(endpoint.free_id(), JobId(1));
        endpoint.close(JOB).unwrap();
        assert_eq!(endpoint.free_id(), JOB);
        assert!(endpoint.next_event().is_none() && endpoint.server().job_report(JOB).is_none());
        assert!(TcpStream::connect(addr).is_err());
    }
}
