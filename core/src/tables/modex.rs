//! Direct modex: data of PMIx ranks that nodes ask each other for.
//!
//! A node asks the neighbour in the direction of the rank's node. Each node on the way stores a copy of the data and
//! sends it to the neighbours that have asked. A neighbour asks once for each rank, and gets all later data of that rank
//! too.

use core::ops::Range;

use crate::store::bits;

/// Sets of rank slots, two for each link: those that have been asked for over the link, by either side, and those that a
/// message is pending about.
///
/// The pending message is a request if the rank is beyond the link, and its data otherwise.
#[derive(Debug)]
pub(crate) struct Modex<'s> {
    sets: &'s mut [u32],
    /// Number of words of one set.
    words: usize,
}

impl<'s> Modex<'s> {
    /// Returns the number of words that `links` links and `ranks` ranks need.
    pub(crate) const fn words(links: u32, ranks: u32) -> usize {
        if cfg!(feature = "pmix") { 2 * links as usize * bits::words(ranks) } else { 0 }
    }

    /// Creates empty sets. Returns `None` if `sets` is shorter than [`Modex::words`].
    pub(crate) fn new(sets: &'s mut [u32], links: u32, ranks: u32) -> Option<Modex<'s>> {
        let sets = sets.get_mut(..Modex::words(links, ranks))?;
        sets.fill(0);
        Some(Modex { sets, words: bits::words(ranks) })
    }

    /// Forgets the ranks of a job.
    pub(crate) fn forget(&mut self, slots: Range<usize>) {
        let words = self.words.max(1);
        for set in self.sets.chunks_mut(words) {
            for slot in slots.clone() {
                bits::remove(set, slot as u32);
            }
        }
    }

    /// Returns the sets for restoring a snapshot.
    pub(crate) fn state_mut(&mut self) -> &mut [u32] {
        self.sets
    }

    /// Returns the sets for a snapshot.
    pub(crate) fn state(&self) -> &[u32] {
        self.sets
    }
}

#[cfg(feature = "pmix")]
impl Modex<'_> {
    /// Returns the place of a set of a link: the ranks asked for if `which` is 0, the pending ones if it is 1.
    fn range(&self, link: usize, which: usize) -> Range<usize> {
        let start = (2 * link + which) * self.words;
        start..start + self.words
    }

    fn set(&self, link: usize, which: usize) -> &[u32] {
        self.sets.get(self.range(link, which)).unwrap_or_default()
    }

    fn set_mut(&mut self, link: usize, which: usize) -> &mut [u32] {
        let range = self.range(link, which);
        self.sets.get_mut(range).unwrap_or_default()
    }

    /// Notes that a rank is asked for over a link. Returns false if it was before.
    pub(crate) fn ask(&mut self, link: usize, slot: u32) -> bool {
        bits::insert(self.set_mut(link, 0), slot)
    }

    /// Returns whether a rank has been asked for over a link.
    pub(crate) fn is_asked(&self, link: usize, slot: u32) -> bool {
        bits::contains(self.set(link, 0), slot)
    }

    /// Makes a message about a rank pending for a link.
    pub(crate) fn push(&mut self, link: usize, slot: u32) {
        bits::insert(self.set_mut(link, 1), slot);
    }

    /// Takes the next rank that a message is pending about.
    pub(crate) fn pop(&mut self, link: usize) -> Option<u32> {
        let slot = bits::iter(self.set(link, 1)).next()?;
        bits::remove(self.set_mut(link, 1), slot);
        Some(slot)
    }
}

#[cfg(all(test, feature = "pmix"))]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_asked_for_once_per_link() {
        let mut sets = [7; Modex::words(2, 40)];
        let mut modex = Modex::new(&mut sets, 2, 40).unwrap();
        assert!(modex.ask(1, 39) && !modex.ask(1, 39) && modex.ask(0, 39));
        modex.push(1, 39);
        modex.push(1, 2);
        assert_eq!((modex.pop(0), modex.pop(1), modex.pop(1), modex.pop(1)), (None, Some(2), Some(39), None));
        modex.push(0, 5);
        modex.forget(5..40);
        assert!(!modex.is_asked(0, 39) && modex.pop(0).is_none());
        assert!(!modex.ask(2, 1), "there is no such link");
    }
}
