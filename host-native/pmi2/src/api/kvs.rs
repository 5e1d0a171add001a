//! The key-value space.

use std::ffi::{c_char, c_int};

use hydrant_core::wire::{Command, Op, Reply, Text};

use super::border::{Out, Room, VALUE_MAX, bytes, key, length, text, value};
use super::call;
use crate::error::{Code, Error};
use crate::process::Process;

/// Puts a pair into the job's space.
///
/// # Safety
/// Each pointer is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_KVS_Put(key_: *const c_char, value_: *const c_char) -> c_int {
    call("PMI2_KVS_Put", || {
        let process = Process::current()?;
        // SAFETY: pointers as pmi2.h wants them.
        let (key, value) = unsafe { (key(key_)?, value(value_)?) };
        process.connection.tell(&Command::Put { kvs: None, key, value })
    })
}

/// Waits for all ranks of the job.
#[unsafe(no_mangle)]
pub extern "C" fn PMI2_KVS_Fence() -> c_int {
    call("PMI2_KVS_Fence", || Process::current()?.connection.tell(&Command::Fence { group: None }))
}

/// Gets a value.
///
/// # Safety
/// `jobid` and `key` are NULL or strings; `value` is NULL or has room for `maxvalue` characters; `vallen` is NULL or
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
    // Where the value is likely to be is of no use to servers that keep the whole space.
    let _hint = src_pmi_id;
    call("PMI2_KVS_Get", || {
        let process = Process::current()?;
        // MPICH passes no buffer when it looks whether a key is there.
        let maxvalue = if value.is_null() { maxvalue.min(0) } else { maxvalue };
        // SAFETY: pointers as pmi2.h wants them.
        let (kvs, key, room, vallen) = unsafe {
            let room = Room::new(value, maxvalue, Code::InvalidLength)?;
            (text(jobid), key(key_)?, room, Out::new(vallen)?)
        };
        let kvs = kvs.filter(|kvs| !kvs.is_empty());
        let mut found = [0; VALUE_MAX];
        if let Some(value) = local(&process, kvs, key, &mut found) {
            return give(value, &room, &vallen);
        }
        let kvs = kvs.map(Text::plain);
        let value = process.connection.ask(&Command::Get { kvs, key }, |reply| match reply {
            Reply::Found(Op::Get, value) => Some(Some(bytes(value))),
            Reply::Missing(Op::Get) => Some(None),
            _ => None,
        })?;
        give(&value.ok_or(Error::Missing)?, &room, &vallen)
    })
}

/// The value where it lies in shared memory. That a key is missing, or that a value is no C string, is for the server to
/// say.
fn local<'b>(process: &Process, kvs: Option<&[u8]>, key: Text<'_>, buf: &'b mut [u8]) -> Option<&'b [u8]> {
    let own = kvs.is_none_or(|kvs| kvs == process.jobid.as_bytes());
    process.segment.as_ref().filter(|_| own)?.get(key.as_plain()?, buf).filter(|value| !value.contains(&0))
}

/// Hands out a value with its length, which is negative where the value was cut.
fn give(value: &[u8], room: &Room<c_char>, vallen: &Out<c_int>) -> Result<(), Error> {
    let fits = room.put_text(value);
    vallen.set(if fits { length(value) } else { -length(value) });
    Ok(())
}
