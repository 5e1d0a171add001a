//! The process sets that this process is in: hydrant's, or those that every process has.

use std::env;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{Class, Error};
use crate::query::{QueryConnection, ranges};
use hydrant_client::{QUERY, rank_and_size};

pub(crate) const WORLD: &str = "mpi://WORLD";
const SELF: &str = "mpi://SELF";
/// What names of MPI's own sets begin with.
const RESERVED: &[u8] = b"mpi://";

/// The connection to hydrant, once there has been a question.
static CHANNEL: Mutex<Option<QueryConnection>> = Mutex::new(None);

fn channel() -> MutexGuard<'static, Option<QueryConnection>> {
    CHANNEL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the process was started by a hydrant that answers queries.
pub(crate) fn is_served() -> bool {
    env::var_os(QUERY).is_some()
}

/// Puts a question to hydrant. A connection that broke is made anew by the next one.
fn ask<T>(question: impl FnOnce(&mut QueryConnection) -> Result<T, Error>) -> Result<T, Error> {
    let mut slot = channel();
    let usable = slot.take().filter(QueryConnection::is_usable);
    let mut channel = match usable {
        Some(channel) => channel,
        None => QueryConnection::open()?,
    };
    let answer = question(&mut channel);
    *slot = Some(channel);
    answer
}

/// Rank and size without hydrant: what another launcher says, or a process alone.
fn alone() -> (u32, u32) {
    rank_and_size(env::var_os).unwrap_or((0, 1))
}

/// How many sets this process is in.
pub(crate) fn count() -> Result<u32, Error> {
    if is_served() { ask(QueryConnection::count) } else { Ok(2) }
}

/// The name of the set with that index.
pub(crate) fn name(index: u32) -> Result<Option<String>, Error> {
    if is_served() {
        return ask(|channel| channel.name(index));
    }
    Ok([WORLD, SELF].get(index as usize).map(|name| (*name).to_owned()))
}

/// How many processes are in a set that this one is in; nothing when it is in none of that name.
pub(crate) fn size(name: &[u8]) -> Result<Option<u32>, Error> {
    if is_served() {
        return ask(|channel| channel.size(name));
    }
    Ok(match name {
        name if name.eq_ignore_ascii_case(WORLD.as_bytes()) => Some(alone().1),
        name if name.eq_ignore_ascii_case(SELF.as_bytes()) => Some(1),
        _ => None,
    })
}

/// The ranks in `mpi://WORLD` of those in a set that this process is in.
pub(crate) fn members(name: &[u8]) -> Result<Option<Vec<c_int>>, Error> {
    ask(|channel| channel.members(name))
}

/// Defines a set of ranks of `mpi://WORLD`.
pub(crate) fn define(name: &[u8], ranks: &[c_int]) -> Result<(), Error> {
    if !is_served() {
        let text = "process sets are defined under hydrant run --mpi-psets alone";
        return Err(Error::new(Class::Unsupported, text));
    }
    let list = ranges(ranks)?;
    ask(|channel| channel.define(name, &list))
}

/// Whether the name is one of MPI's own, whichever library it is asked of.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}

pub(crate) fn unknown(name: &[u8]) -> Error {
    let name = name.escape_ascii();
    Error::new(Class::Arg, format!("there is no process set {name}, or this process is not in it"))
}
