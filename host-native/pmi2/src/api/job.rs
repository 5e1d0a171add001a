//! This job, and others that it connects to.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_core::wire::{Command, Reply, Text};

use super::border::{ConnectComm, Out, Room, VALUE_MAX, bytes, named, text};
use super::call;
use crate::error::{Code, Error};
use crate::process::Process;

/// Tells the job's id.
///
/// # Safety
/// `jobid` is NULL or has room for `jobid_size` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_GetId(jobid: *mut c_char, jobid_size: c_int) -> c_int {
    call("PMI2_Job_GetId", || {
        let process = Process::current()?;
        // SAFETY: a pointer as pmi2.h wants it.
        let room = unsafe { Room::some(jobid, jobid_size, Code::InvalidSize)? };
        room.need_text(process.jobid.as_bytes())
    })
}

/// Tells this process's rank.
///
/// # Safety
/// `rank` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Job_GetRank(rank: *mut c_int) -> c_int {
    call("PMI2_Job_GetRank", || {
        let process = Process::current()?;
        // SAFETY: a pointer as pmi2.h wants it.
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
        // SAFETY: pointers as pmi2.h wants them.
        let (jobid, conn) = unsafe { (named(jobid, "the job id is NULL or empty")?, Out::new(conn)?) };
        process.connection.tell(&Command::Connect { jobid: Text::plain(jobid) })?;
        // The server reads the other job's space itself, so that the two need no line of their own.
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
        // SAFETY: a pointer as pmi2.h wants it.
        let jobid = unsafe { named(jobid, "the job id is NULL or empty")? };
        process.connection.tell(&Command::Disconnect { jobid: Text::plain(jobid) })
    })
}

/// Exchanges a text with both neighbours.
///
/// # Safety
/// `value` is NULL or a string; `rank` and `ranks` are NULL or `int`s to write to; `left` and `right` are NULL or
/// have room for `maxvalue` characters each.
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
        // SAFETY: pointers as pmi2.h wants them.
        let (value, outs, rooms) = unsafe {
            let rooms = [
                Room::some(left, maxvalue, Code::InvalidLength)?,
                Room::some(right, maxvalue, Code::InvalidLength)?,
            ];
            let value = text(value).ok_or(Error::Argument(Code::InvalidVal, "the value is NULL"))?;
            (value, [Out::new(rank)?, Out::new(ranks)?], rooms)
        };
        if value.len() > VALUE_MAX || c_int::try_from(value.len()).is_ok_and(|len| len >= maxvalue) {
            return Err(Error::Argument(Code::InvalidValLength, "the value is longer than maxvalue allows"));
        }
        let value = Text::plain(value);
        let command = Command::Ring { count: 1, left: value, right: value };
        let (at, neighbours) = process.connection.ask(&command, |reply| match reply {
            Reply::Ring { count, left, right } => Some((*count, [bytes(left), bytes(right)])),
            _ => None,
        })?;
        for (out, number) in outs.iter().zip([at, process.identity.size]) {
            out.set(c_int::try_from(number).unwrap_or(c_int::MAX));
        }
        // Both are written, also where the first was cut.
        let whole = rooms.iter().zip(neighbours).filter(|(room, text)| room.put_text(text)).count();
        if whole == rooms.len() { Ok(()) } else { Err(Error::Cut) }
    })
}
