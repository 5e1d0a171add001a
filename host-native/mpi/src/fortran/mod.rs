//! The exported Fortran bindings: the names of `mpif.h`, which end in `_`, and those of module `mpi_f08`, which end in
//! `_f08_` (MPI 5.0, 19.1).
//!
//! They are the C calls with converted arguments, and share objects and handles with them. Arguments are passed by
//! reference: handles as INTEGER, LOGICAL as 0 or 1. The lengths of CHARACTER arguments follow the last argument, as
//! gfortran 8 and later pass them. `IERROR` may be absent in `mpi_f08`, and is null then.

mod arguments;
mod group;
mod info;
mod route;
mod session;
mod sets;

/// Exports Fortran bindings under both of their names. `$calls` says what a preloaded library does with them.
macro_rules! fortran {
    ($calls:expr; $(
        fn $name:ident, $f08:ident($($arg:ident: $type:ty),* $(; $($len:ident),*)?) $body:expr;
    )*) => {
        $(
            $crate::fortran::entry!($calls, $name, ($($arg: $type),*), ($($($len),*)?), $body);
            $crate::fortran::entry!($calls, $f08, ($($arg: $type),*), ($($($len),*)?), $body);
        )*
    };
}

/// Exports one Fortran binding.
macro_rules! entry {
    ($calls:expr, $name:ident, ($($arg:ident: $type:ty),*), ($($len:ident),*), $body:expr) => {
        /// # Safety
        /// The arguments are valid for MPI's Fortran prototype, followed by the lengths of the character arguments.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $type,)* ierror: *mut c_int $(, $len: usize)*) {
            let code = match route($calls, symbol_name(concat!(stringify!($name), "\0"))) {
                // SAFETY: guaranteed by the caller.
                Route::Here => unsafe { $body },
                Route::Unsupported(code) => code,
                Route::Forward(function) => {
                    // SAFETY: the MPI standard defines this prototype for the function.
                    let function = unsafe {
                        transmute::<
                            *const c_void,
                            unsafe extern "C" fn($($type,)* *mut c_int $(, $crate::fortran::length!($len))*),
                        >(function)
                    };
                    // SAFETY: guaranteed by the caller.
                    return unsafe { function($($arg,)* ierror $(, $len)*) };
                }
            };
            // SAFETY: null or guaranteed by the caller.
            if let Some(ierror) = unsafe { ierror.as_mut() } {
                *ierror = code;
            }
        }
    };
}

/// The type of a hidden length.
macro_rules! length {
    ($len:ident) => {
        usize
    };
}

use {entry, fortran, length};
