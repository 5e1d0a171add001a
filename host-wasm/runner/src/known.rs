//! What a host knows of its server, against which a plugin's outputs are held.

use std::ops::Range;

use hydrant_core::limits::PENDING_MAX;
use hydrant_core::peer::message;
use hydrant_core::peer::tree::Tree;
use hydrant_core::server::Consumed;
use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Time};

/// An output, or what became of an input, that no server would give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nonsense {
    /// It is about a connection that is not open.
    #[error("connection {0} is not open")]
    Conn(ConnId),
    /// A connection is to be closed for the second time.
    #[error("connection {0} is closed twice")]
    Closed(ConnId),
    /// It is about a job that is not served.
    #[error("job {0} is not served")]
    Job(JobId),
    /// A job is to end for the second time.
    #[error("job {0} ends twice")]
    Ended(JobId),
    /// It is about a rank that the job does not have.
    #[error("job {0} has no rank {1}")]
    Rank(JobId, Rank),
    /// It is about a rank of another node's.
    #[error("rank {1} of job {0} is on another node")]
    Elsewhere(JobId, Rank),
    /// A client is another job's than the one that it came for.
    #[error("connection {0} did not come for job {1}")]
    Stranger(ConnId, JobId),
    /// A request has a number that is taken or that no request can have.
    #[error("there cannot be a request number {0}")]
    Upcall(u32),
    /// A late fence counts more than its ranks.
    #[error("{arrived} of {size} ranks have arrived in a job of {ranks}")]
    Late {
        /// Who has arrived.
        arrived: u32,
        /// Who must.
        size: u32,
        /// Who there is.
        ranks: u32,
    },
    /// A message for a node that is no neighbour.
    #[error("node {0} is no neighbour")]
    Node(u32),
    /// A message for a node that its host cannot send to at present.
    #[error("a message for node {0}, which takes none at present")]
    Blocked(u32),
    /// A message that means nothing to any node.
    #[error("a message for node {0} that no server sends")]
    Message(u32),
    /// More messages than what the server was told can lead to.
    #[error("message number {1} for node {0}, which nothing can have led to")]
    Unfounded(u32, u64),
    /// A reply of no bytes, or an output with more than any may have.
    #[error("an output of {0} bytes")]
    Length(usize),
    /// More outputs than a server can owe.
    #[error("more than {0} outputs at once")]
    Endless(u64),
    /// More bytes are done with than there were.
    #[error("{done} of {given} bytes are done with")]
    Consumed {
        /// Done with.
        done: u32,
        /// Handed in.
        given: usize,
    },
    /// A tick is asked for at once after another.
    #[error("a tick is wanted at {0} ms, which is over")]
    Wake(u64),
}

/// The jobs, connections and requests of a server, as its host knows them.
#[derive(Clone, Debug)]
pub struct Known {
    limits: Limits,
    jobs: Vec<Option<Job>>,
    conns: Vec<Option<Conn>>,
    /// Which requests the host was told of and has not answered.
    upcalls: Vec<bool>,
    node: u32,
    tree: Tree,
    peers: Vec<Peer>,
    /// How many messages to each neighbour what the server was told can have led to.
    founded: u64,
    /// Outputs since the last input.
    outputs: u64,
}

#[derive(Clone, Debug)]
struct Job {
    size: u32,
    ending: bool,
    /// Which ranks are on which node, as far as that was told.
    places: Vec<(Range<u32>, u32)>,
}

impl Job {
    /// The node of a rank: 0 unless something else was told, the last word counting.
    fn node(&self, rank: Rank) -> u32 {
        let told = self.places.iter().rfind(|(ranks, _)| ranks.contains(&rank.0));
        told.map_or(0, |&(_, node)| node)
    }
}

#[derive(Clone, Copy, Debug)]
struct Conn {
    job: JobId,
    closing: bool,
}

/// A neighbour.
#[derive(Clone, Debug)]
struct Peer {
    node: u32,
    /// Messages for it so far.
    said: u64,
    blocked: bool,
}

impl Known {
    /// Of a server without jobs.
    pub fn new(limits: Limits) -> Known {
        Known {
            limits,
            jobs: vec![None; limits.jobs as usize],
            conns: vec![None; limits.conns as usize],
            upcalls: vec![false; limits.spawns as usize],
            node: 0,
            tree: Tree::new(1, 0),
            peers: Vec::new(),
            founded: 0,
            outputs: 0,
        }
    }

    /// The server's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes note of an input that the server has taken, and holds what became of it against it.
    ///
    /// # Errors
    /// What became of it is [`Nonsense`].
    pub fn told(
        &mut self,
        now: Time,
        input: &Input<'_>,
        consumed: Consumed,
        wake: Option<Time>,
    ) -> Result<(), Nonsense> {
        self.outputs = 0;
        self.founded = self.founded.saturating_add(founded(input));
        let given = if let Input::Bytes { bytes, .. } = input { bytes.len() } else { 0 };
        if consumed.bytes as usize > given {
            return Err(Nonsense::Consumed { done: consumed.bytes, given });
        }
        match *input {
            Input::RegisterJob(spec) => {
                if let Some(slot) = self.jobs.get_mut(spec.job.index()) {
                    *slot = Some(Job { size: spec.size, ending: false, places: Vec::new() });
                }
            }
            Input::MapRanks { job, first, count, node } => {
                if let Some(job) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) {
                    job.places.push((first.0..first.0.saturating_add(count), node));
                }
            }
            Input::DeregisterJob { job } => {
                if let Some(slot) = self.jobs.get_mut(job.index()) {
                    *slot = None;
                }
            }
            Input::Opened { conn, job, .. } | Input::OpenedQuery { conn, job } => {
                if let Some(slot) = self.conns.get_mut(conn.index()) {
                    *slot = Some(Conn { job, closing: false });
                }
            }
            Input::Closed { conn } => {
                if let Some(slot) = self.conns.get_mut(conn.index()) {
                    *slot = None;
                }
            }
            Input::SpawnComplete { spawn: upcall, .. } | Input::UpcallComplete { upcall, .. } => {
                if let Some(slot) = self.upcalls.get_mut(upcall.index()) {
                    *slot = false;
                }
            }
            Input::Node { node, nodes, radix } => {
                (self.node, self.tree) = (node, Tree::new(nodes, radix));
                let children = self.tree.children(node).map(|part| part.start);
                let peer = |node| Peer { node, said: 0, blocked: false };
                self.peers = self.tree.parent(node).into_iter().chain(children).map(peer).collect();
            }
            Input::PeerBlocked { node } | Input::PeerWritable { node } => {
                if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
                    peer.blocked = matches!(input, Input::PeerBlocked { .. });
                }
            }
            // One that wants the next tick at once would keep its host busy for ever.
            Input::Timeout => {
                if let Some(at) = wake.filter(|&at| at <= now) {
                    return Err(Nonsense::Wake(at.0));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Holds an output against what is known.
    ///
    /// # Errors
    /// [`Nonsense`]
    pub fn said(&mut self, output: &Output<'_>) -> Result<(), Nonsense> {
        // What is said to neighbours has a bound of its own.
        self.outputs += u64::from(!matches!(output, Output::Peer { .. }));
        if self.outputs > self.outputs_max() {
            return Err(Nonsense::Endless(self.outputs_max()));
        }
        match *output {
            Output::Bytes { conn, bytes } => {
                self.conn(conn)?;
                self.length(bytes, 1)
            }
            Output::Close { conn, .. } => {
                let open = self.conn(conn)?;
                if std::mem::replace(&mut open.closing, true) { Err(Nonsense::Closed(conn)) } else { Ok(()) }
            }
            Output::Joined { conn, job, rank } => {
                self.own_rank(job, rank)?;
                if self.conn(conn)?.job == job { Ok(()) } else { Err(Nonsense::Stranger(conn, job)) }
            }
            Output::Spawn { spawn: upcall, job, rank, request, .. }
            | Output::Upcall { upcall, job, rank, request, .. } => {
                self.own_rank(job, rank)?;
                self.length(request, 1)?;
                let told = self.upcalls.get_mut(upcall.index());
                match told.map(|told| std::mem::replace(told, true)) {
                    Some(false) => Ok(()),
                    Some(true) | None => Err(Nonsense::Upcall(upcall.0)),
                }
            }
            Output::KillRank { job, rank, message, .. } => {
                self.own_rank(job, rank)?;
                self.length(message.as_bytes(), 0)
            }
            Output::AbortJob { job, cause, message } => {
                self.rank(job, cause.rank())?;
                self.length(message.as_bytes(), 0)?;
                let ending = &mut self.job(job)?.ending;
                if std::mem::replace(ending, true) { Err(Nonsense::Ended(job)) } else { Ok(()) }
            }
            Output::StalledFence { job, arrived, size, missing } => {
                self.length(missing.as_bytes(), 0)?;
                let ranks = self.job(job)?.size;
                let sound = arrived <= size && size <= ranks;
                if sound { Ok(()) } else { Err(Nonsense::Late { arrived, size, ranks }) }
            }
            Output::Peer { node, bytes } => {
                if bytes.len() > self.limits.output_room() {
                    return Err(Nonsense::Length(bytes.len()));
                }
                let peer = self.peers.iter_mut().find(|peer| peer.node == node);
                let peer = peer.ok_or(Nonsense::Node(node))?;
                if peer.blocked {
                    return Err(Nonsense::Blocked(node));
                }
                peer.said += 1;
                if peer.said > self.founded {
                    return Err(Nonsense::Unfounded(node, peer.said));
                }
                message::split(bytes).map(drop).ok_or(Nonsense::Message(node))
            }
        }
    }

    /// A connection says that it is there, its replies and its end; a rank may be ended, a job end and be late.
    fn outputs_max(&self) -> u64 {
        let of = |count: u32, each: u64| u64::from(count).saturating_mul(each);
        let Limits { conns, ranks, jobs, groups, spawns, .. } = self.limits;
        of(conns, PENDING_MAX as u64 + 2) + of(ranks, 1) + of(jobs, 2) + of(groups, 1) + of(spawns, 1)
    }

    fn length(&self, bytes: &[u8], least: usize) -> Result<(), Nonsense> {
        let sound = (least..=self.limits.output_max()).contains(&bytes.len());
        if sound { Ok(()) } else { Err(Nonsense::Length(bytes.len())) }
    }

    fn conn(&mut self, conn: ConnId) -> Result<&mut Conn, Nonsense> {
        self.conns.get_mut(conn.index()).and_then(Option::as_mut).ok_or(Nonsense::Conn(conn))
    }

    fn job(&mut self, job: JobId) -> Result<&mut Job, Nonsense> {
        self.jobs.get_mut(job.index()).and_then(Option::as_mut).ok_or(Nonsense::Job(job))
    }

    fn rank(&mut self, job: JobId, rank: Rank) -> Result<(), Nonsense> {
        if rank.0 < self.job(job)?.size { Ok(()) } else { Err(Nonsense::Rank(job, rank)) }
    }

    /// The same for a rank that has to be of this node.
    fn own_rank(&mut self, job: JobId, rank: Rank) -> Result<(), Nonsense> {
        self.rank(job, rank)?;
        let here = self.node;
        if self.job(job)?.node(rank) == here { Ok(()) } else { Err(Nonsense::Elsewhere(job, rank)) }
    }
}

/// How many messages to one neighbour an input can lead to, at once or later. Each holds a record, says that a meeting is
/// complete here, or tells of an end: there is one input for each, or one command of a client's or one part of a
/// neighbour's message, which are no shorter than two bytes.
fn founded(input: &Input<'_>) -> u64 {
    let bytes = match *input {
        Input::Bytes { bytes, .. } | Input::Peer { bytes, .. } => bytes.len(),
        _ => 0,
    };
    1 + bytes as u64 / 2
}
