//! The core's memory on a host with an allocator: slabs on the heap, as long as the limits say.

use std::ptr;
use std::sync::atomic::AtomicU32;

use hydrant_core::slabs::{Conn, Errand, Group, Job, Lengths, Name, Pset, RankSlot};
use hydrant_core::{Limits, Slabs};
use rustix::mm::{Advice, madvise};

/// Slabs to lend to a server. What it does not use costs no memory, since the long ones come zeroed from the system.
#[derive(Debug)]
pub struct HeapSlabs {
    jobs: Vec<Job>,
    ranks: Vec<RankSlot>,
    conns: Vec<Conn>,
    log: Vec<u8>,
    index: Vec<u32>,
    groups: Vec<Group>,
    names: Vec<Name>,
    spawns: Vec<Errand>,
    requests: Vec<u8>,
    psets: Vec<Pset>,
    bits: Vec<u32>,
}

impl HeapSlabs {
    /// Slabs for these limits.
    pub fn new(limits: &Limits) -> HeapSlabs {
        let lengths = Lengths::of(limits);
        let mut log = vec![0; lengths.log];
        prefer_large_pages(&mut log);
        HeapSlabs {
            jobs: vec![Job::default(); lengths.jobs],
            ranks: vec![RankSlot::default(); lengths.ranks],
            conns: vec![Conn::default(); lengths.conns],
            log,
            index: vec![0; lengths.index],
            groups: vec![Group::default(); lengths.groups],
            names: vec![Name::default(); lengths.names],
            spawns: vec![Errand::default(); lengths.spawns],
            requests: vec![0; lengths.requests],
            psets: vec![Pset::default(); lengths.psets],
            bits: vec![0; lengths.bits],
        }
    }

    /// Lends them out.
    pub fn lend(&mut self) -> Slabs<'_> {
        let index = ptr::from_mut(self.index.as_mut_slice()) as *const [AtomicU32];
        Slabs {
            jobs: &mut self.jobs,
            ranks: &mut self.ranks,
            conns: &mut self.conns,
            log: &mut self.log,
            // SAFETY: an AtomicU32 has the size, alignment and bit patterns of a u32, and the slice stays borrowed
            // exclusively through `self` for as long as the result lives, so that nobody sees it as plain numbers.
            index: unsafe { &*index },
            groups: &mut self.groups,
            names: &mut self.names,
            spawns: &mut self.spawns,
            requests: &mut self.requests,
            psets: &mut self.psets,
            bits: &mut self.bits,
        }
    }
}

/// Asks for large pages behind the first few, so that looking up one of very many keys does not miss in the TLB each
/// time, and a small job does not pay for a large page.
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
