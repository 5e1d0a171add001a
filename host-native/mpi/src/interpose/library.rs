//! The MPI library in the same process, called by its `PMPI_` functions.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;

use crate::abi::{Abi, Handle};

/// An MPI library with its profiling interface (MPI 5.0, chapter 15).
pub(crate) struct MpiLibrary {
    /// Where its symbols are looked up.
    scope: Scope,
    /// Its ABI; `None` if unknown. hydrant's process sets cannot be added to those of an unknown ABI.
    pub(crate) abi: Option<Abi>,
}

#[derive(Clone, Copy)]
struct Scope(*mut c_void);

// SAFETY: a handle of the dynamic linker, valid in every thread and never closed.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

/// Names of libraries that an interpreter may have loaded with local scope (Python's mpi4py), so that the default scope
/// does not contain their symbols.
const SONAMES: [&CStr; 4] = [c"libmpi_abi.so.1", c"libmpi_abi.so.0", c"libmpi.so.12", c"libmpich.so.12"];

/// Names of Fortran libraries that may have been loaded with local scope.
const FORTRAN_SONAMES: [&CStr; 4] =
    [c"libmpifort.so.12", c"libmpichfort.so.12", c"libmpifort_abi.so.1", c"libmpi_mpifh.so.40"];

/// Returns the MPI library's definition of an exported Fortran binding: the next one after that of this library.
pub(crate) fn next_definition(name: &CStr) -> Option<*const c_void> {
    symbol(Scope(libc::RTLD_NEXT), name).or_else(|| loaded_in(&FORTRAN_SONAMES, |scope| symbol(scope, name)))
}

/// Returns what is found in the first library of these that has it and is loaded.
fn loaded_in<T>(names: &[&CStr], look_up: impl Fn(Scope) -> Option<T>) -> Option<T> {
    names.iter().find_map(|name| {
        // SAFETY: a C string; RTLD_NOLOAD loads nothing, so that no code of the library runs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() { None } else { look_up(Scope(handle)) }
    })
}

impl MpiLibrary {
    /// Returns the MPI library of the process. The result of the first call is kept: a program that calls MPI has loaded
    /// its library before.
    pub(crate) fn loaded() -> Option<&'static MpiLibrary> {
        static LIBRARY: OnceLock<Option<MpiLibrary>> = OnceLock::new();
        LIBRARY.get_or_init(find).as_ref()
    }
}

fn find() -> Option<MpiLibrary> {
    let default = Scope(libc::RTLD_DEFAULT);
    if let Some(found) = find_in(default) {
        return Some(found);
    }
    loaded_in(&SONAMES, find_in)
}

fn find_in(scope: Scope) -> Option<MpiLibrary> {
    // A library of MPI 3 has no sessions, and its info objects are its own all the same.
    let address = symbol(scope, c"PMPI_Info_create")?;
    // SAFETY: all-zero is a value of this plain struct.
    let mut place: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call takes any address and writes to the struct.
    let known = unsafe { libc::dladdr(address, &mut place) } != 0 && !place.dli_fname.is_null();
    // SAFETY: a C string of the dynamic linker, which lives as long as the library is loaded.
    let file = if known { unsafe { CStr::from_ptr(place.dli_fname) } } else { c"" };
    Some(MpiLibrary { scope, abi: abi_of(file.to_bytes()) })
}

/// Returns the ABI of a library with that file name.
fn abi_of(file: &[u8]) -> Option<Abi> {
    let name = file.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    match name {
        name if name.starts_with(b"libmpi_abi.so") => Some(Abi::Standard),
        name if name.starts_with(b"libmpi.so.12") || name.starts_with(b"libmpich.so.12") => Some(Abi::Mpich),
        _ => None,
    }
}

fn symbol(scope: Scope, name: &CStr) -> Option<*const c_void> {
    // SAFETY: the scope is the default one or an open library, the name a C string.
    let address = unsafe { libc::dlsym(scope.0, name.as_ptr()) };
    if address.is_null() { None } else { Some(address) }
}

/// Memory for a handle that a library writes, of either width.
#[repr(C, align(8))]
pub(crate) struct HandleSlot([u8; 8]);

impl HandleSlot {
    pub(crate) const EMPTY: HandleSlot = HandleSlot([0; 8]);

    /// Returns the output pointer for the library.
    pub(crate) fn out(&mut self) -> *mut Handle {
        ptr::from_mut(self).cast()
    }
}

impl MpiLibrary {
    /// Returns the address of one of the library's `PMPI_` functions.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        symbol(self.scope, name)
    }

    /// Returns the ABI for error classes: the standard one if the library's is unknown.
    pub(crate) fn abi_or_standard(&self) -> Abi {
        self.abi.unwrap_or(Abi::Standard)
    }

    /// Returns the handle that the library wrote.
    pub(crate) fn handle(&self, slot: &HandleSlot) -> Handle {
        let [a, b, c, d, ..] = slot.0;
        match self.abi {
            // An int argument is sign-extended.
            Some(Abi::Mpich) => i32::from_ne_bytes([a, b, c, d]) as isize as Handle,
            _ => Handle::from_ne_bytes(slot.0),
        }
    }
}

/// Declares functions of the library. Handles are passed as wide as a pointer: a callee that takes an `int` reads the
/// lower half of the register.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident = $symbol:literal ($($arg:ident: $type:ty),*);)*) => {
        impl MpiLibrary {
            $(
                $(#[$doc])*
                /// Returns the result of the library, or `None` if it lacks the function.
                ///
                /// # Safety
                /// The arguments are valid for MPI's prototype.
                pub(crate) unsafe fn $name(&self, $($arg: $type),*) -> Option<c_int> {
                    let function = self.function($symbol)?;
                    // SAFETY: the MPI standard defines this prototype for the function, except for the width of handles,
                    // which the macro documents.
                    let function = unsafe {
                        transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(function)
                    };
                    // SAFETY: guaranteed by the caller.
                    Some(unsafe { function($($arg),*) })
                }
            )*
        }
    };
}

calls! {
    fn num_psets = c"PMPI_Session_get_num_psets"(session: Handle, info: Handle, count: *mut c_int);
    fn nth_pset = c"PMPI_Session_get_nth_pset"(session: Handle, info: Handle, n: c_int, len: *mut c_int, name: *mut c_char);
    fn pset_info = c"PMPI_Session_get_pset_info"(session: Handle, name: *const c_char, info: *mut Handle);
    fn group_from_pset = c"PMPI_Group_from_session_pset"(session: Handle, name: *const c_char, group: *mut Handle);
    fn group_incl = c"PMPI_Group_incl"(group: Handle, count: c_int, ranks: *const c_int, new: *mut Handle);
    fn group_free = c"PMPI_Group_free"(group: *mut Handle);
    fn info_create = c"PMPI_Info_create"(info: *mut Handle);
    fn info_set = c"PMPI_Info_set"(info: Handle, key: *const c_char, value: *const c_char);
    fn call_errhandler = c"PMPI_Session_call_errhandler"(session: Handle, code: c_int);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_abi_follows_from_the_file_name() {
        assert_eq!(abi_of(b"/opt/mpich/lib/libmpi_abi.so.1.0.2"), Some(Abi::Standard));
        assert_eq!(abi_of(b"/opt/impi/lib/libmpi.so.12"), Some(Abi::Mpich));
        assert_eq!(abi_of(b"libmpich.so.12.2.0"), Some(Abi::Mpich));
        assert_eq!(abi_of(b"/usr/lib/libmpi.so.40"), None, "Open MPI has an ABI of its own");
    }

    #[test]
    fn handles_of_both_widths_are_read() {
        let library = |abi| MpiLibrary { scope: Scope(ptr::null_mut()), abi: Some(abi) };
        let mut slot = HandleSlot::EMPTY;
        slot.0[..4].copy_from_slice(&(-0x7800_0000_i32).to_ne_bytes());
        assert_eq!(library(Abi::Mpich).handle(&slot), -0x7800_0000_isize as usize);
        let slot = HandleSlot(0x1234_5678_9abc_usize.to_ne_bytes());
        assert_eq!(library(Abi::Standard).handle(&slot), 0x1234_5678_9abc);
    }
}
