//! Names of process sets.

use heapless::String;

use crate::fault::Refusal;
use crate::limits::{PSET_NAME_MAX, PSET_SCHEME};

/// Name of the set of all ranks of a job.
pub(super) const WORLD: &str = "mpi://WORLD";
/// Name of the set of the requesting rank alone.
pub(super) const SELF: &str = "mpi://SELF";
/// Start of the names that the MPI standard reserves.
const RESERVED: &str = "mpi://";

/// Returns the URI of a name that a set can have.
pub(super) fn definable(name: &str) -> Result<String<PSET_NAME_MAX, u8>, Refusal> {
    uri(name).filter(|_| is_name(name)).ok_or(Refusal::PsetName)
}

/// Returns the URI of a name. Returns `None` if it is too long.
pub(super) fn uri(name: &str) -> Option<String<PSET_NAME_MAX, u8>> {
    let has_scheme = name.as_bytes().windows(3).any(|part| part == b"://");
    let mut uri = String::new();
    uri.push_str(if has_scheme { "" } else { PSET_SCHEME }).ok()?;
    uri.push_str(name).ok()?;
    Some(uri)
}

fn is_name(name: &str) -> bool {
    let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';');
    !name.is_empty() && !is_reserved(name) && printable
}

/// Returns whether the MPI standard reserves a name.
pub(super) fn is_reserved(name: &str) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
}
