//! Memory of a server, lent by the host.
//!
//! [`Layout::of`] derives the length of every slab from [`Limits`]. One call lays the memory out:
//!
//! - [`fixed_storage!`](crate::fixed_storage) names a [`FixedStorage`] for constant limits: one value for a `static` or
//!   the stack, without an allocator.
//! - `OwnedStorage` (feature `alloc`) holds slabs for limits known at run time.
//! - `OwnedSlots` (feature `alloc`) leaves the key-value log to the host, which may map or share it.
//! - [`Storage::in_arena`] carves the slabs from a memory region of the host, and [`Storage::with_slots_in`] those of slots.
//!
//! The slots are opaque. [`Server::new`](crate::Server::new) resets them, so their content does not matter. Slots that
//! are lent for the first time, and those of an arena, need no reset: a server writes none that it does not use.

mod fixed;
#[cfg(any(test, feature = "alloc"))]
mod owned;
mod slot;

use core::sync::atomic::AtomicU32;

pub use fixed::FixedStorage;
#[cfg(any(test, feature = "alloc"))]
pub use owned::{OwnedSlots, OwnedStorage};
pub use slot::{Arena, Slot};

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

/// Slabs for the state of a server, borrowed from their owner. Each is at least as long as [`Layout::of`] requires.
#[derive(Debug)]
pub struct Storage<'s> {
    pub(crate) jobs: &'s mut [Job],
    pub(crate) ranks: &'s mut [RankSlot],
    pub(crate) conns: &'s mut [Conn],
    pub(crate) log: &'s mut [u8],
    /// A shared reference, because other processes may map the index read-only.
    pub(crate) index: &'s [AtomicU32],
    pub(crate) groups: &'s mut [Group],
    pub(crate) names: &'s mut [Name],
    pub(crate) upcalls: &'s mut [Upcall],
    /// Texts of the upcalls, then those of aborts.
    pub(crate) requests: &'s mut [u8],
    pub(crate) psets: &'s mut [Pset],
    pub(crate) links: &'s mut [Link],
    /// Sets of ranks, connections and jobs.
    pub(crate) bits: &'s mut [u32],
    /// Whether the slots are as a new server needs them, so that it writes none of them.
    pub(crate) unused: bool,
}

impl<'s> Storage<'s> {
    /// Takes all slabs from `arena`. Returns `None` if the arena has too little memory.
    pub fn in_arena(layout: &Layout, arena: &mut impl Arena<'s>) -> Option<Storage<'s>> {
        let bulk = Bulk {
            log: arena.bytes(layout.log)?,
            index: arena.slots(layout.index)?,
            requests: arena.bytes(layout.requests)?,
        };
        Storage::with_slots_in(layout, arena, bulk)
    }

    /// Takes all slabs but those of `bulk` from `arena`. Returns `None` if the arena has too little memory.
    pub fn with_slots_in(layout: &Layout, arena: &mut impl Arena<'s>, bulk: Bulk<'s>) -> Option<Storage<'s>> {
        let Bulk { log, index, requests } = bulk;
        Some(Storage {
            jobs: arena.slots(layout.jobs)?,
            ranks: arena.slots(layout.ranks)?,
            conns: arena.slots(layout.conns)?,
            log,
            index,
            groups: arena.slots(layout.groups)?,
            names: arena.slots(layout.names)?,
            upcalls: arena.slots(layout.upcalls)?,
            requests,
            psets: arena.slots(layout.psets)?,
            links: arena.slots(layout.links)?,
            bits: arena.slots(layout.bits)?,
            // They are empty.
            unused: true,
        })
    }
}

/// Long slabs, of which a server accesses only the used part. A host may map them lazily. It may share the log and its
/// index with other processes, which then look up keys without a request ([`LogView`](crate::client::LogView)).
#[derive(Debug)]
pub struct Bulk<'s> {
    /// [`Layout::log`] bytes.
    pub log: &'s mut [u8],
    /// [`Layout::index`] entries.
    pub index: &'s [AtomicU32],
    /// [`Layout::requests`] bytes.
    pub requests: &'s mut [u8],
}

/// Lengths of all slabs, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// Job slots.
    pub jobs: usize,
    /// Rank slots, of all jobs.
    pub ranks: usize,
    /// Connection slots.
    pub conns: usize,
    /// Bytes of the key-value log.
    pub log: usize,
    /// 32-bit entries of the index of the log.
    pub index: usize,
    /// Group barrier slots.
    pub groups: usize,
    /// Published name slots.
    pub names: usize,
    /// Upcall slots.
    pub upcalls: usize,
    /// Bytes for the texts of upcalls and aborts.
    pub requests: usize,
    /// Process set slots.
    pub psets: usize,
    /// Slots of links to other nodes.
    pub links: usize,
    /// 32-bit words for sets of ranks, connections and jobs.
    pub bits: usize,
}

impl Layout {
    /// Returns the layout for these limits. Lengths may overflow if they exceed the address space. [`Layout::checked`]
    /// detects that.
    pub const fn of(limits: &Limits) -> Layout {
        Layout {
            jobs: limits.jobs as usize,
            ranks: limits.ranks as usize,
            conns: limits.conns as usize,
            log: limits.kvs_bytes as usize,
            index: log::index_len(limits.keys),
            groups: limits.groups as usize,
            names: limits.names as usize,
            upcalls: limits.spawns as usize,
            requests: limits.spawns as usize * limits.spawn_bytes as usize
                + limits.jobs as usize * limits.abort_text_max(),
            psets: limits.psets as usize,
            links: limits.links as usize,
            bits: Ready::words(limits.conns)
                + Groups::words(limits.groups, limits.ranks)
                + Psets::words(limits.psets, limits.ranks)
                + Modex::words(limits.links, limits.ranks)
                + Connections::words(limits.jobs),
        }
    }

    /// Returns the layout for these limits, or `None` if its bytes exceed the address space of this machine.
    pub fn checked(limits: &Limits) -> Option<Layout> {
        let wide = |limit: u32| u128::from(limit);
        let words = |bits: u32| wide(bits.div_ceil(32));
        let sets = (2 * wide(limits.groups) + 1 + 5 * wide(limits.links)) * words(limits.ranks);
        let sets = sets + u128::from(Psets::words_wide(limits.psets, limits.ranks));
        // The higher levels of the set of ready connections are together shorter than its lowest level.
        let bits = 2 * words(limits.conns) + 8 + sets + (wide(limits.jobs) + 2) * words(limits.jobs);
        // The number of index slots is rounded up to a power of two, which at most doubles it.
        let index = 2 * (wide(limits.keys) + wide(limits.keys) / 3 + 1);
        let each = |count: u128, size: usize| count * size as u128;
        let bytes = each(wide(limits.jobs), size_of::<Job>() + limits.abort_text_max())
            + each(wide(limits.ranks), size_of::<RankSlot>())
            + each(wide(limits.conns), size_of::<Conn>())
            + wide(limits.kvs_bytes)
            + each(index, size_of::<AtomicU32>())
            + each(wide(limits.groups), size_of::<Group>())
            + each(wide(limits.names), size_of::<Name>())
            + each(wide(limits.spawns), size_of::<Upcall>() + limits.spawn_bytes as usize)
            + each(wide(limits.psets), size_of::<Pset>())
            + each(wide(limits.links), size_of::<Link>())
            + each(bits, size_of::<u32>());
        (bytes <= isize::MAX as u128).then(|| Layout::of(limits))
    }

    /// Returns the bytes of all slots, which are written before a server is used: all slabs except the log, its index and
    /// the texts of upcalls and aborts. Only the used part of these needs memory.
    pub const fn bytes_written(&self) -> usize {
        Layout { log: 0, index: 0, requests: 0, ..*self }.bytes()
    }

    /// Returns the bytes of all slabs.
    pub const fn bytes(&self) -> usize {
        self.jobs * size_of::<Job>()
            + self.ranks * size_of::<RankSlot>()
            + self.conns * size_of::<Conn>()
            + self.log
            + self.index * size_of::<AtomicU32>()
            + self.groups * size_of::<Group>()
            + self.names * size_of::<Name>()
            + self.upcalls * size_of::<Upcall>()
            + self.requests
            + self.psets * size_of::<Pset>()
            + self.links * size_of::<Link>()
            + self.bits * size_of::<u32>()
    }
}
