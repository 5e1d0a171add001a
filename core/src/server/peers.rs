//! Between this server and its neighbours in the tree.
//!
//! A meeting is a fence, a ring or a group's barrier. When everybody at and below a node has arrived, its parent is told;
//! when everybody has, its children are. What has been put goes before that on each link, from where the link's
//! cursor stands: up what comes from this part of the tree, down what comes from the rest.

use super::Server;
use super::fences::way;
use crate::fault::Fault;
use crate::ids::{JobId, Rank};
use crate::limits::PEER_MESSAGE_MAX;
use crate::peer::links::Link;
use crate::peer::message::{self, Gone, Head, Item, Meeting, Whose, Writer};
use crate::state::{Job, RingPart};
use crate::tables::kvs::{Kind, Owner};
use crate::tables::meet::{Meet, Up};

/// Ends of processes that one message tells of at most.
const GONE_MAX: u32 = 192;
/// Under which key a rank keeps what it counts for in a ring, beside its texts.
pub(super) const RING_COUNT: u8 = b'c';

impl Server<'_> {
    /// A meeting is complete here and below: either that is everybody, or the parent has to know. True for everybody.
    pub(super) fn climb(&mut self, job: JobId, at: Meeting, group: Option<u32>) -> bool {
        let alone = group.and_then(|group| self.groups.get(group)).is_some_and(|group| !group.above);
        if alone || !self.links.have_parent() {
            return true;
        }
        let up = Up::Unsaid(self.kvs.written());
        if let Some(meet) = self.meet_mut(job, at, group) {
            meet.up = up;
        }
        self.links.wake(1);
        false
    }

    /// Everybody has arrived in a fence or ring: children have to know, with all that has been put.
    pub(super) fn descend(&mut self, job: JobId, at: Meeting) {
        let children = self.links.children();
        let down = Meet { down: children, down_at: self.kvs.written(), ..Meet::default() };
        if let Some(meet) = self.meet_mut(job, at, None) {
            *meet = down;
        }
        self.links.wake(children);
    }

    fn meet_mut(&mut self, job: JobId, at: Meeting, group: Option<u32>) -> Option<&mut Meet> {
        let state = &mut self.jobs[job.index()];
        match at {
            Meeting::Fence => Some(&mut state.fence_meet),
            Meeting::Ring => Some(&mut state.ring_meet),
            Meeting::Group(_) => self.groups.meet_mut(group?),
        }
    }

    /// Other nodes have to know that a process has ended.
    pub(super) fn tell_end(&mut self, index: usize) {
        if self.links.are_any() {
            self.ends = self.ends.wrapping_add(1);
            self.ranks[index].end = self.ends;
            self.links.wake(u64::MAX);
        }
    }

    /// Writes the next message for a neighbour: which, and its length.
    pub(super) fn write_to_peer(&mut self, buf: &mut [u8]) -> Option<(u32, usize)> {
        while let Some(at) = self.links.ready() {
            let node = self.links.get(at)?.node;
            if let Some(len) = self.write_peer(at, buf) {
                return Some((node, len));
            }
            self.links.get_mut(at)?.news = false;
        }
        None
    }

    fn write_peer(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        let link = self.links.get(at)?;
        let (bit, up) = (1 << at, link.up);
        let Some((due, job, meeting, group)) = self.next_meeting(bit, up) else {
            return self.write_gone(at, buf);
        };
        if let Some(len) = self.write_records(at, due, buf) {
            return Some(len);
        }
        let whose = self.jobs[job.index()].whose(job);
        let head = if up {
            Head::Arrive { job: whose, at: meeting }
        } else {
            Head::Release { job: whose, at: meeting }
        };
        let mut writer = Writer::new(buf, head)?;
        if let Some(group) = group
            && !writer.push_set(self.groups.members(group))
        {
            return None;
        }
        let len = writer.finish().len();
        if let Some(meet) = self.meet_mut(job, meeting, group) {
            meet.said(bit, up);
        }
        if let Some(group) = group {
            self.groups.tidy(group);
        }
        Some(len)
    }

    /// Of what is to be said on a link, that which wants the least of the log before it.
    fn next_meeting(&self, bit: u64, up: bool) -> Option<(u32, JobId, Meeting, Option<u32>)> {
        let meets = |job: &Job| [(Meeting::Fence, job.fence_meet), (Meeting::Ring, job.ring_meet)];
        let of_jobs =
            (0u32..).zip(&*self.jobs).filter(|(_, job)| !job.name.is_empty()).flat_map(|(id, job)| {
                meets(job).map(|(at, meet)| meet.due(bit, up).map(|due| (due, JobId(id), at, None)))
            });
        let group = self.groups.due(bit, up).and_then(|(at, due)| {
            let group = self.groups.get(at)?;
            Some((due, group.job?, Meeting::Group(group.tag), Some(at)))
        });
        of_jobs.flatten().chain(group).min_by_key(|&(due, ..)| due)
    }

    /// Records from a link's cursor up to `due`, as many as fit into one message; nothing when it has them all.
    fn write_records(&mut self, at: usize, due: u32, buf: &mut [u8]) -> Option<usize> {
        let room = buf.len().min(PEER_MESSAGE_MAX);
        let link = self.links.get(at)?.clone();
        let mut cursor = link.cursor;
        let mut found: Option<(Head, Writer<'_>)> = None;
        let mut buf = Some(buf);
        while cursor < due {
            let Some((record, next)) = self.kvs.step(cursor) else { break };
            if let Some((head, rank)) = self.carried(&link, record.space, record.owner)
                && !record.wanted
            {
                let item = Item { rank, key: record.key, value: record.value };
                match &mut found {
                    Some((known, writer)) => {
                        if *known != head || !writer.push(&item) {
                            break;
                        }
                    }
                    None => {
                        let mut writer = Writer::new(buf.take()?.get_mut(..room)?, head)?;
                        // The buffer holds any record: a host's poll offers at least that.
                        if !writer.push(&item) {
                            return None;
                        }
                        found = Some((head, writer));
                    }
                }
            }
            cursor = next;
        }
        let len = found.map(|(_, writer)| writer.finish().len());
        self.links.get_mut(at)?.cursor = cursor;
        len
    }

    /// How a record is sent over a link, where it is: the head for it, and its rank.
    fn carried(&self, link: &Link, space: u32, owner: u32) -> Option<(Head, u32)> {
        let origin = self.ranks.get(owner as usize)?.node;
        if !link.carries(origin) {
            return None;
        }
        let slots = |job: &Job| job.slots().contains(&(owner as usize));
        let of = |(_, job): &(u32, &Job)| !job.name.is_empty() && slots(job);
        let (id, job) = (0u32..).zip(&*self.jobs).find(of)?;
        let ring = job.spaces.is(Kind::Ring, space);
        let head = Head::Records { job: job.whose(JobId(id)), ring };
        (ring || job.spaces.is(Kind::Kvs, space)).then(|| (head, owner - job.first))
    }

    /// Ends of processes that the neighbour does not know of.
    fn write_gone(&mut self, at: usize, buf: &mut [u8]) -> Option<usize> {
        loop {
            let link = self.links.get_mut(at)?;
            let from = link.told;
            let count = self.ends.wrapping_sub(from).min(GONE_MAX);
            if count == 0 {
                return None;
            }
            link.told = from.wrapping_add(count);
            let link = link.clone();
            let mut writer = Writer::new(buf, Head::Gone)?;
            let mut any = false;
            // Those of jobs that are over are not told any more.
            for job in (0..self.limits.jobs).map(JobId) {
                let state = &self.jobs[job.index()];
                for (rank, slot) in (0u32..).zip(&self.ranks[state.slots()]) {
                    let fresh = slot.end.wrapping_sub(from).wrapping_sub(1) < count;
                    if let Some(exit) = slot.exit.filter(|_| fresh && link.carries(slot.node)) {
                        any |= writer.push(&Gone { job: state.whose(job), rank, exit, dead: slot.dead });
                    }
                }
            }
            if any {
                return Some(writer.finish().len());
            }
        }
    }

    /// A message from a neighbour.
    pub(super) fn hear(&mut self, node: u32, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.links.to(node).ok_or(Fault::BadNode)?;
        let (head, body) = message::split(bytes).ok_or(Fault::BadPeer)?;
        let link = self.links.get(at).ok_or(Fault::BadNode)?.clone();
        match head {
            Head::Gone => self.hear_gone(&link, body),
            // A job that is over here may have been under way there.
            Head::Records { job, .. } | Head::Arrive { job, .. } | Head::Release { job, .. }
                if !self.knows(job) =>
            {
                Ok(())
            }
            Head::Records { job, ring } => self.hear_records(&link, job.job, ring, body),
            Head::Arrive { job, at: meeting } if !link.up => {
                self.hear_arrival(1 << at, job.job, meeting, body)
            }
            Head::Release { job, at: meeting } if link.up => self.hear_release(job.job, meeting, body),
            Head::Arrive { .. } | Head::Release { .. } => Err(Fault::BadPeer),
        }
    }

    /// Whether that job is served, rather than one that had its number before.
    fn knows(&self, whose: Whose) -> bool {
        self.job(whose.job).is_ok_and(|job| job.hash == whose.name)
    }

    /// The slot of a rank, where a neighbour may tell of it.
    fn told_of(&self, link: &Link, job: JobId, rank: u32) -> Result<usize, Fault> {
        let slot = self.job(job)?.slot(Rank(rank)).ok_or(Fault::BadPeer)?;
        if link.carries(self.ranks[slot].node) { Err(Fault::BadPeer) } else { Ok(slot) }
    }

    fn hear_records(&mut self, link: &Link, job: JobId, ring: bool, body: &[u8]) -> Result<(), Fault> {
        for item in message::parts::<Item<'_>>(body) {
            let item = item.ok_or(Fault::BadPeer)?;
            self.told_of(link, job, item.rank)?;
            if ring && item.key.strip_prefix(&item.rank.to_le_bytes()).is_none_or(|side| side.len() != 1) {
                return Err(Fault::BadPeer);
            }
        }
        let items = || message::parts::<Item<'_>>(body).flatten();
        let state = &self.jobs[job.index()];
        let space = (state.spaces, if ring { Kind::Ring } else { Kind::Kvs });
        let share = state.share;
        let lengths = items().map(|item| (item.key, item.value.len()));
        self.kvs.room_for_copies(space, lengths).map_err(|why| self.fault(why, Fault::BadPeer))?;
        for Item { rank, key, value } in items() {
            let index = self.told_of(link, job, rank)?;
            let owner = Owner { id: index as u32, used: &mut self.ranks[index].used, share };
            let _ = self.kvs.copy(space, owner, key, value);
            if ring && key.last() == Some(&RING_COUNT) {
                self.ranks[index].ring = self.ring_part(job, rank, value);
            }
        }
        Ok(())
    }

    /// What a rank of another node has brought to the ring; its texts were told before.
    fn ring_part(&self, job: JobId, rank: u32, count: &[u8]) -> Option<RingPart> {
        let (count, one) = count.split_first_chunk::<4>()?;
        let spaces = self.jobs[job.index()].spaces;
        let text = |side: u8| {
            let [a, b, c, d] = rank.to_le_bytes();
            self.kvs.find((spaces, Kind::Ring), &[a, b, c, d, side]).ok().flatten()
        };
        let left = text(b'l')?;
        // Where both texts are the same, one is kept.
        let right = if one == [1] { left } else { text(b'r')? };
        Some(RingPart { count: u32::from_le_bytes(*count), left, right })
    }

    fn hear_arrival(&mut self, link: u64, job: JobId, at: Meeting, body: &[u8]) -> Result<(), Fault> {
        if let Meeting::Group(tag) = at {
            let (size, members) = (self.jobs[job.index()].size, message::members(body));
            let Server { jobs, ranks, links, groups, .. } = self;
            let state = &jobs[job.index()];
            let node =
                |rank: u32| state.slot(Rank(rank)).and_then(|slot| ranks.get(slot)).map(|rank| rank.node);
            if !members.clone().filter_map(node).any(|node| links.below(node) == link) {
                return Err(Fault::BadPeer);
            }
            let way = |rank: u32| way(state, ranks, links, rank);
            let joined = groups.arrive_below(job, size, members, tag, link, way);
            let group = joined.map_err(|why| self.fault(why, Fault::BadPeer))?;
            if self.groups.is_complete(group) {
                self.complete_group(job, group);
            }
            return Ok(());
        }
        let state = &mut self.jobs[job.index()];
        let meet = if at == Meeting::Ring { &mut state.ring_meet } else { &mut state.fence_meet };
        if meet.below & link != 0 {
            return Err(Fault::BadPeer);
        }
        meet.below |= link;
        if at == Meeting::Ring {
            self.check_ring(job)
        } else {
            self.check_fence(job)
        }
        Ok(())
    }

    fn hear_release(&mut self, job: JobId, at: Meeting, body: &[u8]) -> Result<(), Fault> {
        let state = &self.jobs[job.index()];
        // A node that nobody waits at is told, too, for what has been put.
        let known = |meet: Meet, arrived: u32| meet.up == Up::Said || (arrived == 0 && meet.below == 0);
        match at {
            Meeting::Fence if known(state.fence_meet, state.fence.arrived) => self.release_fence(job),
            Meeting::Ring if known(state.ring_meet, state.ring) => self.release_ring(job),
            Meeting::Group(tag) => {
                let awaited = self.groups.awaited(job, state.size, message::members(body), tag);
                self.release_group(job, awaited.map_err(|_| Fault::BadPeer)?);
            }
            Meeting::Fence | Meeting::Ring => return Err(Fault::BadPeer),
        }
        Ok(())
    }

    fn hear_gone(&mut self, link: &Link, body: &[u8]) -> Result<(), Fault> {
        for gone in message::parts::<Gone>(body) {
            let Gone { job, rank, .. } = gone.ok_or(Fault::BadPeer)?;
            if self.knows(job) {
                self.told_of(link, job.job, rank)?;
            }
        }
        for Gone { job, rank, exit, dead } in message::parts::<Gone>(body).flatten() {
            if !self.knows(job) {
                continue;
            }
            let job = job.job;
            let index = self.told_of(link, job, rank)?;
            if self.ranks[index].exit.is_some() {
                continue;
            }
            let Job { share, cleanup, .. } = self.jobs[job.index()];
            let slot = &mut self.ranks[index];
            slot.exit = Some(exit);
            slot.dead = dead;
            self.kvs.release(Owner { id: index as u32, used: &mut slot.used, share });
            self.jobs[job.index()].gone += 1;
            self.tell_end(index);
            // One that was ended alone is waited for by nobody.
            if cleanup && !dead {
                self.check_absent(job);
            } else {
                self.bury(job, Rank(rank));
            }
        }
        Ok(())
    }
}

impl Job {
    /// The job of that number, for other nodes.
    fn whose(&self, job: JobId) -> Whose {
        Whose { job, name: self.hash }
    }
}
