//! Process sets: the queries of sessions, groups of sets, and the calls of `hydrant_mpi.h`.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

use super::arguments::{c_string, create, handle, with_length};
use super::fortran;
use super::route::{Calls, Route, route, symbol_name};
use crate::exports::{
    MPI_Group_from_session_pset, MPI_Session_get_nth_pset, MPI_Session_get_num_psets,
    MPI_Session_get_pset_info, hydrant_pset_define, hydrant_pset_difference, hydrant_pset_intersection,
    hydrant_pset_prune, hydrant_pset_retire, hydrant_pset_union,
};

fortran! {
    Calls::Extended;
    fn mpi_session_get_num_psets_, mpi_session_get_num_psets_f08_(
        session: *const c_int, info: *const c_int, count: *mut c_int
    ) MPI_Session_get_num_psets(handle(session), handle(info), count);
    fn mpi_session_get_nth_pset_, mpi_session_get_nth_pset_f08_(
        session: *const c_int, info: *const c_int, n: *const c_int, len: *mut c_int, name: *mut c_char; name_len
    ) {
        let call = |size, buffer| MPI_Session_get_nth_pset(handle(session), handle(info), *n, size, buffer);
        with_length(len, name, name_len, call, || true)
    };
    fn mpi_session_get_pset_info_, mpi_session_get_pset_info_f08_(
        session: *const c_int, name: *const c_char, info: *mut c_int; name_len
    ) create(info, |out| MPI_Session_get_pset_info(handle(session), c_string(name, name_len).as_ptr(), out));
    fn mpi_group_from_session_pset_, mpi_group_from_session_pset_f08_(
        session: *const c_int, name: *const c_char, group: *mut c_int; name_len
    ) create(group, |out| MPI_Group_from_session_pset(handle(session), c_string(name, name_len).as_ptr(), out));

    fn hydrant_pset_define_, hydrant_pset_define_f08_(
        session: *const c_int, name: *const c_char, count: *const c_int, ranks: *const c_int; name_len
    ) hydrant_pset_define(handle(session), c_string(name, name_len).as_ptr(), *count, ranks);
    fn hydrant_pset_retire_, hydrant_pset_retire_f08_(
        session: *const c_int, name: *const c_char; name_len
    ) hydrant_pset_retire(handle(session), c_string(name, name_len).as_ptr());
    fn hydrant_pset_prune_, hydrant_pset_prune_f08_(session: *const c_int) hydrant_pset_prune(handle(session));
    fn hydrant_pset_union_, hydrant_pset_union_f08_(
        session: *const c_int, one: *const c_char, other: *const c_char, name: *const c_char;
        one_len, other_len, name_len
    ) hydrant_pset_union(
        handle(session),
        c_string(one, one_len).as_ptr(),
        c_string(other, other_len).as_ptr(),
        c_string(name, name_len).as_ptr(),
    );
    fn hydrant_pset_intersection_, hydrant_pset_intersection_f08_(
        session: *const c_int, one: *const c_char, other: *const c_char, name: *const c_char;
        one_len, other_len, name_len
    ) hydrant_pset_intersection(
        handle(session),
        c_string(one, one_len).as_ptr(),
        c_string(other, other_len).as_ptr(),
        c_string(name, name_len).as_ptr(),
    );
    fn hydrant_pset_difference_, hydrant_pset_difference_f08_(
        session: *const c_int, one: *const c_char, other: *const c_char, name: *const c_char;
        one_len, other_len, name_len
    ) hydrant_pset_difference(
        handle(session),
        c_string(one, one_len).as_ptr(),
        c_string(other, other_len).as_ptr(),
        c_string(name, name_len).as_ptr(),
    );
}
