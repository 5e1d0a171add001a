//! Signals of FreeBSD and macOS: signals stay blocked, and a kqueue counts them.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::event::Timespec;
use rustix::event::kqueue::{self, EventFilter, EventFlags, kevent_timespec};
use rustix::io::Errno;
use rustix::process::Signal;

use super::{Blocked, Event, set};
use crate::{Error, sys};

/// A wait that ends at once.
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The signals of this process as events. Dropping it restores the signal mask.
#[derive(Debug)]
pub struct Signals {
    kqueue: OwnedFd,
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
        let kqueue = sys::new_kqueue().map_err(Error::during("kqueue"))?;
        let signals = Signals { kqueue, blocked: Blocked::new()? };
        for &signal in &signals.blocked.taken {
            signals.change(signal, EventFlags::ADD).map_err(Error::during("kevent"))?;
        }
        Ok(signals)
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
        let mut received = Vec::with_capacity(self.blocked.taken.len());
        let buffer = rustix::buffer::spare_capacity(&mut received);
        // SAFETY: no change is passed, so no descriptor is added.
        match unsafe { kevent_timespec(&self.kqueue, &[], buffer, Some(&AT_ONCE)) } {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::during("cannot read signals")(errno)),
        }
        for event in &received {
            if let EventFilter::Signal { signal, .. } = event.filter() {
                discard_pending(signal.as_raw());
                events.push(Event::of(signal));
            }
        }
        Ok(())
    }

    /// Stops this process as SIGTSTP stops a program that does not catch it, so that its shell sees a stopped job.
    /// Returns when the process has been continued. The SIGCONT that continued it is not reported as an event.
    pub fn stop_process(&self) {
        let tstp = set(&[libc::SIGTSTP]);
        // SAFETY: the signal is pending for this thread and has its default action, so that unblocking it stops the
        // process there; the set is initialised and lives for all calls.
        unsafe {
            libc::raise(libc::SIGTSTP);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const tstp, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const tstp, ptr::null_mut());
        }
        discard_pending(libc::SIGCONT);
        // The kqueue has counted both signals. A filter that is added again counts from zero.
        for signal in [libc::SIGTSTP, libc::SIGCONT] {
            for flags in [EventFlags::DELETE, EventFlags::ADD] {
                let _ = self.change(signal, flags);
            }
        }
    }

    fn change(&self, signal: c_int, flags: EventFlags) -> Result<(), Errno> {
        let signal = Signal::from_named_raw(signal).ok_or(Errno::INVAL)?;
        let change = kqueue::Event::new(EventFilter::Signal { signal, times: 0 }, flags, ptr::null_mut());
        sys::change_kqueue(&self.kqueue, change)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kqueue.as_fd()
    }
}

/// Takes a signal that is blocked and pending. The kqueue reports it, and the signal would end the process when it is
/// unblocked.
fn discard_pending(signal: c_int) {
    let (mut pending, one) = (set(&[]), set(&[signal]));
    let mut number = 0;
    // SAFETY: the sets are initialised and live for all calls. The wait ends at once, because the signal is pending and
    // no other thread takes signals of this process.
    unsafe {
        if libc::sigpending(&raw mut pending) == 0 && libc::sigismember(&raw const pending, signal) == 1 {
            libc::sigwait(&raw const one, &raw mut number);
        }
    }
}
