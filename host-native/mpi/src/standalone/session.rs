//! `MPI_Session_*` (MPI 5.0, 11.3): sessions and their process sets.

use std::ffi::{c_char, c_int};
use std::sync::MutexGuard;

use hydrant_wire::SetOperation;

use crate::abi::{Class, Handle, INFO_NULL, SESSION_NULL};
use crate::cpointer::{bytes, names, put, put_string, ranks};
use crate::error::Error;
use crate::info::Info;
use crate::objects::{Session, lock};
use crate::pset_list::PsetList;
use crate::psets;
use crate::standalone::info::put_info;

/// `MPI_Session_init`.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn init(info: Handle, errhandler: Handle, out: *mut Handle) -> Result<(), Error> {
    if out.is_null() {
        return Err(Error::null("the session"));
    }
    let mut objects = lock();
    let requested = if info == INFO_NULL { None } else { Some(objects.infos.get(info)?) };
    let session = Session::new(requested, errhandler)?;
    objects.errhandlers.acquire(errhandler)?;
    let session = objects.sessions.insert(session);
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, session, "the session") }
}

/// `MPI_Session_finalize`.
///
/// # Safety
/// `session` is null or may be read and written.
pub(crate) unsafe fn finalize(session: *mut Handle) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let session = unsafe { session.as_mut() }.ok_or_else(|| Error::null("the session"))?;
    let mut objects = lock();
    let Session { errhandler, .. } = objects.sessions.remove(*session)?;
    *session = SESSION_NULL;
    objects.errhandlers.release(errhandler)
}

/// `MPI_Session_get_info`.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn get_info(session: Handle, out: *mut Handle) -> Result<(), Error> {
    let hints = lock().sessions.get(session)?.hints.copy()?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_info(hints, out) }
}

/// Checks the handles of a query. No key of the info argument is defined, but its handle has to be valid.
fn check(session: Handle, info: Handle) -> Result<(), Error> {
    let mut objects = lock();
    objects.sessions.get(session)?;
    if info != INFO_NULL {
        objects.infos.get(info)?;
    }
    Ok(())
}

/// Returns the list of process sets with those that are new.
pub(super) fn list() -> Result<MutexGuard<'static, PsetList>, Error> {
    let mut list = PsetList::lock();
    let standard = |n: c_int| Ok::<_, Error>(psets::STANDARD[n as usize].into());
    list.refresh(psets::STANDARD.len() as c_int, standard, psets::next)?;
    Ok(list)
}

/// `MPI_Session_get_num_psets`.
///
/// # Safety
/// `count` is null or may be written to.
pub(crate) unsafe fn num_psets(session: Handle, info: Handle, count: *mut c_int) -> Result<(), Error> {
    check(session, info)?;
    let number = list()?.len();
    // SAFETY: guaranteed by the caller.
    unsafe { put(count, number as c_int, "the number of process sets") }
}

/// `MPI_Session_get_nth_pset`.
///
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
    let list = list()?;
    let found = usize::try_from(n).ok().and_then(|n| list.get(n)).ok_or(Error::PsetIndex(n))?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_string(found.name(), len, name) }
}

/// `MPI_Session_get_pset_info`.
///
/// # Safety
/// `name` is null or a C string; `out` is null or may be written to.
pub(crate) unsafe fn pset_info(session: Handle, name: *const c_char, out: *mut Handle) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    // SAFETY: guaranteed by the caller.
    let name = unsafe { bytes(name, Class::Arg, "the name")? };
    drop(list()?);
    let size = psets::size(name)?.ok_or_else(|| Error::NoPset(name.to_vec()))?;
    let mut info = Info::default();
    info.set(b"mpi_size", size.to_string().as_bytes())?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_info(info, out) }
}

/// `hydrant_pset_define`.
///
/// # Safety
/// `name` is null or a C string; `members` is null or has `count` elements.
pub(crate) unsafe fn define(
    session: Handle,
    name: *const c_char,
    count: c_int,
    members: *const c_int,
) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    // SAFETY: guaranteed by the caller.
    let (name, members) = unsafe { (bytes(name, Class::Arg, "the name")?, ranks(count, members)?) };
    psets::define(name, members)
}

/// `hydrant_pset_retire`.
///
/// # Safety
/// `name` is null or a C string.
pub(crate) unsafe fn retire(session: Handle, name: *const c_char) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    // SAFETY: guaranteed by the caller.
    psets::retire(unsafe { bytes(name, Class::Arg, "the name")? })
}

/// `hydrant_pset_prune`.
pub(crate) fn prune(session: Handle) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    psets::prune()
}

/// `hydrant_pset_union`, `hydrant_pset_intersection` and `hydrant_pset_difference`.
///
/// # Safety
/// The names are null or C strings.
pub(crate) unsafe fn combine(
    session: Handle,
    one: *const c_char,
    other: *const c_char,
    name: *const c_char,
    operation: SetOperation,
) -> Result<(), Error> {
    check(session, INFO_NULL)?;
    // SAFETY: guaranteed by the caller.
    let [one, other, name] = unsafe { names([one, other, name])? };
    psets::combine(name, operation, [one, other])
}
