//! Child process that goes on in this program, without `exec`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use rustix::process::Pid;

use super::spawn::ignored_signals;
use super::{forget_helpers, helper_started};
use crate::file::empty_input;
use crate::{OpenFiles, sys};

/// Descriptor of the child that it is given beside its standard ones.
const GIVEN: RawFd = 3;
/// Exit code of a child that could not be set up, or whose program panics.
const FAILED: i32 = 101;

/// Returns whether [`fork`] is possible: on Linux, and while this process has one thread.
pub fn can_fork() -> bool {
    sys::has_one_thread()
}

/// Starts a child process that runs `main` in a copy of this process's memory, and exits with its result.
///
/// The child is like a program that [`start_helper`](super::start_helper) starts: it leads a process group, and has the
/// dispositions of signals and the limit of open files that the user has set. Its standard input is empty, its standard
/// output and error are `output`, and `given` is its only other descriptor. The copies of this process's other descriptors
/// are closed, so `main` uses none of them. Signals stay blocked, and the child is not killed with this process.
///
/// # Errors
/// This process has other threads, or the system refuses.
pub fn fork(
    output: BorrowedFd<'_>,
    given: OwnedFd,
    files: &OpenFiles,
    main: impl FnOnce(OwnedFd) -> u8,
) -> io::Result<Pid> {
    if !can_fork() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: no other thread is there that could hold a lock or change memory, so the child may run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            forget_helpers();
            let run = || set_up(output, given, files).map(main);
            // The frames below belong to the parent.
            let code = match catch_unwind(AssertUnwindSafe(run)) {
                Ok(Ok(code)) => code.into(),
                _ => FAILED,
            };
            // SAFETY: ends the process without running anything of the parent's.
            unsafe { libc::_exit(code) }
        }
        pid => {
            // As the child does: whichever comes first.
            // SAFETY: the call takes two numbers.
            unsafe { libc::setpgid(pid, pid) };
            let pid = Pid::from_raw(pid).expect("a started process has a pid above zero");
            helper_started(pid);
            Ok(pid)
        }
    }
}

/// Makes a new child like one that has executed a program. Returns the descriptor that it is given.
fn set_up(output: BorrowedFd<'_>, given: OwnedFd, files: &OpenFiles) -> io::Result<OwnedFd> {
    let null = empty_input()?;
    // SAFETY: the calls take numbers, and a limit and dispositions of this frame. The process has one thread, and uses none
    // of the descriptors that are closed or replaced: `given` and `null` are not dropped.
    unsafe {
        libc::setpgid(0, 0);
        for (fd, number) in [(null.as_raw_fd(), 0), (output.as_raw_fd(), 1), (output.as_raw_fd(), 2)] {
            check(libc::dup2(fd, number))?;
        }
        if given.as_raw_fd() != GIVEN {
            check(libc::dup2(given.as_raw_fd(), GIVEN))?;
        }
        check(libc::fcntl(GIVEN, libc::F_SETFD, libc::FD_CLOEXEC))?;
        std::mem::forget((given, null));
        sys::close_range(GIVEN.cast_unsigned() + 1, u32::MAX);
        if let Some(limit) = files.of_child() {
            check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit))?;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        // Rust's runtime ignores SIGPIPE in every program.
        for signal in ignored_signals(&[libc::SIGPIPE]) {
            check(libc::sigaction(signal, &raw const action, ptr::null_mut()))?;
        }
        Ok(OwnedFd::from_raw_fd(GIVEN))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
