//! Restoring a server from a snapshot, with validation.
//!
//! Snapshots are untrusted. All indices and counts that later code relies on are validated. Other values are not
//! checked.

use core::ops::Range;

use super::Server;
use super::collective::route;
use super::jobs::printable;
use crate::fault::{Damage, Fault};
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{LAZY_FENCES, SPAWN_PROGRAMS_MAX};
use crate::peer::links::Answer;
use crate::peer::tree::Tree;
use crate::snapshot::Reader;
use crate::state::{
    Abort, Conn, Job, PendingReply, PmixResponse, RankPhase, RankSlot, ReplyState, Response, RingPart,
};
use crate::storage::{Layout, Storage};
use crate::store::log::hash;
use crate::tables::fence::Group;
use crate::tables::kvs::Usage;
use crate::tables::modex::Set;
use crate::tables::names::Name;
use crate::tables::tracker::Tracker;
use crate::tables::upcalls::{Stage, Task, Upcall};

impl<'s> Server<'s> {
    /// Restores the server of a [snapshot](Server::snapshot), in `storage` of the lengths that its
    /// [limits](crate::snapshot::limits) require. Equal inputs then give the same outputs as from the original server.
    ///
    /// # Errors
    /// [`Fault::Snapshot`] for bytes that are not a valid snapshot of a server, [`Fault::InsufficientStorage`].
    pub fn restore(snapshot: &[u8], storage: Storage<'s>) -> Result<Server<'s>, Fault> {
        let mut reader = Reader::new(snapshot)?;
        let limits = reader.take()?;
        Layout::checked(&limits).ok_or(Fault::Snapshot(Damage::Limits))?;
        let mut server = Server::new(limits, storage, reader.take()?)?;
        server.read(&mut reader)?;
        reader.end()?;
        server.check().map_err(Fault::Snapshot)?;
        // Ready connections and pending events are derived from the other state.
        let last = server.conns.iter().rposition(|conn| conn.job.is_some());
        server.conns_end = last.map_or(0, |last| last as u32 + 1);
        server.ranks_end = server.jobs.iter().map(|job| job.first + job.size).max().unwrap_or(0);
        for conn in 0..limits.conns {
            server.check_ready(ConnId(conn));
        }
        server.events_pending = true;
        Ok(server)
    }

    /// Makes a server without jobs, connections and neighbours equal to a new one of the same seed. A recording that begins
    /// here replays on a new server. Returns false if the server has any of them. It is then unchanged.
    pub fn restart(&mut self) -> bool {
        let has_jobs = self.jobs.iter().any(|job| !job.name.is_empty());
        let has_conns = self.conns.iter().any(|conn| conn.job.is_some());
        if has_jobs || has_conns || !self.links.state().0.is_empty() {
            return false;
        }
        self.kvs.restart();
        self.names.state_mut().fill(Name::EMPTY);
        self.upcalls.slots_mut().fill(Upcall::EMPTY);
        let (groups, members) = self.groups.state_mut();
        groups.fill(Group::EMPTY);
        members.fill(0);
        self.psets.clear();
        // Zero is a valid turn.
        self.ready.set_turn(0);
        (self.exits, self.contexts, self.notices) = (0, 0, 0);
        (self.wake, self.hit, self.unserved, self.events_pending) = (None, 0, 0, false);
        true
    }

    /// Fills the tables in the order of [`State`](crate::snapshot::State).
    fn read(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        reader.fill(self.jobs.use_all())?;
        reader.fill(self.ranks)?;
        reader.fill(self.conns)?;
        require(self.kvs.load(reader.take()?, reader.take()?), Damage::Kvs)?;
        #[cfg(feature = "cluster")]
        self.bury_dead();
        let (groups, sets) = self.groups.state_mut();
        reader.fill(groups)?;
        reader.fill(sets)?;
        reader.fill(self.names.state_mut())?;
        reader.fill(self.upcalls.slots_mut())?;
        require(self.upcalls.load(reader.take()?), Damage::Upcalls)?;
        let jobs = self.jobs_with_messages();
        require(self.messages.load(jobs, reader.take()?), Damage::Jobs)?;
        let (psets, sets, serial) = self.psets.state_mut();
        reader.fill(psets)?;
        let used = reader.fill_front(sets)?;
        *serial = reader.take()?;
        require(self.psets.load(used), Damage::Psets)?;
        reader.fill(self.connections.state_mut())?;
        self.read_links(reader)?;
        require(self.ready.set_turn(reader.take()?), Damage::Turn)?;
        self.wake = reader.take()?;
        self.contexts = reader.take()?;
        self.notices = reader.take()?;
        let replies = self.conns.iter().flat_map(|conn| &conn.replies);
        let waits = |reply: &&PendingReply| {
            matches!(
                reply.state,
                ReplyState::Get { .. } | ReplyState::Fetch { .. } | ReplyState::Bootstrap { .. }
            )
        };
        self.gets = replies.filter(waits).count() as u32;
        Ok(())
    }

    /// Reads the links, and what the neighbours have asked for.
    fn read_links(&mut self, reader: &mut Reader<'_>) -> Result<(), Fault> {
        let count = reader.fill_front(self.links.slots_mut())?;
        let (node, tree, epoch): (u32, Tree, u32) = (reader.take()?, reader.take()?, reader.take()?);
        require(self.links.rejoin(count, node, tree, epoch).is_some(), Damage::Nodes)?;
        require(self.kvs.load_nodes(tree.nodes()), Damage::Kvs)?;
        reader.fill(self.modex.state_mut())?;
        self.exits = reader.take()?;
        Ok(())
    }

    fn check(&self) -> Result<(), Damage> {
        // Jobs come first because the other checks look up their ranks.
        let jobs = (0..self.limits.jobs).all(|job| self.is_sound_job(JobId(job)));
        whole(jobs, Damage::Jobs)?;
        whole(self.are_sound_ranks(), Damage::Ranks)?;
        whole(self.is_all_set_aside(), Damage::Kvs)?;
        whole(self.are_sound_links() && self.is_sound_modex(), Damage::Nodes)?;
        let conns = (0..self.limits.conns).all(|conn| self.is_sound_conn(ConnId(conn)));
        whole(conns, Damage::Conns)?;
        let groups = (0..self.limits.groups).all(|group| self.is_sound_group(group));
        whole(groups, Damage::Groups)?;
        whole(self.names.is_sound(|name| self.awaiting(name)), Damage::Names)?;
        let upcalls = (0..self.limits.spawns).all(|upcall| self.is_sound_upcall(UpcallId(upcall)));
        whole(upcalls, Damage::Upcalls)?;
        whole(self.psets.is_sound(|slots| self.are_ranks(slots)), Damage::Psets)
    }

    /// Returns whether slots are those of ranks.
    fn are_ranks(&self, slots: Range<u32>) -> bool {
        let mut next = slots.start;
        while next < slots.end {
            let Some(job) = self.job_of_slot(next as usize) else { return false };
            next = self.jobs[job.index()].slots().end as u32;
        }
        true
    }

    fn is_sound_job(&self, id: JobId) -> bool {
        let job = &self.jobs[id.index()];
        if job.name.is_empty() {
            return *job == Job::EMPTY;
        }
        let Some(end) = job.first.checked_add(job.size).filter(|&end| end <= self.limits.ranks) else {
            return false;
        };
        let apart = |other: &Job| {
            other.name.is_empty()
                || other.name != job.name
                    && other.spaces != job.spaces
                    // An overflow in the other job is found when that job is checked.
                    && (other.first >= end || other.first.saturating_add(other.size) <= job.first)
        };
        let (here, ranks) = (self.links.node(), &self.ranks[job.slots()]);
        let count = |is: fn(&RankSlot) -> bool| ranks.iter().filter(|rank| is(rank)).count();
        let local =
            |is: fn(&RankSlot) -> bool| ranks.iter().filter(|rank| rank.node == here && is(rank)).count();
        job.size > 0
            && printable(&job.name)
            && job.hash == hash(0, self.registered_name(job).as_bytes())
            && job.local as usize == local(|_| true)
            && job.below == self.children_of(id)
            && (!job.lazy || LAZY_FENCES && self.links.are_any())
            && job.fetched == self.count_fetched(job)
            && [job.fence_tracker, job.ring_tracker].iter().all(|tracker| self.is_sound_tracker(tracker))
            && self.messages.is_sound(id.index(), job.message)
            && self.jobs.iter().take(id.index()).all(apart)
            && job.fence.arrived as usize == local(|rank| rank.in_fence)
            && job.init.arrived as usize == local(|rank| rank.phase != RankPhase::New)
            && job.ring as usize == local(|rank| rank.ring.is_some())
            && job.exited as usize == count(|rank| rank.exit.is_some())
            && job.excluded_count as usize == local(|rank| rank.excluded)
            && (job.ending.is_some() || !job.ending_pending)
            && job.ending.is_none_or(|cause| cause.rank().0 < job.size)
    }

    fn is_sound_tracker(&self, tracker: &Tracker) -> bool {
        tracker.is_sound(&self.links.children(), self.links.have_parent(), self.kvs.written())
    }

    /// Returns the number of ranks of other nodes whose pairs are here.
    fn count_fetched(&self, job: &Job) -> u32 {
        let has = |&slot: &usize| {
            let link = self.links.towards(self.ranks[slot].node);
            link.is_some_and(|link| self.modex.contains(link, Set::Complete, slot as u32))
        };
        job.slots().filter(has).count() as u32
    }

    fn are_sound_links(&self) -> bool {
        let log = self.kvs.log();
        let is_place = |offset: u32| offset == log.len() || log.holds(offset);
        self.links.state().0.iter().all(|link| {
            is_place(link.cursor)
                && match link.answer {
                    Answer::None | Answer::Behind => true,
                    Answer::Before(offset) => offset <= link.cursor && is_place(offset),
                }
        })
    }

    /// Returns whether the neighbours, and this node, have asked for data of ranks only.
    fn is_sound_modex(&self) -> bool {
        let links = self.links.state().0.len();
        (0..self.limits.links as usize).all(|at| {
            Set::ALL.iter().all(|&set| {
                let mut next = self.modex.next(at, set, 0);
                while let Some(slot) = next {
                    let job = self.job_of_slot(slot as usize).map(|job| &self.jobs[job.index()]);
                    if at >= links || !job.is_some_and(|job| job.lazy || !set.is_lazy()) {
                        return false;
                    }
                    next = self.modex.next(at, set, slot + 1);
                }
                true
            })
        })
    }

    fn are_sound_ranks(&self) -> bool {
        let living = || (0..).map(JobId).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty());
        let in_use = |ranks: &[RankSlot]| ranks.iter().filter(|rank| **rank != RankSlot::EMPTY).count();
        let of_jobs: usize = living().map(|(_, job)| in_use(&self.ranks[job.slots()])).sum();
        let room = Usage { bytes: self.limits.kvs_bytes, keys: self.limits.keys };
        of_jobs == in_use(self.ranks)
            && living().all(|(_, job)| job.quota.less(room) == Usage::NONE)
            // The quota of a rank that has exited counts as used. Its connection may still use more.
            && living().all(|(id, job)| {
                (0..).map(Rank).zip(&self.ranks[job.slots()]).all(|(number, rank)| {
                    let back = |conn: ConnId| {
                        self.conns.get(conn.index()).is_some_and(|conn| {
                            (conn.job, conn.rank, conn.query) == (Some(id), Some(number), false)
                        })
                    };
                    let is_here = rank.node == self.links.node();
                    rank.node < self.links.tree().nodes()
                        && (is_here || !rank.is_connected() && !rank.in_fence && matches!(rank.abort, Abort::No))
                        && rank.conn.is_none_or(back)
                        && rank.pmix.is_none_or(back)
                        && (!rank.excluded
                            || !rank.in_fence
                                // The ring of a rank of another node may come after its exit.
                                && (rank.ring.is_none() || !is_here)
                                && (rank.exit.is_some() || rank.is_cut_off()))
                        && rank.ring.is_none_or(|part| self.is_sound_part(part))
                        && rank.used.less(room).less(if rank.exit.is_some() { job.quota } else { Usage::NONE })
                            == Usage::NONE
                })
            })
    }

    /// Returns whether the reserved part of the log equals the unused quotas of the ranks.
    fn is_all_set_aside(&self) -> bool {
        let (reserved, ..) = self.kvs.state();
        let (mut bytes, mut keys) = (u64::from(reserved.bytes), u64::from(reserved.keys));
        for job in self.jobs.iter().filter(|job| !job.name.is_empty()) {
            for rank in &self.ranks[job.slots()] {
                let rest = job.quota.less(rank.used);
                bytes = bytes.wrapping_sub(rest.bytes.into());
                keys = keys.wrapping_sub(rest.keys.into());
            }
        }
        (bytes, keys) == (0, 0)
    }

    fn is_sound_part(&self, part: RingPart) -> bool {
        self.kvs.log().holds(part.left) && self.kvs.log().holds(part.right)
    }

    fn is_sound_conn(&self, id: ConnId) -> bool {
        let conn = &self.conns[id.index()];
        let Some(job) = conn.job else { return *conn == Conn::EMPTY };
        // A closing connection may outlive its job, whose number may be in use again.
        let placed = conn.closing.is_some()
            || self.job(job).is_ok_and(|job| {
                conn.rank.is_none_or(|rank| {
                    let slot = job.slot(rank).map(|slot| &self.ranks[slot]);
                    slot.is_some_and(|slot| conn.query || slot.conn == Some(id) || slot.pmix == Some(id))
                })
            });
        let known = cfg!(feature = "pmix") || conn.pmix.is_none();
        job.0 < self.limits.jobs
            && placed
            && known
            && (conn.rank.is_some() || !conn.joined_pending && !conn.events.waits)
            && (conn.closing.is_some() || !conn.closing_pending)
            && conn.replies.iter().all(|reply| self.is_sound_reply(id, reply.state))
    }

    fn is_sound_reply(&self, conn: ConnId, what: ReplyState) -> bool {
        let waits_as = |is: &dyn Fn(JobId, Rank, &RankSlot) -> bool| {
            self.requester(conn)
                .is_some_and(|requester| is(requester.job, requester.rank, &self.ranks[requester.index]))
        };
        let upcall = |id, done| {
            let slot = self.upcalls.get(id);
            slot.is_some_and(|slot| slot.conn == Some(conn) && slot.stage.is_done() == done)
        };
        let log = self.kvs.log();
        match what {
            ReplyState::Fence => waits_as(&|_, _, rank| rank.in_fence),
            ReplyState::Ring => waits_as(&|_, _, rank| rank.ring.is_some()),
            ReplyState::Bootstrap { .. } => cfg!(feature = "pmix") && waits_as(&|_, _, _| true),
            ReplyState::GroupFence { group, tag } => waits_as(&|job, rank, _| {
                let arrived = |slot: usize| self.groups.has_arrived(group, slot as u32);
                self.groups.get(group).is_some_and(|it| it.tag == tag && !it.released)
                    && self.jobs[job.index()].slot(rank).is_some_and(arrived)
            }),
            ReplyState::NodeAttr(wanted_record) => {
                log.holds(wanted_record) && self.kvs.record(wanted_record).is_some_and(|record| record.wanted)
            }
            ReplyState::Lookup { at, .. } => self.names.is_known(at),
            ReplyState::LookupAll { slots, .. } => {
                let is_known = |at: u32| slots & 1 << at == 0 || self.names.is_known(at);
                slots != 0 && cfg!(feature = "pmix") && (0..u64::BITS).all(is_known)
            }
            ReplyState::Get { job, .. } => job.0 < self.limits.jobs,
            ReplyState::Ready(Response::Pmix(
                PmixResponse::RankData(job, rank) | PmixResponse::Restarts(job, rank),
            )) => self.job(job).is_ok_and(|job| job.slot(rank).is_some()),
            ReplyState::Ready(Response::Pmix(
                PmixResponse::Commit { job, record, .. }
                | PmixResponse::Given { job, record, .. }
                | PmixResponse::Text(job, record),
            )) => job.0 < self.limits.jobs && log.holds(record),
            ReplyState::Fetch { job, key, source } => self.job(job).is_ok_and(|job| {
                let is_rank = |slot: u32| job.slots().contains(&(slot as usize));
                job.lazy && log.holds(key) && source.is_none_or(is_rank)
            }),
            ReplyState::Echo(_) => {
                self.conns[conn.index()].query
                    && self.conns[conn.index()].rank.is_some()
                    && self.links.node() == 0
                    && self.is_behind_root()
            }
            ReplyState::UpcallEcho(_, _, id) => upcall(id, true) && self.is_behind_root(),
            ReplyState::Upcall(_, id) => upcall(id, false),
            ReplyState::Ready(Response::Upcall(_, id) | Response::Pmix(PmixResponse::Report(id))) => {
                upcall(id, true)
            }
            ReplyState::Ready(Response::Record(_, record)) => log.holds(record),
            ReplyState::Ready(Response::Ring(part)) => self.is_sound_part(part),
            ReplyState::Ready(
                Response::Pmix(PmixResponse::SetChanged { which, .. })
                | Response::PsetName(which)
                | Response::PsetNext(which)
                | Response::PsetMembers(which, _),
            ) => self.psets.is_stored(which),
            ReplyState::Ready(Response::Pmix(PmixResponse::Died(job, rank))) => {
                self.job(job).is_ok_and(|job| job.slot(rank).is_some())
            }
            ReplyState::Ready(Response::Pmix(PmixResponse::Notice(notice))) => {
                self.names.port(notice).is_some()
            }
            ReplyState::Ready(Response::Pmix(answer)) => {
                answer.about().is_none_or(|(job, _)| job.0 < self.limits.jobs)
            }
            ReplyState::Ready(_) => true,
        }
    }

    /// Returns the job id that a job was registered with. A tool may have given it another one.
    fn registered_name<'a>(&'a self, job: &'a Job) -> &'a str {
        #[cfg(feature = "pmix")]
        if let Some(name) = self.name_of_tool(job) {
            return name;
        }
        &job.name
    }

    fn is_sound_group(&self, at: u32) -> bool {
        let (slots, _) = self.groups.state();
        let group = &slots[at as usize];
        match group.job {
            None => *group == Group::EMPTY,
            Some(job) => {
                let is_rank = |slot: u32| self.job_of_slot(slot as usize).is_some();
                let way = |slot: u32| route(self.ranks, &self.links, slot);
                self.job(job).is_ok()
                    && self.is_sound_tracker(&group.tracker)
                    && self.groups.is_sound(at, is_rank, &way)
            }
        }
    }

    /// Returns the number of replies that wait for the name in that slot.
    fn awaiting(&self, name: u32) -> usize {
        let replies = self.conns.iter().flat_map(|conn| &conn.replies);
        let waits = |reply: &&PendingReply| match reply.state {
            ReplyState::Lookup { at, .. } => at == name,
            ReplyState::LookupAll { slots, .. } => name < u64::BITS && slots & 1 << name != 0,
            _ => false,
        };
        replies.filter(waits).count()
    }

    fn is_sound_upcall(&self, id: UpcallId) -> bool {
        let (slots, _) = self.upcalls.state();
        let slot = &slots[id.index()];
        let Some((job, _)) = slot.parent else { return *slot == Upcall::EMPTY };
        let asked = |conn: ConnId| {
            self.conns.get(conn.index()).is_some_and(|conn| {
                conn.replies.iter().any(|reply| match reply.state {
                    ReplyState::Upcall(_, other)
                    | ReplyState::UpcallEcho(_, _, other)
                    | ReplyState::Ready(
                        Response::Upcall(_, other) | Response::Pmix(PmixResponse::Report(other)),
                    ) => other == id,
                    _ => false,
                })
            })
        };
        let held = slot.conn.map_or(slot.stage != Stage::Asked && !slot.stage.is_done(), asked);
        let staged = match (slot.task, slot.stage) {
            (Task::Spawn(programs), Stage::Asked | Stage::Passed | Stage::Begun(_)) => {
                programs <= SPAWN_PROGRAMS_MAX
                    && self.request(id).is_some_and(|request| request.count() == programs)
            }
            (Task::Spawn(_), Stage::Launched(_)) => true,
            (Task::Name, Stage::Asked | Stage::Passed | Stage::Named(_)) => true,
            (Task::RemoveFiles | Task::Log(_), stage) => {
                return job.0 < self.limits.jobs && stage == Stage::Asked;
            }
            (Task::Look(_) | Task::Note, Stage::Asked | Stage::Passed) => {
                return job.0 < self.limits.jobs && slot.conn.is_none();
            }
            (Task::Report(_), Stage::Asked | Stage::Passed) => {
                return job.0 < self.limits.jobs && slot.conn.is_none_or(asked);
            }
            (Task::Report(_), Stage::Named(_)) => true,
            (Task::Look(_) | Task::Note | Task::Report(_), _) => false,
            (Task::Spawn(_), Stage::Named(_)) | (Task::Name, Stage::Begun(_) | Stage::Launched(_)) => false,
        };
        job.0 < self.limits.jobs && held && staged && printable(&slot.spawner) && printable(&slot.name)
    }
}

fn require(sound: bool, what: Damage) -> Result<(), Fault> {
    whole(sound, what).map_err(Fault::Snapshot)
}

fn whole(sound: bool, what: Damage) -> Result<(), Damage> {
    if sound { Ok(()) } else { Err(what) }
}
