//! FreeBSD and macOS: processors and memory of ranks cannot be chosen, and there are no files in memory.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// Returns the processors that this process may use: all of them.
pub(crate) fn allowed_processors() -> io::Result<Vec<u32>> {
    let count = std::thread::available_parallelism()?.get();
    Ok((0..count as u32).collect())
}

/// Fails.
pub(crate) fn bind_to_processors(_: &[u32]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "hydrant binds processes on Linux only"))
}

/// Memory policy. There is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryPolicy {}

impl MemoryPolicy {
    /// Fails.
    pub(crate) fn current() -> io::Result<MemoryPolicy> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "hydrant binds memory on Linux only"))
    }

    /// Fails.
    pub(crate) fn set_nodes(_: &[u32], _: bool) -> io::Result<()> {
        MemoryPolicy::current().map(|_| ())
    }

    /// Gives this thread the policy.
    pub(crate) fn set(&self) -> io::Result<()> {
        match *self {}
    }
}

/// Files in memory that programs can be started from are not used on these systems.
pub(crate) fn executable_memory() -> Result<OwnedFd, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// There is no such file.
pub(crate) fn seal(_: &OwnedFd) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}
