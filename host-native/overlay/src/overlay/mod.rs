//! Links of one node to its parent and its children.

mod child;
mod connect;
mod failure;
mod forked;
mod growth;
mod key;
mod neighbour;
mod route;
mod step;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;

use hydrant_core::peer::tree::{LATE, Place, Tree};
use hydrant_placement::{Bootstrap, Host};
use hydrant_reactor::{Interest, Key, KeyRange, Listener, OpenFiles, Poller};
use rustix::process::{Pid, WaitStatus};

use crate::bootstrap::{DaemonMain, DaemonSettings, DaemonSpec, Guide};
use crate::enrol::{Application, Enrolment, LATE_HOSTS_MAX, LateHosts};
use crate::error::{DaemonFailure, FailureCause, LifelineLost, LinkError, OverlayError};
use crate::incoming::{Arrival, Expected, ExpectedChild, INCOMING_MAX, IncomingConnections, ListenSocket};
use crate::interface::{interface_addrs, interface_name, local_addr_towards_any, local_addrs_towards};
use crate::link::{Channel, Link, LinkIdentity, OverlayId, RECEIVE_BUFFER_MIN};
use child::{Child, ChildLauncher, ChildState};
use connect::Connector;
use key::LinkKey;
use neighbour::Neighbour;
use route::{LinkMessage, encode};
use step::Step;

pub use neighbour::BEYOND_CREDIT_MAX;
pub use route::Destination;

/// Time for daemons to end after the shutdown message, in milliseconds.
const SHUTDOWN_TIMEOUT: u64 = 5_000;

/// Event of a node's links.
#[derive(Debug)]
pub enum Event {
    /// The daemon of a child has joined.
    Joined {
        /// The child.
        node: u32,
    },
    /// All daemons below this node have joined. A node without children reports this when it has joined itself.
    Complete,
    /// A message has arrived. [`Channel::Peer`] messages are from the neighbour `via`. The receiver of a
    /// [`Channel::Stream`] message calls [`Overlay::consumed`] when it has passed the bytes on.
    Message {
        /// The neighbour that delivered the message. For a message of this node to itself: this node.
        via: u32,
        /// The node that sent the message.
        from: u32,
        /// `Peer`, `Routed`, `Control` or `Stream`.
        channel: Channel,
        /// The bytes of the message.
        body: Vec<u8>,
    },
    /// There is credit for streams to this neighbour again; see [`Overlay::has_credit`].
    CreditAvailable {
        /// The neighbour.
        neighbour: u32,
    },
    /// A daemon below this node could not be started, or is lost. The overlay reports it to the head. The nodes below
    /// a lost daemon end themselves.
    Failed(DaemonFailure),
    /// The command that starts a daemon below this node has failed for some time, for a reason that may pass, and is
    /// started again. The overlay reports it to the head, for some hosts.
    Retrying(DaemonFailure),
    /// A host asks to join the run, which has begun. [`Overlay::admit`] or [`Overlay::refuse`] answers it. A host that has gone
    /// meanwhile is reported by [`Event::Failed`] when it is admitted.
    Applied {
        /// Number of the host among those that ask.
        applicant: u32,
        /// What it offers.
        application: Application,
        /// Its address.
        addr: SocketAddr,
    },
    /// A host cannot join the run, and has been told why.
    Turned {
        /// Its address.
        addr: SocketAddr,
        /// The reason.
        why: String,
    },
    /// After [`Overlay::dismiss`]: the daemon of a child has ended.
    Left {
        /// The child.
        node: u32,
    },
    /// The link to the parent failed. This daemon and all daemons below it must end at once.
    LifelineLost(LifelineLost),
    /// The parent has sent the shutdown message. The owner ends its own processes and calls [`Overlay::shutdown`].
    Shutdown,
    /// After [`Overlay::shutdown`]: all daemons below this node have ended.
    Closed,
}

/// Link to the parent.
#[derive(Debug)]
enum ParentLink {
    /// This node is the head, or the link has failed.
    None,
    Connecting(Box<Connector>),
    /// The proof has been sent. The parent's first message confirms it. Until then other messages are queued, because
    /// the parent may close the connection, and this node then connects again.
    Authenticating(Box<Connector>, Box<Neighbour>),
    Established(u32, Box<Neighbour>),
}

/// The tree of daemons that a head starts.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    /// Name of the head's host, for messages.
    pub head: String,
    /// The host of each daemon, from node 1 on. A host may appear several times.
    pub hosts: Vec<Host>,
    /// Maximum number of children of a node.
    pub radix: u32,
    /// How many daemons may be started later ([`Overlay::grow`]).
    pub late: u32,
}

impl TreeSpec {
    /// The tree.
    pub fn tree(&self) -> Tree {
        Tree::new(self.hosts.len() as u32 + 1 + self.late, self.radix | (self.late * LATE))
    }
}

/// The links of one node to its parent and its children.
///
/// It never blocks and has no event loop. The owner calls
/// - [`Overlay::handle_ready`] for ready keys of [`Overlay::keys`],
/// - [`Overlay::handle_timeouts`] at the latest at [`Overlay::deadline`],
/// - [`Overlay::handle_child_exit`] for exited child processes,
/// - [`Overlay::next_event`] until there is none, and
/// - [`Overlay::flush`] once in each turn of its loop.
///
/// Times are milliseconds of the owner's clock.
pub struct Overlay {
    node: u32,
    tree: Tree,
    /// This node's place in the tree.
    /// Behind a pointer, because it takes a page, and an overlay is moved several times.
    place: Box<Place>,
    id: OverlayId,
    settings: DaemonSettings,
    /// The interface of the settings, by its name on this machine.
    interface: Option<String>,
    parent_host: String,
    parent_link: ParentLink,
    /// Messages to the parent, until the link is established.
    parent_queue: Vec<(Channel, Vec<u8>)>,
    /// In ascending order of their nodes.
    children: Vec<Child>,
    /// At the head, if one command starts all daemons.
    step: Option<Step>,
    /// At the head, until all daemons of a step have joined.
    guide: Option<Guide>,
    /// Whether the hosts of this head have joined by themselves.
    is_enrolled: bool,
    /// Hosts that ask to join, at a head that such may join.
    late_hosts: Option<LateHosts>,
    keys: KeyRange,
    listeners: Vec<Listener<ListenSocket>>,
    incoming: IncomingConnections,
    events: VecDeque<Event>,
    complete: bool,
    /// Number of [`Event::Retrying`] of this node.
    retries: u32,
    /// During shutdown: time at which the remaining daemons are killed.
    kill_at: Option<u64>,
    closed: bool,
    buffer: Vec<u8>,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay").field("node", &self.node).field("tree", &self.tree).finish_non_exhaustive()
    }
}

impl Overlay {
    /// Makes the links of the head and starts the daemons of its children. `keys` is the key range of the links. Daemons on
    /// this machine ([`Bootstrap::Local`]) are forked and run `main`, unless it is none, the settings have an interface, or
    /// this process has other threads.
    ///
    /// # Errors
    /// The node cannot listen, or a system call failed. A daemon that cannot be started is reported as an event.
    pub fn head(
        spec: TreeSpec,
        settings: DaemonSettings,
        main: Option<DaemonMain>,
        now: u64,
        keys: KeyRange,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<Overlay, OverlayError> {
        let tree = spec.tree();
        let hosts = [vec![Host::new(&spec.head)], spec.hosts].concat();
        let mut overlay = Overlay::new(0, tree, OverlayId::random()?, settings, &[], keys);
        match step::command(&overlay.settings, &hosts[1..]) {
            Some(words) => overlay.start_step(&words, hosts, now, files, poller)?,
            None => overlay.start_children(&hosts, &[], main, (now, files, poller))?,
        }
        Ok(overlay)
    }

    /// Makes the links of a head whose hosts have joined by themselves. `spec` has them in the order of the enrolment.
    ///
    /// # Errors
    /// A system call failed.
    pub fn head_of_enrolled(
        spec: TreeSpec,
        settings: DaemonSettings,
        enrolment: Enrolment,
        now: u64,
        keys: KeyRange,
        poller: &Poller,
    ) -> Result<Overlay, OverlayError> {
        let tree = spec.tree();
        let hosts = [vec![Host::new(&spec.head)], spec.hosts].concat();
        let mut overlay = Overlay::new(0, tree, OverlayId::random()?, settings, &[], keys);
        overlay.start_enrolled(enrolment, hosts, now, poller)?;
        Ok(overlay)
    }

    /// Makes the links of a daemon, starts the daemons of its children and connects to its parent. `main` is as for
    /// [`Overlay::head`].
    ///
    /// # Errors
    /// As for [`Overlay::head`], and the parent cannot be reached.
    pub fn daemon(
        mut spec: DaemonSpec,
        main: Option<DaemonMain>,
        now: u64,
        keys: KeyRange,
        files: &OpenFiles,
        poller: &Poller,
    ) -> Result<Overlay, OverlayError> {
        let (hosts, parent) = (std::mem::take(&mut spec.hosts), spec.addrs.clone());
        let mut overlay =
            Overlay::new(spec.node, spec.tree, spec.overlay, spec.settings.clone(), &parent, keys);
        overlay.parent_host = spec.parent_host.clone();
        if let Some(fd) = spec.inherited.take() {
            overlay.inherit(fd, spec.parent, now, poller)?;
            overlay.start_children(&hosts, &[], main, (now, files, poller))?;
            return Ok(overlay);
        }
        let key = LinkKey::Link(spec.parent).encode(keys);
        let is_of_step = spec.step.is_some();
        if let Some(member) = &mut spec.step {
            // The head tells the children where this node listens.
            let secrets = std::mem::take(&mut member.children);
            overlay.expect_children(secrets, &hosts, &parent, now, poller)?;
            member.own = overlay.addrs().collect();
        }
        let is_leaf = overlay.place.subtree.len() == 1;
        let says = is_leaf.then(|| encode(&LinkMessage::Complete));
        overlay.parent_link = ParentLink::Connecting(Box::new(Connector::new(spec, says, key, now)?));
        overlay.connect_to_parent(now, poller)?;
        if !is_of_step {
            overlay.start_children(&hosts, &parent, main, (now, files, poller))?;
        }
        Ok(overlay)
    }

    /// `parent` are the addresses of the parent.
    fn new(
        node: u32,
        tree: Tree,
        id: OverlayId,
        settings: DaemonSettings,
        parent: &[SocketAddr],
        keys: KeyRange,
    ) -> Overlay {
        let interface = settings.iface.as_deref().and_then(|name| interface_name(name, parent));
        Overlay {
            interface,
            node,
            tree,
            place: Box::new(tree.place(node)),
            id,
            settings,
            parent_host: String::new(),
            parent_link: ParentLink::None,
            parent_queue: Vec::new(),
            children: Vec::new(),
            step: None,
            guide: None,
            is_enrolled: false,
            late_hosts: None,
            keys,
            listeners: Vec::new(),
            incoming: IncomingConnections::default(),
            events: VecDeque::new(),
            complete: false,
            retries: 0,
            kill_at: None,
            closed: false,
            buffer: vec![0; RECEIVE_BUFFER_MIN],
        }
    }

    fn start_children(
        &mut self,
        hosts: &[Host],
        parent: &[SocketAddr],
        main: Option<DaemonMain>,
        (now, files, poller): (u64, &OpenFiles, &Poller),
    ) -> Result<(), OverlayError> {
        let subtrees: Vec<Range<u32>> = self.children_from_start().collect();
        let node = self.node;
        let fork = main.filter(|_| self.settings.forks_daemons());
        let of =
            |subtree: &Range<u32>| &hosts[(subtree.start - node) as usize..(subtree.end - node) as usize];
        if !subtrees.is_empty() && fork.is_none() {
            self.listen(subtrees.iter().map(|subtree| of(subtree)[0].name.as_str()), parent, poller)?;
        }
        let addrs: Vec<SocketAddr> = self.addrs().collect();
        for subtree in subtrees {
            let launcher = self.launcher(&hosts[0].name, &addrs, fork.clone());
            let (child, failure) = launcher.start((subtree.clone(), of(&subtree)), now, files, poller)?;
            self.children.push(child);
            if let Some(failure) = failure {
                self.report_failure(now, failure);
            }
        }
        self.start_waiting(now, files, poller)?;
        self.check_complete(now);
        Ok(())
    }

    /// Starts daemons of children. `host` is the name of this host, and `addrs` are those at which this node listens.
    fn launcher<'a>(
        &'a self,
        host: &'a str,
        addrs: &'a [SocketAddr],
        fork: Option<DaemonMain>,
    ) -> ChildLauncher<'a> {
        let Overlay { id: overlay, node, tree, keys, ref settings, .. } = *self;
        ChildLauncher { overlay, node, tree, host, addrs, settings, keys, fork }
    }

    /// The subtrees of the children that are there from the start.
    fn children_from_start(&self) -> impl Iterator<Item = Range<u32>> + use<> {
        let first_late = self.tree.first_late();
        self.place.children.clone().take_while(move |subtree| subtree.start < first_late)
    }

    fn listen<'a>(
        &mut self,
        hosts: impl Iterator<Item = &'a str>,
        parent: &[SocketAddr],
        poller: &Poller,
    ) -> Result<(), OverlayError> {
        let ips = match (&self.settings.iface, &self.settings.bootstrap) {
            // An address names the interface of the head only. Other nodes use the network of their parent.
            (Some(name), _) if self.node > 0 && name.parse::<IpAddr>().is_ok() => {
                vec![local_addr_towards_any(parent)]
            }
            (Some(name), _) => interface_addrs(name)?,
            (None, Bootstrap::Local) => vec![Ipv4Addr::LOCALHOST.into()],
            // Names of hosts that join by themselves may be known to nobody.
            (None, Bootstrap::Join) => vec![local_addr_towards_any(parent)],
            (None, _) => local_addrs_towards(hosts),
        };
        let listens =
            |ip: &IpAddr| self.listeners.iter().any(|listener| listener.socket().addr().ip() == *ip);
        let ips: Vec<IpAddr> = ips.into_iter().filter(|ip| !listens(ip)).collect();
        for ip in ips {
            let socket = ListenSocket::bind(ip, 0).map_err(|error| OverlayError::Listen(ip, error))?;
            self.listen_at(socket, poller)?;
        }
        Ok(())
    }

    fn listen_at(&mut self, socket: ListenSocket, poller: &Poller) -> Result<(), OverlayError> {
        let key = LinkKey::Listener(self.listeners.len() as u32).encode(self.keys);
        self.listeners.push(Listener::new(socket, key, poller)?);
        Ok(())
    }

    /// Maximum number of descriptors of a node with that many children: incoming connections, hosts that ask to join, the link
    /// to the parent, and for each child its link and the two pipes of its bootstrap process.
    pub fn files(children: u64) -> u64 {
        (INCOMING_MAX + LATE_HOSTS_MAX) as u64 + 1 + 3 * children
    }

    /// Number of children: of the start, and those whose daemons were started later.
    pub fn children(&self) -> usize {
        self.children.len()
    }

    /// The key range of the links.
    pub fn keys(&self) -> KeyRange {
        self.keys
    }

    /// Number of this node. The head is node 0.
    pub fn node(&self) -> u32 {
        self.node
    }

    /// The tree of nodes.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// Name on this machine of the interface that the settings name. None if they name none, or one that is not here.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Addresses at which this node listens for its children. Empty after all have joined.
    pub fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().map(|listener| listener.socket().addr())
    }

    /// Takes the next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Number of bytes to be written to a neighbour.
    pub fn queued(&mut self, neighbour: u32) -> usize {
        self.neighbour(neighbour).map_or(0, |neighbour| neighbour.queued())
    }

    /// Whether streams may be sent towards `node`. If not, [`Event::CreditAvailable`] follows. Streams that are sent
    /// without credit are stored in the process at the other end. It ends the link after [`BEYOND_CREDIT_MAX`] bytes.
    pub fn has_credit(&mut self, node: u32) -> bool {
        let Some(next) = self.towards(node) else { return true };
        match self.child(next) {
            Some(child) => child.has_credit(),
            None => self.neighbour(next).is_some_and(|neighbour| neighbour.has_credit()),
        }
    }

    /// Whether streams may be sent to all children.
    pub fn children_have_credit(&mut self) -> bool {
        self.children.iter_mut().all(Child::has_credit)
    }

    /// Returns credit to the neighbour `via` for bytes of a [`Channel::Stream`] message that have been passed on.
    pub fn consumed(&mut self, via: u32, bytes: u32) {
        self.return_credit(via, bytes);
    }

    /// Announces to all neighbours a pause without messages, because this process will be stopped.
    pub fn announce_pause(&mut self, now: u64, poller: &Poller) {
        for node in self.neighbours() {
            self.send_link_message(now, node, &LinkMessage::Paused);
        }
        self.flush(now, poller);
    }

    /// Handles a ready key. Keys of another range are ignored.
    ///
    /// # Errors
    /// The parent cannot be reached, or a system call failed.
    pub fn handle_ready(&mut self, key: Key, now: u64, poller: &Poller) -> Result<(), OverlayError> {
        let Some(key) = LinkKey::decode(self.keys, key) else { return Ok(()) };
        match key {
            LinkKey::Listener(index) => self.accept(index, now, poller),
            LinkKey::Incoming(index) => self.handle_incoming(index, now, poller)?,
            LinkKey::Link(node) => match &self.parent_link {
                ParentLink::Connecting(connector) if connector.parent() == node => {
                    self.connect_to_parent(now, poller)?;
                }
                _ => {
                    let _ = self.receive_first(node, now, poller) || self.receive(node, now);
                }
            },
            LinkKey::LateHost(number) => self.handle_late_host(number, now),
            LinkKey::BootstrapInput(0) | LinkKey::BootstrapOutput(0) => self.handle_step_ready(now),
            LinkKey::BootstrapInput(node) | LinkKey::BootstrapOutput(node) => {
                if let Some(process) = self.child(node).and_then(|child| child.process.as_mut()) {
                    process.write_input();
                    process.read_output();
                }
            }
        }
        Ok(())
    }

    /// Writes queued messages and returns credit to the neighbours.
    pub fn flush(&mut self, now: u64, poller: &Poller) {
        for node in self.neighbours() {
            if let Some(bytes) = self.neighbour(node).and_then(|neighbour| neighbour.take_credit_to_return())
            {
                self.send_link_message(now, node, &LinkMessage::Credit(bytes));
            }
            if let Some(Err(error)) = self.neighbour(node).map(|neighbour| neighbour.flush(poller)) {
                self.disconnect(now, node, error);
            }
        }
    }

    /// Handles the exit of a child process. Returns whether the process had started a daemon.
    pub fn handle_child_exit(&mut self, now: u64, pid: Pid, status: WaitStatus) -> bool {
        let step = self.step.as_mut().and_then(Step::process);
        if step.is_some_and(|process| process.handle_exit(pid, status)) {
            self.handle_step_exit(now);
            return true;
        }
        let exited = |child: &mut Child| {
            child.process.as_mut().is_some_and(|process| process.handle_exit(pid, status))
        };
        let Some(child) = self.children.iter_mut().find_map(|child| exited(child).then_some(child)) else {
            return false;
        };
        let status = child.process.as_ref().and_then(|process| process.exit_status()).unwrap_or_default();
        if child.is_starting() {
            let (command, output) = (child.command.clone(), child.output_tail());
            if child.plan_retry(now, &output) {
                let millis = self.settings.join_timeout;
                if let Some(failure) =
                    child.overdue_retry(now, FailureCause::Retrying { command, status, millis, output })
                {
                    self.report_retry(now, failure);
                }
                return true;
            }
            child.state = ChildState::Gone;
            let failure = child.failure(FailureCause::BootstrapExited { command, status, output });
            self.report_failure(now, failure);
        }
        self.check_closed();
        self.check_left();
        true
    }

    fn parent(&self) -> Option<u32> {
        self.place.parent
    }

    /// The neighbour on the path to another node. There is none for this node and for numbers that are not in the tree.
    pub fn towards(&self, node: u32) -> Option<u32> {
        if node >= self.tree.nodes() {
            return None;
        }
        // A head may have a thousand children.
        let behind = self.children.partition_point(|child| child.node() <= node);
        match self.children[..behind].last().filter(|child| child.subtree.contains(&node)) {
            Some(child) => Some(child.node()),
            None => self.place.towards(node),
        }
    }

    /// Whether a node is in the subtree of that child.
    fn is_below(&self, child: u32, node: u32) -> bool {
        self.index_of(child).is_some_and(|at| self.children[at].subtree.contains(&node))
    }

    fn index_of(&self, child: u32) -> Option<usize> {
        self.children.binary_search_by_key(&child, Child::node).ok()
    }

    fn child(&mut self, node: u32) -> Option<&mut Child> {
        self.index_of(node).map(|at| &mut self.children[at])
    }

    /// Adds a child that joins later.
    fn add_child(&mut self, child: Child) {
        let at = self.children.partition_point(|other| other.node() < child.node());
        self.children.insert(at, child);
    }

    /// The link to a parent or child, if it is authenticated.
    fn neighbour(&mut self, node: u32) -> Option<&mut Neighbour> {
        let child = self.index_of(node);
        match &mut self.parent_link {
            ParentLink::Established(parent, neighbour) if *parent == node => Some(neighbour),
            ParentLink::Authenticating(connector, neighbour) if connector.parent() == node => Some(neighbour),
            _ => self.children[child?].neighbour(),
        }
    }

    /// All nodes with a link.
    fn neighbours(&self) -> Vec<u32> {
        let children = self.children.iter().filter(|child| child.has_joined()).map(Child::node);
        let parent = match &self.parent_link {
            ParentLink::Established(parent, _) => Some(*parent),
            ParentLink::Authenticating(connector, _) => Some(connector.parent()),
            _ => None,
        };
        parent.into_iter().chain(children).collect()
    }

    fn connect_to_parent(&mut self, now: u64, poller: &Poller) -> Result<(), OverlayError> {
        let ParentLink::Connecting(connector) = &mut self.parent_link else { return Ok(()) };
        let parent = connector.parent();
        let Some(link) = connector.advance(now, poller).map_err(Box::new)? else { return Ok(()) };
        let behind = self.tree.nodes() - self.place.subtree.len() as u32;
        let neighbour = Neighbour::new(link, LinkKey::Link(parent).encode(self.keys), behind);
        neighbour.watch(poller)?;
        if let ParentLink::Connecting(connector) = std::mem::replace(&mut self.parent_link, ParentLink::None)
        {
            self.parent_link = ParentLink::Authenticating(connector, Box::new(neighbour));
        }
        Ok(())
    }

    /// The parent has confirmed the proof of this node.
    fn handle_confirmation(&mut self, now: u64) {
        let parent_link = std::mem::replace(&mut self.parent_link, ParentLink::None);
        let ParentLink::Authenticating(connector, neighbour) = parent_link else { return };
        let parent = connector.parent();
        self.parent_link = ParentLink::Established(parent, neighbour);
        for (channel, bytes) in std::mem::take(&mut self.parent_queue) {
            // The length was checked when the message was queued.
            let _ = self.send(now, parent, channel, &bytes);
        }
        match connector.says_something() {
            true => self.note_complete(),
            false => self.check_complete(now),
        }
    }

    /// Reads once from a neighbour. Returns whether bytes were received.
    fn receive(&mut self, node: u32, now: u64) -> bool {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut messages = Vec::new();
        let result = self.neighbour(node).map(|neighbour| neighbour.receive(now, &mut buffer, &mut messages));
        self.buffer = buffer;
        let received = matches!(result, Some(Ok(true)));
        let failed = result.and_then(Result::err);
        let is_confirmation = received
            && matches!(&self.parent_link, ParentLink::Authenticating(connector, _) if connector.parent() == node);
        if is_confirmation {
            self.handle_confirmation(now);
        }
        self.take_messages(now, node, messages, failed);
        received
    }

    /// Handles messages of a neighbour, and then the failure of its link.
    fn take_messages(
        &mut self,
        now: u64,
        node: u32,
        messages: Vec<(Channel, Vec<u8>)>,
        failed: Option<LinkError>,
    ) {
        let is_heard = self.child(node).is_none_or(|child| child.dismissed.is_none());
        let handle = |(channel, bytes)| self.handle_message(now, node, channel, bytes);
        let messages = messages.into_iter().filter(|_| is_heard);
        if let Some(error) = messages.map(handle).find_map(Result::err).or(failed) {
            self.disconnect(now, node, error);
        }
    }

    fn accept(&mut self, index: u32, now: u64, poller: &Poller) {
        // The bound lets other descriptors have their turn.
        for _ in 0..INCOMING_MAX {
            let Some(listener) = self.listeners.get(index as usize) else { return };
            match listener.socket().accept() {
                Ok(Some(stream)) => {
                    let added = self.incoming.add(stream, now, self.settings.heartbeat_timeout);
                    let Some(index) = added else { continue };
                    let fd = self.incoming.fd(index).expect("the connection was just added");
                    let key = LinkKey::Incoming(index).encode(self.keys);
                    if poller.add(fd, key, Interest::Read).is_err() {
                        self.incoming.close(index);
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    self.listeners.iter_mut().for_each(|listener| listener.pause(poller, now));
                    return;
                }
            }
        }
    }

    fn handle_incoming(&mut self, index: u32, now: u64, poller: &Poller) -> Result<(), OverlayError> {
        let (children, overlay, parent) = (&self.children, self.id, self.node);
        let exchange = self.settings.key_exchange();
        let expected = |node| {
            let child = children.iter().find(|child| child.node() == node)?;
            let identity = LinkIdentity { overlay, parent, child: node, exchange };
            child.secret().map(|secret| ExpectedChild { identity, secret })
        };
        let secrets = self.late_hosts.as_ref().map(|late| &late.secrets);
        let expected = Expected { child: expected, guide: self.guide.as_mut(), secrets };
        let authenticated = match self.incoming.receive(index, expected) {
            None => return Ok(()),
            Some(Arrival::Child(authenticated)) => authenticated,
            Some(Arrival::Host(fd, addr, noise)) => {
                let watch = |fd: &OwnedFd, key| poller.modify(fd, key, Interest::Read);
                return self.greeted(Link::new(fd, noise, now), addr, now, watch);
            }
            Some(Arrival::Turned(addr, why)) => {
                let is_reported = self.late_hosts.as_mut().is_some_and(LateHosts::turns_away);
                self.events.extend(is_reported.then_some(Event::Turned { addr, why }));
                return Ok(());
            }
        };
        let node = authenticated.node;
        let link = Link::new(authenticated.fd, authenticated.noise, now);
        let key = LinkKey::Link(node).encode(self.keys);
        let Some(child) = self.child(node) else { return Ok(()) };
        let neighbour = Neighbour::new(link, key, child.subtree.len() as u32);
        neighbour.watch(poller)?;
        let state = std::mem::replace(&mut child.state, ChildState::Joined(Box::new(neighbour)));
        // Confirms the proof.
        let _ = self.send(now, node, Channel::Link, &[]);
        if let ChildState::Starting { queue, .. } = state {
            for (channel, bytes) in queue {
                // The length was checked when the message was queued.
                let _ = self.send(now, node, channel, &bytes);
            }
        }
        self.events.push_back(Event::Joined { node });
        self.check_listening();
        Ok(())
    }

    /// Stops to listen once no connection is expected. Hosts that join too late by themselves are told so.
    fn check_listening(&mut self) {
        if self.guide.is_none() && !self.is_enrolled && !self.children.iter().any(|child| child.is_starting())
        {
            self.listeners.clear();
            self.incoming.clear();
        }
    }

    fn check_complete(&mut self, now: u64) {
        let has_joined = matches!(self.parent_link, ParentLink::Established(..)) || self.node == 0;
        if !self.complete && has_joined && self.children.iter().all(|child| child.complete) {
            self.note_complete();
            self.send_to_parent(now, &LinkMessage::Complete);
        }
    }

    fn note_complete(&mut self) {
        self.complete = true;
        self.guide = None;
        self.check_listening();
        self.events.push_back(Event::Complete);
    }
}
