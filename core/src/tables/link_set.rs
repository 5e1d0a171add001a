//! Sets of links of a node. Their operations are not inlined, because each of their many callers would take flash of boards.

use serde::{Deserialize, Serialize};

/// Number of 64-bit words of a set. It is the one number that the width follows from.
const WORDS: usize = if cfg!(feature = "wide") { 16 } else { 1 };

/// Maximum number of links of a node, a parent and children: 1,023 with the feature `wide`, and 63 without.
pub const LINKS_MAX: u32 = u64::BITS * WORDS as u32 - 1;

/// Set of a node's links, by their indices. Indices from [`LINKS_MAX`] on are in no set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkSet([u64; WORDS]);

impl LinkSet {
    /// No link.
    pub(crate) const EMPTY: LinkSet = LinkSet([0; WORDS]);

    /// The link of the parent, if there is one.
    pub(crate) fn parent(exists: bool) -> LinkSet {
        let mut set = LinkSet::EMPTY;
        set.0[0] = u64::from(exists);
        set
    }

    /// Returns whether no link is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == LinkSet::EMPTY.0
    }

    /// Returns whether a link is in the set.
    #[inline(never)]
    pub(crate) fn contains(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }

    /// Adds a link.
    #[inline(never)]
    pub(crate) fn insert(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Removes a link.
    #[inline(never)]
    pub(crate) fn remove(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Adds the links of another set.
    pub(crate) fn add(&mut self, other: &LinkSet) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word |= other);
    }

    /// Returns the links that are not in another set.
    pub(crate) fn without(&self, other: &LinkSet) -> LinkSet {
        let mut set = *self;
        set.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
        set
    }

    /// Returns the links that are in another set too.
    pub(crate) fn common(&self, other: &LinkSet) -> LinkSet {
        self.without(&self.without(other))
    }

    /// Returns whether all links are in another set.
    pub(crate) fn is_within(&self, other: &LinkSet) -> bool {
        self.0.iter().zip(&other.0).all(|(word, other)| word & !other == 0)
    }
}

impl FromIterator<usize> for LinkSet {
    fn from_iter<I: IntoIterator<Item = usize>>(links: I) -> LinkSet {
        let mut set = LinkSet::EMPTY;
        links.into_iter().for_each(|at| set.insert(at));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_up_to_the_last_are_members() {
        let last = LINKS_MAX as usize;
        let mut set: LinkSet = [0, last - 1].into_iter().collect();
        assert!(set.contains(0) && set.contains(last - 1) && !set.contains(1));
        let both = set;
        set.insert(usize::MAX);
        set.remove(usize::MAX);
        assert!(!set.contains(usize::MAX) && set == both, "a link that no node has");
        assert!(LinkSet::parent(true).is_within(&set) && !set.is_within(&LinkSet::parent(true)));
        assert_eq!(set.without(&LinkSet::parent(true)), [last - 1].into_iter().collect());
        set.remove(0);
        set.remove(last - 1);
        assert!(set.is_empty() && LinkSet::parent(false).is_empty());
        set.add(&both);
        assert_eq!(set, both);
    }
}
