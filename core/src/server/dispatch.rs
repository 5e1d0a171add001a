//! What a client's messages do.

use heapless::Vec;

use super::Server;
use super::io::Consumed;
use crate::fault::{Fault, Malformed, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::KEY_MAX;
use crate::state::{Aborted, Answer, Conn, Job, Owed, Phase, RankPhase, What};
use crate::tables::kvs::{Before, Kind, Owner};
use crate::time::Time;
use crate::trace::{Cause, Closing, event};
use crate::wire::{self, Command, Framing, Message, Op, Protocol, Text, Undecoded};

/// Who asks.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) conn: ConnId,
    pub(super) job: JobId,
    pub(super) rank: Rank,
    /// Its slot.
    pub(super) index: usize,
}

impl Server<'_> {
    #[inline]
    pub(super) fn bytes(
        &mut self,
        now: Time,
        conn: ConnId,
        bytes: &[u8],
        full: bool,
    ) -> Result<Consumed, Fault> {
        self.conn(conn)?;
        let mut rest = bytes;
        let mut again = false;
        while !rest.is_empty() {
            let slot = &self.conns[conn.index()];
            if slot.closing.is_some() {
                rest = &[];
                break;
            }
            match wire::next_frame(rest, framing(slot)) {
                Ok(Some(frame)) => match self.message(now, conn, &frame) {
                    Ok(true) => rest = &rest[frame.len as usize..],
                    Ok(false) => {
                        again = true;
                        break;
                    }
                    Err(malformed) => self.close(conn, Closing::Malformed(malformed)),
                },
                Ok(None) if full => self.close(conn, Closing::Malformed(Malformed::TooLong)),
                Ok(None) => break,
                Err(malformed) => self.close(conn, Closing::Malformed(malformed)),
            }
        }
        Ok(Consumed { bytes: (bytes.len() - rest.len()) as u32, again })
    }

    /// Carries out one message. False when it has to wait until replies are taken.
    #[inline]
    fn message(&mut self, now: Time, conn: ConnId, frame: &wire::Frame<'_>) -> Result<bool, Malformed> {
        let slot = &self.conns[conn.index()];
        let opened = slot.phase == Phase::Opened;
        let crowded = slot.owed.is_full();
        let counted = framing(slot) == Framing::Counted;
        let (thrid, command) = match wire::decode(frame) {
            Ok(Message { thrid, command }) => (thrid, Ok(command)),
            Err(Undecoded::Refused { op, refusal, thrid }) => (thrid, Err((op, refusal))),
            Err(Undecoded::Malformed(malformed)) => return Err(malformed),
        };
        if let Ok(Command::Abort { code, world, message }) = command {
            self.abort(conn, code, world, message);
            return Ok(true);
        }
        if crowded {
            return Ok(false);
        }
        let op = command.as_ref().map_or_else(|(op, _)| *op, Command::op);
        if opened && !matches!(op, Op::Init | Op::InitAck) {
            return Err(Malformed::Introduction);
        }
        if counted && frame.kind != wire::frame::Kind::Counted && op != Op::Init {
            return Err(Malformed::Length);
        }
        let kept = keep(thrid);
        let result = match command {
            _ if kept.is_none() => Err(Refusal::BadField),
            Ok(command) => self.command(now, conn, &command, frame),
            Err((_, refusal)) => Err(refusal),
        };
        let what = result.unwrap_or_else(|why| {
            event!(warn, "conn {} refused: {}", conn, why);
            self.note_limit(why);
            What::Answer(Answer::Refused(op, why))
        });
        let thrid = kept.unwrap_or_default();
        let slot = &mut self.conns[conn.index()];
        let pushed = slot.owed.push(Owed { thrid, what });
        debug_assert!(pushed.is_ok(), "a crowded connection is turned back above");
        self.settle(now, conn, what);
        self.check_ready(conn);
        Ok(true)
    }

    /// What a command leads to beyond its own reply, once that is owed.
    #[inline]
    fn settle(&mut self, now: Time, conn: ConnId, what: What) {
        let Some(Asker { job, .. }) = self.asker(conn) else { return };
        match what {
            What::Fence => self.check_fence(job),
            What::Ring => self.check_ring(job),
            What::GroupFence { group, .. } => {
                if self.groups.is_complete(group) {
                    self.complete_group(job, group);
                }
            }
            What::Upcall(..) | What::Lookup { .. } | What::NodeAttr(_) | What::Answer(_) => return,
        }
        let warning = self.jobs[job.index()].fence_warning;
        if warning > 0 {
            self.wake_after(now, warning);
        }
        self.check_absent(job);
    }

    #[cold]
    pub(super) fn close(&mut self, conn: ConnId, why: Closing) {
        event!(warn, "conn {} has to be closed: {}", conn, why);
        let slot = &mut self.conns[conn.index()];
        slot.closing = Some(why);
        slot.closing_unsaid = true;
        self.check_ready(conn);
    }

    #[inline]
    pub(super) fn asker(&self, conn: ConnId) -> Option<Asker> {
        let Conn { job, rank, .. } = *self.conns.get(conn.index())?;
        let (job, rank) = (job?, rank?);
        let index = self.jobs.get(job.index())?.slot(rank)?;
        Some(Asker { conn, job, rank, index })
    }

    #[inline]
    fn command(
        &mut self,
        now: Time,
        conn: ConnId,
        command: &Command<'_>,
        frame: &wire::Frame<'_>,
    ) -> Result<What, Refusal> {
        let slot = &self.conns[conn.index()];
        if slot.phase == Phase::Ready
            && !slot.aside
            && let Some(asker) = self.asker(conn)
        {
            match *command {
                Command::Put { kvs, key, value } => {
                    return self.put(asker, kvs, key, value).map(What::Answer);
                }
                Command::Get { kvs, key } => return self.get(asker, kvs, key).map(What::Answer),
                Command::Fence { group: None } => return self.fence(now, asker),
                _ => {}
            }
        }
        self.seldom(now, conn, command, frame)
    }

    /// The same of what a rank says a few times, or a connection aside.
    #[cold]
    fn seldom(
        &mut self,
        now: Time,
        conn: ConnId,
        command: &Command<'_>,
        frame: &wire::Frame<'_>,
    ) -> Result<What, Refusal> {
        if self.conns[conn.index()].aside {
            self.check_aside(conn, command)?;
        }
        match *command {
            Command::Init { version, .. } => return self.init(conn, version).map(What::Answer),
            Command::InitAck { pmiid } => return self.init_ack(conn, pmiid).map(What::Answer),
            Command::FullInit { rank, jobid, .. } => {
                return self.full_init(conn, rank, jobid).map(What::Answer);
            }
            _ => {}
        }
        let asker = self.asker(conn).ok_or(Refusal::NotInitialized)?;
        if self.conns[conn.index()].phase != Phase::Ready {
            return Err(Refusal::NotInitialized);
        }
        Ok(What::Answer(match *command {
            Command::GetMaxes => Answer::Maxes,
            Command::GetUniverseSize => Answer::UniverseSize,
            Command::GetAppnum => Answer::Appnum,
            Command::GetJobId => Answer::JobId,
            Command::Get { kvs, key } => self.get(asker, kvs, key)?,
            Command::Fence { group: Some(group) } => return self.group_fence(now, asker, &group),
            Command::PutNodeAttr { key, value } => self.put_node_attr(asker, key, value)?,
            Command::GetNodeAttr { key, wait } => return self.get_node_attr(asker, key, wait),
            Command::GetJobAttr { key } => self.get_job_attr(asker, Op::GetJobAttr, key)?,
            Command::Finalize => {
                self.conns[conn.index()].phase = Phase::Finalized;
                if !self.conns[conn.index()].aside {
                    self.ranks[asker.index].phase = RankPhase::Finalized;
                }
                Answer::Done(Op::Finalize)
            }
            Command::Publish { .. } | Command::Unpublish { .. } | Command::Lookup { .. }
                if self.jobs[asker.job.index()].remote_names =>
            {
                return self.upcall(asker, command.op(), frame);
            }
            Command::PsetDefine { .. } | Command::Connect { .. } | Command::Disconnect { .. }
                if self.links.are_any() =>
            {
                return self.upcall(asker, command.op(), frame);
            }
            Command::Publish { name, port } => self.publish(asker, name, port)?,
            Command::Unpublish { name } => self.unpublish(name)?,
            Command::Lookup { name, wait } => return self.lookup(now, asker, name, wait),
            Command::Spawn(spawn) => return self.spawn(asker, &spawn, frame),
            Command::Connect { jobid } => self.connect(asker, jobid)?,
            Command::Disconnect { jobid } => self.disconnect(asker, jobid)?,
            Command::Ring { count, left, right } => return self.ring(asker, count, left, right),
            Command::PsetCount => self.pset_count(asker),
            Command::PsetName { index } => self.pset_name(asker, index)?,
            Command::PsetInfo { name } => self.pset_info(asker, name)?,
            Command::PsetMembers { name, from } => self.pset_members(asker, name, from)?,
            Command::PsetDefine { name, members } => self.pset_define(asker, name, members)?,
            // Seen to already, all of them.
            Command::Init { .. }
            | Command::InitAck { .. }
            | Command::FullInit { .. }
            | Command::Put { .. }
            | Command::Fence { group: None }
            | Command::Abort { .. } => return Err(Refusal::Unsupported),
        }))
    }

    #[cold]
    fn abort(&mut self, conn: ConnId, code: Option<i32>, world: bool, message: Text<'_>) {
        if self.conns[conn.index()].aside {
            return self.close(conn, Closing::TurnedDown);
        }
        let Some(Asker { job, rank, index, .. }) = self.asker(conn) else {
            self.close(conn, Closing::Malformed(Malformed::Introduction));
            return;
        };
        let state = &mut self.jobs[job.index()];
        let slot = &mut self.ranks[index];
        // A process that has ended needs no end of its own any more.
        if state.ending.is_some() || slot.abort.is_some() || (slot.exit.is_some() && !world) {
            return;
        }
        state.message.clear();
        for &byte in message.parts().flatten() {
            let printable = if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' };
            if state.message.push(printable).is_err() {
                break;
            }
        }
        if world {
            self.end_job(job, Cause::Abort { rank, code });
        } else {
            slot.abort = Some(Aborted { code, unsaid: true });
            self.news = true;
        }
    }

    #[inline]
    fn put(
        &mut self,
        asker: Asker,
        kvs: Option<Text<'_>>,
        key: Text<'_>,
        value: Text<'_>,
    ) -> Result<Answer, Refusal> {
        self.own_kvs(asker, kvs)?;
        self.store(asker, Kind::Kvs, key, Some(value))?;
        Ok(Answer::Done(Op::Put))
    }

    /// Puts a pair, or a wish for the key, at the asker's expense.
    #[inline]
    pub(super) fn store(
        &mut self,
        asker: Asker,
        kind: Kind,
        key: Text<'_>,
        value: Option<Text<'_>>,
    ) -> Result<(u32, Before), Refusal> {
        let job = &self.jobs[asker.job.index()];
        let used = &mut self.ranks[asker.index].used;
        let owner = Owner { id: asker.index as u32, used, share: job.share };
        let mut room = [0; KEY_MAX as usize];
        let key = contiguous(&key, &mut room)?;
        self.kvs.put((job.spaces, kind), Some(owner), key, value.map(|value| value.parts()))
    }

    #[inline]
    fn get(&mut self, asker: Asker, kvs: Option<Text<'_>>, key: Text<'_>) -> Result<Answer, Refusal> {
        let job = match kvs {
            Some(kvs) if !kvs.is_empty() => self.named(kvs).ok_or(Refusal::NoKvs)?,
            _ => asker.job,
        };
        if !self.connections.connected(asker.job, job) {
            return Err(Refusal::NoKvs);
        }
        let mut room = [0; KEY_MAX as usize];
        let spaces = self.jobs[job.index()].spaces;
        match self.kvs.find((spaces, Kind::Kvs), contiguous(&key, &mut room)?)? {
            Some(record) => Ok(Answer::Record(Op::Get, record)),
            // PMI-1 has no job attributes: they are keys like any other.
            None if job == asker.job && self.conns[asker.conn.index()].protocol == Protocol::V1 => {
                self.get_job_attr(asker, Op::Get, key)
            }
            None => Ok(Answer::Missing(Op::Get)),
        }
    }

    /// Ranks put into their own job's space alone.
    #[inline]
    fn own_kvs(&self, asker: Asker, kvs: Option<Text<'_>>) -> Result<(), Refusal> {
        let own = self.jobs[asker.job.index()].name.as_bytes();
        match kvs {
            Some(kvs) if !kvs.is_empty() && kvs != *own => Err(Refusal::NoKvs),
            _ => Ok(()),
        }
    }

    /// The job with that job id.
    #[inline]
    fn named(&self, jobid: Text<'_>) -> Option<JobId> {
        let named = |job: &Job| !job.name.is_empty() && jobid == *job.name.as_bytes();
        self.jobs.iter().position(named).map(|at| JobId(at as u32))
    }

    fn connect(&mut self, asker: Asker, jobid: Text<'_>) -> Result<Answer, Refusal> {
        let other = self.named(jobid).ok_or(Refusal::NoJob)?;
        self.connections.connect(asker.job, other);
        Ok(Answer::Done(Op::Connect))
    }

    fn disconnect(&mut self, asker: Asker, jobid: Text<'_>) -> Result<Answer, Refusal> {
        let other = self.named(jobid).ok_or(Refusal::NoJob)?;
        match self.connections.disconnect(asker.job, other) {
            true => Ok(Answer::Done(Op::Disconnect)),
            false => Err(Refusal::NotConnected),
        }
    }
}

/// Introductions are lines, and so is all of PMI-1.
#[inline]
fn framing(conn: &Conn) -> Framing {
    match (conn.protocol, conn.phase) {
        (Protocol::V2, Phase::Greeted | Phase::Ready) => Framing::Counted,
        _ => Framing::Line,
    }
}

/// A key's bytes. Those of one with escapes are put together in `room`.
#[inline]
pub(super) fn contiguous<'k>(key: &Text<'k>, room: &'k mut [u8]) -> Result<&'k [u8], Refusal> {
    match key.as_plain() {
        Some(bytes) => Ok(bytes),
        None => key.copy_to(room).ok_or(Refusal::KeyLength),
    }
}

/// A thread id to be echoed, empty where none came; nothing when it is too long.
#[inline]
fn keep<const N: usize>(thrid: Option<Text<'_>>) -> Option<Vec<u8, N, u8>> {
    let mut kept = Vec::new();
    for part in thrid.iter().flat_map(Text::parts) {
        kept.extend_from_slice(part).ok()?;
    }
    Some(kept)
}
