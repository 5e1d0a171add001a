//! System calls that FreeBSD and macOS share.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::event::kqueue::{Event, kevent_timespec, kqueue};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{AddressFamily, SocketType, accept, socket};

use crate::process::{Process, Stat};

/// Type of a resource limit.
pub(crate) type RawLimit = libc::rlim_t;

/// Creates a kqueue, closed on exec.
pub(crate) fn new_kqueue() -> Result<OwnedFd, Errno> {
    let kqueue = kqueue()?;
    fcntl_setfd(&kqueue, FdFlags::CLOEXEC)?;
    Ok(kqueue)
}

/// Makes one change to a kqueue.
pub(crate) fn change_kqueue(kqueue: &OwnedFd, change: Event) -> Result<(), Errno> {
    let none: &mut [Event] = &mut [];
    // SAFETY: the system ends the watch of a descriptor that is closed.
    unsafe { kevent_timespec(kqueue, &[change], none, None) }.map(|_| ())
}

/// Fills a buffer of up to 256 bytes with random bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `bytes`.
    let failed = unsafe { libc::getentropy(bytes.as_mut_ptr().cast(), bytes.len()) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the effective user of the peer of a Unix socket.
pub(crate) fn peer_user(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let (mut user, mut group) = (u32::MAX, u32::MAX);
    // SAFETY: both pointers lead to variables of this frame.
    let failed = unsafe { libc::getpeereid(fd.as_raw_fd(), &raw mut user, &raw mut group) };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(user) }
}

/// Returns whether this process is known to have one thread. It is not: the systems count threads in other ways.
pub(crate) fn has_one_thread() -> bool {
    false
}

/// Does nothing: the systems have no such policy.
pub(crate) fn schedule_as_batch() {}

/// Does nothing.
pub(crate) fn set_title(_: &[u8], _: &[&[u8]]) {}

/// Opens a stream socket that does not block.
pub(crate) fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    without_blocking(socket(family, SocketType::STREAM, None)?)
}

/// Accepts a connection that does not block.
pub(crate) fn accept_stream(listener: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    without_blocking(accept(listener)?)
}

fn without_blocking(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

/// Does nothing: the systems have no such option.
pub(crate) fn limit_unacknowledged(_: BorrowedFd<'_>, _: u32) -> Result<(), Errno> {
    Ok(())
}

/// A file of some length without a path. It can grow and shrink.
pub(crate) fn fixed_memory(_name: &CStr, len: u64) -> Result<OwnedFd, Errno> {
    let create = || -> io::Result<File> {
        let mut number = [0; 8];
        fill_random(&mut number)?;
        let path = std::env::temp_dir().join(format!("hydrant-{:016x}", u64::from_ne_bytes(number)));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        file.set_len(len)?;
        Ok(file)
    };
    create().map(OwnedFd::from).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Fails: opening `/dev/fd/N` gives the same description, whose flags other processes share.
pub(crate) fn reopen(_: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// No processes: the systems list them in other ways.
pub(crate) fn processes() -> Vec<Process> {
    Vec::new()
}

/// Not known, as [`processes`].
pub(crate) fn stat(_: i32) -> Option<Stat> {
    None
}

/// Not known, as [`processes`].
pub(crate) fn children() -> Option<Vec<i32>> {
    None
}

/// Not known, as [`processes`].
pub(crate) fn has_variable(_: i32, _: &[u8]) -> bool {
    false
}

/// False: no session is given to child processes here.
pub(crate) fn has_default_action(_: i32, _: libc::c_int) -> bool {
    false
}

/// Not known, as [`processes`].
pub(crate) fn stdin_pipe(_: i32) -> Option<Vec<u8>> {
    None
}

/// Does nothing, as [`processes`] finds none.
pub(crate) fn signal_process(_: &Process, _: libc::c_int) {}

/// Does nothing, as [`processes`] finds none.
pub(crate) fn kill_marked(_: libc::pid_t, _: &[u8]) -> bool {
    false
}

/// Fails: a process stops at the first instruction of a program on Linux only.
pub(crate) fn be_traced() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing, as no process has called [`be_traced`].
pub(crate) fn stop_traced(_: libc::pid_t) {}
