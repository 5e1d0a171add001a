//! Large pages for the log of a plugin's server.

use std::ops::Range;

/// Length of a large page in bytes.
const LARGE: usize = 2 << 20;

/// Requests large pages for a log in the plugin's memory where the built-in server has them: behind the log's first few pages. A
/// look-up among very many keys then causes fewer TLB misses, and a small job uses no large page.
pub(crate) fn prefer_large(memory: &mut [u8], log: Range<usize>) {
    let log = log.start.saturating_add(LARGE)..log.end.min(memory.len());
    if let Some(log) = memory.get_mut(log) {
        advise(log);
    }
}

/// Requests large pages for the whole ones within a slice.
#[cfg(target_os = "linux")]
fn advise(bytes: &mut [u8]) {
    use rustix::mm::{Advice, madvise};
    let range = bytes.as_mut_ptr_range();
    let skipped = range.start.addr().next_multiple_of(LARGE) - range.start.addr();
    let len = bytes.len().saturating_sub(skipped) / LARGE * LARGE;
    if len > 0 {
        // SAFETY: the pages lie within the slice. The advice does not change their contents.
        let advised =
            unsafe { madvise(range.start.wrapping_add(skipped).cast(), len, Advice::LinuxHugepage) };
        // A kernel without large pages serves as well, if not as fast.
        let _ = advised;
    }
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &mut [u8]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_in_the_memory_is_left_alone() {
        let mut memory = vec![1; 3 * LARGE];
        for (start, end) in
            [(0, 0), (0, usize::MAX), (LARGE, 2 * LARGE), (4 * LARGE, 5 * LARGE), (usize::MAX, 0)]
        {
            prefer_large(&mut memory, start..end);
        }
        assert!(memory.iter().all(|&byte| byte == 1));
    }
}
