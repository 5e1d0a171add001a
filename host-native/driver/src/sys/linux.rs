//! System calls of Linux.

use std::ffi::c_void;

use rustix::mm::{Advice, MapFlags, madvise};

/// Flag of a mapping whose memory is not reserved.
pub(crate) const NORESERVE: MapFlags = MapFlags::NORESERVE;

/// Returns the machine's memory in bytes.
pub(crate) fn installed_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// Requests large pages for a part of this process's memory.
///
/// # Safety
/// The pages are mapped.
pub(crate) unsafe fn prefer_large_pages(start: *mut c_void, len: usize) {
    // SAFETY: the caller's pages. The advice does not change their contents.
    let advised = unsafe { madvise(start, len, Advice::LinuxHugepage) };
    // A kernel without large pages serves as well, if not as fast.
    let _ = advised;
}
