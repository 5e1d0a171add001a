//! Checked access to pointers from C callers.

use std::ffi::{CStr, c_char, c_void};
use std::{ptr, slice};

use super::error::Error;

/// Longest name in bytes. Each name of the server is shorter.
const TEXT_MAX: usize = 1024;
/// Longest path in bytes.
const PATH_MAX: usize = libc::PATH_MAX as usize;

/// Returns `len` bytes. The pointer may be NULL if there are none.
///
/// # Safety
/// NULL, or so many bytes that stay unchanged for as long as the result is used.
pub(crate) unsafe fn bytes<'a>(
    what: &'static str,
    pointer: *const c_void,
    len: usize,
) -> Result<&'a [u8], Error> {
    const MAX: usize = isize::MAX as usize;
    match len {
        0 => Ok(&[]),
        _ if pointer.is_null() => Err(Error::Null(what)),
        // SAFETY: the pointer is not NULL, and the caller guarantees the bytes.
        1..=MAX => Ok(unsafe { slice::from_raw_parts(pointer.cast(), len) }),
        _ => Err(Error::TooLong { what, max: MAX }),
    }
}

/// Returns a text.
///
/// # Safety
/// NULL, or a string that stays unchanged for as long as the result is used.
pub(crate) unsafe fn text<'a>(what: &'static str, pointer: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: guaranteed by the caller.
    let bytes = unsafe { string(what, pointer, TEXT_MAX)? };
    std::str::from_utf8(bytes).map_err(|_| Error::NotUtf8(what))
}

/// Returns the bytes of a path, or none for NULL.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn path<'a>(what: &'static str, pointer: *const c_char) -> Result<Option<&'a [u8]>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { string(what, pointer, PATH_MAX) }.map(Some)
}

/// # Safety
/// As [`text`].
unsafe fn string<'a>(what: &'static str, pointer: *const c_char, max: usize) -> Result<&'a [u8], Error> {
    if pointer.is_null() {
        return Err(Error::Null(what));
    }
    // SAFETY: the string is readable up to its end, and the call reads no further.
    if unsafe { libc::strnlen(pointer, max + 1) } > max {
        return Err(Error::TooLong { what, max });
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { CStr::from_ptr(pointer) }.to_bytes())
}

/// Returns the strings of an array that ends in NULL. An array that is NULL has none.
///
/// # Safety
/// NULL, or such an array, which stays unchanged for as long as the result is used.
pub(crate) unsafe fn strings<'a>(mut array: *const *const c_char) -> Vec<&'a CStr> {
    let mut strings = Vec::new();
    // SAFETY: the array is readable up to its NULL, at which the loop ends.
    while let Some(&string) = unsafe { array.as_ref() }.filter(|string| !string.is_null()) {
        // SAFETY: guaranteed by the caller.
        strings.push(unsafe { CStr::from_ptr(string) });
        // SAFETY: there is an element behind one that is not NULL.
        array = unsafe { array.add(1) };
    }
    strings
}

/// Returns a reference to a structure.
///
/// # Safety
/// NULL, or an initialized structure that stays unchanged for as long as the result is used.
pub(crate) unsafe fn record<'a, T>(what: &'static str, pointer: *const T) -> Result<&'a T, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { pointer.as_ref() }.ok_or(Error::Null(what))
}

/// Writes a value to memory of the caller, which may be uninitialized.
///
/// # Safety
/// NULL, or memory for a value.
pub(crate) unsafe fn write<T>(what: &'static str, pointer: *mut T, value: T) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(Error::Null(what));
    }
    // SAFETY: the pointer is not NULL, and the caller guarantees the memory.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Writes bytes to a buffer of the caller.
///
/// # Safety
/// NULL, or memory for `len` bytes.
pub(crate) unsafe fn write_bytes(
    what: &'static str,
    pointer: *mut c_char,
    len: usize,
    bytes: &[u8],
) -> Result<(), Error> {
    if pointer.is_null() {
        return Err(Error::Null(what));
    }
    if bytes.len() > len {
        return Err(Error::TooLong { what, max: len });
    }
    // SAFETY: the pointer is not NULL, the caller guarantees the memory, and a slice of the library is elsewhere.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), pointer.cast(), bytes.len()) };
    Ok(())
}
