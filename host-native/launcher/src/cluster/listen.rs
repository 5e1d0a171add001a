//! Where a node's children connect to, and what stands between the port and a link.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use snow::TransportState;

use super::link::{EMPTY_FRAME, Ends, JobKey, OPENING, Secret, answer, claimed, is_heartbeat, prepare};

/// Connections that may be under way without having shown that they have the secret. A further one takes the place
/// of the oldest, so that whoever keeps silent cannot keep a child out; a child that loses its place comes again.
pub(super) const STRANGERS: usize = 64;
/// How long a connection may take to show it, in milliseconds.
pub(super) const HANDSHAKE_TIMEOUT: u64 = 10_000;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A listening port.
#[derive(Debug)]
pub(super) struct Port {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Port {
    /// Listens at any free port of `ip`.
    pub(super) fn open(ip: IpAddr) -> io::Result<Port> {
        let listener = TcpListener::bind((ip, 0))?;
        listener.set_nonblocking(true)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let addr = listener.local_addr()?;
        Ok(Port { listener, addr })
    }

    /// Where it listens.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes in one connection; nothing where none waits.
    pub(super) fn accept(&self) -> io::Result<Option<TcpStream>> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // Those of a connection that was not to be; what else there is, is the system's want of something.
                Err(error) if is_peers(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Errors of a connection and not of the port: accept(2) passes on what is pending on the connection.
fn is_peers(error: &io::Error) -> bool {
    let own = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EINVAL, libc::EBADF];
    error.raw_os_error().is_none_or(|number| !own.contains(&number))
}

/// A child that is waited for.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    pub(super) job: JobKey,
    pub(super) parent: u32,
    pub(super) secret: &'a Secret,
}

/// A child that has shown that it is the one.
pub(super) struct Admitted {
    pub(super) node: u32,
    pub(super) fd: OwnedFd,
    pub(super) noise: TransportState,
}

/// Connections that have shown nothing yet.
#[derive(Default)]
pub(super) struct Strangers {
    all: Vec<Option<Stranger>>,
}

struct Stranger {
    fd: OwnedFd,
    opened: u64,
    /// What has come of the message that it owes.
    bytes: [u8; OPENING],
    len: usize,
    /// It has been answered as this node, and the proof is to come.
    answered: Option<(u32, Box<TransportState>)>,
}

/// What became of a connection.
enum Step {
    Wait,
    Gone,
    Admitted,
}

impl Strangers {
    /// Takes a connection in, with its number.
    pub(super) fn open(&mut self, stream: TcpStream, now: u64, timeout: u64) -> Option<u32> {
        prepare(&stream, timeout).ok()?;
        let stranger =
            Stranger { fd: stream.into(), opened: now, bytes: [0; OPENING], len: 0, answered: None };
        let free = self.all.iter().position(Option::is_none);
        let at = match free {
            Some(at) => at,
            None if self.all.len() < STRANGERS => {
                self.all.push(None);
                self.all.len() - 1
            }
            None => self.oldest()?.0,
        };
        self.all[at] = Some(stranger);
        Some(at as u32)
    }

    /// The socket of one.
    pub(super) fn fd(&self, id: u32) -> Option<&OwnedFd> {
        self.all.get(id as usize)?.as_ref().map(|stranger| &stranger.fd)
    }

    /// Hears what one has to say. `expected` tells what a child of that number, if it is waited for, has to show.
    pub(super) fn hear<'a>(
        &mut self,
        id: u32,
        expected: impl Fn(u32) -> Option<Expected<'a>>,
    ) -> Option<Admitted> {
        let slot = self.all.get_mut(id as usize)?;
        let step = slot.as_mut()?.step(expected);
        if matches!(step, Step::Wait) {
            return None;
        }
        let stranger = slot.take()?;
        let (node, noise) = stranger.answered?;
        matches!(step, Step::Admitted).then_some(Admitted { node, fd: stranger.fd, noise: *noise })
    }

    /// When the next one has had its time.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.oldest().map(|(_, opened)| opened + HANDSHAKE_TIMEOUT)
    }

    /// Closes those that have had their time.
    pub(super) fn expire(&mut self, now: u64) {
        for slot in &mut self.all {
            if slot.as_ref().is_some_and(|stranger| stranger.opened + HANDSHAKE_TIMEOUT <= now) {
                *slot = None;
            }
        }
    }

    /// Closes one.
    pub(super) fn close(&mut self, id: u32) {
        if let Some(slot) = self.all.get_mut(id as usize) {
            *slot = None;
        }
    }

    /// Closes all.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    fn oldest(&self) -> Option<(usize, u64)> {
        let open = self.all.iter().enumerate();
        open.filter_map(|(at, slot)| Some((at, slot.as_ref()?.opened))).min_by_key(|&(_, opened)| opened)
    }
}

impl Stranger {
    fn step<'a>(&mut self, expected: impl Fn(u32) -> Option<Expected<'a>>) -> Step {
        loop {
            // Not a byte more than what is owed is read, so that nothing has to be kept.
            let owed = if self.answered.is_some() { EMPTY_FRAME } else { OPENING };
            match recv(&self.fd, &mut self.bytes[self.len..owed], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Step::Gone,
                Ok((len, _)) => self.len += len,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Step::Wait,
                Err(_) => return Step::Gone,
            }
            if self.len < owed {
                continue;
            }
            self.len = 0;
            let Some((node, noise)) = &mut self.answered else {
                match self.answer(&expected) {
                    Some(()) => continue,
                    None => return Step::Gone,
                }
            };
            let Some(frame) = self.bytes.first_chunk::<EMPTY_FRAME>() else { return Step::Gone };
            // The child may have come over another connection meanwhile.
            let waited_for = expected(*node).is_some();
            return if waited_for && is_heartbeat(noise, frame) { Step::Admitted } else { Step::Gone };
        }
    }

    fn answer<'a>(&mut self, expected: impl Fn(u32) -> Option<Expected<'a>>) -> Option<()> {
        let node = claimed(&self.bytes)?;
        let Expected { job, parent, secret } = expected(node)?;
        let (noise, bytes) = answer(&Ends { job, parent, child: node }, secret, &self.bytes).ok()?;
        // A fresh socket has room for an answer.
        let sent = send(&self.fd, &bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).ok()?;
        self.answered = Some((node, Box::new(noise)));
        (sent == bytes.len()).then_some(())
    }
}

/// Why there is nothing to listen at.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InterfaceError {
    /// No interface has that name or address.
    #[error("this machine has no network interface {0:?}; there are {there}", there = .1.join(", "))]
    Unknown(String, Vec<String>),
    /// It has no address that anybody could connect to.
    #[error("the network interface {0:?} has no IP address")]
    NoAddress(String),
    /// The system does not tell.
    #[error("cannot list the network interfaces: {0}")]
    System(#[from] io::Error),
}

/// The addresses of the interface of that name, or of that address.
pub(super) fn interface(name: &str) -> Result<Vec<IpAddr>, InterfaceError> {
    let all = interfaces()?;
    if let Ok(ip) = name.parse::<IpAddr>() {
        if all.iter().any(|(_, other)| *other == Some(ip)) {
            return Ok(vec![ip]);
        }
    } else if all.iter().any(|(other, _)| other == name) {
        let of_name = all.iter().filter(|(other, _)| other == name).filter_map(|(_, ip)| *ip);
        let mut ips: Vec<IpAddr> = of_name.filter(|ip| !is_link_local(*ip)).collect();
        // One family is enough, and IPv4 is what everybody has.
        ips.sort_by_key(IpAddr::is_ipv6);
        ips.truncate(1);
        return if ips.is_empty() { Err(InterfaceError::NoAddress(name.to_owned())) } else { Ok(ips) };
    }
    let mut names: Vec<String> = all.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    Err(InterfaceError::Unknown(name.to_owned(), names))
}

/// The addresses from which this machine reaches `hosts`; where that cannot be told, because a host has a name that
/// only ssh understands for instance, also the one from which it reaches the rest of the world.
pub(super) fn towards<'a>(hosts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut ips = Vec::new();
    let mut add = |ip: Option<IpAddr>| {
        let found = ip.is_some();
        ips.extend(ip.filter(|ip| !ips.contains(ip)).into_iter().collect::<Vec<_>>());
        found
    };
    for host in hosts {
        // What asking costs where nobody answers is paid once.
        if !add(route_to_host(host)) {
            add(route(SocketAddr::from(([192, 0, 2, 1], 9))));
            break;
        }
    }
    if ips.is_empty() {
        ips.push(Ipv4Addr::LOCALHOST.into());
    }
    ips
}

/// The address from which this machine reaches one of several.
pub(super) fn towards_addrs(addrs: &[SocketAddr]) -> Vec<IpAddr> {
    vec![addrs.iter().find_map(|&addr| route(addr)).unwrap_or(Ipv4Addr::LOCALHOST.into())]
}

fn route_to_host(host: &str) -> Option<IpAddr> {
    use std::net::ToSocketAddrs;
    // ssh takes USER@HOST.
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    (name, 9).to_socket_addrs().ok()?.find_map(route)
}

/// The address that packets to `addr` would come from. None is sent.
fn route(addr: SocketAddr) -> Option<IpAddr> {
    let any = if addr.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = std::net::UdpSocket::bind(any).ok()?;
    socket.connect(addr).ok()?;
    socket.local_addr().ok().map(|addr| addr.ip()).filter(|ip| !is_link_local(*ip))
}

/// Whether an address means something only beside the name of an interface.
fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// All interfaces by name, each with its addresses in turn.
fn interfaces() -> io::Result<Vec<(String, Option<IpAddr>)>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call stores a list of its own at the pointer that it is given.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all = Vec::new();
    let mut next = list;
    // SAFETY: the list that the call has made is linked by these pointers, the last of which is null; names are
    // NUL-terminated, and an address is null or a `sockaddr` of the size that its family says. It is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: as above.
        let family = unsafe { entry.ifa_addr.as_ref() }.map(|addr| libc::c_int::from(addr.sa_family));
        let ip = match family {
            Some(libc::AF_INET) => {
                // SAFETY: as above; the family says what it is.
                let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                Some(IpAddr::from(addr.sin_addr.s_addr.to_ne_bytes()))
            }
            Some(libc::AF_INET6) => {
                // SAFETY: as above; the family says what it is.
                let addr = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                Some(IpAddr::from(addr.sin6_addr.s6_addr))
            }
            _ => None,
        };
        all.push((name, ip));
        next = entry.ifa_next;
    }
    // SAFETY: the list is the call's, and nothing of it is kept.
    unsafe { libc::freeifaddrs(list) };
    Ok(all)
}

#[cfg(test)]
mod tests;
