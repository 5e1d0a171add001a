//! Memory of a server, lent by the host.
//!
//! `tables!` lists every table. [`Layout::of`] derives their lengths from [`Limits`]. One call lays the memory out:
//!
//! - [`fixed_storage!`](crate::fixed_storage) names a [`FixedStorage`] for constant limits: one value for a `static` or
//!   the stack, without an allocator.
//! - `OwnedStorage` (feature `alloc`) holds slabs for limits known at run time.
//! - [`Storage::in_arena`] carves the slabs from a memory region of the host, and [`Storage::with_slots_in`] those of slots.
//!
//! The slots are opaque. [`Server::new`](crate::Server::new) resets them, so their content does not matter. Slots that
//! are lent for the first time, and those of an arena, need no reset: a server writes none that it does not use.

use core::sync::atomic::AtomicU32;

use crate::fault::Fault;
pub use crate::fault::Slab;
use crate::limits::Limits;
use crate::peer::links::Link;
use crate::state::{Conn, Job, RankSlot};
use crate::store::{Ready, log};
use crate::tables::connect::Connections;
use crate::tables::fence::{Group, Groups};
use crate::tables::modex::Modex;
use crate::tables::names::Name;
use crate::tables::psets::{Pset, Psets};
use crate::tables::upcalls::Upcall;

/// Invokes a macro with the list of all tables: `name PARAMETER Slab: [element; length] = initial element`. The lengths are of
/// `u64`. The initial slots consist of zero bytes. A [`Bulk`] table is taken from an [`Arena`] by a method, and
/// lent as a type.
macro_rules! tables {
    ($make:ident $($dollar:tt)?) => {
        $make! {
            $($dollar)?
            |limits|
            slots {
                /// Job slots.
                jobs JOBS Jobs: [Job; limits.jobs as u64] = Job::EMPTY;
                /// Rank slots, of all jobs.
                ranks RANKS Ranks: [RankSlot; limits.ranks as u64] = RankSlot::EMPTY;
                /// Connection slots.
                conns CONNS Conns: [Conn; limits.conns as u64] = Conn::EMPTY;
                /// Group barrier slots.
                groups GROUPS Groups: [Group; limits.groups as u64] = Group::EMPTY;
                /// Published name slots.
                names NAMES Names: [Name; limits.names as u64] = Name::EMPTY;
                /// Upcall slots.
                upcalls UPCALLS Upcalls: [Upcall; limits.spawns as u64] = Upcall::EMPTY;
                /// Process set slots.
                psets PSETS Psets: [Pset; limits.psets as u64] = Pset::EMPTY;
                /// Slots of links to other nodes.
                links LINKS Links: [Link; limits.links as u64] = Link::EMPTY;
                /// 32-bit words for sets of ranks, connections and jobs.
                bits BITS Bits: [u32; Ready::words(limits.conns)
                    + Groups::words(limits.groups, limits.ranks)
                    + Psets::words(limits.psets, limits.ranks)
                    + Modex::words(limits.links, limits.ranks)
                    + Connections::words(limits.jobs)] = 0;
            }
            bulk {
                /// Bytes of the key-value log.
                log LOG Log: [u8; limits.kvs_bytes as u64] = 0, bytes as &'s mut [u8];
                /// 32-bit entries of the index of the log. Lent shared, because other processes may map the index read-only.
                index INDEX Index: [AtomicU32; log::index_len(limits.keys)] = AtomicU32::new(0), slots as &'s [AtomicU32];
                /// Bytes for the texts of upcalls, then those of aborts.
                requests REQUESTS Requests: [u8; (limits.spawns as u64 * limits.spawn_bytes as u64)
                    .saturating_add(limits.jobs as u64 * limits.abort_text_max() as u64)] = 0, bytes as &'s mut [u8];
            }
        }
    };
}

mod fixed;
#[cfg(any(test, feature = "alloc"))]
mod owned;
mod slot;

pub use fixed::FixedStorage;
#[cfg(any(test, feature = "alloc"))]
pub use owned::OwnedStorage;
pub use slot::{Arena, Slot};

macro_rules! storage {
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
    };
}

tables!(storage);

/// Slice of any mutability.
trait Slice: Sized {
    fn length(&self) -> usize;
    fn front(self, len: usize) -> Option<Self>;
}

impl<T> Slice for &mut [T] {
    fn length(&self) -> usize {
        self.len()
    }

    fn front(self, len: usize) -> Option<Self> {
        self.get_mut(..len)
    }
}

impl<T> Slice for &[T] {
    fn length(&self) -> usize {
        self.len()
    }

    fn front(self, len: usize) -> Option<Self> {
        self.get(..len)
    }
}

/// Returns the first `needed` elements of a slab.
fn cut<S: Slice>(elements: S, needed: usize, slab: Slab) -> Result<S, Fault> {
    let given = elements.length();
    elements.front(needed).ok_or_else(|| short(slab, needed, given))
}

pub(crate) fn short(slab: Slab, needed: usize, given: usize) -> Fault {
    let [needed, given] = [needed, given].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    Fault::InsufficientStorage { slab, needed, given }
}
