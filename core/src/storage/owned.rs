//! Storage on the heap.

use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::AtomicU32;

use super::{Bulk, Layout, Slot, Storage};
use crate::limits::Limits;
use crate::peer::links::Link;
use crate::state::{Conn, Job, RankSlot};
use crate::tables::fence::Group;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::tables::upcalls::Upcall;

macro_rules! owned {
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
        /// Storage on the heap, for limits known at run time.
        #[derive(Debug)]
        pub struct OwnedStorage {
            $($name: Box<[$item]>,)*
            $($bulk: Box<[$bulk_item]>,)*
            /// No server has used the slots.
            unused: bool,
        }

        impl OwnedStorage {
            /// Allocates storage for these limits.
            ///
            /// # Panics
            /// If the address space is too small for the limits. If the allocator has too little memory, the program
            /// aborts as with every allocation. A host that takes limits from its user compares [`Layout::checked`] with
            /// the installed memory first.
            pub fn new(limits: &Limits) -> OwnedStorage {
                let layout = Layout::checked(limits).expect("the limits fit the address space");
                OwnedStorage {
                    $($name: slots(layout.$name),)*
                    $($bulk: $take(layout.$bulk),)*
                    unused: true,
                }
            }

            /// Lends the slabs to a server.
            pub fn lend(&mut self) -> Storage<'_> {
                let unused = core::mem::replace(&mut self.unused, false);
                let bulk = Bulk { $($bulk: &mut self.$bulk,)* };
                Storage { $($name: &mut self.$name,)* bulk, unused }
            }
        }
    };
}

tables!(owned);

fn slots<T: Slot>(len: usize) -> Box<[T]> {
    core::iter::repeat_with(T::empty).take(len).collect()
}

/// Allocates zeros, which the system may provide when they are read.
fn bytes(len: usize) -> Box<[u8]> {
    vec![0; len].into()
}
