//! Memory that processes share by a descriptor.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

/// Creates a file in memory without a path. It is empty, can be sealed, and is close-on-exec. `name` appears in
/// `/proc/PID/maps`.
///
/// # Errors
/// That of the system.
pub fn memfd(name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(name, flags),
        result => result,
    }
}
