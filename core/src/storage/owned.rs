//! Allocation of slabs on the heap.

use alloc::boxed::Box;
use alloc::vec;

use super::Slot;

pub(super) fn slots<T: Slot>(len: usize) -> Box<[T]> {
    core::iter::repeat_with(T::empty).take(len).collect()
}

/// Allocates zeros, which the system may provide when they are read.
pub(super) fn bytes(len: usize) -> Box<[u8]> {
    vec![0; len].into()
}
