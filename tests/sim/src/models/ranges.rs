//! Set of numbers, stored as ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Set of numbers. Adjacent numbers take the memory of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranges {
    /// The end of each range by its start. Ranges neither overlap nor touch.
    ends: BTreeMap<u32, u32>,
}

impl Ranges {
    /// Returns whether it has no number.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// Returns whether it contains all numbers of a range.
    pub(crate) fn contains(&self, numbers: &Range<u32>) -> bool {
        numbers.is_empty() || self.before(numbers.start + 1).is_some_and(|range| range.end >= numbers.end)
    }

    /// Returns the parts of a range that it contains, in ascending order.
    pub(crate) fn within(&self, numbers: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        let first = self.before(numbers.start + 1).map_or(numbers.start, |range| range.start);
        let ranges = self.ends.range(first..numbers.end.max(first));
        let clipped = ranges.map(move |(&start, &end)| start.max(numbers.start)..end.min(numbers.end));
        clipped.filter(|range| !range.is_empty())
    }

    /// Inserts the numbers of a range. Returns those that are new, in ascending order.
    pub(crate) fn insert(&mut self, numbers: Range<u32>) -> Vec<Range<u32>> {
        let mut new = Vec::new();
        let mut at = numbers.start;
        for known in self.within(numbers.clone()) {
            if at < known.start {
                new.push(at..known.start);
            }
            at = known.end;
        }
        if at < numbers.end {
            new.push(at..numbers.end);
        }
        if new.is_empty() {
            return new;
        }
        // One range replaces all that overlap it or touch it.
        let first = self.before(numbers.start + 1).filter(|range| range.end >= numbers.start);
        let start = first.map_or(numbers.start, |range| range.start);
        let last = self.before(numbers.end + 1);
        let end = last.map_or(numbers.end, |range| range.end.max(numbers.end));
        let old: Vec<u32> = self.ends.range(start..=numbers.end).map(|(&start, _)| start).collect();
        for start in old {
            self.ends.remove(&start);
        }
        self.ends.insert(start, end);
        new
    }

    /// Returns the last range that starts before a number.
    fn before(&self, number: u32) -> Option<Range<u32>> {
        self.ends.range(..number).next_back().map(|(&start, &end)| start..end)
    }
}

/// Returns how many numbers ranges have.
pub(crate) fn count(ranges: impl Iterator<Item = Range<u32>>) -> u64 {
    ranges.map(|range| u64::from(range.end - range.start)).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_set_of_ranges_is_a_set_of_numbers() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let (mut ranges, mut numbers) = (Ranges::default(), BTreeSet::new());
            for _ in 0..random.u32(1..20) {
                let start = random.u32(..40);
                let range = start..start + random.u32(..10);
                let new: Vec<u32> = range.clone().filter(|&number| numbers.insert(number)).collect();
                assert_eq!(ranges.insert(range).into_iter().flatten().collect::<Vec<_>>(), new);
                assert!(ranges.iter().flatten().eq(numbers.iter().copied()), "{ranges:?}");
                assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(a, b)| a.end < b.start));
            }
            for start in 0..50 {
                let range = start..start + random.u32(..10);
                let inside: Vec<u32> = range.clone().filter(|number| numbers.contains(number)).collect();
                assert_eq!(ranges.contains(&range), inside.len() == range.len());
                assert_eq!(count(ranges.within(range.clone())), inside.len() as u64);
                assert!(ranges.within(range).flatten().eq(inside));
            }
        }
    }
}
