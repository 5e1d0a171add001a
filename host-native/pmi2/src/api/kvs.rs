//! The key-value space of a job.

use std::ffi::{c_char, c_int};

use hydrant_client::c::{CallError, Code, Out, OutBuffer, VALUE_MAX, key, length, text, value};
use hydrant_client::to_bytes;
use hydrant_wire::{Command, Op, Reply, Text};

use super::call;
use crate::process::Process;

/// Puts a pair into the job's key-value space.
///
/// # Safety
/// Each pointer is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Put(key_: *const c_char, value_: *const c_char) -> c_int {
    call("PMI2_KVS_Put", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (key, value) = unsafe { (key(key_)?, value(value_)?) };
        Ok(process.connection.execute(&Command::Put { kvs: None, key, value })?)
    })
}

/// Waits for all ranks of the job.
#[unsafe(no_mangle)]
pub extern "C" fn PMI2_KVS_Fence() -> c_int {
    call("PMI2_KVS_Fence", || Ok(Process::current()?.connection.execute(&Command::Fence { group: None })?))
}

/// Gets a value.
///
/// # Safety
/// `jobid` and `key` are NULL or strings; `value` is NULL or a buffer of `maxvalue` characters; `vallen` is NULL or
/// an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Get(
    jobid: *const c_char,
    src_pmi_id: c_int,
    key_: *const c_char,
    value: *mut c_char,
    maxvalue: c_int,
    vallen: *mut c_int,
) -> c_int {
    // With lazy fences the server asks the node of the rank that put the value. -1 stands for no hint.
    let source = u32::try_from(src_pmi_id).ok();
    call("PMI2_KVS_Get", || {
        let process = Process::current()?;
        // MPICH passes NULL to test whether a key exists.
        let maxvalue = if value.is_null() { maxvalue.min(0) } else { maxvalue };
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (kvs, key, buffer, vallen) = unsafe {
            let buffer = OutBuffer::new(value, maxvalue, Code::InvalidLength)?;
            (text(jobid), key(key_)?, buffer, Out::new(vallen)?)
        };
        let kvs = kvs.filter(|kvs| !kvs.is_empty());
        let mut found = [0; VALUE_MAX];
        if let Some(value) = shared_value(&process, kvs, key, &mut found) {
            return copy_out(value, &buffer, &vallen);
        }
        copy_out(&requested_value(&process, kvs, key, source)?, &buffer, &vallen)
    })
}

/// Requests a value from the server. Kept apart from the fast path through shared memory.
#[inline(never)]
fn requested_value(
    process: &Process,
    kvs: Option<&[u8]>,
    key: Text<'_>,
    source: Option<u32>,
) -> Result<Vec<u8>, CallError> {
    let get = Command::Get { kvs: kvs.map(Text::plain), key, source };
    let value = process.connection.request(&get, |reply| match reply {
        Reply::Found(Op::Get, value) => Some(Some(to_bytes(value))),
        Reply::Missing(Op::Get) => Some(None),
        _ => None,
    })?;
    value.ok_or(CallError::NoSuchKey)
}

/// Returns a value of the process's own job from shared memory. Returns `None` if the server has to be asked: for
/// another job, and for a key that is not found.
#[inline]
fn shared_value<'b>(
    process: &Process,
    kvs: Option<&[u8]>,
    key: Text<'_>,
    buf: &'b mut [u8],
) -> Option<&'b [u8]> {
    let own = kvs.is_none_or(|kvs| kvs == process.jobid.as_bytes());
    process.segment.as_ref().filter(|_| own)?.get(key.as_plain()?, buf)
}

/// Copies a value to the caller, with its length, which is negative if the value is truncated.
pub(super) fn copy_out(
    value: &[u8],
    buffer: &OutBuffer<c_char>,
    vallen: &Out<c_int>,
) -> Result<(), CallError> {
    let fits = buffer.put_text(value);
    vallen.set(if fits { length(value) } else { -length(value) });
    Ok(())
}
