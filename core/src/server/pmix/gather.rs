//! Collectives of explicit processes of one or several jobs: fences, connections, groups.
//!
//! A collective has no slot. Each member waits with a reply that names the collective by a hash of its kind, its name
//! and its members. The collective is complete when as many replies wait as it has members.

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::state::{Gather, Gathering, ReplyState, Response};
use crate::store::log::hash;
use crate::wire::Text;
use crate::wire::pmix::{Procs, WILDCARD, Writer, status};

/// Status of members whose collective cannot complete, because a member has died.
const LOST_CONNECTION: i32 = -61;

impl Server<'_> {
    /// A rank arrives in a collective.
    pub(super) fn gather(
        &self,
        requester: Requester,
        kind: Gathering,
        name: &[u8],
        procs: Procs<'_>,
    ) -> Result<ReplyState, Refusal> {
        let mut id = [hash(kind as u32, name), hash(!(kind as u32), name)];
        let (mut needed, mut is_member) = (0u32, false);
        for proc in procs.iter() {
            let job = self.named(Text::plain(proc.namespace)).ok_or(Refusal::NoJob)?;
            let size = self.jobs[job.index()].size;
            let ranks = match proc.rank {
                WILDCARD => 0..size,
                rank if rank < size => rank..rank + 1,
                _ => return Err(Refusal::BadGroup),
            };
            for rank in ranks {
                let member = [job.0.to_le_bytes(), rank.to_le_bytes()];
                // The order of the members does not matter.
                for (at, id) in (0u32..).zip(&mut id) {
                    *id = id.wrapping_add(hash(at, member.as_flattened()));
                }
                needed = needed.saturating_add(1);
                is_member |= (job, Rank(rank)) == (requester.job, requester.rank);
            }
        }
        if !is_member {
            return Err(Refusal::BadGroup);
        }
        Ok(ReplyState::Gather(Gather { kind, id, needed }))
    }

    /// Completes a collective if all members have arrived.
    pub(super) fn check_gather(&mut self, gather: Gather) {
        let is_it = |state: ReplyState| state == ReplyState::Gather(gather);
        let waits = |conn: u32| {
            let slot = &self.conns[conn as usize];
            let replies = slot.replies.iter().filter(|reply| is_it(reply.state)).count() as u32;
            if slot.closing.is_some() { 0 } else { replies }
        };
        if (0..self.limits.conns).map(waits).sum::<u32>() < gather.needed {
            return;
        }
        let answer = match gather.kind {
            Gathering::Construct => {
                self.contexts = self.contexts.wrapping_add(1).max(1);
                Response::Group { context: self.contexts, members: gather.needed }
            }
            _ => Response::Status(status::SUCCESS),
        };
        let mut first: Option<JobId> = None;
        for conn in 0..self.limits.conns {
            let slot = &mut self.conns[conn as usize];
            let mut is_member = false;
            for reply in slot.replies.iter_mut().filter(|reply| is_it(reply.state)) {
                reply.state = ReplyState::Ready(answer);
                is_member = true;
            }
            let Some(requester) = self.requester(ConnId(conn)).filter(|_| is_member) else { continue };
            let first = *first.get_or_insert(requester.job);
            match gather.kind {
                Gathering::Connect if first != requester.job => {
                    self.connections.connect(first, requester.job)
                }
                Gathering::Disconnect => {
                    self.connections.disconnect(first, requester.job);
                }
                Gathering::Construct => self.ranks[requester.index].group = self.contexts,
                _ => {}
            }
            self.check_ready(ConnId(conn));
        }
    }

    /// Ends the collectives of a job's ranks and of jobs connected to it, because a member may have died.
    pub(in super::super) fn end_gathers(&mut self, job: JobId) {
        for conn in 0..self.limits.conns {
            let Some(of) = self.conns[conn as usize].job else { continue };
            if !self.connections.connected(of, job) {
                continue;
            }
            let replies = &mut self.conns[conn as usize].replies;
            for reply in replies.iter_mut().filter(|reply| matches!(reply.state, ReplyState::Gather(_))) {
                reply.state = ReplyState::Ready(Response::Status(LOST_CONNECTION));
            }
            self.check_ready(ConnId(conn));
        }
    }

    /// Writes the reply to the construction of a group, in the form that the version of the client's library reads.
    pub(super) fn write_group(&self, id: ConnId, context: u32, members: u32, writer: &mut Writer<'_>) {
        let major = self.conns[id.index()].pmix.map_or(0, |dialect| dialect.major);
        let of_jobs = || {
            let jobs = self.jobs.iter().filter(|job| !job.name.is_empty());
            jobs.flat_map(move |job| {
                let ranks = (0u32..).zip(&self.ranks[job.slots()]);
                ranks.filter(move |(_, rank)| rank.group == context).map(move |(rank, _)| (job, rank))
            })
        };
        // A member that has constructed another group since does not count.
        if of_jobs().count() as u32 != members {
            return writer.status(status::ERROR);
        }
        writer.status(status::SUCCESS);
        if major >= 5 {
            writer.array(members);
            for (job, rank) in of_jobs() {
                writer.proc(job.name.as_bytes(), rank);
            }
        }
        if major >= 6 {
            writer.single();
            writer.byte(1);
        }
        writer.single();
        writer.size(context.into());
    }
}
