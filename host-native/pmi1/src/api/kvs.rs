//! The key-value space of a job.

use std::ffi::{c_char, c_int};

use hydrant_client::c::{CallError, Code, OutBuffer, VALUE_MAX, key, nonempty, value};
use hydrant_wire::Text;

use super::{call, report_max, report_name};
use crate::process::Process;

const NO_SPACES: &str = "a job has one key-value space";
const NO_ITERATION: &str = "PMI-1 servers do not list the keys of a key-value space";

/// Returns the name of a key-value space.
///
/// # Safety
/// NULL, or a string that stays unchanged for as long as the result is used.
unsafe fn space<'a>(kvsname: *const c_char) -> Result<&'a [u8], CallError> {
    // SAFETY: guaranteed by the caller.
    unsafe { nonempty(kvsname, "the name is NULL or empty") }.map_err(|_| CallError::NoSuchSpace)
}

/// Gets the name of the job's key-value space.
///
/// # Safety
/// `kvsname` is NULL or a buffer of `length` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_my_name(kvsname: *mut c_char, length: c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_name("PMI_KVS_Get_my_name", kvsname, length) }
}

/// Gets the size of a buffer for the name of a key-value space.
///
/// # Safety
/// `length` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_name_length_max(length: *mut c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_max("PMI_KVS_Get_name_length_max", length, |maxes| maxes.kvsname) }
}

/// Gets the length of the longest key.
///
/// # Safety
/// `length` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_key_length_max(length: *mut c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_max("PMI_KVS_Get_key_length_max", length, |maxes| maxes.key) }
}

/// Gets the length of the longest value.
///
/// # Safety
/// `length` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get_value_length_max(length: *mut c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_max("PMI_KVS_Get_value_length_max", length, |maxes| maxes.value) }
}

/// Creates a key-value space, which no server of PMI-1 does.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_KVS_Create(_kvsname: *mut c_char, _length: c_int) -> c_int {
    call("PMI_KVS_Create", || Process::current().and(Err(CallError::Unsupported(NO_SPACES))))
}

/// Destroys a key-value space of `PMI_KVS_Create`; there is none.
///
/// # Safety
/// `kvsname` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Destroy(kvsname: *const c_char) -> c_int {
    call("PMI_KVS_Destroy", || {
        Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi.h.
        unsafe { nonempty(kvsname, "the name is NULL or empty")? };
        Err(CallError::Unsupported(NO_SPACES))
    })
}

/// Puts a pair into a key-value space.
///
/// # Safety
/// Each pointer is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Put(
    kvsname: *const c_char,
    key_: *const c_char,
    value_: *const c_char,
) -> c_int {
    call("PMI_KVS_Put", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi.h.
        let (kvs, key, value) = unsafe { (space(kvsname)?, key(key_)?, value(value_)?) };
        process.put(Text::plain(kvs), key, value)
    })
}

/// Checks the argument and returns: puts have reached the server already.
///
/// # Safety
/// `kvsname` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Commit(kvsname: *const c_char) -> c_int {
    call("PMI_KVS_Commit", || {
        Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi.h.
        unsafe { nonempty(kvsname, "the name is NULL or empty") }.map(drop)
    })
}

/// Gets a value.
///
/// # Safety
/// `kvsname` and `key` are NULL or strings; `value` is NULL or a buffer of `length` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_KVS_Get(
    kvsname: *const c_char,
    key_: *const c_char,
    value: *mut c_char,
    length: c_int,
) -> c_int {
    call("PMI_KVS_Get", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi.h.
        let (kvs, key) = unsafe { (space(kvsname)?, key(key_)?) };
        if value.is_null() {
            return Err(CallError::Argument(Code::InvalidVal, "the value is NULL"));
        }
        // SAFETY: a valid pointer by the contract of pmi.h.
        let buffer = unsafe { OutBuffer::nonempty(value, length, Code::InvalidLength)? };
        let mut found = [0; VALUE_MAX];
        match shared_value(&process, kvs, key, &mut found) {
            Some(value) => buffer.put_whole_text(value),
            None => buffer.put_whole_text(&process.get(Text::plain(kvs), key)?),
        }
    })
}

/// Returns a value of the process's own job from shared memory. Returns `None` if the server has to be asked: for
/// another job, for a key that is not found, and for a value that is not a C string.
#[inline]
fn shared_value<'b>(process: &Process, kvs: &[u8], key: Text<'_>, buf: &'b mut [u8]) -> Option<&'b [u8]> {
    let segment = process.segment.as_ref().filter(|_| kvs == process.kvsname.as_bytes())?;
    segment.get(key.as_plain()?, buf).filter(|value| !value.contains(&0))
}

/// Fails: PMI-1 has no request for the keys of a space.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_KVS_Iter_first(
    _kvsname: *const c_char,
    _key: *mut c_char,
    _key_len: c_int,
    _val: *mut c_char,
    _val_len: c_int,
) -> c_int {
    call("PMI_KVS_Iter_first", || Process::current().and(Err(CallError::Unsupported(NO_ITERATION))))
}

/// Fails, as `PMI_KVS_Iter_first`.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_KVS_Iter_next(
    _kvsname: *const c_char,
    _key: *mut c_char,
    _key_len: c_int,
    _val: *mut c_char,
    _val_len: c_int,
) -> c_int {
    call("PMI_KVS_Iter_next", || Process::current().and(Err(CallError::Unsupported(NO_ITERATION))))
}
