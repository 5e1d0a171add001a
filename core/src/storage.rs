//! The memory that a server works in, lent by the host, and what stands in it.
//!
//! Every slot's empty state is its `Default`, and a slab of empty slots is what [`crate::Server::new`] makes of
//! whatever it is handed.

use core::sync::atomic::AtomicU32;

use heapless::{String, Vec};
use serde::{Deserialize, Serialize};

use crate::fault::Refusal;
use crate::ids::{ConnId, JobId, Rank, UpcallId};
use crate::limits::{JOBID_MAX, Limits, MESSAGE_TEXT_MAX, PENDING_MAX, THRID_MAX};
use crate::store::{Ready, log};
use crate::tables::connect::Connections;
use crate::tables::fence::{Fence, Groups};
use crate::tables::kvs::{Amount, Spaces};
use crate::tables::meet::Meet;
use crate::tables::names::NameRef;
use crate::tables::psets::{Psets, Which};
use crate::time::Time;
use crate::trace::{Cause, Closing, Exit};
use crate::wire::{Op, Protocol};

pub use crate::peer::links::Link;
/// The tables' slots, named here so that hosts need no table.
pub use crate::tables::fence::Group;
pub use crate::tables::names::Name;
pub use crate::tables::psets::Pset;
pub use crate::tables::upcalls::Upcall;

/// Slices that a server lives in. Each must be at least as long as [`Layout::of`] says for the limits.
#[derive(Debug)]
pub struct Storage<'s> {
    /// One slot a job.
    pub jobs: &'s mut [Job],
    /// One slot a rank, of all jobs.
    pub ranks: &'s mut [RankSlot],
    /// One slot a connection.
    pub conns: &'s mut [Conn],
    /// The key-value log.
    pub log: &'s mut [u8],
    /// The index into it. Behind a shared reference, so that a host may lend it to other processes too.
    pub index: &'s [AtomicU32],
    /// One slot a group barrier.
    pub groups: &'s mut [Group],
    /// One slot a name.
    pub names: &'s mut [Name],
    /// One slot a request that the host carries out.
    pub spawns: &'s mut [Upcall],
    /// The texts of these.
    pub requests: &'s mut [u8],
    /// One slot a process set.
    pub psets: &'s mut [Pset],
    /// One slot a link to another node.
    pub links: &'s mut [Link],
    /// Sets of ranks and connections.
    pub bits: &'s mut [u32],
}

/// How many elements each slab needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of [`Storage::jobs`].
    pub jobs: usize,
    /// Of [`Storage::ranks`].
    pub ranks: usize,
    /// Of [`Storage::conns`].
    pub conns: usize,
    /// Of [`Storage::log`].
    pub log: usize,
    /// Of [`Storage::index`].
    pub index: usize,
    /// Of [`Storage::groups`].
    pub groups: usize,
    /// Of [`Storage::names`].
    pub names: usize,
    /// Of [`Storage::spawns`].
    pub spawns: usize,
    /// Of [`Storage::requests`].
    pub requests: usize,
    /// Of [`Storage::psets`].
    pub psets: usize,
    /// Of [`Storage::links`].
    pub links: usize,
    /// Of [`Storage::bits`].
    pub bits: usize,
}

impl Layout {
    /// What these limits need.
    pub const fn of(limits: &Limits) -> Layout {
        Layout {
            jobs: limits.jobs as usize,
            ranks: limits.ranks as usize,
            conns: limits.conns as usize,
            log: limits.kvs_bytes as usize,
            index: log::index_len(limits.keys),
            groups: limits.groups as usize,
            names: limits.names as usize,
            spawns: limits.spawns as usize,
            requests: limits.spawns as usize * limits.spawn_bytes as usize,
            psets: limits.psets as usize,
            links: limits.links as usize,
            bits: Ready::words(limits.conns)
                + Groups::words(limits.groups, limits.ranks)
                + Psets::words(limits.psets, limits.ranks)
                + Connections::words(limits.jobs),
        }
    }

    /// The same, where addresses of this machine reach that far.
    pub fn checked(limits: &Limits) -> Option<Layout> {
        let wide = |limit: u32| u128::from(limit);
        let words = |bits: u32| wide(bits.div_ceil(32));
        let sets = (2 * wide(limits.groups) + 1 + wide(limits.psets) + 1) * words(limits.ranks);
        // The set of ready connections has summaries of summaries, in all less than twice its lowest level.
        let bits = 2 * words(limits.conns) + 8 + sets + (wide(limits.jobs) + 2) * words(limits.jobs);
        // The index has its next power of two of slots.
        let index = 2 * (wide(limits.keys) + wide(limits.keys) / 3 + 1);
        let each = |count: u128, size: usize| count * size as u128;
        let bytes = each(wide(limits.jobs), size_of::<Job>())
            + each(wide(limits.ranks), size_of::<RankSlot>())
            + each(wide(limits.conns), size_of::<Conn>())
            + wide(limits.kvs_bytes)
            + each(index, size_of::<AtomicU32>())
            + each(wide(limits.groups), size_of::<Group>())
            + each(wide(limits.names), size_of::<Name>())
            + each(wide(limits.spawns), size_of::<Upcall>() + limits.spawn_bytes as usize)
            + each(wide(limits.psets), size_of::<Pset>())
            + each(wide(limits.links), size_of::<Link>())
            + each(bits, size_of::<u32>());
        (bytes <= isize::MAX as u128).then(|| Layout::of(limits))
    }

    /// Bytes of all slabs together.
    pub const fn bytes(&self) -> usize {
        self.jobs * size_of::<Job>()
            + self.ranks * size_of::<RankSlot>()
            + self.conns * size_of::<Conn>()
            + self.log
            + self.index * size_of::<AtomicU32>()
            + self.groups * size_of::<Group>()
            + self.names * size_of::<Name>()
            + self.spawns * size_of::<Upcall>()
            + self.requests
            + self.psets * size_of::<Pset>()
            + self.links * size_of::<Link>()
            + self.bits * size_of::<u32>()
    }
}

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

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conn {
    /// The job that it came for; none marks a free slot.
    pub job: Option<JobId>,
    /// Whose it is, once that is known.
    pub rank: Option<Rank>,
    /// Whether it is for queries: beside the rank's own, and without a part in its life.
    pub aside: bool,
    /// How far the introduction has come.
    pub phase: Phase,
    /// What is spoken.
    pub protocol: Protocol,
    /// Whether the host cannot write to it now.
    pub blocked: bool,
    /// Whether it has become a rank's.
    pub joined: bool,
    /// Whether the host has to be told so.
    pub joined_unsaid: bool,
    /// Why it cannot go on, once that is so.
    pub closing: Option<Closing>,
    /// Whether the host has to be told so.
    pub closing_unsaid: bool,
    /// Replies that are owed, oldest request first.
    pub owed: Vec<Owed, PENDING_MAX, u8>,
}

/// How far a connection's introduction has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Nothing but `initack` has come.
    #[default]
    Opened,
    /// `init` has come; PMI-2 wants `fullinit` now.
    Greeted,
    /// Every command is welcome.
    Ready,
    /// `finalize` has come; another `init` may.
    Finalized,
}

/// A reply that a connection is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// PMI-2's thread id, to be echoed; empty where none came.
    pub thrid: Vec<u8, THRID_MAX, u8>,
    /// What will be said, or waited for.
    pub what: What,
}

/// What a reply will say, or waits for. Everything that it names stays where it is until the reply is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
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
    Answer(Answer),
}

/// A reply in terms of the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
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
pub enum Attr {
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
