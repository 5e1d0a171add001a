//! Fences, group barriers and rings.

use std::collections::BTreeSet;

use hydrant_core::limits::Limit;
use hydrant_core::trace::{Cause, Exit};
use hydrant_core::wire::Op;
use hydrant_core::{JobId, Output, Rank, Refusal};

use super::says::{Records, Say, ranges};
use super::state::{Group, Kind, Model, Phase, Process, RingPart, Wait};

impl Model {
    /// Everything of a job that waits for `wait` can be told.
    pub(crate) fn release(&mut self, job: u32, ranks: &BTreeSet<u32>, wait: &Wait, say: &Say) {
        for conn in self.conns.values_mut().filter(|conn| conn.job == job) {
            if conn.rank.is_some_and(|rank| ranks.contains(&rank)) {
                for (_, owed) in conn.owed.iter_mut().filter(|(_, owed)| owed == wait) {
                    *owed = Wait::Say(say.clone());
                }
            }
        }
    }

    pub(crate) fn fence(&mut self, job: u32, rank: u32) -> Result<Wait, Refusal> {
        let now = self.now;
        let state = self.job(job);
        let process = &mut state.ranks[rank as usize];
        if process.buried {
            return Err(Refusal::Rank);
        }
        if process.in_fence {
            return Err(Refusal::InFence);
        }
        process.in_fence = true;
        state.fence.get_or_insert((now, false));
        Ok(Wait::Fence)
    }

    pub(crate) fn group(&mut self, job: u32, rank: u32, members: &[u8], tag: u32) -> Result<Wait, Refusal> {
        let (now, limit) = (self.now, self.limits.groups);
        let all = self.jobs.values().map(|job| job.groups.len()).sum::<usize>();
        let state = self.job(job);
        let members: BTreeSet<u32> = match members {
            [] => (0..state.size()).collect(),
            list => list.iter().map(|&rank| u32::from(rank)).collect(),
        };
        if state.ranks[rank as usize].buried {
            return Err(Refusal::Rank);
        }
        if members.iter().any(|&member| member >= state.size()) || !members.contains(&rank) {
            return Err(Refusal::BadGroup);
        }
        let same = |group: &Group| group.members == members && group.tag == tag;
        match state.groups.iter_mut().find(|group| same(group)) {
            Some(group) if group.arrived.contains(&rank) => return Err(Refusal::InFence),
            Some(group) => {
                group.arrived.insert(rank);
            }
            None if all >= limit as usize => return Err(Refusal::Full(Limit::Groups, limit)),
            None => {
                let (members, arrived) = (members.clone(), BTreeSet::from([rank]));
                state.groups.push(Group { members, tag, arrived, since: now, late: false });
            }
        }
        Ok(Wait::Group(members, tag))
    }

    pub(crate) fn ring(
        &mut self,
        job: u32,
        rank: u32,
        count: u32,
        left: Vec<u8>,
        right: Vec<u8>,
    ) -> Result<Wait, Refusal> {
        let process = &self.jobs[&job].ranks[rank as usize];
        if process.buried {
            return Err(Refusal::Rank);
        }
        if process.ring.is_some() {
            return Err(Refusal::InFence);
        }
        if left.len() > 1024 || right.len() > 1024 {
            return Err(Refusal::ValueLength);
        }
        let [a, b, c, d] = rank.to_le_bytes();
        let keys = [[a, b, c, d, b'l'], [a, b, c, d, b'r']];
        let mut pairs = vec![(&keys[0][..], left.len())];
        if left != right {
            pairs.push((&keys[1][..], right.len()));
        }
        self.make_room((job, rank), self.cost(job, Kind::Ring, &pairs))?;
        self.take(job, Some(rank), Kind::Ring, &pairs);
        let to_left = self.newest(job, Kind::Ring, &keys[0]).0[0];
        let to_right = if left == right { to_left } else { self.newest(job, Kind::Ring, &keys[1]).0[0] };
        let records = [to_left, to_right];
        self.job(job).ranks[rank as usize].ring = Some(RingPart { count, left, right, records });
        Ok(Wait::Ring)
    }

    /// Releases collectives of a job that wait for no rank.
    pub(crate) fn gathered(&mut self, job: u32) {
        let state = self.job(job);
        let all_ranks: BTreeSet<u32> = (0..state.size()).collect();
        let waiting: Vec<_> = state.ranks.iter().filter(|rank| rank.in_fence).collect();
        let fence = !waiting.is_empty() && state.living().all(|rank| state.ranks[rank as usize].in_fence);
        if fence {
            state.ranks.iter_mut().for_each(|rank| rank.in_fence = false);
            state.fence = None;
            self.release(job, &all_ranks, &Wait::Fence, &Say::Fence(None));
        }
        let state = self.job(job);
        let living: BTreeSet<u32> = state.living().collect();
        let complete =
            |group: &Group| group.members.intersection(&living).all(|rank| group.arrived.contains(rank));
        let (done, rest) = std::mem::take(&mut state.groups).into_iter().partition(complete);
        state.groups = rest;
        for Group { members, tag, .. } in done {
            let wait = Wait::Group(members.clone(), tag);
            self.release(job, &members, &wait, &Say::Fence(Some(tag)));
        }
        self.close_ring(job);
    }

    fn close_ring(&mut self, job: u32) {
        let state = self.job(job);
        let ring: Vec<u32> =
            (0..state.size()).filter(|&rank| state.ranks[rank as usize].ring.is_some()).collect();
        if ring.is_empty() || state.living().any(|rank| !ring.contains(&rank)) {
            return;
        }
        let parts: Vec<_> = ring.iter().filter_map(|&rank| state.ranks[rank as usize].ring.take()).collect();
        let mut below = 0;
        for (at, &rank) in ring.iter().enumerate() {
            let before = &parts[(at + parts.len() - 1) % parts.len()];
            let after = &parts[(at + 1) % parts.len()];
            let from = Records(vec![before.records[1], after.records[0]]);
            let say = Say::Ring { count: below, left: before.right.clone(), right: after.left.clone(), from };
            below += parts[at].count;
            self.release(job, &BTreeSet::from([rank]), &Wait::Ring, &say);
        }
    }

    /// A job ends when a rank waits for one that is lost.
    pub(crate) fn check_absent(&mut self, job: u32) {
        let state = &self.jobs[&job];
        if !state.cleanup || state.ending {
            return;
        }
        let lost = |rank: &u32| state.lost(*rank, self.now).is_some();
        let any = |waits: fn(&Process) -> bool| state.ranks.iter().any(waits);
        let fenced = any(|rank| rank.in_fence);
        let ringed = any(|rank| rank.ring.is_some());
        let initialized = any(|rank| rank.phase == Phase::Initialized && rank.exit.is_none());
        let misses = |rank: &u32| {
            let process = &state.ranks[*rank as usize];
            fenced && !process.in_fence
                || ringed && process.ring.is_none()
                || initialized && process.phase == Phase::New
        };
        let all_ranks = (0..state.size()).filter(misses);
        let members = state.groups.iter().flat_map(|group| group.members.difference(&group.arrived).copied());
        if let Some(rank) = all_ranks.chain(members).find(lost)
            && let Some(exit) = state.lost(rank, self.now)
        {
            self.end(job, Cause::Absent { rank: Rank(rank), exit }, "");
        }
    }

    /// Ranks whose connection was closed long enough ago are lost.
    pub(crate) fn cut_off(&mut self) {
        let now = self.now;
        let due: Vec<u32> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.cut_off.is_some_and(|due| due <= now))
            .map(|(&id, _)| id)
            .collect();
        for id in due {
            for rank in 0..self.jobs[&id].size() {
                if !self.jobs[&id].cleanup && self.jobs[&id].lost(rank, now) == Some(Exit::Lost) {
                    self.job(id).ranks[rank as usize].dead = true;
                    self.bury(id, rank);
                }
            }
            self.check_absent(id);
        }
    }

    pub(crate) fn end(&mut self, job: u32, cause: Cause, message: &str) {
        if !std::mem::replace(&mut self.job(job).ending, true) {
            self.events.push(format!("{:?}", Output::AbortJob { job: JobId(job), cause, message }));
        }
    }

    /// The job goes on without the rank.
    pub(crate) fn bury(&mut self, job: u32, rank: u32) {
        let process = &mut self.job(job).ranks[rank as usize];
        process.buried = true;
        let (fenced, ringed) = (std::mem::take(&mut process.in_fence), process.ring.take().is_some());
        let alone = BTreeSet::from([rank]);
        for (was, op, wait) in [(fenced, Op::Fence, Wait::Fence), (ringed, Op::Ring, Wait::Ring)] {
            if was {
                self.release(job, &alone, &wait, &Say::Refused(op, Refusal::Rank));
            }
        }
        let state = self.job(job);
        if state.ranks.iter().all(|rank| !rank.in_fence) {
            state.fence = None;
        }
        self.gathered(job);
    }

    pub(crate) fn late(&mut self) {
        let now = self.now;
        let mut events = Vec::new();
        for (&id, job) in self.jobs.iter_mut().filter(|(_, job)| job.fence_warning > 0) {
            let due = |since: u64| since + job.fence_warning <= now;
            let living: BTreeSet<u32> = job.living().collect();
            let mut say = |arrived: usize, size: usize, missing: BTreeSet<u32>| {
                let (arrived, size) = (arrived as u32, size as u32);
                let missing = &ranges(missing);
                events.push(format!("{:?}", Output::StalledFence { job: JobId(id), arrived, size, missing }));
            };
            let late = |rank: &u32| {
                let process = &job.ranks[*rank as usize];
                process.phase == Phase::New && process.exit.is_none()
            };
            if let Some((since, reported @ false)) = &mut job.init
                && due(*since)
                && job.ranks.iter().any(|rank| rank.phase == Phase::New)
            {
                *reported = true;
                let missing: BTreeSet<u32> = living.iter().copied().filter(late).collect();
                let waits = |rank: &Process| rank.phase == Phase::Initialized && rank.exit.is_none();
                if job.fence.is_none() && job.ranks.iter().any(waits) && !missing.is_empty() {
                    say(living.len() - missing.len(), living.len(), missing);
                }
            }
            if let Some((since, late @ false)) = &mut job.fence
                && due(*since)
            {
                *late = true;
                let missing: BTreeSet<u32> =
                    living.iter().copied().filter(|&rank| !job.ranks[rank as usize].in_fence).collect();
                say(living.len() - missing.len(), living.len(), missing);
            }
            for group in job.groups.iter_mut().filter(|group| !group.late && due(group.since)) {
                group.late = true;
                let missing: BTreeSet<u32> = group
                    .members
                    .difference(&group.arrived)
                    .filter(|rank| living.contains(rank))
                    .copied()
                    .collect();
                say(group.arrived.len(), group.arrived.len() + missing.len(), missing);
            }
        }
        self.events.extend(events);
    }

    /// When something is due at the latest.
    pub(crate) fn due(&self) -> Option<u64> {
        let fences = self.jobs.values().filter(|job| job.fence_warning > 0).flat_map(|job| {
            let fence = job.fence.filter(|(_, late)| !late).map(|(since, _)| since);
            let groups = job.groups.iter().filter(|group| !group.late).map(|group| group.since);
            let init = job.init.filter(|(_, reported)| !reported).map(|(since, _)| since);
            let init = init.filter(|_| job.ranks.iter().any(|rank| rank.phase == Phase::New));
            fence.into_iter().chain(groups).chain(init).map(|since| since + job.fence_warning)
        });
        let cut_off = self.jobs.values().filter_map(|job| job.cut_off).filter(|&due| due > self.now);
        let lookups = self.conns.values().flat_map(|conn| &conn.owed).filter_map(|(_, wait)| match wait {
            Wait::Lookup(_, until) => Some(*until),
            _ => None,
        });
        fences.chain(cut_off).chain(lookups).min()
    }
}
