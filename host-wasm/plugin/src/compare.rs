//! Comparison of bytes by words. The compiler's own one for WebAssembly goes byte by byte.

use core::cmp::Ordering;

/// Compares `len` bytes, as `memcmp` of C does.
///
/// # Safety
/// Both pointers must be valid for reads of `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
    let mut at = 0;
    while len - at >= size_of::<u64>() {
        // SAFETY: the eight bytes from `at` on lie before `len`, for which both pointers are valid.
        let words = unsafe { (one.add(at).cast::<u64>().read_unaligned(), other.add(at).cast::<u64>().read_unaligned()) };
        if words.0 != words.1 {
            // The first byte is the lowest in memory, so it is the highest of a big-endian number.
            return order(words.0.swap_bytes().cmp(&words.1.swap_bytes()));
        }
        at += size_of::<u64>();
    }
    while at < len {
        // SAFETY: `at` is less than `len`, for which both pointers are valid.
        let bytes = unsafe { (one.add(at).read(), other.add(at).read()) };
        if bytes.0 != bytes.1 {
            return order(bytes.0.cmp(&bytes.1));
        }
        at += 1;
    }
    0
}

fn order(order: Ordering) -> i32 {
    order as i32
}
