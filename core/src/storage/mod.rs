//! Memory of a server, lent by the host.
//!
//! `storage!` has the list of all tables. [`Layout::of`] derives their lengths from [`Limits`]. One call lays the memory out:
//!
//! - [`fixed_storage!`](crate::fixed_storage) names a [`FixedStorage`] for constant limits: one value for a `static` or
//!   the stack, without an allocator.
//! - `OwnedStorage` (feature `alloc`) holds slabs for limits known at run time.
//! - [`Storage::in_arena`] carves the slabs from a memory region of the host, and [`Storage::with_slots_in`] those of slots.
//!
//! The slots are opaque. [`Server::new`](crate::Server::new) resets them, so their content does not matter. Slots that
//! are lent for the first time, and those of an arena, need no reset: a server writes none that it does not use.

#[macro_use]
mod generate;
#[cfg(any(test, feature = "alloc"))]
mod owned;
mod slot;

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
pub use slot::{Arena, Slot};

storage! {
    $
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
