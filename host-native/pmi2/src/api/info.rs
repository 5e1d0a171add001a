//! Attributes of the node and of the job.

use std::ffi::{c_char, c_int};

use hydrant_client::c::{CallError, Code, Out, OutBuffer, key, value};
use hydrant_client::{ranks_on_node_of, to_bytes};
use hydrant_wire::client::Identity;
use hydrant_wire::{Command, Reply, Text};

use super::call;
use crate::process::Process;

/// Requests an attribute. Returns `None` if there is none of that name.
fn attribute(process: &Process, command: &Command<'_>) -> Result<Option<Vec<u8>>, CallError> {
    let op = command.op();
    let value = process.connection.request(command, |reply| match reply {
        Reply::Found(of, value) if *of == op => Some(Some(to_bytes(value))),
        Reply::Missing(of) if *of == op => Some(None),
        _ => None,
    })?;
    Ok(value)
}

/// Requests an attribute of the node. `localRanks` is computed if the server has no value, because the list is longer than
/// a reply or because the server is not hydrant's.
pub(super) fn node_attribute(
    process: &Process,
    key: Text<'_>,
    wait: bool,
) -> Result<Option<Vec<u8>>, CallError> {
    let predefined = key.as_plain() == Some(b"localRanks");
    let value = attribute(process, &Command::GetNodeAttr { key, wait: wait && !predefined })?;
    if value.is_some() || !predefined {
        return Ok(value);
    }
    let ranks = local_ranks(process)?;
    Ok(ranks.map(|ranks| ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",").into_bytes()))
}

/// Returns the ranks of this node by `PMI_process_mapping`, or `None` if the server has no valid mapping.
fn local_ranks(process: &Process) -> Result<Option<Vec<u32>>, CallError> {
    let mapping = attribute(process, &Command::GetJobAttr { key: Text::from("PMI_process_mapping") })?;
    let mapping = mapping.and_then(|mapping| String::from_utf8(mapping).ok());
    let Identity { rank, size, .. } = process.identity;
    Ok(mapping.and_then(|mapping| ranks_on_node_of(&mapping, rank, size)))
}

/// Parses a list of integers with commas.
fn integers(value: &[u8]) -> Result<Vec<c_int>, CallError> {
    let text = str::from_utf8(value).map_err(|_| CallError::NotIntegers)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    text.split(',').map(|number| number.trim().parse().map_err(|_| CallError::NotIntegers)).collect()
}

/// Gets an attribute as a text.
///
/// # Safety
/// `value` is NULL or a buffer of `valuelen` characters; `found` is NULL or an `int` to write to.
unsafe fn get(
    request: impl FnOnce() -> Result<Option<Vec<u8>>, CallError>,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
) -> Result<(), CallError> {
    // SAFETY: guaranteed by the caller.
    let (buffer, found) =
        unsafe { (OutBuffer::nonempty(value, valuelen, Code::InvalidLength)?, Out::new(found)?) };
    let value = request()?;
    found.set(c_int::from(value.is_some()));
    value.map_or(Ok(()), |value| buffer.put_whole_text(&value))
}

/// Gets an attribute as a list of integers.
///
/// # Safety
/// `array` is NULL or an array of `arraylen` integers; `outlen` and `found` are NULL or `int`s to write to.
unsafe fn get_array(
    request: impl FnOnce() -> Result<Option<Vec<u8>>, CallError>,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> Result<(), CallError> {
    // SAFETY: guaranteed by the caller.
    let (buffer, outlen, found) = unsafe {
        (OutBuffer::new(array, arraylen, Code::InvalidLength)?, Out::new(outlen)?, Out::new(found)?)
    };
    let value = request()?;
    let numbers = value.as_deref().map(integers).transpose()?;
    found.set(c_int::from(numbers.is_some()));
    let written = buffer.put(numbers.as_deref().unwrap_or_default());
    outlen.set(c_int::try_from(written).unwrap_or(c_int::MAX));
    Ok(())
}

/// Gets an attribute of the node.
///
/// # Safety
/// `name` is NULL or a string; `value` is NULL or a buffer of `valuelen` characters; `found` is NULL or an `int` to
/// write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetNodeAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
    waitfor: c_int,
) -> c_int {
    call("PMI2_Info_GetNodeAttr", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        unsafe {
            let key = key(name)?;
            get(|| node_attribute(&process, key, waitfor != 0), value, valuelen, found)
        }
    })
}

/// Gets an attribute of the node that is a list of integers.
///
/// # Safety
/// `name` is NULL or a string; `array` is NULL or an array of `arraylen` integers; `outlen` and
/// `found` are NULL or `int`s to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetNodeAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> c_int {
    call("PMI2_Info_GetNodeAttrIntArray", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        unsafe {
            let key = key(name)?;
            get_array(|| node_attribute(&process, key, false), array, arraylen, outlen, found)
        }
    })
}

/// Puts an attribute of the node.
///
/// # Safety
/// Each pointer is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_PutNodeAttr(name: *const c_char, value_: *const c_char) -> c_int {
    call("PMI2_Info_PutNodeAttr", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (key, value) = unsafe { (key(name)?, value(value_)?) };
        Ok(process.connection.execute(&Command::PutNodeAttr { key, value })?)
    })
}

/// Gets an attribute of the job.
///
/// # Safety
/// `name` is NULL or a string; `value` is NULL or a buffer of `valuelen` characters; `found` is NULL or an `int` to
/// write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetJobAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
) -> c_int {
    call("PMI2_Info_GetJobAttr", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        unsafe {
            let command = Command::GetJobAttr { key: key(name)? };
            get(|| attribute(&process, &command), value, valuelen, found)
        }
    })
}

/// Gets an attribute of the job that is a list of integers.
///
/// # Safety
/// `name` is NULL or a string; `array` is NULL or an array of `arraylen` integers; `outlen` and
/// `found` are NULL or `int`s to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetJobAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> c_int {
    call("PMI2_Info_GetJobAttrIntArray", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        unsafe {
            let command = Command::GetJobAttr { key: key(name)? };
            get_array(|| attribute(&process, &command), array, arraylen, outlen, found)
        }
    })
}

/// Returns how many processes of the job share the node.
fn node_size(process: &Process) -> Result<c_int, CallError> {
    let count = Command::GetNodeAttr { key: Text::from("localRanksCount"), wait: false };
    if let Some(value) = attribute(process, &count)? {
        return integers(&value)?.first().copied().ok_or(CallError::NoNodeSize);
    }
    // hydra and Slurm lack that attribute. Both have the mapping of all ranks to nodes.
    let ranks = local_ranks(process)?.ok_or(CallError::NoNodeSize)?;
    c_int::try_from(ranks.len()).map_err(|_| CallError::NoNodeSize)
}

/// Gets the number of processes of the job that share the node.
///
/// # Safety
/// `size` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Info_GetSize(size: *mut c_int) -> c_int {
    call("PMI2_Info_GetSize", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi2.h.
        let size = unsafe { Out::new(size)? };
        size.set(node_size(&process)?);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::integers;

    #[test]
    fn lists_of_integers() {
        assert_eq!(integers(b"0, 1,-7").unwrap(), [0, 1, -7]);
        assert_eq!(integers(b" ").unwrap(), []);
        for wrong in ["1,2,x", "1,,2", "1 2", "99999999999", "(0,1)"] {
            assert!(integers(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(integers(b"\xff").is_err());
    }
}
