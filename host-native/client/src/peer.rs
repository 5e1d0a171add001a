//! Credentials of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the effective user id of the process that connected, or that listens, at the other end of a Unix socket.
///
/// The id is that of the moment of `connect` or `listen`. `rustix::net::sockopt::socket_peercred` fails for a peer
/// outside of this process's pid namespace, whose pid is reported as 0. This function ignores the pid.
///
/// # Errors
/// Those of `getsockopt(2)` with `SO_PEERCRED`.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, which `peer` is, and `len` is its size; both live for the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(peer.uid) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::process::geteuid;

    use super::peer_user;

    #[test]
    fn the_user_of_the_other_end_is_reported() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(peer_user(&ours).unwrap(), geteuid().as_raw());
        assert!(peer_user(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
