//! The `hydrant` command as a library: plans a job, launches it and serves it.

pub mod cli;
pub mod plan;
pub mod probe;
