//! Listening TCP port for PMI clients, and the check of their user on this machine.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hydrant_core::wire::pmix::FIRST_BYTE;
use hydrant_reactor::enable_keepalive;
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::ListenError;
use crate::owner::{self, Routes, SockDiag, TableFiles};

/// Pending connections. The system has a lower limit of its own, usually 4096.
const BACKLOG: i32 = 8192;

/// Descriptors of a port: the listening socket, and two or three for queries about clients.
pub const PORT_FILES: u64 = 4;

/// Most connections that [`TcpPort::accept`] takes at once. A driver has room for several times as many clients that have
/// not introduced themselves, so a client has turns to do so before later ones displace it.
pub const ACCEPT_MAX: usize = 16;

/// Protocols that the clients of a port speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speaks {
    /// Any: PMI-1, PMI-2 or PMIx.
    #[default]
    Any,
    /// PMI-1 or PMI-2. A client that speaks PMIx is closed.
    Pmi,
    /// PMIx. A client that says something else is closed.
    Pmix,
}

impl Speaks {
    /// Whether a client whose first byte this is may be one.
    pub fn admits(self, first: u8) -> bool {
        match self {
            Speaks::Any => true,
            Speaks::Pmi => first != FIRST_BYTE,
            Speaks::Pmix => first == FIRST_BYTE,
        }
    }
}

/// A client that a [`TcpPort`] has accepted, or that this process has called.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub stream: TcpStream,
    /// Protocols that it may speak.
    pub speaks: Speaks,
    /// User of its process, if it is on this machine.
    pub user: Option<u32>,
    /// Whether that is the user whom the port is for.
    is_own: bool,
}

impl Client {
    /// A client on another machine.
    #[cfg(test)]
    pub(crate) fn remote(stream: TcpStream, speaks: Speaks) -> Client {
        Client { stream, speaks, user: None, is_own: false }
    }

    /// The process of this user on this machine to which this one has connected. It has answered: the kernel does not name the
    /// user of a connection that nobody has accepted.
    ///
    /// # Errors
    /// [`PermissionDenied`](io::ErrorKind::PermissionDenied): the kernel names another user, or none.
    pub fn called(stream: TcpStream, speaks: Speaks) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        enable_keepalive(&stream)?;
        let user = owner_of(stream.peer_addr()?, stream.local_addr()?)?;
        if user != Some(geteuid().as_raw()) {
            let why = match user {
                Some(user) => format!("it is a process of user {user}"),
                None => "it is no process of this machine".to_owned(),
            };
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(Client { stream, speaks, user, is_own: true })
    }

    /// A PMIx client of this user, as the caller knows.
    pub fn own(socket: OwnedFd) -> Client {
        let user = Some(geteuid().as_raw());
        Client { stream: socket.into(), speaks: Speaks::Pmix, user, is_own: true }
    }

    /// Whether the kernel has named the user whom the port is for as the client's. At a port for one user it has for each client
    /// on this machine, and for no other.
    pub fn is_own(&self) -> bool {
        self.is_own
    }
}

impl From<Client> for OwnedFd {
    fn from(client: Client) -> OwnedFd {
        client.stream.into()
    }
}

/// A listening TCP port.
///
/// A client on this machine is accepted if it is a process of this user, or of the [port's](TcpPort::for_user). The kernel
/// decides who that is: a client of a loopback address is on this machine, whatever its own address, and so is one whose
/// address is one of this machine's or whose socket the kernel knows. A client on this machine whose user the kernel does not
/// name is refused, for example one that has closed its socket. The user of a client on another machine is unknown.
#[derive(Debug)]
pub struct TcpPort {
    listener: TcpListener,
    addr: SocketAddr,
    speaks: Speaks,
    /// User whose processes on this machine are accepted. None for all.
    user: Option<u32>,
    /// Another user whose client was refused last.
    refused: Cell<Option<u32>>,
    /// Users of clients on this machine. Opened with the port, when a descriptor is free.
    diag: Option<SockDiag>,
    /// The same, for a system without `diag`.
    tables: Option<TableFiles>,
    /// Whether an address is this machine's. Without it all are.
    routes: Option<Routes>,
}

/// A new connection whose client has not been looked up.
struct Pending {
    stream: TcpStream,
    peer: SocketAddr,
    here: SocketAddr,
}

impl TcpPort {
    /// Whether clients on this machine are accepted. That needs a system that reports their users, which Linux does.
    pub const SERVES_THIS_MACHINE: bool = owner::IS_KNOWN;

    /// Listens at `addr` for clients of all protocols. Port 0 is any free one.
    ///
    /// # Errors
    /// The address is in use, or is none of this machine's. A loopback address is refused where clients on this machine are
    /// not accepted.
    pub fn open(addr: SocketAddr) -> Result<TcpPort, ListenError> {
        let open = || {
            if addr.ip().is_loopback() && !TcpPort::SERVES_THIS_MACHINE {
                let why = "this system does not report the users of TCP connections";
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            let listener = TcpListener::bind(addr)?;
            listener.set_nonblocking(true)?;
            // Every rank of a large job connects at the same time.
            rustix::net::listen(&listener, BACKLOG)?;
            let addr = listener.local_addr()?;
            let diag = SockDiag::open(addr).ok();
            // Without a process file system, only clients on other machines are accepted.
            let tables = if diag.is_none() { TableFiles::open().ok() } else { None };
            // All clients of a loopback address are on this machine.
            let routes = if is_loopback(addr.ip()) { None } else { Routes::open().ok() };
            let user = Some(geteuid().as_raw());
            Ok(TcpPort {
                listener,
                addr,
                speaks: Speaks::Any,
                user,
                refused: Cell::new(None),
                diag,
                tables,
                routes,
            })
        };
        open().map_err(|why: io::Error| ListenError { addr, why })
    }

    /// Has clients speak these protocols only.
    #[must_use]
    pub fn for_clients_of(self, speaks: Speaks) -> TcpPort {
        TcpPort { speaks, ..self }
    }

    /// Accepts processes of that user on this machine in place of this process's, or with none those of every user: the
    /// caller authenticates them.
    #[must_use]
    pub fn for_user(self, user: Option<u32>) -> TcpPort {
        TcpPort { user, ..self }
    }

    /// Returns another user whose client was refused since the last call.
    pub fn take_refused(&self) -> Option<u32> {
        self.refused.take()
    }

    /// The address, with the port that the system chose.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the value of `PMI_PORT`: `host:port`. `host` replaces a wildcard address.
    pub fn for_ranks(&self, host: &str) -> String {
        if self.addr.ip().is_unspecified() {
            return format!("{host}:{}", self.addr.port());
        }
        match self.addr.ip() {
            // Clients look for the colon before the port.
            IpAddr::V6(ip) => format!("{ip}:{}", self.addr.port()),
            IpAddr::V4(ip) => format!("{ip}:{}", self.addr.port()),
        }
    }

    /// Accepts pending connections, at most [`ACCEPT_MAX`] at once. Those of other users on this machine are closed. More
    /// may be pending; the port stays readable then.
    ///
    /// # Errors
    /// The process or the system has no descriptor left ([`is_out_of_files`]), or cannot tell the user of a connection. The
    /// caller frees a descriptor, or pauses, see [`hydrant_reactor::Listener`].
    pub fn accept(&self, accepted: &mut Vec<Client>) -> io::Result<()> {
        let mut unchecked = Vec::new();
        let mut result = Ok(());
        for _ in 0..ACCEPT_MAX {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    // A small reply must not wait for the acknowledgement of the one before.
                    if stream.set_nodelay(true).is_err() || enable_keepalive(&stream).is_err() {
                        continue;
                    }
                    let Ok(here) = stream.local_addr() else { continue };
                    let pending = Pending { stream, peer, here };
                    // Another user's connection is closed before the next one is accepted, so that it takes no descriptor.
                    match self.diag.as_ref().map(|diag| diag.owner(peer, here)) {
                        Some(Ok(owner)) => accepted.extend(self.admit(pending, owner)),
                        Some(Err(_)) | None => unchecked.push(pending),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if is_peers(&error) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        if !unchecked.is_empty() {
            let table = match &self.tables {
                Some(files) => files.read()?,
                None => TableFiles::open()?.read()?,
            };
            for pending in unchecked {
                let owner = table.owner(pending.peer, pending.here);
                accepted.extend(self.admit(pending, owner));
            }
        }
        result
    }

    /// Returns a new client, unless it is on this machine and not a process of this user. `owner` is the user of its socket, if
    /// the kernel has such a socket.
    fn admit(&self, pending: Pending, owner: Option<u32>) -> Option<Client> {
        let Pending { stream, peer, here } = pending;
        // Another process may have the addresses of a connection that was reset, so the answer is about this one only if it still
        // stands.
        if owner.is_some() && stream.peer_addr().is_err() {
            return None;
        }
        let is_own = owner.is_some() && owner == self.user;
        let is_refused = match owner {
            Some(_) => self.user.is_some() && !is_own,
            None => self.is_of_this_machine(peer.ip(), here.ip()),
        };
        if is_refused && owner.is_some() {
            self.refused.set(owner);
        }
        (!is_refused).then_some(Client { stream, speaks: self.speaks, user: owner, is_own })
    }

    /// Returns whether a connection whose client's socket the kernel does not have comes from this machine all the same.
    fn is_of_this_machine(&self, peer: IpAddr, here: IpAddr) -> bool {
        is_of_this_machine(peer, here, self.routes.as_ref())
    }
}

/// Returns whether the addresses of a connection say that its peer is on this machine. Without an answer about routes it is.
fn is_of_this_machine(peer: IpAddr, here: IpAddr, routes: Option<&Routes>) -> bool {
    let leads_here = |routes: &Routes| routes.leads_here(peer).unwrap_or(true);
    is_loopback(here) || is_loopback(peer) || routes.is_none_or(leads_here)
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Returns the user of the socket at the other end of a connection, if the kernel has such a socket.
fn owner_of(there: SocketAddr, here: SocketAddr) -> io::Result<Option<u32>> {
    let asked = SockDiag::open(there).and_then(|diag| diag.owner(there, here));
    asked.or_else(|_| Ok(TableFiles::open()?.read()?.owner(there, here)))
}

/// Checks the server at the other end of a connection, which has sent something already. Returns the user of a server on this
/// machine, in words, unless it is this process's user, or root, who may act for this user anyway.
pub fn foreign_server(stream: &TcpStream) -> Option<String> {
    let unknown = || Some("an unknown user".to_owned());
    let (Ok(there), Ok(here)) = (stream.peer_addr(), stream.local_addr()) else { return unknown() };
    match owner_of(there, here).ok().flatten() {
        Some(user) if user == 0 || user == geteuid().as_raw() => None,
        Some(user) => Some(format!("user {user}")),
        None if is_of_this_machine(there.ip(), here.ip(), Routes::open().ok().as_ref()) => unknown(),
        None => None,
    }
}

impl AsFd for TcpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Returns whether an error of `accept` concerns only the pending connection.
fn is_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NetworkDown, NetworkUnreachable};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | NetworkDown | NetworkUnreachable
    )
}

/// Returns whether `accept` failed because the process or the system has no descriptor left.
pub fn is_out_of_files(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE].iter().any(|full| errno == Some(full.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_same_user_is_accepted() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)] {
            let Ok(port) = TcpPort::open(SocketAddr::new(ip, 0)) else {
                assert!(ip.is_ipv6(), "this machine has no IPv4 loopback");
                continue;
            };
            let client = TcpStream::connect(port.addr).unwrap();
            let mut admitted = Vec::new();
            while admitted.is_empty() {
                port.accept(&mut admitted).unwrap();
            }
            assert_eq!(admitted[0].stream.peer_addr().unwrap(), client.local_addr().unwrap());
            assert!(admitted[0].is_own());
        }
    }

    #[test]
    fn the_tables_stand_in_for_netlink() {
        let mut port = TcpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        (port.diag, port.tables) = (None, Some(TableFiles::open().unwrap()));
        for _ in 0..2 {
            let client = TcpStream::connect(port.addr).unwrap();
            let closed = TcpStream::connect(port.addr).unwrap();
            drop(closed);
            let mut admitted = Vec::new();
            port.accept(&mut admitted).unwrap();
            let from: Vec<_> = admitted.iter().map(|client| client.stream.peer_addr().unwrap()).collect();
            assert_eq!(from, [client.local_addr().unwrap()]);
        }
    }

    #[test]
    fn connections_are_accepted_in_batches() {
        let port = TcpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let clients: Vec<_> = (0..=ACCEPT_MAX).map(|_| TcpStream::connect(port.addr).unwrap()).collect();
        for expected in [ACCEPT_MAX, 1, 0] {
            let mut admitted = Vec::new();
            port.accept(&mut admitted).unwrap();
            assert_eq!(admitted.len(), expected);
        }
        drop(clients);
    }

    /// A client that closes before it is accepted would otherwise be taken for root.
    #[test]
    fn a_closed_socket_has_no_user() {
        let port = TcpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let client = TcpStream::connect(port.addr).unwrap();
        drop(client);
        let mut admitted = Vec::new();
        port.accept(&mut admitted).unwrap();
        assert!(admitted.is_empty());
    }

    #[test]
    fn the_host_name_stands_for_all_addresses() {
        let port = TcpPort::open("0.0.0.0:0".parse().unwrap()).unwrap();
        assert_eq!(port.for_ranks("node7"), format!("node7:{}", port.addr.port()));
        let port = TcpPort::open("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(port.for_ranks("node7"), port.addr.to_string());
        let taken = TcpPort::open(port.addr).unwrap_err();
        assert!(taken.to_string().starts_with("cannot listen at 127.0.0.1:"), "{taken}");
    }
}
