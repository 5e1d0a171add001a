//! Slots of connections.

use heapless::Vec;
use serde::{Deserialize, Serialize};

use super::reply::PendingReply;
use crate::ids::{JobId, Rank};
use crate::limits::{EVENT_CODES_MAX, PENDING_MAX};
use crate::trace::Closing;
use crate::wire::{Integers, Protocol};

/// Slot of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Conn {
    /// Job of the connection. `None` marks a free slot.
    pub(crate) job: Option<JobId>,
    /// Rank of the connection, once known.
    pub(crate) rank: Option<Rank>,
    /// Whether it is a query connection, which is independent of the rank's own connection.
    pub(crate) query: bool,
    /// Whether the host has verified that the client is of the job's user.
    pub(crate) verified: bool,
    /// Phase of the handshake.
    pub(crate) phase: Phase,
    /// Protocol in use.
    pub(crate) protocol: Protocol,
    /// Version of PMIx in use, in the place of `protocol`.
    pub(crate) pmix: Option<Dialect>,
    /// Whether the host's send buffer is full.
    pub(crate) blocked: bool,
    /// Whether a rank has joined through it.
    pub(crate) joined: bool,
    /// Whether [`Output::Joined`](crate::Output::Joined) is pending.
    pub(crate) joined_pending: bool,
    /// Reason for closing it, if it must be closed.
    pub(crate) closing: Option<Closing>,
    /// Whether [`Output::Close`](crate::Output::Close) is pending.
    pub(crate) closing_pending: bool,
    /// PMIx events for the client.
    pub(crate) events: Events,
    /// Pending replies, oldest request first.
    pub(crate) replies: Vec<PendingReply, PENDING_MAX, u8>,
}

/// PMIx events that a client has registered for, and how far it has got them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Events {
    /// Codes of the events.
    pub(crate) codes: Vec<i32, EVENT_CODES_MAX, u8>,
    /// Whether it has registered for all events.
    pub(crate) all: bool,
    /// Whether there may be an event that it has not got.
    pub(crate) due: bool,
    /// Whether its process waits for a debugger, which the host has to be told.
    pub(crate) waits: bool,
    /// Number of the last exit of a process that it has got.
    pub(crate) exits: u32,
    /// Number of the last notice that it has got.
    pub(crate) notices: u32,
    /// Number of the last end of a job that it has got, of notices of which some are kept for it.
    #[cfg(feature = "cluster")]
    ends: u32,
    /// Serial number of the last change of a process set that it has got.
    pub(crate) sets: u32,
}

impl Events {
    /// Unused slot.
    const EMPTY: Events = Events {
        codes: Vec::new(),
        all: false,
        due: false,
        waits: false,
        exits: 0,
        notices: 0,
        #[cfg(feature = "cluster")]
        ends: 0,
        sets: 0,
    };

    /// Returns the number of the last end of a job that the client has got, or of the last other notice.
    #[cfg(feature = "pmix")]
    pub(crate) fn last(&self, is_end: bool) -> u32 {
        #[cfg(feature = "cluster")]
        if is_end {
            return self.ends;
        }
        let _ = is_end;
        self.notices
    }

    /// Returns it for a change.
    #[cfg(feature = "pmix")]
    pub(crate) fn last_of(&mut self, is_end: bool) -> &mut u32 {
        #[cfg(feature = "cluster")]
        if is_end {
            return &mut self.ends;
        }
        let _ = is_end;
        &mut self.notices
    }
}

impl Conn {
    /// Unused slot. It consists of zero bytes, for a `static` in `.bss`.
    pub(crate) const EMPTY: Conn = Conn {
        job: None,
        rank: None,
        query: false,
        verified: false,
        phase: Phase::Opened,
        protocol: Protocol::V1,
        pmix: None,
        blocked: false,
        joined: false,
        joined_pending: false,
        closing: None,
        closing_pending: false,
        events: Events::EMPTY,
        replies: Vec::new(),
    };
}

impl Conn {
    /// Returns whether no reply is pending, so that another connection of the rank may replace it.
    pub(crate) fn is_idle(&self) -> bool {
        self.replies.is_empty() && !self.blocked && self.closing.is_none()
    }
}

/// Version of PMIx that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dialect {
    /// Encoding of integers.
    pub(crate) integers: Integers,
    /// Major version of the client's library.
    pub(crate) major: u8,
}

/// Phase of a connection's handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// No request was received, or only `initack`.
    #[default]
    Opened,
    /// `init` was received. PMI-2 requires `fullinit` next.
    Negotiated,
    /// The handshake is complete. All commands are accepted.
    Ready,
    /// `finalize` was received. Another `init` is accepted.
    Finalized,
}
