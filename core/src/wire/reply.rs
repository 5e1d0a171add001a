//! What a server answers, whichever protocol it is asked in.

use super::command::Op;
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
