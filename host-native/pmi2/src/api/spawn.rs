//! Spawning of jobs.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_client::c::{
    CallError, Code, OutBuffer, Pair, SpawnProgram, array, count, element, maxprocs, nonempty, pair, preput,
    spawn, text,
};
use hydrant_wire::Text;

use super::call;
use super::structs::Info;
use crate::process::Process;

/// The arrays of `PMI2_Job_Spawn` with one element per program.
struct Arrays {
    count: usize,
    cmds: *const *const c_char,
    argcs: *const c_int,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_sizes: *const c_int,
    infos: *const *const Info,
}

/// Returns the pair of an info structure.
///
/// # Safety
/// `info` is a structure whose key and value are NULL or strings.
unsafe fn info_pair<'a>(info: &Info) -> Result<Pair<'a>, CallError> {
    // SAFETY: guaranteed by the caller.
    unsafe { pair(info.key, info.value) }
}

/// Returns the pairs for the key-value space of the new job.
///
/// # Safety
/// `vector` is NULL or has `size` elements, each NULL or valid for [`info_pair`].
unsafe fn preputs<'a>(vector: *const *const Info, size: c_int) -> Result<Vec<Pair<'a>>, CallError> {
    let size = count(size, Code::InvalidSize)?;
    let missing =
        || CallError::Argument(Code::InvalidKeyvalp, "preput_keyval_vector is NULL or contains NULL");
    // SAFETY: guaranteed by the caller.
    let infos = unsafe { array(vector, size) }.ok_or_else(missing)?;
    // SAFETY: guaranteed by the caller.
    infos.iter().map(|info| preput(unsafe { info_pair(info.as_ref().ok_or_else(missing)?)? })).collect()
}

impl Arrays {
    /// Reads program `i`.
    ///
    /// # Safety
    /// The arrays are NULL or valid by the contract of pmi2.h.
    unsafe fn program<'a>(&self, i: usize) -> Result<SpawnProgram<'a>, CallError> {
        // SAFETY: guaranteed by the caller.
        let (command, argc, argv, maxprocs, info_size, info) = unsafe {
            (
                nonempty(element(self.cmds, self.count, i, ptr::null()), "a command is NULL or empty")?,
                element(self.argcs, self.count, i, 0),
                element(self.argvs, self.count, i, ptr::null()),
                element(self.maxprocs, self.count, i, 0),
                element(self.info_sizes, self.count, i, 0),
                element(self.infos, self.count, i, ptr::null()),
            )
        };
        let maxprocs = self::maxprocs(maxprocs)?;
        let missing = || CallError::Argument(Code::InvalidArgs, "an argument is NULL");
        // SAFETY: guaranteed by the caller.
        let argv = unsafe { array(argv, count(argc, Code::InvalidNumArgs)?) }.ok_or_else(missing)?;
        // SAFETY: guaranteed by the caller.
        let args = argv.iter().map(|&arg| unsafe { text(arg) }.map(Text::plain).ok_or_else(missing));
        // SAFETY: guaranteed by the caller.
        let infos = unsafe { array(info, count(info_size, Code::InvalidSize)?) };
        let infos =
            infos.ok_or(CallError::Argument(Code::InvalidKeyvalp, "info_keyval_vectors contains NULL"))?;
        // SAFETY: guaranteed by the caller.
        let info = infos.iter().map(|info| unsafe { info_pair(info) }).collect::<Result<_, _>>()?;
        Ok(SpawnProgram {
            command: Text::plain(command),
            maxprocs,
            args: args.collect::<Result<_, _>>()?,
            info,
        })
    }
}

/// Spawns a job.
///
/// # Safety
/// The arrays are NULL or have the number of elements that pmi2.h documents; `job_id` is NULL or a buffer of
/// `job_id_size` characters; `errors` is NULL or an array of `count` integers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the signature of pmi2.h")]
pub unsafe extern "C" fn PMI2_Job_Spawn(
    count_: c_int,
    cmds: *const *const c_char,
    argcs: *const c_int,
    argvs: *const *const *const c_char,
    maxprocs: *const c_int,
    info_keyval_sizes: *const c_int,
    info_keyval_vectors: *const *const Info,
    preput_keyval_size: c_int,
    preput_keyval_vector: *const *const Info,
    job_id: *mut c_char,
    job_id_size: c_int,
    errors: *mut c_int,
) -> c_int {
    call("PMI2_Job_Spawn", || {
        let process = Process::current()?;
        let count = count(count_, Code::InvalidNumArgs)?;
        if count == 0 {
            return Err(CallError::Argument(Code::InvalidNumArgs, "the number of commands is 0"));
        }
        let (info_sizes, infos) = (info_keyval_sizes, info_keyval_vectors);
        let arrays = Arrays { count, cmds, argcs, argvs, maxprocs, info_sizes, infos };
        let code_count = if errors.is_null() { 0 } else { count_ };
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (buffer, codes, preput, programs) = unsafe {
            (
                OutBuffer::nonempty(job_id, job_id_size, Code::InvalidSize)?,
                OutBuffer::new(errors, code_count, Code::InvalidNumArgs)?,
                preputs(preput_keyval_vector, preput_keyval_size)?,
                (0..count).map(|i| arrays.program(i)).collect::<Result<Vec<_>, _>>()?,
            )
        };
        let spawned = spawn(&programs, &preput, |command, read| {
            process.connection.request(command, |reply| read(reply))
        })?;
        codes.put(&spawned.codes);
        match spawned.refused {
            Some(error) => Err(error),
            None => buffer.put_whole_text(&spawned.jobid),
        }
    })
}
