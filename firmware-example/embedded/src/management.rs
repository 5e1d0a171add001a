//! Management connections: sockets of hosts, and the management server of `hydrant_core::manage` that they talk to.

use hydrant_core::manage::server::{Config as ServerConfig, HostSlot, ManagementServer, Next, Service};
use hydrant_core::manage::{BoardReport, Error, OpenLink, OpenNode};
use hydrant_core::peer::Tree;
use hydrant_core::peer::tree::ROOT_ONE;
use hydrant_core::{Fault, Limit};

use crate::board::{Board, Handle, LINK_RX_MAX, Sizes, most_of_node};
use crate::channel::{Channel, Incoming, consume};
use crate::connection::Connection;
use crate::net::{Net, Socket, State};
use crate::noise::Forged;
use crate::serve::{HANDSHAKE_TIMEOUT_MS, Serve};

/// All management connections.
pub struct Management<'m, B: Board> {
    sockets: &'m mut [HostSocket<B>],
    server: ManagementServer<'static>,
    port: u16,
    /// Connection of a node that is to be served next.
    starting: Option<Connection<B>>,
}

/// Socket for a host.
pub struct HostSocket<B: Board> {
    handle: Handle<B>,
    connected: bool,
    /// The connection is that of a [node](crate::node).
    is_node: bool,
    channel: Channel<B>,
}

impl<B: Board> HostSocket<B> {
    /// Over a closed socket.
    pub const fn new(handle: Handle<B>) -> HostSocket<B> {
        HostSocket { handle, connected: false, is_node: false, channel: Channel::new() }
    }
}

impl<'m, B: Board> Management<'m, B> {
    /// There are [`Sizes::LINKS`] sockets and slots. Hosts connect to `port`.
    // As a part of the caller, its temporaries would stay on the stack.
    #[inline(never)]
    pub fn new(
        sockets: &'m mut [HostSocket<B>],
        slots: &'static mut [HostSlot],
        port: u16,
    ) -> Management<'m, B> {
        let server = ServerConfig {
            name: B::NAME,
            nodes: B::NODE_LIMITS,
            message_max: B::LONG as u32,
            links: (B::BOARD_LINKS > 0).then_some(B::CHILDREN as u32),
            calls: B::CALLS.then_some(B::CALL_BYTES as u32),
            request_timeout: HANDSHAKE_TIMEOUT_MS,
        };
        Management { sockets, server: ManagementServer::new(server, slots), port, starting: None }
    }

    /// Returns the next deadline, in milliseconds of [`time::millis`].
    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.server.poll_at()
    }

    /// Accepts hosts and carries out requests.
    pub(crate) fn run(&mut self, net: &mut B::Net, serve: &mut Serve<'_, B>) {
        for at in 0..self.sockets.len() {
            self.host(net, serve, at);
        }
    }

    fn host(&mut self, net: &mut B::Net, serve: &mut Serve<'_, B>, at: usize) {
        let host = &mut self.sockets[at];
        if host.is_node {
            return;
        }
        let socket = net.socket_mut(host.handle);
        if !host.connected {
            if !socket.may_send() {
                match socket.state() {
                    State::Closed => socket.listen(self.port),
                    State::TimeWait => socket.abort(),
                    _ => {}
                }
                return;
            }
            info!("host {=usize} connected", at);
            host.connected = true;
            host.channel = Channel::new();
            // Its first request may have come with the connection.
            self.server.connected(at, B::millis());
        }
        if self.server.expired(B::millis()) == Some(at) {
            warn!("host {=usize} asks for nothing, and is given up", at);
            socket.abort();
            return self.disconnected(at);
        }
        if !socket.may_recv() && socket.recv_queue() == 0 {
            socket.close();
            return self.disconnected(at);
        }
        if host.channel.is_waiting() {
            match host.channel.greet(socket) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Forged) => return self.forged(net, at),
            }
        }
        while self.request(net, serve, at) {}
    }

    fn disconnected(&mut self, at: usize) {
        info!("host {=usize} is gone", at);
        self.sockets[at].connected = false;
        self.server.disconnected(at);
    }

    /// Carries out a request, if it is complete and its reply fits into the send buffer. Returns whether it did.
    // As a part of the caller, its buffers would take stack from clients and from the requests of a node.
    #[inline(never)]
    fn request(&mut self, net: &mut B::Net, serve: &mut Serve<'_, B>, at: usize) -> bool {
        let host = &mut self.sockets[at];
        let handle = host.handle;
        let socket = net.socket_mut(handle);
        if socket.send_capacity() - socket.send_queue() < B::LINK_RX {
            return false;
        }
        let (mut bytes, mut reply) = ([0; LINK_RX_MAX], [0; LINK_RX_MAX]);
        let Some(len) = socket.peek_slice(&mut bytes[..B::LINK_RX]) else { return false };
        let (record, frame) = match host.channel.receive(&mut bytes[..len]) {
            Ok(Some(Incoming { bytes, frame })) => (bytes, frame),
            Ok(None) => return false,
            Err(Forged) => {
                self.forged(net, at);
                return false;
            }
        };
        let whole = record.len();
        let from = (at, B::millis());
        let received = self.server.receive(&mut Managed { net, serve }, from, record, &mut reply[B::FRONT..]);
        let Some(received) = received else {
            // A frame holds one record.
            if frame.is_some() {
                self.forged(net, at);
            }
            return false;
        };
        if let Some(error) = received.refused {
            warn!("host {=usize} refused: {}", at, error);
        }
        let socket = net.socket_mut(handle);
        consume(socket, frame.unwrap_or(received.consumed));
        let (len, next, is_whole) = (received.reply.len(), received.next, received.consumed == whole);
        host.channel.send(socket, &mut reply, len);
        if frame.is_some() && !is_whole {
            self.forged(net, at);
            return false;
        }
        match next {
            Next::Receive => true,
            Next::Node => {
                host.is_node = true;
                let channel = core::mem::replace(&mut host.channel, Channel::new());
                let connection = Connection::new(handle, channel);
                let links = serve.links.as_mut().filter(|_| B::BOARD_LINKS > 0);
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
    pub(crate) fn next_node(&mut self, serve: &mut Serve<'_, B>) -> Option<(OpenNode, Connection<B>)> {
        serve.opening.take().zip(self.starting.take())
    }

    /// Frees the connection of a node that has ended.
    pub(crate) fn end_node(&mut self, net: &mut B::Net, handle: Handle<B>) {
        net.socket_mut(handle).abort();
        // The host learns of it before the socket listens.
        net.poll();
        if B::BOARD_LINKS > 0 {
            net.set_patience(handle, None);
        }
        for host in self.sockets.iter_mut().filter(|host| host.handle == handle) {
            (host.connected, host.is_node) = (false, false);
        }
    }

    /// Ends the connection of a host without the secret.
    fn forged(&mut self, net: &mut B::Net, at: usize) {
        warn!("host {=usize} does not have the secret, and is given up", at);
        net.socket_mut(self.sockets[at].handle).abort();
        self.disconnected(at);
    }
}

/// The PMI server of this board, as hosts manage it.
struct Managed<'a, 's, B: Board> {
    net: &'a B::Net,
    serve: &'a mut Serve<'s, B>,
}

impl<B: Board> Service for Managed<'_, '_, B> {
    fn board_report(&self) -> BoardReport {
        self.serve.board_report(self.net)
    }

    fn usage(&self, limit: Limit) -> (u32, u32) {
        let server = self.serve.server();
        (server.used(limit), server.limits().of(limit))
    }

    fn begin_node(&mut self, node: &OpenNode) -> Result<(), Error> {
        if node.nodes > 1 && !B::TREES {
            return Err(Error::NoTrees);
        }
        if node.seed.is_some() && (!B::CALLS || node.link.is_some() || node.record.is_some()) {
            return Err(Error::NoCalls);
        }
        if node.link.is_some() && B::BOARD_LINKS == 0 {
            return Err(Error::NoLink);
        }
        if self.serve.is_busy() {
            return Err(Error::Busy);
        }
        // The host repeats the inputs on a server with the same limits.
        let most = most_of_node::<B>(node);
        if (node.record.is_some() || node.seed.is_some())
            && let Some(limit) = node.limits.exceeding(*most).next()
        {
            return Err(Fault::Full(limit, most.of(limit)).into());
        }
        let links = B::LIMITS.links;
        let fits = |form| {
            let place = Tree::new(node.nodes, form).place(node.node);
            place.children.len() + usize::from(place.parent.is_some()) <= links as usize
        };
        if node.node >= node.nodes
            || !fits(node.radix)
            || B::BOARD_LINKS > 0 && node.link.is_some() && !fits(node.radix | ROOT_ONE)
        {
            return Err(Fault::Full(Limit::Links, links).into());
        }
        self.serve.opening = Some(*node);
        Ok(())
    }

    fn begin_link(&mut self, link: &OpenLink) -> Result<(), Error> {
        let links = self.serve.links.as_mut().filter(|_| B::BOARD_LINKS > 0);
        if links.is_some_and(|links| links.admit(link)) { Ok(()) } else { Err(Error::NoLink) }
    }
}
