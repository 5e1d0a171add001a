//! Storage of constant size.

use core::sync::atomic::AtomicU32;

use super::{Bulk, Layout, Storage};
use crate::peer::links::Link;
use crate::state::{Conn, Job, RankSlot};
use crate::tables::fence::Group;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::tables::upcalls::Upcall;

/// Storage of constant size, for a `static` or the stack. [`fixed_storage!`](crate::fixed_storage) names the type for
/// given limits.
///
/// The initial value consists of zero bytes. A `static` of this type is in `.bss`, takes no space in the program file,
/// and is cleared at start-up. Crates such as `static_cell` lend a `static` mutably:
///
/// ```text
/// static STORAGE: ConstStaticCell<fixed_storage!(LIMITS)> = ConstStaticCell::new(FixedStorage::new());
/// let server = Server::new(LIMITS, STORAGE.take().lend(), SEED)?;
/// ```
#[derive(Debug)]
pub struct FixedStorage<
    const JOBS: usize,
    const RANKS: usize,
    const CONNS: usize,
    const LOG: usize,
    const INDEX: usize,
    const GROUPS: usize,
    const NAMES: usize,
    const UPCALLS: usize,
    const REQUESTS: usize,
    const PSETS: usize,
    const LINKS: usize,
    const BITS: usize,
> {
    jobs: [Job; JOBS],
    ranks: [RankSlot; RANKS],
    conns: [Conn; CONNS],
    log: [u8; LOG],
    index: [AtomicU32; INDEX],
    groups: [Group; GROUPS],
    names: [Name; NAMES],
    upcalls: [Upcall; UPCALLS],
    requests: [u8; REQUESTS],
    psets: [Pset; PSETS],
    links: [Link; LINKS],
    bits: [u32; BITS],
    /// A server has used the slots.
    used: bool,
}

impl<
    const JOBS: usize,
    const RANKS: usize,
    const CONNS: usize,
    const LOG: usize,
    const INDEX: usize,
    const GROUPS: usize,
    const NAMES: usize,
    const UPCALLS: usize,
    const REQUESTS: usize,
    const PSETS: usize,
    const LINKS: usize,
    const BITS: usize,
> FixedStorage<JOBS, RANKS, CONNS, LOG, INDEX, GROUPS, NAMES, UPCALLS, REQUESTS, PSETS, LINKS, BITS>
{
    /// Empty storage.
    pub const fn new() -> Self {
        FixedStorage {
            jobs: [const { Job::EMPTY }; JOBS],
            ranks: [const { RankSlot::EMPTY }; RANKS],
            conns: [const { Conn::EMPTY }; CONNS],
            log: [0; LOG],
            index: [const { AtomicU32::new(0) }; INDEX],
            groups: [const { Group::EMPTY }; GROUPS],
            names: [const { Name::EMPTY }; NAMES],
            upcalls: [const { Upcall::EMPTY }; UPCALLS],
            requests: [0; REQUESTS],
            psets: [const { Pset::EMPTY }; PSETS],
            links: [const { Link::EMPTY }; LINKS],
            bits: [0; BITS],
            used: false,
        }
    }

    /// Returns whether storage of this type has as many slots as a layout, of which the slabs of [`Bulk`] are elsewhere.
    pub const fn has_slots_for(layout: &Layout) -> bool {
        layout.jobs <= JOBS
            && layout.ranks <= RANKS
            && layout.conns <= CONNS
            && layout.groups <= GROUPS
            && layout.names <= NAMES
            && layout.upcalls <= UPCALLS
            && layout.psets <= PSETS
            && layout.links <= LINKS
            && layout.bits <= BITS
    }

    /// Lends the slabs to a server.
    pub fn lend(&mut self) -> Storage<'_> {
        let unused = !core::mem::replace(&mut self.used, true);
        Storage {
            jobs: &mut self.jobs,
            ranks: &mut self.ranks,
            conns: &mut self.conns,
            log: &mut self.log,
            index: &self.index,
            groups: &mut self.groups,
            names: &mut self.names,
            upcalls: &mut self.upcalls,
            requests: &mut self.requests,
            psets: &mut self.psets,
            links: &mut self.links,
            bits: &mut self.bits,
            unused,
        }
    }

    /// Lends these slots and the slabs of `bulk` to a server.
    pub fn lend_slots<'s>(&'s mut self, bulk: Bulk<'s>) -> Storage<'s> {
        let Bulk { log, index, requests } = bulk;
        Storage { log, index, requests, ..self.lend() }
    }
}

impl<
    const JOBS: usize,
    const RANKS: usize,
    const CONNS: usize,
    const LOG: usize,
    const INDEX: usize,
    const GROUPS: usize,
    const NAMES: usize,
    const UPCALLS: usize,
    const REQUESTS: usize,
    const PSETS: usize,
    const LINKS: usize,
    const BITS: usize,
> Default
    for FixedStorage<JOBS, RANKS, CONNS, LOG, INDEX, GROUPS, NAMES, UPCALLS, REQUESTS, PSETS, LINKS, BITS>
{
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
    ($limits:expr) => {
        $crate::storage::FixedStorage<
            { $crate::storage::Layout::of(&$limits).jobs },
            { $crate::storage::Layout::of(&$limits).ranks },
            { $crate::storage::Layout::of(&$limits).conns },
            { $crate::storage::Layout::of(&$limits).log },
            { $crate::storage::Layout::of(&$limits).index },
            { $crate::storage::Layout::of(&$limits).groups },
            { $crate::storage::Layout::of(&$limits).names },
            { $crate::storage::Layout::of(&$limits).upcalls },
            { $crate::storage::Layout::of(&$limits).requests },
            { $crate::storage::Layout::of(&$limits).psets },
            { $crate::storage::Layout::of(&$limits).links },
            { $crate::storage::Layout::of(&$limits).bits }
        >
    };
}
