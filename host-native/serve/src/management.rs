//! Management server of `hydrant serve --manage ADDR:PORT`: sockets of hosts, and the [`Service`] that they manage.
//!
//! Several hosts may have nodes served at the same time.

mod lone;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use hydrant_board::manage::{Connection, ConnectionError};
use hydrant_core::limits::MESSAGE_MAX;
use hydrant_core::manage::server::{Config, HostSlot, ManagementServer, Next, Service};
use hydrant_core::manage::{BadRecord, BoardReport, Error, OpenLink, OpenNode, PREFIX, RECORD_MAX, Report};
use hydrant_core::peer::LINKS_MAX;
use hydrant_core::server::call::BYTES_MAX;
use hydrant_core::trace::SignalName;
use hydrant_core::{Limit, OwnedOutput, Server};
use hydrant_driver::{Client, HANDSHAKE_TIMEOUT, MappedStorage, PORT_FILES, TcpPort, is_out_of_files};
use hydrant_reactor::{Interest, Listener, OpenFiles, Reactor, announce, random_u32};

use crate::endpoint::{Endpoint, OWN_FILES};
use crate::error::Error as ServiceError;
use crate::event::JobEvent;
use crate::link_arrivals::{Arrival, ArrivalSender};
use crate::node::Nodes;
use crate::options::Options;
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
        nodes: Nodes::most(&limits),
        message_max: MESSAGE_MAX,
        links: Some(LINKS_MAX),
        calls: Some(BYTES_MAX as u32),
        request_timeout: HANDSHAKE_TIMEOUT,
    };
    let mut hosts = vec![HostSlot::EMPTY; HOSTS];
    let mut management = Management {
        managed: Managed { options, endpoint, nodes: Nodes::default(), lone: Vec::new(), opening: None },
        listener,
        hosts: std::iter::repeat_with(|| None).take(HOSTS).collect(),
        server: ManagementServer::new(config, &mut hosts),
        refused: BTreeSet::new(),
    };
    let status = management.managed.endpoint.open_status(Processes::Reported, &name, &address);
    if let Err(error) = status {
        management.managed.log_verbose(|| error.to_string());
    }
    // Standard output may be closed.
    let _ = announce(format_args!("hydrant serve: managed at {address}"));
    management.run()
}

/// Event loop of the management server.
struct Management<'o, 's> {
    managed: Managed<'o, 's>,
    listener: Listener<TcpPort>,
    /// Connections by host number.
    hosts: Vec<Option<HostConnection>>,
    server: ManagementServer<'o>,
    /// Users of this machine whose hosts were refused, each of which is logged once.
    refused: BTreeSet<u32>,
}

/// Connection of a host.
#[derive(Debug)]
struct HostConnection {
    connection: Connection,
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
                let jobs = self.managed.nodes.running_jobs() + self.managed.lone_jobs();
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
        while let Some(number) = self.server.expired(now) {
            self.disconnect(number, &ConnectionError::Silent);
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
        if is_out_of_files(&error) && self.displace() {
            return Ok(());
        }
        self.log(&format!("warning: paused accepting hosts: {error}"));
        let now = self.managed.endpoint.now();
        self.listener.pause(self.managed.endpoint.poller(), now);
        Ok(())
    }

    /// Closes the connection that is the oldest without a handshake. Returns whether there was one.
    fn displace(&mut self) -> bool {
        let oldest = self.server.oldest_silent();
        oldest.into_iter().for_each(|oldest| self.disconnect(oldest, &ConnectionError::Displaced));
        oldest.is_some()
    }

    fn connect(&mut self, client: Client) -> Result<(), ServiceError> {
        let Client { stream, user, .. } = client;
        let Ok(from) = stream.peer_addr() else { return Ok(()) };
        if !self.managed.endpoint.allows(from) {
            return Ok(());
        }
        let Ok(mut connection) = Connection::of_server(stream, self.managed.options.secret.as_ref()) else {
            return Ok(());
        };
        if self.server.free_host().is_none() {
            self.displace();
        }
        let Some(number) = self.server.free_host() else {
            self.log(&format!("refused {from}: {HOSTS} hosts are connected"));
            // The connection is closed in any case.
            let _ = connection.send(&Report::Refused(Error::Busy));
            return Ok(());
        };
        let token = Token::Host(number as u32);
        self.managed.endpoint.poller().add(connection.stream(), token, Interest::Read)?;
        self.server.connected(number, self.managed.endpoint.now());
        self.hosts[number] = Some(HostConnection { connection, from, user, blocked: false });
        Ok(())
    }

    /// Handles a host's socket that is readable or writable.
    fn host_ready(&mut self, number: usize) -> Result<(), ServiceError> {
        if let Err(why) = self.receive(number)? {
            self.disconnect(number, &why);
        }
        Ok(())
    }

    /// Carries out the requests that a host has sent.
    fn receive(&mut self, number: usize) -> Result<Result<(), ConnectionError>, ServiceError> {
        let Some(host) = self.hosts.get_mut(number).and_then(Option::as_mut) else { return Ok(Ok(())) };
        if let Err(why) = host.connection.flush().and_then(|()| host.connection.fill()) {
            return Ok(Err(why));
        }
        let greeted = self.server.is_greeted(number);
        let mut reply = [0; PREFIX + RECORD_MAX];
        while let Some(host) = self.hosts[number].as_mut() {
            let (from, bytes) = ((number, self.managed.endpoint.now()), host.connection.received());
            let Some(received) = self.server.receive(&mut self.managed, from, bytes, &mut reply) else {
                if host.connection.is_ended() {
                    return Ok(Err(ConnectionError::Closed));
                }
                break;
            };
            host.connection.consume(received.consumed);
            let sent = host.connection.send_encoded(received.reply);
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
        self.managed.endpoint.poller().remove(host.connection.stream());
        let open = match opening {
            Opening::Node(open) if is_lone(&open) => return self.add_lone(host, &open),
            Opening::Node(open) => open,
            Opening::Link(from, sender) => {
                sender.send(Arrival::Child(from, host.connection));
                return Ok(());
            }
        };
        let (node, from) = (open.node, host.from);
        match self.managed.nodes.start((host.connection, host.user), open, self.managed.options) {
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
        let blocked = host.connection.is_blocked();
        if blocked != host.blocked {
            host.blocked = blocked;
            let interest = if blocked { Interest::Write } else { Interest::Read };
            let token = Token::Host(number as u32);
            let changed = self.managed.endpoint.poller().modify(host.connection.stream(), token, interest);
            changed.map_err(|error| ConnectionError::Io(error.why))?;
        }
        Ok(())
    }

    fn disconnect(&mut self, number: usize, why: &ConnectionError) {
        let Some(host) = self.hosts[number].take() else { return };
        if !matches!(why, ConnectionError::Closed) {
            self.log(&format!("closed the connection of host {}: {why}", host.from));
        }
        self.server.disconnected(number);
    }

    /// Sends events of the jobs.
    fn send_events(&mut self) -> Result<(), ServiceError> {
        while let Some(event) = self.managed.endpoint.next_event() {
            self.send_event(&event)?;
        }
        Ok(())
    }

    fn send_event(&mut self, event: &JobEvent) -> Result<(), ServiceError> {
        if let JobEvent::Full { limit } = *event {
            let size = self.managed.endpoint.usage(limit).1;
            // The host says what a spawn needs.
            if limit != Limit::SpawnBytes {
                self.log(&format!("limit {} ({size}) is used up", limit.name()));
            }
            return self.send_limit_hit(limit, size);
        }
        if self.managed.options.verbose
            && let Some((job, text)) = event.job().zip(describe(event))
        {
            self.log(&format!("job {job}: {text}"));
        }
        self.send_to_lone(event)
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
}

/// Use of a connection after its last request.
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
}

impl Service for Managed<'_, '_> {
    fn board_report(&self) -> BoardReport {
        self.endpoint.report()
    }

    fn usage(&self, limit: Limit) -> (u32, u32) {
        self.endpoint.usage(limit)
    }

    fn begin_node(&mut self, node: &OpenNode) -> Result<(), Error> {
        if is_lone(node) { self.check_lone(node) } else { self.nodes.check(node) }?;
        self.opening = Some(Opening::Node(*node));
        Ok(())
    }

    fn begin_link(&mut self, link: &OpenLink) -> Result<(), Error> {
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
fn describe(event: &JobEvent) -> Option<String> {
    Some(match event {
        JobEvent::Closed { rank: Some(rank), why, .. } => {
            format!("closed the connection of rank {rank}: {why}")
        }
        JobEvent::Closed { why, .. } => format!("closed a connection without a rank: {why}"),
        JobEvent::Output(output) => match output {
            OwnedOutput::Joined { rank, .. } => format!("rank {rank} has joined"),
            OwnedOutput::AbortJob { cause, message, .. } => format!("aborted, {cause}{}", in_a_line(message)),
            OwnedOutput::KillRank { rank, message, .. } => {
                format!("rank {rank} aborted itself{}", in_a_line(message))
            }
            OwnedOutput::StalledFence { arrived, size, missing, .. } => {
                format!("stalled fence: {arrived} of {size} ranks have arrived, missing {missing}")
            }
            OwnedOutput::RemoveFiles { rank, paths, .. } => {
                format!("rank {rank} leaves {}", paths.escape_ascii())
            }
            OwnedOutput::Log { rank, text, .. } => format!("rank {rank} logs {}", text.escape_ascii()),
            _ => return None,
        },
        JobEvent::Left { .. } | JobEvent::Full { .. } => return None,
    })
}
