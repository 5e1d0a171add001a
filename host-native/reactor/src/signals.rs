//! Signals as events: blocked for the process and read from a descriptor.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::Error;

/// Signals that a user sends to the program.
const USER: [Signal; 6] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// Signals of job control, child processes and the terminal.
const CONTROL: [Signal; 4] = [Signal::CHILD, Signal::TSTP, Signal::CONT, Signal::WINCH];

/// The signals of this process as events. Dropping it restores the signal mask.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
    ignored: Vec<c_int>,
}

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGCHLD: a child process may have ended.
    Child,
    /// SIGTSTP: the terminal requests a stop of this process.
    Stop,
    /// SIGCONT: this process was continued.
    Continue,
    /// SIGWINCH: the window of the terminal has another size.
    WindowResized,
    /// Any other signal that [`Signals::new`] takes.
    Forward(Signal),
}

impl Signals {
    /// Blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGTSTP, SIGCONT and SIGWINCH in the calling thread and
    /// reads them from now on. Also blocks SIGTTIN, so that reading from a terminal in the background fails instead of
    /// stopping the process.
    ///
    /// SIGHUP and SIGTSTP stay ignored if they are ignored already (`nohup`). SIGINT and SIGQUIT are handled even if
    /// they are ignored, because a shell without job control ignores them for every background process.
    ///
    /// # Errors
    /// A system call failed.
    pub fn new() -> Result<Signals, Error> {
        let ignored: Vec<_> =
            [Signal::HUP, Signal::TSTP].map(Signal::as_raw).into_iter().filter(|&s| is_ignored(s)).collect();
        let taken: Vec<_> =
            USER.iter().chain(&CONTROL).map(|s| s.as_raw()).filter(|s| !ignored.contains(s)).collect();
        // While SIGCHLD is ignored, the system keeps no exit codes.
        default_action(libc::SIGCHLD);
        let read = set(&taken);
        let blocked = set(&[taken, vec![libc::SIGTTIN]].concat());
        let mut before = set(&[]);
        // SAFETY: both sets are initialised and live for the call.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before) };
        if failed != 0 {
            return Err(Error::during("sigprocmask")(Errno::from_raw_os_error(failed)));
        }
        // SAFETY: the set is initialised and lives for the call.
        let fd = unsafe { libc::signalfd(-1, &raw const read, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(Error::during("signalfd")(std::io::Error::last_os_error()));
        }
        // SAFETY: the call has made this descriptor, and nothing else owns it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before, ignored })
    }

    /// The signals that stay ignored, for child processes to ignore too.
    pub fn ignored(&self) -> &[c_int] {
        &self.ignored
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
                events.push(match signal {
                    Signal::CHILD => Event::Child,
                    Signal::TSTP => Event::Stop,
                    Signal::CONT => Event::Continue,
                    Signal::WINCH => Event::WindowResized,
                    other => Event::Forward(other),
                });
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

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that `new` was given for this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

fn set(signals: &[c_int]) -> libc::sigset_t {
    // SAFETY: a zeroed set is storage that `sigemptyset` initialises; the numbers are the system's own.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for &signal in signals {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

fn default_action(signal: c_int) {
    // SAFETY: the action is initialised: no handler, no flags, an empty set.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const new, std::ptr::null_mut());
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: without a new action the call only fills in `old`, for which any zeroed bytes are storage.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_become_events() {
        let signals = Signals::new().unwrap();
        let mut events = Vec::new();
        signals.read(&mut events).unwrap();
        assert_eq!(events, []);
        // SAFETY: sends a signal to this thread, which has blocked it.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
        // SAFETY: as above.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        signals.read(&mut events).unwrap();
        assert_eq!(events.len(), 2);
        for signal in [Signal::USR2, Signal::TERM] {
            assert!(events.contains(&Event::Forward(signal)), "{events:?}");
        }
        assert!(signals.ignored().iter().all(|signal| [libc::SIGHUP, libc::SIGTSTP].contains(signal)));
    }
}
