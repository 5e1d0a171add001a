//! Execution of client requests.

use heapless::Vec;

use super::Server;
use super::io::Consumed;
use crate::fault::{Fault, Malformed, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::{JOBID_MAX, KEY_MAX, LAZY_FENCES, THRID_MAX};
use crate::state::{Abort, Conn, Job, PendingReply, Phase, RankPhase, ReplyState, Response};
use crate::tables::kvs::{Before, Kind, Owner};
#[cfg(feature = "pmix")]
use crate::tables::names::mark;
use crate::time::Time;
use crate::trace::{Cause, Closing, event};
use crate::wire::{self, Command, Framing, Message, Op, Protocol, Text};

/// Rank that sent a request.
#[derive(Clone, Copy)]
pub(super) struct Requester {
    pub(super) conn: ConnId,
    pub(super) job: JobId,
    pub(super) rank: Rank,
    /// Its rank slot.
    pub(super) index: usize,
}

impl Server<'_> {
    /// Executes all messages of a connection that are complete.
    pub(super) fn bytes(
        &mut self,
        now: Time,
        conn: ConnId,
        bytes: &[u8],
        full: bool,
    ) -> Result<Consumed, Fault> {
        self.conn(conn)?;
        #[cfg(feature = "pmix")]
        if self.is_pmix(conn, bytes) {
            return Ok(self.pmix_bytes(now, conn, bytes, full));
        }
        let mut rest = bytes;
        let mut again = false;
        while !rest.is_empty() {
            let slot = &self.conns[conn.index()];
            if slot.closing.is_some() {
                rest = &[];
                break;
            }
            match wire::next_frame(rest, framing(slot)) {
                Ok(Some(ref frame)) => match self.message(now, conn, frame) {
                    Ok(true) => rest = &rest[frame.len as usize..],
                    Ok(false) => {
                        again = true;
                        break;
                    }
                    Err(malformed) => self.close(conn, Closing::Malformed(malformed)),
                },
                // Consumed bytes make room in the host's buffer.
                Ok(None) if full && rest.len() == bytes.len() => {
                    self.close(conn, Closing::Malformed(Malformed::TooLong))
                }
                Ok(None) => break,
                Err(malformed) => self.close(conn, Closing::Malformed(malformed)),
            }
        }
        Ok(Consumed { bytes: (bytes.len() - rest.len()) as u32, again })
    }

    /// Adds a reply to those of a connection, which has room for it. A `thrid` is no longer than [`THRID_MAX`].
    fn add_reply(&mut self, conn: ConnId, thrid: Option<Text<'_>>, state: ReplyState) {
        let slot = &mut self.conns[conn.index()];
        let pushed = slot.replies.push(PendingReply { thrid: Vec::new(), state });
        debug_assert!(pushed.is_ok(), "the caller turns messages of a crowded connection back");
        if let Some(thrid) = thrid
            && let Some(reply) = slot.replies.last_mut()
        {
            reply.thrid.extend(thrid.parts().flatten().copied());
        }
        if !slot.blocked
            && slot.replies.last().is_some_and(|reply| matches!(reply.state, ReplyState::Ready(_)))
        {
            self.ready.insert(conn.0);
        }
    }

    /// Executes a message. Returns false if the message must wait until a reply is taken.
    fn message(&mut self, now: Time, conn: ConnId, frame: &wire::Frame<'_>) -> Result<bool, Malformed> {
        let slot = &self.conns[conn.index()];
        let opened = slot.phase == Phase::Opened;
        let introduced = matches!(slot.phase, Phase::Ready | Phase::Finalized);
        let crowded = slot.replies.is_full();
        let counted = framing(slot) == Framing::Counted;
        let decoded = wire::decode(frame);
        let &Message { op, ref command, thrid } = decoded.as_ref().map_err(|malformed| *malformed)?;
        if let Ok(Command::Abort { code, world, message }) = command {
            self.abort(conn, *code, *world, *message);
            return Ok(true);
        }
        if crowded {
            return Ok(false);
        }
        if opened && !matches!(op, Op::Init | Op::InitAck) {
            return Err(Malformed::Handshake);
        }
        if counted && frame.kind != wire::frame::Kind::Counted && op != Op::Init {
            return Err(Malformed::Length);
        }
        // The thread id of a reply is that of its request, or none if that is too long.
        let kept = thrid.filter(|thrid| thrid.len() <= THRID_MAX);
        let result = match command {
            _ if kept.is_some() != thrid.is_some() => Err(Refusal::BadField),
            Ok(command) => self.with_room(|server| server.command(now, conn, command, frame)),
            Err(refusal) => Err(*refusal),
        };
        let state = result.unwrap_or_else(|why| {
            event!(warn, "conn {} refused: {}", conn, why);
            self.note_limit(conn, why);
            if !introduced && matches!(op, Op::Init | Op::InitAck | Op::FullInit) {
                // A stranger has one attempt, so it cannot keep the host busy with refusals.
                self.close(conn, Closing::Refused);
            }
            ReplyState::Ready(Response::Refused(op, why))
        });
        self.add_reply(conn, kept, state);
        if !matches!(state, ReplyState::Ready(_)) {
            self.after_command(now, conn, state);
        }
        Ok(true)
    }

    /// Applies the effects of a command beyond its own reply, which is pending.
    pub(super) fn after_command(&mut self, now: Time, conn: ConnId, state: ReplyState) {
        let Some(Requester { job, .. }) = self.requester(conn) else { return };
        match state {
            ReplyState::Fence => self.check_fence(job),
            ReplyState::Ring => self.check_ring(job),
            ReplyState::GroupFence { group, .. } => self.check_group(job, group),
            #[cfg(feature = "pmix")]
            ReplyState::Bootstrap { tag, .. } => return self.bootstrap(now, tag),
            #[cfg(not(feature = "pmix"))]
            ReplyState::Bootstrap { .. } => return,
            ReplyState::Upcall(..)
            | ReplyState::Lookup { .. }
            | ReplyState::LookupAll { .. }
            | ReplyState::NodeAttr(_)
            | ReplyState::Get { .. }
            | ReplyState::Fetch { .. }
            | ReplyState::Echo(_)
            | ReplyState::UpcallEcho(..)
            | ReplyState::Ready(_) => return,
        }
        self.after_arrival(now, job);
        #[cfg(feature = "pmix")]
        if let ReplyState::GroupFence { group, .. } = state {
            self.check_others_for_lost(now, job, group);
        }
    }

    /// Begins to watch a collective in which a rank has arrived.
    fn after_arrival(&mut self, now: Time, job: JobId) {
        let warning = self.jobs[job.index()].fence_warning;
        if warning > 0 {
            self.schedule(now, warning);
        }
        self.check_for_lost(now, job);
    }

    #[cold]
    pub(super) fn close(&mut self, conn: ConnId, why: Closing) {
        event!(warn, "conn {} has to be closed: {}", conn, why);
        let slot = &mut self.conns[conn.index()];
        slot.closing = Some(why);
        slot.closing_pending = true;
        self.check_ready(conn);
    }

    pub(super) fn requester(&self, conn: ConnId) -> Option<Requester> {
        let slot = self.conns.get(conn.index())?;
        let (job, rank) = (slot.job?, slot.rank?);
        let index = self.jobs.get(job.index())?.slot(rank)?;
        Some(Requester { conn, job, rank, index })
    }

    fn command(
        &mut self,
        now: Time,
        conn: ConnId,
        command: &Command<'_>,
        frame: &wire::Frame<'_>,
    ) -> Result<ReplyState, Refusal> {
        if self.conns[conn.index()].query {
            self.check_query(conn, command)?;
        }
        match *command {
            Command::Init { version, .. } => return self.init(now, conn, version).map(ReplyState::Ready),
            Command::InitAck { pmiid } => return self.init_ack(conn, pmiid).map(ReplyState::Ready),
            Command::FullInit { rank, jobid, .. } => {
                let response = self.full_init(now, conn, rank, jobid)?;
                #[cfg(feature = "cluster")]
                if let Some(waiting) = self.ask_for_echo(conn) {
                    return Ok(waiting);
                }
                return Ok(ReplyState::Ready(response));
            }
            _ => {}
        }
        let requester = self.requester(conn).ok_or(Refusal::NotInitialized)?;
        if self.conns[conn.index()].phase != Phase::Ready {
            return Err(Refusal::NotInitialized);
        }
        Ok(ReplyState::Ready(match *command {
            Command::Put { kvs, key, value } => self.put(requester, kvs, key, value)?,
            Command::Get { kvs, key, source } => return self.get(requester, kvs, key, source, frame),
            Command::Fence { group: None } => return self.fence(now, requester, true),
            Command::Fence { group: Some(group) } => return self.group_fence(now, requester, &group),
            Command::GetMaxes => Response::Maxes,
            Command::GetUniverseSize => Response::UniverseSize,
            Command::GetAppnum => Response::Appnum,
            Command::GetJobId => Response::JobId,
            Command::PutNodeAttr { key, value } => self.put_node_attr(requester, key, value)?,
            Command::GetNodeAttr { key, wait } => return self.get_node_attr(requester, key, wait),
            Command::GetJobAttr { key } => self.get_job_attr(requester, Op::GetJobAttr, key)?,
            Command::Finalize => {
                self.conns[conn.index()].phase = Phase::Finalized;
                if !self.conns[conn.index()].query {
                    self.ranks[requester.index].phase = RankPhase::Finalized;
                }
                Response::Done(Op::Finalize)
            }
            #[cfg(feature = "pmix")]
            Command::Publish { name, .. }
            | Command::Unpublish { name, .. }
            | Command::Lookup { name, .. }
                if mark::is_reserved(name.parts().flatten().next()) =>
            {
                return Err(Refusal::BadField);
            }
            Command::Publish { .. } | Command::Unpublish { .. } | Command::Lookup { .. }
                if self.jobs[requester.job.index()].remote_names =>
            {
                return self.upcall(requester, command.op(), frame);
            }
            Command::PsetDefine { .. }
            | Command::PsetCombine { .. }
            | Command::PsetRetire { .. }
            | Command::PsetPrune
                if self.links.are_any() =>
            {
                return self.upcall(requester, command.op(), frame);
            }
            Command::Connect { jobid } | Command::Disconnect { jobid }
                if self.links.are_any() || self.jobs[requester.job.index()].remote_names =>
            {
                if jobid.len() > JOBID_MAX {
                    return Err(Refusal::NoJob);
                }
                return self.upcall(requester, command.op(), frame);
            }
            Command::Publish { name, port, persistence } => {
                self.publish(requester, name, port, persistence)?
            }
            Command::Unpublish { name, party } => self.unpublish(name, party)?,
            Command::Lookup { name, wait, party } => {
                return self.lookup(now, requester, (name, party), wait);
            }
            Command::Spawn(spawn) => return self.spawn(requester, &spawn, frame),
            Command::Connect { jobid } => self.connect(requester, jobid)?,
            Command::Disconnect { jobid } => self.disconnect(requester, jobid)?,
            Command::Ring { count, left, right } => return self.ring(requester, count, left, right),
            Command::PsetCount => self.pset_count(requester),
            Command::PsetName { index } => self.pset_name(requester, index)?,
            Command::PsetInfo { name } => self.pset_info(requester, name)?,
            Command::PsetMembers { name, from } => self.pset_members(requester, name, from)?,
            Command::PsetNext { after } => self.pset_next(requester, after)?,
            Command::PsetDefine { .. }
            | Command::PsetCombine { .. }
            | Command::PsetRetire { .. }
            | Command::PsetPrune => self.change_psets(requester.job, requester.rank, command)?,
            // Handled above, or by `message`.
            Command::Init { .. }
            | Command::InitAck { .. }
            | Command::FullInit { .. }
            | Command::Abort { .. } => return Err(Refusal::Unsupported),
        }))
    }

    #[cold]
    pub(super) fn abort(&mut self, conn: ConnId, code: Option<i32>, world: bool, message: Text<'_>) {
        if self.conns[conn.index()].query {
            return self.close(conn, Closing::Refused);
        }
        let Some(Requester { job, rank, index, .. }) = self.requester(conn) else {
            self.close(conn, Closing::Malformed(Malformed::Handshake));
            return;
        };
        let state = &mut self.jobs[job.index()];
        let slot = &mut self.ranks[index];
        // A process that has exited need not be killed.
        if state.ending.is_some() || !matches!(slot.abort, Abort::No) || (slot.exit.is_some() && !world) {
            return;
        }
        state.message = self.messages.store(job.index(), message.parts().flatten().copied());
        if world {
            self.end_job(job, Cause::Abort { rank, code });
        } else {
            slot.abort = Abort::Requested { pending: true, code };
            self.events_pending = true;
        }
    }

    fn put(
        &mut self,
        requester: Requester,
        kvs: Option<Text<'_>>,
        key: Text<'_>,
        value: Text<'_>,
    ) -> Result<Response, Refusal> {
        self.own_kvs(requester, kvs)?;
        let job = &self.jobs[requester.job.index()];
        let used = &mut self.ranks[requester.index].used;
        let owner = Owner { id: requester.index as u32, used, quota: job.quota };
        let mut room = [0; KEY_MAX as usize];
        let key = contiguous(&key, &mut room)?;
        self.kvs.put((job.spaces, Kind::Kvs), Some(owner), key, Some(value.parts()))?;
        Ok(Response::Done(Op::Put))
    }

    /// Stores a pair, or a request for a key that is missing, within the quota of the requester.
    #[cold]
    pub(super) fn store(
        &mut self,
        requester: Requester,
        kind: Kind,
        key: Text<'_>,
        value: Option<Text<'_>>,
    ) -> Result<(u32, Before), Refusal> {
        let mut room = [0; KEY_MAX as usize];
        let key = contiguous(&key, &mut room)?;
        self.keep(requester, kind, key, value)
    }

    /// Stores a pair, or a key without a value, within the quota of the requester.
    #[cold]
    #[inline(never)]
    pub(super) fn keep(
        &mut self,
        requester: Requester,
        kind: Kind,
        key: &[u8],
        value: Option<Text<'_>>,
    ) -> Result<(u32, Before), Refusal> {
        let Job { spaces, quota, .. } = self.jobs[requester.job.index()];
        let used = &mut self.ranks[requester.index].used;
        let owner = Owner { id: requester.index as u32, used, quota };
        self.kvs.put((spaces, kind), Some(owner), key, value.map(|value| value.parts()))
    }

    fn get(
        &mut self,
        requester: Requester,
        kvs: Option<Text<'_>>,
        key: Text<'_>,
        source: Option<u32>,
        frame: &wire::Frame<'_>,
    ) -> Result<ReplyState, Refusal> {
        let job = match kvs {
            Some(kvs) if self.own_kvs(requester, Some(kvs)).is_err() => match self.named(kvs) {
                Some(job) if self.connections.connected(requester.job, job) => job,
                _ => return self.get_elsewhere(requester, kvs, key, frame),
            },
            _ => requester.job,
        };
        let mut room = [0; KEY_MAX as usize];
        let spaces = self.jobs[job.index()].spaces;
        let plain = contiguous(&key, &mut room)?;
        let response = match self.kvs.find((spaces, Kind::Kvs), plain)? {
            Some(record) => Response::Record(Op::Get, record),
            // PMI-1 has no job attributes. Its clients read them as keys.
            None if job == requester.job && self.conns[requester.conn.index()].protocol == Protocol::V1 => {
                self.get_job_attr(requester, Op::Get, key)?
            }
            None => Response::Missing(Op::Get),
        };
        if LAZY_FENCES && self.jobs[job.index()].lazy && matches!(response, Response::Missing(_)) {
            return self.fetch(requester, job, plain, source);
        }
        Ok(ReplyState::Ready(response))
    }

    /// Passes a get to the host, which knows the jobs of other runs that this job is connected to.
    #[cold]
    fn get_elsewhere(
        &mut self,
        requester: Requester,
        kvs: Text<'_>,
        key: Text<'_>,
        frame: &wire::Frame<'_>,
    ) -> Result<ReplyState, Refusal> {
        if kvs.len() > JOBID_MAX || !self.jobs[requester.job.index()].remote_names {
            return Err(Refusal::NoKvs);
        }
        match key.len() {
            0 => Err(Refusal::EmptyKey),
            len if len > KEY_MAX as usize => Err(Refusal::KeyLength),
            _ => self.upcall(requester, Op::Get, frame),
        }
    }

    /// Checks that a rank puts into the space of its own job.
    fn own_kvs(&self, requester: Requester, kvs: Option<Text<'_>>) -> Result<(), Refusal> {
        let own = self.jobs[requester.job.index()].name.as_bytes();
        match kvs {
            Some(kvs) if !kvs.is_empty() && kvs != *own => Err(Refusal::NoKvs),
            _ => Ok(()),
        }
    }

    /// Returns the job with that job id.
    pub(super) fn named(&self, jobid: Text<'_>) -> Option<JobId> {
        let named = |job: &Job| !job.name.is_empty() && jobid == *job.name.as_bytes();
        self.jobs.iter().position(named).map(|at| JobId(at as u32))
    }

    fn connect(&mut self, requester: Requester, jobid: Text<'_>) -> Result<Response, Refusal> {
        let other = self.named(jobid).ok_or(Refusal::NoJob)?;
        self.connections.connect(requester.job, other);
        self.note_connected(requester.job, other, true);
        Ok(Response::Done(Op::Connect))
    }

    fn disconnect(&mut self, requester: Requester, jobid: Text<'_>) -> Result<Response, Refusal> {
        let other = self.named(jobid).ok_or(Refusal::NoJob)?;
        if !self.disconnect_jobs(requester.job, other) {
            return Err(Refusal::NotConnected);
        }
        self.note_connected(requester.job, other, false);
        Ok(Response::Done(Op::Disconnect))
    }
}

/// Returns the framing of the next message. Handshakes and all PMI-1 messages are lines.
pub(super) fn framing(conn: &Conn) -> Framing {
    match (conn.protocol, conn.phase) {
        (Protocol::V2, Phase::Negotiated | Phase::Ready) => Framing::Counted,
        _ => Framing::Line,
    }
}

/// Returns the bytes of a key. A key with escapes is copied to `room`.
pub(super) fn contiguous<'k>(key: &Text<'k>, room: &'k mut [u8]) -> Result<&'k [u8], Refusal> {
    match key.as_plain() {
        Some(bytes) => Ok(bytes),
        None => key.copy_to(room).ok_or(Refusal::KeyLength),
    }
}
