//! Statics and allocated memory of the module. Allocated memory is never freed.

use core::arch::wasm32::{memory_grow, memory_size};
use core::cell::UnsafeCell;
use core::{ptr, slice};

use hydrant_arena::BumpArena;
use hydrant_core::Storage;
use hydrant_core::storage::Layout;

const PAGE: usize = 64 * 1024;

/// Mutable static. Accesses never overlap: the module has one thread, no interrupts, and no imports through which a host
/// could call it again.
pub(crate) struct Cell<T>(UnsafeCell<T>);

// SAFETY: the module is built without threads and its memory is not shared, so that all accesses are of one thread.
unsafe impl<T> Sync for Cell<T> {}

impl<T> Cell<T> {
    pub(crate) const fn new(value: T) -> Cell<T> {
        Cell(UnsafeCell::new(value))
    }

    /// Calls `act` with the value. `act` must not access the same cell.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: there is one thread, and no caller in this module accesses the same cell within `act`, so that the
        // reference is the only one.
        act(unsafe { &mut *self.0.get() })
    }
}

/// Bytes at a fixed address. The host reads and writes them between calls only.
// Each begins a page, so that the replies to a fence of 128 ranks are in one or two, which cost a page fault each at first.
#[repr(align(4096))]
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

/// Allocates at least `len` zeroed bytes, rounded up to whole pages. Returns `None` if the memory cannot grow.
pub(crate) fn bytes(len: usize) -> Option<&'static mut [u8]> {
    let len = len.checked_next_multiple_of(PAGE)?;
    let start = grow(len)?;
    // SAFETY: the pages past the memory's former end are new, zeroed and never freed.
    Some(unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut(start), len) })
}

/// Extends `room` to at least `len` bytes. It is extended in place if it ends where the memory ends, and replaced
/// otherwise. Returns `None` without a change if the memory cannot grow.
pub(crate) fn extend(room: &mut &'static mut [u8], len: usize) -> Option<()> {
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
    // SAFETY: the memory ended with `room`, so that `more` follows it. Both are borrowed only here and never freed.
    *room = unsafe { slice::from_raw_parts_mut(start, room.len() + more.len()) };
    Some(())
}

/// Lays storage out in memory that is taken from the host.
pub(crate) fn storage(layout: &Layout) -> Option<Storage<'static>> {
    let memory = bytes(layout.bytes().checked_add(BumpArena::PADDING_MAX)?)?;
    Storage::in_arena(layout, &mut BumpArena::new(memory))
}

/// Grows the memory by at least `len` bytes. Returns the address of the first new byte.
fn grow(len: usize) -> Option<usize> {
    let end = memory_size::<0>() * PAGE;
    match memory_grow::<0>(len.div_ceil(PAGE)) {
        usize::MAX => None,
        before => Some(end).filter(|_| before * PAGE == end),
    }
}
