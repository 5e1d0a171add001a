//! Slots of jobs and ranks.

use heapless::String;
use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, Rank};
use crate::limits::{JOBID_MAX, MESSAGE_TEXT_MAX};
use crate::tables::fence::Fence;
use crate::tables::kvs::{Amount, Spaces};
use crate::tables::meet::Meet;
use crate::trace::{Cause, Exit};

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The job id that clients see; an empty one marks a free slot.
    pub name: String<JOBID_MAX, u8>,
    /// Its hash, for other nodes.
    pub hash: u32,
    /// Its first slot in [`Storage::ranks`].
    pub first: u32,
    /// Its number of ranks.
    pub size: u32,
    /// `universeSize`
    pub universe: u32,
    /// Whether a rank that fails ends the job.
    pub cleanup: bool,
    /// What `init` answers to PMI-1 clients.
    pub pmi1_subversion: u32,
    /// The job that spawned it; empty where none did.
    pub spawner: String<JOBID_MAX, u8>,
    /// Milliseconds that a look-up waits for a name.
    pub lookup_wait: u64,
    /// Whether names are the host's business.
    pub remote_names: bool,
    /// Milliseconds after which a waiting fence is late; 0 for never.
    pub fence_warning: u64,
    /// Its key-value spaces.
    pub spaces: Spaces,
    /// What is set aside for each of its ranks there.
    pub share: Amount,
    /// The fence of all its ranks.
    pub fence: Fence,
    /// How many ranks of this node have come to the ring.
    pub ring: u32,
    /// Its ranks on this node.
    pub local: u32,
    /// Children that have ranks of it to wait for, by their links' bits.
    pub below: u64,
    /// How far its fence has come on other nodes.
    pub fence_meet: Meet,
    /// How far its ring has.
    pub ring_meet: Meet,
    /// How many of its processes have ended.
    pub gone: u32,
    /// How many of this node's ranks no fence waits for, because the job goes on without them.
    pub unawaited: u32,
    /// Whether a connection has been opened for it.
    pub begun: bool,
    /// Why it has to end, once it has to.
    pub ending: Option<Cause>,
    /// Whether the host still has to be told so.
    pub ending_unsaid: bool,
    /// What the aborting rank said.
    pub message: String<MESSAGE_TEXT_MAX, u8>,
}

impl Job {
    /// A slot of zero bytes, for a `static` in `.bss`. `Server::new` overwrites it with the default value, whose `None`
    /// is not always zero.
    pub const EMPTY: Job = Job {
        name: String::new(),
        hash: 0,
        first: 0,
        size: 0,
        universe: 0,
        cleanup: false,
        pmi1_subversion: 0,
        spawner: String::new(),
        lookup_wait: 0,
        remote_names: false,
        fence_warning: 0,
        spaces: Spaces::NONE,
        share: Amount::NONE,
        fence: Fence::NONE,
        ring: 0,
        local: 0,
        below: 0,
        fence_meet: Meet::NONE,
        ring_meet: Meet::NONE,
        gone: 0,
        unawaited: 0,
        begun: false,
        ending: Some(Cause::Abort { rank: Rank(0), code: None }),
        ending_unsaid: false,
        message: String::new(),
    };

    /// Its slots in [`Storage::ranks`].
    #[inline]
    pub fn slots(&self) -> core::ops::Range<usize> {
        self.first as usize..(self.first + self.size) as usize
    }

    /// The slot of one of its ranks.
    #[inline]
    pub fn slot(&self, rank: Rank) -> Option<usize> {
        (rank.0 < self.size).then(|| self.first as usize + rank.index())
    }
}

/// A rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSlot {
    /// Its connection, if it has one.
    pub conn: Option<ConnId>,
    /// How far it has come.
    pub phase: RankPhase,
    /// How its process ended, once it has.
    pub exit: Option<Exit>,
    /// Whether it waits in its job's fence.
    pub in_fence: bool,
    /// Whether it failed in a job that goes on without it.
    pub dead: bool,
    /// Whether it ended, well or badly, in a job that goes on without it: nobody waits for it any more.
    pub buried: bool,
    /// How it asked to be ended alone, once it has.
    pub abort: Option<Aborted>,
    /// What it brought to the ring, while it waits there.
    pub ring: Option<RingPart>,
    /// Which program of the command line it is.
    pub appnum: u32,
    /// What it has put.
    pub used: Amount,
    /// The node that it is on.
    pub node: u32,
    /// The number of its end among all ends of processes, for telling other nodes; 0 while it lives.
    pub end: u32,
}

impl RankSlot {
    /// A slot of zero bytes, for a `static` in `.bss`. `Server::new` overwrites it with the default value, whose `None`
    /// is not always zero.
    pub const EMPTY: RankSlot = RankSlot {
        conn: None,
        phase: RankPhase::New,
        exit: Some(Exit::Code(0)),
        in_fence: false,
        dead: false,
        buried: false,
        abort: Some(Aborted { code: None, unsaid: false }),
        ring: None,
        appnum: 0,
        used: Amount::NONE,
        node: 0,
        end: 0,
    };
}

/// How a rank asked to be ended alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aborted {
    /// The exit code it asked for.
    pub code: Option<i32>,
    /// Whether the host still has to be told so.
    pub unsaid: bool,
}

/// What a rank brings to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingPart {
    /// How many it counts for.
    pub count: u32,
    /// The record for its left neighbour.
    pub left: u32,
    /// The record for its right neighbour.
    pub right: u32,
}

/// How far a rank has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankPhase {
    /// It has not initialized PMI.
    #[default]
    New,
    /// It is between init and finalize.
    Initialized,
    /// It has finalized.
    Finalized,
}
