//! In front of an MPI library: its process sets, then hydrant's.

use std::ffi::{CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Abi, Class, Error, Handle, SUCCESS};
use crate::cstr::{bytes, null, put_string};
use crate::psets;
use crate::real::{Real, Slot};
use crate::session::members;

/// All process sets in one list. It only ever grows, so that an index keeps its meaning.
struct List {
    entries: Vec<Entry>,
    /// How many sets of the library, and of hydrant, are in it or have been passed over.
    of_library: c_int,
    of_hydrant: u32,
}

#[derive(Clone)]
enum Entry {
    /// The library's.
    Library(Vec<u8>),
    /// hydrant's.
    Hydrant(String),
}

static LIST: Mutex<List> = Mutex::new(List { entries: Vec::new(), of_library: 0, of_hydrant: 0 });

/// What is wrong, before the session's handler has heard of it.
enum Failed {
    /// The library has had it handled and returned this.
    Handled(c_int),
    /// Nobody has yet.
    Unhandled(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        Failed::Unhandled(error)
    }
}

/// Success, or what the library has handled.
fn done(code: Option<c_int>) -> Result<(), Failed> {
    match code {
        Some(SUCCESS) => Ok(()),
        Some(code) => Err(Failed::Handled(code)),
        None => Err(Error::new(Class::Unsupported, "the MPI library lacks the call").into()),
    }
}

fn list() -> MutexGuard<'static, List> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entry {
    fn name(&self) -> &[u8] {
        match self {
            Entry::Library(name) => name,
            Entry::Hydrant(name) => name.as_bytes(),
        }
    }
}

impl List {
    /// Takes in what is new.
    fn refresh(&mut self, real: &Real, session: Handle, info: Handle) -> Result<(), Failed> {
        let mut count = 0;
        // SAFETY: the handles are the caller's, and for the library to judge; the pointer leads to a local.
        done(unsafe { real.num_psets(session, info, &mut count) })?;
        while self.of_library < count {
            let name = name_of(real, session, info, self.of_library)?;
            self.entries.push(Entry::Library(name));
            self.of_library += 1;
        }
        let count = psets::count()?;
        while self.of_hydrant < count {
            let name = psets::name(self.of_hydrant)?;
            // MPI's own are the library's to name.
            let new =
                |name: &String| !psets::is_reserved(name.as_bytes()) && !self.library_has(name.as_bytes());
            if let Some(name) = name.filter(new) {
                self.entries.push(Entry::Hydrant(name));
            }
            self.of_hydrant += 1;
        }
        Ok(())
    }

    fn library_has(&self, name: &[u8]) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Library(known) if known == name))
    }
}

/// The name of one of the library's own sets.
fn name_of(real: &Real, session: Handle, info: Handle, n: c_int) -> Result<Vec<u8>, Failed> {
    let mut name = vec![0; 4096];
    let mut len = name.len() as c_int;
    // SAFETY: the buffer has that length.
    done(unsafe { real.nth_pset(session, info, n, &mut len, name.as_mut_ptr().cast()) })?;
    name.truncate(name.iter().position(|&byte| byte == 0).unwrap_or(name.len()));
    Ok(name)
}

/// Whether there is anything to add for this library.
fn adds(real: &Real) -> Option<Abi> {
    real.abi.filter(|_| psets::is_served())
}

/// What a call returns, once the session's handler has heard of an error.
fn finish(real: &Real, abi: Abi, session: Handle, result: Result<(), Failed>) -> c_int {
    match result {
        Ok(()) => SUCCESS,
        Err(Failed::Handled(code)) => code,
        Err(Failed::Unhandled(error)) => {
            let code = error.class.code(abi);
            // SAFETY: the library judges the handle.
            unsafe { real.call_errhandler(session, code) };
            code
        }
    }
}

fn missing(real: &Real) -> c_int {
    Class::Unsupported.code(real.abi.unwrap_or(Abi::Standard))
}

/// # Safety
/// As MPI's prototype says.
pub(crate) unsafe fn num_psets(real: &Real, session: Handle, info: Handle, count: *mut c_int) -> c_int {
    // SAFETY: as the caller says.
    let code = unsafe { real.num_psets(session, info, count) }.unwrap_or_else(|| missing(real));
    let Some(abi) = adds(real).filter(|_| code == SUCCESS) else { return code };
    let mut list = list();
    let result = list.refresh(real, session, info);
    if result.is_ok() {
        // SAFETY: the library has written to it.
        unsafe { *count = list.entries.len() as c_int };
    }
    drop(list);
    finish(real, abi, session, result)
}

/// # Safety
/// As MPI's prototype says.
pub(crate) unsafe fn nth_pset(
    real: &Real,
    session: Handle,
    info: Handle,
    n: c_int,
    len: *mut c_int,
    name: *mut c_char,
) -> c_int {
    // SAFETY: as the caller says.
    let pass_on = |n| unsafe { real.nth_pset(session, info, n, len, name) }.unwrap_or_else(|| missing(real));
    let Some(abi) = adds(real) else { return pass_on(n) };
    let mut list = list();
    let result = list.refresh(real, session, info);
    let entry = usize::try_from(n).ok().and_then(|n| list.entries.get(n).cloned());
    drop(list);
    match (result, entry) {
        // There are fewer of its own, so that it finds the error.
        (Ok(()), None) => pass_on(n),
        (Ok(()), Some(entry)) => {
            // The library's own, too: MPICH 5.0.2 does not say how long a name is that fits.
            // SAFETY: as the caller says.
            let result = unsafe { put_string(entry.name(), len, name) };
            finish(real, abi, session, result.map_err(Failed::from))
        }
        (failed, _) => finish(real, abi, session, failed),
    }
}

/// The name of a set that hydrant adds to the library's; nothing where it is for the library to know.
///
/// # Safety
/// `name` is null or a C string.
unsafe fn added<'a>(
    real: &Real,
    abi: Abi,
    session: Handle,
    name: *const c_char,
) -> Result<Option<(&'a [u8], u32)>, Failed> {
    // SAFETY: as the caller says.
    let Ok(name) = (unsafe { bytes(name, Class::Arg, "the name") }) else { return Ok(None) };
    if psets::is_reserved(name) {
        return Ok(None);
    }
    let mut list = list();
    list.refresh(real, session, abi.info_null())?;
    let own = list.library_has(name);
    drop(list);
    if own {
        return Ok(None);
    }
    Ok(psets::size(name)?.map(|size| (name, size)))
}

/// # Safety
/// As MPI's prototype says.
pub(crate) unsafe fn pset_info(real: &Real, session: Handle, name: *const c_char, out: *mut Handle) -> c_int {
    // SAFETY: as the caller says.
    let pass_on = || unsafe { real.pset_info(session, name, out) }.unwrap_or_else(|| missing(real));
    let Some(abi) = adds(real) else { return pass_on() };
    // SAFETY: as the caller says.
    let result = match unsafe { added(real, abi, session, name) } {
        Ok(None) => return pass_on(),
        // SAFETY: as the caller says.
        Ok(Some((_, size))) => unsafe { make_info(real, size, out) },
        Err(failed) => Err(failed),
    };
    finish(real, abi, session, result)
}

/// # Safety
/// `out` is null or has room for one of the library's handles.
unsafe fn make_info(real: &Real, size: u32, out: *mut Handle) -> Result<(), Failed> {
    if out.is_null() {
        return Err(null("the info object").into());
    }
    let mut slot = Slot::EMPTY;
    // SAFETY: the slot has room for a handle.
    done(unsafe { real.info_create(slot.out()) })?;
    let value = CString::new(size.to_string()).map_err(|_| null("a number"))?;
    // SAFETY: the handle is the library's own, the strings are C strings.
    done(unsafe { real.info_set(real.handle(&slot), c"mpi_size".as_ptr(), value.as_ptr()) })?;
    // SAFETY: as the caller says.
    unsafe { give(real, &slot, out) };
    Ok(())
}

/// Gives a handle to the caller, in the library's width.
///
/// # Safety
/// `out` has room for one.
unsafe fn give(real: &Real, slot: &Slot, out: *mut Handle) {
    let handle = real.handle(slot);
    match real.abi {
        // SAFETY: as the caller says.
        Some(Abi::Mpich) => unsafe { out.cast::<c_int>().write(handle as c_int) },
        // SAFETY: as the caller says.
        _ => unsafe { out.write(handle) },
    }
}

/// # Safety
/// As MPI's prototype says.
pub(crate) unsafe fn group_from_pset(
    real: &Real,
    session: Handle,
    name: *const c_char,
    out: *mut Handle,
) -> c_int {
    // SAFETY: as the caller says.
    let pass_on = || unsafe { real.group_from_pset(session, name, out) }.unwrap_or_else(|| missing(real));
    let Some(abi) = adds(real) else { return pass_on() };
    // SAFETY: as the caller says.
    let result = match unsafe { added(real, abi, session, name) } {
        Ok(None) => return pass_on(),
        // SAFETY: as the caller says.
        Ok(Some((name, _))) => unsafe { make_group(real, session, name, out) },
        Err(failed) => Err(failed),
    };
    finish(real, abi, session, result)
}

/// The group of a set's ranks, out of the group of all.
///
/// # Safety
/// `out` is null or has room for one of the library's handles.
unsafe fn make_group(real: &Real, session: Handle, name: &[u8], out: *mut Handle) -> Result<(), Failed> {
    if out.is_null() {
        return Err(null("the group").into());
    }
    let ranks = psets::members(name)?.ok_or_else(|| psets::unknown(name))?;
    let (mut world, mut group) = (Slot::EMPTY, Slot::EMPTY);
    // SAFETY: a C string, and room for a handle.
    done(unsafe { real.group_from_pset(session, c"mpi://WORLD".as_ptr(), world.out()) })?;
    // SAFETY: the handle is the library's own, there are as many ranks as said, and room for a handle.
    let included = done(unsafe {
        real.group_incl(real.handle(&world), ranks.len() as c_int, ranks.as_ptr(), group.out())
    });
    // SAFETY: the handle is the library's own, and nobody else has it.
    done(unsafe { real.group_free(world.out()) })?;
    included?;
    // SAFETY: as the caller says.
    unsafe { give(real, &group, out) };
    Ok(())
}

/// # Safety
/// As `hydrant_mpi.h` says.
pub(crate) unsafe fn define(
    real: &Real,
    session: Handle,
    name: *const c_char,
    count: c_int,
    ranks: *const c_int,
) -> c_int {
    let abi = real.abi.unwrap_or(Abi::Standard);
    let mut sets = 0;
    // SAFETY: the pointer leads to a local; the library judges the session.
    let known = done(unsafe { real.num_psets(session, abi.info_null(), &mut sets) });
    let defined = known.and_then(|()| {
        // SAFETY: as the caller says.
        let (name, ranks) = unsafe { members(name, count, ranks)? };
        Ok(psets::define(name, ranks)?)
    });
    finish(real, abi, session, defined)
}
