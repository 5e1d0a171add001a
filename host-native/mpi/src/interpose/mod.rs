//! MPI calls in front of an MPI library: its process sets, followed by those of hydrant.

mod library;

use std::ffi::{CString, c_char, c_int};

use hydrant_wire::SetOperation;

use crate::abi::{Abi, Class, Handle, SUCCESS};
use crate::cpointer::{bytes, names, put_string, ranks};
use crate::error::Error;
use crate::pset_list::PsetList;
use crate::psets::{self, Process};
use library::HandleSlot;

pub(crate) use library::{MpiLibrary, next_definition};

/// Why a call failed.
enum Failure {
    /// The library has called the error handler, and returned this code.
    Handled(c_int),
    /// No error handler was called.
    Unhandled(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Unhandled(error)
    }
}

/// Converts the return value of the library, or `None` if it lacks the function.
fn check(code: Option<c_int>) -> Result<(), Failure> {
    match code {
        Some(SUCCESS) => Ok(()),
        Some(code) => Err(Failure::Handled(code)),
        None => Err(Error::MissingFunction.into()),
    }
}

/// Returns the library's ABI if hydrant's process sets are added to those of the library.
pub(crate) fn extended_abi(library: &MpiLibrary) -> Option<Abi> {
    library.abi.filter(|_| psets::is_served())
}

/// Calls the session's error handler if the library has not. Returns the return value of the call.
fn finish(library: &MpiLibrary, abi: Abi, session: Handle, result: Result<(), Failure>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(Failure::Handled(code)) => code,
        Err(Failure::Unhandled(error)) => {
            let code = error.class().code(abi);
            // SAFETY: the library checks the handle.
            unsafe { library.call_errhandler(session, code) };
            code
        }
    }
}

fn unsupported(library: &MpiLibrary) -> c_int {
    Class::Unsupported.code(library.abi_or_standard())
}

/// Appends the sets of the library and of hydrant that are new.
fn refresh(list: &mut PsetList, library: &MpiLibrary, session: Handle, info: Handle) -> Result<(), Failure> {
    let mut count = 0;
    // SAFETY: the library checks the handles of the caller; the pointer is a valid local.
    check(unsafe { library.num_psets(session, info, &mut count) })?;
    let name = |n| {
        let mut name = vec![0; 4096];
        let mut len = name.len() as c_int;
        // SAFETY: the buffer has that length.
        check(unsafe { library.nth_pset(session, info, n, &mut len, name.as_mut_ptr().cast()) })?;
        name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
        Ok(name)
    };
    list.refresh(count, name, psets::next)
}

/// `MPI_Session_get_num_psets`: the number of the library's and hydrant's sets.
///
/// # Safety
/// The arguments are valid for MPI's prototype.
pub(crate) unsafe fn num_psets(
    library: &MpiLibrary,
    session: Handle,
    info: Handle,
    count: *mut c_int,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let code = unsafe { library.num_psets(session, info, count) }.unwrap_or_else(|| unsupported(library));
    let Some(abi) = extended_abi(library).filter(|_| code == SUCCESS) else { return code };
    let mut list = PsetList::lock();
    let result = refresh(&mut list, library, session, info);
    if result.is_ok() {
        // SAFETY: the library has written to it too.
        unsafe { *count = list.len() as c_int };
    }
    drop(list);
    finish(library, abi, session, result)
}

/// `MPI_Session_get_nth_pset`.
///
/// # Safety
/// The arguments are valid for MPI's prototype.
pub(crate) unsafe fn nth_pset(
    library: &MpiLibrary,
    session: Handle,
    info: Handle,
    n: c_int,
    len: *mut c_int,
    name: *mut c_char,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let forward =
        |n| unsafe { library.nth_pset(session, info, n, len, name) }.unwrap_or_else(|| unsupported(library));
    let Some(abi) = extended_abi(library) else { return forward(n) };
    let mut list = PsetList::lock();
    let result = refresh(&mut list, library, session, info);
    let entry = usize::try_from(n).ok().and_then(|n| list.get(n).cloned());
    drop(list);
    match (result, entry) {
        // The library has fewer sets and reports the error.
        (Ok(()), None) => forward(n),
        (Ok(()), Some(entry)) => {
            // For the library's sets too, because MPICH 5.0.2 does not set the length if the name fits.
            // SAFETY: guaranteed by the caller.
            let result = unsafe { put_string(entry.name(), len, name) };
            finish(library, abi, session, result.map_err(Failure::from))
        }
        (failed, _) => finish(library, abi, session, failed),
    }
}

/// Returns name and size of a set that only hydrant has. Returns `None` for a name that the library has to resolve.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn hydrant_set<'a>(
    library: &MpiLibrary,
    abi: Abi,
    session: Handle,
    name: *const c_char,
) -> Result<Option<(&'a [u8], u32)>, Failure> {
    // SAFETY: guaranteed by the caller.
    let Ok(name) = (unsafe { bytes(name, Class::Arg, "the name") }) else { return Ok(None) };
    if psets::is_reserved(name) {
        // The library does not know who has died.
        psets::check_living(name)?;
        return Ok(None);
    }
    let mut list = PsetList::lock();
    refresh(&mut list, library, session, abi.info_null())?;
    let library_has = list.library_has(name);
    drop(list);
    if library_has {
        return Ok(None);
    }
    Ok(psets::size(name)?.map(|size| (name, size)))
}

/// `MPI_Session_get_pset_info`.
///
/// # Safety
/// The arguments are valid for MPI's prototype.
pub(crate) unsafe fn pset_info(
    library: &MpiLibrary,
    session: Handle,
    name: *const c_char,
    out: *mut Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let forward = || unsafe { library.pset_info(session, name, out) }.unwrap_or_else(|| unsupported(library));
    let Some(abi) = extended_abi(library) else { return forward() };
    // SAFETY: guaranteed by the caller.
    let result = match unsafe { hydrant_set(library, abi, session, name) } {
        Ok(None) => return forward(),
        // SAFETY: guaranteed by the caller.
        Ok(Some((_, size))) => unsafe { create_info(library, size, out) },
        Err(failed) => Err(failed),
    };
    finish(library, abi, session, result)
}

/// Creates an info object with the size of a set.
///
/// # Safety
/// `out` is null or an output pointer for one of the library's handles.
unsafe fn create_info(library: &MpiLibrary, size: u32, out: *mut Handle) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Error::null("the info object").into());
    }
    let mut slot = HandleSlot::EMPTY;
    // SAFETY: the slot is large enough for a handle.
    check(unsafe { library.info_create(slot.out()) })?;
    let value = CString::new(size.to_string()).map_err(|_| Error::null("a number"))?;
    // SAFETY: the library created the handle; the strings are C strings.
    check(unsafe { library.info_set(library.handle(&slot), c"mpi_size".as_ptr(), value.as_ptr()) })?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_handle(library, &slot, out) };
    Ok(())
}

/// Writes a handle for the caller, in the library's width.
///
/// # Safety
/// `out` is an output pointer for one of the library's handles.
unsafe fn put_handle(library: &MpiLibrary, slot: &HandleSlot, out: *mut Handle) {
    let handle = library.handle(slot);
    match library.abi {
        // SAFETY: guaranteed by the caller.
        Some(Abi::Mpich) => unsafe { out.cast::<c_int>().write(handle as c_int) },
        // SAFETY: guaranteed by the caller.
        _ => unsafe { out.write(handle) },
    }
}

/// `MPI_Group_from_session_pset`.
///
/// # Safety
/// The arguments are valid for MPI's prototype.
pub(crate) unsafe fn group_from_pset(
    library: &MpiLibrary,
    session: Handle,
    name: *const c_char,
    out: *mut Handle,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    let forward =
        || unsafe { library.group_from_pset(session, name, out) }.unwrap_or_else(|| unsupported(library));
    let Some(abi) = extended_abi(library) else { return forward() };
    // SAFETY: guaranteed by the caller.
    let result = match unsafe { hydrant_set(library, abi, session, name) } {
        Ok(None) => return forward(),
        // SAFETY: guaranteed by the caller.
        Ok(Some((name, _))) => unsafe { create_group(library, session, name, out) },
        Err(failed) => Err(failed),
    };
    finish(library, abi, session, result)
}

/// Creates the group of a set from the group of `mpi://WORLD`.
///
/// # Safety
/// `out` is null or an output pointer for one of the library's handles.
unsafe fn create_group(
    library: &MpiLibrary,
    session: Handle,
    name: &[u8],
    out: *mut Handle,
) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Error::null("the group").into());
    }
    let members = psets::members(name)?.ok_or_else(|| Error::NoPset(name.to_vec()))?;
    let members: Option<Vec<c_int>> = members.into_iter().map(Process::own_rank).collect();
    let members = members.ok_or_else(|| Error::OtherJob(name.to_vec()))?;
    let (mut world, mut group) = (HandleSlot::EMPTY, HandleSlot::EMPTY);
    // SAFETY: a C string, and a slot for a handle.
    check(unsafe { library.group_from_pset(session, c"mpi://WORLD".as_ptr(), world.out()) })?;
    // SAFETY: the library created the handle; the count is that of the ranks; a slot for a handle.
    let included = check(unsafe {
        library.group_incl(library.handle(&world), members.len() as c_int, members.as_ptr(), group.out())
    });
    // SAFETY: the library created the handle, and nothing else uses it.
    check(unsafe { library.group_free(world.out()) })?;
    included?;
    // SAFETY: guaranteed by the caller.
    unsafe { put_handle(library, &group, out) };
    Ok(())
}

/// Runs a call of `hydrant_mpi.h` with an open session.
fn with_session(library: &MpiLibrary, session: Handle, call: impl FnOnce() -> Result<(), Error>) -> c_int {
    let abi = library.abi_or_standard();
    let mut sets = 0;
    // SAFETY: the pointer is a valid local; the library checks the session.
    let valid = check(unsafe { library.num_psets(session, abi.info_null(), &mut sets) });
    finish(library, abi, session, valid.and_then(|()| Ok(call()?)))
}

/// `hydrant_pset_define`.
///
/// # Safety
/// The arguments are valid for the prototype in `hydrant_mpi.h`.
pub(crate) unsafe fn define(
    library: &MpiLibrary,
    session: Handle,
    name: *const c_char,
    count: c_int,
    members: *const c_int,
) -> c_int {
    with_session(library, session, || {
        // SAFETY: guaranteed by the caller.
        let (name, members) = unsafe { (bytes(name, Class::Arg, "the name")?, ranks(count, members)?) };
        psets::define(name, members)
    })
}

/// `hydrant_pset_retire`.
///
/// # Safety
/// The arguments are valid for the prototype in `hydrant_mpi.h`.
pub(crate) unsafe fn retire(library: &MpiLibrary, session: Handle, name: *const c_char) -> c_int {
    with_session(library, session, || {
        // SAFETY: guaranteed by the caller.
        psets::retire(unsafe { bytes(name, Class::Arg, "the name")? })
    })
}

/// `hydrant_pset_prune`.
pub(crate) fn prune(library: &MpiLibrary, session: Handle) -> c_int {
    with_session(library, session, psets::prune)
}

/// `hydrant_pset_union`, `hydrant_pset_intersection` and `hydrant_pset_difference`.
///
/// # Safety
/// The arguments are valid for the prototypes in `hydrant_mpi.h`.
pub(crate) unsafe fn combine(
    library: &MpiLibrary,
    session: Handle,
    one: *const c_char,
    other: *const c_char,
    name: *const c_char,
    operation: SetOperation,
) -> c_int {
    with_session(library, session, || {
        // SAFETY: guaranteed by the caller.
        let [one, other, name] = unsafe { names([one, other, name])? };
        psets::combine(name, operation, [one, other])
    })
}
