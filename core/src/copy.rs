//! Copies of short byte slices without a call.

/// Copies the front of `from` to all of `to`, which must not be longer.
///
/// A copy of unknown length is a call of the host in WebAssembly. Lengths that are frequent for keys and values take a few vectors
/// there.
#[cfg_attr(target_family = "wasm", inline(always))]
#[cfg_attr(not(target_family = "wasm"), inline)]
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    let from = &from[..to.len()];
    let is_copied = cfg!(target_family = "wasm")
        && match to.len() {
            8..=16 => copy_ends::<8>(from, to),
            17..=32 => copy_ends::<16>(from, to),
            33..=64 => copy_ends::<32>(from, to),
            65..=128 => copy_ends::<64>(from, to),
            _ => false,
        };
    if !is_copied {
        to.copy_from_slice(from);
    }
}

/// Copies the first and the last `N` bytes, which may overlap. Returns whether there are as many.
#[inline(always)]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else { return false };
    if let Some(front) = to.first_chunk_mut() {
        *front = *first;
    }
    if let Some(back) = to.last_chunk_mut() {
        *back = *last;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn all_bytes_are_copied() {
        for len in 0..140 {
            let from: Vec<u8> = (1..=len as u8).collect();
            let mut to = vec![0; len];
            copy(&from, &mut to);
            assert_eq!(to, from);
        }
    }

    #[test]
    fn both_ends_are_copied() {
        let from: Vec<u8> = (1..=16).collect();
        for len in 8..=16 {
            let mut to = vec![0; len];
            assert!(copy_ends::<8>(&from[..len], &mut to));
            assert_eq!(to, from[..len]);
        }
        assert!(!copy_ends::<8>(&from[..7], &mut [0; 7]));
    }
}
