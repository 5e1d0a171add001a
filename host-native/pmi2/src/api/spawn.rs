//! Starting processes.

use std::ffi::{c_char, c_int};
use std::ptr;

use hydrant_core::wire::{Codes, Command, Failure, Program, Reply, Spawn, Text};

use super::border::{Info, Room, array, bytes, named, text};
use super::border::{KEY_MAX, VALUE_MAX};
use super::call;
use crate::connection::string;
use crate::error::{Code, Error};
use crate::process::Process;

type Pair<'a> = (Text<'a>, Text<'a>);

/// One program of a spawn.
struct Wanted<'a> {
    command: Text<'a>,
    maxprocs: u32,
    args: Vec<Text<'a>>,
    info: Vec<Pair<'a>>,
}

/// The arrays of `PMI2_Job_Spawn` that have an element a program.
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

/// The pair of an info structure.
///
/// # Safety
/// `info` is a structure whose key and value are NULL or strings.
unsafe fn pair<'a>(info: &Info) -> Result<Pair<'a>, Error> {
    let wrong = Error::Argument(Code::InvalidKeyvalp, "a key is NULL or empty, or a value is NULL");
    // SAFETY: by the caller.
    match unsafe { (text(info.key), text(info.value)) } {
        (Some(key), Some(value)) if !key.is_empty() => Ok((Text::plain(key), Text::plain(value))),
        _ => Err(wrong),
    }
}

/// What the new job finds in its space: an array of pointers.
///
/// # Safety
/// `vector` is NULL or has `size` elements, each NULL or a structure as [`pair`] wants it.
unsafe fn preput<'a>(vector: *const *const Info, size: c_int) -> Result<Vec<Pair<'a>>, Error> {
    let size = count(size, Code::InvalidSize)?;
    let missing = || Error::Argument(Code::InvalidKeyvalp, "preput_keyval_vector has a NULL");
    // SAFETY: by the caller.
    let infos = unsafe { array(vector, size) }.ok_or_else(missing)?;
    let mut pairs = Vec::with_capacity(size);
    for info in infos {
        // SAFETY: by the caller.
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
    /// Element `i` of one of the arrays; `none` where the whole array is NULL.
    ///
    /// # Safety
    /// `first` is NULL or has `self.count` elements.
    unsafe fn element<T: Copy>(&self, first: *const T, i: usize, none: T) -> T {
        // SAFETY: by the caller.
        unsafe { array(first, self.count) }.and_then(|array| array.get(i)).copied().unwrap_or(none)
    }

    /// Program `i`.
    ///
    /// # Safety
    /// The arrays are as pmi2.h wants them, NULL where nothing is in them.
    unsafe fn program<'a>(&self, i: usize) -> Result<Wanted<'a>, Error> {
        // SAFETY: by the caller.
        let (command, argc, argv, maxprocs, info_size, info) = unsafe {
            (
                named(self.element(self.cmds, i, ptr::null()), "a command is NULL or empty")?,
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
        // SAFETY: by the caller.
        let argv = unsafe { array(argv, count(argc, Code::InvalidNumArgs)?) }.ok_or_else(missing)?;
        // SAFETY: by the caller.
        let args = argv.iter().map(|&arg| unsafe { text(arg) }.map(Text::plain).ok_or_else(missing));
        // SAFETY: by the caller.
        let infos = unsafe { array(info, count(info_size, Code::InvalidSize)?) };
        let infos = infos.ok_or(Error::Argument(Code::InvalidKeyvalp, "info_keyval_vectors has a NULL"))?;
        // SAFETY: by the caller.
        let info = infos.iter().map(|info| unsafe { pair(info) }).collect::<Result<_, _>>()?;
        Ok(Wanted { command: Text::plain(command), maxprocs, args: args.collect::<Result<_, _>>()?, info })
    }
}

/// A code for each program. Servers send one a program, one a process, or none.
fn per_program(codes: &Codes<'_>, programs: &[Wanted<'_>]) -> Vec<c_int> {
    let codes: Vec<c_int> = codes.iter().collect();
    let processes: usize = programs.iter().map(|program| program.maxprocs as usize).sum();
    if codes.len() == processes && processes != programs.len() {
        let mut rest = &codes[..];
        let mut first_failure = |program: &Wanted<'_>| {
            let (own, others) = rest.split_at(program.maxprocs as usize);
            rest = others;
            own.iter().copied().find(|&code| code != 0).unwrap_or(0)
        };
        return programs.iter().map(&mut first_failure).collect();
    }
    (0..programs.len()).map(|i| codes.get(i).copied().unwrap_or(0)).collect()
}

/// What came of a spawn.
struct Spawned {
    jobid: Vec<u8>,
    codes: Vec<c_int>,
    refused: Option<Error>,
}

fn ask(process: &Process, programs: &[Wanted<'_>], preput: &[Pair<'_>]) -> Result<Spawned, Error> {
    let given: Vec<Program<'_>> = programs
        .iter()
        .map(|Wanted { command, maxprocs, args, info }| Program {
            command: *command,
            maxprocs: *maxprocs,
            args,
            info,
        })
        .collect();
    let command = Command::Spawn(Spawn::new(&given, preput));
    process.connection.ask(&command, |reply| match reply {
        Reply::Spawned { jobid, codes } => {
            Some(Spawned { jobid: bytes(jobid), codes: per_program(codes, programs), refused: None })
        }
        Reply::NotSpawned { why, codes } => {
            let (rc, text) = match why {
                Failure::Refusal(refusal) => (refusal.rc(), refusal.to_string()),
                Failure::Remote(rc, text) => (*rc, string(text)),
            };
            let refused = Some(Error::Refused { op: command.op(), rc, text });
            Some(Spawned { jobid: Vec::new(), codes: per_program(codes, programs), refused })
        }
        _ => None,
    })
}

/// Starts a job of other processes.
///
/// # Safety
/// The arrays have as many elements as pmi2.h says for their counts, or are NULL where nothing would be in them;
/// `job_id` is NULL or has room for `job_id_size` characters; `errors` is NULL or has room for `count` integers.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "pmi2.h has them")]
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
            return Err(Error::Argument(Code::InvalidNumArgs, "there are no commands"));
        }
        let (info_sizes, infos) = (info_keyval_sizes, info_keyval_vectors);
        let arrays = Arrays { count, cmds, argcs, argvs, maxprocs, info_sizes, infos };
        let wanted_codes = if errors.is_null() { 0 } else { count_ };
        // SAFETY: pointers as pmi2.h wants them.
        let (room, codes, preput, programs) = unsafe {
            (
                Room::some(job_id, job_id_size, Code::InvalidSize)?,
                Room::new(errors, wanted_codes, Code::InvalidNumArgs)?,
                preput(preput_keyval_vector, preput_keyval_size)?,
                (0..count).map(|i| arrays.program(i)).collect::<Result<Vec<_>, _>>()?,
            )
        };
        let spawned = ask(&process, &programs, &preput)?;
        codes.put(&spawned.codes);
        match spawned.refused {
            Some(error) => Err(error),
            None => room.need_text(&spawned.jobid),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_for_each_program() {
        let program = |maxprocs| Wanted { command: "a".into(), maxprocs, args: Vec::new(), info: Vec::new() };
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
