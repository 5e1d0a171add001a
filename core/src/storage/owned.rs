//! Storage on the heap.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;

use super::{Bulk, Layout, Storage};
use crate::limits::Limits;
use crate::peer::links::Link;
use crate::state::{Conn, Job, RankSlot};
use crate::tables::fence::Group;
use crate::tables::names::Name;
use crate::tables::psets::Pset;
use crate::tables::upcalls::Upcall;

/// Storage on the heap, for limits known at run time.
#[derive(Debug)]
pub struct OwnedStorage {
    slots: OwnedSlots,
    log: Box<[u8]>,
    index: Box<[AtomicU32]>,
    requests: Box<[u8]>,
}

impl OwnedStorage {
    /// Allocates storage for these limits.
    ///
    /// # Panics
    /// If the address space is too small for the limits. If the allocator has too little memory, the program aborts as
    /// with every allocation. A host that takes limits from its user compares [`Layout::checked`] with the installed
    /// memory first.
    pub fn new(limits: &Limits) -> OwnedStorage {
        let layout = Layout::checked(limits).expect("the limits fit the address space");
        OwnedStorage {
            slots: OwnedSlots::try_new(&layout).expect("the allocator has memory for the slots"),
            log: vec![0; layout.log].into(),
            index: (0..layout.index).map(|_| AtomicU32::new(0)).collect(),
            requests: vec![0; layout.requests].into(),
        }
    }

    /// Lends the slabs to a server.
    pub fn lend(&mut self) -> Storage<'_> {
        let OwnedStorage { slots, log, index, requests } = self;
        slots.lend(Bulk { log, index, requests })
    }
}

/// Slabs of slots on the heap. The host provides the others as [`Bulk`].
#[derive(Debug)]
pub struct OwnedSlots {
    jobs: Vec<Job>,
    ranks: Vec<RankSlot>,
    conns: Vec<Conn>,
    groups: Vec<Group>,
    names: Vec<Name>,
    upcalls: Vec<Upcall>,
    psets: Vec<Pset>,
    links: Vec<Link>,
    bits: Vec<u32>,
    /// No server has used the slots.
    unused: bool,
}

impl OwnedSlots {
    /// Allocates the slots. Returns `None` if the allocator has too little memory.
    pub fn try_new(layout: &Layout) -> Option<OwnedSlots> {
        Some(OwnedSlots {
            jobs: slots(layout.jobs)?,
            ranks: slots(layout.ranks)?,
            conns: slots(layout.conns)?,
            groups: slots(layout.groups)?,
            names: slots(layout.names)?,
            upcalls: slots(layout.upcalls)?,
            psets: slots(layout.psets)?,
            links: slots(layout.links)?,
            bits: slots(layout.bits)?,
            unused: true,
        })
    }

    /// Lends these slabs and those of the host to a server.
    pub fn lend<'s>(&'s mut self, bulk: Bulk<'s>) -> Storage<'s> {
        let unused = core::mem::replace(&mut self.unused, false);
        Storage {
            jobs: &mut self.jobs,
            ranks: &mut self.ranks,
            conns: &mut self.conns,
            log: bulk.log,
            index: bulk.index,
            groups: &mut self.groups,
            names: &mut self.names,
            upcalls: &mut self.upcalls,
            requests: bulk.requests,
            psets: &mut self.psets,
            links: &mut self.links,
            bits: &mut self.bits,
            unused,
        }
    }
}

fn slots<T: Default>(len: usize) -> Option<Vec<T>> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(len).ok()?;
    slots.resize_with(len, T::default);
    Some(slots)
}
