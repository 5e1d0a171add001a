//! Memory that processes share by a descriptor.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{SeekFrom, seek};
use rustix::io::{Errno, pread};

use crate::sys;

/// Creates a file of `len` zero bytes without a path, close-on-exec. On Linux it is memory of fixed size, and `name` appears in
/// `/proc/PID/maps`. Elsewhere it is a file of the folder for temporary files, which can grow and shrink.
///
/// # Errors
/// That of the system.
pub fn fixed_memory(name: &CStr, len: u64) -> Result<OwnedFd, Errno> {
    sys::fixed_memory(name, len)
}

/// Reads what a process has written to a file that it got from this one, but at most `most` bytes. The two processes share the
/// position in the file.
///
/// # Errors
/// Those of the system.
pub fn read_written(file: BorrowedFd<'_>, most: u64) -> Result<Vec<u8>, Errno> {
    let written = seek(file, SeekFrom::Current(0))?.min(most);
    let mut bytes = vec![0; written as usize];
    let len = pread(file, &mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}
