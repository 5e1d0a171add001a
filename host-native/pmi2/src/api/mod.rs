//! The functions of hydrant's `pmi2.h`, which documents their arguments and results.

mod binary;
mod info;
mod job;
mod kvs;
mod names;
mod spawn;
mod structs;

use std::ffi::{c_char, c_int};
use std::panic;

use hydrant_client::c::{ABORTED, CallError, Out, abort_message, text};

pub use binary::{hydrant_kvs_put, hydrant_node_attr_get, hydrant_node_attr_put};
pub use info::{
    PMI2_Info_GetJobAttr, PMI2_Info_GetJobAttrIntArray, PMI2_Info_GetNodeAttr, PMI2_Info_GetNodeAttrIntArray,
    PMI2_Info_GetSize, PMI2_Info_PutNodeAttr,
};
pub use job::{PMI2_Job_Connect, PMI2_Job_Disconnect, PMI2_Job_GetId, PMI2_Job_GetRank, PMIX_Ring};
pub use kvs::{PMI2_KVS_Fence, PMI2_KVS_Get, PMI2_KVS_Put};
pub use names::{PMI2_Nameserv_lookup, PMI2_Nameserv_publish, PMI2_Nameserv_unpublish};
pub use spawn::PMI2_Job_Spawn;
pub use structs::{ConnectComm, Info};

use crate::process::{LIBRARY, Process};

/// Runs a function's body.
#[inline(always)]
fn call(name: &'static str, body: impl FnOnce() -> Result<(), CallError>) -> c_int {
    LIBRARY.call(name, body)
}

/// Joins the job.
///
/// # Safety
/// Each pointer is NULL or an `int` to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Init(
    spawned: *mut c_int,
    size: *mut c_int,
    rank: *mut c_int,
    appnum: *mut c_int,
) -> c_int {
    call("PMI2_Init", || {
        // SAFETY: valid pointers by the contract of pmi2.h.
        let outs = unsafe { [Out::new(spawned)?, Out::new(size)?, Out::new(rank)?, Out::new(appnum)?] };
        let process = Process::init()?;
        let identity = process.identity;
        let number = |number: u32| c_int::try_from(number).unwrap_or(c_int::MAX);
        let values = [
            c_int::from(process.spawned),
            number(identity.size),
            number(identity.rank),
            number(identity.appnum.unwrap_or(0)),
        ];
        for (out, value) in outs.iter().zip(values) {
            out.set(value);
        }
        Ok(())
    })
}

/// Leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn PMI2_Finalize() -> c_int {
    call("PMI2_Finalize", Process::finalize)
}

/// Returns 1 after a successful `PMI2_Init`, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn PMI2_Initialized() -> c_int {
    panic::catch_unwind(|| c_int::from(Process::was_initialized())).unwrap_or(0)
}

/// Ends the job, or only this process. Returns only before `PMI2_Init` and after `PMI2_Finalize`.
///
/// # Safety
/// `msg` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Abort(flag: c_int, msg: *const c_char) -> c_int {
    call("PMI2_Abort", || {
        let process = Process::current()?;
        // SAFETY: a valid pointer by the contract of pmi2.h.
        let message = abort_message(unsafe { text(msg) }.unwrap_or_default());
        if process.singleton {
            eprintln!("PMI2_Abort: {}", String::from_utf8_lossy(message));
        } else if let Err(error) = process.connection.abort(flag != 0, message) {
            // The server reacts to the end of this process instead.
            LIBRARY.print("PMI2_Abort", &error);
        }
        std::process::exit(ABORTED)
    })
}
