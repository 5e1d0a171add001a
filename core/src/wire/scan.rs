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

/// Returns the position of the first byte that is `a` or `b`, or the length of `bytes` if there is none.
///
/// For messages in a sandbox, which checks the time at each call and at each turn of a loop: a turn takes 16 bytes.
#[cfg_attr(target_family = "wasm", inline(never))]
#[cfg_attr(not(target_family = "wasm"), inline)]
pub(super) fn end_at(a: u8, b: u8, bytes: &[u8]) -> usize {
    let (mut at, mut rest) = (0, bytes);
    while let Some((chunk, after)) = rest.split_first_chunk() {
        if let found @ 1.. = hits_of_16(a, b, chunk) {
            return at + found.trailing_zeros() as usize;
        }
        (at, rest) = (at + 16, after);
    }
    if rest.is_empty() {
        return at;
    }
    if let Some(last) = bytes.last_chunk() {
        // The part of this chunk that overlaps the previous one has no hit.
        let found = hits_of_16(a, b, last) >> (16 - rest.len());
        return if found == 0 { bytes.len() } else { at + found.trailing_zeros() as usize };
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        let mut both = [0; 16];
        both[..8].copy_from_slice(first);
        both[8..].copy_from_slice(last);
        return match hits_of_16(a, b, &both).trailing_zeros() as usize {
            found @ ..8 => found,
            found @ 8..16 => found + bytes.len() - 16,
            _ => bytes.len(),
        };
    }
    bytes.iter().position(|&byte| byte == a || byte == b).unwrap_or(bytes.len())
}

/// Places of a byte in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    /// A bit for each of the first 128 bytes.
    words: [u64; 2],
}

impl Marks {
    /// Number of bytes that have a bit.
    pub(super) const BYTES: usize = 128;

    /// Searches `S` in bytes that have neither `A` nor `B`. Returns `None` for others.
    ///
    /// As [`end_at`] it is for frequent messages in a sandbox. Up to 128 bytes are searched without a loop: the first ones, and the
    /// last ones, which may overlap them.
    #[inline(always)]
    pub(super) fn without<const S: u8, const A: u8, const B: u8>(bytes: &[u8]) -> Option<Marks> {
        let mut found = Found::<S, A, B>::default();
        let mut words = [0; 2];
        let len = bytes.len();
        if let Some(first) = bytes.first_chunk::<64>() {
            let end = len.min(Marks::BYTES);
            words[0] = found.marks(first);
            if end > 64 {
                let second = bytes.get(end - 64..)?.first_chunk::<64>()?;
                words[1] = found.marks(second) >> (Marks::BYTES - end);
            }
            // The loop is apart, because compilers load what it needs in front of all that is inlined here.
            if let Some(rest @ [_, ..]) = bytes.get(end..)
                && end_at(A, B, rest) < rest.len()
            {
                return None;
            }
        } else if let Some(last) = len.checked_sub(16) {
            for at in [0, 16.min(last), 32.min(last), last] {
                words[0] |= found.marks::<16>(bytes.get(at..)?.first_chunk()?) << at;
            }
        } else {
            words[0] = marks_of_few::<S, A, B>(bytes)?;
        }
        (!found.others()).then_some(Marks { words })
    }

    /// Adds a place. Those without a bit are left out.
    #[inline(always)]
    pub(super) fn add(&mut self, at: usize) {
        let [first, second] = &mut self.words;
        if at < 64 {
            *first |= 1 << at;
        } else if at < Marks::BYTES {
            *second |= 1 << (at - 64);
        }
    }

    /// Returns the first place from `start` on among those that have a bit.
    #[inline(always)]
    pub(super) fn next(&self, start: usize) -> Option<usize> {
        let [first, second] = self.words;
        if start < 64
            && let found @ 1.. = first & u64::MAX << start
        {
            return Some(found.trailing_zeros() as usize);
        }
        if start < Marks::BYTES
            && let found @ 1.. = second & u64::MAX << start.saturating_sub(64)
        {
            return Some(found.trailing_zeros() as usize + 64);
        }
        None
    }
}

/// Does the same as [`Marks::without`] for less than 16 bytes.
#[cold]
#[inline(never)]
fn marks_of_few<const S: u8, const A: u8, const B: u8>(bytes: &[u8]) -> Option<u64> {
    (0..).zip(bytes).try_fold(0, |marks, (at, &byte)| {
        (byte != A && byte != B).then_some(marks | u64::from(byte == S) << at)
    })
}

/// What was found so far of `S`, and of `A` and `B`.
#[cfg(target_feature = "simd128")]
struct Found<const S: u8, const A: u8, const B: u8>(core::arch::wasm32::v128);

#[cfg(target_feature = "simd128")]
impl<const S: u8, const A: u8, const B: u8> Default for Found<S, A, B> {
    fn default() -> Self {
        Found(core::arch::wasm32::u8x16_splat(0))
    }
}

#[cfg(target_feature = "simd128")]
impl<const S: u8, const A: u8, const B: u8> Found<S, A, B> {
    /// Returns a bit for each `S`, and notes the others.
    #[inline(always)]
    fn marks<const N: usize>(&mut self, bytes: &[u8; N]) -> u64 {
        use core::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_splat, v128_or};
        let mut marks = 0;
        for (at, chunk) in bytes.as_chunks::<16>().0.iter().enumerate() {
            let vector = load(chunk);
            let others = u8x16_eq(vector, u8x16_splat(A));
            let others = if A == B { others } else { v128_or(others, u8x16_eq(vector, u8x16_splat(B))) };
            self.0 = v128_or(self.0, others);
            marks |= u64::from(u8x16_bitmask(u8x16_eq(vector, u8x16_splat(S)))) << (16 * at);
        }
        marks
    }

    #[inline(always)]
    fn others(&self) -> bool {
        core::arch::wasm32::v128_any_true(self.0)
    }
}

/// What was found so far of `S`, and whether `A` or `B` was.
#[cfg(not(target_feature = "simd128"))]
#[derive(Default)]
struct Found<const S: u8, const A: u8, const B: u8>(bool);

#[cfg(not(target_feature = "simd128"))]
impl<const S: u8, const A: u8, const B: u8> Found<S, A, B> {
    /// Returns a bit for each `S`, and notes the others.
    #[inline]
    fn marks<const N: usize>(&mut self, bytes: &[u8; N]) -> u64 {
        self.0 |= bytes.iter().any(|&byte| byte == A || byte == B);
        (0..).zip(bytes).fold(0, |marks, (at, &byte)| marks | u64::from(byte == S) << at)
    }

    #[inline]
    fn others(&self) -> bool {
        self.0
    }
}

/// Loads a vector.
#[cfg(target_feature = "simd128")]
#[inline(always)]
fn load(bytes: &[u8; 16]) -> core::arch::wasm32::v128 {
    let word = u128::from_le_bytes(*bytes);
    core::arch::wasm32::u64x2(word as u64, (word >> 64) as u64)
}

/// Returns a bit for each byte that is `a` or `b`.
#[cfg(target_feature = "simd128")]
#[inline]
fn hits_of_16(a: u8, b: u8, bytes: &[u8; 16]) -> u32 {
    use core::arch::wasm32::{u8x16_bitmask, u8x16_eq, u8x16_splat, v128_or};
    let vector = load(bytes);
    u32::from(u8x16_bitmask(v128_or(u8x16_eq(vector, u8x16_splat(a)), u8x16_eq(vector, u8x16_splat(b)))))
}

/// Returns a bit for each byte that is `a` or `b`.
#[cfg(not(target_feature = "simd128"))]
#[inline]
fn hits_of_16(a: u8, b: u8, bytes: &[u8; 16]) -> u32 {
    (0..).zip(bytes).fold(0, |found, (at, &byte)| found | u32::from(byte == a || byte == b) << at)
}

/// Whether frequent messages are searched by [`end_at`].
pub(super) const CHUNKS: bool = cfg!(all(target_family = "wasm", target_feature = "simd128"));

/// Does the same as [`find`].
#[inline]
pub(super) fn find_const<const A: u8>(bytes: &[u8]) -> Option<usize> {
    if CHUNKS { Some(end_at(A, A, bytes)).filter(|&at| at < bytes.len()) } else { find(A, bytes) }
}

/// Does the same as [`find_any`].
#[inline]
pub(super) fn find_either<const A: u8, const B: u8>(bytes: &[u8]) -> Option<usize> {
    if CHUNKS { Some(end_at(A, B, bytes)).filter(|&at| at < bytes.len()) } else { find_any([A, B], bytes) }
}

/// Does the same as [`holds`].
#[inline]
pub(super) fn holds_const<const A: u8, const B: u8>(bytes: &[u8]) -> bool {
    if CHUNKS { end_at(A, B, bytes) < bytes.len() } else { holds([A, B], bytes) }
}

/// Does the same as [`holds`], without a loop for up to 128 bytes.
#[inline]
pub(super) fn holds_quick<const A: u8, const B: u8>(bytes: &[u8]) -> bool {
    if CHUNKS { Marks::without::<A, A, B>(bytes).is_none() } else { holds([A, B], bytes) }
}

/// Parses a decimal number without sign.
#[inline]
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
            bytes in prop::collection::vec(prop_oneof![80 => any::<u8>(), 10 => Just(b' '), 1 => Just(b'!')], 0..200),
        ) {
            let first = |wanted: &[u8]| bytes.iter().position(|b| wanted.contains(b));
            let or_len = |found: Option<usize>| found.unwrap_or(bytes.len());
            prop_assert_eq!(end_at(b' ', b'\\', &bytes), or_len(first(br" \")));
            prop_assert_eq!(end_at(b' ', b' ', &bytes), or_len(first(b" ")));
            prop_assert_eq!(find_const::<b' '>(&bytes), first(b" "));
            prop_assert_eq!(find_either::<0, b' '>(&bytes), first(b"\0 "));
            prop_assert_eq!(holds_const::<0, b' '>(&bytes), first(b"\0 ").is_some());
            let marks = Marks::without::<b' ', 0, b'!'>(&bytes);
            prop_assert_eq!(marks.is_some(), first(b"\0!").is_none());
            for start in 0..bytes.len() {
                let blank = (start..bytes.len().min(Marks::BYTES)).find(|&at| bytes[at] == b' ');
                prop_assert!(marks.is_none_or(|marks| marks.next(start) == blank));
            }
        }

        #[test]
        fn finds_like_position(bytes in prop::collection::vec(0u8..20, 0..200), byte in 0u8..40) {
            prop_assert_eq!(find(byte, &bytes), bytes.iter().position(|&b| b == byte));
        }
    }
}
