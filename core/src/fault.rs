//! Error types: one for hosts, one for clients' requests, one for clients' bytes.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{
    COMMIT_BYTES_MAX, KEY_MAX, Limit, MESSAGE_MAX, NAME_MAX, PORT_MAX, PSET_NAME_MAX, SPAWN_PROGRAMS_MAX,
    VALUE_MAX,
};

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
    /// An attribute, program or rank mapping after the job's first connection, a rank mapping after its first exit, a
    /// key longer than [`KEY_MAX`] bytes, or a value longer than [`VALUE_MAX`] bytes.
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

/// Client bytes that are not PMI. The connection is closed, because the start of the next message is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Malformed {
    /// The length prefix of a PMI-2 message is not six characters of decimal digits and blanks.
    Length,
    /// A message longer than [`MESSAGE_MAX`] or than the host's buffer.
    TooLong,
    /// A message that does not begin with `cmd=` or `mcmd=`.
    NoCommand,
    /// A first message other than `cmd=init` or `cmd=initack`.
    Handshake,
    /// A PMI-1 `mcmd` block or PMI-2 message whose parts contradict each other.
    Structure,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Malformed::Length => "a PMI-2 message without a six-digit length",
            Malformed::TooLong => return write!(f, "a message over {MESSAGE_MAX} bytes"),
            Malformed::NoCommand => "a message that is not PMI",
            Malformed::Handshake => "the first message is neither init nor initack",
            Malformed::Structure => "a message whose parts contradict each other",
        })
    }
}

impl core::error::Error for Malformed {}

/// Reason for refusing a client's request. The client gets [`rc`](Refusal::rc) and the text as `errmsg`. Nothing is
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[non_exhaustive]
pub enum Refusal {
    /// A limit that is reached. The second number is the limit's size.
    Full(Limit, u32),
    /// A limit whose remainder is reserved for ranks that used less than this one. The second number is this rank's
    /// quota.
    Quota(Limit, u32),
    /// A command before `init` or after `finalize`.
    NotInitialized,
    /// A second `init` or `fullinit`, or an `initack` on a connection that has a rank.
    Initialized,
    /// A version of PMI other than 1.x and 2.x.
    Version,
    /// A rank that the job does not have, that is connected already, or that has exited.
    Rank,
    /// A command without a required field.
    MissingField,
    /// A field with a value of the wrong type.
    BadField,
    /// An empty key.
    EmptyKey,
    /// A key over [`KEY_MAX`] bytes.
    KeyLength,
    /// A value over [`VALUE_MAX`] bytes.
    ValueLength,
    /// A value that the client's protocol cannot carry.
    Unprintable,
    /// A key-value space that does not exist, or that is not accessible to this job.
    NoKvs,
    /// A barrier group that is malformed or does not contain the requesting rank.
    BadGroup,
    /// A rank that already waits in that fence.
    InFence,
    /// A job that does not exist.
    NoJob,
    /// A job that this one is not connected to.
    NotConnected,
    /// A name that is empty or over [`NAME_MAX`] bytes, or a port over [`PORT_MAX`].
    NameLength,
    /// A name that is published already.
    NameTaken,
    /// A name that is not published.
    NoName,
    /// A spawn of more than [`SPAWN_PROGRAMS_MAX`] programs.
    Programs,
    /// A spawn on a host that starts no processes.
    NoSpawn,
    /// A spawn that started no process. The codes give the reasons.
    NotStarted,
    /// A process set's name that is empty, longer than [`PSET_NAME_MAX`] bytes with its scheme, or starts with the
    /// reserved `mpi://`.
    PsetName,
    /// A process set whose name is in use with other members.
    PsetTaken,
    /// A process set that does not exist or does not contain the requesting rank.
    NoPset,
    /// A process set with a dead member.
    PsetDead,
    /// A command that is unknown or not supported.
    Unsupported,
    /// A process set whose name belongs to a retired set.
    PsetRetired,
    /// A process set without ranks.
    PsetEmpty,
}

impl Refusal {
    /// Returns the error code of pmi2.h (`PMI2_ERR_…`) that a client gets as `rc`. PMI-1 clients only test for
    /// nonzero.
    pub const fn rc(self) -> i32 {
        match self {
            Refusal::NotInitialized => 1,
            Refusal::Full(..) | Refusal::Quota(..) => 2,
            Refusal::Rank
            | Refusal::MissingField
            | Refusal::BadField
            | Refusal::NoKvs
            | Refusal::NoJob
            | Refusal::NotConnected
            | Refusal::Programs
            | Refusal::NoPset
            | Refusal::PsetName
            | Refusal::PsetEmpty
            | Refusal::BadGroup => 3,
            Refusal::EmptyKey => 4,
            Refusal::NameLength => 8,
            Refusal::KeyLength => 5,
            Refusal::Unprintable => 6,
            Refusal::ValueLength => 7,
            Refusal::Initialized
            | Refusal::Version
            | Refusal::InFence
            | Refusal::NameTaken
            | Refusal::NoName
            | Refusal::NoSpawn
            | Refusal::NotStarted
            | Refusal::PsetTaken
            | Refusal::PsetDead
            | Refusal::PsetRetired
            | Refusal::Unsupported => 14,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full(limit @ Limit::CommitBytes, COMMIT_BYTES_MAX) => {
                let name = limit.name();
                return write!(
                    f,
                    "limit {name} ({COMMIT_BYTES_MAX}) is used up, the most for --limit {name}=N"
                );
            }
            Refusal::Full(limit, size) => {
                let name = limit.name();
                return write!(f, "limit {name} ({size}) is used up, raise it with --limit {name}=N");
            }
            Refusal::Quota(limit, size) => {
                let name = limit.name();
                return write!(
                    f,
                    "limit {name}: this rank's share ({size}) and the common rest are used up, \
                     raise it with --limit {name}=N"
                );
            }
            Refusal::NotInitialized => "not initialized",
            Refusal::Initialized => "initialized already",
            Refusal::Version => "only PMI versions 1 and 2 are spoken",
            Refusal::Rank => "no such rank, or it is connected already",
            Refusal::MissingField => "a needed field is missing",
            Refusal::BadField => "a field has a value that is not of its kind",
            Refusal::EmptyKey => "the key is empty",
            Refusal::KeyLength => return write!(f, "the key is longer than {KEY_MAX} bytes"),
            Refusal::ValueLength => return write!(f, "the value is longer than {VALUE_MAX} bytes"),
            Refusal::Unprintable => "the value holds a byte that this protocol cannot carry",
            Refusal::NoKvs => "no such key-value space, or not connected to its job",
            Refusal::BadGroup => "the group is malformed or this rank is not in it",
            Refusal::InFence => "this rank waits in that fence already",
            Refusal::NoJob => "no such job",
            Refusal::NotConnected => "not connected to that job",
            Refusal::NameLength => {
                return write!(f, "a name has 1 to {NAME_MAX} bytes and a port at most {PORT_MAX}");
            }
            Refusal::NameTaken => "the name is published already",
            Refusal::NoName => "nobody has published that name",
            Refusal::Programs => {
                return write!(f, "a spawn may start {SPAWN_PROGRAMS_MAX} programs at most");
            }
            Refusal::NoSpawn => "this host starts no processes",
            Refusal::NotStarted => "nothing was started, errcodes say why",
            Refusal::PsetName => {
                return write!(
                    f,
                    "a process set's name has 1 to {PSET_NAME_MAX} bytes with its scheme and is not mpi://"
                );
            }
            Refusal::PsetTaken => "a process set of that name has other members",
            Refusal::NoPset => "no such process set, or this rank is not in it",
            Refusal::PsetDead => "a member of the process set has died",
            Refusal::PsetRetired => "a process set of that name is retired and not pruned",
            Refusal::PsetEmpty => "a process set has at least one rank",
            Refusal::Unsupported => "command not supported",
        })
    }
}

impl core::error::Error for Refusal {}
