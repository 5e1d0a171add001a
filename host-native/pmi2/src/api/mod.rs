//! The functions of pmi2.h. What each does, takes and gives is documented in `include/pmi2.h`.

mod border;
mod info;
mod job;
mod kvs;
mod names;
mod spawn;

use std::ffi::{c_char, c_int};
use std::panic::{self, AssertUnwindSafe};

pub use border::{ConnectComm, Info};
pub use info::{
    PMI2_Info_GetJobAttr, PMI2_Info_GetJobAttrIntArray, PMI2_Info_GetNodeAttr, PMI2_Info_GetNodeAttrIntArray,
    PMI2_Info_GetSize, PMI2_Info_PutNodeAttr,
};
pub use job::{PMI2_Job_Connect, PMI2_Job_Disconnect, PMI2_Job_GetId, PMI2_Job_GetRank, PMIX_Ring};
pub use kvs::{PMI2_KVS_Fence, PMI2_KVS_Get, PMI2_KVS_Put};
pub use names::{PMI2_Nameserv_lookup, PMI2_Nameserv_publish, PMI2_Nameserv_unpublish};
pub use spawn::PMI2_Job_Spawn;

use crate::environment::debugging;
use crate::error::{Code, Error};
use crate::process::Process;
use border::{Out, text};

/// The exit status of a process that aborted.
const ABORTED: c_int = 1;

/// Runs a function's body: no panic leaves it, and its error becomes a code. `PMI2_DEBUG` shows the error's words;
/// those of `PMI2_Init` are always shown, because its caller has nothing but a number to find out what is wrong.
fn call(name: &'static str, body: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome = panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Error::Panicked));
    let Err(error) = outcome else { return Code::Success as c_int };
    if name == "PMI2_Init" || debugging() {
        explain(name, &error);
    }
    error.code() as c_int
}

fn explain(name: &str, error: &Error) {
    eprintln!("hydrant-pmi2: {name}: {error}");
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
        // SAFETY: pointers as pmi2.h wants them.
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

/// 1 once init has succeeded, else 0.
#[unsafe(no_mangle)]
pub extern "C" fn PMI2_Initialized() -> c_int {
    panic::catch_unwind(|| c_int::from(Process::was_initialized())).unwrap_or(0)
}

/// Ends the job, or this process alone. Returns only where nothing was initialised.
///
/// # Safety
/// `msg` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMI2_Abort(flag: c_int, msg: *const c_char) -> c_int {
    call("PMI2_Abort", || {
        let process = Process::current()?;
        // SAFETY: a pointer as pmi2.h wants it.
        let message = unsafe { text(msg) }.unwrap_or_default();
        let message = message.get(..border::VALUE_MAX).unwrap_or(message);
        if process.alone {
            eprintln!("PMI2_Abort: {}", String::from_utf8_lossy(message));
        } else if let Err(error) = process.connection.abort(flag != 0, message) {
            // Its end is all that the server gets to know.
            explain("PMI2_Abort", &error);
        }
        std::process::exit(ABORTED)
    })
}
