//! The core's memory on a host with an allocator: slabs as long as the limits say, on the heap except for what ranks
//! may read.

use std::ptr;
use std::sync::atomic::AtomicU32;

use hydrant_core::slabs::{Conn, Errand, Group, Job, Lengths, Link, Name, Pset, RankSlot};
use hydrant_core::{Limits, Slabs};
use rustix::mm::{Advice, madvise};

use crate::segment::{Segment, Sharing};

/// Where the key-value log and its index lie.
#[derive(Debug)]
enum KvsMemory {
    Private { log: Vec<u8>, index: Vec<u32> },
    Shared(Segment),
}

impl KvsMemory {
    fn private(lengths: &Lengths) -> KvsMemory {
        KvsMemory::Private { log: vec![0; lengths.log], index: vec![0; lengths.index] }
    }

    fn lend(&mut self) -> (&mut [u8], &[AtomicU32]) {
        match self {
            KvsMemory::Private { log, index } => {
                let index = ptr::from_mut(index.as_mut_slice()) as *const [AtomicU32];
                // SAFETY: an AtomicU32 has the size, alignment and bit patterns of a u32, and the slice stays borrowed
                // exclusively through `self` for as long as the result lives, so that nobody sees it as plain numbers.
                (log, unsafe { &*index })
            }
            KvsMemory::Shared(segment) => segment.lend(),
        }
    }
}

/// Slabs to lend to a server. What it does not use costs no memory, since the long ones come zeroed from the system.
#[derive(Debug)]
pub struct HeapSlabs {
    jobs: Vec<Job>,
    ranks: Vec<RankSlot>,
    conns: Vec<Conn>,
    kvs: KvsMemory,
    groups: Vec<Group>,
    names: Vec<Name>,
    spawns: Vec<Errand>,
    requests: Vec<u8>,
    psets: Vec<Pset>,
    links: Vec<Link>,
    bits: Vec<u32>,
}

impl HeapSlabs {
    /// Slabs for these limits, in memory of this process alone.
    pub fn new(limits: &Limits) -> HeapSlabs {
        let lengths = Lengths::of(limits);
        HeapSlabs::with(KvsMemory::private(&lengths), &lengths)
    }

    /// Slabs for these limits, whose key-value log other processes may read as far as the system allows that.
    pub(crate) fn shared(limits: &Limits) -> HeapSlabs {
        let lengths = Lengths::of(limits);
        let shared = Segment::new(&lengths).map(KvsMemory::Shared);
        HeapSlabs::with(shared.unwrap_or_else(|| KvsMemory::private(&lengths)), &lengths)
    }

    /// How ranks get to read the log of a server with that hash seed; nothing where they cannot.
    pub(crate) fn sharing(&self, seed: u32) -> Option<Sharing> {
        match &self.kvs {
            KvsMemory::Private { .. } => None,
            KvsMemory::Shared(segment) => segment.sharing(seed),
        }
    }

    fn with(mut kvs: KvsMemory, lengths: &Lengths) -> HeapSlabs {
        prefer_large_pages(kvs.lend().0);
        HeapSlabs {
            jobs: vec![Job::default(); lengths.jobs],
            ranks: vec![RankSlot::default(); lengths.ranks],
            conns: vec![Conn::default(); lengths.conns],
            kvs,
            groups: vec![Group::default(); lengths.groups],
            names: vec![Name::default(); lengths.names],
            spawns: vec![Errand::default(); lengths.spawns],
            requests: vec![0; lengths.requests],
            psets: vec![Pset::default(); lengths.psets],
            links: vec![Link::default(); lengths.links],
            bits: vec![0; lengths.bits],
        }
    }

    /// Lends them out.
    pub fn lend(&mut self) -> Slabs<'_> {
        let (log, index) = self.kvs.lend();
        Slabs {
            jobs: &mut self.jobs,
            ranks: &mut self.ranks,
            conns: &mut self.conns,
            log,
            index,
            groups: &mut self.groups,
            names: &mut self.names,
            spawns: &mut self.spawns,
            requests: &mut self.requests,
            psets: &mut self.psets,
            links: &mut self.links,
            bits: &mut self.bits,
        }
    }
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
