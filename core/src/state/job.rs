//! Slots of jobs and ranks.

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, Rank};
use crate::limits::{JOBID_MAX, MESSAGE_TEXT_MAX};
use crate::tables::fence::Fence;
use crate::tables::kvs::{Spaces, Usage};
use crate::tables::tracker::Tracker;
use crate::trace::{Cause, Exit};

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The job id that clients see; an empty one marks a free slot.
    pub(crate) name: String<JOBID_MAX, u8>,
    /// Its hash, for other nodes.
    pub(crate) hash: u32,
    /// Its first slot in [`Storage::ranks`].
    pub(crate) first: u32,
    /// Its number of ranks.
    pub(crate) size: u32,
    /// `universeSize`
    pub(crate) universe_size: u32,
    /// Whether a rank that fails ends the job.
    pub(crate) cleanup: bool,
    /// What `init` answers to PMI-1 clients.
    pub pmi1_subversion: u32,
    /// The job that spawned it; empty where none did.
    pub(crate) spawner: String<JOBID_MAX, u8>,
    /// Milliseconds that a look-up waits for a name.
    pub(crate) lookup_wait: u64,
    /// Whether names are the host's business.
    pub(crate) remote_names: bool,
    /// Milliseconds after which a waiting fence is late; 0 for never.
    pub(crate) fence_warning: u64,
    /// Its key-value spaces.
    pub(crate) spaces: Spaces,
    /// What is set aside for each of its ranks there.
    pub(crate) quota: Usage,
    /// The fence of all its ranks.
    pub(crate) fence: Fence,
    /// How many ranks of this node have come to the ring.
    pub(crate) ring: u32,
    /// Its ranks on this node.
    pub(crate) local: u32,
    /// Children that have ranks of it to wait for, by their links' bits.
    pub(crate) below: u64,
    /// How far its fence has come on other nodes.
    pub(crate) fence_tracker: Tracker,
    /// How far its ring has.
    pub(crate) ring_tracker: Tracker,
    /// How many of its processes have ended.
    pub(crate) gone: u32,
    /// How many of this node's ranks no fence waits for, because the job goes on without them.
    pub(crate) excluded_count: u32,
    /// Whether a connection has been opened for it.
    pub(crate) begun: bool,
    /// Why it has to end, once it has to.
    pub(crate) ending: Option<Cause>,
    /// Whether the host still has to be told so.
    pub(crate) ending_pending: bool,
    /// What the aborting rank said.
    pub(crate) message: String<MESSAGE_TEXT_MAX, u8>,
}

impl Job {
    /// A slot of zero bytes, for a `static` in `.bss`. `Server::new` overwrites it with the default value, whose `None`
    /// is not always zero.
    pub(crate) const EMPTY: Job = Job {
        name: String::new(),
        hash: 0,
        first: 0,
        size: 0,
        universe_size: 0,
        cleanup: false,
        pmi1_subversion: 0,
        spawner: String::new(),
        lookup_wait: 0,
        remote_names: false,
        fence_warning: 0,
        spaces: Spaces::NONE,
        quota: Usage::NONE,
        fence: Fence::NONE,
        ring: 0,
        local: 0,
        below: 0,
        fence_tracker: Tracker::NONE,
        ring_tracker: Tracker::NONE,
        gone: 0,
        excluded_count: 0,
        begun: false,
        ending: Some(Cause::Abort { rank: Rank(0), code: None }),
        ending_pending: false,
        message: String::new(),
    };

    /// Its slots in [`Storage::ranks`].
    #[inline]
    pub(crate) fn slots(&self) -> core::ops::Range<usize> {
        self.first as usize..(self.first + self.size) as usize
    }

    /// The slot of one of its ranks.
    #[inline]
    pub(crate) fn slot(&self, rank: Rank) -> Option<usize> {
        (rank.0 < self.size).then(|| self.first as usize + rank.index())
    }
}

/// A rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankSlot {
    /// Its connection, if it has one.
    pub(crate) conn: Option<ConnId>,
    /// How far it has come.
    pub(crate) phase: RankPhase,
    /// How its process ended, once it has.
    pub(crate) exit: Option<Exit>,
    /// Whether it waits in its job's fence.
    pub(crate) in_fence: bool,
    /// Whether it failed in a job that goes on without it.
    pub(crate) dead: bool,
    /// Whether it ended, well or badly, in a job that goes on without it: nobody waits for it any more.
    pub(crate) excluded: bool,
    /// How it asked to be ended alone, once it has.
    pub(crate) abort: Option<Aborted>,
    /// What it brought to the ring, while it waits there.
    pub(crate) ring: Option<RingPart>,
    /// Which program of the command line it is.
    pub(crate) appnum: u32,
    /// What it has put.
    pub(crate) used: Usage,
    /// The node that it is on.
    pub(crate) node: u32,
    /// The number of its end among all ends of processes, for telling other nodes; 0 while it lives.
    pub(crate) end: u32,
}

impl RankSlot {
    /// A slot of zero bytes, for a `static` in `.bss`. `Server::new` overwrites it with the default value, whose `None`
    /// is not always zero.
    pub(crate) const EMPTY: RankSlot = RankSlot {
        conn: None,
        phase: RankPhase::New,
        exit: Some(Exit::Code(0)),
        in_fence: false,
        dead: false,
        excluded: false,
        abort: Some(Aborted { code: None, pending: false }),
        ring: None,
        appnum: 0,
        used: Usage::NONE,
        node: 0,
        end: 0,
    };
}

/// How a rank asked to be ended alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aborted {
    /// The exit code it asked for.
    pub(crate) code: Option<i32>,
    /// Whether the host still has to be told so.
    pub(crate) pending: bool,
}

/// What a rank brings to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RingPart {
    /// How many it counts for.
    pub(crate) count: u32,
    /// The record for its left neighbour.
    pub(crate) left: u32,
    /// The record for its right neighbour.
    pub(crate) right: u32,
}

/// How far a rank has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RankPhase {
    /// It has not initialized PMI.
    #[default]
    New,
    /// It is between init and finalize.
    Initialized,
    /// It has finalized.
    Finalized,
}
