//! What the tests share: finding real MPI libraries and building programs against them, starting jobs under a
//! watchdog, and reading captured exchanges.

pub mod host;
pub mod job;
pub mod message;
pub mod offload;
pub mod peers;
pub mod plain;
mod recording;
pub mod slurm;
pub mod terminal;
pub mod transcript;

pub use job::{Job, Outcome, Running};

/// Says something to whoever runs the tests, which the test runner does not hold back.
pub fn tell(what: &str) {
    use std::io::Write;
    // Somebody who closed standard error does not want to know.
    let _ = writeln!(std::io::stderr(), "{what}");
}
