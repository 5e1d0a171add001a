//! PMI server and its clients' sockets.
//!
//! The server reads messages in place from each socket's receive buffer, from which consumed bytes are dropped. It chooses the
//! connection of the next reply. All replies are therefore encoded into one buffer, which has room for the longest reply, and
//! copied to the socket. If the socket has no room, the rest stays in the buffer until the client has read. Meanwhile no input
//! is handled, for at most [`STALL_MS`](hydrant_core::manage::STALL_MS).

mod client;
mod job;
mod links;
mod long;
mod ports;
mod recording;

use hydrant_core::manage::{BadRecord, BoardReport, OpenNode, STALL_MS};
use hydrant_core::server::call::{Call, Callee};
use hydrant_core::server::remote::NodeReport;
use hydrant_core::server::{Consumed, Input, Output, Record};
use hydrant_core::trace::{Closing, Exit};
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Time};

use crate::board::{Board, SEED, Sizes, limits_of_node};
use crate::connection::Connection;
use crate::links::Links;
use crate::net::{Net, Socket};
pub use client::Client;
pub(crate) use client::HANDSHAKE_TIMEOUT_MS;
use job::{Jobs, OWN};
use long::Long;
use recording::Recording;

/// PMI server, sockets of its clients, and its jobs.
pub struct Serve<'s, B: Board> {
    server: Server<'s>,
    clients: &'s mut [Client<B>],
    /// Host of the node that is served.
    pub(crate) node: Option<Connection<B>>,
    /// Links of this node to other boards, if it was opened for them.
    pub(crate) links: Option<&'s mut Links<B>>,
    /// Node that is to be served next.
    pub(crate) opening: Option<OpenNode>,
    /// The jobs that are served.
    jobs: Jobs<B>,
    /// Port of the clients of job 0.
    port: u16,
    reply: &'s mut [u8],
    /// Rest of a reply that did not fit into its socket.
    tail: Option<Tail>,
    long: Long<'s>,
    /// An input was deferred for lack of room.
    deferred: bool,
    recording: Option<Recording>,
    /// The host of the node calls the server, and keeps connections and the time.
    is_called: bool,
    pub(crate) counters: &'s mut BoardReport,
}

/// Memory of servers, one after the other.
pub struct Memory<'m, B: Board> {
    tables: &'static mut B::Tables,
    reply: &'static mut [u8],
    long: &'static mut [u8],
    clients: &'m mut [Client<B>],
    links: Option<&'static mut Links<B>>,
    counters: BoardReport,
}

impl<'m, B: Board> Memory<'m, B> {
    /// `reply` has [`Sizes::REPLY`] bytes, and `long` [`Board::LONG`]. There are [`Sizes::CLIENTS`] clients, and links if the board
    /// has some.
    pub fn new(
        tables: &'static mut B::Tables,
        [reply, long]: [&'static mut [u8]; 2],
        clients: &'m mut [Client<B>],
        links: Option<&'static mut Links<B>>,
    ) -> Memory<'m, B> {
        let counters = BoardReport { sockets: B::CLIENTS as u32, ..BoardReport::default() };
        Memory { tables, reply, long, clients, links, counters }
    }
}

/// Part of a reply that did not fit into its socket.
struct Tail {
    conn: ConnId,
    at: usize,
    end: usize,
    since: u64,
}

impl<'s, B: Board> Serve<'s, B> {
    /// Creates a server without jobs: of a node if there is one, and of this board otherwise.
    // As a part of the caller, it would take stack from every input.
    #[inline(never)]
    pub fn new(
        memory: &'s mut Memory<'_, B>,
        port: u16,
        net: &mut B::Net,
        node: Option<(OpenNode, Connection<B>)>,
    ) -> Serve<'s, B> {
        let Memory { tables, reply, long, clients, links, counters } = memory;
        for client in clients.iter_mut() {
            net.socket_mut(client.handle).abort();
            *client = Client::new(client.handle);
        }
        let (open, node) = node.unzip();
        let links = links.as_deref_mut().filter(|_| B::BOARD_LINKS > 0);
        let links = links.and_then(|links| links.restart(open).then_some(links));
        let limits = open.as_ref().map_or(B::OWN_LIMITS, limits_of_node::<B>);
        let recorded = open.and_then(|open| open.record);
        let called = open.and_then(|open| open.seed).filter(|_| B::CALLS);
        let mut node = node;
        if let Some(connection) = node.as_mut().filter(|_| recorded.is_some()) {
            connection.wait();
        }
        let most = B::CLIENTS.min(limits.conns as usize);
        let mut serve = Serve {
            server: Server::new(limits, B::lend(tables), recorded.or(called).unwrap_or(SEED))
                .expect("the slabs are as long as the largest limits say"),
            clients: &mut clients[..most],
            node,
            links,
            opening: None,
            jobs: Jobs::new(),
            port,
            reply,
            tail: None,
            long: Long::new(long),
            deferred: false,
            recording: recorded.map(|_| Recording::default()),
            is_called: called.is_some(),
            counters,
        };
        // A lone node is in no tree, one with links not yet, and the first call makes a called node one of its tree.
        let is_formed = serve.links.is_none() && !serve.is_called;
        if let Some(OpenNode { node, nodes, radix, .. }) = open.filter(|open| open.nodes > 1 && is_formed) {
            serve.handle_infallible(net, Input::Node { node, nodes, radix });
        }
        serve
    }
}

impl<B: Board> Serve<'_, B> {
    /// Returns the next deadline: of the server, of a blocked reply, of a long message, of a handshake or of a closing
    /// connection.
    pub(crate) fn poll_at(&self, net: &B::Net) -> Option<u64> {
        let core = self.server.poll_at().filter(|_| !self.is_called()).map(|at| at.0);
        let tail = self.tail.as_ref().map(|tail| tail.since + STALL_MS);
        let handshakes = self.clients.iter().filter_map(Client::handshake_deadline).min();
        let closing = self.clients.iter().filter_map(|client| client.closing_deadline(net)).min();
        let links = self.links.as_ref().filter(|_| B::BOARD_LINKS > 0);
        let links = links.and_then(|links| links.poll_at(!self.jobs.is_empty()));
        [core, tail, self.long.deadline(), handshakes, closing, links].into_iter().flatten().min()
    }

    /// Handles timeouts, clients and outputs. Returns whether deferred input can be handled at once.
    pub(crate) fn run(&mut self, net: &mut B::Net) -> bool {
        self.deferred = false;
        if self.is_called() {
            return false;
        }
        self.listen(net);
        if self.server.poll_at().is_some_and(|at| at.0 <= B::millis()) {
            self.handle_infallible(net, Input::Timeout);
        }
        for at in 0..self.clients.len() {
            self.flush(net);
            if self.is_free(net) {
                self.client(net, at);
            } else {
                self.deferred = true;
            }
        }
        self.keep_listening(net);
        self.flush(net);
        self.drain(net);
        self.deferred && self.is_free(net)
    }

    /// Returns whether there is room for the outputs of an input.
    pub(crate) fn is_free(&self, net: &B::Net) -> bool {
        self.tail.is_none() && !net.is_full()
    }

    /// Handles an input and its outputs. A fault is an error of this firmware or of the host's request.
    pub(crate) fn try_handle(&mut self, net: &mut B::Net, input: Input<'_>) -> Result<Consumed, Fault> {
        let consumed = self.handle(net, input)?;
        self.drain(net);
        Ok(consumed)
    }

    /// Passes an input to the server and records it. A client's bytes bypass this while nothing is recorded.
    fn handle(&mut self, net: &mut B::Net, input: Input<'_>) -> Result<Consumed, Fault> {
        let now = Time(B::millis());
        handle(&mut self.server, (&mut self.recording, &mut self.node), net, now, input)
    }

    /// Handles an input that cannot cause a fault.
    fn handle_infallible(&mut self, net: &mut B::Net, input: Input<'_>) {
        if let Err(fault) = self.try_handle(net, input) {
            error!("server: {}", fault);
        }
    }

    /// Carries out the server's outputs while there is room for them.
    fn drain(&mut self, net: &mut B::Net) {
        while self.is_free(net) {
            if let Some(limit) = self.server.take_limit_hit() {
                let size = self.server.limits().of(limit);
                self.report(net, &NodeReport::limit_hit(limit, size));
                continue;
            }
            let Ok(output) = self.server.poll(self.reply) else { break };
            if let Some((recording, connection)) = self.recording.as_mut().zip(self.node.as_mut())
                && (!core::mem::replace(&mut recording.silent, output.is_none()) || output.is_some())
            {
                let record = output.map_or(Record::Silence, Record::Output);
                recording::report_record(net, connection, &record);
            }
            match output {
                None => break,
                Some(Output::Bytes { conn, bytes }) => {
                    let end = bytes.len();
                    self.send(net, Tail { conn, at: 0, end, since: B::millis() });
                }
                Some(Output::Close { conn, why }) => self.close(net, conn, why),
                Some(output) => {
                    if let Some(links) = self.links.as_mut().filter(|_| B::BOARD_LINKS > 0)
                        && let Output::Peer { node, bytes } = output
                        && let Some(is_full) = links.send(net, self.server.limits(), node, bytes)
                    {
                        if is_full {
                            // The node is a neighbour.
                            let _ = self.handle(net, Input::PeerBlocked { node });
                        }
                        continue;
                    }
                    match output {
                        Output::Joined { conn, rank, .. } => self.clients[conn.index()].rank = Some(rank),
                        Output::AbortJob { job, .. } => {
                            self.jobs.get_mut(job).into_iter().for_each(|job| job.ended = true);
                        }
                        Output::StalledFence { job, arrived, size, missing } => warn!(
                            "job {}: {=u32} of {=u32} ranks wait for {=str}",
                            job, arrived, size, missing
                        ),
                        _ => {}
                    }
                    if let Some(connection) = &mut self.node {
                        connection.send(net, &NodeReport::Output(output));
                    }
                }
            }
        }
    }

    /// Closes the connection of a client.
    fn close(&mut self, net: &mut B::Net, conn: ConnId, why: Closing) {
        let client = &mut self.clients[conn.index()];
        client.closing = true;
        client.abrupt = why == Closing::JobOver && client.rank.is_none();
        if why != Closing::JobOver {
            self.counters.closed = self.counters.closed.saturating_add(1);
            let (job, rank) = (client.job, client.rank);
            if let Some(job) = job {
                self.report(net, &NodeReport::Closed { job, rank, why });
            }
        }
    }

    /// Writes a reply, or the rest of it, to its socket.
    fn send(&mut self, net: &mut B::Net, mut tail: Tail) {
        let client = &mut self.clients[tail.conn.index()];
        let socket = net.socket_mut(client.handle);
        // A closed socket accepts nothing. Its connection is about to be closed in the server.
        let sent = socket.send_slice(&self.reply[tail.at..tail.end]);
        client.replied = true;
        let Some(sent) = sent else { return };
        self.counters.bytes_out += sent as u64;
        tail.at += sent;
        if tail.at < tail.end {
            self.tail = Some(tail);
        }
    }

    /// Sends the rest of a reply.
    fn flush(&mut self, net: &mut B::Net) {
        let Some(tail) = self.tail.take() else { return };
        if B::millis() >= tail.since + STALL_MS {
            warn!("conn {} does not read its reply, and is given up", tail.conn);
            let client = &self.clients[tail.conn.index()];
            net.socket_mut(client.handle).abort();
            return;
        }
        self.send(net, tail);
    }

    /// Derives the exit of a rank whose connection has closed, unless the host of a node reports exits.
    fn derive_exit(&mut self, net: &mut B::Net, rank: Option<Rank>) {
        let Some(rank) = rank.filter(|_| self.node.is_none()) else { return };
        let Some(report) = self.server.rank_report(OWN, rank) else { return };
        if report.exit.is_none() {
            let exit = Exit::of_connection(report.finalized);
            self.handle_infallible(net, Input::Exited { job: OWN, rank, exit });
        }
    }

    /// Sends a report to the host of the node.
    pub(crate) fn report(&mut self, net: &mut B::Net, report: &NodeReport<'_>) {
        if let Some(connection) = &mut self.node {
            connection.send(net, report);
        }
    }

    /// Reports the state of a rank to the host of the node.
    pub(crate) fn report_rank(&mut self, net: &mut B::Net, job: JobId, rank: Rank) {
        let (now, status) = (Time(B::millis()), self.server.rank_status(job, rank));
        if let Some(connection) = &mut self.node {
            connection.send(net, &NodeReport::Rank { job, rank, now, status });
        }
    }

    /// Returns whether a node uses the server, or is to be served next.
    pub(crate) fn has_node(&self) -> bool {
        self.node.is_some() || self.opening.is_some()
    }

    /// Returns whether a node or a job uses the server.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_node() || !self.jobs.is_empty()
    }

    /// Returns whether the host of the node calls the server.
    pub(crate) const fn is_called(&self) -> bool {
        B::CALLS && self.is_called
    }

    /// Carries out a call of the host of the node, with a buffer for its return, and sends that.
    pub(crate) fn call(
        &mut self,
        net: &mut B::Net,
        callee: &mut Callee,
        call: &Call<'_>,
        buf: &mut [u8],
    ) -> Result<(), BadRecord> {
        // A called node has no replies of its own.
        let returned = callee.carry_out(&mut self.server, call, buf, self.reply)?;
        if let Some(connection) = &mut self.node {
            connection.send_encoded(net, returned);
        }
        Ok(())
    }

    /// Returns the server, for queries.
    pub(crate) fn server(&self) -> &Server<'_> {
        &self.server
    }

    /// Returns the state of the board.
    pub fn board_report(&self, net: &B::Net) -> BoardReport {
        let free_sockets = self.free_sockets(net);
        BoardReport { uptime: B::millis(), free_sockets, stack: B::stack_used(), ..*self.counters }
    }

    /// Returns how many more clients can connect.
    pub(crate) fn free_sockets(&self, net: &B::Net) -> u32 {
        self.clients.iter().filter(|client| client.is_free(net)).count() as u32
    }
}

/// Passes an input to the server and records input and result.
fn handle<B: Board>(
    server: &mut Server<'_>,
    (recording, node): (&mut Option<Recording>, &mut Option<Connection<B>>),
    net: &mut B::Net,
    now: Time,
    input: Input<'_>,
) -> Result<Consumed, Fault> {
    let mut reader = recording.as_mut().zip(node.as_mut());
    if let Some((recording, connection)) = &mut reader {
        recording.silent = false;
        recording::report_record(net, connection, &Record::Input { now, input });
    }
    let result = server.handle(now, input);
    if let Some((_, connection)) = reader {
        let record = match result {
            Ok(consumed) => Record::Took { consumed, wake: server.poll_at() },
            Err(fault) => Record::Refused(fault),
        };
        recording::report_record(net, connection, &record);
    }
    result
}
