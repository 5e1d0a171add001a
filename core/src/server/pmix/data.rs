//! Data that PMIx ranks put: commits, and gets that may wait for them.

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::peers::REMOTE;
use super::hosts;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::Limit;
use crate::state::{RankPhase, ReplyState, Response};
use crate::store::log::hash;
use crate::tables::kvs::{Kind, Owner};
use crate::time::Time;
use crate::wire::pmix::{Commit, Infos, Proc, UNDEFINED, WILDCARD, status};
use crate::wire::{Integers, Text};

/// Milliseconds that a get waits for a key unless the request has its own timeout.
const GET_WAIT: u64 = 2000;
/// Prefix of keys that only the server provides.
const RESERVED: &[u8] = b"pmix.";
/// Keys of `Server::write_job_data`.
const JOB_KEYS: [&[u8]; 9] = [
    b"pmix.job.size",
    b"pmix.max.size",
    b"pmix.univ.size",
    hosts::RANKS,
    b"pmix.local.size",
    b"pmix.job.napps",
    b"pmix.num.nodes",
    b"pmix.lldr",
    b"pmix.app.size",
];

/// Keys of `Server::write_rank_data`.
const RANK_KEYS: [&[u8]; 8] = [
    b"pmix.lrank",
    b"pmix.nrank",
    b"pmix.appnum",
    b"pmix.apprank",
    b"pmix.grank",
    b"pmix.nodeid",
    hosts::HOST,
    PARENT,
];

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

/// Returns the first byte of stored data, which names the encoding of their integers.
fn mark(integers: Integers) -> u8 {
    integers as u8
}

impl Server<'_> {
    /// Stores all data of a rank, in the place of those of its last commit. A commit without data follows no new put, and
    /// changes nothing.
    pub(super) fn commit(
        &mut self,
        requester: Requester,
        integers: Integers,
        commit: &Commit<'_>,
    ) -> Result<(), Refusal> {
        let limit = self.limits.commit_bytes;
        let both = [(LOCAL, commit.local), (REMOTE, commit.remote)];
        if both.iter().any(|(_, data)| data.len() > limit as usize) {
            return Err(Refusal::Full(Limit::CommitBytes, limit));
        }
        if both.iter().all(|(_, data)| data.is_empty()) {
            return Ok(());
        }
        let keys = both.map(|(scope, _)| key_of(requester.rank, scope));
        let mark = [mark(integers)];
        let job = &self.jobs[requester.job.index()];
        let space = (job.spaces, Kind::Commit);
        let changed = both.map(|(scope, data)| match self.committed(requester.job, requester.rank, scope) {
            Some((_, stored)) => stored.split_first() != Some((&mark[0], data)),
            None => !data.is_empty(),
        });
        let pairs = (0..2).filter(|&at| changed[at]).map(|at| (&keys[at][..], 1 + both[at].1.len()));
        let quota = job.quota;
        self.kvs.room(space, self.ranks[requester.index].used, quota, pairs)?;
        for at in (0..2).filter(|&at| changed[at]) {
            let used = &mut self.ranks[requester.index].used;
            let owner = Owner { id: requester.index as u32, used, quota };
            self.kvs.put(space, Some(owner), &keys[at], Some([&mark[..], both[at].1].into_iter()))?;
        }
        if changed[1] {
            self.offer(requester.index);
        }
        self.answer_gets(requester.job, requester.rank);
        Ok(())
    }

    /// Answers the gets that wait for data of a rank, if they contain the key.
    pub(in super::super) fn answer_gets(&mut self, job: JobId, rank: Rank) {
        if self.gets > 0 {
            self.end_gets(|server, get| {
                (get.job == job && (get.rank == rank || get.rank == ANY))
                    .then(|| server.data_of(get.node, get.integers, job, rank, get.key))
                    .flatten()
            });
        }
    }

    /// Returns whether that is the newest data of a rank for other nodes.
    pub(in super::super) fn is_known_commit(&self, job: JobId, rank: Rank, value: &[u8]) -> bool {
        self.committed(job, rank, REMOTE).is_some_and(|(_, stored)| stored == value)
    }

    /// New data of a rank of another node are stored.
    pub(in super::super) fn received_commit(&mut self, job: JobId, rank: Rank, slot: usize) {
        self.offer(slot);
        self.answer_gets(job, rank);
    }

    /// Returns the offset and the value of a rank's data.
    fn committed(&self, job: JobId, rank: Rank, scope: u8) -> Option<(u32, &[u8])> {
        let spaces = self.jobs[job.index()].spaces;
        let record = self.kvs.find((spaces, Kind::Commit), &key_of(rank, scope)).ok()??;
        Some((record, self.kvs.record(record)?.value))
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
        let (record, value) = self.committed(job, rank, scope)?;
        let data = value.strip_prefix(&[mark(integers)])?;
        let found = key.is_none_or(|wanted| Commit::contains(integers, data, |key| hash(0, key) == wanted));
        found.then_some(Response::Commit { job, rank, record })
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
        let missing = ReplyState::Ready(Response::Status(status::NOT_FOUND));
        let job = self.named(Text::plain(proc.namespace)).ok_or(Refusal::NoJob)?;
        let rank = Rank(proc.rank);
        let slots = match rank {
            ANY | Rank(WILDCARD) => {
                if let Some(found) = self.job_data(job, infos, key) {
                    return Ok(ReplyState::Ready(found));
                }
                if rank != ANY {
                    return Ok(missing);
                }
                self.jobs[job.index()].slots()
            }
            rank => {
                let slot = self.jobs[job.index()].slot(rank).ok_or(Refusal::NoJob)?;
                slot..slot + 1
            }
        };
        let wanted = key.map(|key| hash(0, key));
        let (node, first) = (self.links.node(), self.jobs[job.index()].slots().start);
        for slot in slots.clone() {
            let rank = Rank((slot - first) as u32);
            if let Some(found) = self.data_of(node, integers, job, rank, wanted) {
                return Ok(ReplyState::Ready(found));
            }
        }
        if rank != ANY && key.is_some_and(|key| RANK_KEYS.contains(&key)) {
            return Ok(ReplyState::Ready(Response::RankData(job, rank)));
        }
        let over = slots.clone().all(|slot| {
            let slot = &self.ranks[slot];
            slot.exit.is_some() || slot.phase == RankPhase::Finalized
        });
        let Some(wanted) = wanted.filter(|_| !over && !infos.is_set(b"pmix.immediate")) else {
            return Ok(missing);
        };
        if key.is_some_and(|key| key.starts_with(RESERVED)) {
            return Ok(missing);
        }
        let timeout =
            infos.find(b"pmix.timeout").and_then(|info| info.as_u32()).filter(|&seconds| seconds > 0);
        let wait = timeout.map_or(GET_WAIT, |seconds| u64::from(seconds) * 1000);
        for slot in slots {
            self.ask_for(slot);
        }
        self.schedule(now, wait);
        self.gets += 1;
        Ok(ReplyState::Get { job, rank, key: wanted, until: now.after(wait) })
    }

    /// Returns the data about a job that a client asks for.
    fn job_data(&self, job: JobId, infos: &Infos<'_>, key: Option<&[u8]>) -> Option<Response> {
        match key {
            Some(hosts::HOSTS) => Some(Response::Hosts(job)),
            Some(hosts::RANKS | hosts::PROCESSES) if infos.find(hosts::HOST).is_some() => {
                self.requested_host(job, infos).map(|node| Response::Host(job, node))
            }
            Some(hosts::PROCESSES) => Some(Response::Processes(job)),
            key => key.is_none_or(|key| JOB_KEYS.contains(&key)).then_some(Response::JobData(job)),
        }
    }

    /// Ends gets of a rank's data: the rank has exited.
    pub(in super::super) fn end_gets_of(&mut self, job: JobId, rank: Option<Rank>) {
        if self.gets > 0 {
            let missing = Response::Status(status::NOT_FOUND);
            self.end_gets(|_, get| {
                (get.job == job && rank.is_none_or(|rank| get.rank == rank)).then_some(missing)
            });
        }
    }

    /// Ends gets that have timed out. Returns the time of the next timeout.
    pub(in super::super) fn expire_gets(&mut self, now: Time) -> Option<Time> {
        if self.gets == 0 {
            return None;
        }
        let late = Response::Status(status::TIMEOUT);
        self.end_gets(|_, get| (get.until <= now).then_some(late))
    }

    /// Ends the gets for which `answer` returns a response. Returns the earliest deadline of the others.
    fn end_gets(&mut self, answer: impl Fn(&Server<'_>, &Get) -> Option<Response>) -> Option<Time> {
        let mut next: Option<Time> = None;
        let node = self.links.node();
        for conn in 0..self.conns_end {
            let mut changed = false;
            for at in 0..self.conns[conn as usize].replies.len() {
                let ReplyState::Get { job, rank, key, until } = self.conns[conn as usize].replies[at].state
                else {
                    continue;
                };
                let dialect = self.conns[conn as usize].pmix;
                let integers = dialect.map_or(Integers::Flexible, |dialect| dialect.integers);
                let get = Get { node, integers, job, rank, key: Some(key), until };
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
    key: Option<u32>,
    until: Time,
}
