//! Head and node: the head decides about jobs, a node starts and serves ranks.
//!
//! A run on several hosts has a head (node 0) without ranks and a daemon on each host, both an [`Engine`] with links. PMI servers
//! exchange messages with the servers of neighbours. Hosts exchange messages along the tree: the head sends
//! [`Order`](hydrant_control::protocol::Order)s, daemons send [`Report`]s. A run on one machine has head and node in one engine
//! without links. Orders and reports then wait in two queues, until [`deliver`](Engine::deliver) passes them on.
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
use hydrant_control::{DaemonEvent, Event as HeadEvent};
use hydrant_core::{Input, Time};
use hydrant_driver::BackendError;
use hydrant_iof::Unsent;
use hydrant_overlay::{Channel, Destination, Event, LifelineLost, Overlay};
use hydrant_reactor::Key;
use rustix::process::{Pid, WaitStatus};

use super::Engine;
use crate::error::RunError;
pub(super) use daemon::Daemon;
pub use daemon::{DaemonError, daemon, forked_daemon};
pub(super) use head::{Head, run};

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
}

/// Messages between a head and a node in this process. Reports are encoded as on a link, because the head checks their bytes.
#[derive(Default)]
pub(super) struct Messages {
    orders: VecDeque<Order>,
    reports: VecDeque<Vec<u8>>,
}

impl Messages {
    pub(super) fn are_empty(&self) -> bool {
        self.orders.is_empty() && self.reports.is_empty()
    }
}

/// Number of the node of a run on one machine. Its PMI server is in no tree, and calls itself [`ALONE`](super::open::ALONE).
pub(super) const ONLY_NODE: u32 = 1;

impl Nodes {
    fn new(links: Overlay) -> Nodes {
        Nodes { links, blocked: Vec::new(), over: false, lifeline_lost: None }
    }

    pub(super) fn deadline(&mut self) -> Option<u64> {
        self.links.deadline()
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
        self.links.tree().towards(self.links.node(), node).unwrap_or(node)
    }

    /// Whether all children take streams.
    fn children_have_credit(&mut self) -> bool {
        let children: Vec<u32> =
            self.links.tree().children(self.links.node()).map(|subtree| subtree.start).collect();
        children.into_iter().all(|child| self.links.has_credit(child))
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

impl<'s> Engine<'_, 's> {
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

    /// The launcher's exit code. A daemon has none.
    pub(super) fn exit_code(&self) -> u8 {
        self.head.as_ref().map_or(0, |head| head.control.exit_code())
    }

    /// Sends an order of the head's.
    pub(super) fn send_order(&mut self, now: u64, to: Destination, order: Order) {
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

    /// Passes the orders and reports on that wait in this process. Returns whether there were any.
    pub(super) fn deliver(&mut self) -> Result<bool, RunError> {
        let mut any = false;
        loop {
            if let Some(order) = self.messages.orders.pop_front() {
                self.handle_at_daemon(DaemonEvent::Order(order))?;
            } else if let Some(report) = self.messages.reports.pop_front() {
                self.handle_at_head(HeadEvent::Message { node: ONLY_NODE, bytes: &report })?;
            } else {
                break;
            }
            self.outputs()?;
            any = true;
        }
        if any {
            // A message may have printed a line.
            self.flush();
        }
        Ok(any)
    }

    /// Descriptors for links.
    pub(super) fn link_files(&self) -> u64 {
        self.nodes
            .as_ref()
            .map_or(0, |nodes| Overlay::files(nodes.links.tree().children(nodes.links.node()).count() as u64))
    }

    /// This process is about to be stopped.
    pub(super) fn announce_pause(&mut self) {
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.links.announce_pause(now, &self.poller);
        }
    }

    /// Handles the exit of a process that is no rank.
    pub(super) fn helper_ended(&mut self, pid: Pid, status: WaitStatus) {
        self.debugger_ended(pid);
        if let Some(file) = &self.topology_file {
            file.borrow_mut().ended(pid);
        }
        let now = self.now();
        if let Some(nodes) = &mut self.nodes {
            nodes.links.handle_child_exit(now, pid, status);
        }
    }

    /// Handles a ready descriptor of the links.
    pub(super) fn link_ready(&mut self, key: Key) -> Result<(), RunError> {
        let now = self.now();
        let Some(nodes) = &mut self.nodes else { return Ok(()) };
        Ok(nodes.links.handle_ready(key, now, &self.poller)?)
    }

    /// Handles received messages, and timeouts of links and processes.
    pub(super) fn turn_nodes(&mut self) -> Result<(), RunError> {
        if let Some(nodes) = &mut self.nodes {
            nodes.links.handle_timeouts(self.clock.now(), &self.files, &self.poller)?;
        }
        self.keep_daemon_time()?;
        while let Some(event) = self.nodes.as_mut().and_then(|nodes| nodes.links.next_event()) {
            self.take_event(event)?;
        }
        self.send_input()
    }

    fn take_event(&mut self, event: Event) -> Result<(), RunError> {
        match event {
            Event::Message { from, channel: Channel::Peer | Channel::Routed, body, .. } => {
                let now = Time(self.now());
                match self.core.handle(now, Input::Peer { node: from, bytes: &body }) {
                    Err(BackendError::Fault(why)) => Err(RunError::Peer { node: from, why }),
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
            event if self.daemon.is_some() => self.take_daemon_event(event),
            event => self.link_event_at_head(event),
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

    /// Writes to the links.
    pub(super) fn flush_links(&mut self) -> Result<(), RunError> {
        self.carry_out_actions()?;
        self.print_fences();
        self.send_unsent();
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

    /// Sends pending output of ranks and of this daemon to the head.
    fn send_unsent(&mut self) {
        if self.head.is_some() {
            // Output is written here.
            return;
        }
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
        if let Some(nodes) = &mut self.nodes {
            self.sinks.set_blocked(!nodes.links.has_credit(0));
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

    /// Sends the head's standard input to its readers' nodes, and the number of bytes that they have consumed to the head.
    fn send_input(&mut self) -> Result<(), RunError> {
        let (consumed, closed) = self.stdin.take_news();
        if consumed > 0 {
            self.handle_at_daemon(DaemonEvent::StdinConsumed(consumed))?;
        }
        if closed {
            self.handle_at_daemon(DaemonEvent::StdinClosed)?;
        }
        for bytes in self.stdin.take_pieces() {
            self.handle_at_head(HeadEvent::StdinRead(bytes))?;
        }
        Ok(())
    }
}
