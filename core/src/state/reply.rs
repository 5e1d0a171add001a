//! Pending replies of a connection.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::UpcallId;
use crate::limits::THRID_MAX;
use crate::tables::names::NameRef;
use crate::tables::psets::Which;
use crate::time::Time;
use crate::wire::Op;

use super::job::RingPart;

/// A reply that a connection is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingReply {
    /// PMI-2's thread id, to be echoed; empty where none came.
    pub(crate) thrid: Vec<u8, THRID_MAX, u8>,
    /// What will be said, or waited for.
    pub(crate) state: ReplyState,
}

/// What a reply will say, or waits for. Everything that it names stays where it is until the reply is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReplyState {
    /// Waits for the job's fence.
    Fence,
    /// Waits for a group's fence with this tag.
    GroupFence {
        /// The group.
        group: u32,
        /// To be echoed.
        tag: u32,
    },
    /// Waits for a node attribute; the number is the record that stands for the wish.
    NodeAttr(u32),
    /// Waits for a name to be published.
    Lookup {
        /// The slot where it will be.
        at: u32,
        /// When to give up.
        until: Time,
    },
    /// Waits for the others of the ring.
    Ring,
    /// Waits for the host to start processes, or to see to a name.
    Upcall(Op, UpcallId),
    /// To be said: everything below.
    Ready(Response),
}

/// A reply in terms of the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Response {
    /// The version that is spoken from here on.
    Init {
        /// 1 or 2.
        version: u32,
        /// Its subversion.
        subversion: u32,
    },
    /// Rank, size and appnum to PMI-1.
    InitAck,
    /// The same to PMI-2.
    FullInit,
    /// The lengths of names, keys and values.
    Maxes,
    /// The universe's size, to PMI-1.
    UniverseSize,
    /// Which program of the command line.
    Appnum,
    /// The job's name.
    JobId,
    /// The value of the record at that offset.
    Record(Op, u32),
    /// An attribute that the server knows itself.
    Attr(Op, Attr),
    /// The port of a published name.
    Port(NameRef),
    /// What became of a spawn, or of a name that is the host's business.
    Upcall(Op, UpcallId),
    /// The place in the ring, and the neighbours' records.
    Ring(RingPart),
    /// How many process sets.
    PsetCount(u32),
    /// The name of a process set.
    PsetName(Which),
    /// The size of a process set.
    PsetInfo(u32),
    /// Its members from that rank on.
    PsetMembers(Which, u32),
    /// Nobody has put it.
    Missing(Op),
    /// The fence is complete.
    Fence(Option<u32>),
    /// It is done.
    Done(Op),
    /// It is not done.
    Refused(Op, Refusal),
}

/// Attributes that a server knows itself. What the host [says](crate::Input::Attr) comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Attr {
    /// `universeSize`
    Universe,
    /// `PMI_dead_processes`: ranks that died in a job that goes on, as `1,3-5`.
    Dead,
    /// `hasNameServ`: 1.
    NameServ,
    /// `physTopology`: `complete`, as any two ranks can reach each other.
    Topology,
    /// `isHeterogeneous`: 0.
    Heterogeneous,
    /// `localRanksCount`: the job's ranks on this node.
    LocalCount,
    /// `localRanks`: which they are, with commas between them.
    LocalRanks,
}
