//! What values mean that are booleans, integers or lists (MPI 5.0, chapter 10). Blanks around each of them, and around
//! each element of a list, do not count.

/// The text without blanks before and behind it. What Fortran's bindings do to keys and values, too.
pub fn strip(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|&byte| byte != b' ').unwrap_or(text.len());
    let end = text.iter().rposition(|&byte| byte != b' ').map_or(start, |last| last + 1);
    &text[start..end]
}

/// `true` or `false`, in lower case.
pub fn boolean(text: &[u8]) -> Option<bool> {
    match strip(text) {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

/// A decimal number with or without a sign right before it. Nothing where it is none, or is not of that type.
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
        // Downwards, because there is one more number on that side.
        number.checked_mul(10)?.checked_sub(digit)
    })?;
    N::try_from(if negative { number } else { number.checked_neg()? }).ok()
}

/// The elements of a list with commas between them, blanks stripped. A list of nothing has none.
pub fn list(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let empty = strip(text).is_empty();
    text.split(|&byte| byte == b',').map(strip).filter(move |_| !empty)
}
