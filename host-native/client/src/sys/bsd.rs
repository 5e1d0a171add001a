//! Files of FreeBSD and macOS.

use std::os::fd::OwnedFd;

use rustix::fs::Stat;
use rustix::io::Errno;

/// Returns false: the server offers no sealed file.
pub(crate) fn cannot_shrink(_: &OwnedFd) -> Result<bool, Errno> {
    Ok(false)
}

/// Device and inode of a file.
pub(crate) fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino)
}
