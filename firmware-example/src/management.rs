//! Management connections: sockets of hosts, and the management server of `hydrant_core::manage` that they talk to.

use hydrant_core::manage::server::{Config as ServerConfig, ManagementServer, Next, Service};
use hydrant_core::manage::{BoardReport, Error, OpenLink, OpenNode};
use hydrant_core::peer::Tree;
use hydrant_core::peer::tree::ROOT_ONE;
use hydrant_core::{Fault, Limit};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;

use crate::channel::{self, Channel, Incoming, consume};
use crate::config::Config;
use crate::connection::Connection;
use crate::memory::{self, LINK_RX, LINKS, TREES};
use crate::net::Net;
use crate::noise::Forged;
use crate::serve::{HANDSHAKE_TIMEOUT_MS, Serve};
use crate::{board, stack, time};

/// All management connections.
pub(crate) struct Management {
    sockets: [HostSocket; LINKS],
    server: ManagementServer<'static>,
    port: u16,
    /// Connection of a node that is to be served next.
    starting: Option<Connection>,
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
            nodes: memory::NODE_LIMITS,
            message_max: memory::LONG as u32,
            links: (memory::BOARD_LINKS > 0).then_some(memory::CHILDREN as u32),
            calls: memory::CALLS.then_some(memory::CALL_BYTES as u32),
            request_timeout: HANDSHAKE_TIMEOUT_MS,
        };
        Management {
            sockets,
            server: ManagementServer::new(server, memory::host_slots()),
            port: config.port,
            starting: None,
        }
    }

    /// Returns the next deadline, in milliseconds of [`time::millis`].
    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.server.poll_at()
    }

    /// Accepts hosts and carries out requests.
    pub(crate) fn run(&mut self, net: &mut Net, serve: &mut Serve<'_>) {
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
                self.server.connected(at, time::millis());
            } else if socket.state() == tcp::State::TimeWait {
                socket.abort();
            }
            return;
        }
        if self.server.expired(time::millis()) == Some(at) {
            defmt::warn!("host {=usize} asks for nothing, and is given up", at);
            socket.abort();
            return self.disconnected(at);
        }
        if !socket.may_recv() && socket.recv_queue() == 0 {
            socket.close();
            return self.disconnected(at);
        }
        if self.sockets[at].channel.is_waiting() {
            let socket = net.sockets.get_mut::<tcp::Socket<'_>>(self.sockets[at].handle);
            match self.sockets[at].channel.greet(socket) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Forged) => return self.forged(net, at),
            }
        }
        while self.request(net, serve, at) {}
    }

    fn disconnected(&mut self, at: usize) {
        defmt::info!("host {=usize} is gone", at);
        self.sockets[at].connected = false;
        self.server.disconnected(at);
    }

    /// Carries out a request, if it is complete and its reply fits into the send buffer. Returns whether it did.
    // As a part of the caller, its buffers would take stack from clients and from the requests of a node.
    #[inline(never)]
    fn request(&mut self, net: &mut Net, serve: &mut Serve<'_>, at: usize) -> bool {
        let handle = self.sockets[at].handle;
        let socket = net.sockets.get_mut::<tcp::Socket<'_>>(handle);
        if socket.send_capacity() - socket.send_queue() < LINK_RX {
            return false;
        }
        let (mut bytes, mut reply) = ([0; LINK_RX], [0; LINK_RX]);
        let Ok(len) = socket.peek_slice(&mut bytes) else { return false };
        let (record, frame) = match self.sockets[at].channel.receive(&mut bytes[..len]) {
            Ok(Some(Incoming { bytes, frame })) => (bytes, frame),
            Ok(None) => return false,
            Err(Forged) => {
                self.forged(net, at);
                return false;
            }
        };
        let whole = record.len();
        let from = (at, time::millis());
        let received =
            self.server.receive(&mut Board { net, serve }, from, record, &mut reply[channel::FRONT..]);
        let Some(received) = received else {
            // A frame holds one record.
            if frame.is_some() {
                self.forged(net, at);
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
            self.forged(net, at);
            return false;
        }
        match next {
            Next::Receive => true,
            Next::Node => {
                let host = &mut self.sockets[at];
                host.is_node = true;
                let channel = core::mem::replace(&mut host.channel, Channel::new());
                let connection = Connection::new(handle, channel);
                let links = serve.links.as_mut().filter(|_| memory::BOARD_LINKS > 0);
                self.starting = match links {
                    Some(links) => links.accept(net, connection),
                    None => Some(connection),
                };
                false
            }
            Next::Close => {
                socket.close();
                self.disconnected(at);
                false
            }
        }
    }

    /// Returns the node that is to be served instead of the board's own jobs.
    pub(crate) fn next_node(&mut self, serve: &mut Serve<'_>) -> Option<(OpenNode, Connection)> {
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
    fn forged(&mut self, net: &mut Net, at: usize) {
        defmt::warn!("host {=usize} does not have the secret, and is given up", at);
        net.sockets.get_mut::<tcp::Socket<'_>>(self.sockets[at].handle).abort();
        self.disconnected(at);
    }
}

/// The PMI server of this board, as hosts manage it.
struct Board<'a, 's> {
    net: &'a Net,
    serve: &'a mut Serve<'s>,
}

impl Service for Board<'_, '_> {
    fn board_report(&self) -> BoardReport {
        let free_sockets = self.serve.free_sockets(self.net);
        BoardReport { uptime: time::millis(), free_sockets, stack: stack::used(), ..*self.serve.counters }
    }

    fn usage(&self, limit: Limit) -> (u32, u32) {
        let server = self.serve.server();
        (server.used(limit), server.limits().of(limit))
    }

    fn begin_node(&mut self, node: &OpenNode) -> Result<(), Error> {
        if node.nodes > 1 && !TREES {
            return Err(Error::NoTrees);
        }
        if node.seed.is_some() && (!memory::CALLS || node.link.is_some() || node.record.is_some()) {
            return Err(Error::NoCalls);
        }
        if node.link.is_some() && memory::BOARD_LINKS == 0 {
            return Err(Error::NoLink);
        }
        if self.serve.is_busy() {
            return Err(Error::Busy);
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

    fn begin_link(&mut self, link: &OpenLink) -> Result<(), Error> {
        let links = self.serve.links.as_mut().filter(|_| memory::BOARD_LINKS > 0);
        if links.is_some_and(|links| links.admit(link)) { Ok(()) } else { Err(Error::NoLink) }
    }
}
