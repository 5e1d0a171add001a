//! Head of a step: a thread of srun. The servers of several nodes, and those of a spawned step, connect to it at once. That of
//! another step on one node connects when a rank spawns.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use hydrant_host::{Event as HostEvent, Host, Input, Output};
use hydrant_overlay::{Candidate, Channel, Link, LinkError, RECEIVE_BUFFER_MIN, Ticket};
use hydrant_placement::hostlist;
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Poller, accept_stream};

use crate::message::{Layout, NotExecuted, ToHead, ToNode, ToSpawner, decode, encode, runs_of};
use crate::server::{self, KILL_TIMEOUT, Print, ServerError};
use crate::spawned::{News, Request, Said, SpawnError, SpawnedSteps, Spawner, Srun};
use crate::uplink::HIGH_WATER;

const KEYS: KeyRange = KeyRange(0);
const STOP: Key = KEYS.key(0, 0);
const LISTENER: Key = KEYS.key(1, 0);
/// Kind of the keys of connections.
const CONNECTION: u16 = 2;
/// Key of the library's descriptor.
const HOST: Key = KEYS.key(3, 0);
/// Key of the socket of the spawning step's srun.
const SPAWNER: Key = KEYS.key(4, 0);
/// Kind of the keys of the sockets of spawned steps' sruns.
const SPAWNED: u16 = 5;
/// Kind of the keys of their processes.
const SRUN: u16 = 6;
/// Connections above the number of nodes whose ends have not proved that they have the ticket.
const STRANGERS_MAX: usize = 16;
/// Time in milliseconds for the tasks of the other nodes to end after a node is lost: that of their signals, and some more.
const END_TIMEOUT: u64 = KILL_TIMEOUT + 1_000;

/// A head before it runs.
#[derive(Debug)]
pub(crate) struct Head {
    /// Name of the job for clients.
    pub(crate) name: String,
    /// Number of nodes with tasks.
    pub(crate) nodes: u32,
    /// Names of the nodes in order, as far as srun knows them.
    pub(crate) hosts: Vec<String>,
    /// Number of tasks for which the allocation has processors, if it is known.
    pub(crate) universe: Option<u32>,
    pub(crate) ticket: Ticket,
    pub(crate) listener: TcpListener,
    /// Maximum time for all nodes to connect.
    pub(crate) join: Duration,
    /// The other end is closed when the step is over.
    pub(crate) stop: OwnedFd,
    pub(crate) print: Print,
    /// Has srun give the step up.
    pub(crate) stop_srun: fn(),
    /// How spawned steps are started.
    pub(crate) srun: Srun,
    /// Of a spawned step.
    pub(crate) spawner: Option<Spawner>,
}

/// Listens on a free port of all addresses. Returns the port, too.
pub(crate) fn listen() -> std::io::Result<(TcpListener, u16)> {
    // Also for IPv4, unless the machine has no IPv6.
    let listener =
        TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
    listener.set_nonblocking(true)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Connection to the head.
#[derive(Debug)]
enum Connection {
    Candidate(Candidate),
    /// With the number that the node claims. Its first message proves it.
    Link(u32, Link),
}

/// A node.
#[derive(Debug, Default)]
struct Node {
    connection: Option<u32>,
    name: String,
    ranks: Option<Vec<u32>>,
    processors: u32,
    not_executed: Option<NotExecuted>,
    over: bool,
    /// The server may not send to it until its queue drains.
    blocked: bool,
}

impl Node {
    /// A node that has not connected, at this position. Slurm counts nodes from 0.
    fn of(name: Option<&String>, at: usize) -> Node {
        let name = name.cloned().unwrap_or_else(|| format!("node {at}"));
        Node { name, ..Node::default() }
    }
}

/// What a turn of the loop has brought.
#[derive(Debug)]
enum Event {
    Message(u32, Channel, Vec<u8>),
    Lost(u32, LinkError),
    Stop,
}

#[derive(Debug)]
struct Star {
    /// Name of the job for clients.
    name: String,
    ticket: Ticket,
    listener: TcpListener,
    /// Held open while the poller watches it.
    stop: OwnedFd,
    print: Print,
    stop_srun: fn(),
    clock: Clock,
    poller: Poller,
    connections: BTreeMap<u32, Connection>,
    next: u32,
    nodes: Vec<Node>,
    buffer: Vec<u8>,
    keys: Vec<Key>,
    ended: bool,
    /// Time at which srun gives the step up, after a node is lost or has not connected.
    give_up_at: Option<u64>,
    spawned: SpawnedSteps,
    spawner: Option<Spawner>,
}

/// Serves as the head until the step is over.
pub(crate) fn lead(head: Head) {
    let print = head.print;
    if let Err(error) = run(head) {
        // The nodes notice that their links are closed, and end their tasks.
        print(&format!("hydrant: ending the step: the head in srun failed: {error}"));
    }
}

fn run(head: Head) -> Result<(), ServerError> {
    let Head { name, nodes, hosts, universe, ticket, listener, join, stop, print, stop_srun, srun, spawner } =
        head;
    let poller = Poller::new()?;
    poller.add(&stop, STOP, Interest::Read)?;
    poller.add(&listener, LISTENER, Interest::Read)?;
    if let Some(spawner) = &spawner {
        poller.add(&spawner.socket, SPAWNER, Interest::Read)?;
    }
    let origin = spawner.as_ref().map(|spawner| spawner.origin.clone());
    let is_led = nodes > 1 || origin.is_some();
    let mut star = Star {
        name,
        ticket,
        listener,
        stop,
        print,
        stop_srun,
        clock: Clock::start(),
        poller,
        connections: BTreeMap::new(),
        next: 0,
        nodes: (0..nodes as usize).map(|at| Node::of(hosts.get(at), at)).collect(),
        buffer: vec![0; RECEIVE_BUFFER_MIN],
        keys: Vec::new(),
        ended: false,
        give_up_at: None,
        spawned: SpawnedSteps::new(srun, (KEYS, SPAWNED, SRUN)),
        spawner,
    };
    if let Some(layout) = star.gather(Some(join).filter(|_| is_led))? {
        let layout = Layout { universe, origin, ..layout };
        let mut host = None;
        if nodes > 1 {
            let settings = server::settings(layout.size(), Some((0, nodes)));
            let host = host.insert(Host::open(&settings)?);
            server::register(host, &star.name, &layout)?;
            star.poller.add(&*host, HOST, Interest::Read)?;
        }
        if is_led {
            let begin = ToNode::Begin(layout);
            for node in 1..=nodes {
                star.order(node, &begin);
            }
        }
        if let Some(spawner) = &star.spawner {
            spawner.send(&ToSpawner::Started(star.name.clone()));
        }
        star.serve(host)?;
    }
    star.end_spawned()
}

impl Star {
    /// Waits until all nodes are ready, for a limited time if they connect at once. Returns the nodes of the ranks, none if the
    /// step is over.
    fn gather(&mut self, join: Option<Duration>) -> Result<Option<Layout>, ServerError> {
        let start = self.clock.now();
        loop {
            let last = join.map(|join| start + join.as_millis() as u64).filter(|_| !self.ended);
            for event in self.turn(last)? {
                match event {
                    Event::Stop => return Ok(None),
                    Event::Message(node, Channel::Control, bytes) => self.take(node, &bytes),
                    Event::Message(node, ..) => self.invalid(node),
                    Event::Lost(node, error) => self.lost(node, &error),
                }
            }
            if let Some(not_executed) = self.nodes.iter().find_map(|node| node.not_executed) {
                self.end_as(&ToSpawner::NotExecuted(not_executed));
            }
            if !self.ended && self.nodes.iter().all(|node| node.ranks.is_some()) {
                let ranks: Vec<Vec<u32>> =
                    self.nodes.iter().map(|node| node.ranks.clone().unwrap_or_default()).collect();
                match runs_of(&ranks) {
                    Some(runs) => {
                        let many = |(node, ranks): (&Node, &Vec<u32>)| ranks.len() > node.processors as usize;
                        let oversubscribed = self.nodes.iter().zip(&ranks).any(many);
                        let hosts = self.nodes.iter().map(|node| node.name.clone()).collect();
                        return Ok(Some(Layout {
                            runs,
                            hosts,
                            oversubscribed,
                            universe: None,
                            origin: None,
                        }));
                    }
                    None => self.end("the nodes do not agree on their ranks"),
                }
            }
            if let Some(join) = join.filter(|_| !self.ended && last.is_some_and(|at| self.clock.now() >= at))
            {
                self.miss(join)?;
            }
        }
    }

    /// Ends a step without the nodes that have not connected.
    fn miss(&mut self, join: Duration) -> Result<(), ServerError> {
        let mut names = Vec::new();
        for node in self.nodes.iter_mut().filter(|node| node.ranks.is_none()) {
            // Nothing will report its tasks.
            node.over = true;
            names.push(node.name.as_str());
        }
        let (verb, seconds) = (if names.len() == 1 { "has" } else { "have" }, join.as_secs_f64());
        let names = hostlist::compress(names);
        let port = self.listener.local_addr().map_err(hydrant_reactor::Error::during("getsockname"))?.port();
        let why = format!(
            "{names} {verb} not connected to srun within {seconds} s (join-seconds): look there for the line of the plugin \
             in plugstack.conf, for errors in slurmd's log, and for a firewall before port {port} of srun"
        );
        self.end(&why);
        self.give_up_at.get_or_insert(self.clock.now() + END_TIMEOUT);
        Ok(())
    }

    /// Passes messages between the servers of the nodes, if there are several, until the step is over.
    fn serve(&mut self, mut host: Option<Host>) -> Result<(), ServerError> {
        loop {
            while let Some(host) = &mut host
                && let Some(event) = host.next_event()?
            {
                match event {
                    HostEvent::Output(Output::Peer { node, bytes })
                        if self.send(node, Channel::Peer, &bytes) =>
                    {
                        self.nodes[node as usize - 1].blocked = true;
                        host.input(Input::PeerBlocked { node })?;
                    }
                    HostEvent::Output(Output::AbortJob { cause, .. }) => self.end(&cause.to_string()),
                    // The head has no clients.
                    _ => {}
                }
            }
            self.flush()?;
            for event in self.turn(None)? {
                match event {
                    Event::Stop => return Ok(()),
                    Event::Message(node, Channel::Control, bytes) => self.take(node, &bytes),
                    Event::Message(node, channel, bytes) => match &mut host {
                        Some(host) if channel == Channel::Peer => self.take_peer(host, node, &bytes)?,
                        _ => self.invalid(node),
                    },
                    Event::Lost(node, error) => self.lost(node, &error),
                }
            }
            if let Some(host) = &mut host {
                for node in self.drained() {
                    host.input(Input::PeerWritable { node })?;
                }
            }
        }
    }

    /// Passes a message of a node's server to that of the head. An invalid one ends the step.
    fn take_peer(&mut self, host: &mut Host, node: u32, bytes: &[u8]) -> Result<(), ServerError> {
        match host.peer(node, bytes) {
            Err(error) if error.fault().is_none() => return Err(error.into()),
            Err(_) => self.invalid(node),
            Ok(()) => {}
        }
        Ok(())
    }

    /// Returns the nodes whose queues have drained.
    fn drained(&mut self) -> Vec<u32> {
        let mut drained = Vec::new();
        for (number, node) in (1..).zip(&mut self.nodes) {
            let link = node.connection.and_then(|id| self.connections.get(&id));
            let queued = if let Some(Connection::Link(_, link)) = link { link.queued() } else { 0 };
            if node.blocked && queued <= HIGH_WATER / 2 {
                node.blocked = false;
                drained.push(number);
            }
        }
        drained
    }

    /// Takes a message of a node about its tasks.
    fn take(&mut self, node: u32, bytes: &[u8]) {
        match decode(bytes) {
            // The first message made it a node.
            Some(ToHead::Ready { .. }) | None => self.invalid(node),
            Some(ToHead::Failed(why)) => self.end(&why),
            Some(ToHead::Over) => self.nodes[node as usize - 1].over = true,
            Some(ToHead::Spawn { spawn, rank, protocol, request: bytes }) => {
                let request = Request { node, spawn, rank, protocol, bytes };
                let refusal = if self.ended {
                    Some(request.refusal(SpawnError::Ending))
                } else {
                    self.spawned.start(&self.name, request, &self.poller)
                };
                refusal.into_iter().for_each(|refusal| self.pass_on(refusal));
            }
        }
    }

    /// Passes on what has become of a spawned step.
    fn pass_on(&mut self, news: News) {
        match news {
            News::Started { node, spawn, name, codes } => {
                self.order(node, &ToNode::Spawned { spawn, started: Some(name), codes });
            }
            News::Refused { node, spawn, rank, codes, why } => {
                if !matches!(why, SpawnError::Ending) {
                    (self.print)(&format!("hydrant: nothing is spawned for rank {rank}: {why}"));
                }
                self.order(node, &ToNode::Spawned { spawn, started: None, codes });
            }
            News::Ending(why) => self.end(&why),
            News::Over { node } => self.order(node, &ToNode::SpawnedOver),
        }
    }

    /// Takes what the srun of the spawning step says.
    fn hear_spawner(&mut self) {
        match self.spawner.as_ref().map_or(Said::Nothing, Spawner::receive) {
            Said::Nothing => {}
            Said::End => {
                self.spawner = None;
                self.end_nodes();
            }
            Said::Lost => {
                self.spawner = None;
                self.end("srun of the step that has spawned this one is lost");
            }
        }
    }

    /// Ends the spawned steps that run after this one, and waits for them, for a limited time.
    fn end_spawned(&mut self) -> Result<(), ServerError> {
        self.ended = true;
        drop(self.spawned.end());
        let last = self.clock.now() + END_TIMEOUT;
        // The other end is closed now, and readable for ever.
        self.poller.remove(&self.stop);
        while !self.spawned.is_empty() {
            self.turn(Some(last))?;
            if self.clock.now() >= last {
                self.spawned.kill();
            }
        }
        Ok(())
    }

    fn invalid(&mut self, node: u32) {
        let name = self.nodes[node as usize - 1].name.clone();
        self.end(&format!("{name} sent an invalid message"));
    }

    fn lost(&mut self, node: u32, error: &LinkError) {
        let Node { name, over, .. } = &mut self.nodes[node as usize - 1];
        if !std::mem::replace(over, true) {
            let why = format!("{name} is lost: {error}");
            self.end(&why);
            self.give_up_at.get_or_insert(self.clock.now() + END_TIMEOUT);
        }
    }

    /// Has srun give the step up once the tasks of all other nodes have ended. It waits for each task, and nothing else reports
    /// those of a lost node before Slurm itself notices, which takes minutes.
    fn give_up(&mut self) {
        let now = self.clock.now();
        let over = self.nodes.iter().all(|node| node.over);
        if self.give_up_at.is_some_and(|at| at <= now || over) {
            self.give_up_at = None;
            (self.stop_srun)();
        }
    }

    /// Ends the step on all nodes, and says why: srun of the spawning step does, if there is one.
    fn end(&mut self, why: &str) {
        if !self.ended && self.spawner.is_none() {
            (self.print)(&format!("hydrant: ending the step: {why}"));
        }
        self.end_as(&ToSpawner::Ending(why.to_owned()));
    }

    /// Ends the step on all nodes. The spawning step is told in this way.
    fn end_as(&mut self, message: &ToSpawner) {
        if !self.ended {
            if let Some(spawner) = &self.spawner {
                spawner.send(message);
            }
            self.end_nodes();
        }
    }

    /// Ends the step and those that it has spawned.
    fn end_nodes(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            for node in 1..=self.nodes.len() as u32 {
                self.order(node, &ToNode::End);
            }
            for refusal in self.spawned.end() {
                self.pass_on(refusal);
            }
        }
    }

    fn order(&mut self, node: u32, order: &ToNode) {
        self.send(node, Channel::Control, &encode(order));
    }

    /// Sends a message to a node. Returns whether its queue is full. A lost node needs none.
    fn send(&mut self, node: u32, channel: Channel, message: &[u8]) -> bool {
        let now = self.clock.now();
        let id = self.nodes[node as usize - 1].connection;
        let Some(Connection::Link(_, link)) = id.and_then(|id| self.connections.get_mut(&id)) else {
            return false;
        };
        // The loss of the link is reported when it is read.
        let _ = link.send(now, channel, message);
        link.queued() > HIGH_WATER
    }

    /// Writes to all links.
    fn flush(&mut self) -> Result<(), ServerError> {
        for (&id, connection) in &mut self.connections {
            if let Connection::Link(_, link) = connection {
                let _ = link.flush();
                let interest = if link.is_blocked() { Interest::ReadWrite } else { Interest::Read };
                self.poller.modify(link.fd(), KEYS.key(CONNECTION, id), interest)?;
            }
        }
        Ok(())
    }

    /// Waits, and handles connections.
    fn turn(&mut self, wake: Option<u64>) -> Result<Vec<Event>, ServerError> {
        self.flush()?;
        self.give_up();
        let mut keys = std::mem::take(&mut self.keys);
        let timeout: Option<Duration> = self.clock.timeout([wake, self.give_up_at]);
        self.poller.wait(timeout, &mut keys)?;
        let mut events = Vec::new();
        for &key in &keys {
            match KEYS.decode(key) {
                Some((CONNECTION, id)) => self.ready(id, &mut events)?,
                Some((SPAWNED, id)) => {
                    let news = self.spawned.receive(id, &self.poller);
                    news.into_iter().for_each(|news| self.pass_on(news));
                }
                Some((SRUN, id)) => {
                    let news = self.spawned.ended(id, &self.poller);
                    news.into_iter().for_each(|news| self.pass_on(news));
                }
                _ if key == SPAWNER => self.hear_spawner(),
                _ if key == LISTENER => self.accept()?,
                _ if key == HOST => {}
                _ => events.push(Event::Stop),
            }
        }
        self.keys = keys;
        Ok(events)
    }

    fn accept(&mut self) -> Result<(), ServerError> {
        // Without a descriptor the connection waits in the listener, and the next turn tries again.
        let Ok(fd) = accept_stream(&self.listener) else { return Ok(()) };
        let is_stranger = |id: &u32| !self.nodes.iter().any(|node| node.connection == Some(*id));
        let strangers: Vec<u32> = self.connections.keys().copied().filter(is_stranger).collect();
        if strangers.len() >= self.nodes.len() + STRANGERS_MAX {
            self.connections.remove(&strangers[0]);
        }
        let Ok(candidate) = Candidate::new(fd) else { return Ok(()) };
        self.poller.add(candidate.fd(), KEYS.key(CONNECTION, self.next), Interest::Read)?;
        self.connections.insert(self.next, Connection::Candidate(candidate));
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Reads from a connection.
    fn ready(&mut self, id: u32, events: &mut Vec<Event>) -> Result<(), ServerError> {
        let now = self.clock.now();
        match self.connections.remove(&id) {
            Some(Connection::Candidate(mut candidate)) => {
                // Strangers are closed without a word.
                let Ok(complete) = candidate.receive() else { return Ok(()) };
                let connection = if complete {
                    let Ok((node, link)) = candidate.answer(&self.ticket, now) else { return Ok(()) };
                    Connection::Link(node, link)
                } else {
                    Connection::Candidate(candidate)
                };
                self.connections.insert(id, connection);
            }
            Some(Connection::Link(node, mut link)) => {
                let mut messages = Vec::new();
                let received =
                    link.receive(now, &mut self.buffer, |channel, message| messages.push((channel, message)));
                let known = self.nodes.get(node.wrapping_sub(1) as usize).map(|node| node.connection);
                let is_new = known == Some(None) && !messages.is_empty();
                if is_new {
                    let (_, first) = messages.remove(0);
                    if !self.admit(node, id, &first) {
                        return Ok(());
                    }
                } else if known != Some(Some(id)) && (known != Some(None) || received.is_err()) {
                    return Ok(());
                }
                events.extend(
                    messages.into_iter().map(|(channel, bytes)| Event::Message(node, channel, bytes)),
                );
                match received {
                    Ok(_) => {
                        self.connections.insert(id, Connection::Link(node, link));
                        if is_new && self.ended {
                            self.order(node, &ToNode::End);
                        }
                    }
                    Err(error) => events.push(Event::Lost(node, error)),
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Admits a node with its first message. Returns false if the message is no such message.
    fn admit(&mut self, node: u32, id: u32, first: &[u8]) -> bool {
        let Some(ToHead::Ready { name, ranks, processors, not_executed }) = decode(first) else {
            return false;
        };
        let (connection, ranks) = (Some(id), Some(ranks));
        self.nodes[node as usize - 1] =
            Node { connection, name, ranks, processors, not_executed, ..Node::default() };
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::server::notices;
    use crate::uplink::{Place, Uplink, refuse};

    /// A head of two nodes in a thread, and how to connect to it.
    fn started(join: Duration, print: Print, stop_srun: fn()) -> (thread::JoinHandle<()>, OwnedFd, Place) {
        let (listener, port) = listen().unwrap();
        let ticket = Ticket::random().unwrap();
        let (stop, end) = notices().unwrap();
        let (head, spawner) = (([127, 0, 0, 1], port).into(), None);
        let place = Place { node: 2, nodes: 2, head, ticket: ticket.clone(), spawner };
        let (name, hosts) = ("job".to_owned(), vec!["n1".to_owned(), "n2".to_owned()]);
        let (program, server, directory) = ("srun".into(), String::new(), "/".into());
        let srun = Srun { program, job: 1, server, env: Vec::new(), directory, hosts: Vec::new() };
        let (nodes, universe, spawner) = (2, None, None);
        let head = Head {
            name,
            nodes,
            hosts,
            universe,
            ticket,
            listener,
            join,
            stop,
            print,
            stop_srun,
            srun,
            spawner,
        };
        (thread::spawn(move || lead(head)), end, place)
    }

    fn await_flag(flag: &AtomicBool) {
        while !flag.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    #[test]
    fn a_node_that_comes_after_a_failure_is_told_to_end() {
        static ENDED: AtomicBool = AtomicBool::new(false);
        let print: Print = |line| ENDED.store(line.ends_with("n1 has no plugin"), Ordering::Release);
        let (head, end, second) = started(Duration::from_secs(60), print, || panic!("no node is lost"));
        let first = Place { node: 1, ticket: second.ticket.clone(), spawner: None, ..second };
        refuse(&first, "n1".to_owned(), vec![0], "n1 has no plugin".to_owned()).unwrap();
        await_flag(&ENDED);
        expect_end(&second);
        drop(end);
        head.join().unwrap();
    }

    #[test]
    fn nodes_that_do_not_connect_in_time_end_the_step() {
        static ENDED: AtomicBool = AtomicBool::new(false);
        static STOPPED: AtomicBool = AtomicBool::new(false);
        let print: Print = |line| {
            let start = "hydrant: ending the step: n[1-2] have not connected to srun within 0.001 s";
            ENDED.store(line.starts_with(start), Ordering::Release);
        };
        let (head, end, second) =
            started(Duration::from_millis(1), print, || STOPPED.store(true, Ordering::Release));
        await_flag(&ENDED);
        // All others have ended, so srun need not wait.
        await_flag(&STOPPED);
        expect_end(&second);
        drop(end);
        head.join().unwrap();
    }

    /// Connects a node, which has to be told that the step ends.
    fn expect_end(place: &Place) {
        let mut poller = Poller::new().unwrap();
        let mut link = Uplink::connect(place, Clock::start(), &poller).unwrap();
        link.send(&ToHead::Ready {
            name: "n2".to_owned(),
            ranks: vec![1],
            processors: 1,
            not_executed: None,
        });
        let (mut keys, mut messages) = (Vec::new(), Vec::new());
        while messages.is_empty() {
            link.flush(&poller).unwrap();
            poller.wait(Some(Duration::from_secs(60)), &mut keys).unwrap();
            assert!(!keys.is_empty(), "no order has come");
            messages = link.receive().unwrap();
        }
        assert_eq!(decode(&messages[0].1), Some(ToNode::End));
        link.close(&mut poller).unwrap();
    }
}
