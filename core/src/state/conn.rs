//! Slots of connections.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use super::reply::PendingReply;
use crate::fault::Malformed;
use crate::ids::{JobId, Rank};
use crate::limits::PENDING_MAX;
use crate::trace::Closing;
use crate::wire::Protocol;

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conn {
    /// The job that it came for; none marks a free slot.
    pub(crate) job: Option<JobId>,
    /// Whose it is, once that is known.
    pub(crate) rank: Option<Rank>,
    /// Whether it is for queries: beside the rank's own, and without a part in its life.
    pub(crate) query: bool,
    /// How far the introduction has come.
    pub(crate) phase: Phase,
    /// What is spoken.
    pub(crate) protocol: Protocol,
    /// Whether the host cannot write to it now.
    pub(crate) blocked: bool,
    /// Whether it has become a rank's.
    pub(crate) joined: bool,
    /// Whether the host has to be told so.
    pub(crate) joined_pending: bool,
    /// Why it cannot go on, once that is so.
    pub(crate) closing: Option<Closing>,
    /// Whether the host has to be told so.
    pub(crate) closing_pending: bool,
    /// Replies that are owed, oldest request first.
    pub(crate) replies: Vec<PendingReply, PENDING_MAX, u8>,
}

impl Conn {
    /// A slot of zero bytes, for a `static` in `.bss`. `Server::new` overwrites it with the default value, whose `None`
    /// is not always zero.
    pub(crate) const EMPTY: Conn = Conn {
        job: None,
        rank: None,
        query: false,
        phase: Phase::Opened,
        protocol: Protocol::V1,
        blocked: false,
        joined: false,
        joined_pending: false,
        closing: Some(Closing::Malformed(Malformed::Length)),
        closing_pending: false,
        replies: Vec::new(),
    };
}

/// How far a connection's introduction has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Nothing but `initack` has come.
    #[default]
    Opened,
    /// `init` has come; PMI-2 wants `fullinit` now.
    Negotiated,
    /// Every command is welcome.
    Ready,
    /// `finalize` has come; another `init` may.
    Finalized,
}
