//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The effective user of the process that connected, or that listens.
///
/// rustix's `socket_peercred` cannot hold a peer outside of this process's pid namespace, whose number is 0.
pub(crate) fn user_of(fd: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, which `peer` is, and `len` says its size; both live for the call.
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
