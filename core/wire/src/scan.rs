//! Parsing of numbers.

/// Parses a decimal number without sign.
pub fn number(digits: &[u8]) -> Option<u32> {
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
}
