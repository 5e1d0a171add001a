//! `MPI_Info_*` (MPI 5.0, chapter 10).

use std::ffi::{CStr, c_char, c_int};
use std::slice;

use crate::abi::{Class, Handle, INFO_ENV, INFO_NULL};
use crate::cpointer::{bytes, put, put_string};
use crate::error::Error;
use crate::info::{Info, InfoError};
use crate::objects::{environment, lock};

/// Adds an object and writes its handle to `out`.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn put_info(info: Info, out: *mut Handle) -> Result<(), Error> {
    if out.is_null() {
        return Err(Error::null("the info object"));
    }
    let handle = lock().infos.insert(info);
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, handle, "the info object") }
}

/// `MPI_Info_create`.
///
/// # Safety
/// As for [`put_info`].
pub(crate) unsafe fn create(out: *mut Handle) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { put_info(Info::default(), out) }
}

/// `MPI_Info_create_env`.
///
/// # Safety
/// `argv` is null or has `argc` C strings; `out` as for [`put_info`].
pub(crate) unsafe fn create_env(
    argc: c_int,
    argv: *const *const c_char,
    out: *mut Handle,
) -> Result<(), Error> {
    let argc = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
    let mut args = Vec::new();
    if argc > 0 {
        // SAFETY: it is not null and has that many elements, guaranteed by the caller.
        let argv = unsafe { slice::from_raw_parts(argv, argc) };
        for &arg in argv.iter().take_while(|arg| !arg.is_null()) {
            // SAFETY: a C string, guaranteed by the caller.
            args.push(unsafe { CStr::from_ptr(arg) }.to_bytes());
        }
    }
    let info = if args.is_empty() { lock().infos.copy(INFO_ENV)? } else { environment(&args)? };
    // SAFETY: guaranteed by the caller.
    unsafe { put_info(info, out) }
}

/// `MPI_Info_set`.
///
/// # Safety
/// `key` and `value` are null or C strings.
pub(crate) unsafe fn set(info: Handle, key: *const c_char, value: *const c_char) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let (key, value) =
        unsafe { (bytes(key, Class::InfoKey, "the key")?, bytes(value, Class::InfoValue, "the value")?) };
    Ok(lock().infos.get_mut(info)?.set(key, value)?)
}

/// `MPI_Info_delete`.
///
/// # Safety
/// `key` is null or a C string.
pub(crate) unsafe fn delete(info: Handle, key: *const c_char) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let key = unsafe { bytes(key, Class::InfoKey, "the key")? };
    lock().infos.get_mut(info)?.delete(key).map_err(|error| match error {
        InfoError::NoKey => Error::NoInfoKey(key.to_vec()),
        error => error.into(),
    })
}

/// Calls `found` with the value of a key, if the key exists, and sets `flag` to whether it exists.
///
/// # Safety
/// `key` is null or a C string; `flag` is null or may be written to.
unsafe fn look_up(
    info: Handle,
    key: *const c_char,
    flag: *mut c_int,
    found: impl FnOnce(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let key = unsafe { bytes(key, Class::InfoKey, "the key")? };
    let mut objects = lock();
    let value = objects.infos.get(info)?.get(key)?;
    if let Some(value) = value {
        found(value)?;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { put(flag, c_int::from(value.is_some()), "the flag") }
}

/// `MPI_Info_get`.
///
/// # Safety
/// As for the C prototype: `value` is a buffer of `valuelen` characters and a NUL.
pub(crate) unsafe fn get(
    info: Handle,
    key: *const c_char,
    valuelen: c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> Result<(), Error> {
    if valuelen < 0 {
        return Err(Error::NegativeLength);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { look_up(info, key, flag, |text| put_string(text, &mut valuelen.saturating_add(1), value)) }
}

/// `MPI_Info_get_valuelen`.
///
/// # Safety
/// As for the C prototype.
pub(crate) unsafe fn get_valuelen(
    info: Handle,
    key: *const c_char,
    valuelen: *mut c_int,
    flag: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { look_up(info, key, flag, |text| put(valuelen, text.len() as c_int, "the length")) }
}

/// `MPI_Info_get_string`.
///
/// # Safety
/// As for the C prototype: `value` is a buffer of `*buflen` bytes.
pub(crate) unsafe fn get_string(
    info: Handle,
    key: *const c_char,
    buflen: *mut c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { look_up(info, key, flag, |text| put_string(text, buflen, value)) }
}

/// `MPI_Info_get_nkeys`.
///
/// # Safety
/// `nkeys` is null or may be written to.
pub(crate) unsafe fn get_nkeys(info: Handle, nkeys: *mut c_int) -> Result<(), Error> {
    let count = lock().infos.get(info)?.nkeys();
    // SAFETY: guaranteed by the caller.
    unsafe { put(nkeys, count as c_int, "the number of keys") }
}

/// `MPI_Info_get_nthkey`.
///
/// # Safety
/// `key` is a buffer of `MPI_MAX_INFO_KEY` bytes.
pub(crate) unsafe fn get_nthkey(info: Handle, n: c_int, key: *mut c_char) -> Result<(), Error> {
    let mut objects = lock();
    let info = objects.infos.get(info)?;
    let missing = || Error::InfoKeyIndex { n, count: info.nkeys() };
    let text = usize::try_from(n).ok().and_then(|n| info.nth_key(n)).ok_or_else(missing)?;
    // SAFETY: guaranteed by the caller, and a key is shorter than that.
    unsafe { put_string(text, &mut (text.len() as c_int + 1), key) }
}

/// `MPI_Info_dup`.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn dup(info: Handle, out: *mut Handle) -> Result<(), Error> {
    let copy = lock().infos.copy(info)?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_info(copy, out) }
}

/// `MPI_Info_free`.
///
/// # Safety
/// `info` is null or may be read and written.
pub(crate) unsafe fn free(info: *mut Handle) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let info = unsafe { info.as_mut() }.ok_or_else(|| Error::null("the info object"))?;
    lock().infos.remove(*info)?;
    *info = INFO_NULL;
    Ok(())
}
