//! Management connections: sockets of hosts, and the management server of `hydrant_core::manage` that they talk to.

use core::convert::Infallible;
use core::net::{IpAddr, Ipv4Addr};

use hydrant_core::manage::server::{
    Config as ServerConfig, Expired, Failure, ManagementServer, Next, Service,
};
use hydrant_core::manage::{self, BoardReport, Error, JobReport, OpenJob, OpenLink, OpenNode, RankReport};
use hydrant_core::peer::Tree;
use hydrant_core::peer::tree::ROOT_ONE;
use hydrant_core::server::Input;
use hydrant_core::trace::Exit;
use hydrant_core::{Fault, JobId, Limit, Rank};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::channel::{self, Channel, Incoming, consume};
use crate::config::Config;
use crate::events::{self, EVENTS, Event};
use crate::link::Link;
use crate::memory::{self, LINK_RX, LINKS};
use crate::net::Net;
use crate::noise::Forged;
use crate::serve::{HANDSHAKE_TIMEOUT_MS, Serve};
use crate::{board, secret, stack, time};

/// All management connections.
pub(crate) struct Management {
    sockets: [HostSocket; LINKS],
    server: ManagementServer<'static>,
    port: u16,
    /// Connection of a node that is to be served next.
    starting: Option<Link>,
}

/// Socket for a host.
pub(crate) struct HostSocket {
    handle: SocketHandle,
    connected: bool,
    /// The connection is that of a [node](crate::node).
    is_node: bool,
    channel: Channel,
}

impl HostSocket {
    pub(crate) const fn new(handle: SocketHandle) -> HostSocket {
        HostSocket { handle, connected: false, is_node: false, channel: Channel::new() }
    }
}

impl Management {
    // As a part of the caller, its temporaries would stay on the stack.
    #[inline(never)]
    pub(crate) fn new(sockets: [HostSocket; LINKS], config: &Config) -> Management {
        let server = ServerConfig {
            name: board::NAME,
            limits: memory::OWN_LIMITS,
            pmi_port: config.pmi_port,
            message_max: memory::LONG as u32,
            // The records of a recording are not encrypted.
            records: !secret::IS_SET,
            exclusive: true,
            nodes: memory::NODES.then_some(memory::NODE_LIMITS),
            links: (memory::BOARD_LINKS > 0).then_some(memory::CHILDREN as u32),
            drop_orphans: false,
            handshake_timeout: HANDSHAKE_TIMEOUT_MS,
            keep_timeout: None,
        };
        let (hosts, jobs) = memory::management_slots();
        Management {
            sockets,
            server: ManagementServer::new(server, hosts, jobs),
            port: config.port,
            starting: None,
        }
    }

    /// Returns the next deadline, in milliseconds of [`time::millis`].
    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.server.poll_at()
    }

    /// Accepts hosts, carries out requests and sends events.
    pub(crate) fn run(&mut self, net: &mut Net, serve: &mut Serve<'_>) {
        // Events precede the replies to later requests.
        self.send_events(net);
        for at in 0..LINKS {
            self.host(net, serve, at);
        }
    }

    fn host(&mut self, net: &mut Net, serve: &mut Serve<'_>, at: usize) {
        let host = &mut self.sockets[at];
        if host.is_node {
            return;
        }
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(host.handle);
        if !host.connected {
            if !socket.is_open() {
                // Listening cannot fail: the port is not 0, and the socket is closed.
                let _ = socket.listen(self.port);
            } else if socket.is_active() && socket.may_send() {
                defmt::info!("host {=usize} connected", at);
                host.connected = true;
                host.channel = Channel::new();
                let from = socket.remote_endpoint().map(|endpoint| endpoint.addr.into());
                self.server.connected(at, from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), time::millis());
            } else if socket.state() == tcp::State::TimeWait {
                socket.abort();
            }
            return;
        }
        if let Some((expired, why)) = self.server.expired(time::millis())
            && expired == at
        {
            match why {
                Expired::Handshake => defmt::warn!("host {=usize} did not greet, and is given up", at),
                Expired::Stalled => defmt::warn!("host {=usize} does not read, and is given up", at),
            }
            socket.abort();
            return self.disconnected(net, serve, at);
        }
        if !socket.may_recv() && socket.recv_queue() == 0 {
            if self.server.is_recording(at) {
                serve.end_recording(net);
            }
            net.sockets.get_mut::<tcp::Socket<'_>>(self.sockets[at].handle).close();
            return self.disconnected(net, serve, at);
        }
        if self.sockets[at].channel.is_waiting() {
            let socket = net.sockets.get_mut::<tcp::Socket<'_>>(self.sockets[at].handle);
            match self.sockets[at].channel.greet(socket) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Forged) => return self.forged(net, serve, at),
            }
        }
        while self.request(net, serve, at) {
            self.send_events(net);
        }
    }

    fn disconnected(&mut self, net: &mut Net, serve: &mut Serve<'_>, at: usize) {
        defmt::info!("host {=usize} is gone", at);
        self.sockets[at].connected = false;
        let mut board = Board::new(net, serve, &self.sockets);
        let Ok(()) = self.server.disconnected(&mut board, at, time::millis());
    }

    /// Carries out a request, if it is complete and its reply fits into the send buffer. Returns whether it did.
    // As a part of the caller, its buffers would take stack from clients and from the requests of a node.
    #[inline(never)]
    fn request(&mut self, net: &mut Net, serve: &mut Serve<'_>, at: usize) -> bool {
        let handle = self.sockets[at].handle;
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let events_pending = self.server.manager() == Some(at) && !EVENTS.is_empty();
        if events_pending || !has_room(socket) {
            return false;
        }
        let (mut bytes, mut reply) = ([0; LINK_RX], [0; LINK_RX]);
        let Ok(len) = socket.peek_slice(&mut bytes) else { return false };
        let (record, frame) = match self.sockets[at].channel.receive(&mut bytes[..len]) {
            Ok(Some(Incoming { bytes, frame })) => (bytes, frame),
            Ok(None) => return false,
            Err(Forged) => {
                self.forged(net, serve, at);
                return false;
            }
        };
        let whole = record.len();
        let mut board = Board::new(net, serve, &self.sockets);
        let Ok(received) = self.server.receive(&mut board, at, record, &mut reply[channel::FRONT..]);
        let Some(received) = received else {
            // A frame holds one record.
            if frame.is_some() {
                self.forged(net, serve, at);
            }
            return false;
        };
        if let Some(error) = received.refused {
            defmt::warn!("host {=usize} refused: {}", at, error);
        }
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(handle);
        consume(socket, frame.unwrap_or(received.consumed));
        let (len, next, is_whole) = (received.reply.len(), received.next, received.consumed == whole);
        self.sockets[at].channel.send(socket, &mut reply, len);
        if frame.is_some() && !is_whole {
            self.forged(net, serve, at);
            return false;
        }
        match next {
            Next::Receive => true,
            Next::Record => {
                serve.begin_recording(net);
                false
            }
            Next::Node if memory::NODES => {
                let host = &mut self.sockets[at];
                host.is_node = true;
                let channel = core::mem::replace(&mut host.channel, Channel::new());
                let link = Link::new(handle, channel);
                let links = serve.links.as_mut().filter(|_| memory::BOARD_LINKS > 0);
                self.starting = match links {
                    Some(links) => links.accept(net, link),
                    None => Some(link),
                };
                false
            }
            Next::Close | Next::Node => {
                socket.close();
                self.disconnected(net, serve, at);
                false
            }
        }
    }

    /// Returns the node that is to be served instead of the board's own jobs.
    pub(crate) fn next_node(&mut self, serve: &mut Serve<'_>) -> Option<(OpenNode, Link)> {
        serve.opening.take().zip(self.starting.take())
    }

    /// Frees the connection of a node that has ended.
    pub(crate) fn end_node(&mut self, net: &mut Net, handle: SocketHandle) {
        net.sockets.get_mut::<tcp::Socket<'_>>(handle).abort();
        // The host learns of it before the socket listens.
        net.poll();
        if memory::BOARD_LINKS > 0 {
            net.set_patience(handle, None);
        }
        for host in self.sockets.iter_mut().filter(|host| host.handle == handle) {
            (host.connected, host.is_node) = (false, false);
        }
    }

    /// Ends the connection of a host without the secret.
    fn forged(&mut self, net: &mut Net, serve: &mut Serve<'_>, at: usize) {
        defmt::warn!("host {=usize} does not have the secret, and is given up", at);
        net.sockets.get_mut::<tcp::Socket<'_>>(self.sockets[at].handle).abort();
        self.disconnected(net, serve, at);
    }

    /// Sends events to the manager. Without a manager they are dropped.
    pub(crate) fn send_events(&mut self, net: &mut Net) {
        let Some(at) = self.server.manager() else {
            EVENTS.clear();
            return;
        };
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(self.sockets[at].handle);
        while has_room(socket) {
            self.server.set_blocked(at, false, time::millis());
            let Ok(event) = EVENTS.try_receive() else { return };
            let mut record = [0; LINK_RX];
            let encoded = manage::encode(&event.report(), &mut record[channel::FRONT..]).map(<[u8]>::len);
            match encoded {
                Ok(len) => self.sockets[at].channel.send(socket, &mut record, len),
                Err(_) => defmt::error!("an event is longer than a record"),
            }
        }
        self.server.set_blocked(at, true, time::millis());
    }

    /// Queues an event for a job that is over.
    pub(crate) fn report_over(&mut self, net: &mut Net, serve: &mut Serve<'_>) {
        let mut board = Board::new(net, serve, &self.sockets);
        if events::have_room()
            && let Ok(Some((job, _))) = self.server.poll_over(&mut board)
        {
            events::queue(Event::Over { job });
        }
    }

    /// Returns whether [`report_over`](Management::report_over) has reported a job.
    pub(crate) fn is_over(&self, job: JobId) -> bool {
        self.server.is_over(job)
    }

    /// Opens a job that belongs to no host, and accepts its clients.
    pub(crate) fn open(
        &mut self,
        net: &mut Net,
        serve: &mut Serve<'_>,
        open: &OpenJob<'_>,
    ) -> Result<(), Error> {
        let mut board = Board::new(net, serve, &self.sockets);
        let opened = self.server.open(&mut board, open);
        opened.and_then(|job| self.server.serve(&mut board, job)).map_err(error)
    }

    /// Ends a job.
    pub(crate) fn forget(&mut self, net: &mut Net, serve: &mut Serve<'_>, job: JobId) -> Result<(), Error> {
        let mut board = Board::new(net, serve, &self.sockets);
        self.server.forget(&mut board, job).map_err(error)
    }
}

fn error(failure: Failure<Infallible>) -> Error {
    match failure {
        Failure::Refused(error) => error,
        Failure::Fatal(never) => match never {},
    }
}

/// Returns whether a socket has room for the longest record or frame.
fn has_room(socket: &tcp::Socket<'_>) -> bool {
    socket.send_capacity() - socket.send_queue() >= LINK_RX
}

/// The PMI server of this board, as hosts manage it.
struct Board<'a, 's> {
    net: &'a mut Net,
    serve: &'a mut Serve<'s>,
    hosts: [SocketHandle; LINKS],
}

impl<'a, 's> Board<'a, 's> {
    fn new(net: &'a mut Net, serve: &'a mut Serve<'s>, sockets: &[HostSocket; LINKS]) -> Board<'a, 's> {
        Board { net, serve, hosts: sockets.each_ref().map(|socket| socket.handle) }
    }

    fn handle(&mut self, input: Input<'_>) -> Result<(), Failure<Infallible>> {
        self.serve.try_handle(self.net, input)?;
        Ok(())
    }
}

impl Service for Board<'_, '_> {
    type Error = Infallible;

    fn open(&mut self, open: &OpenJob<'_>) -> Result<(JobId, u16), Failure<Infallible>> {
        let job = self.serve.open_job(self.net, open)?;
        Ok((job, self.serve.port_of(job)))
    }

    fn set_program(
        &mut self,
        job: JobId,
        first: Rank,
        count: u32,
        appnum: u32,
    ) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Program { job, first, count, appnum })
    }

    fn set_attr(&mut self, job: JobId, key: &[u8], value: &[u8]) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Attr { job, key, value })
    }

    fn define_pset(
        &mut self,
        job: JobId,
        name: &str,
        first: Rank,
        count: u32,
    ) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Pset { job, name, first, count })
    }

    fn accept_clients(&mut self, job: JobId) -> Result<(), Failure<Infallible>> {
        Ok(self.serve.accept_clients(self.net, job)?)
    }

    fn exited(&mut self, job: JobId, rank: Rank, exit: Exit) -> Result<(), Failure<Infallible>> {
        self.handle(Input::Exited { job, rank, exit })
    }

    fn forget(&mut self, job: JobId) -> Result<(), Failure<Infallible>> {
        Ok(self.serve.forget_job(self.net, job)?)
    }

    fn derive_exits(&mut self, job: JobId) {
        if let Some(served) = self.serve.jobs.get_mut(job) {
            served.exits_reported = false;
        }
    }

    fn job_report(&self, job: JobId) -> Option<JobReport> {
        self.serve.server().job_report(job)
    }

    fn rank_report(&self, job: JobId, rank: Rank) -> Option<RankReport> {
        self.serve.server().rank_report(job, rank)
    }

    fn board_report(&self) -> BoardReport {
        let free_sockets = self.serve.free_sockets(self.net);
        BoardReport { uptime: time::millis(), free_sockets, stack: stack::used(), ..*self.serve.counters }
    }

    fn used(&self, limit: Limit) -> u32 {
        self.serve.server().used(limit)
    }

    fn begin_recording(&mut self, host: usize) -> Result<(), Failure<Infallible>> {
        if secret::IS_SET {
            return Err(Error::NoRecording.into());
        }
        Ok(self.serve.prepare_recording(self.hosts[host])?)
    }

    fn begin_node(&mut self, _: usize, node: &OpenNode) -> Result<(), Failure<Infallible>> {
        if !memory::NODES {
            return Err(Error::NoNodes.into());
        }
        if node.seed.is_some() && (!memory::CALLS || node.link.is_some() || node.record.is_some()) {
            return Err(Error::NoCalls.into());
        }
        if node.link.is_some() && memory::BOARD_LINKS == 0 {
            return Err(Error::NoLink.into());
        }
        if self.serve.is_busy() {
            return Err(Error::Busy.into());
        }
        // The host repeats the inputs on a server with the same limits.
        let most = memory::most_of_node(node);
        if (node.record.is_some() || node.seed.is_some())
            && let Some(limit) = node.limits.exceeding(*most).next()
        {
            return Err(Fault::Full(limit, most.of(limit)).into());
        }
        let links = memory::LIMITS.links;
        let fits = |form| {
            let place = Tree::new(node.nodes, form).place(node.node);
            place.children.len() + usize::from(place.parent.is_some()) <= links as usize
        };
        if node.node >= node.nodes
            || !fits(node.radix)
            || memory::BOARD_LINKS > 0 && node.link.is_some() && !fits(node.radix | ROOT_ONE)
        {
            return Err(Fault::Full(Limit::Links, links).into());
        }
        self.serve.opening = Some(*node);
        Ok(())
    }

    fn begin_link(&mut self, _: usize, link: &OpenLink) -> Result<(), Failure<Infallible>> {
        let links = self.serve.links.as_mut().filter(|_| memory::BOARD_LINKS > 0);
        if links.is_some_and(|links| links.admit(link)) { Ok(()) } else { Err(Error::NoLink.into()) }
    }
}
