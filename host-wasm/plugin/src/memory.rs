//! The module's memory: what stands in it from the start, and what it takes from its host once and for all.

use core::arch::wasm32::{memory_grow, memory_size};
use core::cell::UnsafeCell;
use core::{ptr, slice};

use hydrant_core::Storage;
use hydrant_core::storage::{Arena, Layout, Slot};

const PAGE: usize = 64 * 1024;

/// A static that calls change. Calls come one after the other: WebAssembly has one thread here, nothing interrupts
/// it, and the module calls nobody outside.
pub(crate) struct Cell<T>(UnsafeCell<T>);

// SAFETY: the module is built without threads (its memory is not shared), so that nobody else looks at it.
unsafe impl<T> Sync for Cell<T> {}

impl<T> Cell<T> {
    pub(crate) const fn new(value: T) -> Cell<T> {
        Cell(UnsafeCell::new(value))
    }

    /// Lends the value out. No `act` comes back to the cell that it was lent.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: one thread, and no call of this module lends the same cell twice at a time, so that the reference is
        // the only one.
        act(unsafe { &mut *self.0.get() })
    }
}

/// Bytes at an address that the host knows. It reads and writes them between calls only.
pub(crate) struct Buffer<const N: usize>(Cell<[u8; N]>);

impl<const N: usize> Buffer<N> {
    pub(crate) const fn new() -> Buffer<N> {
        Buffer(Cell::new([0; N]))
    }

    pub(crate) fn address(&self) -> u32 {
        self.0.0.get() as u32
    }

    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut [u8; N]) -> R) -> R {
        self.0.with(act)
    }
}

/// So many bytes of zeros that nobody had before, up to a whole page; nothing when the host does not give them.
pub(crate) fn bytes(len: usize) -> Option<&'static mut [u8]> {
    let len = len.checked_next_multiple_of(PAGE)?;
    let start = grow(len)?;
    // SAFETY: the pages behind the memory's former end belong to nobody else, are initialized, and stay.
    Some(unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(start), len) })
}

/// Makes room for at least `len` bytes, at the end of what is there where nothing lies behind it: memory is never given
/// back. Nothing, and nothing is changed, when the host does not give it.
pub(crate) fn lengthen(room: &mut &'static mut [u8], len: usize) -> Option<()> {
    let more = len.saturating_sub(room.len());
    if more == 0 {
        return Some(());
    }
    if room.as_ptr_range().end.addr() != memory_size::<0>() * PAGE {
        *room = bytes(len)?;
        return Some(());
    }
    let more = bytes(more)?;
    let start = ptr::with_exposed_provenance_mut(room.as_ptr().addr());
    // SAFETY: the memory ended with `room`, so that `more` follows it. Both are lent here alone and for good.
    *room = unsafe { slice::from_raw_parts_mut(start, room.len() + more.len()) };
    Some(())
}

/// Lays storage out in memory that is taken from the host.
pub(crate) fn storage(layout: &Layout) -> Option<Storage<'static>> {
    // Between two slabs there may be a gap, for alignment.
    let rest = bytes(layout.bytes().checked_add(12 * 16)?)?;
    Storage::in_arena(layout, &mut Region { rest })
}

/// Memory that slabs are cut off from the front of.
struct Region {
    rest: &'static mut [u8],
}

impl Arena<'static> for Region {
    fn slots<T: Slot>(&mut self, len: usize) -> Option<&'static mut [T]> {
        let gap = self.rest.as_ptr().align_offset(align_of::<T>());
        self.rest.split_off_mut(..gap)?;
        let bytes = self.rest.split_off_mut(..len.checked_mul(size_of::<T>())?)?;
        let first: *mut T = bytes.as_mut_ptr().cast();
        for at in 0..len {
            // SAFETY: the slot lies in `bytes`, which is aligned for it and borrowed by nobody else.
            unsafe { first.add(at).write(T::empty()) };
        }
        // SAFETY: all `len` slots have been written, in memory that is borrowed here alone and for good.
        Some(unsafe { slice::from_raw_parts_mut(first, len) })
    }

    fn bytes(&mut self, len: usize) -> Option<&'static mut [u8]> {
        self.rest.split_off_mut(..len)
    }
}

/// Takes so many bytes more from the host; where they begin.
fn grow(len: usize) -> Option<usize> {
    let end = memory_size::<0>() * PAGE;
    match memory_grow::<0>(len.div_ceil(PAGE)) {
        usize::MAX => None,
        before => Some(end).filter(|_| before * PAGE == end),
    }
}
