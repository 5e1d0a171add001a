//! Search for bytes, and parsing of numbers.

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// Returns the high bit of each byte of a word that equals `byte`. Bytes after the first hit may be false positives.
fn hits(word: u64, byte: u8) -> u64 {
    let word = word ^ (ONES * u64::from(byte));
    word.wrapping_sub(ONES) & !word & HIGH
}

/// Returns the position of the first byte that is one of `wanted`, by arithmetic on words of eight bytes.
pub(super) fn find<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> Option<usize> {
    let hits = |word| wanted.iter().fold(0, |found, &byte| found | hits(word, byte));
    let mut rest = bytes;
    while let Some((&word, after)) = rest.split_first_chunk() {
        let found = hits(u64::from_le_bytes(word));
        if found != 0 {
            return Some(bytes.len() - rest.len() + (found.trailing_zeros() / 8) as usize);
        }
        rest = after;
    }
    let at = bytes.len() - rest.len();
    match bytes.last_chunk() {
        // The part of this word that overlaps the previous one has no hit.
        Some(&last) if !rest.is_empty() => {
            let found = hits(u64::from_le_bytes(last)) >> (8 * (8 - rest.len()));
            (found != 0).then(|| at + (found.trailing_zeros() / 8) as usize)
        }
        _ => rest.iter().position(|b| wanted.contains(b)).map(|found| at + found),
    }
}

/// Parses a decimal number without sign.
pub(crate) fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |sum, &b| {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Parses a decimal number with an optional sign.
pub(super) fn integer(text: &[u8]) -> Option<i32> {
    match text.split_first() {
        Some((b'-', digits)) => i32::try_from(-i64::from(number(digits)?)).ok(),
        Some((b'+', digits)) => i32::try_from(number(digits)?).ok(),
        _ => i32::try_from(number(text)?).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_checked() {
        assert_eq!(number(b"4294967295"), Some(u32::MAX));
        for bad in [&b""[..], b"4294967296", b"1x", b" 1", b"-1", b"+1"] {
            assert_eq!(number(bad), None, "{bad:?}");
        }
        assert_eq!(integer(b"-2147483648"), Some(i32::MIN));
        assert_eq!(integer(b"+7"), Some(7));
        for bad in [&b"-"[..], b"2147483648", b"-2147483649", b"--1"] {
            assert_eq!(integer(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn finds_the_first_of_several(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            wanted: [u8; 3],
            near in prop::collection::vec((0usize..40, 0usize..3, prop_oneof![Just(0u8), Just(1), Just(0x80)]), 0..6),
        ) {
            let mut bytes = bytes;
            for (at, which, off) in near {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = wanted[which] ^ off;
                }
            }
            let first = bytes.iter().position(|b| wanted.contains(b));
            prop_assert_eq!(find(wanted, &bytes), first);
            prop_assert_eq!(find([wanted[0]], &bytes), bytes.iter().position(|&b| b == wanted[0]));
        }
    }
}
