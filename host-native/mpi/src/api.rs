//! The names that C programs call, all of them here.
//!
//! Prototypes are those of the standard ABI with a handle as a `usize`. A program of MPICH's ABI calls them with `int`
//! handles, which are passed on in the register that they came in: nothing here looks at their upper half.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use crate::abi::{Abi, Class, Handle};
use crate::errhandler::{self, Function, On, finish};
use crate::real::real;
use crate::{beside, info, session};

/// Calls that an MPI library does itself where there is one, and this library otherwise.
macro_rules! passed_on {
    ($(fn $name:ident as $symbol:literal ($($arg:ident: $type:ty),*), on $on:expr, $own:expr;)*) => {
        $(
            /// # Safety
            /// The arguments are what MPI's prototype says.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let Some(real) = real() else {
                    // SAFETY: as the caller says.
                    #[allow(unused_unsafe)]
                    let result = unsafe { $own };
                    return finish($on, stringify!($name), result);
                };
                let Some(function) = real.function($symbol) else {
                    return Class::Unsupported.code(real.abi.unwrap_or(Abi::Standard));
                };
                // SAFETY: the MPI standard gives the function of that name this prototype, but for the width of
                // handles, which stay in their registers as they are.
                let function = unsafe {
                    transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(function)
                };
                // SAFETY: as the caller says.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

passed_on! {
    fn MPI_Info_create as c"PMPI_Info_create"(out: *mut Handle), on On::Initial, info::create(out);
    fn MPI_Info_create_env as c"PMPI_Info_create_env"(argc: c_int, argv: *const *const c_char, out: *mut Handle),
        on On::Initial, info::create_env(argc, argv, out);
    fn MPI_Info_set as c"PMPI_Info_set"(info: Handle, key: *const c_char, value: *const c_char),
        on On::Initial, info::set(info, key, value);
    fn MPI_Info_delete as c"PMPI_Info_delete"(info: Handle, key: *const c_char),
        on On::Initial, info::delete(info, key);
    fn MPI_Info_get as c"PMPI_Info_get"(
        info: Handle, key: *const c_char, valuelen: c_int, value: *mut c_char, flag: *mut c_int
    ), on On::Initial, info::get(info, key, valuelen, value, flag);
    fn MPI_Info_get_valuelen as c"PMPI_Info_get_valuelen"(
        info: Handle, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int
    ), on On::Initial, info::get_valuelen(info, key, valuelen, flag);
    fn MPI_Info_get_string as c"PMPI_Info_get_string"(
        info: Handle, key: *const c_char, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int
    ), on On::Initial, info::get_string(info, key, buflen, value, flag);
    fn MPI_Info_get_nkeys as c"PMPI_Info_get_nkeys"(info: Handle, nkeys: *mut c_int),
        on On::Initial, info::get_nkeys(info, nkeys);
    fn MPI_Info_get_nthkey as c"PMPI_Info_get_nthkey"(info: Handle, n: c_int, key: *mut c_char),
        on On::Initial, info::get_nthkey(info, n, key);
    fn MPI_Info_dup as c"PMPI_Info_dup"(info: Handle, out: *mut Handle), on On::Initial, info::dup(info, out);
    fn MPI_Info_free as c"PMPI_Info_free"(info: *mut Handle), on On::Initial, info::free(info);

    fn MPI_Session_init as c"PMPI_Session_init"(info: Handle, errhandler: Handle, out: *mut Handle),
        on On::Handler(errhandler), session::init(info, errhandler, out);
    fn MPI_Session_finalize as c"PMPI_Session_finalize"(session: *mut Handle),
        on On::Initial, session::finalize(session);
    fn MPI_Session_get_info as c"PMPI_Session_get_info"(session: Handle, out: *mut Handle),
        on On::Session(session), session::get_info(session, out);
    fn MPI_Session_create_errhandler as c"PMPI_Session_create_errhandler"(
        function: Option<Function>, out: *mut Handle
    ), on On::Initial, errhandler::create(function, out);
    fn MPI_Session_set_errhandler as c"PMPI_Session_set_errhandler"(session: Handle, errhandler: Handle),
        on On::Session(session), errhandler::set(session, errhandler);
    fn MPI_Session_get_errhandler as c"PMPI_Session_get_errhandler"(session: Handle, out: *mut Handle),
        on On::Session(session), errhandler::get(session, out);
    fn MPI_Errhandler_free as c"PMPI_Errhandler_free"(errhandler: *mut Handle),
        on On::Initial, errhandler::free(errhandler);
}

/// # Safety
/// The arguments are what MPI's prototype says.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
unsafe extern "C" fn MPI_Session_call_errhandler(session: Handle, code: c_int) -> c_int {
    match real() {
        // SAFETY: as the caller says.
        Some(real) => unsafe { real.call_errhandler(session, code) }
            .unwrap_or(Class::Unsupported.code(real.abi.unwrap_or(Abi::Standard))),
        None => errhandler::call(session, code),
    }
}

/// Calls that this library adds something to.
macro_rules! added_to {
    ($(fn $name:ident($session:ident: Handle $(, $arg:ident: $type:ty)*), $beside:path, $own:path;)*) => {
        $(
            /// # Safety
            /// The arguments are what the prototype says.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            unsafe extern "C" fn $name($session: Handle $(, $arg: $type)*) -> c_int {
                match real() {
                    // SAFETY: as the caller says.
                    Some(real) => unsafe { $beside(real, $session $(, $arg)*) },
                    None => {
                        // SAFETY: as the caller says.
                        let result = unsafe { $own($session $(, $arg)*) };
                        finish(On::Session($session), stringify!($name), result)
                    }
                }
            }
        )*
    };
}

added_to! {
    fn MPI_Session_get_num_psets(session: Handle, info: Handle, count: *mut c_int),
        beside::num_psets, session::num_psets;
    fn MPI_Session_get_nth_pset(session: Handle, info: Handle, n: c_int, len: *mut c_int, name: *mut c_char),
        beside::nth_pset, session::nth_pset;
    fn MPI_Session_get_pset_info(session: Handle, name: *const c_char, out: *mut Handle),
        beside::pset_info, session::pset_info;
    fn MPI_Group_from_session_pset(session: Handle, name: *const c_char, out: *mut Handle),
        beside::group_from_pset, session::no_groups;
    fn hydrant_pset_define(session: Handle, name: *const c_char, count: c_int, ranks: *const c_int),
        beside::define, session::define;
}
