//! Storage of constant size.

use core::sync::atomic::AtomicU32;

use super::{Bulk, Layout, Storage};
use crate::peer::links::Link;
use crate::state::{Conn, Job, RankSlot};
use crate::tables::fence::Group;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::tables::upcalls::Upcall;

macro_rules! fixed {
    (
        $d:tt
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
        /// Storage of constant size, for a `static` or the stack. [`fixed_storage!`](crate::fixed_storage) names the type
        /// for given limits.
        ///
        /// The initial value consists of zero bytes. A `static` of this type is in `.bss`, takes no space in the program
        /// file, and is cleared at start-up. Crates such as `static_cell` lend a `static` mutably:
        ///
        /// ```text
        /// static STORAGE: ConstStaticCell<fixed_storage!(LIMITS)> = ConstStaticCell::new(FixedStorage::new());
        /// let server = Server::new(LIMITS, STORAGE.take().lend(), SEED)?;
        /// ```
        #[derive(Debug)]
        pub struct FixedStorage<$(const $N: usize,)* $(const $M: usize,)*> {
            $($name: [$item; $N],)*
            $($bulk: [$bulk_item; $M],)*
            /// A server has used the slots.
            used: bool,
        }

        impl<$(const $N: usize,)* $(const $M: usize,)*> FixedStorage<$($N,)* $($M,)*> {
            /// Empty storage.
            pub const fn new() -> Self {
                FixedStorage {
                    $($name: [const { $empty }; $N],)*
                    $($bulk: [const { $bulk_empty }; $M],)*
                    used: false,
                }
            }

            /// Returns whether storage of this type has as many slots as a layout, of which the slabs of [`Bulk`] are
            /// elsewhere.
            pub const fn has_slots_for(layout: &Layout) -> bool {
                true $(&& layout.$name <= $N)*
            }

            /// Lends the slabs to a server.
            pub fn lend(&mut self) -> Storage<'_> {
                let unused = !core::mem::replace(&mut self.used, true);
                let bulk = Bulk { $($bulk: &mut self.$bulk,)* };
                Storage { $($name: &mut self.$name,)* bulk, unused }
            }

            /// Lends these slots and the slabs of `bulk` to a server.
            pub fn lend_slots<'s>(&'s mut self, bulk: Bulk<'s>) -> Storage<'s> {
                Storage { bulk, ..self.lend() }
            }
        }

        impl<$(const $N: usize,)* $(const $M: usize,)*> Default for FixedStorage<$($N,)* $($M,)*> {
            fn default() -> Self {
                FixedStorage::new()
            }
        }

        /// Names the [`FixedStorage`](crate::storage::FixedStorage) type for constant [`Limits`](crate::Limits).
        ///
        /// ```
        /// use hydrant_core::storage::FixedStorage;
        /// use hydrant_core::{Limits, Server, fixed_storage};
        ///
        /// const LIMITS: Limits = Limits { jobs: 1, ranks: 2, conns: 2, keys: 16, kvs_bytes: 1024, ..Limits::NONE };
        ///
        /// let mut storage: fixed_storage!(LIMITS) = FixedStorage::new();
        /// let server = Server::new(LIMITS, storage.lend(), 1)?;
        /// # assert_eq!(server.poll_at(), None);
        /// # Ok::<(), hydrant_core::Fault>(())
        /// ```
        #[macro_export]
        macro_rules! fixed_storage {
            ($d limits:expr) => {
                $crate::storage::FixedStorage<
                    $({ $crate::storage::Layout::of(&$d limits).$name },)*
                    $({ $crate::storage::Layout::of(&$d limits).$bulk },)*
                >
            };
        }
    };
}

tables!(fixed $);
