//! `MPI_GROUP_*` without groups of process sets.

use std::ffi::{c_int, c_void};
use std::mem::transmute;

use super::arguments::{create, handle, release};
use super::fortran;
use super::route::{Calls, Route, route, symbol_name};
use crate::exports::{
    MPI_Group_compare, MPI_Group_difference, MPI_Group_excl, MPI_Group_free, MPI_Group_incl,
    MPI_Group_intersection, MPI_Group_range_excl, MPI_Group_range_incl, MPI_Group_rank, MPI_Group_size,
    MPI_Group_translate_ranks, MPI_Group_union,
};

fortran! {
    Calls::Forwarded;
    fn mpi_group_size_, mpi_group_size_f08_(group: *const c_int, size: *mut c_int)
        MPI_Group_size(handle(group), size);
    fn mpi_group_rank_, mpi_group_rank_f08_(group: *const c_int, rank: *mut c_int)
        MPI_Group_rank(handle(group), rank);
    fn mpi_group_translate_ranks_, mpi_group_translate_ranks_f08_(
        group: *const c_int, n: *const c_int, ranks: *const c_int, other: *const c_int, out: *mut c_int
    ) MPI_Group_translate_ranks(handle(group), *n, ranks, handle(other), out);
    fn mpi_group_compare_, mpi_group_compare_f08_(
        group: *const c_int, other: *const c_int, result: *mut c_int
    ) MPI_Group_compare(handle(group), handle(other), result);
    fn mpi_group_union_, mpi_group_union_f08_(group: *const c_int, other: *const c_int, out: *mut c_int)
        create(out, |out| MPI_Group_union(handle(group), handle(other), out));
    fn mpi_group_intersection_, mpi_group_intersection_f08_(
        group: *const c_int, other: *const c_int, out: *mut c_int
    ) create(out, |out| MPI_Group_intersection(handle(group), handle(other), out));
    fn mpi_group_difference_, mpi_group_difference_f08_(
        group: *const c_int, other: *const c_int, out: *mut c_int
    ) create(out, |out| MPI_Group_difference(handle(group), handle(other), out));
    fn mpi_group_incl_, mpi_group_incl_f08_(
        group: *const c_int, n: *const c_int, ranks: *const c_int, out: *mut c_int
    ) create(out, |out| MPI_Group_incl(handle(group), *n, ranks, out));
    fn mpi_group_excl_, mpi_group_excl_f08_(
        group: *const c_int, n: *const c_int, ranks: *const c_int, out: *mut c_int
    ) create(out, |out| MPI_Group_excl(handle(group), *n, ranks, out));
    // An INTEGER array of 3 by n has the order of C's n by 3.
    fn mpi_group_range_incl_, mpi_group_range_incl_f08_(
        group: *const c_int, n: *const c_int, ranges: *const [c_int; 3], out: *mut c_int
    ) create(out, |out| MPI_Group_range_incl(handle(group), *n, ranges, out));
    fn mpi_group_range_excl_, mpi_group_range_excl_f08_(
        group: *const c_int, n: *const c_int, ranges: *const [c_int; 3], out: *mut c_int
    ) create(out, |out| MPI_Group_range_excl(handle(group), *n, ranges, out));
    fn mpi_group_free_, mpi_group_free_f08_(group: *mut c_int) release(group, |group| MPI_Group_free(group));
}
