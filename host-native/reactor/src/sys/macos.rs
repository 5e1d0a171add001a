//! System calls of macOS.

use std::ffi::c_int;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;

/// Number of the last signal.
pub(crate) const SIGNALS: c_int = 31;
/// Flag of a mapping whose memory is not reserved.
pub(crate) const NORESERVE: c_int = libc::MAP_NORESERVE;
/// No flag: [`ignore_sigpipe`] sets an option.
pub(crate) const NO_SIGPIPE: SendFlags = SendFlags::empty();

/// Marks every descriptor above standard error close-on-exec.
pub(crate) fn mark_close_on_exec() -> io::Result<()> {
    for fd in descriptors(3, u32::MAX) {
        // SAFETY: the call sets a flag, and fails on a number that is not open.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    Ok(())
}

/// Closes the descriptors from `first` to `last`. Safe in a child process after `fork`.
///
/// # Safety
/// No descriptor of the range is used afterwards.
pub(crate) unsafe fn close_range(first: u32, last: u32) {
    for fd in descriptors(first, last) {
        // SAFETY: the caller gives the descriptors up.
        unsafe { libc::close(fd) };
    }
}

/// The numbers from `first` to `last` that descriptors of this process may have.
fn descriptors(first: u32, last: u32) -> Range<c_int> {
    // SAFETY: the call has no arguments and no effect.
    let limit = unsafe { libc::getdtablesize() };
    let end = c_int::try_from(last).unwrap_or(c_int::MAX).saturating_add(1).min(limit);
    c_int::try_from(first).unwrap_or(c_int::MAX)..end
}

/// Does nothing: the system has no such setting. The guardian kills the processes of ranks.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(())
}

/// Does nothing, as [`die_with_parent`].
pub(crate) fn outlive_parent() -> io::Result<()> {
    Ok(())
}

/// Does nothing: `launchd` adopts the children that child processes leave behind.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

/// Does nothing: a process may trace those of its user that their signature permits.
pub(crate) fn allow_tracing(_: libc::pid_t) {}

/// Has a send on a closed connection fail without SIGPIPE.
pub(crate) fn ignore_sigpipe(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::net::sockopt::set_socket_nosigpipe(fd, true)
}
