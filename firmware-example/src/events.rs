//! Queue of events for the host.

use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::channel::Channel;
use heapless::{String, Vec};
use hydrant_core::limits::{Limit, MESSAGE_TEXT_MAX};
use hydrant_core::manage::Report;
use hydrant_core::trace::{Cause, Closing, Stream};
use hydrant_core::{ConnId, JobId, Rank};

/// Queued events. The server handles an input only if there is room for its events.
pub(crate) static EVENTS: Channel<CriticalSectionRawMutex, Event, { 2 * AT_ONCE }> = Channel::new();

/// Maximum number of events that one input causes.
pub(crate) const AT_ONCE: usize = 2;

/// Message of a rank or list of ranks, truncated.
pub(crate) type Text = String<MESSAGE_TEXT_MAX>;

/// Event of the management protocol with its text. See [`Report`].
pub(crate) enum Event {
    Joined { job: JobId, rank: Rank, conn: ConnId },
    End { job: JobId, cause: Cause, message: Text },
    Kill { job: JobId, rank: Rank, code: Option<i32>, message: Text },
    Late { job: JobId, arrived: u32, size: u32, missing: Text },
    Over { job: JobId },
    LimitHit { limit: Limit, size: u32 },
    Closed { conn: ConnId, rank: Option<Rank>, why: Closing },
    RemoveFiles { job: JobId, rank: Rank, paths: Vec<u8, MESSAGE_TEXT_MAX> },
    Log { job: JobId, rank: Rank, stream: Stream, text: Vec<u8, MESSAGE_TEXT_MAX> },
}

impl Event {
    /// Returns the report to send.
    pub(crate) fn report(&self) -> Report<'_> {
        match *self {
            Event::Joined { job, rank, conn } => Report::Joined { job, rank, conn },
            Event::End { job, cause, ref message } => Report::End { job, cause, message },
            Event::Kill { job, rank, code, ref message } => Report::Kill { job, rank, code, message },
            Event::Late { job, arrived, size, ref missing } => Report::Late { job, arrived, size, missing },
            Event::Over { job } => Report::Over { job },
            Event::LimitHit { limit, size } => Report::LimitHit { limit, size },
            Event::Closed { conn, rank, why } => Report::Closed { conn, rank, why },
            Event::RemoveFiles { job, rank, ref paths } => Report::RemoveFiles { job, rank, paths },
            Event::Log { job, rank, stream, ref text } => Report::Log { job, rank, stream, text },
        }
    }
}

/// Truncates a text to the capacity of [`Text`].
pub(crate) fn truncate(text: &str) -> Text {
    let mut short = Text::new();
    for c in text.chars() {
        if short.push(c).is_err() {
            break;
        }
    }
    short
}

/// Returns whether there is room for the events of one input.
pub(crate) fn have_room() -> bool {
    EVENTS.free_capacity() >= AT_ONCE
}

/// Queues an event. [`have_room`] must have returned true.
pub(crate) fn queue(event: Event) {
    if EVENTS.try_send(event).is_err() {
        defmt::error!("event queue overflow");
    }
}
