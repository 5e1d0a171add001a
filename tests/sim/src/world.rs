//! Event loop of the simulator.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hydrant_core::peer::tree::Tree;
use hydrant_core::trace::Exit;
use hydrant_core::{ConnId, Fault, Input, Limit, Limits, Rank};
use hydrant_driver::MappedStorage;

use crate::checks::Checks;

use crate::net::{Message, Net};
use crate::node::{Deed, Item, JOB, Node};
use crate::rank::{self, Script, Step};
use crate::scenario::Scenario;

/// Delay of a client's bytes to its node, in nanoseconds.
const SOCKET: u64 = 5_000;
/// Time until the loss of a daemon is noticed, in nanoseconds.
const HEARTBEAT: u64 = 30_000_000;
/// More events than any scenario has.
const EVENTS_MAX: u64 = 20_000_000;

#[derive(Clone, Debug)]
enum Event {
    /// Event of a rank of that job.
    Rank(usize, Life),
    Arrive {
        from: u32,
        to: u32,
        message: Message,
    },
    Work(u32),
    Tick(u32),
    Lose(u32),
    Notice {
        node: u32,
        lost: u32,
    },
}

/// Event of a rank.
#[derive(Clone, Debug)]
enum Life {
    Act(u32),
    Reply { rank: u32, bytes: Vec<u8> },
    Client { rank: u32, bytes: Vec<u8> },
    Die { rank: u32, exit: Exit },
}

/// A simulated machine with its job.
pub struct World<'m> {
    scenario: Scenario,
    tree: Tree,
    nodes: Vec<Node<'m>>,
    net: Net,
    now: u64,
    /// Counts events, so that those of one time have an order.
    count: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    random: fastrand::Rng,
    scripts: Vec<Script>,
    /// Replies that a rank still waits for.
    awaited: Vec<u32>,
    checks: Checks,
    /// Ranks of the last job that have finished their steps, and end when no event is pending.
    idle: Vec<u32>,
    /// Index of the current job.
    job: usize,
    /// Number of ranks that have ended, as known to the head.
    ended: u32,
    /// A daemon has been lost.
    lost: bool,
    /// Jobs that came to their end.
    done: usize,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Digest of all outputs of the servers.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// Nanoseconds of virtual time.
    pub time: u64,
    /// Jobs that came to their end.
    pub jobs: usize,
    /// A daemon was lost during the run.
    pub lost: bool,
}

/// The limits of a scenario.
pub fn limits(scenario: &Scenario) -> Limits {
    let size = scenario.layout.places.len() as u32;
    Limits {
        jobs: 1,
        ranks: size,
        conns: size,
        // Each put and each get that waits takes one, and half of them are reserved.
        keys: size * 64,
        kvs_bytes: scenario.kvs_bytes,
        groups: 16,
        links: scenario.layout.radix + 1,
        ..Limits::NONE
    }
}

/// Runs a scenario to its end.
///
/// # Panics
/// A guarantee is broken.
pub fn run(scenario: &Scenario) -> Summary {
    play(scenario, &[]).0
}

/// Runs a scenario twice to its end, the second time with a successor of each server from a random step on.
///
/// # Panics
/// A guarantee is broken, or the runs differ in an output.
pub fn run_succeeded(scenario: &Scenario) -> Summary {
    let (summary, steps) = play(scenario, &[]);
    let mut random = fastrand::Rng::with_seed(scenario.seed);
    let at: Vec<u64> = steps.iter().map(|&steps| random.u64(..steps.max(1))).collect();
    assert_eq!(play(scenario, &at).0, summary, "the run with successors at {at:?} differs");
    summary
}

/// Runs a scenario. The server of each node has a successor from the step in `at` on. Returns the number of steps of each.
fn play(scenario: &Scenario, at: &[u64]) -> (Summary, Vec<u64>) {
    let limits = limits(scenario);
    let memory = |count: usize| (0..count).map(|_| MappedStorage::new(&limits)).collect::<Vec<_>>();
    let (mut memory, mut spare) = (memory(scenario.layout.nodes as usize), memory(at.len()));
    let keep = scenario.mistakes;
    let mut nodes: Vec<Node<'_>> =
        memory.iter_mut().map(|memory| Node::new(limits, memory, scenario.seed as u32, keep)).collect();
    for ((node, &at), memory) in nodes.iter_mut().zip(at).zip(&mut spare) {
        node.server.succeed_at(at, memory);
    }
    let mut world = World::new(scenario.clone(), nodes);
    let summary = world.run();
    for node in &world.nodes {
        node.check_tape(limits, scenario.seed as u32);
    }
    (summary, world.nodes.iter().map(|node| node.server.steps()).collect())
}

impl<'m> World<'m> {
    fn new(scenario: Scenario, nodes: Vec<Node<'m>>) -> World<'m> {
        let size = scenario.layout.places.len() as u32;
        let tree = Tree::new(scenario.layout.nodes, scenario.layout.radix);
        let checks = Checks::new(size, !scenario.cleanup, &[]);
        World {
            tree,
            nodes,
            net: Net::new(scenario.speed),
            now: 0,
            count: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            random: fastrand::Rng::with_seed(scenario.seed ^ 0x9e37_79b9),
            scripts: Vec::new(),
            awaited: Vec::new(),
            checks,
            idle: Vec::new(),
            job: 0,
            ended: 0,
            lost: false,
            done: 0,
            scenario,
        }
    }

    fn run(&mut self) -> Summary {
        for node in 0..self.scenario.layout.nodes {
            let (nodes, radix) = (self.scenario.layout.nodes, self.scenario.layout.radix);
            self.nodes[node as usize].tell(0, Input::Node { node, nodes, radix });
        }
        self.begin(0);
        for node in 0..self.scenario.layout.nodes {
            self.open(node);
        }
        if let Some((node, at)) = self.scenario.lost {
            self.at(at, Event::Lose(node));
        }
        let mut events = self.play();
        self.check_groups();
        for rank in std::mem::take(&mut self.idle) {
            self.die(rank, Exit::Code(0));
        }
        events += self.play();
        self.check_end();
        let digest =
            self.nodes.iter().fold(0, |digest: u64, node| digest.rotate_left(5) ^ node.server.digest());
        Summary { digest, events, time: self.now, jobs: self.done, lost: self.lost }
    }

    /// Handles events until none is left. Returns their number.
    fn play(&mut self) -> u64 {
        let mut events = 0;
        while let Some(Reverse((now, number))) = self.queue.pop() {
            let event = self.events.remove(&number).expect("every number in the queue is an event's");
            self.now = now;
            self.happen(event);
            events += 1;
            assert!(events < EVENTS_MAX, "the run does not end");
        }
        events
    }

    /// Checks that no group is waiting after all events are handled and all living ranks are done.
    fn check_groups(&self) {
        let taken: Vec<u32> = self.nodes.iter().map(|node| node.server.used(Limit::Groups)).collect();
        let ended = self.lost || self.nodes[0].ending;
        assert!(ended || taken.iter().all(|&taken| taken == 0), "groups are left on the nodes: {taken:?}");
    }

    fn check_end(&self) {
        if !self.lost {
            assert_eq!(self.done, self.scenario.jobs.len(), "ranks wait for ever: {:?}", self.stuck());
        }
        let left: Vec<u32> = self.stuck().into_iter().map(|(rank, _)| rank).collect();
        assert!(left.is_empty(), "{left:?} are left behind");
    }

    /// Returns the ranks of living nodes that have not ended, with their current steps.
    fn stuck(&self) -> Vec<(u32, Option<&Step>)> {
        let place = |rank: u32| self.scenario.layout.places[rank as usize] as usize;
        let ranks = (0u32..).zip(&self.scripts);
        let runs = |node: &Node<'_>| node.alive && node.job == Some(self.job);
        let stuck = ranks.filter(|(rank, script)| script.exit.is_none() && runs(&self.nodes[place(*rank)]));
        stuck.map(|(rank, script)| (rank, script.step())).collect()
    }

    /// Sets the stage for a job.
    fn begin(&mut self, job: usize) {
        let program = &self.scenario.jobs[job];
        self.job = job;
        self.ended = 0;
        self.scripts = program.scripts.clone();
        self.awaited = vec![0; self.scripts.len()];
        self.checks = Checks::new(self.scripts.len() as u32, !self.scenario.cleanup, &program.meetings);
    }

    /// A node opens the job, and its ranks begin.
    fn open(&mut self, node: u32) {
        let Scenario { layout, cleanup, fence, .. } = &self.scenario;
        let name = &self.scripts[0].name;
        self.nodes[node as usize].open(self.now, node, layout, name, (*cleanup, *fence));
        self.nodes[node as usize].job = Some(self.job);
        let here = (0u32..).zip(&layout.places).filter(|&(_, &place)| place == node);
        for rank in here.map(|(rank, _)| rank).collect::<Vec<_>>() {
            let later = self.random.u64(0..2_000_000);
            self.life(self.now + later, Life::Act(rank));
        }
        self.settle(node);
    }

    fn at(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count)));
        self.events.insert(self.count, event);
    }

    fn place(&self, rank: u32) -> u32 {
        self.scenario.layout.places[rank as usize]
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Rank(job, life) if job == self.job => self.live(life),
            // The event belongs to a job that has ended.
            Event::Rank(..) => {}
            Event::Arrive { from, to, message } => {
                if self.net.arrived(from, to, message.len()) {
                    self.queue_item(from, Item::Writable { to });
                }
                self.queue_item(to, Item::Message { from, message });
            }
            Event::Work(node) => self.work(node),
            Event::Tick(node) => self.queue_item(node, Item::Tick),
            Event::Lose(node) => self.lose(node),
            Event::Notice { node, lost } => self.notice(node, lost),
        }
    }

    fn live(&mut self, life: Life) {
        match life {
            Life::Act(rank) => self.act(rank),
            Life::Reply { rank, bytes } => self.reply(rank, &bytes),
            Life::Client { rank, bytes } => {
                self.queue_item(self.place(rank), Item::Client { job: self.job, rank, bytes })
            }
            Life::Die { rank, exit } => self.die(rank, exit),
        }
    }

    /// Schedules an event of a rank of this job.
    fn life(&mut self, at: u64, life: Life) {
        self.at(at, Event::Rank(self.job, life));
    }

    fn queue_item(&mut self, node: u32, item: Item) {
        let now = self.now;
        let state = &mut self.nodes[node as usize];
        if !state.alive {
            return;
        }
        if let Some(at) = state.inbox.push(now, item) {
            self.at(at, Event::Work(node));
        }
    }

    /// Handles the next item in the inbox of a node.
    fn work(&mut self, node: u32) {
        let slow = self.scenario.slowness[node as usize];
        let state = &mut self.nodes[node as usize];
        let now = self.now;
        let taken = if state.alive { state.inbox.take(self.now, slow) } else { None };
        let Some((item, next)) = taken else { return };
        if let Some(at) = next {
            self.at(at, Event::Work(node));
        }
        if self.scenario.mistakes && self.random.u32(..16) == 0 {
            self.err(node);
        }
        let state = &mut self.nodes[node as usize];
        match item {
            Item::Client { job, rank, bytes } => {
                if job == self.job && self.scripts[rank as usize].exit.is_none() {
                    state.hear(now, rank, &bytes);
                }
            }
            Item::Message { from, message: Message::Core(bytes) } => {
                state.tell(now, Input::Peer { node: from, bytes: &bytes });
            }
            Item::Message { message, .. } => return self.host_message(node, message),
            Item::Exit { rank, exit } => {
                state.exit(now, rank, exit);
                // Outputs of the server about the exit are sent first.
                self.settle(node);
                return self.climb(node, Message::Ended(1));
            }
            Item::Writable { to } => {
                state.tell(now, Input::PeerWritable { node: to });
            }
            Item::Tick => {
                state.tell(now, Input::Timeout);
            }
        }
        self.settle(node);
    }

    /// Passes the server an input that breaks the host's contract. The state must not change.
    fn err(&mut self, node: u32) {
        let now = self.now;
        let mistake = self.random.u32(..7);
        let stranger = self.scenario.layout.nodes + 3;
        let elsewhere = (0u32..).zip(&self.scenario.layout.places).find(|&(_, &place)| place != node);
        let state = &mut self.nodes[node as usize];
        let before = state.snapshot();
        let input = match (mistake, elsewhere) {
            (0, _) => Input::Peer { node: stranger, bytes: &[0, 0, 0] },
            (1, Some((rank, _))) => Input::Exited { job: JOB, rank: Rank(rank), exit: Exit::Lost },
            (2, Some((rank, _))) => {
                let size = self.scenario.layout.places.len() as u32;
                Input::Opened { conn: ConnId(size), job: JOB, rank: Some(Rank(rank)) }
            }
            (3, _) => Input::Closed { conn: ConnId(1000) },
            (4, _) => Input::Node { node: 0, nodes: 1, radix: 2 },
            (5, _) => Input::DeregisterJob { job: hydrant_core::JobId(9) },
            _ => Input::Peer { node: self.tree.parent(node).unwrap_or(1), bytes: &[0xff; 3] },
        };
        let result: Result<_, Fault> = state.try_tell(now, input);
        assert!(result.is_err(), "{input:?} must be a fault");
        assert!(before == state.snapshot(), "{input:?} is a fault, and changed something");
    }

    /// Executes the outputs of a node's server.
    fn settle(&mut self, node: u32) {
        let now = self.nodes[node as usize].inbox.busy.max(self.now);
        let mut deeds = Vec::new();
        while self.nodes[node as usize].poll(&mut deeds) {
            for deed in std::mem::take(&mut deeds) {
                match deed {
                    Deed::Reply { rank, bytes } => self.life(now + SOCKET, Life::Reply { rank, bytes }),
                    Deed::Send { to, bytes } => {
                        if self.send(node, to, Message::Core(bytes)) {
                            let state = &mut self.nodes[node as usize];
                            state.tell(self.now, Input::PeerBlocked { node: to });
                        }
                    }
                    Deed::End(cause) => self.climb(node, Message::Ending(self.job, cause)),
                }
            }
        }
        if let Some(wake) = self.nodes[node as usize].server.poll_at() {
            let at = wake.0 * 1_000_000;
            if at > self.now {
                self.at(at, Event::Tick(node));
            }
        }
    }

    /// Sends a message. Returns whether the link is full.
    fn send(&mut self, from: u32, to: u32, message: Message) -> bool {
        let now = self.nodes[from as usize].inbox.busy.max(self.now);
        let sent = self.net.send(now, from, to, message.len(), &mut self.random);
        self.at(sent.at, Event::Arrive { from, to, message });
        sent.blocked
    }

    /// Passes a message to the head.
    fn climb(&mut self, node: u32, message: Message) {
        match self.tree.parent(node) {
            Some(parent) => drop(self.send(node, parent, message)),
            None => self.host_message(node, message),
        }
    }

    /// Passes a message to all nodes below.
    fn descend(&mut self, node: u32, message: &Message) {
        for child in self.tree.children(node) {
            self.send(node, child.start, message.clone());
        }
    }

    fn host_message(&mut self, node: u32, message: Message) {
        match message {
            Message::Core(_) => unreachable!("those are for the core"),
            Message::Ending(..) | Message::Missing(_) | Message::Ended(_) if node != 0 => {
                self.climb(node, message)
            }
            Message::Ending(job, _) if job != self.job => {}
            Message::Ending(..) | Message::Missing(_) => self.end(0),
            Message::Ended(count) => {
                self.ended += count;
                if self.ended == self.scripts.len() as u32 && !self.lost {
                    self.finish();
                }
            }
            Message::End(job) if job == self.job => self.end(node),
            // All of its ranks had ended by themselves.
            Message::End(_) => self.descend(node, &message),
            Message::Next(job) => self.next(node, job),
        }
    }

    /// A node ends its part of the job.
    fn end(&mut self, node: u32) {
        if std::mem::replace(&mut self.nodes[node as usize].ending, true) {
            return;
        }
        self.descend(node, &Message::End(self.job));
        for rank in 0..self.scripts.len() as u32 {
            if self.place(rank) == node && self.scripts[rank as usize].exit.is_none() {
                self.life(self.now + 50_000, Life::Die { rank, exit: Exit::Signal(15) });
            }
        }
    }

    /// Finishes the job after the head has seen the end of all ranks, and opens the next one.
    fn finish(&mut self) {
        if self.scenario.jobs[self.job].fails {
            assert!(self.nodes[0].ending, "a rank died, and the job went on");
        } else {
            assert!(!self.nodes[0].ending, "the job ended without need");
            self.checks.check_end();
        }
        self.done += 1;
        if self.done < self.scenario.jobs.len() {
            self.begin(self.done);
        }
        self.next(0, self.done);
    }

    /// A node forgets the job, and opens the next one.
    fn next(&mut self, node: u32, job: usize) {
        self.descend(node, &Message::Next(job));
        self.nodes[node as usize].tell(self.now, Input::DeregisterJob { job: JOB });
        self.nodes[node as usize].job = None;
        self.settle(node);
        if job < self.scenario.jobs.len() && !self.lost {
            self.open(node);
        }
    }

    fn lose(&mut self, node: u32) {
        if self.done == self.scenario.jobs.len() {
            return;
        }
        self.lost = true;
        self.nodes[node as usize].alive = false;
        let neighbours =
            self.tree.parent(node).into_iter().chain(self.tree.children(node).map(|child| child.start));
        for neighbour in neighbours.collect::<Vec<_>>() {
            self.at(self.now + HEARTBEAT, Event::Notice { node: neighbour, lost: node });
        }
    }

    fn notice(&mut self, node: u32, lost: u32) {
        if !self.nodes[node as usize].alive {
            return;
        }
        if self.tree.parent(node) == Some(lost) {
            self.end(node);
        } else {
            self.climb(node, Message::Missing(lost));
        }
    }
}

/// The ranks' side.
impl World<'_> {
    /// Starts the next step of a rank.
    fn act(&mut self, rank: u32) {
        let script = &self.scripts[rank as usize];
        let Some(step) = script.step().cloned().filter(|_| script.exit.is_none()) else { return };
        match step {
            Step::End(Exit::Code(_)) if self.job + 1 == self.scenario.jobs.len() => {
                return self.idle.push(rank);
            }
            Step::End(exit) => return self.die(rank, exit),
            _ => {}
        }
        let meetings = &self.scenario.jobs[self.job].meetings;
        let message = script.message(rank, &step, meetings).expect("every step but the end is a request");
        self.awaited[rank as usize] = script.replies(&step);
        let end = match script.steps.get(script.at + 1) {
            Some(Step::End(exit @ Exit::Signal(_))) => Some(*exit),
            _ => None,
        };
        match step {
            Step::Meet { meeting } => self.checks.arrive(rank, meeting),
            Step::Put { key, round, .. } => self.checks.ask_put(rank, key, round),
            _ => {}
        }
        let cut = self.random.usize(0..=message.len());
        let later = self.random.u64(1..20_000);
        let (front, back) = message.split_at(cut);
        self.life(self.now + SOCKET, Life::Client { rank, bytes: front.to_vec() });
        self.life(self.now + SOCKET + later, Life::Client { rank, bytes: back.to_vec() });
        // Some processes die during a request.
        if let Some(exit) = end.filter(|_| self.random.bool()) {
            let soon = self.random.u64(0..5_000_000);
            self.life(self.now + soon, Life::Die { rank, exit });
        }
    }

    fn die(&mut self, rank: u32, exit: Exit) {
        let place = self.place(rank);
        let script = &mut self.scripts[rank as usize];
        let node = &self.nodes[place as usize];
        if script.exit.is_some() || !node.alive || node.job != Some(self.job) {
            return;
        }
        script.exit = Some(exit);
        self.checks.died(rank);
        self.queue_item(place, Item::Exit { rank, exit });
    }

    /// Handles the reply to a rank.
    fn reply(&mut self, rank: u32, bytes: &[u8]) {
        let script = &self.scripts[rank as usize];
        let Some(step) = script.step().filter(|_| script.exit.is_none()) else { return };
        let reply = std::str::from_utf8(bytes).expect("replies are text");
        let waits = &mut self.awaited[rank as usize];
        assert!(*waits > 0, "rank {rank} is answered twice: {reply}");
        *waits -= 1;
        let fine = rank::field(reply, "rc") == Some("0");
        match *step {
            Step::Put { key, round, greedy, .. } => {
                assert!(fine || greedy, "a put of rank {rank} within its share is refused: {reply}");
                if fine {
                    self.checks.put(rank, key, round);
                }
            }
            Step::Get { rank: of, key } => self.checks.got(rank, of, key, rank::round(reply)),
            Step::Meet { meeting } => self.checks.release(rank, meeting, reply),
            Step::Init | Step::Finalize => assert!(fine, "rank {rank}: {reply}"),
            Step::End(_) => unreachable!("an end has no request"),
        }
        if *waits == 0 {
            self.scripts[rank as usize].at += 1;
            let think = self.random.u64(0..100_000);
            self.life(self.now + think, Life::Act(rank));
        }
    }
}
