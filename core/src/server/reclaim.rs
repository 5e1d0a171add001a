//! Room in the log: the records of jobs that are over leave it.
//!
//! Without any job the log is emptied. While others run it is compacted, now and then at the end of a job, and when records of
//! other nodes would not fit otherwise. Everything that has an offset of the log is here: cursors of links, progress of
//! collectives, and replies that have not been taken.

#[cfg(feature = "cluster")]
use core::cell::Cell;

use super::Server;
use crate::fault::{Fault, Refusal};
use crate::limits::{COMPACTION, Limit};
#[cfg(feature = "cluster")]
use crate::state::Job;
#[cfg(all(feature = "cluster", feature = "pmix"))]
use crate::state::{ReplyState, Response};
use crate::tables::kvs::{Spaces, Usage};
#[cfg(feature = "cluster")]
use crate::trace::event;
#[cfg(all(feature = "cluster", feature = "pmix"))]
use crate::wire::pmix::status::NOT_FOUND;

impl Server<'_> {
    /// Frees the records of a job that is over, now or later.
    pub(super) fn reclaim(&mut self, over: Spaces) {
        if self.jobs.iter().all(|job| job.name.is_empty()) {
            self.kvs.clear();
            self.links.rewind();
        } else if COMPACTION {
            self.drop_records_of(over);
            if self.kvs.is_compaction_due() {
                self.compact();
            }
        }
    }

    /// Makes room for what is lacking.
    ///
    /// # Errors
    /// [`Fault::Full`]. Nothing is changed then.
    pub(super) fn find_room(&mut self, lack: Usage) -> Result<(), Fault> {
        if lack == Usage::NONE {
            return Ok(());
        }
        #[cfg(feature = "cluster")]
        if self.kvs.is_kept_by(lack, is_living(self.jobs)) {
            self.compact();
            return Ok(());
        }
        let limit = if lack.bytes > 0 { Limit::KvsBytes } else { Limit::Keys };
        Err(self.fault(Refusal::Full(limit, 0), Fault::BadPeer))
    }

    /// Answers requests of ranks of other jobs, whose replies are records of a job that is over, that there are none.
    fn drop_records_of(&mut self, over: Spaces) {
        #[cfg(all(feature = "cluster", feature = "pmix"))]
        for reply in self.conns[..self.conns_end as usize].iter_mut().flat_map(|conn| &mut conn.replies) {
            let is_of = |at: &mut u32| self.kvs.record(*at).is_some_and(|record| over.have(record.space));
            if reply.state.records_mut().into_iter().flatten().any(is_of) {
                reply.state = ReplyState::Ready(Response::status(NOT_FOUND));
            }
        }
        #[cfg(not(all(feature = "cluster", feature = "pmix")))]
        let _ = over;
    }

    #[cfg(not(feature = "cluster"))]
    fn compact(&mut self) {}

    /// Drops the records of jobs that are over, and moves the offsets behind them.
    #[cfg(feature = "cluster")]
    fn compact(&mut self) {
        let before = self.kvs.written();
        let mut compaction = self.kvs.begin_compaction();
        loop {
            let mut gaps = Gaps::new();
            while !gaps.is_full()
                && let Some(gap) = self.kvs.next_gap(&mut compaction, is_living(self.jobs))
            {
                // It is not full.
                let _ = gaps.push(gap);
            }
            if gaps.is_empty() {
                break;
            }
            self.each_offset(&mut |offset| {
                *offset =
                    gaps.iter().fold(*offset, |at, &(start, len)| at - at.saturating_sub(start).min(len));
            });
        }
        event!(debug, "log compacted from {} to {} bytes", before, self.kvs.written());
    }

    /// Calls a function with each offset of the log.
    #[cfg(feature = "cluster")]
    fn each_offset(&mut self, then: &mut dyn FnMut(&mut u32)) {
        self.links.offsets(then);
        for job in &mut *self.jobs {
            job.fence_tracker.offsets(then);
            job.ring_tracker.offsets(then);
        }
        self.groups.state_mut().0.iter_mut().for_each(|group| group.tracker.offsets(then));
        for part in self.ranks[..self.ranks_end as usize].iter_mut().filter_map(|rank| rank.ring.as_mut()) {
            then(&mut part.left);
            then(&mut part.right);
        }
        for reply in self.conns[..self.conns_end as usize].iter_mut().flat_map(|conn| &mut conn.replies) {
            reply.state.records_mut().into_iter().flatten().for_each(&mut *then);
        }
    }
}

/// Stretches that have gone from the log: the start of each in the log without those before it, and its length.
#[cfg(feature = "cluster")]
type Gaps = heapless::Vec<(u32, u32), 32>;

/// Returns a function that returns whether a space of the log is that of a registered job.
#[cfg(feature = "cluster")]
fn is_living(jobs: &[Job]) -> impl Fn(u32) -> bool {
    let end = jobs.iter().rposition(|job| !job.name.is_empty()).map_or(0, |last| last + 1);
    // Records of a job mostly follow each other.
    let known = Cell::new((u32::MAX, false));
    move |space| {
        if known.get().0 != space {
            let is_of = |job: &Job| !job.name.is_empty() && job.spaces.have(space);
            known.set((space, jobs[..end].iter().any(is_of)));
        }
        known.get().1
    }
}
