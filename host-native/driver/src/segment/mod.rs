//! Memory of the key-value log and its index, which ranks may read where the system offers sealed shared memory (Linux).
//!
//! The memory is one sparse, sealed memfd, and only the launcher's mapping is writable. Ranks find its path below `/proc/PID/fd`,
//! its inode and their job's space in `HYDRANT_KVS`, so they inherit no descriptor for it. A client uses the memory if the path
//! leads to that inode and the job is its own. Without such memory (another PID namespace, `--pmi-port`, a plugin) there is no
//! offer. A log is cleared by a walk over its records: the first access to a page of shared memory allocates the page.

#[cfg(target_os = "linux")]
mod memfd;
#[cfg(not(target_os = "linux"))]
mod unshared;

use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::AtomicU32;

use hydrant_core::client::Offer;
#[cfg(target_os = "linux")]
pub(crate) use memfd::Segment;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
#[cfg(not(target_os = "linux"))]
pub(crate) use unshared::Segment;

use crate::sys;

/// Environment variable with the location of the segment for ranks.
const VARIABLE: &str = "HYDRANT_KVS";

/// A slot of the index in bytes.
const SLOT: usize = size_of::<AtomicU32>();

/// Mapped memory for a log and its index. Unwritten memory is zero.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    /// Slots.
    index: usize,
    /// Bytes.
    log: usize,
}

// SAFETY: within this process only this value owns the memory, on any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// Maps private memory for `index` slots and `log` bytes. None if the address space is exhausted.
    pub(crate) fn new(index: usize, log: usize) -> Option<Memory> {
        let len = Memory::len(index, log)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | sys::NORESERVE);
        // SAFETY: the mapping is new and at an address that the system selects. It stays until `drop`.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, flags) }.ok()?;
        Some(Memory { start: NonNull::new(start.cast())?, index, log })
    }

    /// Returns the length of the mapping in bytes. It is at least one, because an empty mapping is invalid.
    fn len(index: usize, log: usize) -> Option<usize> {
        Some(index.checked_mul(SLOT)?.checked_add(log)?.max(1))
    }

    /// Lends out the log and the index.
    pub(crate) fn lend(&mut self) -> (&mut [u8], &[AtomicU32]) {
        let log = self.start.as_ptr().wrapping_add(self.index * SLOT);
        // SAFETY: both slices lie in the mapping without overlap, and are borrowed exclusively through `self`. The
        // mapping starts at a page, and zeros are valid numbers. Other processes can only read it.
        unsafe {
            (
                slice::from_raw_parts_mut(log, self.log),
                slice::from_raw_parts(self.start.as_ptr().cast(), self.index),
            )
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let len = Memory::len(self.index, self.log).expect("it was counted when it was mapped");
        // SAFETY: this is the whole mapping, and no borrow of it is left. The call cannot fail for an existing mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), len) };
    }
}

/// Location of a segment, for the ranks of any job.
#[derive(Debug)]
pub struct Sharing {
    path: String,
    file: (u64, u64),
    index: u32,
    log: u32,
    seed: u32,
}

impl Sharing {
    /// Returns the environment variable for the ranks of a job, `NAME=VALUE`. `space` is the number of the job's key-value
    /// space.
    pub fn variable(&self, space: u32, jobid: &str) -> Option<CString> {
        let Sharing { path, file, index, log, seed } = self;
        let offer = Offer { path, file: *file, index: *index, log: *log, seed: *seed, space, jobid };
        CString::new(format!("{VARIABLE}={offer}")).ok()
    }
}
