//! Events for PMIx clients: deaths of ranks, changes of process sets, and notices that clients send each other.
//!
//! Events are state and not a queue. A death is the number that the rank's exit has in its slot, and each connection
//! keeps the number of the last one that it has got. So it is with the serial numbers of process sets. A notice takes a
//! slot in the table of names. A connection has at most one event among its replies. The next one is looked up when that
//! one is sent.

use super::super::Server;
use super::super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::PORT_MAX;
use crate::peer::links::Link;
use crate::peer::message::{self, Head};
use crate::state::{Abort, PendingReply, Phase, RankSlot, ReplyState, Response};
use crate::tables::kvs::Pieces;
use crate::tables::names::NameRef;
use crate::tables::psets::Which;
use crate::trace::Exit;
use crate::wire::Integers;
use crate::wire::pmix::{Codes, Infos, PackedCodes, Reader, Writer, event, kind, status};

/// First byte of the names of notices. No published name begins with it.
const PREFIX: u8 = 1;
/// Share of the table of names that notices may take.
const NOTICES_SHARE: u32 = 4;
/// Bytes of a stored notice in front of its INFOs: encoding of integers, range, code, number of INFOs.
const NOTICE_HEADER: usize = 10;

/// Rank that stands for the server as the source of an event: `PMIX_RANK_UNDEF`.
const SERVER: u32 = u32::MAX;
/// Maximum length of a packed process without its namespace, in bytes.
const PROC_REST: usize = 12;
/// Bytes of an event about a process set that are not its members.
const EVENT_REST: usize = 512;

/// Processes that get a notice.
mod range {
    /// The launcher.
    pub(super) const MANAGER: u8 = 1;
    /// The sender's job.
    pub(super) const JOB: u8 = 3;
    /// Processes that an INFO lists.
    pub(super) const CUSTOM: u8 = 6;
    /// The sender.
    pub(super) const SENDER: u8 = 7;
}

/// Stored notice.
struct Notice<'a> {
    sender: (JobId, Rank),
    integers: Integers,
    range: u8,
    code: i32,
    infos: Infos<'a>,
}

/// Decodes a stored notice: encoding of integers, range, code and INFOs.
fn decode(stored: &[u8]) -> Option<(Integers, u8, i32, Infos<'_>)> {
    let (&[integers, range, c0, c1, c2, c3, n0, n1, n2, n3], infos) =
        stored.split_first_chunk::<NOTICE_HEADER>()?;
    let integers = if integers == Integers::Fixed as u8 { Integers::Fixed } else { Integers::Flexible };
    let infos = Reader::new(integers, infos).infos_of(u32::from_le_bytes([n0, n1, n2, n3]))?;
    Some((integers, range, i32::from_le_bytes([c0, c1, c2, c3]), infos))
}

/// Returns the code of the event that a rank's death causes, or `None` if it has none.
fn death(slot: &RankSlot) -> Option<i32> {
    slot.dead.then_some(match slot.exit {
        _ if !matches!(slot.abort, Abort::No) => event::ABORTED,
        Some(Exit::Signal(_)) => event::SIGNALLED,
        _ => event::NO_FINALIZE,
    })
}

impl Server<'_> {
    /// Registers a client for some events, or for all if none is named.
    pub(super) fn register_events(&mut self, requester: Requester, codes: &Codes<'_>) -> Response {
        let changes = self.psets.changes();
        let events = &mut self.conns[requester.conn.index()].events;
        let before = events.codes.len();
        // A client gets the changes of process sets since its registration.
        if !events.codes.iter().any(|&code| is_of_sets(code)) {
            events.sets = changes;
        }
        for code in codes.iter() {
            if !events.codes.contains(&code) && events.codes.push(code).is_err() {
                events.codes.truncate(before);
                return Response::Status(status::OUT_OF_RESOURCE);
            }
        }
        events.all |= codes.is_empty();
        events.due = true;
        Response::Status(status::SUCCESS)
    }

    /// Ends the registration of a client for some events.
    pub(super) fn deregister_events(&mut self, conn: ConnId, codes: &PackedCodes<'_>) {
        let events = &mut self.conns[conn.index()].events;
        for code in codes.iter() {
            events.all &= code != event::ALL;
            events.codes.retain(|&known| known != code);
        }
    }

    /// Sends an event of a client to the other processes in its range.
    pub(super) fn notify(
        &mut self,
        requester: Requester,
        integers: Integers,
        code: i32,
        range: u8,
        infos: &Infos<'_>,
    ) -> Result<Response, Refusal> {
        let done = Response::Status(status::SUCCESS);
        if matches!(range, range::MANAGER | range::SENDER) {
            return Ok(done);
        }
        if self.limits.names < NOTICES_SHARE {
            return Ok(Response::Status(status::OUT_OF_RESOURCE));
        }
        let [c0, c1, c2, c3] = code.to_le_bytes();
        let [n0, n1, n2, n3] = infos.len().to_le_bytes();
        let header: [u8; NOTICE_HEADER] = [integers as u8, range, c0, c1, c2, c3, n0, n1, n2, n3];
        self.store_notice(requester.job, requester.rank, [&header[..], infos.as_bytes()].into_iter())?;
        Ok(done)
    }

    /// Stores a notice for the clients of this node and for the neighbours.
    fn store_notice<'a>(&mut self, job: JobId, rank: Rank, stored: impl Pieces<'a>) -> Result<(), Refusal> {
        // A refused notice drops no other one.
        if stored.clone().flatten().count() > PORT_MAX {
            return Err(Refusal::NameLength);
        }
        if self.names.marked(PREFIX).count() as u32 >= self.limits.names / NOTICES_SHARE {
            self.drop_oldest_notice();
        }
        let next = self.notices.wrapping_add(1);
        let number = next.to_be_bytes();
        let owner = self.jobs[job.index()].spaces;
        let notice = self.names.publish(owner, [&[PREFIX][..], &number].into_iter(), stored)?;
        self.names.describe(notice, rank, false);
        self.notices = next;
        self.links.wake(u64::MAX);
        self.events_are_due();
        Ok(())
    }

    /// Writes the next notice for a neighbour.
    pub(in super::super) fn write_notice_for(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        loop {
            let link = self.links.get(at)?;
            if link.notices_sent == self.notices {
                return None;
            }
            let numbered = self.names.marked(PREFIX).map(|notice| (self.number(notice), notice));
            let next =
                numbered.filter(|&(number, _)| number > link.notices_sent).min_by_key(|&(number, _)| number);
            let (number, notice) = next?;
            let goes = self.is_for(link, notice);
            self.links.get_mut(at)?.notices_sent = number;
            if goes {
                let Notice { sender: (job, rank), .. } = self.notice(notice)?;
                let whose = self.jobs[job.index()].reference(job);
                let mut writer = message::Writer::new(buf, Head::Notice { job: whose, rank })?;
                let fits = writer.push_bytes(self.names.port(notice)?);
                let len = writer.finish().len();
                self.notice_was_sent(notice);
                return fits.then_some(len);
            }
        }
    }

    /// Returns whether a notice goes to a neighbour: it is not from the neighbour's side.
    fn is_for(&self, link: &Link, notice: NameRef) -> bool {
        let sender = self.notice(notice).map(|notice| notice.sender);
        let slot = sender.and_then(|(job, rank)| self.jobs[job.index()].slot(rank));
        slot.is_some_and(|slot| link.carries(self.ranks[slot].node))
    }

    /// Stores a notice from a neighbour. It is lost if the table of names has no room.
    pub(in super::super) fn receive_notice(
        &mut self,
        job: JobId,
        rank: Rank,
        stored: &[u8],
    ) -> Result<(), Fault> {
        decode(stored).ok_or(Fault::BadPeer)?;
        let has_room = self.limits.names >= NOTICES_SHARE;
        if has_room && let Err(Refusal::NameLength) = self.store_notice(job, rank, core::iter::once(stored)) {
            return Err(Fault::BadPeer);
        }
        Ok(())
    }

    /// Drops the oldest notice, also for clients that have not got it.
    fn drop_oldest_notice(&mut self) {
        let number = |notice: &NameRef| self.number(*notice);
        if let Some(oldest) = self.names.marked(PREFIX).min_by_key(number) {
            self.drop_notice(oldest);
        }
    }

    fn drop_notice(&mut self, notice: NameRef) {
        self.drop_events(|answer| answer == Response::Notice(notice));
        self.names.withdraw_this(notice);
    }

    /// Drops the events about a job that is over.
    pub(in super::super) fn drop_events_of(&mut self, job: JobId) {
        while let Some(notice) = self.notice_of(job) {
            self.drop_notice(notice);
        }
        self.drop_events(|answer| matches!(answer, Response::Died(of, _) if of == job));
    }

    fn notice_of(&self, job: JobId) -> Option<NameRef> {
        let owner = self.jobs[job.index()].spaces;
        let is_of_job = |notice: &NameRef| self.names.publisher(*notice).is_some_and(|(of, _)| of == owner);
        self.names.marked(PREFIX).find(is_of_job)
    }

    /// Removes events from the replies of all connections.
    pub(in super::super) fn drop_events(&mut self, is_over: impl Fn(Response) -> bool) {
        for conn in (0..self.conns_end).map(ConnId) {
            let replies = &mut self.conns[conn.index()].replies;
            let before = replies.len();
            replies.retain(|reply| !matches!(reply.state, ReplyState::Ready(answer) if is_over(answer)));
            if replies.len() < before {
                self.push_event(conn);
                self.check_ready(conn);
            }
        }
    }

    /// Looks for events of all clients.
    pub(in super::super) fn events_are_due(&mut self) {
        for conn in (0..self.conns_end).map(ConnId) {
            let slot = &mut self.conns[conn.index()];
            if slot.pmix.is_some() && slot.job.is_some() {
                slot.events.due = true;
                self.push_event(conn);
                self.check_ready(conn);
            }
        }
    }

    /// Adds the next event of a client to its replies, if it has one.
    pub(in super::super) fn push_event(&mut self, conn: ConnId) {
        if self.conns[conn.index()].events.due {
            self.push_due_event(conn);
        }
    }

    #[cold]
    fn push_due_event(&mut self, conn: ConnId) {
        let slot = &self.conns[conn.index()];
        let is_event = |reply: &PendingReply| {
            matches!(
                reply.state,
                ReplyState::Ready(Response::Died(..) | Response::Notice(_) | Response::SetChanged { .. })
            )
        };
        if slot.replies.is_full() || slot.phase != Phase::Ready || slot.replies.iter().any(is_event) {
            return;
        }
        let Some(requester) = self.requester(conn) else { return };
        let answer = if let Some((number, job, rank)) = self.next_death(requester) {
            self.conns[conn.index()].events.exits = number;
            Response::Died(job, rank)
        } else if let Some((serial, which, retired)) = self.next_set_change(requester) {
            self.conns[conn.index()].events.sets = serial;
            Response::SetChanged { which, retired }
        } else if let Some((number, notice)) = self.next_notice(requester) {
            self.conns[conn.index()].events.notices = number;
            Response::Notice(notice)
        } else {
            self.conns[conn.index()].events.due = false;
            return;
        };
        self.push_reply(conn, heapless::Vec::new(), ReplyState::Ready(answer));
    }

    /// Returns whether a client has registered for an event.
    fn wants(&self, conn: ConnId, code: i32) -> bool {
        let events = &self.conns[conn.index()].events;
        events.all || events.codes.contains(&code)
    }

    /// Returns the next death of a rank of the client's job, or of a connected one: its number, its job and its rank.
    fn next_death(&self, requester: Requester) -> Option<(u32, JobId, Rank)> {
        let after = self.conns[requester.conn.index()].events.exits;
        let jobs = (0..).map(JobId).zip(&*self.jobs);
        let jobs = jobs
            .filter(|(id, job)| !job.name.is_empty() && self.connections.connected(requester.job, *id))
            .flat_map(|(id, job)| {
                (0..).map(Rank).zip(&self.ranks[job.slots()]).map(move |(rank, slot)| (slot, id, rank))
            });
        let is_next = |slot: &RankSlot| {
            slot.end > after && death(slot).is_some_and(|code| self.wants(requester.conn, code))
        };
        let next = jobs.filter(|(slot, ..)| is_next(slot)).min_by_key(|(slot, ..)| slot.end);
        next.map(|(slot, job, rank)| (slot.end, job, rank))
    }

    /// Returns the next change of a process set with ranks of the client's job: its serial number, the set, and whether
    /// it was retired or has ended. Clients that have registered for all events do not get it: Open MPI handles such an
    /// event as an error.
    fn next_set_change(&self, requester: Requester) -> Option<(u32, Which, bool)> {
        let events = &self.conns[requester.conn.index()].events;
        let wanted = |retired| events.codes.contains(&set_code(retired));
        self.psets.next_change(self.asker(requester).job, events.sets, wanted)
    }

    /// Returns the next notice for a client, and its number.
    fn next_notice(&self, requester: Requester) -> Option<(u32, NameRef)> {
        let after = self.conns[requester.conn.index()].events.notices;
        let numbered = self.names.marked(PREFIX).map(|notice| (self.number(notice), notice));
        let is_next =
            |&(number, notice): &(u32, NameRef)| number > after && self.is_addressed(notice, requester);
        numbered.filter(is_next).min_by_key(|&(number, _)| number)
    }

    /// Returns the number of a notice.
    fn number(&self, notice: NameRef) -> u32 {
        let number = self.names.name(notice).and_then(|name| name.get(1..)?.first_chunk::<4>());
        number.map_or(0, |number| u32::from_be_bytes(*number))
    }

    fn notice(&self, notice: NameRef) -> Option<Notice<'_>> {
        let (owner, rank) = self.names.publisher(notice)?;
        let job = self.jobs.iter().position(|job| !job.name.is_empty() && job.spaces == owner)?;
        let (integers, range, code, infos) = decode(self.names.port(notice)?)?;
        Some(Notice { sender: (JobId(job as u32), rank), integers, range, code, infos })
    }

    /// Returns whether a client gets a notice.
    fn is_addressed(&self, notice: NameRef, requester: Requester) -> bool {
        let Some(Notice { sender, integers, range, code, infos }) = self.notice(notice) else { return false };
        let dialect = self.conns[requester.conn.index()].pmix;
        let in_range = match range {
            range::JOB => sender.0 == requester.job,
            range::CUSTOM => {
                let name = self.jobs[requester.job.index()].name.as_bytes();
                let listed = infos.find(b"pmix.evrange");
                listed.is_some_and(|listed| listed.contains(name, requester.rank.0))
            }
            _ => self.connections.connected(sender.0, requester.job),
        };
        in_range
            && sender != (requester.job, requester.rank)
            && dialect.is_some_and(|dialect| dialect.integers == integers)
            && self.wants(requester.conn, code)
    }

    /// Drops a notice that no other client still has to get. It was sent to one.
    pub(in super::super) fn notice_was_sent(&mut self, notice: NameRef) {
        let number = self.number(notice);
        let waits = |conn: ConnId| {
            let slot = &self.conns[conn.index()];
            let is_next = |requester| number > slot.events.notices && self.is_addressed(notice, requester);
            slot.replies.iter().any(|reply| reply.state == ReplyState::Ready(Response::Notice(notice)))
                || slot.pmix.is_some() && self.requester(conn).is_some_and(is_next)
        };
        let links = (0..).map_while(|at| self.links.get(at));
        let pending = links.clone().any(|link| number > link.notices_sent && self.is_for(link, notice));
        if !pending && !(0..self.conns_end).map(ConnId).any(waits) {
            self.names.withdraw_this(notice);
        }
    }

    /// Writes the event of a rank's death.
    pub(super) fn write_death(&self, job: JobId, rank: Rank, writer: &mut Writer<'_>) {
        let state = &self.jobs[job.index()];
        let code = state.slot(rank).and_then(|slot| death(self.ranks.get(slot)?));
        let name = state.name.as_bytes();
        write_event(code.unwrap_or(event::NO_FINALIZE), name, rank, writer);
        writer.array(1);
        writer.info(b"pmix.evproc", kind::PROC);
        writer.proc(name, rank.0);
    }

    /// Writes the event of a process set: its name and, of a new one, its members as far as there is room for all.
    pub(super) fn write_set_change(&self, id: ConnId, which: Which, retired: bool, writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return };
        let job = self.jobs[requester.job.index()].name.as_bytes();
        let name = |job: JobId| self.jobs[job.index()].name.as_bytes();
        let members = || self.members(self.asker(requester), which);
        let len: usize = members().map(|(job, _)| name(job).len() + PROC_REST).sum();
        let listed = !retired && len + EVENT_REST <= self.limits.output_max();
        write_event(set_code(retired), job, Rank(SERVER), writer);
        writer.array(1 + u32::from(listed));
        writer.info(b"pmix.pset.nm", kind::STRING);
        writer.string(self.psets.name(which).as_bytes());
        if listed {
            writer.info(b"pmix.pset.mems", kind::DATA_ARRAY);
            writer.data_type(kind::PROC);
            writer.size(members().count() as u64);
            for (job, rank) in members() {
                writer.proc(name(job), rank.0);
            }
        }
    }

    /// Writes the event of a notice.
    pub(super) fn write_notice(&self, notice: NameRef, writer: &mut Writer<'_>) {
        let Some(Notice { sender: (job, rank), code, infos, .. }) = self.notice(notice) else { return };
        write_event(code, self.jobs[job.index()].name.as_bytes(), rank, writer);
        writer.array(infos.len());
        writer.raw(infos.as_bytes());
    }
}

/// Returns the code of the event of a process set.
fn set_code(retired: bool) -> i32 {
    if retired { event::SET_RETIRED } else { event::SET_DEFINED }
}

fn is_of_sets(code: i32) -> bool {
    code == set_code(false) || code == set_code(true)
}

/// Writes an event up to its INFOs.
fn write_event(code: i32, namespace: &[u8], rank: Rank, writer: &mut Writer<'_>) {
    writer.single();
    writer.byte(event::COMMAND);
    writer.single();
    writer.int32(code);
    writer.single();
    writer.proc(namespace, rank.0);
}
