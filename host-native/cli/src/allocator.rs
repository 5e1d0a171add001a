//! The allocator of the command where the C library is musl, whose own costs some 180 page faults more at a start.
//!
//! dlmalloc packs small blocks. It writes zeroed blocks of every size, whereas musl maps large ones: their pages stay untouched
//! until they are used, and servers use few of the pages of their buffers.

use std::alloc::{GlobalAlloc, Layout};
use std::ptr;

/// Size of the smallest large block, in bytes. musl maps blocks from 131,052 bytes on.
const LARGE: usize = 128 * 1024;

/// An allocator for small blocks, and one for large ones.
pub(crate) struct BySize<S, L> {
    pub(crate) small: S,
    pub(crate) large: L,
}

// SAFETY: a block's allocator follows from its size, so the one that made it also frees it. Both keep this trait's contract.
unsafe impl<S: GlobalAlloc, L: GlobalAlloc> GlobalAlloc for BySize<S, L> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { if layout.size() < LARGE { self.small.alloc(layout) } else { self.large.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let small = layout.size() < LARGE;
        // SAFETY: the caller's promise.
        unsafe { if small { self.small.alloc_zeroed(layout) } else { self.large.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let small = layout.size() < LARGE;
        // SAFETY: the caller's promise; the block's size tells who made it.
        unsafe { if small { self.small.dealloc(block, layout) } else { self.large.dealloc(block, layout) } }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match (layout.size() < LARGE, new_size < LARGE) {
            // SAFETY: the caller's promise; both sizes are this allocator's.
            (true, true) => return unsafe { self.small.realloc(block, layout, new_size) },
            // SAFETY: as above.
            (false, false) => return unsafe { self.large.realloc(block, layout, new_size) },
            _ => {}
        }
        // SAFETY: the caller promises that the new size fits the alignment, and is not 0.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new.is_null() {
            // SAFETY: two blocks, neither shorter than what is copied; the caller gives up the old one.
            unsafe {
                ptr::copy_nonoverlapping(block, new, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// The system's allocator, which knows its blocks.
    #[derive(Default)]
    struct Recording(RefCell<BTreeMap<usize, Layout>>);

    impl Recording {
        fn made(&self, block: *mut u8, layout: Layout) -> *mut u8 {
            assert!(!block.is_null());
            self.0.borrow_mut().insert(block.addr(), layout);
            block
        }

        fn gone(&self, block: *mut u8, layout: Layout) {
            assert_eq!(
                self.0.borrow_mut().remove(&block.addr()),
                Some(layout),
                "a block of another allocator"
            );
        }

        /// Sizes of the blocks that were not freed.
        fn sizes(&self) -> Vec<usize> {
            self.0.borrow().values().map(Layout::size).collect()
        }
    }

    // SAFETY: blocks are the system's.
    unsafe impl GlobalAlloc for Recording {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise.
            self.made(unsafe { System.alloc(layout) }, layout)
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            self.gone(block, layout);
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(block, layout) }
        }
    }

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 16).expect("a power of two, and far below the limit")
    }

    fn recording() -> BySize<Recording, Recording> {
        BySize { small: Recording::default(), large: Recording::default() }
    }

    #[test]
    fn blocks_from_128_kib_on_are_large() {
        let by_size = recording();
        for zeroed in [false, true] {
            let blocks = [1, LARGE - 1, LARGE, 3 * LARGE].map(|size| {
                // SAFETY: no size is 0.
                let block = unsafe {
                    if zeroed { by_size.alloc_zeroed(layout(size)) } else { by_size.alloc(layout(size)) }
                };
                (block, layout(size))
            });
            let sorted = |mut sizes: Vec<usize>| {
                sizes.sort_unstable();
                sizes
            };
            assert_eq!(sorted(by_size.small.sizes()), [1, 131_071]);
            assert_eq!(sorted(by_size.large.sizes()), [131_072, 393_216]);
            for (block, layout) in blocks {
                // SAFETY: made above with this layout.
                unsafe { by_size.dealloc(block, layout) };
            }
            assert!(by_size.small.sizes().is_empty() && by_size.large.sizes().is_empty());
        }
    }

    #[test]
    fn blocks_keep_their_bytes_when_they_become_large_and_small() {
        let by_size = recording();
        let bytes = |len: usize| (0..len).map(|i| (i % 251) as u8);
        let mut old = 100;
        // SAFETY: the size is not 0.
        let mut block = unsafe { by_size.alloc(layout(old)) };
        for new in [LARGE - 1, LARGE, 2 * LARGE, 1000, 3 * LARGE, LARGE, LARGE - 1, 1] {
            for (i, byte) in bytes(old).enumerate() {
                // SAFETY: the block has `old` bytes.
                unsafe { block.add(i).write(byte) };
            }
            // SAFETY: the block was made with the old size; the new one is not 0.
            block = unsafe { by_size.realloc(block, layout(old), new) };
            let kept = old.min(new);
            // SAFETY: the block has at least these bytes, which were written.
            assert!(unsafe { std::slice::from_raw_parts(block, kept) }.iter().copied().eq(bytes(kept)));
            let [small, large] = [by_size.small.sizes(), by_size.large.sizes()];
            assert_eq!(if new < LARGE { small } else { large }, [new]);
            old = new;
        }
        // SAFETY: made with this size.
        unsafe { by_size.dealloc(block, layout(old)) };
        assert!(by_size.small.sizes().is_empty() && by_size.large.sizes().is_empty());
    }
}
