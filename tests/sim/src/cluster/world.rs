//! Event loop of the cluster: links, work of the nodes, losses, and the checks at the end of a run.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use hydrant_control::protocol::{BackendFailure, Order};
use hydrant_control::{DaemonEvent, Event as HeadEvent, Job, NodeProgress};
use hydrant_core::peer::tree::Tree;
use hydrant_core::server::FenceMode;
use hydrant_core::trace::Exit;
use hydrant_core::{Input, JobId, OwnedOutput};
use hydrant_placement::Host;

use super::head_host::HeadHost;
use super::node::{Item, Node, Owner, Packet, Reader};
use super::plan::{Departure, Freeze, HEARTBEAT, How, Loss, MS, Plan};
use super::process::{Failure, Process};
use crate::checks::Checks;
use crate::net::Net;
use crate::successor::Succeeded;

/// Delay of a client's bytes to its node, in nanoseconds.
pub(super) const SOCKET: u64 = 5_000;
/// Numbers of requests that hosts leave are from this one on.
pub(super) const LEAVING: u64 = 1000;
/// More events than any run has.
const EVENTS_MAX: u64 = 2_000_000;

/// Event of the simulation.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Arrive {
        from: u32,
        to: u32,
        packet: Packet,
    },
    Work(u32),
    Item(u32, Item),
    Lose(Loss),
    Freeze(Freeze),
    /// The neighbours of a node that stands still give it up.
    GiveUp(u32),
    /// A rank takes its next step.
    Act(u32),
    /// A reply reaches a rank.
    Reply {
        pid: u32,
        bytes: Vec<u8>,
    },
    /// A process ends.
    Die {
        pid: u32,
        exit: Exit,
    },
}

#[derive(Debug)]
struct Scheduled {
    at: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Scheduled) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Scheduled) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Scheduled) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Exit code of the run.
    pub code: u8,
    /// Events.
    pub events: u64,
    /// Nanoseconds of virtual time.
    pub time: u64,
    /// Something failed.
    pub failed: bool,
    /// Lies that were told.
    pub lies: u32,
    /// Messages of boards that came before an order that their sender had.
    pub overtaken: u32,
    /// Bytes of output that arrived.
    pub output: u64,
    /// Bytes of standard input that ranks read.
    pub input: u64,
    /// Values that clients of other runs read.
    pub read: u32,
    /// Look-ups that waited for a name: those that found it, and those whose time passed.
    pub waited: [u32; 2],
    /// Hosts that have joined, and the ranks that were started there.
    pub joined: [u32; 2],
    /// Hosts that have joined because a spawn needed them.
    pub needed: u32,
    /// Hosts that have left.
    pub left: u32,
    /// Hosts that stood still while they ran, and those of them that were given up meanwhile.
    pub frozen: [u32; 2],
    /// Digest of all outputs of the servers that have not failed.
    pub digest: u64,
}

/// A run on a simulated cluster.
pub(super) struct World<'m> {
    pub(super) plan: Plan,
    pub(super) tree: Tree,
    /// Nodes that have not joined.
    pub(super) awaited: BTreeSet<u32>,
    /// Nodes that have left.
    pub(super) left: BTreeSet<u32>,
    /// A job may have ended because not all of its ranks were started on a host that was to leave.
    pub(super) start_is_stopped: bool,
    pub(super) net: Net,
    pub(super) now: u64,
    count: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    pub(super) random: fastrand::Rng,
    pub(super) head: HeadHost<'m>,
    pub(super) nodes: Vec<Node<'m>>,
    /// All processes, by their number.
    pub(super) processes: Vec<Process>,
    /// Checks of each job, by its ordinal.
    pub(super) checks: BTreeMap<u32, Checks>,
    /// Failures that no other failure has caused.
    pub(super) failures: Vec<Failure>,
    /// Numbers of spawned jobs that could not be started as a whole. Their ranks' failures do not count.
    pub(super) undone: Vec<u32>,
    /// A lie was a message with another byte, which may be one in the name of a key: as that of another rank.
    pub(super) are_keys_false: bool,
    /// Lies that were told.
    pub(super) lies: u32,
    /// Messages of boards that came before an order that their sender had.
    pub(super) overtaken: u32,
    /// Hosts that stood still while they ran, and those of them that were given up meanwhile.
    frozen: [u32; 2],
    /// Bytes of standard input that ranks have read.
    pub(super) input: u64,
    /// Clients of other runs.
    pub(super) readers: Vec<Reader>,
    /// Random choices of readers.
    pub(super) readers_random: fastrand::Rng,
    /// Values that they have read.
    pub(super) read: u32,
}

impl<'m> World<'m> {
    pub(super) fn new(plan: Plan, head: HeadHost<'m>, nodes: Vec<Node<'m>>) -> World<'m> {
        World {
            tree: plan.tree(),
            awaited: (plan.daemons + 1..plan.tree().nodes()).collect(),
            left: BTreeSet::new(),
            start_is_stopped: false,
            net: Net::new(plan.speed),
            now: 0,
            count: 0,
            queue: BinaryHeap::new(),
            random: fastrand::Rng::with_seed(plan.seed ^ 0x9e37_79b9),
            head,
            nodes,
            processes: Vec::new(),
            checks: BTreeMap::new(),
            failures: Vec::new(),
            undone: Vec::new(),
            are_keys_false: false,
            lies: 0,
            overtaken: 0,
            frozen: [0; 2],
            input: 0,
            readers: Vec::new(),
            readers_random: fastrand::Rng::with_seed(plan.seed ^ 0x1405_7b7e),
            read: 0,
            plan,
        }
    }

    pub(super) fn run(&mut self) -> Summary {
        self.at(self.plan.joined_at, Event::Item(0, Item::Joined));
        for at in self.plan.interrupts.clone() {
            self.at(at, Event::Item(0, Item::Interrupt));
        }
        for loss in self.plan.losses.clone() {
            self.at(loss.at, Event::Lose(loss));
        }
        for freeze in self.plan.freezes.clone() {
            self.at(freeze.at, Event::Freeze(freeze));
        }
        for (number, join) in (0..).zip(self.plan.joins.clone()) {
            self.at(join.at, Event::Item(0, Item::HostNamed(number)));
        }
        for departure in self.plan.departures.clone() {
            self.at(departure.at, Event::Item(0, Item::HostLeaves(departure)));
        }
        for (at, node) in self.plan.strangers.clone() {
            self.at(at, Event::Item(node, Item::Stranger));
        }
        if let Some((node, lies)) = self.plan.liar.clone() {
            for at in lies {
                self.at(at, Event::Item(node, Item::Lie));
            }
        }
        let mut events = 0;
        while let Some(Reverse(Scheduled { at, event, .. })) = self.queue.pop() {
            self.now = at;
            self.happen(event);
            events += 1;
            assert!(events < EVENTS_MAX, "the run does not end");
        }
        self.check_end();
        let (code, failed) = (self.head.exit_code(), self.failures().next().is_some());
        Summary {
            code,
            events,
            time: self.now,
            failed,
            lies: self.lies,
            overtaken: self.overtaken,
            output: self.head.written,
            input: self.input,
            read: self.read,
            waited: self.head.known.waited,
            joined: [
                self.tree.late() - self.awaited.len() as u32,
                self.processes.iter().filter(|process| process.node > self.plan.daemons).count() as u32,
            ],
            needed: (self.plan.daemons + 1..=self.plan.daemons + self.plan.unused)
                .filter(|node| !self.awaited.contains(node))
                .count() as u32,
            left: self.left.len() as u32,
            frozen: self.frozen,
            digest: self.servers().fold(0, |digest: u64, server| digest.rotate_left(5) ^ server.digest()),
        }
    }

    /// Returns the servers that have not failed.
    fn servers(&self) -> impl Iterator<Item = &Succeeded<'m>> {
        self.nodes.iter().filter_map(|node| node.server.as_ref())
    }

    /// Returns the number of steps of each server. It is 0 for those that have failed.
    pub(super) fn steps(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.server.as_ref().map_or(0, Succeeded::steps)).collect()
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.queue.push(Reverse(Scheduled { at, number: self.count, event }));
    }

    pub(super) fn later(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    fn happen(&mut self, event: Event) {
        if let Some(until) = self.node_of(&event).and_then(|node| self.frozen_until(node)) {
            return self.at(until, event);
        }
        match event {
            Event::Arrive { from, to, packet } => {
                if self.net.arrived(from, to, packet.len()) {
                    self.push(from, Item::Writable { to });
                }
                if !self.is_severed(from, to) {
                    self.push(to, Item::Packet { from, packet });
                }
            }
            Event::Work(node) => self.work(node),
            Event::Item(node, item) => self.push(node, item),
            Event::Lose(loss) => self.lose(loss),
            Event::Freeze(Freeze { node, len, .. }) => self.freeze(node, len),
            Event::GiveUp(node) => self.give_up(node),
            Event::Act(pid) => self.act(pid),
            Event::Reply { pid, bytes } => self.reply(pid, &bytes),
            Event::Die { pid, exit } => self.die(pid, exit),
        }
    }

    /// The node whose processes an event needs to run.
    fn node_of(&self, event: &Event) -> Option<u32> {
        match *event {
            Event::Work(node) => Some(node),
            Event::Act(pid) | Event::Reply { pid, .. } | Event::Die { pid, .. } => {
                Some(self.processes[pid as usize].node)
            }
            _ => None,
        }
    }

    /// When the processes of a node go on, if they stand still.
    fn frozen_until(&self, node: u32) -> Option<u64> {
        Some(self.nodes[node as usize].frozen_until).filter(|&until| until > self.now)
    }

    fn freeze(&mut self, node: u32, len: u64) {
        let state = &mut self.nodes[node as usize];
        self.frozen[0] += u32::from(state.alive && !state.ended && !self.head.is_over());
        state.frozen_until = state.frozen_until.max(self.now + len);
    }

    pub(super) fn push(&mut self, node: u32, item: Item) {
        let now = self.now;
        let state = &mut self.nodes[node as usize];
        if !state.alive || state.ended && !matches!(item, Item::Packet { .. }) {
            return;
        }
        if let Some(at) = state.inbox.push(now, item) {
            self.at(at, Event::Work(node));
        }
    }

    /// Handles the next item of a node.
    fn work(&mut self, node: u32) {
        let slow = self.plan.slowness.get(node as usize).copied().unwrap_or(1);
        let state = &mut self.nodes[node as usize];
        let taken = if state.alive { state.inbox.take(self.now, slow) } else { None };
        let Some((item, next)) = taken else { return };
        if let Some(at) = next {
            self.at(at, Event::Work(node));
        }
        match item {
            Item::Packet { from, packet } => self.take_packet(node, from, packet),
            Item::Linked { from, orders, bytes } => self.take_linked(node, from, orders, &bytes),
            Item::Client { pid, bytes } => {
                if let Some(conn) = self.nodes[node as usize].conn_of(Owner::Rank(pid)) {
                    self.nodes[node as usize].receive(self.now, conn, &bytes);
                }
            }
            Item::Ended { pid, exit } => self.ended(node, pid, exit),
            Item::Hangup { pid } => {
                if let Some(conn) = self.nodes[node as usize].conn_of(Owner::Rank(pid)) {
                    self.nodes[node as usize].close(self.now, conn);
                }
            }
            Item::Stranger => self.stranger(node),
            Item::Rubbish { stranger, bytes } => self.rubbish(node, stranger, bytes),
            Item::Reader(reader) => self.admit_reader(reader),
            Item::InputHangup { pid } => self.input_hangup(node, pid),
            Item::InputRoom => self.fill_pipes(node),
            Item::Typed => self.typed(),
            Item::Start => self.start_some(node),
            Item::Read => self.read(node),
            Item::Writable { to } => {
                let state = &mut self.nodes[node as usize];
                if state.blocked.remove(&to) {
                    state.tell(self.now, Input::PeerWritable { node: to });
                }
            }
            Item::Timeout => self.timeout(node),
            Item::Lost { neighbour } => self.neighbour_lost(node, neighbour),
            Item::Interrupt => self.interrupt(),
            Item::Joined => {
                self.at_head(HeadEvent::AllJoined);
                if self.plan.are_linked {
                    (1..self.nodes.len() as u32).for_each(|node| self.report_board(node));
                }
            }
            Item::HostNamed(number) => {
                let request = u64::from(number);
                let host = Host::with_slots(&format!("late{number}"), 4);
                self.at_head(HeadEvent::HostNamed { request, host, may_be_there: false });
                // A spawn wants the host of the one before too, which is there, joins, has failed or is lost.
                if number % 2 == 1 {
                    let host = Host::with_slots(&format!("late{}", number - 1), 4);
                    self.at_head(HeadEvent::HostNamed { request, host, may_be_there: true });
                }
            }
            Item::Started { node, fails } => self.daemon_started(node, fails),
            Item::HostLeaves(departure) => self.host_leaves(departure),
            Item::Left(node) => self.at_head(HeadEvent::NodeEnded { node }),
            Item::Sink => self.sink(),
            Item::Lie => self.lie(node),
        }
        self.settle(node);
    }

    fn timeout(&mut self, node: u32) {
        let now = self.now;
        let state = &mut self.nodes[node as usize];
        state.timeout = None;
        if state.server.as_ref().and_then(|server| server.poll_at()).is_some_and(|at| at.0 * MS <= now) {
            state.tell(now, Input::Timeout);
        }
        if let Some(daemon) = &mut state.daemon {
            daemon.handle_timeout(now / MS);
        }
        if node == 0 {
            self.names_timeout();
        }
    }

    fn take_packet(&mut self, node: u32, from: u32, packet: Packet) {
        if node == 0 && self.left.contains(&from) {
            return;
        }
        match packet {
            Packet::Peer(bytes) => {
                if let Err(fault) =
                    self.nodes[node as usize].handle(self.now, Input::Peer { node: from, bytes: &bytes })
                {
                    self.reject(node, from, &fault.to_string());
                }
            }
            Packet::Order { to: Some(to), bytes } if to != node => {
                self.forward(node, to, Packet::Order { to: Some(to), bytes });
            }
            Packet::Order { to, bytes } => {
                if to.is_none() {
                    self.descend(node, &Packet::Order { to, bytes: bytes.clone() });
                    self.nodes[node as usize].orders += 1;
                }
                let order = Order::decode(&bytes).expect("the head sends orders");
                self.at_daemon(node, DaemonEvent::Order(order));
            }
            Packet::Credit { to, bytes } if to != node => {
                self.forward(node, to, Packet::Credit { to, bytes });
            }
            Packet::Credit { bytes, .. } => {
                self.nodes[node as usize].credit += i64::from(bytes);
                self.read(node);
            }
            Packet::Shutdown => self.at_daemon(node, DaemonEvent::Shutdown),
            packet if node != 0 => self.forward(node, 0, packet),
            Packet::Report { from, bytes } => self.at_head(HeadEvent::Message { node: from, bytes: &bytes }),
            Packet::Output { from, bytes } => self.take_output(from, &bytes),
            Packet::Failed(lost) => {
                self.note_loss(lost);
                let reason = format!("host n{lost} (node {lost}): its daemon is lost");
                self.at_head(HeadEvent::NodesLost { nodes: self.tree.subtree(lost), reason });
            }
        }
    }

    /// Notes the failures that the loss of a node causes: that of each job that ends, or ranks of which were running there.
    fn note_loss(&mut self, lost: u32) {
        let nodes = self.tree.subtree(lost);
        let control = &self.head.control;
        let go_on = !self.plan.cleanup && !self.plan.are_linked && !control.awaits_nodes();
        let lazy = self.plan.fence == FenceMode::Lazy;
        let mut failed = Vec::new();
        for job in control.jobs().iter() {
            let there = (0..job.size()).filter(|&rank| nodes.contains(&job.run.node(rank)));
            let there: Vec<u32> = there.collect();
            // Ranks that have not been started are dead to the servers, too.
            if let Some(checks) = self.checks.get_mut(&job.ordinal).filter(|_| go_on) {
                there.iter().for_each(|&rank| checks.lost(rank, lazy));
            }
            match go_on {
                _ if job.is_ending() => {}
                true if there.iter().any(|&rank| job.pid(rank).is_none()) => failed.push(None),
                true if there.iter().any(|&rank| job.is_running(rank)) => failed.push(Some(job.ordinal)),
                true => {}
                false => failed.push(None),
            }
        }
        // Readers may still ask for data of a job that is over.
        for process in self.processes.iter().filter(|process| go_on && nodes.contains(&process.node)) {
            let checks = self.checks.get_mut(&process.ordinal);
            checks.into_iter().for_each(|checks| checks.lost(process.rank, lazy));
        }
        if control.awaits_nodes() {
            failed.push(None);
        }
        let culprit = format!("n{lost}");
        let failure = |of| Failure { of, code: 1, culprit: culprit.clone(), may_be_asked: false };
        let failures = failed.into_iter().map(failure);
        self.failures.extend(failures);
    }

    /// A node's server refuses a message of a neighbour.
    fn reject(&mut self, node: u32, from: u32, why: &str) {
        // A daemon that has ended follows no order, and so no change of membership.
        if self.nodes[node as usize].ended {
            return;
        }
        assert!(self.plan.liar.is_some(), "node {node} refuses a message of node {from}: {why}");
        self.backend_failed(node, BackendFailure::Neighbour { node: from, why: why.to_owned() });
    }

    /// Sends a message one link on towards a node.
    pub(super) fn forward(&mut self, node: u32, to: u32, packet: Packet) {
        let next = self.tree.towards(node, to).expect("the node exists");
        self.send(node, next, packet);
    }

    /// Sends a message to all children.
    pub(super) fn descend(&mut self, node: u32, packet: &Packet) {
        for child in self.tree.children(node).map(|child| child.start) {
            if !self.awaited.contains(&child) && !self.left.contains(&child) {
                self.send(node, child, packet.clone());
            }
        }
    }

    /// The user names a host that is to leave.
    fn host_leaves(&mut self, Departure { node, force, .. }: Departure) {
        if self.head.shut_down {
            return;
        }
        let control = &self.head.control;
        let is_unstarted = |job: &Job<NodeProgress>| {
            (0..job.size()).any(|rank| job.run.node(rank) == node && job.pid(rank).is_none())
        };
        self.start_is_stopped |= force && control.jobs().iter().any(is_unstarted);
        let host = control.host(node).to_owned();
        self.at_head(HeadEvent::HostLeaves { request: LEAVING + u64::from(node), host, force });
    }

    /// A node is no member any more: its daemon is to end.
    pub(super) fn dismiss(&mut self, node: u32) {
        let lazy = self.plan.fence == FenceMode::Lazy;
        for job in self.head.control.jobs().iter() {
            let there = (0..job.size()).filter(|&rank| job.run.node(rank) == node);
            let checks = self.checks.get_mut(&job.ordinal);
            checks.into_iter().for_each(|checks| there.clone().for_each(|rank| checks.lost(rank, lazy)));
        }
        self.send(0, node, Packet::Shutdown);
        self.left.insert(node);
    }

    /// The daemon of a host that joins has connected or has failed.
    fn daemon_started(&mut self, node: u32, fails: bool) {
        if self.head.shut_down {
            return;
        }
        if fails {
            let reason = format!("host late (node {node}): not found");
            return self.at_head(HeadEvent::NodesLost { nodes: node..node + 1, reason });
        }
        self.nodes[node as usize].alive = true;
        self.at_head(HeadEvent::Joined { node });
    }

    /// Sends a message to a neighbour. Returns whether the link is full.
    pub(super) fn send(&mut self, from: u32, to: u32, packet: Packet) -> bool {
        if self.is_severed(from, to) || self.left.contains(&from.max(to)) {
            return false;
        }
        let now = self.nodes[from as usize].inbox.busy.max(self.now);
        let sent = self.net.send(now, from, to, packet.len(), &mut self.random);
        self.at(sent.at, Event::Arrive { from, to, packet });
        sent.blocked
    }

    fn is_severed(&self, from: u32, to: u32) -> bool {
        let lower = from.max(to);
        let [from, to] = [from, to].map(|node| &self.nodes[node as usize]);
        !from.alive || !to.alive || self.nodes[lower as usize].is_cut_off
    }

    /// Executes the outputs of a node's server, and schedules its next deadline.
    pub(super) fn settle(&mut self, node: u32) {
        while let Some(deed) = self.nodes[node as usize].poll() {
            self.perform(node, deed);
        }
        self.carry_out(node);
        if node == 0 {
            self.settle_head();
        } else {
            self.settle_daemon(node);
        }
        let of_names = if node == 0 { self.head.names_at() } else { None };
        let state = &mut self.nodes[node as usize];
        let due = state.poll_at().into_iter().chain(of_names).min().map(|at| at.max(self.now + 1));
        if let Some(at) = due.filter(|&at| state.timeout.is_none_or(|known| at < known)) {
            state.timeout = Some(at);
            self.at(at, Event::Item(node, Item::Timeout));
        }
    }

    fn perform(&mut self, node: u32, output: OwnedOutput) {
        match output {
            OwnedOutput::Bytes { conn, bytes } => {
                match self.nodes[node as usize].clients.get(&conn).map(|client| client.owner) {
                    Some(Owner::Rank(pid)) => self.later(SOCKET, Event::Reply { pid, bytes }),
                    Some(Owner::Reader(reader)) => self.reader_reply(conn, reader, &bytes),
                    Some(Owner::Stranger(_)) | None => {}
                }
            }
            OwnedOutput::Close { conn, .. } => {
                self.nodes[node as usize].close(self.now, conn);
            }
            OwnedOutput::Peer { node: to, bytes } => {
                if self.plan.liar.as_ref().is_some_and(|&(liar, _)| liar == node) {
                    self.nodes[node as usize].sent.push((to, bytes.clone()));
                }
                let is_full = match self.are_linked(node, to) {
                    true => self.send_linked(node, to, bytes),
                    false => self.send(node, to, Packet::Peer(bytes)),
                };
                if is_full {
                    let state = &mut self.nodes[node as usize];
                    state.blocked.insert(to);
                    state.tell(self.now, Input::PeerBlocked { node: to });
                }
            }
            OwnedOutput::RemoveFiles { .. } | OwnedOutput::Log { .. } => {}
            output if node == 0 => self.at_head(HeadEvent::Output(output)),
            output => self.at_daemon(node, DaemonEvent::Output(output)),
        }
    }

    /// Whether the run does without a node, so that it cannot be lost any more.
    fn is_gone(&self, node: u32) -> bool {
        let state = &self.nodes[node as usize];
        let is_reached = state.alive && !state.ended && !state.is_cut_off && !self.left.contains(&node);
        self.head.is_over() || !is_reached
    }

    fn lose(&mut self, loss: Loss) {
        let node = loss.node;
        if self.is_gone(node) {
            return;
        }
        let parent = self.tree.parent(node).expect("the head is not lost");
        match loss.how {
            How::Frozen(len) => {
                self.freeze(node, len);
                return self.later(HEARTBEAT, Event::GiveUp(node));
            }
            How::Cut => {
                self.nodes[node as usize].is_cut_off = true;
                self.later(HEARTBEAT, Event::Item(node, Item::Lost { neighbour: parent }));
            }
            How::Killed => {
                self.kill_all(node);
                self.nodes[node as usize].alive = false;
                for child in self.tree.children(node) {
                    self.later(HEARTBEAT, Event::Item(child.start, Item::Lost { neighbour: node }));
                }
            }
        }
        self.later(HEARTBEAT, Event::Item(parent, Item::Lost { neighbour: node }));
    }

    /// The links of a node that stands still are closed.
    fn give_up(&mut self, node: u32) {
        if self.is_gone(node) {
            return;
        }
        let parent = self.tree.parent(node).expect("the head is not lost");
        self.frozen[1] += 1;
        self.nodes[node as usize].is_cut_off = true;
        self.push(node, Item::Lost { neighbour: parent });
        self.push(parent, Item::Lost { neighbour: node });
        for child in self.tree.children(node).map(|child| child.start) {
            self.nodes[child as usize].is_cut_off = true;
            self.push(child, Item::Lost { neighbour: node });
        }
    }

    fn neighbour_lost(&mut self, node: u32, neighbour: u32) {
        if self.tree.parent(node) == Some(neighbour) {
            self.at_daemon(node, DaemonEvent::LifelineLost);
        } else {
            self.take_packet(node, neighbour, Packet::Failed(neighbour));
        }
    }

    /// Returns whether the output of a node's ranks may be incomplete.
    pub(super) fn is_lost(&self, node: u32) -> bool {
        self.plan.losses.iter().any(|loss| {
            let state = &self.nodes[loss.node as usize];
            (!state.alive || state.is_cut_off) && self.tree.subtree(loss.node).contains(&node)
        })
    }

    pub(super) fn is_liar(&self, node: u32) -> bool {
        self.plan.liar.as_ref().is_some_and(|&(liar, _)| liar == node)
    }

    /// Checks the state at the end.
    fn check_end(&self) {
        let stuck = |process: &&Process| process.exit.is_none();
        let left: Vec<String> = self.processes.iter().filter(stuck).map(Process::describe).collect();
        assert!(self.head.is_over(), "the run hangs: {left:?}, {:?}", self.head.control);
        assert!(left.is_empty(), "processes are left behind: {left:?}");
        for node in &self.nodes[1..] {
            assert!(!node.alive || node.ended, "the daemon of node {} runs on", node.number);
            let jobs: Vec<&JobId> = node.jobs.keys().collect();
            let has_left = self.left.contains(&node.number);
            let has_failed =
                self.is_lost(node.number) || node.server.is_none() || self.head.gave_up() || has_left;
            // Daemons end with the job that was the only one. It is not deregistered.
            assert!(
                has_failed || self.head.is_broken() || jobs.len() <= 1,
                "{jobs:?} are registered at node {}",
                node.number
            );
        }
        let unanswered = self.head.known.unanswered();
        let has_failed = self.head.is_broken() || self.head.gave_up();
        assert!(has_failed || unanswered == 0, "{unanswered} requests about names have no answer");
        self.check_code();
    }

    fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.failures.iter().filter(|failure| failure.of.is_none_or(|of| !self.undone.contains(&of)))
    }

    /// Checks the exit code and the report.
    fn check_code(&self) {
        let (code, printed) = (self.head.exit_code(), self.head.reports());
        if self.plan.liar.is_some() {
            return self.check_liar();
        }
        if self.start_is_stopped {
            return;
        }
        let interrupted = self.head.interrupts > 0;
        if !interrupted && self.failures().any(|failure| failure.may_be_asked) {
            let none = code == 0 && self.failures().all(|failure| failure.may_be_asked);
            let known = self.failures().any(|failure| failure.code == code);
            return assert!(none || known, "exit code {code}: {printed:?}");
        }
        let failures: Vec<(u8, &str)> = self.failures().map(|all| (all.code, all.culprit.as_str())).collect();
        match &failures[..] {
            [] if interrupted => assert!(matches!(code, 0 | 130 | 137), "exit code {code}: {printed:?}"),
            [] => assert_eq!(code, 0, "nothing failed: {printed:?}"),
            &[(only, culprit)] if !interrupted => {
                assert_eq!(code, only, "only {culprit} failed: {printed:?}");
                let named = printed.iter().any(|line| line.contains(culprit));
                assert!(named, "{culprit} failed, but {printed:?}");
            }
            all => {
                let is_named = |culprit: &str| printed.iter().any(|line| line.contains(culprit));
                // A rank may abort its job after another one has failed: the report is then about the abort.
                let known = all.iter().any(|(known, _)| *known == code)
                    && all.iter().any(|(_, culprit)| is_named(culprit));
                let by_user =
                    interrupted && (matches!(code, 0 | 130 | 137) || all.iter().any(|all| all.0 == code));
                assert!(known || by_user, "exit code {code}: {all:?}, {printed:?}");
            }
        }
    }

    /// Checks a run whose only fault is a daemon that lies: it is named, or the ranks of the others are unharmed.
    fn check_liar(&self) {
        let Some((liar, _)) = self.plan.liar else { return };
        let (code, printed) = (self.head.exit_code(), self.head.reports());
        let name = format!("n{liar}");
        // Its ranks may wait for a rank that has ended: only the liar knows.
        let is_named = |line: &&str| line.contains(&name) || line.contains("while others wait for it");
        if printed.iter().any(is_named) {
            return;
        }
        assert_eq!(code, 0, "the lies of {name} end the run with {printed:?}");
        let sound = |process: &&Process| process.node == liar || process.exit == Some(Exit::Code(0));
        let harmed: Vec<String> =
            self.processes.iter().filter(|process| !sound(process)).map(Process::describe).collect();
        let size = self.plan.places.len();
        let started = self.processes.iter().filter(|process| process.ordinal == 0).count();
        assert!(harmed.is_empty(), "lies of {name} harm {harmed:?}, and the exit code is 0: {printed:?}");
        assert_eq!(started, size, "the exit code is 0: {printed:?}");
    }
}
