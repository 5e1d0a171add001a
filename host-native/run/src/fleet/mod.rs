//! Fleets: hosts with daemons that stay, for jobs of one user.
//!
//! A fleet is a run without a first job. `hydrant run --on NAME` connects to its socket and submits a job, whose output, messages
//! and exit code come back over the connection; input and signals go the other way. The client does with them what a head does for
//! the user: labels, files, the terminal. When a connection closes, its job ends.

mod client;
pub(crate) mod protocol;
mod tally;
mod up;

pub use client::{down, run_on};
pub use up::up;
