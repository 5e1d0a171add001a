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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Events {
    /// Registrations for events of one code.
    pub(crate) codes: Vec<Registration, EVENT_CODES_MAX, u8>,
    /// Registration for all events.
    pub(crate) all: Option<Got>,
    /// Whether there may be an event that it has not got.
    pub(crate) due: bool,
    /// Whether its process waits for a debugger, which the host has to be told.
    pub(crate) waits: bool,
    /// Number of the last notice that its process may have got by an earlier connection.
    pub(crate) before: u32,
    /// Number of the last notice about removed keys that it has got.
    pub(crate) removals: u32,
    /// Serial number of the last change of a process set that it has got.
    pub(crate) sets: u32,
}

/// Registration of a client for the events of a code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) code: i32,
    pub(crate) got: Got,
}

/// How far a registration has got its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Got {
    /// Number of the last exit of a process.
    pub(crate) exits: u32,
    /// Number of the last notice.
    pub(crate) notices: u32,
}

impl Events {
    /// Unused slot.
    const EMPTY: Events =
        Events { codes: Vec::new(), all: None, due: false, waits: false, before: 0, removals: 0, sets: 0 };

    /// Returns whether the client has registered for events of this very code.
    #[cfg(feature = "pmix")]
    pub(crate) fn has(&self, code: i32) -> bool {
        self.codes.iter().any(|known| known.code == code)
    }

    /// Returns how far all registrations for an event have got theirs, if there are any: those for one of these codes, and that for
    /// all events if it counts.
    // Once in the flash of a board.
    #[cfg(feature = "pmix")]
    #[inline(never)]
    pub(crate) fn got(&self, codes: &[i32], counts_all: bool) -> Option<Got> {
        let known = self.codes.iter().filter(|known| codes.contains(&known.code)).map(|known| &known.got);
        let least = |one: Got, other: Got| Got {
            exits: one.exits.min(other.exits),
            notices: one.notices.min(other.notices),
        };
        known.chain(self.all.as_ref().filter(|_| counts_all)).copied().reduce(least)
    }

    /// Notes that these registrations have got an event.
    #[cfg(feature = "pmix")]
    #[inline(never)]
    pub(crate) fn advance(&mut self, codes: &[i32], counts_all: bool, to: Got) {
        let known = self.codes.iter_mut().filter(|known| codes.contains(&known.code));
        let known = known.map(|known| &mut known.got);
        for got in known.chain(self.all.as_mut().filter(|_| counts_all)) {
            (got.exits, got.notices) = (got.exits.max(to.exits), got.notices.max(to.notices));
        }
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
