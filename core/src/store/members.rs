//! Members of a set in the shorter of two forms: a bit for each number, or runs of consecutive numbers.
//!
//! A set has one form, so equal sets have equal words. The runs are ascending and apart, and take fewer words than the bits.

use core::iter::from_fn;
use core::ops::Range;

use super::bits;

/// Whether sets may have runs. A small server saves their code, because it has sets of few words.
pub(crate) const RUNS: bool = cfg!(feature = "cluster");

/// Members of a set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Members<'a> {
    /// A bit for each number.
    Bits(&'a [u32]),
    /// Start and end of each run.
    #[cfg(feature = "cluster")]
    Runs(&'a [[u32; 2]]),
}

impl<'a> Members<'a> {
    /// Reads members that [`write`] has written for a set of `whole` words of bits.
    pub(crate) fn new(words: &'a [u32], whole: usize) -> Members<'a> {
        #[cfg(feature = "cluster")]
        if words.len() != whole {
            return Members::Runs(words.as_chunks().0);
        }
        debug_assert_eq!(words.len(), whole);
        Members::Bits(words)
    }

    /// Returns the first member in a range.
    pub(crate) fn first(self, range: Range<u32>) -> Option<u32> {
        match self {
            Members::Bits(bits) => bits::first(bits, range),
            #[cfg(feature = "cluster")]
            Members::Runs(runs) => {
                let &[start, _] = runs.get(after(runs, range.start))?;
                Some(start.max(range.start)).filter(|&member| member < range.end)
            }
        }
    }

    /// Returns the word of bits at index `at`.
    pub(crate) fn word(self, at: usize) -> u32 {
        match self {
            Members::Bits(bits) => bits.get(at).copied().unwrap_or(0),
            #[cfg(feature = "cluster")]
            Members::Runs(runs) => {
                let at_or_before = |&&[start, _]: &&[u32; 2]| start / 32 <= at as u32;
                let within = runs[after(runs, at as u32 * 32)..].iter().take_while(at_or_before);
                within.fold(0, |word, &[start, end]| word | bits::word(&(start..end), at))
            }
        }
    }

    /// Returns whether the members are those of a set of bits.
    pub(crate) fn are(self, bits: &[u32]) -> bool {
        match self {
            Members::Bits(own) => own == bits,
            #[cfg(feature = "cluster")]
            Members::Runs(own) => own.iter().copied().eq(runs(bits)),
        }
    }
}

/// Returns the index of the first run that ends after `n`.
#[cfg(feature = "cluster")]
fn after(runs: &[[u32; 2]], n: u32) -> usize {
    runs.partition_point(|&[_, end]| end <= n)
}

/// Returns the runs of a set of bits.
fn runs(bits: &[u32]) -> impl Iterator<Item = [u32; 2]> + '_ {
    let mut end = 0;
    from_fn(move || {
        let start = bits::first(bits, end..u32::MAX)?;
        end = bits::gap(bits, start);
        Some([start, end])
    })
}

/// Returns the number of words that the members of a set of bits take.
pub(crate) fn len(bits: &[u32]) -> usize {
    if !RUNS {
        return bits.len();
    }
    let words = 2 * runs(bits).take(bits.len().div_ceil(2)).count();
    words.min(bits.len())
}

/// Returns whether words are those that [`write`] writes for a set of `whole` words of bits that is not empty, and whether each
/// run `fits`.
pub(crate) fn are_sound(words: &[u32], whole: usize, fits: impl Fn(Range<u32>) -> bool) -> bool {
    let fits = |[start, end]: [u32; 2]| start < end && fits(start..end);
    match Members::new(words, whole) {
        Members::Bits(bits) => bits::count(bits) > 0 && len(bits) == whole && runs(bits).all(fits),
        #[cfg(feature = "cluster")]
        Members::Runs(runs) => {
            let length = (1..whole).contains(&words.len()) && words.len().is_multiple_of(2);
            length && runs.is_sorted_by(|[_, end], [start, _]| end < start) && runs.iter().copied().all(fits)
        }
    }
}

/// Writes the members of a set of bits to [`len`] words.
pub(crate) fn write(bits: &[u32], words: &mut [u32]) {
    if words.len() == bits.len() {
        words.copy_from_slice(bits);
    } else {
        words.as_chunks_mut().0.iter_mut().zip(runs(bits)).for_each(|(place, run)| *place = run);
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Numbers of a set of 10 words: some runs, and some single numbers.
    fn numbers() -> impl Strategy<Value = Vec<u32>> {
        let runs = proptest::collection::vec((0u32..320, 1u32..100), 0..6);
        let single = proptest::collection::vec(0u32..320, 0..4);
        (runs, single).prop_map(|(runs, single)| {
            let runs = runs.into_iter().flat_map(|(start, len)| start..(start + len).min(320));
            let mut numbers: Vec<u32> = runs.chain(single).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        })
    }

    proptest! {
        #[test]
        fn both_forms_hold_the_numbers(numbers in numbers(), other in numbers(), from in 0u32..330, count in 0u32..330) {
            let mut bits = [0; 10];
            numbers.iter().for_each(|&number| assert!(bits::insert(&mut bits, number)));
            let starts = |&&number: &&u32| number == 0 || !numbers.contains(&(number - 1));
            let runs = numbers.iter().filter(starts).count();
            prop_assert_eq!(len(&bits), (2 * runs).min(10));
            let mut words = std::vec![0; len(&bits)];
            write(&bits, &mut words);
            let members = Members::new(&words, 10);
            let range = from..from + count;
            prop_assert_eq!(members.first(range.clone()), numbers.iter().copied().find(|number| range.contains(number)));
            prop_assert_eq!((0..11).map(|at| members.word(at)).collect::<Vec<_>>(), [&bits[..], &[0]].concat());
            let mut others = [0; 10];
            other.iter().for_each(|&number| assert!(bits::insert(&mut others, number)));
            prop_assert!(members.are(&bits));
            prop_assert_eq!(members.are(&others), numbers == other);
            let last = numbers.last().map_or(0, |&last| last + 1);
            prop_assert_eq!(are_sound(&words, 10, |run| run.end <= last), !numbers.is_empty());
            prop_assert!(!are_sound(&words, 10, |run| run.end < last));
        }
    }

    #[test]
    fn other_forms_are_not_sound() {
        let is_sound = |words: &[u32]| are_sound(words, 5, |run| run.end <= 160);
        assert!(is_sound(&[0, 160]) && is_sound(&[3, 4, 5, 6]) && is_sound(&[0x55; 5]));
        assert!(!is_sound(&[]) && !is_sound(&[3, 4, 5]), "an end without a start");
        assert!(!is_sound(&[4, 4]) && !is_sound(&[4, 3]), "a run without members");
        assert!(!is_sound(&[3, 5, 5, 6]) && !is_sound(&[5, 6, 3, 4]), "one run, and the wrong order");
        assert!(!is_sound(&[0, 2, 4, 6, 8, 10]), "the bits are shorter");
        assert!(!is_sound(&[0; 5]) && !is_sound(&[1, 0, 0, 0, 1]), "runs are shorter");
        assert!(!is_sound(&[0, 161]) && !is_sound(&[0, u32::MAX]));
    }
}
