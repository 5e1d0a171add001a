//! Messages between neighbouring nodes: a head in postcard, followed by a body to the end of the message.
//!
//! | head | body |
//! |---|---|
//! | [`Head::Records`] | records: rank, key and value, each in postcard, one behind the other |
//! | [`Head::Arrive`], [`Head::Release`] of a group | its members: a bit a rank from the lowest of the first byte on, without zero bytes at the end |
//! | those of a fence or ring | nothing |
//! | [`Head::Exits`] | ranks: their job and number, how they ended, whether they failed, one behind the other |
//!
//! The host tells where a message ends, and keeps those of one link in order.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::trace::Exit;

/// A job as nodes name it to each other. A number alone may be another job's by the time that a message arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// Its number.
    pub job: JobId,
    /// The hash of its job id.
    pub name: u32,
}

/// How a message begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Head {
    /// What ranks of a job have put.
    Records {
        /// The job.
        job: JobRef,
        /// Whether it is what they bring to a ring, rather than what they put into the key-value space.
        ring: bool,
    },
    /// To the parent: everybody below has arrived.
    Arrive {
        /// The job.
        job: JobRef,
        /// Where.
        at: Collective,
    },
    /// To a child: everybody has.
    Release {
        /// The job.
        job: JobRef,
        /// Where.
        at: Collective,
    },
    /// Ranks whose processes have ended.
    Exits,
}

/// Where ranks wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// The fence of all ranks.
    Fence,
    /// The ring of all ranks.
    Ring,
    /// The barrier of a group with this tag.
    Group(u32),
}

/// A record of [`Head::Records`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item<'a> {
    /// Who put it.
    pub rank: u32,
    /// The key.
    #[serde(borrow)]
    pub key: &'a [u8],
    /// The value.
    #[serde(borrow)]
    pub value: &'a [u8],
}

/// A rank of [`Head::Exits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Its job.
    pub job: JobRef,
    /// Its number there.
    pub rank: u32,
    /// How its process ended.
    pub exit: Exit,
    /// Whether it failed, in a job that goes on without it.
    pub dead: bool,
}

/// A message under construction in lent memory.
#[derive(Debug)]
pub struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    /// Begins a message; nothing when the head does not fit.
    pub fn new(buf: &'b mut [u8], head: Head) -> Option<Writer<'b>> {
        let len = postcard::to_slice(&head, buf).ok()?.len();
        Some(Writer { buf, len })
    }

    /// Adds a part of the body; false, and nothing is added, when it does not fit.
    pub fn push(&mut self, part: &impl Serialize) -> bool {
        let Ok(written) = postcard::to_slice(part, &mut self.buf[self.len..]) else { return false };
        self.len += written.len();
        true
    }

    /// Adds a set of ranks; false when it does not fit.
    pub fn push_set(&mut self, set: &[u32]) -> bool {
        let words = set.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
        let bytes = || set[..words].iter().flat_map(|word| word.to_le_bytes());
        let len = bytes().enumerate().filter(|&(_, byte)| byte != 0).last().map_or(0, |(at, _)| at + 1);
        let Some(room) = self.buf.get_mut(self.len..self.len + len) else { return false };
        room.iter_mut().zip(bytes()).for_each(|(to, byte)| *to = byte);
        self.len += len;
        true
    }

    /// The message.
    pub fn finish(self) -> &'b [u8] {
        &self.buf[..self.len]
    }
}

/// Takes a message apart into its head and its body.
pub fn split(message: &[u8]) -> Option<(Head, &[u8])> {
    postcard::take_from_bytes(message).ok()
}

/// The parts of a body, for heads whose body has parts; the last is `None` where the rest is none.
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

/// The ranks of a set that [`Writer::push_set`] wrote.
pub fn members(body: &[u8]) -> impl Iterator<Item = u32> + Clone + '_ {
    (0u32..)
        .zip(body)
        .flat_map(|(at, &byte)| (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| at * 8 + bit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const JOB: JobRef = JobRef { job: JobId(3), name: 500 };

    #[test]
    fn a_message_comes_out_as_it_went_in() {
        let mut buf = [0; 64];
        let head = Head::Records { job: JOB, ring: false };
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
    fn sets_of_ranks_end_with_their_last_member() {
        let mut buf = [0; 64];
        let head = Head::Arrive { job: JOB, at: Collective::Group(7) };
        for (set, len, ranks) in [
            (&[0u32, 0][..], 0, &[][..]),
            (&[1 << 31 | 2, 0], 4, &[1, 31]),
            (&[0, 1 << 9], 6, &[41]),
            (&[1], 1, &[0]),
        ] {
            let mut writer = Writer::new(&mut buf, head).unwrap();
            assert!(writer.push_set(set));
            let (_, body) = split(writer.finish()).unwrap();
            assert_eq!((body.len(), members(body).collect::<Vec<_>>()), (len, ranks.to_vec()));
        }
        assert!(!Writer::new(&mut buf[..6], head).unwrap().push_set(&[0, 1]));
        assert!(Writer::new(&mut buf[..2], head).is_none());
    }
}
