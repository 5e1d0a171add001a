//! `MPI_Group_*` (MPI 5.0, 7.3): groups of processes from process sets. All calls are local.

use std::env;
use std::ffi::{c_char, c_int};
use std::slice;

use hydrant_client::rank_and_size;

use crate::abi::{Class, GROUP_NULL, Handle};
use crate::cpointer::{bytes, put};
use crate::error::Error;
use crate::objects::{Group, lock};
use crate::psets::{self, Process};
use crate::standalone::session;

/// Writes the handle of a group that is derived from others.
///
/// # Safety
/// `out` is null or may be written to.
unsafe fn put_group(out: *mut Handle, make: impl FnOnce() -> Result<Group, Error>) -> Result<(), Error> {
    if out.is_null() {
        return Err(Error::null("the group"));
    }
    let group = make()?;
    let handle = lock().groups.insert(group);
    // SAFETY: guaranteed by the caller.
    unsafe { put(out, handle, "the group") }
}

/// Returns an array argument.
///
/// # Safety
/// `items` is null or has `count` elements that live for `'a`.
unsafe fn array<'a, T>(count: c_int, items: *const T, what: &'static str) -> Result<&'a [T], Error> {
    let count = usize::try_from(count).map_err(|_| Error::NegativeLength)?;
    match count {
        0 => Ok(&[]),
        _ if items.is_null() => Err(Error::null(what)),
        // SAFETY: guaranteed by the caller.
        _ => Ok(unsafe { slice::from_raw_parts(items, count) }),
    }
}

/// `MPI_Group_from_session_pset`.
///
/// # Safety
/// `name` is null or a C string; `out` is null or may be written to.
pub(crate) unsafe fn from_pset(session: Handle, name: *const c_char, out: *mut Handle) -> Result<(), Error> {
    lock().sessions.get(session)?;
    // SAFETY: guaranteed by the caller.
    let name = unsafe { bytes(name, Class::Arg, "the name")? };
    let make = || {
        drop(session::list()?);
        let members = psets::members(name)?.ok_or_else(|| Error::NoPset(name.to_vec()))?;
        Ok(Group::new(session, members))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { put_group(out, make) }
}

/// `MPI_Group_size`.
///
/// # Safety
/// `size` is null or may be written to.
pub(crate) unsafe fn size(group: Handle, size: *mut c_int) -> Result<(), Error> {
    let value = lock().groups.get(group)?.size();
    // SAFETY: guaranteed by the caller.
    unsafe { put(size, value, "the size") }
}

/// `MPI_Group_rank`.
///
/// # Safety
/// `rank` is null or may be written to.
pub(crate) unsafe fn rank(group: Handle, rank: *mut c_int) -> Result<(), Error> {
    let process = rank_and_size(env::var_os).map_or(0, |(rank, _)| rank as c_int);
    let value = lock().groups.get(group)?.rank(Process::own(process));
    // SAFETY: guaranteed by the caller.
    unsafe { put(rank, value, "the rank") }
}

/// `MPI_Group_translate_ranks`.
///
/// # Safety
/// `ranks` is null or has `count` elements; `out` is null or may be written to for `count` elements.
pub(crate) unsafe fn translate_ranks(
    group: Handle,
    count: c_int,
    ranks: *const c_int,
    other: Handle,
    out: *mut c_int,
) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let ranks = unsafe { array(count, ranks, "the array of ranks")? };
    let translated = {
        let objects = lock();
        objects.groups.get(group)?.translate(ranks, objects.groups.get(other)?)?
    };
    if translated.is_empty() {
        return Ok(());
    }
    if out.is_null() {
        return Err(Error::null("the array of translated ranks"));
    }
    // SAFETY: it is not null and has that many elements, guaranteed by the caller. It may be the array of ranks.
    unsafe { out.copy_from_nonoverlapping(translated.as_ptr(), translated.len()) };
    Ok(())
}

/// `MPI_Group_compare`.
///
/// # Safety
/// `result` is null or may be written to.
pub(crate) unsafe fn compare(group: Handle, other: Handle, result: *mut c_int) -> Result<(), Error> {
    let value = {
        let objects = lock();
        objects.groups.get(group)?.compare(objects.groups.get(other)?)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { put(result, value, "the result") }
}

/// `MPI_Group_union`, `MPI_Group_intersection` and `MPI_Group_difference`.
///
/// # Safety
/// `out` is null or may be written to.
pub(crate) unsafe fn combine(
    group: Handle,
    other: Handle,
    out: *mut Handle,
    operation: fn(&Group, &Group) -> Group,
) -> Result<(), Error> {
    let make = || {
        let objects = lock();
        Ok(operation(objects.groups.get(group)?, objects.groups.get(other)?))
    };
    // SAFETY: guaranteed by the caller.
    unsafe { put_group(out, make) }
}

/// Whether an operation on ranks keeps or removes their processes.
#[derive(Clone, Copy)]
pub(crate) enum Selection {
    Include,
    Exclude,
}

fn select(group: &Group, ranks: &[c_int], selection: Selection) -> Result<Group, Error> {
    let ranks = ranks.iter().copied();
    match selection {
        Selection::Include => group.include(ranks),
        Selection::Exclude => group.exclude(ranks),
    }
}

/// `MPI_Group_incl` and `MPI_Group_excl`.
///
/// # Safety
/// `ranks` is null or has `count` elements; `out` is null or may be written to.
pub(crate) unsafe fn of_ranks(
    group: Handle,
    count: c_int,
    ranks: *const c_int,
    out: *mut Handle,
    selection: Selection,
) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let ranks = unsafe { array(count, ranks, "the array of ranks")? };
    // SAFETY: guaranteed by the caller.
    unsafe { put_group(out, || select(lock().groups.get(group)?, ranks, selection)) }
}

/// `MPI_Group_range_incl` and `MPI_Group_range_excl`.
///
/// # Safety
/// `ranges` is null or has `count` elements; `out` is null or may be written to.
pub(crate) unsafe fn of_ranges(
    group: Handle,
    count: c_int,
    ranges: *const [c_int; 3],
    out: *mut Handle,
    selection: Selection,
) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let ranges = unsafe { array(count, ranges, "the array of ranges")? };
    let make = || {
        let objects = lock();
        let group = objects.groups.get(group)?;
        select(group, &group.ranks_of(ranges)?, selection)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { put_group(out, make) }
}

/// `MPI_Group_free`.
///
/// # Safety
/// `group` is null or may be read and written.
pub(crate) unsafe fn free(group: *mut Handle) -> Result<(), Error> {
    // SAFETY: guaranteed by the caller.
    let group = unsafe { group.as_mut() }.ok_or_else(|| Error::null("the group"))?;
    lock().groups.remove(*group)?;
    *group = GROUP_NULL;
    Ok(())
}
