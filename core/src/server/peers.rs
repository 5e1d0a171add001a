//! Messages to and from neighbouring nodes: records, collectives, exits.
//!
//! Each link has a cursor in the log. Before an arrival or a release, the records from the cursor on are sent over the
//! link. The parent gets those of this subtree, a child gets all others. `collective.rs` decides when. Large data are sent in
//! pieces while more arrive, so that a tree of any depth takes little longer than one receipt of all data.
//!
//! Each link has a cursor into the log. The records behind the cursor precede each message, and go in pieces while a fence is in
//! progress: of 4 KiB and more for little data, of 16 KiB and more for a megabyte. A node sends its own records once and receives
//! each other record once. A blocked link needs no queue. Links must keep their order and nothing else.
//!
//! Each node is told of each exit, because a rank of it may wait for the one that has ended. Failures are sent at once. Other exits
//! wait 50 ms for more, and 1 ms longer for each 4,096 ranks, because each message costs a walk over all ranks.

use core::ops::Range;

use super::Server;
use super::collective::RING_COUNT;
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::{LAZY_FENCES, PEER_MESSAGE_MAX, exit_delay};
use crate::peer::links::Link;
use crate::peer::message::{
    self, Collective, End, ExitReport, Head, Item, JobRef, MemberSet, RecordKind, Writer,
};
use crate::state::{Job, RankPhase};
use crate::store::log::Record;
use crate::tables::kvs::{Kind, Owner};
use crate::tables::tracker::{FanIn, Step};
use crate::time::Time;
use crate::trace::Exit;

/// Least length of a piece of records, in bytes of the log.
const PIECE_MIN: u32 = 4096;
/// The square of the best length of a piece is so many bytes times all data. Short pieces cost more messages, and long ones
/// are waited for at each level of the tree. A message costs as much as 2,000 bytes of data, and there are about 8 levels
/// up and down.
const PIECE_FACTOR: u32 = 2000 / 8;
/// Pieces in the longest message. A node that is released has all records, and passes on large messages late.
const MESSAGE_PIECES: u32 = 3;

/// Lengths of records, in bytes of the log, from which on they are a piece.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    /// Square of the best length.
    square: u32,
    /// Length that is a piece of any data.
    most: u32,
}

impl Pieces {
    /// Returns whether records of this length are a piece.
    fn is_one(self, len: u32) -> bool {
        len >= self.most || len >= PIECE_MIN && len.saturating_mul(len) >= self.square
    }
}

/// Last byte of the keys of data that PMIx ranks have put for other nodes.
pub(super) const REMOTE: u8 = 2;

/// Last byte of the keys of what PMIx ranks give to the other members of a group.
pub(super) const CONTRIBUTION: u8 = 3;

/// Last byte of the keys of what PMIx ranks have put for other nodes, but not committed, when they arrive in a group.
pub(super) const ENDPOINTS: u8 = 5;

/// Last byte of the keys of what is to become of a group that loses members.
pub(super) const TERMS: u8 = 6;

/// Last byte of the keys of the INFOs of long notices.
#[cfg(feature = "pmix")]
pub(super) const LONG: u8 = 7;

/// Returns whether that is the key of data for other nodes.
fn is_remote(key: &[u8]) -> bool {
    matches!(key.last(), Some(&(REMOTE | CONTRIBUTION | ENDPOINTS | TERMS)))
}

impl Server<'_> {
    /// Marks the exit of a process, or the loss of a rank that is cut off from PMI, as pending for all neighbours. Ranks
    /// mostly end together, and each node is told of each: exits without failure wait for others.
    pub(super) fn report_exit(&mut self, now: Time, index: usize) {
        let slot = &mut self.ranks[index];
        if slot.end != 0 {
            return;
        }
        self.exits = self.exits.wrapping_add(1);
        slot.end = self.exits;
        let failed = slot.dead || slot.exit != Some(Exit::Code(0));
        if failed {
            self.links.wake_all();
        } else if self.links.are_any() {
            self.schedule(now, exit_delay(&self.limits));
        }
        #[cfg(feature = "pmix")]
        if self.ranks[index].dead {
            self.events_are_due();
        }
        #[cfg(feature = "pmix")]
        self.end_bootstraps();
    }

    /// Writes the next message for a neighbour. Returns the neighbour and the length.
    pub(super) fn next_peer_message(&mut self, buf: &mut [u8]) -> Option<(u32, usize)> {
        while let Some(at) = self.links.next_ready() {
            let node = self.links.get(at)?.node;
            if let Some(len) = self.write_message(at, buf) {
                return Some((node, len));
            }
            self.links.get_mut(at)?.message_pending = false;
        }
        None
    }

    fn write_message(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let link = self.links.get(at)?;
        let up = link.up;
        // Between the messages of an answer, no fence may pass it.
        if LAZY_FENCES
            && link.fetch_pending
            && let Some(len) = self.write_fetch(at, buf)
        {
            return Some(len);
        }
        let Some(((step, due), job, collective, group)) = self.next_collective(at, up) else {
            #[cfg(feature = "cluster")]
            if let Some(len) = self.write_echo(at, buf) {
                return Some(len);
            }
            if let Some(len) = self.write_piece(at, buf) {
                return Some(len);
            }
            // Data of a rank are sent before its exit.
            #[cfg(feature = "pmix")]
            if let Some(len) = self.write_modex(at, buf) {
                return Some(len);
            }
            #[cfg(feature = "pmix")]
            if let Some(len) = self.write_notice_for(at, buf) {
                return Some(len);
            }
            return self.write_exits(at, buf);
        };
        let whose = self.jobs[job.index()].reference(job);
        let collects = due > 0;
        let end = |end| Head::End { job: whose, at: collective, end };
        let head = match step {
            Step::Regular if up => Head::Arrive { job: whose, at: collective, collects },
            Step::Regular => Head::Release { job: whose, at: collective, collects },
            Step::End => end(End::Ended),
            Step::Acknowledge => end(End::Acknowledged),
            Step::Expire => {
                let tracker = self.tracker_mut(job, collective, group)?;
                end(End::Wanted { arrived: tracker.fan_in == FanIn::Sent })
            }
        };
        let with_records =
            if collective == Collective::Fence { self.write_with_records(at, due, head, buf) } else { None };
        let len = match with_records {
            Some(len) => len,
            None => {
                if let Some(len) = self.write_records(at, due, buf) {
                    return Some(len);
                }
                let mut writer = Writer::new(buf, head)?;
                if let Some(group) = group {
                    // A buffer of `Limits::output_max` bytes holds the members of any group.
                    let lost = (step == Step::Regular).then_some(up);
                    self.push_members(&mut writer, group, lost)?;
                }
                writer.finish().len()
            }
        };
        if let Some(tracker) = self.tracker_mut(job, collective, group) {
            tracker.mark_sent(step, at, up);
        }
        if let Some(group) = group {
            self.groups.free_if_sent(group);
        }
        Some(len)
    }

    /// Writes the arrival or release of a fence together with the records before it, if those are pairs of its job and all
    /// fit into one message. Few ranks take half the messages then.
    #[cold]
    fn write_with_records(&mut self, at: usize, due: u32, head: Head, buf: &mut [u8]) -> Option<usize> {
        let from = self.links.get(at)?.cursor;
        let len = due.saturating_sub(from);
        let is_long = len as usize > self.limits.peer_message_max();
        if len == 0 || is_long || self.pieces(from).is_one(len / MESSAGE_PIECES) {
            return None;
        }
        let (len, cursor) = self.write_stretch(at, from..due, Some(head), false, buf)?;
        if cursor < due {
            return None;
        }
        self.links.get_mut(at)?.cursor = cursor;
        len
    }

    /// Writes records ahead of the arrival or release of a fence that is in progress, if many are unsent. A wide tree
    /// would pass on whole logs one level after the other otherwise.
    #[cold]
    fn write_piece(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let log = self.kvs.written();
        let from = self.links.get(at)?.cursor;
        let unsent = log.wrapping_sub(from);
        let is_due = unsent > 0 && self.pieces(from).is_one(unsent);
        if is_due && self.is_collecting() { self.write_records(at, log, buf) } else { None }
    }

    /// Returns which pieces suit the job whose records are unsent from an offset on. Each rank is taken to have as much data as the
    /// first of them. Fences that move no records have no pieces.
    fn pieces(&self, from: u32) -> Pieces {
        let of_job = |owner: usize| {
            let job = &self.jobs[self.job_of_slot(owner)?.index()];
            (!job.lazy).then(|| self.ranks[owner].used.bytes.saturating_mul(job.size))
        };
        let all = self.kvs.step(from).and_then(|(record, _)| of_job(record.owner as usize));
        Pieces {
            square: all.map_or(u32::MAX, |all| all.saturating_mul(PIECE_FACTOR)),
            most: self.limits.peer_message_max().min(PEER_MESSAGE_MAX) as u32 / 2,
        }
    }

    /// Returns whether a fence of a whole job that records travel with is in progress.
    pub(super) fn is_collecting(&self) -> bool {
        self.jobs.iter().any(|job| job.fence_tracker.collects)
    }

    /// Appends the members of a group: in an arrival (`up`) behind those that are known to be dead, in a release behind the outcome
    /// and those that are lost.
    fn push_members(&self, writer: &mut Writer<'_>, at: u32, up: Option<bool>) -> Option<()> {
        if let Some(up) = up {
            let is_dead = |slot: u32| self.ranks[slot as usize].dead && self.groups.has_member(at, slot);
            let is_lost = |slot: u32| if up { is_dead(slot) } else { self.groups.is_lost(at, slot) };
            let with_lost = |(_, job): &(u32, &Job)| job.slots().any(|slot| is_lost(slot as u32));
            let sets = self.living_jobs().filter(with_lost).count() as u32;
            let outcome = self.groups.get(at)?.outcome;
            (up || writer.push(&outcome)).then_some(())?;
            writer.push(&sets).then_some(())?;
            self.push_sets(writer, &is_lost)?;
        }
        self.push_sets(writer, &|slot| self.groups.has_member(at, slot))
    }

    /// Appends a set for each job with ranks whose slots are in it.
    fn push_sets(&self, writer: &mut Writer<'_>, contains: &dyn Fn(u32) -> bool) -> Option<()> {
        for (id, job) in self.living_jobs() {
            let ranks = (0..job.size).filter(|rank| contains(job.first + rank));
            if ranks.clone().next().is_some() {
                writer.push_members(job.reference(JobId(id)), ranks).then_some(())?;
            }
        }
        Some(())
    }

    fn living_jobs(&self) -> impl Iterator<Item = (u32, &Job)> {
        (0u32..).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty())
    }

    /// Returns whether all jobs of the members in a message are registered.
    pub(super) fn are_current(&self, body: &[u8]) -> Result<bool, Fault> {
        message::parts::<MemberSet<'_>>(body)
            .try_fold(true, |all, set| set.map(|set| all && self.is_current(set.job)))
            .ok_or(Fault::BadPeer)
    }

    /// Writes records from the cursor of a link up to `due`, as many as fit into one message. Returns `None` without
    /// any.
    pub(super) fn write_records(&mut self, at: usize, due: u32, buf: &mut [u8]) -> Option<usize> {
        let from = self.links.get(at)?.cursor;
        let (len, cursor) = self.write_stretch(at, from..due, None, false, buf)?;
        self.links.get_mut(at)?.cursor = cursor;
        len
    }

    /// Writes records of a stretch of the log for a link, as many as fit into one message. With the head of an arrival or
    /// release, the message has that head, and the pairs of its job up to the first other record. For an answer, only the
    /// pairs that it is about are written. Returns the length of the message, if it has a record or was given its head, and
    /// the offset of the next record.
    pub(super) fn write_stretch(
        &self,
        at: usize,
        stretch: Range<u32>,
        begins: Option<Head>,
        is_answer: bool,
        buf: &mut [u8],
    ) -> Option<(Option<usize>, u32)> {
        let room = buf.len().min(self.limits.peer_message_max());
        let pieces = (!is_answer).then(|| self.pieces(stretch.start));
        let mut cursor = stretch.start;
        let mut found: Option<(Head, Writer<'_>)> = None;
        let mut buf = Some(buf);
        if let Some(head @ (Head::Arrive { job, .. } | Head::Release { job, .. })) = begins {
            let writer = Writer::new(buf.take()?.get_mut(..room)?, head)?;
            found = Some((Head::Records { job, of: RecordKind::Pair }, writer));
        }
        while cursor < stretch.end {
            let Some((record, next)) = self.kvs.step(cursor) else { break };
            if let Some((head, rank)) = self.head_for(at, cursor, &record, is_answer)
                && !record.wanted
            {
                let item = Item { rank, key: record.key, value: record.value };
                match &mut found {
                    Some((known, writer)) => {
                        let len = writer.len() as u32;
                        let is_full = pieces.is_some_and(|pieces| pieces.is_one(len / MESSAGE_PIECES));
                        if *known != head || is_full || !writer.push(&item) {
                            break;
                        }
                    }
                    None => {
                        let mut writer = Writer::new(buf.take()?.get_mut(..room)?, head)?;
                        // A buffer of `Limits::output_max` bytes holds any record.
                        if !writer.push(&item) {
                            return None;
                        }
                        found = Some((head, writer));
                    }
                }
            }
            cursor = next;
        }
        Some((found.map(|(_, writer)| writer.finish().len()), cursor))
    }

    /// Returns the head and the rank of a record, or `None` if it is not sent over this link.
    fn head_for(&self, at: usize, offset: u32, record: &Record<'_>, is_answer: bool) -> Option<(Head, u32)> {
        let Record { space, owner, key, .. } = *record;
        let origin = self.ranks.get(owner as usize)?.node;
        if !self.links.get(at)?.carries(origin) {
            return None;
        }
        let id = self.job_of_slot(owner as usize)?;
        let job = &self.jobs[id.index()];
        let of = match () {
            () if job.spaces.is(Kind::Kvs, space) => {
                if LAZY_FENCES
                    && (job.lazy || is_answer)
                    && !self.is_fetched(at, job, offset, record, is_answer)
                {
                    return None;
                }
                RecordKind::Pair
            }
            () if is_answer => return None,
            () if job.spaces.is(Kind::Ring, space) => RecordKind::Ring,
            () if job.spaces.is(Kind::Commit, space) && is_remote(key) => RecordKind::Commit,
            () => return None,
        };
        Some((Head::Records { job: job.reference(id), of }, owner - job.first))
    }

    /// Writes exits that the neighbour has not been sent, in the order of the ranks' slots. A message that is full is
    /// continued by the next one.
    fn write_exits(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let link = self.links.get(at)?.clone();
        let mut cursor = link.exits;
        let mut writer = Writer::new(buf, Head::Exits)?;
        let mut any = false;
        let mut job = None;
        'passes: while !any && cursor.start(self.exits) {
            for index in cursor.slot()..self.ranks_end as usize {
                let slot = &self.ranks[index];
                if !cursor.sends(slot.end) || !link.carries(slot.node) {
                    continue;
                }
                // Ranks of a job follow each other.
                let is_of = |job: JobId| self.jobs[job.index()].slots().contains(&index);
                job = job.filter(|&job| is_of(job)).or_else(|| self.job_of_slot(index));
                // Exits of deregistered jobs are not sent.
                let Some(id) = job else { continue };
                let of = &self.jobs[id.index()];
                let report = ExitReport {
                    job: of.reference(id),
                    rank: index as u32 - of.first,
                    // A rank that is cut off from PMI has none.
                    exit: slot.exit.unwrap_or(Exit::Lost),
                    joined: slot.phase != RankPhase::New,
                    dead: slot.dead,
                };
                if !writer.push(&report) {
                    cursor.pause(index as u32);
                    break 'passes;
                }
                any = true;
            }
            cursor.finish();
        }
        self.links.get_mut(at)?.exits = cursor;
        any.then(|| writer.finish().len())
    }

    /// Applies a message from a neighbour.
    // As a part of `handle_event`, it would take stack from every input.
    #[inline(never)]
    pub(super) fn receive_message(&mut self, now: Time, node: u32, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.links.to(node).ok_or(Fault::BadNode)?;
        let link = self.links.get(at).ok_or(Fault::BadNode)?.clone();
        if link.awaited {
            return Err(Fault::BadPeer);
        }
        if link.lost {
            return Ok(());
        }
        let (head, body) = message::split(bytes).ok_or(Fault::BadPeer)?;
        match head {
            Head::Exits => self.receive_exits(now, &link, body),
            #[cfg(feature = "cluster")]
            Head::Echo { number } => self.receive_echo(at, number),
            // The job may be deregistered here before the sender's host deregisters it.
            Head::Records { job, .. }
            | Head::Arrive { job, .. }
            | Head::Release { job, .. }
            | Head::End { job, .. }
            | Head::Get { job, .. }
            | Head::Renew { job, .. }
            | Head::Notice { job, .. }
            | Head::Fetch { job }
            | Head::Fetched { job }
                if !self.is_current(job) =>
            {
                Ok(())
            }
            Head::Records { job, of } => self.receive_records(&link, job.job, of, body),
            Head::Arrive { job, at: collective, collects } if !link.up => {
                self.receive_arrival(&link, at, job.job, (collective, collects), body)
            }
            Head::Release { job, at: collective, collects } if link.up => {
                self.receive_release(&link, job.job, (collective, collects), body)
            }
            Head::End { job, at: collective, end } => self.receive_end(at, job.job, (collective, end), body),
            #[cfg(feature = "pmix")]
            Head::Get { job, rank } => self.receive_get(at, job.job, rank),
            #[cfg(feature = "pmix")]
            Head::Renew { job, rank } => self.receive_renew(at, job.job, rank),
            #[cfg(feature = "pmix")]
            Head::Notice { job, rank } => {
                self.remote_slot(&link, job.job, rank.0)?;
                self.receive_notice(now, job.job, rank, body)
            }
            #[cfg(not(feature = "pmix"))]
            Head::Get { .. } | Head::Renew { .. } | Head::Notice { .. } => Err(Fault::BadPeer),
            Head::Fetch { .. } | Head::Fetched { .. } if !LAZY_FENCES => Err(Fault::BadPeer),
            Head::Fetch { job } => self.receive_fetch(at, job.job, body),
            Head::Fetched { job } => self.receive_fetched(at, job.job, body),
            Head::Arrive { .. } | Head::Release { .. } => Err(Fault::BadPeer),
        }
    }

    /// Returns whether the job is registered and is not a later job with the same number.
    fn is_current(&self, whose: JobRef) -> bool {
        self.job(whose.job).is_ok_and(|job| job.hash == whose.name)
    }

    /// Returns the slot of a rank, if that neighbour may send messages about it.
    fn remote_slot(&self, link: &Link, job: JobId, rank: u32) -> Result<usize, Fault> {
        let slot = self.job(job)?.slot(Rank(rank)).ok_or(Fault::BadPeer)?;
        if link.carries(self.ranks[slot].node) { Err(Fault::BadPeer) } else { Ok(slot) }
    }

    /// Applies records that came by themselves, or with an arrival or release. An error leaves everything as it was.
    pub(super) fn receive_records(
        &mut self,
        link: &Link,
        job: JobId,
        of: RecordKind,
        body: &[u8],
    ) -> Result<(), Fault> {
        for item in message::parts::<Item<'_>>(body) {
            let item = item.ok_or(Fault::BadPeer)?;
            self.remote_slot(link, job, item.rank)?;
            // Keys of both begin with the rank and end with one more byte.
            let detail = || item.key.strip_prefix(&item.rank.to_le_bytes());
            let is_sound = match of {
                RecordKind::Pair => true,
                // Texts come from clients, whose messages end at NUL.
                RecordKind::Ring => detail().is_some_and(|side| {
                    matches!(side, [b'l' | b'r']) && !item.value.contains(&0) || *side == [RING_COUNT]
                }),
                RecordKind::Commit => detail().is_some_and(|rest| {
                    matches!(rest, [REMOTE] | [_, _, _, _, CONTRIBUTION | ENDPOINTS | TERMS])
                }),
                RecordKind::Newest => detail() == Some(&[REMOTE]),
            };
            if !is_sound {
                return Err(Fault::BadPeer);
            }
        }
        let items = || message::parts::<Item<'_>>(body).flatten();
        let state = &self.jobs[job.index()];
        let kind = match of {
            RecordKind::Pair => Kind::Kvs,
            RecordKind::Ring => Kind::Ring,
            RecordKind::Commit | RecordKind::Newest => Kind::Commit,
        };
        let space = (state.spaces, kind);
        let quota = state.quota;
        let lengths = items().map(|item| (item.key, item.value.len()));
        let lack = self.kvs.lack_for_copies(space, lengths);
        lack.and_then(|lack| self.find_room(lack)).map_err(|why| self.fault(why, Fault::BadPeer))?;
        for Item { rank, key, value } in items() {
            let index = self.remote_slot(link, job, rank)?;
            // Data may come by a fence and at the request of this node.
            #[cfg(feature = "pmix")]
            let is_commit = kind == Kind::Commit && key.last() == Some(&REMOTE);
            #[cfg(feature = "pmix")]
            if is_commit && (value.is_empty() || self.is_known_commit(job, Rank(rank), value)) {
                if of == RecordKind::Newest {
                    self.received_newest(job, Rank(rank), index);
                }
                continue;
            }
            let owner = Owner { id: index as u32, used: &mut self.ranks[index].used, quota };
            let _ = self.kvs.copy(space, owner, key, [value, &[]]);
            #[cfg(feature = "pmix")]
            if kind == Kind::Commit && key.last() == Some(&ENDPOINTS) {
                self.answer_gets(job, Rank(rank));
            }
            #[cfg(feature = "pmix")]
            if is_commit {
                self.received_commit(job, Rank(rank), index);
                if of == RecordKind::Newest {
                    self.received_newest(job, Rank(rank), index);
                }
            }
            // A rank that has died has left the ring.
            let is_ring_part = of == RecordKind::Ring && key.last() == Some(&RING_COUNT);
            if is_ring_part && !self.ranks[index].excluded {
                self.ranks[index].ring = self.ring_part(job, rank, value);
            }
        }
        // Pairs arrive only for a fence, also before the first arrival. Other data may have been asked for.
        let state = &mut self.jobs[job.index()];
        state.fence_tracker.collects |= of == RecordKind::Pair && !state.lazy;
        if self.is_collecting() {
            // Hundreds of children would be looked at for each arrival.
            let least = (self.limits.peer_message_max().min(PEER_MESSAGE_MAX) as u32 / 2).min(PIECE_MIN);
            self.links.wake_behind(self.kvs.written(), least);
        }
        Ok(())
    }

    /// Records the end of a rank of another node.
    pub(super) fn end_remote(&mut self, now: Time, job: JobId, index: usize, (exit, dead): (Exit, bool)) {
        let quota = self.jobs[job.index()].quota;
        let slot = &mut self.ranks[index];
        (slot.exit, slot.dead) = (Some(exit), dead);
        self.kvs.release(Owner { id: index as u32, used: &mut slot.used, quota });
        self.jobs[job.index()].exited += 1;
        self.report_exit(now, index);
    }

    fn receive_exits(&mut self, now: Time, link: &Link, body: &[u8]) -> Result<(), Fault> {
        for gone in message::parts::<ExitReport>(body) {
            let ExitReport { job, rank, .. } = gone.ok_or(Fault::BadPeer)?;
            if self.is_current(job) {
                self.remote_slot(link, job.job, rank)?;
            }
        }
        // Checked once for all exits of a job that follow each other, because a check walks the ranks of the job.
        let mut ended: Option<JobId> = None;
        for ExitReport { job, rank, exit, joined, dead } in message::parts::<ExitReport>(body).flatten() {
            if !self.is_current(job) {
                continue;
            }
            let job = job.job;
            let index = self.remote_slot(link, job, rank)?;
            if self.ranks[index].exit.is_some() {
                continue;
            }
            if let Some(before) = ended.replace(job).filter(|&before| before != job) {
                self.check_for_lost(now, before);
            }
            if joined {
                self.ranks[index].phase = RankPhase::Finalized;
            }
            self.end_remote(now, job, index, (exit, dead));
            let cleanup = self.jobs[job.index()].cleanup;
            #[cfg(feature = "pmix")]
            self.end_gets_of(job, Some(Rank(rank)));
            // Collectives do not wait for a rank that was killed alone.
            if !cleanup || dead {
                self.exclude(job, Rank(rank));
            }
        }
        if let Some(job) = ended {
            self.check_for_lost(now, job);
        }
        Ok(())
    }
}

impl Job {
    /// Returns the reference to this job for other nodes.
    pub(super) fn reference(&self, job: JobId) -> JobRef {
        JobRef { job, name: self.hash }
    }
}
