//! Opaque slots, and memory regions that slabs of them are carved from.

use core::sync::atomic::AtomicU32;

use crate::peer::links::Link;
use crate::state::{Conn, Job, RankSlot};
use crate::tables::fence::Group;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::tables::upcalls::Upcall;

/// Element of a slab. Implemented for the server's own types only.
pub trait Slot: sealed::Sealed + Sized + 'static {
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

mod sealed {
    pub trait Sealed {}
}

macro_rules! slots {
    (
        |$limits:ident|
        slots { $($(#[$doc:meta])* $name:ident $N:ident $slab:ident: [$item:ty; $len:expr] = $empty:expr;)* }
        bulk {
            $(
                $(#[$bulk_doc:meta])*
                $bulk:ident $M:ident $bulk_slab:ident: [$bulk_item:ty; $bulk_len:expr] = $bulk_empty:expr,
                $take:ident as $lent:ty;
            )*
        }
    ) => {
        $(
            impl sealed::Sealed for $item {}
            impl Slot for $item {
                fn empty() -> $item {
                    $empty
                }
            }
        )*
    };
}

tables!(slots);

impl sealed::Sealed for AtomicU32 {}
impl Slot for AtomicU32 {
    fn empty() -> AtomicU32 {
        AtomicU32::new(0)
    }
}
