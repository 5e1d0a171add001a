//! Storage of a server in mapped memory, part of which ranks may read.

use std::sync::atomic::AtomicU32;

use hydrant_core::storage::{Bulk, Layout};
use hydrant_core::{Limits, Storage};

use crate::segment::{Memory, Segment, Sharing};
use crate::slots::{LARGE, Slots, prefer_large_pages};
use crate::sys;

/// Memory of the key-value log and its index.
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

/// The limits require more memory than the system provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server's tables would take {} of memory, which is not there: make them smaller (--limit NAME=N), or start \
     fewer ranks",
    .0.map_or("more than 2^63 bytes".to_owned(), |bytes| format!("{} MiB", bytes >> 20))
)]
pub struct InsufficientMemory(
    /// Bytes of all tables. None if the number exceeds the address space.
    pub Option<usize>,
);

/// Storage to lend to a server. Unused parts of the key-value log cost no memory: they are mapped and never touched.
///
/// `OwnedStorage` of hydrant-core does the same on the heap. It works on every system, and ranks cannot read it.
#[derive(Debug)]
pub struct MappedStorage {
    lengths: Layout,
    slots: Slots,
    kvs: KvsMemory,
    requests: Memory,
}

impl MappedStorage {
    /// Reserves storage for these limits in memory of this process.
    ///
    /// # Panics
    /// The memory is insufficient. [`MappedStorage::try_new`] is for limits that a user sets.
    pub fn new(limits: &Limits) -> MappedStorage {
        MappedStorage::try_new(limits).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Storage for these limits, in memory of this process alone.
    ///
    /// # Errors
    /// [`InsufficientMemory`]
    pub fn try_new(limits: &Limits) -> Result<MappedStorage, InsufficientMemory> {
        MappedStorage::make(limits, KvsMemory::private)
    }

    /// Reserves storage for these limits with a key-value log that other processes may read, if the system supports
    /// it.
    ///
    /// # Errors
    /// [`InsufficientMemory`]
    pub fn try_shared(limits: &Limits) -> Result<MappedStorage, InsufficientMemory> {
        let shared = |lengths: &Layout| {
            Segment::new(lengths).map(KvsMemory::Shared).or_else(|| KvsMemory::private(lengths))
        };
        MappedStorage::make(limits, shared)
    }

    fn make(
        limits: &Limits,
        kvs: impl FnOnce(&Layout) -> Option<KvsMemory>,
    ) -> Result<MappedStorage, InsufficientMemory> {
        let lengths = lengths(limits)?;
        let insufficient = InsufficientMemory(Some(lengths.bytes()));
        let mut kvs = kvs(&lengths).ok_or(insufficient)?;
        // Behind the first few pages: a look-up among very many keys then causes fewer TLB misses, and a small job uses no
        // large page.
        if let Some(log) = kvs.lend().0.get_mut(LARGE..) {
            prefer_large_pages(log);
        }
        let requests = Memory::new(0, lengths.requests).ok_or(insufficient)?;
        let slots = Slots::try_new(&lengths).ok_or(insufficient)?;
        Ok(MappedStorage { lengths, slots, kvs, requests })
    }

    /// Returns how ranks read the log of a server with this hash seed. None if they cannot.
    pub fn sharing(&self, seed: u32) -> Option<Sharing> {
        match &self.kvs {
            KvsMemory::Private(_) => None,
            KvsMemory::Shared(segment) => segment.sharing(seed),
        }
    }

    /// Lends the storage to a server.
    pub fn lend(&mut self) -> Storage<'_> {
        let (log, index) = self.kvs.lend();
        let bulk = Bulk { log, index, requests: self.requests.lend().0 };
        self.slots.lend(&self.lengths, bulk)
    }
}

/// Returns the lengths of the tables for these limits.
fn lengths(limits: &Limits) -> Result<Layout, InsufficientMemory> {
    let lengths = Layout::checked(limits).ok_or(InsufficientMemory(None))?;
    // A system that overcommits memory kills the process that uses it.
    if lengths.bytes_written() as u64 > installed_memory() {
        return Err(InsufficientMemory(Some(lengths.bytes())));
    }
    Ok(lengths)
}

#[cfg(test)]
impl MappedStorage {
    pub(crate) fn lend_kvs(&mut self) -> (&mut [u8], &[AtomicU32]) {
        self.kvs.lend()
    }
}

/// Returns the machine's memory in bytes.
pub fn installed_memory() -> u64 {
    sys::installed_memory()
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
        assert_eq!(MappedStorage::try_new(&all).err(), Some(InsufficientMemory(None)));
        for limit in [Limit::Jobs, Limit::Names, Limit::Groups, Limit::Spawns, Limit::Conns] {
            let limits = most(limit);
            let bytes = Layout::of(&limits).bytes();
            assert_eq!(
                MappedStorage::try_new(&limits).err(),
                Some(InsufficientMemory(Some(bytes))),
                "{limit:?}"
            );
            assert_eq!(
                MappedStorage::try_shared(&limits).err(),
                Some(InsufficientMemory(Some(bytes))),
                "{limit:?}"
            );
        }
        // These tables are long, and empty until they are used.
        for limit in [Limit::Keys, Limit::KvsBytes] {
            let mut slabs = MappedStorage::try_new(&most(limit)).expect("there are addresses enough");
            let (log, index) = slabs.lend_kvs();
            let lengths = Layout::of(&most(limit));
            assert_eq!((log.len(), index.len()), (lengths.log, lengths.index));
            log[lengths.log - 1] = 1;
        }
    }

    #[test]
    fn no_room_is_room_for_nothing() {
        let mut slabs = MappedStorage::new(&Limits::NONE);
        assert!(slabs.lend_kvs().0.is_empty() && slabs.requests.lend().0.is_empty());
    }
}
