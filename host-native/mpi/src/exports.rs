//! The exported C functions.
//!
//! The prototypes are those of the standard ABI, with `usize` for a handle. A program with MPICH's ABI passes `int`
//! handles. They are forwarded in the same register, and their upper half is never read.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use hydrant_wire::SetOperation;

use crate::abi::{Class, ErrhandlerFunction, Handle};
use crate::interpose::{self, MpiLibrary};
use crate::objects::{Group, UserFunction};
use crate::standalone::errhandler::{self, Target, finish};
use crate::standalone::group::Selection::{Exclude, Include};
use crate::standalone::{group, info, session};

/// Exports functions that are forwarded to the MPI library, or implemented here without one.
macro_rules! forward {
    ($(fn $name:ident as $symbol:literal ($($arg:ident: $type:ty),*), target $target:expr, $standalone:expr;)*) => {
        $(
            /// # Safety
            /// The arguments are valid for MPI's prototype.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub(crate) unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                let Some(library) = MpiLibrary::loaded() else {
                    // SAFETY: guaranteed by the caller.
                    #[allow(unused_unsafe)]
                    let result = unsafe { $standalone };
                    return finish($target, stringify!($name), result);
                };
                let Some(function) = library.function($symbol) else {
                    return Class::Unsupported.code(library.abi_or_standard());
                };
                // SAFETY: the MPI standard defines this prototype for the function, except for the width of handles, which
                // stay in their registers.
                let function = unsafe {
                    transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> c_int>(function)
                };
                // SAFETY: guaranteed by the caller.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

forward! {
    fn MPI_Info_create as c"PMPI_Info_create"(out: *mut Handle), target Target::Initial, info::create(out);
    fn MPI_Info_create_env as c"PMPI_Info_create_env"(argc: c_int, argv: *const *const c_char, out: *mut Handle),
        target Target::Initial, info::create_env(argc, argv, out);
    fn MPI_Info_set as c"PMPI_Info_set"(info: Handle, key: *const c_char, value: *const c_char),
        target Target::Initial, info::set(info, key, value);
    fn MPI_Info_delete as c"PMPI_Info_delete"(info: Handle, key: *const c_char),
        target Target::Initial, info::delete(info, key);
    fn MPI_Info_get as c"PMPI_Info_get"(
        info: Handle, key: *const c_char, valuelen: c_int, value: *mut c_char, flag: *mut c_int
    ), target Target::Initial, info::get(info, key, valuelen, value, flag);
    fn MPI_Info_get_valuelen as c"PMPI_Info_get_valuelen"(
        info: Handle, key: *const c_char, valuelen: *mut c_int, flag: *mut c_int
    ), target Target::Initial, info::get_valuelen(info, key, valuelen, flag);
    fn MPI_Info_get_string as c"PMPI_Info_get_string"(
        info: Handle, key: *const c_char, buflen: *mut c_int, value: *mut c_char, flag: *mut c_int
    ), target Target::Initial, info::get_string(info, key, buflen, value, flag);
    fn MPI_Info_get_nkeys as c"PMPI_Info_get_nkeys"(info: Handle, nkeys: *mut c_int),
        target Target::Initial, info::get_nkeys(info, nkeys);
    fn MPI_Info_get_nthkey as c"PMPI_Info_get_nthkey"(info: Handle, n: c_int, key: *mut c_char),
        target Target::Initial, info::get_nthkey(info, n, key);
    fn MPI_Info_dup as c"PMPI_Info_dup"(info: Handle, out: *mut Handle), target Target::Initial, info::dup(info, out);
    fn MPI_Info_free as c"PMPI_Info_free"(info: *mut Handle), target Target::Initial, info::free(info);

    fn MPI_Session_init as c"PMPI_Session_init"(info: Handle, errhandler: Handle, out: *mut Handle),
        target Target::Errhandler(errhandler), session::init(info, errhandler, out);
    fn MPI_Session_finalize as c"PMPI_Session_finalize"(session: *mut Handle),
        target Target::Initial, session::finalize(session);
    fn MPI_Session_get_info as c"PMPI_Session_get_info"(session: Handle, out: *mut Handle),
        target Target::Session(session), session::get_info(session, out);
    fn MPI_Session_create_errhandler as c"PMPI_Session_create_errhandler"(
        function: Option<ErrhandlerFunction>, out: *mut Handle
    ), target Target::Initial, errhandler::create(function.map(UserFunction::C), out);
    fn MPI_Session_set_errhandler as c"PMPI_Session_set_errhandler"(session: Handle, errhandler: Handle),
        target Target::Session(session), errhandler::set(session, errhandler);
    fn MPI_Session_get_errhandler as c"PMPI_Session_get_errhandler"(session: Handle, out: *mut Handle),
        target Target::Session(session), errhandler::get(session, out);
    fn MPI_Group_size as c"PMPI_Group_size"(group: Handle, size: *mut c_int),
        target Target::Group(group), group::size(group, size);
    fn MPI_Group_rank as c"PMPI_Group_rank"(group: Handle, rank: *mut c_int),
        target Target::Group(group), group::rank(group, rank);
    fn MPI_Group_translate_ranks as c"PMPI_Group_translate_ranks"(
        group: Handle, n: c_int, ranks: *const c_int, other: Handle, out: *mut c_int
    ), target Target::Group(group), group::translate_ranks(group, n, ranks, other, out);
    fn MPI_Group_compare as c"PMPI_Group_compare"(group: Handle, other: Handle, result: *mut c_int),
        target Target::Group(group), group::compare(group, other, result);
    fn MPI_Group_union as c"PMPI_Group_union"(group: Handle, other: Handle, out: *mut Handle),
        target Target::Group(group), group::combine(group, other, out, Group::union);
    fn MPI_Group_intersection as c"PMPI_Group_intersection"(group: Handle, other: Handle, out: *mut Handle),
        target Target::Group(group), group::combine(group, other, out, Group::intersection);
    fn MPI_Group_difference as c"PMPI_Group_difference"(group: Handle, other: Handle, out: *mut Handle),
        target Target::Group(group), group::combine(group, other, out, Group::difference);
    fn MPI_Group_incl as c"PMPI_Group_incl"(group: Handle, n: c_int, ranks: *const c_int, out: *mut Handle),
        target Target::Group(group), group::of_ranks(group, n, ranks, out, Include);
    fn MPI_Group_excl as c"PMPI_Group_excl"(group: Handle, n: c_int, ranks: *const c_int, out: *mut Handle),
        target Target::Group(group), group::of_ranks(group, n, ranks, out, Exclude);
    fn MPI_Group_range_incl as c"PMPI_Group_range_incl"(
        group: Handle, n: c_int, ranges: *const [c_int; 3], out: *mut Handle
    ), target Target::Group(group), group::of_ranges(group, n, ranges, out, Include);
    fn MPI_Group_range_excl as c"PMPI_Group_range_excl"(
        group: Handle, n: c_int, ranges: *const [c_int; 3], out: *mut Handle
    ), target Target::Group(group), group::of_ranges(group, n, ranges, out, Exclude);
    fn MPI_Group_free as c"PMPI_Group_free"(group: *mut Handle), target Target::Initial, group::free(group);

    fn MPI_Errhandler_free as c"PMPI_Errhandler_free"(errhandler: *mut Handle),
        target Target::Initial, errhandler::free(errhandler);
}

/// # Safety
/// The arguments are valid for MPI's prototype.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub(crate) unsafe extern "C" fn MPI_Session_call_errhandler(session: Handle, code: c_int) -> c_int {
    match MpiLibrary::loaded() {
        // SAFETY: guaranteed by the caller.
        Some(library) => unsafe { library.call_errhandler(session, code) }
            .unwrap_or(Class::Unsupported.code(library.abi_or_standard())),
        None => errhandler::call(session, code),
    }
}

/// Exports functions that have an implementation for each way of use.
macro_rules! interpose {
    ($(
        fn $name:ident($session:ident: Handle $(, $arg:ident: $type:ty)*),
        $interposed:path, $standalone:path $(, with $operation:path)?;
    )*) => {
        $(
            /// # Safety
            /// The arguments are valid for the prototype.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub(crate) unsafe extern "C" fn $name($session: Handle $(, $arg: $type)*) -> c_int {
                match MpiLibrary::loaded() {
                    // SAFETY: guaranteed by the caller.
                    #[allow(unused_unsafe)]
                    Some(library) => unsafe { $interposed(library, $session $(, $arg)* $(, $operation)?) },
                    None => {
                        // SAFETY: guaranteed by the caller.
                        #[allow(unused_unsafe)]
                        let result = unsafe { $standalone($session $(, $arg)* $(, $operation)?) };
                        finish(Target::Session($session), stringify!($name), result)
                    }
                }
            }
        )*
    };
}

interpose! {
    fn MPI_Session_get_num_psets(session: Handle, info: Handle, count: *mut c_int),
        interpose::num_psets, session::num_psets;
    fn MPI_Session_get_nth_pset(session: Handle, info: Handle, n: c_int, len: *mut c_int, name: *mut c_char),
        interpose::nth_pset, session::nth_pset;
    fn MPI_Session_get_pset_info(session: Handle, name: *const c_char, out: *mut Handle),
        interpose::pset_info, session::pset_info;
    fn MPI_Group_from_session_pset(session: Handle, name: *const c_char, out: *mut Handle),
        interpose::group_from_pset, group::from_pset;
    fn hydrant_pset_define(session: Handle, name: *const c_char, count: c_int, ranks: *const c_int),
        interpose::define, session::define;
    fn hydrant_pset_retire(session: Handle, name: *const c_char), interpose::retire, session::retire;
    fn hydrant_pset_prune(session: Handle), interpose::prune, session::prune;
    fn hydrant_pset_union(session: Handle, one: *const c_char, other: *const c_char, name: *const c_char),
        interpose::combine, session::combine, with SetOperation::Union;
    fn hydrant_pset_intersection(session: Handle, one: *const c_char, other: *const c_char, name: *const c_char),
        interpose::combine, session::combine, with SetOperation::Intersection;
    fn hydrant_pset_difference(session: Handle, one: *const c_char, other: *const c_char, name: *const c_char),
        interpose::combine, session::combine, with SetOperation::Difference;
}
