//! Comparison of byte slices by words.

/// Returns whether two slices are equal. Short ones are compared faster than by a call of `memcmp`, which WebAssembly does
/// byte by byte.
#[cfg_attr(target_family = "wasm", inline(always))]
#[cfg_attr(not(target_family = "wasm"), inline)]
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    // Firmware is short of flash memory.
    if cfg!(target_os = "none") {
        return one == other;
    }
    if one.len() != other.len() {
        return false;
    }
    // Most names and keys are compared without a loop, by two parts that may overlap.
    match one.len() {
        8..=16 => same_ends::<8>(one, other),
        17..=32 => same_ends::<16>(one, other),
        _ => same_words(one, other),
    }
}

/// Returns whether two slices of the same length are equal.
#[cfg_attr(target_family = "wasm", cold)]
#[inline]
fn same_words(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (others, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    words.iter().zip(others).all(|(word, other)| word == other)
        // The last words overlap those before them.
        && match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
            (Some(word), Some(other)) => word == other,
            _ => rest.iter().eq(other_rest),
        }
}

/// Returns whether the first and the last bytes of two slices are equal, and each has as many.
#[inline(always)]
fn same_ends<const N: usize>(one: &[u8], other: &[u8]) -> bool {
    let first = (one.first_chunk::<N>(), other.first_chunk::<N>());
    let last = (one.last_chunk::<N>(), other.last_chunk::<N>());
    matches!(first, (Some(one), Some(other)) if one == other)
        && matches!(last, (Some(one), Some(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_same_bytes_are_equal(one in prop::collection::vec(0u8..3, 0..40), at: usize, off in 0u8..2) {
            let mut other = one.clone();
            if let Some(byte) = other.get_mut(at % one.len().max(1)) {
                *byte += off;
            }
            prop_assert_eq!(same(&one, &other), one == other);
            prop_assert!(!same(&one, &[&one[..], b"1"].concat()));
        }
    }
}
