//! I/O forwarding of MPI jobs: standard output, error and input of ranks.
//!
//! [`Streams`] are the output of ranks, [`Sinks`] its destinations, and [`Stdin`] is their input, or [`PushedInput`] where
//! tools push it. They register descriptors in the poller of an event loop, which gives them a range of keys and handles what
//! is ready by [`Descriptor`]. Numbers of streams follow from the launcher's numbers of processes: standard output is
//! `2 * process`, standard error the next.
//!
//! ```
//! use std::fs::File;
//! use std::io::Write;
//!
//! use hydrant_iof::{Descriptor, Labels, LinePrefix, NamedJob, Prefix, Sinks, Streams};
//! use hydrant_reactor::{KeyRange, Poller};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (keys, mut poller) = (KeyRange(0), Poller::new()?);
//! let mut sinks = Sinks::new(keys)?;
//! let labels = Labels::new(Prefix { lines: LinePrefix::Rank, timestamps: false });
//! let mut streams = Streams::new(labels, None, keys);
//! // A job of one rank, which writes two lines.
//! streams.make_room(0..1, (0, NamedJob::default()), &sinks, |_| "node1");
//! let mut rank = File::from(streams.open(0, &poller)?);
//! rank.write_all(b"first\nsecond\n")?;
//! drop(rank);
//!
//! let (mut ready, mut buffer) = (Vec::new(), [0; 4096]);
//! while !streams.are_closed(0..1) {
//!     poller.wait(None, &mut ready)?;
//!     for descriptor in ready.iter().filter_map(|&key| Descriptor::of(keys, key)) {
//!         if let Descriptor::Stream(stream) = descriptor {
//!             streams.read(stream, 0, &mut buffer, &mut sinks, &poller);
//!         }
//!     }
//!     // [0] first, and [0] second.
//!     sinks.flush(&poller);
//! }
//! assert!(sinks.are_empty());
//! # Ok(())
//! # }
//! ```

mod descriptor;
mod label;
mod pattern;
mod pty;
mod sinks;
mod stdin;
mod streams;

pub use descriptor::Descriptor;
pub use label::{Labels, LinePrefix, Prefix};
pub use pattern::{NamedJob, expand};
pub use pty::{Pty, pseudo_terminals, window_size};
pub use sinks::{Forwarded, Sink, SinkId, Sinks, UNSENT_MAX, Unsent};
pub use stdin::{PushedInput, RankInput, Stdin};
pub use streams::{Copies, Copy, Streams};
