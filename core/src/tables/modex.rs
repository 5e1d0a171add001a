//! Direct modex: data of ranks that nodes ask each other for. Pairs of lazy jobs, and data of PMIx ranks.
//!
//! A node asks the neighbour in the direction of the rank's node. Each node on the way stores a copy of the data and
//! sends it to the neighbours that have asked. A neighbour asks once for each rank, and gets all later data of that rank
//! too.

use core::ops::Range;

use crate::store::bits;

/// Number of sets of each link.
const SETS: usize = Set::ALL.len();

/// Set of rank slots of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Set {
    /// Ranks whose pairs either side has asked for and does not have yet.
    Asked,
    /// Ranks whose pairs a message is pending about: a request if the rank is beyond the link, and otherwise the answer
    /// that is being written.
    Pending,
    /// Ranks whose pairs either side has got. Later ones come with each fence.
    Complete,
    /// PMIx ranks whose data either side has asked for.
    #[cfg(feature = "pmix")]
    Commit,
    /// PMIx ranks that a message is pending about: a request if the rank is beyond the link, and its data otherwise.
    #[cfg(feature = "pmix")]
    CommitPending,
    /// PMIx ranks whose newest data the neighbour waits for.
    #[cfg(feature = "pmix")]
    Renewed,
    /// PMIx ranks that a message about their newest data is pending about: a request if the rank is beyond the link, and the
    /// data otherwise.
    #[cfg(feature = "pmix")]
    RenewedPending,
}

impl Set {
    /// All sets.
    pub(crate) const ALL: &'static [Set] = &[
        Set::Asked,
        Set::Pending,
        Set::Complete,
        #[cfg(feature = "pmix")]
        Set::Commit,
        #[cfg(feature = "pmix")]
        Set::CommitPending,
        #[cfg(feature = "pmix")]
        Set::Renewed,
        #[cfg(feature = "pmix")]
        Set::RenewedPending,
    ];

    /// Returns whether it has ranks of lazy jobs only.
    pub(crate) fn is_lazy(self) -> bool {
        matches!(self, Set::Asked | Set::Pending | Set::Complete)
    }
}

/// Sets of rank slots of each link.
#[derive(Debug)]
pub(crate) struct Modex<'s> {
    sets: &'s mut [u32],
    /// Number of words of one set.
    words: usize,
}

impl<'s> Modex<'s> {
    /// Returns the number of words that `links` links and `ranks` ranks need.
    pub(crate) const fn words(links: u32, ranks: u32) -> u64 {
        SETS as u64 * links as u64 * bits::words(ranks) as u64
    }

    /// Creates empty sets in words of zero. Returns `None` if `sets` is shorter than [`Modex::words`].
    pub(crate) fn new(sets: &'s mut [u32], links: u32, ranks: u32) -> Option<Modex<'s>> {
        let sets = sets.get_mut(..Modex::words(links, ranks) as usize)?;
        Some(Modex { sets, words: bits::words(ranks) })
    }

    /// Forgets the ranks of a job.
    pub(crate) fn forget(&mut self, slots: Range<usize>) {
        let words = self.words.max(1);
        let slots = slots.start as u32..slots.end as u32;
        self.sets.chunks_mut(words).for_each(|set| bits::remove_all(set, &slots));
    }

    /// Forgets the ranks of a link.
    #[cfg(feature = "cluster")]
    pub(crate) fn forget_link(&mut self, link: usize) {
        Set::ALL.iter().for_each(|&set| self.set_mut(link, set).fill(0));
    }

    /// Returns the sets for restoring a snapshot.
    pub(crate) fn state_mut(&mut self) -> &mut [u32] {
        self.sets
    }

    /// Returns the sets for a snapshot.
    pub(crate) fn state(&self) -> &[u32] {
        self.sets
    }

    fn range(&self, link: usize, set: Set) -> Range<usize> {
        let start = (SETS * link + set as usize) * self.words;
        start..start + self.words
    }

    fn set(&self, link: usize, set: Set) -> &[u32] {
        self.sets.get(self.range(link, set)).unwrap_or_default()
    }

    fn set_mut(&mut self, link: usize, set: Set) -> &mut [u32] {
        let range = self.range(link, set);
        self.sets.get_mut(range).unwrap_or_default()
    }

    /// Returns whether a set of a link contains a rank.
    #[inline(never)]
    pub(crate) fn contains(&self, link: usize, set: Set, slot: u32) -> bool {
        bits::contains(self.set(link, set), slot)
    }

    /// Inserts a rank into a set of a link. Returns whether it was added.
    #[inline(never)]
    pub(crate) fn insert(&mut self, link: usize, set: Set, slot: u32) -> bool {
        bits::insert(self.set_mut(link, set), slot)
    }

    /// Removes a rank from a set of a link.
    #[inline(never)]
    pub(crate) fn remove(&mut self, link: usize, set: Set, slot: u32) {
        bits::remove(self.set_mut(link, set), slot);
    }

    /// Returns the first rank from `from` on in a set of a link.
    #[inline(never)]
    pub(crate) fn next(&self, link: usize, set: Set, from: u32) -> Option<u32> {
        let mut mask = u32::MAX << (from % 32);
        for (at, word) in self.set(link, set).iter().enumerate().skip((from / 32) as usize) {
            let rest = word & mask;
            if rest != 0 {
                return Some(at as u32 * 32 + rest.trailing_zeros());
            }
            mask = u32::MAX;
        }
        None
    }
}

#[cfg(feature = "pmix")]
impl Modex<'_> {
    /// Notes that data of a PMIx rank are asked for over a link. Returns false if they were before.
    pub(crate) fn ask(&mut self, link: usize, slot: u32) -> bool {
        self.insert(link, Set::Commit, slot)
    }

    /// Returns whether data of a PMIx rank have been asked for over a link.
    pub(crate) fn is_asked(&self, link: usize, slot: u32) -> bool {
        self.contains(link, Set::Commit, slot)
    }

    /// Makes a message about a PMIx rank pending for a link.
    pub(crate) fn push(&mut self, link: usize, slot: u32) {
        self.insert(link, Set::CommitPending, slot);
    }

    /// Takes the first rank of a set.
    pub(crate) fn pop(&mut self, link: usize, set: Set) -> Option<u32> {
        let slot = self.next(link, set, 0)?;
        self.remove(link, set, slot);
        Some(slot)
    }
}

#[cfg(all(test, feature = "pmix"))]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_asked_for_once_per_link() {
        let mut sets = [0; Modex::words(2, 40) as usize];
        let mut modex = Modex::new(&mut sets, 2, 40).unwrap();
        assert!(modex.ask(1, 39) && !modex.ask(1, 39) && modex.ask(0, 39));
        modex.push(1, 39);
        modex.push(1, 2);
        assert_eq!(
            (
                modex.pop(0, Set::CommitPending),
                modex.pop(1, Set::CommitPending),
                modex.pop(1, Set::CommitPending),
                modex.pop(1, Set::CommitPending)
            ),
            (None, Some(2), Some(39), None)
        );
        modex.push(0, 5);
        modex.forget(5..40);
        assert!(!modex.is_asked(0, 39) && modex.pop(0, Set::CommitPending).is_none());
        assert!(!modex.ask(2, 1), "there is no such link");
    }

    #[test]
    fn ranks_of_a_set_in_order() {
        let mut sets = [0; Modex::words(2, 100) as usize];
        let mut modex = Modex::new(&mut sets, 2, 100).unwrap();
        for slot in [0, 31, 32, 99] {
            assert!(modex.insert(1, Set::Asked, slot));
        }
        assert_eq!(
            [0, 1, 32, 33, 99, 100].map(|from| modex.next(1, Set::Asked, from)),
            [Some(0), Some(31), Some(32), Some(99), Some(99), None]
        );
        assert_eq!((modex.next(0, Set::Asked, 0), modex.next(1, Set::Pending, 0)), (None, None));
        modex.remove(1, Set::Asked, 31);
        assert_eq!(modex.next(1, Set::Asked, 1), Some(32));
    }
}
