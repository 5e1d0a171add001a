//! Management server without I/O: connections of hosts and their requests.
//!
//! The embedding program owns the sockets. It reports connections, received bytes and the time to a [`ManagementServer`], which
//! decodes requests, checks them, carries them out on a [`Service`] and encodes the replies. Nothing is allocated. Hosts are
//! kept in slots that the caller lends.
//!
//! ```text
//! connected ──► receive ──► receive ──► ... ──► receive: Next::Node, the connection is that of a node or of a link
//!                  │ reply                  │
//!                  ▼                        └──► disconnected
//!               Service
//! ```

use super::{
    BoardReport, Error, OpenLink, OpenNode, Report, Request, VERSION, Welcome, decode, encode, next,
};
use crate::fault::Fault;
use crate::limits::{Limit, Limits};

/// Properties of a management server that differ between embedding programs.
#[derive(Clone, Copy, Debug)]
pub struct Config<'c> {
    /// Name of the server, for people. At most 256 bytes.
    pub name: &'c str,
    /// Largest limits of a node, as reported to hosts.
    pub nodes: Limits,
    /// Maximum length of a client's message in bytes, as reported to hosts.
    pub message_max: u32,
    /// Maximum number of children of a node that [`Service::begin_link`] accepts. `None` if nodes cannot be linked.
    pub links: Option<u32>,
    /// Maximum length of a client's bytes in a [call](crate::server::call) of a node. `None` if nodes cannot be called.
    pub calls: Option<u32>,
    /// Milliseconds that a host has for its first and for each next request.
    pub request_timeout: u64,
}

/// Service that a management server controls: nodes with their PMI servers, ports and clients.
///
/// A method that fails must leave everything unchanged.
pub trait Service {
    /// Returns the state of the server.
    fn board_report(&self) -> BoardReport;

    /// Returns how much of a limit is used, and its size.
    fn usage(&self, limit: Limit) -> (u32, u32);

    /// Prepares to serve a node for a host, whose limits are at most [`Config::nodes`]. It starts after the reply, on the host's
    /// connection.
    ///
    /// # Errors
    /// There is no capacity, or such nodes are not supported.
    fn begin_node(&mut self, node: &OpenNode) -> Result<(), Error>;

    /// Prepares to link the server of another node to one that is served here. The link uses the host's connection after the
    /// reply.
    ///
    /// # Errors
    /// No such node is served here, or links are not supported.
    fn begin_link(&mut self, _link: &OpenLink) -> Result<(), Error> {
        Err(Error::NoLink)
    }
}

/// Result of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'b> {
    /// Number of consumed bytes.
    pub consumed: usize,
    /// The encoded reply.
    pub reply: &'b [u8],
    /// The error in the reply.
    pub refused: Option<Error>,
    /// Action after sending the reply.
    pub next: Next,
}

/// Action of the embedding program on a connection after sending a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Passes further bytes to [`ManagementServer::receive`].
    Receive,
    /// Serves a node on the connection, whose number has been freed, or uses it as a link of one.
    Node,
    /// Closes the connection and reports that to [`ManagementServer::disconnected`].
    Close,
}

/// Slot for the connection of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostSlot(Option<HostConnection>);

impl HostSlot {
    /// An unused slot.
    pub const EMPTY: HostSlot = HostSlot(None);
}

#[derive(Clone, Copy, Debug)]
struct HostConnection {
    greeted: bool,
    /// Time of the connection or of the last request.
    since: u64,
}

/// A management server. See the [module documentation](self).
#[derive(Debug)]
pub struct ManagementServer<'m> {
    config: Config<'m>,
    hosts: &'m mut [HostSlot],
}

impl<'m> ManagementServer<'m> {
    /// Creates a server for as many hosts as there are slots.
    pub fn new(config: Config<'m>, hosts: &'m mut [HostSlot]) -> ManagementServer<'m> {
        hosts.fill(HostSlot::EMPTY);
        ManagementServer { config, hosts }
    }

    /// Returns an unused host number.
    pub fn free_host(&self) -> Option<usize> {
        self.hosts.iter().position(|slot| slot.0.is_none())
    }

    /// Returns the host that has been connected longest without [`Request::Hello`]. Its connection may be closed for
    /// another one.
    pub fn oldest_silent(&self) -> Option<usize> {
        let silent = self.connections().filter(|(_, host)| !host.greeted);
        silent.min_by_key(|(_, host)| host.since).map(|(number, _)| number)
    }

    /// Registers a connection of a host. `host` is an unused number below the number of slots.
    pub fn connected(&mut self, host: usize, now: u64) {
        if let Some(slot) = self.hosts.get_mut(host) {
            slot.0 = Some(HostConnection { greeted: false, since: now });
        }
    }

    /// Unregisters a connection of a host.
    pub fn disconnected(&mut self, host: usize) {
        if let Some(slot) = self.hosts.get_mut(host) {
            slot.0 = None;
        }
    }

    /// Returns whether a host has completed the handshake.
    pub fn is_greeted(&self, host: usize) -> bool {
        self.hosts.get(host).and_then(|slot| slot.0).is_some_and(|host| host.greeted)
    }

    /// Returns when to call [`expired`](ManagementServer::expired) next.
    pub fn poll_at(&self) -> Option<u64> {
        self.connections().map(|(_, host)| self.deadline(host)).min()
    }

    /// Returns a host that has sent no request for the [time](Config::request_timeout) that it has. Its connection is to be
    /// closed and reported to [`disconnected`](ManagementServer::disconnected).
    pub fn expired(&self, now: u64) -> Option<usize> {
        self.connections().find(|&(_, host)| self.deadline(host) <= now).map(|(number, _)| number)
    }

    fn deadline(&self, host: HostConnection) -> u64 {
        host.since.saturating_add(self.config.request_timeout)
    }

    fn connections(&self) -> impl Iterator<Item = (usize, HostConnection)> {
        self.hosts.iter().enumerate().filter_map(|(number, slot)| Some((number, slot.0?)))
    }

    /// Carries out the first request in `bytes`. Returns `None` if it is incomplete.
    ///
    /// The reply is encoded into `buf`, which has room for [`PREFIX`](super::PREFIX) + [`RECORD_MAX`](super::RECORD_MAX) bytes.
    pub fn receive<'b>(
        &mut self,
        service: &mut impl Service,
        (host, now): (usize, u64),
        bytes: &[u8],
        buf: &'b mut [u8],
    ) -> Option<Received<'b>> {
        let (result, consumed) = match next(bytes) {
            Ok(None) => return None,
            Ok(Some((record, consumed))) => match decode::<Request>(record) {
                Ok(request) => (self.carry_out(service, host, &request), consumed),
                Err(_) => (Err(Error::Malformed), consumed),
            },
            Err(_) => (Err(Error::Malformed), bytes.len()),
        };
        let is_over = matches!(result, Ok((_, Next::Node)));
        if let Some(slot) = self.hosts.get_mut(host) {
            slot.0 = slot.0.filter(|_| !is_over).map(|host| HostConnection { since: now, ..host });
        }
        let (report, next) = match result {
            Ok(done) => done,
            Err(Error::Malformed) => (Report::Refused(Error::Malformed), Next::Close),
            Err(error) => (Report::Refused(error), Next::Receive),
        };
        // Every reply fits, because the name of the server is short.
        let reply = encode(&report, buf).unwrap_or_default();
        Some(Received { consumed, reply, refused: result.err(), next })
    }

    fn carry_out(
        &mut self,
        service: &mut impl Service,
        host: usize,
        request: &Request,
    ) -> Result<(Report<'m>, Next), Error> {
        let is_hello = matches!(request, Request::Hello { .. });
        let connection = self.hosts.get_mut(host).and_then(|slot| slot.0.as_mut()).ok_or(Error::Handshake)?;
        if connection.greeted == is_hello {
            return Err(Error::Handshake);
        }
        match *request {
            Request::Hello { version } if version != VERSION => Err(Error::Version { spoken: VERSION }),
            Request::Hello { .. } => {
                connection.greeted = true;
                Ok((Report::Welcome(self.welcome(service)), Next::Receive))
            }
            Request::Board => Ok((Report::Board(service.board_report()), Next::Receive)),
            Request::Usage { limit } => {
                let (used, size) = service.usage(limit);
                Ok((Report::Usage { limit, used, size }, Next::Receive))
            }
            Request::Node(ref node) => {
                let most = self.config.nodes;
                let full = |limit| Err(Fault::Full(limit, most.of(limit)));
                node.limits.exceeding(most).next().map_or(Ok(()), full)?;
                service.begin_node(node)?;
                Ok((Report::Done, Next::Node))
            }
            Request::Link(ref link) => {
                service.begin_link(link)?;
                Ok((Report::Done, Next::Node))
            }
        }
    }

    fn welcome(&self, service: &impl Service) -> Welcome<'m> {
        let BoardReport { sockets, free_sockets, .. } = service.board_report();
        let Config { name, nodes, message_max, links, calls, .. } = self.config;
        Welcome { version: VERSION, board: name, nodes, sockets, free_sockets, message_max, links, calls }
    }
}
