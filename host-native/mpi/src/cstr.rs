//! What C callers hand in and get back.

use std::ffi::{CStr, c_char, c_int};
use std::slice;

use hydrant_core::info::copy_string;

use crate::abi::{Class, Error};

/// A C string's bytes.
///
/// # Errors
/// `class` where there is none.
///
/// # Safety
/// `text` is null or a C string that lives for `'a`.
pub(crate) unsafe fn bytes<'a>(text: *const c_char, class: Class, what: &str) -> Result<&'a [u8], Error> {
    if text.is_null() {
        return Err(Error::new(class, format!("{what} is a null pointer")));
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Writes a result to where the caller wants it.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn put<T>(out: *mut T, value: T, what: &str) -> Result<(), Error> {
    // SAFETY: as the caller says.
    match unsafe { out.as_mut() } {
        Some(out) => *out = value,
        None => return Err(null(what)),
    }
    Ok(())
}

/// Copies a text into a caller's buffer of `*len` bytes and sets `*len` to what all of it needs, NUL included. A
/// buffer of 0 bytes is left alone, a text that is cut still ends in NUL.
///
/// # Safety
/// `len` is null or may be read and written; `buf` is null or may be written to for `*len` bytes.
pub(crate) unsafe fn put_string(text: &[u8], len: *mut c_int, buf: *mut c_char) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let Some(len) = (unsafe { len.as_mut() }) else { return Err(null("the length")) };
    let room = usize::try_from(*len).map_err(|_| Error::new(Class::Arg, "the length is negative"))?;
    if room > 0 && buf.is_null() {
        return Err(null("the buffer"));
    }
    let buf = match room {
        0 => &mut [][..],
        // SAFETY: it is not null and has that many bytes, as the caller says.
        _ => unsafe { slice::from_raw_parts_mut(buf.cast(), room) },
    };
    *len = copy_string(text, buf).try_into().unwrap_or(c_int::MAX);
    Ok(())
}

pub(crate) fn null(what: &str) -> Error {
    Error::new(Class::Arg, format!("{what} is a null pointer"))
}
