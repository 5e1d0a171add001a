//! Listening sockets for children, and incoming connections until they are authenticated.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hydrant_noise::Transport;
use hydrant_reactor::NO_SIGPIPE;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::bootstrap::{Guide, QUESTION_LEN, QUESTION_MAGIC};
use crate::enrol::hello::{self, HELLO_LEN};
use crate::enrol::{Greeted, Secrets};
use crate::link::{
    HEARTBEAT_LEN, INITIATION_LEN, LinkIdentity, Secret, claimed_node, configure_socket, is_heartbeat,
    respond,
};

/// Maximum number of unauthenticated connections. A further connection replaces the oldest, so that silent connections
/// cannot keep a child out. A child that is replaced connects again.
pub(crate) const INCOMING_MAX: usize = 64;
/// Time limit of the handshake in milliseconds.
pub(crate) const HANDSHAKE_TIMEOUT: u64 = 10_000;
/// Number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listening socket for children.
#[derive(Debug)]
pub(crate) struct ListenSocket {
    listener: TcpListener,
    addr: SocketAddr,
}

impl ListenSocket {
    /// Listens at a port of `ip`, with 0 at a free one.
    pub(crate) fn bind(ip: IpAddr, port: u16) -> io::Result<ListenSocket> {
        let listener = TcpListener::bind((ip, port))?;
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok(ListenSocket { listener, addr })
    }

    /// The address.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Accepts one connection, if one waits.
    pub(crate) fn accept(&self) -> io::Result<Option<TcpStream>> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The connection failed before it was accepted.
                Err(error) if is_connection_error(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Whether an error of accept(2) is a pending error of the new connection. All others are errors of this process or of
/// the system.
fn is_connection_error(error: &io::Error) -> bool {
    let local = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EINVAL, libc::EBADF];
    error.raw_os_error().is_none_or(|number| !local.contains(&number))
}

/// A child that has not joined yet.
#[derive(Debug)]
pub(crate) struct ExpectedChild<'a> {
    pub(crate) identity: LinkIdentity,
    pub(crate) secret: &'a Secret,
}

/// What has become of a connection.
pub(crate) enum Arrival {
    /// It is that of a child that has proved that it has the secret.
    Child(Authenticated),
    /// It is that of a host that asks to join, and has been greeted.
    Host(OwnedFd, SocketAddr, Transport),
    /// A host that cannot join has been told so.
    Turned(SocketAddr, String),
}

/// A connection of a child that has proved that it has the secret.
pub(crate) struct Authenticated {
    pub(crate) node: u32,
    pub(crate) fd: OwnedFd,
    pub(crate) noise: Transport,
}

/// Who may join.
pub(crate) struct Expected<'a, F> {
    /// Returns the child with a node number, if that child has not joined yet.
    pub(crate) child: F,
    /// Answers the questions of a step's daemons.
    pub(crate) guide: Option<&'a mut Guide>,
    /// Secrets of hosts that may join later. Without them they are told that the run has all its hosts.
    pub(crate) secrets: Option<&'a Secrets>,
}

/// Unauthenticated connections.
#[derive(Debug, Default)]
pub(crate) struct IncomingConnections {
    slots: Vec<Option<Incoming>>,
}

/// An unauthenticated connection.
struct Incoming {
    fd: OwnedFd,
    addr: SocketAddr,
    opened: u64,
    /// Received bytes of the current message.
    bytes: [u8; QUESTION_LEN],
    len: usize,
    /// Claimed node and Noise state after the response. The child's heartbeat is outstanding.
    responded: Option<(u32, Transport)>,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("fd", &self.fd).field("opened", &self.opened).finish_non_exhaustive()
    }
}

/// Result of reading from an unauthenticated connection.
enum Progress {
    Pending,
    Rejected,
    Authenticated,
    Greeted(Transport),
    Turned(String),
}

const _: () = assert!(HELLO_LEN <= QUESTION_LEN && INITIATION_LEN <= HELLO_LEN);

impl IncomingConnections {
    /// Adds a connection and returns its index. `timeout` is the heartbeat timeout in milliseconds.
    pub(crate) fn add(&mut self, stream: TcpStream, now: u64, timeout: u64) -> Option<u32> {
        configure_socket(&stream, timeout).ok()?;
        let addr = stream.peer_addr().ok()?;
        let (fd, bytes) = (stream.into(), [0; QUESTION_LEN]);
        let incoming = Incoming { fd, addr, opened: now, bytes, len: 0, responded: None };
        let free = self.slots.iter().position(Option::is_none);
        let index = match free {
            Some(index) => index,
            None if self.slots.len() < INCOMING_MAX => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => self.oldest()?.0,
        };
        self.slots[index] = Some(incoming);
        Some(index as u32)
    }

    /// The socket of a connection.
    pub(crate) fn fd(&self, index: u32) -> Option<&OwnedFd> {
        self.slots.get(index as usize)?.as_ref().map(|incoming| &incoming.fd)
    }

    /// Reads from a connection. Returns what has become of it, and closes it if the handshake fails.
    pub(crate) fn receive<'a>(
        &mut self,
        index: u32,
        expected: Expected<'a, impl Fn(u32) -> Option<ExpectedChild<'a>>>,
    ) -> Option<Arrival> {
        let slot = self.slots.get_mut(index as usize)?;
        let progress = slot.as_mut()?.receive(expected);
        if matches!(progress, Progress::Pending) {
            return None;
        }
        let Incoming { fd, addr, responded, .. } = slot.take()?;
        match progress {
            Progress::Pending | Progress::Rejected => None,
            Progress::Authenticated => {
                let (node, noise) = responded?;
                Some(Arrival::Child(Authenticated { node, fd, noise }))
            }
            Progress::Greeted(noise) => Some(Arrival::Host(fd, addr, noise)),
            Progress::Turned(why) => Some(Arrival::Turned(addr, why)),
        }
    }

    /// Time at which the handshake timeout of the oldest connection ends.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.oldest().map(|(_, opened)| opened + HANDSHAKE_TIMEOUT)
    }

    /// Closes connections whose handshake timeout has ended.
    pub(crate) fn expire(&mut self, now: u64) {
        for slot in &mut self.slots {
            if slot.as_ref().is_some_and(|incoming| incoming.opened + HANDSHAKE_TIMEOUT <= now) {
                *slot = None;
            }
        }
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, index: u32) {
        if let Some(slot) = self.slots.get_mut(index as usize) {
            *slot = None;
        }
    }

    /// Closes all connections.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
    }

    fn oldest(&self) -> Option<(usize, u64)> {
        let open = self.slots.iter().enumerate();
        open.filter_map(|(index, slot)| Some((index, slot.as_ref()?.opened)))
            .min_by_key(|&(_, opened)| opened)
    }
}

impl Incoming {
    fn receive<'a>(&mut self, expected: Expected<'a, impl Fn(u32) -> Option<ExpectedChild<'a>>>) -> Progress {
        let Expected { child: expected, mut guide, secrets } = expected;
        loop {
            // Bytes behind the current message stay in the socket, so no further buffer is needed.
            let is_question = guide.is_some() && self.responded.is_none() && self.is_question();
            let size = match &self.responded {
                Some(_) => HEARTBEAT_LEN,
                None if is_question => QUESTION_LEN,
                None if self.is_hello() => HELLO_LEN,
                None => INITIATION_LEN,
            };
            match recv(&self.fd, &mut self.bytes[self.len..size], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Progress::Rejected,
                Ok((len, _)) => self.len += len,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Progress::Pending,
                Err(_) => return Progress::Rejected,
            }
            if self.len < size {
                continue;
            }
            if let Some(guide) =
                guide.as_deref_mut().filter(|_| self.responded.is_none() && self.is_question())
            {
                if self.len < QUESTION_LEN {
                    continue;
                }
                // The connection has no other purpose.
                if let Some(answer) = guide.answer(&self.bytes) {
                    let _ = send(&self.fd, &answer, SendFlags::DONTWAIT | NO_SIGPIPE);
                }
                return Progress::Rejected;
            }
            if self.responded.is_none() && self.is_hello() {
                if let Some(hello) = self.bytes.first_chunk().filter(|_| self.len == HELLO_LEN) {
                    return self.greet(hello, secrets);
                }
                continue;
            }
            self.len = 0;
            let Some((node, noise)) = &mut self.responded else {
                match self.respond(&expected) {
                    Some(()) => continue,
                    None => return Progress::Rejected,
                }
            };
            let Some(frame) = self.bytes.first_chunk::<HEARTBEAT_LEN>() else { return Progress::Rejected };
            // The child may have joined over another connection since.
            let is_expected = expected(*node).is_some();
            return if is_expected && is_heartbeat(noise, frame) {
                Progress::Authenticated
            } else {
                Progress::Rejected
            };
        }
    }

    /// Whether a question of a step's daemon has begun.
    fn is_question(&self) -> bool {
        self.len >= INITIATION_LEN && self.bytes.starts_with(&QUESTION_MAGIC)
    }

    /// Answers the hello of a host that comes when the run has begun.
    fn greet(&self, hello: &[u8; HELLO_LEN], secrets: Option<&Secrets>) -> Progress {
        let (verdict, progress) = match secrets.map(|secrets| secrets.greet(hello)) {
            None => (hello::turn_away(hello), Progress::Rejected),
            Some(None) => return Progress::Rejected,
            Some(Some(Greeted { verdict, host: Ok((noise, _)) })) => (verdict, Progress::Greeted(noise)),
            Some(Some(Greeted { verdict, host: Err(why) })) => (verdict, Progress::Turned(why)),
        };
        if hello::tell(&self.fd, &verdict) { progress } else { Progress::Rejected }
    }

    /// Whether a hello of a host has begun.
    fn is_hello(&self) -> bool {
        self.len >= INITIATION_LEN && self.bytes.starts_with(&hello::MAGIC)
    }

    fn respond<'a>(&mut self, expected: impl Fn(u32) -> Option<ExpectedChild<'a>>) -> Option<()> {
        let initiation = self.bytes.first_chunk()?;
        let node = claimed_node(initiation)?;
        let ExpectedChild { identity, secret } = expected(node)?;
        let (noise, bytes) = respond(&identity, secret, initiation).ok()?;
        // The send buffer of a new socket has space for a response.
        let sent = send(&self.fd, &bytes, SendFlags::DONTWAIT | NO_SIGPIPE).ok()?;
        self.responded = Some((node, noise));
        (sent == bytes.len()).then_some(())
    }
}

#[cfg(test)]
mod tests;
