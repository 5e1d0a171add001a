//! Connection to a board before it serves a node or carries a link: the handshake, and the state of the board.

use std::net::SocketAddr;
use std::time::Instant;

use crate::manage::{Connection, ConnectionError, Secret};
use hydrant_core::manage::{
    self, BadRecord, BoardReport, Error, OpenLink, OpenNode, Report, Request, VERSION, Welcome,
};
use hydrant_core::{Fault, Limit, Limits};
use hydrant_driver::foreign_server;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::{BoardError, PATIENCE};
use crate::lines::board_line;
use crate::reach::reach;
use crate::time::timespec;

/// Connection to a board's management port.
#[derive(Debug)]
pub struct Board {
    addr: SocketAddr,
    link: Connection,
    name: String,
    /// Largest limits of a node.
    nodes: Limits,
    /// Maximum number of connected clients.
    sockets: u32,
    /// Maximum length in bytes of a client's message.
    message_max: u32,
    /// Maximum number of other boards that link themselves to it, if it has links.
    links: Option<u32>,
    /// Maximum length of a client's bytes in a call, if its nodes can be called.
    calls: Option<u32>,
}

impl Board {
    /// Connects to a board's management port, `HOST:PORT` or `HOST`, and performs the handshake. With a secret, the board must
    /// have the same. Without one, a board on this machine must be a process of this user or of root.
    ///
    /// # Errors
    /// The connection failed, or the board has another secret or another protocol version.
    pub fn connect(target: &str, secret: Option<&Secret>) -> Result<Board, BoardError> {
        let unreachable = |why| BoardError::Unreachable { target: target.to_owned(), why };
        let stream = reach(target).map_err(unreachable)?;
        let addr = stream.peer_addr().map_err(unreachable)?;
        let mut link = Connection::of_host(stream, secret).map_err(unreachable)?;
        let greeted = ask(
            (addr, &mut link),
            "the handshake",
            &Request::Hello { version: VERSION },
            |report| {
                let Report::Welcome(welcome) = *report else { return None };
                let Welcome { version: _, board, sockets, free_sockets: _, message_max, nodes, links, calls } =
                    welcome;
                Some((board.to_owned(), sockets, message_max, nodes, links, calls))
            },
        );
        let (name, sockets, message_max, nodes, links, calls) = match greeted {
            // A board with a secret closes the connection of a host without one, and the other way round.
            Err(BoardError::Lost { addr, why }) => {
                return Err(BoardError::Handshake { addr, why, secret: secret.is_some() });
            }
            result => result?,
        };
        // A board has programs started, as this user.
        if secret.is_none()
            && let Some(user) = foreign_server(link.stream())
        {
            return Err(BoardError::Foreign { addr, user });
        }
        Ok(Board { addr, link, name, nodes, sockets, message_max, links, calls })
    }

    /// Has the board serve a node, which errors call `what`. Returns the address of its management port, the connection for the
    /// records of the node, and the limits of a called or recorded server.
    pub(crate) fn into_node(
        mut self,
        what: &'static str,
        open: &OpenNode,
    ) -> Result<(SocketAddr, Connection, Limits), BoardError> {
        let most = self.nodes;
        if open.nodes > 1 && most.links == 0 {
            return Err(BoardError::Refused { addr: self.addr, what, why: Error::NoTrees });
        }
        let limits: Vec<_> = open.limits.exceeding(most).map(|limit| (limit, most.of(limit))).collect();
        if !limits.is_empty() {
            return Err(BoardError::Small { addr: self.addr, limits });
        }
        let mut open = *open;
        // A small board has room for fewer, and says so if the limits have to be its own.
        let mut own = vec![Limit::Conns, Limit::Names, Limit::Spawns];
        loop {
            match self.done(what, &Request::Node(open)) {
                Err(BoardError::Refused { why: Error::Fault(Fault::Full(limit, most)), .. })
                    if most < open.limits.of(limit) && own.contains(&limit) =>
                {
                    own.retain(|&other| other != limit);
                    open.limits.set(limit, most);
                }
                result => return result.map(|()| (self.addr, self.link, open.limits)),
            }
        }
    }

    /// Links the server of another node to one on this board. Returns the connection for the records of the link.
    ///
    /// # Errors
    /// The board is lost, or serves no such node.
    pub fn into_link(mut self, open: &OpenLink) -> Result<Connection, BoardError> {
        self.done("a link", &Request::Link(*open))?;
        Ok(self.link)
    }

    /// Returns the largest limits of a node.
    pub fn node_limits(&self) -> &Limits {
        &self.nodes
    }

    /// The board's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns how many boards of children can link themselves to it. `None` if it has no links.
    pub(crate) fn links(&self) -> Option<u32> {
        self.links
    }

    /// Returns the maximum length of a client's bytes in a call. `None` if its nodes cannot be called.
    pub(crate) fn calls(&self) -> Option<u32> {
        self.calls
    }

    /// Maximum length in bytes of a client's message.
    pub(crate) fn message_max(&self) -> u32 {
        self.message_max
    }

    /// The board in a few words.
    pub(crate) fn describe(&self) -> String {
        let Board { name, addr, sockets, nodes, .. } = self;
        format!(
            "board {name} at {addr} serves runs of up to {} ranks, {sockets} connections, {} keys in {} bytes",
            nodes.ranks, nodes.keys, nodes.kvs_bytes
        )
    }

    /// Returns the counters of the board as a line of text.
    ///
    /// # Errors
    /// The board is lost.
    pub fn counters(&mut self) -> Result<String, BoardError> {
        let take = |report: &Report<'_>| match *report {
            Report::Board(report) => Some(report),
            _ => None,
        };
        let report: BoardReport = ask((self.addr, &mut self.link), "a report", &Request::Board, take)?;
        Ok(board_line(&report))
    }

    /// Sends a request whose reply is [`Report::Done`], and waits for it.
    fn done(&mut self, what: &'static str, request: &Request) -> Result<(), BoardError> {
        ask((self.addr, &mut self.link), what, request, |report| matches!(report, Report::Done).then_some(()))
    }
}

/// Sends a request and waits for its reply, for [`PATIENCE`] at most.
fn ask<T>(
    (addr, link): (SocketAddr, &mut Connection),
    what: &'static str,
    request: &Request,
    take: impl Fn(&Report<'_>) -> Option<T>,
) -> Result<T, BoardError> {
    let lost = |why: ConnectionError| BoardError::Lost { addr, why: why.to_string() };
    link.send(request).map_err(lost)?;
    let deadline = Instant::now() + PATIENCE;
    let mut record = Vec::new();
    loop {
        let came = link.flush().and_then(|()| link.fill());
        if came.and_then(|()| link.next(&mut record)).map_err(lost)? {
            break;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(BoardError::Silent { addr, what });
        }
        let wanted = if link.is_blocked() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        match poll(&mut [PollFd::new(link.stream(), wanted)], Some(&timespec(left))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(lost(ConnectionError::Io(errno.into()))),
        }
    }
    match manage::decode::<Report<'_>>(&record).map_err(|why| lost(why.into()))? {
        Report::Refused(why) => Err(BoardError::Refused { addr, what, why }),
        report => take(&report).ok_or_else(|| lost(BadRecord::Malformed.into())),
    }
}
