//! Data that PMIx ranks put: commits, and gets that may wait for them.

#[cfg(feature = "cluster")]
use core::ops::Range;

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::peers::REMOTE;
use super::hosts;
use super::query::SETS_OF;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{
    COMMIT_COMPARISONS_MAX, COMMIT_HEADER, HOST_FACTS, Limit, OVERSUBSCRIBED_ATTR, STOP_ATTRS, TARGET_ATTR,
};
use crate::state::{PmixResponse, RankPhase, ReplyState, Response, Wanted};
use crate::store::log::{fill_front, hash};
use crate::tables::kvs::{Kind, Owner};
use crate::time::Time;
use crate::wire::pmix::{Commit, Infos, Proc, UNDEFINED, WILDCARD, keys, status};
use crate::wire::{Integers, Text};

/// Milliseconds that a get waits for a key unless the request has its own timeout.
const GET_WAIT: u64 = 2000;
/// The same if a fence has brought the data of the rank, which has not put the key before it.
const SETTLED_WAIT: u64 = 100;
/// Prefix of keys that only the server provides.
const RESERVED: &[u8] = b"pmix.";
/// Keys of `Server::write_job_data`.
const JOB_KEYS: [&[u8]; 13] = [
    keys::JOB_SIZE,
    b"pmix.max.size",
    keys::UNIV_SIZE,
    hosts::RANKS,
    hosts::LOCAL_SIZE,
    b"pmix.job.napps",
    b"pmix.num.nodes",
    hosts::LEADER,
    b"pmix.app.size",
    OVERSUBSCRIBED_ATTR.as_bytes(),
    STOP_ATTRS[0].as_bytes(),
    STOP_ATTRS[1].as_bytes(),
    TARGET_ATTR.as_bytes(),
];

/// Keys of a rank's place on its host: its processors, and where they are in the topology. The host may know them.
pub(super) const PLACES: [&[u8]; 2] = [b"pmix.cpuset", b"pmix.locstr"];

/// Keys of `Server::write_rank_data`.
const RANK_KEYS: [&[u8]; 10] = [
    b"pmix.lrank",
    b"pmix.nrank",
    b"pmix.appnum",
    b"pmix.apprank",
    b"pmix.grank",
    hosts::NUMBER,
    hosts::HOST,
    PARENT,
    PLACES[0],
    PLACES[1],
];

/// Keys of a job that a client gets when it asks for one, and not with all others: its name, and the number that its ranks have in
/// the run (`pmix.grank`) above that in their job.
pub(super) const JOB_NAME: &[u8] = b"pmix.jobid";
pub(super) const OFFSET: &[u8] = b"pmix.offset";
/// The same of a rank: how often it has been started again.
pub(super) const RESTARTS: &[u8] = b"pmix.reinc";

/// Keys of `Server::write_program`.
const PROGRAM_KEYS: [&[u8]; 4] = [b"pmix.app.size", b"pmix.aldr", b"pmix.app.argv", b"pmix.wdir"];
/// Key of the number of a program.
const PROGRAM: &[u8] = b"pmix.appnum";

/// Key of the process that spawned the job.
pub(super) const PARENT: &[u8] = b"pmix.parent";

/// Rank of a get for the data of any rank that has put the key. PMI-1 on top of PMIx needs it, because its gets name none.
const ANY: Rank = Rank(UNDEFINED);

/// Scope of data for processes of the rank's node.
const LOCAL: u8 = 1;

/// Returns the key of a rank's data in a scope.
pub(super) fn key_of(rank: Rank, scope: u8) -> [u8; 5] {
    let [a, b, c, d] = rank.0.to_le_bytes();
    [a, b, c, d, scope]
}

/// Header of stored data: the encoding of their integers, and the number of fences of the job before the commit, or of INFOs.
#[derive(Clone, Copy)]
pub(super) struct Header {
    integers: u8,
    number: u32,
}

impl Header {
    pub(super) fn new(integers: Integers, number: u32) -> Header {
        Header { integers: integers as u8, number }
    }

    pub(super) fn bytes(self) -> [u8; COMMIT_HEADER as usize] {
        let [a, b, c, d] = self.number.to_le_bytes();
        [self.integers, a, b, c, d]
    }

    /// Splits stored data into their header and the data.
    pub(super) fn split(stored: &[u8]) -> Option<(Header, &[u8])> {
        let (&[integers, a, b, c, d], data) = stored.split_first_chunk::<{ COMMIT_HEADER as usize }>()?;
        Some((Header { integers, number: u32::from_le_bytes([a, b, c, d]) }, data))
    }

    pub(super) fn number(self) -> u32 {
        self.number
    }

    pub(super) fn integers(self) -> Integers {
        if self.integers == Integers::Fixed as u8 { Integers::Fixed } else { Integers::Flexible }
    }
}

impl Server<'_> {
    /// Merges changes into the data of a rank. A commit without changes follows no new put, and changes nothing.
    ///
    /// The data of each scope are one record, at most [`commit_bytes`](crate::Limits::commit_bytes) long, so that a get copies
    /// them and a link sends them as they are. A commit of `n` bytes therefore takes the length of all data from the rank's part
    /// of the log, as it does with clients that commit all data each time.
    pub(super) fn commit(
        &mut self,
        requester: Requester,
        integers: Integers,
        commit: &Commit<'_>,
    ) -> Result<(), Refusal> {
        let limit = self.limits.commit_bytes;
        let both = [(LOCAL, commit.local), (REMOTE, commit.remote)];
        if both.iter().all(|(_, changes)| changes.is_empty()) {
            return Ok(());
        }
        let job = &self.jobs[requester.job.index()];
        let header = Header::new(integers, job.fences);
        let bytes = header.bytes();
        let space = (job.spaces, Kind::Commit);
        let quota = job.quota;
        // The record of a scope before, and the length of its data afterwards if they change.
        let mut merged = [None; 2];
        for (merged, (scope, changes)) in merged.iter_mut().zip(both) {
            let (record, known) = match self.committed(requester.job, requester.rank, scope) {
                // Data in another encoding are of an earlier connection of the rank.
                Some((record, known, data)) if known.integers == header.integers => (Some(record), data),
                Some(_) if changes.is_empty() => continue,
                Some(_) => (None, &[][..]),
                // Other nodes learn that the rank has put data, though none for them.
                None if changes.put.is_empty() && !(scope == REMOTE && self.links.are_any()) => continue,
                None => (None, &[][..]),
            };
            let (mut len, mut is_same) = (0, record.is_some());
            let applied = changes.apply_to(integers, known, COMMIT_COMPARISONS_MAX, &mut |piece| {
                is_same &= known.get(len..).is_some_and(|rest| rest.starts_with(piece));
                len += piece.len();
            });
            if len > limit as usize || applied.is_none() {
                return Err(Refusal::Full(Limit::CommitBytes, limit));
            }
            is_same &= len == known.len();
            *merged = (!is_same).then_some((record, len));
        }
        let keys = both.map(|(scope, _)| key_of(requester.rank, scope));
        let scopes = || (0..2).filter_map(|at| Some((at, merged[at]?)));
        let pairs = scopes().map(|(at, (_, len))| (&keys[at][..], bytes.len() + len));
        self.kvs.room(space, self.ranks[requester.index].used, quota, pairs)?;
        for (at, (record, len)) in scopes() {
            let used = &mut self.ranks[requester.index].used;
            let owner = Owner { id: requester.index as u32, used, quota };
            let changes = both[at].1;
            match record {
                Some(record) => {
                    self.kvs.put_from(
                        space,
                        owner,
                        &keys[at],
                        bytes.len() + len,
                        record,
                        |known, room| {
                            let known = Header::split(known).map(|(_, data)| data).unwrap_or_default();
                            let mut rest = fill_front(room, &bytes);
                            let _ = changes.apply_to(integers, known, COMMIT_COMPARISONS_MAX, &mut |piece| {
                                rest = fill_front(core::mem::take(&mut rest), piece);
                            });
                        },
                    )?;
                }
                None => {
                    let value = [&bytes[..], changes.put].into_iter();
                    self.kvs.put(space, Some(owner), &keys[at], Some(value))?;
                }
            }
        }
        if merged[1].is_some() {
            self.offer(requester.index);
        }
        self.answer_gets(requester.job, requester.rank);
        if HOST_FACTS && merged.iter().any(Option::is_some) {
            self.note_removals(requester, integers, commit);
        }
        Ok(())
    }

    /// Answers the gets that wait for data of a rank, if they contain the key. Data of a rank of another node that are from
    /// before a fence are all that it had put.
    pub(in super::super) fn answer_gets(&mut self, job: JobId, rank: Rank) {
        if self.gets > 0 {
            self.end_gets(|server, get| match get.wanted {
                Wanted::Key { hash, patient } if get.job == job && (get.rank == rank || get.rank == ANY) => {
                    let found = server.data_of(get.node, get.integers, job, rank, Some(hash));
                    let is_missing = || {
                        get.rank == rank
                            && !patient
                            && server.is_remote(job, rank)
                            && server.is_settled(job, rank)
                    };
                    found.or_else(|| is_missing().then_some(Response::status(status::NOT_FOUND)))
                }
                _ => None,
            });
        }
    }

    /// Returns whether the data of a rank are here that it had put before the last fence of its job.
    fn is_settled(&self, job: JobId, rank: Rank) -> bool {
        let fences = self.jobs[job.index()].fences;
        let scopes = [LOCAL, REMOTE].iter();
        scopes
            .filter_map(|&scope| self.committed(job, rank, scope))
            .any(|(_, known, _)| known.number < fences)
    }

    /// Returns whether a rank is on another node.
    fn is_remote(&self, job: JobId, rank: Rank) -> bool {
        let slot = self.jobs[job.index()].slot(rank);
        slot.is_some_and(|slot| self.ranks[slot].node != self.links.node())
    }

    /// Returns whether that is the newest data of a rank for other nodes.
    pub(in super::super) fn is_known_commit(&self, job: JobId, rank: Rank, value: &[u8]) -> bool {
        let known = self.committed(job, rank, REMOTE);
        known.is_some_and(|(record, ..)| self.kvs.value(record) == Some(value))
    }

    /// New data of a rank of another node are stored.
    pub(in super::super) fn received_commit(&mut self, job: JobId, rank: Rank, slot: usize) {
        self.offer(slot);
        self.answer_gets(job, rank);
    }

    /// The newest data of a rank of another node are stored, if it has put any: the answer to a request of this node or of
    /// neighbours.
    pub(in super::super) fn received_newest(&mut self, job: JobId, rank: Rank, slot: usize) {
        self.pass_newest(slot);
        if self.gets > 0 {
            self.end_gets(|server, get| {
                let wanted = Some(get.wanted).filter(|_| get.job == job && get.rank == rank)?;
                server.newest(get.node, get.integers, (job, rank), wanted)
            });
        }
    }

    /// Returns the response to a get of the newest data of a rank, which are here.
    fn newest(
        &self,
        node: u32,
        integers: Integers,
        (job, rank): (JobId, Rank),
        wanted: Wanted,
    ) -> Option<Response> {
        match wanted {
            Wanted::Key { .. } => None,
            Wanted::Newest(key) => {
                let found = self.data_of(node, integers, job, rank, key);
                Some(found.unwrap_or(Response::status(status::NOT_FOUND)))
            }
            Wanted::Copy => {
                let record = match self.data_of(node, integers, job, rank, None) {
                    Some(Response::Pmix(PmixResponse::Commit { record, .. })) => Some(record),
                    _ => None,
                };
                Some(Response::Pmix(PmixResponse::Refreshed { record }))
            }
        }
    }

    /// Returns the offset, the header and the content of a rank's data.
    pub(super) fn committed(&self, job: JobId, rank: Rank, scope: u8) -> Option<(u32, Header, &[u8])> {
        let spaces = self.jobs[job.index()].spaces;
        let record = self.kvs.find((spaces, Kind::Commit), &key_of(rank, scope)).ok()??;
        let (header, data) = Header::split(self.kvs.value(record)?)?;
        Some((record, header, data))
    }

    /// Returns the data of a rank that a client of `node` may see, if they contain a key with that hash. Without a
    /// hash, any data do.
    fn data_of(
        &self,
        node: u32,
        integers: Integers,
        job: JobId,
        rank: Rank,
        key: Option<u32>,
    ) -> Option<Response> {
        let index = self.jobs[job.index()].slot(rank)?;
        let scope = if self.ranks[index].node == node { LOCAL } else { REMOTE };
        let committed = self.committed(job, rank, scope).filter(|(_, header, data)| {
            header.integers == integers as u8
                && key.is_none_or(|wanted| Commit::contains(integers, data, |key| hash(0, key) == wanted))
        });
        if let Some((record, ..)) = committed {
            return Some(Response::Pmix(PmixResponse::Commit { job, rank, record }));
        }
        let record = self.endpoints(integers, &self.jobs[job.index()], rank, key)?;
        Some(Response::Pmix(PmixResponse::Given { job, rank, record, context: None }))
    }

    /// Answers a get, or lets it wait for the key.
    pub(super) fn pmix_get(
        &mut self,
        now: Time,
        integers: Integers,
        proc: Proc<'_>,
        infos: &Infos<'_>,
        key: Option<&[u8]>,
    ) -> Result<ReplyState, Refusal> {
        let missing = ReplyState::Ready(Response::status(status::NOT_FOUND));
        let job = self.named(Text::plain(proc.namespace)).ok_or(Refusal::NoJob)?;
        let rank = Rank(proc.rank);
        let is_of_job = matches!(rank, ANY | Rank(WILDCARD));
        let slots = if is_of_job {
            self.jobs[job.index()].slots()
        } else {
            let slot = self.jobs[job.index()].slot(rank).ok_or(Refusal::NoJob)?;
            slot..slot + 1
        };
        if HOST_FACTS && key == Some(SETS_OF) {
            let has_any = self.sets_of(job, rank).next().is_some();
            let sets = ReplyState::Ready(Response::Pmix(PmixResponse::SetsOf(job, rank)));
            return Ok(if has_any { sets } else { missing });
        }
        if is_of_job {
            if let Some(found) = self.job_data(job, infos, key) {
                return Ok(ReplyState::Ready(found));
            }
            if rank != ANY {
                return Ok(missing);
            }
        }
        if rank != ANY
            && let Some(found) = self.qualified_data(integers, (job, rank), infos, key)
        {
            return Ok(ReplyState::Ready(found));
        }
        let timeout = infos.timeout();
        let wait = timeout.unwrap_or(GET_WAIT);
        let wanted = key.map(|key| hash(0, key));
        let is_reserved = key.is_some_and(|key| key.starts_with(RESERVED));
        if rank != ANY
            && !is_reserved
            && infos.is_set(keys::GET_REFRESH_CACHE)
            && self.ask_for_newest(slots.start)
        {
            return Ok(self.await_data(now, (job, rank), Wanted::Newest(wanted), wait));
        }
        let (node, first) = (self.links.node(), self.jobs[job.index()].slots().start);
        for slot in slots.clone() {
            let rank = Rank((slot - first) as u32);
            if let Some(found) = self.data_of(node, integers, job, rank, wanted) {
                return Ok(ReplyState::Ready(found));
            }
        }
        let is_known = |key: &[u8]| {
            let is_place = PLACES.contains(&key);
            RANK_KEYS.contains(&key)
                && (!is_place || self.text(&self.jobs[job.index()], key, Some(rank)).is_some())
        };
        if HOST_FACTS && rank != ANY && key == Some(RESTARTS) {
            return Ok(ReplyState::Ready(Response::Pmix(PmixResponse::Restarts(job, rank))));
        }
        if rank != ANY && key.is_some_and(is_known) {
            return Ok(ReplyState::Ready(Response::Pmix(PmixResponse::RankData(job, rank))));
        }
        let over = slots.clone().all(|slot| {
            let slot = &self.ranks[slot];
            slot.exit.is_some() || slot.phase == RankPhase::Finalized
        });
        let Some(hash) = wanted.filter(|_| !over && !is_reserved && !infos.is_set(keys::IMMEDIATE)) else {
            return Ok(missing);
        };
        let patient = timeout.is_some();
        let mut ranks = slots.clone().map(|slot| Rank((slot - first) as u32));
        if !patient && ranks.all(|rank| self.is_settled(job, rank)) {
            // The rank may have put the key since the fence, or may be about to.
            let key = Wanted::Key { hash, patient };
            let asked = rank != ANY && self.ask_for_newest(slots.start);
            let (wanted, wait) = if asked { (Wanted::Newest(wanted), wait) } else { (key, SETTLED_WAIT) };
            return Ok(self.await_data(now, (job, rank), wanted, wait));
        }
        for slot in slots {
            self.ask_for(slot);
        }
        Ok(self.await_data(now, (job, rank), Wanted::Key { hash, patient }, wait))
    }

    /// Sends the newest data of a rank for a client's copy of them.
    pub(super) fn pmix_refresh(
        &mut self,
        now: Time,
        integers: Integers,
        proc: Proc<'_>,
    ) -> Result<ReplyState, Refusal> {
        let job = self.named(Text::plain(proc.namespace)).ok_or(Refusal::NoJob)?;
        let rank = Rank(proc.rank);
        if let Some(slot) = self.jobs[job.index()].slot(rank)
            && self.ask_for_newest(slot)
        {
            return Ok(self.await_data(now, (job, rank), Wanted::Copy, GET_WAIT));
        }
        let node = self.links.node();
        let copy = self.newest(node, integers, (job, rank), Wanted::Copy);
        Ok(ReplyState::Ready(copy.unwrap_or(Response::Pmix(PmixResponse::Refreshed { record: None }))))
    }

    /// Lets a get wait for data of a rank.
    fn await_data(&mut self, now: Time, (job, rank): (JobId, Rank), wanted: Wanted, wait: u64) -> ReplyState {
        self.schedule(now, wait);
        self.gets += 1;
        ReplyState::Get { job, rank, wanted, until: now.after(wait) }
    }

    /// Returns the data about a job that a client asks for.
    fn job_data(&self, job: JobId, infos: &Infos<'_>, key: Option<&[u8]>) -> Option<Response> {
        match key {
            Some(hosts::HOSTS) => Some(Response::Pmix(PmixResponse::Hosts(job))),
            Some(hosts::RANKS | hosts::PROCESSES) if hosts::are_named(infos) => {
                self.requested_host(job, infos).map(|node| Response::Pmix(PmixResponse::Host(job, node)))
            }
            Some(key) if HOST_FACTS && hosts::SIZES.contains(&key) && hosts::are_named(infos) => {
                let node = self.requested_host(job, infos)?;
                Some(Response::Pmix(PmixResponse::HostSizes(job, node)))
            }
            Some(key) if HOST_FACTS && key == hosts::SIZE => {
                Some(Response::Pmix(PmixResponse::HostSizes(job, self.links.node())))
            }
            Some(key) if HOST_FACTS && [JOB_NAME, OFFSET].contains(&key) => {
                Some(Response::Pmix(PmixResponse::Identity(job)))
            }
            Some(hosts::PROCESSES) => Some(Response::Pmix(PmixResponse::Processes(job))),
            Some(key) if HOST_FACTS && PROGRAM_KEYS.contains(&key) && infos.find(PROGRAM).is_some() => {
                let appnum = infos.find(PROGRAM)?.as_u32()?;
                let ranks = &self.ranks[self.jobs[job.index()].slots()];
                let is_there = ranks.iter().any(|rank| rank.appnum == appnum);
                is_there.then_some(Response::Pmix(PmixResponse::Program(job, appnum)))
            }
            Some(key) if !JOB_KEYS.contains(&key) => {
                let of = &self.jobs[job.index()];
                let record = self.text(of, key, None)?;
                let len: usize = self.text_parts(of, key).map(<[u8]>::len).sum();
                let fits = len <= self.limits.text_max();
                fits.then_some(Response::Pmix(PmixResponse::Text(job, record)))
            }
            _ => Some(Response::Pmix(PmixResponse::JobData(job))),
        }
    }

    /// Ends gets of a rank's data: the rank has exited.
    pub(in super::super) fn end_gets_of(&mut self, job: JobId, rank: Option<Rank>) {
        if self.gets > 0 {
            let missing = Response::status(status::NOT_FOUND);
            self.end_gets(|_, get| {
                // The node of a rank has its data until the job is over.
                let waits =
                    rank.is_none_or(|rank| get.rank == rank && matches!(get.wanted, Wanted::Key { .. }));
                (get.job == job && waits).then_some(missing)
            });
        }
    }

    /// Ends gets of the data of ranks on nodes that are lost. What is here of them is the newest.
    #[cfg(feature = "cluster")]
    pub(in super::super) fn end_gets_on(&mut self, job: JobId, lost: &Range<u32>) {
        if self.gets > 0 {
            self.end_gets(|server, get| {
                let slot = server.jobs[job.index()].slot(get.rank).filter(|_| get.job == job)?;
                let wanted = Some(get.wanted).filter(|_| lost.contains(&server.ranks[slot].node))?;
                let newest = server.newest(get.node, get.integers, (job, get.rank), wanted);
                Some(newest.unwrap_or(Response::status(status::NOT_FOUND)))
            });
        }
    }

    /// Ends gets that have timed out. Returns the time of the next timeout.
    pub(in super::super) fn expire_gets(&mut self, now: Time) -> Option<Time> {
        if self.gets == 0 {
            return None;
        }
        self.end_gets(|server, get| {
            let waited = matches!(get.wanted, Wanted::Key { patient: false, .. });
            let is_missing = waited && server.is_settled(get.job, get.rank);
            let late = if is_missing { status::NOT_FOUND } else { status::TIMEOUT };
            (get.until <= now).then_some(Response::status(late))
        })
    }

    /// Ends the gets for which `answer` returns a response. Returns the earliest deadline of the others.
    fn end_gets(&mut self, answer: impl Fn(&Server<'_>, &Get) -> Option<Response>) -> Option<Time> {
        let mut next: Option<Time> = None;
        let node = self.links.node();
        for conn in 0..self.conns_end {
            let mut changed = false;
            for at in 0..self.conns[conn as usize].replies.len() {
                let ReplyState::Get { job, rank, wanted, until } =
                    self.conns[conn as usize].replies[at].state
                else {
                    continue;
                };
                let dialect = self.conns[conn as usize].pmix;
                let integers = dialect.map_or(Integers::Flexible, |dialect| dialect.integers);
                let get = Get { node, integers, job, rank, wanted, until };
                match answer(self, &get) {
                    Some(answer) => {
                        self.conns[conn as usize].replies[at].state = ReplyState::Ready(answer);
                        self.gets -= 1;
                        changed = true;
                    }
                    None => next = Some(next.map_or(until, |next| next.min(until))),
                }
            }
            if changed {
                self.check_ready(ConnId(conn));
            }
        }
        next
    }
}

/// Get that waits for a key.
struct Get {
    /// Node of the client.
    node: u32,
    /// Dialect of the client.
    integers: Integers,
    job: JobId,
    rank: Rank,
    wanted: Wanted,
    until: Time,
}
