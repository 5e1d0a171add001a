//! The core's memory on a host with an allocator: slabs as long as the limits say, on the heap except for what ranks
//! may read.

use std::sync::atomic::AtomicU32;

use hydrant_core::storage::{Bulk, Layout, OwnedSlots};
use hydrant_core::{Limits, Storage};
use rustix::mm::{Advice, madvise};

use crate::segment::{Memory, Segment, Sharing};

/// Where the key-value log and its index lie.
#[derive(Debug)]
enum KvsMemory {
    Private(Memory),
    Shared(Segment),
}

impl KvsMemory {
    fn private(lengths: &Layout) -> Option<KvsMemory> {
        Memory::new(lengths.index, lengths.log).map(KvsMemory::Private)
    }

    fn lend(&mut self) -> (&mut [u8], &[AtomicU32]) {
        match self {
            KvsMemory::Private(memory) => memory.lend(),
            KvsMemory::Shared(segment) => segment.lend(),
        }
    }
}

/// The limits ask for more memory than the system gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server's tables would take {} of memory, which is not there: make them smaller (--limit NAME=N), or start \
     fewer ranks",
    .0.map_or("more than 2^63 bytes".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
)]
pub struct NoRoom(
    /// Bytes of all tables; nothing where they cannot be counted.
    pub Option<usize>,
);

/// Storage to lend to a server. What it does not use of the long ones costs no memory, as they come zeroed from the system.
#[derive(Debug)]
pub struct OwnedStorage {
    slots: OwnedSlots,
    kvs: KvsMemory,
    requests: Memory,
}

impl OwnedStorage {
    /// Storage for these limits, in memory of this process alone.
    ///
    /// # Panics
    /// Where that memory is not there: for limits of the caller's own making. Whoever has them from somebody else uses
    /// [`OwnedStorage::try_new`].
    pub fn new(limits: &Limits) -> OwnedStorage {
        OwnedStorage::try_new(limits).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Storage for these limits, in memory of this process alone.
    ///
    /// # Errors
    /// [`NoRoom`]
    pub fn try_new(limits: &Limits) -> Result<OwnedStorage, NoRoom> {
        OwnedStorage::make(limits, KvsMemory::private)
    }

    /// Storage for these limits, whose key-value log other processes may read as far as the system allows that.
    pub(crate) fn try_shared(limits: &Limits) -> Result<OwnedStorage, NoRoom> {
        OwnedStorage::make(limits, |lengths| {
            Segment::new(lengths).map(KvsMemory::Shared).or_else(|| KvsMemory::private(lengths))
        })
    }

    fn make(limits: &Limits, kvs: impl FnOnce(&Layout) -> Option<KvsMemory>) -> Result<OwnedStorage, NoRoom> {
        let lengths = Layout::checked(limits).ok_or(NoRoom(None))?;
        // A system that promises more than it has would end whoever then uses it.
        if lengths.bytes_written() as u64 > installed_memory() {
            return Err(NoRoom(Some(lengths.bytes())));
        }
        kvs(&lengths).and_then(|kvs| OwnedStorage::with(kvs, &lengths)).ok_or(NoRoom(Some(lengths.bytes())))
    }

    /// How ranks get to read the log of a server with that hash seed; nothing where they cannot.
    pub(crate) fn sharing(&self, seed: u32) -> Option<Sharing> {
        match &self.kvs {
            KvsMemory::Private(_) => None,
            KvsMemory::Shared(segment) => segment.sharing(seed),
        }
    }

    fn with(mut kvs: KvsMemory, lengths: &Layout) -> Option<OwnedStorage> {
        prefer_large_pages(kvs.lend().0);
        let requests = Memory::new(0, lengths.requests)?;
        Some(OwnedStorage { slots: OwnedSlots::try_new(lengths)?, kvs, requests })
    }

    /// Lends them out.
    pub fn lend(&mut self) -> Storage<'_> {
        let (log, index) = self.kvs.lend();
        self.slots.lend(Bulk { log, index, requests: self.requests.lend().0 })
    }
}

#[cfg(test)]
impl OwnedStorage {
    pub(crate) fn lend_kvs(&mut self) -> (&mut [u8], &[AtomicU32]) {
        self.kvs.lend()
    }
}

/// Bytes of the machine's memory.
pub(crate) fn installed_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

/// Asks for large pages behind the first few, so that looking up one of very many keys does not miss in the TLB each
/// time, and a small job does not pay for a large page. In shared memory the system heeds that only where
/// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says `advise` or more.
fn prefer_large_pages(log: &mut [u8]) {
    const LARGE: usize = 2 << 20;
    let range = log.as_mut_ptr_range();
    let start = (range.start as usize + LARGE).next_multiple_of(LARGE);
    let len = (range.end as usize).saturating_sub(start) / LARGE * LARGE;
    if len > 0 {
        let start = range.start.wrapping_add(start - range.start as usize);
        // SAFETY: the pages lie within the slice, and the advice changes nothing that is in them.
        let advised = unsafe { madvise(start.cast(), len, Advice::LinuxHugepage) };
        // A kernel without large pages serves as well, if not as fast.
        let _ = advised;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::limits::Limit;

    #[test]
    fn limits_that_no_machine_has_memory_for_are_an_error() {
        let most = |limit: Limit| {
            let mut limits = Limits { links: 1, ..Limits::for_ranks(1) };
            limits.set(limit, u32::MAX);
            limits
        };
        let all = Limit::ALL.iter().fold(Limits::NONE, |mut all, &limit| {
            all.set(limit, u32::MAX);
            all
        });
        assert_eq!(OwnedStorage::try_new(&all).err(), Some(NoRoom(None)));
        for limit in [Limit::Jobs, Limit::Names, Limit::Groups, Limit::Spawns, Limit::Conns] {
            let limits = most(limit);
            let bytes = Layout::of(&limits).bytes();
            assert_eq!(OwnedStorage::try_new(&limits).err(), Some(NoRoom(Some(bytes))), "{limit:?}");
            assert_eq!(OwnedStorage::try_shared(&limits).err(), Some(NoRoom(Some(bytes))), "{limit:?}");
        }
        // Long, and empty until it is used.
        for limit in [Limit::Keys, Limit::KvsBytes] {
            let mut slabs = OwnedStorage::try_new(&most(limit)).expect("there are addresses enough");
            let (log, index) = slabs.lend_kvs();
            let lengths = Layout::of(&most(limit));
            assert_eq!((log.len(), index.len()), (lengths.log, lengths.index));
            log[lengths.log - 1] = 1;
        }
    }

    #[test]
    fn no_room_is_room_for_nothing() {
        let mut slabs = OwnedStorage::new(&Limits::NONE);
        assert!(slabs.lend_kvs().0.is_empty() && slabs.requests.lend().0.is_empty());
    }
}
