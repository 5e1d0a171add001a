//! Child process of Linux, in the manner of `vfork`. The child borrows this process's memory until its program runs, so the
//! cost does not depend on the size of this memory.
//!
//! `posix_spawn` works the same way. It also maps a stack, reads limits and visits every signal for each process, and
//! cannot have the child killed together with this process.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};

use super::Child;

/// Size of the child's stack before its program runs, in bytes.
const STACK: usize = 64 * 1024;

/// The child's stack before its program runs. All child processes use it, one after the other. It is not initialized, so that
/// only the pages that they use are touched.
#[derive(Debug)]
pub(super) struct Stack(Box<[MaybeUninit<u128>]>);

impl Stack {
    pub(super) fn new() -> Stack {
        Stack(Box::new_uninit_slice(STACK / size_of::<u128>()))
    }

    pub(super) fn top(&mut self) -> *mut c_void {
        self.0.as_mut_ptr_range().end.cast()
    }
}

/// Data that parent and child share.
struct Shared<'a> {
    child: &'a Child<'a>,
    /// Error of the start, written by the child.
    error: AtomicI32,
}

/// Starts the process and waits until its program runs or could not be run. Returns its pid, if there is a process, and the
/// error.
///
/// # Safety
/// All signals are blocked, and `top` is the top of a stack without another use.
pub(super) unsafe fn start(child: &Child<'_>, top: *mut c_void) -> (libc::pid_t, Option<io::Error>) {
    let shared = Shared { child, error: AtomicI32::new(0) };
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child runs `run_child` in this memory on a stack with no other use. CLONE_VFORK suspends this thread
    // until the child has executed its program or exited, so `shared` and the stack outlive the child's use. Other threads go on:
    // the child takes no lock, allocates nothing and changes nothing else in this memory.
    let pid = unsafe { libc::clone(run_child, top, flags, (&raw const shared).cast_mut().cast()) };
    if pid < 0 {
        return (pid, Some(io::Error::last_os_error()));
    }
    let error = shared.error.load(Ordering::Relaxed);
    (pid, (error != 0).then(|| io::Error::from_raw_os_error(error)))
}

/// Entry point of the child.
extern "C" fn run_child(shared: *mut c_void) -> c_int {
    // SAFETY: `start` passes a `Shared` that it keeps until this process has left its memory.
    let shared = unsafe { &*shared.cast_const().cast::<Shared<'_>>() };
    // SAFETY: this is the child of `spawn`.
    let failed = unsafe { shared.child.become_program() };
    let error = failed.err().and_then(|error| error.raw_os_error()).unwrap_or(libc::EINVAL);
    shared.error.store(error, Ordering::Relaxed);
    // SAFETY: ends the process without running anything of the parent's.
    unsafe { libc::_exit(127) }
}
