//! A node: the PMI server, the clients and the processes of a host.

use std::collections::{BTreeMap, BTreeSet};

use hydrant_control::Daemon;
use hydrant_control::protocol::JobRecord;
use hydrant_core::peer::message;
use hydrant_core::server::{FenceMode, JobSpec};
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, Consumed, Fault, Input, JobId, Limits, Output, OwnedOutput, Rank, Server, Time};
use hydrant_driver::MappedStorage;

use super::input::Fed;
use super::plan::{Departure, MS};
use crate::checks::Rounds;
use crate::inbox::Inbox;
use crate::successor::Succeeded;

/// Message on a link.
#[derive(Clone, Debug)]
pub(super) enum Packet {
    /// From server to server.
    Peer(Vec<u8>),
    /// From the head to one node, or to all nodes.
    Order { to: Option<u32>, bytes: Vec<u8> },
    /// From a daemon to the head.
    Report { from: u32, bytes: Vec<u8> },
    /// Output of a rank, to the head.
    Output { from: u32, bytes: Vec<u8> },
    /// From the head: so many bytes of output have been taken.
    Credit { to: u32, bytes: u32 },
    /// To the head: a daemon is lost.
    Failed(u32),
    /// The receiver and all nodes below it end.
    Shutdown,
}

impl Packet {
    pub(super) fn len(&self) -> u64 {
        match self {
            Packet::Peer(bytes)
            | Packet::Order { bytes, .. }
            | Packet::Report { bytes, .. }
            | Packet::Output { bytes, .. } => bytes.len() as u64 + 4,
            Packet::Credit { .. } | Packet::Failed(_) | Packet::Shutdown => 8,
        }
    }
}

/// Something that a node handles, queued in order of arrival.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A message from a neighbour.
    Packet { from: u32, packet: Packet },
    /// A message of another board's server, which had got so many orders.
    Linked { from: u32, orders: u32, bytes: Vec<u8> },
    /// Bytes of a rank.
    Client { pid: u32, bytes: Vec<u8> },
    /// The process of a rank has ended.
    Ended { pid: u32, exit: Exit },
    /// A rank has closed its connection.
    Hangup { pid: u32 },
    /// A client that is no rank connects.
    Stranger,
    /// Bytes of such a client. None when it leaves.
    Rubbish { stranger: u32, bytes: Option<Vec<u8>> },
    /// A client of another run connects, at the head.
    Reader(u32),
    /// A rank has closed its standard input.
    InputHangup { pid: u32 },
    /// A rank has read standard input.
    InputRoom,
    /// More input has been typed, at the head.
    Typed,
    /// Ranks can be started.
    Start,
    /// Pipes of ranks hold output.
    Read,
    /// The link takes messages again.
    Writable { to: u32 },
    /// A deadline has passed.
    Timeout,
    /// The link to a neighbour is lost.
    Lost { neighbour: u32 },
    /// A signal of the user, at the head.
    Interrupt,
    /// All daemons have joined, at the head.
    Joined,
    /// The user names a host that is to join, of this number among them, at the head.
    HostNamed(u32),
    /// The daemon of a host that joins has connected or has failed, at the head.
    Started { node: u32, fails: bool },
    /// The user names a host that is to leave, at the head.
    HostLeaves(Departure),
    /// The daemon of a host that leaves has ended, at the head.
    Left(u32),
    /// The reader of the output reads, at the head.
    Sink,
    /// The daemon lies.
    Lie,
}

/// A client of the PMI server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The process of a rank.
    Rank(u32),
    /// A client that is no rank.
    Stranger(u32),
    /// A client of another run, at the head.
    Reader(u32),
}

/// Connection of a client.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) owner: Owner,
    pub(super) job: JobId,
    /// Bytes that the server has not consumed.
    pending: Vec<u8>,
}

impl Client {
    pub(super) fn new(owner: Owner, job: JobId) -> Client {
        Client { owner, job, pending: Vec::new() }
    }
}

/// A client of another run, which reads one key at the head.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) job: JobId,
    /// Number of the job.
    pub(super) ordinal: u32,
    /// What a rank of the job could rely on when it left a meeting.
    pub(super) known: Vec<Rounds>,
    /// Owner of the key, and its number.
    pub(super) key: (u32, u32),
    /// Replies so far: to both parts of the handshake, and to the get.
    pub(super) replies: u32,
}

/// A job at a node.
#[derive(Clone, Debug)]
pub(super) struct LocalJob {
    pub(super) ordinal: u32,
    pub(super) name: String,
    /// Index of its program in the plan.
    pub(super) program: u32,
    pub(super) size: u32,
    /// Its ranks have ended, and their output is being sent.
    pub(super) draining: bool,
}

/// A host of the cluster.
#[derive(Debug)]
pub(super) struct Node<'m> {
    pub(super) number: u32,
    /// None once the server has failed.
    pub(super) server: Option<Succeeded<'m>>,
    /// None at the head.
    pub(super) daemon: Option<Daemon>,
    /// The machine runs.
    pub(super) alive: bool,
    /// The link to the parent is cut.
    pub(super) is_cut_off: bool,
    /// Its processes stand still until then.
    pub(super) frozen_until: u64,
    /// The daemon has ended its processes.
    pub(super) ended: bool,
    pub(super) inbox: Inbox<Item>,
    /// Time of the next timeout that is scheduled.
    pub(super) timeout: Option<u64>,
    pub(super) jobs: BTreeMap<JobId, LocalJob>,
    /// Processes by job and rank, those that have ended included.
    pub(super) processes: BTreeMap<(JobId, u32), u32>,
    pub(super) clients: BTreeMap<ConnId, Client>,
    pub(super) strangers: u32,
    /// Neighbours whose links are full.
    pub(super) blocked: BTreeSet<u32>,
    /// Orders to all nodes that have arrived.
    pub(super) orders: u32,
    /// Bytes of output that may be sent to the head.
    pub(super) credit: i64,
    pub(super) is_starting: bool,
    pub(super) fed: Fed,
    /// Messages to neighbours' servers, which a liar sends again.
    pub(super) sent: Vec<(u32, Vec<u8>)>,
    limits: Limits,
    buffer: Vec<u8>,
}

/// Window of output of a daemon, in bytes.
const WINDOW: i64 = 64 * 1024;

impl<'m> Node<'m> {
    pub(super) fn new(
        number: u32,
        (nodes, radix): (u32, u32),
        limits: Limits,
        memory: &'m mut MappedStorage,
        seed: u32,
    ) -> Node<'m> {
        let server = Server::new(limits, memory.lend(), seed);
        let mut server = Succeeded::new(server.expect("the memory is as long as the limits require"));
        server.handle(Time(0), Input::Node { node: number, nodes, radix }).expect("the tree has the node");
        Node {
            number,
            server: Some(server),
            daemon: None,
            alive: true,
            is_cut_off: false,
            frozen_until: 0,
            ended: false,
            inbox: Inbox::default(),
            timeout: None,
            jobs: BTreeMap::new(),
            processes: BTreeMap::new(),
            clients: BTreeMap::new(),
            strangers: 0,
            blocked: BTreeSet::new(),
            orders: 0,
            credit: WINDOW,
            is_starting: false,
            fed: Fed::none(),
            sent: Vec::new(),
            limits,
            buffer: vec![0; limits.output_max()],
        }
    }

    /// Passes an input to the server. A failed server accepts all inputs.
    pub(super) fn handle(&mut self, now: u64, input: Input<'_>) -> Result<Consumed, Fault> {
        match &mut self.server {
            Some(server) => server.handle(Time(now / MS), input),
            None => {
                let bytes = if let Input::Bytes { bytes, .. } = input { bytes.len() as u32 } else { 0 };
                Ok(Consumed { bytes, again: false })
            }
        }
    }

    /// Passes an input that the server must accept.
    pub(super) fn tell(&mut self, now: u64, input: Input<'_>) {
        let result = self.handle(now, input);
        assert!(result.is_ok(), "node {}: {input:?} is a fault: {result:?}", self.number);
    }

    /// Passes a decision of the head. The job or the request may be gone.
    ///
    /// # Errors
    /// The server refuses it.
    pub(super) fn decide(&mut self, now: u64, input: Input<'_>) -> Result<(), Fault> {
        match self.handle(now, input) {
            Ok(_) | Err(Fault::NoSuchUpcall | Fault::NoSuchJob) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Opens a connection.
    pub(super) fn open(&mut self, now: u64, job: JobId, rank: Option<u32>, owner: Owner) -> Option<ConnId> {
        let conn = self.free_conn()?;
        self.clients.insert(conn, Client::new(owner, job));
        self.tell(now, Input::Opened { conn, job, rank: rank.map(Rank) });
        Some(conn)
    }

    /// Returns a connection that is not open.
    pub(super) fn free_conn(&self) -> Option<ConnId> {
        (0..self.limits.conns).map(ConnId).find(|conn| !self.clients.contains_key(conn))
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, now: u64, conn: ConnId) -> Option<Client> {
        let client = self.clients.remove(&conn)?;
        self.tell(now, Input::Closed { conn });
        Some(client)
    }

    pub(super) fn conn_of(&self, owner: Owner) -> Option<ConnId> {
        self.clients.iter().find(|(_, client)| client.owner == owner).map(|(&conn, _)| conn)
    }

    /// Passes the bytes of a client together with its pending bytes.
    pub(super) fn receive(&mut self, now: u64, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        let mut all = std::mem::take(&mut client.pending);
        all.extend_from_slice(bytes);
        let full = all.len() > 4096;
        let consumed =
            self.handle(now, Input::Bytes { conn, bytes: &all, full }).expect("the connection is open");
        if let Some(client) = self.clients.get_mut(&conn) {
            client.pending = all.split_off(consumed.bytes as usize);
        }
    }

    /// Registers a job, as the launcher does.
    pub(super) fn register(
        &mut self,
        now: u64,
        record: &JobRecord,
        (cleanup, fence): (bool, FenceMode),
        program: u32,
    ) -> Result<(), Fault> {
        let (job, size) = (record.id, record.programs.iter().map(|program| program.ranks).sum());
        let origin = record.spawned.as_ref();
        let here = origin.filter(|origin| origin.node == self.number);
        let elsewhere = origin.filter(|origin| origin.node != self.number);
        let spec = JobSpec {
            cleanup,
            spawn: here.map(|origin| origin.upcall),
            spawner: elsewhere.map_or("", |origin| &origin.spawner),
            remote_names: true,
            fence_warning: 10,
            fence,
            ..JobSpec::new(job, &record.name, size)
        };
        self.handle(now, Input::RegisterJob(spec))?;
        let result = self.describe(now, record);
        if result.is_err() {
            self.tell(now, Input::DeregisterJob { job });
            return result;
        }
        let (ordinal, name) = (record.ordinal, record.name.clone());
        self.jobs.insert(job, LocalJob { ordinal, name, program, size, draining: false });
        Ok(())
    }

    fn describe(&mut self, now: u64, record: &JobRecord) -> Result<(), Fault> {
        let job = record.id;
        let mut first = 0;
        for (appnum, program) in (0..).zip(&*record.programs) {
            let count = program.ranks;
            self.handle(now, Input::Program { job, first: Rank(first), count, appnum })?;
            first += count;
        }
        for block in &record.blocks {
            let (first, count, node) = (Rank(block.first), block.count, block.node);
            self.handle(now, Input::MapRanks { job, first, count, node })?;
        }
        let elsewhere = record.spawned.as_ref().filter(|origin| origin.node != self.number);
        for (key, value) in elsewhere.iter().flat_map(|origin| &origin.preput) {
            self.handle(now, Input::Preput { job, key, value })?;
        }
        let value = record.mapping.as_bytes();
        self.handle(now, Input::Attr { job, key: b"PMI_process_mapping", value })?;
        Ok(())
    }

    /// Deregisters a job and closes its connections.
    pub(super) fn deregister(&mut self, now: u64, job: JobId) {
        let conns: Vec<ConnId> =
            self.clients.iter().filter(|(_, client)| client.job == job).map(|(&conn, _)| conn).collect();
        for conn in conns {
            self.close(now, conn);
        }
        self.tell(now, Input::DeregisterJob { job });
        self.jobs.remove(&job);
        self.processes.retain(|&(of, _), _| of != job);
    }

    /// Returns the next output of the server.
    pub(super) fn poll(&mut self) -> Option<OwnedOutput> {
        let output = self.server.as_mut()?.poll(&mut self.buffer)?;
        if let Output::Peer { bytes, .. } = output {
            assert!(message::split(bytes).is_some(), "a message has a head");
        }
        Some(output.to_owned())
    }

    /// Returns the time of the next timeout, in nanoseconds.
    pub(super) fn poll_at(&self) -> Option<u64> {
        let of_server = self.server.as_ref().and_then(|server| server.poll_at()).map(|Time(at)| at);
        let of_daemon = self.daemon.as_ref().and_then(Daemon::poll_at);
        of_server.into_iter().chain(of_daemon).min().map(|at| at.saturating_mul(MS))
    }
}
