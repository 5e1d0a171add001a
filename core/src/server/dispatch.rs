//! What a client's messages do.

use heapless::String;

use super::Server;
use super::io::Consumed;
use crate::fault::{Fault, Malformed, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::slabs::{Answer, Conn, Owed, Phase, RankPhase, RankSlot, What};
use crate::tables::kvs::{Before, Kind, Owner};
use crate::time::Time;
use crate::trace::{Cause, Closing};
use crate::wire::{self, Command, Framing, Group, Members, Message, Op, Protocol, Text, Undecoded};

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
    fn message(&mut self, now: Time, conn: ConnId, frame: &wire::Frame<'_>) -> Result<bool, Malformed> {
        let slot = &self.conns[conn.index()];
        let opened = slot.phase == Phase::Opened;
        let crowded = slot.owed.is_full();
        let (thrid, command) = match wire::decode(frame) {
            Ok(Message { thrid, command }) => (thrid, Ok(command)),
            Err(Undecoded::Refused { op, refusal, thrid }) => (thrid, Err((op, refusal))),
            Err(Undecoded::Malformed(malformed)) => return Err(malformed),
        };
        if let Ok(Command::Abort { code, message, .. }) = command {
            self.abort(conn, code, message);
            return Ok(true);
        }
        if crowded {
            return Ok(false);
        }
        let op = command.as_ref().map_or_else(|(op, _)| *op, Command::op);
        if opened && !matches!(op, Op::Init | Op::InitAck) {
            return Err(Malformed::Introduction);
        }
        let kept = keep(thrid);
        let result = match command {
            _ if kept.is_none() => Err(Refusal::BadField),
            Ok(command) => self.command(now, conn, &command),
            Err((_, refusal)) => Err(refusal),
        };
        let what = result.unwrap_or_else(|why| What::Answer(Answer::Refused(op, why)));
        let thrid = kept.unwrap_or_default();
        let slot = &mut self.conns[conn.index()];
        let pushed = slot.owed.push(Owed { thrid, what });
        debug_assert!(pushed.is_ok(), "a crowded connection is turned back above");
        self.settle(now, conn, what);
        self.check_ready(conn);
        Ok(true)
    }

    /// What a command leads to beyond its own reply, once that is owed.
    fn settle(&mut self, now: Time, conn: ConnId, what: What) {
        let Some(Asker { job, .. }) = self.asker(conn) else { return };
        let limit = self.jobs[job.index()].fence_warning;
        match what {
            What::Fence => self.check_fence(job),
            What::GroupFence { group, .. } => {
                if self.groups.is_complete(group) {
                    self.complete_group(job, group);
                }
            }
            What::NodeAttr(_) | What::Answer(_) => return,
        }
        self.wake_after(now, limit);
        self.check_absent(job);
    }

    fn close(&mut self, conn: ConnId, why: Closing) {
        let slot = &mut self.conns[conn.index()];
        slot.closing = Some(why);
        slot.closing_unsaid = true;
        self.check_ready(conn);
    }

    fn asker(&self, conn: ConnId) -> Option<Asker> {
        let Conn { job, rank, .. } = *self.conns.get(conn.index())?;
        let (job, rank) = (job?, rank?);
        let index = self.jobs.get(job.index())?.slot(rank)?;
        Some(Asker { conn, job, rank, index })
    }

    fn command(&mut self, now: Time, conn: ConnId, command: &Command<'_>) -> Result<What, Refusal> {
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
            Command::Put { kvs, key, value } => self.put(asker, kvs, key, value)?,
            Command::Get { kvs, key } => self.get(asker, kvs, key)?,
            Command::Fence { group: None } => return self.fence(now, asker),
            Command::Fence { group: Some(group) } => return self.group_fence(now, asker, &group),
            Command::PutNodeAttr { key, value } => self.put_node_attr(asker, key, value)?,
            Command::GetNodeAttr { key, wait } => return self.get_node_attr(asker, key, wait),
            Command::GetJobAttr { key } => self.get_job_attr(asker, Op::GetJobAttr, key)?,
            Command::Finalize => {
                self.conns[conn.index()].phase = Phase::Finalized;
                self.ranks[asker.index].phase = RankPhase::Finalized;
                Answer::Done(Op::Finalize)
            }
            _ => return Err(Refusal::Unsupported),
        }))
    }

    fn init(&mut self, conn: ConnId, version: u32) -> Result<Answer, Refusal> {
        let slot = &mut self.conns[conn.index()];
        if !matches!(slot.phase, Phase::Opened | Phase::Finalized) {
            return Err(Refusal::Initialized);
        }
        match version {
            1 if slot.rank.is_none() => {
                // Without initack nobody can tell who this is.
                self.close(conn, Closing::TurnedDown);
                Err(Refusal::Rank)
            }
            1 => {
                slot.protocol = Protocol::V1;
                self.join(conn);
                let subversion =
                    self.asker(conn).map_or(1, |asker| self.jobs[asker.job.index()].pmi1_subversion);
                Ok(Answer::Init { version: 1, subversion })
            }
            2 => {
                slot.protocol = Protocol::V2;
                slot.phase = Phase::Greeted;
                Ok(Answer::Init { version: 2, subversion: 0 })
            }
            _ => Err(Refusal::Version),
        }
    }

    fn init_ack(&mut self, conn: ConnId, pmiid: u32) -> Result<Answer, Refusal> {
        if self.conns[conn.index()].phase != Phase::Opened {
            return Err(Refusal::Initialized);
        }
        self.claim(conn, Rank(pmiid))?;
        Ok(Answer::InitAck)
    }

    fn full_init(
        &mut self,
        conn: ConnId,
        rank: Option<u32>,
        jobid: Option<Text<'_>>,
    ) -> Result<Answer, Refusal> {
        let slot = &self.conns[conn.index()];
        match slot.phase {
            Phase::Greeted => {}
            Phase::Opened | Phase::Finalized => return Err(Refusal::NotInitialized),
            Phase::Ready => return Err(Refusal::Initialized),
        }
        // A connection that the host handed out is that rank's, whatever number the client found somewhere.
        if slot.rank.is_none() {
            let job = slot.job.and_then(|job| self.jobs.get(job.index())).ok_or(Refusal::NoKvs)?;
            if jobid.is_some_and(|jobid| !jobid.is_empty() && jobid != *job.name.as_bytes()) {
                self.close(conn, Closing::TurnedDown);
                return Err(Refusal::NoKvs);
            }
            let rank = rank.ok_or(Refusal::MissingField)?;
            self.claim(conn, Rank(rank))?;
        }
        self.join(conn);
        Ok(Answer::FullInit)
    }

    /// A client says which rank it is. Each rank is let in once.
    fn claim(&mut self, conn: ConnId, rank: Rank) -> Result<(), Refusal> {
        let Conn { job, rank: known, .. } = self.conns[conn.index()];
        if known == Some(rank) {
            return Ok(());
        }
        match self.rank_slot(job, Some(rank)) {
            Some(slot) if known.is_none() && slot.conn.is_none() && slot.exit.is_none() => {
                slot.conn = Some(conn);
                self.conns[conn.index()].rank = Some(rank);
                Ok(())
            }
            _ => {
                self.close(conn, Closing::TurnedDown);
                Err(Refusal::Rank)
            }
        }
    }

    fn join(&mut self, conn: ConnId) {
        let slot = &mut self.conns[conn.index()];
        slot.phase = Phase::Ready;
        slot.joined_unsaid = true;
        let (job, rank) = (slot.job, slot.rank);
        if let Some(slot) = self.rank_slot(job, rank) {
            slot.phase = RankPhase::Initialized;
        }
    }

    fn abort(&mut self, conn: ConnId, code: Option<i32>, message: Text<'_>) {
        let Some(Asker { job, rank, .. }) = self.asker(conn) else {
            self.close(conn, Closing::Malformed(Malformed::Introduction));
            return;
        };
        if self.jobs[job.index()].ending.is_some() {
            return;
        }
        let kept = &mut self.jobs[job.index()].message;
        for &byte in message.parts().flatten() {
            let printable = if byte.is_ascii_graphic() || byte == b' ' { char::from(byte) } else { '?' };
            if kept.push(printable).is_err() {
                break;
            }
        }
        self.end_job(job, Cause::Abort { rank, code });
    }

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
        self.kvs.put((job.spaces, kind), Some(owner), key.parts(), value.map(|value| value.parts()))
    }

    fn get(&mut self, asker: Asker, kvs: Option<Text<'_>>, key: Text<'_>) -> Result<Answer, Refusal> {
        self.own_kvs(asker, kvs)?;
        let spaces = self.jobs[asker.job.index()].spaces;
        match self.kvs.find((spaces, Kind::Kvs), key.parts())? {
            Some(record) => Ok(Answer::Record(Op::Get, record)),
            // PMI-1 has no job attributes: they are keys like any other.
            None if self.conns[asker.conn.index()].protocol == Protocol::V1 => {
                self.get_job_attr(asker, Op::Get, key)
            }
            None => Ok(Answer::Missing(Op::Get)),
        }
    }

    fn own_kvs(&self, asker: Asker, kvs: Option<Text<'_>>) -> Result<(), Refusal> {
        let own = self.jobs[asker.job.index()].name.as_bytes();
        match kvs {
            Some(kvs) if !kvs.is_empty() && kvs != *own => Err(Refusal::NoKvs),
            _ => Ok(()),
        }
    }

    fn fence(&mut self, now: Time, asker: Asker) -> Result<What, Refusal> {
        let RankSlot { in_fence, .. } = &mut self.ranks[asker.index];
        if core::mem::replace(in_fence, true) {
            return Err(Refusal::InFence);
        }
        self.jobs[asker.job.index()].fence.arrive(now);
        Ok(What::Fence)
    }

    fn group_fence(&mut self, now: Time, asker: Asker, group: &Group<'_>) -> Result<What, Refusal> {
        let job = &self.jobs[asker.job.index()];
        let ranks = &self.ranks[job.slots()];
        let gone = |rank: u32| !job.cleanup && ranks[rank as usize].exit.is_some();
        let (size, tag, rank) = (job.size, group.tag, asker.rank.0);
        let group = match group.members {
            Members::World | Members::Node => {
                self.groups.arrive(asker.job, size, 0..size, tag, rank, gone, now)?
            }
            Members::Ranks(list) => self.groups.arrive(asker.job, size, list.iter(), tag, rank, gone, now)?,
        };
        Ok(What::GroupFence { group, tag })
    }
}

/// Introductions are lines, and so is all of PMI-1.
fn framing(conn: &Conn) -> Framing {
    match (conn.protocol, conn.phase) {
        (Protocol::V2, Phase::Greeted | Phase::Ready) => Framing::Counted,
        _ => Framing::Line,
    }
}

/// A thread id to be echoed, empty where none came; nothing when it is too long.
fn keep<const N: usize>(thrid: Option<Text<'_>>) -> Option<String<N, u8>> {
    let mut kept = String::new();
    for &byte in thrid.iter().flat_map(Text::parts).flatten() {
        kept.push(char::from(byte)).ok()?;
    }
    Some(kept)
}
