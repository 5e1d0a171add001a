//! Info key `soft`: how many processes will do (MPI 4.1, 11.8.4).

use hydrant_core::info::value::{integer, list};

/// Of the numbers that `text` lists, the largest up to `most`: one is at least needed.
///
/// The list is of numbers and of ranges `A:B` and `A:B:C`, which is every C-th from A on up to B, or down where C is
/// negative. What lies outside of 0 to `most` is passed over.
pub(crate) fn count(text: &[u8], most: u32) -> Result<u32, &'static str> {
    let mut best = 0;
    for part in list(text) {
        best = best.max(largest(part, most)?);
    }
    if best == 0 { Err("no number in it can be started") } else { Ok(best) }
}

/// The largest number of a range up to `most`; 0 where there is none.
fn largest(part: &[u8], most: u32) -> Result<u32, &'static str> {
    let number = |text: &[u8]| integer::<i32>(text).map(i64::from);
    let numbers: Option<Vec<i64>> = part.split(|&byte| byte == b':').map(number).collect();
    let (from, to, step) = match numbers.as_deref() {
        Some(&[only]) => (only, only, 1),
        Some(&[from, to]) => (from, to, 1),
        Some(&[from, to, step]) if step != 0 => (from, to, step),
        _ => return Err("write numbers and ranges, as in 1:4,8 or 2:16:2"),
    };
    let most = i64::from(most);
    // From the end that is nearer to `most` towards the other one.
    let largest = if step > 0 {
        let end = to.min(most);
        (from <= end).then(|| end - (end - from) % step)
    } else {
        // Downwards, the first that is not too large.
        let start = if from > most { from + (from - most + -step - 1) / -step * step } else { from };
        (start >= to).then_some(start)
    };
    Ok(largest.filter(|&count| count > 0).and_then(|count| count.try_into().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_that_will_do() {
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
    fn nothing_will_do() {
        for text in ["5", "4:1", "1:4:-1", "0", "-2", "9:5:-4", "", "  "] {
            assert!(count(text.as_bytes(), 4).is_err(), "{text}");
        }
        for text in [",", "1:", "a", "1:2:0", "1:2:3:4", "1-3", "99999999999"] {
            assert_eq!(
                count(text.as_bytes(), 4),
                Err("write numbers and ranges, as in 1:4,8 or 2:16:2"),
                "{text}"
            );
        }
    }
}
