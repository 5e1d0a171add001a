//! Set of ready connections, with the next one found in O(log n).

/// Maximum number of levels of any `u32` capacity. Each has a 32nd of the bits of the one below.
const LEVELS: usize = 7;

/// Set of numbers below a fixed capacity, which are returned in turn.
///
/// Level 0 has a bit for each number. A bit of a higher level is set if the word below it is not zero.
#[derive(Debug)]
pub(crate) struct Ready<'s> {
    words: &'s mut [u32],
    start: [u32; LEVELS + 1],
    levels: usize,
    capacity: u32,
    cursor: u32,
    /// Count of the set's numbers.
    count: u32,
}

impl<'s> Ready<'s> {
    /// Returns the number of words of a set of numbers below `capacity`.
    pub(crate) const fn words(capacity: u32) -> u64 {
        let mut total = 0;
        let mut len = capacity;
        loop {
            len = len.div_ceil(32);
            total += len as u64;
            if len <= 1 {
                return total;
            }
        }
    }

    /// Creates an empty set in the first [`Ready::words`] of `words`, which are zero. Returns `None` if there are too few.
    pub(crate) fn new(words: &'s mut [u32], capacity: u32) -> Option<Ready<'s>> {
        let words = words.get_mut(..Ready::words(capacity) as usize)?;
        let mut start = [0; LEVELS + 1];
        let mut levels = 0;
        let mut len = capacity;
        loop {
            len = len.div_ceil(32);
            start[levels + 1] = start[levels] + len;
            levels += 1;
            if len <= 1 {
                return Some(Ready { words, start, levels, capacity, cursor: 0, count: 0 });
            }
        }
    }

    /// Inserts a number.
    pub(crate) fn insert(&mut self, n: u32) {
        debug_assert!(n < self.capacity);
        let Some(word) = self.words.get_mut((n / 32) as usize) else { return };
        let before = *word;
        *word |= 1 << (n % 32);
        self.count += u32::from(before != *word);
        if before == 0 {
            self.insert_above(n / 32);
        }
    }

    /// Marks a word as not zero in the levels above it.
    fn insert_above(&mut self, word: u32) {
        let mut at = word;
        for start in self.start[..self.levels].iter().skip(1) {
            let Some(word) = self.words.get_mut((start + at / 32) as usize) else { return };
            let before = *word;
            *word |= 1 << (at % 32);
            if before != 0 {
                return;
            }
            at /= 32;
        }
    }

    /// Removes a number.
    pub(crate) fn remove(&mut self, n: u32) {
        let Some(word) = self.words.get_mut((n / 32) as usize) else { return };
        let before = *word;
        *word &= !(1 << (n % 32));
        self.count -= u32::from(before != *word);
        if *word == 0 {
            self.remove_above(n / 32);
        }
    }

    /// Marks a word as zero in the levels above it.
    fn remove_above(&mut self, word: u32) {
        let mut at = word;
        for start in self.start[..self.levels].iter().skip(1) {
            let Some(word) = self.words.get_mut((start + at / 32) as usize) else { return };
            *word &= !(1 << (at % 32));
            if *word != 0 {
                return;
            }
            at /= 32;
        }
    }

    /// Returns the next number in turn: the lowest one above the last one [passed](Ready::pass), or else the lowest.
    pub(crate) fn next(&self) -> Option<u32> {
        if self.count == 0 { None } else { self.from(self.cursor) }
    }

    /// Returns the lowest number that is not below `start`, or else the lowest.
    pub(crate) fn from(&self, start: u32) -> Option<u32> {
        match self.not_below(start) {
            None => self.not_below(0),
            found => found,
        }
    }

    /// Returns how many numbers the set has.
    pub(crate) const fn len(&self) -> u32 {
        self.count
    }

    /// Returns the lower bound of the next number in turn.
    pub(crate) const fn turn(&self) -> u32 {
        self.cursor
    }

    /// Restores the lower bound of the next number. Returns false if it is beyond the capacity.
    pub(crate) fn set_turn(&mut self, turn: u32) -> bool {
        self.cursor = turn;
        turn < self.capacity || turn == 0
    }

    /// Gives the numbers above `n` their turn.
    pub(crate) fn pass(&mut self, n: u32) {
        self.cursor = if n + 1 < self.capacity { n + 1 } else { 0 };
    }

    fn not_below(&self, from: u32) -> Option<u32> {
        let word = from / 32;
        // Mostly it is in the same word.
        if word < self.start[1]
            && let Some(word) = self.words.get(word as usize)
            && let found @ 1.. = word & (u32::MAX << (from % 32))
        {
            return Some(from / 32 * 32 + found.trailing_zeros());
        }
        self.search(from)
    }

    fn search(&self, from: u32) -> Option<u32> {
        let mut at = from;
        for level in 0..self.levels {
            let word = self.start[level] + at / 32;
            if word < self.start[level + 1] {
                let found = self.words[word as usize] & (u32::MAX << (at % 32));
                if found != 0 {
                    return Some(self.fan_out(level, at / 32 * 32 + found.trailing_zeros()));
                }
            }
            at = at / 32 + 1;
        }
        None
    }

    fn fan_out(&self, level: usize, found: u32) -> u32 {
        (0..level)
            .rev()
            .fold(found, |at, level| at * 32 + self.words[(self.start[level] + at) as usize].trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec;

    proptest! {
        #[test]
        fn behaves_like_a_set(
            capacity in 1u32..5000,
            steps in proptest::collection::vec((any::<bool>(), any::<u32>()), 1..200),
        ) {
            let mut words = vec![0; Ready::words(capacity) as usize];
            let mut ready = Ready::new(&mut words, capacity).unwrap();
            let mut model = BTreeSet::new();
            let mut cursor = 0;
            for (insert, n) in steps {
                let n = n % capacity;
                if insert {
                    ready.insert(n);
                    model.insert(n);
                } else {
                    ready.remove(n);
                    model.remove(&n);
                }
                let expected = model.range(cursor..).next().or(model.first()).copied();
                prop_assert_eq!(ready.next(), expected);
                prop_assert_eq!(ready.len() as usize, model.len());
                if let Some(turn) = expected {
                    ready.pass(turn);
                    cursor = (turn + 1) % capacity;
                }
            }
        }
    }

    #[test]
    fn no_capacity_is_an_empty_set() {
        assert_eq!(Ready::new(&mut [], 0).unwrap().next(), None);
    }
}
