//! Memory of a server's slots: in `.bss`, or mapped.

use hydrant_arena::BumpArena;
use hydrant_core::storage::{Bulk, FixedStorage, Layout};
use hydrant_core::{Limits, Storage, fixed_storage};
use static_cell::ConstStaticCell;

use crate::segment::Memory;
use crate::sys;

/// Length of a large page in bytes.
pub(crate) const LARGE: usize = 2 << 20;

/// Most bytes of slots that are mapped although those in `.bss` would do: slots of servers that serve no run.
const FEW: usize = 32 << 10;

/// Limits of the slots in `.bss`: the defaults of a run of 3,072 ranks, or on 1,024 hosts, and entries for 32 tools.
const STATIC: Limits = Limits {
    jobs: 96,
    ranks: 4128,
    conns: 8288,
    groups: 64,
    names: 64,
    spawns: 64,
    psets: 4096,
    links: 33,
    ..Limits::NONE
};

type StaticSlots = fixed_storage!(STATIC);

/// Slots of the first server of a process. They consist of zero bytes, so only pages with slots in use take memory and time.
static SLOTS: ConstStaticCell<StaticSlots> = ConstStaticCell::new(FixedStorage::new());

/// Memory of the slots of a server.
#[derive(Debug)]
pub(crate) enum Slots {
    Static(&'static mut StaticSlots),
    Mapped(MappedSlots),
}

impl Slots {
    /// Reserves slots for a layout. None if the memory is insufficient.
    pub(crate) fn try_new(layout: &Layout) -> Option<Slots> {
        let is_static = layout.bytes_written() > FEW && StaticSlots::has_slots_for(layout);
        let slots = is_static.then(|| SLOTS.try_take()).flatten().map(Slots::Static);
        slots.or_else(|| MappedSlots::try_new(layout).map(Slots::Mapped))
    }

    /// Lends the slots, which are for this layout, and the slabs of `bulk`.
    pub(crate) fn lend<'s>(&'s mut self, layout: &Layout, bulk: Bulk<'s>) -> Storage<'s> {
        match self {
            Slots::Static(slots) => slots.lend_slots(bulk),
            Slots::Mapped(slots) => slots.lend(layout, bulk),
        }
    }
}

/// Mapped memory of slots. Many are in large pages, if the system has some: all slots are written at first, and in small pages
/// the page faults take several times as long as the writing.
#[derive(Debug)]
pub(crate) struct MappedSlots {
    memory: Memory,
    /// Offset of the slots: the first large page.
    start: usize,
    /// Bytes of the slots.
    len: usize,
}

impl MappedSlots {
    /// Maps memory for the slots of a layout. None if the address space is exhausted.
    pub(crate) fn try_new(layout: &Layout) -> Option<MappedSlots> {
        let len = layout.bytes_written().checked_add(BumpArena::PADDING_MAX)?;
        // Fewer slots would use little of a large page.
        if len < LARGE / 3 {
            return Some(MappedSlots { memory: Memory::new(0, len)?, start: 0, len });
        }
        let len = len.checked_next_multiple_of(LARGE)?;
        let mut memory = Memory::new(0, len.checked_add(LARGE)?)?;
        let all = memory.lend().0;
        let start = all.as_ptr().align_offset(LARGE);
        prefer_large_pages(all.get_mut(start..)?.get_mut(..len)?);
        Some(MappedSlots { memory, start, len })
    }

    /// Lends empty slots, and the slabs of `bulk`.
    pub(crate) fn lend<'s>(&'s mut self, layout: &Layout, bulk: Bulk<'s>) -> Storage<'s> {
        let bytes = &mut self.memory.lend().0[self.start..][..self.len];
        let storage = Storage::with_slots_in(layout, &mut BumpArena::new(bytes), bulk);
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
        let slots = MappedSlots::try_new(&Layout::of(&Limits::NONE)).expect("there is memory");
        assert_eq!(slots.len, BumpArena::PADDING_MAX + Layout::of(&Limits::NONE).bytes_written());
    }

    #[test]
    fn slots_of_a_default_run_are_static_once() {
        let defaults = Limits { links: 9, ..Limits::for_ranks(3072) };
        let layout = Layout::of(&Limits { conns: 2 * defaults.conns - 64, ..defaults });
        assert!(StaticSlots::has_slots_for(&layout));
        assert!(matches!(Slots::try_new(&Layout::of(&Limits::NONE)), Some(Slots::Mapped(_))));
        // Another test may have them.
        let first = Slots::try_new(&layout);
        assert!(matches!(first, Some(Slots::Static(_) | Slots::Mapped(_))));
        assert!(matches!(Slots::try_new(&layout), Some(Slots::Mapped(_))));
    }

    /// A file is mapped behind `.data`, and none behind `.bss`.
    #[cfg(target_os = "linux")]
    #[test]
    fn static_slots_take_no_space_in_the_program_file() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("Linux has this file");
        let start = (&raw const SLOTS).addr();
        for address in [start + (4 << 10), start + size_of_val(&SLOTS) - 1] {
            let is_in = |line: &&str| {
                let (range, _) = line.split_once(' ')?;
                let (start, end) = range.split_once('-')?;
                let hex = |digits| usize::from_str_radix(digits, 16).ok();
                Some((hex(start)?..hex(end)?).contains(&address))
            };
            let line = maps.lines().find(|line| is_in(line) == Some(true)).expect("the static is mapped");
            let inode = line.split_whitespace().nth(4);
            assert_eq!(inode, Some("0"), "{line}");
        }
    }

    /// A server writes no slots that are lent for the first time.
    #[test]
    fn initial_slots_of_fixed_storage_are_those_that_a_server_writes() {
        const FEW: Limits = Limits {
            jobs: 1,
            ranks: 2,
            conns: 2,
            keys: 4,
            kvs_bytes: 256,
            groups: 1,
            names: 1,
            spawns: 1,
            spawn_bytes: 64,
            psets: 1,
            links: 1,
            ..Limits::NONE
        };
        let mut storage: fixed_storage!(FEW) = FixedStorage::new();
        let [unused, written] = [(); 2].map(|()| snapshot_of_new(FEW, storage.lend()));
        assert!(unused == written);
    }

    /// Returns the state of a server that nothing has happened to.
    fn snapshot_of_new(limits: Limits, storage: Storage<'_>) -> Vec<u8> {
        let server = Server::new(limits, storage, 3).expect("the storage is long enough");
        let mut bytes = vec![0; server.snapshot_len()];
        server.snapshot(&mut bytes).expect("the buffer has its length");
        bytes
    }

    #[test]
    fn slots_of_any_number_fit() {
        for &limit in Limit::ALL.iter().filter(|&&limit| !matches!(limit, Limit::Keys | Limit::KvsBytes)) {
            for more in [0, 1, 7, 2000] {
                let mut limits = Limits { links: 3, kvs_bytes: 1 << 20, ..Limits::for_ranks(1000) };
                limits.set(limit, limits.of(limit).saturating_add(more));
                let layout = Layout::of(&limits);
                let mut pages = MappedSlots::try_new(&layout).expect("there is memory");
                assert_eq!(pages.len % LARGE, 0);
                let (mut log, mut requests) = (vec![0; layout.log], vec![0; layout.requests]);
                let index: Vec<_> = (0..layout.index).map(|_| Default::default()).collect();
                let mut other = OwnedStorage::new(&limits);
                let snapshot = |storage: Storage<'_>| snapshot_of_new(limits, storage);
                let expected = snapshot(other.lend());
                for _ in 0..2 {
                    let bulk = Bulk { log: &mut log, index: &index, requests: &mut requests };
                    assert!(snapshot(pages.lend(&layout, bulk)) == expected, "{limit:?}");
                }
            }
        }
    }
}
