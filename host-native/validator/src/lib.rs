//! Validation of a PMI server in another place: a plugin, or a board.
//!
//! The host passes each input with its result, and each output, to a [`Validator`]. The first result or output that no correct
//! server has is a [`Violation`].
//!
//! ```
//! use hydrant_core::server::{Consumed, JobSpec};
//! use hydrant_core::{ConnId, Input, JobId, Limits, Output, Rank, Time};
//! use hydrant_validator::{Validator, Violation};
//!
//! let limits = Limits { jobs: 1, ranks: 2, conns: 2, ..Limits::NONE };
//! let mut validator = Validator::new(limits);
//! let (job, conn) = (JobId(0), ConnId(0));
//! let inputs = [
//!     Input::RegisterJob(JobSpec::new(job, "job", 2)),
//!     Input::Opened { conn, job, rank: Some(Rank(0)) },
//! ];
//! for input in inputs {
//!     validator.check_input(Time(0), &input, Consumed::default(), None)?;
//! }
//! validator.check_output(&Output::Bytes { conn, bytes: b"reply" })?;
//! let other = validator.check_output(&Output::Bytes { conn: ConnId(1), bytes: b"reply" });
//! assert_eq!(other, Err(Violation::UnknownConn(ConnId(1))));
//! # Ok::<(), Violation>(())
//! ```

mod progress;
mod validator;

pub use validator::{INPUTS_MAX, Validator, Violation};
