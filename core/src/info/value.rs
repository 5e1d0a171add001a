//! Parsers of boolean, integer and list values (MPI 5.0, chapter 10). They ignore blanks around a value, and around
//! each element of a list.

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
