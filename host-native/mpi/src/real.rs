//! The MPI library that the process has besides this one, if it has.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::OnceLock;

use crate::abi::{Abi, Handle};

/// An MPI library, by its profiling interface (MPI 5.0, chapter 15): each call under its `PMPI_` name.
pub(crate) struct Real {
    /// What its symbols are looked up in.
    scope: Scope,
    /// The numbers that it goes by; nothing where that is not known, and process sets cannot be added to its own.
    pub(crate) abi: Option<Abi>,
}

#[derive(Clone, Copy)]
struct Scope(*mut c_void);

// SAFETY: a handle of the dynamic linker, which any thread may use; it is never closed.
unsafe impl Send for Scope {}
// SAFETY: as above.
unsafe impl Sync for Scope {}

/// Libraries that an interpreter loads for its own module alone (Python's mpi4py), where only their name leads to them.
const SONAMES: [&CStr; 4] = [c"libmpi_abi.so.1", c"libmpi_abi.so.0", c"libmpi.so.12", c"libmpich.so.12"];

/// The MPI library, looked for once: whoever has begun to call MPI has loaded it.
pub(crate) fn real() -> Option<&'static Real> {
    static REAL: OnceLock<Option<Real>> = OnceLock::new();
    REAL.get_or_init(find).as_ref()
}

fn find() -> Option<Real> {
    let all = Scope(libc::RTLD_DEFAULT);
    if let Some(found) = look_in(all) {
        return Some(found);
    }
    SONAMES.iter().find_map(|name| {
        // SAFETY: a C string; nothing is loaded that is not there already, so no code of the library runs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() { None } else { look_in(Scope(handle)) }
    })
}

fn look_in(scope: Scope) -> Option<Real> {
    let address = symbol(scope, c"PMPI_Session_init")?;
    // SAFETY: all-zero is a value of this plain struct.
    let mut place: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call takes any address and writes to the struct.
    let known = unsafe { libc::dladdr(address, &mut place) } != 0 && !place.dli_fname.is_null();
    // SAFETY: a C string of the dynamic linker's that lives as long as the library is loaded.
    let file = if known { unsafe { CStr::from_ptr(place.dli_fname) } } else { c"" };
    Some(Real { scope, abi: abi_of(file.to_bytes()) })
}

/// Whose numbers a library of that file name goes by.
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

/// Room for a handle that a library writes, whichever its width.
#[repr(C, align(8))]
pub(crate) struct Slot([u8; 8]);

impl Slot {
    pub(crate) const EMPTY: Slot = Slot([0; 8]);

    /// Where the library writes it.
    pub(crate) fn out(&mut self) -> *mut Handle {
        ptr::from_mut(self).cast()
    }
}

impl Real {
    /// The address of the library's own function, which is named `PMPI_…`.
    pub(crate) fn function(&self, name: &CStr) -> Option<*const c_void> {
        symbol(self.scope, name)
    }

    /// A handle that the library has written.
    pub(crate) fn handle(&self, slot: &Slot) -> Handle {
        let [a, b, c, d, ..] = slot.0;
        match self.abi {
            // An int is handed over sign-extended.
            Some(Abi::Mpich) => i32::from_ne_bytes([a, b, c, d]) as isize as Handle,
            _ => Handle::from_ne_bytes(slot.0),
        }
    }
}

/// Declares how a library's functions are called. Handles are passed as wide as a pointer: callees that take an `int`
/// read the low half of the register.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident = $symbol:literal ($($arg:ident: $type:ty),*);)*) => {
        impl Real {
            $(
                $(#[$doc])*
                /// What the library returns; nothing where it has no such function.
                ///
                /// # Safety
                /// The arguments are what MPI's prototype says.
                pub(crate) unsafe fn $name(&self, $($arg: $type),*) -> Option<c_int> {
                    let function = self.function($symbol)?;
                    // SAFETY: the MPI standard gives the function of that name this prototype, but for the width of
                    // handles, which is as described above.
                    let function = unsafe {
                        transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(function)
                    };
                    // SAFETY: as the caller says.
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

impl Abi {
    /// `MPI_INFO_NULL`
    pub(crate) fn info_null(self) -> Handle {
        match self {
            Abi::Standard => crate::abi::INFO_NULL,
            Abi::Mpich => 0x1c00_0000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_known_by_their_file() {
        assert_eq!(abi_of(b"/opt/mpich/lib/libmpi_abi.so.1.0.2"), Some(Abi::Standard));
        assert_eq!(abi_of(b"/opt/impi/lib/libmpi.so.12"), Some(Abi::Mpich));
        assert_eq!(abi_of(b"libmpich.so.12.2.0"), Some(Abi::Mpich));
        assert_eq!(abi_of(b"/usr/lib/libmpi.so.40"), None, "Open MPI's numbers are its own");
    }

    #[test]
    fn both_widths_of_handles_are_read() {
        let real = |abi| Real { scope: Scope(ptr::null_mut()), abi: Some(abi) };
        let mut slot = Slot::EMPTY;
        slot.0[..4].copy_from_slice(&(-0x7800_0000_i32).to_ne_bytes());
        assert_eq!(real(Abi::Mpich).handle(&slot), -0x7800_0000_isize as usize);
        let slot = Slot(0x1234_5678_9abc_usize.to_ne_bytes());
        assert_eq!(real(Abi::Standard).handle(&slot), 0x1234_5678_9abc);
    }
}
