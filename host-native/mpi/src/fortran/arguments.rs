//! Conversion of arguments: INTEGER handles and CHARACTER strings.

use std::ffi::{CString, c_char, c_int};
use std::slice;

use hydrant_wire::info::strip;

use crate::abi::{Abi, Handle, SUCCESS};
use crate::info::INFO_KEY_MAX;
use crate::interpose::MpiLibrary;

/// Bytes that C calls write where the length is not an argument, with NUL: `MPI_MAX_INFO_KEY`.
pub(super) const KEY_SIZE: usize = INFO_KEY_MAX + 1;

/// Whether handles of C calls are `int`s.
fn narrow() -> bool {
    MpiLibrary::loaded().is_some_and(|library| library.abi == Some(Abi::Mpich))
}

/// Returns the handle in an INTEGER, for C calls with a handle argument.
///
/// # Safety
/// `integer` may be read.
pub(super) unsafe fn handle(integer: *const c_int) -> Handle {
    // SAFETY: guaranteed by the caller. An int is sign-extended, as a C compiler does.
    unsafe { *integer as isize as Handle }
}

/// Returns the memory in which C calls read and write a handle.
fn slot_of(integer: c_int) -> Handle {
    let mut bytes = (integer as isize as Handle).to_ne_bytes();
    if narrow() {
        bytes[..4].copy_from_slice(&integer.to_ne_bytes());
    }
    Handle::from_ne_bytes(bytes)
}

/// Returns the handle that a C call has left in the memory.
fn integer_of(slot: Handle) -> c_int {
    let bytes = slot.to_ne_bytes();
    // Handles of this library fit (see `Table`).
    if narrow() { c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) } else { slot as c_int }
}

/// Stores the handle that a C call writes, if the call succeeds.
///
/// # Safety
/// `out` may be written to.
pub(super) unsafe fn create(out: *mut c_int, call: impl FnOnce(*mut Handle) -> c_int) -> c_int {
    let mut slot = 0;
    let code = call(&mut slot);
    if code == SUCCESS {
        // SAFETY: guaranteed by the caller.
        unsafe { *out = integer_of(slot) };
    }
    code
}

/// Replaces a handle by that which a C call leaves.
///
/// # Safety
/// `integer` may be read and written.
pub(super) unsafe fn release(integer: *mut c_int, call: impl FnOnce(*mut Handle) -> c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let mut slot = slot_of(unsafe { *integer });
    let code = call(&mut slot);
    // SAFETY: guaranteed by the caller.
    unsafe { *integer = integer_of(slot) };
    code
}

/// Returns a CHARACTER argument as a C string, without leading and trailing blanks.
///
/// # Safety
/// `text` has `len` characters.
pub(super) unsafe fn c_string(text: *const c_char, len: usize) -> CString {
    // SAFETY: guaranteed by the caller.
    let text = if len == 0 { &[][..] } else { unsafe { slice::from_raw_parts(text.cast::<u8>(), len) } };
    let text = strip(text);
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    CString::new(&text[..end]).expect("the text ends before the first NUL")
}

/// Copies a text to a CHARACTER argument: truncated, or padded with blanks.
///
/// # Safety
/// `out` may be written to for `len` characters.
pub(super) unsafe fn pad(text: &[u8], out: *mut c_char, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let out = unsafe { slice::from_raw_parts_mut(out.cast::<u8>(), len) };
    let copied = text.len().min(len);
    out[..copied].copy_from_slice(&text[..copied]);
    out[copied..].fill(b' ');
}

/// A buffer for the string that a C call writes.
pub(super) struct Buffer(Vec<u8>);

impl Buffer {
    /// Creates a buffer of that size in bytes, with NUL.
    pub(super) fn new(size: usize) -> Buffer {
        Buffer(vec![0; size])
    }

    /// Returns the output pointer for a C call.
    pub(super) fn out(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    /// Returns the text up to its NUL.
    pub(super) fn text(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }
}

/// Calls a C function with a buffer and its length in bytes, which the function sets to the required length with NUL.
/// Copies the text and the required length in characters if the call succeeds and `found` holds afterwards. A length
/// of 0 leaves the text unchanged.
///
/// # Safety
/// `length` may be read and written, `out` may be written to for `len` characters.
pub(super) unsafe fn with_length(
    length: *mut c_int,
    out: *mut c_char,
    len: usize,
    call: impl FnOnce(*mut c_int, *mut c_char) -> c_int,
    found: impl FnOnce() -> bool,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let length = unsafe { &mut *length };
    let room = usize::try_from(*length).map_or(0, |length| length.min(len));
    let mut buffer = Buffer::new(room + 1);
    // A negative length is passed on, and is an error.
    let mut size = if *length > 0 { room as c_int + 1 } else { *length };
    let code = call(&mut size, buffer.out());
    if code == SUCCESS && found() {
        if *length > 0 {
            // SAFETY: guaranteed by the caller.
            unsafe { pad(buffer.text(), out, len) };
        }
        *length = size - 1;
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a string argument after the conversion for C.
    fn stripped(text: &str) -> String {
        // SAFETY: a text of that length.
        unsafe { c_string(text.as_ptr().cast(), text.len()) }.into_string().unwrap()
    }

    // Shows: MPI Info, Objects | blanks in Fortran | are stripped at both ends | done
    // Also: libraries `mpi::fortran::every_rule_of_the_bindings`
    #[test]
    fn blanks_are_stripped_and_padded() {
        assert_eq!(stripped("  a b   "), "a b");
        assert_eq!((stripped(""), stripped("   ")), (String::new(), String::new()));
        assert_eq!(stripped("a\0b"), "a");
        let mut out = *b"######";
        // SAFETY: the buffer has that length.
        unsafe { pad(b"abc", out.as_mut_ptr().cast(), 5) };
        assert_eq!(&out, b"abc  #");
        // SAFETY: as above.
        unsafe { pad(b"abc", out.as_mut_ptr().cast(), 2) };
        assert_eq!(&out, b"abc  #");
    }

    #[test]
    fn lengths_are_those_of_fortran() {
        let mut out = *b"####";
        let write = |size: *mut c_int, buffer: *mut c_char| {
            // SAFETY: pointers of `with_length`.
            unsafe {
                if *size > 0 {
                    buffer.write(b'x' as c_char);
                }
                *size = 3;
            }
            SUCCESS
        };
        let mut call = |mut length: c_int, found: bool| {
            // SAFETY: valid locals.
            unsafe { with_length(&mut length, out.as_mut_ptr().cast(), 3, write, || found) };
            (length, out)
        };
        assert_eq!(call(0, true), (2, *b"####"));
        assert_eq!(call(9, false), (9, *b"####"));
        assert_eq!(call(9, true), (2, *b"x  #"));
    }
}
