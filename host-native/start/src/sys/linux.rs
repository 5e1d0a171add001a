//! Linux: processors and memory policy of the calling thread, which new processes inherit, and files in memory.

use std::io;
use std::os::fd::OwnedFd;

use libc::{c_int, c_long, c_ulong};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this process may use.
pub(crate) fn allowed_processors() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU as u32).filter(|&cpu| set.is_set(cpu as usize)).collect())
}

/// Binds this thread to processors.
pub(crate) fn bind_to_processors(cpus: &[u32]) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu as usize));
    Ok(sched_setaffinity(None, &set)?)
}

/// Creates a file in memory that programs can be started from. It is empty, can be sealed, and is close-on-exec.
pub(crate) fn executable_memory() -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(c"hydrant-program", flags | MemfdFlags::EXEC) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(c"hydrant-program", flags),
        result => result,
    }
}

/// Seals a file in memory: its bytes and length stay as they are.
pub(crate) fn seal(memory: &OwnedFd) -> Result<(), Errno> {
    fcntl_add_seals(memory, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)
}

/// Modes of `set_mempolicy`.
const BIND: c_int = 2;
const INTERLEAVE: c_int = 3;

/// Words of a node mask, and the number of its bits. The kernel does not look at the last bit.
const WORDS: usize = 16;
const BITS: c_ulong = (WORDS * c_ulong::BITS as usize + 1) as c_ulong;

/// Memory policy: its mode and its NUMA nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPolicy {
    mode: c_int,
    nodes: [c_ulong; WORDS],
}

impl MemoryPolicy {
    /// The policy of this thread.
    ///
    /// # Errors
    /// The kernel has no memory policies, or forbids them.
    pub(crate) fn current() -> io::Result<MemoryPolicy> {
        let mut policy = MemoryPolicy { mode: 0, nodes: [0; WORDS] };
        // SAFETY: both pointers lead to fields of `policy`, and the mask has room for `BITS` - 1 bits.
        let result = unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                policy.nodes.as_mut_ptr(),
                BITS,
                std::ptr::null_mut::<libc::c_void>(),
                0 as c_ulong,
            )
        };
        check(result).map(|()| policy)
    }

    /// Memory of these nodes only, below 1024.
    fn of_nodes(nodes: &[u32], interleaved: bool) -> MemoryPolicy {
        let mode = if interleaved { INTERLEAVE } else { BIND };
        let mut policy = MemoryPolicy { mode, nodes: [0; WORDS] };
        for &node in nodes {
            let (word, bit) = (node / c_ulong::BITS, node % c_ulong::BITS);
            if let Some(word) = policy.nodes.get_mut(word as usize) {
                *word |= 1 << bit;
            }
        }
        policy
    }

    /// Gives this thread memory of these nodes only.
    ///
    /// # Errors
    /// As [`set`](MemoryPolicy::set).
    pub(crate) fn set_nodes(nodes: &[u32], interleaved: bool) -> io::Result<()> {
        MemoryPolicy::of_nodes(nodes, interleaved).set()
    }

    /// Gives this thread the policy.
    ///
    /// # Errors
    /// A node does not exist or is forbidden to this process, or the kernel has no memory policies.
    pub(crate) fn set(&self) -> io::Result<()> {
        let is_empty = self.nodes.iter().all(|&word| word == 0);
        let (mask, bits) = if is_empty { (std::ptr::null(), 0) } else { (self.nodes.as_ptr(), BITS) };
        // SAFETY: the mask is null or has `BITS` - 1 bits. The kernel reads it only.
        check(unsafe { libc::syscall(libc::SYS_set_mempolicy, c_long::from(self.mode), mask, bits) })
    }
}

fn check(result: c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_its_policy_back() {
        // A thread of its own, because tests share theirs.
        let thread = std::thread::spawn(|| {
            let Ok(own) = MemoryPolicy::current() else { return };
            let policy = MemoryPolicy::of_nodes(&[0], false);
            if policy.set().is_ok() {
                assert_eq!(MemoryPolicy::current().unwrap(), policy);
            }
            own.set().unwrap();
            assert_eq!(MemoryPolicy::current().unwrap(), own);
        });
        thread.join().unwrap();
        assert!(MemoryPolicy::of_nodes(&[5000], false).set().is_err(), "no node");
    }
}
