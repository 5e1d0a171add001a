//! Start of a process: its attributes, and what the child does until its program runs.
//!
//! On Linux the child borrows this process's memory in the manner of `vfork`, elsewhere it has a copy.

#[cfg(target_os = "linux")]
mod clone;
#[cfg(not(target_os = "linux"))]
mod fork;

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

use rustix::process::Pid;

#[cfg(target_os = "linux")]
use clone::{Stack, start};
#[cfg(not(target_os = "linux"))]
use fork::{Stack, start};

use crate::{OpenFiles, sys};

/// Properties of all child processes: a process group of their own, no blocked signals and default dispositions. They
/// are killed when this process ends.
#[derive(Debug)]
pub struct Attributes {
    /// Signals that this process ignores and its children shall not.
    reset: Vec<c_int>,
    stack: Stack,
    parent: libc::pid_t,
    traceable: bool,
    own_session: bool,
    batch_policy: bool,
    stops_at_exec: bool,
}

impl Attributes {
    /// The signals in `keep` stay ignored where this process ignores them (SIGHUP under `nohup`).
    ///
    /// # Errors
    /// The dispositions cannot be read.
    pub fn new(keep: &[c_int]) -> io::Result<Attributes> {
        let reset = ignored_signals(keep);
        // SAFETY: the call cannot fail and has no effect.
        let parent = unsafe { libc::getpid() };
        Ok(Attributes {
            reset,
            stack: Stack::new(),
            parent,
            traceable: false,
            own_session: false,
            batch_policy: false,
            stops_at_exec: false,
        })
    }

    /// Allows this process and those that it starts to trace the child processes, where the kernel reserves that to their
    /// ancestors (Yama).
    pub fn allow_tracing(&mut self) {
        self.traceable = true;
    }

    /// Gives each child process a session of its own: no terminal controls it, and Linux's scheduler shares processors among
    /// sessions (`sched(7)`, autogroups).
    pub fn give_own_session(&mut self) {
        self.own_session = true;
    }

    /// Has each child process [take the policy of batch work](super::schedule_as_batch).
    pub fn schedule_as_batch(&mut self) {
        self.batch_policy = true;
    }

    /// Has the next child process stop at the first instruction of its program, as by `SIGSTOP`. Only on Linux: elsewhere it cannot
    /// be started then.
    pub fn stop_at_exec(&mut self, stops: bool) {
        self.stops_at_exec = stops;
    }
}

/// Returns the signals that this process ignores, without those in `keep`.
pub(super) fn ignored_signals(keep: &[c_int]) -> Vec<c_int> {
    let is_ignored = |signal: &c_int| {
        let mut action = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: the call only reads the disposition into its storage. An invalid signal number is an error.
        let known = unsafe { libc::sigaction(*signal, ptr::null(), action.as_mut_ptr()) } == 0;
        // SAFETY: all zeros is a valid disposition, and the call has written it if it succeeded.
        known && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
    };
    (1..=sys::SIGNALS).filter(|signal| !keep.contains(signal)).filter(is_ignored).collect()
}

/// A process to start.
#[derive(Debug)]
pub struct Request<'a> {
    /// File of the program, relative to `wdir`.
    pub path: &'a CStr,
    /// Arguments, beginning with the program's name and ending with a null pointer. The other pointers are valid during
    /// the call.
    pub argv: &'a [*const c_char],
    /// Its environment, likewise.
    pub envp: &'a [*const c_char],
    /// Working directory.
    pub wdir: Option<&'a CStr>,
    /// Descriptors and their numbers in the child, assigned in this order. A number may equal a descriptor of this
    /// process only if that descriptor comes no later. All other descriptors must be close-on-exec.
    pub fds: &'a [(BorrowedFd<'a>, RawFd)],
    /// Limit of open files. The child gets the user's limit instead of this process's own.
    pub files: &'a OpenFiles,
}

/// Data for the child, prepared before it starts.
struct Child<'a> {
    attributes: &'a Attributes,
    request: &'a Request<'a>,
    limit: Option<libc::rlimit>,
    no_signals: libc::sigset_t,
}

/// Starts a process and returns when its program runs or could not be run.
///
/// # Errors
/// The process cannot be made, or its program cannot be run.
///
/// # Safety
/// `argv` and `envp` end with a null pointer, and each pointer before leads to a NUL-terminated string. No other thread changes
/// them during the call.
pub unsafe fn spawn(attributes: &mut Attributes, request: &Request<'_>) -> io::Result<Pid> {
    let stack = attributes.stack.top();
    let mut sets = [MaybeUninit::<libc::sigset_t>::zeroed(); 3];
    let [none, all, before] = sets.each_mut().map(MaybeUninit::as_mut_ptr);
    // SAFETY: each call writes or reads a set of its own. All signals are blocked, so no handler of this process runs
    // on the child's stack.
    unsafe {
        libc::sigemptyset(none);
        libc::sigfillset(all);
        check(libc::sigprocmask(libc::SIG_SETMASK, all, before))?;
    }
    // SAFETY: all zeros is a set of signals, and the first call above has filled it in.
    let no_signals = unsafe { sets[0].assume_init() };
    let limit = request.files.of_child();
    let child = Child { attributes, request, limit, no_signals };
    // SAFETY: all signals are blocked, and the stack has no other use: `attributes` are borrowed.
    let (pid, failed) = unsafe { start(&child, stack) };
    // SAFETY: the call restores the set that the first call saved. It cannot fail with these arguments.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, sets[2].as_ptr(), ptr::null_mut()) };
    if let Some(error) = failed {
        if pid > 0 {
            // SAFETY: the call waits for the new child, which has exited. Its status is unused.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        }
        return Err(error);
    }
    if attributes.stops_at_exec {
        sys::stop_traced(pid);
    }
    Ok(Pid::from_raw(pid).expect("a started process has a pid above zero"))
}

impl Child<'_> {
    /// Sets the process up and runs its program. Returns only on failure.
    ///
    /// # Safety
    /// Only in the child of [`spawn`]: it allocates no memory, takes no lock and does not unwind.
    unsafe fn become_program(&self) -> io::Result<()> {
        let Request { path, argv, envp, wdir, fds, .. } = self.request;
        // SAFETY: the system calls affect this process alone. The pointers are kept by the parent while it is
        // suspended. They point to the limit and the dispositions in this frame or in `self`, to NUL-terminated
        // strings, and to lists that end with a null pointer.
        unsafe {
            check(if self.attributes.own_session { libc::setsid() } else { libc::setpgid(0, 0) })?;
            sys::die_with_parent()?;
            if libc::getppid() != self.attributes.parent {
                // The parent ended before the child could request its signal.
                libc::_exit(1);
            }
            if self.attributes.batch_policy {
                sys::schedule_as_batch();
            }
            if self.attributes.traceable {
                sys::allow_tracing(self.attributes.parent);
            }
            if let Some(dir) = wdir {
                check(libc::chdir(dir.as_ptr()))?;
            }
            for (fd, target) in fds.iter() {
                let fd = fd.as_raw_fd();
                check(if fd == *target {
                    libc::fcntl(fd, libc::F_SETFD, 0)
                } else {
                    libc::dup2(fd, *target)
                })?;
            }
            if let Some(limit) = &self.limit {
                check(libc::setrlimit(libc::RLIMIT_NOFILE, limit))?;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            for &signal in &self.attributes.reset {
                check(libc::sigaction(signal, &raw const action, ptr::null_mut()))?;
            }
            check(libc::sigprocmask(libc::SIG_SETMASK, &raw const self.no_signals, ptr::null_mut()))?;
            if self.attributes.stops_at_exec {
                sys::be_traced()?;
            }
            check(libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()))
        }
    }
}

/// System calls that set the error number.
fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
