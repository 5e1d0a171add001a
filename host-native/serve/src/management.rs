//! Management server of `hydrant serve --manage ADDR:PORT`: sockets of hosts, and the [`Service`] that they manage.
//!
//! Several hosts may manage jobs at the same time. Each one manages and queries the jobs that were opened from its address.

mod lone;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::SocketAddr;

use hydrant_board::manage::{Connection, ConnectionError};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::manage::server::{
    Config, Expired, Failure, HostSlot, JobSlot, ManagementServer, Next, Service,
};
use hydrant_core::manage::{
    BadRecord, BoardReport, Error, JobReport, OpenJob, OpenLink, OpenNode, PREFIX, RECORD_MAX, RankReport,
    Report,
};
use hydrant_core::peer::LINKS_MAX;
use hydrant_core::server::JobSpec;
use hydrant_core::server::call::BYTES_MAX;
use hydrant_core::trace::{Exit, SignalName};
use hydrant_core::{Fault, Input, JobId, Limit, Output, Rank, Server};
use hydrant_driver::{Client, HANDSHAKE_TIMEOUT, MappedStorage, PORT_FILES, TcpPort, is_out_of_files};
use hydrant_reactor::{Interest, Listener, OpenFiles, Reactor, random_u32};

use crate::endpoint::{Endpoint, OWN_FILES};
use crate::error::Error as ServiceError;
use crate::event::{JobEvent, truncate};
use crate::link_arrivals::{Arrival, ArrivalSender};
use crate::node::Nodes;
use crate::options::Options;
use crate::ports::{of_host, open_port};
use crate::recorded::RecordedServer;
use crate::status::Processes;
use crate::token::Token;
use lone::{LONE_MAX, LoneNode, is_lone};

/// Maximum number of connected hosts.
const HOSTS: usize = 64;

/// Serves the jobs of hosts until a signal arrives. Returns the exit code.
pub(crate) fn serve(options: &Options, addr: SocketAddr) -> Result<u8, ServiceError> {
    let limits = options.limits_managed();
    let reactor = Reactor::new(Token::Signals)?;
    let files =
        OWN_FILES + u64::from(limits.conns) + PORT_FILES * u64::from(limits.jobs) + (HOSTS + LONE_MAX) as u64;
    let _files = OpenFiles::reserve(files)?;
    let mut storage = MappedStorage::try_new(&limits)?;
    let seed = random_u32()?;
    let server = Server::new(limits, storage.lend(), seed)?;
    let server = RecordedServer::new(server, seed, options.record.clone());
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let endpoint = Endpoint::new(&options.job.allow, &limits, server, reactor)?;
    let port = TcpPort::open(addr)?;
    // The secret decides where there is one: the server may run as a user of its own.
    let port = if options.secret.is_some() { port.for_user(None) } else { port };
    let address = port.for_ranks(&name);
    let listener = Listener::new(port, Token::Manage, endpoint.poller())?;
    let config = Config {
        name: &name,
        limits,
        pmi_port: options.job.pmi_port.port(),
        message_max: MESSAGE_MAX,
        records: false,
        exclusive: false,
        nodes: Some(Nodes::most(&limits)),
        links: Some(LINKS_MAX),
        calls: Some(BYTES_MAX as u32),
        drop_orphans: true,
        handshake_timeout: HANDSHAKE_TIMEOUT,
        keep_timeout: options.keep_timeout.map(|time| time.as_millis().try_into().unwrap_or(u64::MAX)),
    };
    let mut hosts = vec![HostSlot::EMPTY; HOSTS];
    let mut jobs = vec![JobSlot::EMPTY; limits.jobs as usize];
    let mut management = Management {
        managed: Managed {
            options,
            endpoint,
            nodes: Nodes::default(),
            lone: Vec::new(),
            opening: None,
            user: None,
        },
        listener,
        hosts: std::iter::repeat_with(|| None).take(HOSTS).collect(),
        server: ManagementServer::new(config, &mut hosts, &mut jobs),
        refused: BTreeSet::new(),
    };
    let status = management.managed.endpoint.open_status(Processes::Reported, &name, &address);
    if let Err(error) = status {
        management.managed.log_verbose(|| error.to_string());
    }
    // Standard output may be closed.
    let _ = writeln!(std::io::stdout(), "hydrant serve: managed at {address}");
    management.run()
}

/// Event loop of the management server.
struct Management<'o, 's> {
    managed: Managed<'o, 's>,
    listener: Listener<TcpPort>,
    /// Connections by host number.
    hosts: Vec<Option<Host>>,
    server: ManagementServer<'o>,
    /// Users of this machine whose hosts were refused, each of which is logged once.
    refused: BTreeSet<u32>,
}

/// Connection of a host.
#[derive(Debug)]
struct Host {
    link: Connection,
    from: SocketAddr,
    /// User of its process, if it is on this machine.
    user: Option<u32>,
    /// The send buffer is full, and the socket is polled for writing.
    blocked: bool,
}

impl Management<'_, '_> {
    fn run(&mut self) -> Result<u8, ServiceError> {
        let mut tokens = Vec::new();
        loop {
            let deadline = [self.server.poll_at(), self.listener.deadline()];
            self.managed.endpoint.turn(deadline.into_iter().flatten().min(), &mut tokens)?;
            self.send_events()?;
            for &token in &tokens {
                match token {
                    Token::Manage => self.accept()?,
                    Token::Host(number) => self.host_ready(number as usize)?,
                    Token::Lone(number) => self.lone_ready(number)?,
                    _ => {}
                }
            }
            self.send_events()?;
            self.handle_timeouts()?;
            if tokens.contains(&Token::Signals)
                && let Some(signal) = self.managed.endpoint.take_signals()?
            {
                let number = signal.as_raw() as u8;
                let of_nodes = self.managed.nodes.running_jobs() + self.managed.lone_jobs();
                let jobs = self.server.running_jobs() + of_nodes;
                if jobs == 0 {
                    return Ok(0);
                }
                self.log(&format!("ended by {}: {jobs} jobs were being served", SignalName(number.into())));
                return Ok(number.saturating_add(128));
            }
        }
    }

    fn log(&mut self, line: &str) {
        self.managed.endpoint.log(line);
    }

    fn handle_timeouts(&mut self) -> Result<(), ServiceError> {
        let now = self.managed.endpoint.now();
        while let Some((number, expired)) = self.server.expired(now) {
            let why = match expired {
                Expired::Handshake => ConnectionError::Silent,
                Expired::Stalled => ConnectionError::Stalled,
            };
            self.disconnect(number, &why)?;
        }
        while let Some(job) = self.server.drop_abandoned(&mut self.managed, now)? {
            self.log(&format!(
                "dropped job {job}: it was kept without its host for the time of --keep-timeout"
            ));
        }
        Ok(self.listener.resume(self.managed.endpoint.poller(), now)?)
    }

    fn accept(&mut self) -> Result<(), ServiceError> {
        let mut accepted = Vec::new();
        let result = self.listener.socket().accept(&mut accepted);
        accepted.into_iter().try_for_each(|client| self.connect(client))?;
        if let Some(user) = self.listener.socket().take_refused()
            && self.refused.len() < HOSTS
            && self.refused.insert(user)
        {
            self.log(&format!(
                "refused hosts of user {user}: set --secret-file FILE on both sides to accept other users"
            ));
        }
        let Err(error) = result else { return Ok(()) };
        // The port stays readable, so the next turn accepts in place of the host that was displaced.
        if is_out_of_files(&error) && self.displace()? {
            return Ok(());
        }
        self.log(&format!("warning: paused accepting hosts: {error}"));
        let now = self.managed.endpoint.now();
        self.listener.pause(self.managed.endpoint.poller(), now);
        Ok(())
    }

    /// Closes the connection that is the oldest without a handshake. Returns whether there was one.
    fn displace(&mut self) -> Result<bool, ServiceError> {
        let Some(oldest) = self.server.oldest_silent() else { return Ok(false) };
        self.disconnect(oldest, &ConnectionError::Displaced)?;
        Ok(true)
    }

    fn connect(&mut self, client: Client) -> Result<(), ServiceError> {
        let Client { stream, user, .. } = client;
        let Ok(from) = stream.peer_addr() else { return Ok(()) };
        if !self.managed.endpoint.allows(from) {
            return Ok(());
        }
        let Ok(mut link) = Connection::of_server(stream, self.managed.options.secret.as_ref()) else {
            return Ok(());
        };
        if self.server.free_host().is_none() {
            self.displace()?;
        }
        let Some(number) = self.server.free_host() else {
            self.log(&format!("refused {from}: {HOSTS} hosts are connected"));
            // The connection is closed in any case.
            let _ = link.send(&Report::Refused(Error::Busy));
            return Ok(());
        };
        let token = Token::Host(number as u32);
        self.managed.endpoint.poller().add(link.stream(), token, Interest::Read)?;
        self.server.connected(number, from.ip().to_canonical(), self.managed.endpoint.now());
        self.hosts[number] = Some(Host { link, from, user, blocked: false });
        Ok(())
    }

    /// Handles a host's socket that is readable or writable.
    fn host_ready(&mut self, number: usize) -> Result<(), ServiceError> {
        match self.receive(number)? {
            Ok(()) => Ok(()),
            Err(why) => self.disconnect(number, &why),
        }
    }

    /// Carries out the requests that a host has sent.
    fn receive(&mut self, number: usize) -> Result<Result<(), ConnectionError>, ServiceError> {
        let Some(host) = self.hosts.get_mut(number).and_then(Option::as_mut) else { return Ok(Ok(())) };
        if let Err(why) = host.link.flush().and_then(|()| host.link.fill()) {
            return Ok(Err(why));
        }
        let greeted = self.server.is_greeted(number);
        let mut reply = [0; PREFIX + RECORD_MAX];
        while let Some(host) = self.hosts[number].as_mut() {
            self.managed.user = host.user;
            let bytes = host.link.received();
            let Some(received) = self.server.receive(&mut self.managed, number, bytes, &mut reply)? else {
                if host.link.is_ended() {
                    return Ok(Err(ConnectionError::Closed));
                }
                break;
            };
            host.link.consume(received.consumed);
            let sent = host.link.send_encoded(received.reply);
            if received.next == Next::Close {
                return Ok(Err(BadRecord::Malformed.into()));
            }
            if let Err(why) = sent {
                return Ok(Err(why));
            }
            if received.next == Next::Node {
                self.pass_on(number)?;
                return Ok(Ok(()));
            }
        }
        if !greeted
            && self.server.is_greeted(number)
            && self.managed.options.verbose
            && let Some(host) = &self.hosts[number]
        {
            let line = format!("host {} connected", host.from);
            self.log(&line);
        }
        Ok(self.update_interest(number))
    }

    /// Passes a connection on: to a lone node, to the thread of a new node, or to that of a node it links to.
    fn pass_on(&mut self, number: usize) -> Result<(), ServiceError> {
        let Some((host, opening)) = self.hosts[number].take().zip(self.managed.opening.take()) else {
            return Ok(());
        };
        self.managed.endpoint.poller().remove(host.link.stream());
        let open = match opening {
            Opening::Node(open) if is_lone(&open) => return self.add_lone(host, &open),
            Opening::Node(open) => open,
            Opening::Link(from, sender) => {
                sender.send(Arrival::Child(from, host.link));
                return Ok(());
            }
        };
        let (node, from) = (open.node, host.from);
        match self.managed.nodes.start((host.link, host.user), open, self.managed.options) {
            Ok(()) => self.managed.log_verbose(|| format!("host {from} has node {node}")),
            Err(why) => {
                self.log(&format!("closed the connection of host {from}: cannot start a thread: {why}"))
            }
        }
        Ok(())
    }

    /// Polls a host for writing while its send buffer is full, and for reading otherwise.
    fn update_interest(&mut self, number: usize) -> Result<(), ConnectionError> {
        let Some(host) = self.hosts[number].as_mut() else { return Ok(()) };
        let blocked = host.link.is_blocked();
        self.server.set_blocked(number, blocked, self.managed.endpoint.now());
        if blocked != host.blocked {
            host.blocked = blocked;
            let interest = if blocked { Interest::Write } else { Interest::Read };
            let token = Token::Host(number as u32);
            let changed = self.managed.endpoint.poller().modify(host.link.stream(), token, interest);
            changed.map_err(|error| ConnectionError::Io(error.why))?;
        }
        Ok(())
    }

    fn disconnect(&mut self, number: usize, why: &ConnectionError) -> Result<(), ServiceError> {
        let Some(host) = self.hosts[number].take() else { return Ok(()) };
        if !matches!(why, ConnectionError::Closed) {
            self.log(&format!("closed the connection of host {}: {why}", host.from));
        }
        let now = self.managed.endpoint.now();
        self.server.disconnected(&mut self.managed, number, now)
    }

    fn send(&mut self, number: usize, report: &Report<'_>) -> Result<(), ServiceError> {
        let Some(host) = self.hosts.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
        match host.link.send(report).and_then(|()| self.update_interest(number)) {
            Ok(()) => Ok(()),
            Err(why) => self.disconnect(number, &why),
        }
    }

    /// Sends events of the jobs.
    fn send_events(&mut self) -> Result<(), ServiceError> {
        while let Some(event) = self.managed.endpoint.next_event() {
            self.send_event(event)?;
        }
        while let Some((job, host)) = self.server.poll_over(&mut self.managed)? {
            host.map_or(Ok(()), |host| self.send(host, &Report::Over { job }))?;
        }
        Ok(())
    }

    fn send_event(&mut self, event: JobEvent) -> Result<(), ServiceError> {
        let (job, report) = match event {
            JobEvent::Left { job, rank, finalized } => {
                return self.server.rank_left(&mut self.managed, job, rank, finalized);
            }
            JobEvent::Full { limit } => {
                let size = self.managed.endpoint.usage(limit).1;
                // The host says what a spawn needs.
                if limit != Limit::SpawnBytes {
                    self.log(&format!("limit {} ({size}) is used up", limit.name()));
                }
                self.send_limit_hit(limit, size)?;
                let report = Report::LimitHit { limit, size };
                return (0..self.hosts.len()).try_for_each(|host| self.send(host, &report));
            }
            JobEvent::Closed { job, conn, rank, why } => (job, Report::Closed { conn, rank, why }),
            JobEvent::Output(ref output) => match output.view() {
                Output::Joined { job, rank, conn } => (job, Report::Joined { job, rank, conn }),
                Output::AbortJob { job, cause, message } => {
                    (job, Report::End { job, cause, message: truncate(message) })
                }
                Output::KillRank { job, rank, code, message } => {
                    (job, Report::Kill { job, rank, code, message: truncate(message) })
                }
                Output::StalledFence { job, arrived, size, missing } => {
                    (job, Report::Late { job, arrived, size, missing: truncate(missing) })
                }
                Output::RemoveFiles { job, rank, paths } => (job, Report::RemoveFiles { job, rank, paths }),
                Output::Log { job, rank, stream, text } => (job, Report::Log { job, rank, stream, text }),
                Output::Spawn { .. } | Output::Upcall { .. } => return self.send_upcall(&event),
                // Connections are this server's, and lone nodes have no neighbours.
                Output::Bytes { .. } | Output::Close { .. } | Output::Peer { .. } => return Ok(()),
            },
        };
        if self.managed.options.verbose {
            self.log(&format!("job {job}: {}", describe(&report)));
        }
        match self.server.event_recipient(job) {
            Some(host) => self.send(host, &report),
            None => self.send_to_lone(&event).map(drop),
        }
    }
}

/// The PMI server that hosts manage.
struct Managed<'o, 's> {
    options: &'o Options,
    endpoint: Endpoint<'s>,
    /// Nodes of runs, which have servers of their own.
    nodes: Nodes,
    /// Lone nodes by their number.
    lone: Vec<Option<LoneNode>>,
    /// What the connection is for whose host gets a reply next.
    opening: Option<Opening>,
    /// User of the host whose request is handled, if it is on this machine. Its ranks are this user's.
    user: Option<u32>,
}

/// Use of a connection that manages no jobs.
enum Opening {
    /// It is that of a node's host.
    Node(OpenNode),
    /// It links the node of this number to one that is served here.
    Link(u32, ArrivalSender),
}

impl Managed<'_, '_> {
    fn log_verbose(&mut self, line: impl FnOnce() -> String) {
        if self.options.verbose {
            self.endpoint.log(&line());
        }
    }

    /// Registers a job and opens its port, where clients wait to be accepted. Returns the port.
    fn register(&mut self, spec: JobSpec<'_>) -> Result<u16, Failure<ServiceError>> {
        let JobSpec { job, name, size, .. } = spec;
        // The port of job n is n higher than that of job 0, or the next one that is free.
        let mut addr = self.options.job.pmi_port;
        if addr.port() != 0 {
            let port = u16::try_from(u32::from(addr.port()) + job.0);
            addr.set_port(port.map_err(|_| Fault::Full(Limit::Jobs, job.0))?);
        }
        let port = match open_port(addr) {
            Ok(port) => of_host(port, self.user),
            Err(error) => {
                self.endpoint.log(&error.to_string());
                let conns = self.endpoint.usage(Limit::Conns).1;
                return Err(Fault::Full(Limit::Conns, conns).into());
            }
        };
        self.endpoint.handle(Input::RegisterJob(spec))?;
        let addr = port.addr();
        self.endpoint.open(job, size, port).map_err(Failure::Fatal)?;
        self.endpoint.pause(job, true).map_err(Failure::Fatal)?;
        self.log_verbose(|| format!("job {job} of {size} ranks is called {name}, at {addr}"));
        Ok(addr.port())
    }
}

impl Service for Managed<'_, '_> {
    type Error = ServiceError;

    fn open(&mut self, open: &OpenJob<'_>) -> Result<(JobId, u16), Failure<ServiceError>> {
        let job = self.endpoint.free_id();
        Ok((job, self.register(JobSpec::managed(job, open))?))
    }

    fn set_program(
        &mut self,
        job: JobId,
        first: Rank,
        count: u32,
        appnum: u32,
    ) -> Result<(), Failure<ServiceError>> {
        Ok(self.endpoint.handle(Input::Program { job, first, count, appnum })?)
    }

    fn set_attr(&mut self, job: JobId, key: &[u8], value: &[u8]) -> Result<(), Failure<ServiceError>> {
        Ok(self.endpoint.handle(Input::Attr { job, key, value })?)
    }

    fn define_pset(
        &mut self,
        job: JobId,
        name: &str,
        first: Rank,
        count: u32,
    ) -> Result<(), Failure<ServiceError>> {
        Ok(self.endpoint.handle(Input::Pset { job, name, first, count })?)
    }

    fn accept_clients(&mut self, job: JobId) -> Result<(), Failure<ServiceError>> {
        self.endpoint.pause(job, false).map_err(Failure::Fatal)
    }

    fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Failure<ServiceError>> {
        self.endpoint.exited(job, rank, exit).map_err(|error| match &error {
            ServiceError::Driver(why) => why.fault().map_or(Failure::Fatal(error), Failure::from),
            _ => Failure::Fatal(error),
        })
    }

    fn forget(&mut self, job: JobId) -> Result<(), Failure<ServiceError>> {
        self.log_verbose(|| format!("job {job} is over"));
        self.endpoint.close(job).map_err(Failure::Fatal)
    }

    fn job_report(&self, job: JobId) -> Option<JobReport> {
        self.endpoint.server().job_report(job)
    }

    fn rank_report(&self, job: JobId, rank: Rank) -> Option<RankReport> {
        self.endpoint.server().rank_report(job, rank)
    }

    fn board_report(&self) -> BoardReport {
        self.endpoint.report()
    }

    fn used(&self, limit: Limit) -> u32 {
        self.endpoint.usage(limit).0
    }

    fn begin_node(&mut self, _: usize, node: &OpenNode) -> Result<(), Failure<ServiceError>> {
        if is_lone(node) { self.check_lone(node) } else { self.nodes.check(node) }?;
        self.opening = Some(Opening::Node(*node));
        Ok(())
    }

    fn begin_link(&mut self, _: usize, link: &OpenLink) -> Result<(), Failure<ServiceError>> {
        let sender = self.nodes.linked.sender(link.token, link.to).ok_or(Error::NoLink)?;
        self.opening = Some(Opening::Link(link.from, sender));
        Ok(())
    }
}

/// What a rank that aborts has said, in one line of the log.
fn in_a_line(message: &str) -> String {
    match message.trim_end() {
        "" => String::new(),
        message => format!(": {}", message.replace('\n', "\\n")),
    }
}

/// Describes an event for the log.
fn describe(report: &Report<'_>) -> String {
    match report {
        Report::Joined { rank, .. } => format!("rank {rank} has joined"),
        Report::End { cause, message, .. } => format!("aborted, {cause}{}", in_a_line(message)),
        Report::Kill { rank, message, .. } => format!("rank {rank} aborted itself{}", in_a_line(message)),
        Report::Late { arrived, size, missing, .. } => {
            format!("stalled fence: {arrived} of {size} ranks have arrived, missing {missing}")
        }
        Report::Closed { rank: Some(rank), why, .. } => {
            format!("closed the connection of rank {rank}: {why}")
        }
        Report::Closed { why, .. } => format!("closed a connection without a rank: {why}"),
        Report::RemoveFiles { rank, paths, .. } => format!("rank {rank} leaves {}", paths.escape_ascii()),
        Report::Log { rank, text, .. } => format!("rank {rank} logs {}", text.escape_ascii()),
        other => format!("{other:?}"),
    }
}
