//! Signals of Linux: signalfd.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

use super::{Blocked, Event, set};
use crate::Error;

/// The signals of this process as events. Dropping it restores the signal mask.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    blocked: Blocked,
}

impl Signals {
    /// Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGTSTP, SIGCONT and SIGWINCH in the calling thread and
    /// reads them from now on. Also blocks SIGTTIN, so that reading from a terminal in the background fails instead of
    /// stopping the process.
    ///
    /// Ignores SIGXFSZ, see [`ignore_file_size_signal`](super::ignore_file_size_signal).
    ///
    /// SIGHUP, SIGTSTP and SIGXFSZ stay ignored in child processes if they are ignored already (`nohup`).
    /// SIGINT and SIGQUIT are handled even if they are ignored,
    /// because a shell without job control ignores them for every background process.
    ///
    /// # Errors
    /// A system call failed.
    pub fn new() -> Result<Signals, Error> {
        let blocked = Blocked::new()?;
        let read = set(&blocked.taken);
        // SAFETY: the set is initialised and lives for the call.
        let fd = unsafe { libc::signalfd(-1, &raw const read, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::during("signalfd")(std::io::Error::last_os_error()));
        }
        // SAFETY: the call has made this descriptor, and nothing else owns it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, blocked })
    }

    /// The signals that stay ignored, for child processes to ignore too.
    pub fn ignored(&self) -> &[c_int] {
        &self.blocked.ignored
    }

    /// Adds pending signals to `events`.
    ///
    /// # Errors
    /// A system call failed.
    pub fn read(&self, events: &mut Vec<Event>) -> Result<(), Error> {
        const RECORD: usize = size_of::<libc::signalfd_siginfo>();
        let mut buffer = [0; 16 * RECORD];
        loop {
            let len = match rustix::io::read(&self.fd, &mut buffer) {
                Ok(len) => len,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(Error::during("cannot read signals")(errno)),
            };
            for record in buffer[..len].chunks_exact(RECORD) {
                // A record begins with the signal's number.
                let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                let Some(signal) = Signal::from_named_raw(number as i32) else { continue };
                events.push(Event::of(signal));
            }
            if len < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Stops this process as SIGTSTP stops a program that does not catch it, so that its shell sees a stopped job.
    /// Returns when the process has been continued. The SIGCONT that continued it is not reported as an event.
    pub fn stop_process(&self) {
        let tstp = set(&[libc::SIGTSTP]);
        let cont = set(&[libc::SIGCONT]);
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the signal is pending for this thread and has its default action, so that unblocking it stops the
        // process there; the sets are initialised and live for all calls.
        unsafe {
            libc::raise(libc::SIGTSTP);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const tstp, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const tstp, std::ptr::null_mut());
            // Pending since before the process was continued, or absent where the kernel did not stop it.
            libc::sigtimedwait(&raw const cont, std::ptr::null_mut(), &raw const at_once);
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
