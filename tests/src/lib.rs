//! The harness of the end-to-end tests.
//!
//! A [`Job`] says what to start: a program, its arguments, environment and input. [`Job::start`] gives a [`Running`]
//! program and [`Running::wait`] its [`Outcome`]; [`Job::run`] does both. Jobs of `hydrant run` ([`Job::hydrant`]) are
//! recorded, and each recording is replayed when the job has ended. [`Folder`] is a place for a test's files.
//!
//! ```no_run
//! use hydrant_tests::Job;
//!
//! let outcome = Job::hydrant("-n 2 sh -c").arg("echo rank $PMI_RANK; exit 3").run();
//! outcome.code(3).says("rank 0\n", 1).warns("exited with code 3");
//! ```

mod fleet;
mod folder;
pub mod host;
mod job;
pub mod message;
pub mod offload;
mod outcome;
mod patience;
pub mod peers;
pub mod pmix;
mod ports;
mod programs;
mod recording;
mod running;
mod signals;
pub mod slurm;
pub mod tap;
pub mod terminal;
pub mod transcript;

pub use fleet::Fleet;
pub use folder::Folder;
pub use job::{Job, LISTENER, SHAPES, nodes};
pub use outcome::Outcome;
pub use patience::{PATIENCE, until, within};
pub use ports::free_ports;
pub use programs::{
    cross, example, first_processor, hydrant_bin, hydrant_path, library, plugin, target_dir, this_machine,
};
pub use recording::in_sandbox;
pub use running::{Running, children};
pub use signals::reset_signals;

/// Prints a line on standard error, past the capture of the test runner.
pub fn tell(what: &str) {
    use std::io::Write;
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{what}");
}
