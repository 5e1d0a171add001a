//! What the network loop tells the management side, and the management side its host.

use embassy_sync::blocking_mutex::raw::CriticalSectionRawMutex;
use embassy_sync::channel::Channel;
use heapless::String;
use hydrant_core::limits::{Limit, MESSAGE_TEXT_MAX};
use hydrant_core::manage::Report;
use hydrant_core::trace::{Cause, Closing};
use hydrant_core::{ConnId, JobId, Rank};

/// Events that wait to be sent. While there is no room for what one step can lead to, the core is told nothing.
pub(crate) static EVENTS: Channel<CriticalSectionRawMutex, Event, { 2 * AT_ONCE }> = Channel::new();

/// The most events that one step leads to.
pub(crate) const AT_ONCE: usize = 2;

/// What somebody said, or a list of ranks: as much of it as an event has room for.
pub(crate) type Text = String<MESSAGE_TEXT_MAX>;

/// An event of the management protocol, which [`Report`] describes.
pub(crate) enum Event {
    Joined { job: JobId, rank: Rank, conn: ConnId },
    End { job: JobId, cause: Cause, message: Text },
    Kill { job: JobId, rank: Rank, code: Option<i32>, message: Text },
    Late { job: JobId, arrived: u32, size: u32, missing: Text },
    Over { job: JobId },
    LimitHit { limit: Limit, size: u32 },
    Closed { conn: ConnId, rank: Option<Rank>, why: Closing },
}

impl Event {
    /// As it is sent.
    pub(crate) fn report(&self) -> Report<'_> {
        match *self {
            Event::Joined { job, rank, conn } => Report::Joined { job, rank, conn },
            Event::End { job, cause, ref message } => Report::End { job, cause, message },
            Event::Kill { job, rank, code, ref message } => Report::Kill { job, rank, code, message },
            Event::Late { job, arrived, size, ref missing } => Report::Late { job, arrived, size, missing },
            Event::Over { job } => Report::Over { job },
            Event::LimitHit { limit, size } => Report::LimitHit { limit, size },
            Event::Closed { conn, rank, why } => Report::Closed { conn, rank, why },
        }
    }
}

/// As much of a text as fits.
pub(crate) fn shorten(text: &str) -> Text {
    let mut short = Text::new();
    for c in text.chars() {
        if short.push(c).is_err() {
            break;
        }
    }
    short
}

/// Whether whatever comes of one step can be told.
pub(crate) fn have_room() -> bool {
    EVENTS.free_capacity() >= AT_ONCE
}

/// Tells an event; [`have_room`] has been asked.
pub(crate) fn tell(event: Event) {
    if EVENTS.try_send(event).is_err() {
        defmt::error!("an event is lost for want of room");
    }
}
