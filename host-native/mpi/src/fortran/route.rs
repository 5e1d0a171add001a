//! Route of a Fortran call: here, or to the MPI library of the process.

use std::ffi::{CStr, c_int, c_void};

use crate::abi::{Abi, Class};
use crate::interpose::{MpiLibrary, extended_abi, next_definition};

/// What is done with calls in front of an MPI library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Calls {
    /// They are forwarded.
    Forwarded,
    /// hydrant's process sets are added. They cannot be forwarded: modules `mpi_f08` call `PMPI_` functions, which
    /// are the library's, and wrappers differ in lengths and in the first index.
    Extended,
}

/// Where a call is carried out.
pub(super) enum Route {
    /// By the C functions of this library.
    Here,
    /// By this function of the MPI library.
    Forward(*const c_void),
    /// Nowhere. This is the error code.
    Unsupported(c_int),
}

/// Returns where the binding of that name is carried out.
pub(super) fn route(calls: Calls, name: &CStr) -> Route {
    let Some(library) = MpiLibrary::loaded() else { return Route::Here };
    // An INTEGER is a handle of that ABI. The standard ABI's would need the library's conversion.
    let converts = library.abi == Some(Abi::Mpich);
    if converts && calls == Calls::Extended && extended_abi(library).is_some() {
        return Route::Here;
    }
    match next_definition(name) {
        Some(function) => Route::Forward(function),
        // The process has the MPI library for C only.
        None if converts => Route::Here,
        None => Route::Unsupported(Class::Unsupported.code(library.abi_or_standard())),
    }
}

/// Returns the name of a symbol from its bytes with NUL.
pub(super) fn symbol_name(name: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(name.as_bytes()).expect("the macro ends the name in NUL")
}
