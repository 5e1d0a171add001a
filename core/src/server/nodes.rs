//! Inputs about other nodes.

use super::Server;
#[cfg(feature = "cluster")]
use super::collective::route;
use crate::fault::{Fault, Refusal};
use crate::ids::{JobId, Rank};
use crate::peer::tree::Tree;
use crate::state::Job;
#[cfg(feature = "cluster")]
use crate::state::RankPhase;
use crate::tables::fence::Stall;
use crate::tables::kvs::Kind;
use crate::tables::link_set::LinkSet;
#[cfg(feature = "cluster")]
use crate::time::Time;
#[cfg(feature = "cluster")]
use crate::trace::Exit;

impl Server<'_> {
    pub(super) fn join_nodes(&mut self, node: u32, nodes: u32, radix: u32) -> Result<(), Fault> {
        let begun = self.jobs.iter().any(|job| !job.name.is_empty());
        if begun || self.links.are_any() {
            return Err(Fault::BadNode);
        }
        self.links.join(node, Tree::new(nodes, radix)).ok_or(Fault::BadNode)?;
        self.kvs.divide(nodes);
        Ok(())
    }

    pub(super) fn map_ranks(&mut self, job: JobId, first: Rank, count: u32, node: u32) -> Result<(), Fault> {
        let Job { size, begun, exited, first: start, .. } = *self.job(job)?;
        if begun || exited > 0 {
            return Err(Fault::BadAttribute);
        }
        if node >= self.links.tree().nodes() {
            return Err(Fault::BadNode);
        }
        if count > size || first.0 > size - count {
            return Err(Fault::NoSuchRank);
        }
        let (here, below) = (self.links.node(), self.links.below(node));
        let state = &mut self.jobs[job.index()];
        let mut left = LinkSet::EMPTY;
        for slot in &mut self.ranks[(start + first.0) as usize..][..count as usize] {
            self.links.below(slot.node).into_iter().for_each(|at| left.insert(at));
            state.local -= u32::from(slot.node == here);
            slot.node = node;
            state.local += u32::from(slot.node == here);
        }
        if let Some(below) = below.filter(|_| count > 0) {
            state.below.insert(below);
            left.remove(below);
        }
        // The mapped ranks may have been the only ones of the children that they were on. Ranks are mostly mapped in their order,
        // so that the last one tells.
        let mut others = self.ranks[state.slots()].iter().rev();
        while !left.is_empty()
            && let Some(other) = others.next()
        {
            self.links.below(other.node).into_iter().for_each(|at| left.remove(at));
        }
        state.below = state.below.without(&left);
        Ok(())
    }

    pub(super) fn preput(&mut self, job: JobId, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        let state = self.job(job)?;
        if state.begun {
            return Err(Fault::BadAttribute);
        }
        let space = (state.spaces, Kind::Kvs);
        self.host_put(space, key, value)
    }

    pub(super) fn connected(&mut self, job: JobId, other: JobId, connected: bool) -> Result<(), Fault> {
        self.job(job)?;
        self.job(other)?;
        if connected {
            self.connections.connect(job, other);
        } else if !self.disconnect_jobs(job, other) {
            return Err(Fault::Refused(Refusal::NotConnected));
        }
        Ok(())
    }

    /// Disconnects two jobs. Returns whether they were connected, or one had been spawned by the other.
    pub(super) fn disconnect_jobs(&mut self, a: JobId, b: JobId) -> bool {
        let connected = self.connections.disconnect(a, b);
        let spawned = |&(job, by): &(JobId, JobId)| {
            let Job { ref spawner, parted, .. } = self.jobs[job.index()];
            !parted && *spawner == self.jobs[by.index()].name
        };
        let child = [(a, b), (b, a)].into_iter().find(spawned);
        child.into_iter().for_each(|(child, _)| self.jobs[child.index()].parted = true);
        connected || child.is_some()
    }

    /// Has the host told that two jobs have connected or disconnected.
    pub(super) fn note_connected(&mut self, job: JobId, other: JobId, connected: bool) {
        if job != other {
            self.connections.note_change(job, other, connected);
            self.events_pending = true;
        }
    }

    /// Marks the missing ranks of this node as pending for the host, unless they have been reported.
    pub(super) fn report_missing(&mut self, job: JobId) -> Result<(), Fault> {
        let Job { local, excluded_count, .. } = *self.job(job)?;
        let fence = &mut self.jobs[job.index()].fence;
        if fence.stall != Stall::Reported && fence.arrived < local - excluded_count {
            fence.stall = Stall::Pending;
            self.events_pending = true;
        }
        Ok(())
    }

    /// Returns whether node 1 releases fences and is another node, which echoes.
    pub(super) fn is_behind_root(&self) -> bool {
        cfg!(feature = "cluster") && self.links.tree().has_root_one() && self.links.have_parent()
    }

    /// A node and those below it are lost: their ranks are dead, and nothing waits for them.
    #[cfg(feature = "cluster")]
    pub(super) fn lose_node(&mut self, now: Time, epoch: u32, node: u32) -> Result<(), Fault> {
        let lost = self.links.tree().subtree(node);
        let is_next = epoch == self.links.epoch().wrapping_add(1);
        if !is_next || lost.is_empty() || lost.contains(&self.links.node()) {
            return Err(Fault::BadNode);
        }
        let link = self.links.lose(epoch, node);
        for job in self.jobs.numbers().map(JobId) {
            // A job that ends with its first failure is about to, if any of its ranks waits for one of these.
            let goes_on = !self.jobs[job.index()].cleanup;
            for index in self.jobs[job.index()].slots() {
                if !lost.contains(&self.ranks[index].node) {
                    continue;
                }
                let slot = &mut self.ranks[index];
                if goes_on {
                    (slot.excluded, slot.ring) = (true, None);
                }
                if slot.exit.is_none() {
                    // A node that leaves such a job has had its ranks end by themselves, which this server may not know yet.
                    if !goes_on {
                        slot.phase = RankPhase::Finalized;
                    }
                    self.end_remote(now, job, index, (Exit::Lost, goes_on));
                }
            }
            if goes_on {
                self.update_children(job);
            }
            let state = &mut self.jobs[job.index()];
            if let Some(link) = link {
                state.fence_tracker.forget(link);
                state.ring_tracker.forget(link);
            }
            self.end_fetches_of(job, link, &lost);
            #[cfg(feature = "pmix")]
            self.end_gets_on(job, &lost);
        }
        let Server { ranks, links, groups, .. } = self;
        groups.lose_link(link, &|slot| route(ranks, links, slot));
        // Collectives end when all jobs know who is dead.
        for job in self.jobs.numbers().map(JobId) {
            self.check_fence(job);
            self.check_ring(job);
        }
        while let Some((job, group)) = self.groups.complete() {
            self.check_group(job, group);
        }
        Ok(())
    }

    /// A node has joined as a child of node 0, where no job has ranks yet. Its link brings it all that the jobs of now have.
    #[cfg(feature = "cluster")]
    pub(super) fn admit_node(&mut self, epoch: u32, node: u32) -> Result<(), Fault> {
        let (tree, last) = (self.links.tree(), self.links.epoch());
        let is_late = (tree.first_late()..tree.nodes()).contains(&node);
        // The changes before are not the node's own.
        let is_next = if node == self.links.node() { last == 0 } else { epoch == last.wrapping_add(1) };
        // Ranks of a lost node are not the next one's.
        let has_ranks =
            |job: JobId| self.ranks[self.jobs[job.index()].slots()].iter().any(|rank| rank.node == node);
        let is_used = self.jobs.numbers().map(JobId).any(has_ranks);
        if !is_late || !is_next || is_used || node == self.links.node() && epoch == 0 {
            return Err(Fault::BadNode);
        }
        self.links.admit(epoch, node).ok_or(Fault::BadNode)?;
        if let Some(at) = self.links.to(node) {
            self.modex.forget_link(at);
        }
        Ok(())
    }

    /// Returns the children whose ranks take part in the job's collectives.
    pub(super) fn children_of(&self, job: JobId) -> LinkSet {
        let living = self.ranks[self.jobs[job.index()].slots()].iter().filter(|rank| !rank.excluded);
        living.filter_map(|rank| self.links.below(rank.node)).collect()
    }

    /// Updates the set of children whose ranks take part in the job's collectives.
    pub(super) fn update_children(&mut self, job: JobId) {
        self.jobs[job.index()].below = self.children_of(job);
    }
}
