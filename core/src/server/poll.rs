//! What is to be said next.

use super::Server;
use super::io::Output;
use crate::fault::Refusal;
use crate::ids::{ConnId, JobId};
use crate::limits::{KEY_MAX, KVSNAME_MAX, OUTPUT_MAX, VALUE_MAX};
use crate::slabs::{Answer, Conn, Job, What};
use crate::tables::fence::Late;
use crate::wire::{self, Failure, Op, Reply, Text};

/// Room for a list of ranks.
const LIST_MAX: usize = 1024;

impl Server<'_> {
    /// The next thing for the host to do, written into `buf` as far as it has bytes. The only way out.
    ///
    /// Call it until it gives nothing. Connections have their turns; jobs that have to end come first. Nothing is
    /// given either while `buf` is shorter than [`OUTPUT_MAX`].
    pub fn poll<'b>(&mut self, buf: &'b mut [u8]) -> Option<Output<'b>> {
        if buf.len() < OUTPUT_MAX {
            return None;
        }
        if self.news {
            if let Some(job) = self.jobs.iter().position(|job| job.ending_unsaid) {
                return self.say_ending(JobId(job as u32), buf);
            }
            if let Some(job) = self.jobs.iter().position(|job| job.fence.late == Late::Unsaid) {
                return self.say_late(JobId(job as u32), buf);
            }
            if let Some(group) = self.groups.say_late() {
                return self.say_late_group(group, buf);
            }
            self.news = false;
        }
        let conn = ConnId(self.ready.next()?);
        self.ready.pass(conn.0);
        self.say(conn, buf)
    }

    fn say_ending<'b>(&mut self, job: JobId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let state = &mut self.jobs[job.index()];
        state.ending_unsaid = false;
        let message = buf.get_mut(..state.message.len())?;
        message.copy_from_slice(state.message.as_bytes());
        let message = core::str::from_utf8(message).unwrap_or_default();
        Some(Output::End { job, cause: state.ending?, message })
    }

    fn say_late<'b>(&mut self, job: JobId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let state = &mut self.jobs[job.index()];
        state.fence.late = Late::Said;
        let ranks = &self.ranks[state.slots()];
        let missing = (0u32..)
            .zip(ranks)
            .filter(|(_, rank)| !rank.in_fence && (state.cleanup || rank.exit.is_none()))
            .map(|(rank, _)| rank);
        let missing = list_ranks(missing, buf.get_mut(..LIST_MAX)?);
        Some(Output::Late { job, arrived: state.fence.arrived, size: state.size - state.unawaited, missing })
    }

    fn say_late_group<'b>(&mut self, at: u32, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let group = self.groups.get(at)?;
        let (job, arrived, size) = (group.job?, group.fence.arrived, group.need);
        let missing = list_ranks(self.groups.missing(at), buf.get_mut(..LIST_MAX)?);
        Some(Output::Late { job, arrived, size, missing })
    }

    fn say<'b>(&mut self, id: ConnId, buf: &'b mut [u8]) -> Option<Output<'b>> {
        let conn = &mut self.conns[id.index()];
        let output = if conn.joined_unsaid {
            conn.joined_unsaid = false;
            conn.job.zip(conn.rank).map(|(job, rank)| Output::Joined { conn: id, job, rank })
        } else if let Some((at, answer)) = conn.next_answer() {
            let len = self.encode(id, at, answer, buf);
            self.conns[id.index()].owed.remove(at);
            Some(Output::Bytes { conn: id, bytes: &buf[..len] })
        } else {
            conn.closing_unsaid = false;
            conn.closing.map(|why| Output::Close { conn: id, why })
        };
        self.check_ready(id);
        output
    }

    /// Writes a reply; its length.
    fn encode(&self, id: ConnId, at: usize, answer: Answer, buf: &mut [u8]) -> usize {
        let conn = &self.conns[id.index()];
        let mut scratch = [0; LIST_MAX];
        let reply = self.reply(conn, answer, &mut scratch);
        let thrid = conn.owed.get(at).map(|owed| owed.thrid.as_str()).filter(|thrid| !thrid.is_empty());
        let written = wire::encode_reply(conn.protocol, &reply, thrid.map(Text::from), buf);
        written.map_or(0, <[u8]>::len)
    }

    /// An answer's full text. Lists are written into `scratch`.
    fn reply<'a>(&'a self, conn: &Conn, answer: Answer, scratch: &'a mut [u8]) -> Reply<'a> {
        let gone = |op| Reply::Refused(op, Failure::Refusal(Refusal::NotInitialized));
        let Some((job, rank)) = conn.job.and_then(|job| self.jobs.get(job.index())).zip(conn.rank) else {
            return match answer {
                Answer::Init { version, subversion } => Reply::Init { version, subversion },
                Answer::Refused(op, why) => Reply::Refused(op, Failure::Refusal(why)),
                _ => gone(answer.op()),
            };
        };
        let Some(slot) = job.slot(rank).and_then(|slot| self.ranks.get(slot)) else {
            return gone(answer.op());
        };
        let Job { size, universe, .. } = *job;
        match answer {
            Answer::Init { version, subversion } => Reply::Init { version, subversion },
            Answer::InitAck => Reply::InitAck { rank: rank.0, size, appnum: slot.appnum },
            Answer::FullInit => Reply::FullInit { rank: rank.0, size, appnum: slot.appnum, spawner: None },
            Answer::Maxes => Reply::Maxes { kvsname: KVSNAME_MAX, key: KEY_MAX, value: VALUE_MAX },
            Answer::UniverseSize => Reply::UniverseSize(universe),
            Answer::Appnum => Reply::Appnum(slot.appnum),
            Answer::JobId => Reply::JobId(Text::from(job.name.as_str())),
            Answer::Record(op, record) => match self.kvs.record(record) {
                Some(record) => Reply::Found(op, Text::plain(record.value)),
                None => Reply::Missing(op),
            },
            Answer::Universe(op) => {
                let mut list = List { buf: scratch, len: 0 };
                // A number always fits.
                let _ = list.number(universe);
                Reply::Found(op, Text::from(list.into_str()))
            }
            Answer::Dead(op) => {
                let dead = (0u32..).zip(&self.ranks[job.slots()]).filter(|(_, rank)| rank.dead);
                Reply::Found(op, Text::from(list_ranks(dead.map(|(rank, _)| rank), scratch)))
            }
            Answer::Missing(op) => Reply::Missing(op),
            Answer::Fence(tag) => Reply::Fence { tag },
            Answer::Done(op) => Reply::Done(op),
            Answer::Refused(op, why) => Reply::Refused(op, Failure::Refusal(why)),
        }
    }
}

impl Conn {
    /// The oldest reply that can be said.
    fn next_answer(&self) -> Option<(usize, Answer)> {
        self.owed.iter().enumerate().find_map(|(at, owed)| match owed.what {
            What::Answer(answer) => Some((at, answer)),
            What::Fence | What::GroupFence { .. } | What::NodeAttr(_) => None,
        })
    }
}

impl Answer {
    /// Which command it answers.
    fn op(self) -> Op {
        match self {
            Answer::Init { .. } => Op::Init,
            Answer::InitAck => Op::InitAck,
            Answer::FullInit => Op::FullInit,
            Answer::Maxes => Op::GetMaxes,
            Answer::UniverseSize => Op::GetUniverseSize,
            Answer::Appnum => Op::GetAppnum,
            Answer::JobId => Op::GetJobId,
            Answer::Fence(_) => Op::Fence,
            Answer::Record(op, _)
            | Answer::Universe(op)
            | Answer::Dead(op)
            | Answer::Missing(op)
            | Answer::Done(op)
            | Answer::Refused(op, _) => op,
        }
    }
}

/// Ranks in rising order as `0-3,7`; when the buffer is full, `,...` stands for the rest.
fn list_ranks(ranks: impl Iterator<Item = u32>, buf: &mut [u8]) -> &str {
    const MORE: &[u8] = b",...";
    let room = buf.len().saturating_sub(MORE.len());
    let mut list = List { buf, len: 0 };
    let mut ranks = ranks.peekable();
    while let Some(first) = ranks.next() {
        let mut last = first;
        while ranks.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let start = list.len;
        let written = (start == 0 || list.push(b",").is_some())
            && list.number(first).is_some()
            && (last == first || (list.push(b"-").is_some() && list.number(last).is_some()));
        if !written || list.len > room {
            list.len = start;
            // There is room: everything before ended at or before it.
            let _ = list.push(MORE);
            break;
        }
    }
    list.into_str()
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
        let mut digits = [0; 10];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return self.push(&digits[at..]);
            }
        }
    }

    fn into_str(self) -> &'b str {
        core::str::from_utf8(&self.buf[..self.len]).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_listed_in_ranges() {
        let list = |ranks: &[u32], room: usize| {
            std::string::String::from(list_ranks(ranks.iter().copied(), &mut std::vec![0; room]))
        };
        assert_eq!(list(&[], 9), "");
        assert_eq!(list(&[0, 1, 2, 3, 7], 32), "0-3,7");
        assert_eq!(list(&[5, 6, 100_000], 32), "5-6,100000");
        assert_eq!(list(&[1, 3, 5, 7, 9, 11], 9), "1,3,5,...");
    }
}
