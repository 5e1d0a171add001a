//! The TCP connections under links.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
    set_tcp_user_timeout,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

/// Has the system notice that the machine at the other end is gone, whoever would have had to speak next. `timeout`
/// is in milliseconds.
pub(crate) fn prepare(fd: impl AsFd, timeout: u64) -> Result<(), Errno> {
    let fd = fd.as_fd();
    // A small message must not wait for the acknowledgement of the one before.
    set_tcp_nodelay(fd, true)?;
    set_socket_keepalive(fd, true)?;
    let probe = Duration::from_secs((timeout / 4000).max(1));
    set_tcp_keepidle(fd, probe)?;
    set_tcp_keepintvl(fd, probe)?;
    set_tcp_keepcnt(fd, 3)?;
    // Daemons read from their links whatever they do otherwise, so a window that stays shut is a stuck process.
    set_tcp_user_timeout(fd, timeout.try_into().unwrap_or(u32::MAX))
}

/// Begins to connect. The socket is writable when that is done, and its error says how it went.
pub(crate) fn start_connect(addr: SocketAddr, timeout: u64) -> Result<OwnedFd, Errno> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    prepare(&fd, timeout)?;
    match connect(&fd, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}
