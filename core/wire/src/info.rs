//! Values of MPI info objects (MPI 5.0, chapter 10): parsers of booleans, integers and lists. They ignore blanks around a value,
//! and around each element of a list.

/// Returns the text without leading and trailing blanks. Fortran bindings do the same with keys and values.
pub fn strip(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|&byte| byte != b' ').map_or(start, |last| last + 1);
    &text[start..end]
}

/// Parses `true` or `false`, in lower case.
pub fn boolean(text: &[u8]) -> Option<bool> {
    match strip(text) {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// Parses a decimal number with an optional sign directly before it. Returns `None` if it is malformed or out of
/// range.
pub fn integer<N: TryFrom<i64>>(text: &[u8]) -> Option<N> {
    let text = strip(text);
    let (negative, digits) = match text.split_first()? {
        (b'-', digits) => (true, digits),
        (b'+', digits) => (false, digits),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_i64, |number, &byte| {
        let digit = i64::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
        // Digits are subtracted, because the negative range has one more number.
        number.checked_mul(10)?.checked_sub(digit)
    })?;
    N::try_from(if negative { number } else { number.checked_neg()? }).ok()
}

/// Returns the elements of a comma-separated list, stripped of blanks. An empty list has none.
pub fn list(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let empty = strip(text).is_empty();
    text.split(|&byte| byte == b',').map(strip).filter(move |_| !empty)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn integers_come_back(number in any::<i64>(), before in 0_usize..3, behind in 0_usize..3, plus in any::<bool>()) {
            let sign = if plus && number >= 0 { "+" } else { "" };
            let text = std::format!("{}{sign}{number}{}", " ".repeat(before), " ".repeat(behind));
            prop_assert_eq!(integer::<i64>(text.as_bytes()), Some(number));
            prop_assert_eq!(integer::<i32>(text.as_bytes()), i32::try_from(number).ok());
        }

        #[test]
        fn no_text_is_too_strange(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let commas = text.iter().filter(|&&byte| byte == b',').count();
            prop_assert!(list(&text).all(|element| element == strip(element)));
            prop_assert_eq!(list(&text).count(), if strip(&text).is_empty() { 0 } else { commas + 1 });
            prop_assert_eq!(boolean(&text).is_some(), [&b"true"[..], b"false"].contains(&strip(&text)));
            prop_assert!(integer::<i64>(&text).is_none() || text.iter().any(u8::is_ascii_digit));
        }
    }

    // Shows: MPI Info, Objects | boolean values | `true` and `false` | done: blanks around them are ignored
    // Shows: MPI Info, Objects | integer values | decimal, an optional sign directly before the digits | done
    // Also: hydrant-wire `integers_come_back`
    // Shows: MPI Info, Objects | lists | elements between commas, blanks around each ignored | done
    // Also: hydrant-wire `no_text_is_too_strange`
    #[test]
    fn values_have_their_rules() {
        assert_eq!(
            [&b" true "[..], b"false", b"True", b"1", b""].map(boolean),
            [Some(true), Some(false), None, None, None]
        );
        for (text, number) in
            [("+7", Some(7)), (" -7 ", Some(-7)), ("+ 7", None), ("", None), ("+", None), ("7 8", None)]
        {
            assert_eq!(integer::<i32>(text.as_bytes()), number, "{text:?}");
        }
        assert_eq!(integer::<u8>(b"256"), None);
        assert_eq!(integer::<i64>(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer::<i64>(b"9223372036854775808"), None);
        assert!(list(b" a, b c ,,d ").eq([&b"a"[..], b"b c", b"", b"d"]));
        assert_eq!(list(b"  ").count(), 0);
    }
}
