//! Checked access to pointers from C callers.

use std::ffi::{CStr, c_char, c_int};
use std::slice;

use crate::abi::Class;
use crate::error::Error;

/// Returns the bytes of a C string.
///
/// # Errors
/// An error of `class` if `text` is null.
///
/// # Safety
/// `text` is null or a C string that lives for `'a`.
pub(crate) unsafe fn bytes<'a>(
    text: *const c_char,
    class: Class,
    what: &'static str,
) -> Result<&'a [u8], Error> {
    if text.is_null() {
        return Err(Error::NullPointer { class, what });
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Writes a result to an output pointer.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn put<T>(out: *mut T, value: T, what: &'static str) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    match unsafe { out.as_mut() } {
        Some(out) => *out = value,
        None => return Err(Error::null(what)),
    }
    Ok(())
}

/// Copies a text to a buffer of `*len` bytes and sets `*len` to the size of the whole text with its NUL. A truncated text
/// ends in NUL. A buffer of 0 bytes is not written.
///
/// # Safety
/// `len` is null or may be read and written; `buf` is null or may be written to for `*len` bytes.
pub(crate) unsafe fn put_string(text: &[u8], len: *mut c_int, buf: *mut c_char) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let len = unsafe { len.as_mut() }.ok_or_else(|| Error::null("the length"))?;
    let capacity = usize::try_from(*len).map_err(|_| Error::NegativeLength)?;
    if capacity > 0 && buf.is_null() {
        return Err(Error::null("the buffer"));
    }
    let buf = match capacity {
        0 => &mut [][..],
        // SAFETY: it is not null and has that many bytes, guaranteed by the caller.
        _ => unsafe { slice::from_raw_parts_mut(buf.cast(), capacity) },
    };
    if let Some(room) = buf.len().checked_sub(1) {
        let copied = text.len().min(room);
        buf[..copied].copy_from_slice(&text[..copied]);
        buf[copied] = 0;
    }
    *len = (text.len() + 1).try_into().unwrap_or(c_int::MAX);
    Ok(())
}

/// Returns the ranks of a process set.
///
/// # Safety
/// `ranks` is null or has `count` elements that live for `'a`.
pub(crate) unsafe fn ranks<'a>(count: c_int, ranks: *const c_int) -> Result<&'a [c_int], Error> {
    let count = usize::try_from(count).map_err(|_| Error::NegativeCount)?;
    if count == 0 || ranks.is_null() {
        return Err(Error::NoMembers);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { slice::from_raw_parts(ranks, count) })
}

/// Returns names of process sets.
///
/// # Safety
/// Each is null or a C string that lives for `'a`.
pub(crate) unsafe fn names<'a, const N: usize>(texts: [*const c_char; N]) -> Result<[&'a [u8]; N], Error> {
    let mut names = [&[][..]; N];
    for (name, text) in names.iter_mut().zip(texts) {
        // SAFETY: guaranteed by the caller.
        *name = unsafe { bytes(text, Class::Arg, "the name")? };
    }
    Ok(names)
}
