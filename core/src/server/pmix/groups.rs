//! Information that the members of a PMIx group give each other when the group is constructed.
//!
//! The information of a member is a record in the log, beside its committed data, and travels with the arrivals and releases of
//! the construction. Its key is the rank and the hash of the group's name. Another record leads from the context id to that hash.
//! Clients ask for a value of a member with the context id as a qualifier.

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::peers::CONTRIBUTION;
use super::data::{Header, key_of};
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::Limit;
use crate::peer::message::GroupKind;
use crate::state::{Job, PmixResponse, ReplyState, Response};
use crate::store::log::hash;
use crate::tables::kvs::{Kind, Owner};
use crate::time::Time;
use crate::wire::Integers;
use crate::wire::pmix::{Info, Infos, Procs, Reader, Writer, kind, status};

/// Array of INFOs that a member gives.
const INFO: &[u8] = b"pmix.grp.info";
/// Context id, in replies and as a qualifier of a get.
pub(super) const CONTEXT: &[u8] = b"pmix.grp.ctxid";
/// Process that has given the INFOs of an array, in front of them.
const GIVER: &[u8] = b"pmix.procid";
/// Value with qualifiers: an array of both.
const QUALIFIED: &[u8] = b"pmix.qual.val";
/// Flag of a qualifier.
const QUALIFIER: u32 = 8;
/// Options of groups with members that the request does not name.
const JOINED_LATER: [&[u8]; 2] = [b"pmix.grp.add", b"pmix.grp.btstrp"];
/// Last byte of the key of the record that leads from a context id to the hash of a group's name.
const NAME_OF: u8 = 4;
/// Bytes of a contribution in a reply that are neither its INFOs nor the namespace.
const CONTRIBUTION_REST: usize = 64;
/// Bytes of a reply about a group that are neither members nor contributions.
const REPLY_REST: usize = 256;

/// Returns the key of what a rank gives to the group whose name has this hash.
fn contribution_key(rank: Rank, tag: u32) -> [u8; 9] {
    let ([r0, r1, r2, r3], [t0, t1, t2, t3]) = (rank.0.to_le_bytes(), tag.to_le_bytes());
    [r0, r1, r2, r3, t0, t1, t2, t3, CONTRIBUTION]
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
        if infos.iter().any(|info| JOINED_LATER.contains(&info.key)) {
            return Err(Refusal::Unsupported);
        }
        let given = infos.find(INFO).map(|info| info.as_infos().ok_or(Refusal::BadGroup)).transpose()?;
        let (count, bytes) = given.map_or((0, &[][..]), |given| (given.len(), given.as_bytes()));
        if bytes.len() > self.limits.commit_bytes as usize {
            return Err(Refusal::Full(Limit::CommitBytes, self.limits.commit_bytes));
        }
        let job = &self.jobs[requester.job.index()];
        let (space, quota) = ((job.spaces, Kind::Commit), job.quota);
        let key = contribution_key(requester.rank, hash(0, name));
        let header = Header::new(integers, count).bytes();
        let value = [&header[..], bytes];
        let known = self.kvs.find(space, &key).ok().flatten().and_then(|record| self.kvs.value(record));
        let is_new = known.map_or(count > 0, |known| !known.iter().eq(value.iter().copied().flatten()));
        if is_new {
            let pair = [(&key[..], header.len() + bytes.len())].into_iter();
            self.kvs.room(space, self.ranks[requester.index].used, quota, pair)?;
        }
        let waits = self.gather(now, requester, (GroupKind::Construct, name), (procs, infos), true)?;
        if is_new {
            let used = &mut self.ranks[requester.index].used;
            let owner = Owner { id: requester.index as u32, used, quota };
            self.kvs.put(space, Some(owner), &key, Some(value.into_iter()))?;
        }
        Ok(waits)
    }

    /// Returns what a rank has given to the group whose name has this hash.
    #[inline(never)]
    fn contribution(&self, job: &Job, rank: Rank, tag: u32) -> Option<u32> {
        let record = self.kvs.find((job.spaces, Kind::Commit), &contribution_key(rank, tag)).ok()??;
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

    /// Returns whether the rank in a slot has given something to the group whose name has this hash.
    pub(super) fn has_given(&self, slot: u32, tag: u32) -> bool {
        let job = self.job_of_slot(slot as usize).map(|job| &self.jobs[job.index()]);
        job.is_some_and(|job| self.contribution(job, Rank(slot - job.first), tag).is_some())
    }

    /// Stores which name the group with a context id has.
    pub(super) fn name_context(&mut self, at: u32, tag: u32, context: u32) -> Result<(), Fault> {
        for job in 0..self.limits.jobs as usize {
            let job = &self.jobs[job];
            if self.groups.has_member_in(at, &job.slots()) {
                let space = (job.spaces, Kind::Commit);
                self.host_put(space, &key_of(Rank(context), NAME_OF), &tag.to_le_bytes())?;
            }
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
        has_key.then_some(Response::Pmix(PmixResponse::Qualified { job, rank, record, context }))
    }

    /// Writes what a rank has given to a group, with the context id as a qualifier.
    pub(super) fn write_qualified(&self, record: u32, context: u32, writer: &mut Writer<'_>) {
        let Some((_, given)) = self.contributed(record) else { return };
        for Info { key, kind, value, .. } in values(&given) {
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
        if count == 0 || len > self.limits.output_max() {
            return;
        }
        writer.single();
        writer.size(count);
        for (job, rank) in of_jobs() {
            let Some(given) = given(job, rank) else { continue };
            writer.single();
            writer.info(INFO, kind::DATA_ARRAY);
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

/// Returns the INFOs that a member has given. Some libraries put the member in front.
fn values<'a>(given: &Infos<'a>) -> impl Iterator<Item = Info<'a>> + use<'a> {
    given.iter().filter(|info| info.key != GIVER)
}
