//! Requests of ranks that the servers of all nodes apply: changes of process sets, and connections of jobs. Nodes that join later
//! are told of them.

use std::collections::BTreeSet;

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

/// What a node that joins is told, in the order in which all others were: the jobs that there are, and what ranks have asked all
/// servers for. `J` describes a job.
#[derive(Debug)]
pub struct History<J> {
    entries: Vec<Entry<J>>,
    /// How many of them ranks have asked for.
    requests: usize,
    /// Jobs whose ranks have asked for something that is left out.
    cut: BTreeSet<JobId>,
}

/// Part of a [`History`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry<J> {
    /// A job is registered.
    Job(JobId, J),
    /// An input of all servers.
    Input(OwnedInput),
}

impl<J> Default for History<J> {
    fn default() -> History<J> {
        History { entries: Vec::new(), requests: 0, cut: BTreeSet::new() }
    }
}

impl<J> History<J> {
    /// Adds a job.
    pub fn push_job(&mut self, job: JobId, described: J) {
        self.entries.push(Entry::Job(job, described));
    }

    /// Adds an input that registers or describes a job, or that is a [shared request](is_shared_request). Others are nothing that
    /// a node has to be told. Requests above [`REQUESTS_MAX`] make the history [cut](History::is_cut).
    pub fn push_input(&mut self, input: &OwnedInput) {
        let Some([job, other]) = jobs_of(input) else { return };
        if is_shared_request(input) {
            // One about a job whose requests are left out means nothing once that job is over.
            if self.cut.contains(&job) || self.cut.contains(&other) {
                return;
            }
            if self.requests == REQUESTS_MAX {
                self.cut.insert(job);
                self.cut.extend(self.entries.iter().filter_map(Entry::asked_by));
                self.entries.retain(|entry| entry.asked_by().is_none());
                self.requests = 0;
                return;
            }
            self.requests += 1;
        }
        self.entries.push(Entry::Input(input.clone()));
    }

    /// Removes a job that is over, and what has been asked for about it.
    pub fn forget(&mut self, job: JobId) {
        self.entries.retain(|entry| match entry {
            Entry::Job(known, _) => *known != job,
            Entry::Input(input) => jobs_of(input).is_none_or(|jobs| !jobs.contains(&job)),
        });
        self.requests = self.entries.iter().filter_map(Entry::asked_by).count();
        self.cut.remove(&job);
    }

    /// Whether requests are left out, so that no node may join: there were too many. It may when their jobs are over.
    pub fn is_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    /// What a node is told, in this order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry<J>> {
        self.entries.iter()
    }
}

impl<J> Entry<J> {
    /// The job of the rank that has asked for it.
    fn asked_by(&self) -> Option<JobId> {
        match self {
            Entry::Input(input) if is_shared_request(input) => jobs_of(input).map(|[job, _]| job),
            _ => None,
        }
    }
}

/// Returns the jobs that an input is about, and without either of which it means nothing. A request is of a rank of the first.
fn jobs_of(input: &OwnedInput) -> Option<[JobId; 2]> {
    match input {
        OwnedInput::RegisterJob(spec) => Some([spec.job; 2]),
        OwnedInput::Attr { job, .. } | OwnedInput::PsetRequest { job, .. } => Some([*job; 2]),
        OwnedInput::Connected { job, other, .. } => Some([*job, *other]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: JobId = JobId(1);
    const B: JobId = JobId(2);
    const C: JobId = JobId(3);

    fn set(job: JobId) -> OwnedInput {
        OwnedInput::PsetRequest { job, rank: Rank(0), request: b"cmd=pset-prune;".into() }
    }

    fn connect(job: JobId, other: JobId) -> OwnedInput {
        OwnedInput::Connected { job, other, connected: true }
    }

    /// A history of these jobs.
    fn of(jobs: &[JobId]) -> History<&'static str> {
        let mut history = History::default();
        jobs.iter().for_each(|&job| history.push_job(job, "job"));
        history
    }

    #[test]
    fn what_is_about_a_job_that_is_over_is_forgotten() {
        let mut history = of(&[A, B]);
        let attr = |job| OwnedInput::Attr { job, key: b"key".into(), value: b"value".into() };
        let about_a = [attr(A), connect(A, B), connect(B, A), set(A)];
        let lost = OwnedInput::NodeLost { epoch: 1, node: 2 };
        about_a.iter().chain(&[set(B), attr(B), lost]).for_each(|input| history.push_input(input));
        history.forget(A);
        let told: Vec<_> = history.iter().cloned().collect();
        assert_eq!(told, [Entry::Job(B, "job"), Entry::Input(set(B)), Entry::Input(attr(B))]);
    }

    #[test]
    fn a_history_is_whole_again_when_the_jobs_with_too_many_requests_are_over() {
        let mut history = of(&[A, B, C]);
        (1..REQUESTS_MAX).for_each(|_| history.push_input(&set(A)));
        history.push_input(&set(B));
        assert_eq!((history.is_cut(), history.iter().count()), (false, 3 + REQUESTS_MAX));
        history.push_input(&set(A));
        assert_eq!((history.is_cut(), history.iter().count()), (true, 3));
        // Those of other jobs are kept, so that they delay nothing.
        [set(A), set(B), connect(A, C), connect(C, A), set(C)]
            .iter()
            .for_each(|input| history.push_input(input));
        history.forget(A);
        assert!(history.is_cut(), "a request of another job is left out, too");
        history.forget(B);
        assert!(!history.is_cut());
        let told: Vec<_> = history.iter().cloned().collect();
        assert_eq!(told, [Entry::Job(C, "job"), Entry::Input(set(C))]);
    }

    #[test]
    fn requests_of_jobs_that_are_over_do_not_count() {
        let mut history = of(&[C]);
        for _ in 0..3 {
            history.push_job(A, "job");
            (0..REQUESTS_MAX).for_each(|_| history.push_input(&connect(A, C)));
            assert!(!history.is_cut());
            history.forget(A);
        }
        assert_eq!(history.iter().count(), 1);
    }
}
