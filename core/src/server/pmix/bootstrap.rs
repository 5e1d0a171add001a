//! Construction of PMIx groups whose members do not know all the others (`pmix.grp.btstrp`).
//!
//! Some members, the *leaders*, say how many leaders there are, and name further members, who know only the name of the group.
//!
//! 1. What a leader says is a notice for all nodes ([`Server::lead`]), as the event of a client is. No client gets it.
//! 2. A member waits ([`ReplyState::Bootstrap`]) until its node has the notices of all leaders, which name all members.
//! 3. The member then arrives in the construction of the group of these members ([`Server::bootstrap`]).
//!
//! A node keeps the notices until all its members have arrived, and until its neighbours have the notices. The wait fails when no
//! process is left that could be a leader ([`Server::end_bootstraps`]).

use super::super::Server;
use super::super::collective::route;
use super::super::dispatch::Requester;
use super::events::{Notice, PREFIX, notice_header, notice_in, range};
use super::gather::{CONSTRUCT_ABORT, slots_of_proc};
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{HOST_FACTS, PORT_MAX};
use crate::peer::message::GroupKind;
use crate::state::{Job, ReplyState, Response};
use crate::store::log::hash;
use crate::tables::fence::Group;
use crate::tables::names::{NameRef, Names};
use crate::time::Time;
use crate::wire::Integers;
use crate::wire::pmix::{Infos, Procs, Reader, Writer, keys, kind, status};

/// Deadline of a wait without one.
const NEVER: Time = Time(u64::MAX);
/// Processes that a leader has named as members from the start, itself among them.
const MEMBERS: &[u8] = b"pmix.grp.mbrs";

impl Server<'_> {
    /// A rank arrives in the construction of a group, as a leader or as a member that a leader names.
    pub(super) fn await_members(
        &mut self,
        now: Time,
        requester: Requester,
        integers: Integers,
        name: &[u8],
        (procs, infos): (Procs<'_>, &Infos<'_>),
    ) -> Result<ReplyState, Refusal> {
        self.check_included(requester)?;
        let tag = hash(0, name);
        let is_waiting = |server: &Self| {
            let mut replies = server.conns[requester.conn.index()].replies.iter();
            replies.any(|reply| matches!(reply.state, ReplyState::Bootstrap { tag: of, .. } if of == tag))
        };
        if is_waiting(self) {
            return Err(Refusal::InFence);
        }
        if infos.find(keys::GROUP_BOOTSTRAP).is_some() {
            self.lead(requester, integers, tag, (procs, infos))?;
        } else if !procs.is_empty() {
            return Err(Refusal::Unsupported);
        }
        let timeout = infos.timeout();
        if let Some(wait) = timeout {
            self.schedule(now, wait);
        }
        self.gets += 1;
        Ok(ReplyState::Bootstrap { tag, since: now, until: timeout.map_or(NEVER, |wait| now.after(wait)) })
    }

    /// Tells all nodes what a leader says. It takes the place of what the leader has said in vain.
    #[inline(never)]
    fn lead(
        &mut self,
        requester: Requester,
        integers: Integers,
        tag: u32,
        (procs, infos): (Procs<'_>, &Infos<'_>),
    ) -> Result<(), Refusal> {
        let leaders =
            infos.find(keys::GROUP_BOOTSTRAP).and_then(|info| info.as_u32()).filter(|&leaders| leaders > 0);
        let leaders = leaders.ok_or(Refusal::BadGroup)?;
        let others = said(&self.names, &self.jobs, tag).map(|(_, notice)| number_of_leaders(&notice));
        if others.flatten().any(|other| other != leaders) {
            return Err(Refusal::BadGroup);
        }
        let mut packed = [0; PORT_MAX];
        let mut writer = Writer::new(integers, &mut packed);
        writer.info(keys::GROUP_BOOTSTRAP, kind::SIZE);
        writer.size(leaders.into());
        writer.info(MEMBERS, kind::DATA_ARRAY);
        writer.data_type(kind::PROC);
        writer.size(procs.len().into());
        procs.iter().for_each(|proc| writer.proc(proc.namespace, proc.rank));
        let added = infos.find(keys::GROUP_ADD_MEMBERS);
        if let Some(added) = added {
            let _ = added.array(kind::PROC, Reader::proc).ok_or(Refusal::BadGroup)?;
            writer.info(keys::GROUP_ADD_MEMBERS, added.kind);
            writer.raw(added.value);
        }
        let len = writer.finish().ok_or(Refusal::NameLength)?;
        let count = 2 + u32::from(added.is_some());
        let header = notice_header(integers, range::BOOTSTRAP, tag as i32, count);
        let stored = [&header[..], &packed[..len]];
        if stored.iter().map(|piece| piece.len()).sum::<usize>() > PORT_MAX {
            return Err(Refusal::NameLength);
        }
        self.unsay(requester.job, requester.rank, tag);
        self.store_notice(requester.job, requester.rank, stored.into_iter())
    }

    /// Forgets what a leader has said before.
    pub(super) fn unsay(&mut self, job: JobId, rank: Rank, tag: u32) {
        let before = said(&self.names, &self.jobs, tag).find(|(_, notice)| notice.sender == (job, rank));
        if let Some((before, _)) = before {
            self.names.withdraw_this(before);
        }
    }

    /// Lets the ranks of this node that wait for the members of a group arrive in its construction, if all leaders have spoken.
    pub(in super::super) fn bootstrap(&mut self, now: Time, tag: u32) {
        if !HOST_FACTS || !self.is_decided(tag) {
            return self.end_bootstraps();
        }
        let what = (GroupKind::Construct, tag);
        let mut arrived = None;
        for conn in (0..self.conns_end).map(ConnId) {
            for at in 0..self.conns[conn.index()].replies.len() {
                let state = self.conns[conn.index()].replies[at].state;
                let Some(requester) = self.requester(conn) else { continue };
                let ReplyState::Bootstrap { tag: of, until, .. } = state else { continue };
                if of != tag {
                    continue;
                }
                let Server { jobs, ranks, links, groups, names, .. } = self;
                let way = |slot: u32| route(ranks, links, slot);
                let who = (requester.job, requester.index as u32);
                let considered = groups.consider(members(names, jobs, tag));
                let state = match considered.and_then(|()| groups.arrive(who, what, &way, now)) {
                    Ok(group) => {
                        groups.collect(group, true);
                        if until < NEVER {
                            groups.limit(group, until);
                        }
                        let state = ReplyState::GroupFence { group, tag };
                        arrived = Some((conn, state));
                        state
                    }
                    Err(why) => ReplyState::Ready(Response::status(why.pmix_status())),
                };
                self.conns[conn.index()].replies[at].state = state;
                self.gets -= 1;
                self.check_ready(conn);
            }
        }
        self.settle(tag);
        if let Some((conn, state)) = arrived {
            self.after_command(now, conn, state);
        }
    }

    /// Returns whether all leaders of a group have spoken.
    fn is_decided(&self, tag: u32) -> bool {
        let leaders = said(&self.names, &self.jobs, tag).find_map(|(_, notice)| number_of_leaders(&notice));
        leaders.is_some_and(|leaders| said(&self.names, &self.jobs, tag).count() as u32 >= leaders)
    }

    /// Forgets what the leaders of a group have said, once no member of this node has still to arrive. Neighbours may lack it.
    fn settle(&mut self, tag: u32) {
        let Server { jobs, ranks, links, groups, names, .. } = self;
        if groups.consider(members(names, jobs, tag)).is_err() {
            return;
        }
        let here = links.node();
        let is_due = |slot: u32| {
            let slot = &ranks[slot as usize];
            slot.node == here && !slot.excluded
        };
        let is_awaited = match groups.find((GroupKind::Construct, tag), &Group::is_open) {
            Some(group) => groups.missing(group).any(is_due),
            None => groups.considered().any(is_due),
        };
        if is_awaited {
            return;
        }
        loop {
            let next = said(&self.names, &self.jobs, tag).next().map(|(notice, _)| notice);
            let Some(notice) = next else { return };
            self.names.settle(notice);
            self.notice_was_sent(notice);
        }
    }

    /// Returns whether a notice is what a leader has said, and is still needed here.
    pub(super) fn is_said(&self, notice: NameRef) -> bool {
        HOST_FACTS
            && !self.names.is_settled(notice)
            && self.notice(notice).is_some_and(|notice| notice.range == range::BOOTSTRAP)
    }

    /// Ends waits for the members of groups that have timed out. Returns the time of the next timeout.
    pub(in super::super) fn expire_bootstraps(&mut self, now: Time) -> Option<Time> {
        if !HOST_FACTS || self.gets == 0 {
            return None;
        }
        self.answer_bootstraps(status::TIMEOUT, |_, until| until <= now);
        self.bootstraps().map(|(.., until)| until).filter(|&until| until < NEVER).min()
    }

    /// Ends waits for leaders that cannot come, because all other processes have ended. Jobs that end leave that to the host.
    pub(in super::super) fn end_bootstraps(&mut self) {
        while HOST_FACTS && self.gets > 0 {
            let mut before = None;
            let over = self.bootstraps().find(|&(job, tag, _)| {
                let goes_on = self.jobs[job.index()].ending.is_none();
                goes_on && before.replace(tag) != Some(tag) && !self.may_be_led(tag)
            });
            let Some((_, tag, _)) = over else { return };
            self.answer_bootstraps(CONSTRUCT_ABORT, |of, _| of == tag);
        }
    }

    /// Returns whether a process lives that may still lead a group. One that waits for the others, here or as a leader that has
    /// spoken, leads it no more.
    fn may_be_led(&self, tag: u32) -> bool {
        let waits = |conn: ConnId| {
            let mut replies = self.conns[conn.index()].replies.iter();
            replies.any(|reply| matches!(reply.state, ReplyState::Bootstrap { tag: of, .. } if of == tag))
        };
        let has_spoken = |who| said(&self.names, &self.jobs, tag).any(|(_, notice)| notice.sender == who);
        let jobs = (0..).map(JobId).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty());
        let mut ranks = jobs.flat_map(|(id, job)| {
            let ranks = (0..).map(Rank).zip(&self.ranks[job.slots()]);
            ranks.map(move |(rank, slot)| ((id, rank), slot))
        });
        ranks.any(|(who, slot)| slot.end == 0 && !slot.pmix.is_some_and(waits) && !has_spoken(who))
    }

    /// Returns the waits for the members of groups: the job, the group, and the deadline.
    fn bootstraps(&self) -> impl Iterator<Item = (JobId, u32, Time)> {
        self.conns[..self.conns_end as usize].iter().flat_map(|conn| {
            conn.replies.iter().filter_map(|reply| match reply.state {
                ReplyState::Bootstrap { tag, until, .. } => Some((conn.job?, tag, until)),
                _ => None,
            })
        })
    }

    /// Answers those waits for the members of groups with a status for which `is_over` holds.
    fn answer_bootstraps(&mut self, code: i32, is_over: impl Fn(u32, Time) -> bool) {
        for conn in (0..self.conns_end).map(ConnId) {
            let mut ended = 0;
            for reply in &mut self.conns[conn.index()].replies {
                if let ReplyState::Bootstrap { tag, until, .. } = reply.state
                    && is_over(tag, until)
                {
                    reply.state = ReplyState::Ready(Response::status(code));
                    ended += 1;
                }
            }
            if ended > 0 {
                self.gets -= ended;
                self.check_ready(conn);
            }
        }
    }
}

/// Returns what the leaders of a group have said.
fn said<'a>(
    names: &'a Names<'_>,
    jobs: &'a [Job],
    tag: u32,
) -> impl Iterator<Item = (NameRef, Notice<'a>)> + Clone + use<'a> {
    let unsettled = names.marked(PREFIX).filter(|&notice| !names.is_settled(notice));
    let notices = unsettled.filter_map(|notice| Some((notice, notice_in(names, jobs, notice)?)));
    notices.filter(move |(_, notice)| notice.range == range::BOOTSTRAP && notice.code == tag as i32)
}

fn number_of_leaders(notice: &Notice<'_>) -> Option<u32> {
    notice.infos.find(keys::GROUP_BOOTSTRAP)?.as_u32()
}

/// Returns the slots of the members that the leaders of a group have named. `None` stands for a rank that there is not.
fn members<'a>(
    names: &'a Names<'_>,
    jobs: &'a [Job],
    tag: u32,
) -> impl Iterator<Item = Option<usize>> + use<'a> {
    let infos = said(names, jobs, tag).flat_map(|(_, notice)| {
        [MEMBERS, keys::GROUP_ADD_MEMBERS].into_iter().filter_map(move |key| notice.infos.find(key))
    });
    let procs = infos.flat_map(|info| info.array(kind::PROC, Reader::proc).into_iter().flatten());
    procs.flat_map(|proc| slots_of_proc(jobs, proc))
}
