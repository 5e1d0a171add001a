//! Collectives: the fence and the ring of a job, and those of groups, on one node or on a tree of nodes.
//!
//! 1. A rank arrives: [`Server::fence`], [`Server::ring`], [`Server::group_fence`].
//! 2. The node checks whether its subtree is complete: [`Server::check_fence`], [`Server::check_ring`],
//!    [`Server::check_group`].
//! 3. If so, and if nodes above take part, the arrival fans in to the parent ([`Server::fan_in`]), which counts it
//!    ([`Server::receive_arrival`]) and continues with step 2.
//! 4. At the root, or at a node that is alone, all ranks have arrived: [`Server::release_fence`],
//!    [`Server::release_ring`], [`Server::release_group`] turn the pending replies of local ranks into responses.
//! 5. The release fans out to the children ([`Server::fan_out`]), which continue with step 4
//!    ([`Server::receive_release`]).
//!
//! The key-value records that the receiver of a message lacks are sent before it, or in it if they are few, from the
//! cursor of the link on: towards the root those of this subtree, away from it all others. `peers.rs` sends and
//! receives the messages and calls steps 3 and 5.
//!
//! A rank may limit its wait. When a time-out passes, the collective ends for all ranks that wait ([`Server::expire`]): the
//! shortest time-out decides. On a tree the root ends it, at the request of a node, and fans the end out ([`Server::end`]). A
//! rank that arrives later begins the next collective.
//!
//! `lost.rs` decides what becomes of collectives that wait for a rank that has ended.

use super::Server;
use super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::peer::links::{Link, Links};
use crate::peer::message::{self, Collective, End, GroupKind, MemberSet, RecordKind};
use crate::state::{Job, RankSlot, ReplyState, Response, RingPart};
use crate::tables::fence::{Fence, Group, Route};
use crate::tables::kvs::Kind;
use crate::tables::tracker::{Due, Expiry, FanIn, Tracker};
use crate::time::Time;
use crate::trace::event;
use crate::wire::{self, Members, Op, Text};

/// Last byte of the key that stores the count of a rank in a ring, beside its texts.
pub(super) const RING_COUNT: u8 = b'c';

impl Server<'_> {
    /// Step 1: a rank arrives in the fence of its job. Records travel with the fence if it `collects`.
    pub(super) fn fence(
        &mut self,
        now: Time,
        requester: Requester,
        collects: bool,
    ) -> Result<ReplyState, Refusal> {
        self.check_included(requester)?;
        let RankSlot { in_fence, .. } = &mut self.ranks[requester.index];
        if core::mem::replace(in_fence, true) {
            return Err(Refusal::InFence);
        }
        let job = &mut self.jobs[requester.job.index()];
        job.fence.arrive(now);
        job.fence_tracker.collects |= collects;
        Ok(ReplyState::Fence)
    }

    /// Step 1: a rank arrives in the barrier of a group.
    pub(super) fn group_fence(
        &mut self,
        now: Time,
        requester: Requester,
        group: &wire::Group<'_>,
    ) -> Result<ReplyState, Refusal> {
        self.check_included(requester)?;
        let Server { jobs, ranks, links, groups, .. } = self;
        let state = &jobs[requester.job.index()];
        let way = |slot: u32| route(ranks, links, slot);
        let here = |slot: &usize| ranks[*slot].node == links.node();
        let (who, what) = ((requester.job, requester.index as u32), (GroupKind::Barrier, group.tag));
        match group.members {
            Members::World => groups.consider(state.slots().map(Some))?,
            Members::Node => groups.consider(state.slots().filter(here).map(Some))?,
            Members::Ranks(list) => groups.consider(list.iter().map(|rank| state.slot(Rank(rank))))?,
        }
        let at = groups.arrive(who, what, &way, now)?;
        groups.collect(at, true);
        Ok(ReplyState::GroupFence { group: at, tag: group.tag })
    }

    /// Step 1: a rank arrives in the ring of its job (`PMIX_Ring` in pmi2.h) with a count, and texts for its
    /// neighbours.
    pub(super) fn ring(
        &mut self,
        requester: Requester,
        count: u32,
        left: Text<'_>,
        right: Text<'_>,
    ) -> Result<ReplyState, Refusal> {
        self.check_included(requester)?;
        if self.ranks[requester.index].ring.is_some() {
            return Err(Refusal::InFence);
        }
        let rank = requester.rank.0.to_le_bytes();
        let key = |side: u8| [rank[0], rank[1], rank[2], rank[3], side];
        let (left_key, right_key) = (key(b'l'), key(b'r'));
        // Both texts are stored, or neither.
        let same = left == right;
        let count_key = key(RING_COUNT);
        let [a, b, c, d] = count.to_le_bytes();
        let counted = [a, b, c, d, u8::from(same)];
        // The count is stored in the rank's slot, and with the texts for other nodes.
        let pairs = [
            Some((&left_key[..], left.len())),
            (!same).then_some((&right_key[..], right.len())),
            self.links.are_any().then_some((&count_key[..], counted.len())),
        ];
        let pairs = pairs.into_iter().flatten();
        let job = &self.jobs[requester.job.index()];
        self.kvs.room((job.spaces, Kind::Ring), self.ranks[requester.index].used, job.quota, pairs)?;
        let mut keep = |key: &[u8], text| {
            self.store(requester, Kind::Ring, Text::plain(key), Some(text)).map(|(record, _)| record)
        };
        let to_left = keep(&left_key, left)?;
        let to_right = if same { to_left } else { keep(&right_key, right)? };
        if self.links.are_any() {
            self.store(requester, Kind::Ring, Text::plain(&count_key), Some(Text::plain(&counted)))?;
        }
        self.ranks[requester.index].ring = Some(RingPart { count, left: to_left, right: to_right });
        let job = &mut self.jobs[requester.job.index()];
        job.ring += 1;
        job.ring_tracker.collects = true;
        Ok(ReplyState::Ring)
    }

    /// Refuses requests of an excluded rank, whose bytes may be read after its exit.
    pub(super) fn check_included(&self, requester: Requester) -> Result<(), Refusal> {
        if self.ranks[requester.index].excluded { Err(Refusal::Rank) } else { Ok(()) }
    }

    /// Step 2: continues with the fence of a job if it is complete in this subtree.
    pub(super) fn check_fence(&mut self, job: JobId) {
        let state = &self.jobs[job.index()];
        let here = state.local - state.excluded_count;
        if state.fence_tracker.is_complete(state.fence.arrived, here, &state.below)
            && self.fan_in(job, Collective::Fence, None)
        {
            self.release_fence(job);
        }
    }

    /// Step 2: continues with the ring of a job if it is complete in this subtree.
    pub(super) fn check_ring(&mut self, job: JobId) {
        let state = &self.jobs[job.index()];
        let here = state.local - state.excluded_count;
        if state.ring_tracker.is_complete(state.ring, here, &state.below)
            && self.fan_in(job, Collective::Ring, None)
        {
            self.release_ring(job);
        }
    }

    /// Step 2: continues with the barrier of a group if it is complete in this subtree.
    pub(super) fn check_group(&mut self, job: JobId, at: u32) {
        if !self.groups.is_complete(at) {
            return;
        }
        let Some(&Group { kind, tag, .. }) = self.groups.get(at) else { return };
        if self.fan_in(job, Collective::Group { kind, tag }, Some(at)) {
            let outcome = self.outcome(at);
            self.release_group(at, outcome);
        }
    }

    /// Returns whether no node above takes part in a collective.
    fn is_decided_here(&self, group: Option<u32>) -> bool {
        let alone = group.and_then(|group| self.groups.get(group)).is_some_and(|group| !group.has_others);
        alone || !self.links.have_parent()
    }

    /// Step 3: called when a collective is complete in this subtree. Returns true if no node above takes part.
    /// Otherwise marks the arrival as pending for the parent and returns false.
    pub(super) fn fan_in(&mut self, job: JobId, at: Collective, group: Option<u32>) -> bool {
        if self.is_decided_here(group) {
            return true;
        }
        let log = self.kvs.written();
        if let Some(tracker) = self.tracker_mut(job, at, group) {
            tracker.fan_in = FanIn::Pending(tracker.preceding(log));
        }
        self.links.wake(0);
        false
    }

    /// Step 3, at the parent: the collective is complete in the subtree of a child.
    pub(super) fn receive_arrival(
        &mut self,
        from: &Link,
        link: usize,
        job: JobId,
        (at, collects): (Collective, bool),
        body: &[u8],
    ) -> Result<(), Fault> {
        if let Collective::Group { kind, tag } = at {
            let (dead, body) = message::split_lost(body).ok_or(Fault::BadPeer)?;
            if !self.are_current(body)? || !self.are_current(dead)? {
                return Ok(());
            }
            let Server { jobs, ranks, links, groups, .. } = self;
            let below = |slot: &usize| links.below(ranks[*slot].node) == Some(link);
            let members = || slots_of(jobs, body).flatten().filter(below);
            if members().next().is_none() {
                return Err(Fault::BadPeer);
            }
            let is_missed = members().any(|slot| !ranks[slot].excluded);
            groups.consider(slots_of(jobs, body)).map_err(|_| Fault::BadPeer)?;
            if groups.find((kind, tag), &|slot| slot.tracker.owing.contains(link)).is_some() {
                return Ok(());
            }
            let is_missed = is_missed || groups.find((kind, tag), &Group::is_open).is_some();
            let joined = groups.arrive_below((job, link), (kind, tag), &|slot| route(ranks, links, slot));
            let group = joined.map_err(|why| self.fault(why, Fault::BadPeer))?;
            // Their exits follow.
            for slot in slots_of(&self.jobs, dead).flatten() {
                if self.links.below(self.ranks[slot].node) == Some(link) {
                    self.ranks[slot].dead = true;
                }
            }
            self.groups.collect(group, collects);
            if is_missed {
                self.check_group(job, group);
            } else {
                // Nodes below the child are lost, and the others have gone on without it.
                self.release_group(group, 0);
            }
            return Ok(());
        }
        if self.tracker_mut(job, at, None).is_some_and(|tracker| tracker.arrived.contains(link)) {
            return Err(Fault::BadPeer);
        }
        self.receive_records(from, job, RecordKind::Pair, body)?;
        if let Some(tracker) = self.tracker_mut(job, at, None).filter(|tracker| !tracker.owing.contains(link))
        {
            tracker.arrived.insert(link);
            tracker.collects |= collects;
        }
        if at == Collective::Ring {
            self.check_ring(job)
        } else {
            self.check_fence(job)
        }
        Ok(())
    }

    /// Step 4: all ranks have arrived in the fence of a job.
    pub(super) fn release_fence(&mut self, job: JobId) {
        self.fan_out(job, Collective::Fence);
        let state = &mut self.jobs[job.index()];
        event!(debug, "job {}: fence of {} complete", job, state.fence.arrived);
        state.fence = Fence::default();
        state.fences = state.fences.wrapping_add(1);
        self.answer_fence(job, Response::Fence(None));
    }

    /// Answers the ranks that wait in the fence of a job.
    fn answer_fence(&mut self, job: JobId, answer: Response) {
        for index in self.jobs[job.index()].slots() {
            self.ranks[index].in_fence = false;
            self.respond_to_rank(index, |what| (what == ReplyState::Fence).then_some(answer));
        }
    }

    /// Step 4: all ranks have arrived in the ring of a job. Each gets the sum of the counts of lower ranks, and the
    /// texts of its neighbours.
    pub(super) fn release_ring(&mut self, job: JobId) {
        self.fan_out(job, Collective::Ring);
        let state = &self.jobs[job.index()];
        let slots = state.slots();
        let parts = |ranks: &[RankSlot]| ranks.iter().filter_map(|rank| rank.ring).next();
        let ranks = &self.ranks[slots.clone()];
        let last = ranks.iter().rev().find_map(|rank| rank.ring);
        let (Some(first), Some(mut before)) = (parts(ranks), last) else { return };
        let mut below = 0u32;
        for index in slots {
            let Some(part) = self.ranks[index].ring.take() else { continue };
            let slots = self.jobs[job.index()].slots();
            let after = parts(&self.ranks[index + 1..slots.end]).unwrap_or(first);
            let place = RingPart { count: below, left: before.right, right: after.left };
            self.respond_to_rank(index, |what| (what == ReplyState::Ring).then_some(Response::Ring(place)));
            below = below.wrapping_add(part.count);
            before = part;
        }
        self.jobs[job.index()].ring = 0;
    }

    /// Returns the outcome of a group that is complete, at the node that completes it.
    fn outcome(&mut self, at: u32) -> u32 {
        #[cfg(feature = "pmix")]
        return self.pmix_outcome(at);
        #[cfg(not(feature = "pmix"))]
        return u32::from(self.groups.get(at).is_some());
    }

    /// Step 4: all members have arrived in the collective of a group.
    pub(super) fn release_group(&mut self, at: u32, outcome: u32) {
        let Some(&Group { kind, tag, .. }) = self.groups.get(at) else { return };
        let response = match kind {
            GroupKind::Barrier => Response::Fence(Some(tag)),
            #[cfg(feature = "pmix")]
            _ => self.apply_group(at, outcome),
            #[cfg(not(feature = "pmix"))]
            _ => Response::Fence(None),
        };
        self.respond_to_group(at, response);
        self.groups.release(at, outcome, self.kvs.written());
        self.links.wake_children();
    }

    /// Turns the pending replies of a group into responses.
    pub(super) fn respond_to_group(&mut self, at: u32, response: Response) {
        let Some(&Group { job: Some(job), kind, .. }) = self.groups.get(at) else { return };
        let of_one_job = kind == GroupKind::Barrier;
        let slots = if of_one_job { self.jobs[job.index()].slots() } else { 0..self.ranks.len() };
        for slot in slots {
            if self.groups.has_member(at, slot as u32) {
                self.respond_to_rank(slot, |what| match what {
                    ReplyState::GroupFence { group, .. } if group == at => Some(response),
                    _ => None,
                });
            }
        }
    }

    /// Turns pending replies of a rank into responses, where `response` returns one.
    pub(super) fn respond_to_rank(&mut self, index: usize, answer: impl Fn(ReplyState) -> Option<Response>) {
        let RankSlot { conn, pmix, .. } = self.ranks[index];
        if let Some(conn) = conn {
            self.respond(conn, &answer);
        }
        if let Some(conn) = pmix {
            self.respond(conn, &answer);
        }
    }

    /// Does the same for one connection of a rank.
    fn respond(&mut self, conn: ConnId, answer: &impl Fn(ReplyState) -> Option<Response>) {
        let Some(slot) = self.conns.get_mut(conn.index()) else { return };
        let mut answered = false;
        for reply in &mut slot.replies {
            if let Some(answer) = answer(reply.state) {
                reply.state = ReplyState::Ready(answer);
                answered = true;
            }
        }
        if answered && !slot.blocked {
            self.ready.insert(conn.0);
        }
    }

    /// Step 5: marks the release as pending for all children, after the log as it is now.
    pub(super) fn fan_out(&mut self, job: JobId, at: Collective) {
        let (children, log) = (self.links.children(), self.kvs.written());
        if let Some(tracker) = self.tracker_mut(job, at, None) {
            tracker.release(children, log);
        }
        self.links.wake_children();
    }

    /// Ends collectives whose time-out has passed.
    pub(super) fn expire_collectives(&mut self, now: Time) {
        for job in self.jobs.numbers().map(JobId) {
            if self.jobs[job.index()].fence.has_expired(now) {
                self.expire(job, Collective::Fence, None);
            }
        }
        while let Some(at) = self.groups.next_expired(now) {
            if let Some(&Group { job: Some(job), kind, tag, .. }) = self.groups.get(at) {
                self.expire(job, Collective::Group { kind, tag }, Some(at));
            }
        }
    }

    /// Ends a collective that ranks of this subtree have waited for too long in, or has the parent do so.
    fn expire(&mut self, job: JobId, at: Collective, group: Option<u32>) {
        if self.is_decided_here(group) {
            return self.end(job, group, false);
        }
        if let Some(tracker) = self.tracker_mut(job, at, group).filter(|it| it.expiry == Expiry::No) {
            tracker.expiry = Expiry::Pending;
            self.links.wake(0);
        }
    }

    /// Ends the fence of a job, or a collective of a group, for the ranks of this subtree that wait in it. Acknowledges it if the
    /// parent has `told` this node.
    fn end(&mut self, job: JobId, group: Option<u32>, told: bool) {
        let refused = Response::Refused(Op::Fence, Refusal::TimedOut);
        let children = self.links.children();
        if let Some(at) = group {
            self.respond_to_group(at, refused);
            self.groups.end(at, &children, told);
        } else {
            let state = &mut self.jobs[job.index()];
            event!(debug, "job {}: fence of {} timed out", job, state.fence.arrived);
            state.fence = Fence::default();
            state.fence_tracker.end(&children, told);
            self.answer_fence(job, refused);
        }
        self.links.wake_all();
    }

    /// A child asks for the end of a collective, or acknowledges it; or the parent has ended it.
    pub(super) fn receive_end(
        &mut self,
        at: usize,
        job: JobId,
        (collective, end): (Collective, End),
        body: &[u8],
    ) -> Result<(), Fault> {
        let link = self.links.get(at).ok_or(Fault::BadPeer)?;
        let told = link.up;
        if told != (end == End::Ended) {
            return Err(Fault::BadPeer);
        }
        let what = match collective {
            Collective::Fence => None,
            Collective::Group { kind, tag } => Some((kind, tag)),
            Collective::Ring => return Err(Fault::BadPeer),
        };
        if what.is_some() && !self.are_current(body)? {
            return Ok(());
        }
        let Server { jobs, ranks, links, groups, .. } = self;
        if what.is_some() {
            let is_there = |slot: usize| match links.below(ranks[slot].node) {
                None => told && ranks[slot].node != links.node(),
                below => below == Some(at),
            };
            groups.consider(slots_of(jobs, body)).map_err(|_| Fault::BadPeer)?;
            if !slots_of(jobs, body).flatten().any(is_there) {
                return Err(Fault::BadPeer);
            }
        }
        let owing = what.map(|what| groups.find(what, &|slot| slot.tracker.owing.contains(at)));
        let tracker = &jobs[job.index()].fence_tracker;
        let is_owing = owing.map_or(tracker.owing.contains(at), |it| it.is_some());
        let has_arrived = |tracker: &Tracker| tracker.arrived.contains(at);
        let group = match (what, end) {
            (_, End::Acknowledged) if is_owing => {
                let owing = owing.flatten();
                if let Some(tracker) = self.tracker_mut(job, collective, owing) {
                    tracker.owing.remove(at);
                }
                owing.into_iter().for_each(|at| self.groups.free_if_sent(at));
                return Ok(());
            }
            (_, End::Acknowledged) => return Err(Fault::BadPeer),
            // It is about the collective that has ended.
            (_, End::Wanted { .. }) if is_owing => return Ok(()),
            // The release crosses the request if this node does not have the arrival any more.
            (Some(what), End::Wanted { arrived: true }) => {
                let found = groups.find(what, &|slot| slot.is_open() && has_arrived(&slot.tracker));
                let Some(at) = found else { return Ok(()) };
                Some(at)
            }
            (None, End::Wanted { arrived }) if arrived != has_arrived(tracker) => return Ok(()),
            (Some(what), _) => {
                let placed = groups.place(job, what, &|slot| route(ranks, links, slot));
                Some(placed.map_err(|why| self.fault(why, Fault::BadPeer))?)
            }
            (None, _) => None,
        };
        if told {
            self.end(job, group, true);
        } else {
            self.expire(job, collective, group);
        }
        Ok(())
    }

    /// Step 5, at a child: the collective is complete on all nodes.
    pub(super) fn receive_release(
        &mut self,
        from: &Link,
        job: JobId,
        (at, collects): (Collective, bool),
        body: &[u8],
    ) -> Result<(), Fault> {
        let state = &self.jobs[job.index()];
        // A subtree without ranks that could arrive gets the release too, because of the records before it.
        let is_empty = state.local == state.excluded_count && state.below.is_empty();
        let known = |tracker: &Tracker, arrived: u32| {
            tracker.fan_in == FanIn::Sent || (is_empty && arrived == 0 && tracker.arrived.is_empty())
        };
        match at {
            Collective::Fence if known(&state.fence_tracker, state.fence.arrived) => {
                self.receive_records(from, job, RecordKind::Pair, body)?;
                self.jobs[job.index()].fence_tracker.collects |= collects;
                self.release_fence(job);
            }
            Collective::Ring if known(&state.ring_tracker, state.ring) => {
                self.jobs[job.index()].ring_tracker.collects |= collects;
                self.release_ring(job);
            }
            Collective::Group { kind, tag } => {
                let (outcome, body) = message::split_outcome(body).ok_or(Fault::BadPeer)?;
                let (lost, body) = message::split_lost(body).ok_or(Fault::BadPeer)?;
                if !self.are_current(body)? || !self.are_current(lost)? {
                    return Ok(());
                }
                let Server { jobs, ranks, links, groups, .. } = self;
                groups.consider(slots_of(jobs, body)).map_err(|_| Fault::BadPeer)?;
                let Some(group) = groups.find((kind, tag), &Group::awaits_release) else {
                    // The members of this subtree were on nodes that are lost.
                    let is_here = |slot: usize| {
                        matches!(route(ranks, links, slot as u32), Route::Local | Route::Child(_))
                    };
                    let waits = slots_of(jobs, body).flatten().any(is_here);
                    return if waits { Err(Fault::BadPeer) } else { Ok(()) };
                };
                groups.collect(group, collects);
                #[cfg(feature = "pmix")]
                groups.lose(group, slots_of(jobs, lost));
                #[cfg(not(feature = "pmix"))]
                let _ = lost;
                self.release_group(group, outcome);
            }
            Collective::Fence | Collective::Ring => return Err(Fault::BadPeer),
        }
        Ok(())
    }

    /// Returns the pending message for a link that comes next: among those of its kind it needs the least of the log before it.
    pub(super) fn next_collective(
        &self,
        link: usize,
        up: bool,
    ) -> Option<(Due, JobId, Collective, Option<u32>)> {
        fn trackers(job: &Job) -> [(Collective, &Tracker); 2] {
            [(Collective::Fence, &job.fence_tracker), (Collective::Ring, &job.ring_tracker)]
        }
        let of_jobs =
            (0u32..).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty()).flat_map(|(id, job)| {
                trackers(job)
                    .map(|(at, tracker)| tracker.pending(link, up).map(|due| (due, JobId(id), at, None)))
            });
        let group = self.groups.next_pending(link, up).and_then(|(at, due)| {
            let group = self.groups.get(at)?;
            let Group { kind, tag, .. } = *group;
            Some((due, group.job?, Collective::Group { kind, tag }, Some(at)))
        });
        of_jobs.flatten().chain(group).min_by_key(|&(due, ..)| due)
    }

    pub(super) fn tracker_mut(
        &mut self,
        job: JobId,
        at: Collective,
        group: Option<u32>,
    ) -> Option<&mut Tracker> {
        let state = &mut self.jobs[job.index()];
        match at {
            Collective::Fence => Some(&mut state.fence_tracker),
            Collective::Ring => Some(&mut state.ring_tracker),
            Collective::Group { .. } => self.groups.tracker_mut(group?),
        }
    }

    /// Returns the contribution of a rank of another node to the ring. Its texts were received before its count.
    pub(super) fn ring_part(&self, job: JobId, rank: u32, count: &[u8]) -> Option<RingPart> {
        let (count, one) = count.split_first_chunk::<4>()?;
        let spaces = self.jobs[job.index()].spaces;
        let text = |side: u8| {
            let [a, b, c, d] = rank.to_le_bytes();
            self.kvs.find((spaces, Kind::Ring), &[a, b, c, d, side]).ok().flatten()
        };
        let left = text(b'l')?;
        // If both texts are equal, only one is stored.
        let right = if one == [1] { left } else { text(b'r')? };
        Some(RingPart { count: u32::from_le_bytes(*count), left, right })
    }
}

/// Returns the slots of the members in a message. `None` stands for a rank that its job does not have.
fn slots_of<'m>(jobs: &'m [Job], body: &'m [u8]) -> impl Iterator<Item = Option<usize>> + 'm {
    message::parts::<MemberSet<'m>>(body).flatten().flat_map(|set| {
        let job = jobs.get(set.job.job.index());
        set.iter().map(move |rank| job?.slot(Rank(rank)))
    })
}

/// Returns the route of the arrival of the rank in a slot.
pub(super) fn route(ranks: &[RankSlot], links: &Links<'_>, slot: u32) -> Route {
    let Some(slot) = ranks.get(slot as usize) else { return Route::Excluded };
    match links.below(slot.node) {
        // Nodes learn of an exit at different times, and must agree on whether the parent takes part.
        None if slot.node != links.node() => Route::Parent,
        _ if slot.excluded => Route::Excluded,
        None => Route::Local,
        Some(link) => Route::Child(link),
    }
}
