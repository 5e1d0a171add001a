//! Messages between neighbouring nodes: a head in postcard, followed by a body to the end of the message.
//!
//! | head | body |
//! |---|---|
//! | [`Head::Records`] | records: rank, key and value, each in postcard, concatenated |
//! | [`Head::End`] of a group | its members: a [`MemberSet`] for each job, concatenated |
//! | [`Head::Arrive`] of a group | the number of sets of members that are known to be dead, and these sets; then all its members in the same way |
//! | [`Head::Release`] of a group | the outcome: a context id, 1, or 0 for a failure; the number of sets of lost members, and these sets; then all its members in the same way |
//! | [`Head::Arrive`], [`Head::Release`] of a fence | the last pairs before it, as in [`Head::Records`] |
//! | [`Head::Arrive`], [`Head::Release`] of a ring | nothing |
//! | [`Head::Exits`] | ranks: job, rank, exit, whether it had initialized, and whether it failed, concatenated |
//! | [`Head::End`] of a fence, [`Head::Get`], [`Head::Renew`] | nothing |
//! | [`Head::Notice`] | the notice as the server stores it |
//! | `Head::Echo` | nothing |
//! | [`Head::Fetch`], [`Head::Fetched`] | ranks: a [`RankRange`] for each stretch, in ascending order, concatenated |
//!
//! The host delimits messages, and keeps those of one link in order.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, Rank};
use crate::trace::Exit;

pub use crate::tables::fence::GroupKind;

/// Reference to a job in messages. The number alone may belong to another job when the message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// Number of the job.
    pub job: JobId,
    /// Hash of its job id.
    pub name: u32,
}

/// Head of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Head {
    /// Records that ranks of a job have put.
    Records {
        /// The job.
        job: JobRef,
        /// Their kind.
        of: RecordKind,
    },
    /// Arrival, to the parent: the collective is complete in the child's subtree.
    Arrive {
        /// The job.
        job: JobRef,
        /// The collective.
        at: Collective,
        /// Whether records travel with it. Those of the child's subtree have been sent before it or are in it.
        collects: bool,
    },
    /// Release, to a child: the collective is complete on all nodes.
    Release {
        /// The job.
        job: JobRef,
        /// The collective.
        at: Collective,
        /// Whether records travel with it. Those of the other nodes have been sent before it or are in it.
        collects: bool,
    },
    /// End of a collective by a time-out.
    End {
        /// The job.
        job: JobRef,
        /// The collective.
        at: Collective,
        /// Who says so.
        end: End,
    },
    /// Exits of processes, and losses of ranks that are cut off from PMI.
    Exits,
    /// Request for the data of a PMIx rank, towards its node. [`Head::Records`] follow when the rank has put data.
    Get {
        /// The job.
        job: JobRef,
        /// The rank.
        rank: Rank,
    },
    /// Request for the newest data of a PMIx rank, to its node. [`Head::Records`] with [`RecordKind::Newest`] is the answer.
    Renew {
        /// The job.
        job: JobRef,
        /// The rank.
        rank: Rank,
    },
    /// Event that a PMIx client has sent to others.
    Notice {
        /// The job of the sender.
        job: JobRef,
        /// The sender.
        rank: Rank,
    },
    /// Request for all pairs of ranks of a lazy job, towards their nodes.
    Fetch {
        /// The job.
        job: JobRef,
    },
    /// Answer to [`Head::Fetch`]: the pairs of these ranks have been sent before it. Later ones precede each fence.
    Fetched {
        /// The job.
        job: JobRef,
    },
    /// Request to the root in a tree whose head is a leaf. It goes up, and comes back behind what the root had released when it got
    /// the request. A board without links saves its code.
    #[cfg(feature = "cluster")]
    Echo {
        /// Number of the request. An answer is also one to earlier requests.
        number: u32,
    },
}

/// Kind of the records in [`Head::Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordKind {
    /// Pairs of the key-value space.
    Pair,
    /// Contributions to a ring.
    Ring,
    /// Data that PMIx ranks have put for other nodes. The key is the rank and a scope.
    Commit,
    /// The same as an answer to [`Head::Renew`]. A rank that has put none has an empty value.
    Newest,
}

/// What a node says about the end of a collective by a time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// To the parent: ranks below the child have waited for too long.
    Wanted {
        /// Whether the child's arrival was sent before.
        arrived: bool,
    },
    /// To a child: the collective has ended. Its ranks that wait are told.
    Ended,
    /// To the parent: the child knows that. Its arrivals before were in the collective that has ended.
    Acknowledged,
}

/// Collective in which ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// Fence of all ranks.
    Fence,
    /// Ring of all ranks.
    Ring,
    /// Collective of a group.
    Group {
        /// Its kind.
        kind: GroupKind,
        /// Number that distinguishes collectives of the same members.
        tag: u32,
    },
}

/// Members of a group that are of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSet<'a> {
    /// The job.
    pub job: JobRef,
    /// A bit for each rank, from the lowest of the first byte on.
    #[serde(borrow)]
    pub ranks: &'a [u8],
}

impl<'a> MemberSet<'a> {
    /// Returns the ranks.
    pub fn iter(&self) -> impl Iterator<Item = u32> + Clone + use<'a> {
        (0u32..).zip(self.ranks).flat_map(|(at, &byte)| {
            (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| at * 8 + bit)
        })
    }
}

/// Consecutive ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRange {
    /// The first.
    pub first: u32,
    /// Their number.
    pub count: u32,
}

/// Record in [`Head::Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item<'a> {
    /// The rank that put it.
    pub rank: u32,
    /// The key.
    #[serde(borrow)]
    pub key: &'a [u8],
    /// The value.
    #[serde(borrow)]
    pub value: &'a [u8],
}

/// Exit in [`Head::Exits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// The job.
    pub job: JobRef,
    /// The rank.
    pub rank: u32,
    /// Exit of its process.
    pub exit: Exit,
    /// Whether the rank had initialized.
    pub joined: bool,
    /// Whether it failed in a job that continues without it.
    pub dead: bool,
}

/// Writer of a message into lent memory.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    /// Starts a message. Returns `None` if the head does not fit.
    pub fn new(buf: &'b mut [u8], head: Head) -> Option<Writer<'b>> {
        let len = postcard::to_slice(&head, buf).ok()?.len();
        Some(Writer { buf, len })
    }

    /// Appends a part of the body. Returns false, without a change, if it does not fit.
    pub fn push(&mut self, part: &impl Serialize) -> bool {
        let Ok(written) = postcard::to_slice(part, &mut self.buf[self.len..]) else { return false };
        self.len += written.len();
        true
    }

    /// Appends bytes. Returns false, without a change, if they do not fit.
    pub fn push_bytes(&mut self, bytes: &[u8]) -> bool {
        let Some(room) = self.buf[self.len..].get_mut(..bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.len += bytes.len();
        true
    }

    /// Appends the [`MemberSet`] of these ranks. Returns false if it does not fit.
    pub fn push_members(&mut self, job: JobRef, ranks: impl Iterator<Item = u32> + Clone) -> bool {
        let len = ranks.clone().max().map_or(0, |last| last / 8 + 1);
        if !self.push(&job) || !self.push(&len) {
            return false;
        }
        let Some(room) = self.buf.get_mut(self.len..self.len + len as usize) else { return false };
        room.fill(0);
        ranks.for_each(|rank| room[rank as usize / 8] |= 1 << (rank % 8));
        self.len += len as usize;
        true
    }

    /// Returns the length of the message so far, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the message.
    pub fn finish(self) -> &'b [u8] {
        &self.buf[..self.len]
    }
}

/// Splits a message into its head and its body.
pub fn split(message: &[u8]) -> Option<(Head, &[u8])> {
    postcard::take_from_bytes(message).ok()
}

/// Returns the parts of a body that consists of parts. The last is `None` if the rest is malformed.
pub fn parts<'a, T: Deserialize<'a>>(body: &'a [u8]) -> impl Iterator<Item = Option<T>> + Clone {
    let mut rest = body;
    core::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let part = postcard::take_from_bytes(rest);
        rest = part.as_ref().map_or(&[], |&(_, rest)| rest);
        Some(part.ok().map(|(part, _)| part))
    })
}

/// Splits the body of a group's release into the outcome and the rest, of which [`split_lost`] is the next step.
pub fn split_outcome(body: &[u8]) -> Option<(u32, &[u8])> {
    postcard::take_from_bytes(body).ok()
}

/// Splits the body of a group's arrival into the dead or lost members and all members.
pub fn split_lost(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (sets, body): (u32, _) = postcard::take_from_bytes(body).ok()?;
    let mut rest = body;
    for _ in 0..sets {
        rest = postcard::take_from_bytes::<MemberSet<'_>>(rest).ok()?.1;
    }
    Some((&body[..body.len() - rest.len()], rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const JOB: JobRef = JobRef { job: JobId(3), name: 500 };

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        let mut buf = [0; 64];
        let head = Head::Records { job: JOB, of: RecordKind::Pair };
        let items = [Item { rank: 300, key: b"k", value: b"" }, Item { rank: 0, key: b"key", value: b"v" }];
        let mut writer = Writer::new(&mut buf, head).unwrap();
        assert!(items.iter().all(|item| writer.push(item)));
        assert!(!writer.push(&Item { rank: 1, key: &[b'k'; 64], value: b"" }), "there is no room for it");
        let (read, body) = split(writer.finish()).unwrap();
        assert_eq!(read, head);
        assert_eq!(parts(body).collect::<Vec<_>>(), items.map(Some));
        let cut = parts::<Item<'_>>(&body[..body.len() - 1]).collect::<Vec<_>>();
        assert_eq!(cut, [Some(items[0]), None]);
        assert_eq!(split(&[0xff; 3]), None);
    }

    #[test]
    fn members_come_out_by_job() {
        let mut buf = [0; 64];
        let at = Collective::Group { kind: GroupKind::Fence, tag: 7 };
        let head = Head::Arrive { job: JOB, at, collects: true };
        let sets = [&[1, 31][..], &[41], &[0]];
        let mut writer = Writer::new(&mut buf, head).unwrap();
        assert!(sets.iter().all(|ranks| writer.push_members(JOB, ranks.iter().copied())));
        let (read, body) = split(writer.finish()).unwrap();
        assert_eq!(read, head);
        let parts: Vec<_> = parts::<MemberSet<'_>>(body).flatten().collect();
        assert_eq!(parts.iter().map(|part| part.ranks.len()).collect::<Vec<_>>(), [4, 6, 1]);
        assert!(parts.iter().zip(sets).all(|(part, ranks)| part.iter().eq(ranks.iter().copied())));
        assert!(!Writer::new(&mut buf[..13], head).unwrap().push_members(JOB, [41].into_iter()));
        assert!(Writer::new(&mut buf[..2], head).is_none());
    }
}
