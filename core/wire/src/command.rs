//! Commands of clients, in one vocabulary for both protocols.

use serde::{Deserialize, Serialize};

use super::scan;
use super::spawn::Spawn;
use super::token::Text;
use crate::Refusal;

/// Decoded request, with the fields that its reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Kind of the command. [`Op::Unknown`] if it is not known.
    pub op: Op,
    /// The command, or why it is refused. The connection remains usable.
    pub command: Result<Command<'a>, Refusal>,
    /// Thread id of PMI-2.
    pub thrid: Option<Text<'a>>,
}

/// What ends a publication, beside its withdrawal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persistence {
    /// The end of the publisher's job.
    #[default]
    Job,
    /// The first look-up, or the end of the job.
    FirstRead,
    /// The end of the publisher.
    Process,
    /// The end of the publisher's run.
    Session,
    /// The end of the server.
    Indefinite,
}

impl Persistence {
    /// Returns the value of `persist`. The end of the job has none.
    pub const fn name(self) -> Option<&'static [u8]> {
        match self {
            Persistence::Job => None,
            Persistence::FirstRead => Some(b"first-read"),
            Persistence::Process => Some(b"process"),
            Persistence::Session => Some(b"session"),
            Persistence::Indefinite => Some(b"indefinite"),
        }
    }

    /// Returns the persistence with a value of `persist`.
    pub(super) fn named(text: Option<Text<'_>>) -> Result<Persistence, Refusal> {
        use Persistence::{FirstRead, Indefinite, Process, Session};
        let Some(text) = text else { return Ok(Persistence::Job) };
        let found =
            [FirstRead, Process, Session, Indefinite].into_iter().find(|one| one.name() == text.as_plain());
        found.ok_or(Refusal::BadField)
    }
}

/// A request. Text fields borrow from the message. [`Text`] removes the protocol's escapes when it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `cmd=init pmi_version= pmi_subversion=`, a PMI-1 line in both protocols.
    Init {
        /// Protocol version from the reply on: 1 or 2.
        version: u32,
        /// Its subversion.
        subversion: u32,
    },
    /// `cmd=initack pmiid=`, before `init`. PMI-1 over `PMI_PORT` only.
    InitAck {
        /// Rank, `PMI_ID`.
        pmiid: u32,
    },
    /// `fullinit`, the second step of PMI-2's handshake.
    FullInit {
        /// `pmirank`, or `srcid` without it.
        rank: Option<u32>,
        /// `pmijobid`
        jobid: Option<Text<'a>>,
        /// Whether several threads will share the connection, and send `thrid`.
        threaded: bool,
    },
    /// PMI-1 `get_maxes`.
    GetMaxes,
    /// PMI-1 `get_universe_size`.
    GetUniverseSize,
    /// PMI-1 `get_appnum`.
    GetAppnum,
    /// PMI-1 `get_my_kvsname`, PMI-2 `job-getid`.
    GetJobId,
    /// `put`, `kvs-put`.
    Put {
        /// PMI-1 `kvsname`.
        kvs: Option<Text<'a>>,
        /// The key.
        key: Text<'a>,
        /// The value. In PMI-1 it is the rest of the line after `value=`.
        value: Text<'a>,
    },
    /// `get`, `kvs-get`.
    Get {
        /// PMI-1 `kvsname`, PMI-2 `jobid`. The client's own if missing or empty.
        kvs: Option<Text<'a>>,
        /// The key.
        key: Text<'a>,
        /// PMI-2 `srcid`: rank that has put the pair, if the client names one. It is a hint.
        source: Option<u32>,
    },
    /// `barrier_in`, `kvs-fence`.
    Fence {
        /// PMI-1.2 `group=`. The whole job if missing.
        group: Option<Group<'a>>,
    },
    /// `info-putnodeattr`
    PutNodeAttr {
        /// The attribute's name.
        key: Text<'a>,
        /// Its value.
        value: Text<'a>,
    },
    /// `info-getnodeattr`
    GetNodeAttr {
        /// The attribute's name.
        key: Text<'a>,
        /// Whether the reply waits until the attribute is put.
        wait: bool,
    },
    /// `info-getjobattr`
    GetJobAttr {
        /// The attribute's name.
        key: Text<'a>,
    },
    /// `publish_name`, `name-publish`
    Publish {
        /// PMI-1 `service`, PMI-2 `name`.
        name: Text<'a>,
        /// Port that look-ups return.
        port: Text<'a>,
        /// PMI-2 `persist`, an extension of hydrant for PMIx clients: what ends the publication.
        persistence: Persistence,
    },
    /// `unpublish_name`, `name-unpublish`
    Unpublish {
        /// PMI-1 `service`, PMI-2 `name`.
        name: Text<'a>,
        /// PMI-2 `for`, an extension of hydrant for PMIx clients: the process that a name service is asked for.
        party: Option<Text<'a>>,
    },
    /// `lookup_name`, `name-lookup`
    Lookup {
        /// PMI-1 `service`, PMI-2 `name`.
        name: Text<'a>,
        /// PMI-2 `wait`, an extension of hydrant: timeout in milliseconds for a name that is not published. The
        /// server's default if missing.
        wait: Option<u32>,
        /// PMI-2 `for`, as in [`Unpublish`](Command::Unpublish).
        party: Option<Text<'a>>,
    },
    /// `mcmd=spawn`, `spawn`
    Spawn(Spawn<'a>),
    /// `job-connect`
    Connect {
        /// The job to connect to.
        jobid: Text<'a>,
    },
    /// `job-disconnect`
    Disconnect {
        /// The job to disconnect from.
        jobid: Text<'a>,
    },
    /// `ring`
    Ring {
        /// `ring-count`: count that the sender contributes.
        count: u32,
        /// `ring-left`
        left: Text<'a>,
        /// `ring-right`
        right: Text<'a>,
    },
    /// `pset-count`: number of process sets that the sender is in.
    PsetCount,
    /// `pset-name`: name of a process set.
    PsetName {
        /// `index`, from 0.
        index: u32,
    },
    /// `pset-next`: name and serial number of the first process set after another one.
    PsetNext {
        /// `after`: serial number of the other one. 0 for the first set.
        after: u32,
    },
    /// `pset-info`: size of a process set.
    PsetInfo {
        /// The set's name.
        name: Text<'a>,
    },
    /// `pset-members`: members of a process set.
    PsetMembers {
        /// The set's name.
        name: Text<'a>,
        /// Position from which the reply lists members. The positions in a set are the ranks of the first of its jobs,
        /// followed by those of the others. A long list takes several replies.
        from: u32,
    },
    /// `pset-define`: definition of a process set.
    PsetDefine {
        /// The set's name.
        name: Text<'a>,
        /// Ranks of the sender's job.
        members: RankRanges<'a>,
    },
    /// `pset-combine`: definition of a process set from two sets of which the sender is a member.
    PsetCombine {
        /// The set's name.
        name: Text<'a>,
        /// Operation on the two sets.
        operation: SetOperation,
        /// Names of the two sets.
        operands: [Text<'a>; 2],
    },
    /// `pset-retire`: end of a process set for ranks that do not know it.
    PsetRetire {
        /// The set's name.
        name: Text<'a>,
    },
    /// `pset-prune`: removal of the sender's retired process sets.
    PsetPrune,
    /// `abort`
    Abort {
        /// `exitcode` of PMI-1 and MPICH 5. It may be negative.
        code: Option<i32>,
        /// Whether the whole job is aborted: PMI-2 `isworld`. True if missing.
        world: bool,
        /// `message` or `msg`. Empty if missing.
        message: Text<'a>,
    },
    /// `finalize`
    Finalize,
}

impl Command<'_> {
    /// Returns whether it puts a value with NUL.
    pub fn holds_nul(&self) -> bool {
        matches!(self, Command::Put { value, .. } | Command::PutNodeAttr { value, .. } if value.holds_nul())
    }

    /// Returns the kind of the command.
    pub fn op(&self) -> Op {
        match self {
            Command::Init { .. } => Op::Init,
            Command::InitAck { .. } => Op::InitAck,
            Command::FullInit { .. } => Op::FullInit,
            Command::GetMaxes => Op::GetMaxes,
            Command::GetUniverseSize => Op::GetUniverseSize,
            Command::GetAppnum => Op::GetAppnum,
            Command::GetJobId => Op::GetJobId,
            Command::Put { .. } => Op::Put,
            Command::Get { .. } => Op::Get,
            Command::Fence { .. } => Op::Fence,
            Command::PutNodeAttr { .. } => Op::PutNodeAttr,
            Command::GetNodeAttr { .. } => Op::GetNodeAttr,
            Command::GetJobAttr { .. } => Op::GetJobAttr,
            Command::Publish { .. } => Op::Publish,
            Command::Unpublish { .. } => Op::Unpublish,
            Command::Lookup { .. } => Op::Lookup,
            Command::Spawn(_) => Op::Spawn,
            Command::Connect { .. } => Op::Connect,
            Command::Disconnect { .. } => Op::Disconnect,
            Command::Ring { .. } => Op::Ring,
            Command::PsetCount => Op::PsetCount,
            Command::PsetName { .. } => Op::PsetName,
            Command::PsetNext { .. } => Op::PsetNext,
            Command::PsetInfo { .. } => Op::PsetInfo,
            Command::PsetMembers { .. } => Op::PsetMembers,
            Command::PsetDefine { .. } => Op::PsetDefine,
            Command::PsetCombine { .. } => Op::PsetCombine,
            Command::PsetRetire { .. } => Op::PsetRetire,
            Command::PsetPrune => Op::PsetPrune,
            Command::Abort { .. } => Op::Abort,
            Command::Finalize => Op::Finalize,
        }
    }
}

/// Kind of a [`Command`], which determines the name of its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the command of the same name")]
pub enum Op {
    #[default]
    Init,
    InitAck,
    FullInit,
    GetMaxes,
    GetUniverseSize,
    GetAppnum,
    GetJobId,
    Put,
    Get,
    Fence,
    PutNodeAttr,
    GetNodeAttr,
    GetJobAttr,
    Publish,
    Unpublish,
    Lookup,
    Spawn,
    Connect,
    Disconnect,
    Ring,
    PsetCount,
    PsetName,
    PsetInfo,
    PsetMembers,
    PsetDefine,
    Abort,
    Finalize,
    PsetNext,
    PsetRetire,
    PsetPrune,
    PsetCombine,
    /// An unknown command. Its reply is named `unknown_result` (PMI-1) or `unknown-response` (PMI-2). A client that
    /// compares names fails in any case, and the server need not store the name.
    Unknown,
}

impl Op {
    /// Returns whether the command changes the process sets. On several nodes the head then decides.
    pub const fn changes_psets(self) -> bool {
        matches!(self, Op::PsetDefine | Op::PsetCombine | Op::PsetRetire | Op::PsetPrune)
    }
}

/// Operation on two process sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetOperation {
    /// Members of either set.
    Union,
    /// Members of both sets.
    Intersection,
    /// Members of the first set that are not in the second one.
    Difference,
}

impl SetOperation {
    /// Returns the operation with a name of the protocol.
    pub(crate) fn named(name: &Text<'_>) -> Option<SetOperation> {
        let operations = [SetOperation::Union, SetOperation::Intersection, SetOperation::Difference];
        operations.into_iter().find(|operation| *name == *operation.name())
    }

    /// Applies the operation to two sets of bits.
    pub fn apply(self, one: u32, other: u32) -> u32 {
        match self {
            SetOperation::Union => one | other,
            SetOperation::Intersection => one & other,
            SetOperation::Difference => one & !other,
        }
    }

    /// Returns the name in the protocol.
    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            SetOperation::Union => b"union",
            SetOperation::Intersection => b"intersection",
            SetOperation::Difference => b"difference",
        }
    }
}

/// Members of a PMI-1.2 barrier, and a tag that distinguishes barriers of the same members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// The members.
    pub members: Members<'a>,
    /// Number after the colon. 0 if missing.
    pub tag: u32,
}

/// Members of a group barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members<'a> {
    /// `WORLD`: all ranks of the job.
    World,
    /// `NODE`: the job's ranks on the sender's node.
    Node,
    /// `0,1,5`: a list of at least one rank, validated.
    Ranks(RankList<'a>),
}

impl<'a> Group<'a> {
    /// Decodes `WORLD:tag`, `NODE:tag` or `r0,r1,…:tag`.
    pub(super) fn decode(text: Text<'a>) -> Result<Group<'a>, Refusal> {
        let raw = text.as_plain().ok_or(Refusal::BadGroup)?;
        let mut halves = raw.splitn(2, |&b| b == b':');
        let members = match halves.next().unwrap_or_default() {
            b"WORLD" => Members::World,
            b"NODE" => Members::Node,
            list => Members::Ranks(RankList::new(list).ok_or(Refusal::BadGroup)?),
        };
        let tag = halves.next().map_or(Some(0), scan::number).ok_or(Refusal::BadGroup)?;
        Ok(Group { members, tag })
    }
}

/// Comma-separated list of ranks, validated and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankList<'a>(pub(super) &'a [u8]);

impl<'a> RankList<'a> {
    /// Validates `list`. Returns `None` unless it is one or more numbers, separated by commas.
    pub fn new(list: &'a [u8]) -> Option<RankList<'a>> {
        list.split(|&b| b == b',').all(|rank| scan::number(rank).is_some()).then_some(RankList(list))
    }

    /// Returns the text of the list.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the ranks, at least one, in the client's order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.split(|&b| b == b',').filter_map(scan::number)
    }
}

/// List of ranks and ranges, such as `0-3,7`, validated and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRanges<'a>(&'a [u8]);

impl<'a> RankRanges<'a> {
    /// Validates `list`. Returns `None` if it is malformed.
    pub fn new(list: &'a [u8]) -> Option<RankRanges<'a>> {
        list.split(|&b| b == b',').all(|part| range(part).is_some()).then_some(RankRanges(list))
    }

    /// Returns the text of the list.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Returns the ranks in the client's order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.split(|&b| b == b',').filter_map(range).flatten()
    }
}

fn range(part: &[u8]) -> Option<core::ops::RangeInclusive<u32>> {
    let mut ends = part.splitn(2, |&b| b == b'-');
    let first = scan::number(ends.next()?)?;
    let last = ends.next().map_or(Some(first), scan::number)?;
    (first <= last).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn ranges_of_ranks_are_checked() {
        let ranks = |list: &'static str| RankRanges::new(list.as_bytes()).map(|ranks| ranks.iter().collect());
        assert_eq!(ranks("7,0-3,3"), Some(Vec::from([7, 0, 1, 2, 3, 3])));
        for bad in ["", ",", "1,", "3-1", "-1", "1-", "1--2", "a", "1 2", "99999999999"] {
            assert_eq!(ranks(bad), None, "{bad}");
        }
    }
}
