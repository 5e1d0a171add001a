//! Bump allocator over a byte slice, for the memory of a [`Server`](hydrant_core::Server).
//!
//! A host whose memory is one region (mapped pages, the memory of a WebAssembly module) lends all of it, or all but the
//! log, by a [`BumpArena`]:
//!
//! ```
//! use hydrant_arena::BumpArena;
//! use hydrant_core::storage::{Layout, Storage};
//! use hydrant_core::{Limits, Server};
//!
//! let limits = Limits::for_ranks(2);
//! let layout = Layout::of(&limits);
//! let mut memory = vec![0; layout.bytes() + BumpArena::PADDING_MAX];
//! let storage = Storage::in_arena(&layout, &mut BumpArena::new(&mut memory)).expect("the memory has that length");
//! let server = Server::new(limits, storage, 1)?;
//! assert_eq!(server.limits(), &limits);
//! # Ok::<(), hydrant_core::Fault>(())
//! ```

#![no_std]

use core::slice;

use hydrant_core::storage::{Arena, Layout, Slot};

/// Largest alignment of a slot.
const ALIGNMENT_MAX: usize = 16;

/// Bump allocator: slabs are cut off the front of a slice, one after another, and returned with the slice.
#[derive(Debug)]
pub struct BumpArena<'s> {
    rest: &'s mut [u8],
}

impl<'s> BumpArena<'s> {
    /// Bytes that the alignment of slabs takes at most, beyond those of a [`Layout`].
    pub const PADDING_MAX: usize = Layout::SLABS * ALIGNMENT_MAX;

    /// Takes memory of any content and alignment.
    pub fn new(memory: &'s mut [u8]) -> BumpArena<'s> {
        BumpArena { rest: memory }
    }
}

impl<'s> Arena<'s> for BumpArena<'s> {
    fn slots<T: Slot>(&mut self, len: usize) -> Option<&'s mut [T]> {
        const { assert!(align_of::<T>() <= ALIGNMENT_MAX) };
        let padding = self.rest.as_ptr().align_offset(align_of::<T>());
        self.rest.split_off_mut(..padding)?;
        let bytes = self.rest.split_off_mut(..len.checked_mul(size_of::<T>())?)?;
        let first: *mut T = bytes.as_mut_ptr().cast();
        for at in 0..len {
            // SAFETY: the slot lies in `bytes`, which is aligned for it and borrowed only here.
            unsafe { first.add(at).write(T::empty()) };
        }
        // SAFETY: all `len` slots have been written, in memory that is borrowed for `'s` only here.
        Some(unsafe { slice::from_raw_parts_mut(first, len) })
    }

    fn bytes(&mut self, len: usize) -> Option<&'s mut [u8]> {
        self.rest.split_off_mut(..len)
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use alloc::vec;
    use core::sync::atomic::AtomicU32;

    use hydrant_core::storage::{Layout, Storage};
    use hydrant_core::{Limits, Server};

    use super::*;

    #[test]
    fn slots_are_aligned_empty_and_apart() {
        let mut memory = [0xff; 64];
        let start = memory.as_ptr().align_offset(4) + 1;
        let mut arena = BumpArena::new(&mut memory[start..]);
        let words = arena.slots::<u32>(3).expect("12 bytes and 3 of padding");
        let more = arena.slots::<AtomicU32>(1).expect("4 bytes");
        let bytes = arena.bytes(2).expect("2 bytes");
        assert_eq!((words.as_ptr().addr() % 4, &*words), (0, &[0; 3][..]));
        assert_eq!(words.as_ptr_range().end.addr(), more.as_ptr().addr());
        bytes.fill(7);
        words.fill(1);
        assert_eq!((*more[0].get_mut(), &*bytes), (0, &[7, 7][..]));
    }

    #[test]
    fn memory_that_is_too_short_gives_none() {
        let mut memory = [0; 16];
        let mut arena = BumpArena::new(&mut memory);
        assert!(arena.slots::<u32>(5).is_none());
        assert!(arena.slots::<u32>(usize::MAX).is_none());
        assert!(arena.bytes(17).is_none());
    }

    #[test]
    fn the_padding_is_enough_at_any_address() {
        let limits = Limits { links: 3, ..Limits::for_ranks(3) };
        let layout = Layout::of(&limits);
        let len = layout.bytes() + BumpArena::PADDING_MAX;
        let mut memory = vec![0; len + ALIGNMENT_MAX];
        for start in 0..ALIGNMENT_MAX {
            let storage = Storage::in_arena(&layout, &mut BumpArena::new(&mut memory[start..][..len]));
            let server = Server::new(limits, storage.expect("it has the length"), 1);
            assert_eq!(server.expect("valid limits").limits(), &limits);
        }
        assert!(Storage::in_arena(&layout, &mut BumpArena::new(&mut memory[..layout.bytes() - 1])).is_none());
    }
}
