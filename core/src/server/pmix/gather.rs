//! Collectives of explicit processes of one or several jobs: fences, connections, groups.

use super::super::Server;
use super::super::collective::route;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::{JobId, Rank};
use crate::limits::HOST_FACTS;
use crate::peer::message::GroupKind;
use crate::state::{Job, PmixResponse, ReplyState, Response};
use crate::store::log::hash;
use crate::tables::fence::Group;
use crate::time::Time;
use crate::wire::pmix::{Infos, Proc, Procs, WILDCARD, status};

/// Status of members whose collective cannot complete, because a member has died.
const LOST_CONNECTION: i32 = -61;
/// The same for a group that is being constructed.
pub(super) const CONSTRUCT_ABORT: i32 = -165;

impl Server<'_> {
    /// A rank arrives in a collective. Records travel with it if it `collects`. A time-out of the request limits the wait of all
    /// ranks.
    pub(super) fn gather(
        &mut self,
        now: Time,
        requester: Requester,
        (kind, name): (GroupKind, &[u8]),
        (procs, infos): (Procs<'_>, &Infos<'_>),
        collects: bool,
    ) -> Result<ReplyState, Refusal> {
        self.check_included(requester)?;
        let Server { jobs, ranks, links, groups, .. } = self;
        if !procs.iter().all(|proc| job_of(jobs, proc).is_some()) {
            return Err(Refusal::NoJob);
        }
        let tag = hash(0, name);
        let members = procs.iter().flat_map(|proc| slots_of_proc(jobs, proc));
        let who = (requester.job, requester.index as u32);
        let way = |slot: u32| route(ranks, links, slot);
        groups.consider(members)?;
        let group = groups.arrive(who, (kind, tag), &way, now)?;
        groups.collect(group, collects);
        groups.part(
            group,
            kind == GroupKind::Fence && !collects && procs.iter().all(|proc| proc.rank != WILDCARD),
        );
        if let Some(wait) = infos.timeout() {
            groups.limit(group, now.after(wait));
            self.schedule(now, wait);
        }
        Ok(ReplyState::GroupFence { group, tag })
    }

    /// Returns the outcome of a collective, at the node that completes it.
    pub(in super::super) fn pmix_outcome(&mut self, at: u32) -> u32 {
        let Some(&Group { kind, tag, .. }) = self.groups.get(at) else { return 0 };
        let Server { groups, ranks, .. } = self;
        let dead = || (0usize..).zip(&**ranks).filter(|(_, rank)| rank.dead).map(|(slot, _)| slot);
        let loses = dead().any(|slot| groups.has_member(at, slot as u32));
        groups.lose(at, dead().map(Some));
        let fails = match kind {
            GroupKind::Connect => loses,
            GroupKind::Construct => loses && self.terms(at, kind, tag).is_none(),
            _ => false,
        };
        if fails {
            return 0;
        }
        if kind == GroupKind::Construct { self.next_context() } else { 1 }
    }

    /// Returns a context id that no node of the run has drawn.
    pub(super) fn next_context(&mut self) -> u32 {
        let nodes = self.links.tree().nodes().max(1);
        let drawn = self.contexts;
        self.contexts = drawn.wrapping_add(1);
        drawn.wrapping_mul(nodes).wrapping_add(self.links.node()).wrapping_add(1).max(1)
    }

    /// Applies a complete collective to its members. Returns their response.
    pub(in super::super) fn apply_group(&mut self, at: u32, outcome: u32) -> Response {
        let Some(&Group { kind, tag, .. }) = self.groups.get(at) else {
            return Response::status(status::ERROR);
        };
        if outcome == 0 {
            let is_group = kind == GroupKind::Construct;
            return Response::status(if is_group { CONSTRUCT_ABORT } else { LOST_CONNECTION });
        }
        match kind {
            GroupKind::Connect | GroupKind::Disconnect | GroupKind::Fence => {
                self.relate(at, kind);
                if HOST_FACTS && kind == GroupKind::Connect {
                    return Response::Pmix(PmixResponse::Connected { jobs: self.jobs_of(at) });
                }
            }
            GroupKind::Construct => {
                let mut members = 0;
                for slot in 0..self.limits.ranks {
                    if self.groups.has_member(at, slot) && !self.groups.is_lost(at, slot) {
                        self.ranks[slot as usize].group = outcome;
                        members += 1;
                    }
                }
                if self.name_context(at, tag, outcome).is_err() {
                    return Response::status(status::OUT_OF_RESOURCE);
                }
                self.tell_losses(at, kind, tag);
                return Response::Pmix(PmixResponse::Group { context: outcome, members });
            }
            GroupKind::Destruct => self.tell_losses(at, kind, tag),
            GroupKind::Barrier => {}
        }
        Response::status(status::SUCCESS)
    }

    /// Returns the bit set of the jobs of a group, as far as it reaches.
    fn jobs_of(&self, at: u32) -> u64 {
        let has_member = |job: &Job| !job.name.is_empty() && self.groups.has_member_in(at, &job.slots());
        let jobs = (0..u64::BITS).zip(&*self.jobs).filter(|(_, job)| has_member(job));
        jobs.fold(0, |set, (id, _)| set | 1 << id)
    }

    /// Connects or disconnects the jobs of a group.
    ///
    /// `MPI_Comm_disconnect` of Open MPI is a fence without data that names the communicator's processes. Their jobs need not fail
    /// together any longer if all processes of one of them take part. They may still read each other's data.
    fn relate(&mut self, at: u32, kind: GroupKind) {
        if kind == GroupKind::Fence && self.groups.get(at).is_none_or(|group| !group.parts) {
            return;
        }
        let slots = |server: &Self, job: JobId| server.jobs[job.index()].slots();
        for first in self.jobs.numbers().map(JobId) {
            if !self.groups.has_member_in(at, &slots(self, first)) {
                continue;
            }
            for other in self.jobs.numbers().map(JobId).skip(first.index() + 1) {
                if !self.groups.has_member_in(at, &slots(self, other)) {
                    continue;
                }
                let has_all = |job| slots(self, job).all(|slot| self.groups.has_member(at, slot as u32));
                match kind {
                    GroupKind::Fence if !has_all(first) && !has_all(other) => continue,
                    GroupKind::Connect => self.connections.connect(first, other),
                    GroupKind::Disconnect => drop(self.disconnect_jobs(first, other)),
                    _ => {}
                }
                self.note_connected(first, other, kind == GroupKind::Connect);
            }
        }
    }

    /// Ends the other jobs of a group if the group waits for one of their ranks that has exited.
    pub(in super::super) fn check_others_for_lost(&mut self, now: Time, job: JobId, at: u32) {
        for other in self.jobs.numbers().map(JobId).filter(|&other| other != job) {
            if self.groups.get(at).is_some()
                && self.groups.has_member_in(at, &self.jobs[other.index()].slots())
            {
                self.check_for_lost(now, other);
            }
        }
    }

    /// Ends the collectives that wait for ranks of a job that is over.
    pub(in super::super) fn end_groups_with(&mut self, job: JobId) {
        let slots = self.jobs[job.index()].slots();
        for at in 0..self.limits.groups {
            let is_open = self.groups.get(at).is_some_and(|group| !group.released);
            if is_open && self.groups.has_member_in(at, &slots) {
                self.respond_to_group(at, Response::status(LOST_CONNECTION));
            }
        }
    }
}

/// Returns the job of a process.
fn job_of<'j>(jobs: &'j [Job], proc: Proc<'_>) -> Option<&'j Job> {
    jobs.iter().find(|job| !job.name.is_empty() && job.name.as_bytes() == proc.namespace)
}

/// Returns the slots of a process, or of all of its job. `None` stands for a rank that there is not.
pub(super) fn slots_of_proc<'j>(
    jobs: &'j [Job],
    proc: Proc<'_>,
) -> impl Iterator<Item = Option<usize>> + use<'j> {
    let job = job_of(jobs, proc);
    let ranks = match (proc.rank, job) {
        (WILDCARD, Some(job)) => 0..job.size,
        (rank, _) => rank..rank.saturating_add(1),
    };
    ranks.map(move |rank| job?.slot(Rank(rank)))
}
