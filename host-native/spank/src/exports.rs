//! Symbols that Slurm looks for, and the functions that it calls.
#![allow(non_upper_case_globals, reason = "the names are Slurm's")]

use std::ffi::{c_char, c_int, c_void};
use std::fmt::Display;
use std::panic::{self, AssertUnwindSafe};

use crate::arguments::{ArgumentError, Arguments};
use crate::spank::{self, Context, Spank};
use crate::step::{self, StepError};

/// Name of the plugin.
#[unsafe(no_mangle)]
pub static plugin_name: [u8; 8] = *b"hydrant\0";
/// Kind of the plugin.
#[unsafe(no_mangle)]
pub static plugin_type: [u8; 6] = *b"spank\0";
/// Version of the Slurm that the library was built for.
#[unsafe(no_mangle)]
pub static plugin_version: u32 = number(env!("HYDRANT_SLURM_VERSION"));
/// Version of the plugin.
#[unsafe(no_mangle)]
pub static spank_plugin_version: u32 = 1;

/// What a function returns to Slurm that failed.
const FAILED: c_int = -1;

/// Parses the build script's number.
const fn number(text: &str) -> u32 {
    let (bytes, mut number, mut at) = (text.as_bytes(), 0, 0);
    while at < bytes.len() {
        number = number * 10 + (bytes[at] - b'0') as u32;
        at += 1;
    }
    number
}

/// Runs a function's body. Prints its error. Panics are caught and are errors too.
fn call<E: Display>(body: impl FnOnce() -> Result<(), E>) -> c_int {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            spank::print(&format!("hydrant: {error}"));
            FAILED
        }
        // The message of the panic is on standard error.
        Err(_) => FAILED,
    }
}

/// Reads the words of plugstack.conf.
///
/// # Safety
/// `words` points to `count` texts.
unsafe fn arguments(count: c_int, words: *const *const c_char) -> Result<Arguments, ArgumentError> {
    // SAFETY: guaranteed by the caller.
    Arguments::read(unsafe { spank::words(count, words) })
}

/// Registers the option of srun.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(
    spank: *mut c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    if spank::context() == Context::Other {
        return 0;
    }
    call(|| {
        // SAFETY: Slurm passes the words of its file.
        unsafe { arguments(count, words) }.map_err(StepError::from)?;
        // SAFETY: Slurm's handle, in this call.
        let spank = unsafe { Spank::new(spank) };
        let usage =
            c"serve PMI and PMIx of the step with hydrant: its plugin NAME, or built-in. Use with --mpi=none";
        spank.register_option(c"hydrant", c"NAME", usage, chosen)?;
        Ok::<_, StepError>(())
    })
}

/// Takes the value of the option.
///
/// # Safety
/// Called by Slurm, with a text or NULL.
unsafe extern "C" fn chosen(_: c_int, value: *const c_char, _: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let value = unsafe { spank::text(value) };
    // An option without value may arrive at slurmstepd as this text.
    step::choose(value.filter(|&value| value != "(null)").unwrap_or_default());
    0
}

/// Checks the option in srun. Prepares the step in slurmstepd.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init_post_opt(
    spank: *mut c_void,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: Slurm passes the words of its file.
        let arguments = unsafe { arguments(count, words) }?;
        match spank::context() {
            Context::Local => step::check(&arguments),
            Context::Remote => {
                // SAFETY: Slurm's handle, in this call.
                step::prepare(unsafe { Spank::new(spank) }, &arguments);
                Ok(())
            }
            Context::Other => Ok(()),
        }
    })
}

/// Starts the head in srun.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_local_user_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    // SAFETY: Slurm's handle, in this call.
    call(|| step::lead(unsafe { Spank::new(spank) }))
}

/// Reports a step that cannot be served.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_user_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: Slurm's handle, in this call.
        step::report(unsafe { Spank::new(spank) });
        Ok::<_, StepError>(())
    })
}

/// Sets the environment of a task.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    // SAFETY: Slurm's handle, in this call.
    call(|| step::task_init(unsafe { Spank::new(spank) }))
}

/// Takes a task that has been forked.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_post_fork(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    // SAFETY: Slurm's handle, in this call.
    call(|| step::forked(unsafe { Spank::new(spank) }))
}

/// Takes the end of a task.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_exit(
    spank: *mut c_void,
    _: c_int,
    _: *const *const c_char,
) -> c_int {
    // SAFETY: Slurm's handle, in this call.
    call(|| step::task_exit(unsafe { Spank::new(spank) }))
}

/// Ends the server.
///
/// # Safety
/// Called by Slurm.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_exit(_: *mut c_void, _: c_int, _: *const *const c_char) -> c_int {
    call(|| {
        step::end();
        Ok::<_, StepError>(())
    })
}
