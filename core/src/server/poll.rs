//! Selection and encoding of the next output.

use core::fmt;

use super::Server;
use super::io::Output;
use super::psets::slots;
use crate::fault::{Refusal, ShortBuffer};
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{DEBUGGED_ATTR, KEY_MAX, KVSNAME_MAX, VALUE_MAX, VERBOSE_ATTR};
#[cfg(feature = "pmix")]
use crate::state::PmixResponse;
use crate::state::{Abort, Attr, Conn, Job, RankSlot, ReplyState, Response, RingPart};
use crate::tables::fence::Stall;
use crate::tables::psets::Asker;
use crate::tables::upcalls::{Stage, Task};
use crate::trace::Cause;
use crate::wire::{self, Codes, Failure, Op, Protocol, Reply, Text};

/// Length in bytes reserved for a list of ranks.
const LIST_MAX: usize = 1024;

/// Events, which come before replies.
enum Event {
    Upcall(UpcallId),
    /// The rank in this slot.
    Kill(usize),
    Ending(JobId),
    StalledInit(JobId),
    StalledFence(JobId),
    StalledGroup(u32),
    /// Two jobs have connected, or disconnected.
    Connected(JobId, JobId, bool),
    /// Message of that many bytes for a node.
    Peer(u32, usize),
}

impl Server<'_> {
    /// Returns the next action for the host, or `None` when there is none. Bytes that belong to it are written to
    /// `buf`.
    ///
    /// The host calls it after every [`handle`](Server::handle) until it returns `None`. Events such as
    /// [`Output::AbortJob`] come before replies. Replies go to connections in turn. Writing a reply is O(log
    /// connections). A search for an event is O(jobs + ranks). It happens only after an input that may have caused
    /// one.
    ///
    /// # Errors
    /// [`ShortBuffer`] if `buf` is shorter than [`Limits::output_max`](crate::Limits::output_max).
    pub fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Result<Option<Output<'b>>, ShortBuffer> {
        if buf.len() < self.output_max as usize {
            return Err(ShortBuffer { needed: self.output_max as usize });
        }
        if (self.events_pending || self.links.are_ready())
            && let Some(event) = self.next_event(buf)
        {
            return Ok(self.emit_event(event, buf));
        }
        let Some(conn) = self.ready.next().map(ConnId) else { return Ok(None) };
        self.ready.pass(conn.0);
        Ok(self.emit_for(conn, buf))
    }

    /// Returns the next event. A message for a peer is written to `buf`.
    #[cold]
    fn next_event(&mut self, buf: &mut [u8]) -> Option<Event> {
        if self.events_pending {
            #[cfg(feature = "pmix")]
            self.tell_of_waiting();
            let Server { upcalls, jobs, groups, connections, .. } = self;
            let ranks = &self.ranks[..self.ranks_end as usize];
            let job = |which: fn(&Job) -> bool| jobs.iter().position(which).map(|job| JobId(job as u32));
            let is_aborted = |rank: &RankSlot| matches!(rank.abort, Abort::Requested { pending: true, .. });
            let aborted = || ranks.iter().position(is_aborted);
            let event = (upcalls.unsent().map(Event::Upcall))
                .or_else(|| aborted().map(Event::Kill))
                .or_else(|| job(|job| job.ending_pending).map(Event::Ending))
                .or_else(|| job(|job| job.init.stall == Stall::Pending).map(Event::StalledInit))
                .or_else(|| job(|job| job.fence.stall == Stall::Pending).map(Event::StalledFence))
                .or_else(|| groups.next_stalled().map(Event::StalledGroup))
                .or_else(|| connections.next_change().map(|(a, b, are)| Event::Connected(a, b, are)));
            if event.is_some() {
                return event;
            }
            self.events_pending = false;
        }
        self.next_peer_message(buf).map(|(node, len)| Event::Peer(node, len))
    }

    #[cold]
    fn emit_event<'b>(&mut self, event: Event, buf: &'b mut [u8]) -> Option<Output<'b>> {
        match event {
            Event::Upcall(upcall) => self.emit_upcall(upcall, buf),
            Event::Kill(rank) => self.emit_kill(rank, buf),
            Event::Ending(job) => self.emit_abort_job(job, buf),
            Event::StalledInit(job) => self.emit_stalled_init(job, buf),
            Event::StalledFence(job) => self.emit_stalled_fence(job, buf),
            Event::StalledGroup(group) => self.emit_stalled_group(group, buf),
            Event::Connected(job, other, connected) => {
                self.connections.change_was_sent(job, other);
                Some(Output::Connected { job, other, connected })
            }
            Event::Peer(node, len) => Some(Output::Peer { node, bytes: &buf[..len] }),
        }
    }

    fn emit_abort_job<'b>(&mut self, job: JobId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let state = &mut self.jobs[job.index()];
        state.ending_pending = false;
        let cause = state.ending?;
        // The text may be from another rank that was killed alone before.
        let of_abort = matches!(cause, Cause::Abort { .. });
        let said = if of_abort { self.messages.get(job.index(), state.message) } else { "" };
        let message = copy_text(said, buf)?;
        Some(Output::AbortJob { job, cause, message })
    }

    fn emit_upcall<'b>(&mut self, upcall: UpcallId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let protocol = self.protocol_of(upcall);
        let text = self.upcalls.text(upcall);
        let request = buf.get_mut(..text.len())?;
        request.copy_from_slice(text);
        let slot = self.upcalls.get_mut(upcall)?;
        slot.stage = Stage::Passed;
        let (job, rank) = slot.parent?;
        Some(match slot.task {
            Task::Spawn(_) => Output::Spawn { spawn: upcall, job, rank, protocol, request },
            Task::Name | Task::Look(_) | Task::Note | Task::Report(_) => {
                Output::Upcall { upcall, job, rank, protocol, request }
            }
            Task::RemoveFiles => {
                self.upcalls.free(upcall);
                Output::RemoveFiles { job, rank, paths: request }
            }
            Task::Log(stream) => {
                self.upcalls.free(upcall);
                Output::Log { job, rank, stream, text: request }
            }
        })
    }

    fn emit_kill<'b>(&mut self, index: usize, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let job = self.job_of_slot(index)?;
        let state = &self.jobs[job.index()];
        let rank = Rank(index as u32 - state.first);
        let message = copy_text(self.messages.get(job.index(), state.message), buf)?;
        let Abort::Requested { pending, code } = &mut self.ranks[index].abort else { return None };
        *pending = false;
        Some(Output::KillRank { job, rank, code: *code, message })
    }

    fn emit_stalled_init<'b>(&mut self, job: JobId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        self.jobs[job.index()].init.stall = Stall::Reported;
        let missing = name_ranks(self.late_ranks(job), buf.get_mut(..LIST_MAX)?);
        let state = &self.jobs[job.index()];
        let size = state.local - state.excluded_count;
        let late = self.late_ranks(job).count() as u32;
        Some(Output::StalledFence { job, arrived: size.saturating_sub(late), size, missing })
    }

    fn emit_stalled_fence<'b>(&mut self, job: JobId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let state = &mut self.jobs[job.index()];
        state.fence.stall = Stall::Reported;
        let here = self.links.node();
        let ranks = &self.ranks[state.slots()];
        let missing =
            (0u32..).zip(ranks).filter(|(_, rank)| !rank.in_fence && !rank.excluded && rank.node == here);
        let missing = name_ranks(missing.map(|(rank, _)| rank), buf.get_mut(..LIST_MAX)?);
        Some(Output::StalledFence {
            job,
            arrived: state.fence.arrived,
            size: state.local - state.excluded_count,
            missing,
        })
    }

    fn emit_stalled_group<'b>(&mut self, at: u32, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let group = self.groups.get(at)?;
        let (job, arrived, size) = (group.job?, group.fence.arrived, group.needed);
        let slots = self.jobs[job.index()].slots();
        let here = self.links.node();
        let waited = |slot: &RankSlot| !slot.excluded && slot.node == here;
        let missing = self.groups.missing(at).map(|slot| slot as usize);
        let missing = missing.filter(|slot| slots.contains(slot) && waited(&self.ranks[*slot]));
        let missing = missing.map(|slot| (slot - slots.start) as u32);
        let missing = name_ranks(missing, buf.get_mut(..LIST_MAX)?);
        Some(Output::StalledFence { job, arrived, size, missing })
    }

    fn emit_for<'b>(&mut self, id: ConnId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let conn = &mut self.conns[id.index()];
        let output = if conn.joined_pending {
            conn.joined_pending = false;
            conn.job.zip(conn.rank).map(|(job, rank)| Output::Joined { conn: id, job, rank })
        } else if let Some((at, answer)) = conn.next_response() {
            let len = self.encode(id, at, answer, buf);
            self.conns[id.index()].remove_reply(at);
            match answer {
                Response::Upcall(_, upcall) => self.free_upcall(upcall),
                #[cfg(feature = "pmix")]
                Response::Pmix(PmixResponse::Report(upcall)) => self.free_upcall(upcall),
                #[cfg(feature = "pmix")]
                Response::Port(name) => self.name_was_read(name),
                #[cfg(feature = "pmix")]
                Response::Pmix(PmixResponse::Published { slots }) => self.names_were_read(slots),
                #[cfg(feature = "pmix")]
                Response::Pmix(PmixResponse::Notice(notice)) => self.notice_was_sent(notice),
                _ => {}
            }
            #[cfg(feature = "pmix")]
            self.push_event(id);
            Some(Output::Bytes { conn: id, bytes: &buf[..len] })
        } else {
            conn.closing_pending = false;
            conn.closing.map(|why| Output::Close { conn: id, why })
        };
        self.check_ready(id);
        output
    }

    /// Writes a reply. Returns its length.
    pub(super) fn encode(&self, id: ConnId, at: usize, answer: Response, buf: &mut [u8]) -> usize {
        let conn = &self.conns[id.index()];
        #[cfg(feature = "pmix")]
        if let Some(dialect) = conn.pmix {
            return self.encode_pmix(id, at, dialect, answer, buf);
        }
        // Lists are built at the end of the buffer, which their replies do not use.
        let (buf, scratch) = match answer {
            Response::Attr(..) | Response::PsetMembers(..) => buf.split_at_mut(buf.len() - LIST_MAX),
            _ => (buf, &mut [][..]),
        };
        let reply = self.reply(conn, answer, scratch);
        let thrid =
            conn.replies.get(at).map(|reply| reply.thrid.as_slice()).filter(|thrid| !thrid.is_empty());
        let thrid = thrid.map(Text::plain);
        match wire::encode_reply(conn.protocol, &reply, thrid, buf) {
            Ok(bytes) => bytes.len(),
            Err(_) => encode_short(conn.protocol, &reply, thrid, buf),
        }
    }

    /// Expands a response into a reply. Lists are written into `scratch`.
    fn reply<'a>(&'a self, conn: &Conn, answer: Response, scratch: &'a mut [u8]) -> Reply<'a> {
        let gone = |op| Reply::Refused(op, Failure::Refusal(Refusal::NotInitialized));
        let Some((job, rank)) = conn.job.and_then(|job| self.jobs.get(job.index())).zip(conn.rank) else {
            return match answer {
                Response::Init { version, subversion } => Reply::Init { version, subversion },
                Response::Refused(op, why) => Reply::Refused(op, Failure::Refusal(why)),
                _ => gone(answer.op()),
            };
        };
        let Some(slot) = job.slot(rank).and_then(|slot| self.ranks.get(slot)) else {
            return gone(answer.op());
        };
        let Job { size, universe_size, .. } = *job;
        match answer {
            Response::Record(op, record) => match self.kvs.value(record) {
                Some(value) => Reply::Found(op, Text::plain(value)),
                None => Reply::Missing(op),
            },
            Response::Init { version, subversion } => Reply::Init { version, subversion },
            Response::InitAck => Reply::InitAck { rank: rank.0, size, appnum: slot.appnum },
            Response::FullInit => {
                let spawner = (!job.spawner.is_empty()).then(|| Text::from(job.spawner.as_str()));
                let (debugged, verbose) = (self.is_true(job, DEBUGGED_ATTR), self.is_true(job, VERBOSE_ATTR));
                Reply::FullInit { rank: rank.0, size, appnum: slot.appnum, debugged, verbose, spawner }
            }
            Response::Maxes => Reply::Maxes { kvsname: KVSNAME_MAX, key: KEY_MAX, value: VALUE_MAX },
            Response::UniverseSize => Reply::UniverseSize(Some(universe_size).filter(|&size| size > 0)),
            Response::Appnum => Reply::Appnum(Some(slot.appnum)),
            Response::JobId => Reply::JobId(Text::from(job.name.as_str())),
            Response::Attr(op, attr) => self.attr(op, attr, job, scratch),
            Response::Port(name) => match self.names.port(name) {
                Some(port) => Reply::Port(Text::plain(port)),
                None => Reply::Refused(Op::Lookup, Failure::Refusal(Refusal::NoName)),
            },
            Response::Upcall(Op::Spawn, spawn) => self.spawned(spawn),
            Response::Upcall(op, upcall) => self.name_reply(op, upcall),
            Response::Ring(RingPart { count, left, right }) => {
                let text = |record| Text::plain(self.kvs.value(record).unwrap_or_default());
                Reply::Ring { count, left: text(left), right: text(right) }
            }
            Response::PsetCount(count) => Reply::PsetCount(count),
            Response::PsetName(which) => Reply::PsetName(Text::from(self.psets.name(which))),
            Response::PsetNext(which) => {
                Reply::PsetNext { name: Text::from(self.psets.name(which)), serial: self.psets.serial(which) }
            }
            Response::PsetInfo(which, size) => Reply::PsetInfo { size, serial: self.psets.serial(which) },
            Response::PsetMembers(which, from) => {
                let asker = Asker { slot: job.first + rank.0, job: slots(job) };
                let Some((of, start, members, more)) = self.members_from(asker, which, from) else {
                    return Reply::PsetMembers { members: Text::plain(&[]), jobid: None, next: None };
                };
                let (members, next) = list_ranks(members, scratch);
                let next = next.or(more.then_some(of.size)).map(|next| start + next);
                let jobid = (of.first != job.first).then(|| Text::from(of.name.as_str()));
                Reply::PsetMembers { members: Text::from(members), jobid, next }
            }
            Response::Fence(tag) => Reply::Fence { tag },
            Response::Done(op) => Reply::Done(op),
            Response::Missing(op) => Reply::Missing(op),
            Response::Refused(op, why) => Reply::Refused(op, Failure::Refusal(why)),
            // PMIx connections have a writer of their own.
            Response::Pmix(_) => Reply::Refused(answer.op(), Failure::Refusal(Refusal::Unsupported)),
        }
    }

    fn spawned(&self, spawn: UpcallId) -> Reply<'_> {
        let codes = Codes::new(self.upcalls.text(spawn));
        match self.upcalls.get(spawn) {
            Some(slot) if slot.stage == Stage::Launched(true) => {
                Reply::Spawned { jobid: Text::from(slot.name.as_str()), codes }
            }
            slot => {
                let full = slot.and_then(|slot| slot.full);
                let why =
                    full.map_or(Refusal::NotStarted, |limit| Refusal::Full(limit, self.limits.of(limit)));
                Reply::NotSpawned { why: Failure::Refusal(why), codes }
            }
        }
    }

    /// Reply with the result of an upcall.
    fn name_reply(&self, op: Op, upcall: UpcallId) -> Reply<'_> {
        let text = Text::plain(self.upcalls.text(upcall));
        match self.upcalls.get(upcall).map(|slot| slot.stage) {
            Some(Stage::Named(0)) if op == Op::Lookup => Reply::Port(text),
            Some(Stage::Named(0)) if op == Op::Get => Reply::Found(op, text),
            Some(Stage::Named(0)) => Reply::Done(op),
            Some(Stage::Named(_)) if op == Op::Get && text.is_empty() => Reply::Missing(op),
            Some(Stage::Named(rc)) => Reply::Refused(op, Failure::Remote(rc, text)),
            _ => Reply::Refused(op, Failure::Refusal(Refusal::NoName)),
        }
    }

    fn attr<'a>(&'a self, op: Op, attr: Attr, job: &Job, scratch: &'a mut [u8]) -> Reply<'a> {
        let ranks = || (0u32..).zip(&self.ranks[job.slots()]);
        let mut list = List { buf: scratch, len: 0 };
        let whole = match attr {
            Attr::Universe => list.number(job.universe_size),
            Attr::LocalCount => list.number(job.local),
            Attr::NameServ | Attr::Escapes => list.push(b"1"),
            Attr::Heterogeneous => list.push(b"0"),
            Attr::Topology => list.push(b"complete"),
            Attr::LocalRanks => {
                let here = ranks().filter(|(_, rank)| rank.node == self.links.node());
                here.enumerate().try_for_each(|(at, (rank, _))| {
                    if at > 0 {
                        list.push(b",")?;
                    }
                    list.number(rank)
                })
            }
            Attr::Dead => {
                let dead = ranks().filter(|(_, rank)| rank.dead).map(|(rank, _)| rank);
                let (dead, more) = list_ranks(dead, list.buf);
                // A truncated list would imply that the others live.
                let whole = more.is_none();
                return if whole { Reply::Found(op, Text::from(dead)) } else { Reply::Missing(op) };
            }
        };
        // A list that is too long for a value is reported as missing.
        match whole {
            Some(()) => Reply::Found(op, Text::from(list.into_str())),
            None => Reply::Missing(op),
        }
    }
}

impl Conn {
    /// Returns the oldest reply that is ready.
    pub(super) fn next_response(&self) -> Option<(usize, Response)> {
        self.replies.iter().enumerate().find_map(|(at, reply)| match reply.state {
            ReplyState::Ready(answer) => Some((at, answer)),
            _ => None,
        })
    }

    /// Removes a reply.
    pub(super) fn remove_reply(&mut self, at: usize) {
        if self.replies.len() == 1 {
            self.replies.clear();
        } else {
            self.replies.remove(at);
        }
    }
}

impl Response {
    /// Returns the command that it answers.
    pub(super) fn op(self) -> Op {
        match self {
            Response::Init { .. } => Op::Init,
            Response::InitAck => Op::InitAck,
            Response::FullInit => Op::FullInit,
            Response::Maxes => Op::GetMaxes,
            Response::UniverseSize => Op::GetUniverseSize,
            Response::Appnum => Op::GetAppnum,
            Response::JobId => Op::GetJobId,
            Response::Fence(_) => Op::Fence,
            Response::Port(_) => Op::Lookup,
            Response::Ring(_) => Op::Ring,
            Response::PsetCount(_) => Op::PsetCount,
            Response::PsetName(_) => Op::PsetName,
            Response::PsetNext(_) => Op::PsetNext,
            Response::PsetInfo(..) => Op::PsetInfo,
            Response::PsetMembers(..) => Op::PsetMembers,
            // PMIx requests have no commands in the other protocols.
            Response::Pmix(_) => Op::Init,
            Response::Upcall(op, _)
            | Response::Record(op, _)
            | Response::Attr(op, _)
            | Response::Missing(op)
            | Response::Done(op)
            | Response::Refused(op, _) => op,
        }
    }
}

/// Writes a refusal in place of a reply that does not fit. Every stored value fits into a reply. Only the codes of a spawn
/// that failed can be too long. They are left out.
#[cold]
fn encode_short(protocol: Protocol, reply: &Reply<'_>, thrid: Option<Text<'_>>, buf: &mut [u8]) -> usize {
    let why = match reply {
        Reply::NotSpawned { why, .. } => *why,
        _ => Failure::Refusal(Refusal::Unprintable),
    };
    wire::encode_reply(protocol, &Reply::Refused(reply.op(), why), thrid, buf).map_or(0, <[u8]>::len)
}

/// Writes ranks in ascending order as `0-3,7`, as many as fit. Returns the text and the first rank that does not fit.
fn list_ranks(ranks: impl Iterator<Item = u32>, buf: &mut [u8]) -> (&str, Option<u32>) {
    let mut list = List { buf, len: 0 };
    let next = wire::write_ranges(wire::ranges(ranks), &mut list).err();
    (list.into_str(), next)
}

/// Writes ranks for users: `,...` replaces those that do not fit.
fn name_ranks(ranks: impl Iterator<Item = u32>, buf: &mut [u8]) -> &str {
    const MORE: &[u8] = b",...";
    let room = buf.len().saturating_sub(MORE.len());
    let Some(front) = buf.get_mut(..room) else { return "" };
    let (listed, next) = list_ranks(ranks, front);
    let len = listed.len();
    let mut list = List { buf, len };
    if next.is_some() {
        // `room` excludes its length.
        let _ = list.push(MORE);
    }
    list.into_str()
}

fn copy_text<'b>(text: &str, buf: &'b mut [u8]) -> Option<&'b str> {
    let copy = buf.get_mut(..text.len())?;
    copy.copy_from_slice(text.as_bytes());
    core::str::from_utf8(copy).ok()
}

struct List<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> List<'b> {
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        self.buf.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }

    fn number(&mut self, number: u32) -> Option<()> {
        self.push(wire::decimal(number, &mut [0; 10]))
    }

    fn into_str(self) -> &'b str {
        core::str::from_utf8(&self.buf[..self.len]).unwrap_or_default()
    }
}

impl fmt::Write for List<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).ok_or(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_ranges() {
        let list = |ranks: &[u32], room: usize| {
            std::string::String::from(name_ranks(ranks.iter().copied(), &mut std::vec![0; room]))
        };
        assert_eq!(list(&[], 9), "");
        assert_eq!(list(&[0, 1, 2, 3, 7], 32), "0-3,7");
        assert_eq!(list(&[5, 6, 100_000], 32), "5-6,100000");
        assert_eq!(list(&[1, 3, 5, 7, 9, 11], 9), "1,3,5,...");
    }
}
