//! System calls of Linux.

use std::ffi::{CStr, CString, c_char, c_int, c_long};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::ptr;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, open};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_user_timeout;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, accept_with, socket_with};
use rustix::process::{getpid, set_child_subreaper, set_parent_process_death_signal};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::process::{Process, Stat, below};

/// Number of the last signal.
pub(crate) const SIGNALS: c_int = 64;
/// Flag of a mapping whose memory is not reserved.
pub(crate) const NORESERVE: c_int = libc::MAP_NORESERVE;
/// Flag of `send` that prevents SIGPIPE.
pub(crate) const NO_SIGPIPE: SendFlags = SendFlags::NOSIGNAL;
/// Type of a resource limit.
pub(crate) type RawLimit = libc::rlim_t;

/// Fills a buffer with random bytes. A buffer of up to 256 bytes is filled as a whole.
pub(crate) fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let filled = getrandom(&mut *bytes, GetRandomFlags::empty())?;
    if filled == bytes.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Returns the effective user of the peer of a Unix socket.
///
/// `rustix::net::sockopt::socket_peercred` cannot represent a peer outside of this process's pid namespace, whose pid is
/// 0.
pub(crate) fn peer_user(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, which `peer` is, and `len` is its size. Both live for the call.
    let failed = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    if failed != 0 { Err(io::Error::last_os_error()) } else { Ok(peer.uid) }
}

/// Opens a stream socket that does not block.
pub(crate) fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

/// Accepts a connection that does not block.
pub(crate) fn accept_stream(listener: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Ends a TCP connection whose sent bytes are not acknowledged for some milliseconds.
pub(crate) fn limit_unacknowledged(fd: BorrowedFd<'_>, timeout: u32) -> Result<(), Errno> {
    set_tcp_user_timeout(fd, timeout)
}

/// Opens the file of a descriptor once more, for writing without waiting.
pub(crate) fn reopen(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(path, flags, Mode::empty())
}

/// Creates a file in memory without a path. It is empty, can be sealed, and is close-on-exec. `name` appears in
/// `/proc/PID/maps`.
///
/// # Errors
/// That of the system.
pub fn memfd(name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(name, flags),
        result => result,
    }
}

/// Memory of fixed size as a file: a process that writes more gets an error.
pub(crate) fn fixed_memory(name: &CStr, len: u64) -> Result<OwnedFd, Errno> {
    let memory = memfd(name)?;
    ftruncate(&memory, len)?;
    fcntl_add_seals(&memory, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(memory)
}

/// Marks every descriptor above standard error close-on-exec.
pub(crate) fn mark_close_on_exec() -> io::Result<()> {
    // SAFETY: the call takes three numbers and changes a flag of descriptors only.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 {
        return Ok(());
    }
    // Before Linux 5.11.
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let Some(fd) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()).filter(|&fd| fd > 2) else {
            continue;
        };
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
    // SAFETY: the caller gives the descriptors up.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}

/// Has the system kill this process when its parent ends. Safe in a child process after `fork`.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives this process the scheduling policy `SCHED_BATCH` in place of `SCHED_OTHER`. Another policy stays, also where the system
/// forbids the change. Safe in a child process after `fork`. musl's functions for these calls always fail.
pub(crate) fn schedule_as_batch() {
    let priority: c_int = 0;
    // SAFETY: the first call takes a number, and the second a pointer to a `sched_param`, which is the priority alone.
    unsafe {
        if libc::syscall(libc::SYS_sched_getscheduler, 0) == c_long::from(libc::SCHED_OTHER) {
            libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &raw const priority);
        }
    }
}

/// Has the system stop this process at the first instruction of the program that it runs next, for its parent.
pub(crate) fn be_traced() -> io::Result<()> {
    let none = ptr::null_mut::<libc::c_void>();
    // SAFETY: the call takes a number. The others are unused.
    let done = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Leaves a child process stopped as by `SIGSTOP` that has called [`be_traced`] and runs its program. Does nothing if the child has
/// been killed.
pub(crate) fn stop_traced(pid: libc::pid_t) {
    if await_change(pid) == Some(libc::CLD_TRAPPED) {
        let (none, signal) = (ptr::null_mut::<libc::c_void>(), libc::SIGSTOP as usize);
        // SAFETY: the call takes numbers. The child is this process's and stopped, so it can be detached from.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, none, signal) };
        // A `SIGCONT` before the child has stopped would have no effect.
        await_change(pid);
    }
}

/// Waits until a child process is stopped, continued or has ended, which stays to be collected. Returns which of these.
fn await_change(pid: libc::pid_t) -> Option<c_int> {
    let mut state = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOWAIT;
    // SAFETY: the call writes to `state`.
    let waited = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, state.as_mut_ptr(), options) };
    // SAFETY: all zeros is a valid value, and the call has written it.
    (waited == 0).then(|| unsafe { state.assume_init() }.si_code)
}

/// Undoes [`die_with_parent`].
pub(crate) fn outlive_parent() -> io::Result<()> {
    Ok(set_parent_process_death_signal(None)?)
}

/// Returns whether this process has one thread. Without `/proc` the answer is no.
pub(crate) fn has_one_thread() -> bool {
    // The directory has an entry for each thread, and its own two links.
    std::fs::metadata("/proc/self/task").is_ok_and(|tasks| tasks.nlink() == 3)
}

unsafe extern "C" {
    /// The first argument of this process, where the kernel has put it. glibc and musl have this variable.
    static mut program_invocation_name: *mut c_char;
}

/// Shows other arguments and another name for this process.
pub(crate) fn set_title(program: &[u8], args: &[&[u8]]) {
    let name = program.rsplit(|&byte| byte == b'/').next().unwrap_or(program);
    if let Ok(name) = CString::new(name) {
        // SAFETY: the call reads a string, of which it takes the first 15 bytes.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
    // The kernel has put the arguments one behind the other.
    let mut present = std::env::args_os();
    let Some(first) = present.next() else { return };
    let room = present.fold(first.len() + 1, |room, arg| room + arg.len() + 1);
    let mut text: Vec<u8> = Vec::with_capacity(room);
    for word in std::iter::once(program).chain(args.iter().copied()) {
        text.extend_from_slice(word);
        text.push(0);
    }
    // SAFETY: the C library sets the variable before `main`, and nothing in this program writes it.
    let start = unsafe { program_invocation_name };
    // SAFETY: as above: it is null or a string.
    if text.len() > room || start.is_null() || unsafe { CStr::from_ptr(start) }.to_bytes() != first.as_bytes()
    {
        return;
    }
    text.resize(room, 0);
    // SAFETY: the arguments are memory of this process that it may write, `room` bytes from the first on. The standard
    // library copies them when it is asked for them, so no reference leads there.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), start.cast(), room) };
}

/// Makes this process the parent of the children that its child processes leave behind.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Allows a process and those that it starts to trace this one (Yama). Safe in a child process after `fork`.
pub(crate) fn allow_tracing(tracer: libc::pid_t) {
    // SAFETY: the call takes two numbers. A kernel without Yama refuses, and needs no permission.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, tracer) };
}

/// Does nothing: [`NO_SIGPIPE`] suffices.
pub(crate) fn ignore_sigpipe(_: BorrowedFd<'_>) -> Result<(), Errno> {
    Ok(())
}

/// All processes that `/proc` lists. Those that end meanwhile may be missing.
pub(crate) fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(process).collect()
}

/// The process of this number.
fn process(pid: i32) -> Option<Process> {
    let stat = stat(pid)?;
    let is_zombie = stat.is_zombie();
    let Stat { name, parent, group, start, .. } = stat;
    Some(Process { pid, parent, group, start, name, is_zombie })
}

/// State and counters of the process of this number.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    Stat::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The children of this process. None if the kernel does not list them.
pub(crate) fn children() -> Option<Vec<i32>> {
    let path = format!("/proc/self/task/{}/children", getpid().as_raw_nonzero());
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// Whether the environment of a process has a variable, as `NAME=VALUE`.
pub(crate) fn has_variable(pid: i32, variable: &[u8]) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|own| own == variable)
}

/// Whether a process neither catches nor ignores a signal. False for a process that has ended.
pub(crate) fn has_default_action(pid: i32, signal: c_int) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let set = |name: &str| {
        let digits = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(digits.trim(), 16).ok()
    };
    set("SigIgn:")
        .zip(set("SigCgt:"))
        .is_some_and(|(ignored, caught)| (ignored | caught) >> (signal - 1) & 1 == 0)
}

/// The pipe or socket that is the standard input of a process.
pub(crate) fn stdin_pipe(pid: i32) -> Option<Vec<u8>> {
    let target = std::fs::read_link(format!("/proc/{pid}/fd/0")).ok()?;
    let target = target.as_os_str().as_bytes();
    (target.starts_with(b"pipe:") || target.starts_with(b"socket:")).then(|| target.to_vec())
}

/// Sends a signal to a process, unless its number is another process's.
pub(crate) fn signal_process(target: &Process, signal: c_int) {
    // SAFETY: the call takes two numbers and returns a descriptor, which is close-on-exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, target.pid, 0) } as RawFd;
    let is_same = || process(target.pid).is_some_and(|now| now.start == target.start);
    if fd < 0 {
        // Before Linux 5.3, and if the process has ended.
        if io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) && is_same() {
            // SAFETY: the call affects no memory.
            unsafe { libc::kill(target.pid, signal) };
        }
        return;
    }
    // SAFETY: the call above has returned the descriptor, which has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // The descriptor stands for one process, so the number is checked after it is open.
    if is_same() {
        let info: *const libc::siginfo_t = ptr::null();
        // SAFETY: the descriptor is open, and without information the kernel makes that of `kill`.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, info, 0) };
    }
}

/// Kills the children of `reaper` whose environment has a variable, and all processes below them. Returns whether there
/// were any.
pub(crate) fn kill_marked(reaper: libc::pid_t, variable: &[u8]) -> bool {
    let all = processes();
    let own = getpid().as_raw_nonzero().get();
    let is_top = |process: &&Process| {
        process.parent == reaper && process.pid != own && !process.is_zombie && process.has_variable(variable)
    };
    let tops: Vec<i32> = all.iter().filter(is_top).map(|process| process.pid).collect();
    let marked = below(&all, &tops);
    marked.iter().for_each(|process| signal_process(process, libc::SIGKILL));
    !marked.is_empty()
}
