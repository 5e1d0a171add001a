//! Opaque slots, and memory regions that slabs of them are carved from.

use core::sync::atomic::AtomicU32;

/// Element of a slab. Implemented for the server's own types only.
pub trait Slot: Sealed + Sized + 'static {
    /// Returns a slot as a new server needs it.
    fn empty() -> Self;
}

/// Memory region that slabs are taken from, one after another. See [`Storage::in_arena`](super::Storage::in_arena).
pub trait Arena<'s> {
    /// Returns `len` slots, each [`empty`](Slot::empty), or `None` if too little memory is left.
    fn slots<T: Slot>(&mut self, len: usize) -> Option<&'s mut [T]>;

    /// Returns `len` bytes of any content, or `None` if too little memory is left.
    fn bytes(&mut self, len: usize) -> Option<&'s mut [u8]>;
}

/// Keeps [`Slot`] to the types of this crate.
pub trait Sealed {}

impl Sealed for AtomicU32 {}
impl Slot for AtomicU32 {
    fn empty() -> AtomicU32 {
        AtomicU32::new(0)
    }
}
