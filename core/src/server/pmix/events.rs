//! Events for PMIx clients: deaths of ranks, changes of process sets, and notices that clients send each other.
//!
//! Events are state and not a queue. A death is the number that the rank's exit has in its slot, and each registration of
//! a client keeps the number of the last one that it has got. So it is with the serial numbers of process sets. A notice
//! takes a slot in the table of names, and its INFOs are a record in the log if they are long. A connection has at most
//! one event among its replies. The next one is looked up when that one is sent.
//!
//! A notice stays for clients that register later, as the servers of libpmix keep them, until its slot is wanted for
//! something else or its sender's job is over.

use heapless::String;

use super::super::Server;
use super::super::dispatch::Requester;
use super::super::peers::LONG;
use super::query::is_of_host;
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{COMMIT_HEADER, HOST_FACTS, JOBID_MAX, Limit, PORT_MAX};
use crate::peer::links::Link;
use crate::peer::message::{self, Head};
use crate::state::{
    Abort, Conn, Got, Job, PendingReply, Phase, PmixResponse, RankPhase, RankSlot, Registration, ReplyState,
    Response,
};
use crate::tables::kvs::{Pieces, Spaces};
use crate::tables::names::{NameRef, Names, Terms, mark};
use crate::tables::psets::Which;
use crate::time::Time;
use crate::trace::{Cause, Exit};
use crate::wire::Integers;
use crate::wire::pmix::{
    Changes, Codes, Command, Commit, HostCall, Infos, PackedCodes, REMOVED_TAG, Reader, WILDCARD, Writer,
    event, keys, kind, removal, status,
};

/// First byte of the names of notices.
pub(super) const PREFIX: u8 = mark::NOTICE;
/// Share of the table of names that notices may take.
const NOTICES_SHARE: u32 = 4;
/// Least share in which the ends of jobs are kept for tools that register later.
const ENDS_SHARE: u32 = 8;
/// Sender of what is kept: no job.
const NOBODY: JobId = JobId(u32::MAX);
/// Bytes of a stored notice in front of its INFOs: encoding of integers, range, code, number of INFOs.
const NOTICE_HEADER: usize = 10;
/// Bit of the first byte of a stored notice whose INFOs are a record of its sender.
const IS_LONG: u8 = 0x80;
/// Slot of no notice.
const NO_SLOT: u32 = u32::MAX;

/// Rank that stands for the server as the source of an event: `PMIX_RANK_UNDEF`.
pub(super) const SERVER: u32 = u32::MAX;
/// Key of the process that an event is about.
const AFFECTED: &[u8] = b"pmix.evproc";
/// Maximum length of the INFOs of the event that a job is over, in bytes.
const JOB_END_MAX: usize = 256;
/// Maximum length of a packed process without its namespace, in bytes.
const PROC_REST: usize = 12;
/// Maximum length of the INFO with a removed key, in bytes.
const REMOVAL_MAX: usize = 576;
/// Major version of the first libpmix that removes keys.
const REMOVES: u8 = 7;
/// Bytes of an event about a process set that are not its members.
const EVENT_REST: usize = 512;

/// Processes that get a notice, or that may look up data.
pub(super) mod range {
    /// The launcher.
    pub(in super::super) const MANAGER: u8 = 1;
    /// Processes on the host.
    pub(in super::super) const LOCAL: u8 = 2;
    /// The sender's job.
    pub(in super::super) const JOB: u8 = 3;
    /// The sender's job and those connected to it.
    pub(in super::super) const SESSION: u8 = 4;
    /// All.
    pub(in super::super) const GLOBAL: u8 = 5;
    /// Processes that an INFO lists.
    pub(in super::super) const CUSTOM: u8 = 6;
    /// The sender.
    pub(in super::super) const SENDER: u8 = 7;
    /// No client: what a leader of a group says to all nodes. The code is the hash of the name of the group.
    pub(in super::super) const BOOTSTRAP: u8 = 0xff;
    /// The sender's job and those connected to it, whether or not they have registered: the sender has removed a key, which the
    /// one INFO has. The code is the scope. Libraries that know removals get it.
    pub(in super::super) const REMOVAL: u8 = 0xfe;
}

/// Stored notice.
#[derive(Clone, Copy)]
pub(super) struct Notice<'a> {
    pub(super) sender: (JobId, Rank),
    integers: Integers,
    pub(super) range: u8,
    pub(super) code: i32,
    pub(super) infos: Infos<'a>,
}

impl Notice<'_> {
    /// Returns whether clients that have registered for all events get it. Open MPI handles those of the server as errors.
    fn is_for_all(&self) -> bool {
        self.sender.1 != Rank(SERVER)
    }
}

/// Event that a job is over.
pub(in super::super) struct JobEnd {
    /// Job whose clients get it.
    owner: Option<JobId>,
    /// Whether clients with each encoding of integers wait for it.
    dialects: [bool; 2],
    /// Its namespace.
    name: String<JOBID_MAX, u8>,
    status: i32,
    /// Rank that failed first, or all ranks.
    rank: u32,
    /// Exit code of that rank.
    code: Option<i32>,
}

/// Returns the bytes of a stored notice in front of its INFOs, of which there are `count`.
pub(super) fn notice_header(integers: Integers, range: u8, code: i32, count: u32) -> [u8; NOTICE_HEADER] {
    let [c0, c1, c2, c3] = code.to_le_bytes();
    let [n0, n1, n2, n3] = count.to_le_bytes();
    [integers as u8, range, c0, c1, c2, c3, n0, n1, n2, n3]
}

/// Decodes a stored notice: encoding of integers, range, code and INFOs.
fn decode(stored: &[u8]) -> Option<(Integers, u8, i32, Infos<'_>)> {
    let (&[integers, range, c0, c1, c2, c3, n0, n1, n2, n3], infos) =
        stored.split_first_chunk::<NOTICE_HEADER>()?;
    let count = if integers & IS_LONG == 0 { u32::from_le_bytes([n0, n1, n2, n3]) } else { 0 };
    let integers = Integers::of_byte(integers & !IS_LONG).unwrap_or_default();
    let infos = Reader::new(integers, infos).infos_of(count)?;
    Some((integers, range, i32::from_le_bytes([c0, c1, c2, c3]), infos))
}

/// Returns a notice of the table of names.
// Once in the flash of a board.
#[inline(never)]
pub(super) fn notice_in<'a>(names: &'a Names<'_>, jobs: &[Job], notice: NameRef) -> Option<Notice<'a>> {
    let (owner, rank) = names.publisher(notice)?;
    let job = if HOST_FACTS && owner == Spaces::NONE {
        NOBODY
    } else {
        JobId(jobs.iter().position(|job| !job.name.is_empty() && job.spaces == owner)? as u32)
    };
    let (integers, range, code, infos) = decode(names.port(notice)?)?;
    Some(Notice { sender: (job, rank), integers, range, code, infos })
}

/// Returns the code of the event that a rank's death causes, or `None` if it has none.
fn death(slot: &RankSlot) -> Option<i32> {
    slot.dead.then_some(match slot.exit {
        _ if !matches!(slot.abort, Abort::No) => event::ABORTED,
        Some(Exit::Signal(_)) => event::SIGNALLED,
        _ => event::NO_FINALIZE,
    })
}

/// Returns the codes of the events that a rank's death causes: that of the first one that a client has registered for is sent. A
/// process that a signal killed has ended without finalize, too: libpmix watches the leader of a group that it joins for that
/// code. The leader watches those that it has invited for the code of any end.
fn codes_of_death(slot: &RankSlot) -> Option<[i32; 3]> {
    let code = death(slot)?;
    let other = if code == event::SIGNALLED { event::NO_FINALIZE } else { code };
    Some([code, other, event::TERMINATED])
}

impl Server<'_> {
    /// Registers a client for some events, or for all if none is named.
    pub(super) fn register_events(&mut self, requester: Requester, codes: &Codes<'_>) -> Response {
        let changes = self.psets.changes();
        let events = &mut self.conns[requester.conn.index()].events;
        let before = events.codes.len();
        // A client gets the process sets that there are, their ends since its registration, and the other events from before it.
        if !events.has(event::SET_DEFINED) && codes.iter().any(|code| code == event::SET_DEFINED) {
            events.sets = 0;
        } else if !events.codes.iter().any(|known| is_of_sets(known.code)) {
            events.sets = changes;
        }
        let got = Got { exits: 0, notices: events.before };
        for code in codes.iter() {
            if !events.has(code) && events.codes.push(Registration { code, got }).is_err() {
                events.codes.truncate(before);
                return Response::status(status::OUT_OF_RESOURCE);
            }
        }
        if codes.is_empty() {
            let _ = events.all.get_or_insert(got);
        }
        events.due = true;
        Response::status(status::SUCCESS)
    }

    /// Ends the registration of a client for some events.
    pub(super) fn deregister_events(&mut self, conn: ConnId, codes: &PackedCodes<'_>) {
        let events = &mut self.conns[conn.index()].events;
        for code in codes.iter() {
            events.all = events.all.filter(|_| code != event::ALL);
            events.codes.retain(|known| known.code != code);
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
        let done = Response::status(status::SUCCESS);
        if matches!(range, range::BOOTSTRAP | range::REMOVAL) {
            return Err(Refusal::BadGroup);
        }
        if matches!(range, range::MANAGER | range::SENDER) {
            return Ok(done);
        }
        if self.limits.names < NOTICES_SHARE {
            return Ok(Response::status(status::OUT_OF_RESOURCE));
        }
        let header = notice_header(integers, range, code, infos.len());
        self.store_any_notice(requester.job, requester.rank, header, infos)?;
        Ok(done)
    }

    /// Tells clients which keys a rank has removed, because libpmix keeps what it has got. As with events, the oldest are lost if
    /// there are too many.
    #[cold]
    pub(super) fn note_removals(&mut self, requester: Requester, integers: Integers, commit: &Commit<'_>) {
        if self.limits.names < NOTICES_SHARE {
            return;
        }
        let Commit { local, remote } = *commit;
        let scopes = if local.removed == remote.removed {
            [(removal::GLOBAL, local), (removal::GLOBAL, Changes::default())]
        } else {
            [(removal::LOCAL, local), (removal::REMOTE, remote)]
        };
        for (scope, changes) in scopes {
            for key in changes.removed_keys(integers) {
                let mut packed = [0; REMOVAL_MAX];
                let mut writer = Writer::new(integers, &mut packed);
                writer.info(key, kind::BOOL);
                writer.byte(1);
                let Some(len) = writer.finish() else { continue };
                let header = notice_header(integers, range::REMOVAL, scope.into(), 1);
                let stored = [&header[..], &packed[..len]].into_iter();
                let _ = self.store_notice(requester.job, requester.rank, stored);
            }
        }
    }

    /// Stores a notice of any length. The INFOs of a long one are a record of its sender.
    fn store_any_notice(
        &mut self,
        job: JobId,
        rank: Rank,
        mut header: [u8; NOTICE_HEADER],
        infos: &Infos<'_>,
    ) -> Result<(), Refusal> {
        let stored = [&header[..], infos.as_bytes()];
        if !HOST_FACTS || stored[0].len() + stored[1].len() <= PORT_MAX {
            return self.store_notice(job, rank, stored.into_iter());
        }
        // A refused notice drops no other one.
        self.keep_record((job, rank), (LONG, NO_SLOT), infos, false)?;
        header[0] |= IS_LONG;
        let owner = self.jobs[job.index()].spaces;
        let notice = self.publish_notice(owner, rank, core::iter::once(&header[..]))?;
        // The next long notice of the job in this slot supersedes the record.
        self.keep_record((job, rank), (LONG, notice.at), infos, true)?;
        self.send_notice(notice);
        Ok(())
    }

    /// Makes room in the table of names for one more notice.
    fn make_room_for_notice(&mut self) -> Result<(), Refusal> {
        let share = self.limits.names / NOTICES_SHARE;
        let is_used_up = self.names.marked(PREFIX).count() as u32 >= share;
        // What leaders of groups have said stays.
        let is_full = is_used_up && !self.drop_oldest_notice() || !self.names.has_room();
        if is_full { Err(Refusal::Full(Limit::Names, self.limits.names)) } else { Ok(()) }
    }

    /// Returns the event of a job that is about to be deregistered, if clients of this node wait for it: those of the job that
    /// spawned it or that is connected to it, and of jobs connected to that one. Tools may register for it later.
    pub(in super::super) fn job_end(&self, id: JobId) -> Option<JobEnd> {
        let job = &self.jobs[id.index()];
        let others = || (0..).map(JobId).zip(&*self.jobs).filter(|&(at, of)| at != id && !of.name.is_empty());
        // A tool may have given its job another name.
        let is_spawner =
            |of: &Job| of.name == job.spawner || HOST_FACTS && self.name_of_tool(of) == Some(&*job.spawner);
        let spawner = others().find(|&(_, other)| is_spawner(other));
        let connected = || others().find(|&(at, _)| self.connections.connected(at, id));
        let owner = spawner.or_else(connected).map(|(owner, _)| owner);
        let is_tool = |job: JobId| self.is_tool(&self.jobs[job.index()]);
        let gets = |job| owner.map_or_else(|| is_tool(job), |owner| self.reaches(owner, job));
        let waits = |integers| {
            self.conns.iter().any(|conn| {
                conn.pmix.is_some_and(|dialect| dialect.integers == integers)
                    && conn.events.has(event::JOB_END)
                    && conn.job.is_some_and(|job| job != id && gets(job))
            })
        };
        let dialects = [Integers::Flexible, Integers::Fixed].map(waits);
        if dialects == [false; 2] && (!self.keeps_ends() || self.is_tool(job)) {
            return None;
        }
        let ranks = || (0..).map(Rank).zip(&self.ranks[job.slots()]);
        let failed = |slot: &RankSlot| slot.exit.is_some_and(|exit| exit != Exit::Code(0));
        let first = ranks().filter(|(_, slot)| failed(slot)).min_by_key(|(_, slot)| slot.end);
        let (status, rank, code) = match (job.ending, first) {
            (Some(Cause::Abort { rank, code }), _) => (status::JOB_ABORTED, Some(rank), code),
            (Some(Cause::Died { rank, exit: Exit::Signal(_) }), _) => {
                (status::JOB_SIGNALLED, Some(rank), None)
            }
            (Some(cause), _) => (status::JOB_NO_FINALIZE, Some(cause.rank()), None),
            (None, Some((rank, slot))) => match slot.exit {
                Some(Exit::Code(code)) => (status::JOB_FAILED, Some(rank), Some(code.into())),
                _ => (status::JOB_SIGNALLED, Some(rank), None),
            },
            (None, None) => (status::SUCCESS, None, None),
        };
        let rank = rank.map_or(WILDCARD, |rank| rank.0);
        Some(JobEnd { owner, dialects, name: job.name.clone(), status, rank, code })
    }

    /// Sends the event of a job that is over. It is lost if the table of names has no room.
    pub(in super::super) fn note_job_end(&mut self, end: &JobEnd) {
        let &JobEnd { owner, ref dialects, ref name, status, rank, code } = end;
        if self.limits.names < NOTICES_SHARE {
            return;
        }
        for (integers, &waits) in [Integers::Flexible, Integers::Fixed].into_iter().zip(dialects) {
            // Tools of libpmix 4 and later have this encoding.
            let keeps = self.keeps_ends() && integers == Integers::Flexible;
            if !waits && !keeps {
                continue;
            }
            let mut infos = [0; JOB_END_MAX];
            let mut writer = Writer::new(integers, &mut infos);
            writer.not_default();
            writer.info(AFFECTED, kind::PROC);
            writer.proc(name.as_bytes(), rank);
            writer.info(b"pmix.job.term.status", kind::STATUS);
            writer.int32(status);
            if let Some(code) = code {
                writer.info(b"pmix.exit.code", kind::INT);
                writer.int(code);
            }
            let count = 3 + u32::from(code.is_some());
            let Some(len) = writer.finish() else { continue };
            let header = notice_header(integers, range::SESSION, event::JOB_END, count);
            let stored = [&header[..], &infos[..len]].into_iter();
            let owner = owner.filter(|_| waits).map_or(Spaces::NONE, |owner| self.jobs[owner.index()].spaces);
            let _ = self.store_notice_of(owner, Rank(SERVER), stored);
        }
    }

    /// Returns whether this server keeps the ends of jobs: that of the head, which tools connect to, if the share of notices has
    /// room for some.
    fn keeps_ends(&self) -> bool {
        let has_tools = HOST_FACTS && self.links.node() == 0 && self.limits.commit_bytes > 0;
        has_tools && self.limits.names / NOTICES_SHARE >= ENDS_SHARE
    }

    /// Returns whether a notice is the end of a job.
    fn is_end(&self, notice: NameRef) -> bool {
        let is_end = |notice: Notice<'_>| notice.sender.1 == Rank(SERVER) && notice.code == event::JOB_END;
        HOST_FACTS && self.notice(notice).is_some_and(is_end)
    }

    /// Keeps a notice that nobody waits for, if it is the end of a job. Returns whether it is.
    fn keep_end(&mut self, notice: NameRef) -> bool {
        let keeps = self.keeps_ends() && self.is_end(notice);
        if keeps {
            self.names.disown(notice);
        }
        keeps
    }

    /// Sends the members of a group on this node the event that the group has lost the member in a slot. The record has the name of
    /// the group.
    #[cold]
    pub(super) fn note_loss(&mut self, at: u32, slot: u32, terms: u32) {
        if self.limits.names < NOTICES_SHARE {
            return;
        }
        for owner in self.jobs.numbers().map(JobId) {
            if !self.groups.has_member_in(at, &self.jobs[owner.index()].slots()) {
                continue;
            }
            for integers in [Integers::Flexible, Integers::Fixed] {
                let waits = |conn: &Conn| {
                    conn.job == Some(owner)
                        && conn.pmix.is_some_and(|dialect| dialect.integers == integers)
                        && conn.events.has(event::MEMBER_FAILED)
                };
                let Some(job) = self.job_of_slot(slot as usize).map(|job| &self.jobs[job.index()]) else {
                    return;
                };
                let name = self.kvs.value(terms).and_then(|value| value.get(COMMIT_HEADER as usize..));
                let Some(name) = name.filter(|_| self.conns.iter().any(waits)) else { continue };
                let mut infos = [0; JOB_END_MAX];
                let mut writer = Writer::new(integers, &mut infos);
                writer.info(AFFECTED, kind::PROC);
                writer.proc(job.name.as_bytes(), slot - job.first);
                writer.info(b"pmix.grp.id", kind::STRING);
                writer.string(name);
                let Some(len) = writer.finish() else { continue };
                let header = notice_header(integers, range::JOB, event::MEMBER_FAILED, 2);
                let _ = self.store_notice(owner, Rank(SERVER), [&header[..], &infos[..len]].into_iter());
            }
        }
    }

    /// Sends the client whose request for hosts has been answered the event about it, if it has registered for one. `reply` is what
    /// it gets as the reply.
    pub(in super::super) fn note_hosts(&mut self, upcall: UpcallId, reply: &[u8]) {
        let asked = HostCall::read(self.upcalls.text(upcall));
        let Some(HostCall::Command { integers, command: Command::Allocate { .. } }) = asked else { return };
        let conn = self.upcalls.get(upcall).and_then(|slot| slot.conn);
        let Some(requester) = conn.and_then(|conn| self.requester(conn)) else { return };
        let mut reader = Reader::new(integers, reply);
        let status = reader.single().and_then(|()| reader.int32());
        let (Some(status), Some(given)) = (status, reader.infos()) else { return };
        let done = if status == status::SUCCESS { event::HOSTS_CHANGED } else { event::HOSTS_REFUSED };
        for code in [event::HOSTS_ANSWERED, done] {
            let waits = self.conns[requester.conn.index()].events.has(code);
            if !waits || self.limits.names < NOTICES_SHARE {
                continue;
            }
            let mut infos = [0; PORT_MAX - NOTICE_HEADER];
            let mut writer = Writer::new(integers, &mut infos);
            writer.info(keys::EVENT_CUSTOM_RANGE, kind::PROC);
            writer.proc(self.jobs[requester.job.index()].name.as_bytes(), requester.rank.0);
            writer.info(b"pmix.alloc.status", kind::STATUS);
            writer.int32(status);
            let mut count = 2;
            for key in [keys::ALLOC_ID, keys::ALLOC_REQ_ID] {
                if let Some(name) = given.find(key).and_then(|info| info.as_string()) {
                    writer.info(key, kind::STRING);
                    writer.string(name);
                    count += 1;
                }
            }
            let Some(len) = writer.finish() else { continue };
            let header = notice_header(integers, range::CUSTOM, code, count);
            let _ = self.store_notice(requester.job, Rank(SERVER), [&header[..], &infos[..len]].into_iter());
        }
    }

    /// Stores a notice for the clients of this node and for the neighbours.
    pub(super) fn store_notice<'a>(
        &mut self,
        job: JobId,
        rank: Rank,
        stored: impl Pieces<'a>,
    ) -> Result<(), Refusal> {
        self.store_notice_of(self.jobs[job.index()].spaces, rank, stored)
    }

    fn store_notice_of<'a>(
        &mut self,
        owner: Spaces,
        rank: Rank,
        stored: impl Pieces<'a>,
    ) -> Result<(), Refusal> {
        let notice = self.publish_notice(owner, rank, stored)?;
        self.send_notice(notice);
        Ok(())
    }

    fn publish_notice<'a>(
        &mut self,
        owner: Spaces,
        rank: Rank,
        stored: impl Pieces<'a>,
    ) -> Result<NameRef, Refusal> {
        // A refused notice drops no other one.
        if stored.clone().flatten().count() > PORT_MAX {
            return Err(Refusal::NameLength);
        }
        self.make_room_for_notice()?;
        let next = self.notices.wrapping_add(1);
        let number = next.to_be_bytes();
        let notice =
            self.names.publish((owner, rank), [&[PREFIX][..], &number].into_iter(), stored, Terms::JOB)?;
        self.notices = next;
        Ok(notice)
    }

    #[inline(never)]
    fn send_notice(&mut self, notice: NameRef) {
        self.links.wake_all();
        self.events_are_due();
        // Nobody may wait for it.
        self.notice_was_sent(notice);
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
                let Notice { sender: (job, rank), integers, range, code, infos } = self.notice(notice)?;
                let whose = self.jobs[job.index()].reference(job);
                let mut writer = message::Writer::new(buf, Head::Notice { job: whose, rank })?;
                let fits = writer.push_bytes(&notice_header(integers, range, code, infos.len()))
                    && writer.push_bytes(infos.as_bytes());
                let len = writer.finish().len();
                self.notice_was_sent(notice);
                return fits.then_some(len);
            }
        }
    }

    /// Returns whether a notice goes to a neighbour: it is not from the neighbour's side.
    fn is_for(&self, link: &Link, notice: NameRef) -> bool {
        let sender = self.notice(notice).map(|notice| notice.sender);
        let slot = sender.and_then(|(job, rank)| self.jobs.get(job.index())?.slot(rank));
        slot.is_some_and(|slot| link.carries(self.ranks[slot].node))
    }

    /// Stores a notice from a neighbour. It is lost if the table of names has no room.
    pub(in super::super) fn receive_notice(
        &mut self,
        now: Time,
        job: JobId,
        rank: Rank,
        stored: &[u8],
    ) -> Result<(), Fault> {
        let (integers, range, code, infos) = decode(stored).ok_or(Fault::BadPeer)?;
        if self.limits.names < NOTICES_SHARE {
            return Ok(());
        }
        let is_said = HOST_FACTS && range == range::BOOTSTRAP;
        if is_said {
            self.unsay(job, rank, code as u32);
        }
        let header = notice_header(integers, range, code, infos.len());
        if let Err(Refusal::NameLength) = self.store_any_notice(job, rank, header, &infos) {
            return Err(Fault::BadPeer);
        }
        if is_said {
            self.bootstrap(now, code as u32);
        }
        Ok(())
    }

    /// Drops the oldest notice, also for clients that have not got it. What is there for clients that register later goes first.
    /// Returns whether there was one.
    fn drop_oldest_notice(&mut self) -> bool {
        let events = self.names.marked(PREFIX).filter(|&notice| !self.is_said(notice));
        let order = |&notice: &NameRef| {
            let waits = u64::from(!self.names.gives_way(notice));
            waits << 32 | u64::from(self.number(notice))
        };
        let oldest = events.min_by_key(order);
        oldest.into_iter().for_each(|oldest| self.drop_notice(oldest));
        oldest.is_some()
    }

    fn drop_notice(&mut self, notice: NameRef) {
        self.drop_events(|answer| answer == Response::Pmix(PmixResponse::Notice(notice)));
        self.names.withdraw_this(notice);
    }

    /// Drops the events about a job that is over.
    pub(in super::super) fn drop_events_of(&mut self, job: JobId) {
        while let Some(notice) = self.notice_of(job) {
            if !self.keep_end(notice) {
                self.drop_notice(notice);
            }
        }
        self.drop_events(|answer| matches!(answer, Response::Pmix(PmixResponse::Died(of, _)) if of == job));
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
        if !self.has_room_for_event(conn) {
            return;
        }
        let Some(requester) = self.requester(conn) else { return };
        let answer = if let Some((number, job, rank)) = self.next_death(requester) {
            self.death_was_chosen(conn, (job, rank), number);
            Response::Pmix(PmixResponse::Died(job, rank))
        } else if let Some((serial, which, retired)) = self.next_set_change(requester) {
            self.conns[conn.index()].events.sets = serial;
            Response::Pmix(PmixResponse::SetChanged { which, retired })
        } else if let Some((number, notice)) = self.next_notice(requester) {
            self.notice_was_chosen(conn, notice, number);
            Response::Pmix(PmixResponse::Notice(notice))
        } else {
            // What was out of its range stays so, also if its job is connected to another one later.
            let newest = self.notices;
            let events = &mut self.conns[conn.index()].events;
            (events.due, events.removals) = (false, newest);
            let known = events.codes.iter_mut().map(|known| &mut known.got);
            known.chain(&mut events.all).for_each(|got| got.notices = newest);
            return;
        };
        self.push_reply(conn, heapless::Vec::new(), ReplyState::Ready(answer));
    }

    /// Returns whether an event can be among the replies of a client.
    pub(super) fn has_room_for_event(&self, conn: ConnId) -> bool {
        let slot = &self.conns[conn.index()];
        let is_event = |reply: &PendingReply| {
            matches!(
                reply.state,
                ReplyState::Ready(Response::Pmix(
                    PmixResponse::Died(..)
                        | PmixResponse::Notice(_)
                        | PmixResponse::Report(_)
                        | PmixResponse::SetChanged { .. }
                ))
            )
        };
        !slot.replies.is_full() && slot.phase == Phase::Ready && !slot.replies.iter().any(is_event)
    }

    /// Returns the code of the event of a rank's death that a client has registered for.
    fn wanted_death(&self, conn: ConnId, slot: &RankSlot) -> Option<i32> {
        let events = &self.conns[conn.index()].events;
        codes_of_death(slot)?.into_iter().find(|&code| events.all.is_some() || events.has(code))
    }

    /// Returns whether a registration of a client has not got the event of a rank's death.
    fn lacks_death(&self, conn: ConnId, slot: &RankSlot) -> bool {
        let got = |codes: [i32; 3]| self.conns[conn.index()].events.got(&codes, true);
        codes_of_death(slot).and_then(got).is_some_and(|got| slot.end > got.exits)
    }

    /// Notes that a client gets the event of a rank's death, which has this number.
    fn death_was_chosen(&mut self, conn: ConnId, (job, rank): (JobId, Rank), number: u32) {
        let slot = self.jobs[job.index()].slot(rank).and_then(|slot| self.ranks.get(slot));
        if let Some(codes) = slot.and_then(codes_of_death) {
            self.conns[conn.index()].events.advance(&codes, true, Got { exits: number, notices: 0 });
        }
    }

    /// Returns the next death of a rank of the client's job, or of a connected one: its number, its job and its rank.
    fn next_death(&self, requester: Requester) -> Option<(u32, JobId, Rank)> {
        let jobs = (0..).map(JobId).zip(&*self.jobs);
        let jobs = jobs
            .filter(|(id, job)| !job.name.is_empty() && self.reaches(requester.job, *id))
            .flat_map(|(id, job)| {
                (0..).map(Rank).zip(&self.ranks[job.slots()]).map(move |(rank, slot)| (slot, id, rank))
            });
        let next = jobs
            .filter(|(slot, ..)| self.lacks_death(requester.conn, slot))
            .min_by_key(|(slot, ..)| slot.end);
        next.map(|(slot, job, rank)| (slot.end, job, rank))
    }

    /// Returns the next change of a listed process set, or of one for a spawned job, with ranks of the client's job, or for a
    /// tool of any that is listed: its serial number, the set, and whether it was retired or has ended. Clients that have
    /// registered for all events do not get it: Open MPI handles such an event as an error.
    fn next_set_change(&self, requester: Requester) -> Option<(u32, Which, bool)> {
        let events = &self.conns[requester.conn.index()].events;
        let is_tool = self.is_tool(&self.jobs[requester.job.index()]);
        // The sets `hydrant://job/…` tell a job what it has spawned.
        let is_of_job = |name: &str| !is_tool && name.starts_with("hydrant://job/");
        let is_meant = |name: &str| !is_of_host(name) || is_of_job(name);
        let wanted = |retired| events.has(set_code(retired));
        self.psets.next_change(self.seen_by(requester), events.sets, is_meant, wanted)
    }

    /// Returns the next notice for a client, and its number.
    fn next_notice(&self, requester: Requester) -> Option<(u32, NameRef)> {
        let numbered = self.names.marked(PREFIX).map(|notice| (self.number(notice), notice));
        let is_next = |&(_, notice): &(u32, NameRef)| self.lacks_notice(notice, requester);
        numbered.filter(is_next).min_by_key(|&(number, _)| number)
    }

    /// Returns the number of a notice.
    fn number(&self, notice: NameRef) -> u32 {
        let number = self.names.name(notice).and_then(|name| name.get(1..)?.first_chunk::<4>());
        number.map_or(0, |number| u32::from_be_bytes(*number))
    }

    pub(super) fn notice(&self, notice: NameRef) -> Option<Notice<'_>> {
        let short = notice_in(&self.names, &self.jobs, notice)?;
        let is_long = self.names.port(notice)?.first().is_some_and(|first| first & IS_LONG != 0);
        if !HOST_FACTS || !is_long {
            return Some(short);
        }
        let (job, _) = short.sender;
        let (_, infos) = self.record_of(self.jobs.get(job.index())?, (LONG, notice.at))?;
        Some(Notice { infos, ..short })
    }

    /// Returns whether events of a job reach another one, unless their range is narrower: jobs that are connected, and every job
    /// and a tool.
    fn reaches(&self, job: JobId, other: JobId) -> bool {
        let is_tool = |job: JobId| self.is_tool(&self.jobs[job.index()]);
        self.connections.connected(job, other) || is_tool(job) || is_tool(other)
    }

    /// Returns whether a registration of a client has not got a notice that it gets.
    // Once in the flash of a board.
    #[inline(never)]
    fn lacks_notice(&self, at: NameRef, requester: Requester) -> bool {
        let Some(notice) = self.notice(at) else { return false };
        let got = self.got(&notice, requester.conn);
        got.is_some_and(|got| self.number(at) > got) && self.is_for_client(&notice, requester)
    }

    /// Returns the number of the last notice that a client has got by each of its registrations for one, if it has any.
    fn got(&self, notice: &Notice<'_>, conn: ConnId) -> Option<u32> {
        let Conn { events, pmix, .. } = &self.conns[conn.index()];
        if HOST_FACTS && notice.range == range::REMOVAL {
            return pmix.filter(|dialect| dialect.major >= REMOVES).map(|_| events.removals);
        }
        events.got(&[notice.code], notice.is_for_all()).map(|got| got.notices)
    }

    /// Notes that a client gets a notice, which has this number, and that the notice does not give way until then.
    fn notice_was_chosen(&mut self, conn: ConnId, at: NameRef, number: u32) {
        let Some(notice) = self.notice(at) else { return };
        let (code, for_all) = (notice.code, notice.is_for_all());
        let is_removal = HOST_FACTS && notice.range == range::REMOVAL;
        let events = &mut self.conns[conn.index()].events;
        if is_removal {
            events.removals = number;
        } else {
            events.advance(&[code], for_all, Got { exits: 0, notices: number });
        }
        self.names.give_way(at, false);
    }

    /// Returns whether a process is in the range of a notice.
    fn is_in_range(&self, notice: &Notice<'_>, job: JobId, rank: Rank) -> bool {
        let &Notice { sender, range, ref infos, .. } = notice;
        let reaches = match range {
            range::BOOTSTRAP => false,
            _ if HOST_FACTS && sender.0 == NOBODY => self.is_tool(&self.jobs[job.index()]),
            range::JOB => sender.0 == job,
            range::CUSTOM => {
                let name = self.jobs[job.index()].name.as_bytes();
                let listed = infos.find(keys::EVENT_CUSTOM_RANGE);
                listed.is_some_and(|listed| listed.contains(name, rank.0))
            }
            _ => self.reaches(sender.0, job),
        };
        reaches && sender != (job, rank)
    }

    /// Returns whether a client's notice is kept for processes that register later. One for some processes is not once all of these
    /// have got it.
    fn is_kept(&self, notice: NameRef) -> bool {
        let Some(notice) = self.notice(notice).filter(Notice::is_for_all) else { return false };
        // A board has no room for the code that tells, and keeps all of clients.
        if !HOST_FACTS {
            return true;
        }
        if matches!(notice.range, range::BOOTSTRAP | range::REMOVAL)
            || notice.infos.is_set(keys::EVENT_DO_NOT_CACHE)
        {
            return false;
        }
        let is_new = |slot: &RankSlot| {
            slot.node == self.links.node() && slot.phase == RankPhase::New && slot.exit.is_none()
        };
        let mut jobs = (0..).map(JobId).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty());
        let may_register = |conn: ConnId| {
            self.conns[conn.index()].phase == Phase::Ready
                && self.got(&notice, conn).is_none()
                && self.requester(conn).is_some_and(|requester| self.is_for_client(&notice, requester))
        };
        notice.range != range::CUSTOM
            || jobs.any(|(id, job)| {
                let mut ranks = (0..).map(Rank).zip(&self.ranks[job.slots()]);
                ranks.any(|(rank, slot)| is_new(slot) && self.is_in_range(&notice, id, rank))
            })
            || (0..self.conns_end).map(ConnId).any(may_register)
    }

    /// Returns whether a client is in the range of a notice, and has its encoding.
    fn is_for_client(&self, notice: &Notice<'_>, requester: Requester) -> bool {
        let dialect = self.conns[requester.conn.index()].pmix;
        self.is_in_range(notice, requester.job, requester.rank)
            && dialect.is_some_and(|dialect| dialect.integers == notice.integers)
    }

    /// Drops a notice that was sent to one client or neighbour, or that nobody waits for, if no other one still has to get it. It
    /// stays if it is kept for those that register later, and gives way to what needs its room.
    // Once in the flash of a board.
    #[inline(never)]
    pub(in super::super) fn notice_was_sent(&mut self, notice: NameRef) {
        if self.is_said(notice) {
            return;
        }
        let number = self.number(notice);
        let waits = |conn: ConnId| {
            let slot = &self.conns[conn.index()];
            let is_next = |requester| self.lacks_notice(notice, requester);
            slot.replies
                .iter()
                .any(|reply| reply.state == ReplyState::Ready(Response::Pmix(PmixResponse::Notice(notice))))
                || slot.pmix.is_some() && self.requester(conn).is_some_and(is_next)
        };
        let mut links = (0..).map_while(|at| self.links.get(at));
        let pending = links.any(|link| number > link.notices_sent && self.is_for(link, notice));
        if pending || (0..self.conns_end).map(ConnId).any(waits) {
            return;
        }
        if self.is_kept(notice) || self.keep_end(notice) {
            self.names.give_way(notice, true);
        } else {
            self.names.withdraw_this(notice);
        }
    }

    /// Writes the event of a rank's death.
    pub(super) fn write_death(&self, id: ConnId, job: JobId, rank: Rank, writer: &mut Writer<'_>) {
        let state = &self.jobs[job.index()];
        let code = state.slot(rank).and_then(|slot| self.wanted_death(id, self.ranks.get(slot)?));
        let name = state.name.as_bytes();
        writer.event(code.unwrap_or(event::NO_FINALIZE), name, rank.0);
        writer.array(1);
        writer.info(AFFECTED, kind::PROC);
        writer.proc(name, rank.0);
    }

    /// Writes the event of a process set: its name and, of a new one, its members as far as there is room for all.
    pub(super) fn write_set_change(&self, id: ConnId, which: Which, retired: bool, writer: &mut Writer<'_>) {
        let Some(requester) = self.requester(id) else { return };
        let job = self.jobs[requester.job.index()].name.as_bytes();
        let name = |job: JobId| self.jobs[job.index()].name.as_bytes();
        let members = || self.members(self.asker(requester), which);
        let len: usize = members().map(|(job, _)| name(job).len() + PROC_REST).sum();
        let listed = !retired && len + EVENT_REST <= self.limits.reply_max();
        writer.event(set_code(retired), job, SERVER);
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

    /// Returns the tag of the message with a notice.
    pub(super) fn notice_tag(&self, notice: NameRef) -> u32 {
        let is_removal = |notice: Notice<'_>| notice.range == range::REMOVAL;
        if HOST_FACTS && self.notice(notice).is_some_and(is_removal) { REMOVED_TAG } else { 0 }
    }

    /// Writes the event of a notice, or that a key is removed.
    pub(super) fn write_notice(&self, notice: NameRef, writer: &mut Writer<'_>) {
        let Some(Notice { sender: (job, rank), range, code, infos, .. }) = self.notice(notice) else {
            return;
        };
        let sender = self.jobs.get(job.index()).map_or(&[][..], |job| job.name.as_bytes());
        if HOST_FACTS && range == range::REMOVAL {
            writer.single();
            writer.proc(sender, rank.0);
            writer.single();
            writer.byte(code as u8);
            writer.single();
            return writer.string(infos.iter().next().map_or(&[][..], |info| info.key));
        }
        // An event of the server about a job is from the job's rank 0, as PRRTE sends it.
        let of_job = infos.find(AFFECTED).filter(|_| rank.0 == SERVER).and_then(|info| info.as_proc());
        let (source, rank) = of_job.map_or((sender, rank), |proc| (proc.namespace, Rank(0)));
        writer.event(code, source, rank.0);
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
