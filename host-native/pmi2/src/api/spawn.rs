//! Spawning of jobs.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_client::to_bytes;
use hydrant_core::wire::{Codes, Command, Program, Reply, Spawn, Text};

use super::call;
use super::cpointer::{Info, OutBuffer, array, nonempty, text};
use super::cpointer::{KEY_MAX, VALUE_MAX};
use crate::error::{Code, Error};
use crate::process::Process;

type Pair<'a> = (Text<'a>, Text<'a>);

/// One program of a spawn request.
struct SpawnProgram<'a> {
    command: Text<'a>,
    maxprocs: u32,
    args: Vec<Text<'a>>,
    info: Vec<Pair<'a>>,
}

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

fn count(number: c_int, code: Code) -> Result<usize, Error> {
    usize::try_from(number).map_err(|_| Error::Argument(code, "a count is negative"))
}

/// Returns the pair of an info structure.
///
/// # Safety
/// `info` is a structure whose key and value are NULL or strings.
unsafe fn pair<'a>(info: &Info) -> Result<Pair<'a>, Error> {
    let wrong = Error::Argument(Code::InvalidKeyvalp, "a key is NULL or empty, or a value is NULL");
    // SAFETY: guaranteed by the caller.
    match unsafe { (text(info.key), text(info.value)) } {
        (Some(key), Some(value)) if !key.is_empty() => Ok((Text::plain(key), Text::plain(value))),
        _ => Err(wrong),
    }
}

/// Returns the pairs for the key-value space of the new job.
///
/// # Safety
/// `vector` is NULL or has `size` elements, each NULL or valid for [`pair`].
unsafe fn preput<'a>(vector: *const *const Info, size: c_int) -> Result<Vec<Pair<'a>>, Error> {
    let size = count(size, Code::InvalidSize)?;
    let missing = || Error::Argument(Code::InvalidKeyvalp, "preput_keyval_vector is NULL or contains NULL");
    // SAFETY: guaranteed by the caller.
    let infos = unsafe { array(vector, size) }.ok_or_else(missing)?;
    let mut pairs = Vec::with_capacity(size);
    for info in infos {
        // SAFETY: guaranteed by the caller.
        let (key, value) = unsafe { pair(info.as_ref().ok_or_else(missing)?)? };
        if key.len() > KEY_MAX {
            return Err(Error::Argument(Code::InvalidKeyLength, "a key is longer than PMI2_MAX_KEYLEN"));
        }
        if value.len() > VALUE_MAX {
            return Err(Error::Argument(Code::InvalidValLength, "a value is longer than PMI2_MAX_VALLEN"));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

impl Arrays {
    /// Returns element `i` of one of the arrays, or `none` if the array is NULL.
    ///
    /// # Safety
    /// `first` is NULL or has `self.count` elements.
    unsafe fn element<T: Copy>(&self, first: *const T, i: usize, none: T) -> T {
        // SAFETY: guaranteed by the caller.
        unsafe { array(first, self.count) }.and_then(|array| array.get(i)).copied().unwrap_or(none)
    }

    /// Reads program `i`.
    ///
    /// # Safety
    /// The arrays are NULL or valid by the contract of pmi2.h.
    unsafe fn program<'a>(&self, i: usize) -> Result<SpawnProgram<'a>, Error> {
        // SAFETY: guaranteed by the caller.
        let (command, argc, argv, maxprocs, info_size, info) = unsafe {
            (
                nonempty(self.element(self.cmds, i, ptr::null()), "a command is NULL or empty")?,
                self.element(self.argcs, i, 0),
                self.element(self.argvs, i, ptr::null()),
                self.element(self.maxprocs, i, 0),
                self.element(self.info_sizes, i, 0),
                self.element(self.infos, i, ptr::null()),
            )
        };
        let maxprocs = u32::try_from(maxprocs).ok().filter(|&procs| procs > 0);
        let maxprocs = maxprocs.ok_or(Error::Argument(Code::InvalidArg, "maxprocs is below 1"))?;
        let missing = || Error::Argument(Code::InvalidArgs, "an argument is NULL");
        // SAFETY: guaranteed by the caller.
        let argv = unsafe { array(argv, count(argc, Code::InvalidNumArgs)?) }.ok_or_else(missing)?;
        // SAFETY: guaranteed by the caller.
        let args = argv.iter().map(|&arg| unsafe { text(arg) }.map(Text::plain).ok_or_else(missing));
        // SAFETY: guaranteed by the caller.
        let infos = unsafe { array(info, count(info_size, Code::InvalidSize)?) };
        let infos =
            infos.ok_or(Error::Argument(Code::InvalidKeyvalp, "info_keyval_vectors contains NULL"))?;
        // SAFETY: guaranteed by the caller.
        let info = infos.iter().map(|info| unsafe { pair(info) }).collect::<Result<_, _>>()?;
        Ok(SpawnProgram {
            command: Text::plain(command),
            maxprocs,
            args: args.collect::<Result<_, _>>()?,
            info,
        })
    }
}

/// Returns one code per program. Servers send one code per program, one per process, or none.
fn per_program(codes: &Codes<'_>, programs: &[SpawnProgram<'_>]) -> Vec<c_int> {
    let codes: Vec<c_int> = codes.iter().collect();
    let processes: usize = programs.iter().map(|program| program.maxprocs as usize).sum();
    if codes.len() == processes && processes != programs.len() {
        let mut rest = &codes[..];
        let mut first_failure = |program: &SpawnProgram<'_>| {
            let (own, others) = rest.split_at(program.maxprocs as usize);
            rest = others;
            own.iter().copied().find(|&code| code != 0).unwrap_or(0)
        };
        return programs.iter().map(&mut first_failure).collect();
    }
    (0..programs.len()).map(|i| codes.get(i).copied().unwrap_or(0)).collect()
}

/// Result of a spawn request.
struct Spawned {
    jobid: Vec<u8>,
    codes: Vec<c_int>,
    refused: Option<Error>,
}

fn request(process: &Process, programs: &[SpawnProgram<'_>], preput: &[Pair<'_>]) -> Result<Spawned, Error> {
    let programs_sent: Vec<Program<'_>> = programs
        .iter()
        .map(|SpawnProgram { command, maxprocs, args, info }| Program {
            command: *command,
            maxprocs: *maxprocs,
            args,
            info,
        })
        .collect();
    let command = Command::Spawn(Spawn::new(&programs_sent, preput));
    let spawned = process.connection.request(&command, |reply| match reply {
        Reply::Spawned { jobid, codes } => {
            Some(Spawned { jobid: to_bytes(jobid), codes: per_program(codes, programs), refused: None })
        }
        Reply::NotSpawned { why, codes } => {
            let refused = Some(hydrant_client::Error::refused(command.op(), why).into());
            Some(Spawned { jobid: Vec::new(), codes: per_program(codes, programs), refused })
        }
        _ => None,
    })?;
    Ok(spawned)
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
            return Err(Error::Argument(Code::InvalidNumArgs, "the number of commands is 0"));
        }
        let (info_sizes, infos) = (info_keyval_sizes, info_keyval_vectors);
        let arrays = Arrays { count, cmds, argcs, argvs, maxprocs, info_sizes, infos };
        let code_count = if errors.is_null() { 0 } else { count_ };
        // SAFETY: valid pointers by the contract of pmi2.h.
        let (buffer, codes, preput, programs) = unsafe {
            (
                OutBuffer::nonempty(job_id, job_id_size, Code::InvalidSize)?,
                OutBuffer::new(errors, code_count, Code::InvalidNumArgs)?,
                preput(preput_keyval_vector, preput_keyval_size)?,
                (0..count).map(|i| arrays.program(i)).collect::<Result<Vec<_>, _>>()?,
            )
        };
        let spawned = request(&process, &programs, &preput)?;
        codes.put(&spawned.codes);
        match spawned.refused {
            Some(error) => Err(error),
            None => buffer.put_whole_text(&spawned.jobid),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_for_each_program() {
        let program =
            |maxprocs| SpawnProgram { command: "a".into(), maxprocs, args: Vec::new(), info: Vec::new() };
        let programs = [program(2), program(1)];
        for (codes, wanted) in [
            (&[][..], [0, 0]),
            (&[0, 2], [0, 2]),
            (&[0, 2, 0], [2, 0]),
            (&[0, 0, 13], [0, 13]),
            (&[5], [5, 0]),
        ] {
            assert_eq!(per_program(&Codes::new(codes), &programs), wanted, "{codes:?}");
        }
    }
}
