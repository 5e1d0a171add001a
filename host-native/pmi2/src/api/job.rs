//! Id and rank of the job, connections to other jobs, and the ring exchange.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_client::c::{CallError, Code, Out, OutBuffer, VALUE_MAX, nonempty, text};
use hydrant_client::to_bytes;
use hydrant_wire::{Command, Reply, Text};

use super::call;
use super::structs::ConnectComm;
use crate::process::Process;

/// Gets the job's id.
///
/// # Safety
/// `jobid` is NULL or a buffer of `jobid_size` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_GetId(jobid: *mut c_char, jobid_size: c_int) -> c_int {
    call("PMI2_Job_GetId", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi2.h.
        let buffer = unsafe { OutBuffer::nonempty(jobid, jobid_size, Code::InvalidSize)? };
        buffer.put_whole_text(process.jobid.as_bytes())
    })
}

/// Gets this process's rank.
///
/// # Safety
/// `rank` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_GetRank(rank: *mut c_int) -> c_int {
    call("PMI2_Job_GetRank", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi2.h.
        unsafe { Out::new(rank)? }.set(c_int::try_from(process.identity.rank).unwrap_or(c_int::MAX));
        Ok(())
    })
}

/// Connects to another job.
///
/// # Safety
/// `jobid` is NULL or a string; `conn` is NULL or a structure to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_Connect(jobid: *const c_char, conn: *mut ConnectComm) -> c_int {
    call("PMI2_Job_Connect", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (jobid, conn) = unsafe { (nonempty(jobid, "the job id is NULL or empty")?, Out::new(conn)?) };
        process.connection.execute(&Command::Connect { jobid: Text::plain(jobid) })?;
        // The server reads the other job's key-value space, so that the processes need no channel between them.
        conn.set(ConnectComm { read: None, write: None, ctx: ptr::null_mut(), is_master: -1 });
        Ok(())
    })
}

/// Disconnects from another job.
///
/// # Safety
/// `jobid` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_Disconnect(jobid: *const c_char) -> c_int {
    call("PMI2_Job_Disconnect", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi2.h.
        let jobid = unsafe { nonempty(jobid, "the job id is NULL or empty")? };
        Ok(process.connection.execute(&Command::Disconnect { jobid: Text::plain(jobid) })?)
    })
}

/// Exchanges a value with both neighbours in the ring of ranks.
///
/// # Safety
/// `value` is NULL or a string; `rank` and `ranks` are NULL or `int`s to write to; `left` and `right` are NULL or
/// buffers of `maxvalue` characters each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMIX_Ring(
    value: *const c_char,
    rank: *mut c_int,
    ranks: *mut c_int,
    left: *mut c_char,
    right: *mut c_char,
    maxvalue: c_int,
) -> c_int {
    call("PMIX_Ring", || {
        let process = Process::current()?;
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (value, outs, buffers) = unsafe {
            let buffers = [
                OutBuffer::nonempty(left, maxvalue, Code::InvalidLength)?,
                OutBuffer::nonempty(right, maxvalue, Code::InvalidLength)?,
            ];
            let value = text(value).ok_or(CallError::Argument(Code::InvalidVal, "the value is NULL"))?;
            (value, [Out::new(rank)?, Out::new(ranks)?], buffers)
        };
        if value.len() > VALUE_MAX || c_int::try_from(value.len()).is_ok_and(|len| len >= maxvalue) {
            return Err(CallError::Argument(
                Code::InvalidValLength,
                "the value is longer than maxvalue allows",
            ));
        }
        let value = Text::plain(value);
        let command = Command::Ring { count: 1, left: value, right: value };
        let (at, neighbours) = process.connection.request(&command, |reply| match reply {
            Reply::Ring { count, left, right } => Some((*count, [to_bytes(left), to_bytes(right)])),
            _ => None,
        })?;
        for (out, number) in outs.iter().zip([at, process.identity.size]) {
            out.set(c_int::try_from(number).unwrap_or(c_int::MAX));
        }
        // Both are written even if the first is truncated.
        let whole = buffers.iter().zip(neighbours).filter(|(buffer, text)| buffer.put_text(text)).count();
        if whole == buffers.len() { Ok(()) } else { Err(CallError::Truncated) }
    })
}
