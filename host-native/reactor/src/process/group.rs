//! Process groups and sessions. Those of another PID namespace, as a container's first process may have them, are number 0,
//! which [`Pid`] cannot hold.

use rustix::process::Pid;

/// Process group of this process.
pub fn own_group() -> i32 {
    // SAFETY: the call takes no memory.
    unsafe { libc::getpgrp() }
}

/// Process group of a process, if the process exists.
pub fn group_of(pid: Pid) -> Option<i32> {
    // SAFETY: the call takes no memory.
    let group = unsafe { libc::getpgid(pid.as_raw_nonzero().get()) };
    (group >= 0).then_some(group)
}

/// Whether a process leads a session.
pub fn leads_session(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero().get();
    // SAFETY: the call takes no memory.
    unsafe { libc::getsid(pid) == pid }
}
