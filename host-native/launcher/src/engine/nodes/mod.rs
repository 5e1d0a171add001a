//! A run on several nodes: the head (node 0), which has no ranks and does all the talking, and a daemon on each host.
//!
//! Both are an [`Engine`] with links. Cores talk to the neighbours' cores. Hosts talk along the tree: the head gives
//! [`Order`]s, daemons make [`Report`]s, and the head alone decides: what runs where, when a job ends, what names and
//! process sets there are. Every node is told of the same jobs by the same numbers in the same order, because all of
//! that comes from the head.

mod broken;
mod daemon;
mod head;
mod names;
mod spawn;

use hydrant_core::{Input, JobId, Time};
use hydrant_overlay::{Channel, Destination, Event, LifelineLost, Overlay};
use hydrant_reactor::Key;
use rustix::process::{Pid, WaitStatus};

use super::Engine;
use super::jobs::Job;
use super::sink::Said;
use crate::border::BackendError;
use crate::control::{Order, Piece, Report, encode};
use crate::error::RunError;
pub use daemon::{DaemonError, daemon};
use head::Head;
pub(super) use head::run;

/// Bytes that wait for a neighbour's socket, above which its core is told no more for a while.
const HIGH_WATER: usize = 1 << 20;
/// Most bytes of a rank's output in one message.
const PIECE_MAX: usize = 32 * 1024;

/// This node among several.
pub(super) struct Nodes<'s> {
    links: Overlay,
    /// Neighbours to which the core may not send for now.
    blocked: Vec<u32>,
    /// No daemon below this node is left.
    over: bool,
    /// Why this node's parent is lost.
    lifeline_lost: Option<LifelineLost>,
    role: Role<'s>,
}

enum Role<'s> {
    Head(Box<Head<'s>>),
    Daemon {
        /// Its core is of no use any more, and the head knows.
        broken: bool,
    },
}

impl<'s> Nodes<'s> {
    fn new(links: Overlay, role: Role<'s>) -> Nodes<'s> {
        Nodes { links, blocked: Vec::new(), over: false, lifeline_lost: None, role }
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        let names = match &mut self.role {
            Role::Head(head) => head.names_deadline(),
            Role::Daemon { .. } => None,
        };
        [self.links.deadline(), names].into_iter().flatten().min()
    }

    /// Sends a message of the server's to a neighbour. Returns whether the neighbour gets no more for now.
    fn send_peer(&mut self, node: u32, bytes: &[u8], now: u64) -> Result<bool, RunError> {
        self.links.send(now, node, Channel::Peer, bytes)?;
        let full = self.links.queued(node) > HIGH_WATER && !self.blocked.contains(&node);
        if full {
            self.blocked.push(node);
        }
        Ok(full)
    }

    /// Takes the neighbours whose sockets have taken enough of what was pending.
    fn take_unblocked(&mut self) -> Vec<u32> {
        let mut free = Vec::new();
        let links = &mut self.links;
        self.blocked.retain(|&node| {
            let full = links.queued(node) > HIGH_WATER / 2;
            if !full {
                free.push(node);
            }
            full
        });
        free
    }

    /// Sends a record. Whoever it is for may be gone, which the links say by themselves.
    fn send(&mut self, now: u64, to: Destination, channel: Channel, record: &[u8]) {
        let sent = self.links.route(now, to, channel, record);
        debug_assert!(sent.is_ok(), "records are short, and go to nodes that there are: {sent:?}");
    }
}

impl<'s> Engine<'_, 's> {
    /// This node's number.
    pub(super) fn node(&self) -> u32 {
        self.nodes.as_ref().map_or(super::open::ALONE, |nodes| nodes.links.node())
    }

    pub(super) fn is_daemon(&self) -> bool {
        matches!(self.nodes, Some(Nodes { role: Role::Daemon { .. }, .. }))
    }

    fn head(&self) -> Option<&Head<'s>> {
        match &self.nodes {
            Some(Nodes { role: Role::Head(head), .. }) => Some(head),
            _ => None,
        }
    }

    fn head_mut(&mut self) -> Option<&mut Head<'s>> {
        match &mut self.nodes {
            Some(Nodes { role: Role::Head(head), .. }) => Some(head),
            _ => None,
        }
    }

    /// The host of a node.
    pub(super) fn host_of(&self, node: u32) -> &str {
        self.head().and_then(|head| head.host(node)).unwrap_or(&self.host)
    }

    /// The host of a rank.
    pub(super) fn host_of_rank(&self, job: &Job, rank: u32) -> &str {
        job.away.as_ref().map_or(&self.host, |away| self.host_of(away.node(rank)))
    }

    /// Tells one node what to do.
    pub(super) fn order(&mut self, node: u32, order: &Order) {
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.send(now, Destination::Node(node), Channel::Control, &encode(order));
        }
    }

    /// Tells all other nodes what to do, where this one is the head.
    pub(super) fn order_all(&mut self, order: &Order) {
        if self.head().is_some() {
            self.send_below(&encode(order));
        }
    }

    fn send_below(&mut self, order: &[u8]) {
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.send(now, Destination::Descendants, Channel::Control, order);
        }
    }

    /// Tells the head something, where there is one.
    pub(super) fn report_up(&mut self, report: &Report) {
        if self.is_daemon() {
            // In order with what ranks said before.
            self.send_said();
            let now = self.now();
            if let Some(nodes) = &mut self.nodes {
                nodes.send(now, Destination::Node(0), Channel::Control, &encode(report));
            }
        }
    }

    /// Tells the head something of a job, unless this node has said that it is done with it: the job's number may be
    /// another's by the time that the report arrives.
    pub(super) fn report_of(&mut self, job: JobId, report: &Report) {
        if self.jobs.get(job).is_some_and(|job| !job.done) {
            self.report_up(report);
        }
    }

    /// Descriptors for links.
    pub(super) fn link_files(&self) -> u64 {
        self.nodes
            .as_ref()
            .map_or(0, |nodes| Overlay::files(nodes.links.tree().children(nodes.links.node()).count() as u64))
    }

    /// This process is about to be stopped.
    pub(super) fn hush(&mut self) {
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.links.announce_pause(now, &self.poller);
        }
    }

    /// A process has ended that is no rank's.
    pub(super) fn helper_ended(&mut self, pid: Pid, status: WaitStatus) {
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.links.handle_child_exit(now, pid, status);
        }
    }

    /// A descriptor of the links is ready.
    pub(super) fn link_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        Ok(nodes.links.handle_ready(key, now, &self.poller)?)
    }

    /// Does what has come over the links, and what is due on them.
    pub(super) fn turn_nodes(&mut self) -> Result<(), RunError> {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        nodes.links.handle_timeouts(now, &self.poller)?;
        self.keep_names_time()?;
        while let Some(event) = self.nodes.as_mut().and_then(|nodes| nodes.links.next_event()) {
            self.take_event(event)?;
        }
        self.send_input();
        Ok(())
    }

    fn take_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Message { via, channel: Channel::Peer, body, .. } => {
                let now = Time(self.now());
                match self.core.handle(now, Input::Peer { node: via, bytes: &body }) {
                    Err(BackendError::Fault(why)) => Err(RunError::Peer { node: via, why }),
                    Err(error) => Err(error.into()),
                    Ok(_) => self.outputs(),
                }
            }
            Event::Closed => {
                if let Some(nodes) = &mut self.nodes {
                    nodes.over = true;
                }
                Ok(())
            }
            event if self.is_daemon() => self.take_daemon_event(event),
            event => self.take_head_event(event),
        }
    }

    /// Sends a message of the server's to a neighbour.
    pub(super) fn pass_on(&mut self, node: u32, bytes: &[u8]) -> Result<(), RunError> {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        if nodes.send_peer(node, bytes, now)? {
            self.core.handle(Time(now), Input::PeerBlocked { node })?;
        }
        Ok(())
    }

    /// What came of streams by way of a neighbour has been disposed of.
    fn consumed(&mut self, via: u32, len: u32) {
        if let Some(nodes) = &mut self.nodes {
            nodes.links.consumed(via, len);
        }
    }

    /// Writes to the links.
    pub(super) fn flush_links(&mut self) -> Result<(), RunError> {
        self.send_said();
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        nodes.links.flush(now, &self.poller);
        let free = nodes.take_unblocked();
        for &node in &free {
            self.core.handle(Time(now), Input::PeerWritable { node })?;
        }
        if !free.is_empty() {
            self.outputs()?;
            if let Some(nodes) = &mut self.nodes {
                nodes.links.flush(now, &self.poller);
            }
        }
        Ok(())
    }

    /// Sends the head what ranks and this daemon have said.
    fn send_said(&mut self) {
        if !self.is_daemon() {
            return;
        }
        let now = self.now();
        for said in self.sinks.take_said() {
            let Some(nodes) = &mut self.nodes else { return };
            match said {
                Said::Line(line) => {
                    nodes.send(now, Destination::Node(0), Channel::Control, &encode(&Report::Say(line)));
                }
                Said::Bytes(stream, bytes) => {
                    let Some((job, rank)) = self.jobs.of(stream / 2) else { continue };
                    let (job, rank, error) = (job.id, hydrant_core::Rank(rank), stream % 2 == 1);
                    let mut rest = bytes.as_slice();
                    loop {
                        let (piece, behind) = rest.split_at(rest.len().min(PIECE_MAX));
                        let piece = Piece { job, rank, error, bytes: piece };
                        nodes.send(now, Destination::Node(0), Channel::Stream, &encode(&piece));
                        rest = behind;
                        if rest.is_empty() {
                            break;
                        }
                    }
                }
            }
        }
        if let Some(nodes) = &mut self.nodes {
            self.sinks.stuff(!nodes.links.has_credit(0));
        }
    }

    /// Whether the head waits for daemons before its job can begin.
    pub(super) fn awaits_nodes(&self) -> bool {
        self.head().is_some_and(Head::awaits_nodes)
    }

    /// Ends the links; true when all daemons are gone, or there are none.
    pub(super) fn end_links(&mut self) -> bool {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return true };
        nodes.links.shutdown(now, &self.poller);
        nodes.over
    }

    /// Whether all daemons below this one are gone, after they were told to.
    pub(super) fn are_links_over(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.over)
    }

    /// All that is to be said of a job on this node has been said.
    pub(super) fn tell_done(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.done = true;
            self.report_up(&Report::Done(id));
        }
    }

    /// Sends what is to be said of rank 0's input: by the head what was read, by its daemon what was taken.
    fn send_input(&mut self) {
        if self.is_daemon() {
            let (taken, closed) = self.stdin.take_news();
            if taken > 0 {
                self.report_up(&Report::Taken(taken));
            }
            if closed {
                self.report_up(&Report::InputClosed);
            }
            return;
        }
        let Some(node) = self.jobs.iter().find(|job| job.ordinal == 0).and_then(|job| job.away.as_ref())
        else {
            return;
        };
        let node = node.node(0);
        for piece in self.stdin.take_pieces() {
            self.order(node, &Order::Input(piece));
        }
    }
}
