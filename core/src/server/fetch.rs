//! Lazy fences: pairs that nodes ask each other for when a client gets them.
//!
//! 1. A get of a key that is not here waits ([`Server::fetch`]), and this node asks for all pairs of the ranks on the
//!    node of the hint. Without a hint, and if that node does not have the key, it asks for those of all ranks.
//! 2. A node that is asked ([`Server::receive_fetch`]) asks in turn for what it lacks.
//! 3. It answers when it lacks nothing ([`Server::write_fetch`]): the records before the cursor of the link, those behind
//!    it, and [`Head::Fetched`]. Later records of these ranks precede each fence, because the link then carries them.
//! 4. The gets are answered ([`Server::receive_fetched`]).
//!
//! No fence is passed over a link between the messages of an answer, and of the records before the cursor only the
//! newest of a key is sent. A node therefore never has an older value of a key than its last fence requires.

#[cfg(feature = "cluster")]
use core::ops::Range;

use super::Server;
use super::dispatch::Requester;
use crate::fault::{Fault, Refusal};
use crate::ids::{ConnId, JobId, Rank};
use crate::limits::KEY_MAX;
use crate::peer::links::Answer;
use crate::peer::message::{self, Head, RankRange, Writer};
use crate::state::{Job, ReplyState, Response};
use crate::store::log::Record;
use crate::tables::kvs::Kind;
use crate::tables::modex::Set;
use crate::wire::Op;

/// Returns whether a node of an adaptive job that asks so many of the others asks for all pairs.
pub(super) fn is_most(asked: u32, others: u32) -> bool {
    asked > others / 4
}

impl Server<'_> {
    /// Answers a get of a key of a lazy job that this node does not have: the get waits if another node may have it.
    #[cold]
    pub(super) fn fetch(
        &mut self,
        requester: Requester,
        job: JobId,
        key: &[u8],
        source: Option<u32>,
    ) -> Result<ReplyState, Refusal> {
        let source = source.and_then(|rank| self.jobs[job.index()].slot(Rank(rank)));
        let Some(source) = self.ask(job, source.map(|slot| slot as u32)) else {
            return Ok(ReplyState::Ready(Response::Missing(Op::Get)));
        };
        // In the space of the requester's job, which outlives the wait and is charged for the key.
        let space = (self.jobs[requester.job.index()].spaces, Kind::Wanted);
        let key = match self.kvs.find(space, key)? {
            Some(record) => record,
            None => self.keep(requester, Kind::Wanted, key, None)?.0,
        };
        self.gets += 1;
        Ok(ReplyState::Fetch { job, key, source })
    }

    /// Asks for the pairs of the rank in the slot `source`, or of all ranks if those are here or there is no such rank.
    /// Returns the rank that is asked for, if it is one, or `None` if the pairs of all ranks are here.
    fn ask(&mut self, job: JobId, source: Option<u32>) -> Option<Option<u32>> {
        let state = &self.jobs[job.index()];
        if state.fetched == state.size - state.local {
            return None;
        }
        if let Some(source) = source.filter(|&slot| self.lacks(slot)) {
            let node = self.ranks[source as usize].node;
            if self.ask_ranks(job, Some(node)) {
                self.jobs[job.index()].nodes_asked += 1;
            }
            let state = &self.jobs[job.index()];
            if state.adaptive && !state.all_asked && is_most(state.nodes_asked, self.other_nodes()) {
                self.ask_all(job);
            }
            return Some(Some(source));
        }
        if !self.jobs[job.index()].all_asked {
            self.ask_all(job);
        }
        Some(None)
    }

    /// Returns the number of other nodes, without the head.
    pub(super) fn other_nodes(&self) -> u32 {
        self.links.tree().nodes().saturating_sub(2)
    }

    fn ask_all(&mut self, job: JobId) {
        self.jobs[job.index()].all_asked = true;
        self.ask_ranks(job, None);
    }

    /// Asks for the pairs of the ranks on a node, or of all nodes. Returns whether a request is new.
    fn ask_ranks(&mut self, job: JobId, node: Option<u32>) -> bool {
        let mut is_new = false;
        for slot in self.jobs[job.index()].slots() {
            if node.is_none_or(|node| self.ranks[slot].node == node) {
                is_new |= self.ask_for_pairs(slot as u32);
            }
        }
        is_new
    }

    /// Returns whether this node does not have all pairs of the rank in a slot.
    #[inline(never)]
    fn lacks(&self, slot: u32) -> bool {
        let node = self.ranks.get(slot as usize).map(|rank| rank.node);
        let link = node.and_then(|node| self.links.towards(node));
        link.is_some_and(|link| !self.modex.contains(link, Set::Complete, slot))
    }

    /// Asks for the pairs of a rank if this node lacks them. Returns false if it does not, or has asked for them.
    fn ask_for_pairs(&mut self, slot: u32) -> bool {
        let Some(link) = self.links.towards(self.ranks[slot as usize].node) else { return false };
        if self.modex.contains(link, Set::Complete, slot) || !self.modex.insert(link, Set::Asked, slot) {
            return false;
        }
        self.modex.insert(link, Set::Pending, slot);
        self.links.wake_fetch(link);
        true
    }

    /// Returns whether a pair is sent over a link of a lazy job.
    #[cold]
    pub(super) fn is_fetched(
        &self,
        at: usize,
        job: &Job,
        offset: u32,
        record: &Record<'_>,
        is_answer: bool,
    ) -> bool {
        if !is_answer {
            return self.modex.contains(at, Set::Complete, record.owner);
        }
        // A pair that another rank has put later may be unknown to the neighbour.
        let newest = self.kvs.find((job.spaces, Kind::Kvs), record.key).ok().flatten().unwrap_or(offset);
        let is_newest =
            newest == offset || self.kvs.record(newest).is_some_and(|newest| newest.owner != record.owner);
        is_newest && self.modex.contains(at, Set::Pending, record.owner)
    }

    /// A neighbour asks for the pairs of ranks.
    #[cold]
    pub(super) fn receive_fetch(&mut self, at: usize, job: JobId, body: &[u8]) -> Result<(), Fault> {
        if !self.jobs[job.index()].lazy {
            return Err(Fault::BadPeer);
        }
        self.for_ranks(job, body, &mut |server, slot| server.is_sent_over(at, slot))?;
        self.for_ranks(job, body, &mut |server, slot| {
            let modex = &mut server.modex;
            if !modex.contains(at, Set::Complete, slot) && !modex.contains(at, Set::Pending, slot) {
                modex.insert(at, Set::Asked, slot);
            }
            server.ask_for_pairs(slot);
            true
        })?;
        self.links.wake_fetch(at);
        Ok(())
    }

    /// A neighbour has sent all pairs of ranks.
    #[cold]
    pub(super) fn receive_fetched(&mut self, at: usize, job: JobId, body: &[u8]) -> Result<(), Fault> {
        self.for_ranks(job, body, &mut |server, slot| {
            !server.is_sent_over(at, slot)
                && server.modex.contains(at, Set::Asked, slot)
                && !server.modex.contains(at, Set::Pending, slot)
        })?;
        self.for_ranks(job, body, &mut |server, slot| {
            server.modex.remove(at, Set::Asked, slot);
            server.modex.insert(at, Set::Complete, slot);
            server.jobs[job.index()].fetched += 1;
            true
        })?;
        self.links.wake_fetches();
        self.settle_fetches(job, false);
        Ok(())
    }

    /// Calls a function for the slot of each rank in a message.
    ///
    /// # Errors
    /// [`Fault::BadPeer`] if the ranks are not of the job or not in ascending order, or if the function returns false.
    fn for_ranks(
        &mut self,
        job: JobId,
        body: &[u8],
        then: &mut dyn FnMut(&mut Self, u32) -> bool,
    ) -> Result<(), Fault> {
        let (start, size) = (self.jobs[job.index()].first, self.jobs[job.index()].size);
        let mut end = 0;
        for range in message::parts::<RankRange>(body) {
            let RankRange { first, count } = range.ok_or(Fault::BadPeer)?;
            if first < end || first.saturating_add(count) > size {
                return Err(Fault::BadPeer);
            }
            end = first + count;
            for rank in first..end {
                if !then(self, start + rank) {
                    return Err(Fault::BadPeer);
                }
            }
        }
        Ok(())
    }

    /// Returns whether pairs of the rank in a slot are sent over a link, and not received.
    #[inline(never)]
    fn is_sent_over(&self, at: usize, slot: u32) -> bool {
        let node = self.ranks.get(slot as usize).map(|rank| rank.node);
        node.is_some_and(|node| self.links.get(at).is_some_and(|link| link.carries(node)))
    }

    /// Answers the gets that wait for pairs of a job, as far as these are here, or of a job that ends.
    #[cold]
    fn settle_fetches(&mut self, of: JobId, is_over: bool) {
        for conn in 0..self.conns_end {
            if self.gets == 0 {
                return;
            }
            let mut changed = false;
            for at in 0..self.conns[conn as usize].replies.len() {
                let ReplyState::Fetch { job, key, source } = self.conns[conn as usize].replies[at].state
                else {
                    continue;
                };
                if job != of {
                    continue;
                }
                let state = if is_over {
                    ReplyState::Ready(Response::Missing(Op::Get))
                } else {
                    self.settled(job, key, source)
                };
                if matches!(state, ReplyState::Ready(_)) {
                    self.gets -= 1;
                    changed = true;
                }
                self.conns[conn as usize].replies[at].state = state;
            }
            if changed {
                self.check_ready(ConnId(conn));
            }
        }
    }

    /// Ends the gets that wait for pairs of a job.
    #[cold]
    pub(super) fn end_fetches(&mut self, job: JobId) {
        self.settle_fetches(job, true);
        // Answers about other jobs may have waited for those about this one.
        self.links.wake_fetches();
    }

    /// Nodes are lost, one of which was the neighbour of this link: of their pairs that are not here no more will come. Other
    /// nodes learn that from the answer to their request.
    #[cfg(feature = "cluster")]
    pub(super) fn end_fetches_of(&mut self, job: JobId, link: Option<usize>, lost: &Range<u32>) {
        let Some(at) = link.filter(|_| self.jobs[job.index()].lazy) else { return };
        for slot in self.jobs[job.index()].slots() {
            if lost.contains(&self.ranks[slot].node) && self.lacks(slot as u32) {
                self.modex.remove(at, Set::Asked, slot as u32);
                self.modex.remove(at, Set::Pending, slot as u32);
                self.modex.insert(at, Set::Complete, slot as u32);
                self.jobs[job.index()].fetched += 1;
            }
        }
        self.links.wake_fetches();
        self.settle_fetches(job, false);
    }

    /// Returns the new state of a get that waits for a key.
    fn settled(&mut self, job: JobId, key: u32, source: Option<u32>) -> ReplyState {
        let mut room = [0; KEY_MAX as usize];
        let wanted = self.kvs.record(key).and_then(|record| {
            let room = room.get_mut(..record.key.len())?;
            room.copy_from_slice(record.key);
            Some(&*room)
        });
        let space = (self.jobs[job.index()].spaces, Kind::Kvs);
        let found = self.kvs.find(space, wanted.unwrap_or_default()).ok().flatten();
        if let Some(record) = found {
            return ReplyState::Ready(Response::Record(Op::Get, record));
        }
        match self.ask(job, source) {
            Some(source) => ReplyState::Fetch { job, key, source },
            None => ReplyState::Ready(Response::Missing(Op::Get)),
        }
    }

    /// Writes the next request for pairs, or a part of the answer to the neighbour's requests.
    #[cold]
    pub(super) fn write_fetch(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        loop {
            if let Some(len) = self.write_ranks(at, false, buf) {
                return Some(len);
            }
            let link = self.links.get(at)?;
            let (answer, cursor) = (link.answer, link.cursor);
            match answer {
                Answer::None if self.begin_answer(at) => self.links.get_mut(at)?.answer = Answer::Before(0),
                Answer::None => {
                    self.links.get_mut(at)?.fetch_pending = false;
                    return None;
                }
                Answer::Before(offset) if offset < cursor => {
                    let (len, next) = self.write_stretch(at, offset..cursor, None, true, buf)?;
                    self.links.get_mut(at)?.answer = Answer::Before(next);
                    if len.is_some() {
                        return len;
                    }
                }
                Answer::Before(_) => {
                    let mut from = 0;
                    while let Some(slot) = self.modex.next(at, Set::Pending, from) {
                        from = slot + 1;
                        // No request is pending: the set has the ranks of the answer only.
                        self.modex.insert(at, Set::Complete, slot);
                    }
                    self.links.get_mut(at)?.answer = Answer::Behind;
                }
                Answer::Behind => {
                    let written = self.write_records(at, self.kvs.written(), buf);
                    if let Some(len) = written.or_else(|| self.write_ranks(at, true, buf)) {
                        return Some(len);
                    }
                    self.links.get_mut(at)?.answer = Answer::None;
                }
            }
        }
    }

    /// Begins the answer to all requests of a neighbour. Returns false if there is none, or if this node lacks pairs for
    /// it.
    fn begin_answer(&mut self, at: usize) -> bool {
        let mut first = None;
        let mut from = 0;
        while let Some(slot) = self.modex.next(at, Set::Asked, from) {
            from = slot + 1;
            if !self.is_sent_over(at, slot) {
                continue;
            }
            if self.lacks(slot) {
                return false;
            }
            first = first.or(Some(slot));
        }
        let Some(mut from) = first else { return false };
        while let Some(slot) = self.modex.next(at, Set::Asked, from) {
            from = slot + 1;
            if self.is_sent_over(at, slot) {
                self.modex.remove(at, Set::Asked, slot);
                self.modex.insert(at, Set::Pending, slot);
            }
        }
        true
    }

    /// Writes the pending ranks of one job: those of an answer, or those of a request. Returns `None` without any.
    fn write_ranks(&mut self, at: usize, is_answer: bool, buf: &mut [u8]) -> Option<usize> {
        let first = self.next_pending(at, is_answer, 0)?;
        let id = self.job_of_slot(first as usize)?;
        let job = &self.jobs[id.index()];
        let (start, end) = (job.first, job.first + job.size);
        let job = job.reference(id);
        let head = if is_answer { Head::Fetched { job } } else { Head::Fetch { job } };
        let room = buf.len().min(self.limits.peer_message_max());
        let mut writer = Writer::new(buf.get_mut(..room)?, head)?;
        let mut stretch = Some(first);
        while let Some(first) = stretch {
            let mut count = 0;
            while stretch == Some(first + count) {
                count += 1;
                stretch = self.next_pending(at, is_answer, first + count).filter(|&slot| slot < end);
            }
            if !writer.push(&RankRange { first: first - start, count }) {
                break;
            }
            (first..first + count).for_each(|slot| self.modex.remove(at, Set::Pending, slot));
        }
        Some(writer.finish().len())
    }

    /// Returns the first pending rank from a slot on: of an answer, or of a request.
    #[inline(never)]
    fn next_pending(&self, at: usize, is_answer: bool, mut from: u32) -> Option<u32> {
        loop {
            let slot = self.modex.next(at, Set::Pending, from)?;
            if self.is_sent_over(at, slot) == is_answer {
                return Some(slot);
            }
            from = slot + 1;
        }
    }
}
