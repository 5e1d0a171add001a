//! Shared memory pool of a job's ranks on this machine, which pmi2.h describes in attributes of the node.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hydrant_driver::installed_memory;
use hydrant_reactor::fixed_memory;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

use crate::{LaunchError, POOL_FD};

/// Memory that the ranks of a job on this machine share. Pages are allocated when a rank writes to them, on its NUMA node.
#[derive(Debug)]
pub struct MemoryPool(OwnedFd);

impl MemoryPool {
    /// Creates a pool of `size` bytes, all zero. Ranks can write to it and cannot change its size.
    ///
    /// # Errors
    /// [`LaunchError::PoolTooLarge`], or [`LaunchError::Pool`] if the system does not provide it.
    pub fn new(size: u64) -> Result<MemoryPool, LaunchError> {
        // A file that exceeds this limit would be answered with a signal.
        let longest = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        for (limit, what) in [
            (longest, "the limit of file sizes (ulimit -f)"),
            (installed_memory(), "the memory of this host"),
        ] {
            if size > limit {
                return Err(LaunchError::PoolTooLarge { size, limit, what });
            }
        }
        // Behind the number of the PMI socket, which a rank is given first.
        let create = || -> Result<OwnedFd, Errno> {
            fcntl_dupfd_cloexec(fixed_memory(c"hydrant-pool", size)?, POOL_FD)
        };
        let memory = create().map_err(|errno| LaunchError::Pool { size, why: io::Error::from(errno) })?;
        Ok(MemoryPool(memory))
    }
}

impl AsFd for MemoryPool {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::ftruncate;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_pool_has_a_fixed_size() {
        let pool = MemoryPool::new(10_000).unwrap();
        assert!(pool.as_fd().as_raw_fd() >= POOL_FD);
        assert_eq!(rustix::fs::fstat(&pool).unwrap().st_size, 10_000);
        for size in [0, 9_999, 10_001] {
            assert_eq!(ftruncate(&pool, size), Err(Errno::PERM));
        }
        assert_eq!(rustix::io::pwrite(&pool, b"x", 9_999), Ok(1));
    }

    #[test]
    fn a_pool_is_no_larger_than_the_memory() {
        let error = MemoryPool::new(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("18446744073709551615 bytes exceeds "), "{error}");
    }
}
