//! Info key `soft`: acceptable numbers of processes (MPI 4.1, 11.8.4).

use hydrant_wire::info::{integer, list};

/// Returns the largest number in the list `text` that is not above `most`.
///
/// The list has numbers and ranges `A:B` and `A:B:C`: every C-th number from A to B, descending if C is negative.
/// Numbers outside 0 to `most` are ignored.
///
/// # Errors
/// The list is malformed, or has no number from 1 to `most`.
pub(crate) fn count(text: &[u8], most: u32) -> Result<u32, &'static str> {
    let mut best = 0;
    for part in list(text) {
        best = best.max(largest(part, most)?);
    }
    if best == 0 { Err("no number of processes in the list can be started") } else { Ok(best) }
}

/// The largest number of a range that is not above `most`; 0 if there is none.
fn largest(part: &[u8], most: u32) -> Result<u32, &'static str> {
    let number = |text: &[u8]| integer::<i32>(text).map(i64::from);
    let numbers: Option<Vec<i64>> = part.split(|&byte| byte == b':').map(number).collect();
    let (from, to, step) = match numbers.as_deref() {
        Some(&[only]) => (only, only, 1),
        Some(&[from, to]) => (from, to, 1),
        Some(&[from, to, step]) if step != 0 => (from, to, step),
        _ => return Err("expected numbers and ranges, as in 1:4,8 or 2:16:2"),
    };
    let most = i64::from(most);
    // Start at the end that is nearer to `most`.
    let largest = if step > 0 {
        let end = to.min(most);
        (from <= end).then(|| end - (end - from) % step)
    } else {
        // Descending: the first number that is not too large.
        let start = if from > most { from + (from - most + -step - 1) / -step * step } else { from };
        (start >= to).then_some(start)
    };
    Ok(largest.filter(|&count| count > 0).and_then(|count| count.try_into().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_acceptable_number_is_used() {
        for (text, most, wanted) in [
            ("4", 4, 4),
            ("1:4,7", 6, 4),
            ("1:4,7", 7, 7),
            ("1:4, 7", 100, 7),
            (" +1:+4 ,+7 ", 100, 7),
            ("2:16:2", 9, 8),
            ("1:16:5", 9, 6),
            ("9:1:-4", 8, 5),
            ("9:1:-4", 9, 9),
            ("-3:2", 8, 2),
            ("0:2147483647", 3, 3),
        ] {
            assert_eq!(count(text.as_bytes(), most), Ok(wanted), "{text} up to {most}");
        }
    }

    #[test]
    fn unacceptable_and_malformed_lists_are_errors() {
        for text in ["5", "4:1", "1:4:-1", "0", "-2", "9:5:-4", "", "  "] {
            assert!(count(text.as_bytes(), 4).is_err(), "{text}");
        }
        for text in [",", "1:", "a", "1:2:0", "1:2:3:4", "1-3", "99999999999"] {
            assert_eq!(
                count(text.as_bytes(), 4),
                Err("expected numbers and ranges, as in 1:4,8 or 2:16:2"),
                "{text}"
            );
        }
    }
}
