//! The state machine that answers clients.
//!
//! [`Server::handle`] takes what happened and [`Server::poll`] gives what is to be done about it. Output is state,
//! not a queue: a client is owed a few replies at most, a fence that completes marks its ranks ready, and `poll`
//! writes each reply when the host can send it. So nothing can overflow, and a slow reader holds up nobody.

mod aside;
mod attrs;
mod backend;
mod dispatch;
mod fences;
mod inbox;
mod intro;
pub mod io;
mod jobs;
mod names;
mod nodes;
mod peers;
mod poll;
mod psets;
mod record;
mod restore;
mod spawn;
mod status;
#[cfg(test)]
mod tests;
mod upcalls;

pub use backend::Backend;
pub use inbox::Inbox;
pub use io::{Consumed, Input, JobSpec, Output};
pub use record::Record;

use crate::fault::{Fault, Refusal, ShortBuffer, Slab};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{Limit, Limits};
use crate::peer::links::Links;
use crate::snapshot;
use crate::state::{Answer, Conn, Job, RankSlot, What};
use crate::storage::{Layout, Storage};
use crate::store::{Log, Ready, log};
use crate::tables::connect::Connections;
use crate::tables::fence::Groups;
use crate::tables::kvs::{Kind, Kvs};
use crate::tables::names::Names;
use crate::tables::psets::Psets;
use crate::tables::upcalls::Upcalls;
use crate::time::Time;
use crate::trace::event;

/// The server of one node's ranks.
#[derive(Debug)]
pub struct Server<'s> {
    limits: Limits,
    jobs: &'s mut [Job],
    ranks: &'s mut [RankSlot],
    conns: &'s mut [Conn],
    kvs: Kvs<'s>,
    groups: Groups<'s>,
    names: Names<'s>,
    upcalls: Upcalls<'s>,
    psets: Psets<'s>,
    connections: Connections<'s>,
    links: Links<'s>,
    /// How many processes have ended so far.
    ends: u32,
    /// Connections with something to say that the host can write to.
    ready: Ready<'s>,
    /// Whether a job or a group may have something to say.
    news: bool,
    wake: Option<Time>,
    /// Limits that a client was refused for, a bit each, until the host takes note.
    hit: u32,
}

impl<'s> Server<'s> {
    /// Creates a server without jobs. `seed` spreads the hash table of keys; any number will do.
    ///
    /// # Errors
    /// [`Fault::InsufficientStorage`] when a slab is shorter than [`Layout::of`] requires for `limits`.
    pub fn new(limits: Limits, storage: Storage<'s>, seed: u32) -> Result<Server<'s>, Fault> {
        if let Some(index) = storage.index.get(..Layout::of(&limits).index) {
            log::wipe(index);
        }
        Server::new_zeroed(limits, storage, seed)
    }

    /// Creates a server as [`Server::new`] does, in storage whose index holds zeros. The index is not read or written,
    /// so that lazily mapped memory is not committed.
    ///
    /// # Errors
    /// As [`Server::new`].
    pub fn new_zeroed(limits: Limits, storage: Storage<'s>, seed: u32) -> Result<Server<'s>, Fault> {
        let need = Layout::of(&limits);
        let Storage { log: bytes, index, requests, .. } = storage;
        let jobs = cut(storage.jobs, need.jobs, Slab::Jobs)?;
        let ranks = cut(storage.ranks, need.ranks, Slab::Ranks)?;
        let conns = cut(storage.conns, need.conns, Slab::Conns)?;
        let bytes = cut(bytes, need.log, Slab::Log)?;
        let short_index = short(Slab::Index, need.index, index.len());
        let index = index.get(..need.index).ok_or(short_index)?;
        let groups = cut(storage.groups, need.groups, Slab::Groups)?;
        let names = cut(storage.names, need.names, Slab::Names)?;
        let upcalls = cut(storage.upcalls, need.upcalls, Slab::Upcalls)?;
        let short_requests = short(Slab::Requests, need.requests, requests.len());
        let psets = cut(storage.psets, need.psets, Slab::Psets)?;
        let links = cut(storage.links, need.links, Slab::Links)?;
        let short_bits = short(Slab::Bits, need.bits, storage.bits.len());
        let bits = cut(storage.bits, need.bits, Slab::Bits)?;
        jobs.fill(Job::default());
        ranks.fill(RankSlot::default());
        conns.fill(Conn::default());
        let (ready, bits) = bits.split_at_mut(Ready::words(limits.conns));
        let (group_sets, bits) = bits.split_at_mut(Groups::words(limits.groups, limits.ranks));
        let (pset_sets, rows) = bits.split_at_mut(Psets::words(limits.psets, limits.ranks));
        Ok(Server {
            limits,
            jobs,
            ranks,
            conns,
            kvs: Kvs::new(Log::new(bytes, index, limits.keys, seed).ok_or(short_index)?, &limits),
            groups: Groups::new(groups, group_sets, limits.ranks).ok_or(short_bits)?,
            names: Names::new(names),
            upcalls: Upcalls::new(upcalls, requests, limits.spawn_bytes).ok_or(short_requests)?,
            psets: Psets::new(psets, pset_sets, limits.ranks).ok_or(short_bits)?,
            connections: Connections::new(rows, limits.jobs).ok_or(short_bits)?,
            links: Links::new(links),
            ends: 0,
            ready: Ready::new(ready, limits.conns).ok_or(short_bits)?,
            news: false,
            wake: None,
            hit: 0,
        })
    }

    /// Takes in what happened. The only way in.
    ///
    /// # Errors
    /// A [`Fault`] is the host's mistake; nothing was changed. Clients' mistakes are no errors here: they get
    /// their reply, or [`Output::Close`].
    #[inline]
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Fault> {
        if let Input::Bytes { conn, bytes, full } = input {
            return self.bytes(now, conn, bytes, full);
        }
        self.happen(now, input)
    }

    /// All but what clients say.
    #[cold]
    fn happen(&mut self, now: Time, input: Input<'_>) -> Result<Consumed, Fault> {
        match input {
            // The caller has seen to it.
            Input::Bytes { .. } => {}
            Input::Node { node, nodes, radix } => self.join_nodes(node, nodes, radix)?,
            Input::RegisterJob(spec) => self.open_job(&spec)?,
            Input::MapRanks { job, first, count, node } => self.place(job, first, count, node)?,
            Input::Preput { job, key, value } => self.preput(job, key, value)?,
            Input::Define { job, name, members } => self.define(job, name, members)?,
            Input::Connected { job, other, connected } => self.connected(job, other, connected)?,
            Input::StalledFence { job } => self.ask_missing(job)?,
            Input::Peer { node, bytes } => self.hear(node, bytes)?,
            Input::PeerBlocked { node } => self.link_mut(node)?.blocked = true,
            Input::PeerWritable { node } => self.link_mut(node)?.blocked = false,
            Input::Program { job, first, count, appnum } => self.set_program(job, first, count, appnum)?,
            Input::Attr { job, key, value } => self.set_attr(job, key, value)?,
            Input::Pset { job, name, first, count } => self.host_pset(job, name, first, count)?,
            Input::SpawnComplete { spawn, started, full, codes } => {
                self.launched(spawn, started, full, codes)?
            }
            Input::UpcallComplete { upcall, rc, text } => self.seen_to(upcall, rc, text)?,
            Input::Opened { conn, job, rank } => self.open_conn(conn, job, rank)?,
            Input::OpenedQuery { conn, job } => self.open_aside(conn, job)?,
            Input::Blocked { conn } => {
                self.conn_mut(conn)?.blocked = true;
                self.ready.remove(conn.0);
            }
            Input::Writable { conn } => {
                self.conn_mut(conn)?.blocked = false;
                self.check_ready(conn);
            }
            Input::Closed { conn } => self.close_conn(conn)?,
            Input::Exited { job, rank, exit } => self.exit(job, rank, exit)?,
            Input::DeregisterJob { job } => self.forget(job)?,
            Input::Timeout => self.tick(now),
        }
        Ok(Consumed::default())
    }

    /// When the host has to say [`Input::Timeout`], if nothing else happens before.
    #[inline]
    #[must_use]
    pub fn poll_at(&self) -> Option<Time> {
        self.wake
    }

    /// Whether [`Server::poll`] may have something to say.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        self.news || self.links.ready().is_some() || self.ready.next().is_some()
    }

    /// The limits that it was made with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The number that a job's key-value space has in the log: what those who share its memory
    /// [look keys up](crate::client::LogView::get) with. Nothing where there is no such job.
    pub fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.job(job).ok().map(|job| job.spaces.of(Kind::Kvs))
    }

    /// Writes the whole state to the front of `buf`: equal states give equal bytes.
    ///
    /// # Errors
    /// [`ShortBuffer`] when `buf` is shorter than [`Server::snapshot_len`].
    pub fn snapshot<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], ShortBuffer> {
        snapshot::write(&self.state(), buf).ok_or_else(|| ShortBuffer { needed: self.snapshot_len() })
    }

    /// How long a [snapshot](Server::snapshot) would be, in bytes.
    pub fn snapshot_len(&self) -> usize {
        snapshot::len(&self.state())
    }

    fn state(&self) -> snapshot::State<'_> {
        let (groups, sets) = self.groups.state();
        let (upcalls, requests) = self.upcalls.state();
        snapshot::State {
            limits: self.limits,
            seed: self.kvs.log().seed(),
            jobs: self.jobs,
            ranks: self.ranks,
            conns: self.conns,
            log: self.kvs.log().as_bytes(),
            kvs: self.kvs.state(),
            groups,
            sets,
            names: self.names.state(),
            upcalls,
            requests,
            psets: self.psets.state(),
            connections: self.connections.state(),
            links: self.links.state(),
            ends: self.ends,
            turn: self.ready.turn(),
            wake: self.wake,
        }
    }

    /// What a table's refusal is to the host: a limit, or else the mistake that it can be.
    fn fault(&self, why: Refusal, mistake: Fault) -> Fault {
        match why {
            Refusal::Full(limit, _) | Refusal::Share(limit, _) => Fault::Full(limit, self.limits.of(limit)),
            _ => mistake,
        }
    }

    #[inline]
    fn job(&self, job: JobId) -> Result<&Job, Fault> {
        self.jobs.get(job.index()).filter(|slot| !slot.name.is_empty()).ok_or(Fault::NoSuchJob)
    }

    #[inline]
    fn conn(&self, conn: ConnId) -> Result<&Conn, Fault> {
        self.conns.get(conn.index()).filter(|slot| slot.job.is_some()).ok_or(Fault::NoSuchConn)
    }

    #[inline]
    fn conn_mut(&mut self, conn: ConnId) -> Result<&mut Conn, Fault> {
        self.conns.get_mut(conn.index()).filter(|slot| slot.job.is_some()).ok_or(Fault::NoSuchConn)
    }

    fn open_conn(&mut self, conn: ConnId, job: JobId, rank: Option<Rank>) -> Result<(), Fault> {
        let spec = self.job(job)?;
        let slot = rank.map(|rank| spec.slot(rank).ok_or(Fault::NoSuchRank)).transpose()?;
        let full = Fault::Full(Limit::Conns, self.limits.conns);
        if self.conns.get(conn.index()).ok_or(full)?.job.is_some() {
            return Err(Fault::ConnInUse);
        }
        if let Some(slot) = slot {
            let here = self.links.node();
            let slot = &mut self.ranks[slot];
            if slot.conn.is_some() || slot.exit.is_some() || slot.node != here {
                return Err(Fault::RankTaken);
            }
            slot.conn = Some(conn);
        }
        self.jobs[job.index()].begun = true;
        self.conns[conn.index()] = Conn { job: Some(job), rank, ..Conn::default() };
        event!(debug, "conn {} opened for job {}", conn, job);
        Ok(())
    }

    fn close_conn(&mut self, conn: ConnId) -> Result<(), Fault> {
        let Conn { job, rank, .. } = *self.conn(conn)?;
        if let Some(slot) = self.rank_slot(job, rank)
            && slot.conn == Some(conn)
        {
            slot.conn = None;
        }
        self.ready.remove(conn.0);
        self.drop_owed(conn);
        self.conns[conn.index()] = Conn::default();
        event!(debug, "conn {} closed", conn);
        Ok(())
    }

    /// Nobody will hear what this connection is owed.
    fn drop_owed(&mut self, conn: ConnId) {
        while let Some(owed) = self.conns[conn.index()].owed.pop() {
            match owed.what {
                What::Lookup { at, .. } => self.names.leave(at),
                What::Upcall(_, upcall) | What::Answer(Answer::Upcall(_, upcall)) => self.drop_upcall(upcall),
                _ => {}
            }
        }
    }

    #[inline]
    fn rank_slot(&mut self, job: Option<JobId>, rank: Option<Rank>) -> Option<&mut RankSlot> {
        let slot = self.jobs.get(job?.index())?.slot(rank?)?;
        self.ranks.get_mut(slot)
    }

    /// Puts a connection among the ready ones when it has something to say and the host can write to it.
    #[inline]
    fn check_ready(&mut self, conn: ConnId) {
        let Some(slot) = self.conns.get(conn.index()) else { return };
        let says = slot.joined_unsaid
            || slot.closing_unsaid
            || slot.owed.iter().any(|owed| matches!(owed.what, What::Answer(_)));
        if says && !slot.blocked {
            self.ready.insert(conn.0);
        } else {
            self.ready.remove(conn.0);
        }
    }

    fn tick(&mut self, now: Time) {
        let jobs = &mut *self.jobs;
        let fences = jobs.iter_mut().filter_map(|job| job.fence.check(now, job.fence_warning)).min();
        let groups = self.groups.check(now, |job| jobs.get(job.index()).map_or(0, |job| job.fence_warning));
        let lookups = self.expire_lookups(now);
        self.wake = [fences, groups, lookups].into_iter().flatten().min();
        self.news = true;
    }

    /// Something is due in so many milliseconds.
    fn wake_after(&mut self, now: Time, millis: u64) {
        let due = now.after(millis);
        self.wake = Some(self.wake.map_or(due, |wake| wake.min(due)));
    }
}

/// The first `needed` elements of a slab.
fn cut<T>(slab: &mut [T], needed: usize, name: Slab) -> Result<&mut [T], Fault> {
    let given = slab.len();
    slab.get_mut(..needed).ok_or(short(name, needed, given))
}

fn short(slab: Slab, needed: usize, given: usize) -> Fault {
    let [needed, given] = [needed, given].map(|len| u32::try_from(len).unwrap_or(u32::MAX));
    Fault::InsufficientStorage { slab, needed, given }
}
