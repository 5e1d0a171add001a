//! Values of any bytes: functions of hydrant beside those of pmi2.h, whose values are C strings.

use std::ffi::{c_char, c_int, c_void};

use hydrant_client::c::{CallError, Code, Out, OutBuffer, binary_value, key};
use hydrant_wire::{Command, Text};

use super::call;
use super::info::node_attribute;
use super::kvs::copy_out;
use crate::process::Process;

/// Sends a request with this value. Fails for a value with NUL if the server does not read escaped values.
fn put(process: &Process, value: Text<'_>, command: &Command<'_>) -> Result<(), CallError> {
    if value.holds_nul() && !process.connection.escape_values()? {
        return Err(CallError::Argument(Code::InvalidVal, "the PMI server does not take values with NUL"));
    }
    Ok(process.connection.execute(command)?)
}

/// Puts a pair, whose value has `length` bytes, into the job's key-value space.
///
/// # Safety
/// `key` is NULL or a string; `value` is NULL or `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_kvs_put(key_: *const c_char, value: *const c_void, length: c_int) -> c_int {
    call("hydrant_kvs_put", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (key, value) = unsafe { (key(key_)?, binary_value(value, length)?) };
        put(&process, value, &Command::Put { kvs: None, key, value })
    })
}

/// Puts an attribute of the node, whose value has `length` bytes.
///
/// # Safety
/// `name` is NULL or a string; `value` is NULL or `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_node_attr_put(
    name: *const c_char,
    value: *const c_void,
    length: c_int,
) -> c_int {
    call("hydrant_node_attr_put", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (key, value) = unsafe { (key(name)?, binary_value(value, length)?) };
        put(&process, value, &Command::PutNodeAttr { key, value })
    })
}

/// Gets an attribute of the node and its length.
///
/// # Safety
/// `name` is NULL or a string; `value` is NULL or a buffer of `size` characters; `length` and `found` are NULL or `int`s
/// to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hydrant_node_attr_get(
    name: *const c_char,
    value: *mut c_char,
    size: c_int,
    length: *mut c_int,
    found: *mut c_int,
    waitfor: c_int,
) -> c_int {
    call("hydrant_node_attr_get", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (key, buffer, length, found) = unsafe {
            let buffer = OutBuffer::new(value, size, Code::InvalidLength)?;
            (key(name)?, buffer, Out::new(length)?, Out::new(found)?)
        };
        let value = node_attribute(&process, key, waitfor != 0)?;
        found.set(c_int::from(value.is_some()));
        value.map_or(Ok(()), |value| copy_out(&value, &buffer, &length))
    })
}
