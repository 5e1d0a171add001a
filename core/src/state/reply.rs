//! Pending replies of a connection.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::{JobId, Rank, UpcallId};
use crate::limits::THRID_MAX;
use crate::tables::names::NameRef;
use crate::tables::psets::Which;
use crate::time::Time;
use crate::wire::Op;

use super::job::RingPart;

/// Pending reply of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PendingReply {
    /// PMI-2 thread id to repeat. Empty without one.
    pub(crate) thrid: Vec<u8, THRID_MAX, u8>,
    /// State of the reply.
    pub(crate) state: ReplyState,
}

/// State of a pending reply. Everything that it refers to is kept until the reply is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ReplyState {
    /// Waits for the job's fence.
    Fence,
    /// Waits for a group's fence with this tag.
    GroupFence {
        /// The group.
        group: u32,
        /// Tag to repeat.
        tag: u32,
    },
    /// Waits for a node attribute. The number is the offset of its wanted record.
    NodeAttr(u32),
    /// Waits for a name to be published.
    Lookup {
        /// Slot of the name.
        at: u32,
        /// Deadline.
        until: Time,
    },
    /// Waits for several names to be published.
    LookupAll {
        /// Bit set of the slots of the names, published or not.
        slots: u64,
        /// Deadline.
        until: Time,
    },
    /// Waits for the ring to complete.
    Ring,
    /// Waits for a PMIx rank to put a key.
    Get {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// What it waits for.
        wanted: Wanted,
        /// Deadline.
        until: Time,
    },
    /// Waits until all members of a PMIx group are known.
    Bootstrap {
        /// Hash of the name of the group.
        tag: u32,
        /// Time of the request.
        since: Time,
        /// Deadline.
        until: Time,
    },
    /// Waits for a pair of a lazy job that another node may have.
    Fetch {
        /// The job.
        job: JobId,
        /// Offset of the record of the wanted key.
        key: u32,
        /// Slot of the rank that is asked for the pair. All ranks are asked without one.
        source: Option<u32>,
    },
    /// A handshake that waits for the echo of this number.
    Echo(u32),
    /// An upcall that the host has completed, and that waits for the echo of this number.
    UpcallEcho(u32, Op, UpcallId),
    /// Waits for the host to complete an upcall.
    Upcall(Op, UpcallId),
    /// Ready to be sent.
    Ready(Response),
}

impl ReplyState {
    /// Returns the offsets of the records of the log that it refers to.
    #[cfg(feature = "cluster")]
    pub(crate) fn records_mut(&mut self) -> [Option<&mut u32>; 2] {
        match self {
            ReplyState::NodeAttr(record)
            | ReplyState::Fetch { key: record, .. }
            | ReplyState::Ready(
                Response::Record(_, record)
                | Response::Pmix(
                    PmixResponse::Commit { record, .. }
                    | PmixResponse::Given { record, .. }
                    | PmixResponse::Refreshed { record: Some(record) }
                    | PmixResponse::Text(_, record),
                ),
            ) => [Some(record), None],
            ReplyState::Ready(Response::Ring(part)) => [Some(&mut part.left), Some(&mut part.right)],
            _ => [None, None],
        }
    }
}

/// What a get of a PMIx client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// A key with this hash.
    Key {
        /// The hash.
        hash: u32,
        /// Whether the request has a timeout of its own, so that it waits for a key that a fence has not brought.
        patient: bool,
    },
    /// The newest data of a rank of another node, and in them a key with this hash, or any.
    Newest(Option<u32>),
    /// The newest data of a rank of another node, for the client's copy.
    Copy,
}

/// Reply in terms of the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Response {
    /// Negotiated version.
    Init {
        /// 1 or 2.
        version: u32,
        /// Its subversion.
        subversion: u32,
    },
    /// Rank, size and appnum for PMI-1.
    InitAck,
    /// Rank, size, appnum and spawner for PMI-2.
    FullInit,
    /// Maximum lengths of names, keys and values.
    Maxes,
    /// Universe size for PMI-1.
    UniverseSize,
    /// Number of the program on the command line.
    Appnum,
    /// Job id.
    JobId,
    /// Value of the record at this offset.
    Record(Op, u32),
    /// Attribute that the server computes.
    Attr(Op, Attr),
    /// The port of a published name.
    Port(NameRef),
    /// Result of a spawn or another upcall.
    Upcall(Op, UpcallId),
    /// Result of the ring: count, and records of the neighbours.
    Ring(RingPart),
    /// Number of process sets.
    PsetCount(u32),
    /// Name of a process set.
    PsetName(Which),
    /// Name and serial number of a process set.
    PsetNext(Which),
    /// Serial number and size of a process set.
    PsetInfo(Which, u32),
    /// Members of a process set, from this position on.
    PsetMembers(Which, u32),
    /// Missing key or attribute.
    Missing(Op),
    /// Completed fence, with the tag of a group.
    Fence(Option<u32>),
    /// Success.
    Done(Op),
    /// Refused request.
    Refused(Op, Refusal),
    /// Response to a PMIx client.
    Pmix(PmixResponse),
}

impl Response {
    /// Returns the response to a PMIx client with this status alone.
    #[cfg(feature = "pmix")]
    pub(crate) const fn status(code: i32) -> Response {
        Response::Pmix(PmixResponse::Status(code))
    }
}

/// Response to a PMIx client in terms of the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PmixResponse {
    /// Result of a PMIx handshake.
    Hello(i32),
    /// Success of the handshake of a PMIx tool.
    ToolHello {
        /// Whether the server names the tool.
        names_it: bool,
    },
    /// Status code of PMIx.
    Status(i32),
    /// Data about the job and the rank for PMIx.
    JobInfo,
    /// Data about a job for PMIx.
    JobData(JobId),
    /// Data about a rank that the server provides, for PMIx.
    RankData(JobId, Rank),
    /// Members of a new PMIx group, if the client's library reads them, and its context id.
    Group {
        /// Context id.
        context: u32,
        /// Number of members.
        members: u32,
    },
    /// Context id for a PMIx group by invitation.
    Context(u32),
    /// Process sets of the job for PMIx.
    Psets {
        /// Whether the names are requested.
        names: bool,
        /// Whether the number is requested.
        count: bool,
    },
    /// Data that a PMIx rank has put, at this offset.
    Commit {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Offset of the record.
        record: u32,
    },
    /// What a PMIx rank has given to a group, or to the members of any, at this offset.
    Given {
        /// Job of the rank.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// Offset of the record.
        record: u32,
        /// Context id of the group.
        context: Option<u32>,
    },
    /// Newest data of a PMIx rank, at this offset, for a client that renews its copy.
    Refreshed {
        /// Offset of the record, if the rank has put any data.
        record: Option<u32>,
    },
    /// Published data for a PMIx client that has looked up several keys.
    Published {
        /// Bit set of the slots of names.
        slots: u64,
    },
    /// Event for a PMIx client: a rank died in a job that continues.
    Died(JobId, Rank),
    /// Event for a PMIx client, which another client sent.
    Notice(NameRef),
    /// Event for a PMIx client: a report of one of its monitors.
    Report(UpcallId),
    /// Event for a PMIx client: a process set of its job was defined, or retired.
    SetChanged {
        /// The set.
        which: Which,
        /// Whether it was retired.
        retired: bool,
    },
    /// Names of the hosts of a job for PMIx.
    Hosts(JobId),
    /// Ranks of a job on the host of a node for PMIx.
    Host(JobId, u32),
    /// Number of the host of a node, and of a job's ranks and of all processes there.
    HostSizes(JobId, u32),
    /// Name of a job, and the offset of its ranks.
    Identity(JobId),
    /// How often a rank has been started again.
    Restarts(JobId, Rank),
    /// What is known of a program of a job for PMIx: its number.
    Program(JobId, u32),
    /// Processes of a job on this host for PMIx.
    Processes(JobId),
    /// Process sets that a rank is in, or of all ranks of a job if the rank is none of it.
    SetsOf(JobId, Rank),
    /// Attribute of a job that is a text for PMIx clients, at this offset.
    Text(JobId, u32),
    /// Success of a request of PMIx whose reply has INFOs, without any.
    NoInfos,
    /// Success of a connection of PMIx, with what each member is told about the jobs of the others.
    Connected {
        /// Bit set of the jobs, as far as their numbers are below 64.
        jobs: u64,
    },
    /// Processes on the host of a node for PMIx, of a job or of all jobs.
    PeersOn(Option<JobId>, u32),
    /// Names of the hosts of a job for PMIx, or of all jobs.
    HostsOf(Option<JobId>),
}

impl PmixResponse {
    /// Returns the job that a response is about, and the rank if it is about one.
    pub(crate) fn about(self) -> Option<(JobId, Option<Rank>)> {
        match self {
            PmixResponse::JobData(job)
            | PmixResponse::Text(job, _)
            | PmixResponse::Hosts(job)
            | PmixResponse::Host(job, _)
            | PmixResponse::HostSizes(job, _)
            | PmixResponse::Identity(job)
            | PmixResponse::Program(job, _)
            | PmixResponse::Processes(job)
            | PmixResponse::PeersOn(Some(job), _)
            | PmixResponse::HostsOf(Some(job)) => Some((job, None)),
            PmixResponse::RankData(job, rank)
            | PmixResponse::Restarts(job, rank)
            | PmixResponse::SetsOf(job, rank)
            | PmixResponse::Commit { job, rank, .. }
            | PmixResponse::Given { job, rank, .. } => Some((job, Some(rank))),
            _ => None,
        }
    }
}

/// Attributes that the server computes. An attribute that the host has [set](crate::Input::Attr) takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Attr {
    /// `universeSize`: universe size of the job.
    Universe,
    /// `PMI_dead_processes`: dead ranks of a job that continues, as `1,3-5`.
    Dead,
    /// `hasNameServ`: 1.
    NameServ,
    /// `physTopology`: `complete`, because any two ranks can reach each other.
    Topology,
    /// `isHeterogeneous`: 0.
    Heterogeneous,
    /// `localRanksCount`: number of the job's ranks on this node.
    LocalCount,
    /// `localRanks`: ranks of the job on this node, separated by commas.
    LocalRanks,
    /// [`ESCAPES_ATTR`](crate::limits::ESCAPES_ATTR): 1.
    Escapes,
}
