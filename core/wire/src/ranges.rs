//! Ascending numbers as a list of ranges: `0-3,7`.

use core::fmt;
use core::ops::RangeInclusive;

use heapless::Vec;

use super::write::decimal;

/// Length of `,4294967295-4294967295`.
const RANGE_MAX: usize = 22;

/// Joins consecutive numbers to ranges.
pub fn ranges(numbers: impl IntoIterator<Item = u32>) -> impl Iterator<Item = RangeInclusive<u32>> {
    let mut numbers = numbers.into_iter().peekable();
    core::iter::from_fn(move || {
        let first = numbers.next()?;
        let mut last = first;
        while let Some(next) = numbers.next_if(|&next| last.checked_add(1) == Some(next)) {
            last = next;
        }
        Some(first..=last)
    })
}

/// Writes ranges as `0-3,7`, each with one call of `write_str`.
///
/// # Errors
/// The first number of the range that `out` did not take. Those before the range are written.
pub fn write_ranges(
    ranges: impl IntoIterator<Item = RangeInclusive<u32>>,
    out: &mut impl fmt::Write,
) -> Result<(), u32> {
    let mut separator = &b""[..];
    for range in ranges {
        let (first, last) = range.into_inner();
        let mut text = Vec::<u8, RANGE_MAX>::new();
        let mut add = |part: &[u8]| text.extend_from_slice(part).is_ok();
        // RANGE_MAX is the length of the longest range.
        let _ = add(separator)
            && add(decimal(first, &mut [0; 10]))
            && (last == first || add(b"-") && add(decimal(last, &mut [0; 10])));
        let text = core::str::from_utf8(&text).unwrap_or_default();
        out.write_str(text).map_err(|_| first)?;
        separator = b",";
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn text(numbers: &[u32]) -> String {
        let mut text = String::new();
        assert_eq!(write_ranges(ranges(numbers.iter().copied()), &mut text), Ok(()));
        text
    }

    #[test]
    fn consecutive_numbers_are_one_range() {
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[5]), "5");
        assert_eq!(text(&[0, 1, 2, 7, 9, 10]), "0-2,7,9-10");
        assert_eq!(text(&[0, u32::MAX - 1, u32::MAX]), "0,4294967294-4294967295");
    }
}
