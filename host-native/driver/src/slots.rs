//! Memory of a server's slots in large pages.

use hydrant_arena::BumpArena;
use hydrant_core::Storage;
use hydrant_core::storage::{Bulk, Layout};

use crate::segment::Memory;
use crate::sys;

/// Length of a large page in bytes.
pub(crate) const LARGE: usize = 2 << 20;

/// Memory of slots in large pages, if the system has some. A server writes all slots at its start. In small pages the page
/// faults take several times as long as the writing.
#[derive(Debug)]
pub(crate) struct LargePages {
    memory: Memory,
    /// Offset of the first large page.
    start: usize,
    /// Bytes of large pages.
    len: usize,
}

impl LargePages {
    /// Maps memory for the slots of a layout. None if they would use little of a large page, or if the address space is
    /// exhausted.
    pub(crate) fn try_new(layout: &Layout) -> Option<LargePages> {
        let needed = layout.bytes_written().checked_add(BumpArena::PADDING_MAX)?;
        if needed < LARGE / 3 {
            return None;
        }
        let len = needed.checked_next_multiple_of(LARGE)?;
        let mut memory = Memory::new(0, len.checked_add(LARGE)?)?;
        let all = memory.lend().0;
        let start = all.as_ptr().align_offset(LARGE);
        let pages = all.get_mut(start..)?.get_mut(..len)?;
        prefer_large_pages(pages);
        Some(LargePages { memory, start, len })
    }

    /// Lends empty slots, and the slabs of `bulk`.
    pub(crate) fn lend<'s>(&'s mut self, layout: &Layout, bulk: Bulk<'s>) -> Storage<'s> {
        let pages = &mut self.memory.lend().0[self.start..][..self.len];
        let storage = Storage::with_slots_in(layout, &mut BumpArena::new(pages), bulk);
        storage.expect("the memory was mapped for slots of this layout")
    }
}

/// Requests large pages for the whole ones within a slice. For shared memory the system requires `advise` or more in
/// `/sys/kernel/mm/transparent_hugepage/shmem_enabled`.
pub(crate) fn prefer_large_pages(bytes: &mut [u8]) {
    let range = bytes.as_mut_ptr_range();
    let start = (range.start as usize).next_multiple_of(LARGE);
    let len = (range.end as usize).saturating_sub(start) / LARGE * LARGE;
    if len > 0 {
        let start = range.start.wrapping_add(start - range.start as usize);
        // SAFETY: the pages lie within the slice.
        unsafe { sys::prefer_large_pages(start.cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hydrant_core::limits::Limit;
    use hydrant_core::storage::OwnedStorage;
    use hydrant_core::{Limits, Server};

    #[test]
    fn few_slots_take_no_large_page() {
        assert!(LargePages::try_new(&Layout::of(&Limits::NONE)).is_none());
    }

    #[test]
    fn slots_of_any_number_fit() {
        for &limit in Limit::ALL.iter().filter(|&&limit| !matches!(limit, Limit::Keys | Limit::KvsBytes)) {
            for more in [0, 1, 7, 2000] {
                let mut limits = Limits { links: 3, kvs_bytes: 1 << 20, ..Limits::for_ranks(1000) };
                limits.set(limit, limits.of(limit).saturating_add(more));
                let layout = Layout::of(&limits);
                let mut pages = LargePages::try_new(&layout).expect("there is memory");
                assert_eq!(pages.len % LARGE, 0);
                let (mut log, mut requests) = (vec![0; layout.log], vec![0; layout.requests]);
                let index: Vec<_> = (0..layout.index).map(|_| Default::default()).collect();
                let mut other = OwnedStorage::new(&limits);
                let snapshot = |storage: Storage<'_>| {
                    let server = Server::new(limits, storage, 3).expect("the storage is long enough");
                    let mut bytes = vec![0; server.snapshot_len()];
                    server.snapshot(&mut bytes).expect("the buffer has its length");
                    bytes
                };
                let expected = snapshot(other.lend());
                for _ in 0..2 {
                    let bulk = Bulk { log: &mut log, index: &index, requests: &mut requests };
                    assert!(snapshot(pages.lend(&layout, bulk)) == expected, "{limit:?}");
                }
            }
        }
    }
}
