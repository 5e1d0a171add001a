//! Types with one member for each table: what a list of all tables becomes.

/// Makes the types of a list of tables, each `name PARAMETER Slab: [element; length] = initial element`. The lengths are of `u64`.
/// The initial elements consist of zero bytes. A [`Bulk`](super::Bulk) table is taken from an [`Arena`](super::Arena) by a
/// method, and lent as a type. The list begins with a dollar sign, for the macro that it makes.
macro_rules! storage {
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
        /// Lengths of all slabs, in elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Layout {
            $($(#[$doc])* pub $name: usize,)*
            $($(#[$bulk_doc])* pub $bulk: usize,)*
        }

        impl Layout {
            /// Number of slabs.
            pub const SLABS: usize = [$(Slab::$slab,)* $(Slab::$bulk_slab,)*].len();

            /// Returns the layout for these limits. Lengths may overflow if they exceed the address space.
            /// [`Layout::checked`] detects that.
            pub const fn of($limits: &Limits) -> Layout {
                Layout { $($name: ($len) as usize,)* $($bulk: ($bulk_len) as usize,)* }
            }

            /// Returns the layout for these limits, or `None` if its bytes exceed the address space of this machine.
            pub const fn checked($limits: &Limits) -> Option<Layout> {
                const fn bytes(len: u64, size: usize) -> u64 {
                    len.saturating_mul(size as u64)
                }
                let all = 0_u64
                    $(.saturating_add(bytes($len, size_of::<$item>())))*
                    $(.saturating_add(bytes($bulk_len, size_of::<$bulk_item>())))*;
                if all <= isize::MAX as u64 { Some(Layout::of($limits)) } else { None }
            }

            /// Returns the bytes of all slots, which are written before a server is used: all slabs except those of [`Bulk`].
            /// Only the used part of these needs memory.
            pub const fn bytes_written(&self) -> usize {
                0 $(+ self.$name * size_of::<$item>())*
            }

            /// Returns the bytes of all slabs.
            pub const fn bytes(&self) -> usize {
                self.bytes_written() $(+ self.$bulk * size_of::<$bulk_item>())*
            }
        }

        /// Slabs for the state of a server, borrowed from their owner. Each is at least as long as [`Layout::of`] requires.
        #[derive(Debug)]
        pub struct Storage<'s> {
            $(pub(crate) $name: &'s mut [$item],)*
            pub(crate) bulk: Bulk<'s>,
            /// Whether the slots are as a new server needs them, so that it writes none of them.
            unused: bool,
        }

        /// Long slabs, of which a server accesses only the used part. A host may map them lazily. It may share the log and
        /// its index with other processes, which then look up keys without a request
        /// ([`LogView`](crate::client::LogView)).
        #[derive(Debug)]
        pub struct Bulk<'s> {
            $($(#[$bulk_doc])* pub $bulk: $lent,)*
        }

        impl<'s> Storage<'s> {
            /// Takes all slabs from `arena`. Returns `None` if the arena has too little memory.
            pub fn in_arena(layout: &Layout, arena: &mut impl Arena<'s>) -> Option<Storage<'s>> {
                let bulk = Bulk { $($bulk: arena.$take(layout.$bulk)?,)* };
                Storage::with_slots_in(layout, arena, bulk)
            }

            /// Takes all slabs but those of `bulk` from `arena`. Returns `None` if the arena has too little memory.
            pub fn with_slots_in(
                layout: &Layout,
                arena: &mut impl Arena<'s>,
                bulk: Bulk<'s>,
            ) -> Option<Storage<'s>> {
                // The slots of an arena are empty.
                Some(Storage { $($name: arena.slots(layout.$name)?,)* bulk, unused: true })
            }

            /// Returns storage of exactly these lengths, with empty slots.
            ///
            /// # Errors
            /// [`Fault::InsufficientStorage`] when a slab is shorter.
            pub(crate) fn cut(self, layout: &Layout) -> Result<Storage<'s>, Fault> {
                let Storage { bulk, unused, .. } = self;
                $(let $name = cut(self.$name, layout.$name, Slab::$slab)?;)*
                let bulk = Bulk { $($bulk: cut(bulk.$bulk, layout.$bulk, Slab::$bulk_slab)?,)* };
                if !unused {
                    $($name.fill($empty);)*
                }
                Ok(Storage { $($name,)* bulk, unused: true })
            }
        }

        /// Storage on the heap, for limits known at run time.
        #[cfg(any(test, feature = "alloc"))]
        #[derive(Debug)]
        pub struct OwnedStorage {
            $($name: alloc::boxed::Box<[$item]>,)*
            $($bulk: alloc::boxed::Box<[$bulk_item]>,)*
            /// No server has used the slots.
            unused: bool,
        }

        #[cfg(any(test, feature = "alloc"))]
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
                    $($name: owned::slots(layout.$name),)*
                    $($bulk: owned::$take(layout.$bulk),)*
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

        $(
            impl slot::Sealed for $item {}
            impl Slot for $item {
                fn empty() -> $item {
                    $empty
                }
            }
        )*
    };
}
