//! Commands of clients, in the vocabulary of both protocols.

use serde::{Deserialize, Serialize};

use super::scan;
use super::spawn::Spawn;
use super::token::Text;
use crate::fault::{Malformed, Refusal};

/// A decoded request with what its reply must repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// What is asked.
    pub command: Command<'a>,
    /// PMI-2: which thread of the client asks.
    pub thrid: Option<Text<'a>>,
}

/// Why a frame is no [`Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecoded<'a> {
    /// The connection cannot go on.
    Malformed(Malformed),
    /// This one command gets a refusal, and the connection goes on.
    Refused {
        /// What was asked; [`Op::Unknown`] where nobody knows.
        op: Op,
        /// What is wrong with it.
        refusal: Refusal,
        /// As [`Message::thrid`].
        thrid: Option<Text<'a>>,
    },
}

impl From<Malformed> for Undecoded<'_> {
    fn from(malformed: Malformed) -> Self {
        Undecoded::Malformed(malformed)
    }
}

/// A request. Text fields borrow from the message; [`Text`] undoes the protocol's escapes as it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `cmd=init pmi_version= pmi_subversion=`, a PMI-1 line in both protocols.
    Init {
        /// The protocol that is spoken from the reply on: 1 or 2.
        version: u32,
        /// Its subversion.
        subversion: u32,
    },
    /// PMI-1 over `PMI_PORT`: `cmd=initack pmiid=`, before `init`.
    InitAck {
        /// `PMI_ID`: the rank.
        pmiid: u32,
    },
    /// PMI-2's second step.
    FullInit {
        /// `pmirank`, or `srcid` where that is missing.
        rank: Option<u32>,
        /// `pmijobid`
        jobid: Option<Text<'a>>,
        /// Whether several threads will share the connection, with `thrid` to tell their messages apart.
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
        /// The value; in PMI-1 everything behind `value=` to the end of the line.
        value: Text<'a>,
    },
    /// `get`, `kvs-get`.
    Get {
        /// PMI-1 `kvsname`, PMI-2 `jobid`; the client's own where missing or empty.
        kvs: Option<Text<'a>>,
        /// The key.
        key: Text<'a>,
    },
    /// `barrier_in`, `kvs-fence`.
    Fence {
        /// PMI-1.2 `group=`; the whole job where missing.
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
        /// Whether to hold the reply until someone puts it.
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
        /// What a lookup returns.
        port: Text<'a>,
    },
    /// `unpublish_name`, `name-unpublish`
    Unpublish {
        /// PMI-1 `service`, PMI-2 `name`.
        name: Text<'a>,
    },
    /// `lookup_name`, `name-lookup`
    Lookup {
        /// PMI-1 `service`, PMI-2 `name`.
        name: Text<'a>,
        /// PMI-2 `wait`, a field of hydrant's own: how many milliseconds to wait for somebody to publish it; what the
        /// server waits for by itself where missing.
        wait: Option<u32>,
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
        /// `ring-count`: ranks below and at the sender.
        count: u32,
        /// `ring-left`
        left: Text<'a>,
        /// `ring-right`
        right: Text<'a>,
    },
    /// `pset-count`: how many process sets the sender is in.
    PsetCount,
    /// `pset-name`: the name of one of them.
    PsetName {
        /// `index`, from 0.
        index: u32,
    },
    /// `pset-info`: the size of one of them.
    PsetInfo {
        /// The set's name.
        name: Text<'a>,
    },
    /// `pset-members`: who is in it.
    PsetMembers {
        /// The set's name.
        name: Text<'a>,
        /// The smallest rank to tell of, because a long list comes in several replies.
        from: u32,
    },
    /// `pset-define`: a new set.
    PsetDefine {
        /// The set's name.
        name: Text<'a>,
        /// Ranks of the sender's job.
        members: RankRanges<'a>,
    },
    /// `abort`
    Abort {
        /// PMI-1 and MPICH 5 `exitcode`; may be negative.
        code: Option<i32>,
        /// Whether the whole job ends: PMI-2 `isworld`, true where missing.
        world: bool,
        /// `message` or `msg`, empty where missing.
        message: Text<'a>,
    },
    /// `finalize`
    Finalize,
}

impl Command<'_> {
    /// Which reply the command gets.
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
            Command::PsetInfo { .. } => Op::PsetInfo,
            Command::PsetMembers { .. } => Op::PsetMembers,
            Command::PsetDefine { .. } => Op::PsetDefine,
            Command::Abort { .. } => Op::Abort,
            Command::Finalize => Op::Finalize,
        }
    }
}

/// The kind of a [`Command`], which also names its reply.
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
    /// A command that is not known. Its reply is named `unknown_result` (PMI-1) or `unknown-response` (PMI-2):
    /// a client that compares names fails either way, and nothing has to keep the name until the reply is sent.
    Unknown,
}

/// The members of a PMI-1.2 barrier and the tag that tells barriers of the same members apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Who takes part.
    pub members: Members<'a>,
    /// The number behind the colon; 0 where missing.
    pub tag: u32,
}

/// Who takes part in a group barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members<'a> {
    /// `WORLD`: every rank of the job.
    World,
    /// `NODE`: the job's ranks on the sender's node.
    Node,
    /// `0,1,5`: these ranks; at least one, each checked to be a number.
    Ranks(RankList<'a>),
}

impl<'a> Group<'a> {
    /// Reads `WORLD:tag`, `NODE:tag` or `r0,r1,…:tag`.
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

/// A comma-separated list of ranks that is known to be well-formed and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankList<'a>(pub(super) &'a [u8]);

impl<'a> RankList<'a> {
    /// `list` when it is one number or several with commas between them.
    pub fn new(list: &'a [u8]) -> Option<RankList<'a>> {
        list.split(|&b| b == b',').all(|rank| scan::number(rank).is_some()).then_some(RankList(list))
    }

    /// The list as it stands in a message.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The ranks, at least one, as the client ordered them.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.split(|&b| b == b',').filter_map(scan::number)
    }
}

/// Ranks as `0-3,7`: numbers and ranges with commas between them, known to be well-formed and not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankRanges<'a>(&'a [u8]);

impl<'a> RankRanges<'a> {
    /// `list` when it is well-formed.
    pub fn new(list: &'a [u8]) -> Option<RankRanges<'a>> {
        list.split(|&b| b == b',').all(|part| range(part).is_some()).then_some(RankRanges(list))
    }

    /// The list as it stands in a message.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The ranks as the client ordered them.
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
