//! The `hydrant` command as a library: plans a job, launches it and serves it.

pub mod cli;
mod engine;
mod error;
mod launch;
mod peer;
pub mod plan;
pub mod probe;
pub mod slabs;
pub mod universe;

pub use engine::run;
pub use error::RunError;
