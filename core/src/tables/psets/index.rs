//! Index of process sets by name, and the first free slot.
//!
//! A run of many hosts has a set for each of them. With the feature `cluster` the slots are a hash table, too: each has
//! the head of a list of the sets whose names hash to its number. The table grows with the sets, so that unused slots are
//! not touched. A small server walks its few slots.

use super::Psets;
#[cfg(feature = "cluster")]
use crate::store::log::hash;

/// Links of a slot. Each is one more than the number of a slot, or 0.
#[cfg(feature = "cluster")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    /// First set whose name hashes to this slot.
    head: u32,
    /// Next set whose name has the same hash as the set in this slot.
    next: u32,
}

#[cfg(feature = "cluster")]
impl Links {
    pub(super) const NONE: Links = Links { head: 0, next: 0 };
}

#[cfg(feature = "cluster")]
impl Psets<'_> {
    /// Returns the slots of the known sets of a name.
    pub(super) fn known(&self, name: &str) -> impl Iterator<Item = usize> + Clone {
        let number = |link: u32| link.checked_sub(1).map(|at| at as usize);
        let head = self.bucket(name).and_then(|bucket| number(self.slots[bucket].links.head));
        let list = core::iter::successors(head, move |&at| number(self.slots[at].links.next));
        list.filter(move |&at| self.slots[at].is_known() && self.slots[at].name == name)
    }

    /// Returns the first free slot.
    pub(super) fn first_free(&self) -> Option<usize> {
        let behind = &self.slots[self.in_use as usize..];
        behind.iter().position(|slot| slot.serial == 0).map(|at| self.in_use as usize + at)
    }

    /// Notes that a slot has a set. `was_free` is whether it was the first free one.
    pub(super) fn link(&mut self, at: usize, was_free: bool) {
        if was_free {
            self.in_use = at as u32 + 1;
        }
        if at < self.buckets as usize { self.chain(at) } else { self.relink() }
    }

    fn chain(&mut self, at: usize) {
        let Some(bucket) = self.bucket(&self.slots[at].name) else { return };
        self.slots[at].links.next = self.slots[bucket].links.head;
        self.slots[bucket].links.head = at as u32 + 1;
    }

    /// Notes that a slot is about to lose its set.
    pub(super) fn unlink(&mut self, at: usize) {
        self.in_use = self.in_use.min(at as u32);
        let Some(bucket) = self.bucket(&self.slots[at].name) else { return };
        let (this, next) = (at as u32 + 1, self.slots[at].links.next);
        if self.slots[bucket].links.head == this {
            self.slots[bucket].links.head = next;
            return;
        }
        let mut before = self.slots[bucket].links.head;
        while let Some(slot) = before.checked_sub(1).map(|at| &mut self.slots[at as usize]) {
            if slot.links.next == this {
                slot.links.next = next;
                return;
            }
            before = slot.links.next;
        }
    }

    /// Makes the index anew, with lists for twice as many sets.
    pub(super) fn relink(&mut self) {
        let end = self.slots_end();
        let old = end.max(self.buckets as usize);
        self.slots[..old].iter_mut().for_each(|slot| slot.links = Links::NONE);
        self.buckets = self.slots.len().min(2 * end) as u32;
        self.in_use = 0;
        for at in 0..end {
            if self.slots[at].serial > 0 {
                self.in_use += u32::from(self.in_use == at as u32);
                self.chain(at);
            }
        }
    }

    /// Returns the slot with the head of the list of a name.
    fn bucket(&self, name: &str) -> Option<usize> {
        (hash(0, name.as_bytes()) as usize).checked_rem(self.buckets as usize)
    }
}

#[cfg(not(feature = "cluster"))]
impl Psets<'_> {
    /// Returns the slots of the known sets of a name.
    pub(super) fn known(&self, name: &str) -> impl Iterator<Item = usize> + Clone {
        (0..self.slots.len()).filter(move |&at| self.slots[at].is_known() && self.slots[at].name == name)
    }

    /// Returns the first free slot.
    pub(super) fn first_free(&self) -> Option<usize> {
        self.slots.iter().position(|slot| slot.serial == 0)
    }

    pub(super) fn link(&mut self, _: usize, _: bool) {}

    pub(super) fn unlink(&mut self, _: usize) {}

    pub(super) fn relink(&mut self) {}
}
