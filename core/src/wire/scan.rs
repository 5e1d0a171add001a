//! Finding bytes and reading numbers.

/// Where `byte` first stands. Passes over 32 bytes at a time, which compilers turn into vector instructions, and
/// finds the place within 8 of them by arithmetic on a word.
#[inline]
pub(super) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<32>() {
        if chunk.iter().fold(false, |hit, &b| hit | (b == byte)) {
            break;
        }
        at += 32;
    }
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        // A byte of the word is zero where `byte` stands; the lowest such byte sets the lowest high bit.
        let word = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(byte));
        let zeros = word.wrapping_sub(ONES) & !word & HIGH;
        if zeros != 0 {
            return Some(at + (zeros.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes[at..].iter().position(|&b| b == byte).map(|i| at + i)
}

/// A decimal number of digits alone.
pub(super) fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |sum, &b| {
        let digit = b.is_ascii_digit().then(|| u32::from(b - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// A decimal number that may have a sign.
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
        fn finds_in_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), byte in any::<u8>()) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|&b| b == byte));
        }

        #[test]
        fn finds_like_position(bytes in prop::collection::vec(0u8..20, 0..200), byte in 0u8..40) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|&b| b == byte));
        }
    }
}
