//! Kill escalation: processes that got `SIGTERM` get `SIGKILL` after a timeout.

use std::time::Duration;

use hydrant_core::JobId;

/// Time between `SIGTERM` and `SIGKILL` unless the user chose another one, in milliseconds.
pub const KILL_TIMEOUT: u64 = 500;

/// Processes that get `SIGKILL` next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillTarget {
    /// All ranks of a job.
    Job(JobId),
    /// One process. Its number may be another process's by now, so the caller compares it.
    Rank {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: u32,
        /// Process that got `SIGTERM`.
        pid: u32,
    },
}

/// Deadlines of processes that got `SIGTERM`. All times are milliseconds of one clock.
///
/// ```
/// use hydrant_control::{KILL_TIMEOUT, KillEscalation, KillTarget};
/// use hydrant_core::JobId;
///
/// let mut escalation = KillEscalation::default();
/// escalation.terminated(1000, KillTarget::Job(JobId(0)));
/// assert_eq!(escalation.poll_at(), Some(1000 + KILL_TIMEOUT));
/// assert_eq!(escalation.poll(1100), None);
/// assert_eq!(escalation.poll(1500), Some(KillTarget::Job(JobId(0))));
/// assert_eq!(escalation.poll(1500), None);
/// ```
#[derive(Clone, Debug)]
pub struct KillEscalation {
    timeout: u64,
    pending: Vec<(u64, KillTarget)>,
}

impl Default for KillEscalation {
    fn default() -> KillEscalation {
        KillEscalation { timeout: KILL_TIMEOUT, pending: Vec::new() }
    }
}

impl KillEscalation {
    /// With the time between `SIGTERM` and `SIGKILL` that the user chose.
    pub fn new(grace: Option<Duration>) -> KillEscalation {
        let chosen = grace.map(|grace| grace.as_millis() as u64);
        KillEscalation { timeout: chosen.unwrap_or(KILL_TIMEOUT), pending: Vec::new() }
    }

    /// Notes that a target got `SIGTERM` at `now`. A later `SIGTERM` for the same target keeps the first deadline.
    pub fn terminated(&mut self, now: u64, target: KillTarget) {
        self.terminated_within(now, target, None);
    }

    /// As [`terminated`](KillEscalation::terminated), with the time that the user chose for this target.
    pub fn terminated_within(&mut self, now: u64, target: KillTarget, grace: Option<Duration>) {
        if !self.pending.iter().any(|&(_, known)| known == target) {
            let timeout = grace.map_or(self.timeout, |grace| grace.as_millis() as u64);
            self.pending.push((now + timeout, target));
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn poll_at(&self) -> Option<u64> {
        self.pending.iter().map(|&(at, _)| at).min()
    }

    /// The next target whose deadline has passed.
    #[must_use]
    pub fn poll(&mut self, now: u64) -> Option<KillTarget> {
        let due = self.pending.iter().position(|&(at, _)| at <= now)?;
        Some(self.pending.remove(due).1)
    }

    /// Drops the deadlines of a job that has ended.
    pub fn forget_job(&mut self, id: JobId) {
        self.pending.retain(|&(_, target)| match target {
            KillTarget::Job(job) | KillTarget::Rank { job, .. } => job != id,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_due_once_and_in_their_own_time() {
        let mut escalation = KillEscalation::default();
        let rank = KillTarget::Rank { job: JobId(1), rank: 2, pid: 77 };
        escalation.terminated(0, rank);
        escalation.terminated(100, KillTarget::Job(JobId(0)));
        escalation.terminated(200, KillTarget::Job(JobId(0)));
        assert_eq!((escalation.poll_at(), escalation.poll(499)), (Some(500), None));
        assert_eq!((escalation.poll(599), escalation.poll(599)), (Some(rank), None));
        assert_eq!((escalation.poll(600), escalation.poll_at()), (Some(KillTarget::Job(JobId(0))), None));
    }

    #[test]
    fn a_job_that_is_gone_is_not_killed() {
        let mut escalation = KillEscalation::default();
        escalation.terminated(0, KillTarget::Job(JobId(3)));
        escalation.terminated(0, KillTarget::Rank { job: JobId(3), rank: 0, pid: 5 });
        escalation.terminated(0, KillTarget::Job(JobId(4)));
        escalation.forget_job(JobId(3));
        assert_eq!((escalation.poll(500), escalation.poll(500)), (Some(KillTarget::Job(JobId(4))), None));
    }
}
