//! The clients: the core's host on this board.
//!
//! Each socket's receive buffer goes into the core as it is, and what the core has consumed is dropped from it. Replies
//! are written by the core into one buffer of the size that any reply can have, because which connection speaks next is
//! the core's choice, and copied into its socket from there. What does not fit waits in that buffer until the client
//! has read; meanwhile nothing is taken in or said, for [`STALL_MS`](hydrant_core::manage::STALL_MS) at most.

mod client;
mod job;
mod long;
mod tape;

use hydrant_core::manage::server::exit_of_connection;
use hydrant_core::manage::{BoardReport, Error, STALL_MS};
use hydrant_core::server::{Consumed, Input, Output, Record};
use hydrant_core::trace::Closing;
use hydrant_core::{ConnId, Fault, JobId, Rank, Server, Time};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::events::{self, Event};
use crate::memory::{self, CLIENTS};
use crate::net::Net;
use crate::time;
pub(crate) use client::{Client, HANDSHAKE_TIMEOUT_MS};
pub(crate) use job::Served;
use long::Long;
use tape::Tape;

/// The core, its clients' sockets, and its job.
pub(crate) struct Serve {
    server: Server<'static>,
    clients: [Client; CLIENTS],
    /// The job that is served, if any.
    pub(crate) job: Option<Served>,
    /// Where its clients connect.
    port: u16,
    reply: &'static mut [u8],
    /// What of the reply is still to be sent.
    tail: Option<Tail>,
    long: Long,
    /// Whether there may be room that somebody waits for.
    waited_for: bool,
    tape: Option<Tape>,
    pub(crate) counters: BoardReport,
}

/// A reply that its socket has no room for yet.
struct Tail {
    conn: ConnId,
    at: usize,
    end: usize,
    since: u64,
}

impl Serve {
    /// A core without jobs. `clients` are their sockets.
    pub(crate) fn new(clients: [Client; CLIENTS], port: u16) -> Result<Serve, Fault> {
        let (reply, long) = memory::scratch();
        Ok(Serve {
            server: Server::new(memory::LIMITS, memory::storage(), memory::SEED)?,
            clients,
            job: None,
            port,
            reply,
            tail: None,
            long: Long::new(long),
            waited_for: false,
            tape: None,
            counters: BoardReport { sockets: CLIENTS as u32, ..BoardReport::default() },
        })
    }

    /// When something is due although nothing comes: the core's time, or that of somebody who is waited for.
    pub(crate) fn poll_at(&self) -> Option<u64> {
        let core = self.server.poll_at().map(|at| at.0);
        let tail = self.tail.as_ref().map(|tail| tail.since + STALL_MS);
        let strangers = self.clients.iter().filter_map(Client::stranger_until).min();
        [core, tail, self.long.due(), strangers].into_iter().flatten().min()
    }

    /// Does what there is to do. Whether something is left to do at once.
    pub(crate) fn run(&mut self, net: &mut Net) -> bool {
        self.waited_for = false;
        if self.server.poll_at().is_some_and(|at| at.0 <= time::millis()) {
            self.tell(net, Input::Timeout);
        }
        for at in 0..CLIENTS {
            self.flush(net);
            if self.is_free() {
                self.client(net, at);
            } else {
                self.waited_for = true;
            }
        }
        self.flush(net);
        self.drain(net);
        self.waited_for && self.is_free()
    }

    /// Whether there is room for what the core may say.
    fn is_free(&self) -> bool {
        self.tail.is_none() && events::have_room()
    }

    /// Tells the core something, and does what it says. A fault is this firmware's mistake, or the management side's.
    pub(crate) fn try_tell(&mut self, net: &mut Net, input: Input<'_>) -> Result<Consumed, Fault> {
        let consumed = self.handle(net, input)?;
        self.drain(net);
        Ok(consumed)
    }

    /// The one way into the core, beside the shortcut that a client's bytes take while nothing is recorded.
    fn handle(&mut self, net: &mut Net, input: Input<'_>) -> Result<Consumed, Fault> {
        let now = Time(time::millis());
        handle(&mut self.server, &mut self.tape, net, now, input)
    }

    /// Records what the core is told and says from here on, if it has not been told anything since the start.
    pub(crate) fn record(&mut self, handle: SocketHandle) -> Result<(), Error> {
        if self.tape.is_some() {
            return Err(Error::Busy);
        }
        if self.counters.jobs > 0 {
            return Err(Error::Order);
        }
        self.tape = Some(Tape { handle, inputs: 0, outputs: 0 });
        Ok(())
    }

    /// Sends the first record, once the host knows that records follow.
    pub(crate) fn begin_tape(&mut self, net: &mut Net) {
        let begin = Record::Begin { program: crate::board::NAME, limits: memory::LIMITS, seed: memory::SEED };
        note(&mut self.tape, net, &begin);
    }

    /// Ends the recording.
    pub(crate) fn end_tape(&mut self, net: &mut Net) {
        if let Some(Tape { inputs, outputs, .. }) = self.tape {
            note(&mut self.tape, net, &Record::End { inputs, outputs });
        }
        self.tape = None;
    }

    /// The same where no fault can be.
    fn tell(&mut self, net: &mut Net, input: Input<'_>) {
        if let Err(fault) = self.try_tell(net, input) {
            defmt::error!("the core: {}", fault);
        }
    }

    /// Does what the core says, as long as there is room for it.
    fn drain(&mut self, net: &mut Net) {
        while self.is_free() {
            if let Some(limit) = self.server.take_limit_hit() {
                events::tell(Event::LimitHit { limit, size: memory::LIMITS.of(limit) });
                continue;
            }
            let Ok(output) = self.server.poll(self.reply) else { break };
            if let Some(tape) = &mut self.tape {
                tape.outputs += u64::from(output.is_some());
                note(&mut self.tape, net, &output.map_or(Record::Silence, Record::Output));
            }
            let Some(output) = output else { break };
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
                        events::tell(Event::Closed { conn, rank: client.rank, why });
                    }
                }
                Output::Joined { conn, job, rank } => {
                    self.clients[conn.index()].rank = Some(rank);
                    events::tell(Event::Joined { job, rank, conn });
                }
                Output::KillRank { job, rank, code, message } => {
                    let message = events::shorten(message);
                    events::tell(Event::Kill { job, rank, code, message });
                }
                Output::AbortJob { job, cause, message } => {
                    self.job.iter_mut().for_each(|served| served.ended = true);
                    let message = events::shorten(message);
                    events::tell(Event::End { job, cause, message });
                }
                Output::StalledFence { job, arrived, size, missing } => {
                    defmt::warn!(
                        "job {}: {=u32} of {=u32} ranks wait for {=str}",
                        job,
                        arrived,
                        size,
                        missing
                    );
                    let missing = events::shorten(missing);
                    events::tell(Event::Late { job, arrived, size, missing });
                }
                // The limits offer no upcalls and no other nodes.
                Output::Spawn { .. } | Output::Upcall { .. } | Output::Peer { .. } => {
                    defmt::error!("an upcall")
                }
            }
        }
    }

    /// Writes a reply, or what is left of it, into its socket.
    fn send(&mut self, net: &mut Net, mut tail: Tail) {
        let client = &mut self.clients[tail.conn.index()];
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(client.handle);
        // A socket that is closed takes nothing; its connection is about to be closed in the core, too.
        let sent = socket.send_slice(&self.reply[tail.at..tail.end]);
        client.replied = true;
        let Ok(sent) = sent else { return };
        self.counters.bytes_out += sent as u64;
        tail.at += sent;
        if tail.at < tail.end {
            self.tail = Some(tail);
        }
    }

    /// Goes on with a reply that had no room.
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

    /// A client's connection is gone: so is its process, unless the host tells of that.
    fn lost(&mut self, net: &mut Net, rank: Option<Rank>) {
        let Some((job, rank)) = self.job.as_ref().filter(|job| !job.exits_told).map(|job| job.id).zip(rank)
        else {
            return;
        };
        let Some(report) = self.server.rank_report(job, rank) else { return };
        if report.exit.is_none() {
            let exit = exit_of_connection(report.finalized);
            self.tell(net, Input::Exited { job, rank, exit });
        }
    }

    /// The core, to be asked how it is doing.
    pub(crate) fn server(&self) -> &Server<'static> {
        &self.server
    }

    /// How many more clients can connect.
    pub(crate) fn free_sockets(&self) -> u32 {
        self.clients.iter().filter(|client| !client.open).count() as u32
    }

    /// Where clients of a job connect.
    pub(crate) fn port_of(&self, job: JobId) -> u16 {
        self.port.saturating_add(job.0 as u16)
    }
}

/// Has the core take an input, and records both.
fn handle(
    server: &mut Server<'static>,
    tape: &mut Option<Tape>,
    net: &mut Net,
    now: Time,
    input: Input<'_>,
) -> Result<Consumed, Fault> {
    if let Some(tape) = tape {
        tape.inputs += 1;
    }
    note(tape, net, &Record::Input { now, input });
    let took = server.handle(now, input);
    let record = match took {
        Ok(consumed) => Record::Took { consumed, wake: server.poll_at() },
        Err(fault) => Record::Refused(fault),
    };
    note(tape, net, &record);
    took
}

/// Sends a record where there is a recording. It ends when nobody takes it.
fn note(tape: &mut Option<Tape>, net: &mut Net, record: &Record<'_>) {
    if let Some(Tape { handle, .. }) = *tape
        && !tape::record(net, handle, record)
    {
        defmt::warn!("the recording ends, because nobody reads it");
        net.sockets.get_mut::<tcp::Socket<'_>>(handle).abort();
        *tape = None;
    }
}
