//! Process sets of which this process is a member: those of hydrant, or those of every process without hydrant.

use std::env;
use std::ffi::c_int;
use std::iter;
use std::sync::{Mutex, PoisonError};

use hydrant_client::{QUERY, rank_and_size};

use crate::error::Error;
use crate::query::{QueryConnection, ranges};

/// The sets that every process has.
pub(crate) const STANDARD: [&str; 2] = [WORLD, SELF];
const WORLD: &str = "mpi://WORLD";
const SELF: &str = "mpi://SELF";
/// Prefix of the names that the MPI standard reserves.
const RESERVED: &[u8] = b"mpi://";
/// Prefix of the name of the set of a program's processes.
const PROGRAM: &str = "hydrant://app/";

/// The connection to hydrant, after the first request.
static CONNECTION: Mutex<Option<QueryConnection>> = Mutex::new(None);

/// Whether hydrant answers queries of this process.
pub(crate) fn is_served() -> bool {
    env::var_os(QUERY).is_some()
}

/// Sends a request to hydrant, over a new connection if there is no usable one.
fn request<T>(send: impl FnOnce(&mut QueryConnection) -> Result<T, Error>) -> Result<T, Error> {
    let mut slot = CONNECTION.lock().unwrap_or_else(PoisonError::into_inner);
    let usable = slot.take().filter(QueryConnection::is_usable);
    let connection = match usable {
        Some(connection) => connection,
        None => QueryConnection::open()?,
    };
    send(slot.insert(connection))
}

/// Returns the size of `mpi://WORLD` without hydrant's process sets: that of the launcher's job, or 1.
fn world_size() -> u32 {
    rank_and_size(env::var_os).map_or(1, |(_, size)| size)
}

/// Returns name and serial number of the first of hydrant's sets after the one with serial number `after`.
pub(crate) fn next(after: u32) -> Result<Option<(String, u32)>, Error> {
    if is_served() { request(|connection| connection.next(after)) } else { Ok(None) }
}

/// Returns the number of members of a set, or `None` if there is no set of that name.
pub(crate) fn size(name: &[u8]) -> Result<Option<u32>, Error> {
    if is_served() {
        return request(|connection| connection.size(name));
    }
    Ok(match name {
        name if name.eq_ignore_ascii_case(WORLD.as_bytes()) => Some(world_size()),
        name if name.eq_ignore_ascii_case(SELF.as_bytes()) => Some(1),
        _ => None,
    })
}

/// Returns the members of a set, as ranks in `mpi://WORLD`.
pub(crate) fn members(name: &[u8]) -> Result<Option<Vec<c_int>>, Error> {
    if is_served() {
        return request(|connection| connection.members(name));
    }
    let (rank, size) = rank_and_size(env::var_os).unwrap_or((0, 1));
    Ok(match name {
        name if name.eq_ignore_ascii_case(WORLD.as_bytes()) => Some((0..size as c_int).collect()),
        name if name.eq_ignore_ascii_case(SELF.as_bytes()) => Some(vec![rank as c_int]),
        _ => None,
    })
}

/// Defines a set of ranks of `mpi://WORLD`.
pub(crate) fn define(name: &[u8], ranks: &[c_int]) -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    let list = ranges(ranks)?;
    request(|connection| connection.define(name, &list))
}

/// Retires a set.
pub(crate) fn retire(name: &[u8]) -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    request(|connection| connection.retire(name))
}

/// Removes the retired sets of this process at hydrant.
pub(crate) fn prune() -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    request(QueryConnection::prune)
}

/// Returns the number of processes of this process's program. Returns `None` if it is unknown.
pub(crate) fn program_size() -> Option<u32> {
    if !is_served() {
        return None;
    }
    // hydrant defines its own sets before any rank defines one.
    let mut sets = iter::successors(next(0).ok()?, |(_, serial)| next(*serial).ok()?);
    let (program, _) = sets.find(|(name, _)| name.starts_with(PROGRAM))?;
    size(program.as_bytes()).ok()?
}

/// Whether the MPI standard reserves the name. Its sets belong to the MPI library.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}
