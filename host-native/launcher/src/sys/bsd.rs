//! FreeBSD and macOS: pseudo-terminals, and files in place of memory. Processors and memory of ranks cannot be chosen.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use hydrant_reactor::random_u32;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

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

/// Opens both ends of a pseudo-terminal.
pub(crate) fn open_pty() -> Result<(OwnedFd, OwnedFd), Errno> {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    fcntl_setfd(&ours, FdFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    let theirs = open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?;
    Ok((ours, theirs))
}

/// A file without a name. Its length has no limit: the reader reads `len` bytes of it.
pub(crate) fn fixed_memory(_len: u64) -> Result<OwnedFd, Errno> {
    let create = || -> io::Result<File> {
        let name = format!("hydrant-{}-{:08x}", std::process::id(), random_u32()?);
        let path = std::env::temp_dir().join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    };
    create().map(OwnedFd::from).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
