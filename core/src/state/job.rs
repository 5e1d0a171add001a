//! Slots of jobs and ranks.

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, Rank};
use crate::limits::JOBID_MAX;
use crate::tables::fence::Fence;
use crate::tables::kvs::{Spaces, Usage};
use crate::tables::link_set::LinkSet;
use crate::tables::tracker::Tracker;
use crate::time::Time;
use crate::trace::{Cause, Exit};

/// Slot of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Job id that clients see. An empty one marks a free slot.
    pub(crate) name: String<JOBID_MAX, u8>,
    /// Hash of the job id, for messages to other nodes.
    pub(crate) hash: u32,
    /// Index of its first slot in [`Storage::ranks`].
    pub(crate) first: u32,
    /// Number of ranks.
    pub(crate) size: u32,
    /// Universe size, `universeSize`. 0 if it is not known.
    pub(crate) universe_size: u32,
    /// Whether a rank that fails aborts the job.
    pub(crate) cleanup: bool,
    /// PMI-1 subversion in the reply to `init`.
    pub pmi1_subversion: u32,
    /// Job id of the job that spawned it. Empty without one.
    pub(crate) spawner: String<JOBID_MAX, u8>,
    /// Whether it has disconnected from that job.
    pub(crate) parted: bool,
    /// Milliseconds that a look-up waits for a name.
    pub(crate) lookup_wait: u64,
    /// Whether the host carries out requests about names.
    pub(crate) remote_names: bool,
    /// Milliseconds after which a waiting fence is stalled. 0 for never.
    pub(crate) fence_warning: u64,
    /// Whether its fences move only the pairs of ranks that other nodes have asked for.
    pub(crate) lazy: bool,
    /// Whether this node asks for the pairs of all ranks after those of many.
    pub(crate) adaptive: bool,
    /// Number of nodes that it has asked for pairs by a hint.
    pub(crate) nodes_asked: u32,
    /// Whether it has asked for the pairs of all ranks.
    pub(crate) all_asked: bool,
    /// Number of ranks of other nodes whose pairs are here.
    pub(crate) fetched: u32,
    /// Key-value spaces.
    pub(crate) spaces: Spaces,
    /// Offset of the log behind which its records are. It is 0 in a server that has been restored.
    #[serde(skip)]
    pub(crate) since: u32,
    /// Quota of each rank in the log.
    pub(crate) quota: Usage,
    /// Ranks of this node that have initialized, with the time of the first. The first `init` of a rank counts.
    pub(crate) init: Fence,
    /// Fence of all ranks.
    pub(crate) fence: Fence,
    /// Number of ranks of this node that have arrived in the ring.
    pub(crate) ring: u32,
    /// Number of ranks on this node.
    pub(crate) local: u32,
    /// Bit set of links to children whose subtree has live ranks of the job.
    pub(crate) below: LinkSet,
    /// Progress of the fence on other nodes.
    pub(crate) fence_tracker: Tracker,
    /// Progress of the ring on other nodes.
    pub(crate) ring_tracker: Tracker,
    /// Number of processes that have exited.
    pub(crate) exited: u32,
    /// Number of this node's ranks that collectives exclude, because they exited and the job continues.
    pub(crate) excluded_count: u32,
    /// Time from which ranks of this node that are cut off from PMI count as lost. `None` if no rank has been.
    pub(crate) cut_off: Option<Time>,
    /// Whether a connection has been opened for it.
    pub(crate) begun: bool,
    /// Cause of the abort, if it is aborted.
    pub(crate) ending: Option<Cause>,
    /// Whether [`Output::AbortJob`](crate::Output::AbortJob) is pending.
    pub(crate) ending_pending: bool,
    /// Length in bytes of the message of the aborting rank, which is among [`Messages`](crate::tables::messages::Messages).
    pub(crate) message: u16,
    /// Bit set of limits for which a request of the job was refused. It affects no output, so snapshots are without it.
    #[serde(skip)]
    pub(crate) hit: u32,
    /// Number of fences of all ranks that are complete.
    pub(crate) fences: u32,
}

impl Job {
    /// Unused slot. It consists of zero bytes, for a `static` in `.bss`.
    pub(crate) const EMPTY: Job = Job {
        name: String::new(),
        hash: 0,
        first: 0,
        size: 0,
        universe_size: 0,
        cleanup: false,
        pmi1_subversion: 0,
        spawner: String::new(),
        parted: false,
        lookup_wait: 0,
        remote_names: false,
        fence_warning: 0,
        lazy: false,
        adaptive: false,
        nodes_asked: 0,
        all_asked: false,
        fetched: 0,
        spaces: Spaces::NONE,
        since: 0,
        quota: Usage::NONE,
        init: Fence::NONE,
        fence: Fence::NONE,
        ring: 0,
        local: 0,
        below: LinkSet::EMPTY,
        fence_tracker: Tracker::NONE,
        ring_tracker: Tracker::NONE,
        exited: 0,
        excluded_count: 0,
        cut_off: None,
        begun: false,
        ending: None,
        ending_pending: false,
        message: 0,
        hit: 0,
        fences: 0,
    };

    /// Returns the indices of its slots in [`Storage::ranks`].
    pub(crate) fn slots(&self) -> core::ops::Range<usize> {
        self.first as usize..(self.first + self.size) as usize
    }

    /// Returns the index of a rank's slot.
    pub(crate) fn slot(&self, rank: Rank) -> Option<usize> {
        (rank.0 < self.size).then(|| self.first as usize + rank.index())
    }
}

/// Slot of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankSlot {
    /// Connection of the rank, if it has one.
    pub(crate) conn: Option<ConnId>,
    /// PMIx connection of the rank, if it has one.
    pub(crate) pmix: Option<ConnId>,
    /// Phase of the rank.
    pub(crate) phase: RankPhase,
    /// Exit of its process, if it has exited.
    pub(crate) exit: Option<Exit>,
    /// Whether it waits in the fence of its job.
    pub(crate) in_fence: bool,
    /// Whether it failed in a job that continues without it.
    pub(crate) dead: bool,
    /// Whether it exited, with or without an error, or was cut off from PMI, in a job that continues. Collectives do
    /// not wait for it.
    pub(crate) excluded: bool,
    /// Whether it has asked to abort itself alone.
    pub(crate) abort: Abort,
    /// Contribution to the ring, while it waits there.
    pub(crate) ring: Option<RingPart>,
    /// Number of its program on the command line.
    pub(crate) appnum: u32,
    /// Log space that it has used.
    pub(crate) used: Usage,
    /// Node of the rank.
    pub(crate) node: u32,
    /// Context id of the PMIx group that it constructed last. 0 without one.
    pub(crate) group: u32,
    /// Number of its exit among all exits of processes. 0 while it is alive.
    pub(crate) end: u32,
}

impl RankSlot {
    /// Returns whether the rank is cut off from PMI: its connection was closed between init and finalize, and its
    /// process lives. Only ranks of this node can be.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.phase == RankPhase::Initialized && !self.is_connected() && self.exit.is_none()
    }

    /// Returns whether it failed in a job that continues: see [`dead`](RankSlot::dead). A process that fails before it joins
    /// does not end a job whose ranks do not wait for it.
    pub(crate) fn has_failed(&self) -> bool {
        self.dead || self.phase == RankPhase::New && self.exit.is_some_and(|exit| exit != Exit::Code(0))
    }

    /// Returns whether the rank has a connection of either protocol.
    pub(crate) fn is_connected(&self) -> bool {
        self.conn.is_some() || self.pmix.is_some()
    }

    /// Returns whether a connection may become this rank's.
    pub(crate) fn may_connect(&self) -> bool {
        self.conn.is_none() && self.exit.is_none() && !self.excluded
    }
}

impl RankSlot {
    /// Unused slot. It consists of zero bytes, for a `static` in `.bss`.
    pub(crate) const EMPTY: RankSlot = RankSlot {
        conn: None,
        pmix: None,
        phase: RankPhase::New,
        exit: None,
        in_fence: false,
        dead: false,
        excluded: false,
        abort: Abort::No,
        ring: None,
        appnum: 0,
        used: Usage::NONE,
        node: 0,
        group: 0,
        end: 0,
    };
}

/// Request of a rank to abort itself alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
// `No` is zero bytes. An `Option` of a structure with an `Option` is not. The fields are laid out in this order.
#[repr(u8)]
pub(crate) enum Abort {
    /// None.
    #[default]
    No,
    /// It was received.
    Requested {
        /// Whether [`Output::KillRank`](crate::Output::KillRank) is pending.
        pending: bool,
        /// Requested exit code.
        code: Option<i32>,
    },
}

/// Contribution of a rank to the ring, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingPart {
    /// Count.
    pub(crate) count: u32,
    /// Offset of the record for the left neighbour.
    pub(crate) left: u32,
    /// Offset of the record for the right neighbour.
    pub(crate) right: u32,
}

/// Phase of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RankPhase {
    /// PMI is not initialized.
    #[default]
    New,
    /// The rank is between init and finalize.
    Initialized,
    /// The rank has finalized.
    Finalized,
}
