//! Signals as events: blocked for the process and read from a descriptor.

#[cfg(not(target_os = "linux"))]
mod kqueue;
#[cfg(target_os = "linux")]
mod signalfd;

use std::ffi::c_int;

use rustix::io::Errno;
use rustix::process::Signal;

use crate::Error;
#[cfg(not(target_os = "linux"))]
pub use kqueue::Signals;
#[cfg(target_os = "linux")]
pub use signalfd::Signals;

/// Signals that a user sends to the program.
const USER: [Signal; 6] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// Signals of job control, child processes and the terminal.
const CONTROL: [Signal; 4] = [Signal::CHILD, Signal::TSTP, Signal::CONT, Signal::WINCH];

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

impl Event {
    fn of(signal: Signal) -> Event {
        match signal {
            Signal::CHILD => Event::Child,
            Signal::TSTP => Event::Stop,
            Signal::CONT => Event::Continue,
            Signal::WINCH => Event::WindowResized,
            other => Event::Forward(other),
        }
    }
}

/// Calls `act` with all signals blocked for this thread. Threads that `act` starts inherit that, so they take no signal of
/// a process that has loaded hydrant as a library.
pub fn with_all_blocked<T>(act: impl FnOnce() -> T) -> T {
    let mut all = set(&[]);
    let mut before = set(&[]);
    // SAFETY: both sets are initialised and live for the calls, which fail only for an unknown operation.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let result = act();
    // SAFETY: the set is the one that this thread had before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    result
}

/// Has writes beyond the limit of file sizes (`ulimit -f`) fail, as those on a full disk do, in place of ending this process by
/// SIGXFSZ. Returns false if they did already.
pub fn ignore_file_size_signal() -> bool {
    !is_ignored(libc::SIGXFSZ) && {
        set_action(libc::SIGXFSZ, libc::SIG_IGN);
        true
    }
}

/// Signals that this thread has blocked. Dropping it restores the signal mask.
#[derive(Debug)]
struct Blocked {
    /// The signals to read.
    taken: Vec<c_int>,
    before: libc::sigset_t,
    ignored: Vec<c_int>,
}

impl Blocked {
    /// Blocks the signals of [`Signals::new`].
    fn new() -> Result<Blocked, Error> {
        let ignored: Vec<_> =
            [Signal::HUP, Signal::TSTP].map(Signal::as_raw).into_iter().filter(|&s| is_ignored(s)).collect();
        let taken: Vec<_> =
            USER.iter().chain(&CONTROL).map(|s| s.as_raw()).filter(|s| !ignored.contains(s)).collect();
        let mut ignored = ignored;
        if !ignore_file_size_signal() {
            ignored.push(libc::SIGXFSZ);
        }
        // While SIGCHLD is ignored, the system keeps no exit codes.
        set_action(libc::SIGCHLD, libc::SIG_DFL);
        let blocked = set(&[taken.as_slice(), &[libc::SIGTTIN]].concat());
        let mut before = set(&[]);
        // SAFETY: both sets are initialised and live for the call.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before) };
        if failed != 0 {
            return Err(Error::during("sigprocmask")(Errno::from_raw_os_error(failed)));
        }
        Ok(Blocked { taken, before, ignored })
    }
}

impl Drop for Blocked {
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

fn set_action(signal: c_int, action: libc::sighandler_t) {
    // SAFETY: the action is initialised: no handler, no flags, an empty set.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
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

    fn blocked(signal: c_int) -> bool {
        let mut now = set(&[]);
        // SAFETY: without a new set the call only fills in `now`.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now) };
        // SAFETY: the set is initialised.
        unsafe { libc::sigismember(&raw const now, signal) == 1 }
    }

    #[test]
    fn started_threads_inherit_blocked_signals() {
        let before = blocked(libc::SIGUSR1);
        let thread = with_all_blocked(|| std::thread::spawn(|| blocked(libc::SIGUSR1)));
        assert!(thread.join().unwrap());
        assert_eq!(blocked(libc::SIGUSR1), before);
    }

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
        assert!(
            signals
                .ignored()
                .iter()
                .all(|signal| [libc::SIGHUP, libc::SIGTSTP, libc::SIGXFSZ].contains(signal))
        );
    }
}
