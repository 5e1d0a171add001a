//! Replies to clients, in the vocabulary of both protocols.

use super::command::Op;
use super::scan;
use super::token::Text;
use crate::fault::Refusal;

/// A reply. The server encodes these, the client decodes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// To [`Op::Init`].
    Init {
        /// The version that is spoken from here on.
        version: u32,
        /// Its subversion. PMI-1.2 offers group barriers.
        subversion: u32,
    },
    /// To [`Op::InitAck`]: four lines.
    InitAck {
        /// The sender's rank.
        rank: u32,
        /// The job's size.
        size: u32,
        /// Which program of the command line the sender is.
        appnum: u32,
    },
    /// To [`Op::FullInit`].
    FullInit {
        /// The sender's rank.
        rank: u32,
        /// The job's size.
        size: u32,
        /// Which program of the command line the sender is.
        appnum: u32,
        /// The job that spawned this one.
        spawner: Option<Text<'a>>,
    },
    /// To [`Op::GetMaxes`].
    Maxes {
        /// Longest kvsname in bytes.
        kvsname: u32,
        /// Longest key in bytes.
        key: u32,
        /// Longest value in bytes.
        value: u32,
    },
    /// To [`Op::GetUniverseSize`].
    UniverseSize(u32),
    /// To [`Op::GetAppnum`].
    Appnum(u32),
    /// To [`Op::GetJobId`].
    JobId(Text<'a>),
    /// To [`Op::Get`], [`Op::GetNodeAttr`], [`Op::GetJobAttr`]: found.
    Found(Op, Text<'a>),
    /// To the same three: nobody has put it.
    Missing(Op),
    /// To [`Op::Lookup`]: the port.
    Port(Text<'a>),
    /// To [`Op::Spawn`]: started, as far as the codes say so.
    Spawned {
        /// The new job.
        jobid: Text<'a>,
        /// Of each program, or of each process.
        codes: Codes<'a>,
    },
    /// To [`Op::Spawn`]: nothing was started.
    NotSpawned {
        /// Why.
        why: Failure<'a>,
        /// Of each program.
        codes: Codes<'a>,
    },
    /// To [`Op::Ring`].
    Ring {
        /// `ring-count`: ranks below the receiver.
        count: u32,
        /// `ring-left`
        left: Text<'a>,
        /// `ring-right`
        right: Text<'a>,
    },
    /// To [`Op::PsetCount`].
    PsetCount(u32),
    /// To [`Op::PsetName`].
    PsetName(Text<'a>),
    /// To [`Op::PsetInfo`]: its number of ranks.
    PsetInfo {
        /// How many ranks are in the set.
        size: u32,
    },
    /// To [`Op::PsetMembers`].
    PsetMembers {
        /// Ranks in rising order, as `0-3,7`.
        members: Text<'a>,
        /// Where to ask on, when these were not all.
        next: Option<u32>,
    },
    /// To [`Op::Fence`].
    Fence {
        /// The group's tag, where the command named a group.
        tag: Option<u32>,
    },
    /// To a command without result: done.
    Done(Op),
    /// To any command: not done.
    Refused(Op, Failure<'a>),
}

/// Why a request failed, as the server says it or as the client reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<'a> {
    /// The server's own reason.
    Refusal(Refusal),
    /// What a client reads: `rc`, and `errmsg` (PMI-1: `msg`) or an empty text.
    Remote(i32, Text<'a>),
}

/// One error code for each program of a spawn, in PMI-1 for each process; 0 is success, others are the `errno` of the failure.
#[derive(Clone, Copy)]
pub struct Codes<'a>(List<'a>);

#[derive(Clone, Copy)]
enum List<'a> {
    Same { code: i32, count: u32 },
    Given(&'a [u8]),
    Message(&'a [u8]),
}

impl<'a> Codes<'a> {
    /// The same code for `count` programs.
    pub const fn same(code: i32, count: u32) -> Codes<'a> {
        Codes(List::Same { code, count })
    }

    /// These codes.
    pub const fn new(codes: &'a [u8]) -> Codes<'a> {
        Codes(List::Given(codes))
    }

    /// From `a,b,…`, or from nothing: Slurm's server leaves the field out.
    pub(super) fn decode(list: &'a [u8]) -> Option<Codes<'a>> {
        let mut codes = list.split(|&b| b == b',');
        (list.is_empty() || codes.all(|code| scan::integer(code).is_some()))
            .then_some(Codes(List::Message(list)))
    }

    /// The codes in the programs' order.
    pub fn iter(&self) -> impl Iterator<Item = i32> + use<'a> {
        let (same, given, message) = match self.0 {
            List::Same { code, count } => ((code, count), &[][..], &[][..]),
            List::Given(codes) => ((0, 0), codes, &[][..]),
            List::Message(list) => ((0, 0), &[][..], list),
        };
        (0..same.1)
            .map(move |_| same.0)
            .chain(given.iter().map(|&code| i32::from(code)))
            .chain(message.split(|&b| b == b',').filter_map(scan::integer))
    }
}

impl PartialEq for Codes<'_> {
    fn eq(&self, other: &Codes<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Codes<'_> {}

impl core::fmt::Debug for Codes<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Reply<'_> {
    /// What it answers.
    pub fn op(&self) -> Op {
        match *self {
            Reply::Init { .. } => Op::Init,
            Reply::InitAck { .. } => Op::InitAck,
            Reply::FullInit { .. } => Op::FullInit,
            Reply::Maxes { .. } => Op::GetMaxes,
            Reply::UniverseSize(_) => Op::GetUniverseSize,
            Reply::Appnum(_) => Op::GetAppnum,
            Reply::JobId(_) => Op::GetJobId,
            Reply::Port(_) => Op::Lookup,
            Reply::Spawned { .. } | Reply::NotSpawned { .. } => Op::Spawn,
            Reply::PsetCount(_) => Op::PsetCount,
            Reply::PsetName(_) => Op::PsetName,
            Reply::PsetInfo { .. } => Op::PsetInfo,
            Reply::PsetMembers { .. } => Op::PsetMembers,
            Reply::Ring { .. } => Op::Ring,
            Reply::Fence { .. } => Op::Fence,
            Reply::Found(op, _) | Reply::Missing(op) | Reply::Done(op) | Reply::Refused(op, _) => op,
        }
    }
}
