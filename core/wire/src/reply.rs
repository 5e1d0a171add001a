//! Replies to clients, in one vocabulary for both protocols.

use super::command::Op;
use super::scan;
use super::token::Text;
use super::write::{EncodeError, Style, Writer};
use crate::Refusal;

/// A reply, encoded by the server and decoded by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// Reply to [`Op::Init`].
    Init {
        /// Version from here on.
        version: u32,
        /// Its subversion. PMI-1.2 offers group barriers.
        subversion: u32,
    },
    /// Reply to [`Op::InitAck`]: four lines.
    InitAck {
        /// The sender's rank.
        rank: u32,
        /// The job's size.
        size: u32,
        /// Number of the sender's program on the command line.
        appnum: u32,
    },
    /// Reply to [`Op::FullInit`].
    FullInit {
        /// The sender's rank.
        rank: u32,
        /// The job's size.
        size: u32,
        /// Number of the sender's program on the command line.
        appnum: u32,
        /// Whether a debugger runs the job.
        debugged: bool,
        /// Whether the client's PMI library is to report what it does.
        verbose: bool,
        /// The job that spawned this one.
        spawner: Option<Text<'a>>,
    },
    /// Reply to [`Op::GetMaxes`].
    Maxes {
        /// Maximum length of a kvsname in bytes.
        kvsname: u32,
        /// Maximum length of a key in bytes.
        key: u32,
        /// Maximum length of a value in bytes.
        value: u32,
    },
    /// Reply to [`Op::GetUniverseSize`]. `None` is -1 on the wire: hydra does not know it.
    UniverseSize(Option<u32>),
    /// Reply to [`Op::GetAppnum`]. `None` is -1 on the wire: Slurm does not know it.
    Appnum(Option<u32>),
    /// Reply to [`Op::GetJobId`].
    JobId(Text<'a>),
    /// Reply to [`Op::Get`], [`Op::GetNodeAttr`] or [`Op::GetJobAttr`]: the value.
    Found(Op, Text<'a>),
    /// Reply to the same commands: there is no value.
    Missing(Op),
    /// Reply to [`Op::Lookup`]: the port.
    Port(Text<'a>),
    /// Reply to [`Op::Spawn`]: the job was started. The codes report programs that failed.
    Spawned {
        /// The new job.
        jobid: Text<'a>,
        /// Codes of the programs or processes.
        codes: Codes<'a>,
    },
    /// Reply to [`Op::Spawn`]: no process was started.
    NotSpawned {
        /// Reason.
        why: Failure<'a>,
        /// Codes of the programs.
        codes: Codes<'a>,
    },
    /// Reply to [`Op::Ring`].
    Ring {
        /// `ring-count`: sum of the counts of lower ranks.
        count: u32,
        /// `ring-left`
        left: Text<'a>,
        /// `ring-right`
        right: Text<'a>,
    },
    /// Reply to [`Op::PsetCount`].
    PsetCount(u32),
    /// Reply to [`Op::PsetName`].
    PsetName(Text<'a>),
    /// Reply to [`Op::PsetNext`].
    PsetNext {
        /// The set's name.
        name: Text<'a>,
        /// The set's serial number. A set that is defined later has a higher one.
        serial: u32,
    },
    /// Reply to [`Op::PsetInfo`].
    PsetInfo {
        /// Number of ranks in the set.
        size: u32,
        /// The set's serial number, 0 for the two `mpi://` sets.
        serial: u32,
    },
    /// Reply to [`Op::PsetMembers`].
    PsetMembers {
        /// Ranks of one job in ascending order, as `0-3,7`.
        members: Text<'a>,
        /// The job, unless it is that of the client.
        jobid: Option<Text<'a>>,
        /// Start of the next request, if the list is incomplete.
        next: Option<u32>,
    },
    /// Reply to [`Op::Fence`].
    Fence {
        /// Tag of the group, if the command named a group.
        tag: Option<u32>,
    },
    /// Reply to a command without result: success.
    Done(Op),
    /// Reply to any command: failure.
    Refused(Op, Failure<'a>),
}

/// Reason of a failed request, as sent by the server or as received by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure<'a> {
    /// Reason of the server.
    Refusal(Refusal),
    /// Reason as received by a client: `rc`, and `errmsg` (PMI-1: `msg`) or an empty text.
    Remote(i32, Text<'a>),
}

/// Error codes of the programs of a spawn, or in PMI-1 of its processes. 0 is success. Others are the `errno` of the
/// failure.
#[derive(Clone, Copy)]
pub struct Codes<'a>(List<'a>);

#[derive(Clone, Copy)]
enum List<'a> {
    Same { code: i32, count: u32 },
    Given(&'a [u8]),
    Message(&'a [u8]),
}

impl<'a> Codes<'a> {
    /// Returns `count` equal codes.
    pub const fn same(code: i32, count: u32) -> Codes<'a> {
        Codes(List::Same { code, count })
    }

    /// Returns these codes.
    pub const fn new(codes: &'a [u8]) -> Codes<'a> {
        Codes(List::Given(codes))
    }

    /// Decodes `a,b,…`, or an empty text: Slurm's server omits the field.
    pub(super) fn decode(list: &'a [u8]) -> Option<Codes<'a>> {
        let mut codes = list.split(|&b| b == b',');
        (list.is_empty() || codes.all(|code| scan::integer(code).is_some()))
            .then_some(Codes(List::Message(list)))
    }

    /// Returns the codes in the order of the programs.
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
    /// Returns the kind of the command.
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
            Reply::PsetNext { .. } => Op::PsetNext,
            Reply::PsetInfo { .. } => Op::PsetInfo,
            Reply::PsetMembers { .. } => Op::PsetMembers,
            Reply::Ring { .. } => Op::Ring,
            Reply::Fence { .. } => Op::Fence,
            Reply::Found(op, _) | Reply::Missing(op) | Reply::Done(op) | Reply::Refused(op, _) => op,
        }
    }
}

/// Encodes a reply with `put`. A text that the protocol cannot carry becomes an error reply with [`Refusal::Unprintable`], a
/// reply that the protocol does not have becomes one with [`Refusal::Unsupported`].
pub(super) fn encode<'b>(
    reply: &Reply<'_>,
    style: Style,
    buf: &'b mut [u8],
    put: impl Fn(&mut Writer<'_>, &Reply<'_>) -> Result<(), EncodeError>,
) -> Result<&'b [u8], EncodeError> {
    let write = |buf: &mut [u8], reply: &Reply<'_>| {
        let mut w = Writer::new(buf, style);
        put(&mut w, reply)?;
        Ok(w.finish()?.len())
    };
    let refusing = |refusal| Reply::Refused(reply.op(), Failure::Refusal(refusal));
    let len = match write(buf, reply) {
        Err(EncodeError::Unprintable) => write(buf, &refusing(Refusal::Unprintable)),
        Err(EncodeError::Unsupported) => write(buf, &refusing(Refusal::Unsupported)),
        written => written,
    };
    buf.get(..len?).ok_or(EncodeError::DoesNotFit)
}
