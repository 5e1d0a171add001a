//! Signals as events: blocked in the launcher and read from a descriptor, so that none interrupts anything.

use std::ffi::c_int;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Signal;

use crate::error::RunError;

/// What is passed on to the ranks.
const FORWARDED: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];
/// What the launcher acts on itself.
const OWN: [Signal; 3] = [Signal::CHILD, Signal::TSTP, Signal::CONT];

/// The signals of the launcher while a job runs; puts back what it found when dropped.
pub(crate) struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
    ignored: Vec<c_int>,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process may have ended.
    Child,
    /// The terminal wants the job stopped.
    Stop,
    /// The job has been continued.
    Continue,
    /// One to pass on.
    Forward(Signal),
}

impl Signals {
    /// Blocks the signals and reads them from now on.
    ///
    /// SIGHUP stays ignored where it is (`nohup`), and so does SIGTSTP. SIGINT and SIGQUIT are taken even so: a
    /// shell without job control ignores them for whatever it starts in the background, and a script that sends
    /// one to its launcher means it.
    pub(crate) fn new() -> Result<Signals, RunError> {
        let ignored: Vec<_> =
            [Signal::HUP, Signal::TSTP].map(Signal::as_raw).into_iter().filter(|&s| is_ignored(s)).collect();
        let taken: Vec<_> =
            FORWARDED.iter().chain(&OWN).map(|s| s.as_raw()).filter(|s| !ignored.contains(s)).collect();
        // Where it is ignored, the system keeps no exit codes.
        default_action(libc::SIGCHLD);
        let read = set(&taken);
        // Reading from a terminal in the background fails instead of stopping the launcher.
        let blocked = set(&[taken, vec![libc::SIGTTIN]].concat());
        let mut before = set(&[]);
        // SAFETY: both sets are initialised and live for the call.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before) };
        if failed != 0 {
            return Err(RunError::system("sigprocmask")(Errno::from_raw_os_error(failed)));
        }
        // SAFETY: the set is initialised and lives for the call.
        let fd = unsafe { libc::signalfd(-1, &raw const read, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(RunError::system("signalfd")(std::io::Error::last_os_error()));
        }
        // SAFETY: the call has just made this descriptor, and nobody else has it.
        Ok(Signals { fd: unsafe { OwnedFd::from_raw_fd(fd) }, before, ignored })
    }

    /// The signals that stay ignored, in the ranks too.
    pub(crate) fn ignored(&self) -> &[c_int] {
        &self.ignored
    }

    /// Adds what has come to `events`, each kind of SIGCHLD once.
    pub(crate) fn read(&self, events: &mut Vec<Event>) -> Result<(), RunError> {
        const RECORD: usize = size_of::<libc::signalfd_siginfo>();
        let mut buffer = [0; 16 * RECORD];
        loop {
            let len = match rustix::io::read(&self.fd, &mut buffer) {
                Ok(len) => len,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(RunError::system("cannot read signals")(errno)),
            };
            for record in buffer[..len].chunks_exact(RECORD) {
                // A record begins with the signal's number.
                let number = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
                let Some(signal) = Signal::from_named_raw(number as i32) else { continue };
                events.push(match signal {
                    Signal::CHILD => Event::Child,
                    Signal::TSTP => Event::Stop,
                    Signal::CONT => Event::Continue,
                    other => Event::Forward(other),
                });
            }
            if len < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Stops the launcher as SIGTSTP does a program that does not catch it, so that its shell sees a stopped job;
    /// returns when it has been continued. The SIGCONT that did is not read as an event any more.
    pub(crate) fn stop_here(&self) {
        let tstp = set(&[libc::SIGTSTP]);
        let cont = set(&[libc::SIGCONT]);
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the signal is pending for this thread and has its default action, so that unblocking it stops the
        // process there; the sets are initialised and live for all calls.
        unsafe {
            libc::raise(libc::SIGTSTP);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const tstp, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const tstp, std::ptr::null_mut());
            // It is pending since before the process went on; none is where the kernel stopped nobody.
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

/// The signal's name, as `SIGSEGV`; its number where it has none.
pub(crate) fn name(signal: u8) -> String {
    let name = match c_int::from(signal) {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGVTALRM => "SIGVTALRM",
        libc::SIGPROF => "SIGPROF",
        libc::SIGSYS => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}
