//! Child process of FreeBSD and macOS: `fork`, and a pipe for the error of the start.

use std::ffi::c_void;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsRawFd;
use std::ptr;

use super::Child;

/// No stack: the child has a copy of this process's.
#[derive(Debug)]
pub(super) struct Stack;

impl Stack {
    pub(super) fn new() -> Stack {
        Stack
    }

    pub(super) fn top(&mut self) -> *mut c_void {
        ptr::null_mut()
    }
}

/// Starts the process and waits until its program runs or could not be run. Returns its pid, if there is a process, and the
/// error.
///
/// # Safety
/// All signals are blocked.
pub(super) unsafe fn start(child: &Child<'_>, _: *mut c_void) -> (libc::pid_t, Option<io::Error>) {
    // Both ends are close-on-exec, so the pipe closes without a byte when the program runs.
    let (reader, writer) = match io::pipe() {
        Ok(ends) => ends,
        Err(error) => return (-1, Some(error)),
    };
    // SAFETY: the child makes system calls only, until its program runs or it exits. It needs no lock that another thread may
    // hold.
    match unsafe { libc::fork() } {
        -1 => (-1, Some(io::Error::last_os_error())),
        0 => {
            // SAFETY: this is the child of `spawn`.
            let failed = unsafe { child.become_program() };
            let error = failed.err().and_then(|error| error.raw_os_error()).unwrap_or(libc::EINVAL);
            // SAFETY: writes a number of this frame and ends the process without running anything of the parent's.
            unsafe {
                libc::write(writer.as_raw_fd(), (&raw const error).cast(), size_of_val(&error));
                libc::_exit(127)
            }
        }
        pid => {
            drop(writer);
            (pid, read_error(reader))
        }
    }
}

/// Reads the error of the child. None if its program runs.
fn read_error(mut reader: PipeReader) -> Option<io::Error> {
    let mut error = [0; size_of::<i32>()];
    match reader.read_exact(&mut error) {
        Ok(()) => Some(io::Error::from_raw_os_error(i32::from_ne_bytes(error))),
        Err(_) => None,
    }
}
