//! Search for bytes, and parsing of numbers.

/// Whether compilers vectorize loops over bytes on this target. Other targets search by words.
const VECTORS: bool = cfg!(any(target_feature = "sse2", target_feature = "neon", target_feature = "simd128"));

const ONES: u64 = u64::MAX / 255;
const HIGH: u64 = ONES << 7;

/// Returns the high bit of each byte of a word that equals `byte`. Bytes after the first hit may be false positives.
#[inline]
fn hits(word: u64, byte: u8) -> u64 {
    let word = word ^ (ONES * u64::from(byte));
    word.wrapping_sub(ONES) & !word & HIGH
}

/// Returns the position of the first `byte`.
#[inline]
pub(super) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    if VECTORS {
        while let Some(chunk) = bytes[at..].first_chunk::<16>() {
            if chunk.iter().fold(false, |hit, &b| hit | (b == byte)) {
                break;
            }
            at += 16;
        }
    }
    find_any([byte], &bytes[at..]).map(|found| at + found)
}

/// Returns the position of the first of several bytes, by arithmetic on 8-byte words.
#[inline]
pub(super) fn find_any<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> Option<usize> {
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

/// Returns whether one of several bytes occurs.
#[inline]
pub(super) fn holds<const N: usize>(wanted: [u8; N], bytes: &[u8]) -> bool {
    if VECTORS {
        // There is no early exit, so that compilers vectorize the loop.
        bytes.iter().fold(false, |hit, b| hit | wanted.iter().fold(false, |hit, byte| hit | (b == byte)))
    } else {
        find_any(wanted, bytes).is_some()
    }
}

/// Returns the position of the first byte that is `A`, `B` or `C`, or the length of `bytes` if there is none.
///
/// For frequent messages in a sandbox, which checks the time at each call and at each turn of a loop: the bytes are constants
/// of the code, and a turn takes 16 bytes.
#[cfg_attr(target_family = "wasm", inline(never))]
#[cfg_attr(not(target_family = "wasm"), inline)]
pub(super) fn end_at<const A: u8, const B: u8, const C: u8>(bytes: &[u8]) -> usize {
    let (mut at, mut rest) = (0, bytes);
    while let Some((chunk, after)) = rest.split_first_chunk() {
        if let found @ 1.. = hits_of_16::<A, B, C>(chunk) {
            return at + found.trailing_zeros() as usize;
        }
        (at, rest) = (at + 16, after);
    }
    if rest.is_empty() {
        return at;
    }
    if let Some(last) = bytes.last_chunk() {
        // The part of this chunk that overlaps the previous one has no hit.
        let found = hits_of_16::<A, B, C>(last) >> (16 - rest.len());
        return if found == 0 { bytes.len() } else { at + found.trailing_zeros() as usize };
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        let mut both = [0; 16];
        both[..8].copy_from_slice(first);
        both[8..].copy_from_slice(last);
        return match hits_of_16::<A, B, C>(&both).trailing_zeros() as usize {
            found @ ..8 => found,
            found @ 8..16 => found + bytes.len() - 16,
            _ => bytes.len(),
        };
    }
    bytes.iter().position(|&b| b == A || b == B || b == C).unwrap_or(bytes.len())
}

/// Returns a bit for each byte that is `A`, `B` or `C`.
#[cfg(target_feature = "simd128")]
#[inline]
fn hits_of_16<const A: u8, const B: u8, const C: u8>(bytes: &[u8; 16]) -> u32 {
    use core::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_splat, u64x2, v128_or};
    let word = |at| bytes[at..].first_chunk().map_or(0, |&word| u64::from_le_bytes(word));
    let vector = u64x2(word(0), word(8));
    let found = u8x16_eq(vector, u8x16_splat(A));
    let found = if A == B { found } else { v128_or(found, u8x16_eq(vector, u8x16_splat(B))) };
    let found = if B == C { found } else { v128_or(found, u8x16_eq(vector, u8x16_splat(C))) };
    u32::from(u8x16_bitmask(found))
}

/// Returns a bit for each byte that is `A`, `B` or `C`.
#[cfg(not(target_feature = "simd128"))]
#[inline]
fn hits_of_16<const A: u8, const B: u8, const C: u8>(bytes: &[u8; 16]) -> u32 {
    (0..)
        .zip(bytes)
        .fold(0, |found, (at, &byte)| found | u32::from(byte == A || byte == B || byte == C) << at)
}

/// Whether frequent messages are searched by [`end_at`].
pub(super) const CHUNKS: bool = cfg!(all(target_family = "wasm", target_feature = "simd128"));

/// Does the same as [`find`].
#[inline]
pub(super) fn find_const<const A: u8>(bytes: &[u8]) -> Option<usize> {
    if CHUNKS { Some(end_at::<A, A, A>(bytes)).filter(|&at| at < bytes.len()) } else { find(A, bytes) }
}

/// Does the same as [`find_any`].
#[inline]
pub(super) fn find_either<const A: u8, const B: u8>(bytes: &[u8]) -> Option<usize> {
    if CHUNKS {
        Some(end_at::<A, B, B>(bytes)).filter(|&at| at < bytes.len())
    } else {
        find_any([A, B], bytes)
    }
}

/// Does the same as [`find_any`] for three bytes.
#[inline]
pub(super) fn find_of<const A: u8, const B: u8, const C: u8>(bytes: &[u8]) -> Option<usize> {
    let end = if CHUNKS { end_at::<A, B, C>(bytes) } else { return find_any([A, B, C], bytes) };
    Some(end).filter(|&at| at < bytes.len())
}

/// Does the same as [`holds`].
#[inline]
pub(super) fn holds_const<const A: u8, const B: u8>(bytes: &[u8]) -> bool {
    if CHUNKS { end_at::<A, B, B>(bytes) < bytes.len() } else { holds([A, B], bytes) }
}

/// Parses a decimal number without sign.
#[inline]
pub(super) fn number(digits: &[u8]) -> Option<u32> {
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
        fn finds_in_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), byte in any::<u8>()) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|&b| b == byte));
        }

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
            prop_assert_eq!(find_any(wanted, &bytes), first);
            prop_assert_eq!(holds(wanted, &bytes), first.is_some());
        }

        #[test]
        fn finds_constants_as_any_bytes(
            bytes in prop::collection::vec(prop_oneof![8 => any::<u8>(), 1 => Just(b' '), 1 => Just(b'!')], 0..80),
        ) {
            let first = |wanted: &[u8]| bytes.iter().position(|b| wanted.contains(b));
            let or_len = |found: Option<usize>| found.unwrap_or(bytes.len());
            prop_assert_eq!(end_at::<b' ', b'\\', b'\\'>(&bytes), or_len(first(br" \")));
            prop_assert_eq!(end_at::<b' ', b' ', b' '>(&bytes), or_len(first(b" ")));
            prop_assert_eq!(find_const::<b' '>(&bytes), first(b" "));
            prop_assert_eq!(find_either::<0, b' '>(&bytes), first(b"\0 "));
            prop_assert_eq!(end_at::<0, b'!', b' '>(&bytes), or_len(first(b"\0! ")));
            prop_assert_eq!(find_of::<0, b'!', b' '>(&bytes), first(b"\0! "));
            prop_assert_eq!(holds_const::<0, b' '>(&bytes), first(b"\0 ").is_some());
        }

        #[test]
        fn finds_like_position(bytes in prop::collection::vec(0u8..20, 0..200), byte in 0u8..40) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|&b| b == byte));
        }
    }
}
