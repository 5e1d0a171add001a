//! Timelines of jobs from the recordings of their PMI servers: when each rank started, initialized, put, waited, got,
//! spawned and finalized, and for whom it waited.
//!
//! [`Timeline::read`] reads the recordings of all nodes of a run, or some of them, and puts them on one clock.
//! [`write_summary`] prints where the time went, [`write_trace`] writes a trace for Perfetto, and [`write_page`] a page
//! for a browser.
//!
//! ```
//! use hydrant_core::{ConnId, Consumed, Input, JobId, JobSpec, Limits, Output, Rank, Time};
//! use hydrant_record::{Record, Writer};
//! use hydrant_timeline::{Budget, Phase, Timeline, write_summary};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two ranks that wait for each other in a fence.
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file)?;
//! writer.write(&Record::Begin { program: "example 1.0", limits: Limits::NONE, seed: 0 })?;
//! let mut input = |at, input| writer.write(&Record::Input { now: Time(at), input });
//! input(0, Input::RegisterJob(JobSpec::new(JobId(0), "job", 2)))?;
//! for rank in 0..2 {
//!     input(1, Input::Opened { conn: ConnId(rank), job: JobId(0), rank: Some(Rank(rank)) })?;
//! }
//! for (at, rank) in [(10, 0), (50, 1)] {
//!     let bytes = b"cmd=barrier_in\n";
//!     let consumed = Consumed { bytes: bytes.len() as u32, again: false };
//!     writer.write(&Record::Input { now: Time(at), input: Input::Bytes { conn: ConnId(rank), bytes, full: false } })?;
//!     writer.write(&Record::Took { consumed, wake: None })?;
//! }
//! for rank in 0..2 {
//!     writer.write(&Record::Output(Output::Bytes { conn: ConnId(rank), bytes: b"cmd=barrier_out rc=0\n" }))?;
//! }
//! writer.finish()?;
//!
//! let timeline = Timeline::read([("job.rec", &file[..])], &Budget::default())?;
//! let fence = &timeline.collectives[0];
//! assert_eq!((fence.waited, timeline.tracks[fence.arrived[fence.last].track].rank), (40, 1));
//! assert!(timeline.tracks[0].spans.iter().any(|span| span.phase == Phase::Fence && span.end == Some(50)));
//! let mut text = Vec::new();
//! write_summary(&timeline, &mut text)?;
//! assert!(String::from_utf8(text)?.contains("fence 1"));
//! # Ok(())
//! # }
//! ```

mod assemble;
mod clock;
mod collect;
mod conn;
mod error;
mod hints;
mod live;
mod model;
mod page;
mod requests;
mod startup;
mod summary;
#[cfg(test)]
mod tests;
mod trace;

pub use error::TimelineError;
pub use live::Live;
pub use model::{
    Arrival, Clock, Collective, Job, LeftOut, Message, Millis, Node, Note, Phase, Protocol, Span, Timeline,
    Track,
};
pub use page::write_page;
pub use startup::{PhaseTime, StartUp};
pub use summary::{Fence, Part, Slow, Summary, Usage, write_summary};
pub use trace::write_trace;

/// Longest text of a message in bytes.
pub const TEXT_MAX: usize = 240;
/// Most jobs of a timeline.
pub const JOBS_MAX: usize = 4096;
/// Most notes of a timeline.
pub const NOTES_MAX: usize = 1000;

/// Memory that a timeline may use. Recordings are untrusted and may be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Number of ranks.
    pub ranks: usize,
    /// Number of spans.
    pub spans: usize,
    /// Number of collectives, and of sets of members that have one.
    pub collectives: usize,
    /// Bytes of messages. 0 for a timeline without messages.
    pub text: usize,
}

impl Default for Budget {
    /// Returns a budget of at most about 300 MiB.
    fn default() -> Budget {
        Budget { ranks: 200_000, spans: 1_000_000, collectives: 200_000, text: 8 << 20 }
    }
}
