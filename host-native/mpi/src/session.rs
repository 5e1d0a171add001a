//! `MPI_Session_*` without another MPI library (MPI 5.0, 11.3): hints and process sets.

use std::ffi::{c_char, c_int};
use std::slice;

use hydrant_core::info::INFO_VALUE_MAX;
use hydrant_core::info::value::{boolean, list, strip};

use crate::abi::{Class, Error, Handle, INFO_NULL, SESSION_NULL};
use crate::cstr::{bytes, null, put, put_string};
use crate::info::{Info, empty, give};
use crate::psets;
use crate::state::{State, state};

/// An open session.
pub(crate) struct Session {
    hints: Info,
    pub(crate) errhandler: Handle,
}

const THREAD_LEVEL: &[u8] = b"thread_level";
const STRICT_FINALIZE: &[u8] = b"strict_finalize";
const MEMORY_KINDS: &[u8] = b"mpi_memory_alloc_kinds";
const THREAD_LEVELS: [&[u8]; 4] =
    [b"MPI_THREAD_SINGLE", b"MPI_THREAD_FUNNELED", b"MPI_THREAD_SERIALIZED", b"MPI_THREAD_MULTIPLE"];
/// Restrictors of memory kind `mpi` (MPI 5.0, 11.4.3); `system` has none.
const MPI_RESTRICTORS: [&[u8]; 3] = [b"alloc_mem", b"win_allocate", b"win_allocate_shared"];

/// The hints in force, of those that were asked for.
fn hints(asked: Option<&Info>) -> Result<Info, Error> {
    let ask = |key| asked.map_or(Ok(None), |info| info.get(key)).map(Option::unwrap_or_default);
    let mut hints = empty();
    // Every call here may come from any thread, so each level is as good as asked for.
    let level = strip(ask(THREAD_LEVEL)?);
    let level = THREAD_LEVELS.iter().find(|known| **known == level).unwrap_or(&THREAD_LEVELS[3]);
    hints.set(THREAD_LEVEL, level)?;
    let strict = boolean(ask(STRICT_FINALIZE)?).unwrap_or(false);
    hints.set(STRICT_FINALIZE, if strict { b"true" } else { b"false" })?;
    hints.set(MEMORY_KINDS, &memory_kinds(ask(MEMORY_KINDS)?))?;
    Ok(hints)
}

/// The memory kinds that were asked for, as far as they are known here, and the two that are always there.
fn memory_kinds(asked: &[u8]) -> Vec<u8> {
    let mut kinds: Vec<&[u8]> = vec![b"mpi", b"system"];
    for kind in list(asked) {
        let mut parts = kind.split(|&byte| byte == b':');
        let known = match parts.next() {
            Some(b"mpi") => parts.all(|part| MPI_RESTRICTORS.contains(&part)),
            Some(b"system") => parts.next().is_none(),
            _ => false,
        };
        let len: usize = kinds.iter().map(|kind| kind.len() + 1).sum();
        if known && !kinds.contains(&kind) && len + kind.len() <= INFO_VALUE_MAX {
            kinds.push(kind);
        }
    }
    kinds.join(&b","[..])
}

impl State {
    /// Asks no more than that there is such a session.
    fn check(&self, session: Handle) -> Result<(), Error> {
        self.sessions.get(session).map(|_| ())
    }
}

/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn init(info: Handle, errhandler: Handle, out: *mut Handle) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("the session"));
    }
    let mut state = state();
    let hints = if info == INFO_NULL { hints(None)? } else { hints(Some(state.infos.get(info)?))? };
    state.errhandlers.hold(errhandler)?;
    let session = state.sessions.insert(Session { hints, errhandler });
    // SAFETY: as the caller says.
    unsafe { put(out, session, "the session") }
}

/// # Safety
/// `session` is null or may be read and written.
pub(crate) unsafe fn finalize(session: *mut Handle) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let session = unsafe { session.as_mut() }.ok_or_else(|| null("the session"))?;
    let mut state = state();
    let Session { errhandler, .. } = state.sessions.remove(*session)?;
    *session = SESSION_NULL;
    state.errhandlers.release(errhandler)
}

/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn get_info(session: Handle, out: *mut Handle) -> Result<(), Error> {
    let mut hints = empty();
    for (key, value) in state().sessions.get(session)?.hints.iter() {
        hints.set(key, value)?;
    }
    // SAFETY: as the caller says.
    unsafe { give(hints, out) }
}

/// The info argument of a query says nothing that is known here, but has to be one.
fn check(session: Handle, info: Handle) -> Result<(), Error> {
    let mut state = state();
    state.check(session)?;
    if info != INFO_NULL {
        state.infos.get(info)?;
    }
    Ok(())
}

/// # Safety
/// `count` is null or may be written to.
pub(crate) unsafe fn num_psets(session: Handle, info: Handle, count: *mut c_int) -> Result<(), Error> {
    check(session, info)?;
    let number = psets::count()?;
    // SAFETY: as the caller says.
    unsafe { put(count, number as c_int, "the number of process sets") }
}

/// # Safety
/// As for [`put_string`].
pub(crate) unsafe fn nth_pset(
    session: Handle,
    info: Handle,
    n: c_int,
    len: *mut c_int,
    name: *mut c_char,
) -> Result<(), Error> {
    check(session, info)?;
    let found = match u32::try_from(n) {
        Ok(index) => psets::name(index)?,
        Err(_) => None,
    };
    let found = found.ok_or_else(|| Error::new(Class::Arg, format!("there is no process set number {n}")))?;
    // SAFETY: as the caller says.
    unsafe { put_string(found.as_bytes(), len, name) }
}

/// # Safety
/// `name` is null or a C string; `out` is null or may be written to.
pub(crate) unsafe fn pset_info(session: Handle, name: *const c_char, out: *mut Handle) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    // SAFETY: as the caller says.
    let name = unsafe { bytes(name, Class::Arg, "the name")? };
    let size = psets::size(name)?.ok_or_else(|| psets::unknown(name))?;
    let mut info = empty();
    info.set(b"mpi_size", size.to_string().as_bytes())?;
    // SAFETY: as the caller says.
    unsafe { give(info, out) }
}

/// # Safety
/// `name` is null or a C string; `ranks` is null or has `count` elements.
pub(crate) unsafe fn define(
    session: Handle,
    name: *const c_char,
    count: c_int,
    ranks: *const c_int,
) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    // SAFETY: as the caller says.
    let (name, ranks) = unsafe { members(name, count, ranks)? };
    psets::define(name, ranks)
}

/// `MPI_Group_from_session_pset`: groups are for those who communicate.
///
/// # Safety
/// None is needed.
pub(crate) unsafe fn no_groups(
    session: Handle,
    _name: *const c_char,
    _out: *mut Handle,
) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    Err(Error::new(
        Class::Unsupported,
        "libhydrant_mpi alone has no groups; load it in front of an MPI library",
    ))
}

/// The arguments of `hydrant_pset_define`.
///
/// # Safety
/// As for [`define`].
pub(crate) unsafe fn members<'a>(
    name: *const c_char,
    count: c_int,
    ranks: *const c_int,
) -> Result<(&'a [u8], &'a [c_int]), Error> {
    // SAFETY: as the caller says.
    let name = unsafe { bytes(name, Class::Arg, "the name")? };
    let count =
        usize::try_from(count).map_err(|_| Error::new(Class::Arg, "the number of members is negative"))?;
    if count == 0 || ranks.is_null() {
        return Err(Error::new(Class::Arg, "a process set has at least one member"));
    }
    // SAFETY: as the caller says.
    Ok((name, unsafe { slice::from_raw_parts(ranks, count) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_memory_kinds_are_in_force() {
        let text = |asked: &str| String::from_utf8(memory_kinds(asked.as_bytes())).unwrap();
        assert_eq!(text(""), "mpi,system");
        assert_eq!(text(" system , mpi:alloc_mem ,cuda:device"), "mpi,system,mpi:alloc_mem");
        assert_eq!(
            text("mpi:alloc_mem:win_allocate,mpi:magic,system:x"),
            "mpi,system,mpi:alloc_mem:win_allocate"
        );
        let many = "mpi:alloc_mem,".repeat(3) + &"mpi:win_allocate:alloc_mem:win_allocate,".repeat(40);
        assert!(text(&many).len() <= INFO_VALUE_MAX);
    }

    #[test]
    fn hints_that_make_no_sense_are_passed_over() {
        let hints_of = |asked: &Info| hints(Some(asked)).unwrap();
        let value = |hints: &Info, key| String::from_utf8(hints.get(key).unwrap().unwrap().to_vec()).unwrap();
        let mut asked = empty();
        asked.set(THREAD_LEVEL, b" MPI_THREAD_FUNNELED ").unwrap();
        asked.set(STRICT_FINALIZE, b" true").unwrap();
        let hints = hints_of(&asked);
        assert_eq!(
            (value(&hints, THREAD_LEVEL), value(&hints, STRICT_FINALIZE)),
            ("MPI_THREAD_FUNNELED".into(), "true".into())
        );
        asked.set(THREAD_LEVEL, b"mpi_thread_funneled").unwrap();
        asked.set(STRICT_FINALIZE, b"True").unwrap();
        let hints = hints_of(&asked);
        assert_eq!(
            (value(&hints, THREAD_LEVEL), value(&hints, STRICT_FINALIZE)),
            ("MPI_THREAD_MULTIPLE".into(), "false".into())
        );
    }
}
