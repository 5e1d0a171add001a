//! Simulated node: the real server and its host.

use std::collections::HashMap;

use hydrant_core::server::{Consumed, FenceMode, JobSpec};
use hydrant_core::trace::{Cause, Exit};
use hydrant_core::{ConnId, Fault, Input, JobId, Limits, Output, Rank, Server, Time};
use hydrant_driver::MappedStorage;

use crate::inbox::Inbox;
use crate::net::Message;
use crate::successor::{Succeeded, snapshot};

/// The job's number.
pub const JOB: JobId = JobId(0);

/// Input of a node, queued in order of arrival.
#[derive(Clone, Debug)]
pub enum Item {
    /// A client's bytes.
    Client {
        /// Index of the job in the scenario.
        job: usize,
        /// Rank of the client.
        rank: u32,
        /// All or a part of a message.
        bytes: Vec<u8>,
    },
    /// A message from a neighbour.
    Message {
        /// The neighbour.
        from: u32,
        /// Message.
        message: Message,
    },
    /// A rank's process has ended.
    Exit {
        /// Rank of the process.
        rank: u32,
        /// Exit of the process.
        exit: Exit,
    },
    /// A link takes messages again.
    Writable {
        /// Neighbour at the other end of the link.
        to: u32,
    },
    /// A timeout of the server.
    Tick,
}

/// Action that a node's server requests.
#[derive(Clone, Debug)]
pub enum Deed {
    /// A reply to a rank.
    Reply {
        /// Rank of the client.
        rank: u32,
        /// The reply.
        bytes: Vec<u8>,
    },
    /// A message to a neighbour's core.
    Send {
        /// Destination.
        to: u32,
        /// The message.
        bytes: Vec<u8>,
    },
    /// The job has to end.
    End(Cause),
}

/// A node of the simulated machine.
#[derive(Debug)]
pub struct Node<'m> {
    /// The core.
    pub server: Succeeded<'m>,
    /// Inputs that have not been handled.
    pub inbox: Inbox<Item>,
    /// The node exists.
    pub alive: bool,
    /// Index of the served job in the scenario.
    pub job: Option<usize>,
    /// The job is ending.
    pub ending: bool,
    /// The rank of each connection.
    ranks: Vec<u32>,
    /// The connection of each rank that is here.
    conns: HashMap<u32, ConnId>,
    /// Bytes of clients that the core has not consumed.
    pending: HashMap<u32, Vec<u8>>,
    buffer: Vec<u8>,
    /// All inputs and polls of the server, if they are kept.
    pub tape: Option<Vec<Taped>>,
}

/// Entry of a tape.
#[derive(Clone, Debug)]
pub enum Taped {
    /// An input at this time.
    Input(u64, Vec<u8>),
    /// A poll.
    Poll,
}

/// Tree of the nodes of a job, and the places of ranks.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Number of nodes, including the head.
    pub nodes: u32,
    /// Maximum number of children of a node.
    pub radix: u32,
    /// Node of each rank.
    pub places: Vec<u32>,
}

impl<'m> Node<'m> {
    /// Creates a node without a job.
    pub fn new(limits: Limits, memory: &'m mut MappedStorage, seed: u32, keep_tape: bool) -> Node<'m> {
        let server = Server::new(limits, memory.lend(), seed);
        Node {
            server: Succeeded::new(server.expect("the memory is as long as the limits say")),
            inbox: Inbox::default(),
            alive: true,
            job: None,
            ending: false,
            ranks: Vec::new(),
            conns: HashMap::new(),
            pending: HashMap::new(),
            buffer: vec![0; limits.output_max().max(32 * 1024)],
            tape: keep_tape.then(Vec::new),
        }
    }

    /// Passes the server an input that it must accept.
    pub fn tell(&mut self, now: u64, input: Input<'_>) -> Consumed {
        match self.try_tell(now, input) {
            Ok(consumed) => consumed,
            Err(fault) => panic!("{input:?} is a fault: {fault}"),
        }
    }

    /// Passes the server an input.
    pub fn try_tell(&mut self, now: u64, input: Input<'_>) -> Result<Consumed, Fault> {
        if let Some(tape) = &mut self.tape {
            tape.push(Taped::Input(now, postcard::to_stdvec(&input).expect("inputs are records")));
        }
        self.server.handle(Time(now / 1_000_000), input)
    }

    /// Replays the inputs of a tape. The outputs are compared by the digest.
    pub fn replay(&mut self, tape: &[Taped]) {
        for entry in tape {
            match entry {
                Taped::Input(now, input) => {
                    let input = postcard::from_bytes(input).expect("inputs come back from the tape");
                    // Mistakes are on the tape, too.
                    let _ = self.try_tell(*now, input);
                }
                Taped::Poll => drop(self.ask()),
            }
        }
    }

    /// Checks that the same inputs give the same outputs.
    pub fn check_tape(&self, limits: Limits, seed: u32) {
        let Some(tape) = &self.tape else { return };
        let mut memory = MappedStorage::new(&limits);
        let mut again = Node::new(limits, &mut memory, seed, false);
        again.replay(tape);
        assert_eq!(again.server.digest(), self.server.digest(), "a replayed node says something else");
        assert!(again.snapshot() == self.snapshot(), "a replayed node is in another state");
    }

    fn ask(&mut self) -> Option<Output<'_>> {
        if let Some(tape) = &mut self.tape {
            tape.push(Taped::Poll);
        }
        self.server.poll(&mut self.buffer)
    }

    /// Polls one output of the server. Returns false if there is none.
    pub fn poll(&mut self, deeds: &mut Vec<Deed>) -> bool {
        let ranks = std::mem::take(&mut self.ranks);
        let said = self.ask().map(|output| deeds.extend(deed(&output, &ranks)));
        self.ranks = ranks;
        said.is_some()
    }

    /// Opens the job and the connections of this node's ranks.
    pub fn open(&mut self, now: u64, node: u32, layout: &Layout, name: &str, settings: (bool, FenceMode)) {
        let (cleanup, fence) = settings;
        let size = layout.places.len() as u32;
        let spec = JobSpec { cleanup, fence, fence_warning: 10_000, ..JobSpec::new(JOB, name, size) };
        self.tell(now, Input::RegisterJob(spec));
        let mut first = 0;
        for ranks in layout.places.chunk_by(|a, b| a == b) {
            let count = ranks.len() as u32;
            self.tell(now, Input::MapRanks { job: JOB, first: Rank(first), count, node: ranks[0] });
            first += count;
        }
        let here = (0u32..).zip(&layout.places).filter(|&(_, &place)| place == node);
        self.ranks = here.map(|(rank, _)| rank).collect();
        self.conns = (0u32..).zip(&self.ranks).map(|(conn, &rank)| (rank, ConnId(conn))).collect();
        for (conn, rank) in (0u32..).zip(self.ranks.clone()) {
            self.tell(now, Input::Opened { conn: ConnId(conn), job: JOB, rank: Some(Rank(rank)) });
        }
        self.ending = false;
    }

    /// Passes the bytes of a client to the server, together with its pending bytes.
    pub fn hear(&mut self, now: u64, rank: u32, bytes: &[u8]) {
        let mut all = self.pending.remove(&rank).unwrap_or_default();
        all.extend_from_slice(bytes);
        let consumed = self.tell(now, Input::Bytes { conn: self.conns[&rank], bytes: &all, full: false });
        let rest = all.split_off(consumed.bytes as usize);
        if !rest.is_empty() {
            self.pending.insert(rank, rest);
        }
    }

    /// A rank's process has ended: its connection closes, too.
    pub fn exit(&mut self, now: u64, rank: u32, exit: Exit) {
        self.pending.remove(&rank);
        self.tell(now, Input::Closed { conn: self.conns[&rank] });
        self.tell(now, Input::Exited { job: JOB, rank: Rank(rank), exit });
    }

    /// The state as bytes.
    pub fn snapshot(&self) -> Vec<u8> {
        snapshot(&self.server)
    }
}

/// Converts an output to an action of the simulator, if it has one.
fn deed(output: &Output<'_>, ranks: &[u32]) -> Option<Deed> {
    match *output {
        Output::Bytes { conn, bytes } => {
            Some(Deed::Reply { rank: ranks[conn.index()], bytes: bytes.to_vec() })
        }
        Output::Peer { node, bytes } => Some(Deed::Send { to: node, bytes: bytes.to_vec() }),
        Output::AbortJob { cause, .. } => Some(Deed::End(cause)),
        Output::Joined { .. } | Output::StalledFence { .. } => None,
        Output::Close { .. }
        | Output::Spawn { .. }
        | Output::Upcall { .. }
        | Output::KillRank { .. }
        | Output::RemoveFiles { .. }
        | Output::Log { .. }
        | Output::Connected { .. } => panic!("unexpected {output:?}"),
    }
}
