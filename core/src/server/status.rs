//! Status of a server, for display. These methods do not change outputs.

use serde::{Deserialize, Serialize};

use super::Server;
use super::fetch::is_most;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::Limit;
use crate::peer::message::GroupKind;
use crate::state::{RankPhase, ReplyState};
use crate::tables::psets::Pset;
use crate::time::Time;
use crate::trace::{Cause, Exit};
use crate::wire::Op;

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobReport {
    /// Its phase.
    pub phase: JobPhase,
    /// Its number of ranks.
    pub size: u32,
    /// Ranks that are connected.
    pub connected: u32,
    /// Ranks between init and finalize.
    pub initialized: u32,
    /// Ranks that wait in the job's fence.
    pub in_fence: u32,
    /// Ranks that have finalized.
    pub finalized: u32,
    /// Ranks whose process has ended.
    pub exited: u32,
}

/// Phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// No client has connected.
    Opened,
    /// Clients have connected.
    Served,
    /// It is aborted.
    Ending(Cause),
    /// Every rank has exited.
    Over,
}

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// Its connection, if it has one.
    pub conn: Option<ConnId>,
    /// Whether it is between init and finalize.
    pub initialized: bool,
    /// Whether it has finalized.
    pub finalized: bool,
    /// Whether it waits in the job's fence.
    pub in_fence: bool,
    /// Its exit, if it has exited.
    pub exit: Option<Exit>,
}

/// State of a rank and the reply that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStatus<'a> {
    /// Its state.
    pub report: RankReport,
    /// Oldest reply that is not ready.
    #[serde(borrow)]
    pub wait: Option<Wait<'a>>,
}

/// Reply that a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Wait<'a> {
    /// The fence of all ranks of its job.
    Fence {
        /// Number of the fence in the job, from 1 on. Processes that restore a server count from 1 again.
        number: u32,
        /// Time of the first arrival on this node.
        since: Time,
    },
    /// A collective of some ranks.
    Group {
        /// Its kind.
        kind: GroupKind,
        /// Time of the first arrival on this node.
        since: Time,
    },
    /// The ring of PMI-2.
    Ring,
    /// Data that a PMIx rank has not put yet.
    Data {
        /// Job id of that rank.
        job: &'a str,
        /// The rank.
        rank: Rank,
    },
    /// A pair of this key that another node may have.
    Pair(&'a [u8]),
    /// A node attribute of this key that no rank has put yet.
    NodeAttr(&'a [u8]),
    /// A name that is not published yet.
    Name(&'a [u8]),
    /// The start of processes.
    Spawn,
    /// Another request that the host carries out.
    Upcall,
}

/// What a node has learned of the gets of a job with [`FenceMode::Auto`](super::FenceMode::Auto) on many nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceReport {
    /// Complete fences of the job.
    pub fences: u32,
    /// Other nodes whose pairs ranks of this node have got by a hint.
    pub asked: u32,
    /// Other nodes, without the head.
    pub others: u32,
    /// Whether this node has asked for all pairs, which travel with its later fences.
    pub collects: bool,
    /// Whether it has asked for them because a get had no hint that leads to the pair.
    pub without_hint: bool,
}

impl Server<'_> {
    /// Returns what this node has learned of a job's gets, or `None` if fences of the job do not follow them.
    pub fn fence_report(&self, id: JobId) -> Option<FenceReport> {
        let job = self.job(id).ok().filter(|job| job.adaptive && job.lazy)?;
        let others = self.other_nodes();
        Some(FenceReport {
            fences: job.fences,
            asked: job.nodes_asked,
            others,
            collects: job.all_asked,
            without_hint: job.all_asked && !is_most(job.nodes_asked, others),
        })
    }

    /// Returns how much of a limit is used, in the limit's unit.
    pub fn used(&self, limit: Limit) -> u32 {
        let count = |used: &mut dyn Iterator<Item = bool>| used.filter(|&used| used).count() as u32;
        match limit {
            Limit::Jobs => count(&mut self.jobs.iter().map(|job| !job.name.is_empty())),
            Limit::Ranks => self.jobs.iter().map(|job| job.size).sum(),
            Limit::Conns => count(&mut self.conns.iter().map(|conn| conn.job.is_some())),
            Limit::Keys => self.limits.keys - self.kvs.left().keys,
            Limit::KvsBytes => self.limits.kvs_bytes - self.kvs.left().bytes,
            Limit::Groups => count(&mut self.groups.state().0.iter().map(|group| group.job.is_some())),
            Limit::Names => count(&mut self.names.state().iter().map(|name| !name.is_free())),
            Limit::Spawns => count(&mut self.upcalls.state().0.iter().map(|upcall| upcall.parent.is_some())),
            Limit::Psets => count(&mut self.psets.state().0.iter().map(Pset::is_known)),
            Limit::SpawnBytes | Limit::CommitBytes => 0,
            Limit::Links => self.links.state().0.len() as u32,
            Limit::Owed => {
                self.conns.iter().map(|conn| conn.replies.len()).max().map_or(0, |most| most as u32)
            }
        }
    }

    /// Returns a limit for which a client was refused since the last call, and clears it. Several are returned in the
    /// order of [`Limit::ALL`]. Each is returned once per job.
    pub fn take_limit_hit(&mut self) -> Option<Limit> {
        let (at, limit) = (0u32..).zip(Limit::ALL).find(|(at, _)| self.hit & (1 << at) != 0)?;
        self.hit &= !(1 << at);
        Some(limit)
    }

    /// Returns the bit set of the PMIx commands for which clients were refused as not supported, by the numbers of the commands.
    /// Numbers from 63 on share a bit. 0 without the feature `cluster`, on boards that have nobody to tell.
    #[must_use]
    pub fn unserved(&self) -> u64 {
        self.unserved
    }

    #[cold]
    pub(super) fn note_limit(&mut self, conn: ConnId, why: Refusal) {
        let hit = match why {
            Refusal::Full(hit, _) | Refusal::Quota(hit, _) => hit,
            // The limit is that of a host that starts no processes.
            Refusal::NoSpawn => Limit::SpawnBytes,
            _ => return,
        };
        if let Some(job) = self.conns[conn.index()].job.and_then(|job| self.jobs.get_mut(job.index())) {
            let hit = Limit::ALL.iter().position(|&limit| limit == hit).map_or(0, |at| 1 << at);
            self.hit |= hit & !job.hit;
            job.hit |= hit;
        }
    }

    /// Returns the state of a job, or `None` for an unknown job. Before its first connection it is
    /// [`JobPhase::Opened`].
    pub fn job_report(&self, id: JobId) -> Option<JobReport> {
        let job = self.job(id).ok()?;
        let ranks = self.ranks.get(job.slots())?;
        let in_phase = |phase| ranks.iter().filter(|rank| rank.phase == phase).count() as u32;
        let phase = match job.ending {
            _ if job.exited == job.size => JobPhase::Over,
            Some(cause) => JobPhase::Ending(cause),
            None if job.begun => JobPhase::Served,
            None => JobPhase::Opened,
        };
        Some(JobReport {
            phase,
            size: job.size,
            connected: ranks.iter().filter(|rank| rank.is_connected()).count() as u32,
            initialized: in_phase(RankPhase::Initialized),
            in_fence: job.fence.arrived,
            finalized: in_phase(RankPhase::Finalized),
            exited: job.exited,
        })
    }

    /// Returns the number of ranks of a job on this node that are not connected and have not exited, or `None` for an
    /// unknown job.
    pub fn awaited(&self, id: JobId) -> Option<u32> {
        let ranks = self.ranks.get(self.job(id).ok()?.slots())?;
        let here = ranks.iter().filter(|rank| rank.node == self.links.node());
        Some(here.filter(|rank| !rank.is_connected() && rank.exit.is_none()).count() as u32)
    }

    /// Returns the job id that ranks see, or `None` for an unknown job.
    pub fn job_name(&self, id: JobId) -> Option<&str> {
        self.job(id).ok().map(|job| &*job.name)
    }

    /// Returns the state of a rank, or `None` for an unknown job or rank.
    pub fn rank_report(&self, job: JobId, rank: Rank) -> Option<RankReport> {
        let slot = self.job(job).ok()?.slot(rank)?;
        let slot = self.ranks.get(slot)?;
        Some(RankReport {
            conn: slot.conn.or(slot.pmix),
            initialized: slot.phase == RankPhase::Initialized,
            finalized: slot.phase == RankPhase::Finalized,
            in_fence: slot.in_fence,
            exit: slot.exit,
        })
    }

    /// Returns the state of a rank and the reply that it waits for, or `None` for an unknown job or rank.
    pub fn rank_status(&self, id: JobId, rank: Rank) -> Option<RankStatus<'_>> {
        let report = self.rank_report(id, rank)?;
        let slot = self.ranks.get(self.job(id).ok()?.slot(rank)?)?;
        let conns = [slot.conn, slot.pmix].into_iter().flatten();
        let mut replies =
            conns.filter_map(|conn| self.conns.get(conn.index())).flat_map(|conn| &conn.replies);
        Some(RankStatus { report, wait: replies.find_map(|reply| self.wait(id, reply.state)) })
    }

    /// Returns what a pending reply waits for.
    fn wait(&self, id: JobId, reply: ReplyState) -> Option<Wait<'_>> {
        let job = self.job(id).ok()?;
        Some(match reply {
            ReplyState::Fence => Wait::Fence { number: job.fences.wrapping_add(1), since: job.fence.since },
            ReplyState::GroupFence { group, .. } => {
                let group = self.groups.get(group)?;
                Wait::Group { kind: group.kind, since: group.fence.since }
            }
            ReplyState::Bootstrap { since, .. } => Wait::Group { kind: GroupKind::Construct, since },
            ReplyState::Ring => Wait::Ring,
            ReplyState::Get { job, rank, .. } => Wait::Data { job: &self.job(job).ok()?.name, rank },
            ReplyState::Fetch { key, .. } => Wait::Pair(self.kvs.record(key)?.key),
            ReplyState::NodeAttr(record) => Wait::NodeAttr(self.kvs.record(record)?.key),
            ReplyState::Lookup { at, .. } => Wait::Name(self.names.awaited(at)?),
            ReplyState::LookupAll { slots, .. } => Wait::Name(self.names.awaited(slots.trailing_zeros())?),
            ReplyState::Upcall(Op::Spawn, _) => Wait::Spawn,
            ReplyState::Upcall(..) | ReplyState::UpcallEcho(..) => Wait::Upcall,
            // Clients of other runs are not asked about.
            ReplyState::Echo(_) | ReplyState::Ready(_) => return None,
        })
    }
}
