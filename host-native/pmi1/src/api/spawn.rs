//! Spawning of jobs.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_client::c::{
    CallError, Code, OutBuffer, Pair, SpawnProgram, array, count, element, maxprocs, nonempty, pair, preput,
    spawn, text,
};
use hydrant_wire::Text;

use super::call;
use crate::process::Process;

/// `PMI_keyval_t`: one pair of an info or preput list.
#[derive(Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields of pmi.h")]
pub struct KeyVal {
    pub key: *mut c_char,
    pub val: *mut c_char,
}

/// The arrays of `PMI_Spawn_multiple` with one element per program.
struct Arrays {
    count: usize,
    cmds: *const *const c_char,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_sizes: *const c_int,
    infos: *const *const KeyVal,
}

/// Returns the pairs of a list.
///
/// # Safety
/// `list` is NULL or has `size` elements whose keys and values are NULL or strings.
unsafe fn pairs<'a>(list: *const KeyVal, size: c_int) -> Result<Vec<Pair<'a>>, CallError> {
    // SAFETY: guaranteed by the caller.
    let list = unsafe { array(list, count(size, Code::InvalidArg)?) };
    let list = list.ok_or(CallError::Argument(Code::InvalidArg, "a list of pairs is NULL"))?;
    // SAFETY: guaranteed by the caller.
    list.iter().map(|keyval| unsafe { pair(keyval.key, keyval.val) }).collect()
}

/// Returns the arguments of a program.
///
/// # Safety
/// `argv` is NULL or an array of strings that NULL ends.
unsafe fn arguments<'a>(argv: *const *const c_char) -> Vec<Text<'a>> {
    let mut args = Vec::new();
    // SAFETY: guaranteed by the caller. The loop ends at the NULL.
    while let Some(arg) = unsafe { argv.wrapping_add(args.len()).as_ref().and_then(|&arg| text(arg)) } {
        args.push(Text::plain(arg));
    }
    args
}

impl Arrays {
    /// Reads program `i`.
    ///
    /// # Safety
    /// The arrays are NULL or valid by the contract of pmi.h.
    unsafe fn program<'a>(&self, i: usize) -> Result<SpawnProgram<'a>, CallError> {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let command =
                nonempty(element(self.cmds, self.count, i, ptr::null()), "a command is NULL or empty")?;
            let info = element(self.infos, self.count, i, ptr::null());
            Ok(SpawnProgram {
                command: Text::plain(command),
                maxprocs: maxprocs(element(self.maxprocs, self.count, i, 0))?,
                args: arguments(element(self.argvs, self.count, i, ptr::null())),
                info: pairs(info, element(self.info_sizes, self.count, i, 0))?,
            })
        }
    }
}

/// Spawns a job.
///
/// # Safety
/// The arrays are NULL or have the number of elements that pmi.h documents; `errors` is NULL or an array of `count`
/// integers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the signature of pmi.h")]
pub unsafe extern "C" fn PMI_Spawn_multiple(
    count_: c_int,
    cmds: *const *const c_char,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_keyval_sizes: *const c_int,
    info_keyval_vectors: *const *const KeyVal,
    preput_keyval_size: c_int,
    preput_keyval_vector: *const KeyVal,
    errors: *mut c_int,
) -> c_int {
    call("PMI_Spawn_multiple", || {
        let process = Process::current()?;
        let count = count(count_, Code::InvalidArg)?;
        if count == 0 {
            return Err(CallError::Argument(Code::InvalidArg, "the number of commands is 0"));
        }
        let (info_sizes, infos) = (info_keyval_sizes, info_keyval_vectors);
        let arrays = Arrays { count, cmds, argvs, maxprocs, info_sizes, infos };
        let code_count = if errors.is_null() { 0 } else { count_ };
        // SAFETY: valid pointers by the contract of pmi.h.
        let (codes, initial, programs) = unsafe {
            (
                OutBuffer::new(errors, code_count, Code::InvalidArg)?,
                pairs(preput_keyval_vector, preput_keyval_size)?,
                (0..count).map(|i| arrays.program(i)).collect::<Result<Vec<_>, _>>()?,
            )
        };
        let initial = initial.into_iter().map(preput).collect::<Result<Vec<_>, _>>()?;
        let spawned =
            spawn(&programs, &initial, |command, read| process.request(command, |reply| read(reply)))?;
        codes.put(&spawned.codes);
        spawned.refused.map_or(Ok(()), Err)
    })
}
