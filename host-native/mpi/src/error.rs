//! Errors of calls and their MPI error classes.

use hydrant_wire::limits::PSET_NAME_MAX;

use crate::abi::{Class, Handle};
use crate::info::InfoError;

/// Why a call failed, before an error handler was called.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what} is a null pointer")]
    NullPointer { class: Class, what: &'static str },
    #[error("the length is negative")]
    NegativeLength,
    #[error("invalid {kind} handle {handle:#x}: {}", if *freed { "already finalized or freed" } else { "no such object" })]
    Handle { class: Class, kind: &'static str, handle: Handle, freed: bool },
    #[error("MPI_INFO_ENV cannot be changed")]
    InfoEnvImmutable,
    #[error("MPI_ERRHANDLER_NULL cannot be freed")]
    ErrhandlerNull,
    #[error(transparent)]
    Info(#[from] InfoError),
    #[error("the info object has no key {}", .0.escape_ascii())]
    NoInfoKey(Vec<u8>),
    #[error("no key number {n}: the info object has {count}")]
    InfoKeyIndex { n: i32, count: usize },
    #[error("no process set number {0}")]
    PsetIndex(i32),
    #[error("no process set {} with this process as a member", .0.escape_ascii())]
    NoPset(Vec<u8>),
    #[error("process set {} was removed, and another one has its name: it can be used after hydrant_pset_prune", .0.escape_ascii())]
    ReplacedPset(Vec<u8>),
    #[error("process set {} has processes of another job: the MPI library has no group of them", .0.escape_ascii())]
    OtherJob(Vec<u8>),
    #[error("the name of a process set has 1 to {PSET_NAME_MAX} printable characters without ';'")]
    PsetName,
    #[error("the number of members is negative")]
    NegativeCount,
    #[error("a process set has at least one member")]
    NoMembers,
    #[error("a rank is negative")]
    NegativeRank,
    #[error("invalid list of ranks")]
    InvalidRanks,
    #[error("process sets can be changed only under hydrant run --mpi-psets")]
    NotUnderHydrant,
    #[error("no rank {rank}: the group has {size} processes")]
    GroupRank { rank: i32, size: i32 },
    #[error("rank {0} is given twice")]
    RepeatedRank(i32),
    #[error("no ranks from {first} to {last} with stride {stride}")]
    RankRange { first: i32, last: i32, stride: i32 },
    #[error("the MPI library lacks the function")]
    MissingFunction,
    #[error("{text}")]
    Refused { class: Class, text: String },
    #[error("cannot query hydrant for process sets: {0}")]
    Query(hydrant_client::Error),
}

impl Error {
    /// An argument that is a null pointer.
    pub(crate) fn null(what: &'static str) -> Error {
        Error::NullPointer { class: Class::Arg, what }
    }

    /// Returns the MPI error class.
    pub(crate) fn class(&self) -> Class {
        match self {
            Error::NullPointer { class, .. } | Error::Handle { class, .. } | Error::Refused { class, .. } => {
                *class
            }
            Error::Info(InfoError::KeyLength) => Class::InfoKey,
            Error::Info(InfoError::ValueLength) => Class::InfoValue,
            Error::Info(InfoError::NoKey) | Error::NoInfoKey(_) => Class::InfoNoKey,
            Error::Info(InfoError::NoMemory) => Class::NoMem,
            Error::InfoEnvImmutable => Class::Info,
            Error::ErrhandlerNull => Class::Errhandler,
            Error::NegativeLength
            | Error::InfoKeyIndex { .. }
            | Error::PsetIndex(_)
            | Error::NoPset(_)
            | Error::ReplacedPset(_)
            | Error::PsetName
            | Error::NegativeCount
            | Error::NoMembers
            | Error::NegativeRank
            | Error::InvalidRanks
            | Error::RankRange { .. } => Class::Arg,
            Error::GroupRank { .. } | Error::RepeatedRank(_) => Class::Rank,
            Error::NotUnderHydrant | Error::MissingFunction | Error::OtherJob(_) => Class::Unsupported,
            Error::Query(_) => Class::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_value() {
        let freed = Error::Handle { class: Class::Session, kind: "session", handle: 0x10002, freed: true };
        assert_eq!(freed.to_string(), "invalid session handle 0x10002: already finalized or freed");
        let none = Error::NoPset(b"a\nb".to_vec());
        assert_eq!(none.to_string(), "no process set a\\nb with this process as a member");
    }
}
