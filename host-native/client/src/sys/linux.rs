//! Files of Linux.

use std::os::fd::OwnedFd;

use rustix::fs::{SealFlags, Stat, fcntl_get_seals};
use rustix::io::Errno;

/// Returns whether a file is sealed against shrinking.
pub(crate) fn cannot_shrink(file: &OwnedFd) -> Result<bool, Errno> {
    Ok(fcntl_get_seals(file)?.contains(SealFlags::SHRINK))
}

/// Device and inode of a file.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}
