//! Errors of the head and of daemons.

use hydrant_placement::PlacementError;

/// Reason why a host has not joined or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRefusal {
    /// Its kind.
    pub kind: HostRefusalKind,
    /// The reason, for the user.
    pub text: String,
}

/// Kind of reason why a host has not joined or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRefusalKind {
    /// Not in this run, or not now.
    Unavailable,
    /// The run has had as many hosts as it may have.
    Limit,
    /// It is in the run already.
    Present,
    /// It is not in the run.
    Absent,
    /// Its ranks, its neighbours, or another request need it.
    Busy,
    /// Too few hosts would stay.
    Kept,
    /// Its daemon could not be started, or is lost.
    Failed,
}

impl HostRefusal {
    pub(crate) fn failed(reason: &str) -> HostRefusal {
        HostRefusal { kind: HostRefusalKind::Failed, text: reason.to_owned() }
    }
}

impl From<Error> for HostRefusal {
    fn from(error: Error) -> HostRefusal {
        let kind = match error {
            Error::ManyHosts(_) => HostRefusalKind::Limit,
            Error::HostThere(_) => HostRefusalKind::Present,
            Error::NoSuchHost(_) | Error::HostGone(_) => HostRefusalKind::Absent,
            Error::HostJoins(_)
            | Error::HostLeaves(_)
            | Error::HostInside { .. }
            | Error::HostHasRanks { .. } => HostRefusalKind::Busy,
            Error::LastHost(_) | Error::FewHosts { .. } => HostRefusalKind::Kept,
            _ => HostRefusalKind::Unavailable,
        };
        HostRefusal { kind, text: error.to_string() }
    }
}

/// Reason why the head or a daemon cannot go on. The run ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A daemon sent bytes that are no report, or a report about ranks of another node.
    #[error("host {host} (node {node}) sent an invalid report")]
    InvalidReport {
        /// Host of the daemon.
        host: String,
        /// Node of the daemon.
        node: u32,
    },
    /// The head sent a daemon bytes that are no order, or an order to start a job under a number that is in use.
    #[error("the head sent an invalid order")]
    InvalidOrder,
    /// The description of a job does not fit into a message.
    #[error(
        "the description of the job for its hosts takes {len} bytes, and at most {max} are possible: pass less of the \
         environment on, or name fewer programs"
    )]
    JobTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The longest message in bytes.
        max: usize,
    },
    /// A job without ranks, or with more ranks than a number holds.
    #[error("cannot run a job of {0} ranks: give from 1 to {max}", max = i32::MAX)]
    Size(u64),
    /// The job beside whose ranks others shall run does not exist.
    #[error("there is no job {0} to debug")]
    NoTarget(String),
    /// More ranks than their number on each host allows.
    #[error(
        "{asked} ranks are asked for, and the hosts have places for {placed}: ask for fewer, or for more on each host"
    )]
    NoPlace {
        /// Ranks of the program.
        asked: u32,
        /// Ranks that have a place.
        placed: u32,
    },
    /// A rank is to wait for a debugger that the job does not have.
    #[error("rank {rank} is to wait for a debugger, and the job has {size} ranks: name one below {size}")]
    NoRankToStop {
        /// The rank.
        rank: u32,
        /// Number of ranks.
        size: u32,
    },
    /// The list of the ranks that wait for a debugger is too long.
    #[error("ranks in {ranges} ranges are to wait for a debugger: name fewer, or all")]
    TooManyToStop {
        /// Number of ranges.
        ranges: usize,
    },
    /// A host cannot join: the run has had all hosts that it may have.
    #[error("the run may have {0} hosts, and has had them: start it with a higher --elastic")]
    ManyHosts(u32),
    /// No host can join or leave now.
    #[error("{0}")]
    NotElastic(String),
    /// A host cannot join, because it is in the run.
    #[error("host {0} is in the run already")]
    HostThere(String),
    /// A host is not there.
    #[error("host {0} is not in the run")]
    NoSuchHost(String),
    /// A spawn, or a request to leave, names a host that is lost, has left, or leaves.
    #[error("host {0} is not in the run any more: name another one")]
    HostGone(String),
    /// A host cannot leave before it has joined.
    #[error("host {0} is joining: let it leave later")]
    HostJoins(String),
    /// A host leaves already.
    #[error("host {0} is leaving already")]
    HostLeaves(String),
    /// A host cannot leave: hosts below it in the tree would go with it.
    #[error(
        "host {host} connects {below} with the head: let those leave first, or start the run with a higher --radix"
    )]
    HostInside {
        /// The host.
        host: String,
        /// Hosts below it.
        below: String,
    },
    /// The last host cannot leave.
    #[error("host {0} is the last one: end the run instead")]
    LastHost(String),
    /// A host cannot leave, because too few would stay.
    #[error("host {host} is one of the last {least}, which stay (--elastic {least}:MAX)")]
    FewHosts {
        /// The host.
        host: String,
        /// How many hosts stay.
        least: u32,
    },
    /// A host cannot leave because of its ranks.
    #[error("host {host} has {ranks}: end them, or use --force")]
    HostHasRanks {
        /// The host.
        host: String,
        /// Its ranks.
        ranks: String,
    },
    /// The ranks of a spawned job cannot be placed.
    #[error(transparent)]
    Placement(#[from] PlacementError),
}
