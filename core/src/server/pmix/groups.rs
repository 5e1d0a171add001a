//! Information that the members of a PMIx group give each other when the group is constructed.
//!
//! The information of a member is a record in the log, beside its committed data, and travels with the arrivals and releases of
//! the construction. Its key is the rank and the hash of the group's name. Another record leads from the context id to that hash.
//! Clients ask for a value of a member with the context id as a qualifier.

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::peers::{CONTRIBUTION, ENDPOINTS, REMOTE, TERMS};
use super::data::{Header, key_of};
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{COMMIT_COMPARISONS_MAX, COMMIT_HEADER, HOST_FACTS, Limit};
use crate::peer::message::GroupKind;
use crate::state::{Job, PmixResponse, ReplyState, Response};
use crate::store::log::hash;
use crate::tables::kvs::{Kind, Owner};
use crate::time::Time;
use crate::wire::Integers;
use crate::wire::pmix::{Commit, Info, Infos, Procs, Reader, Writer, keys, kind, status};

/// Array of what a member has put for other nodes, committed or not: its process, the scope, and the values.
const ENDPOINT: &[u8] = b"pmix.pdata";
/// Context id, in replies and as a qualifier of a get.
pub(super) const CONTEXT: &[u8] = b"pmix.grp.ctxid";
/// Process that has given the INFOs of an array, in front of them.
const GIVER: &[u8] = b"pmix.procid";
/// Scope of what a process has put.
const SCOPE: &[u8] = b"pmix.scope";
/// Value with qualifiers: an array of both.
const QUALIFIED: &[u8] = b"pmix.qual.val";
/// Flag of a qualifier.
const QUALIFIER: u32 = 8;
/// Last byte of the key of the record that leads from a context id to the hash of a group's name.
const NAME_OF: u8 = 4;
/// Bytes of a contribution in a reply that are neither its INFOs nor the namespace.
const CONTRIBUTION_REST: usize = 64;
/// Bytes of a reply about a group that are neither members nor contributions.
const REPLY_REST: usize = 256;

/// Returns the key of what a rank gives to the group whose name has this hash.
fn given_key(rank: Rank, tag: u32, what: u8) -> [u8; 9] {
    let ([r0, r1, r2, r3], [t0, t1, t2, t3]) = (rank.0.to_le_bytes(), tag.to_le_bytes());
    [r0, r1, r2, r3, t0, t1, t2, t3, what]
}

/// Returns the key of a record with a number, which is of no rank.
fn record_key(what: u8, number: u32) -> [u8; 9] {
    given_key(Rank(0), number, what)
}

/// What a rank gives to the other members with its arrival in the construction of a group: a record beside the data that the rank
/// has committed, of a number of INFOs.
struct Gift<'a> {
    key: [u8; 9],
    header: [u8; COMMIT_HEADER as usize],
    infos: &'a [u8],
}

impl<'a> Gift<'a> {
    fn new(key: [u8; 9], integers: Integers, infos: Option<Infos<'a>>) -> Gift<'a> {
        let (count, infos) = infos.map_or((0, &[][..]), |infos| (infos.len(), infos.as_bytes()));
        Gift { key, header: Header::new(integers, count).bytes(), infos }
    }

    /// Returns what is to become of a group that loses members: the name of the group if the losses are to be told.
    fn terms(rank: Rank, kind: GroupKind, name: &'a [u8], tells: bool) -> Gift<'a> {
        let header = Header::new(Integers::Flexible, kind as u32).bytes();
        Gift { key: given_key(rank, hash(0, name), TERMS), header, infos: if tells { name } else { &[] } }
    }
}

impl Server<'_> {
    /// A rank arrives in the construction of a group, and gives information to the other members.
    pub(super) fn construct(
        &mut self,
        now: Time,
        requester: Requester,
        integers: Integers,
        name: &[u8],
        (procs, infos): (Procs<'_>, &Infos<'_>),
    ) -> Result<ReplyState, Refusal> {
        let later =
            infos.iter().any(|info| [keys::GROUP_ADD_MEMBERS, keys::GROUP_BOOTSTRAP].contains(&info.key));
        if later && !HOST_FACTS {
            return Err(Refusal::Unsupported);
        }
        let array = |key| infos.find(key).map(|info| info.as_infos().ok_or(Refusal::BadGroup)).transpose();
        let put = array(ENDPOINT)?.filter(|put| !self.are_committed(requester, integers, put));
        let gifts = [
            Gift::new(
                given_key(requester.rank, hash(0, name), CONTRIBUTION),
                integers,
                array(keys::GROUP_INFO)?,
            ),
            Gift::new(given_key(requester.rank, 0, ENDPOINTS), integers, put),
            Gift::terms(requester.rank, GroupKind::Construct, name, infos.is_set(keys::GROUP_FT_COLLECTIVE)),
        ];
        self.check_gifts((requester.job, requester.index), &gifts)?;
        let waits = if HOST_FACTS && (later || procs.is_empty()) {
            self.await_members(now, requester, integers, name, (procs, infos))?
        } else {
            self.gather(now, requester, (GroupKind::Construct, name), (procs, infos), true)?
        };
        self.store_gifts((requester.job, requester.index), &gifts)?;
        self.answer_gets(requester.job, requester.rank);
        Ok(waits)
    }

    /// A rank arrives in the end of a group.
    pub(super) fn destruct(
        &mut self,
        now: Time,
        requester: Requester,
        name: &[u8],
        (procs, infos): (Procs<'_>, &Infos<'_>),
    ) -> Result<ReplyState, Refusal> {
        let tells = infos.is_set(keys::GROUP_NOTIFY_TERMINATION);
        let gifts = [Gift::terms(requester.rank, GroupKind::Destruct, name, tells)];
        self.check_gifts((requester.job, requester.index), &gifts)?;
        let waits = self.gather(now, requester, (GroupKind::Destruct, name), (procs, infos), tells)?;
        self.store_gifts((requester.job, requester.index), &gifts)?;
        Ok(waits)
    }

    /// Returns whether a rank has committed all that it has put for other nodes. Otherwise the data travel with the group, also
    /// where more comparisons would be needed to tell.
    fn are_committed(&self, requester: Requester, integers: Integers, put: &Infos<'_>) -> bool {
        let known = self.committed(requester.job, requester.rank, REMOTE);
        let data = known.filter(|(_, header, _)| header.integers() == integers).map(|(.., data)| data);
        let mut comparisons = COMMIT_COMPARISONS_MAX;
        values(put).all(|info| {
            let is_key = |it: &[u8]| {
                comparisons = comparisons.saturating_sub(1);
                it == info.key
            };
            data.is_some_and(|data| Commit::contains(integers, data, is_key)) && comparisons > 0
        })
    }

    /// Returns whether a rank has not given the same before.
    fn is_new(&self, job: JobId, gift: &Gift<'_>) -> bool {
        let space = (self.jobs[job.index()].spaces, Kind::Commit);
        let known = self.kvs.find(space, &gift.key).ok().flatten().and_then(|record| self.kvs.value(record));
        let value = [&gift.header[..], gift.infos];
        known.map_or(!gift.infos.is_empty(), |known| !known.iter().eq(value.into_iter().flatten()))
    }

    /// Returns whether a rank is on another node, which has admitted what the rank gives.
    fn is_copied(&self, index: usize) -> bool {
        HOST_FACTS && self.ranks[index].node != self.links.node()
    }

    /// Checks that there is room for what a rank gives.
    #[inline(never)]
    fn check_gifts(&self, (job, index): (JobId, usize), gifts: &[Gift<'_>]) -> Result<(), Refusal> {
        let limit = self.limits.commit_bytes;
        if gifts.iter().any(|gift| gift.infos.len() > limit as usize) {
            return Err(Refusal::Full(Limit::CommitBytes, limit));
        }
        let state = &self.jobs[job.index()];
        let new = gifts.iter().filter(|gift| self.is_new(job, gift));
        let pairs = new.map(|gift| (&gift.key[..], gift.header.len() + gift.infos.len()));
        self.kvs.room((state.spaces, Kind::Commit), self.ranks[index].used, state.quota, pairs)
    }

    /// Checks that there is room for INFOs that a rank of any node has sent, or `stores` them, under a number of its job.
    pub(super) fn keep_record(
        &mut self,
        (job, rank): (JobId, Rank),
        (what, number): (u8, u32),
        infos: &Infos<'_>,
        stores: bool,
    ) -> Result<(), Refusal> {
        let gift = [Gift::new(record_key(what, number), infos.integers(), Some(*infos))];
        let index = self.jobs[job.index()].slot(rank).ok_or(Refusal::Rank)?;
        match stores {
            true => self.store_gifts((job, index), &gift),
            false if self.is_copied(index) => {
                self.find_copy_room((job, index), &gift[0].key, gift[0].header.len() + gift[0].infos.len())
            }
            false => self.check_gifts((job, index), &gift),
        }
    }

    /// Returns such INFOs, and the encoding of their integers.
    pub(super) fn record_of(&self, job: &Job, (what, number): (u8, u32)) -> Option<(Integers, Infos<'_>)> {
        self.contributed(self.kvs.find((job.spaces, Kind::Commit), &record_key(what, number)).ok()??)
    }

    /// Stores what a rank gives.
    #[inline(never)]
    fn store_gifts(&mut self, owner: (JobId, usize), gifts: &[Gift<'_>]) -> Result<(), Refusal> {
        for gift in gifts {
            if self.is_new(owner.0, gift) {
                self.store_for(owner, &gift.key, [&gift.header, gift.infos])?;
            }
        }
        Ok(())
    }

    /// Makes room for a record of a rank of another node.
    #[inline(never)]
    fn find_copy_room(
        &mut self,
        (job, index): (JobId, usize),
        key: &[u8],
        len: usize,
    ) -> Result<(), Refusal> {
        if !self.is_copied(index) {
            return Ok(());
        }
        #[cfg(feature = "cluster")]
        {
            let space = (self.jobs[job.index()].spaces, Kind::Commit);
            let lack = self.kvs.lack_for_copy(space, key, len)?;
            self.find_room(lack)?;
        }
        #[cfg(not(feature = "cluster"))]
        let _ = (job, key, len);
        Ok(())
    }

    /// Stores a record of a rank of any node.
    #[inline(never)]
    fn store_for(
        &mut self,
        (job, index): (JobId, usize),
        key: &[u8],
        value: [&[u8]; 2],
    ) -> Result<(), Refusal> {
        let Job { spaces, quota, .. } = self.jobs[job.index()];
        let is_copied = self.is_copied(index);
        let used = &mut self.ranks[index].used;
        let owner = Owner { id: index as u32, used, quota };
        let space = (spaces, Kind::Commit);
        if is_copied {
            self.kvs.copy(space, owner, key, value);
        } else {
            self.kvs.put(space, Some(owner), key, Some(value.into_iter()))?;
        }
        Ok(())
    }

    /// Returns the record with the name of a group that does not fail if it loses members while it is constructed, or whose members
    /// are told of losses while it ends.
    #[inline(never)]
    pub(super) fn terms(&self, at: u32, kind: GroupKind, tag: u32) -> Option<u32> {
        let of_jobs = self.jobs.iter().filter(|job| !job.name.is_empty()).flat_map(|job| {
            let members = (0..job.size).filter(|rank| self.groups.has_member(at, job.first + rank));
            members.map(move |rank| (job, Rank(rank)))
        });
        let mut records = of_jobs.filter_map(|(job, rank)| {
            self.kvs.find((job.spaces, Kind::Commit), &given_key(rank, tag, TERMS)).ok().flatten()
        });
        records.find(|&record| {
            let value = self.kvs.value(record).and_then(Header::split);
            value.is_some_and(|(header, name)| header.number() == kind as u32 && !name.is_empty())
        })
    }

    /// Tells the members of a group of this node which members it has lost, if they have asked for it.
    pub(super) fn tell_losses(&mut self, at: u32, kind: GroupKind, tag: u32) {
        for slot in 0..self.limits.ranks {
            if self.groups.is_lost(at, slot)
                && let Some(terms) = self.terms(at, kind, tag)
            {
                self.note_loss(at, slot, terms);
            }
        }
    }

    /// Returns the offset of what a rank has put for other nodes without a commit, as it was when the rank arrived in the
    /// construction of a group, if a key has that hash. Without a hash, any does.
    pub(super) fn endpoints(
        &self,
        integers: Integers,
        job: &Job,
        rank: Rank,
        wanted: Option<u32>,
    ) -> Option<u32> {
        let record = self.kvs.find((job.spaces, Kind::Commit), &given_key(rank, 0, ENDPOINTS)).ok()??;
        let (encoding, put) = self.contributed(record)?;
        let is_there = values(&put).any(|info| wanted.is_none_or(|wanted| hash(0, info.key) == wanted));
        (encoding == integers && is_there).then_some(record)
    }

    /// Returns what a rank has given to the group whose name has this hash.
    #[inline(never)]
    fn contribution(&self, job: &Job, rank: Rank, tag: u32) -> Option<u32> {
        let record =
            self.kvs.find((job.spaces, Kind::Commit), &given_key(rank, tag, CONTRIBUTION)).ok()??;
        let is_empty = self.contributed(record).is_none_or(|(_, infos)| infos.is_empty());
        (!is_empty).then_some(record)
    }

    /// Returns the INFOs in such a record, and the encoding of their integers.
    #[inline(never)]
    fn contributed(&self, record: u32) -> Option<(Integers, Infos<'_>)> {
        let (header, bytes) = Header::split(self.kvs.value(record)?)?;
        let integers = header.integers();
        Some((integers, Reader::new(integers, bytes).infos_of(header.number())?))
    }

    /// Returns what a rank has given to the group with a context id, if it has this encoding of integers.
    #[inline(never)]
    fn given(&self, job: &Job, rank: Rank, context: u32, integers: Integers) -> Option<(u32, Infos<'_>)> {
        let record = self.contribution(job, rank, self.name_of_context(job, context)?)?;
        let (encoding, given) = self.contributed(record)?;
        (encoding == integers).then_some((record, given))
    }

    /// Stores which name the group with a context id has, for each job with members that have given information. The first of them
    /// is charged for it.
    pub(super) fn name_context(&mut self, at: u32, tag: u32, context: u32) -> Result<(), Refusal> {
        let (key, value) = (key_of(Rank(context), NAME_OF), tag.to_le_bytes());
        for id in self.jobs.numbers().map(JobId) {
            let job = &self.jobs[id.index()];
            let gives = |&slot: &usize| {
                let (member, rank) = (slot as u32, Rank(slot as u32 - job.first));
                self.groups.has_member(at, member)
                    && !self.groups.is_lost(at, member)
                    && self.contribution(job, rank, tag).is_some()
            };
            let Some(index) = job.slots().find(gives) else { continue };
            self.find_copy_room((id, index), &key, value.len())?;
            self.with_room(|server| server.store_for((id, index), &key, [&value, &[]]))?;
        }
        Ok(())
    }

    /// Returns the hash of the name of the group with a context id, if its members have given information.
    fn name_of_context(&self, job: &Job, context: u32) -> Option<u32> {
        let record = self.kvs.find((job.spaces, Kind::Commit), &key_of(Rank(context), NAME_OF)).ok()??;
        self.kvs.value(record)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// Returns the response to a get of a value that a rank has given to a group.
    pub(super) fn qualified_data(
        &self,
        integers: Integers,
        (job, rank): (JobId, Rank),
        infos: &Infos<'_>,
        key: Option<&[u8]>,
    ) -> Option<Response> {
        let context = infos.find(CONTEXT)?.as_u32()?;
        let (record, given) = self.given(&self.jobs[job.index()], rank, context, integers)?;
        let has_key = key.is_none_or(|key| given.find(key).is_some());
        has_key.then_some(Response::Pmix(PmixResponse::Given { job, rank, record, context: Some(context) }))
    }

    /// Writes what a rank has given to a group, with the context id as a qualifier if there is one.
    pub(super) fn write_given(&self, record: u32, context: Option<u32>, writer: &mut Writer<'_>) {
        let Some((_, given)) = self.contributed(record) else { return };
        for Info { key, kind, value, .. } in values(&given) {
            let Some(context) = context else {
                writer.key(key, kind);
                writer.raw(value);
                continue;
            };
            writer.key(QUALIFIED, kind::DATA_ARRAY);
            writer.data_type(kind::INFO);
            writer.size(2);
            writer.info(key, kind);
            writer.raw(value);
            writer.string(CONTEXT);
            writer.uint32(QUALIFIER);
            writer.data_type(kind::SIZE);
            writer.size(context.into());
        }
    }

    /// Writes the reply to the construction of a group, in the form that the version of the client's library reads.
    pub(super) fn write_group(&self, id: ConnId, context: u32, members: u32, writer: &mut Writer<'_>) {
        let dialect = self.conns[id.index()].pmix;
        let major = dialect.map_or(0, |dialect| dialect.major);
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
        // Older libraries ask for each value.
        if major < 6 {
            return;
        }
        let integers = writer.integers();
        let given = |job: &Job, rank| self.given(job, Rank(rank), context, integers).map(|(_, given)| given);
        let (mut count, mut len) = (0, writer.len() + REPLY_REST);
        for (job, rank) in of_jobs() {
            if let Some(given) = given(job, rank) {
                count += 1;
                len += given.as_bytes().len() + job.name.len() + CONTRIBUTION_REST;
            }
        }
        // The library asks for what does not fit.
        if count == 0 || len > self.limits.reply_max() {
            return;
        }
        writer.single();
        writer.size(count);
        for (job, rank) in of_jobs() {
            let Some(given) = given(job, rank) else { continue };
            writer.single();
            writer.info(keys::GROUP_INFO, kind::DATA_ARRAY);
            writer.data_type(kind::INFO);
            writer.size(1 + values(&given).count() as u64);
            writer.info(GIVER, kind::PROC);
            writer.proc(job.name.as_bytes(), rank);
            for Info { key, kind, value, .. } in values(&given) {
                writer.info(key, kind);
                writer.raw(value);
            }
        }
    }
}

/// Returns the INFOs that a member has given. Some libraries put the member in front, and the scope of what it has put.
fn values<'a>(given: &Infos<'a>) -> impl Iterator<Item = Info<'a>> + use<'a> {
    given.iter().filter(|info| info.key != GIVER && info.key != SCOPE)
}
