//! Error types: one for clients' requests, one for clients' bytes.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{
    COMMIT_BYTES_MAX, KEY_MAX, Limit, MESSAGE_MAX, NAME_MAX, PORT_MAX, PSET_NAME_MAX, SPAWN_PROGRAMS_MAX,
    VALUE_MAX,
};

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
    /// A collective with a time-out that has passed.
    TimedOut,
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
            | Refusal::TimedOut
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
            Refusal::TimedOut => "a time-out of the collective has passed",
        })
    }
}

impl core::error::Error for Refusal {}
