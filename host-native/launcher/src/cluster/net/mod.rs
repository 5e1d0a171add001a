//! The links of one node: to its parent and to its children.
//!
//! [`Links`] owns no loop. Whoever does hands it its tokens ([`Links::ready`]), the time ([`Links::keep_time`], at the
//! latest at [`Links::deadline`]) and the ends of processes ([`Links::ended`]), takes its events ([`Links::event`]) and
//! has it write once a turn ([`Links::flush`]). Nothing here waits.

mod children;
mod dial;
mod key;
mod line;
mod lost;
mod route;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use hydrant_core::peer::tree::Tree;
use hydrant_placement::{Bootstrap, Host};
use hydrant_reactor::{Error, Interest, Key, KeyRange, Listener, OpenFiles, Poller};
use rustix::process::{Pid, WaitStatus};
use serde::{Deserialize, Serialize};

use super::bootstrap::{Record, Settings};
use super::link::{BUFFER, Channel, JobKey, Link, LinkError};
use super::listen::{self, Expected, InterfaceError, Port, Strangers};
use children::{Child, Nursery, Stage};
use dial::Dial;
pub(crate) use dial::DialError;
use key::LinkKey;
use line::Line;
use route::Note;
pub(crate) use route::To;

/// How long daemons may take to end after they were told to, in milliseconds.
const END_TIME: u64 = 5_000;

/// What has happened on the links.
#[derive(Debug)]
pub(crate) enum Event {
    /// The daemon of a child has joined.
    Joined {
        /// Its number.
        node: u32,
    },
    /// All daemons below this node have joined. At a node without children this comes when it has joined itself.
    Complete,
    /// Bytes have come. Those of [`Channel::Peer`] are from the neighbour `via`. What is taken of [`Channel::Stream`] is
    /// to be given back by [`Links::consumed`].
    Message {
        /// The neighbour that it came from; this node for what it sent itself.
        via: u32,
        /// The node that sent it.
        from: u32,
        /// `Peer`, `Control` or `Stream`.
        channel: Channel,
        /// What was sent.
        body: Vec<u8>,
    },
    /// There is room for streams by way of this neighbour again, see [`Links::has_room`].
    Room {
        /// Its number.
        neighbour: u32,
    },
    /// A daemon below this node could not be started, or is gone. The head is told by itself, and whatever is below
    /// the lost one ends by itself.
    Failed(Failure),
    /// The parent is gone: this daemon and all below it have to end at once.
    Orphaned(Orphaned),
    /// The parent says that all is done: time to end what runs here, then to call [`Links::end`].
    End,
    /// After [`Links::end`]: no daemon below this node is left that is known of.
    Over,
}

/// What has become of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("host {host} (node {node}): {why}")]
pub(crate) struct Failure {
    pub(crate) node: u32,
    pub(crate) host: String,
    pub(crate) why: Why,
}

/// Why a daemon is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum Why {
    /// The command that should have started it could not be run.
    #[error("its daemon cannot be started: {0}")]
    NotStarted(String),
    /// That command ended, and so did the daemon if there was one.
    #[error("{command} {how} before the daemon had joined{}", quote(.said))]
    Ended { command: String, how: String, said: String },
    /// Nobody came.
    #[error("its daemon has not joined within {} s (--bootstrap-timeout){}", *.millis as f64 / 1000.0, quote(.said))]
    Late { millis: u64, said: String },
    /// It had joined.
    #[error("its daemon is lost: {link}{}", quote(.said))]
    Lost { link: String, said: String },
}

/// Words of somebody else's, below those of one's own.
fn quote(said: &str) -> String {
    said.lines().map(|line| format!("\n    {line}")).collect()
}

/// What has become of the parent.
#[derive(Debug, thiserror::Error)]
#[error("host {host} (node {node}), which has started this daemon, is lost: {why}")]
pub(crate) struct Orphaned {
    node: u32,
    host: String,
    why: LinkError,
}

/// Why a node has no links.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinksError {
    /// There is nothing to listen at.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// An address cannot be listened at.
    #[error("cannot listen at {0}: {1}")]
    Listen(IpAddr, std::io::Error),
    /// The parent cannot be reached.
    #[error(transparent)]
    Dial(#[from] Box<DialError>),
    /// The system fails.
    #[error(transparent)]
    System(#[from] Error),
}

/// The way to the parent.
#[derive(Debug)]
enum Up {
    /// This is the head, or the parent is gone.
    None,
    Dialing(Box<Dial>),
    /// The proof is on its way. The parent's first word says that it has come; until then nothing else is said, and
    /// it may have to be tried again.
    Proving(Box<Dial>, Box<Line>),
    Linked(u32, Box<Line>),
}

/// What a head starts.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The head's host, for what is said of it.
    pub(crate) head: String,
    /// The host of each daemon, from node 1 on. A host may come up several times.
    pub(crate) hosts: Vec<Host>,
    /// How many daemons one node starts at most.
    pub(crate) radix: u32,
}

/// The links of one node.
pub(crate) struct Links {
    me: u32,
    tree: Tree,
    job: JobKey,
    settings: Settings,
    parent_host: String,
    up: Up,
    /// What the parent is sent once it is reached.
    held: Vec<(Channel, Vec<u8>)>,
    children: Vec<Child>,
    keys: KeyRange,
    ports: Vec<Listener<Port>>,
    strangers: Strangers,
    events: VecDeque<Event>,
    complete: bool,
    /// When daemons that have not ended by themselves are ended.
    ending: Option<u64>,
    over: bool,
    buffer: Vec<u8>,
}

impl Links {
    /// The links of the head, which starts its children's daemons.
    ///
    /// # Errors
    /// The system has no port or no process for it. A single daemon that cannot be started is an event.
    pub(crate) fn head(
        start: Start,
        settings: Settings,
        now: u64,
        keys: KeyRange,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<Links, LinksError> {
        let tree = Tree::new(start.hosts.len() as u32 + 1, start.radix);
        let hosts = [vec![Host::new(&start.head)], start.hosts].concat();
        let mut links = Links::new(0, tree, JobKey::random()?, settings, keys);
        links.start_children(&hosts, &[], now, files, poller)?;
        Ok(links)
    }

    /// The links of a daemon, which starts its children's daemons and joins its parent.
    ///
    /// # Errors
    /// As for the head, and the parent cannot be reached.
    pub(crate) fn daemon(
        mut record: Record,
        now: u64,
        keys: KeyRange,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<Links, LinksError> {
        let (hosts, parent) = (std::mem::take(&mut record.hosts), record.addrs.clone());
        let (me, tree, job, settings) = (record.node, record.tree, record.job, record.settings.clone());
        let parent_host = record.parent_host.clone();
        let mut links = Links::new(me, tree, job, settings, keys);
        let key = LinkKey::Link(record.parent).encode(keys);
        links.up = Up::Dialing(Box::new(Dial::new(record, key, now)));
        links.parent_host = parent_host;
        links.dial(now, poller)?;
        links.start_children(&hosts, &parent, now, files, poller)?;
        Ok(links)
    }

    fn new(me: u32, tree: Tree, job: JobKey, settings: Settings, keys: KeyRange) -> Links {
        Links {
            me,
            tree,
            job,
            settings,
            parent_host: String::new(),
            up: Up::None,
            held: Vec::new(),
            children: Vec::new(),
            keys,
            ports: Vec::new(),
            strangers: Strangers::default(),
            events: VecDeque::new(),
            complete: false,
            ending: None,
            over: false,
            buffer: vec![0; BUFFER],
        }
    }

    fn start_children(
        &mut self,
        hosts: &[Host],
        parent: &[SocketAddr],
        now: u64,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<(), LinksError> {
        let subtrees = self.tree.children(self.me);
        let me = self.me;
        if subtrees.len() > 0 {
            let of_child = |subtree: Range<u32>| hosts[(subtree.start - me) as usize].name.as_str();
            self.listen(subtrees.clone().map(of_child), parent, poller)?;
        }
        let addrs: Vec<SocketAddr> = self.addrs().collect();
        for subtree in subtrees {
            let nursery = Nursery {
                job: self.job,
                me: self.me,
                tree: self.tree,
                hosts,
                addrs: &addrs,
                settings: &self.settings,
                keys: self.keys,
            };
            let (child, failure) = nursery.start(subtree, now, files, poller)?;
            self.children.push(child);
            if let Some(failure) = failure {
                self.fail(now, failure);
            }
        }
        self.check_complete(now);
        Ok(())
    }

    fn listen<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a str>,
        parent: &[SocketAddr],
        poller: &Poller,
    ) -> Result<(), LinksError> {
        let ips = match (&self.settings.iface, &self.settings.bootstrap) {
            // An address is the head's own. Other nodes are on the same network with that by which they reach their parent.
            (Some(name), _) if self.me > 0 && name.parse::<IpAddr>().is_ok() => listen::towards_addrs(parent),
            (Some(name), _) => listen::interface(name)?,
            (None, Bootstrap::Local) => vec![std::net::Ipv4Addr::LOCALHOST.into()],
            (None, _) => listen::towards(hosts),
        };
        for ip in ips {
            let port = Port::open(ip).map_err(|why| LinksError::Listen(ip, why))?;
            let key = LinkKey::Port(self.ports.len() as u32).encode(self.keys);
            self.ports.push(Listener::new(port, key, poller)?);
        }
        Ok(())
    }

    /// How many descriptors the links of a node with so many children take at most: connections that may become a
    /// child's, the way to the parent, and for each child its link and the way to and from what starts it.
    pub(crate) fn files(children: u64) -> u64 {
        listen::STRANGERS as u64 + 1 + 3 * children
    }

    /// The keys of this node's links.
    pub(crate) fn keys(&self) -> KeyRange {
        self.keys
    }

    /// This node's number.
    pub(crate) fn me(&self) -> u32 {
        self.me
    }

    /// The tree of the job.
    pub(crate) fn tree(&self) -> Tree {
        self.tree
    }

    /// Where children are waited for.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.ports.iter().map(|port| port.socket().addr())
    }

    /// What has happened next.
    pub(crate) fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes that wait for the socket of a neighbour.
    pub(crate) fn queued(&mut self, neighbour: u32) -> usize {
        self.line(neighbour).map_or(0, |line| line.queued())
    }

    /// Whether what is next read from a rank may be sent on to `node`. If not, [`Event::Room`] says when. What is sent
    /// nevertheless is kept, by this node.
    pub(crate) fn has_room(&mut self, node: u32) -> bool {
        let next = self.tree.towards(self.me, node);
        next.is_none_or(|next| self.line(next).is_some_and(|line| line.has_room()))
    }

    /// The body of a message on [`Channel::Stream`] that came by way of `via` has been disposed of: so many bytes of
    /// it. Until then they count as under way.
    pub(crate) fn consumed(&mut self, via: u32, bytes: u32) {
        self.owe(via, bytes);
    }

    /// Nothing will be said from here for a while: this process is about to be stopped. The neighbours wait.
    pub(crate) fn hush(&mut self, now: u64, poller: &Poller) {
        for node in self.neighbours() {
            self.note(now, node, &Note::Hushed);
        }
        self.flush(now, poller);
    }

    /// A descriptor of the links is ready. Keys of another range are ignored.
    pub(crate) fn ready(&mut self, key: Key, now: u64, poller: &Poller) -> Result<(), LinksError> {
        let Some(key) = LinkKey::decode(self.keys, key) else { return Ok(()) };
        match key {
            LinkKey::Port(number) => self.accept(number, now, poller),
            LinkKey::Incoming(id) => self.hear_stranger(id, now, poller)?,
            LinkKey::Link(node) => match &self.up {
                Up::Dialing(dial) if dial.parent() == node => self.dial(now, poller)?,
                _ => drop(self.receive(node, now)),
            },
            LinkKey::BootstrapInput(node) | LinkKey::BootstrapOutput(node) => {
                if let Some(process) = self.child(node).and_then(|child| child.process.as_mut()) {
                    process.feed();
                    process.hear();
                }
            }
        }
        Ok(())
    }

    /// Writes what is to be written, and tells neighbours how much room they have.
    pub(crate) fn flush(&mut self, now: u64, poller: &Poller) {
        for node in self.neighbours() {
            if let Some(bytes) = self.line(node).and_then(|line| line.take_grant()) {
                self.note(now, node, &Note::Credit(bytes));
            }
            if let Some(Err(why)) = self.line(node).map(|line| line.flush(poller)) {
                self.lose(now, node, why);
            }
        }
    }

    /// A child process of this process's has ended; whether it was one of those that start daemons.
    pub(crate) fn ended(&mut self, now: u64, pid: Pid, status: WaitStatus) -> bool {
        let ended =
            |child: &mut Child| child.process.as_mut().is_some_and(|process| process.ended(pid, status));
        let Some(child) = self.children.iter_mut().find_map(|child| ended(child).then_some(child)) else {
            return false;
        };
        let how = child.process.as_ref().and_then(|process| process.how()).unwrap_or_default();
        if child.secret().is_some() {
            let (command, said) = (child.command.clone(), child.last_words());
            child.stage = Stage::Gone;
            let failure = child.failure(Why::Ended { command, how, said });
            self.fail(now, failure);
        }
        self.check_over();
        true
    }

    fn parent(&self) -> Option<u32> {
        self.tree.parent(self.me)
    }

    fn child(&mut self, node: u32) -> Option<&mut Child> {
        self.children.iter_mut().find(|child| child.node() == node)
    }

    fn line(&mut self, node: u32) -> Option<&mut Line> {
        match &mut self.up {
            Up::Linked(parent, line) if *parent == node => Some(line),
            Up::Proving(dial, line) if dial.parent() == node => Some(line),
            _ => self.children.iter_mut().find(|child| child.node() == node)?.line(),
        }
    }

    /// All whose links stand.
    fn neighbours(&self) -> Vec<u32> {
        let children = self.children.iter().filter(|child| child.is_linked()).map(Child::node);
        let parent = match &self.up {
            Up::Linked(parent, _) => Some(*parent),
            Up::Proving(dial, _) => Some(dial.parent()),
            _ => None,
        };
        parent.into_iter().chain(children).collect()
    }

    fn dial(&mut self, now: u64, poller: &Poller) -> Result<(), LinksError> {
        let Up::Dialing(dial) = &mut self.up else { return Ok(()) };
        let parent = dial.parent();
        let Some(link) = dial.pump(now, poller).map_err(Box::new)? else { return Ok(()) };
        let line = Line::new(link, LinkKey::Link(parent).encode(self.keys));
        line.register(poller)?;
        if let Up::Dialing(dial) = std::mem::replace(&mut self.up, Up::None) {
            self.up = Up::Proving(dial, Box::new(line));
        }
        Ok(())
    }

    /// The parent has let this node in.
    fn admitted(&mut self, now: u64) {
        let Up::Proving(dial, line) = std::mem::replace(&mut self.up, Up::None) else { return };
        let parent = dial.parent();
        self.up = Up::Linked(parent, line);
        for (channel, bytes) in std::mem::take(&mut self.held) {
            // It was short enough when it was taken.
            let _ = self.send(now, parent, channel, &bytes);
        }
        self.check_complete(now);
    }

    /// Reads once from a neighbour; whether anything was there.
    fn receive(&mut self, node: u32, now: u64) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut messages = Vec::new();
        let received = self.line(node).map(|line| line.receive(now, &mut buffer, &mut messages));
        self.buffer = buffer;
        let any = matches!(received, Some(Ok(true)));
        let mut failed = received.and_then(Result::err);
        if any && matches!(&self.up, Up::Proving(dial, _) if dial.parent() == node) {
            self.admitted(now);
        }
        // What came before it failed counts.
        for (channel, bytes) in messages {
            if let Err(why) = self.take(now, node, channel, bytes) {
                failed = Some(why);
                break;
            }
        }
        if let Some(why) = failed {
            self.lose(now, node, why);
        }
        any
    }

    fn accept(&mut self, number: u32, now: u64, poller: &Poller) {
        // As many as may be under way, then the others' turn.
        for _ in 0..listen::STRANGERS {
            let Some(port) = self.ports.get(number as usize) else { return };
            match port.socket().accept() {
                Ok(Some(stream)) => {
                    let Some(id) = self.strangers.open(stream, now, self.settings.timeout) else { continue };
                    let fd = self.strangers.fd(id).expect("it was taken in just now");
                    if poller.add(fd, LinkKey::Incoming(id).encode(self.keys), Interest::Read).is_err() {
                        self.strangers.close(id);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.ports.iter_mut().for_each(|port| port.pause(poller, now));
                    return;
                }
            }
        }
    }

    fn hear_stranger(&mut self, id: u32, now: u64, poller: &Poller) -> Result<(), LinksError> {
        let (children, job, parent) = (&self.children, self.job, self.me);
        let expected = |node| {
            let child = children.iter().find(|child| child.node() == node)?;
            child.secret().map(|secret| Expected { job, parent, secret })
        };
        let Some(admitted) = self.strangers.hear(id, expected) else { return Ok(()) };
        let node = admitted.node;
        let link = Link::new(admitted.fd, admitted.noise, now);
        let line = Line::new(link, LinkKey::Link(node).encode(self.keys));
        line.register(poller)?;
        let Some(child) = self.child(node) else { return Ok(()) };
        let stage = std::mem::replace(&mut child.stage, Stage::Linked(Box::new(line)));
        // So that it knows.
        let _ = self.send(now, node, Channel::Link, &[]);
        if let Stage::Awaited { queue, .. } = stage {
            for (channel, bytes) in queue {
                // It was short enough when it was taken.
                let _ = self.send(now, node, channel, &bytes);
            }
        }
        self.events.push_back(Event::Joined { node });
        if !self.children.iter().any(|child| child.secret().is_some()) {
            // Nobody else is waited for.
            self.ports.clear();
            self.strangers.clear();
        }
        Ok(())
    }

    fn check_complete(&mut self, now: u64) {
        let joined = matches!(self.up, Up::Linked(..)) || self.me == 0;
        if !self.complete && joined && self.children.iter().all(|child| child.complete) {
            self.complete = true;
            self.events.push_back(Event::Complete);
            self.note_up(now, &Note::Complete);
        }
    }
}

/// The program that daemons are started from where nobody says otherwise: this one.
pub(crate) fn this_program() -> Result<OsString, Error> {
    std::env::current_exe().map(Into::into).map_err(Error::during("cannot tell where this program is"))
}
