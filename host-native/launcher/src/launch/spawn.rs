//! `posix_spawn`: a process is made without copying the launcher's page tables, so that starting one costs the same
//! however much memory the server has.

use std::ffi::{CStr, c_char, c_int, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::process::Pid;

use super::nofile::OpenFiles;

/// What every process of a job has in common: its own process group, no blocked signals, default dispositions.
pub(crate) struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    /// `keep` stays ignored where the launcher ignores it (SIGHUP under `nohup`).
    pub(crate) fn new(keep: &[c_int]) -> io::Result<Attributes> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: `raw` is storage for the object that the call initialises.
        check(unsafe { libc::posix_spawnattr_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above, which succeeded.
        let mut attributes = Attributes(unsafe { raw.assume_init() });
        let attr = &raw mut attributes.0;
        let flags = libc::POSIX_SPAWN_SETPGROUP | libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        // SAFETY: `attr` is initialised; the sets live for the calls, which copy them; every signal number that is
        // passed is one of the system's own.
        unsafe {
            let (mut defaults, mut mask) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut defaults);
            libc::sigemptyset(&raw mut mask);
            for &signal in keep {
                libc::sigdelset(&raw mut defaults, signal);
            }
            check(libc::posix_spawnattr_setflags(attr, flags as c_short))?;
            check(libc::posix_spawnattr_setpgroup(attr, 0))?;
            check(libc::posix_spawnattr_setsigdefault(attr, &raw const defaults))?;
            check(libc::posix_spawnattr_setsigmask(attr, &raw const mask))?;
        }
        Ok(attributes)
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once. The call has no way to fail.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

/// What the process does between its birth and its program.
struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Actions> {
        let mut raw = MaybeUninit::uninit();
        // SAFETY: `raw` is storage for the object that the call initialises.
        check(unsafe { libc::posix_spawn_file_actions_init(raw.as_mut_ptr()) })?;
        // SAFETY: initialised by the call above, which succeeded.
        Ok(Actions(unsafe { raw.assume_init() }))
    }

    fn chdir(&mut self, dir: &CStr) -> io::Result<()> {
        // SAFETY: `self.0` is initialised, `dir` is NUL-terminated and copied by the call.
        check(unsafe { libc::posix_spawn_file_actions_addchdir_np(&raw mut self.0, dir.as_ptr()) })
    }

    /// Gives the process `fd` as number `target`, without close-on-exec even where the two are equal.
    fn dup2(&mut self, fd: BorrowedFd<'_>, target: RawFd) -> io::Result<()> {
        // SAFETY: `self.0` is initialised; the numbers are only looked at in the child.
        check(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, fd.as_raw_fd(), target) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once. The call has no way to fail.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// A process to start.
pub(crate) struct Request<'a> {
    /// The program's file; relative to `wdir`.
    pub(crate) path: &'a CStr,
    /// Its arguments, from its name on, and a null pointer; each other pointer is good for the call.
    pub(crate) argv: &'a [*const c_char],
    /// Its environment, likewise.
    pub(crate) envp: &'a [*const c_char],
    /// Where it starts.
    pub(crate) wdir: Option<&'a CStr>,
    /// Its descriptors and their numbers, given in this order: a number that is given may be a descriptor's own only
    /// where that descriptor comes no later. All others must be close-on-exec.
    pub(crate) fds: &'a [(BorrowedFd<'a>, RawFd)],
    /// What the process may open is the user's limit, not the launcher's own.
    pub(crate) files: &'a OpenFiles,
}

/// Starts a process and returns when its program runs or could not be run.
///
/// # Safety
/// `argv` and `envp` end with a null pointer, and each pointer before leads to a NUL-terminated string.
pub(crate) unsafe fn spawn(attributes: &Attributes, request: &Request<'_>) -> io::Result<Pid> {
    let mut actions = Actions::new()?;
    if let Some(dir) = request.wdir {
        actions.chdir(dir)?;
    }
    for &(fd, target) in request.fds {
        actions.dup2(fd, target)?;
    }
    let mut pid = 0;
    // Not lowered before: the actions turn down numbers over the limit that is in force while they are written.
    request.files.lowered(|| {
        // SAFETY: both objects are initialised, the path is NUL-terminated, the arrays are what the caller promises;
        // the call changes neither arrays nor strings, whose `*mut` is history.
        check(unsafe {
            libc::posix_spawn(
                &raw mut pid,
                request.path.as_ptr(),
                &raw const actions.0,
                &raw const attributes.0,
                request.argv.as_ptr().cast(),
                request.envp.as_ptr().cast(),
            )
        })
    })?;
    Ok(Pid::from_raw(pid).expect("a started process has a pid above zero"))
}

/// These functions return the error number instead of setting it.
fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}
