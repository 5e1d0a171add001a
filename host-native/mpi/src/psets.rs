//! Process sets of which this process is a member: those of hydrant, or those of every process without hydrant.

use std::env;
use std::ffi::c_int;
use std::iter;
use std::sync::{Mutex, PoisonError};

use hydrant_client::{QUERY, rank_and_size};
use hydrant_wire::SetOperation;

use crate::abi::Class;
use crate::error::Error;
use crate::pset_list::PsetList;
use crate::query::{QueryConnection, format_ranks};

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

/// Job ids of the other jobs whose processes are in sets of this process. The position of a job is its number less one.
static JOBS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Process in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Process {
    /// 0 for this process's job, and a number for each other one.
    job: usize,
    /// Rank in `mpi://WORLD` of its job.
    rank: c_int,
}

impl Process {
    /// Process of this process's job.
    pub(crate) fn own(rank: c_int) -> Process {
        Process { job: 0, rank }
    }

    /// Returns the rank in `mpi://WORLD` if the process is of this process's job.
    pub(crate) fn own_rank(self) -> Option<c_int> {
        (self.job == 0).then_some(self.rank)
    }
}

/// Returns the number of the job with a job id. This process's job has none.
fn job_number(jobid: Option<&str>) -> usize {
    let Some(jobid) = jobid else { return 0 };
    let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = jobs.iter().position(|known| known == jobid).unwrap_or_else(|| {
        jobs.push(jobid.to_owned());
        jobs.len() - 1
    });
    at + 1
}

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
        let Some((size, serial)) = request(|connection| connection.info(name))? else { return Ok(None) };
        PsetList::lock().check(name, serial)?;
        return Ok(Some(size));
    }
    Ok(match name {
        name if name.eq_ignore_ascii_case(WORLD.as_bytes()) => Some(world_size()),
        name if name.eq_ignore_ascii_case(SELF.as_bytes()) => Some(1),
        _ => None,
    })
}

/// Returns the members of a set in their order.
pub(crate) fn members(name: &[u8]) -> Result<Option<Vec<Process>>, Error> {
    if is_served() {
        let Some(parts) = request(|connection| connection.members(name))? else { return Ok(None) };
        // Serial numbers rise, so the members are those of this set too.
        if size(name)?.is_none() {
            return Ok(None);
        }
        let of_part = |(jobid, ranks): (Option<String>, Vec<c_int>)| {
            let job = job_number(jobid.as_deref());
            ranks.into_iter().map(move |rank| Process { job, rank })
        };
        return Ok(Some(parts.into_iter().flat_map(of_part).collect()));
    }
    let (rank, size) = rank_and_size(env::var_os).unwrap_or((0, 1));
    Ok(match name {
        name if name.eq_ignore_ascii_case(WORLD.as_bytes()) => {
            Some((0..size as c_int).map(Process::own).collect())
        }
        name if name.eq_ignore_ascii_case(SELF.as_bytes()) => Some(vec![Process::own(rank as c_int)]),
        _ => None,
    })
}

/// Defines a set of ranks of `mpi://WORLD`.
pub(crate) fn define(name: &[u8], ranks: &[c_int]) -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    let list = format_ranks(ranks)?;
    request(|connection| connection.define(name, &list))
}

/// Defines a set from two others.
pub(crate) fn combine(name: &[u8], operation: SetOperation, operands: [&[u8]; 2]) -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    // The refusal of a combination does not tell a dead member from other reasons.
    for operand in operands {
        size(operand)?.ok_or_else(|| Error::NoPset(operand.to_vec()))?;
    }
    request(|connection| connection.combine(name, operation, operands))
}

/// Retires a set.
pub(crate) fn retire(name: &[u8]) -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    match size(name) {
        // A set with a dead member may be retired.
        Ok(_) => {}
        Err(error) if error.class() == Class::ProcAborted => {}
        Err(error) => return Err(error),
    }
    request(|connection| connection.retire(name))
}

/// Removes the retired sets of this process, at hydrant and in its list.
pub(crate) fn prune() -> Result<(), Error> {
    if !is_served() {
        return Err(Error::NotUnderHydrant);
    }
    let mut list = PsetList::lock();
    request(QueryConnection::prune)?;
    list.reset();
    Ok(())
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

/// Fails if a set has a dead member. Other errors are left to those who use the set.
pub(crate) fn check_living(name: &[u8]) -> Result<(), Error> {
    match size(name) {
        Err(error) if error.class() == Class::ProcAborted => Err(error),
        _ => Ok(()),
    }
}

/// Whether the MPI standard reserves the name. Its sets belong to the MPI library.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}
