//! System calls of FreeBSD and macOS.

use std::ffi::c_void;

use rustix::mm::MapFlags;

/// No flag: memory of a mapping is allocated when it is written.
pub(crate) const NORESERVE: MapFlags = MapFlags::empty();

/// Returns the machine's memory in bytes.
pub(crate) fn installed_memory() -> u64 {
    // SAFETY: the calls have no effect.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    match (u64::try_from(pages), u64::try_from(size)) {
        (Ok(pages), Ok(size)) => pages.saturating_mul(size),
        _ => u64::MAX,
    }
}

/// Does nothing: the system chooses the size of pages.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn prefer_large_pages(_: *mut c_void, _: usize) {}
