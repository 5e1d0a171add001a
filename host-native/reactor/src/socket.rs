//! Sockets and pipes: their start, the user of a Unix socket's peer, keepalive of a TCP connection.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use rustix::net::{AddressFamily, SendFlags};

use crate::sys;

/// Flag of `send`: a closed connection is an error and no SIGPIPE. macOS has a socket option instead, see
/// [`ignore_sigpipe`].
pub const NO_SIGPIPE: SendFlags = sys::NO_SIGPIPE;

/// Has a send on a closed connection fail without SIGPIPE where [`NO_SIGPIPE`] does not. For libraries: a Rust program ignores
/// the signal.
///
/// # Errors
/// `fd` is no socket.
pub fn ignore_sigpipe(fd: impl AsFd) -> Result<(), Errno> {
    sys::ignore_sigpipe(fd.as_fd())
}

/// Progress of a write to a non-blocking socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Everything is written.
    All,
    /// The socket is full. The rest is kept.
    Blocked,
}

/// Returns the effective user id of the process at the other end of a Unix socket, whether it connected or listens.
///
/// # Errors
/// `fd` is no socket.
pub fn peer_user(fd: impl AsFd) -> io::Result<u32> {
    sys::peer_user(fd.as_fd())
}

/// Opens a stream socket that does not block, closed on exec.
///
/// # Errors
/// The process or the system has no descriptor left.
pub fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    sys::stream_socket(family)
}

/// Accepts a connection of a listening socket. It does not block and is closed on exec.
///
/// # Errors
/// As `accept(2)`.
pub fn accept_stream(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    sys::accept_stream(listener.as_fd())
}

/// Opens a pipe, closed on exec. Returns its read end and its write end, which block.
///
/// # Errors
/// The process or the system has no descriptor left.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = io::pipe().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok((read.into(), write.into()))
}

/// Ends a TCP connection whose sent bytes are not acknowledged within `timeout` milliseconds. Does nothing on FreeBSD and
/// macOS, which have no such option.
///
/// # Errors
/// `fd` is no TCP socket.
pub fn limit_unacknowledged(fd: impl AsFd, timeout: u32) -> Result<(), Errno> {
    sys::limit_unacknowledged(fd.as_fd(), timeout)
}

/// Enables keep-alive, so that the system detects within 30 s that the machine at the other end is unreachable.
///
/// # Errors
/// The system refuses an option.
pub fn enable_keepalive(stream: &TcpStream) -> io::Result<()> {
    set_socket_keepalive(stream, true)?;
    set_tcp_keepidle(stream, Duration::from_secs(15))?;
    set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    Ok(set_tcp_keepcnt(stream, 3)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_user() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(&one).unwrap(), rustix::process::geteuid().as_raw());
        assert!(peer_user(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
