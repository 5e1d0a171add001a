//! Head and node: the head decides about jobs, a node starts and serves ranks.
//!
//! A run on several hosts has a [`Head`](super::Head) (node 0) without ranks and a [`Daemon`](super::Daemon) on each host, each
//! in a process with links. PMI servers exchange messages with the servers of neighbours. Hosts exchange messages along the tree:
//! the head sends [`Order`](hydrant_control::protocol::Order)s, daemons send [`Report`]s. A run on one machine has head and daemon
//! in one process without links. Orders and reports then wait in two queues, until `deliver` passes them on.
//!
//! Decisions are made by [`hydrant_control::Head`] and [`hydrant_control::Daemon`], whose adapters this module holds. Every node
//! gets the same jobs by the same numbers in the same order, because all of that comes from the head.

mod actions;
mod backend_failure;
mod boards;
mod daemon;
mod fences;
mod head;
mod setup;

use std::collections::VecDeque;

use hydrant_control::protocol::{Order, OutputChunk, Report, encode};
use hydrant_core::{Input, Time};
use hydrant_iof::{SinkId, Sinks, Unsent};
use hydrant_overlay::{Channel, Destination, Event, LifelineLost, Overlay};
use hydrant_placement::Host;
use hydrant_reactor::{Key, Poller, WriterState};
use rustix::process::{Pid, WaitStatus};

use super::jobs::{count_pushed, count_ranks};
use super::{Engine, needed_files};
use crate::error::RunError;
pub(super) use boards::LinkedBoards;
pub use daemon::{DaemonError, daemon, forked_daemon, join_run};
pub(super) use head::{plugin_of, run};

/// Bytes queued for a neighbour's socket above which its PMI server stops sending to it.
const HIGH_WATER: usize = 1 << 20;
/// Most bytes of a rank's output in one message.
const CHUNK_MAX: usize = 32 * 1024;

/// Links of this node to others.
pub(super) struct Nodes {
    links: Overlay,
    /// Neighbours that the PMI server may not send to until their queues drain.
    blocked: Vec<u32>,
    /// No daemon below this node is left.
    over: bool,
    /// Reason for the loss of this node's parent.
    lifeline_lost: Option<LifelineLost>,
    /// Output of ranks that is not acknowledged until its sink has room: the sink, the neighbour that sent it, and its length.
    unacknowledged: Vec<(SinkId, u32, u32)>,
    /// Descriptors of files that the head has sent.
    sent_files: u64,
}

/// Messages between a head and a node in this process. Reports are encoded as on a link, because the head checks their bytes.
#[derive(Default)]
pub(super) struct Messages {
    pub(super) orders: VecDeque<Order>,
    pub(super) reports: VecDeque<Vec<u8>>,
}

impl Messages {
    pub(super) fn are_empty(&self) -> bool {
        self.orders.is_empty() && self.reports.is_empty()
    }
}

/// Number of the node of a run on one machine. Its PMI server is in no tree, and calls itself [`ALONE`](super::open::ALONE).
pub(super) const ONLY_NODE: u32 = 1;

impl Nodes {
    /// The links of a node, and the number of descriptors of the files that the head has sent.
    fn new(links: Overlay, sent_files: u64) -> Nodes {
        let (blocked, unacknowledged) = (Vec::new(), Vec::new());
        Nodes { links, blocked, over: false, lifeline_lost: None, unacknowledged, sent_files }
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        self.links.deadline()
    }

    /// Tells a host that has asked to join that it does not.
    pub(super) fn refuse(&mut self, applicant: u32, why: &str, now: u64) {
        self.links.refuse(applicant, why, now);
    }

    /// Sends what goes to all nodes to this one too.
    fn include(&mut self, node: u32) {
        self.links.include(node);
    }

    /// Ends the daemon of a host that leaves.
    fn dismiss(&mut self, node: u32, now: u64, poller: &Poller) {
        self.links.dismiss(node, now, poller);
    }

    /// Sends a message of the PMI server to a neighbour. Returns whether the neighbour's queue is full.
    fn send_peer(&mut self, node: u32, bytes: &[u8], now: u64) -> Result<bool, RunError> {
        let next = self.next_to(node);
        if next == node {
            self.links.send(now, node, Channel::Peer, bytes)?;
        } else {
            self.links.route(now, Destination::Node(node), Channel::Routed, bytes)?;
        }
        let full = self.links.queued(next) > HIGH_WATER && !self.blocked.contains(&node);
        if full {
            self.blocked.push(node);
        }
        Ok(full)
    }

    /// Returns the blocked neighbours whose queues have drained, and unblocks them.
    fn take_unblocked(&mut self) -> Vec<u32> {
        let (mut free, mut full) = (Vec::new(), Vec::new());
        for node in std::mem::take(&mut self.blocked) {
            let next = self.next_to(node);
            let nodes = if self.links.queued(next) > HIGH_WATER / 2 { &mut full } else { &mut free };
            nodes.push(node);
        }
        self.blocked = full;
        free
    }

    /// Returns the neighbour on the way to a node. With linked boards, neighbours of PMI servers may not be neighbours here.
    fn next_to(&self, node: u32) -> u32 {
        self.links.towards(node).unwrap_or(node)
    }

    /// Acknowledges output once its sink has room. Without a sink it has been dropped.
    fn acknowledge_later(&mut self, sink: Option<SinkId>, via: u32, len: u32) {
        match sink {
            Some(sink) => self.unacknowledged.push((sink, via, len)),
            None => self.links.consumed(via, len),
        }
    }

    /// Acknowledges output whose sink has room or has ended, so that the nodes send more.
    pub(super) fn acknowledge_output(&mut self, sinks: &Sinks) {
        self.unacknowledged.retain(|&(sink, via, len)| {
            let waits = sinks.get(sink).is_full() && sinks.get(sink).state() == WriterState::Open;
            if !waits {
                self.links.consumed(via, len);
            }
            waits
        });
    }

    /// Sends a record. The links report a lost destination separately.
    fn send(&mut self, now: u64, to: Destination, channel: Channel, record: &[u8]) {
        let sent = self.links.route(now, to, channel, record);
        debug_assert!(sent.is_ok(), "records are short, and go to nodes that there are: {sent:?}");
    }

    /// Sends output of a rank to the head, in chunks. An empty one, the end of the stream, is sent as it is.
    fn send_output(&mut self, now: u64, output: OutputChunk<'_>) {
        let mut rest = output.bytes;
        loop {
            let (bytes, behind) = rest.split_at(rest.len().min(CHUNK_MAX));
            let chunk = encode(&OutputChunk { bytes, ..output });
            self.send(now, Destination::Node(0), Channel::Stream, &chunk);
            rest = behind;
            if rest.is_empty() {
                return;
            }
        }
    }
}

impl Engine<'_> {
    /// Returns whether this process is the only one of the run.
    pub(super) fn is_alone(&self) -> bool {
        self.nodes.is_none()
    }

    /// Number of this node among those of the run.
    pub(super) fn node(&self) -> u32 {
        self.nodes.as_ref().map_or(ONLY_NODE, |nodes| nodes.links.node())
    }

    /// Number of this node's PMI server in the tree of servers.
    pub(super) fn server_node(&self) -> u32 {
        self.nodes.as_ref().map_or(super::open::ALONE, |nodes| nodes.links.node())
    }

    /// The name of this host before a message, if there are several.
    pub(super) fn host_prefix(&self) -> String {
        self.nodes.as_ref().map_or_else(String::new, |_| format!("host {}: ", self.host))
    }

    /// Prints warnings of the PMI server here.
    pub(super) fn print_warnings(&mut self) {
        for warning in self.warnings.take() {
            match self.node() {
                _ if self.is_alone() => self.sinks.print(&warning),
                0 => self.sinks.print(&warning),
                node => self.sinks.print(&format!("host {} (node {node}): {warning}", self.host)),
            }
        }
    }

    /// Sends an order of the head's.
    pub(super) fn send_order(&mut self, to: Destination, order: Order) {
        let now = self.now();
        match &mut self.nodes {
            Some(nodes) => nodes.send(now, to, Channel::Control, &encode(&order)),
            None => self.messages.orders.push_back(order),
        }
    }

    /// Sends a report of this node's to the head.
    pub(super) fn send_report(&mut self, report: &Report) {
        // Pending output is sent first, to keep the order.
        self.send_unsent();
        let (now, report) = (self.now(), encode(report));
        match &mut self.nodes {
            Some(nodes) => nodes.send(now, Destination::Node(0), Channel::Control, &report),
            None => self.messages.reports.push_back(report),
        }
    }

    /// Name of the interface of this machine that the user has asked for.
    pub(super) fn interface(&self) -> Option<&str> {
        self.nodes.as_ref().and_then(|nodes| nodes.links.interface())
    }

    /// Descriptors for links, and for files that the head has sent.
    pub(super) fn link_files(&self) -> u64 {
        let of_links = |nodes: &Nodes| Overlay::files(nodes.links.children() as u64);
        self.nodes.as_ref().map_or(0, |nodes| of_links(nodes) + nodes.sent_files)
    }

    /// Starts the daemon of a host that joins, or tells one that has asked to join to be it.
    pub(super) fn start_daemon(
        &mut self,
        node: u32,
        host: &Host,
        applicant: Option<u32>,
    ) -> Result<(), RunError> {
        let now = self.now();
        let of_jobs = needed_files(self.plan, count_ranks(&self.jobs), self.jobs.len() as u64);
        let of_child = Overlay::files(1) - Overlay::files(0);
        self.files.grow(of_jobs + count_pushed(&self.jobs) + self.link_files() + of_child)?;
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        let hosts = (&*self.host, host);
        match applicant {
            Some(applicant) => nodes.links.admit(node, hosts, applicant, now)?,
            None => nodes.links.grow(node, hosts, now, &self.files, &self.poller)?,
        }
        Ok(())
    }

    /// This process is about to be stopped.
    pub(super) fn announce_pause(&mut self) {
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.links.announce_pause(now, &self.poller);
        }
    }

    /// Handles exits of processes that are no ranks.
    pub(super) fn helpers_ended(&mut self, ended: Vec<(Pid, WaitStatus)>) {
        let now = self.now();
        for (pid, status) in ended {
            if let Some(file) = &self.topology_file {
                file.borrow_mut().ended(pid);
            }
            if let Some(nodes) = &mut self.nodes {
                nodes.links.handle_child_exit(now, pid, status);
            }
            self.ended_helpers.push(pid);
        }
    }

    /// Handles a ready descriptor of the links.
    pub(super) fn link_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        Ok(nodes.links.handle_ready(key, now, &self.poller)?)
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

    /// Writes to the links. Returns whether the PMI server has been told of neighbours whose queues have drained.
    pub(super) fn write_links(&mut self) -> Result<bool, RunError> {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(false) };
        nodes.links.flush(now, &self.poller);
        let free = nodes.take_unblocked();
        for &node in &free {
            self.core.handle(Time(now), Input::PeerWritable { node })?;
        }
        Ok(!free.is_empty())
    }

    /// Handles timeouts of the links.
    pub(super) fn keep_links_time(&mut self) -> Result<(), RunError> {
        match &mut self.nodes {
            Some(nodes) => Ok(nodes.links.handle_timeouts(self.clock.now(), &self.files, &self.poller)?),
            None => Ok(()),
        }
    }

    /// The next event of the links.
    pub(super) fn next_link_event(&mut self) -> Option<Event> {
        self.nodes.as_mut()?.links.next_event()
    }

    /// All daemons below this node have ended.
    pub(super) fn links_closed(&mut self) {
        self.nodes.iter_mut().for_each(|nodes| nodes.over = true);
    }

    /// Sends pending output of ranks and of this daemon to the head. A head writes its output itself, so none is pending.
    pub(super) fn send_unsent(&mut self) {
        let now = self.now();
        for unsent in self.sinks.take_unsent() {
            let Some(nodes) = &mut self.nodes else { return };
            match unsent {
                Unsent::Line(line) => {
                    nodes.send(now, Destination::Node(0), Channel::Control, &encode(&Report::Print(line)));
                }
                Unsent::Bytes(stream, bytes) => {
                    let Some((job, rank)) = self.jobs.of_slot(stream / 2) else { continue };
                    let (job, rank, stderr) = (job.id, hydrant_core::Rank(rank), stream % 2 == 1);
                    nodes.send_output(now, OutputChunk { job, rank, stderr, bytes: &bytes });
                }
            }
        }
        self.heed_credit();
    }

    /// Stops output while the links have no credit for it.
    fn heed_credit(&mut self) {
        if let Some(nodes) = &mut self.nodes {
            self.sinks.set_blocked(!nodes.links.has_credit(0));
        }
    }

    /// A neighbour has given credit. Output goes to the parent.
    fn credit_available(&mut self, neighbour: u32) {
        let parent = self.nodes.as_ref().and_then(|nodes| nodes.links.tree().parent(nodes.links.node()));
        if parent == Some(neighbour) {
            self.heed_credit();
        }
    }

    /// Shuts the links down. Returns true if all daemons have ended or there are none.
    pub(super) fn end_links(&mut self) -> bool {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return true };
        nodes.links.shutdown(now, &self.poller);
        nodes.over
    }

    /// Returns whether all daemons below this one have ended after the shutdown.
    pub(super) fn are_links_over(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| nodes.over)
    }
}
