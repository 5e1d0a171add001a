//! Requests of ranks that the servers of all nodes apply: changes of process sets, and connections of jobs.

use hydrant_core::wire::{Command, Protocol, Text, decode_upcall};
use hydrant_core::{JobId, OwnedInput, Rank, Refusal};

/// Most requests of ranks that a node that joins is told of. Each takes as many bytes as a rank has sent.
pub const REQUESTS_MAX: usize = 4096;

/// Returns what all servers apply for a request that a server has passed to its host. `None` for a name, or a job that
/// `job_with_id` does not know.
///
/// # Errors
/// [`Refusal::BadField`]: the request is none that a server passes.
pub fn shared_request(
    (job, rank): (JobId, Rank),
    (protocol, request): (Protocol, &[u8]),
    job_with_id: impl Fn(Text<'_>) -> Option<JobId>,
) -> Result<Option<OwnedInput>, Refusal> {
    let (jobid, connected) = match decode_upcall(protocol, request).ok_or(Refusal::BadField)? {
        command if command.op().changes_psets() => {
            return Ok(Some(OwnedInput::PsetRequest { job, rank, request: request.to_vec() }));
        }
        Command::Connect { jobid } => (jobid, true),
        Command::Disconnect { jobid } => (jobid, false),
        _ => return Ok(None),
    };
    Ok(job_with_id(jobid).map(|other| OwnedInput::Connected { job, other, connected }))
}

/// Returns whether an input is what all servers apply for a rank.
pub fn is_shared_request(input: &OwnedInput) -> bool {
    matches!(input, OwnedInput::PsetRequest { .. } | OwnedInput::Connected { .. })
}

/// Returns whether a request of a rank is about a job, and means nothing without it.
pub fn is_request_about(input: &OwnedInput, about: JobId) -> bool {
    match input {
        OwnedInput::PsetRequest { job, .. } => *job == about,
        OwnedInput::Connected { job, other, .. } => [*job, *other].contains(&about),
        _ => false,
    }
}
