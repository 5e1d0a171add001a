//! The functions of `pmi.h`, which documents their arguments and results.

mod group;
mod kvs;
mod names;
mod options;
mod spawn;

use std::ffi::{c_char, c_int};
use std::panic;

use hydrant_client::c::{CallError, Code, Out, OutBuffer, abort_message, text};
use hydrant_wire::{Command, Reply};

pub use group::{PMI_Barrier, PMI_Barrier_group, PMI_Get_clique_ranks, PMI_Get_clique_size};
pub use kvs::{
    PMI_KVS_Commit, PMI_KVS_Create, PMI_KVS_Destroy, PMI_KVS_Get, PMI_KVS_Get_key_length_max,
    PMI_KVS_Get_my_name, PMI_KVS_Get_name_length_max, PMI_KVS_Get_value_length_max, PMI_KVS_Iter_first,
    PMI_KVS_Iter_next, PMI_KVS_Put,
};
pub use names::{PMI_Lookup_name, PMI_Publish_name, PMI_Unpublish_name};
pub use options::{PMI_Args_to_keyval, PMI_Free_keyvals, PMI_Get_options, PMI_Parse_option};
pub use spawn::{KeyVal, PMI_Spawn_multiple};

use crate::process::{LIBRARY, Maxes, Process};

/// Runs a function's body.
#[inline(always)]
fn call(name: &'static str, body: impl FnOnce() -> Result<(), CallError>) -> c_int {
    LIBRARY.call(name, body)
}

/// A number that the server does not know.
const UNKNOWN: c_int = -1;

/// Converts a number for a C caller.
fn number(number: u32) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

/// Writes what `value` takes from the process.
///
/// # Safety
/// `out` is NULL or an `int` to write to.
unsafe fn report(
    name: &'static str,
    out: *mut c_int,
    value: impl FnOnce(&Process) -> Result<c_int, CallError>,
) -> c_int {
    call(name, || {
        let process = Process::current()?;
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::new(out)? };
        out.set(value(&process)?);
        Ok(())
    })
}

/// Writes the name of the job's key-value space, which is also the job's id.
///
/// # Safety
/// `buffer` is NULL or a buffer of `length` characters.
unsafe fn report_name(name: &'static str, buffer: *mut c_char, length: c_int) -> c_int {
    call(name, || {
        let process = Process::current()?;
        // SAFETY: guaranteed by the caller.
        let buffer = unsafe { OutBuffer::nonempty(buffer, length, Code::InvalidLength)? };
        buffer.put_whole_text(process.kvsname.as_bytes())
    })
}

/// Writes a length that the server allows. A process that has not joined gets that of hydrant's servers.
///
/// # Safety
/// `out` is NULL or an `int` to write to.
unsafe fn report_max(name: &'static str, out: *mut c_int, max: fn(&Maxes) -> u32) -> c_int {
    call(name, || {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { Out::new(out)? };
        out.set(number(max(&Process::current().map_or(Maxes::OWN, |process| process.maxes))));
        Ok(())
    })
}

/// Joins the job.
///
/// # Safety
/// `spawned` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Init(spawned: *mut c_int) -> c_int {
    call("PMI_Init", || {
        // SAFETY: a valid pointer by the contract of pmi.h.
        let spawned = unsafe { Out::new(spawned)? };
        spawned.set(c_int::from(Process::init()?.spawned));
        Ok(())
    })
}

/// Whether `PMI_Init` has succeeded.
///
/// # Safety
/// `initialized` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Initialized(initialized: *mut c_int) -> c_int {
    call("PMI_Initialized", || {
        // SAFETY: a valid pointer by the contract of pmi.h.
        unsafe { Out::new(initialized)? }.set(c_int::from(Process::was_initialized()));
        Ok(())
    })
}

/// Leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn PMI_Finalize() -> c_int {
    call("PMI_Finalize", Process::finalize)
}

/// Gets the number of processes of the job.
///
/// # Safety
/// `size` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_size(size: *mut c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report("PMI_Get_size", size, |process| Ok(number(process.identity.size))) }
}

/// Gets this process's rank.
///
/// # Safety
/// `rank` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_rank(rank: *mut c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report("PMI_Get_rank", rank, |process| Ok(number(process.identity.rank))) }
}

/// Gets the number of processes that the job could have.
///
/// # Safety
/// `size` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_universe_size(size: *mut c_int) -> c_int {
    let request = |process: &Process| {
        let size = process.request(&Command::GetUniverseSize, |reply| match *reply {
            Reply::UniverseSize(size) => Some(size),
            _ => None,
        })?;
        Ok(size.map_or(UNKNOWN, number))
    };
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report("PMI_Get_universe_size", size, request) }
}

/// Gets the number of this process's program on the command line.
///
/// # Safety
/// `appnum` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_appnum(appnum: *mut c_int) -> c_int {
    let request = |process: &Process| {
        let appnum = process.request(&Command::GetAppnum, |reply| match *reply {
            Reply::Appnum(appnum) => Some(appnum),
            _ => None,
        })?;
        Ok(appnum.map_or(UNKNOWN, number))
    };
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report("PMI_Get_appnum", appnum, request) }
}

/// Gets the job's id.
///
/// # Safety
/// `id_str` is NULL or a buffer of `length` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_id(id_str: *mut c_char, length: c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_name("PMI_Get_id", id_str, length) }
}

/// Gets the id of the domain in which key-value spaces can be read: the job's.
///
/// # Safety
/// `id_str` is NULL or a buffer of `length` characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_kvs_domain_id(id_str: *mut c_char, length: c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_name("PMI_Get_kvs_domain_id", id_str, length) }
}

/// Gets the size of a buffer for an id.
///
/// # Safety
/// `length` is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Get_id_length_max(length: *mut c_int) -> c_int {
    // SAFETY: a valid pointer by the contract of pmi.h.
    unsafe { report_max("PMI_Get_id_length_max", length, |maxes| maxes.kvsname) }
}

/// Ends the job. Does not return.
///
/// # Safety
/// `error_msg` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI_Abort(exit_code: c_int, error_msg: *const c_char) -> c_int {
    let outcome = panic::catch_unwind(|| {
        // SAFETY: a valid pointer by the contract of pmi.h.
        let message = abort_message(unsafe { text(error_msg) }.unwrap_or_default());
        match Process::current() {
            Ok(process) if !process.singleton => process.abort(exit_code, message),
            _ => {
                eprintln!("PMI_Abort: {}", String::from_utf8_lossy(message));
                Ok(())
            }
        }
    });
    if let Err(error) = outcome.unwrap_or(Err(CallError::Panicked)) {
        // The server reacts to the end of this process instead.
        LIBRARY.print("PMI_Abort", &error);
    }
    std::process::exit(exit_code)
}
