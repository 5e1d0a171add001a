//! Checked access to pointers from C callers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use hydrant_wire::Text;
use hydrant_wire::limits;

use super::{CallError, Code};

/// Longest key, in bytes without NUL: `PMI2_MAX_KEYLEN`.
pub const KEY_MAX: usize = limits::KEY_MAX as usize;
/// Longest value, in bytes without NUL: `PMI2_MAX_VALLEN` and `PMI2_MAX_ATTRVALUE`.
pub const VALUE_MAX: usize = limits::VALUE_MAX as usize;

/// Returns as much of an abort message as a server of hydrant prints.
pub fn abort_message(message: &[u8]) -> &[u8] {
    message.get(..limits::ABORT_TEXT_MAX).unwrap_or(message)
}

pub(super) const KEY_TOO_LONG: &str = "the key is longer than 64 bytes";
pub(super) const VALUE_TOO_LONG: &str = "the value is longer than 1024 bytes";

/// Returns the bytes of a C string, or `None` for NULL.
///
/// # Safety
/// NULL, or a string that stays unchanged for as long as the result is used.
pub unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: guaranteed by the caller.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// Returns the bytes of a string that must not be NULL or empty.
///
/// # Errors
/// [`CallError::Argument`] with the text `wrong`.
///
/// # Safety
/// As [`text`].
pub unsafe fn nonempty<'a>(string: *const c_char, wrong: &'static str) -> Result<&'a [u8], CallError> {
    // SAFETY: guaranteed by the caller.
    let text = unsafe { text(string) }.filter(|text| !text.is_empty());
    text.ok_or(CallError::Argument(Code::InvalidArg, wrong))
}

/// Returns a key or the name of an attribute.
///
/// # Errors
/// The key is NULL, empty or longer than [`KEY_MAX`].
///
/// # Safety
/// As [`text`].
pub unsafe fn key<'a>(key: *const c_char) -> Result<Text<'a>, CallError> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text(key) } {
        None | Some([]) => Err(CallError::Argument(Code::InvalidKey, "the key is NULL or empty")),
        Some(key) if key.len() > KEY_MAX => Err(CallError::Argument(Code::InvalidKeyLength, KEY_TOO_LONG)),
        Some(key) => Ok(Text::plain(key)),
    }
}

/// Returns a value to store.
///
/// # Errors
/// The value is NULL or longer than [`VALUE_MAX`].
///
/// # Safety
/// As [`text`].
pub unsafe fn value<'a>(value: *const c_char) -> Result<Text<'a>, CallError> {
    // SAFETY: guaranteed by the caller.
    match unsafe { text(value) } {
        None => Err(CallError::Argument(Code::InvalidVal, "the value is NULL")),
        Some(value) if value.len() > VALUE_MAX => {
            Err(CallError::Argument(Code::InvalidValLength, VALUE_TOO_LONG))
        }
        Some(value) => Ok(Text::plain(value)),
    }
}

/// Returns a value of `length` bytes to store, which may hold NUL.
///
/// # Errors
/// The value is NULL, its length is negative, or it is longer than [`VALUE_MAX`].
///
/// # Safety
/// `value` is NULL, or `length` bytes that stay unchanged for as long as the result is used.
pub unsafe fn binary_value<'a>(value: *const c_void, length: c_int) -> Result<Text<'a>, CallError> {
    match usize::try_from(length) {
        Ok(length) if length <= VALUE_MAX => {
            // SAFETY: guaranteed by the caller.
            let value = unsafe { array(value.cast(), length) };
            Ok(Text::plain(value.ok_or(CallError::Argument(Code::InvalidVal, "the value is NULL"))?))
        }
        Ok(_) => Err(CallError::Argument(Code::InvalidValLength, VALUE_TOO_LONG)),
        Err(_) => Err(CallError::Argument(Code::InvalidValLength, "the length of the value is negative")),
    }
}

/// Returns `count` elements of an array. NULL is accepted if `count` is 0.
///
/// # Safety
/// NULL, or an array of that many elements that stays unchanged for as long as the result is used.
pub unsafe fn array<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    match (count, first.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: guaranteed by the caller.
        (_, false) => Some(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Returns element `index` of an array, or `none` if the array is NULL or shorter.
///
/// # Safety
/// `first` is NULL or has `count` elements.
pub unsafe fn element<T: Copy>(first: *const T, count: usize, index: usize, none: T) -> T {
    // SAFETY: guaranteed by the caller.
    unsafe { array(first, count) }.and_then(|array| array.get(index)).copied().unwrap_or(none)
}

/// Output pointer to one value. The memory may be uninitialised, and two outputs may overlap. The value is therefore
/// never read, and no reference to it exists.
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Takes a pointer from the caller.
    ///
    /// # Errors
    /// `place` is NULL.
    ///
    /// # Safety
    /// `place` is NULL, or writable as long as the result lives.
    pub unsafe fn new(place: *mut T) -> Result<Out<T>, CallError> {
        if place.is_null() {
            return Err(CallError::Argument(Code::InvalidArg, "an output pointer is NULL"));
        }
        Ok(Out(place))
    }

    /// Writes the value.
    pub fn set(&self, value: T) {
        // SAFETY: not NULL and writable, by `new`.
        unsafe { self.0.write(value) }
    }
}

/// Output buffer for a text or a list of integers.
pub struct OutBuffer<T> {
    place: *mut T,
    count: usize,
}

impl<T> OutBuffer<T> {
    /// Takes a buffer of `count` elements from the caller.
    ///
    /// # Errors
    /// `count` is negative, which has the code `negative`, or `place` is NULL and `count` is not 0.
    ///
    /// # Safety
    /// `place` is NULL, or `count` elements at `place` are writable as long as the result lives.
    pub unsafe fn new(place: *mut T, count: c_int, negative: Code) -> Result<OutBuffer<T>, CallError> {
        let count =
            usize::try_from(count).map_err(|_| CallError::Argument(negative, "a size is negative"))?;
        if place.is_null() && count > 0 {
            return Err(CallError::Argument(Code::InvalidArg, "an output buffer is NULL"));
        }
        Ok(OutBuffer { place, count })
    }

    /// As [`OutBuffer::new`] for a buffer that must not be empty.
    ///
    /// # Errors
    /// `count` is below 1, or `place` is NULL.
    ///
    /// # Safety
    /// As [`OutBuffer::new`].
    pub unsafe fn nonempty(place: *mut T, count: c_int, none: Code) -> Result<OutBuffer<T>, CallError> {
        if count < 1 {
            return Err(CallError::Argument(none, "a size is 0 or negative"));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { OutBuffer::new(place, count, none) }
    }

    /// Writes as many elements as fit. Returns their number.
    pub fn put(&self, elements: &[T]) -> usize
    where
        T: Copy,
    {
        let count = elements.len().min(self.count);
        if count > 0 {
            // SAFETY: writable for `self.count` elements, by `new`; `elements` is memory of this library.
            unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), self.place, count) }
        }
        count
    }
}

impl OutBuffer<c_char> {
    /// Writes a text and a NUL, truncated to the buffer. Returns whether the whole text fitted.
    pub fn put_text(&self, text: &[u8]) -> bool {
        let Some(capacity) = self.count.checked_sub(1) else { return false };
        let kept = &text[..text.len().min(capacity)];
        // SAFETY: a char has the size and the bit patterns of a byte.
        let kept = unsafe { std::slice::from_raw_parts(kept.as_ptr().cast::<c_char>(), kept.len()) };
        self.put(kept);
        OutBuffer { place: self.place.wrapping_add(kept.len()), count: 1 }.put(&[0]);
        text.len() <= capacity
    }

    /// As [`OutBuffer::put_text`].
    ///
    /// # Errors
    /// [`CallError::Truncated`].
    pub fn put_whole_text(&self, text: &[u8]) -> Result<(), CallError> {
        if self.put_text(text) { Ok(()) } else { Err(CallError::Truncated) }
    }
}

/// Converts a length for a C caller.
pub fn length(text: &[u8]) -> c_int {
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_and_terminated() {
        let mut buffer = [1; 4];
        for (text, fits, wanted) in
            [(&b"abc"[..], true, *b"abc\0"), (b"abcd", false, *b"abc\0"), (b"", true, *b"\0bc\0")]
        {
            // SAFETY: four elements, which outlive the buffer.
            let out = unsafe { OutBuffer::<c_char>::new(buffer.as_mut_ptr(), 4, Code::Fail) }.unwrap();
            assert_eq!(out.put_text(text), fits);
            assert_eq!(buffer.map(|c| c as u8), wanted);
        }
        // SAFETY: NULL with a count of 0.
        let none = unsafe { OutBuffer::<c_char>::new(ptr::null_mut(), 0, Code::Fail) }.unwrap();
        assert!(!none.put_text(b""));
    }
}
