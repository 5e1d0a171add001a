//! A node: the real core, and what a host does for it.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};

use hydrant_core::server::{Consumed, JobSpec};
use hydrant_core::trace::{Cause, Exit};
use hydrant_core::{ConnId, Fault, Input, JobId, Limits, Output, Rank, Server, Time};
use hydrant_driver::MappedStorage;

use crate::net::Message;

/// The job's number.
pub const JOB: JobId = JobId(0);

/// What a node has to deal with, in the order in which it came.
#[derive(Clone, Debug)]
pub enum Item {
    /// A client's bytes.
    Client {
        /// Of which job, in the order of the scenario.
        job: usize,
        /// Whose.
        rank: u32,
        /// All or a part of a message.
        bytes: Vec<u8>,
    },
    /// A message from a neighbour.
    Message {
        /// The neighbour.
        from: u32,
        /// What it says.
        message: Message,
    },
    /// A rank's process has ended.
    Exit {
        /// Whose.
        rank: u32,
        /// How.
        exit: Exit,
    },
    /// A link takes messages again.
    Writable {
        /// Where it leads.
        to: u32,
    },
    /// Time has come.
    Tick,
}

/// What a node's core wants done.
#[derive(Clone, Debug)]
pub enum Deed {
    /// A reply to a rank.
    Reply {
        /// Whose.
        rank: u32,
        /// The reply.
        bytes: Vec<u8>,
    },
    /// A message to a neighbour's core.
    Send {
        /// Where to.
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
    pub server: Server<'m>,
    /// What waits for it.
    pub inbox: VecDeque<Item>,
    /// Until when it is at work.
    pub busy: u64,
    /// Whether it is to look into its inbox at some time.
    pub scheduled: bool,
    /// Whether it still exists.
    pub alive: bool,
    /// Which job it serves, in the order of the scenario.
    pub job: Option<usize>,
    /// Whether that is ending.
    pub ending: bool,
    /// The rank of each connection.
    ranks: Vec<u32>,
    /// The connection of each rank that is here.
    conns: HashMap<u32, ConnId>,
    /// Bytes of clients that the core has not consumed.
    pending: HashMap<u32, Vec<u8>>,
    buffer: Vec<u8>,
    /// A digest of all that the core was told and said.
    pub digest: u64,
    /// All that the core was told and asked, where that is kept.
    pub tape: Option<Vec<Taped>>,
}

/// Something on a tape.
#[derive(Clone, Debug)]
pub enum Taped {
    /// The core was told this, at that time.
    Input(u64, Vec<u8>),
    /// It was asked what to do.
    Poll,
}

/// How the nodes of a job hang together, and which ranks they have.
#[derive(Clone, Debug)]
pub struct Layout {
    /// How many, the head included.
    pub nodes: u32,
    /// Children of each at most.
    pub radix: u32,
    /// Where each rank is.
    pub places: Vec<u32>,
}

impl<'m> Node<'m> {
    /// A node that serves nothing yet.
    pub fn new(limits: Limits, memory: &'m mut MappedStorage, seed: u32, keep_tape: bool) -> Node<'m> {
        Node {
            server: Server::new(limits, memory.lend(), seed)
                .expect("the memory is as long as the limits say"),
            inbox: VecDeque::new(),
            busy: 0,
            scheduled: false,
            alive: true,
            job: None,
            ending: false,
            ranks: Vec::new(),
            conns: HashMap::new(),
            pending: HashMap::new(),
            buffer: vec![0; limits.output_max().max(32 * 1024)],
            digest: 0,
            tape: keep_tape.then(Vec::new),
        }
    }

    /// Tells the core something that it has to take.
    pub fn tell(&mut self, now: u64, input: Input<'_>) -> Consumed {
        match self.try_tell(now, input) {
            Ok(consumed) => consumed,
            Err(fault) => panic!("{input:?} is a fault: {fault}"),
        }
    }

    /// Tells the core something.
    pub fn try_tell(&mut self, now: u64, input: Input<'_>) -> Result<Consumed, Fault> {
        if let Some(tape) = &mut self.tape {
            tape.push(Taped::Input(now, postcard::to_stdvec(&input).expect("inputs are records")));
        }
        self.server.handle(Time(now / 1_000_000), input)
    }

    /// Does again what a tape says; what the core said is in the digest.
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

    fn ask(&mut self) -> Option<Output<'_>> {
        if let Some(tape) = &mut self.tape {
            tape.push(Taped::Poll);
        }
        let output = self.server.poll(&mut self.buffer).expect("the buffer is long enough");
        if let Some(output) = &output {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(self.digest);
            hasher.write(&postcard::to_stdvec(output).expect("outputs are records"));
            self.digest = hasher.finish();
        }
        output
    }

    /// Takes one thing that the core says; false where it says nothing.
    pub fn poll(&mut self, deeds: &mut Vec<Deed>) -> bool {
        let ranks = std::mem::take(&mut self.ranks);
        let said = self.ask().map(|output| deeds.extend(deed(&output, &ranks)));
        self.ranks = ranks;
        said.is_some()
    }

    /// Opens the job and the connections of this node's ranks.
    pub fn open(&mut self, now: u64, node: u32, layout: &Layout, name: &str, cleanup: bool) {
        let size = layout.places.len() as u32;
        let spec = JobSpec { cleanup, fence_warning: 10_000, ..JobSpec::new(JOB, name, size) };
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

    /// Hands in a client's bytes, with those that it left before.
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
        let mut buf = vec![0; 1 << 20];
        let len = self.server.snapshot(&mut buf).expect("small simulations have small states").len();
        buf.truncate(len);
        buf
    }
}

/// What an output asks for, where that is anything here.
fn deed(output: &Output<'_>, ranks: &[u32]) -> Option<Deed> {
    match *output {
        Output::Bytes { conn, bytes } => {
            Some(Deed::Reply { rank: ranks[conn.index()], bytes: bytes.to_vec() })
        }
        Output::Peer { node, bytes } => Some(Deed::Send { to: node, bytes: bytes.to_vec() }),
        Output::AbortJob { cause, .. } => Some(Deed::End(cause)),
        Output::Joined { .. } | Output::StalledFence { .. } => None,
        Output::Close { .. } | Output::Spawn { .. } | Output::Upcall { .. } | Output::KillRank { .. } => {
            panic!("nobody asked for {output:?}")
        }
    }
}
