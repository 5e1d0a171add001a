//! Results and outputs of a server, checked against the inputs that it was given.

use std::collections::VecDeque;
use std::ops::Range;

use hydrant_core::limits::PENDING_MAX;
use hydrant_core::peer::message;
use hydrant_core::peer::tree::Tree;
use hydrant_core::server::{Consumed, FenceMode, HostState};
use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Server, Time};

use crate::progress::Progress;

/// Largest number of inputs that a host passes to a server before it takes the outputs.
pub const INPUTS_MAX: usize = 256;

/// An output or a result that no correct server produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// An output for a connection that is not open.
    #[error("connection {0} is not open")]
    UnknownConn(ConnId),
    /// A second `Close` of a connection.
    #[error("connection {0} is closed twice")]
    ClosedTwice(ConnId),
    /// An output for a job that is not registered.
    #[error("job {0} is not registered")]
    UnknownJob(JobId),
    /// A second `AbortJob` of a job.
    #[error("job {0} is aborted twice")]
    AbortedTwice(JobId),
    /// An output for a rank that the job does not have.
    #[error("job {0} has no rank {1}")]
    UnknownRank(JobId, Rank),
    /// An output for a rank on another node.
    #[error("rank {1} of job {0} is on another node")]
    RemoteRank(JobId, Rank),
    /// A connection joined a job that it was not opened for.
    #[error("connection {0} is not of job {1}")]
    WrongJob(ConnId, JobId),
    /// An upcall or spawn whose number is in use or out of range.
    #[error("upcall number {0} is in use or out of range")]
    InvalidUpcall(u32),
    /// A stalled fence with more ranks than all jobs have.
    #[error("{arrived} of {size} ranks have arrived, and all jobs have {ranks}")]
    StalledFence {
        /// Ranks that have arrived.
        arrived: u32,
        /// Ranks that take part.
        size: u32,
        /// Ranks of all jobs.
        ranks: u32,
    },
    /// A message for a node that is not a neighbour in the tree.
    #[error("node {0} is not a neighbour")]
    NotNeighbour(u32),
    /// A message for a node between `PeerBlocked` and `PeerWritable`.
    #[error("message for node {0}, whose link is blocked")]
    BlockedPeer(u32),
    /// A malformed message for another node.
    #[error("malformed message for node {0}")]
    MalformedMessage(u32),
    /// More messages for a neighbour than the inputs can cause.
    #[error("message {1} for node {0}, which no input can have caused")]
    ExcessMessage(u32, u64),
    /// An empty reply, or an output longer than the maximum.
    #[error("output of {0} bytes")]
    InvalidLength(usize),
    /// Files to remove that no client has named.
    #[error("files of rank {1} of job {0} that no client has named")]
    UnnamedFiles(JobId, Rank),
    /// More outputs between two inputs than a server can have pending.
    #[error("more than {0} outputs without an input")]
    TooManyOutputs(u64),
    /// More bytes consumed than the input had.
    #[error("{consumed} of {given} bytes consumed")]
    Consumed {
        /// Consumed bytes.
        consumed: u32,
        /// Bytes of the input.
        given: usize,
    },
    /// A complete message that is neither consumed nor deferred until a reply is taken, although no rule permits that.
    #[error("a complete message of connection {0} is not consumed")]
    NotConsumed(ConnId),
    /// No reply to a request that depends on no other rank.
    #[error("a request of connection {0} has no reply")]
    NoReply(ConnId),
    /// After `Timeout`, the next deadline is not in the future.
    #[error("next timeout at {0} ms, which has passed")]
    PastDeadline(u64),
}

/// Validates the results and outputs of one server.
///
/// A validator records the jobs, connections and upcalls of the server from its inputs. Every output must refer to one of
/// these. The number of outputs between two inputs is bounded. Complete messages must be consumed, and requests that depend
/// on no other rank must have a reply before the next input.
#[derive(Clone, Debug)]
pub struct Validator {
    limits: Limits,
    output_max: usize,
    jobs: Vec<Option<Job>>,
    conns: Vec<Option<Conn>>,
    /// For each upcall number, whether the upcall is outstanding.
    upcalls: Vec<bool>,
    node: u32,
    tree: Tree,
    /// Whether a job can have lazy fences.
    lazy: bool,
    peers: Vec<Peer>,
    /// How many messages to each neighbour the inputs so far can have caused.
    messages_max: u64,
    /// Outputs since the last input, and their maximum.
    outputs: u64,
    outputs_max: u64,
    /// Connections whose inputs may have caused replies, since there was no output.
    asking: Vec<ConnId>,
    /// Bytes of clients that name files to remove, since there was no output, latest last.
    cleanups: VecDeque<Vec<u8>>,
}

/// PMIx key of files to remove.
const CLEANUP: &[u8] = b"pmix.reg.cleanup";
/// Number of inputs with that key whose bytes are kept.
const CLEANUPS_MAX: usize = INPUTS_MAX;

#[derive(Clone, Debug)]
struct Job {
    /// Job id, if the host knows jobs of other runs.
    own: Option<String>,
    size: u32,
    aborted: bool,
    /// Ranks by node, in the order of the `MapRanks` inputs.
    mapping: Vec<(Range<u32>, u32)>,
}

impl Job {
    /// Returns the node of a rank: that of the last `MapRanks` input that includes it, or 0.
    fn node(&self, rank: Rank) -> u32 {
        let mapped = self.mapping.iter().rfind(|(ranks, _)| ranks.contains(&rank.0));
        mapped.map_or(0, |&(_, node)| node)
    }
}

#[derive(Clone, Copy, Debug)]
struct Conn {
    job: JobId,
    closing: bool,
    blocked: bool,
    /// It is one of those that ask.
    asking: bool,
    progress: Progress,
}

impl Conn {
    fn new(job: JobId, is_leaf: bool) -> Conn {
        let progress = Progress::default().of_head(is_leaf);
        Conn { job, closing: false, blocked: false, asking: false, progress }
    }
}

/// A neighbour.
#[derive(Clone, Debug)]
struct Peer {
    node: u32,
    /// Number of messages for it so far.
    messages: u64,
    blocked: bool,
}

impl Validator {
    /// Returns a validator for a new server.
    pub fn new(limits: Limits) -> Validator {
        Validator {
            limits,
            output_max: limits.output_max(),
            jobs: vec![None; limits.jobs as usize],
            conns: vec![None; limits.conns as usize],
            upcalls: vec![false; limits.spawns as usize],
            node: 0,
            tree: Tree::new(1, 0),
            lazy: false,
            peers: Vec::new(),
            messages_max: 0,
            outputs: 0,
            outputs_max: outputs_max(&limits),
            asking: Vec::new(),
            cleanups: VecDeque::new(),
        }
    }

    /// Returns a validator for the successor of a server in this process, of which the host has taken all outputs that are not
    /// blocked.
    pub fn of(server: &Server<'_>) -> Validator {
        let limits = *server.limits();
        let mut validator = Validator::new(limits);
        server.host_state(&mut |state| validator.take_over(state));
        // Messages that blocked links hold back: records, ranks and requests about them, collectives.
        let Limits { kvs_bytes, ranks, jobs, groups, names, .. } = limits;
        let of = |count: u32, each: u64| u64::from(count) * each;
        validator.messages_max =
            of(kvs_bytes, 1) / 16 + of(ranks, 6) + of(jobs, 2) + of(groups, 2) + of(names, 1);
        validator
    }

    fn take_over(&mut self, state: HostState<'_>) {
        let is_leaf = self.is_behind_root();
        match state {
            HostState::Node { node, nodes, radix } => self.join(node, Tree::new(nodes, radix)),
            HostState::BlockedLink { node } => self.block(node, true),
            HostState::Job { job, name, size, remote_names, lazy, aborted } => {
                self.lazy |= lazy;
                if let Some(slot) = self.jobs.get_mut(job.index()) {
                    let own = remote_names.then(|| name.to_owned());
                    *slot = Some(Job { own, size, aborted, mapping: Vec::new() });
                }
            }
            HostState::Rank { job, rank: Rank(rank), node } => {
                let Some(job) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) else { return };
                match job.mapping.last_mut() {
                    Some((ranks, of)) if *of == node && ranks.end == rank => ranks.end += 1,
                    _ => job.mapping.push((rank..rank + 1, node)),
                }
            }
            HostState::Conn { conn, job, closing, blocked, spoken, pmix, owed } => {
                if let Some(slot) = self.conns.get_mut(conn.index()) {
                    let progress = Progress::resumed(spoken.then_some(pmix), owed).of_head(is_leaf);
                    *slot = Some(Conn { job, closing, blocked, asking: false, progress });
                }
            }
            HostState::Upcall(upcall) => {
                if let Some(slot) = self.upcalls.get_mut(upcall.index()) {
                    *slot = true;
                }
            }
        }
    }

    fn join(&mut self, node: u32, tree: Tree) {
        (self.node, self.tree) = (node, tree);
        let place = tree.place(node);
        let children = place.children.map(|part| part.start);
        let peer = |node| Peer { node, messages: 0, blocked: false };
        self.peers = place.parent.into_iter().chain(children).map(peer).collect();
    }

    /// Returns whether the server is that of a head below the root.
    fn is_behind_root(&self) -> bool {
        self.node == 0 && self.tree.parent(0).is_some()
    }

    fn block(&mut self, node: u32, blocked: bool) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) {
            peer.blocked = blocked;
        }
    }

    /// Returns the server's limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Records an input that the server accepted and checks its result.
    ///
    /// # Errors
    /// [`Violation`] if the server cannot have consumed so many bytes or cannot have this deadline.
    pub fn check_input(
        &mut self,
        now: Time,
        input: &Input<'_>,
        consumed: Consumed,
        poll_at: Option<Time>,
    ) -> Result<(), Violation> {
        match *input {
            Input::Bytes { conn, bytes, .. } => self.check_bytes(conn, bytes, consumed),
            _ => self.check_event(now, input, consumed, poll_at),
        }
    }

    /// Records bytes of a client as [`check_input`](Validator::check_input) does.
    ///
    /// # Errors
    /// [`Violation`] if the server cannot have consumed so many bytes.
    pub fn check_bytes(&mut self, conn: ConnId, bytes: &[u8], consumed: Consumed) -> Result<(), Violation> {
        self.begin(bytes.len());
        if consumed.bytes as usize > bytes.len() {
            return Err(Violation::Consumed { consumed: consumed.bytes, given: bytes.len() });
        }
        let slot = self.conns.get_mut(conn.index()).and_then(Option::as_mut);
        let open = slot.ok_or(Violation::UnknownConn(conn))?;
        if !std::mem::replace(&mut open.asking, true) {
            self.asking.push(conn);
        }
        let job = self.jobs.get(open.job.index()).and_then(Option::as_ref);
        let own = job.and_then(|job| job.own.as_deref());
        let valid = open.progress.consume(bytes, consumed, own, self.lazy) || open.closing;
        // Only PMIx clients name files.
        if open.progress.is_pmix() && names_files(bytes) {
            if self.cleanups.len() == CLEANUPS_MAX {
                self.cleanups.pop_front();
            }
            self.cleanups.push_back(bytes.to_vec());
        }
        if valid { Ok(()) } else { Err(Violation::NotConsumed(conn)) }
    }

    /// Begins the outputs after an input with so many bytes.
    #[inline]
    fn begin(&mut self, bytes: usize) {
        self.outputs = 0;
        self.messages_max = self.messages_max.saturating_add(messages_max(bytes));
    }

    /// Records an input that is no client's bytes, and checks the deadline after it.
    fn check_event(
        &mut self,
        now: Time,
        input: &Input<'_>,
        consumed: Consumed,
        poll_at: Option<Time>,
    ) -> Result<(), Violation> {
        self.begin(if let Input::Peer { bytes, .. } = input { bytes.len() } else { 0 });
        if consumed.bytes > 0 {
            return Err(Violation::Consumed { consumed: consumed.bytes, given: 0 });
        }
        match *input {
            Input::Blocked { conn } | Input::Writable { conn } => {
                let open = self.conn(conn)?;
                open.blocked = matches!(input, Input::Blocked { .. });
                if !std::mem::replace(&mut open.asking, true) {
                    self.asking.push(conn);
                }
            }
            Input::RegisterJob(spec) => {
                if let Some(slot) = self.jobs.get_mut(spec.job.index()) {
                    self.lazy |= spec.fence != FenceMode::Collect && self.tree.nodes() > 1;
                    let own = spec.remote_names.then(|| spec.name.to_owned());
                    *slot = Some(Job { own, size: spec.size, aborted: false, mapping: Vec::new() });
                }
            }
            Input::MapRanks { job, first, count, node } => {
                if let Some(job) = self.jobs.get_mut(job.index()).and_then(Option::as_mut) {
                    job.mapping.push((first.0..first.0.saturating_add(count), node));
                }
            }
            Input::DeregisterJob { job } => {
                if let Some(slot) = self.jobs.get_mut(job.index()) {
                    *slot = None;
                }
            }
            Input::Opened { conn, job, .. } | Input::OpenedQuery { conn, job } => {
                let is_leaf = self.is_behind_root();
                if let Some(slot) = self.conns.get_mut(conn.index()) {
                    *slot = Some(Conn::new(job, is_leaf));
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
                self.join(node, Tree::new(nodes, radix));
                let late = self.tree.first_late()..nodes;
                late.filter(|_| node == 0).for_each(|node| self.block(node, true));
            }
            Input::NodeJoined { node, .. } => self.block(node, false),
            Input::PeerBlocked { node } | Input::PeerWritable { node } => {
                self.block(node, matches!(input, Input::PeerBlocked { .. }));
            }
            // It may have been a neighbour, which gets no more messages.
            Input::NodeLost { node, .. } => self.peers.retain(|peer| peer.node != node),
            // A deadline that has passed would make the host send timeouts without end.
            Input::Timeout => {
                if let Some(at) = poll_at.filter(|&at| at <= now) {
                    return Err(Violation::PastDeadline(at.0));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks a reply as [`check_output`](Validator::check_output) does.
    ///
    /// # Errors
    /// [`Violation`] if no correct server has this reply after the inputs so far.
    #[inline]
    pub fn check_reply(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), Violation> {
        self.outputs += 1;
        if self.outputs > self.outputs_max {
            return Err(Violation::TooManyOutputs(self.outputs_max));
        }
        self.conn(conn)?.progress.reply(bytes);
        self.length(bytes, 1)
    }

    /// Checks an output and records it.
    ///
    /// # Errors
    /// [`Violation`] if no correct server has this output after the inputs so far.
    pub fn check_output(&mut self, output: &Output<'_>) -> Result<(), Violation> {
        if let Output::Bytes { conn, bytes } = *output {
            return self.check_reply(conn, bytes);
        }
        // Messages to neighbours have a bound of their own.
        self.outputs += u64::from(!matches!(output, Output::Peer { .. }));
        if self.outputs > self.outputs_max {
            return Err(Violation::TooManyOutputs(self.outputs_max));
        }
        match *output {
            // Checked above.
            Output::Bytes { .. } => Ok(()),
            Output::Close { conn, .. } => {
                let open = self.conn(conn)?;
                if std::mem::replace(&mut open.closing, true) {
                    Err(Violation::ClosedTwice(conn))
                } else {
                    Ok(())
                }
            }
            Output::Joined { conn, job, rank } => {
                self.local_rank(job, rank)?;
                if self.conn(conn)?.job == job { Ok(()) } else { Err(Violation::WrongJob(conn, job)) }
            }
            Output::Spawn { spawn: upcall, job, rank, request, .. }
            | Output::Upcall { upcall, job, rank, request, .. } => {
                self.local_rank(job, rank)?;
                self.length(request, 1)?;
                let outstanding = self.upcalls.get_mut(upcall.index());
                match outstanding.map(|outstanding| std::mem::replace(outstanding, true)) {
                    Some(false) => Ok(()),
                    Some(true) | None => Err(Violation::InvalidUpcall(upcall.0)),
                }
            }
            Output::KillRank { job, rank, message, .. } => {
                self.local_rank(job, rank)?;
                self.length(message.as_bytes(), 0)
            }
            Output::Log { job, rank, text, .. } => {
                self.local_rank(job, rank)?;
                self.length(text, 1)
            }
            Output::RemoveFiles { job, rank, paths } => {
                self.local_rank(job, rank)?;
                self.length(paths, 1)?;
                // The launcher removes files of its user.
                let named = |bytes: &Vec<u8>| bytes.windows(paths.len()).any(|part| part == paths);
                if self.cleanups.iter().any(named) { Ok(()) } else { Err(Violation::UnnamedFiles(job, rank)) }
            }
            Output::Connected { job, other, .. } => {
                self.job(job)?;
                self.job(other).map(drop)
            }
            Output::AbortJob { job, cause, message } => {
                self.rank(job, cause.rank())?;
                self.length(message.as_bytes(), 0)?;
                let aborted = &mut self.job(job)?.aborted;
                if std::mem::replace(aborted, true) { Err(Violation::AbortedTwice(job)) } else { Ok(()) }
            }
            Output::StalledFence { job, arrived, size, missing } => {
                self.length(missing.as_bytes(), 0)?;
                self.job(job)?;
                // Ranks of connected jobs wait for each other.
                let ranks = self.jobs.iter().flatten().map(|job| job.size).sum();
                let valid = arrived <= size && size <= ranks;
                if valid { Ok(()) } else { Err(Violation::StalledFence { arrived, size, ranks }) }
            }
            Output::Peer { node, bytes } => {
                if bytes.len() > self.limits.output_room() {
                    return Err(Violation::InvalidLength(bytes.len()));
                }
                let peer = self.peers.iter_mut().find(|peer| peer.node == node);
                let peer = peer.ok_or(Violation::NotNeighbour(node))?;
                if peer.blocked {
                    return Err(Violation::BlockedPeer(node));
                }
                peer.messages += 1;
                if peer.messages > self.messages_max {
                    return Err(Violation::ExcessMessage(node, peer.messages));
                }
                message::split(bytes).map(drop).ok_or(Violation::MalformedMessage(node))
            }
        }
    }

    /// Checks that no reply is missing when the server has no output.
    ///
    /// # Errors
    /// [`Violation`] if a correct server would have a reply for a connection that has had an input.
    #[inline]
    pub fn check_silence(&mut self) -> Result<(), Violation> {
        if !self.cleanups.is_empty() {
            self.cleanups.clear();
        }
        while let Some(id) = self.asking.pop() {
            let Some(open) = self.conns.get_mut(id.index()).and_then(Option::as_mut) else { continue };
            open.asking = false;
            if !open.blocked && !open.closing && open.progress.is_overdue() {
                return Err(Violation::NoReply(id));
            }
        }
        Ok(())
    }

    #[inline]
    fn length(&self, bytes: &[u8], least: usize) -> Result<(), Violation> {
        let valid = (least..=self.output_max).contains(&bytes.len());
        if valid { Ok(()) } else { Err(Violation::InvalidLength(bytes.len())) }
    }

    #[inline]
    fn conn(&mut self, conn: ConnId) -> Result<&mut Conn, Violation> {
        self.conns.get_mut(conn.index()).and_then(Option::as_mut).ok_or(Violation::UnknownConn(conn))
    }

    fn job(&mut self, job: JobId) -> Result<&mut Job, Violation> {
        self.jobs.get_mut(job.index()).and_then(Option::as_mut).ok_or(Violation::UnknownJob(job))
    }

    fn rank(&mut self, job: JobId, rank: Rank) -> Result<(), Violation> {
        if rank.0 < self.job(job)?.size { Ok(()) } else { Err(Violation::UnknownRank(job, rank)) }
    }

    /// Checks that a rank exists and is on this node.
    fn local_rank(&mut self, job: JobId, rank: Rank) -> Result<(), Violation> {
        self.rank(job, rank)?;
        let local = self.node;
        if self.job(job)?.node(rank) == local { Ok(()) } else { Err(Violation::RemoteRank(job, rank)) }
    }
}

/// Returns how many outputs a server can have pending: for each connection `Joined`, its replies and `Close`; for each
/// rank `KillRank`; for each job `AbortJob` and `StalledFence`; for each group and spawn one. A connection that can be
/// written again gets an event for each rank, each name and each process set.
fn outputs_max(limits: &Limits) -> u64 {
    let of = |count: u32, each: u64| u64::from(count).saturating_mul(each);
    let Limits { conns, ranks, jobs, groups, spawns, names, psets, .. } = *limits;
    let events = of(ranks, 1) + of(names, 1) + of(psets, 1);
    of(conns, PENDING_MAX as u64 + 2) + of(ranks, 1) + of(jobs, 2) + of(groups, 1) + of(spawns, 1) + events
}

/// Returns whether the bytes of a PMIx client may name files to remove.
fn names_files(bytes: &[u8]) -> bool {
    bytes.windows(CLEANUP.len()).any(|part| part == CLEANUP)
}

/// Returns how many messages to one neighbour an input with so many bytes can cause, at once or later. A message carries records, a
/// collective that completed in this subtree, or an exit. Each is caused by an input, by a client's command or by a part of a
/// neighbour's message. Commands and parts are at least two bytes long.
#[inline]
fn messages_max(bytes: usize) -> u64 {
    1 + bytes as u64 / 2
}

#[cfg(test)]
mod tests {
    use hydrant_core::server::JobSpec;

    use super::*;

    #[test]
    fn a_fence_of_two_jobs_waits_for_the_ranks_of_both() {
        let mut validator = Validator::new(Limits { jobs: 2, ranks: 6, ..Limits::for_ranks(8) });
        for (job, size) in [(0, 4), (1, 2)] {
            let input = Input::RegisterJob(JobSpec::new(JobId(job), "job", size));
            validator.check_input(Time(0), &input, Consumed::default(), None).expect("it is valid");
        }
        let mut stalled = |size| {
            validator.check_output(&Output::StalledFence { job: JobId(1), arrived: 1, size, missing: "1" })
        };
        assert_eq!(stalled(6), Ok(()));
        assert_eq!(stalled(7), Err(Violation::StalledFence { arrived: 1, size: 7, ranks: 6 }));
    }
}
