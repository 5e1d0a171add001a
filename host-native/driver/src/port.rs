//! Listening TCP port for PMI clients, and the check of their user on this machine.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use hydrant_reactor::enable_keepalive;
use rustix::net::{SocketAddrAny, getpeername, getsockname};
use rustix::process::geteuid;

use crate::ListenError;

/// Pending connections. The system has a lower limit of its own, usually 4096.
const BACKLOG: i32 = 8192;

/// A listening TCP port.
///
/// A client on this machine is accepted if it is a process of this user. The user of a client on another machine is
/// unknown.
#[derive(Debug)]
pub struct TcpPort {
    listener: TcpListener,
    addr: SocketAddr,
}

impl TcpPort {
    /// Listens at `addr`. Port 0 is any free one.
    ///
    /// # Errors
    /// The address is in use, or is none of this machine's.
    pub fn open(addr: SocketAddr) -> Result<TcpPort, ListenError> {
        let open = || {
            let listener = TcpListener::bind(addr)?;
            listener.set_nonblocking(true)?;
            // Every rank of a large job connects at the same time.
            rustix::net::listen(&listener, BACKLOG)?;
            let addr = listener.local_addr()?;
            Ok(TcpPort { listener, addr })
        };
        open().map_err(|why: io::Error| ListenError { addr, why })
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

    /// Accepts all pending connections. Those of other users on this machine are closed.
    ///
    /// # Errors
    /// The process or the system has no descriptor left. The caller pauses then, see [`hydrant_reactor::Listener`].
    pub fn accept(&self, accepted: &mut Vec<TcpStream>) -> io::Result<()> {
        let mut local = Vec::new();
        let result = loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    // A small reply must not wait for the acknowledgement of the one before.
                    if stream.set_nodelay(true).is_err() || enable_keepalive(&stream).is_err() {
                        continue;
                    }
                    match stream.local_addr() {
                        Ok(here) if is_local(peer.ip(), here.ip()) => local.push((stream, peer, here)),
                        Ok(_) => accepted.push(stream),
                        Err(_) => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if is_peers(&error) => {}
                Err(error) => break Err(error),
            }
        };
        if !local.is_empty() {
            let table = Table::read()?;
            let me = geteuid().as_raw();
            let mine =
                |&(_, peer, here): &(TcpStream, SocketAddr, SocketAddr)| table.owner(peer, here) == Some(me);
            accepted.extend(local.into_iter().filter(mine).map(|(stream, ..)| stream));
        }
        result
    }
}

impl AsFd for TcpPort {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Returns whether both ends of a TCP connection are on this machine.
pub(crate) fn is_local_connection(socket: impl AsFd) -> bool {
    let ip = |addr: SocketAddrAny| SocketAddr::try_from(addr).ok().map(|addr| addr.ip());
    let peer = getpeername(&socket).ok().flatten().and_then(ip);
    let here = getsockname(&socket).ok().and_then(ip);
    peer.zip(here).is_some_and(|(peer, here)| is_local(peer, here))
}

/// Returns whether the peer is on this machine, so that the system can report its user.
fn is_local(peer: IpAddr, here: IpAddr) -> bool {
    peer.to_canonical().is_loopback() || peer.to_canonical() == here.to_canonical()
}

/// Returns whether an error of `accept` concerns only the pending connection.
fn is_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NetworkDown, NetworkUnreachable};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | NetworkDown | NetworkUnreachable
    )
}

/// The system's table of TCP sockets.
struct Table(String);

impl Table {
    fn read() -> io::Result<Table> {
        let mut text = std::fs::read_to_string("/proc/net/tcp")?;
        // The file is missing if IPv6 is disabled.
        text.push_str(&std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default());
        Ok(Table(text))
    }

    /// Returns the user whose socket is connected from `local` to `remote`. A closed socket has no user.
    fn owner(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let (local, remote) = (hex(local), hex(remote));
        self.0.lines().find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            // Then state, queues, timer and retransmissions.
            (fields.next()? == local && fields.next()? == remote).then_some(())?;
            let user = fields.nth(4)?.parse().ok()?;
            // Then a timeout, and the inode. A closed socket has none, and is listed as root's.
            (fields.nth(1)? != "0").then_some(user)
        })
    }
}

/// An address in the table's format: each 32-bit word of the address in the machine's byte order, then the port.
fn hex(addr: SocketAddr) -> String {
    let words = |octets: &[u8]| -> String {
        let word = |c: &[u8]| u32::from_ne_bytes([c[0], c[1], c[2], c[3]]);
        octets.chunks_exact(4).map(|chunk| format!("{:08X}", word(chunk))).collect()
    };
    let ip = match addr.ip() {
        IpAddr::V4(ip) => words(&ip.octets()),
        IpAddr::V6(ip) => words(&ip.octets()),
    };
    format!("{ip}:{:04X}", addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
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
            assert_eq!(admitted[0].peer_addr().unwrap(), client.local_addr().unwrap());
        }
    }

    #[test]
    fn the_table_names_the_user_of_a_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let table = Table::read().unwrap();
        let (from, to) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
        assert_eq!(table.owner(from, to), Some(geteuid().as_raw()));
        assert_eq!(table.owner(to, SocketAddr::from(([127, 0, 0, 1], 1))), None);
        drop(listener.accept().unwrap());
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn foreign_sockets_are_recognised() {
        let text = "\
            1: 0100007F:9C4A 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 657748 2\n\
            2: 0100007F:9C4B 0100007F:1F90 05 00000000:00000000 03:0000175A 00000000     0        0 0 3\n";
        let table = Table(text.to_owned());
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!(table.owner(at(0x9C4A), at(0x1F90)), Some(1001));
        assert_eq!(table.owner(at(0x1F90), at(0x9C4A)), None);
        assert_eq!(table.owner(at(0x9C4B), at(0x1F90)), None, "the user is unknown, not root");
    }

    /// A client that closes before it is accepted would otherwise be taken for root.
    #[test]
    fn a_closed_socket_has_no_user() {
        let port = TcpPort::open(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let client = TcpStream::connect(port.addr).unwrap();
        let from = client.local_addr().unwrap();
        drop(client);
        assert_eq!(Table::read().unwrap().owner(from, port.addr), None);
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
