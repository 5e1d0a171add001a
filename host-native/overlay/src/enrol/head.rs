//! Enrolment at the head.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use hydrant_core::trace::SignalName;
use hydrant_reactor::{Error, Interest, Key, KeyRange, Listener, OpenFiles, Poller, Reactor};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use zeroize::Zeroizing;

use super::applicant::end_signal;
use super::door::{Greeted, Secrets};
use super::hello::{self, HELLO_LEN, MAGIC};
use super::{Application, Decision, EnrolError};
use crate::HEARTBEAT_DEFAULT;
use crate::incoming::{HANDSHAKE_TIMEOUT, INCOMING_MAX, ListenSocket};
use crate::interface::interface_addrs;
use crate::link::{Channel, Link, RECEIVE_BUFFER_MIN, configure_socket};

const OWN: KeyRange = KeyRange(0);
const SIGNALS: Key = OWN.key(0, 0);
/// Kinds of keys.
const LISTENER: u16 = 1;
const INCOMING: u16 = 2;
const ENROLLED: u16 = 3;
/// Milliseconds for the last messages to the hosts.
const PARTING_TIMEOUT: u64 = 10_000;
/// Descriptors beside those of connections.
const OWN_FILES: u64 = 32;

/// What the head waits for.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Number of hosts. Without it, hosts with enough slots for `ranks`.
    pub hosts: Option<u32>,
    /// Number of ranks, if it is given.
    pub ranks: Option<u32>,
    /// Whether hosts come with the program to run.
    pub with_programs: bool,
    /// Milliseconds until all hosts have to be there.
    pub timeout: u64,
}

/// A host that has enrolled.
#[derive(Debug)]
pub struct Enrolled {
    /// The index that it has said.
    pub index: Option<u32>,
    /// What it offers.
    pub application: Application,
    /// Its address.
    pub addr: SocketAddr,
    link: Link,
}

/// Something to tell the user.
#[derive(Debug)]
pub enum Notice<'a> {
    /// A host has enrolled.
    Enrolled(&'a Enrolled),
    /// A host that had enrolled has gone.
    Left(&'a Enrolled),
    /// A connection that is no host of the run, and why.
    Turned(SocketAddr, &'a str),
}

/// Notices about connections that are no hosts, of which there may be many.
pub(super) const TURNED_MAX: u32 = 8;

/// Hosts that join a run, at its head.
#[derive(Debug)]
pub struct Enrolment {
    listeners: Vec<ListenSocket>,
    secrets: Secrets,
    /// By the order of arrival.
    hosts: BTreeMap<u32, Enrolled>,
    /// Hosts that have been greeted, and had not applied when all hosts were there.
    late: Vec<(Link, SocketAddr)>,
}

/// A connection before its application.
struct Incoming {
    opened: u64,
    addr: SocketAddr,
    stage: Stage,
}

enum Stage {
    /// The hello is read.
    Hello { fd: OwnedFd, bytes: [u8; HELLO_LEN], len: usize },
    /// The application is read.
    Welcome { link: Box<Link>, index: Option<u32> },
}

impl Incoming {
    fn fd(&self) -> &OwnedFd {
        match &self.stage {
            Stage::Hello { fd, .. } => fd,
            Stage::Welcome { link, .. } => link.fd(),
        }
    }
}

impl Enrolment {
    /// Listens for hosts at this port, or at a free one, of an interface, or of all.
    ///
    /// # Errors
    /// There is no such interface, or the port is in use.
    pub fn listen(iface: Option<&str>, port: Option<u16>, secrets: Secrets) -> Result<Enrolment, EnrolError> {
        let port = port.unwrap_or(0);
        let bind = |ip: IpAddr| {
            ListenSocket::bind(ip, port).map_err(|why| EnrolError::Listen((ip, port).into(), why))
        };
        let listeners = match iface {
            Some(name) => interface_addrs(name)?.into_iter().map(bind).collect::<Result<_, _>>()?,
            // A system may have no IPv6.
            None => vec![bind(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| bind(Ipv4Addr::UNSPECIFIED.into()))?],
        };
        Ok(Enrolment { listeners, secrets, hosts: BTreeMap::new(), late: Vec::new() })
    }

    /// The addresses at which the head listens.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(ListenSocket::addr)
    }

    /// The hosts, in the order of their nodes.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Enrolled> {
        self.hosts.values()
    }

    /// Waits until all hosts have enrolled, and puts them in the order of their nodes. Signals are blocked in the calling thread
    /// meanwhile.
    ///
    /// # Errors
    /// The hosts do not come in time, a signal ends the run, or a system call failed. Hosts that have enrolled have been told.
    pub fn wait(&mut self, terms: &Terms, tell: &mut dyn FnMut(Notice<'_>)) -> Result<(), EnrolError> {
        let waited = Waiting::new(self, terms, tell).and_then(|mut waiting| waiting.run());
        match waited {
            Ok(()) => {
                self.put_in_order();
                Ok(())
            }
            Err(error) => {
                self.dismiss(&error.to_string());
                Err(error)
            }
        }
    }

    /// Tells all hosts that they are not needed.
    pub fn dismiss(&mut self, why: &str) {
        let refusal = encode(&Decision::Refused(why.to_owned()));
        let hosts = std::mem::take(&mut self.hosts);
        part(hosts.into_values().map(|host| (host.link, refusal.clone())));
    }

    /// Gives up the listening sockets, for the links of the run.
    pub(crate) fn take_listeners(&mut self) -> Vec<ListenSocket> {
        std::mem::take(&mut self.listeners)
    }

    /// Sends each host its record, in the order of their nodes. Returns what is needed for hosts that come later: the secrets, and
    /// those of them that are there.
    pub(crate) fn send_records(
        self,
        records: impl Iterator<Item = Zeroizing<Vec<u8>>>,
    ) -> (Secrets, Vec<(Link, SocketAddr)>) {
        let links = self.hosts.into_values().map(|host| host.link);
        let record = |record: Zeroizing<Vec<u8>>| encode(&Decision::Record(record.to_vec()));
        part(links.zip(records.map(record)));
        (self.secrets, self.late)
    }

    /// Whether a host may enrol.
    fn admit(&self, terms: &Terms, index: Option<u32>, host: &Application) -> Result<(), String> {
        host.check()?;
        let Application { name, program, .. } = host;
        match (terms.with_programs, program) {
            (true, None) => return Err("the run has no program: join with -- PROGRAM".to_owned()),
            (false, Some(_)) => return Err("the run has a program: join without one".to_owned()),
            _ => {}
        }
        if let Some(other) = self.hosts.values().find(|other| other.application.name == *name) {
            let addr = other.addr.ip().to_canonical();
            return Err(format!("a host {name} has joined already, from {addr}: join with another --name"));
        }
        let Some(index) = index else { return Ok(()) };
        if let Some(hosts) = terms.hosts.filter(|&hosts| index >= hosts) {
            return Err(format!("it has index {index}, and the run has {hosts} hosts, from 0 on"));
        }
        match self.hosts.values().find(|other| other.index == Some(index)) {
            Some(other) => Err(format!("host {} has index {index} already", other.application.name)),
            None => Ok(()),
        }
    }

    fn is_complete(&self, terms: &Terms) -> bool {
        let slots = || self.hosts.values().map(|host| u64::from(host.application.slots)).sum::<u64>();
        match (terms.hosts, terms.ranks) {
            (Some(hosts), _) => self.hosts.len() >= hosts as usize,
            (None, Some(ranks)) => slots() >= u64::from(ranks),
            (None, None) => !self.hosts.is_empty(),
        }
    }

    /// The hosts that are there and those that are missing.
    fn missing(&self, terms: &Terms) -> EnrolError {
        let names: Vec<&str> = self.hosts.values().take(8).map(|host| &*host.application.name).collect();
        let more = if self.hosts.len() > names.len() { ", ..." } else { "" };
        let joined = match self.hosts.len() {
            0 => "no host has joined".to_owned(),
            1 => format!("one host has joined ({})", names[0]),
            hosts => format!("{hosts} hosts have joined ({}{more})", names.join(", ")),
        };
        EnrolError::Missing { joined, wanted: terms.wanted(), millis: terms.timeout }
    }

    /// Puts the hosts in the order of their nodes.
    fn put_in_order(&mut self) {
        let hosts: Vec<Enrolled> = std::mem::take(&mut self.hosts).into_values().collect();
        let indices: Vec<Option<u32>> = hosts.iter().map(|host| host.index).collect();
        self.hosts = positions(&indices).into_iter().zip(hosts).collect();
    }
}

impl Terms {
    /// What the head waits for, in words.
    pub fn wanted(&self) -> String {
        match (self.hosts, self.ranks) {
            (Some(1), _) => "one host".to_owned(),
            (Some(hosts), _) => format!("{hosts} hosts"),
            (None, Some(ranks)) => format!("hosts with {ranks} slots in all"),
            (None, None) => "a host".to_owned(),
        }
    }
}

/// Positions of hosts with these indices, in the order of arrival. A host with an index among the positions is there. The
/// others fill the rest: first those with larger indices, in their order, then those without.
pub(super) fn positions(indices: &[Option<u32>]) -> Vec<u32> {
    let count = indices.len() as u32;
    let mut positions: Vec<Option<u32>> =
        indices.iter().map(|index| index.filter(|&index| index < count)).collect();
    let mut free = (0..count).filter(|at| !indices.contains(&Some(*at))).collect::<Vec<_>>().into_iter();
    let mut others: Vec<usize> = (0..indices.len()).filter(|&at| positions[at].is_none()).collect();
    others.sort_by_key(|&at| indices[at].unwrap_or(u32::MAX));
    for at in others {
        positions[at] = free.next();
    }
    positions.into_iter().map(|at| at.expect("there are as many free positions as other hosts")).collect()
}

/// The head while hosts enrol.
struct Waiting<'a> {
    enrolment: &'a mut Enrolment,
    terms: &'a Terms,
    tell: &'a mut dyn FnMut(Notice<'_>),
    reactor: Reactor,
    files: OpenFiles,
    incoming: Vec<Option<Incoming>>,
    /// Number of the next host.
    next: u32,
    turned: u32,
    buffer: Vec<u8>,
}

impl<'a> Waiting<'a> {
    fn new(
        enrolment: &'a mut Enrolment,
        terms: &'a Terms,
        tell: &'a mut dyn FnMut(Notice<'_>),
    ) -> Result<Waiting<'a>, EnrolError> {
        let files = OpenFiles::reserve(OWN_FILES + INCOMING_MAX as u64)?;
        let reactor = Reactor::new(SIGNALS)?;
        let (incoming, buffer) = (Vec::new(), vec![0; RECEIVE_BUFFER_MIN]);
        Ok(Waiting { enrolment, terms, tell, reactor, files, incoming, next: 0, turned: 0, buffer })
    }

    fn run(&mut self) -> Result<(), EnrolError> {
        let sockets = std::mem::take(&mut self.enrolment.listeners);
        let result = self.run_at(&sockets);
        self.enrolment.listeners = sockets;
        let late = self.incoming.drain(..).flatten().filter_map(|Incoming { addr, stage, .. }| match stage {
            Stage::Welcome { link, .. } => Some((*link, addr)),
            // It has no answer, and tries again.
            Stage::Hello { .. } => None,
        });
        self.enrolment.late = late.collect();
        result
    }

    fn run_at(&mut self, sockets: &[ListenSocket]) -> Result<(), EnrolError> {
        let listener = |(at, socket)| Listener::new(socket, OWN.key(LISTENER, at), &self.reactor.poller);
        let mut listeners = (0..).zip(sockets).map(listener).collect::<Result<Vec<_>, Error>>()?;
        let deadline = self.reactor.clock.now() + self.terms.timeout;
        let mut keys = Vec::new();
        while !self.enrolment.is_complete(self.terms) {
            let oldest = self.incoming.iter().flatten().map(|incoming| incoming.opened).min();
            let paused = listeners.iter().filter_map(Listener::deadline).min();
            let deadlines = [Some(deadline), oldest.map(|opened| opened + HANDSHAKE_TIMEOUT), paused];
            let timeout = self.reactor.clock.timeout(deadlines);
            self.reactor.poller.wait(timeout, &mut keys)?;
            let now = self.reactor.clock.now();
            for &key in &keys {
                match OWN.decode(key) {
                    Some((LISTENER, at)) => self.accept(&mut listeners[at as usize], now),
                    Some((INCOMING, at)) => self.read(at as usize, now),
                    Some((ENROLLED, number)) => self.check(number, now),
                    _ => {}
                }
                if self.enrolment.is_complete(self.terms) {
                    break;
                }
            }
            if keys.contains(&SIGNALS)
                && let Some(signal) = end_signal(&self.reactor)?
            {
                return Err(EnrolError::Signal(SignalName(signal.as_raw())));
            }
            let is_late = |incoming: &Incoming| incoming.opened + HANDSHAKE_TIMEOUT <= now;
            self.incoming.iter_mut().for_each(|slot| drop(slot.take_if(|incoming| is_late(incoming))));
            for listener in &mut listeners {
                listener.resume(&self.reactor.poller, now)?;
            }
            if now >= deadline && !self.enrolment.is_complete(self.terms) {
                return Err(self.enrolment.missing(self.terms));
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: &mut Listener<&ListenSocket>, now: u64) {
        // The bound lets other descriptors have their turn.
        for _ in 0..INCOMING_MAX {
            match listener.socket().accept() {
                Ok(Some(stream)) => {
                    let Ok(addr) = stream.peer_addr() else { continue };
                    let fd = OwnedFd::from(stream);
                    if configure_socket(&fd, HEARTBEAT_DEFAULT.as_millis() as u64).is_err() {
                        continue;
                    }
                    let at = self.free_slot();
                    let stage = Stage::Hello { fd, bytes: [0; HELLO_LEN], len: 0 };
                    let incoming = Incoming { opened: now, addr, stage };
                    let key = OWN.key(INCOMING, at as u32);
                    let watched = self.reactor.poller.add(incoming.fd(), key, Interest::Read);
                    self.incoming[at] = watched.is_ok().then_some(incoming);
                }
                Ok(None) => return,
                Err(_) => return listener.pause(&self.reactor.poller, now),
            }
        }
    }

    /// A place for a connection: a free one, or that of the oldest, so that silent connections cannot keep a host out.
    fn free_slot(&mut self) -> usize {
        if let Some(at) = self.incoming.iter().position(Option::is_none) {
            return at;
        }
        if self.incoming.len() < INCOMING_MAX {
            self.incoming.push(None);
            return self.incoming.len() - 1;
        }
        let opened = |at: &usize| self.incoming[*at].as_ref().map(|incoming| incoming.opened);
        (0..INCOMING_MAX).min_by_key(opened).unwrap_or_default()
    }

    /// Reads from a connection that has not enrolled.
    fn read(&mut self, at: usize, now: u64) {
        let Some(incoming) = self.incoming.get_mut(at).and_then(Option::take) else { return };
        let Incoming { opened, addr, stage } = incoming;
        let next = match stage {
            Stage::Hello { fd, bytes, len } => self.read_hello(fd, bytes, len, addr, now),
            Stage::Welcome { link, index } => self.read_application(link, index, addr, now),
        };
        self.incoming[at] = next.map(|stage| Incoming { opened, addr, stage });
    }

    fn read_hello(
        &mut self,
        fd: OwnedFd,
        mut bytes: [u8; HELLO_LEN],
        mut len: usize,
        addr: SocketAddr,
        now: u64,
    ) -> Option<Stage> {
        match recv(&fd, &mut bytes[len..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return None,
            Ok((read, _)) => len += read,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return None,
        }
        let magic = len.min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return None;
        }
        if len < HELLO_LEN {
            return Some(Stage::Hello { fd, bytes, len });
        }
        let Greeted { verdict, host } = self.enrolment.secrets.greet(&bytes)?;
        let is_told = hello::tell(&fd, &verdict);
        match host {
            Ok((transport, index)) => {
                let link = Box::new(Link::new(fd, transport, now));
                is_told.then_some(Stage::Welcome { link, index })
            }
            Err(why) => {
                self.turn_away(addr, &why);
                None
            }
        }
    }

    fn read_application(
        &mut self,
        mut link: Box<Link>,
        index: Option<u32>,
        addr: SocketAddr,
        now: u64,
    ) -> Option<Stage> {
        let mut messages = Vec::new();
        link.receive(now, &mut self.buffer, |_, message| messages.push(message)).ok()?;
        let Some(message) = messages.pop() else { return Some(Stage::Welcome { link, index }) };
        let application = Application::decode(&message)?;
        let room = self.files.add(1).map_err(|error| error.to_string());
        if let Err(why) = room.and_then(|()| self.enrolment.admit(self.terms, index, &application)) {
            self.turn_away(addr, &why);
            part([(*link, encode(&Decision::Refused(why)))].into_iter());
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.reactor.poller.modify(link.fd(), OWN.key(ENROLLED, number), Interest::Read).ok()?;
        let host = Enrolled { index, application, addr, link: *link };
        (self.tell)(Notice::Enrolled(&host));
        self.enrolment.hosts.insert(number, host);
        None
    }

    /// An enrolled host has nothing to say: it has gone, or breaks the protocol.
    fn check(&mut self, number: u32, now: u64) {
        let Some(host) = self.enrolment.hosts.get_mut(&number) else { return };
        let mut said = false;
        let received = host.link.receive(now, &mut self.buffer, |_, _| said = true);
        if received.is_ok() && !said {
            return;
        }
        if let Some(host) = self.enrolment.hosts.remove(&number) {
            (self.tell)(Notice::Left(&host));
        }
    }

    fn turn_away(&mut self, addr: SocketAddr, why: &str) {
        self.turned += 1;
        if self.turned <= TURNED_MAX {
            (self.tell)(Notice::Turned(addr, why));
        }
    }
}

pub(super) fn encode(decision: &Decision) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(postcard::to_stdvec(decision).expect("postcard encodes every field of a decision"))
}

/// Sends each link its last message. A link that does not take it in time is closed.
fn part(links: impl Iterator<Item = (Link, Zeroizing<Vec<u8>>)>) {
    let Ok(mut poller) = Poller::new() else { return };
    let clock = hydrant_reactor::Clock::start();
    let mut open = BTreeMap::new();
    for (number, (mut link, message)) in (0u32..).zip(links) {
        let sent = link.send(0, Channel::Control, &message).and_then(|_| link.flush());
        let key = OWN.key(ENROLLED, number);
        if sent.is_ok() && link.is_blocked() && poller.add(link.fd(), key, Interest::Write).is_ok() {
            open.insert(number, link);
        }
    }
    let mut keys = Vec::new();
    while !open.is_empty() && clock.now() < PARTING_TIMEOUT {
        if poller.wait(clock.timeout([Some(PARTING_TIMEOUT)]), &mut keys).is_err() {
            return;
        }
        for number in keys.iter().filter_map(|&key| Some(OWN.decode(key)?.1)) {
            let flushed =
                open.get_mut(&number).map(|link: &mut Link| link.flush().map(|_| link.is_blocked()));
            if !matches!(flushed, Some(Ok(true))) {
                open.remove(&number);
            }
        }
    }
}
