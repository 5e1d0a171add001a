//! Sets of small numbers, one bit each.

use core::ops::Range;

/// Returns the number of words of a set of numbers below `len`.
pub(crate) const fn words(len: u32) -> usize {
    len.div_ceil(32) as usize
}

/// Returns whether `n` is in the set. Numbers beyond its capacity are not.
pub(crate) fn contains(set: &[u32], n: u32) -> bool {
    set.get((n / 32) as usize).is_some_and(|word| word & (1 << (n % 32)) != 0)
}

/// Inserts `n`. Returns whether it was added. Numbers beyond the capacity are ignored.
pub(crate) fn insert(set: &mut [u32], n: u32) -> bool {
    let Some(word) = set.get_mut((n / 32) as usize) else { return false };
    let new = *word & (1 << (n % 32)) == 0;
    *word |= 1 << (n % 32);
    new
}

/// Removes `n`. Returns whether it was in the set.
pub(crate) fn remove(set: &mut [u32], n: u32) -> bool {
    let Some(word) = set.get_mut((n / 32) as usize) else { return false };
    let old = *word & (1 << (n % 32)) != 0;
    *word &= !(1 << (n % 32));
    old
}

/// Removes all numbers of a range. Words without any of them are not written.
pub(crate) fn remove_all(set: &mut [u32], range: &Range<u32>) {
    let words = (range.start / 32) as usize..(range.end.div_ceil(32) as usize).min(set.len());
    for at in words.filter(|&at| at * 32 < range.end as usize) {
        let (old, gone) = (set[at], word(range, at));
        if old & gone != 0 {
            set[at] = old & !gone;
        }
    }
}

/// Returns the word at index `at` of the set of a range of numbers.
pub(crate) fn word(range: &Range<u32>, at: usize) -> u32 {
    let first = at as u32 * 32;
    let (start, end) = (range.start.max(first), range.end.min(first.saturating_add(32)));
    if start < end { (u32::MAX >> (32 - (end - start))) << (start - first) } else { 0 }
}

/// Returns the first number of a range that is in the set.
pub(crate) fn first(set: &[u32], range: Range<u32>) -> Option<u32> {
    let mut words = (range.start / 32) as usize..(range.end.div_ceil(32) as usize).min(set.len());
    words.find_map(|at| {
        // Most words of a long set are empty.
        let found = if set[at] == 0 { 0 } else { set[at] & word(&range, at) };
        (found != 0).then(|| at as u32 * 32 + found.trailing_zeros())
    })
}

/// Returns the first number from `from` on that is not in the set.
pub(crate) fn gap(set: &[u32], from: u32) -> u32 {
    let mut n = from;
    loop {
        let ones = set.get((n / 32) as usize).map_or(0, |word| (word >> (n % 32)).trailing_ones());
        n += ones;
        if ones == 0 || !n.is_multiple_of(32) {
            return n;
        }
    }
}

/// Inserts all numbers below `len`.
#[cfg(test)]
pub(crate) fn fill(set: &mut [u32], len: u32) {
    set.fill(0);
    let whole = (len / 32) as usize;
    set[..whole].fill(u32::MAX);
    if !len.is_multiple_of(32) {
        set[whole] = (1 << (len % 32)) - 1;
    }
}

/// Returns how many numbers the set contains.
pub(crate) fn count(set: &[u32]) -> u32 {
    set.iter().map(|word| word.count_ones()).sum()
}

/// Returns the numbers in ascending order.
pub(crate) fn iter(set: &[u32]) -> impl Iterator<Item = u32> + '_ {
    (0u32..).zip(set).flat_map(|(at, &word)| {
        let mut rest = word;
        core::iter::from_fn(move || {
            let bit = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(at * 32 + bit)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn behaves_like_a_set() {
        let mut set = [0; 3];
        assert!(insert(&mut set, 0) && insert(&mut set, 31) && insert(&mut set, 95));
        assert!(!insert(&mut set, 31), "a second insert is no news");
        assert!(!insert(&mut set, 96), "a number beyond the set stays out");
        assert_eq!(iter(&set).collect::<Vec<_>>(), [0, 31, 95]);
        assert!(remove(&mut set, 31) && !remove(&mut set, 31));
        assert_eq!((count(&set), contains(&set, 95), contains(&set, 31)), (2, true, false));
        for (start, end) in [(0, 0), (0, 96), (3, 31), (31, 33), (32, 64), (40, 41), (95, 200)] {
            let mut numbers = [0; 3];
            for n in start..end {
                insert(&mut numbers, n);
            }
            assert_eq!([0, 1, 2].map(|at| word(&(start..end), at)), numbers, "{start}..{end}");
            let expected = (start..end).find(|&n| contains(&set, n));
            assert_eq!(first(&set, start..end), expected, "{start}..{end}");
            assert_eq!(gap(&numbers, start), end.min(96).max(start), "{start}..{end}");
        }
        for len in [0, 1, 32, 33, 96] {
            fill(&mut set, len);
            assert_eq!(iter(&set).collect::<Vec<_>>(), (0..len).collect::<Vec<_>>());
        }
    }
}
