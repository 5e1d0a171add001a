//! Socket options: the user of a Unix socket's peer, keepalive of a TCP connection.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

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
/// `rustix::net::sockopt::socket_peercred` cannot represent a peer outside of this process's pid namespace, whose pid is
/// 0.
///
/// # Errors
/// `fd` is no socket.
pub fn peer_user(fd: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, which `peer` is, and `len` is its size. Both live for the call.
    let failed = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(peer.uid) }
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
