//! The state machine that answers clients.

mod io;

pub use io::{Closing, Consumed, Input, JobSpec, Output};
