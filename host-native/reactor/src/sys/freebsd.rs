//! System calls of FreeBSD.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::{set_parent_process_death_signal, set_reaper_status};

/// Number of the last signal.
pub(crate) const SIGNALS: c_int = 128;
/// Flag of a mapping whose memory is not reserved. No mapping is.
pub(crate) const NORESERVE: c_int = 0;
/// Flag of `send` that prevents SIGPIPE.
pub(crate) const NO_SIGPIPE: SendFlags = SendFlags::NOSIGNAL;

/// Marks every descriptor above standard error close-on-exec.
pub(crate) fn mark_close_on_exec() -> io::Result<()> {
    // SAFETY: the call takes three numbers and changes a flag of descriptors only.
    let done = unsafe { libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as c_int) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Closes the descriptors from `first` to `last`. Safe in a child process after `fork`.
///
/// # Safety
/// No descriptor of the range is used afterwards.
pub(crate) unsafe fn close_range(first: u32, last: u32) {
    // SAFETY: the caller gives the descriptors up.
    unsafe { libc::close_range(first, last, 0) };
}

/// Has the system kill this process when its parent ends. Safe in a child process after `fork`.
pub(crate) fn die_with_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// Undoes [`die_with_parent`].
pub(crate) fn outlive_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Makes this process the parent of the children that its child processes leave behind.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_reaper_status(true)?)
}

/// Does nothing: a process may trace any process of its user.
pub(crate) fn allow_tracing(_: libc::pid_t) {}

/// Does nothing: [`NO_SIGPIPE`] suffices.
pub(crate) fn ignore_sigpipe(_: BorrowedFd<'_>) -> Result<(), Errno> {
    Ok(())
}
