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

use heapless::Vec;
use hydrant_core::manage::server::exit_of_connection;
use hydrant_core::manage::{BadRecord, BoardReport, Error, OpenNode, STALL_MS};
use hydrant_core::server::call::{Call, Callee};
use hydrant_core::server::remote::NodeReport;
use hydrant_core::server::{Consumed, Input, Output, Record};
use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Time};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::events::{self, Event};
use crate::link::Link;
use crate::links::Links;
use crate::memory::{self, BOARD_LINKS, CALLS, CLIENTS, NODES, PARENTS};
use crate::net::Net;
use crate::time;
pub(crate) use client::{Client, HANDSHAKE_TIMEOUT_MS};
pub(crate) use job::{Jobs, OWN};
use long::Long;
use recording::Recording;

/// PMI server, sockets of its clients, and its jobs.
pub(crate) struct Serve<'s> {
    server: Server<'s>,
    clients: &'s mut [Client],
    /// Host of the node that is served.
    pub(crate) node: Option<Link>,
    /// Links of this node to other boards, if it was opened for them.
    pub(crate) links: Option<&'s mut Links>,
    /// Node that is to be served next.
    pub(crate) opening: Option<OpenNode>,
    /// The jobs that are served.
    pub(crate) jobs: Jobs,
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
pub(crate) struct Memory<'m> {
    tables: &'static mut memory::Tables,
    reply: &'static mut [u8],
    long: &'static mut [u8],
    clients: &'m mut [Client],
    links: Option<&'static mut Links>,
    counters: BoardReport,
}

impl<'m> Memory<'m> {
    /// Takes the memory, with the socket for the connection to the parent's board, if the board has links. Called once.
    pub(crate) fn new(clients: &'m mut [Client], parent: Option<SocketHandle>) -> Memory<'m> {
        let (reply, long) = memory::scratch();
        let counters = BoardReport { sockets: CLIENTS as u32, ..BoardReport::default() };
        let links = parent.filter(|_| PARENTS > 0).map(Links::take);
        Memory { tables: memory::tables(), reply, long, clients, links, counters }
    }
}

/// Part of a reply that did not fit into its socket.
struct Tail {
    conn: ConnId,
    at: usize,
    end: usize,
    since: u64,
}

impl<'s> Serve<'s> {
    /// Creates a server without jobs: of a node if there is one, and of this board otherwise.
    // As a part of the caller, it would take stack from every input.
    #[inline(never)]
    pub(crate) fn new(
        memory: &'s mut Memory<'_>,
        port: u16,
        net: &mut Net,
        node: Option<(OpenNode, Link)>,
    ) -> Serve<'s> {
        let Memory { tables, reply, long, clients, links, counters } = memory;
        for client in clients.iter_mut() {
            net.sockets.get_mut::<tcp::Socket<'_>>(client.handle).abort();
            *client = Client::new(client.handle);
        }
        let (open, node) = node.filter(|_| NODES).unzip();
        let links = links.as_deref_mut().filter(|_| BOARD_LINKS > 0);
        let links = links.and_then(|links| links.restart(open).then_some(links));
        let limits = open.as_ref().map_or(memory::OWN_LIMITS, memory::limits_of_node);
        let recorded = open.and_then(|open| open.record);
        let called = open.and_then(|open| open.seed).filter(|_| CALLS);
        let mut node = node;
        if let Some(link) = node.as_mut().filter(|_| recorded.is_some()) {
            link.wait();
        }
        let most = CLIENTS.min(limits.conns as usize);
        let mut serve = Serve {
            server: Server::new(limits, tables.lend(), recorded.or(called).unwrap_or(memory::SEED))
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
            recording: recorded.map(|_| Recording::new(None)),
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

impl Serve<'_> {
    /// Returns the next deadline: of the server, of a blocked reply, of a long message, of a handshake or of a closing
    /// connection.
    pub(crate) fn poll_at(&self, net: &Net) -> Option<u64> {
        let core = self.server.poll_at().filter(|_| !self.is_called()).map(|at| at.0);
        let tail = self.tail.as_ref().map(|tail| tail.since + STALL_MS);
        let handshakes = self.clients.iter().filter_map(Client::handshake_deadline).min();
        let closing = self.clients.iter().filter_map(|client| client.closing_deadline(net)).min();
        let links = self.links.as_ref().filter(|_| BOARD_LINKS > 0);
        let links = links.and_then(|links| links.poll_at(!self.jobs.is_empty()));
        [core, tail, self.long.deadline(), handshakes, closing, links].into_iter().flatten().min()
    }

    /// Handles timeouts, clients and outputs. Returns whether deferred input can be handled at once.
    pub(crate) fn run(&mut self, net: &mut Net) -> bool {
        self.deferred = false;
        if self.is_called() {
            return false;
        }
        self.listen(net);
        if self.server.poll_at().is_some_and(|at| at.0 <= time::millis()) {
            self.handle_infallible(net, Input::Timeout);
        }
        for at in 0..self.clients.len() {
            self.flush(net);
            if self.is_free() {
                self.client(net, at);
            } else {
                self.deferred = true;
            }
        }
        self.keep_listening(net);
        self.flush(net);
        self.drain(net);
        self.deferred && self.is_free()
    }

    /// Returns whether there is room for the outputs of an input.
    pub(crate) fn is_free(&self) -> bool {
        self.tail.is_none() && events::have_room()
    }

    /// Handles an input and its outputs. A fault is an error of this firmware or of the host's request.
    pub(crate) fn try_handle(&mut self, net: &mut Net, input: Input<'_>) -> Result<Consumed, Fault> {
        let consumed = self.handle(net, input)?;
        self.drain(net);
        Ok(consumed)
    }

    /// Passes an input to the server and records it. A client's bytes bypass this while nothing is recorded.
    fn handle(&mut self, net: &mut Net, input: Input<'_>) -> Result<Consumed, Fault> {
        let now = Time(time::millis());
        handle(&mut self.server, (&mut self.recording, &mut self.node), net, now, input)
    }

    /// Prepares a recording, if no job is open. The server starts anew, because a recording begins with a new server.
    pub(crate) fn prepare_recording(&mut self, handle: SocketHandle) -> Result<(), Error> {
        if self.recording.is_some() || self.has_node() {
            return Err(Error::Busy);
        }
        if !self.server.restart() {
            return Err(Error::Order);
        }
        self.recording = Some(Recording::new(Some(handle)));
        Ok(())
    }

    /// Sends the first record.
    pub(crate) fn begin_recording(&mut self, net: &mut Net) {
        let begin =
            Record::Begin { program: crate::board::NAME, limits: memory::OWN_LIMITS, seed: memory::SEED };
        send_record((&mut self.recording, &mut self.node), net, &begin);
    }

    /// Sends the last record.
    pub(crate) fn end_recording(&mut self, net: &mut Net) {
        if let Some(Recording { inputs, outputs, .. }) = self.recording {
            let end = Record::End { inputs, outputs };
            send_record((&mut self.recording, &mut self.node), net, &end);
        }
        self.recording = None;
    }

    /// Handles an input that cannot cause a fault.
    fn handle_infallible(&mut self, net: &mut Net, input: Input<'_>) {
        if let Err(fault) = self.try_handle(net, input) {
            defmt::error!("server: {}", fault);
        }
    }

    /// Carries out the server's outputs while there is room for them.
    fn drain(&mut self, net: &mut Net) {
        while self.is_free() {
            if let Some(limit) = self.server.take_limit_hit() {
                let size = self.server.limits().of(limit);
                match self.node.as_mut().filter(|_| NODES) {
                    Some(link) => link.send(net, &NodeReport::limit_hit(limit, size)),
                    None => events::queue(Event::LimitHit { limit, size }),
                }
                continue;
            }
            let Ok(output) = self.server.poll(self.reply) else { break };
            if let Some(recording) = &mut self.recording {
                recording.outputs += u64::from(output.is_some());
                if !core::mem::replace(&mut recording.silent, output.is_none()) || output.is_some() {
                    let record = output.map_or(Record::Silence, Record::Output);
                    send_record((&mut self.recording, &mut self.node), net, &record);
                }
            }
            let Some(output) = output else { break };
            if let Some(link) = self.node.as_mut().filter(|_| NODES)
                && !matches!(output, Output::Bytes { .. } | Output::Close { .. })
            {
                if let Output::Joined { conn, rank, .. } = output {
                    self.clients[conn.index()].rank = Some(rank);
                }
                if let Some(links) = self.links.as_mut().filter(|_| BOARD_LINKS > 0)
                    && let Output::Peer { node, bytes } = output
                    && let Some(is_full) = links.send(net, self.server.limits(), node, bytes)
                {
                    if is_full {
                        // The node is a neighbour.
                        let _ = self.handle(net, Input::PeerBlocked { node });
                    }
                    continue;
                }
                link.send(net, &NodeReport::Output(output));
                continue;
            }
            match output {
                Output::Bytes { conn, bytes } => {
                    let end = bytes.len();
                    self.send(net, Tail { conn, at: 0, end, since: time::millis() });
                }
                Output::Close { conn, why } => {
                    let client = &mut self.clients[conn.index()];
                    client.closing = true;
                    client.abrupt = why == Closing::JobOver && client.rank.is_none();
                    if why != Closing::JobOver {
                        self.counters.closed = self.counters.closed.saturating_add(1);
                        let rank = client.rank;
                        match client.job.filter(|_| NODES && self.node.is_some()) {
                            Some(job) => self.report(net, &NodeReport::Closed { job, rank, why }),
                            None => events::queue(Event::Closed { conn, rank, why }),
                        }
                    }
                }
                Output::Joined { conn, job, rank } => {
                    self.clients[conn.index()].rank = Some(rank);
                    events::queue(Event::Joined { job, rank, conn });
                }
                Output::KillRank { job, rank, code, message } => {
                    let message = events::truncate(message);
                    events::queue(Event::Kill { job, rank, code, message });
                }
                Output::AbortJob { job, cause, message } => {
                    self.jobs.get_mut(job).into_iter().for_each(|served| served.ended = true);
                    let message = events::truncate(message);
                    events::queue(Event::End { job, cause, message });
                }
                Output::StalledFence { job, arrived, size, missing } => {
                    defmt::warn!(
                        "job {}: {=u32} of {=u32} ranks wait for {=str}",
                        job,
                        arrived,
                        size,
                        missing
                    );
                    let missing = events::truncate(missing);
                    events::queue(Event::Late { job, arrived, size, missing });
                }
                Output::RemoveFiles { job, rank, paths } => {
                    // The limit of upcalls is their length.
                    let paths = Vec::from_slice(paths).unwrap_or_default();
                    events::queue(Event::RemoveFiles { job, rank, paths });
                }
                Output::Log { job, rank, stream, text } => {
                    let text = Vec::from_slice(text).unwrap_or_default();
                    events::queue(Event::Log { job, rank, stream, text });
                }
                // The limits offer no spawns and no other nodes, and the server keeps names itself.
                Output::Spawn { .. } | Output::Upcall { .. } | Output::Peer { .. } => {
                    defmt::error!("unexpected upcall")
                }
            }
        }
    }

    /// Writes a reply, or the rest of it, to its socket.
    fn send(&mut self, net: &mut Net, mut tail: Tail) {
        let client = &mut self.clients[tail.conn.index()];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
        // A closed socket accepts nothing. Its connection is about to be closed in the server.
        let sent = socket.send_slice(&self.reply[tail.at..tail.end]);
        client.replied = true;
        let Ok(sent) = sent else { return };
        self.counters.bytes_out += sent as u64;
        tail.at += sent;
        if tail.at < tail.end {
            self.tail = Some(tail);
        }
    }

    /// Sends the rest of a reply.
    fn flush(&mut self, net: &mut Net) {
        let Some(tail) = self.tail.take() else { return };
        if time::millis() >= tail.since + STALL_MS {
            defmt::warn!("conn {} does not read its reply, and is given up", tail.conn);
            let client = &self.clients[tail.conn.index()];
            net.sockets.get_mut::<tcp::Socket<'_>>(client.handle).abort();
            return;
        }
        self.send(net, tail);
    }

    /// Derives the exit of a rank whose connection has closed, unless the host reports exits.
    fn derive_exit(&mut self, net: &mut Net, rank: Option<Rank>) {
        let derives = self.jobs.get(OWN).is_some_and(|job| !job.exits_reported);
        let Some((job, rank)) = Some(OWN).filter(|_| derives).zip(rank) else { return };
        let Some(report) = self.server.rank_report(job, rank) else { return };
        if report.exit.is_none() {
            let exit = exit_of_connection(report.finalized);
            self.handle_infallible(net, Input::Exited { job, rank, exit });
        }
    }

    /// Sends a report to the host of the node.
    pub(crate) fn report(&mut self, net: &mut Net, report: &NodeReport<'_>) {
        if let Some(link) = &mut self.node {
            link.send(net, report);
        }
    }

    /// Reports the state of a rank to the host of the node.
    pub(crate) fn report_rank(&mut self, net: &mut Net, job: JobId, rank: Rank) {
        let (now, status) = (Time(time::millis()), self.server.rank_status(job, rank));
        if let Some(link) = &mut self.node {
            link.send(net, &NodeReport::Rank { job, rank, now, status });
        }
    }

    /// Returns whether a node uses the server, or is to be served next.
    pub(crate) fn has_node(&self) -> bool {
        self.node.is_some() || self.opening.is_some()
    }

    /// Returns whether a node, a job or a recording uses the server.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_node() || !self.jobs.is_empty() || self.recording.is_some()
    }

    /// Returns whether the host of the node calls the server.
    pub(crate) const fn is_called(&self) -> bool {
        CALLS && self.is_called
    }

    /// Carries out a call of the host of the node, with a buffer for its return, and sends that.
    pub(crate) fn call(
        &mut self,
        net: &mut Net,
        callee: &mut Callee,
        call: &Call<'_>,
        buf: &mut [u8],
    ) -> Result<(), BadRecord> {
        let returned = callee.carry_out(&mut self.server, call, buf)?;
        if let Some(link) = &mut self.node {
            link.send_encoded(net, returned);
        }
        Ok(())
    }

    /// Returns the server, for queries.
    pub(crate) fn server(&self) -> &Server<'_> {
        &self.server
    }

    /// Returns how many more clients can connect.
    pub(crate) fn free_sockets(&self, net: &Net) -> u32 {
        self.clients.iter().filter(|client| client.is_free(net)).count() as u32
    }
}

/// Passes an input to the server and records input and result.
fn handle(
    server: &mut Server<'_>,
    (recording, node): (&mut Option<Recording>, &mut Option<Link>),
    net: &mut Net,
    now: Time,
    input: Input<'_>,
) -> Result<Consumed, Fault> {
    if let Some(recording) = recording {
        recording.inputs += 1;
        recording.silent = false;
    }
    send_record((recording, node), net, &Record::Input { now, input });
    let result = server.handle(now, input);
    let record = match result {
        Ok(consumed) => Record::Took { consumed, wake: server.poll_at() },
        Err(fault) => Record::Refused(fault),
    };
    send_record((recording, node), net, &record);
    result
}

/// Sends a record if there is a recording. That of the board's own jobs ends if the host does not read.
fn send_record(
    (recording, node): (&mut Option<Recording>, &mut Option<Link>),
    net: &mut Net,
    record: &Record<'_>,
) {
    let Some(Recording { handle, .. }) = *recording else { return };
    match (handle, node) {
        (Some(handle), _) if !recording::send_record(net, handle, record) => {
            defmt::warn!("the recording ends: its reader does not read");
            net.sockets.get_mut::<tcp::Socket<'_>>(handle).abort();
            *recording = None;
        }
        (None, Some(link)) => recording::report_record(net, link, record),
        _ => {}
    }
}
