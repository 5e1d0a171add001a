//! C's pointers: checked where they come in, written to where results go out.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use hydrant_core::limits;
use hydrant_core::wire::Text;

use crate::error::{Code, Error};

/// `PMI2_MAX_KEYLEN`
pub(super) const KEY_MAX: usize = limits::KEY_MAX as usize;
/// `PMI2_MAX_VALLEN` and `PMI2_MAX_ATTRVALUE`
pub(super) const VALUE_MAX: usize = limits::VALUE_MAX as usize;

/// `MPID_Info`: one pair of an info list. The functions read key and value alone.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields of pmi2.h")]
pub struct Info {
    pub handle: c_int,
    pub pobj_mutex: c_int,
    pub ref_count: c_int,
    pub next: *mut Info,
    pub key: *mut c_char,
    pub value: *mut c_char,
}

/// `PMI2_Connect_comm_t`: how two jobs would talk whose servers cannot.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields of pmi2.h")]
pub struct ConnectComm {
    pub read: Option<unsafe extern "C" fn(buf: *mut c_void, maxlen: c_int, ctx: *mut c_void) -> c_int>,
    pub write: Option<unsafe extern "C" fn(buf: *const c_void, len: c_int, ctx: *mut c_void) -> c_int>,
    pub ctx: *mut c_void,
    pub is_master: c_int,
}

/// The bytes of a C string; `None` for NULL.
///
/// # Safety
/// NULL, or a string that stays unchanged for as long as the result is used.
pub(super) unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: by the caller.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}

/// A string that has to be there and not empty.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn named<'a>(string: *const c_char, wrong: &'static str) -> Result<&'a [u8], Error> {
    // SAFETY: by the caller.
    let text = unsafe { text(string) }.filter(|text| !text.is_empty());
    text.ok_or(Error::Argument(Code::InvalidArg, wrong))
}

/// A key or an attribute's name.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn key<'a>(key: *const c_char) -> Result<Text<'a>, Error> {
    // SAFETY: by the caller.
    match unsafe { text(key) } {
        None | Some([]) => Err(Error::Argument(Code::InvalidKey, "the key is NULL or empty")),
        Some(key) if key.len() > KEY_MAX => {
            Err(Error::Argument(Code::InvalidKeyLength, "the key is longer than PMI2_MAX_KEYLEN"))
        }
        Some(key) => Ok(Text::plain(key)),
    }
}

/// A value to be stored.
///
/// # Safety
/// As [`text`].
pub(super) unsafe fn value<'a>(value: *const c_char) -> Result<Text<'a>, Error> {
    // SAFETY: by the caller.
    match unsafe { text(value) } {
        None => Err(Error::Argument(Code::InvalidVal, "the value is NULL")),
        Some(value) if value.len() > VALUE_MAX => {
            Err(Error::Argument(Code::InvalidValLength, "the value is longer than PMI2_MAX_VALLEN"))
        }
        Some(value) => Ok(Text::plain(value)),
    }
}

/// `count` elements of an array; NULL stands for an array of none.
///
/// # Safety
/// NULL, or an array of that many elements that stays unchanged for as long as the result is used.
pub(super) unsafe fn array<'a, T>(first: *const T, count: usize) -> Option<&'a [T]> {
    match (count, first.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: by the caller.
        (_, false) => Some(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Where a result goes. Callers may pass memory that they never wrote to, and the same memory twice, so that there is
/// no reference to it, and nothing is read from it.
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Errors
    /// NULL.
    ///
    /// # Safety
    /// NULL, or a place that may be written to for as long as the result lives.
    pub(super) unsafe fn new(place: *mut T) -> Result<Out<T>, Error> {
        if place.is_null() {
            return Err(Error::Argument(Code::InvalidArg, "an output pointer is NULL"));
        }
        Ok(Out(place))
    }

    pub(super) fn set(&self, value: T) {
        // SAFETY: not NULL and writable, by `new`.
        unsafe { self.0.write(value) }
    }
}

/// Where a text goes, or a list of integers.
pub(super) struct Room<T> {
    place: *mut T,
    count: usize,
}

impl<T> Room<T> {
    /// # Errors
    /// A negative count, or NULL where there should be elements.
    ///
    /// # Safety
    /// NULL, or `count` elements that may be written to for as long as the result lives.
    pub(super) unsafe fn new(place: *mut T, count: c_int, negative: Code) -> Result<Room<T>, Error> {
        let count = usize::try_from(count).map_err(|_| Error::Argument(negative, "a size is negative"))?;
        if place.is_null() && count > 0 {
            return Err(Error::Argument(Code::InvalidArg, "an output buffer is NULL"));
        }
        Ok(Room { place, count })
    }

    /// As [`Room::new`], but there has to be room for something.
    ///
    /// # Errors
    /// A count below 1, or NULL.
    ///
    /// # Safety
    /// As [`Room::new`].
    pub(super) unsafe fn some(place: *mut T, count: c_int, none: Code) -> Result<Room<T>, Error> {
        if count < 1 {
            return Err(Error::Argument(none, "a size is 0 or negative"));
        }
        // SAFETY: by the caller.
        unsafe { Room::new(place, count, none) }
    }

    /// Writes as many elements as fit; how many that were.
    pub(super) fn put(&self, elements: &[T]) -> usize
    where
        T: Copy,
    {
        let count = elements.len().min(self.count);
        if count > 0 {
            // SAFETY: writable for `self.count` elements, by `new`, and `elements` is this library's own memory.
            unsafe { ptr::copy_nonoverlapping(elements.as_ptr(), self.place, count) }
        }
        count
    }
}

impl Room<c_char> {
    /// Writes a text and a NUL, cut where there is no room for more; whether all of it fitted.
    pub(super) fn put_text(&self, text: &[u8]) -> bool {
        let Some(room) = self.count.checked_sub(1) else { return false };
        let kept = &text[..text.len().min(room)];
        // SAFETY: a char has the size and the bit patterns of a byte.
        let kept = unsafe { std::slice::from_raw_parts(kept.as_ptr().cast::<c_char>(), kept.len()) };
        self.put(kept);
        Room { place: self.place.wrapping_add(kept.len()), count: 1 }.put(&[0]);
        text.len() <= room
    }

    /// As [`Room::put_text`], where being cut is an error.
    pub(super) fn need_text(&self, text: &[u8]) -> Result<(), Error> {
        if self.put_text(text) { Ok(()) } else { Err(Error::Cut) }
    }
}

/// A length for a C caller.
pub(super) fn length(text: &[u8]) -> c_int {
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// A text of a reply as bytes, escapes undone.
pub(super) fn bytes(text: &Text<'_>) -> Vec<u8> {
    text.parts().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_terminated() {
        let mut buffer = [1; 4];
        for (text, fits, wanted) in
            [(&b"abc"[..], true, *b"abc\0"), (b"abcd", false, *b"abc\0"), (b"", true, *b"\0bc\0")]
        {
            // SAFETY: four elements, which outlive the room.
            let room = unsafe { Room::<c_char>::new(buffer.as_mut_ptr(), 4, Code::Fail) }.unwrap();
            assert_eq!(room.put_text(text), fits);
            assert_eq!(buffer.map(|c| c as u8), wanted);
        }
        // SAFETY: NULL with a count of 0.
        let none = unsafe { Room::<c_char>::new(ptr::null_mut(), 0, Code::Fail) }.unwrap();
        assert!(!none.put_text(b""));
    }
}
