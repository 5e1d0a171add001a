//! PMI server: the state machine that answers clients.

// First, so that the page of `Server` begins with its creation, `handle` and `poll`.
mod calls;

mod poll;

mod attrs;
#[cfg(any(test, feature = "alloc"))]
mod backend;
pub mod call;
mod collective;
mod dispatch;
#[cfg(feature = "cluster")]
mod echo;
mod fetch;
mod handshake;
mod host_state;
mod inbox;
mod io;
mod jobs;
pub mod link;
mod lost;
mod names;
mod nodes;
#[cfg(feature = "alloc")]
mod owned;
mod peek;
mod peers;
#[cfg(feature = "pmix")]
mod pmix;
mod psets;
mod query;
mod reclaim;
mod record;
pub mod remote;
mod restore;
mod spawn;
mod status;
#[cfg(test)]
mod tests;
mod upcalls;

#[cfg(any(test, feature = "alloc"))]
pub use backend::{Backend, BackendError};
pub use host_state::HostState;
pub use inbox::Inbox;
pub use io::{Consumed, FenceMode, Input, InputOf, JobSpec, JobSpecOf, Output, OutputOf};
#[cfg(feature = "alloc")]
pub use owned::{OwnedInput, OwnedOutput};
pub use peek::Peek;
pub use record::Record;
pub use status::{FenceReport, JobPhase, JobReport, RankReport, RankStatus, Wait};

use crate::fault::{Fault, Refusal, ShortBuffer};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{Limit, Limits};
use crate::peer::links::Links;
use crate::snapshot;
#[cfg(feature = "pmix")]
use crate::state::PmixResponse;
use crate::state::{Conn, Job, RankSlot, ReplyState, Response};
use crate::store::{Ready, Slots};
use crate::tables::connect::Connections;
use crate::tables::fence::Groups;
use crate::tables::kvs::{Kind, Kvs};
use crate::tables::messages::Messages;
use crate::tables::modex::Modex;
use crate::tables::names::Names;
use crate::tables::psets::Psets;
use crate::tables::upcalls::Upcalls;
use crate::time::Time;
use crate::trace::event;

/// PMI server for the ranks of one node.
///
/// # Kinds of methods
///
/// - Input: [`handle`](Server::handle) applies one [`Input`]. No other method affects later outputs.
/// - Output: [`poll`](Server::poll) returns the next [`Output`]. [`has_output`](Server::has_output) returns whether
///   there may be one.
/// - Time: [`poll_at`](Server::poll_at) returns when [`Input::Timeout`] is due.
/// - Status: [`job_report`](Server::job_report), [`rank_report`](Server::rank_report),
///   [`rank_status`](Server::rank_status), [`used`](Server::used), and
///   [`take_limit_hit`](Server::take_limit_hit), which reports each exhausted limit once per job.
/// - State: [`snapshot`](Server::snapshot) and [`restore`](Server::restore).
///
/// # Order of calls
///
/// After each `handle`, call `poll` until it returns `None`, and then `poll_at`. Only these two calls change the
/// result of `poll_at`. An early [`Input::Timeout`] is harmless. A late one delays the end of look-ups and warnings.
/// Pending output is kept in the tables, and a connection has at most [`PENDING_MAX`](crate::limits::PENDING_MAX)
/// pending replies, so no queue can overflow. [`Input`] documents the order of inputs for one job.
///
/// ```text
/// loop {
///     wait for a socket, a child process or poll_at()
///     handle(now, input)
///     while let Some(output) = poll(&mut buffer)? { carry it out }
/// }
/// ```
///
/// # What outputs require
///
/// | output | the host | and then calls |
/// |---|---|---|
/// | [`Bytes`](Output::Bytes) | sends the reply | [`Inbox::resume`]; [`Input::Blocked`] if the socket is full, [`Input::Writable`] when it has room |
/// | [`Close`](Output::Close) | closes the connection | [`Input::Closed`] |
/// | [`Joined`](Output::Joined) | learns the rank of a connection | nothing |
/// | [`Spawn`](Output::Spawn) | registers a job with [`JobSpec::spawn`] and starts its processes | [`Input::SpawnComplete`] |
/// | [`Upcall`](Output::Upcall) | carries out the request | [`Input::UpcallComplete`] |
/// | [`KillRank`](Output::KillRank) | kills the process | [`Input::Exited`] |
/// | [`AbortJob`](Output::AbortJob) | kills the processes of the job | [`Input::Exited`] for each, then [`Input::DeregisterJob`] |
/// | [`Peer`](Output::Peer) | sends the message to the node | [`Input::Peer`] there; [`Input::PeerBlocked`] and [`Input::PeerWritable`] as for `Bytes` |
/// | [`StalledFence`](Output::StalledFence) | may warn the user | nothing |
/// | [`RemoveFiles`](Output::RemoveFiles) | removes the files when the process has exited | nothing |
/// | [`Log`](Output::Log) | prints the text as output of the rank | nothing |
/// | [`Connected`](Output::Connected) | learns which jobs fail together | nothing |
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | `handle` with the bytes of a put, a get or an arrival in a fence | O(message) |
/// | `handle` with the last arrival in a fence, a ring or a group barrier | O(ranks of the job) |
/// | `handle` with `Timeout`, `RegisterJob`, `DeregisterJob`, `Exited` | O(jobs + ranks + connections) |
/// | `poll` that returns `Bytes` | O(reply + log connections) |
/// | the first `poll` after an input that may cause another output | O(jobs + ranks) more |
/// | `poll_at`, `has_output` | O(1) |
#[derive(Debug)]
pub struct Server<'s> {
    limits: Limits,
    /// [`Limits::output_max`], which is read at each output.
    output_max: u32,
    jobs: Slots<'s, Job>,
    ranks: &'s mut [RankSlot],
    conns: &'s mut [Conn],
    /// End of the connection slots that have been in use. Walks end here: a large table is mostly unused.
    conns_end: u32,
    /// The same for rank slots.
    ranks_end: u32,
    kvs: Kvs<'s>,
    groups: Groups<'s>,
    names: Names<'s>,
    upcalls: Upcalls<'s>,
    messages: Messages<'s>,
    psets: Psets<'s>,
    connections: Connections<'s>,
    links: Links<'s>,
    /// Requests for data of ranks on other nodes.
    modex: Modex<'s>,
    /// Processes that have exited so far.
    exits: u32,
    /// Connections with an output that are not blocked.
    ready: Ready<'s>,
    /// Whether a job, a rank or a group may have an event for the host.
    events_pending: bool,
    wake: Option<Time>,
    /// Last context id of a PMIx group.
    contexts: u32,
    /// Number of the last event that a PMIx client has sent.
    notices: u32,
    /// Number of replies that wait for data of a rank: of PMIx, or pairs of a lazy job on another node.
    gets: u32,
    /// Bit set of limits for which a request was refused since the host last took them.
    hit: u32,
    /// Bit set of the PMIx commands that were refused as not supported.
    unserved: u64,
}

impl Server<'_> {
    /// Returns the limits that the server was created with.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of a job's key-value space in the log. Processes that map the log use it to [look up
    /// keys](crate::client::LogView::get). Returns `None` for an unknown job.
    pub fn kvs_space(&self, job: JobId) -> Option<u32> {
        self.job(job).ok().map(|job| job.spaces.of(Kind::Kvs))
    }

    /// Writes the whole state to the front of `buf`. Equal states give equal bytes.
    ///
    /// # Errors
    /// [`ShortBuffer`] when `buf` is shorter than [`Server::snapshot_len`].
    pub fn snapshot<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], ShortBuffer> {
        snapshot::write(&self.state(), buf).ok_or_else(|| ShortBuffer { needed: self.snapshot_len() })
    }

    /// Returns the length of a [snapshot](Server::snapshot) of the present state, in bytes.
    pub fn snapshot_len(&self) -> usize {
        snapshot::len(&self.state())
    }

    fn state(&self) -> snapshot::State<'_> {
        let (groups, sets) = self.groups.state();
        let (upcalls, requests) = self.upcalls.state();
        snapshot::State {
            limits: self.limits,
            seed: self.kvs.log().seed(),
            jobs: self.jobs.all(),
            ranks: self.ranks,
            conns: self.conns,
            log: self.kvs.log().as_bytes(),
            kvs: self.kvs.state(),
            groups,
            sets,
            names: self.names.state(),
            upcalls,
            requests,
            messages: self.messages.state(self.jobs_with_messages()),
            psets: self.psets.state(),
            connections: self.connections.state(),
            links: self.links.state(),
            modex: self.modex.state(),
            ends: self.exits,
            turn: self.ready.turn(),
            wake: self.wake,
            contexts: self.contexts,
            notices: self.notices,
        }
    }

    /// Returns the end of the job slots with messages.
    fn jobs_with_messages(&self) -> usize {
        self.jobs.iter().rposition(|job| job.message > 0).map_or(0, |last| last + 1)
    }

    /// Converts the refusal of a table into a fault: a limit, or else `mistake`.
    fn fault(&self, why: Refusal, mistake: Fault) -> Fault {
        match why {
            Refusal::Full(limit, _) | Refusal::Quota(limit, _) => Fault::Full(limit, self.limits.of(limit)),
            _ => mistake,
        }
    }

    fn job(&self, job: JobId) -> Result<&Job, Fault> {
        self.jobs.get(job.index()).filter(|slot| !slot.name.is_empty()).ok_or(Fault::NoSuchJob)
    }

    fn conn(&self, conn: ConnId) -> Result<&Conn, Fault> {
        self.conns.get(conn.index()).filter(|slot| slot.job.is_some()).ok_or(Fault::NoSuchConn)
    }

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
            if !slot.may_connect() || slot.node != here {
                return Err(Fault::RankTaken);
            }
            slot.conn = Some(conn);
        }
        self.jobs[job.index()].begun = true;
        self.conns[conn.index()] = Conn { job: Some(job), rank, ..Conn::EMPTY };
        self.conns_end = self.conns_end.max(conn.0 + 1);
        event!(debug, "conn {} opened for job {}", conn, job);
        Ok(())
    }

    fn close_conn(&mut self, now: Time, conn: ConnId) -> Result<(), Fault> {
        let Conn { job, rank, .. } = *self.conn(conn)?;
        if let Some(slot) = self.rank_slot(job, rank)
            && slot.conn == Some(conn)
        {
            slot.conn = None;
            if slot.is_cut_off() {
                self.schedule_cut_off(now, job);
            }
        }
        if let Some(slot) = self.rank_slot(job, rank)
            && slot.pmix == Some(conn)
        {
            slot.pmix = None;
            #[cfg(feature = "pmix")]
            if let (Some(job), Some(rank)) = (job, rank) {
                self.pmix_closed(job, rank);
            }
        }
        self.ready.remove(conn.0);
        self.drop_replies(conn);
        self.conns[conn.index()] = Conn::EMPTY;
        event!(debug, "conn {} closed", conn);
        Ok(())
    }

    /// Drops the pending replies of a connection.
    fn drop_replies(&mut self, conn: ConnId) {
        while let Some(reply) = self.conns[conn.index()].replies.pop() {
            match reply.state {
                ReplyState::Lookup { at, .. } => self.names.leave(at),
                #[cfg(feature = "pmix")]
                ReplyState::LookupAll { slots, .. } => self.leave_all(slots),
                ReplyState::Get { .. } | ReplyState::Fetch { .. } | ReplyState::Bootstrap { .. } => {
                    self.gets -= 1
                }
                #[cfg(feature = "pmix")]
                ReplyState::Ready(Response::Port(name)) => self.name_was_read(name),
                #[cfg(feature = "pmix")]
                ReplyState::Ready(Response::Pmix(PmixResponse::Published { slots })) => {
                    self.names_were_read(slots)
                }
                #[cfg(feature = "pmix")]
                ReplyState::Ready(Response::Pmix(PmixResponse::Report(upcall))) => self.drop_upcall(upcall),
                ReplyState::Upcall(_, upcall)
                | ReplyState::UpcallEcho(_, _, upcall)
                | ReplyState::Ready(Response::Upcall(_, upcall)) => self.drop_upcall(upcall),
                _ => {}
            }
        }
    }

    fn rank_slot(&mut self, job: Option<JobId>, rank: Option<Rank>) -> Option<&mut RankSlot> {
        let slot = self.jobs.get(job?.index())?.slot(rank?)?;
        self.ranks.get_mut(slot)
    }

    /// Marks a connection as ready if it has an output and is not blocked.
    fn check_ready(&mut self, conn: ConnId) {
        let Some(slot) = self.conns.get(conn.index()) else { return };
        let says = slot.joined_pending
            || slot.closing_pending
            || slot.replies.iter().any(|reply| matches!(reply.state, ReplyState::Ready(_)));
        if says && !slot.blocked {
            self.ready.insert(conn.0);
        } else {
            self.ready.remove(conn.0);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let cut_off = self.check_cut_off(now);
        let inits = self.check_inits(now);
        self.expire_collectives(now);
        let jobs = &mut *self.jobs;
        let fences = jobs.iter_mut().filter_map(|job| job.fence.check(now, job.fence_warning)).min();
        let groups = self.groups.check(now, |job| jobs.get(job.index()).map_or(0, |job| job.fence_warning));
        let lookups = self.expire_lookups(now);
        #[cfg(feature = "pmix")]
        let (gets, members, monitors) =
            (self.expire_gets(now), self.expire_bootstraps(now), self.check_monitors(now));
        #[cfg(not(feature = "pmix"))]
        let (gets, members, monitors) = (None, None, None);
        self.links.wake_for_exits(self.exits);
        self.wake =
            [cut_off, inits, fences, groups, lookups, gets, members, monitors].into_iter().flatten().min();
        self.events_pending = true;
    }

    /// Schedules a timeout in `millis` milliseconds.
    fn schedule(&mut self, now: Time, millis: u64) {
        let due = now.after(millis);
        self.wake = Some(self.wake.map_or(due, |wake| wake.min(due)));
    }
}
