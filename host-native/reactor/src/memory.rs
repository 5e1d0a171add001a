//! Memory that processes share by a descriptor.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::sys;

/// Creates a file of `len` zero bytes without a path, close-on-exec. On Linux it is memory of fixed size, and `name` appears in
/// `/proc/PID/maps`. Elsewhere it is a file of the folder for temporary files, which can grow and shrink.
///
/// # Errors
/// That of the system.
pub fn fixed_memory(name: &CStr, len: u64) -> Result<OwnedFd, Errno> {
    sys::fixed_memory(name, len)
}
