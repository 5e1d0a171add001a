//! Spawn requests from arrays of C.

use std::ffi::{c_char, c_int};

use hydrant_wire::{Codes, Command, Op, Program, Reply, Spawn, Text};

use super::pointer::{KEY_MAX, KEY_TOO_LONG, VALUE_MAX, VALUE_TOO_LONG, text};
use super::{CallError, Code};
use crate::to_bytes;

/// Key and value of an info or preput pair.
pub type Pair<'a> = (Text<'a>, Text<'a>);

/// One program of a spawn request.
#[allow(missing_docs, reason = "the fields of hydrant_wire::Program")]
pub struct SpawnProgram<'a> {
    pub command: Text<'a>,
    pub maxprocs: u32,
    pub args: Vec<Text<'a>>,
    pub info: Vec<Pair<'a>>,
}

/// Result of a spawn request.
pub struct Spawned {
    /// Id of the new job; empty in PMI-1.
    pub jobid: Vec<u8>,
    /// One code for each program; 0 is success.
    pub codes: Vec<c_int>,
    /// Why no process was started.
    pub refused: Option<CallError>,
}

/// Returns the length of an array.
///
/// # Errors
/// The number is negative, which has the code `code`.
pub fn count(number: c_int, code: Code) -> Result<usize, CallError> {
    usize::try_from(number).map_err(|_| CallError::Argument(code, "a count is negative"))
}

/// Returns the number of processes of a program.
///
/// # Errors
/// The number is below 1.
pub fn maxprocs(number: c_int) -> Result<u32, CallError> {
    let number = u32::try_from(number).ok().filter(|&procs| procs > 0);
    number.ok_or(CallError::Argument(Code::InvalidArg, "maxprocs is below 1"))
}

/// Returns a pair.
///
/// # Errors
/// The key is NULL or empty, or the value is NULL.
///
/// # Safety
/// Both are NULL or strings that stay unchanged for as long as the result is used.
pub unsafe fn pair<'a>(key: *const c_char, value: *const c_char) -> Result<Pair<'a>, CallError> {
    let wrong = CallError::Argument(Code::InvalidKeyvalp, "a key is NULL or empty, or a value is NULL");
    // SAFETY: guaranteed by the caller.
    match unsafe { (text(key), text(value)) } {
        (Some(key), Some(value)) if !key.is_empty() => Ok((Text::plain(key), Text::plain(value))),
        _ => Err(wrong),
    }
}

/// Checks a pair for the key-value space of the new job.
///
/// # Errors
/// The key or the value is too long.
pub fn preput(pair: Pair<'_>) -> Result<Pair<'_>, CallError> {
    let len = |text: &Text<'_>| text.parts().map(<[u8]>::len).sum::<usize>();
    if len(&pair.0) > KEY_MAX {
        return Err(CallError::Argument(Code::InvalidKeyLength, KEY_TOO_LONG));
    }
    if len(&pair.1) > VALUE_MAX {
        return Err(CallError::Argument(Code::InvalidValLength, VALUE_TOO_LONG));
    }
    Ok(pair)
}

/// Requests a spawn. `request` sends the command and returns what its second argument takes from the reply.
///
/// # Errors
/// Those of `request`. A server that starts no process is no error but [`Spawned::refused`].
pub fn spawn(
    programs: &[SpawnProgram<'_>],
    preput: &[Pair<'_>],
    request: impl FnOnce(&Command<'_>, &dyn Fn(&Reply<'_>) -> Option<Spawned>) -> Result<Spawned, crate::Error>,
) -> Result<Spawned, CallError> {
    let sent: Vec<Program<'_>> = programs
        .iter()
        .map(|SpawnProgram { command, maxprocs, args, info }| Program {
            command: *command,
            maxprocs: *maxprocs,
            args,
            info,
        })
        .collect();
    let command = Command::Spawn(Spawn::new(&sent, preput));
    let read = |reply: &Reply<'_>| match reply {
        Reply::Spawned { jobid, codes } => {
            Some(Spawned { jobid: to_bytes(jobid), codes: per_program(codes, programs), refused: None })
        }
        Reply::NotSpawned { why, codes } => {
            let refused = Some(crate::Error::refused(Op::Spawn, why).into());
            Some(Spawned { jobid: Vec::new(), codes: per_program(codes, programs), refused })
        }
        _ => None,
    };
    Ok(request(&command, &read)?)
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
