//! User that owns a TCP socket, on Linux: from the kernel's socket monitoring (`sock_diag(7)`), or from `/proc/net/tcp`.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

/// Whether the system reports users.
pub(crate) const IS_KNOWN: bool = true;

/// Message type `SOCK_DIAG_BY_FAMILY`, of the request and of its reply.
const BY_FAMILY: u16 = 20;
/// Message type `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// Flag `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Length of a request: the header and `struct inet_diag_req_v2`.
const QUERY: usize = HEADER + 8 + ID;
/// Length of `struct inet_diag_sockid`.
const ID: usize = 48;
/// Length of a reply without attributes: the header and `struct inet_diag_msg`.
const REPLY: usize = HEADER + 4 + ID + 20;

/// Message type `RTM_GETROUTE`.
const GET_ROUTE: u16 = 26;
/// Message type `RTM_NEWROUTE`, of the reply.
const NEW_ROUTE: u16 = 24;
/// Attribute `RTA_DST`.
const DESTINATION: u16 = 1;
/// Type of the routes to this machine's own addresses, `RTN_LOCAL`.
const LOCAL_ROUTE: u8 = 2;
/// Length of `struct rtmsg`.
const ROUTE: usize = 12;

/// A netlink socket that asks for routes.
#[derive(Debug)]
pub(crate) struct Routes {
    fd: OwnedFd,
}

impl Routes {
    /// Opens the netlink socket.
    ///
    /// # Errors
    /// The system does not grant one to this process.
    pub(crate) fn open() -> io::Result<Routes> {
        // The protocol of routes, `NETLINK_ROUTE`, is number 0.
        Ok(Routes { fd: kernel_socket(None)? })
    }

    /// Returns whether an address is one of this machine (of this network namespace), as the kernel routes it.
    ///
    /// # Errors
    /// The system did not answer.
    pub(crate) fn leads_here(&self, ip: IpAddr) -> io::Result<bool> {
        send(&self.fd, &route_query(ip.to_canonical()), SendFlags::empty())?;
        let mut reply = [0; 1024];
        let (len, _) = recv(&self.fd, &mut reply[..], RecvFlags::DONTWAIT)?;
        read_route(&reply[..len])
    }
}

/// Opens a netlink socket that receives messages of the kernel only.
fn kernel_socket(protocol: Option<Protocol>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
    connect(&fd, &SocketAddrNetlink::new(0, 0))?;
    Ok(fd)
}

/// Encodes the request for the route to an address.
fn route_query(ip: IpAddr) -> Vec<u8> {
    let (family, address) = match ip {
        IpAddr::V4(ip) => (AF_INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AF_INET6, ip.octets().to_vec()),
    };
    let attribute = 4 + address.len();
    let len = HEADER + ROUTE + attribute;
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(GET_ROUTE.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    // Sequence number and port.
    bytes.extend([0; 8]);
    let bits = 8 * address.len() as u8;
    bytes.extend([family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend((attribute as u16).to_ne_bytes());
    bytes.extend(DESTINATION.to_ne_bytes());
    bytes.extend(address);
    bytes
}

/// Decodes a reply: whether the route leads to this machine. An address without a route is none of this machine's.
fn read_route(bytes: &[u8]) -> io::Result<bool> {
    let kind = bytes.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match kind {
        Some(NEW_ROUTE) if bytes.len() >= HEADER + ROUTE => Ok(bytes[HEADER + 7] == LOCAL_ROUTE),
        Some(ERROR) => {
            let code = bytes.get(HEADER..HEADER + 4).ok_or(io::ErrorKind::InvalidData)?;
            let code = i32::from_ne_bytes([code[0], code[1], code[2], code[3]]);
            match Errno::from_raw_os_error(code.wrapping_neg()) {
                Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS | Errno::INVAL => Ok(false),
                // A system without IPv6 has no such address.
                Errno::AFNOSUPPORT | Errno::OPNOTSUPP => Ok(false),
                errno => Err(errno.into()),
            }
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A netlink socket that queries one TCP socket at a time.
#[derive(Debug)]
pub(crate) struct SockDiag {
    fd: OwnedFd,
}

impl SockDiag {
    /// Opens the netlink socket, and queries the listening socket at `listener` to learn whether the system answers.
    ///
    /// # Errors
    /// The system has no socket monitoring, or does not grant it to this process.
    pub(crate) fn open(listener: SocketAddr) -> io::Result<SockDiag> {
        let diag = SockDiag { fd: kernel_socket(Some(SOCK_DIAG))? };
        let (address, peer) = match listener.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()),
            IpAddr::V4(ip) => (IpAddr::V4(ip), Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            IpAddr::V6(ip) => (IpAddr::V6(ip), Ipv6Addr::LOCALHOST.into()),
        };
        // No socket is connected to port 0, so the kernel finds the listener.
        let listener = SocketAddr::new(address, listener.port());
        match diag.query(listener, SocketAddr::new(peer, 0))? {
            Some(_) => Ok(diag),
            None => Err(Errno::OPNOTSUPP.into()),
        }
    }

    /// Returns the user whose socket is connected from `local` to `remote`. A closed socket has no user.
    ///
    /// # Errors
    /// The system did not answer.
    pub(crate) fn owner(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
        // The kernel finds a link-local address by its scope.
        let found = self.query(unmapped(local), unmapped(remote))?;
        let (local, remote) = (canonical(local), canonical(remote));
        // Without such a connection the kernel reports a listener at `local`.
        let found = found.filter(|found| found.local == local && found.remote == remote);
        // A closed socket has no inode, and counts as root's.
        Ok(found.filter(|found| found.inode != 0).map(|found| found.user))
    }

    fn query(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Found>> {
        send(&self.fd, &query(local, remote), SendFlags::empty())?;
        // The kernel answers before `send` returns. Room for attributes that were not asked for.
        let mut reply = [0; 1024];
        let (len, _) = recv(&self.fd, &mut reply[..], RecvFlags::DONTWAIT)?;
        read_reply(&reply[..len])
    }
}

/// A socket in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    local: SocketAddr,
    remote: SocketAddr,
    user: u32,
    inode: u32,
}

/// Encodes the request for one socket.
fn query(local: SocketAddr, remote: SocketAddr) -> [u8; QUERY] {
    let mut bytes = [0; QUERY];
    bytes[..4].copy_from_slice(&(QUERY as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    let body = &mut bytes[HEADER..];
    body[0] = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    body[1] = IPPROTO_TCP;
    // All states.
    body[4..8].fill(0xff);
    let id = &mut body[8..];
    id[..2].copy_from_slice(&local.port().to_be_bytes());
    id[2..4].copy_from_slice(&remote.port().to_be_bytes());
    for (at, ip) in [(4, local.ip()), (20, remote.ip())] {
        match ip {
            IpAddr::V4(ip) => id[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => id[at..at + 16].copy_from_slice(&ip.octets()),
        }
    }
    // A link-local address is one of an interface.
    if let SocketAddr::V6(local) = local {
        id[36..40].copy_from_slice(&local.scope_id().to_ne_bytes());
    }
    // No cookie: any socket of these addresses.
    id[40..].fill(0xff);
    bytes
}

/// Decodes a reply. Returns none if there is no such socket.
fn read_reply(bytes: &[u8]) -> io::Result<Option<Found>> {
    let word = |at: usize| {
        bytes.get(at..at + 4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
    };
    let kind = bytes.get(4..6).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    match (kind, word(HEADER)) {
        (Some(ERROR), Some(code)) => match Errno::from_raw_os_error((code as i32).wrapping_neg()) {
            Errno::NOENT => Ok(None),
            errno => Err(errno.into()),
        },
        (Some(BY_FAMILY), _) if bytes.len() >= REPLY => {
            let (family, id) = (bytes[HEADER], &bytes[HEADER + 4..][..ID]);
            let address = |port: usize, at: usize| {
                let ip = match family {
                    AF_INET => IpAddr::from(<[u8; 4]>::try_from(&id[at..at + 4]).expect("four bytes")),
                    _ => IpAddr::from(<[u8; 16]>::try_from(&id[at..at + 16]).expect("sixteen bytes")),
                };
                canonical(SocketAddr::new(ip, u16::from_be_bytes([id[port], id[port + 1]])))
            };
            let numbers = HEADER + 4 + ID;
            let number = |at| word(numbers + at).expect("the length was checked");
            let (local, remote) = (address(0, 4), address(2, 20));
            Ok(Some(Found { local, remote, user: number(12), inode: number(16) }))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Address whose IPv4 address in IPv6 form has become IPv4.
fn unmapped(addr: SocketAddr) -> SocketAddr {
    match addr.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), addr.port()),
        IpAddr::V6(_) => addr,
    }
}

/// Address as the kernel's tables have it: [`unmapped`], without a scope.
fn canonical(addr: SocketAddr) -> SocketAddr {
    match unmapped(addr) {
        SocketAddr::V6(addr) => SocketAddrV6::new(*addr.ip(), addr.port(), 0, 0).into(),
        addr => addr,
    }
}

/// The files `/proc/net/tcp` and `/proc/net/tcp6`, for systems without socket monitoring.
#[derive(Debug)]
pub(crate) struct TableFiles(Vec<File>);

impl TableFiles {
    /// Opens the files. The second one is missing if IPv6 is disabled.
    ///
    /// # Errors
    /// The system has no such file, or the process no descriptor left.
    pub(crate) fn open() -> io::Result<TableFiles> {
        let mut files = vec![File::open("/proc/net/tcp")?];
        files.extend(File::open("/proc/net/tcp6").ok());
        Ok(TableFiles(files))
    }

    /// Reads the present state.
    ///
    /// # Errors
    /// The system cannot read the files.
    pub(crate) fn read(&self) -> io::Result<Table> {
        let mut text = String::new();
        for mut file in &self.0 {
            file.rewind()?;
            file.read_to_string(&mut text)?;
        }
        Ok(Table(text))
    }
}

/// The system's table of TCP sockets.
pub(crate) struct Table(String);

impl Table {
    /// Returns the user whose socket is connected from `local` to `remote`. A closed socket has no user.
    pub(crate) fn owner(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let (local, remote) = (canonical(local), canonical(remote));
        // A socket of IPv6 may be connected between addresses of IPv4.
        self.find(local, remote).or_else(|| self.find(mapped(local)?, mapped(remote)?))
    }

    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
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

/// The IPv6 form of an IPv4 address.
fn mapped(addr: SocketAddr) -> Option<SocketAddr> {
    match addr.ip() {
        IpAddr::V4(ip) => Some(SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port())),
        IpAddr::V6(_) => None,
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
    use std::net::{TcpListener, TcpStream};

    use rustix::process::geteuid;

    use super::*;

    /// Answers of both sources about the socket connected from `local` to `remote`.
    fn owners(diag: &SockDiag, local: SocketAddr, remote: SocketAddr) -> [Option<u32>; 2] {
        let table = TableFiles::open().unwrap().read().unwrap();
        [diag.owner(local, remote).unwrap(), table.owner(local, remote)]
    }

    // Fault: A client closes its connection before its user is looked up
    // Outcome: it is refused
    // Guarantee: The kernel lists a closed socket as root's. It has no user here
    #[test]
    fn the_user_of_a_socket_is_known_until_it_is_closed() {
        for ip in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let Ok(listener) = TcpListener::bind((ip, 0)) else {
                assert!(ip.is_ipv6(), "this machine has no IPv4 loopback");
                continue;
            };
            let to = listener.local_addr().unwrap();
            let diag = SockDiag::open(to).unwrap();
            let client = TcpStream::connect(to).unwrap();
            let from = client.local_addr().unwrap();
            assert_eq!(owners(&diag, from, to), [Some(geteuid().as_raw()); 2]);
            let unused = SocketAddr::new(ip, 1);
            assert_eq!(owners(&diag, unused, to), [None; 2]);
            // A listener is no client, although the kernel finds it for any remote address.
            assert_eq!(owners(&diag, to, unused), [None; 2]);
            drop(client);
            assert_eq!(owners(&diag, from, to), [None; 2], "a closed socket counts as root's in the kernel");
        }
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        let routes = Routes::open().unwrap();
        let leads_here = |ip: &str| routes.leads_here(ip.parse().unwrap()).unwrap();
        assert!(leads_here("127.0.0.1") && leads_here("127.9.9.9") && leads_here("::ffff:127.0.0.1"));
        // Reserved for documentation.
        assert!(!leads_here("192.0.2.77") && !leads_here("2001:db8::77"));
    }

    #[test]
    fn an_ipv4_client_of_an_ipv6_port_is_found() {
        let Ok(listener) = TcpListener::bind("[::]:0") else { return };
        let port = listener.local_addr().unwrap().port();
        let diag = SockDiag::open(listener.local_addr().unwrap()).unwrap();
        for address in ["127.0.0.1", "::ffff:127.0.0.1"] {
            let client = TcpStream::connect((address, port)).unwrap();
            let (accepted, from) = listener.accept().unwrap();
            let to = accepted.local_addr().unwrap();
            assert_eq!(owners(&diag, from, to), [Some(geteuid().as_raw()); 2], "{address}");
            drop(client);
        }
    }

    #[test]
    fn only_the_lack_of_a_route_says_that_an_address_is_elsewhere() {
        let mut reply = route_query(Ipv4Addr::LOCALHOST.into());
        reply[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        for (errno, elsewhere) in [(Errno::NETUNREACH, true), (Errno::PERM, false), (Errno::BUSY, false)] {
            reply[HEADER..HEADER + 4].copy_from_slice(&(-errno.raw_os_error()).to_ne_bytes());
            assert_eq!(read_route(&reply).is_ok_and(|leads_here| !leads_here), elsewhere, "{errno}");
        }
        assert!(read_route(&reply[..HEADER + 3]).is_err(), "too short");
    }

    #[test]
    fn a_reply_that_is_none_is_an_error() {
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut reply = query(at(1), at(2)).to_vec();
        assert!(read_reply(&reply).is_err(), "too short");
        reply.resize(REPLY, 0);
        assert!(read_reply(&reply).is_ok_and(|found| found.is_some()));
        for len in 0..HEADER {
            assert!(read_reply(&reply[..len]).is_err());
        }
        reply[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        for (code, is_none) in [(-2i32, true), (-1, false)] {
            reply[HEADER..HEADER + 4].copy_from_slice(&code.to_ne_bytes());
            assert_eq!(read_reply(&reply).is_ok_and(|found| found.is_none()), is_none);
        }
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
}
