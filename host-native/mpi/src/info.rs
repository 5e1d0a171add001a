//! `MPI_Info_*` (MPI 5.0, chapter 10): C strings around the core's info object.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::slice;

use hydrant_core::info::{Environment, InfoError};

use crate::abi::{Class, Error, Handle, INFO_ENV, INFO_NULL};
use crate::cstr::{bytes, null, put, put_string};
use crate::state::{Table, state};

/// Bytes of an object: some sixty of the longest pairs. The system gives them out as they are used.
const SIZE: usize = 64 * 1024;

pub(crate) type Info = hydrant_core::info::Info<Box<[u8]>>;

/// All info objects, with `MPI_INFO_ENV` once somebody has asked for it.
pub(crate) struct Infos {
    made: Table<Info>,
    env: Option<Info>,
}

impl From<InfoError> for Error {
    fn from(error: InfoError) -> Error {
        let class = match error {
            InfoError::KeyLength => Class::InfoKey,
            InfoError::ValueLength => Class::InfoValue,
            InfoError::NoKey => Class::InfoNoKey,
            InfoError::Full(_) => Class::NoMem,
        };
        Error::new(class, error.to_string())
    }
}

impl Infos {
    pub(crate) const fn new() -> Infos {
        Infos { made: Table::new(1, Class::Info, "info"), env: None }
    }

    /// An object to read.
    pub(crate) fn get(&mut self, handle: Handle) -> Result<&Info, Error> {
        if handle != INFO_ENV {
            return self.made.get(handle);
        }
        if self.env.is_none() {
            let args: Vec<Vec<u8>> = env::args_os().map(OsStringExt::into_vec).collect();
            self.env = Some(environment(&args.iter().map(Vec::as_slice).collect::<Vec<_>>())?);
        }
        self.env.as_ref().ok_or_else(|| Error::new(Class::Info, "MPI_INFO_ENV is not known"))
    }

    fn change(&mut self, handle: Handle) -> Result<&mut Info, Error> {
        if handle == INFO_ENV {
            return Err(Error::new(Class::Info, "MPI_INFO_ENV cannot be changed"));
        }
        self.made.get_mut(handle)
    }
}

/// An object without keys.
pub(crate) fn empty() -> Info {
    Info::new(vec![0; SIZE].into())
}

fn copy(info: &Info) -> Result<Info, Error> {
    Ok(info.dup(vec![0; SIZE].into())?)
}

/// How this process was started, with these arguments, the first of which is its name.
fn environment(args: &[&[u8]]) -> Result<Info, Error> {
    let maxprocs = env::var("PMI_SIZE").ok().and_then(|size| size.parse().ok());
    let wdir = env::current_dir().unwrap_or_default();
    let system = rustix::system::uname();
    let mut info = empty();
    let known = Environment {
        command: args.first().copied().unwrap_or_default(),
        args: args.get(1..).unwrap_or_default(),
        maxprocs: maxprocs.unwrap_or(1),
        host: system.nodename().to_bytes(),
        arch: env::consts::ARCH.as_bytes(),
        wdir: wdir.as_os_str().as_bytes(),
    };
    known.set(&mut info)?;
    Ok(info)
}

/// Gives an object to the caller.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn give(info: Info, out: *mut Handle) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("the info object"));
    }
    let handle = state().infos.made.insert(info);
    // SAFETY: as the caller says.
    unsafe { put(out, handle, "the info object") }
}

/// # Safety
/// As for [`give`].
pub(crate) unsafe fn create(out: *mut Handle) -> Result<(), Error> {
    // SAFETY: as the caller says.
    unsafe { give(empty(), out) }
}

/// # Safety
/// `argv` is null or has `argc` C strings; `out` as for [`give`].
pub(crate) unsafe fn create_env(
    argc: c_int,
    argv: *const *const c_char,
    out: *mut Handle,
) -> Result<(), Error> {
    let argc = if argv.is_null() { 0 } else { usize::try_from(argc).unwrap_or(0) };
    let mut args = Vec::new();
    if argc > 0 {
        // SAFETY: it is not null and has that many elements, as the caller says.
        let argv = unsafe { slice::from_raw_parts(argv, argc) };
        for &arg in argv.iter().take_while(|arg| !arg.is_null()) {
            // SAFETY: a C string, as the caller says.
            args.push(unsafe { CStr::from_ptr(arg) }.to_bytes());
        }
    }
    let info = if args.is_empty() { copy(state().infos.get(INFO_ENV)?)? } else { environment(&args)? };
    // SAFETY: as the caller says.
    unsafe { give(info, out) }
}

/// # Safety
/// `key` and `value` are null or C strings.
pub(crate) unsafe fn set(info: Handle, key: *const c_char, value: *const c_char) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let (key, value) =
        unsafe { (bytes(key, Class::InfoKey, "the key")?, bytes(value, Class::InfoValue, "the value")?) };
    Ok(state().infos.change(info)?.set(key, value)?)
}

/// # Safety
/// `key` is null or a C string.
pub(crate) unsafe fn delete(info: Handle, key: *const c_char) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let key = unsafe { bytes(key, Class::InfoKey, "the key")? };
    state().infos.change(info)?.delete(key).map_err(|why| match why {
        InfoError::NoKey => Error::new(Class::InfoNoKey, format!("there is no key {}", key.escape_ascii())),
        why => why.into(),
    })
}

/// Calls `found` with a key's value, if there is one, and says in `flag` whether there was.
///
/// # Safety
/// `key` is null or a C string; `flag` is null or may be written to.
unsafe fn look_up(
    info: Handle,
    key: *const c_char,
    flag: *mut c_int,
    found: impl FnOnce(&[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let key = unsafe { bytes(key, Class::InfoKey, "the key")? };
    let mut state = state();
    let value = state.infos.get(info)?.get(key)?;
    if let Some(value) = value {
        found(value)?;
    }
    // SAFETY: as the caller says.
    unsafe { put(flag, c_int::from(value.is_some()), "the flag") }
}

/// # Safety
/// As for the C prototype: `value` has room for `valuelen` characters and a NUL.
pub(crate) unsafe fn get(
    info: Handle,
    key: *const c_char,
    valuelen: c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> Result<(), Error> {
    if valuelen < 0 {
        return Err(Error::new(Class::Arg, "the length is negative"));
    }
    // SAFETY: as the caller says.
    unsafe { look_up(info, key, flag, |text| put_string(text, &mut valuelen.saturating_add(1), value)) }
}

/// # Safety
/// The pointers are null or lead to what the C prototype says.
pub(crate) unsafe fn get_valuelen(
    info: Handle,
    key: *const c_char,
    valuelen: *mut c_int,
    flag: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: as the caller says.
    unsafe { look_up(info, key, flag, |text| put(valuelen, text.len() as c_int, "the length")) }
}

/// # Safety
/// As for the C prototype: `value` has room for `*buflen` bytes.
pub(crate) unsafe fn get_string(
    info: Handle,
    key: *const c_char,
    buflen: *mut c_int,
    value: *mut c_char,
    flag: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: as the caller says.
    unsafe { look_up(info, key, flag, |text| put_string(text, buflen, value)) }
}

/// # Safety
/// `nkeys` is null or may be written to.
pub(crate) unsafe fn get_nkeys(info: Handle, nkeys: *mut c_int) -> Result<(), Error> {
    let count = state().infos.get(info)?.nkeys();
    // SAFETY: as the caller says.
    unsafe { put(nkeys, count as c_int, "the number of keys") }
}

/// # Safety
/// `key` has room for `MPI_MAX_INFO_KEY` bytes.
pub(crate) unsafe fn get_nthkey(info: Handle, n: c_int, key: *mut c_char) -> Result<(), Error> {
    let mut state = state();
    let info = state.infos.get(info)?;
    let missing = || Error::new(Class::Arg, format!("there is no key number {n} of {}", info.nkeys()));
    let text = u32::try_from(n).ok().and_then(|n| info.nth_key(n)).ok_or_else(missing)?;
    // SAFETY: as the caller says, and a key is shorter than that.
    unsafe { put_string(text, &mut (text.len() as c_int + 1), key) }
}

/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn dup(info: Handle, out: *mut Handle) -> Result<(), Error> {
    let copy = copy(state().infos.get(info)?)?;
    // SAFETY: as the caller says.
    unsafe { give(copy, out) }
}

/// # Safety
/// `info` is null or may be read and written.
pub(crate) unsafe fn free(info: *mut Handle) -> Result<(), Error> {
    // SAFETY: as the caller says.
    let info = unsafe { info.as_mut() }.ok_or_else(|| null("the info object"))?;
    let mut state = state();
    state.infos.change(*info)?;
    state.infos.made.remove(*info)?;
    *info = INFO_NULL;
    Ok(())
}
