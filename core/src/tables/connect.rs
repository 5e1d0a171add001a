//! Relation of connected jobs, which may read each other's key-value spaces.
//!
//! Connecting two jobs connects all jobs of one side with all jobs of the other (pmi2.h, `PMI2_Job_Connect`).
//! Disconnecting separates the two jobs only.
//!
//! A change that the server makes by itself is kept until its host has been told.

use crate::ids::JobId;
use crate::store::bits;

/// Symmetric relation among jobs, a row of bits for each job.
///
/// As many rows have the changes that the host does not know: a pair of jobs has connected if the bit of the higher number is set
/// in the row of the lower one, and disconnected the other way round. Two more rows are scratch space.
#[derive(Debug)]
pub(crate) struct Connections<'s> {
    rows: &'s mut [u32],
    jobs: u32,
}

impl<'s> Connections<'s> {
    /// Returns the number of words that `jobs` jobs need.
    pub(crate) const fn words(jobs: u32) -> u64 {
        (2 * jobs as u64 + 2) * bits::words(jobs) as u64
    }

    /// Creates a relation without connections in words of zero. Returns `None` if `rows` is shorter than [`Connections::words`].
    pub(crate) fn new(rows: &'s mut [u32], jobs: u32) -> Option<Connections<'s>> {
        let rows = rows.get_mut(..Connections::words(jobs) as usize)?;
        Some(Connections { rows, jobs })
    }

    /// Returns whether a job may read the other's key-value space. A job may always read its own.
    pub(crate) fn connected(&self, a: JobId, b: JobId) -> bool {
        a == b || bits::contains(self.row(a), b.0)
    }

    /// Connects all jobs connected to `a` with all jobs connected to `b`. Jobs of one side that were disconnected
    /// remain so.
    pub(crate) fn connect(&mut self, a: JobId, b: JobId) {
        // The scratch rows keep both sides as they were before.
        let words = bits::words(self.jobs);
        let scratch = 2 * self.jobs as usize * words;
        for (side, of) in [a, b].into_iter().enumerate() {
            let row = of.index() * words;
            let copy = scratch + side * words;
            self.rows.copy_within(row..row + words, copy);
            bits::insert(&mut self.rows[copy..copy + words], of.0);
        }
        for i in (0..self.jobs).map(JobId) {
            for j in (0..self.jobs).map(JobId) {
                let sides = self.rows[scratch..].split_at(words);
                if i != j && bits::contains(sides.0, i.0) && bits::contains(sides.1, j.0) {
                    self.set(i, j, true);
                }
            }
        }
    }

    /// Disconnects two jobs. Returns whether they were connected.
    pub(crate) fn disconnect(&mut self, a: JobId, b: JobId) -> bool {
        let connected = a != b && self.connected(a, b);
        if connected {
            self.set(a, b, false);
        }
        connected
    }

    /// Disconnects a job from all others.
    pub(crate) fn forget(&mut self, job: JobId) {
        for other in (0..self.jobs).map(JobId) {
            self.set(job, other, false);
            for (a, b) in [(job, other), (other, job)] {
                bits::remove(self.changes_mut(a), b.0);
            }
        }
    }

    /// Keeps for the host that two jobs have connected or disconnected. An earlier change of the two is forgotten.
    pub(crate) fn note_change(&mut self, a: JobId, b: JobId, connected: bool) {
        let (low, high) = if a.0 < b.0 { (a, b) } else { (b, a) };
        let (set, clear) = if connected { ((low, high), (high, low)) } else { ((high, low), (low, high)) };
        bits::insert(self.changes_mut(set.0), set.1.0);
        bits::remove(self.changes_mut(clear.0), clear.1.0);
    }

    /// Returns the next change that the host does not know: two jobs, and whether they have connected.
    pub(crate) fn next_change(&self) -> Option<(JobId, JobId, bool)> {
        let pairs = (0..self.jobs).flat_map(|a| (0..self.jobs).map(move |b| (JobId(a), JobId(b))));
        let changed =
            |&(a, b): &(JobId, JobId)| a != b && bits::contains(self.row(JobId(self.jobs + a.0)), b.0);
        pairs.into_iter().find(changed).map(|(a, b)| (a, b, a.0 < b.0))
    }

    /// Forgets a change of which the host has been told.
    pub(crate) fn change_was_sent(&mut self, a: JobId, b: JobId) {
        bits::remove(self.changes_mut(a), b.0);
    }

    fn changes_mut(&mut self, job: JobId) -> &mut [u32] {
        let words = bits::words(self.jobs);
        &mut self.rows[(self.jobs + job.0) as usize * words..][..words]
    }

    /// Returns the rows for a snapshot.
    pub(crate) fn state(&self) -> &[u32] {
        &self.rows[..2 * self.jobs as usize * bits::words(self.jobs)]
    }

    /// Returns the rows for restoring a snapshot.
    pub(crate) fn state_mut(&mut self) -> &mut [u32] {
        &mut self.rows[..2 * self.jobs as usize * bits::words(self.jobs)]
    }

    fn set(&mut self, a: JobId, b: JobId, connected: bool) {
        for (row, column) in [(a, b), (b, a)] {
            let words = bits::words(self.jobs);
            let row = &mut self.rows[row.index() * words..][..words];
            if connected {
                bits::insert(row, column.0);
            } else {
                bits::remove(row, column.0);
            }
        }
    }

    fn row(&self, job: JobId) -> &[u32] {
        let words = bits::words(self.jobs);
        self.rows.get(job.index() * words..).and_then(|rows| rows.get(..words)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_joins_both_sides() {
        let mut rows = [0; Connections::words(5) as usize];
        let mut jobs = Connections::new(&mut rows, 5).unwrap();
        let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(JobId);
        jobs.connect(a, b);
        jobs.connect(c, d);
        assert!(jobs.connected(b, a) && !jobs.connected(b, c) && jobs.connected(e, e));
        jobs.connect(b, c);
        assert!(jobs.connected(a, d) && jobs.connected(d, b) && !jobs.connected(a, e));
        assert!(jobs.disconnect(d, a) && !jobs.disconnect(a, d), "once parted, parted");
        assert!(jobs.connected(a, c) && jobs.connected(b, d));
        jobs.forget(b);
        assert!(!jobs.connected(a, b) && !jobs.connected(b, d) && jobs.connected(c, d));
        assert!(!jobs.disconnect(a, a), "a job cannot part from itself");
    }

    #[test]
    fn the_host_is_told_of_the_last_change_of_two_jobs() {
        let mut rows = [0; Connections::words(3) as usize];
        let mut jobs = Connections::new(&mut rows, 3).unwrap();
        let [a, b, c] = [0, 1, 2].map(JobId);
        jobs.note_change(b, a, true);
        jobs.note_change(a, b, false);
        jobs.note_change(c, b, true);
        jobs.note_change(a, c, false);
        jobs.forget(a);
        assert_eq!(jobs.next_change(), Some((b, c, true)));
        jobs.change_was_sent(b, c);
        assert_eq!(jobs.next_change(), None);
        jobs.note_change(a, b, true);
        jobs.note_change(a, b, false);
        assert_eq!(jobs.next_change(), Some((b, a, false)));
    }

    #[test]
    fn those_who_have_parted_stay_apart_when_others_connect() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut rows = [0; Connections::words(4) as usize];
            let mut jobs = Connections::new(&mut rows, 4).unwrap();
            let [a, b, c, d] = order.map(JobId);
            jobs.connect(a, c);
            jobs.connect(a, d);
            jobs.disconnect(c, d);
            jobs.connect(a, b);
            assert!(jobs.connected(b, c) && jobs.connected(b, d) && !jobs.connected(c, d), "{order:?}");
        }
    }
}
