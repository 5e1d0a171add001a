//! Finding bytes and reading numbers.

/// Where `byte` first stands. Looks at 32 bytes at a time, which compilers turn into vector instructions.
pub(super) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    const STEP: usize = 32;
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<STEP>() {
        if chunk.iter().fold(false, |hit, &b| hit | (b == byte)) {
            break;
        }
        at += STEP;
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
        fn finds_like_position(bytes in prop::collection::vec(0u8..20, 0..200), byte in 0u8..20) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|&b| b == byte));
        }
    }
}
