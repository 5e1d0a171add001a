//! Guardian process: it kills process groups after this process has been killed.
//!
//! Linux and FreeBSD end child processes with their parent (`PR_SET_PDEATHSIG`), but not the children of those. A
//! guardian waits at a pipe whose other end only this process has. When the pipe closes, it kills the groups in a shared
//! table. Where the system lists processes, it then kills those whose environment has the guardian's
//! [`mark`](Guardian::mark), in whatever group or session they are, and all below them: a group enters the table only after
//! its process runs, and a process may leave its group.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::process::Pid;

use crate::sys;

/// Most groups of a guardian. The table is mapped as a whole, and uses memory only where it is written.
const GROUPS_MAX: usize = 1 << 20;

/// Name of the variable that marks processes.
pub const MARK: &str = "HYDRANT_GUARDIAN";

/// Searches for marked processes that are without a find before the guardian ends: a process that executes a program has
/// no environment for a moment.
const CLEAN_MIN: u32 = 3;
/// Most searches for marked processes, so that processes that cannot be killed do not keep the guardian.
const SEARCHES_MAX: u32 = 1000;
/// Time between searches.
const PAUSE: Duration = Duration::from_millis(5);

/// Length of the table.
const TABLE_LEN: usize = 1 + GROUPS_MAX;

/// A process that outlives this one by a moment, and the table of the groups that it kills then.
#[derive(Debug)]
pub struct Guardian {
    /// Memory that both processes share: the number of slots that have been used, then the group of each slot; 0 is no
    /// group.
    table: ptr::NonNull<AtomicI32>,
    pid: libc::pid_t,
    /// Variable in the environment of the processes that are killed.
    mark: CString,
    /// Folders that are removed then.
    folders: Vec<PathBuf>,
    /// Closed when this process ends.
    lifeline: Option<OwnedFd>,
}

impl Guardian {
    /// Starts a guardian. It leads a process group of its own, blocks the signals that this thread blocks, and keeps no
    /// other descriptor. After the processes it removes the folders, if they are there.
    ///
    /// This process must have one thread: the guardian allocates memory, and another thread might hold a lock for ever.
    ///
    /// # Errors
    /// The memory, the pipe or the process cannot be made.
    pub fn start(folders: &[&Path]) -> io::Result<Guardian> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | sys::NORESERVE);
        let len = TABLE_LEN * size_of::<AtomicI32>();
        // SAFETY: a new mapping of anonymous memory affects no other memory.
        let table = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if table == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let table = ptr::NonNull::new(table.cast()).expect("a mapping without an address is not at 0");
        let parent = std::process::id().cast_signed();
        let mut number = [0; 8];
        sys::fill_random(&mut number)?;
        let mark = format!("{MARK}={parent}-{:016x}", u64::from_ne_bytes(number));
        let mark = CString::new(mark).expect("a name and numbers have no NUL byte");
        let folders = folders.iter().map(|folder| folder.to_path_buf()).collect();
        let mut guardian = Guardian { table, pid: 0, mark, folders, lifeline: None };
        // Both ends are close-on-exec.
        let (read, write) = io::pipe()?;
        // SAFETY: no other thread is there, as the caller has promised, that could hold a lock in the child.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                drop(write);
                guardian.watch(parent, read.as_raw_fd())
            }
            pid => {
                guardian.pid = pid;
                guardian.lifeline = Some(write.into());
                Ok(guardian)
            }
        }
    }

    /// The variable, as `NAME=VALUE`, that marks the processes of this process, with an unpredictable value. Their
    /// environment must have it.
    pub fn mark(&self) -> &CStr {
        &self.mark
    }

    /// Process of the guardian.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sets the process group in a slot that is killed with this process. Slots from 1,048,576 on have no guardian.
    pub fn set(&self, slot: u32, group: Option<Pid>) {
        let (used, slots) = self.entries();
        if let Some(entry) = slots.get(slot as usize) {
            entry.store(group.map_or(0, |group| group.as_raw_nonzero().get()), Ordering::Relaxed);
            used.fetch_max(slot as i32 + 1, Ordering::Relaxed);
        }
    }

    /// The number of used slots, and all slots.
    fn entries(&self) -> (&AtomicI32, &[AtomicI32]) {
        // SAFETY: the mapping has this many numbers, is zeroed at first, and stays until `self` is dropped. Every value is
        // a valid number, and both processes access them as atomics.
        let table = unsafe { std::slice::from_raw_parts(self.table.as_ptr(), TABLE_LEN) };
        table.split_first().expect("the table is not empty")
    }

    /// The slots that have been used. The others have no memory yet, and stay without.
    fn used(&self) -> &[AtomicI32] {
        let (used, slots) = self.entries();
        let used = usize::try_from(used.load(Ordering::Relaxed)).unwrap_or(0);
        &slots[..used.min(GROUPS_MAX)]
    }

    /// Waits for the end of the parent, and kills the groups. Runs in the guardian process.
    fn watch(&self, parent: libc::pid_t, lifeline: i32) -> ! {
        // SAFETY: the system calls get this process's own descriptors, a buffer of one byte, and numbers.
        unsafe {
            // A signal for the group of the parent is not for the guardian.
            libc::setpgid(0, 0);
            close_others(lifeline);
            let mut byte = 0_u8;
            loop {
                let read = libc::read(lifeline, (&raw mut byte).cast(), 1);
                if read == 0 || read < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                    break;
                }
            }
        }
        for entry in self.used() {
            let group = entry.load(Ordering::Relaxed);
            if group > 1 {
                // SAFETY: the call affects no memory. Number 1 and below are no groups of ranks.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
        }
        self.kill_marked(parent);
        for folder in &self.folders {
            drop(fs::remove_dir_all(folder));
        }
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(0) }
    }
}

impl Guardian {
    /// Kills the processes with the mark, until none is left. Runs in the guardian process.
    fn kill_marked(&self, parent: libc::pid_t) {
        // The pipe closes before the system hands the children of the parent to another process.
        let reaper = || {
            // SAFETY: the call cannot fail and has no effect.
            unsafe { libc::getppid() }
        };
        let mut clean = 0;
        for _ in 0..SEARCHES_MAX {
            let reaper = reaper();
            if reaper != parent {
                clean = if sys::kill_marked(reaper, self.mark.to_bytes()) { 0 } else { clean + 1 };
            }
            if clean == CLEAN_MIN {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Closes all descriptors but one.
///
/// # Safety
/// No descriptor of this process is used afterwards, except `kept`.
unsafe fn close_others(kept: i32) {
    let below = kept.cast_unsigned();
    // SAFETY: the caller gives the descriptors up.
    unsafe {
        if below > 0 {
            sys::close_range(0, below - 1);
        }
        sys::close_range(below + 1, u32::MAX);
    }
}

impl Drop for Guardian {
    /// Ends the guardian process before it kills, and waits for it. It may be stopped, so it is not asked.
    fn drop(&mut self) {
        let collect = |options| {
            // SAFETY: the call waits for a child of this process. Its status is unused.
            unsafe { libc::waitpid(self.pid, ptr::null_mut(), options) }
        };
        if let Some(lifeline) = self.lifeline.take() {
            // The number is the guardian's as long as the guardian is an uncollected child of this process.
            if collect(libc::WNOHANG) == 0 {
                // SAFETY: the call affects no memory.
                unsafe { libc::kill(self.pid, libc::SIGKILL) };
                collect(0);
            }
            drop(lifeline);
        }
        // SAFETY: `start` has made this mapping, and no reference to it is left.
        unsafe { libc::munmap(self.table.as_ptr().cast(), TABLE_LEN * size_of::<AtomicI32>()) };
    }
}
