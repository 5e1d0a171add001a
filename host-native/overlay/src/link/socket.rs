//! TCP sockets of links.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use hydrant_reactor::{limit_unacknowledged, stream_socket};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
};
use rustix::net::{AddressFamily, connect};

/// Sets the options of a link's socket, so that the system detects a lost machine. `timeout` is in milliseconds.
pub(crate) fn configure_socket(fd: impl AsFd, timeout: u64) -> Result<(), Errno> {
    let fd = fd.as_fd();
    // A small message must not wait for an acknowledgement.
    set_tcp_nodelay(fd, true)?;
    set_socket_keepalive(fd, true)?;
    let probe = Duration::from_secs((timeout / 4000).max(1));
    set_tcp_keepidle(fd, probe)?;
    set_tcp_keepintvl(fd, probe)?;
    set_tcp_keepcnt(fd, 3)?;
    // Daemons always read from their links, so a window that stays closed means a blocked process.
    limit_unacknowledged(fd, timeout.try_into().unwrap_or(u32::MAX))
}

/// Starts to connect. The socket becomes writable when the connection is made or has failed.
pub(crate) fn start_connect(addr: SocketAddr, timeout: u64) -> Result<OwnedFd, Errno> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = stream_socket(family)?;
    configure_socket(&fd, timeout)?;
    match connect(&fd, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}
