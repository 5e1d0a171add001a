//! Errors of hosts, beside those of clients, [`Refusal`] and [`Malformed`].

use core::fmt;

use serde::{Deserialize, Serialize};

pub use hydrant_wire::{Malformed, Refusal};

use crate::limits::Limit;

/// Violation of the contract of [`crate::Server::handle`] by the host. The server is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Fault {
    /// A connection number that is not below the limit, or that is not open.
    NoSuchConn,
    /// A connection number that is open already.
    ConnInUse,
    /// A job number that is not below the limit, or that is not registered.
    NoSuchJob,
    /// A job number that is in use.
    JobInUse,
    /// A rank that is not below the job's size.
    NoSuchRank,
    /// A rank that has a connection already, or has exited.
    RankTaken,
    /// A job without ranks.
    EmptyJob,
    /// A job id that is empty, too long or in use, or that holds a blank, `;`, `=`, `\\` or a byte that is not printable
    /// ASCII.
    BadJobId,
    /// A limit that is reached. The second number is the limit's size.
    Full(Limit, u32),
    /// An attribute, program or rank mapping after the job's first connection, unless it is a
    /// [text](crate::limits::TEXT_ATTR_PREFIX), a rank mapping after its first exit, a key longer than
    /// [`KEY_MAX`](crate::limits::KEY_MAX) bytes, or a value longer than [`VALUE_MAX`](crate::limits::VALUE_MAX) bytes.
    BadAttribute,
    /// An upcall that is unknown or already complete.
    NoSuchUpcall,
    /// A process set whose name is empty, too long, reserved or taken, or whose ranks are not all in the job.
    BadPset,
    /// A slab that is shorter than the limits require. Lengths above [`u32::MAX`] are reported as [`u32::MAX`].
    InsufficientStorage {
        /// The slab.
        slab: Slab,
        /// Elements that the limits require.
        needed: u32,
        /// Elements of the slab.
        given: u32,
    },
    /// A node number that is not in the tree, more neighbours than [`Limits::links`](crate::Limits::links), a node
    /// that is not a neighbour, or a tree after the first job.
    BadNode,
    /// An invalid message from another node.
    BadPeer,
    /// A refused request of a rank on any node. Its client gets the refusal as the reply.
    Refused(Refusal),
    /// Bytes that are not a snapshot of a server.
    Snapshot(Damage),
    /// A buffer for outputs that is shorter than [`Limits::output_max`](crate::Limits::output_max), or a buffer for a
    /// snapshot that is shorter than [`Server::snapshot_len`](crate::Server::snapshot_len). The number is the required
    /// length in bytes.
    ShortBuffer(u32),
    /// A job with lazy fences on several nodes, at a server without the feature `cluster`.
    NoLazyFences,
}

/// A buffer that is too short for the bytes to write. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShortBuffer {
    /// Bytes needed.
    pub needed: usize,
}

impl fmt::Display for ShortBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the buffer is too short: {} bytes needed", self.needed)
    }
}

impl core::error::Error for ShortBuffer {}

impl From<ShortBuffer> for Fault {
    fn from(short: ShortBuffer) -> Fault {
        Fault::ShortBuffer(u32::try_from(short.needed).unwrap_or(u32::MAX))
    }
}

/// Slabs of a [`Storage`](crate::Storage), for errors that name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Slab {
    /// [`Layout::jobs`](crate::storage::Layout::jobs)
    Jobs,
    /// [`Layout::ranks`](crate::storage::Layout::ranks)
    Ranks,
    /// [`Layout::conns`](crate::storage::Layout::conns)
    Conns,
    /// [`Layout::log`](crate::storage::Layout::log)
    Log,
    /// [`Layout::index`](crate::storage::Layout::index)
    Index,
    /// [`Layout::groups`](crate::storage::Layout::groups)
    Groups,
    /// [`Layout::names`](crate::storage::Layout::names)
    Names,
    /// [`Layout::upcalls`](crate::storage::Layout::upcalls)
    Upcalls,
    /// [`Layout::requests`](crate::storage::Layout::requests)
    Requests,
    /// [`Layout::psets`](crate::storage::Layout::psets)
    Psets,
    /// [`Layout::links`](crate::storage::Layout::links)
    Links,
    /// [`Layout::bits`](crate::storage::Layout::bits)
    Bits,
}

impl Slab {
    /// Returns the name of the slab's elements, in the plural.
    const fn name(self) -> &'static str {
        match self {
            Slab::Jobs => "job slots",
            Slab::Ranks => "rank slots",
            Slab::Conns => "connection slots",
            Slab::Log => "log bytes",
            Slab::Index => "index entries",
            Slab::Groups => "group slots",
            Slab::Names => "name slots",
            Slab::Upcalls => "upcall slots",
            Slab::Requests => "upcall bytes",
            Slab::Psets => "process set slots",
            Slab::Links => "link slots",
            Slab::Bits => "set words",
        }
    }
}

/// Defect in the bytes of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Damage {
    /// Header of another format or version.
    Header,
    /// Digest at the end that does not match: the bytes were changed or truncated.
    Digest,
    /// Encoding that is not that of a server's tables in their order.
    Encoding,
    /// Limits that this machine cannot hold.
    Limits,
    /// Invalid job, or wrong counts in a job.
    Jobs,
    /// Invalid rank.
    Ranks,
    /// Invalid connection or pending reply.
    Conns,
    /// Key-value log with invalid records, or with a usage that differs from that of the ranks.
    Kvs,
    /// Invalid group barrier.
    Groups,
    /// Invalid published name, or a wrong number of look-ups that wait for it.
    Names,
    /// Invalid upcall.
    Upcalls,
    /// Invalid process set.
    Psets,
    /// Inconsistent links to other nodes, or requests of them.
    Nodes,
    /// Index of the next connection beyond the limit.
    Turn,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damage::Header => "header of another format or version",
            Damage::Digest => "wrong digest: changed or truncated bytes",
            Damage::Encoding => "not the tables of a server",
            Damage::Limits => "limits too large for this machine",
            Damage::Jobs => "inconsistent jobs",
            Damage::Ranks => "inconsistent ranks",
            Damage::Conns => "inconsistent connections",
            Damage::Kvs => "inconsistent key-value log",
            Damage::Groups => "inconsistent groups",
            Damage::Names => "inconsistent names",
            Damage::Upcalls => "inconsistent upcalls",
            Damage::Psets => "inconsistent process sets",
            Damage::Nodes => "inconsistent links to other nodes",
            Damage::Turn => "index of the next connection beyond the limit",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::NoSuchConn => "no such connection",
            Fault::ConnInUse => "the connection number is in use",
            Fault::NoSuchJob => "no such job",
            Fault::JobInUse => "the job number is in use",
            Fault::NoSuchRank => "the job has no such rank",
            Fault::RankTaken => "the rank is connected already or has exited",
            Fault::EmptyJob => "a job needs at least one rank",
            Fault::BadJobId => "the job id is empty, too long, in use, or holds a reserved character",
            Fault::Full(limit, size) => {
                return write!(f, "limit {} ({size}) is used up", limit.name());
            }
            Fault::BadAttribute => "the attribute is too long, or set after the job has started",
            Fault::NoSuchUpcall => "no such upcall",
            Fault::BadPset => "the name or the ranks of the process set are invalid",
            Fault::InsufficientStorage { slab, needed, given } => {
                let slab = slab.name();
                return write!(
                    f,
                    "insufficient storage: the limits need {needed} {slab}, and {given} are given"
                );
            }
            Fault::ShortBuffer(needed) => {
                return ShortBuffer { needed: *needed as usize }.fmt(f);
            }
            Fault::BadNode => {
                "the node is not in the tree, has too many neighbours, or is set after the first job"
            }
            Fault::BadPeer => "the message contradicts the state of this node",
            Fault::Refused(why) => return why.fmt(f),
            Fault::Snapshot(damage) => return write!(f, "invalid snapshot: {damage}"),
            Fault::NoLazyFences => "lazy fences are not supported",
        })
    }
}

impl core::error::Error for Fault {}
