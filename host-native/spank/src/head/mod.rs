//! Head of a step: a thread of srun, to which nodes connect. Those of a step on several nodes do so at once, that of a step on one
//! node when a rank asks for what concerns others, and those of spawned steps when Slurm has started them.
//!
//! The head numbers the [changes of membership](ToNode::Input), decides in which order all servers apply the requests of ranks
//! that concern them, and keeps the names that ranks publish. It passes on messages between servers, one of which it may have
//! itself ([`Servers`]).

mod links;
mod peers;
mod steps;
mod upcalls;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use hydrant_control::protocol::{Entry, History};
use hydrant_driver::OwnedServer;
use hydrant_host::{Event as HostEvent, Host, JobId, Output, UpcallId};
use hydrant_names::{LIMITS_OF_RUN, LocalNames};
use hydrant_overlay::{Candidate, Channel, Link, LinkError, RECEIVE_BUFFER_MIN, Ticket};
use hydrant_placement::hostlist;
use hydrant_reactor::{Clock, Interest, Key, KeyRange, Poller, random_u32};
use rustix::process::Signal;

use crate::message::{FIRST, Layout, Ready, Registration, ToHead, ToNode, decode, runs_of};
use crate::server::{KILL_TIMEOUT, Print, ServerError};
use crate::servers::Servers;
use crate::spawned::{SpawnedSteps, State};
use crate::srun::Request;

pub(crate) const KEYS: KeyRange = KeyRange(0);
const STOP: Key = KEYS.key(0, 0);
const LISTENER: Key = KEYS.key(1, 0);
/// Kind of the keys of connections.
const CONNECTION: u16 = 2;
/// Key of the library's descriptor.
const HOST: Key = KEYS.key(3, 0);
/// Kind of the keys of the pipes of spawned steps' sruns.
pub(crate) const SPAWNED: u16 = 5;
/// Kind of the keys of their processes.
pub(crate) const SRUN: u16 = 6;
/// Connections above the number of nodes whose ends have not proved that they have the ticket.
const STRANGERS_MAX: usize = 16;
/// Time in milliseconds for the tasks of the other nodes to end after a node is lost: that of their signals, and some more.
const END_TIMEOUT: u64 = KILL_TIMEOUT + 1_000;
/// Node of the root of all servers.
const ROOT: u32 = 0;

/// A head before it runs.
#[derive(Debug)]
pub(crate) struct Head {
    /// Name of the job for clients.
    pub(crate) name: String,
    /// All servers.
    pub(crate) servers: Servers,
    /// Names of the nodes in order, as far as srun knows them.
    pub(crate) hosts: Vec<String>,
    /// Number of tasks for which the allocation has processors, if it is known.
    pub(crate) universe: Option<u32>,
    pub(crate) ticket: Ticket,
    pub(crate) listener: TcpListener,
    /// Maximum time for all nodes of a step to connect.
    pub(crate) join: Duration,
    /// The other end is closed when the step is over.
    pub(crate) stop: OwnedFd,
    pub(crate) print: Print,
    /// Has srun give the step up.
    pub(crate) stop_srun: fn(),
    pub(crate) spawned: SpawnedSteps,
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

/// A node of the first step, or of a spawned one.
#[derive(Debug, Default)]
struct Node {
    connection: Option<u32>,
    /// None until it has connected.
    ready: Option<Ready>,
    /// Its server takes part in changes of membership.
    is_member: bool,
    over: bool,
    /// Servers that may not send to it until its queue drains.
    blocked: BTreeSet<u32>,
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
    servers: Servers,
    hosts: Vec<String>,
    universe: Option<u32>,
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
    /// Those of the first step, and those of spawned steps that have connected.
    nodes: BTreeMap<u32, Node>,
    buffer: Vec<u8>,
    keys: Vec<Key>,
    ended: bool,
    /// Time at which srun gives the step up, after a node is lost or has not connected.
    give_up_at: Option<u64>,
    spawned: SpawnedSteps,
    /// The root of the servers, if it is here.
    host: Option<Host>,
    /// Number of the last change of membership.
    epoch: u32,
    /// What all servers have been told of the jobs.
    history: History<Box<Registration>>,
    names: LocalNames<OwnedServer>,
    /// Requests about names, by number: the node, and the number there.
    naming: BTreeMap<u32, (u32, UpcallId)>,
    next_name: u32,
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
    let Head { name, servers, hosts, universe, ticket, listener, join, stop, print, stop_srun, spawned } =
        head;
    let poller = Poller::new()?;
    poller.add(&stop, STOP, Interest::Read)?;
    poller.add(&listener, LISTENER, Interest::Read)?;
    let names = OwnedServer::new(LIMITS_OF_RUN, random_u32()?)?;
    let mut star = Star {
        name,
        servers,
        hosts,
        universe,
        ticket,
        listener,
        stop,
        print,
        stop_srun,
        clock: Clock::start(),
        poller,
        connections: BTreeMap::new(),
        next: 0,
        nodes: servers.first().map(|node| (node, Node { is_member: true, ..Node::default() })).collect(),
        buffer: vec![0; RECEIVE_BUFFER_MIN],
        keys: Vec::new(),
        ended: false,
        give_up_at: None,
        spawned,
        host: None,
        epoch: 0,
        history: History::default(),
        names: LocalNames::new(Box::new(names)),
        naming: BTreeMap::new(),
        next_name: 0,
    };
    star.serve(join)?;
    star.end_spawned()
}

impl Star {
    /// Starts the first job when all its nodes are ready.
    fn begin_if_ready(&mut self) -> Result<(), ServerError> {
        if self.has_begun() || self.ended {
            return Ok(());
        }
        let refused = |node: &Node| node.ready.as_ref()?.refused.clone();
        if let Some(why) = self.nodes.values().find_map(refused) {
            self.end(&why);
        } else if self.nodes.values().all(|node| node.ready.is_some()) {
            match self.layout(&self.servers.first().collect::<Vec<_>>()) {
                Some(layout) => self.begin(layout)?,
                None => self.end("the nodes do not agree on their ranks"),
            }
        }
        Ok(())
    }

    /// Whether the first job is registered.
    fn has_begun(&self) -> bool {
        self.registered().next().is_some()
    }

    /// Puts the ranks of nodes in order. Returns none if the nodes do not agree on them.
    fn layout(&self, numbers: &[u32]) -> Option<Layout> {
        let ready = |number: &u32| Some((*number, self.nodes.get(number)?.ready.as_ref()?));
        let nodes: Vec<(u32, &Ready)> = numbers.iter().map(ready).collect::<Option<_>>()?;
        let runs = runs_of(nodes.iter().map(|(number, node)| (*number, &node.ranks[..])))?;
        let oversubscribed = nodes.iter().any(|(_, node)| node.ranks.len() > node.processors as usize);
        let hosts = nodes.iter().map(|(number, node)| (*number, node.name.clone())).collect();
        Some(Layout { runs, hosts, oversubscribed, universe: self.universe, origin: None })
    }

    /// Ends a step without the nodes that have not connected.
    fn miss(&mut self, join: Duration) -> Result<(), ServerError> {
        let mut names = Vec::new();
        for (&number, node) in self.nodes.iter_mut().filter(|(_, node)| node.ready.is_none()) {
            // Nothing will report its tasks.
            node.over = true;
            names.push(name_of(&self.hosts, self.servers, number, node));
        }
        let (verb, seconds) = (if names.len() == 1 { "has" } else { "have" }, join.as_secs_f64());
        let names = hostlist::compress(names.iter().map(String::as_str));
        let port = self.listener.local_addr().map_err(hydrant_reactor::Error::during("getsockname"))?.port();
        let why = format!(
            "{names} {verb} not connected to srun within {seconds} s (join-seconds): look there for the line of the plugin \
             in plugstack.conf, for errors in slurmd's log, and for a firewall before port {port} of srun"
        );
        self.end(&why);
        self.give_up_at.get_or_insert(self.clock.now() + END_TIMEOUT);
        Ok(())
    }

    /// Starts the first job. A step on one node has done so by itself.
    fn begin(&mut self, layout: Layout) -> Result<(), ServerError> {
        let registration = Registration { job: FIRST, name: self.name.clone(), layout, spawn: None };
        if self.servers.has_root_in_srun() {
            let settings = self.servers.settings(ROOT, registration.layout.size());
            let host = self.host.insert(Host::open(&settings)?);
            self.poller.add(&*host, HOST, Interest::Read)?;
            self.register(registration, None)
        } else {
            self.history.push_job(FIRST, registration.into());
            Ok(())
        }
    }

    /// Registers a job at all servers. That of one node has asked for it, if it is spawned.
    fn register(
        &mut self,
        registration: Registration,
        asked: Option<(u32, UpcallId)>,
    ) -> Result<(), ServerError> {
        if let Some(host) = &mut self.host {
            registration.apply(host, true)?;
        }
        let registration = Box::new(registration);
        let order = ToNode::Register(registration.clone());
        for node in self.members() {
            match asked.filter(|(asker, _)| *asker == node) {
                Some((_, spawn)) => {
                    let registration = Registration { spawn: Some(spawn), ..(*registration).clone() };
                    self.order(node, &ToNode::Register(registration.into()));
                }
                None => self.order(node, &order),
            }
        }
        self.history.push_job(registration.job, registration);
        Ok(())
    }

    /// Jobs that all servers know.
    fn registered(&self) -> impl Iterator<Item = &Registration> {
        self.history.iter().filter_map(|entry| match entry {
            Entry::Job(_, registration) => Some(&**registration),
            Entry::Input(_) => None,
        })
    }

    /// Nodes whose servers take part in changes of membership.
    fn members(&self) -> Vec<u32> {
        self.nodes.iter().filter(|(_, node)| node.is_member).map(|(&number, _)| number).collect()
    }

    /// Starts the job, and passes messages between the servers of the nodes, until the step is over.
    fn serve(&mut self, join: Duration) -> Result<(), ServerError> {
        // The only node connects when a rank needs the head.
        let mut last = self.servers.has_root_in_srun().then(|| self.clock.now() + join.as_millis() as u64);
        loop {
            self.take_outputs()?;
            let wake = [self.names.poll_at(), self.spawned.deadline(), last].into_iter().flatten().min();
            let events = self.turn(wake)?;
            self.begin_if_ready()?;
            for event in events {
                match event {
                    Event::Stop => return Ok(()),
                    Event::Message(node, Channel::Control, bytes) => self.take(node, &bytes)?,
                    Event::Message(node, Channel::Peer, bytes) => self.take_peer(node, &bytes)?,
                    Event::Message(node, ..) => self.invalid(node),
                    Event::Lost(node, error) => self.lost(node, &error),
                }
            }
            last = last.filter(|_| !self.has_begun() && !self.ended);
            if last.is_some_and(|at| self.clock.now() >= at) {
                self.miss(join)?;
            }
            self.names.handle_timeout(self.clock.now())?;
            self.pass_names();
            self.open_steps()?;
            self.close_steps()?;
            self.unblock()?;
        }
    }

    /// Takes what the server of this process requires.
    fn take_outputs(&mut self) -> Result<(), ServerError> {
        while let Some(host) = &mut self.host
            && let Some(event) = host.next_event()?
        {
            match event {
                HostEvent::Output(Output::Peer { node, bytes }) => self.pass_peer(ROOT, node, &bytes)?,
                HostEvent::Output(Output::AbortJob { job, cause, .. }) => {
                    self.end_for(job, &cause.to_string());
                }
                // The head has no clients.
                _ => {}
            }
        }
        self.flush()
    }

    /// Takes a message of a node about its tasks.
    fn take(&mut self, node: u32, bytes: &[u8]) -> Result<(), ServerError> {
        match decode(bytes) {
            // The first message made it a node.
            Some(ToHead::Ready(_)) | None => self.invalid(node),
            Some(ToHead::Failed(why)) => self.end_by(node, &why),
            Some(ToHead::Over) => {
                self.nodes.get_mut(&node).into_iter().for_each(|node| node.over = true);
                self.spawned.forgot(None, node);
            }
            Some(ToHead::Spawn(call)) => self.spawn(Request { node, call }),
            Some(ToHead::Upcall(call)) => return self.upcall(node, call),
            Some(ToHead::Exited { job, rank }) => {
                self.names.process_ended(job, rank, self.clock.now())?;
            }
            Some(ToHead::Deregistered(job)) => self.spawned.forgot(Some(job), node),
        }
        Ok(())
    }

    fn name(&self, number: u32) -> String {
        match self.nodes.get(&number) {
            Some(node) => name_of(&self.hosts, self.servers, number, node),
            None => format!("node {number}"),
        }
    }

    fn invalid(&mut self, node: u32) {
        self.end(&format!("{} sent an invalid message", self.name(node)));
    }

    fn lost(&mut self, number: u32, error: &LinkError) {
        self.spawned.forgot(None, number);
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.connection = None;
        if std::mem::replace(&mut node.over, true) {
            return;
        }
        let why = format!("{} is lost: {error}", self.name(number));
        match self.spawned.with_number(number) {
            Some(id) if self.spawned.get(id).is_some_and(|step| step.state != State::Running) => {
                self.give_up_step(id, &why);
            }
            id => {
                match id {
                    Some(id) => self.fail_step(id, &why),
                    None => self.end(&why),
                }
                self.give_up_at.get_or_insert(self.clock.now() + END_TIMEOUT);
            }
        }
    }

    /// Has srun give the step up once the tasks of all other nodes have ended. It waits for each task, and nothing else reports
    /// those of a lost node before Slurm itself notices, which takes minutes.
    fn give_up(&mut self) {
        let now = self.clock.now();
        let over = self.nodes.values().all(|node| node.over);
        if self.give_up_at.is_some_and(|at| at <= now || over) {
            self.give_up_at = None;
            self.spawned.signal(Signal::TERM);
            (self.stop_srun)();
        }
    }

    /// A node ends its tasks for a reason.
    fn end_by(&mut self, node: u32, why: &str) {
        match self.spawned.with_number(node) {
            Some(id) => self.fail_step(id, why),
            None => self.end(why),
        }
    }

    /// A job ends for a reason.
    fn end_for(&mut self, job: JobId, why: &str) {
        let step = self.spawned.iter().find(|(_, step)| step.job == job).map(|(id, _)| id);
        match step {
            Some(id) => self.fail_step(id, why),
            None => self.end(why),
        }
    }

    /// Ends all steps, and says why.
    fn end(&mut self, why: &str) {
        if !self.ended {
            (self.print)(&format!("hydrant: ending the step: {why}"));
            self.end_tasks();
        }
    }

    /// Ends the tasks of all steps, unless that has been done.
    fn end_tasks(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            for node in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.order(node, &ToNode::End);
            }
            for refusal in self.spawned.end() {
                self.refuse(refusal);
            }
        }
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
                    let refusal = self.spawned.placed(id, self.clock.now(), &self.poller);
                    refusal.into_iter().for_each(|refusal| self.refuse(refusal));
                }
                Some((SRUN, id)) => self.srun_ended(id),
                _ if key == LISTENER => self.accept()?,
                _ if key == HOST => {}
                _ => events.push(Event::Stop),
            }
        }
        self.keys = keys;
        Ok(events)
    }
}

/// Name of a node, which it has said itself or Slurm knows. Slurm counts nodes from 0.
fn name_of(hosts: &[String], servers: Servers, number: u32, node: &Node) -> String {
    let at = number.saturating_sub(servers.first().start) as usize;
    let known = node.ready.as_ref().map(|ready| &ready.name);
    known.or_else(|| hosts.get(at)).cloned().unwrap_or_else(|| format!("node {at}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;
    use crate::address::Address;
    use crate::server::notices;
    use crate::srun::Srun;
    use crate::uplink::{Place, Uplink, refuse};

    /// A head of two nodes in a thread, and how to connect to it.
    fn started(join: Duration, print: Print, stop_srun: fn()) -> (thread::JoinHandle<()>, OwnedFd, Place) {
        let (listener, port) = listen().unwrap();
        let ticket = Ticket::random().unwrap();
        let (stop, end) = notices().unwrap();
        let head = ([127, 0, 0, 1], port).into();
        let (servers, spawner) = (Servers::of(2, 2, None), None);
        let place = Place { servers, number: 2, nodes: 2, head, ticket: ticket.clone(), spawner };
        let (name, hosts) = ("job".to_owned(), vec!["n1".to_owned(), "n2".to_owned()]);
        let (program, server, directory) = ("srun".into(), String::new(), "/".into());
        let srun = Srun { program, job: 1, server, env: Vec::new(), directory, hosts: Vec::new() };
        let address = Address { port, ticket: ticket.clone(), spawned: None };
        let spawned = SpawnedSteps::new(srun, servers, address, 0, (KEYS, SPAWNED, SRUN));
        let universe = None;
        let head =
            Head { name, servers, hosts, universe, ticket, listener, join, stop, print, stop_srun, spawned };
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
        let first = Place { number: 1, ticket: second.ticket.clone(), spawner: None, ..second };
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
        link.send(&ToHead::Ready(Ready { name: "n2".to_owned(), ranks: vec![1], ..Ready::default() }));
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
