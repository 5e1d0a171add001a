//! Room in the log: the records of jobs that are over leave it, and those whose key has a newer one.
//!
//! Without any job the log is emptied. While others run it is compacted at the end of a job, if jobs that are over have more of it
//! than is left, and when a new job, a pair of the host or records of a neighbour would not fit otherwise. For the request of a
//! client it is compacted only if much of it can be dropped, because a client may repeat a request at any rate.
//!
//! Everything that has an offset of the log is here: cursors of links, progress of collectives, and replies that have not been
//! taken.
//!
//! A message to a neighbour may follow the log up to a certain length, its cut. A record before the cut stays if only a record
//! behind the cut supersedes it: the neighbour would get neither. Replies keep their records, too.

#[cfg(feature = "cluster")]
use core::cell::Cell;

use super::Server;
use crate::fault::Refusal;
use crate::ids::JobId;
use crate::limits::Limit;
#[cfg(feature = "cluster")]
use crate::state::Job;
#[cfg(feature = "cluster")]
use crate::state::{ReplyState, Response};
#[cfg(feature = "cluster")]
use crate::store::log::{Offset, Scope};
#[cfg(feature = "cluster")]
use crate::tables::kvs::{Kvs, Owner};
use crate::tables::kvs::{Spaces, Usage};
#[cfg(feature = "cluster")]
use crate::trace::event;
#[cfg(all(feature = "cluster", feature = "pmix"))]
use crate::wire::pmix::status::NOT_FOUND;

impl Server<'_> {
    /// Frees the records of a job that is over, now or later. They are behind `since`.
    pub(super) fn reclaim(&mut self, job: JobId, over: Spaces, since: u32) {
        if self.jobs.iter().all(|job| job.name.is_empty()) {
            self.kvs.clear();
            self.links.rewind();
            return;
        }
        #[cfg(feature = "cluster")]
        {
            self.drop_replies_about(job, over);
            self.kvs.bury(since, &|space| over.have(space));
            if self.kvs.is_compaction_due() {
                self.compact();
            }
        }
        #[cfg(not(feature = "cluster"))]
        let _ = (job, over, since);
    }

    /// Counts the records of jobs that are over, in a log that has just been loaded.
    #[cfg(feature = "cluster")]
    pub(super) fn bury_dead(&mut self) {
        let living = is_living(&self.jobs);
        self.kvs.bury(0, &|space| !living(space));
    }

    /// Makes room for what is lacking.
    ///
    /// # Errors
    /// [`Refusal::Full`]. Nothing is changed then.
    pub(super) fn find_room(&mut self, lack: Usage) -> Result<(), Refusal> {
        #[cfg(feature = "cluster")]
        let is_there = self.makes_room(lack, false);
        #[cfg(not(feature = "cluster"))]
        let is_there = lack == Usage::NONE;
        if is_there {
            return Ok(());
        }
        let limit = if lack.bytes > 0 { Limit::KvsBytes } else { Limit::Keys };
        Err(Refusal::Full(limit, self.limits.of(limit)))
    }

    /// Makes room for what is lacking, of all room or of what is [not reserved](Kvs::frees). Returns whether there is room. Nothing
    /// is changed otherwise.
    #[cfg(feature = "cluster")]
    #[cold]
    #[inline(never)]
    pub(super) fn makes_room(&mut self, lack: Usage, is_unreserved: bool) -> bool {
        if lack == Usage::NONE {
            return true;
        }
        let scope = self.superseded();
        let frees = self.kvs.frees(lack, is_unreserved, &scope, is_living(&self.jobs));
        if frees {
            self.drop_records(&scope);
        }
        frees
    }

    /// Drops the records of jobs that are over, if a job that begins lacks room.
    pub(super) fn make_room_for_job(&mut self, lack: Usage) {
        #[cfg(feature = "cluster")]
        if lack != Usage::NONE && self.kvs.dead() != Usage::NONE {
            self.compact();
        }
        #[cfg(not(feature = "cluster"))]
        let _ = lack;
    }

    /// Answers requests of ranks of other jobs, whose replies are about a job that is over, or records of it, that there are none.
    #[cfg(feature = "cluster")]
    fn drop_replies_about(&mut self, job: JobId, over: Spaces) {
        for reply in self.conns[..self.conns_end as usize].iter_mut().flat_map(|conn| &mut conn.replies) {
            let is_of = |at: &mut u32| self.kvs.record(*at).is_some_and(|record| over.have(record.space));
            let is_about = matches!(reply.state, ReplyState::Ready(Response::Pmix(answer))
                if answer.about().is_some_and(|(about, _)| about == job));
            if is_about || reply.state.records_mut().into_iter().flatten().any(is_of) {
                reply.state = ReplyState::Ready(match reply.state {
                    ReplyState::Ready(Response::Record(op, _)) => Response::Missing(op),
                    #[cfg(feature = "pmix")]
                    _ => Response::status(NOT_FOUND),
                    #[cfg(not(feature = "pmix"))]
                    _ => continue,
                });
            }
        }
    }

    /// Executes a request of a client, which changes nothing if it is refused, and once more after a compaction if the log has no
    /// room for it and [much of it](Kvs::is_much_droppable) can be dropped.
    pub(super) fn with_room<T>(
        &mut self,
        mut execute: impl FnMut(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let result = execute(self);
        #[cfg(feature = "cluster")]
        if let Err(Refusal::Full(limit, _) | Refusal::Quota(limit, _)) = result
            && self.compacts_for(limit)
        {
            return execute(self);
        }
        result
    }

    /// Compacts the log for a request that lacks room, if much of it can be dropped.
    #[cfg(feature = "cluster")]
    #[cold]
    fn compacts_for(&mut self, lacks: Limit) -> bool {
        if !self.kvs.is_much_droppable(lacks, Some(0)) {
            return false;
        }
        let scope = self.superseded();
        let is_worth = self.kvs.is_much_droppable(lacks, scope.pinned());
        if is_worth {
            self.drop_records(&scope);
        }
        is_worth
    }

    #[cfg(feature = "cluster")]
    fn compact(&mut self) {
        let scope = self.superseded();
        self.drop_records(&scope);
    }

    /// Drops the records of jobs that are over and those of a scope, and moves the offsets behind them.
    #[cfg(feature = "cluster")]
    #[inline(never)]
    fn drop_records(&mut self, scope: &Scope) {
        let before = self.kvs.written();
        let Server { kvs, jobs, ranks, links, .. } = self;
        let node = links.node();
        let compaction = kvs.begin_compaction(scope, is_living(jobs), |dropped| {
            let is_of = |job: &&Job| !job.name.is_empty() && job.spaces.have(dropped.space);
            let (id, index) = (dropped.owner, dropped.owner as usize);
            if let Some(job) = jobs.iter().find(is_of).filter(|job| job.slots().contains(&index)) {
                let rank = &mut ranks[index];
                let owner = Owner { id, used: &mut rank.used, quota: job.quota };
                dropped.give_back(owner, rank.node == node, rank.exit.is_some());
            }
        });
        self.each_offset(&mut |kvs, _, offset| *offset = kvs.moved(&compaction, *offset));
        self.kvs.end_compaction(compaction);
        event!(debug, "log compacted from {} to {} bytes", before, self.kvs.written());
    }

    /// Returns which records may be dropped that are superseded.
    #[cfg(feature = "cluster")]
    #[inline(never)]
    fn superseded(&mut self) -> Scope {
        let mut scope = Scope::all(self.kvs.written());
        self.each_offset(&mut |kvs, of, &mut offset| match of {
            Offset::Cut if offset > 0 => scope.cut(offset),
            Offset::Record if kvs.is_superseded(offset) => {
                kvs.step(offset).into_iter().for_each(|(_, next)| scope.pin(offset, next));
            }
            Offset::Sent | Offset::Cut | Offset::Record => {}
        });
        scope
    }

    /// Calls a function with each offset of the log.
    #[cfg(feature = "cluster")]
    fn each_offset(&mut self, then: &mut dyn FnMut(&Kvs<'_>, Offset, &mut u32)) {
        let Server { kvs, links, jobs, groups, ranks, conns, .. } = self;
        let then = &mut |of, offset: &mut u32| then(kvs, of, offset);
        links.offsets(then);
        for job in &mut **jobs {
            job.fence_tracker.offsets(then);
            job.ring_tracker.offsets(then);
            then(Offset::Sent, &mut job.since);
        }
        groups.trackers_mut().for_each(|tracker| tracker.offsets(then));
        for part in ranks[..self.ranks_end as usize].iter_mut().filter_map(|rank| rank.ring.as_mut()) {
            then(Offset::Record, &mut part.left);
            then(Offset::Record, &mut part.right);
        }
        for reply in conns[..self.conns_end as usize].iter_mut().flat_map(|conn| &mut conn.replies) {
            reply.state.records_mut().into_iter().flatten().for_each(|record| then(Offset::Record, record));
        }
    }
}

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
